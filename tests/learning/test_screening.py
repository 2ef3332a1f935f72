from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import outlay
from outlay.bundles.read import load_bundle
from outlay.choosing.run import Run
from outlay.core.campaign import Campaign
from outlay.core.schema import Categorical, Schema
from outlay.core.transitions import LEARN, Transitions
from outlay.learning.screening import CLASSES, GROUPS, centred, classes_of, evidence, screen, wide
from outlay.simulators import wide as campaign
from small_logs import transitions

USERS, DAYS = 4000, 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wide log of 60 fields, and DATA."""
    place = tmp_path_factory.mktemp("wide")
    path = outlay.simulate("wide", place / "log", users=6000, fields=60, values=3000)
    text = path.read_text()
    path.write_text(text + "\n[train]\nepochs = 1\n")
    outlay.prepare(path, place / "data")
    return place


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return outlay.train(folder / "data", folder / "run", oracle="trees")


def p_values(kept_by_user: bool, values: int, fields: int = 200) -> np.ndarray:
    """Of fields of noise, where outcomes of a user's days are much alike."""
    rng = np.random.default_rng(values)
    user = np.repeat(np.arange(USERS), DAYS)
    y = (rng.normal(size=USERS)[user] + 0.5 * rng.normal(size=len(user)))[:, None]
    group = rng.integers(GROUPS, size=USERS)[user]
    found = []
    for _ in range(fields):
        drawn = (rng.random(USERS)[user] if kept_by_user else rng.random(len(user))) ** 3
        found.append(evidence((drawn * values).astype(int), values, group, centred(y, group))[0])
    return 10.0 ** -np.array(found)


@pytest.mark.parametrize("kept_by_user", [True, False])
@pytest.mark.parametrize("values", [2, 20, 500])
def test_noise_passes_as_often_as_the_level_says(kept_by_user: bool, values: int) -> None:
    p = p_values(kept_by_user, values)
    for level in (0.1, 0.02):
        assert (p < level).mean() <= level + 3 * np.sqrt(level * (1 - level) / len(p))
    assert 0.25 < np.median(p) < 0.85


def test_an_effect_of_a_few_values_is_found() -> None:
    rng = np.random.default_rng(1)
    user = np.repeat(np.arange(USERS), DAYS)
    group, codes = rng.integers(GROUPS, size=USERS)[user], rng.integers(30, size=USERS)[user]
    noise = rng.normal(size=(len(user), 2))
    y = noise + 0.3 * (codes < 3)[:, None] * [1, 0]
    one, none = evidence(codes, 30, group, centred(y, group))
    assert one > 6 > 2 > none


@pytest.mark.parametrize("values", [2, 20, 500])
def test_noise_beside_a_field_that_matters_passes_as_often_as_the_level_says(values: int) -> None:
    rng = np.random.default_rng(values)
    user = np.repeat(np.arange(USERS), DAYS)
    kind = rng.integers(12, size=USERS)[user]
    y = kind**2 / 20 * rng.normal(size=USERS)[user] + kind + rng.normal(size=len(user))  # its variance differs as well
    group = rng.integers(GROUPS, size=USERS)[user]
    beside = classes_of(kind, 12, y - y.mean())
    left = centred(y[:, None], group * CLASSES + beside, GROUPS * CLASSES)
    p = 10.0 ** -np.array(
        [
            evidence(rng.integers(values, size=USERS)[user] * CLASSES + beside, values * CLASSES, group, left)[0]
            for _ in range(200)
        ]
    )
    for level in (0.1, 0.02):
        assert (p < level).mean() <= level + 3 * np.sqrt(level * (1 - level) / len(p))
    assert 0.2 < np.median(p) < 0.85


def test_classes_have_as_many_rows_and_are_in_the_order_of_the_means() -> None:
    codes = np.repeat(np.arange(16), 100)
    y = np.repeat(np.random.default_rng(0).permutation(16) - 7.5, 100)
    found = classes_of(codes, 20, y)
    assert np.bincount(found).tolist() == [200] * CLASSES
    assert (np.diff(found[np.argsort(y, kind="stable")]) >= 0).all()


def pairs(effect: float) -> Transitions:
    """45 fields: the first raises the reward; with the second, silent alone, it turns the effect of the action."""
    rng = np.random.default_rng(3)
    users, days = 3000, 4
    codes = np.repeat(rng.integers(0, 6, (users, 45)), days, axis=0)
    action = rng.integers(0, 2, users * days)
    sign = (2 * (codes[:, 0] % 2) - 1) * (2 * (codes[:, 1] % 2) - 1)
    reward = codes[:, 0] + effect * action * sign + rng.normal(size=len(action))
    data = transitions(
        user=np.repeat(np.arange(users), days).tolist(),
        day=np.tile(np.arange(days), users).tolist(),
        state=[0] * len(action),
        action=action.tolist(),
        outcome=np.column_stack([reward, action]).tolist(),
        num_states=1,
        num_actions=2,
    )
    schema = Schema(tuple(Categorical(str(i), tuple("abc")) for i in range(45)), ())
    columns = ((tuple(range(45)), codes.astype(np.uint8)),)
    return replace(data, schema=schema, code_columns=columns, state=None, states=None)


def test_a_field_that_changes_the_effect_beside_another_is_kept() -> None:
    found = screen(pairs(1.0))
    assert {0, 1} <= set(found.kept)
    assert 1 in found.together
    assert found.score[1] < found.threshold
    assert len(found.kept) <= 8
    assert 1 not in screen(pairs(0.0)).together


def test_what_matters_alone_is_kept_and_noise_is_not(folder: Path) -> None:
    data, world = Transitions.open(folder / "data"), campaign.WideWorld.read(folder / "log")
    found = screen(data)
    kept = {data.schema.categorical[field].name for field in found.kept}
    assert kept >= set(world.fields_of("habit", "gap", "kind", "plan"))
    noise = kept - set(world.fields_of(*campaign.SHOWN))
    assert len(noise) <= 2
    assert screen(data).kept == found.kept


def test_only_learn_users_are_looked_at(folder: Path) -> None:
    data = Transitions.open(folder / "data")
    outcome = np.array(data.outcome)
    outcome[data.users["split"][data.user] != LEARN] = 0
    np.testing.assert_array_equal(screen(replace(data, outcome=outcome)).score, screen(data).score)


def test_narrow_data_have_the_same_codes(folder: Path) -> None:
    data = Transitions.open(folder / "data")
    names = [data.schema.categorical[field].name for field in (40, 3, 17)]
    narrow, rows = data.with_fields(names), np.arange(5, 4000, 7)
    assert [field.name for field in narrow.schema.categorical] == sorted(names)
    np.testing.assert_array_equal(narrow.features(rows)[0], data.features(rows)[0][:, [3, 17, 40]])


@pytest.mark.slow
def test_a_run_reads_the_fields_that_it_names(folder: Path, run: Run) -> None:
    fields = run.manifest["fields"]
    assert 4 <= len(fields) < 20
    assert any(note.startswith(f"Screening: policies read {len(fields)} of 60") for note in run.manifest["notes"])
    assert [field.name for field in run.data().schema.categorical] == fields
    users = pq.read_table(folder / "log" / "log.parquet", columns=["user_id", *fields]).slice(0, 50)
    decided = load_bundle(run.bundle).decide(users, episode="one")
    assert decided.num_rows == 50
    result = outlay.evaluate(run)
    assert result.estimates


def test_screening_is_for_wide_logs_that_are_learned_once(folder: Path) -> None:
    data = Transitions.open(folder / "data")
    settings = Campaign.load(folder / "log" / "campaign.toml")
    assert wide(data, settings)
    assert not wide(data, settings.with_train(screening=False))
    assert not wide(data, settings.with_train(folds=4))
    names = [field.name for field in data.schema.categorical[:40]]
    assert not wide(data.with_fields(names), settings)
