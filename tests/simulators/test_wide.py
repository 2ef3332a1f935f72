from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.jobs.simulate import simulate
from outlay.simulators import habit, wide


def drawn(layout: wide.FieldLayout, users: int = 400, days: int = 5) -> tuple[NDArray[np.intp], NDArray[np.integer]]:
    """Random states `[n, days]` and the field values `[F, n, days]` that show them."""
    rng = np.random.default_rng(0)
    state = rng.integers(10, size=(users, days))
    return state, layout.show(rng, rng, state).reshape(len(layout.sizes), users, days)


@pytest.mark.parametrize(("fields", "values"), [(2, 7), (2, 300), (50, 5000), (1000, 100_000)])
def test_all_values_are_dealt_out(fields: int, values: int) -> None:
    layout = wide.layout(fields, values)
    assert len(layout.sizes) == fields
    assert layout.sizes.sum() == len(layout.order) == values
    assert (layout.sizes >= np.maximum(layout.num_codes, 2)).all()
    if values >= 5000:
        assert layout.sizes.max() > 20 * np.median(layout.sizes)


def test_some_fields_tell_the_state_without_error_and_the_others_nothing() -> None:
    layout = wide.layout(50, 1000)
    state, values = drawn(layout, users=4000)
    yesterday, level = habit.states()
    parts: dict[int, NDArray[np.integer]] = {2: yesterday, 5: level, 10: np.arange(10)}
    assert values.min() >= 0
    assert (values.max(axis=(1, 2)) < layout.sizes).all()
    assert sorted(layout.num_codes)[-6:] == [1, 2, 2, 5, 5, 10]
    for shown, codes in zip(values.reshape(50, -1), layout.num_codes.tolist(), strict=True):
        if codes > 1:
            told = {(int(value), int(part)) for value, part in zip(shown, parts[codes][state.ravel()], strict=True)}
            assert len(told) == len({value for value, _ in told})  # a value belongs to one part
            assert {part for _, part in told} == set(range(codes))
        else:
            common = shown == np.bincount(shown).argmax()
            shares = np.array([common[state.ravel() == s].mean() for s in range(10)])
            assert np.ptp(shares) < 8 * np.sqrt(0.25 / (shown.size / 10))


def test_two_fields_are_enough() -> None:
    """The least campaign: `yesterday` in one field, `level` in the other."""
    layout = wide.layout(2, 40)
    state, (one, other) = drawn(layout, users=2000)
    seen: dict[tuple[int, int], set[int]] = {}
    for a, b, s in zip(one.ravel(), other.ravel(), state.ravel(), strict=True):
        seen.setdefault((int(a), int(b)), set()).add(int(s))
    assert {len(states) for states in seen.values()} == {1}


def test_half_of_the_noise_stays_with_a_user() -> None:
    layout = wide.layout(50, 5000)
    _, values = drawn(layout)
    stays = (values == values[:, :, :1]).all(axis=(1, 2))
    np.testing.assert_array_equal(stays, layout.by_user)
    noise = layout.num_codes == 1
    assert not stays[~noise].any()
    assert abs(stays[noise].mean() - 0.5) < 0.05


def test_a_draw_of_almost_one_stays_inside_its_code() -> None:
    layout = wide.layout(3, 2_000_000)
    u = np.full((3, 10), np.nextafter(np.float32(1), np.float32(0)))
    assert (layout.values(u, np.arange(10)) < layout.sizes[:, None]).all()


def test_the_people_are_those_of_habit_and_the_layout_has_no_seed(tmp_path: Path) -> None:
    a, b = (
        simulate("wide", tmp_path / str(seed), users=30, seed=seed, fields=12, values=200).parent for seed in (0, 1)
    )
    cmdp = habit.model().cmdp()
    for folder in (a, b):
        truth = np.load(folder / "truth.npz")
        np.testing.assert_array_equal(truth["transition"], cmdp.transition)
        np.testing.assert_array_equal(truth["cost"], cmdp.cost)
    assert pq.read_table(a / "states.parquet").equals(pq.read_table(b / "states.parquet"))
    assert not pq.read_table(a / "log.parquet").equals(pq.read_table(b / "log.parquet"))


def test_the_folder_is_a_campaign_whose_states_look_like_its_log(tmp_path: Path) -> None:
    path = simulate("wide", tmp_path / "c", users=300, fields=30, values=600)
    campaign = Campaign.load(path)
    names = [f"field_{j:02d}" for j in range(30)]
    assert list(campaign.log.features.names) == names
    log, states = pq.read_table(path.parent / "log.parquet"), pq.read_table(path.parent / "states.parquet")
    assert log.column_names == ["user_id", "day", *names, "segment", "coupon", "active", "cost", "propensity"]
    assert states.schema == log.select(names).schema
    assert states.num_rows == 10
    layout = wide.layout(30, 600)
    for field, name in enumerate(names):
        distinct = len(set(states[name].to_pylist()))
        assert distinct == layout.num_codes[field]


def test_the_segment_is_that_of_habit() -> None:
    plain, behind = (next(make.generate(200, 7, 3)) for make in (habit.simulator(), wide.simulator(20, 300)))
    inactive = plain["level"] <= np.int8(habit.INACTIVE_UP_TO)
    np.testing.assert_array_equal(behind["segment"] == "inactive", inactive)
    np.testing.assert_array_equal(behind["active"], plain["active"])


def test_many_fields_make_small_chunks() -> None:
    simulator = wide.simulator(1000, 100_000)
    chunk = next(simulator.generate(5000, 7, 0))
    assert len(chunk["user"]) == 8_000_000 // 1000 // 7 * 7
    assert all(chunk[f"field_{j:03d}"].dtype == np.int32 for j in (0, 999))
