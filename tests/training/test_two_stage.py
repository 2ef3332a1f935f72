"""The classic way and what stands on it: two-stage runs, allocation under a total, methods side by side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import outlay
from conftest import Habit
from myopic import one_day_points
from outlay.choosing.run import Run
from outlay.comparing.true_values import Truth, mixed
from outlay.core.errors import InfeasibleError, OutlayError
from outlay.core.transitions import Transitions
from outlay.jobs.allocate import allocate_users
from outlay.jobs.report import report
from outlay.ops.mixture_lp import value_at
from outlay.training.two_stage import prices


@pytest.fixture(scope="module")
def deep(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return outlay.train(habit.data, tmp_path_factory.mktemp("runs") / "deep", method="two-stage", response="deepfm")


def test_prices_are_where_actions_change_places() -> None:
    """Worth 0, 3, 4 at costs 0, 1, 2: 3 a unit for the first step, 1 for the second, 2 for both at once."""
    found = prices(np.array([[0.0, 3.0, 4.0]]), np.array([[[0.0], [1.0], [2.0]]]))
    assert {0.0, 1.0, 3.0, 6.0} <= set(found[:, 0].tolist())
    assert prices(np.ones((4, 3)), np.ones((4, 3, 1))).tolist() == [[0.0]]


def test_a_two_stage_run_keeps_the_limit_and_is_near_the_best_one_day_rule(deep: Run, habit: Habit) -> None:
    data = deep.data()
    truth = Truth.beside(deep.campaign, data)
    assert truth is not None
    bundle = outlay.load_bundle(deep.bundle)
    policies = [bundle.member_actions(i, truth.codes, truth.numbers) for i in range(len(bundle.members))]
    found = mixed([truth.values(policy, (7,)) for policy in policies], bundle.weights)
    assert found["coupon_cost"] <= deep.campaign.budgets[0].limit * 1.02
    assert found["reward"] >= 0.98 * value_at(one_day_points(truth.model).measurements, found["coupon_cost"])
    assert deep.manifest["method"] == "two-stage"
    assert deep.manifest["oracle"] == "deepfm, 1-day labels"
    assert len({entry.file for entry in bundle.manifest.members}) == 1


def test_its_report_shows_the_calibration_and_no_game(deep: Run) -> None:
    page = report(deep).read_text(encoding="utf-8")
    assert "How well responses are predicted" in page
    assert "How training went" not in page
    slopes = [line["slope"] for line in deep.manifest["calibration"]]
    assert slopes == pytest.approx([1, 1], abs=0.35)


def test_an_allocation_keeps_its_total(deep: Run, habit: Habit, tmp_path: Path) -> None:
    users = habit.folder / "states.parquet"
    result = allocate_users(deep, users, 12.0, tmp_path / "out.csv")
    table = pacsv.read_csv(tmp_path / "out.csv")
    assert table.column_names == ["row", "action", "action_index", "value", "cost"]
    assert table.num_rows == result.rows == 10
    assert np.sum(table["cost"].to_numpy()) == pytest.approx(result.cost)
    assert result.cost <= 12.0
    assert result.value <= result.bound
    reserved = allocate_users(deep, users, 30.0, tmp_path / "worst.parquet", cost="reserve")
    worst = pq.read_table(tmp_path / "worst.parquet")
    assert worst["cost"].to_pylist() == worst["action"].to_pylist()
    assert reserved.cost <= 30.0


def test_a_total_is_enough_for_as_many_decimal_reserves_as_it_is_worth(
    deep: Run, habit: Habit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten users at no less than ten fen; in float32 they would need 1.0000000149 yuan."""
    monkeypatch.setattr("outlay.jobs.allocate.usable_reserves", lambda *_: np.array([0.1 + 0.1 * i for i in range(11)]))
    users = habit.folder / "states.parquet"
    assert allocate_users(deep, users, 1.0, tmp_path / "out.csv", cost="reserve").cost == 1.0
    assert pacsv.read_csv(tmp_path / "out.csv")["cost"].to_pylist() == [0.1] * 10


def test_a_total_below_the_cheapest_is_told_with_the_cheapest(deep: Run, tmp_path: Path) -> None:
    users = Path(deep.campaign.path).parent / "states.parquet"
    with pytest.raises(InfeasibleError, match=r"total: is 1\.0; .*cheapest"):
        allocate_users(deep, users, 1.0, tmp_path / "out.csv")
    with pytest.raises(OutlayError, match="total: is -1"):
        allocate_users(deep, users, -1.0, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.slow
def test_a_comparison_holds_all_methods_to_the_same_spend(deep: Run, tmp_path: Path) -> None:
    campaign = deep.campaign.with_train(min_steps=2000)
    found = outlay.compare(
        campaign, tmp_path / "out", seeds=1, label_days=(1,), oracles=("bcq",), responses=("deepfm",)
    )
    immediate = [row for row in found.rows if row.control == "immediate"]
    assert [row.name for row in immediate] == [
        "DeepFM, 1-day label",
        "BCQ, single-best",
        "BCQ, aim-mean",
        "BCQ, aim-greedy",
        "BCQ, lp",
        "BCQ, bisection",
        "frontier, bcq",
        "frontier, counted",
    ]
    for row in immediate:
        cost = row.figures["coupon_cost@1"]
        assert cost.truth is not None
        assert cost.truth == pytest.approx(found.immediate, rel=0.12)
    old = found.rows[0].figures["reward@7"]
    assert old.truth is not None
    assert old.value == pytest.approx(old.truth, rel=0.05)
    written = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert len(written["rows"]) == len(found.rows)
    assert "original method" in written["stored"]
    assert (tmp_path / "out" / "comparison.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert Transitions.open(tmp_path / "out" / "data")


def test_wrong_options_of_a_comparison_are_told(deep: Run, tmp_path: Path) -> None:
    for options, message in (
        ({"oracles": ("dqn",)}, "oracles: is dqn. Give some of: ddqn, edrr, bcq"),
        ({"responses": ()}, "responses: is empty"),
        ({"seeds": 0}, "seeds: is 0"),
    ):
        with pytest.raises(OutlayError, match=message):
            outlay.compare(deep.campaign, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []
