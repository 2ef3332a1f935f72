"""The main job where a log is not as tidy as habit: floors, totals per user, gaps, ends, masks, numbers, no choice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outlay
from campaign_files import campaign_file, panel
from conftest import TRAIN, Habit
from outlay.bundles.in_memory import in_memory
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier
from outlay.core.errors import InfeasibleError
from outlay.evaluating.evaluation import Evaluation
from outlay.ops.tabular import measure, totals
from outlay.pages.results import RunResults

pytestmark = pytest.mark.usefixtures("few_budgets")
QUICK = "[train]\nfolds = 1\nlayers = [16, 8]\nmin_steps = 600\nepochs = 1.0\naction_degree = 0"
FLOOR = """
[[budget]]
name = "active_days"
cost = "active"
at_least = 0.6
"""


def true_actions(run: Run, habit: Habit) -> tuple[Any, Any]:
    """`[S, k]` actions and `[k]` weights of the members as served."""
    bundle = outlay.load_bundle(run.bundle)
    decisions = bundle.decide(pq.read_table(habit.folder / "states.parquet"), members=True)
    return decisions["action_index"].to_numpy().reshape(habit.truth.num_states, -1), bundle.weights


@pytest.mark.slow
def test_a_floor_and_a_ceiling_are_kept_together(habit: Habit, tmp_path: Path) -> None:
    """At most 2.2 yuan and at least 0.6 active days a day; figures everywhere as written, not negated."""
    path = outlay.simulate("habit", tmp_path / "campaign", users=8000, seed=1)
    path.write_text(path.read_text() + FLOOR + TRAIN + "folds = 2\n")
    run = outlay.train(path, tmp_path / "run")
    action, weights = true_actions(run, habit)
    value, cost = weights @ np.array([measure(habit.truth, a) for a in action.T])
    assert cost <= 1.05 * 2.2
    assert value >= 0.95 * 0.6
    for metric in run.metrics()[5:]:
        assert metric.measured[2] == pytest.approx(metric.measured[0], abs=1e-6)
        assert 0.3 < metric.measured[2] < 1
    for member in run.manifest["members"]:
        assert member["fitted"][2] > 0
    found = outlay.evaluate(run)
    line = found.certificate.budgets[1]
    assert line.floor
    assert line.value is not None
    assert line.bound is not None
    assert line.bound < line.value  # a lower bound
    page = RunResults.read(Run.open(tmp_path / "run"))
    assert [budget.sign for budget in page.budgets] == [1, -1]
    assert page.candidates[-1].measured[2] > 0


def test_a_floor_that_no_policy_reaches_is_infeasible(habit: Habit, tmp_path: Path) -> None:
    """Nobody can be active more than once a day."""
    path = habit.changed(tmp_path / "in", ("\n[train]", FLOOR.replace("0.6", "1.5") + "\n[train]"))
    with pytest.raises(InfeasibleError, match=r"active_days .*at least 1\.5 per decision"):
        outlay.train(path, tmp_path / "run")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


@pytest.mark.slow
def test_a_total_per_user_is_kept_over_the_horizon(habit: Habit, tmp_path: Path) -> None:
    """At most 14 yuan in 7 days, as the truth counts them: undiscounted, from first rows."""
    path = habit.changed(tmp_path, ("at_most = 2.2", "at_most = 14.0"), ('per = "decision"', 'per = "user"'))
    run = outlay.train(path, tmp_path / "run", folds=1)
    action, weights = true_actions(run, habit)
    reward, cost = weights @ np.array([totals(habit.truth, a, 7)[-1] for a in action.T])
    assert cost <= 1.05 * 14
    cheapest = totals(habit.truth, np.zeros(10, int), 7)[-1]
    assert cost > 2 * cheapest[1]  # it does spend
    assert reward > cheapest[0]
    assert run.manifest["objective"] == "reward@7"
    found = outlay.evaluate(run).to_dict()
    served = next(
        e for e in found["estimates"] if (e["policy"], e["estimator"], e["target"]) == ("mixture", "fqe", "coupon_cost")
    )
    assert abs(served["value"] - cost) < 4 * served["std_error"]
    assert found["certificate"]["budgets"][0]["limit"] == 14


UNTIDY = """
[campaign]
name = "untidy"
report_days = [1, 3]
horizon_days = 5

[log]
source = "log.parquet"
user = "user"
time = "day"
action = "coupon"
reward = "active"
forced = "no_choice"
eligible = "allowed"
terminal = "gone"
complete = false
segment = "if(level > 1, 'high', 'low')"

[log.features]
categorical = ["level"]
numeric = ["spend"]

[[budget]]
name = "money"
cost = "coupon * active"
at_most = 1.3

[train]
folds = 1
layers = [16, 8]
batch = 128
min_steps = 500
epochs = 1.0
"""


def untidy(folder: Path, users: int = 2500, days: int = 6) -> Path:
    """Gaps, users who leave, rows without a choice, actions not allowed to some, a number that is missing at times."""
    rng = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("user", "day", "level", "spend", "coupon", "active", "no_choice", "allowed", "gone")
    }
    for user in range(users):
        level = int(rng.integers(4))
        for day in range(days):
            if rng.random() < 0.2:
                continue
            allowed = [1.0, 2.0, 3.0] if level else [1.0, 2.0]
            forced = bool(rng.random() < 0.15)
            coupon = float(allowed[0] if forced else rng.choice(allowed))
            gone = bool(rng.random() < 0.05)
            values = (
                user,
                day,
                level,
                None if rng.random() < 0.1 else float(rng.normal(level, 1)),
                coupon,
                float(rng.random() < 0.2 + 0.15 * coupon + 0.05 * level),
                forced,
                allowed,
                gone,
            )
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
            if gone:
                break
    pq.write_table(pa.table(rows), folder / "log.parquet")
    (folder / "campaign.toml").write_text(UNTIDY)
    return folder / "campaign.toml"


@pytest.fixture(scope="module")
def untidy_run(few_budgets: int, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("untidy")
    run = outlay.train(untidy(folder), folder / "run")
    outlay.evaluate(run)
    return run


@pytest.mark.slow
def test_an_untidy_log_goes_the_whole_way(untidy_run: Run) -> None:
    data = untidy_run.data()
    assert not data.steady
    assert data.states is None  # too many: a number is among the features
    assert untidy_run.manifest["oracle"] == "trees and orthogonal"  # auto: nothing to count
    bundle = outlay.load_bundle(untidy_run.bundle)
    assert bundle.manifest.heads == ("reward", "money", "decisions")
    found = Evaluation.read(untidy_run.folder)
    assert found is not None
    served = {e.target: e for e in found.estimates if (e.policy, e.estimator) == ("mixture", "fqe")}
    assert served["money"].value is not None
    assert 0 < served["money"].value < 1.3
    assert "decisions" not in served
    assert json.loads((untidy_run.folder / "estimates.json").read_text()) == json.loads(json.dumps(found.to_dict()))
    page = outlay.report(untidy_run).read_text(encoding="utf-8")
    assert found.verdict.words.split(":")[0] in page


@pytest.mark.slow
def test_what_is_not_allowed_is_never_given(untidy_run: Run) -> None:
    """In no row of the log, even by a policy for which money is no object."""
    rows = pq.read_table(untidy_run.folder.parent / "log.parquet")
    stored = StoredFrontier.read(untidy_run.folder / "frontier")
    free = np.flatnonzero(~stored.constant)[stored.multiplier[~stored.constant].sum(axis=1).argmin()]
    spec = stored.spec(np.eye(len(stored.fold))[free], untidy_run.campaign, untidy_run.data())
    action = in_memory(spec).decide(rows)["action"].to_numpy()
    level = rows["level"].to_numpy()
    assert (action[level == 0] <= 2).all()
    assert set(np.unique(action)) <= {1.0, 2.0, 3.0}
    assert (action[level > 0] == 3).any()


@pytest.mark.slow
def test_the_money_is_spent_on_decisions_only(untidy_run: Run) -> None:
    """The true cost per decision where the mixture is followed in rows with a choice, simulated with the true model."""
    rows = pq.read_table(untidy_run.folder.parent / "log.parquet")
    bundle = outlay.load_bundle(untidy_run.bundle)
    table = bundle.decide(rows, members=True)
    action = table["action"].to_numpy().reshape(len(rows), -1)
    level = rows["level"].to_numpy()[:, None]
    cost = action * (0.2 + 0.15 * action + 0.05 * level)
    free = ~np.array(rows["no_choice"])
    # Levels stay and coupons change nothing later, so the discounted cost per decision is near the plain one; forced
    # rows pay 1 · 0.35 or so and are counted in the money, not in the decisions.
    forced = (0.35 + 0.05 * level[~free]).sum()
    per_decision = (cost[free].mean(axis=0) * free.sum() + forced) / free.sum()
    assert float(bundle.weights @ per_decision) <= 1.3 * 1.05


@pytest.mark.slow
def test_where_nothing_learned_keeps_the_limit_a_constant_is_served(tmp_path: Path) -> None:
    """200 gradient steps learn no price; always 1 yuan costs 0.55 in truth, and is within the limit of 0.7."""
    path = outlay.simulate("habit", tmp_path / "campaign", users=20_000, seed=1)
    short = TRAIN.replace("min_steps = 2000", "min_steps = 200").replace("epochs = 1.0", "epochs = 0.1")
    path.write_text(path.read_text().replace("at_most = 2.2", "at_most = 0.7") + short)
    run = outlay.train(path, tmp_path / "run", method="aim-greedy")
    names = [member["name"] for member in run.manifest["members"]]
    assert "always 1" in names
    states = pq.read_table(tmp_path / "campaign" / "states.parquet")
    table = outlay.load_bundle(run.bundle).decide(states, members=True)
    always = table["action"].to_numpy().reshape(10, -1)[:, names.index("always 1")]
    assert (always == 1).all()
    found = outlay.evaluate(run)
    assert found.certificate.certified
    assert "report.html" in str(outlay.report(run))


@pytest.mark.slow
@pytest.mark.parametrize("fee", [1e-6, 1e6])
def test_a_cost_that_is_the_same_in_every_row_leaves_the_rest_to_be_learned(tmp_path: Path, fee: float) -> None:
    """A fee beside a reward that only depends on the coupon: what the critic says of both is right to a few percent."""
    columns = panel(1000, 4)
    coupon = np.array(columns["coupon"])
    columns |= {"active": (coupon / 4).tolist(), "fee": [fee] * len(coupon)}
    budget = f'[[budget]]\nname = "fee"\ncost = "fee"\nat_most = {2 * fee!r}\n'
    path = campaign_file(tmp_path, columns, tail=budget + QUICK)
    run = outlay.train(path, tmp_path / "run", method="aim-greedy", oracle="bcq")
    # Over all candidates: λ turns round at a price, and the critic's averages are of the policies on both sides of it.
    critic, measured = (
        np.mean([getattr(each, which) for each in run.metrics()], axis=0) for which in ("critic", "measured")
    )
    assert critic[0] == pytest.approx(measured[0], rel=0.1)
    assert critic[2] == pytest.approx(fee, rel=0.02)
    assert measured[2] == pytest.approx(fee)


def test_a_row_per_user_is_learned_from_where_the_future_does_not_matter(tmp_path: Path) -> None:
    """Discount 0, no row is terminal: level 0 comes for 1 yuan, level 1 for 2, level 2 for 3, else less."""
    columns = panel(3000, 1)
    level, coupon = np.array(columns["level"]), np.array(columns["coupon"])
    chance = np.where(coupon == level + 1, 0.6, 0.2)
    columns["active"] = (np.random.default_rng(1).random(3000) < chance).astype(int).tolist()
    path = campaign_file(tmp_path, columns, discount=0.0, campaign="horizon_days = 1\nreport_days = [1]", tail=QUICK)
    run = outlay.train(path, tmp_path / "run", method="aim-greedy", oracle="edrr")
    rows = pa.table({"user_id": ["a", "b", "c"], "level": [0, 1, 2]})
    decided = outlay.load_bundle(run.bundle).decide(rows, members=True)
    by_level = decided["action_index"].to_numpy().reshape(3, -1)
    assert (by_level[:2] == [[0], [1]]).all()  # the limit leaves some of the third level without its 3 yuan
    assert 2 in by_level[2]
