"""Two ways to keep a limit: a margin that a certificate needs, or none, where a cap holds the money while serving."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import ndtr
from typer.testing import CliRunner

import outlay
from conftest import Habit
from outlay.bundles.pool import Pool
from outlay.bundles.write import write_bundle
from outlay.choosing.run import Run
from outlay.choosing.stored import SpendingMixtures, StoredFrontier
from outlay.cli.main import app
from outlay.core.arrays import preferring_network
from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import CampaignError, InfeasibleError
from outlay.core.reasons import ReasonKind
from outlay.estimators.certificate import MOST_OVER
from outlay.evaluating.curve import BudgetMixtures
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.holding import holding_of
from outlay.ops.intervals import quantile
from outlay.ops.tabular import constrained_optimum, measure
from outlay.pages.frontier_words import badge, judged
from policy_files import policy_file
from small_logs import campaign
from telling import missing

pytestmark = pytest.mark.usefixtures("few_budgets")
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
def said(serving: Run) -> Evaluation:
    """What an evaluation says of it."""
    return outlay.evaluate(serving)


@pytest.fixture(scope="module")
def certified(counted_and_evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run as it is trained by default: certified, with the mixture that spends the limit behind a cap; evaluated."""
    return Run.open(shutil.copytree(counted_and_evaluated, tmp_path_factory.mktemp("certified") / "run"))


def true(run: Run, habit: Habit, *, capped: bool = False) -> Any:
    """`[2]` value and cost of what a run serves, or of what it serves behind a cap, exactly."""
    data, pool = run.data(), Pool(outlay.load_bundle(run.bundle))
    states = data.schema.encode(pq.read_table(habit.folder / "states.parquet"))
    bundle = pool.mixture(pool.capped if capped else pool.weights)
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


def test_a_run_has_both_mixtures_unless_it_is_told_otherwise(certified: Run, serving: Run, habit: Habit) -> None:
    stored, campaign = StoredFrontier.read(certified.folder / "frontier"), certified.campaign
    full = stored.capped(campaign)
    assert full is not None
    spent = float(full @ stored.value[:, 1])
    error = stored.points.shown(np.eye(len(stored.weights))[-1], campaign)[1][1]
    assert spent == pytest.approx(2.2, rel=1e-3), "by its own measurement it spends the limit"
    (value, cost), (less, saved) = true(certified, habit, capped=True), true(certified, habit)
    assert abs(cost - 2.2) < 3 * error
    assert saved < cost
    assert less < value <= constrained_optimum(habit.truth, [cost]).value
    np.testing.assert_allclose(true(certified, habit, capped=True), true(serving, habit), rtol=0.01)
    assert not outlay.load_bundle(serving.bundle).capped, "forced"


def test_the_margin_is_kept_behind_a_cap_where_that_is_asked_for(habit: Habit, tmp_path: Path) -> None:
    run = outlay.train(habit.campaign, tmp_path / "run", hold="certified", folds=1)
    assert not outlay.load_bundle(run.bundle).capped
    evaluated = outlay.evaluate(run)
    found = evaluated.holding
    assert found is not None
    assert found.hold == "certified"
    assert "behind a cap" not in found.words
    assert evaluated.totals is not None
    assert not any(each.capped for each in evaluated.totals.budgets)


def test_every_exported_bundle_has_both_as_well(certified: Run, tmp_path: Path) -> None:
    outlay.frontier(certified, [1.8], export=tmp_path / "bundle")
    pool = Pool(outlay.load_bundle(tmp_path / "bundle"))
    money = pool.measurements[:, 1]
    assert pool.weights @ money < 1.8 - 0.02
    assert pool.capped @ money == pytest.approx(1.8, rel=0.01)


def test_a_constant_action_that_several_folds_take_is_one_member(certified: Run, tmp_path: Path) -> None:
    stored, data = StoredFrontier.read(certified.folder / "frontier"), certified.data()
    sizes, heads, count = data.schema.sizes, len(stored.manifest["heads"]), len(stored.networks)
    two = tuple(preferring_network(np.arange(data.num_actions) == 2, sizes, 0, heads) for _ in range(2))
    wider = replace(
        stored,
        networks=(*stored.networks, *two),
        network=np.append(stored.network, [count, count + 1]),
        constant=np.append(stored.constant, [True, True]),
        fold=np.append(stored.fold, [0, 1]),
        policy=np.append(stored.policy, [0, 0]),
        multiplier=np.vstack([stored.multiplier, [[0.0], [0.0]]]),
        head_weights=np.vstack([stored.head_weights, np.eye(heads)[[0, 0]]]),
        value=np.vstack([stored.value, stored.value[:2]]),
    )
    own, capped = np.eye(len(wider.network))[0], np.zeros(len(wider.network))
    capped[[0, -2, -1]] = 0.5, 0.2, 0.3
    of = wider.beside(wider.spec(own, certified.campaign, data, capped))
    write_bundle(tmp_path / "bundle", of)
    assert [m.weight for m in outlay.load_bundle(tmp_path / "bundle").capped] == pytest.approx([0.5, 0.5])


def test_where_money_is_no_limit_there_is_one_mixture(certified: Run) -> None:
    """Behind a cap nothing more would be spent, or the curve does not reach so low."""
    stored, campaign = StoredFrontier.read(certified.folder / "frontier"), certified.campaign
    assert stored.capped(campaign) is not None
    assert stored.capped(campaign.with_money_limit(1e3)) is None
    assert stored.capped(campaign.with_train(hold="serving")) is None
    assert stored.capped(campaign.with_money_limit(0.98 * stored.spending.limits[0])) is None
    assert replace(stored, spending=SpendingMixtures.none(len(stored.value))).capped(campaign) is None


def test_other_limits_keep_their_margins(habit: Habit, tmp_path: Path) -> None:
    """No ledger has a cap of them, and least of all of a floor."""
    for name, budget in (("ceiling", SECOND), ("floor", FLOOR)):
        path = habit.changed(
            tmp_path / name, ("\n[train]", budget + '\nhold = "serving"'), ("min_steps = 2000", "min_steps = 500")
        )
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


def test_a_run_that_is_held_while_serving_claims_no_budget(serving: Run, said: Evaluation) -> None:
    found = said
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


@pytest.mark.usefixtures("said")
def test_its_curve_is_held_as_well_and_so_is_every_bundle_of_it(serving: Run, tmp_path: Path) -> None:
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


def test_a_cap_takes_at_most_a_tenth_from_a_mixture_a_tenth_too_dear(tmp_path: Path) -> None:
    """What `MOST_OVER` rests on: value is concave in money, and the cap stops incentives when the money is spent."""
    with np.load(outlay.simulate("thirty-day", tmp_path / "campaign", users=30).with_name("truth.npz")) as file:
        arrays = {name: file[name] for name in ("transition", "reward", "cost", "start")}
        truth = TabularCMDP(**arrays, discount=float(file["discount"]))

    def brings(limit: float) -> float:
        return constrained_optimum(truth, [limit]).value - constrained_optimum(truth, [1e-6]).value

    lost = {over: 1 - brings(0.4 * (1 + over)) / (1 + over) / brings(0.4) for over in (0.02, MOST_OVER, 0.3)}
    assert all(0 < share <= over / (1 + over) for over, share in lost.items())
    assert lost[MOST_OVER] == pytest.approx(0.0435, abs=0.001)
    # By the interval alone, one honest run of ten would be refused: select users err at least as certify users do.
    assert ndtr(-quantile(0.975) / np.hypot(1, 1.25)) == pytest.approx(0.11, abs=0.005)


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
    evaluated = Evaluation.read(certified.folder)
    assert evaluated is not None
    found = evaluated.holding
    assert found is not None
    assert found == outlay.frontier(certified).holding
    assert (found.hold, found.limit, found.unit) == ("auto", 2.2, "yuan")
    assert found.kept_back == pytest.approx(certified.manifest["margin"][0], rel=0.02)
    assert 0 < found.costs < 0.05
    assert 0 < found.std_error < found.costs
    assert not missing(found.words, "less than 2.2 yuan", "behind a cap, outlay serve keeps no such margin")
    json.dumps(asdict(found))


def test_the_cost_of_a_margin_is_read_off_the_curve(certified: Run) -> None:
    """Mixtures without a margin spend 1, 2 and 3; what is served may spend 1.5 of 2 and would gain half a step."""
    about = campaign(0.8, [{"name": "cost", "cost": "c", "at_most": 2.0}])
    value = np.array([[1.0, 0.0, 0.5], [1.4, 0.0, 0.5], [1.5, 0.0, 0.5], [1.2, 0.0, 0.5]])
    real = StoredFrontier.read(certified.folder / "frontier")
    stored = replace(
        real,
        budgets=np.array([1.2, 2.4, 3.5]),
        margin=np.array([0.1, 0.2, 0.25, 0.25]),  # coordinates: x_1 = 0.5 times the cost
        points=replace(real.points, value=value),
        aim=value[:, 0],
        spending=SpendingMixtures(
            np.array([1.0, 2.0, 3.0]),
            np.zeros((3, len(real.value))),
            np.array([1.0, 1.4, 1.5]),
            np.diag([0.01, 0.03, 0.02]),
        ),
        manifest=real.manifest | {"own": 2.0},
    )
    found = holding_of(stored, about, 0.6)
    assert found is not None
    assert (found.kept_back, found.unit) == (0.5, "cost")
    assert (found.costs, found.std_error) == pytest.approx((0.2, 0.1))  # half of the second less half of the first
    assert (found.of_gain, found.of_value) == pytest.approx((0.2 / 0.8, 0.2 / 1.4))
    assert not missing(found.words, "0.500", "2 cost", "0.20 ± 0.10", "25% of the estimated gain")
    for gain in (None, -0.1, 0.0):
        without = holding_of(stored, about, gain)
        assert without is not None
        assert without.of_gain is None
        assert "(14% of it)" in without.words
    better = holding_of(replace(stored, aim=np.array([1.0, 1.4, 1.5, 1.6])), about, 0.6)
    assert better is not None
    assert "costs nothing" in better.words
    assert holding_of(None, about, 0.6) is None
    served = about.with_train(hold="serving")
    assert holding_of(None, served, 0.6) == holding_of(stored, served, None)


def test_one_more_of_a_total_costs_the_money_of_all_its_decisions(certified: Run) -> None:
    """A limit per decision beside one per user: the reward is then a total of 7 days, and so is what it costs."""
    per_user = {"name": "mails", "cost": "1", "at_most": 2.5, "per": "user"}
    for others, times in (([], 1.0), ([per_user], 7.0)):
        about = campaign(0.8, [{"name": "cost", "cost": "c", "at_most": 2.0}, *others])
        mixtures = BudgetMixtures(StoredFrontier.read(certified.folder / "frontier"), about, certified.data())
        assert mixtures.times == pytest.approx(times, rel=0.01)


def test_the_default_is_by_use(habit: Habit) -> None:
    assert Campaign.load(habit.campaign).train.hold == "auto"
    assert Campaign.load(habit.campaign).held == (False,)


def test_decisions_in_a_file_are_warned_of_where_only_a_cap_would_hold_them(
    serving: Run, certified: Run, habit: Habit, tmp_path: Path
) -> None:
    rows = habit.folder / "states.parquet"
    assert outlay.score(serving.bundle, rows, tmp_path / "held.parquet").held == "coupon_cost"
    found = outlay.score(certified.bundle, rows, tmp_path / "certified.parquet")
    assert found.held is None
    given = pq.read_table(tmp_path / "certified.parquet")["probability"].to_numpy()
    weights = outlay.load_bundle(certified.bundle).weights
    sums = {round(sum(part), 9) for n in range(1, len(weights) + 1) for part in combinations(weights.tolist(), n)}
    assert {round(p, 9) for p in given.tolist()} <= sums, "of the certified mixture"
    told = CliRunner().invoke(app, ["score", str(serving.bundle), str(rows), "--out", str(tmp_path / "again.parquet")])
    assert not missing(told.output, "hold = serving", "no cap")
