"""Every budget from one training: the curve against the stored measurements, and the bundles of its budgets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_other_campaigns import untidy

import outlay
from conftest import Habit
from outlay.bundles.pool import Pool
from outlay.bundles.reference import forward
from outlay.choosing.looks import look
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier
from outlay.core.errors import FolderError, InfeasibleError, OutlayError
from outlay.estimators.certificate import OWN
from outlay.evaluating.budget_curve import BudgetCurve
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.verdict import Verdict, VerdictKind
from outlay.jobs.allocate import allocate_users
from outlay.jobs.frontier import frontier
from outlay.ops.tabular import measure
from outlay.training.column_generation import falls
from telling import missing

pytestmark = pytest.mark.usefixtures("few_budgets")
SECOND = """
[[budget]]
name = "large"
cost = "case when coupon >= 3 then 1 else 0 end"
at_most = 0.45

[train]"""
PER_USER = (("at_most = 2.2", "at_most = 14.0"), ('per = "decision"', 'per = "user"'))
SHORT = ("min_steps = 2000", "min_steps = 1000")
TWO, ONE = (("[train]", f"[train]\nfolds = {folds}") for folds in (2, 1))
WAYS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "counted": ("tabular", ()),
    "network": ("bcq", (TWO, SHORT)),
    "two limits": ("ddqn", (("\n[train]", SECOND), TWO, SHORT)),
    "per user": ("edrr", (*PER_USER, ONE, SHORT)),
    "untidy": ("bcq", ()),  # gaps, users who leave, rows without a choice, actions not allowed to some
}
QUICK = ("counted", "network")  # in `make test`
EVERY_WAY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in WAYS]
Runs = Callable[[str], Run]


class Looked(NamedTuple):
    """A copy of a run whose one look has been made, by an export of a budget in the middle of its curve.

    Attributes:
        run: to be copied again, since a look takes long.
        found: what that export returned.
        bundle: what it wrote; only read it.
    """

    run: Run
    found: BudgetCurve
    bundle: Path


Looks = Callable[[str], Looked]


@pytest.fixture(scope="module")
def made(habit: Habit, counted: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs by name, trained when they are asked for; read only, as far as looks go."""

    @cache
    def made(name: str) -> Run:
        if name == "counted":
            return Run.open(counted)
        oracle, changes = WAYS[name]
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        path = untidy(folder) if name == "untidy" else habit.changed(folder, *changes)
        return outlay.train(path, folder / "run", oracle=oracle)

    return made


@pytest.fixture(scope="module")
def curves(made: Runs) -> Callable[[str], BudgetCurve]:
    """Of the runs, as they come out of training."""
    return cache(lambda name: frontier(made(name)))


@pytest.fixture(params=EVERY_WAY)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def way(name: str, made: Runs) -> Run:
    return made(name)


@pytest.fixture
def found(name: str, curves: Callable[[str], BudgetCurve]) -> BudgetCurve:
    return curves(name)


@pytest.fixture(scope="module")
def wanted(curves: Callable[[str], BudgetCurve]) -> Callable[[str], float]:
    """A budget in the middle of the curve of a run."""
    return cache(lambda name: round(0.5 * (curves(name).least + curves(name).most), 3))


@pytest.fixture(scope="module")
def looked(
    made: Runs,
    wanted: Callable[[str], float],
    counted_and_evaluated: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Looks:
    @cache
    def looked(name: str) -> Looked:
        before = Run.open(counted_and_evaluated) if name == "counted" else made(name)
        run = copied(before, tmp_path_factory.mktemp("looked"))
        bundle = run.folder.parent / "bundle"
        return Looked(run, frontier(run, [wanted(name)], export=bundle), bundle)

    return looked


def copied(run: Run, folder: Path) -> Run:
    """To do with as one likes: exports count looks in the data inside."""
    shutil.copytree(run.folder, folder / "copy")
    return Run.open(folder / "copy")


def test_the_curve_rises_and_bends_down(way: Run, found: BudgetCurve, few_budgets: int) -> None:
    budget, value = np.array([(p.budget, p.value) for p in found.curve]).T
    stored = StoredFrontier.read(way.folder / "frontier")
    if stored.manifest["window"] is not None:  # what is chosen by rises and bends down: it is not what is shown
        value = np.interp(budget, stored.budgets, stored.aim[:-1])
    assert len(budget) == few_budgets
    assert budget[[0, -1]].tolist() == [found.least, found.most]
    assert (np.diff(value) >= -1e-9).all()
    assert value[-1] > value[0] * 1.02
    slopes = np.diff(value) / np.diff(budget)
    if way.data().steady:
        assert (np.diff(slopes) <= 1e-6 * slopes.max()).all()
    else:  # the limit stands in the coordinates and in their margins, so the curve bends down only on the whole
        assert slopes[-few_budgets // 5 :].mean() < 0.5 * slopes[: few_budgets // 5].mean()
    assert found.policies[0].spend != found.policies[-1].spend


def test_every_mixture_keeps_its_budget_with_the_margin_and_the_other_limits(way: Run, found: BudgetCurve) -> None:
    steady, shares = way.data().steady, StoredFrontier.read(way.folder / "frontier").shares
    place = found.place
    for point in [*found.curve, *found.requested]:
        assert point.margin > 0
        # Where policies differ in how often they decide, the limit enters the cost, and lies between two of the grid.
        assert point.spend[place] + point.margin <= point.budget * (1 + (1e-7 if steady else 1e-3))
        assert sum(member.weight for member in point.members) == pytest.approx(1)
        assert len(point.members) <= 2 * found.folds * (1 + len(found.budgets))
        for k, share in enumerate(shares):
            own = sum(member.weight for member in point.members if member.fold == k)
            assert own == pytest.approx(share)
        for j, line in enumerate(found.budgets):
            assert j == place or point.spend[j] < line.limit
        assert point.low < point.value < point.high


def test_budgets_between_two_of_the_grid_are_mixtures_of_theirs(way: Run, found: BudgetCurve) -> None:
    """Several at once; what one more unit of money buys is the slope of the curve."""
    wanted = [found.least + share * (found.most - found.least) for share in (0.1, 0.37, 0.5, 0.83)]
    asked = frontier(way, wanted).requested
    assert [point.budget for point in asked] == wanted
    stored = StoredFrontier.read(way.folder / "frontier")
    value, aim = stored.points.value[:-1, 0], stored.aim[:-1]
    for point in asked:
        assert point.value == pytest.approx(np.interp(point.budget, stored.budgets, value), abs=1e-12)
        step = 1e-3 * point.budget
        after, before = frontier(way, [point.budget + step, point.budget - step]).requested
        at = [point.budget - step, point.budget, point.budget + step]
        slopes = np.diff(np.interp(at, stored.budgets, aim)) / step
        if stored.manifest["window"] is None:
            assert aim == pytest.approx(value)
            assert slopes == pytest.approx(np.diff([before.value, point.value, after.value]) / step, rel=1e-6, abs=1e-9)
        assert min(slopes) * (1 - 1e-6) - 1e-9 <= point.marginal <= max(slopes) * (1 + 1e-6) + 1e-9


def test_below_the_curve_the_cheapest_cost_is_told_and_what_is_advised_is_enough(way: Run, found: BudgetCurve) -> None:
    assert found.least > 0
    with pytest.raises(InfeasibleError, match=rf"below the curve.*{found.money} {found.least:.4g} per") as caught:
        frontier(way, [found.least * 0.99])
    words = str(caught.value)
    assert ("keeps the other limits" in words) == (len(found.budgets) > 1)
    advised = float(words.split("Give ")[1].split(" ")[0])
    assert found.least < advised < found.least * 1.002
    assert frontier(way, [advised]).requested[0].budget == advised


@pytest.mark.parametrize(
    ("budgets", "words"),
    [
        (["a"], r"budget: is 'a'; .*number.*\b1\.5"),
        ([1.0, None], "budget: is None; expected"),
        ([True], "budget: is True; expected"),
        ([float("nan")], "budget: is nan; expected"),
        ("1.5", r"budgets: is '1\.5'; .*list of numbers"),
        (1.5, r"budgets: is 1\.5; .*list of numbers"),
    ],
)
def test_budgets_that_are_no_numbers_are_refused(budgets: Any, words: str, way: Run) -> None:
    with pytest.raises(OutlayError, match=words):
        frontier(way, budgets=budgets)


def test_above_the_curve_the_dearest_useful_mixture_is_given_and_the_slack_said(way: Run, found: BudgetCurve) -> None:
    dearest = found.curve[-1]
    assert not dearest.slack
    (point,) = frontier(way, [2 * found.most]).requested
    assert point.slack
    assert point.marginal == 0
    assert point.value == pytest.approx(dearest.value, rel=1e-3)
    assert point.value >= max(p.value for p in found.curve) - 1e-12
    (near,) = frontier(way, [found.most * 0.98]).requested
    assert not near.slack
    assert near.marginal > 0


def test_without_a_budget_it_is_the_campaigns_or_the_least_where_that_lies_above(made: Runs, tmp_path: Path) -> None:
    found = frontier(made("counted"))
    assert [point.budget for point in found.requested] == [2.2]
    run = copied(made("counted"), tmp_path)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    manifest["campaign"]["budget"][0]["at_most"] = 0.1
    (run.folder / "manifest.json").write_text(json.dumps(manifest))
    found = frontier(run.folder)
    assert [point.budget for point in found.requested] == [found.least]
    with pytest.raises(InfeasibleError, match="below the curve"):
        frontier(run.folder, export=tmp_path / "bundle")


def test_it_is_written_beside_the_run_whole(way: Run) -> None:
    found = frontier(way)
    assert msgspec.json.decode((way.folder / "frontier.json").read_bytes(), type=BudgetCurve) == found
    assert way.labelled.called("budgets", found.money).label in (way.folder / "frontier.html").read_text(
        encoding="utf-8"
    )
    assert found.export is None


# Bundles.


def test_an_export_is_a_bundle_of_one_network_that_decides_as_the_stored_one_says(name: str, looked: Looks) -> None:
    run, found, folder = looked(name)
    bundle = outlay.load_bundle(folder)
    (point,) = found.requested
    graphs = {file.name for file in bundle.folder.glob("*.onnx")}
    stored, data = StoredFrontier.read(run.folder / "frontier"), run.data()
    assert {"frontier.onnx", *(f"policy-{k}.onnx" for k in range(found.folds))} <= graphs
    assert len(graphs) <= 1 + found.folds + stored.constant.sum(), "a constant action has a graph of its own"
    assert len(bundle.members) == len(point.members)
    assert bundle.weights == pytest.approx([member.weight for member in point.members])
    limits = [b.limit for b in bundle.manifest.budgets]
    assert limits == [point.budget, *(b.limit for b in run.campaign.budgets[1:])]

    multiplier, head_weights = stored.multiplier, stored.head_weights
    rows = data.users["start_row"][:500]
    codes, numbers = data.features(rows)
    allowed = data.allowed(rows)
    outputs = [forward(network, codes, numbers) for network in stored.networks]
    threshold = bundle.manifest.imitation_threshold
    pool = Pool(bundle)
    every = pool.mixture(np.full(len(multiplier), 1 / len(multiplier)))  # a server may mix all policies anew
    assert len(pool.entries) == len(multiplier)
    assert pool.weights[pool.weights > 0] == pytest.approx(bundle.weights)
    trained = Pool(outlay.load_bundle(run.bundle))
    assert trained.weights.sum() == pytest.approx(1)  # constant actions of the mixture are in the pool as well
    assert len(trained.entries) == len(pool.entries)
    salts = [[entry.salt for entry in each.entries[: len(pool.entries)]] for each in (trained, pool)]
    assert salts[0] == salts[1]
    for member, (action, _) in zip(
        [*bundle.manifest.members, *pool.entries],
        [*bundle.choices(codes, numbers, allowed), *every.choices(codes, numbers, allowed)],
        strict=True,
    ):
        number = salts[1].index(member.salt)
        assert (multiplier[number] == member.multiplier).all()
        assert (head_weights[number] == member.head_weights).all()
        said = outputs[stored.network[number]]
        each = said.q.reshape(len(rows), data.num_actions, -1, head_weights.shape[1])
        value = each[:, :, stored.policy[number]] @ head_weights[number]
        fine = allowed
        if threshold and not stored.constant[number]:
            assert said.imitation is not None
            share = np.where(allowed, np.exp(said.imitation), 0)
            fine = share >= threshold * share.max(axis=1, keepdims=True)
        value = np.where(fine, value, -np.inf)
        assert (value[np.arange(len(rows)), action] >= value.max(axis=1) - 1e-5).all()


def test_the_first_export_is_a_look_and_all_others_are_the_same_one(made: Runs, looked: Looks, tmp_path: Path) -> None:
    at_first = looked("network")
    (budget,) = (point.budget for point in at_first.found.requested)
    before = frontier(made("network"), [budget, 1.9]).requested
    assert (before[0].certified, before[0].bounds, before[0].gain_bound) == (None, None, None)
    assert not (made("network").folder / "data" / "looks.json").exists()
    run = copied(at_first.run, tmp_path)
    looks, band = run.folder / "data" / "looks.json", run.folder / "frontier" / "band.npz"
    assert len(json.loads(looks.read_text())) == 1
    first = at_first.found.export
    assert first is not None
    assert (first.look, first.certificate.look) == (1, 1)
    assert first.certificate.confidence == pytest.approx(1 - (1 - OWN) * 0.05 / 2)
    assert first.certificate.policies == len(StoredFrontier.read(run.folder / "frontier").budgets)
    stored = outlay.load_bundle(at_first.bundle).judgement
    assert stored is not None
    assert stored.certificate == json.loads(json.dumps(first.certificate.to_dict()))
    assert {(e.policy, e.target) for e in stored.estimates} == {
        (policy, target) for policy in ("old", "mixture") for target in ("reward", "coupon_cost")
    }
    assert first.verdict
    written, counted = band.read_bytes(), looks.read_bytes()
    other = frontier(run, [2.2], export=tmp_path / "other").export
    assert other is not None
    assert other.look == 1
    again = frontier(run, [budget], export=tmp_path / "again").export
    assert again is not None
    assert again == replace(first, path=str(tmp_path / "again"))
    sharper = frontier(run, [budget], export=tmp_path / "sharper", confidence=0.9).export
    assert sharper is not None
    assert sharper.certificate.alpha == pytest.approx((1 - OWN) * 0.1 / 2)
    assert (band.read_bytes(), looks.read_bytes()) == (written, counted)
    # The mixtures asked before the look are those asked after it, now with the figures of that look.
    after = frontier(run, [budget, 1.9]).requested
    for one, same in zip(before, after, strict=True):
        assert (same.budget, same.margin, same.members) == (one.budget, one.margin, one.members)
        assert (same.marginal, same.slack) == (one.marginal, one.slack)
        assert abs(same.value - one.value) < one.high - one.low  # four standard errors, of other users
        assert same.value != one.value
    line = first.certificate.budgets[0]
    assert line.bound is not None
    assert after[0].bounds == (line.bound,)
    assert after[0].spend == (line.value,)
    assert after[0].certified == line.kept == (line.bound <= budget)
    assert after[0].gain_bound == first.certificate.gain_bound


@pytest.mark.slow
def test_an_export_is_compared_with_constant_actions_as_an_evaluation_is(
    looked: Looks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is given the best constant actions that spend no more, measured on the certify users."""
    given: list[Any] = []

    def seen(*_: Any, constants: Any = None, first_days: Any = None) -> Verdict:
        given.append(constants)
        assert first_days.days > 1
        return Verdict(kind=VerdictKind.SERVE, confidence=0.95, old=None, constants=None, broken=(), words="said")

    run = copied(looked("counted").run, tmp_path)  # which asks for verdicts of its own
    monkeypatch.setattr("outlay.jobs.frontier.verdict", seen)
    found = frontier(run, [2.2], export=tmp_path / "bundle").export
    assert found is not None
    assert found.verdict.words == "said"
    assert (found.look, found.certificate.look) == (1, 1), "the curve was looked at when the run was evaluated"
    assert len(json.loads((run.folder / "data" / "looks.json").read_text())) == 1
    (beside,) = given
    (line,) = found.certificate.budgets
    assert line.value is not None
    assert 0 < beside.spend <= line.value * (1 + 1e-6)
    assert beside.keep


@pytest.mark.slow
def test_a_budget_is_the_same_bundle_whatever_was_looked_at_in_between(
    made: Runs, looked: Looks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the room of the look that was the next when it was trained; its certificate states its own."""
    one, later = looked("network").found.export, copied(made("network"), tmp_path)
    assert one is not None
    monkeypatch.setenv("OUTLAY_LOOKS", str(tmp_path / "another-machine.sqlite"))
    for name in ("another bundle", "and another"):
        look(later.data(), name, 0.95)
    other = frontier(later, [one.budget], export=tmp_path / "out").export
    assert other is not None
    assert one.id == other.id
    assert (one.look, other.look) == (1, 3)
    assert other.certificate.confidence == pytest.approx(1 - (1 - OWN) * 0.05 / 12)
    wide, narrow = other.certificate.budgets[0].bound, one.certificate.budgets[0].bound
    assert wide is not None
    assert narrow is not None
    assert wide > narrow


@pytest.mark.slow
def test_a_look_that_was_killed_before_it_was_written_is_made_again_and_not_counted_twice(
    looked: Looks, tmp_path: Path
) -> None:
    before, found, _ = looked("network")
    run, first = copied(before, tmp_path), found.export
    assert first is not None
    (run.folder / "frontier" / "band.npz").unlink()
    again = frontier(run, [first.budget], export=tmp_path / "bundle").export
    assert again == replace(first, path=str(tmp_path / "bundle"))
    assert len(json.loads((run.folder / "data" / "looks.json").read_text())) == 1
    (run.folder / "frontier" / "band.npz").write_bytes(b"no archive")
    with pytest.raises(FolderError, match=r"band\.npz: is damaged\. Remove it"):
        frontier(run)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counted", "network", "two limits"])
def test_the_true_spend_of_an_exported_bundle_keeps_its_limit(
    name: str, looked: Looks, habit: Habit, tmp_path: Path
) -> None:
    before, found, middle = looked(name)
    frontier(copied(before, tmp_path), [2.2], export=tmp_path / "bundle")
    for budget, folder in ((found.requested[0].budget, middle), (2.2, tmp_path / "bundle")):
        bundle = outlay.load_bundle(folder)
        decisions = bundle.decide(pq.read_table(habit.folder / "states.parquet"), members=True)
        action = decisions["action_index"].to_numpy().reshape(habit.truth.num_states, -1)
        x = bundle.weights @ np.array([measure(habit.truth, column) for column in action.T])
        assert 0.5 * budget < x[1] <= 1.05 * budget  # so few users leave much of it as room for the weaker bound
        if name == "two limits":
            shares = [measure(large(habit), column)[1] for column in action.T]
            assert bundle.weights @ shares <= 1.05 * 0.45


def large(habit: Habit) -> Any:
    """The true model, with the share of coupons of 3 and more as its cost."""
    cost = np.broadcast_to(np.arange(1.0, 6.5, 0.5) >= 3, habit.truth.reward.shape).astype(float)
    return replace(habit.truth, cost=cost[:, :, None])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counted", "network"])
def test_a_user_keeps_the_policy_that_stays_when_its_share_grows(name: str, looked: Looks, tmp_path: Path) -> None:
    """Salts are of a policy's own part of its network, whatever else is in the bundle."""
    before, curve, middle = looked(name)
    more = curve.requested[0].budget + 0.01 * (curve.most - curve.least)
    frontier(copied(before, tmp_path), [more], export=tmp_path / "more")
    users = pa.table({"user_id": [f"u{n}" for n in range(2000)], "yesterday": [0] * 2000, "level": [2] * 2000})
    found = []
    for folder in (middle, tmp_path / "more"):
        bundle = outlay.load_bundle(folder)
        salts = [member.salt for member in bundle.members]
        drawn = np.array(salts)[bundle.decide(users)["member"].to_numpy()]
        found.append((dict(zip(salts, bundle.weights, strict=True)), drawn))
    (one, drawn), (other, after) = found
    assert set(one) & set(other)
    for left, taken in zip(drawn, after, strict=True):  # only to a policy whose share has grown the more
        assert left == taken or other[taken] / one.get(taken, 1e-9) > other.get(left, 0.0) / one[left]
    moved = sum(max(0.0, weight - other.get(salt, 0.0)) for salt, weight in one.items())
    assert 0 < (after != drawn).mean() < 2 * moved + 0.02


@pytest.mark.slow
@pytest.mark.parametrize("name", ["network", "untidy", "per user"])
def test_bundles_of_one_network_score_and_allocate(
    name: str, made: Runs, looked: Looks, habit: Habit, tmp_path: Path
) -> None:
    (run, _, exported), folder = looked(name), tmp_path
    source = (made(name).folder.parent if name == "untidy" else habit.folder) / "log.parquet"
    rows = pq.read_table(source).slice(0, 3000)
    pq.write_table(rows, folder / "rows.parquet")
    for bundle in (run.bundle, exported):
        loaded = outlay.load_bundle(bundle)
        scored = outlay.score(bundle, folder / "rows.parquet", folder / "d.parquet")
        assert (scored.rows, scored.forced) == (3000, "no_choice" if name == "untidy" else None)
        drawn = pq.read_table(folder / "d.parquet")
        outlay.score(bundle, folder / "rows.parquet", folder / "m.parquet", members=True)
        each = pq.read_table(folder / "m.parquet")
        assert len(each) == 3000 * len(loaded.members)
        action = each["action"].to_numpy().reshape(3000, -1)
        assert np.array_equal(drawn["action"].to_numpy(), action[np.arange(3000), drawn["member"].to_numpy()])
    users = rows.column("user" if name == "untidy" else "user_id").to_numpy(zero_copy_only=False)
    rows = rows.take(np.unique(users, return_index=True)[1])
    pq.write_table(rows, folder / "users.parquet")
    result = allocate_users(run, folder / "users.parquet", 1.4 * len(rows), folder / "a.parquet")
    assert result.rows == len(rows)
    assert 0 < result.cost <= 1.4 * len(rows)
    assert result.gap < 0.01
    assert (result.forced, result.others) == ("no_choice" if name == "untidy" else None, ())
    if name == "untidy":
        given = pq.read_table(folder / "a.parquet")["action"].to_numpy()
        allowed = rows["allowed"].to_pylist()
        assert all(a in may for a, may in zip(given, allowed, strict=True))


def test_an_allocation_names_the_limits_that_its_total_does_not_hold(
    looked: Looks, habit: Habit, tmp_path: Path
) -> None:
    run = copied(looked("network").run, tmp_path)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    manifest["campaign"]["budget"].append({"name": "large", "cost": "1", "at_most": 0.45})
    (run.folder / "manifest.json").write_text(json.dumps(manifest))
    rows = pq.read_table(habit.folder / "log.parquet").slice(0, 100)
    users = rows.column("user_id").to_numpy(zero_copy_only=False)
    pq.write_table(rows.take(np.unique(users, return_index=True)[1]), tmp_path / "users.parquet")
    found = allocate_users(run.folder, tmp_path / "users.parquet", 50.0, tmp_path / "a.parquet")
    assert found.others == ("large at most 0.45 per decision",)


# Wrong input.


def test_a_run_for_one_budget_has_no_curve(run: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"one budget.*--method frontier"):
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


@pytest.mark.slow
def test_a_floor_as_money_budget_has_no_curve_but_is_trained(habit: Habit, tmp_path: Path) -> None:
    path = habit.changed(tmp_path, ('cost = "cost"', 'cost = "active"'), ("at_most = 2.2", "at_least = 0.6"))
    run = outlay.train(path, tmp_path / "run", folds=1)
    with pytest.raises(OutlayError, match=r"budget coupon_cost: .*floor.*money = true"):
        frontier(run)


def test_one_policy_alone_says_nothing_about_costs_that_fall() -> None:
    """`in all 0 pairs` is true of nothing."""
    alone = SimpleNamespace(
        policy=SimpleNamespace(multiplier=np.zeros(1)), coordinates=np.ones(2), std_error=np.ones(2)
    )
    said = falls([alone]).words  # type: ignore[list-item]  # what it reads of a Kept
    assert not missing(said, "one policy was learned", "no other to compare")
    assert "pairs" not in said
    assert "in all 1 pairs" in falls([alone, alone]).words  # type: ignore[list-item]


def test_after_an_evaluation_every_budget_has_totals_which_are_those_of_page_one(
    curves: Callable[[str], BudgetCurve], counted_and_evaluated: Path, tmp_path: Path
) -> None:
    assert curves("counted").totals is None
    run = copied(Run.open(counted_and_evaluated), tmp_path)
    evaluated = Evaluation.read(run.folder)
    assert evaluated is not None
    told = evaluated.totals
    assert told is not None
    others = [each for each in told.budgets if not each.capped]
    asked = frontier(run, [each.limit for each in others] or [run.campaign.budgets[0].limit], least_money=True)
    assert asked.totals is not None
    assert (asked.totals.users, asked.totals.days) == (told.users, told.days)
    assert asked.totals.reward is not None
    assert told.reward.now is not None
    assert asked.totals.reward.value == pytest.approx(told.reward.now.value)
    for point, beside in zip(asked.requested, others, strict=False):
        assert point.totals is not None
        assert point.totals.reward.value == pytest.approx(beside.reward.value)
        assert point.totals.money.value == pytest.approx(beside.money.value)
        assert point.totals.more == pytest.approx(beside.more)
    own = frontier(run)
    (point,) = own.requested
    assert point.totals is not None
    assert point.totals.reward.value == pytest.approx(told.reward.new.value)
    assert point.totals.at_least == pytest.approx(told.at_least)
    times = asked.totals.times
    assert times == told.users * told.days
    (goal,) = asked.goals
    assert goal.point is not None
    assert goal.point.totals is not None
    assert goal.point.totals.reward.value >= told.reward.now.value * (1 - 1e-6)
