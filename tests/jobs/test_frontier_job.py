"""Every budget from one training: the curve against the stored measurements, and the bundles of its budgets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import norm
from test_other_campaigns import untidy

import outlay
from conftest import Habit
from outlay.bundles.pool import Pool
from outlay.bundles.reference import forward
from outlay.core.errors import FolderError, InfeasibleError, OutlayError
from outlay.core.network import read_network
from outlay.core.transitions import CERTIFY, SELECT
from outlay.estimators.frontier import Points
from outlay.jobs.allocate import allocate_users
from outlay.jobs.frontier import Frontier, frontier
from outlay.jobs.looks import look
from outlay.jobs.run import Run
from outlay.jobs.train_frontier import falls
from outlay.ops.tabular import measure

Vector = NDArray[np.float64]

SECOND = """
[[budget]]
name = "large"
cost = "case when coupon >= 3 then 1 else 0 end"
at_most = 0.45

[train]"""
PER_USER = (("at_most = 2.2", "at_most = 14.0"), ('per = "decision"', 'per = "user"'))
SHORT = ("min_steps = 2000", "min_steps = 1000")
WAYS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "counted": ("tabular", ()),
    "network": ("bcq", ()),
    "two limits": ("ddqn", (("\n[train]", SECOND), SHORT)),
    "per user": ("edrr", (*PER_USER, SHORT)),
    "untidy": ("bcq", ()),  # gaps, users who leave, rows without a choice, actions not allowed to some
}


Runs = Callable[[str], Run]


@pytest.fixture(scope="module")
def made(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs by name, trained when they are asked for; read only, as far as looks go."""

    @cache
    def made(name: str) -> Run:
        oracle, changes = WAYS[name]
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        path = untidy(folder) if name == "untidy" else habit.changed(folder, *changes)
        return outlay.train(path, folder / "run", oracle=oracle)  # type: ignore[arg-type]

    return made


@pytest.fixture(scope="module")
def curves(made: Runs) -> Callable[[str], Frontier]:
    """Of the runs, as they come out of training."""
    return cache(lambda name: frontier(made(name)))


@pytest.fixture(params=WAYS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def way(name: str, made: Runs) -> Run:
    return made(name)


@pytest.fixture
def found(name: str, curves: Callable[[str], Frontier]) -> Frontier:
    return curves(name)


def copied(run: Run, folder: Path) -> Run:
    """To do with as one likes: exports count looks in the data inside."""
    shutil.copytree(run.folder, folder / "copy")
    return Run.open(folder / "copy")


@dataclass(frozen=True)
class Problem:
    """The linear programme, longhand from points.npz: per decision a cost is compared with limit · decisions."""

    run: Run
    part: dict[str, Vector]
    points: Points
    factor: float

    @classmethod
    def of(cls, run: Run) -> Problem:
        """Of a run."""
        with np.load(run.folder / "frontier" / "points.npz") as file:
            part = {name: file[name] for name in file.files}
        users = len(run.data().users_of(SELECT))
        points = Points(part["value"], part["covariance"], part["certifying"], users, part["tails"], part["gains"])
        return cls(run, part, points, points.factor(run.campaign, (1 - run.campaign.train.confidence) / 4))

    def solve(self, budget: float) -> tuple[float, float]:
        """The best objective, and the dual in units of the money budget, where the others keep their limits."""
        campaign, data = self.run.campaign, self.run.data()
        users = [len(data.users_of(split)) for split in (SELECT, CERTIFY)]
        value, ones = self.part["value"], self.part["value"][:, -1]
        z_margin = norm.ppf(campaign.train.margin)
        spread, over = self.points.spread(campaign.with_money_limit(budget)).scaled(users[1]), []
        for j, line in enumerate(campaign.budgets):
            limit = budget if j == campaign.money else line.limit
            direction = np.zeros(value.shape[1])
            direction[1 + j], direction[-1] = 1, -limit if line.per == "decision" else 0
            errors = [
                np.sqrt([direction @ block @ direction for block in blocks])
                for blocks in (np.einsum("ltlu->ltu", self.part[name]) for name in ("covariance", "certifying"))
            ]
            certify = errors[1] * np.sqrt(users[0] / users[1])
            above, normal = spread.above(self.factor)[:, j], self.factor * spread.error[:, j]
            margin = np.where(np.isposinf(above), normal, above) + z_margin * np.hypot(errors[0], certify)
            over.append(line.sign * (value @ direction - (limit if line.per == "user" else 0)) + margin)
        found = linprog(-value[:, 0], np.array(over), np.zeros(len(over)), np.ones((1, len(value))), [1.0])
        assert found.success == (found.status == 0)
        if not found.success:
            raise ValueError("infeasible")
        weights = found.x
        each = weights @ ones if campaign.budgets[campaign.money].per == "decision" else 1.0
        return -found.fun, -found.ineqlin.marginals[campaign.money] * each


def test_the_curve_rises_and_bends_down(way: Run, found: Frontier) -> None:
    budget, value = np.array([(p.budget, p.value) for p in found.curve]).T
    assert len(budget) == 101
    assert budget[[0, -1]].tolist() == [found.least, found.most]
    assert (np.diff(value) >= -1e-9).all()
    assert value[-1] > value[0] * 1.02
    slopes = np.diff(value) / np.diff(budget)
    if way.data().steady:
        assert (np.diff(slopes) <= 1e-6 * slopes.max()).all()
    else:  # the limit stands in the coordinates and in their margins, so the curve bends down only on the whole
        assert slopes[-20:].mean() < 0.5 * slopes[:20].mean()
    assert found.policies[0]["spend"] != found.policies[-1]["spend"]


def test_every_mixture_keeps_its_budget_with_the_margin_and_the_other_limits(found: Frontier) -> None:
    place = [b["name"] for b in found.budgets].index(found.money)
    for point in [*found.curve, *found.asked]:
        assert point.margin > 0
        assert point.spend[place] + point.margin <= point.budget + 1e-7
        assert sum(member["weight"] for member in point.members) == pytest.approx(1)
        assert len(point.members) <= 1 + len(found.budgets)
        for j, line in enumerate(found.budgets):
            assert j == place or point.spend[j] < line["limit"]
        assert point.low < point.value < point.high


def test_any_budgets_agree_with_the_linear_programme_solved_directly(way: Run, found: Frontier) -> None:
    """Several at once, each with its value and its dual; the slope of the curve is the dual too."""
    wanted = [found.least + share * (found.most - found.least) for share in (0.1, 0.37, 0.5, 0.83)]
    asked = frontier(way, wanted).asked
    problem = Problem.of(way)
    assert [point.budget for point in asked] == wanted
    steady = way.data().steady
    for point in asked:
        value, dual = problem.solve(point.budget)
        assert point.value == pytest.approx(value, abs=1e-8)
        assert point.marginal == pytest.approx(dual, rel=1e-6 if steady else 0.1)
        step = 1e-3 * point.budget
        after = [problem.solve(point.budget + k * step)[0] for k in (0.2, 1.2)]
        before = [problem.solve(point.budget - k * step)[0] for k in (1.2, 0.2)]
        right, left = ((pair[1] - pair[0]) / step for pair in (after, before))
        slack = 1e-3 if steady else 1e-2
        assert right * (1 - slack) - 1e-9 <= point.marginal <= left * (1 + slack) + 1e-9


def test_below_the_curve_the_cheapest_cost_is_told_and_what_is_advised_is_enough(way: Run, found: Frontier) -> None:
    assert found.least > 0
    with pytest.raises(InfeasibleError, match=rf"below the curve.*{found.money} {found.least:.4g} per") as caught:
        frontier(way, [found.least * 0.99])
    words = str(caught.value)
    assert ("keeps the other limits" in words) == (len(found.budgets) > 1)
    advised = float(words.split("Give ")[1].split(" ")[0])
    assert found.least < advised < found.least * 1.002
    assert frontier(way, [advised]).asked[0].budget == advised


def test_above_the_curve_the_dearest_useful_mixture_is_given_and_the_slack_said(way: Run, found: Frontier) -> None:
    dearest = found.curve[-1]
    assert not dearest.slack
    (point,) = frontier(way, [2 * found.most]).asked
    assert point.slack
    assert point.marginal == 0
    assert point.value == pytest.approx(dearest.value, rel=1e-3)
    assert point.value >= max(p.value for p in found.curve) - 1e-12
    (near,) = frontier(way, [found.most * 0.98]).asked
    assert not near.slack
    assert near.marginal > 0


def test_without_a_budget_it_is_the_campaigns_or_the_least_where_that_lies_above(made: Runs, tmp_path: Path) -> None:
    found = frontier(made("counted"))
    assert [point.budget for point in found.asked] == [2.2]
    run = copied(made("counted"), tmp_path)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    manifest["campaign"]["budget"][0]["at_most"] = 0.1
    (run.folder / "manifest.json").write_text(json.dumps(manifest))
    found = frontier(run.folder)
    assert [point.budget for point in found.asked] == [found.least]
    with pytest.raises(InfeasibleError, match="below the curve"):
        frontier(run.folder, export=tmp_path / "bundle")


def test_it_is_written_beside_the_run_whole(way: Run) -> None:
    found = frontier(way)
    assert json.loads((way.folder / "frontier.json").read_text()) == found.to_dict()
    assert found.money in (way.folder / "frontier.html").read_text(encoding="utf-8")
    assert found.export is None


def test_where_the_cheapest_policy_costs_nothing_the_curve_begins_at_0(made: Runs, tmp_path: Path) -> None:
    run = copied(made("counted"), tmp_path)
    path = run.folder / "frontier" / "points.npz"
    with np.load(path) as file:
        part = {name: file[name] for name in file.files}
    cheapest = part["value"][:, 1].argmin()
    part["value"][cheapest, 1] = 0
    part["covariance"][cheapest, 1] = part["covariance"][:, :, cheapest, 1] = 0
    part["certifying"][cheapest, 1] = part["certifying"][:, :, cheapest, 1] = 0
    part["tails"][cheapest] = 0  # what never costs anything may cost no user anything
    np.savez(path, **part)
    found = frontier(run)
    assert found.least == found.curve[0].budget == 0
    assert found.curve[0].spend == [0]


# Bundles.


def wanted(run: Run) -> float:
    found = frontier(run)
    return round(0.5 * (found.least + found.most), 3)


def test_an_export_is_a_bundle_of_one_network_that_decides_as_the_stored_one_says(way: Run, tmp_path: Path) -> None:
    run = copied(way, tmp_path)
    budget = wanted(run)
    found = frontier(run, [budget], export=tmp_path / "bundle")
    bundle = outlay.load_bundle(tmp_path / "bundle")
    (point,) = found.asked
    assert {file.name for file in bundle.folder.glob("*.onnx")} == {"policy-0.onnx", "frontier.onnx"}
    assert len(bundle.members) == len(point.members) <= 1 + len(run.campaign.budgets)
    assert bundle.weights == pytest.approx([member["weight"] for member in point.members])
    limits = [b["limit"] for b in bundle.manifest["budgets"]]
    assert limits == [budget, *(b.limit for b in run.campaign.budgets[1:])]

    network, data = read_network(run.folder / "frontier" / "network-0.npz"), run.data()
    with np.load(run.folder / "frontier" / "points.npz") as file:
        multiplier, head_weights = file["multiplier"], file["head_weights"]
    rows = data.users["start_row"][:500]
    codes, numbers = data.features(rows)
    allowed = data.allowed(rows)
    said = forward(network, codes, numbers)
    each = said.q.reshape(len(rows), data.num_actions, network.num_policies, -1)
    threshold = bundle.manifest["imitation_threshold"]
    pool = Pool(bundle)
    every = pool.mixture(np.full(len(multiplier), 1 / len(multiplier)))  # a server may mix all policies anew
    assert len(pool.entries) == len(multiplier)
    assert pool.weights[pool.weights > 0] == pytest.approx(bundle.weights)
    trained = Pool(outlay.load_bundle(run.bundle))
    constants = [member for member in run.manifest["members"] if member["number"] is None]
    assert trained.weights.sum() == pytest.approx(1)  # constant actions of the mixture are in the pool as well
    assert len(trained.entries) == len(pool.entries) + len(constants)
    salts = [[entry["salt"] for entry in each.entries[: len(pool.entries)]] for each in (trained, pool)]
    assert salts[0] == salts[1]
    for member, (action, _) in zip(
        [*bundle.manifest["members"], *pool.entries],
        [*bundle.choices(codes, numbers, allowed), *every.choices(codes, numbers, allowed)],
        strict=True,
    ):
        number = int(np.flatnonzero((multiplier == member["multiplier"]).all(axis=1))[0])
        value = each[:, :, number] @ head_weights[number]
        fine = allowed
        if threshold:
            assert said.imitation is not None
            share = np.where(allowed, np.exp(said.imitation), 0)
            fine = share >= threshold * share.max(axis=1, keepdims=True)
        value = np.where(fine, value, -np.inf)
        assert (value[np.arange(len(rows)), action] >= value.max(axis=1) - 1e-5).all()


def test_the_first_export_is_a_look_and_all_others_are_the_same_one(made: Runs, tmp_path: Path) -> None:
    run = copied(made("network"), tmp_path)
    looks, band = run.folder / "data" / "looks.json", run.folder / "frontier" / "band.npz"
    before = frontier(run, [1.5, 1.9]).asked
    assert (before[0].certified, before[0].bounds, before[0].gain_bound) == (None, None, None)
    assert not looks.exists()
    first = frontier(run, [1.5], export=tmp_path / "first").export
    assert first is not None
    assert (first["look"], first["certificate"]["look"]) == (2, 2)
    assert first["certificate"]["confidence"] == pytest.approx(0.9875)
    assert first["certificate"]["policies"] == run.manifest["policies"]
    assert len(json.loads(looks.read_text())) == 2
    stored = outlay.load_bundle(tmp_path / "first").manifest
    assert stored["certificate"] == json.loads(json.dumps(first["certificate"]))
    assert {(e["policy"], e["target"]) for e in stored["estimates"]} == {
        (policy, target) for policy in ("old", "mixture") for target in ("reward", "coupon_cost")
    }
    assert first["verdict"]
    written, counted = band.read_bytes(), looks.read_bytes()
    other = frontier(run, [2.2], export=tmp_path / "other").export
    assert other is not None
    assert other["look"] == 2
    again = frontier(run, [1.5], export=tmp_path / "again").export
    assert again is not None
    assert again == {**first, "path": str(tmp_path / "again")}
    sharper = frontier(run, [1.5], export=tmp_path / "sharper", confidence=0.9).export
    assert sharper is not None
    assert sharper["certificate"]["alpha"] == pytest.approx(0.025)
    assert (band.read_bytes(), looks.read_bytes()) == (written, counted)
    # What was asked before the look is what is asked after it, now with what is certain of it.
    after = frontier(run, [1.5, 1.9]).asked
    for one, same in zip(before, after, strict=True):
        assert replace(same, certified=None, certificate=None, bounds=None, gain=None, gain_bound=None,
                       gain_most=None) == one  # fmt: skip
    line = first["certificate"]["budgets"][0]
    assert after[0].bounds == [line["bound"]]
    assert after[0].certified == line["kept"] == (line["bound"] <= 1.5)
    assert after[0].gain_bound == first["certificate"]["gain_bound"]


def test_an_export_is_compared_with_constant_actions_as_an_evaluation_is(
    made: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is given the best constant actions that spend no more, measured on the certify users."""
    given: list[Any] = []

    def seen(*_: Any, constants: Any = None) -> str:
        given.append(constants)
        return "said"

    monkeypatch.setattr("outlay.jobs.frontier.verdict", seen)
    found = frontier(copied(made("counted"), tmp_path), [2.2], export=tmp_path / "bundle").export
    assert found is not None
    assert found["verdict"] == "said"
    (beside,) = given
    assert 0 < beside.spend <= found["certificate"]["budgets"][0]["value"] * (1 + 1e-6)
    assert beside.keep


def test_a_budget_is_the_same_bundle_whatever_was_looked_at_in_between(
    made: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the room of the look that was the next when it was trained; its certificate states its own."""
    alone, later = copied(made("counted"), tmp_path / "a"), copied(made("counted"), tmp_path / "b")
    one = frontier(alone, [1.5], export=tmp_path / "a" / "out").export
    monkeypatch.setenv("OUTLAY_LOOKS", str(tmp_path / "another-machine.sqlite"))
    for name in ("another bundle", "and another"):
        look(later.data(), name, 0.95)
    other = frontier(later, [1.5], export=tmp_path / "b" / "out").export
    assert one is not None
    assert other is not None
    assert one["id"] == other["id"]
    assert (one["look"], other["look"]) == (2, 4)
    assert other["certificate"]["confidence"] == pytest.approx(1 - 0.05 / 16)
    assert other["certificate"]["budgets"][0]["bound"] > one["certificate"]["budgets"][0]["bound"]


def test_a_look_that_was_killed_before_it_was_written_is_made_again_and_not_counted_twice(
    made: Runs, tmp_path: Path
) -> None:
    run = copied(made("counted"), tmp_path)
    first = frontier(run, [1.5], export=tmp_path / "bundle").export
    (run.folder / "frontier" / "band.npz").unlink()
    again = frontier(run, [1.5], export=tmp_path / "bundle").export
    assert again == first
    assert len(json.loads((run.folder / "data" / "looks.json").read_text())) == 2
    (run.folder / "frontier" / "band.npz").write_bytes(b"no archive")
    with pytest.raises(FolderError, match=r"band\.npz: is damaged\. Remove it"):
        frontier(run)


@pytest.mark.parametrize("name", ["counted", "network", "two limits"])
def test_the_true_spend_of_an_exported_bundle_keeps_its_limit(
    name: str, made: Runs, habit: Habit, tmp_path: Path
) -> None:
    run = copied(made(name), tmp_path)
    for budget in (1.5, 2.2):
        frontier(run, [budget], export=tmp_path / "bundle")
        bundle = outlay.load_bundle(tmp_path / "bundle")
        decisions = bundle.decide(pq.read_table(habit.folder / "states.parquet"), members=True)
        action = decisions["action_index"].to_numpy().reshape(habit.truth.num_states, -1)
        x = bundle.weights @ np.array([measure(habit.truth, column) for column in action.T])
        assert 0.6 * budget < x[1] <= 1.05 * budget
        if name == "two limits":
            shares = [measure(large(habit), column)[1] for column in action.T]
            assert bundle.weights @ shares <= 1.05 * 0.45


def large(habit: Habit) -> Any:
    """The true model, with the share of coupons of 3 and more as its cost."""
    cost = np.broadcast_to(np.arange(1.0, 6.5, 0.5) >= 3, habit.truth.reward.shape).astype(float)
    return replace(habit.truth, cost=cost[:, :, None])


@pytest.mark.parametrize("name", ["counted", "network"])
def test_a_user_keeps_the_policy_that_stays_when_its_share_grows(name: str, made: Runs, tmp_path: Path) -> None:
    """Salts are of a policy's own part of the network, whatever else is in the bundle."""
    run = copied(made(name), tmp_path)
    curve = [point for point in frontier(run).curve if len(point.members) == 2]
    prices = [[member["multiplier"] for member in point.members] for point in curve]
    i = next(i for i in range(len(curve) - 1) if prices[i] == prices[i + 1])
    j = next(j for j in range(i, len(curve)) if prices[j] != prices[i] and prices[i][0] in prices[j])
    bundles = []
    for number, k in enumerate((i, i + 1, j)):
        frontier(run, [curve[k].budget], export=tmp_path / str(number))
        bundles.append(outlay.load_bundle(tmp_path / str(number)))
    one, more, other = bundles
    salts = [[member.salt for member in bundle.members] for bundle in bundles]
    assert salts[0] == salts[1]
    stays = other.manifest["members"][[m["multiplier"] for m in other.manifest["members"]].index(prices[i][0])]
    assert stays["salt"] == salts[0][0]
    assert len(set(salts[0]) & set(salts[2])) == 1
    users = pa.table({"user_id": [f"u{n}" for n in range(2000)], "yesterday": [0] * 2000, "level": [2] * 2000})
    drawn = [bundle.decide(users)["member"].to_numpy() for bundle in (one, more)]
    grown = int((more.weights > one.weights).argmax())
    assert (drawn[1][drawn[0] == grown] == grown).all()
    assert 0 < (drawn[1] != drawn[0]).mean() < 2 * abs(more.weights - one.weights).max() + 0.02


@pytest.mark.parametrize("name", ["network", "untidy", "per user"])
def test_bundles_of_one_network_score_and_allocate(name: str, made: Runs, habit: Habit, tmp_path: Path) -> None:
    run, folder = made(name), tmp_path
    source = (run.folder.parent if name == "untidy" else habit.folder) / "log.parquet"
    rows = pq.read_table(source).slice(0, 3000)
    pq.write_table(rows, folder / "rows.parquet")
    for bundle in (run.bundle, folder / "exported"):
        if bundle != run.bundle:
            frontier(run, [wanted(run)], export=bundle)
        loaded = outlay.load_bundle(bundle)
        assert outlay.score(bundle, folder / "rows.parquet", folder / "d.parquet").rows == 3000
        drawn = pq.read_table(folder / "d.parquet")
        outlay.score(bundle, folder / "rows.parquet", folder / "m.parquet", members=True)
        each = pq.read_table(folder / "m.parquet")
        assert len(each) == 3000 * len(loaded.members)
        action = each["action"].to_numpy().reshape(3000, -1)
        assert np.array_equal(drawn["action"].to_numpy(), action[np.arange(3000), drawn["member"].to_numpy()])
    result = allocate_users(run, folder / "rows.parquet", 4000.0, folder / "a.parquet")
    assert result.rows == 3000
    assert 0 < result.cost <= 4000
    assert result.gap < 0.01
    if name == "untidy":
        given = pq.read_table(folder / "a.parquet")["action"].to_numpy()
        allowed = rows["allowed"].to_pylist()
        assert all(a in may for a, may in zip(given, allowed, strict=True))


# Wrong input.


def test_a_run_for_one_budget_has_no_curve(run: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"trained for one budget\. Train with --method frontier"):
        frontier(run)
    with pytest.raises(FolderError, match="does not exist"):
        frontier(tmp_path / "none")


def test_the_bundle_of_the_run_itself_is_not_replaced(made: Runs, tmp_path: Path) -> None:
    run = copied(made("counted"), tmp_path)
    identity = outlay.load_bundle(run.bundle).id
    for folder in (run.bundle, run.folder / "data" / ".." / "bundle", run.folder, run.folder / "frontier"):
        with pytest.raises(FolderError, match="Export to another folder"):
            frontier(run, [1.5], export=folder)
    assert outlay.load_bundle(run.bundle).id == identity
    assert not (run.folder / "data" / "looks.json").exists()


def test_a_floor_as_money_budget_has_no_curve_but_is_trained(habit: Habit, tmp_path: Path) -> None:
    path = habit.changed(tmp_path, ('cost = "cost"', 'cost = "active"'), ("at_most = 2.2", "at_least = 0.6"))
    run = outlay.train(path, tmp_path / "run")
    with pytest.raises(OutlayError, match=r"budget coupon_cost: is a floor.*money = true"):
        frontier(run)


def test_one_policy_alone_says_nothing_about_costs_that_fall() -> None:
    """`in all 0 pairs` is true of nothing."""
    alone = SimpleNamespace(policy=SimpleNamespace(multiplier=np.zeros(1)), x=np.ones(2), std_error=np.ones(2))
    said = falls([alone])  # type: ignore[list-item]  # what it reads of a Kept
    assert said == "Check: there is one policy alone, so it cannot be checked whether costs fall as λ grows."
    assert "in all 1 pairs" in falls([alone, alone])  # type: ignore[list-item]
