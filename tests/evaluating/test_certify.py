"""One look for the whole frontier: what it measured, whose bundles it certifies, and that it is taken once."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import outlay
from conftest import Habit
from outlay.choosing.estimates import assuming_less
from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.folds import views
from outlay.choosing.looks import looks
from outlay.choosing.measure import Measure
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.progress import Progress, silent
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, EVERYONE
from outlay.estimators.band import About, MixtureFigures
from outlay.estimators.basis import CountedBasis
from outlay.estimators.day_effects import DayEffects, OutcomeByDay
from outlay.estimators.joint import Joint, combine
from outlay.estimators.units import coordinates
from outlay.evaluating import certify as job
from outlay.evaluating.budget_curve import CurvePoint
from outlay.evaluating.certify import Certified, certified, certify_run
from outlay.evaluating.curve import BudgetMixtures
from outlay.jobs.frontier import frontier
from outlay.ops.intervals import Spread
from outlay.ops.tabular import measure


@pytest.fixture
def run(counted: Path, tmp_path: Path) -> Run:
    shutil.copytree(counted, tmp_path / "run")
    return Run.open(tmp_path / "run")


def certify(
    run: Run, campaign: Campaign | None = None, report: Progress = silent, against: tuple[Reason, ...] = ()
) -> Certified:
    """The curve, in which nothing else was found amiss."""
    stored, about = StoredFrontier.read(run.folder / "frontier"), campaign or run.campaign
    own = MixtureFigures(
        stored.points.only(np.array([-1, 0])), None, (None,), (None,), (0,)
    )  # beside another for the old one
    certify_run(stored, run.identity, run.data(), about, own, About(against, None, stored.allowances))
    found = certified(stored, run.identity, run.data(), about, report)
    assert found is not None
    return found


def known(run: Run) -> Certified | None:
    return certified(StoredFrontier.read(run.folder / "frontier"), run.identity, run.data(), run.campaign)


def test_a_budget_is_certified_from_what_its_members_measure_on_the_users_of_their_folds(
    run: Run, habit: Habit, tmp_path: Path
) -> None:
    """Values and errors are those of the folds' mixtures side by side, everyone's influence once."""
    data, campaign = run.data(), run.campaign
    assert known(run) is None
    found = certify(run)
    assert found.look == 1
    assert 1 - found.curve.confidence == pytest.approx(0.25 * 0.05 / 2)
    assert 1 - found.own.confidence == pytest.approx(0.75 * 0.05 / 2)
    everyone = views(data, 4)[0]
    assert [what.split("@")[0] for what in looks(everyone, EVERYONE)] == [outlay.load_bundle(run.bundle).id]
    curve = BudgetMixtures(StoredFrontier.read(run.folder / "frontier"), campaign, data)
    budget = float(curve.stored.budgets[20])
    frontier(run, [budget], export=tmp_path / "bundle")
    bundle, between = outlay.load_bundle(tmp_path / "bundle"), curve.between(budget)
    certificate = found.certificate(between, curve.under(budget))
    assert (certificate.users, certificate.policies) == (len(data.users), len(curve.stored.budgets))

    fold = curve.stored.fold[np.flatnonzero(between @ curve.stored.weights)]
    x, influence, gain = np.zeros(2), np.zeros(len(data.users)), 0.0
    less, its = 0.0, np.zeros(len(data.users))  # by the estimate that assumes less
    for k, view in enumerate(views(data, 4)):
        at, users = Measure(view, CERTIFY, bundle), view.users_of(CERTIFY)
        share = len(users) / len(data.users)
        assert bundle.weights[fold == k].sum() == pytest.approx(share)
        mixture = combine([at.members()[i] for i in np.flatnonzero(fold == k)], bundle.weights[fold == k] / share)
        value, psi, _ = coordinates(mixture, campaign)
        x += share * value
        influence[users] = psi[:, 1]
        gain += share * (value[0] - coordinates(at.old(), campaign)[0][0])
        own, given = np.flatnonzero(fold == k).tolist(), at.propensity()
        seconds = [assuming_less(at, at.actions(i), at.members()[i], given, ()) for i in own]
        second = combine([each for each in seconds if each is not None], bundle.weights[fold == k] / share)
        value, psi, _ = coordinates(second, campaign)
        less += share * value[1]
        its[users] = psi[:, 1]
    (line,) = certificate.budgets
    assert line.value == pytest.approx(x[1])
    errs, second_family = Spread.of(influence), found.curve.second
    assert second_family is not None
    above = errs.above(second_family.factor)
    further = np.sqrt(its.var(ddof=1) / len(its) - errs.error**2)
    bounds = [x[1] + errs.above(found.curve.factor), less + np.hypot(above, second_family.factor * further)]
    assert line.bound == pytest.approx(max(bounds), rel=1e-4)
    assert certificate.gain == pytest.approx(gain)
    assert certificate.look == 1
    json.dumps(certificate.to_dict(), allow_nan=False)

    decided = bundle.decide(pq.read_table(habit.folder / "states.parquet"), members=True)
    action = decided["action_index"].to_numpy().reshape(habit.truth.num_states, -1)
    spend = bundle.weights @ [measure(habit.truth, column)[1] for column in action.T]
    assert line.bound is not None
    assert spend < line.bound < 1.1 * spend


def test_it_looks_once_and_then_reads_at_any_confidence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    data = run.data()
    said: list[tuple[float, str]] = []
    first = certify(run, report=lambda share, text: said.append((share, text)))
    assert len(said) > len(views(data, 4))
    assert [share for share, _ in said] == sorted(share for share, _ in said)
    monkeypatch.setattr(job, "measured_on", None)
    again = certify(run)
    assert (again.look, again.curve.factor) == (first.look, first.curve.factor)
    assert np.array_equal(again.curve.points.covariance, first.curve.points.covariance)
    other = certify(run, run.campaign.with_train(confidence=0.9))
    assert other.look == 1
    assert 1 - other.curve.confidence == pytest.approx(0.25 * 0.1 / 2)
    assert other.curve.factor < first.curve.factor
    assert len(looks(views(data, 4)[0], EVERYONE)) == 1


def test_the_curve_is_measured_when_it_is_asked_for(run: Run) -> None:
    """What the run serves is certified without it, by the same figures as beside it, and all of it is one look."""
    stored, band = StoredFrontier.read(run.folder / "frontier"), run.folder / "frontier" / "band.npz"

    def parts() -> set[str]:
        with np.load(band) as file:
            return {name.split("_")[0] for name in file.files}

    own = MixtureFigures(stored.points.only(np.array([-1, 0])), None, (None,), (None,), (0,))
    about = About((), None, stored.allowances)
    alone = certify_run(stored, run.identity, run.data(), run.campaign, own, about)
    assert parts() == {"own", "said"}
    found = known(run)
    assert found is not None
    assert parts() == {"own", "curve", "said"}
    serves = np.eye(len(stored.weights))[-1]
    assert found.certificate(serves, run.campaign) == alone
    assert certify_run(stored, run.identity, run.data(), run.campaign, own, about) == alone
    assert parts() == {"own", "curve", "said"}
    assert len(looks(views(run.data(), 4)[0], EVERYONE)) == 1


def test_a_look_is_counted_before_anything_is_seen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    data = run.data()
    with monkeypatch.context() as patch:
        patch.setattr(job, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            certify(run)
    assert len(looks(data, EVERYONE)) == 1
    assert known(run) is None
    with monkeypatch.context() as patch:
        patch.setattr(job, "measured_on", killed)
        with pytest.raises(KeyboardInterrupt):
            certify(run)
    assert certify(run).look == 1
    assert len(looks(data, EVERYONE)) == 1


def test_what_a_later_evaluation_finds_amiss_takes_the_certificate_back(run: Run) -> None:
    """Its checks are those of its version; what was measured of the curve stays."""
    first, stored = certify(run), StoredFrontier.read(run.folder / "frontier")
    assert first.certificate(np.eye(len(stored.weights))[-1], run.campaign).withheld is None
    doubt = Reason(ReasonKind.DOUBTED, {"found": "the log has only seven days"})
    for found in (certify(run, against=(doubt,)), known(run)):
        assert found is not None
        assert found.look == 1
        for weights in np.eye(len(stored.weights))[[0, -1]]:
            assert found.certificate(weights, run.campaign).reason == doubt
    assert len(looks(run.data(), EVERYONE)) == 1


def test_what_stays_on_disk_says_nothing_of_any_user(run: Run) -> None:
    found = certify(run)
    with np.load(run.folder / "frontier" / "band.npz") as file:
        assert max(file[name].size for name in file.files) == found.curve.points.covariance.size
        assert {name.split("_")[0] for name in file.files} == {"own", "curve", "said"}


def test_intervals_of_the_curve_and_marginal_values_allow_for_days_that_differ(run: Run) -> None:
    """A marginal value is a gain, which a trend may move twice as far and to both sides."""
    stored, data = StoredFrontier.read(run.folder / "frontier"), run.data()
    assert stored.allowances["days"].days > 4  # type: ignore[attr-defined]
    budget = float(stored.budgets[20])

    def point(shock: float, trend: float) -> CurvePoint:
        outcomes = tuple(OutcomeByDay(name, shock, trend, (1.0,)) for name in ("reward", "coupon_cost"))
        days = DayEffects(outcomes, 10**6, (1.0,), 1, "days differ")
        return BudgetMixtures(replace(stored, allowances={"days": days}), run.campaign, data).point(budget)

    plain, shaken, rising = point(0.0, 0.0), point(0.1, 0.0), point(0.0, 1e-8)
    z = 1.959964
    for low, high, value in (("low", "high", plain.value), ("marginal_low", "marginal_high", plain.marginal)):
        half = getattr(plain, high) - value
        assert half > 0
        assert getattr(shaken, high) - value == pytest.approx(np.hypot(half, z * 0.1 * value), rel=1e-4)
        assert value - getattr(shaken, low) == pytest.approx(np.hypot(half, z * 0.1 * value), rel=1e-4)
    assert rising.high - plain.high == pytest.approx(0.01 * plain.value, rel=1e-3)
    assert rising.low == pytest.approx(plain.low)
    assert rising.marginal_high - plain.marginal_high == pytest.approx(0.02 * plain.marginal, rel=1e-3)
    assert plain.marginal_low - rising.marginal_low == pytest.approx(0.02 * plain.marginal, rel=1e-3)
    assert shaken.spend_high[0] - shaken.spend[0] > plain.spend_high[0] - plain.spend[0]


def test_a_run_without_a_frontier_has_no_band(finished: Path) -> None:
    with pytest.raises(FolderError, match="trained for one budget"):
        certify(Run.open(finished))


def test_where_states_are_not_counted_each_policy_has_to_be_confirmed_by_single_steps(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if one policy were what the log hardly ever did: mixtures without it are certified, and with it none is."""
    asked: list[str] = []

    def steps(at: Measure, policy: EvaluatedPolicy, propensity: object) -> Joint:
        asked.append(policy.name)
        days = [f"{name}@{k}" for k in at.days for name in at.panel.names]
        users = at.panel.num_users
        spread = 1e3 if len(asked) == 1 else 0.0
        noise = spread * np.random.default_rng(0).normal(size=(users, len(days)))
        return Joint(tuple(days), np.zeros(len(days)), noise, np.ones_like(noise), (None,) * len(days))

    monkeypatch.setattr(Measure, "counted", property(lambda _: False))
    monkeypatch.setattr(
        Measure, "_basis", lambda at, _: CountedBasis(at.panel.state, len(at.data.states), at.data.num_actions)
    )
    monkeypatch.setattr(job, "single_steps", steps)
    found = certify(run)
    stored = StoredFrontier.read(run.folder / "frontier")
    used = np.flatnonzero(stored.weights[:-1].max(axis=0))
    assert len(asked) == len(used)
    assert found.curve.about.against == ()
    without = stored.weights[:-1, used[0]] == 0
    assert [reason is None for reason in found.curve.figures.withheld] == without.tolist()
    assert not without.all()
    reason = found.curve.figures.withheld[int((~without).argmax())]
    assert reason is not None
    assert reason.kind is ReasonKind.NOT_CHECKED
    assert isinstance(behind := reason.figures["found"], Reason)
    assert behind.kind is ReasonKind.IMPRECISE
    first, last = np.zeros(len(without)), np.zeros(len(without))
    first[(~without).argmax()] = last[without.argmax()] = 1
    assert not found.curve.certificate(first, run.campaign).certified
    assert found.curve.certificate(last, run.campaign).withheld is None
