"""Two ways to keep a limit: a margin that a certificate needs, or none, where a cap holds the money while serving."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outlay
from conftest import Habit
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, InfeasibleError
from outlay.core.reasons import ReasonKind
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.holding import holding_of
from outlay.ops.tabular import constrained_optimum, measure
from outlay.pages.frontier_words import badge, judged
from policy_files import policy_file
from small_logs import campaign
from telling import missing

SECOND = """
[[budget]]
name = "large"
cost = "case when coupon >= 3 then 1 else 0 end"
at_most = 0.45

[train]"""
FLOOR = SECOND.replace("at_most = 0.45", "at_least = 0.2")


@pytest.fixture(scope="module")
def serving(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of every budget without a margin; evaluations of it are one look."""
    return outlay.train(habit.campaign, tmp_path_factory.mktemp("serving") / "run", hold="serving")


@pytest.fixture(scope="module")
def certified(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return outlay.train(habit.campaign, tmp_path_factory.mktemp("certified") / "run")


def true(run: Run, habit: Habit) -> Any:
    """`[2]` value and cost of what a run serves, exactly."""
    data, bundle = run.data(), outlay.load_bundle(run.bundle)
    states = data.schema.encode(pq.read_table(habit.folder / "states.parquet"))
    policies = [bundle.member_actions(i, states.codes, states.numbers) for i in range(len(bundle.members))]
    return bundle.weights @ np.array([measure(habit.truth, policy) for policy in policies])


# Training.


def test_without_a_margin_the_limit_is_spent_and_more_is_gained(serving: Run, certified: Run, habit: Habit) -> None:
    limit, (value, spent), (less, saved) = 2.2, true(serving, habit), true(certified, habit)
    (margin,), (none,) = certified.manifest["margin"], serving.manifest["margin"]
    assert none == 0
    assert margin > 0.02 * limit
    fitted = sum(member["weight"] * member["fitted"][1] for member in serving.manifest["members"])
    assert fitted == pytest.approx(limit, rel=1e-6), "by its own measurement it spends the limit"
    error = StoredFrontier.read(serving.folder / "frontier").points.shown(np.eye(52)[-1], serving.campaign)[1][1]
    assert abs(spent - limit) < 3 * error
    assert abs(spent - limit) < abs(saved - limit)
    assert less < value <= constrained_optimum(habit.truth, [spent]).value


def test_other_limits_keep_their_margins(habit: Habit, tmp_path: Path) -> None:
    """No ledger has a cap of them, and least of all of a floor."""
    for name, budget in (("ceiling", SECOND), ("floor", FLOOR)):
        path = habit.changed(tmp_path / name, ("\n[train]", budget + '\nhold = "serving"'))
        try:
            run = outlay.train(path, tmp_path / name / "run", method="aim-greedy")
        except InfeasibleError:  # the two limits may be far apart for a small network
            pytest.fail("the limits can be kept")
        assert run.campaign.held == (True, False)
        money, other = run.manifest["margin"]
        assert money == 0
        assert other > 0
        assert any("hold = serving" in note for note in run.manifest["notes"])


def test_what_no_cap_can_hold_is_refused() -> None:
    money = {"name": "cost", "cost": "c", "at_least": 1.0}
    with pytest.raises(CampaignError, match="floor"):
        campaign(0.8, [money]).with_train(hold="serving")
    assert campaign(0.8, [money, {**money, "name": "more"}]).held == (False, False)
    ceiling = {"name": "cost", "cost": "c", "at_most": 1.0}
    with pytest.raises(CampaignError, match="paper"):
        campaign(0.8, [ceiling]).with_train(preset="paper", hold="serving")
    assert campaign(0.8, [money, {**ceiling, "name": "pay", "money": True}]).with_train(hold="serving").held == (
        False,
        True,
    )
    assert campaign(0.8, [{**ceiling, "per": "user"}]).with_train(hold="serving").held == (True,)


# What is said of it.


def test_a_run_that_is_held_while_serving_claims_no_budget(serving: Run) -> None:
    found = outlay.evaluate(serving)
    reason, (line,) = found.certificate.reason, found.certificate.budgets
    assert reason is not None
    assert reason.kind is ReasonKind.HELD
    assert (found.certificate.certified, found.certificate.held) == (False, "coupon_cost")
    cost = next(e for e in found.estimates if (e.estimator, e.target) == ("fqe", "coupon_cost"))
    assert [reason.figures[name] for name in ("value", "low", "high")] == pytest.approx(
        [cost.value, cost.low, cost.high]
    )
    assert line.bound is not None
    assert found.certificate.gain_bound is not None
    assert found.holding is not None
    assert (found.holding.hold, found.holding.kept_back, found.holding.costs) == ("serving", 0.0, 0.0)
    assert Evaluation.read(serving.folder) == found
    assert [(row.certified, row.held) for row in found.rows(serving.campaign) if row.kind == "chosen"] == [
        (False, True)
    ]


def test_its_curve_is_held_as_well_and_so_is_every_bundle_of_it(serving: Run, tmp_path: Path) -> None:
    outlay.evaluate(serving)
    curve = outlay.frontier(serving)
    assert curve.band is not None
    assert not any(point.certified for point in curve.curve)
    assert any(point.held for point in curve.curve)
    assert {point.margin for point in curve.curve} == {0.0}
    assert curve.holding is not None
    assert curve.holding.hold == "serving"
    assert not missing(judged(curve), "held while serving")
    assert badge(curve).kind == "open"
    budget = next(point.budget for point in curve.curve if point.held)
    export = outlay.frontier(serving, [budget], export=tmp_path / "bundle").export
    assert export is not None
    assert export.certificate.held == "coupon_cost"
    assert outlay.load_bundle(tmp_path / "bundle").campaign.held == (True,)


def test_a_policy_from_outside_is_asked_for_its_bound(serving: Run, tmp_path: Path) -> None:
    """It was chosen by nobody to be held, whatever the campaign file of the log says."""
    table = pq.read_table(serving.data().campaign.source)
    actions = serving.data().actions
    given = np.zeros((len(table), len(actions)))
    given[:, 0] = 1.0
    rows = pa.table({name: table[name] for name in ("user_id", "day")})
    file = policy_file(tmp_path / "policy.parquet", rows, actions, given)
    found = outlay.evaluate(serving, policy=file)
    assert found.certificate.certified
    assert found.holding is None


def test_what_a_margin_costs_is_told_of_a_certified_run(certified: Run) -> None:
    found = outlay.evaluate(certified).holding
    assert found is not None
    assert found == outlay.frontier(certified).holding
    assert (found.hold, found.limit, found.unit) == ("certified", 2.2, "yuan")
    assert found.kept_back == pytest.approx(certified.manifest["margin"][0], rel=0.02)
    assert 0 < found.costs < 0.05
    assert not missing(found.words, "2.2 yuan", "as proof")
    json.dumps(asdict(found))


def test_the_cost_of_a_margin_is_read_off_the_curve() -> None:
    """Three mixtures of the grid may spend 1, 2 and 3; what is served may spend 1.5 of 2 and would gain half a step."""
    about = campaign(0.8, [{"name": "cost", "cost": "c", "at_most": 2.0}])
    stored: Any = SimpleNamespace(
        own=2.0,
        budgets=np.array([1.2, 2.4, 3.5]),
        margin=np.array([0.1, 0.2, 0.25, 0.25]),  # coordinates: x_1 = 0.5 times the cost
        points=SimpleNamespace(value=np.array([[0.0, 0.0, 0.5]] * 4)),
        aim=np.array([1.0, 1.4, 1.5, 1.2]),
    )
    found = holding_of(stored, about, 0.6)
    assert found is not None
    assert (found.kept_back, found.unit) == (0.5, "cost")
    assert found.costs == pytest.approx(0.2)
    assert (found.of_gain, found.of_value) == pytest.approx((0.2 / 0.8, 0.2 / 1.4))
    assert not missing(found.words, "0.500", "2 cost", "25.0% of the gain")
    for gain in (None, -0.1, 0.0):
        without = holding_of(stored, about, gain)
        assert without is not None
        assert without.of_gain is None
        assert "14.3% of the reward" in without.words
    assert holding_of(None, about, 0.6) is None
    served = about.with_train(hold="serving")
    assert holding_of(None, served, 0.6) == holding_of(stored, served, None)


def test_the_default_is_the_certificate(habit: Habit) -> None:
    assert Campaign.load(habit.campaign).train.hold == "certified"
    assert Campaign.load(habit.campaign).held == (False,)
