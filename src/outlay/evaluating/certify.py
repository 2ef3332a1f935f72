"""The certificate of a policy, and of every other budget of its run's frontier: one look at the certify users.

    figures = figures_of(measure, new, old, campaign, doubt)                   # of the policy, a curve of one point
    certificate = certify_alone(figures, about, campaign, data, identity)
    certificate = certify_run(stored, identity, data, campaign, figures, about)  # and of every other budget, on demand
    found = certified(stored, identity, data, campaign)
    certificate = found.certificate(curve.between(budget), curve.under(budget))
    keep_totals(stored, days, own)                              # all of it also as totals of the first days

Three quarters of the look's α (`certificate.OWN`) are for the mixture that the run serves, the rest for all other
budgets: bounds of all mixtures of the grid (`budget_grid.py`) that hold together (`band.py`). This share is theirs from
the look on, whether anybody asks or not, so they are measured on the certify users (once, each policy on the users of
its fold) when somebody first does. What was measured stays in RUN/frontier/band.npz, without a line about any user. A
later request, at this confidence or another, reads it, and it stays the same look.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from outlay.bundles.in_memory import in_memory
from outlay.choosing.allowances import read, written
from outlay.choosing.estimates import (
    PolicyEstimates,
    assuming_less,
    extrapolates,
    gain_doubt,
    single_steps,
    too_few_follow,
    unseen,
)
from outlay.choosing.evaluated_policy import EvaluatedPolicy, mixture_of
from outlay.choosing.folds import views
from outlay.choosing.looks import Look, look
from outlay.choosing.measure import Measure
from outlay.choosing.rotation import measured_on
from outlay.choosing.stored import POINTS, StoredFrontier
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.estimate import Estimate
from outlay.core.files import new_file
from outlay.core.parallel import in_threads
from outlay.core.progress import Counter, Progress, counted, silent
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import Transitions
from outlay.estimators.band import About, Band, MixtureFigures
from outlay.estimators.certificate import OWN, Certificate
from outlay.estimators.fitted import Fitted
from outlay.estimators.frontier import Points
from outlay.estimators.joint import Joint, combine
from outlay.estimators.reach import Reach, largest
from outlay.estimators.units import missing, needed, needed_days, objective
from outlay.evaluating.checks import agreement_of

BAND = "band.npz"
REASONS = TypeAdapter(tuple[Reason | None, ...])
Vector = NDArray[np.float64]
J = TypeVar("J", bound=Joint)


class _Known(NamedTuple):
    """What was measured: of what is served, of the curve unless nobody has asked for it, and what was found besides.

    The same as totals of the first `days` days, where these may be told.
    """

    about: About
    own: MixtureFigures
    curve: MixtureFigures | None = None
    days: int | None = None
    own_totals: MixtureFigures | None = None
    curve_totals: MixtureFigures | None = None


FIGURES = ("own", "curve", "own_totals", "curve_totals")


@dataclass(frozen=True)
class Certified:
    """What one look certifies.

    Attributes:
        own: bounds of the mixture that the run serves.
        curve: bounds that hold together for the G mixtures of the curve.
        look: which look at the certify users it was.
        totals: both for totals of the first days, per user; None where these may not be told.
        days: of the totals.
    """

    own: Band
    curve: Band
    look: int
    totals: tuple[Band, Band] | None = None
    days: int = 0

    def certificate(self, weights: Vector, campaign: Campaign) -> Certificate:
        """Return the certificate of the mixture `[G + 1]` of these mixtures under this campaign's limits."""
        return _issued(*self._of(weights), campaign, self.look)

    def estimates(self, weights: Vector, campaign: Campaign) -> list[Estimate]:
        """Return objective and costs of the mixture `[G + 1]`, each with its own interval."""
        band, share = self._of(weights)
        return band.estimates(share, campaign)

    def totals_of(self, weights: Vector, campaign: Campaign) -> tuple[list[Estimate], Certificate] | None:
        """Return the same as totals per user of the first days, and the bounds of the gain; None where not told."""
        if self.totals is None:
            return None
        band, share = self._of(weights, self.totals)
        over = over_days(campaign, self.days)
        return band.estimates(share, over), band.certificate(share, over)

    def _of(self, weights: Vector, bands: tuple[Band, Band] | None = None) -> tuple[Band, Vector]:
        own, curve = bands or (self.own, self.curve)
        return (own, weights[-1:]) if weights[-1] else (curve, weights[:-1])


def figures_of(
    measure: Measure, new: PolicyEstimates, old: PolicyEstimates, campaign: Campaign, doubt: Reason | None
) -> MixtureFigures:
    """Return the figures of one policy from its estimates and those of the log's own."""
    absent = missing(new.fitted, campaign) or (None if new.second is None else missing(new.second, campaign))
    reach, its = measure.reach(new.policy.parts, new.policy.weights), measure.reach(old.policy.parts)
    reaches = largest(new.fitted, campaign, reach), largest(old.fitted, campaign, its)
    return MixtureFigures(
        Points.of([new.fitted, old.fitted], campaign, reaches=reaches),
        None if new.second is None else Points.of([new.second, old.second or old.fitted], campaign),
        (None if absent is None else Reason(ReasonKind.UNSUPPORTED, {"found": absent}),),
        (doubt,),
        tuple(reaches[0].unbelieved.tolist()),
    )


def certify_alone(
    figures: MixtureFigures, about: About, campaign: Campaign, data: Transitions, identity: str
) -> Certificate:
    """Certify one policy, known by its identity: a look."""
    number, alpha = look(data, identity, campaign.train.confidence, data.certifying)
    return _issued(Band.of(figures, about, campaign, 1 - alpha), np.ones(1), campaign, number)


def certify_run(
    stored: StoredFrontier, identity: str, data: Transitions, campaign: Campaign, own: MixtureFigures, about: About
) -> Certificate:
    """Certify what a run serves; this and all mixtures of its frontier are one look, the first time.

    Args:
        stored: the frontier of a run, with a curve.
        identity: of what the run serves (`Run.identity`).
        data: its transitions.
        campaign: budgets, and the confidence of all looks together.
        own: figures of what the run serves.
        about: what the evaluation found besides.

    Raises:
        FolderError: if its band is damaged.
    """
    known = _known(stored)
    looked = _look(stored, identity, data, campaign)
    # What checks and allowances found is of this evaluation: the version before may have had others.
    # Totals are told again once they are found to be told.
    _write(stored, _Known(about, own) if known is None else known._replace(about=about, own=own, own_totals=None))
    return _issued(Band.of(own, about, campaign, _own_sure(looked)), np.ones(1), campaign, looked.number)


def keep_totals(stored: StoredFrontier, days: int, own: MixtureFigures) -> None:
    """Keep that totals of the first days may be told, for whoever asks for the curve.

    Args:
        stored: the frontier of a run that `certify_run` has certified.
        days: of the totals.
        own: what the run serves, as totals (`figures_of`).
    """
    known = _known(stored)
    assert known is not None
    measured = known.curve_totals if known.days == days else None
    _write(stored, known._replace(days=days, own_totals=own, curve_totals=measured))


def certified(
    stored: StoredFrontier, identity: str, data: Transitions, campaign: Campaign, report: Progress = silent
) -> Certified | None:
    """Return what the look of `certify_run` certifies, or None if there was none.

    Args:
        stored: as there.
        identity: as there.
        data: as there.
        campaign: as there.
        report: called with the fraction done and what is being done.

    Raises:
        FolderError: if its band is damaged.
    """
    known = _known(stored)
    if known is None:
        return None
    looked = _look(stored, identity, data, campaign)
    told = None if known.own_totals is None else known.days
    if known.curve is None or (told is not None and known.curve_totals is None):
        units = [campaign] if told is None else [campaign, over_days(campaign, told)]
        curve, *totals = figures_of_budgets(stored, stored.weights[:-1], data, units, report)
        known = known._replace(curve=curve, curve_totals=totals[0] if totals else None)
        _write(stored, known)
    return _bands(known, campaign, looked)


def _bands(known: _Known, campaign: Campaign, looked: Look) -> Certified:
    def both(own: MixtureFigures, curve: MixtureFigures, limits: Campaign) -> tuple[Band, Band]:
        others = Band.of(curve, known.about, limits, 1 - looked.alpha * (1 - OWN))
        return Band.of(own, known.about, limits, _own_sure(looked)), others

    assert known.curve is not None
    own, curve = both(known.own, known.curve, campaign)
    if known.own_totals is None or known.curve_totals is None or known.days is None:
        return Certified(own, curve, looked.number)
    totals = both(known.own_totals, known.curve_totals, over_days(campaign, known.days))
    return Certified(own, curve, looked.number, totals, known.days)


def _own_sure(looked: Look) -> float:
    """The confidence of what the run serves: its share of the look."""
    return 1 - looked.alpha * OWN


def _look(stored: StoredFrontier, identity: str, data: Transitions, campaign: Campaign) -> Look:
    """Count the look at what a run serves, and with it at the whole curve."""
    view = views(data, len(stored.shares))[0]
    return look(view, identity, campaign.train.confidence, view.certifying)


def _write(stored: StoredFrontier, known: _Known) -> None:
    arrays: dict[str, Vector] = {}
    about = known.about
    said: dict[str, Any] = {"about": about._asdict() | {"allowances": written(about.allowances)}, "days": known.days}
    for name in FIGURES:
        each: MixtureFigures | None = getattr(known, name)
        if each is None:
            continue
        points = {"first": each.points} | ({} if each.second is None else {"second": each.second})
        for which, part in points.items():
            arrays |= {f"{name}_{which}_{field}": getattr(part, field) for field in POINTS}
        said[name] = each._asdict() | {"points": None, "second": None, "users": each.points.users}
        said[name] |= {"clusters": each.points.clusters}
    with new_file(stored.folder / BAND) as temporary, temporary.open("wb") as handle:
        np.savez(handle, said=json.dumps(said, default=asdict), **arrays)  # type: ignore[arg-type]


def _known(stored: StoredFrontier) -> _Known | None:
    """What was measured before, or None."""
    path = stored.folder / BAND
    if not path.exists():
        return None
    try:
        with path.open("rb") as handle, np.load(handle) as file:
            arrays = {name: file[name] for name in file.files}
        said = json.loads(str(arrays["said"]))
        if "about" not in said:  # of an older version, which did not measure what the run serves
            return None
        against = TypeAdapter(tuple[Reason, ...]).validate_python(said["about"]["against"])
        about = About(against, said["about"]["window"], read(said["about"]["allowances"]))
        figures = {name: _read(arrays, said[name], name) for name in FIGURES if name in said}
        return _Known(about, days=said.get("days"), **figures)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        raise FolderError("is damaged.", file=path, way_out="Remove it: it is made again, as the same look.") from None


def _read(arrays: dict[str, Vector], said: dict[str, Any], name: str) -> MixtureFigures:
    def points(which: str) -> Points:
        part = {field: arrays[f"{name}_{which}_{field}"] for field in POINTS}
        return Points(**part, users=said["users"], clusters=said["clusters"])

    withheld, doubts = (REASONS.validate_python(said[key]) for key in ("withheld", "doubts"))
    second = points("second") if f"{name}_second_value" in arrays else None
    return MixtureFigures(points("first"), second, withheld, doubts, tuple(said["unbelieved"]))


def _issued(band: Band, weights: Vector, campaign: Campaign, number: int) -> Certificate:
    return replace(band.certificate(weights, campaign), look=number, alpha=1 - band.confidence)


def over_days(campaign: Campaign, days: int) -> Campaign:
    """Return the campaign whose objective is the total of the reward over so many days, and its limits totals too."""
    budgets = []
    for budget in campaign.budgets:
        times = days if budget.per == "decision" else days / campaign.meta.horizon_days
        key = "at_most" if budget.sign > 0 else "at_least"
        budgets.append(budget.model_copy(update={"per": "user", key: times * budget.limit}))
    meta = campaign.meta.model_copy(update={"horizon_days": days})
    return campaign.model_copy(update={"meta": meta, "budgets": tuple(budgets)})


def bounds_of_totals(figures: MixtureFigures, about: About, over: Campaign, confidence: float) -> Certificate:
    """Return the bounds of a policy's total gain, per user, as a certificate has them: not a further look.

    Args:
        figures: of the policy, as `over` counts (`figures_of`).
        about: what the evaluation found besides.
        over: the campaign over so many days (`over_days`).
        confidence: that of the policy's certificate.
    """
    return Band.of(figures, about, over, confidence).certificate(np.ones(1), over)


def figures_of_budgets(
    stored: StoredFrontier,
    grid: Vector,
    data: Transitions,
    units: Sequence[Campaign],
    report: Progress,
    served: Measure | None = None,
) -> list[MixtureFigures]:
    """Measure mixtures of the curve with weights `[G, P]` on the certify users, as each of these campaigns counts.

    Args:
        stored: the frontier of a run.
        grid: the weights.
        data: its transitions.
        units: the campaigns.
        report: called with the fraction done and what is being done.
        served: what measured the mixture that the run serves, if that was done: where it rests on the features of the
            same networks, they are not made again.
    """
    share = grid.max(axis=0) > 0  # policies that any mixture needs
    used = np.flatnonzero(share)
    bundle = in_memory(stored.spec(share / len(used), units[0], data))
    own = measured_on(data, bundle, stored.fold_weights(share / len(used)))
    at = own if served is None or not _alike(stored, used) else served
    old = at.old()
    one_policy = all(stored.networks[i].num_policies == 1 for i in set(stored.network[used].tolist()))
    folds = _measured(own, at, one_policy, units, counted(report, len(used), "other budgets on certify users"))
    places = [used[stored.fold[used] == k] for k in range(len(folds))]
    mixtures = [_Mixture(folds, [weights[of] for of in places]) for weights in grid]
    return [_figures(mixtures, at, old, campaign, i) for i, campaign in enumerate(units)]


def _alike(stored: StoredFrontier, used: NDArray[np.integer]) -> bool:
    """Whether policies and the mixture that is served have one network in each fold, which is the same."""
    learned = ~stored.constant
    served = np.flatnonzero(stored.weights[-1] > 0)
    of = [{(int(stored.fold[i]), int(stored.network[i])) for i in each[learned[each]]} for each in (used, served)]
    return of[0] == of[1] and len(of[0]) == len(stored.shares)


def _figures(
    mixtures: Sequence[_Mixture], at: Measure, old: Fitted, campaign: Campaign, counted: int
) -> MixtureFigures:
    """The figures of mixtures of what was measured; each is freed once its numbers are taken."""
    withheld: list[Reason | None] = []
    reaches: list[Reach] = []
    doubts: list[Reason | None] = []
    aim = objective(campaign)
    base = unseen(old, at.panel.names, at.varies([None]))[old.column(aim)]

    def fitted() -> Iterator[Fitted]:
        for mixture in mixtures:
            whole = mixture.estimate(at, lambda policy: policy.fitted)
            withheld.append(mixture.withheld(whole, at, counted))
            reaches.append(largest(whole, campaign, mixture.reach))
            never = unseen(whole, at.panel.names, mixture.varies)[whole.column(aim)]
            doubts.append(gain_doubt(whole, old, aim, (never, base)))
            yield whole
        reaches.append(largest(old, campaign, at.reach([None])))
        yield old

    def assuming_less_of_them() -> Iterator[Joint]:
        for mixture in mixtures:
            yield mixture.estimate(at, lambda policy: policy.second)
        yield at.fit_second(None) or old

    points = Points.of(fitted(), campaign, reaches=reaches)
    second = Points.of(assuming_less_of_them(), campaign)
    return MixtureFigures(points, second, tuple(withheld), tuple(doubts), tuple(reaches[-1].unbelieved.tolist()))


@dataclass(frozen=True)
class _Policy:
    """What one policy was measured at on the users of its fold.

    Attributes:
        fitted: the numbers that mixtures are computed in.
        reach: how far outcomes may go beyond what these users have shown.
        varies: `[1+m]` whether reward and costs differ in the log where it gave what the policy gives.
        withheld: why there are none that could be believed, or None; as each campaign counts.
        second: the same by an estimate that assumes less.
    """

    fitted: Fitted
    reach: Reach
    varies: NDArray[np.bool_]
    withheld: tuple[Reason | None, ...]
    second: Joint


@dataclass(frozen=True)
class _Mixture:
    """One mixture of the curve.

    Attributes:
        folds: the policies of every fold.
        weights: theirs, by fold.
    """

    folds: list[list[_Policy]]
    weights: list[Vector]

    def estimate(self, at: Measure, of: Callable[[_Policy], J]) -> J:
        """Return an estimate of it, made of one of each policy."""
        by_fold = zip(self.folds, self.weights, strict=True)
        return at.pool([combine([of(policy) for policy in fold], share / share.sum()) for fold, share in by_fold])

    def withheld(self, whole: Fitted, at: Measure, counted: int) -> Reason | None:
        """Return why it could not be measured or is not believed, as a campaign counts, or None."""
        reasons = (policy.withheld[counted] for fold in self._live for policy in fold)
        alone = next((reason for reason in reasons if reason is not None), None)
        far = extrapolates(whole) if at.sequential else None
        return alone or (None if far is None else Reason(ReasonKind.NOT_CHECKED, {"found": far}))

    @property
    def reach(self) -> Reach:
        """How far outcomes may go beyond what the users of each fold have shown."""
        shares = [share[share > 0] / share.sum() for share in self.weights]
        by_fold = zip(self._live, shares, strict=True)
        return Reach.pooled([Reach.mixed([policy.reach for policy in fold], share) for fold, share in by_fold])

    @property
    def varies(self) -> NDArray[np.bool_]:
        """`[1+m]` whether reward and costs differ in the log where it gave what any of its policies gives."""
        return np.asarray(np.any([policy.varies for fold in self._live for policy in fold], axis=0))

    @property
    def _live(self) -> list[list[_Policy]]:
        """The policies with a weight, by fold."""
        return [
            [policy for policy, weight in zip(fold, share, strict=True) if weight > 0]
            for fold, share in zip(self.folds, self.weights, strict=True)
        ]


def _measured(
    own: Measure, at: Measure, one_policy: bool, units: Sequence[Campaign], done: Counter
) -> list[list[_Policy]]:
    """Every policy on the users of its fold, by fold in the order of the bundle's members.

    Args:
        own: its members are the policies.
        at: on its features they are measured; `own`, or what measured the mixture that is served.
        one_policy: whether each network has one Q, whatever the policy.
        units: the campaigns.
        done: called with how many more were measured.
    """

    def of(pair: tuple[Measure, Measure]) -> list[_Policy]:
        part, its = pair
        whole = mixture_of(its if its is part else part.acting(its.served, same=one_policy), "the frontier")
        if its is not part:
            whole = replace(whole, features=(0,) * len(whole.parts))
        found = []
        for policy in whole.members() or [whole]:
            found.append(_measured_policy(part, policy, units))
            done(1)
        return found

    return list(in_threads(of, zip(at.folds, own.folds, strict=True), at.threads))


def _measured_policy(part: Measure, policy: EvaluatedPolicy, units: Sequence[Campaign]) -> _Policy:
    """One policy on the users of a fold."""
    names = list(dict.fromkeys(name for campaign in units for name in needed(campaign)))
    only = sorted({days for campaign in units for days in needed_days(campaign)})
    ((actions, source),) = policy.sources
    propensity = part.propensity()
    fitted = part.fit(actions, source, days=only if part.counted else part.days)
    absent = [missing(fitted, campaign) for campaign in units]
    reason = None
    if absent[0] is None and not part.counted:  # each policy is to be confirmed by something that assumes less
        vague = too_few_follow(part, policy, propensity, fitted) if part.sequential else None
        steps = single_steps(part, policy, propensity)
        told = PolicyEstimates(policy, {"fqe": fitted}, {}, steps, part.sequential, vague)
        reason = agreement_of(told, part.behaviour_check).reason
    second = assuming_less(part, actions, fitted, propensity, only) or fitted
    lacking = [each or (None if reason else missing(second, of)) for each, of in zip(absent, units, strict=True)]
    return _Policy(
        _picked(fitted, names),
        part.reach(policy.parts),
        part.varies(policy.parts),
        tuple(Reason(ReasonKind.UNSUPPORTED, {"found": each}) if each else reason for each in lacking),
        _picked(second, names),
    )


def _picked(joint: J, names: Sequence[str]) -> J:
    """The numbers that mixtures are computed in."""
    return joint.picked(names, [joint.column(name) for name in names], [1.0] * len(names))
