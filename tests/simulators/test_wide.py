from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.jobs.simulate import simulate
from outlay.simulators import wide
from outlay.simulators.city import CATEGORICAL, COUPONS, City
from outlay.simulators.city_people import CityWorld, People, PolicyValues
from outlay.simulators.city_truth import CityTruth

WORLD = wide.simulator(60, 3000)


def shown(world: wide.WideWorld, users: int = 3000, days: int = 3) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    """Values of the fields `[F, days, users]`, and the features behind them, day by day."""
    people = People.draw(world.city, users, np.random.default_rng(1))
    show = world.show(people)
    tables, seen = [], []
    for _ in range(days):
        tables.append(people.table())
        seen.append(np.stack([show(tables[-1])[name] for name in world.names]))
        people.live(np.zeros(users, np.intp))
    return np.stack(seen, axis=1), tables


@pytest.mark.parametrize(("fields", "values"), [(20, 250), (50, 5000), (1000, 100_000)])
def test_all_values_are_dealt_out(fields: int, values: int) -> None:
    layout = wide.layout(fields, values)
    assert len(layout.sizes) == fields
    assert layout.sizes.sum() == len(layout.order) == values
    assert (layout.sizes >= np.maximum(layout.num_codes, 2)).all()
    assert sorted(layout.shows[layout.shows >= 0].tolist()) == list(range(len(wide.SHOWN)))
    if values >= 5000:
        assert layout.sizes.max() > 20 * np.median(layout.sizes)


def test_a_field_tells_its_feature_without_error_and_noise_tells_nothing() -> None:
    values, tables = shown(WORLD)
    layout = WORLD.layout
    assert values.min() >= 0
    assert (values.max(axis=(1, 2)) < layout.sizes).all()
    for field in range(len(layout.shows)):
        feature = int(layout.shows[field])
        if feature < 0:
            continue
        name = wide.SHOWN[feature]
        code = np.concatenate([wide.codes_of(name, table[name]) for table in tables])
        pairs = np.unique(np.stack([values[field].ravel(), code]), axis=1)
        assert len(pairs[0]) == len(np.unique(pairs[0])), "a value belongs to one code"
    noise, habit = np.flatnonzero(layout.shows < 0), tables[0]["habit"]
    for place in noise:
        common = values[place, 0] == np.bincount(values[place, 0]).argmax()
        assert abs(np.corrcoef(common, habit)[0, 1]) < 5 / np.sqrt(len(habit))


def test_fields_of_users_stay_and_the_others_change() -> None:
    values, _ = shown(WORLD)
    stays = (values == values[:, :1]).all(axis=(1, 2))
    np.testing.assert_array_equal(stays[WORLD.layout.sizes > 30], WORLD.layout.by_user[WORLD.layout.sizes > 30])
    noise = WORLD.layout.shows < 0
    assert abs(WORLD.layout.by_user[noise].mean() - 0.5) < 0.05


def test_a_draw_of_almost_one_stays_inside_its_code() -> None:
    layout = wide.layout(20, 2_000_000)
    u = np.full((20, 1), np.nextafter(np.float32(1), np.float32(0)))
    codes = layout.num_codes[:, None] - 1
    assert (layout.values(np.arange(20), u, codes) < layout.sizes[:, None]).all()


def test_the_people_are_those_of_the_city(tmp_path: Path) -> None:
    """Coupons and outcomes are those of the city's log; fields take the place of features."""
    plain = next(CityWorld(City(slow=True)).generate(200, 7, 3))
    behind = next(wide.simulator(30, 400, slow=True).generate(200, 7, 3))
    for name in ("user", "day", "segment", "coupon", "active", "cost", "propensity"):
        np.testing.assert_array_equal(behind[name], plain[name])
    (city,) = wide.simulator(30, 400).fields_of("city")
    assert len(np.unique(np.stack([behind[city], plain["city"]]), axis=1)[0]) <= len(np.unique(behind[city]))
    assert not set(CATEGORICAL) & set(behind)


def test_the_folder_is_a_campaign_from_which_the_world_is_read(tmp_path: Path) -> None:
    path = simulate("wide", tmp_path / "c", users=300, fields=30, values=600)
    campaign = Campaign.load(path)
    names = [f"field_{j:02d}" for j in range(30)]
    assert list(campaign.log.features.names) == names
    log = pq.read_table(path.parent / "log.parquet")
    assert log.column_names == ["user_id", "day", *names, "segment", "coupon", "active", "cost", "propensity"]
    assert wide.WideWorld.read(path.parent) == wide.simulator(30, 600)
    (path.parent / wide.WIDE_FILE).unlink()
    with pytest.raises(FolderError, match="has no wide campaign"):
        wide.WideWorld.read(path.parent)


def test_policies_of_fields_have_the_value_of_the_same_policies_of_features() -> None:
    city = City(discount=0.6)
    world, truth = wide.WideWorld(city, 25, 600), CityTruth(city)
    (kind,) = world.fields_of("kind")
    layout = world.layout
    field = world.names.index(kind)
    begin = int(layout.sizes[:field].sum())
    code = np.empty(layout.sizes[field], np.intp)
    code[layout.order[begin : begin + len(code)]] = np.arange(len(code)) % layout.num_codes[field]

    def by_field(table: pa.Table) -> np.ndarray:
        return np.asarray(code[np.asarray(table[kind])] % len(COUPONS))

    def by_feature(table: pa.Table) -> np.ndarray:
        return np.asarray(np.asarray(table["kind"]) % len(COUPONS))

    one = PolicyValues(truth, users=500, show=world.show)(by_field)
    other = PolicyValues(truth, users=500)(by_feature)
    assert one.value == pytest.approx(other.value, abs=1e-6)  # values of the state are found by iteration


def test_many_fields_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "CELLS", 70_000)
    chunks = list(wide.simulator(100, 10_000).generate(250, 7, 0))
    assert [len(chunk["user"]) for chunk in chunks] == [700, 700, 350]
    assert all(chunk[name].dtype == np.int32 for chunk in chunks for name in ("field_00", "field_99"))
