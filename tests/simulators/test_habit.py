import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import write_manifest
from outlay.jobs.simulate import simulate
from outlay.ops.tabular import constrained_optimum, measure, policy_iteration, totals
from outlay.simulators import habit

PAPER = {"inactive": (0.15, 0.54, 1.24), "active": (0.11, 0.31, 0.68)}


def held_days(cmdp: TabularCMDP, coupon: float) -> NDArray[np.float64]:
    """Active days after 1, 3 and 7 days of the same coupon."""
    days: NDArray[np.float64] = totals(cmdp, np.full(10, habit.COUPONS.tolist().index(coupon)), 7)[[0, 2, 6], 0]
    return days


def segment(name: str) -> TabularCMDP:
    inactive = habit.states()[1] <= habit.INACTIVE_UP_TO
    start = habit.model().cmdp().start * (inactive if name == "inactive" else ~inactive)
    return replace(habit.model().cmdp(), start=start / start.sum())


def log_of(users: int, days: int, seed: int, held: tuple[float, float] | None = None) -> dict[str, NDArray[np.generic]]:
    chunks = list(habit.simulator().generate(users, days, seed, held=held))
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def state_of(log: dict[str, NDArray[np.generic]]) -> NDArray[np.int64]:
    state: NDArray[np.int64] = log["yesterday"].astype(np.int64) * habit.LEVELS + log["level"].astype(np.int64)
    return state


@pytest.mark.parametrize("name", ["inactive", "active"])
def test_three_against_one_yuan_wins_the_days_that_the_paper_measured(name: str) -> None:
    effect = held_days(segment(name), 3.0) - held_days(segment(name), 1.0)
    np.testing.assert_allclose(effect, PAPER[name], atol=0.015)


def test_the_level_of_activity_and_the_segments_are_those_of_the_paper() -> None:
    days = held_days(habit.model().cmdp(), 3.0)
    assert days[0] == pytest.approx(0.6, abs=0.02)
    assert 4.8 < days[2] < 5.2
    assert 0.4 < habit.model().cmdp().start[habit.states()[1] <= habit.INACTIVE_UP_TO].sum() < 0.6


def test_the_limit_binds_and_the_optimum_beats_the_old_policy_for_less() -> None:
    cmdp = habit.model().cmdp()
    old = measure(cmdp, np.full((10, 11), 1 / 11))
    cheapest, dearest = (measure(cmdp, policy_iteration(cmdp, w)) for w in ([0.0, -1.0], [1.0, 0.0]))
    optimum = constrained_optimum(cmdp, [habit.AT_MOST])
    assert cheapest[1] < habit.AT_MOST < old[1] < dearest[1]
    assert optimum.dual[0] > 0
    assert optimum.value > 1.02 * old[0]


def test_the_log_follows_the_truth() -> None:
    """Every frequency with an expectation of 50 or more lies within four standard errors."""
    cmdp, log = habit.model().cmdp(), log_of(60_000, 7, seed=1)
    state, action = state_of(log), np.searchsorted(habit.COUPONS, log["coupon"].astype(float))
    first, last = log["day"] == 0, log["day"] == 6

    def agree(count: NDArray[np.int64], trials: NDArray[np.int64] | int, prob: NDArray[np.float64]) -> None:
        expected = trials * prob
        error = np.sqrt(expected * (1 - prob))
        np.testing.assert_array_equal(count[expected == 0], 0)
        checked = expected >= 50
        assert checked.any()
        assert (np.abs(count - expected) <= 4 * error)[checked].all()

    agree(np.bincount(state[first], minlength=10), int(first.sum()), cmdp.start)
    agree(np.bincount(action, minlength=11), len(action), np.full(11, 1 / 11))
    visits = np.zeros((10, 11), dtype=np.int64)
    np.add.at(visits, (state, action), 1)
    active = np.zeros((10, 11), dtype=np.int64)
    np.add.at(active, (state, action), log["active"].astype(np.int64))
    agree(active, visits, cmdp.reward)
    moves = np.zeros((10, 11, 10), dtype=np.int64)
    np.add.at(moves, (state[~last], action[~last], state[~first]), 1)
    agree(moves, moves.sum(axis=2, keepdims=True), cmdp.transition)
    np.testing.assert_array_equal(log["cost"], log["coupon"].astype(float) * log["active"].astype(float))
    np.testing.assert_allclose(cmdp.cost[:, :, 0], cmdp.reward * habit.COUPONS)


def test_actions_are_drawn_independently_of_the_state_and_of_the_day_before() -> None:
    log = log_of(60_000, 7, seed=2)
    coupon = log["coupon"].astype(float).reshape(-1, 7)
    level = log["level"].astype(float).reshape(-1, 7)
    bound = 4 / np.sqrt(coupon[:, 1:].size)
    assert abs(np.corrcoef(coupon[:, 1:].ravel(), coupon[:, :-1].ravel())[0, 1]) < bound
    assert abs(np.corrcoef(coupon[:, 1:].ravel(), level[:, 1:].ravel())[0, 1]) < bound


def test_yesterday_is_what_happened_yesterday() -> None:
    log = log_of(500, 5, seed=3)
    active, yesterday = (log[name].reshape(-1, 5) for name in ("active", "yesterday"))
    np.testing.assert_array_equal(yesterday[:, 1:], active[:, :-1])


def test_a_held_coupon_stays_and_only_the_first_row_was_a_choice() -> None:
    log = log_of(40_000, 7, seed=4, held=(1.0, 3.0))
    coupon, active = (log[name].astype(float).reshape(-1, 7) for name in ("coupon", "active"))
    assert (coupon == coupon[:, :1]).all()
    assert set(coupon[:, 0]) == {1.0, 3.0}
    assert np.mean(coupon[:, 0] == 3.0) == pytest.approx(0.5, abs=4 * 0.5 / 200)
    np.testing.assert_array_equal(log["forced"], log["day"] > np.int32(0))
    np.testing.assert_array_equal(log["propensity"], np.where(log["forced"], 1.0, 0.5))
    for days, truth in zip(
        (1, 3, 7), held_days(habit.model().cmdp(), 3.0) - held_days(habit.model().cmdp(), 1.0), strict=True
    ):
        total = active[:, :days].sum(axis=1)
        high, low = total[coupon[:, 0] == 3.0], total[coupon[:, 0] == 1.0]
        error = np.sqrt(high.var() / len(high) + low.var() / len(low))
        assert abs(high.mean() - low.mean() - truth) < 4 * error


def test_chunks_hold_whole_users_and_bound_the_rows() -> None:
    chunks = list(habit.simulator().generate(20_001, 10, seed=0))
    assert [len(chunk["user"]) for chunk in chunks] == [100_000, 100_000, 10]
    np.testing.assert_array_equal(np.concatenate([c["user"] for c in chunks]), np.repeat(np.arange(20_001), 10))


def test_the_folder_holds_the_files_that_the_design_pins(tmp_path: Path) -> None:
    path = simulate("habit", tmp_path / "habit", users=20_000, seed=5)
    folder = path.parent
    assert sorted(p.name for p in folder.iterdir()) == [
        "campaign.toml",
        "log.parquet",
        "manifest.json",
        "states.parquet",
        "truth.npz",
    ]
    log, states = pq.read_table(folder / "log.parquet"), pq.read_table(folder / "states.parquet")
    assert log.column_names == ["user_id", "day", "yesterday", "level", "coupon", "active", "cost", "propensity"]
    assert log.num_rows == 140_000
    assert log["user_id"][7 * 17].as_py() == "u0000017"
    assert log["user_id"].to_pylist()[:8] == ["u0000000"] * 7 + ["u0000001"]
    assert log["day"].to_pylist()[:8] == [0, 1, 2, 3, 4, 5, 6, 0]
    assert pq.ParquetFile(folder / "log.parquet").num_row_groups == 2
    assert states.schema == log.select(["yesterday", "level"]).schema
    truth = np.load(folder / "truth.npz")
    assert {name: truth[name].shape for name in truth.files} == {
        "transition": (10, 11, 10),
        "reward": (10, 11),
        "cost": (10, 11, 1),
        "start": (10,),
        "actions": (11,),
        "discount": (),
    }
    np.testing.assert_array_equal(truth["actions"], np.arange(2, 13) / 2)
    for state, row in enumerate(states.to_pylist()):
        assert truth["reward"][state, 0] == pytest.approx(
            habit.model().active_prob[5 * row["yesterday"] + row["level"], 0]
        )


def test_the_campaign_file_reads_back_and_has_its_keys_at_the_line_start(tmp_path: Path) -> None:
    path = simulate("habit", tmp_path / "habit", users=50)
    campaign = Campaign.load(path)
    assert campaign.source == path.parent / "log.parquet"
    assert campaign.log.actions == tuple(np.arange(2, 13) / 2)
    assert campaign.log.features.names == ("yesterday", "level")
    assert [(b.name, b.limit, b.per) for b in campaign.budgets] == [("coupon_cost", habit.AT_MOST, "decision")]
    assert (campaign.meta.discount, campaign.meta.none, campaign.log.contrast) == (0.8, None, (1.0, 3.0))
    lines = path.read_text().splitlines()
    assert any(line.startswith("at_most = 2.2") for line in lines)
    assert not any(line[0].isspace() for line in lines if line)


def test_a_held_campaign_lists_the_two_coupons_and_its_forced_rows(tmp_path: Path) -> None:
    path = simulate("habit", tmp_path / "habit", users=50, days=3, held=(3.0, 1.0))
    campaign = Campaign.load(path)
    assert campaign.log.actions == campaign.log.contrast == (1.0, 3.0)
    assert campaign.log.forced == "forced"
    assert (campaign.meta.horizon_days, campaign.meta.report_days) == (3, (1, 3))
    one, three = (measure(habit.model().cmdp(), np.full(10, index))[1] for index in (0, 4))
    assert one < campaign.budgets[0].limit < three
    assert len(np.load(path.parent / "truth.npz")["actions"]) == 11
    assert "forced" in pq.read_schema(path.parent / "log.parquet").names


def test_the_same_seed_gives_the_same_log_and_another_seed_another(tmp_path: Path) -> None:
    a, b, c = (
        pq.read_table(simulate("habit", tmp_path / name, users=300, seed=seed).parent / "log.parquet")
        for name, seed in (("a", 7), ("b", 7), ("c", 8))
    )
    assert a.equals(b)
    assert not a.equals(c)


def test_a_folder_of_ours_is_replaced_and_another_is_not(tmp_path: Path) -> None:
    simulate("habit", tmp_path / "ours", users=10)
    for other in ({"users": 20}, {"days": 3}, {"users": 10, "seed": 1}):
        with pytest.raises(FolderError, match=r"another campaign, .* --overwrite"):
            simulate("habit", tmp_path / "ours", **{"users": 10, **other})  # type: ignore[arg-type]
    path = simulate("habit", tmp_path / "ours", users=20, seed=3, overwrite=True)
    manifest = json.loads((path.parent / "manifest.json").read_text())
    assert (manifest["format"], manifest["rows"], manifest["seed"]) == ("outlay-campaign", 140, 3)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("mine")
    with pytest.raises(FolderError, match="did not write it"):
        simulate("habit", tmp_path / "theirs", users=10)
    assert (tmp_path / "theirs" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["data", "run", "bundle"])
def test_a_folder_of_another_kind_is_not_replaced(kind: str, tmp_path: Path) -> None:
    write_manifest(tmp_path, kind, {})
    with pytest.raises(FolderError, match=rf"{kind.upper()} folder; .*CAMPAIGN folder"):
        simulate("habit", tmp_path, users=10)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("campaign.toml", r"campaign\.toml: .*changed.*remove the folder"),
        ("notes.txt", r"notes\.txt: .*manifest\.json"),
    ],
)
def test_what_somebody_wrote_into_a_campaign_is_not_deleted(name: str, message: str, tmp_path: Path) -> None:
    """The same simulation may be repeated until then."""
    simulate("habit", tmp_path / "c", users=10)
    path = simulate("habit", tmp_path / "c", users=10)
    file = path.with_name(name)
    text = (file.read_text() if file.exists() else "") + "# mine\n"
    file.write_text(text)
    with pytest.raises(FolderError, match=message):
        simulate("habit", tmp_path / "c", users=10)
    assert file.read_text() == text


def test_a_folder_made_in_a_campaign_is_not_deleted(tmp_path: Path) -> None:
    path = simulate("habit", tmp_path / "c", users=10)
    (path.parent / "run").mkdir()
    with pytest.raises(FolderError, match=r"run: .*not among"):
        simulate("habit", tmp_path / "c", users=10)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"users": 0}, "users: is 0"),
        ({"users": 1e5}, "users: is 100000.0"),
        ({"days": 0}, "days: is 0"),
        ({"seed": -1}, "seed: is -1"),
        ({"held": (1.0, 7.0)}, r"held: 7 .*no.* action"),
        ({"held": (2.0, 2.0)}, "held: is 2, 2"),
        ({"held": (2.0,)}, "held: is 2"),
        ({"campaign": "habits"}, "campaign: is 'habits'"),
        ({"fields": 20}, r"fields: habit .*no such option.*wide"),
        ({"campaign": "thirty-day", "values": 20}, r"values: thirty-day .*no such option"),
        ({"campaign": "wide", "fields": 1}, "fields: is 1"),
        ({"campaign": "wide", "fields": 2.5}, "fields: is 2.5"),
        ({"campaign": "wide", "fields": 50, "values": 60}, r"values: is 60; .*\b50 fields"),
        ({"campaign": "wide", "values": -1}, "values: is -1; 50 fields"),
        ({"campaign": "thirty-day", "held": (1.0, 3.0)}, r"held: 3 .*no.* action"),
    ],
)
def test_impossible_numbers_are_named_and_nothing_is_written(
    wrong: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(OutlayError, match=message):
        simulate(**{"campaign": "habit", "out": tmp_path / "habit", **wrong})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_the_limit_in_the_file_is_a_number_that_toml_reads() -> None:
    simulator = habit.simulator()
    for held in (None, (1.0, 1.5), (5.5, 6.0)):
        assert tomllib.loads(simulator.text(7, held))["budget"][0]["at_most"] == simulator.limit(held)
