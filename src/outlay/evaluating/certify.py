"""The certificate of a policy, and of every other budget of its run's frontier: one look at the certify users.

    figures = figures_of(measure, new, old, campaign, doubt)                    # of the policy, a curve of one point
    found = certify_alone(figures, about, campaign, data, identity)
    found = certify_frontier(run, stored, data, campaign, figures, about)       # and of every budget
    certificate = found.certificate(curve.between(budget), curve.under(budget))

Three quarters of the look's α (`certificate.OWN`) are for the mixture that the run serves, the rest for all other
budgets: bounds of all mixtures of the grid (`budget_grid.py`) that hold together (`band.py`). They are measured on the
certify users once, each policy on the users of its fold. What was measured stays in RUN/frontier/band.npz, without a
line about any user. A later request, at this confidence or another, reads it, and it stays the same look.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from outlay.bundles.in_memory import in_memory
from outlay.bundles.manifest import unseal
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
from outlay.choosing.evaluated_policy import mixture_of
from outlay.choosing.folds import views
from outlay.choosing.looks import Look, look
from outlay.choosing.measure import Measure
from outlay.choosing.rotation import measured_on
from outlay.choosing.run import Run
from outlay.choosing.stored import POINTS, StoredFrontier
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.estimate import Estimate
from outlay.core.files import new_file
from outlay.core.progress import Progress, silent, within
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import Transitions
from outlay.estimators.allowances import Allowances
from outlay.estimators.band import Band
from outlay.estimators.certificate import OWN, Certificate
from outlay.estimators.fitted import Fitted
from outlay.estimators.frontier import Points, needed
from outlay.estimators.joint import Joint, combine
from outlay.estimators.reach import Reach, largest
from outlay.estimators.units import missing, needed_days, objective
from outlay.estimators.windowed import claimed
from outlay.evaluating.checks import agreement_of

BAND = "band.npz"
REASONS = TypeAdapter(tuple[Reason | None, ...])
Vector = NDArray[np.float64]
J = TypeVar("J", bound=Joint)


class MixtureFigures(NamedTuple):
    """What L mixtures were measured at on the certify users; each tuple `[L]`.

    Attributes:
        points: the mixtures, then the old policy.
        second: the same by an estimate that assumes less; None where there is none.
        withheld: why a mixture could not be measured or is not believed, or None.
        doubts: why a bound of its gain is not to be relied on, or None.
        unbelieved: `[m]` rows of the log above the stated largest cost of each budget.
    """

    points: Points
    second: Points | None
    withheld: tuple[Reason | None, ...]
    doubts: tuple[Reason | None, ...]
    unbelieved: tuple[int, ...]


class About(NamedTuple):
    """What an evaluation found of the users and the state, whatever the policy.

    Attributes:
        against: what stands against a certificate, whatever is measured.
        window: days that figures are means over, or None (`Measure.window`).
        allowances: what widens every interval.
    """

    against: tuple[Reason, ...]
    window: int | None
    allowances: Allowances


Known = tuple[MixtureFigures, MixtureFigures, About]  # of what is served and of the curve, and what was found besides


@dataclass(frozen=True)
class Certified:
    """What one look certifies.

    Attributes:
        own: bounds of the mixture that the run serves.
        curve: bounds that hold together for the G mixtures of the curve.
        look: which look at the certify users it was.
    """

    own: Band
    curve: Band
    look: int

    def certificate(self, weights: Vector, campaign: Campaign) -> Certificate:
        """Return the certificate of the mixture `[G + 1]` of these mixtures under this campaign's limits."""
        return _issued(*self._of(weights), campaign, self.look)

    def estimates(self, weights: Vector, campaign: Campaign) -> list[Estimate]:
        """Return objective and costs of the mixture `[G + 1]`, each with its own interval."""
        band, share = self._of(weights)
        return band.estimates(share, campaign)

    def _of(self, weights: Vector) -> tuple[Band, Vector]:
        return (self.own, weights[-1:]) if weights[-1] else (self.curve, weights[:-1])


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
    return _issued(_band(figures, about, campaign, alpha), np.ones(1), campaign, number)


def certify_frontier(
    run: Run,
    stored: StoredFrontier,
    data: Transitions,
    campaign: Campaign,
    own: MixtureFigures,
    about: About,
    report: Progress = silent,
) -> Certified:
    """Certify what a run serves, and all mixtures of its frontier: a look, the first time.

    Args:
        run: with a frontier.
        stored: the frontier, with a curve.
        data: its transitions.
        campaign: budgets, and the confidence of all looks together.
        own: figures of what the run serves.
        about: what the evaluation found besides.
        report: called with the fraction done and what is being done.

    Raises:
        FolderError: if its band is damaged.
    """
    known, view = _known(run), views(data, len(stored.shares))[0]
    # Counted before anything is seen: a killed run may have looked.
    looked = look(view, _identity(run), campaign.train.confidence, view.certifying)
    # What checks and allowances found is of this evaluation: the version before may have had others.
    curve = _curve(stored, data, campaign, within(report, 0, 0.9)) if known is None else known[1]
    arrays: dict[str, Vector] = {}
    said: dict[str, Any] = {"about": about._asdict() | {"allowances": written(about.allowances)}}
    for name, each in (("own", own), ("curve", curve)):
        points = {"first": each.points} | ({} if each.second is None else {"second": each.second})
        for which, part in points.items():
            arrays |= {f"{name}_{which}_{field}": getattr(part, field) for field in POINTS}
        said[name] = each._asdict() | {"points": None, "second": None, "users": each.points.users}
        said[name] |= {"clusters": each.points.clusters}
    with new_file(run.folder / "frontier" / BAND) as temporary, temporary.open("wb") as handle:
        np.savez(handle, said=json.dumps(said, default=asdict), **arrays)  # type: ignore[arg-type]
    return _certified(looked, campaign, (own, curve, about))


def certified(run: Run, stored: StoredFrontier, data: Transitions, campaign: Campaign) -> Certified | None:
    """What was certified before, or None.

    Raises:
        FolderError: if it is damaged.
    """
    if (known := _known(run)) is None:
        return None
    view = views(data, len(stored.shares))[0]
    return _certified(look(view, _identity(run), campaign.train.confidence, view.certifying), campaign, known)


def _certified(looked: Look, campaign: Campaign, known: Known) -> Certified:
    (number, alpha), (own, curve, about) = looked, known
    bands = _band(own, about, campaign, alpha * OWN), _band(curve, about, campaign, alpha * (1 - OWN))
    return Certified(*bands, number)


def _known(run: Run) -> Known | None:
    """What was measured before, or None."""
    path = run.folder / "frontier" / BAND
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
        own, curve = (_read(arrays, said[name], name) for name in ("own", "curve"))
        return own, curve, about
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        raise FolderError("is damaged.", file=path, way_out="Remove it: it is made again, as the same look.") from None


def _read(arrays: dict[str, Vector], said: dict[str, Any], name: str) -> MixtureFigures:
    def points(which: str) -> Points:
        part = {field: arrays[f"{name}_{which}_{field}"] for field in POINTS}
        return Points(**part, users=said["users"], clusters=said["clusters"])

    withheld, doubts = (REASONS.validate_python(said[key]) for key in ("withheld", "doubts"))
    second = points("second") if f"{name}_second_value" in arrays else None
    return MixtureFigures(points("first"), second, withheld, doubts, tuple(said["unbelieved"]))


def _band(figures: MixtureFigures, about: About, campaign: Campaign, alpha: float) -> Band:
    return Band.of(
        figures.points,
        figures.withheld,
        about.against,
        campaign,
        confidence=1 - alpha,
        window=claimed(campaign, about.window),
        allowances=about.allowances,
        unbelieved=figures.unbelieved,
        doubts=figures.doubts,
        second=figures.second,
    )


def _issued(band: Band, weights: Vector, campaign: Campaign, number: int) -> Certificate:
    return replace(band.certificate(weights, campaign), look=number, alpha=1 - band.confidence)


def _curve(stored: StoredFrontier, data: Transitions, campaign: Campaign, report: Progress) -> MixtureFigures:
    """Measure the mixtures of the curve on the certify users."""
    grid = stored.weights[:-1]
    share = grid.max(axis=0) > 0  # policies that any mixture needs
    used = np.flatnonzero(share)
    bundle = in_memory(stored.spec(share / len(used), campaign, data))
    at = measured_on(data, bundle, stored.fold_weights(share / len(used)))
    old = at.old()
    folds = _measured(at, campaign, report)
    shares = [[weights[used[stored.fold[used] == k]] for k in range(len(folds))] for weights in grid]
    withheld: list[Reason | None] = []
    reaches: list[Reach] = []
    doubts: list[Reason | None] = []
    aim = objective(campaign)
    base = unseen(old, at.panel.names, at.varies([None]))[old.column(aim)]

    def mixtures() -> Iterator[Fitted]:
        for by_fold in shares:
            live = [
                policy
                for fold, share in zip(folds, by_fold, strict=True)
                for policy, weight in zip(fold, share, strict=True)
                if weight > 0
            ]
            whole = at.pool(
                [
                    combine([policy.fitted for policy in fold], share / share.sum())
                    for fold, share in zip(folds, by_fold, strict=True)
                ]
            )
            alone = next((policy.withheld for policy in live if policy.withheld is not None), None)
            far = extrapolates(whole) if at.sequential else None
            withheld.append(alone or (None if far is None else Reason(ReasonKind.NOT_CHECKED, {"found": far})))
            apart = [
                Reach.mixed(
                    [p.reach for p, weight in zip(fold, share, strict=True) if weight > 0],
                    share[share > 0] / share.sum(),
                )
                for fold, share in zip(folds, by_fold, strict=True)
            ]
            reaches.append(largest(whole, campaign, Reach.pooled(apart)))
            varies = np.any([policy.varies for policy in live], axis=0)
            never = unseen(whole, at.panel.names, varies)[whole.column(aim)]
            doubts.append(gain_doubt(whole, old, aim, (never, base)))
            yield whole
        reaches.append(largest(old, campaign, at.reach([None])))
        yield old

    def assuming_less_of_them() -> Iterator[Joint]:
        for by_fold in shares:
            yield at.pool(
                [
                    combine([policy.second for policy in fold], share / share.sum())
                    for fold, share in zip(folds, by_fold, strict=True)
                ]
            )
        yield at.fit_second(None) or old

    points = Points.of(mixtures(), campaign, reaches=reaches)
    second = Points.of(assuming_less_of_them(), campaign)
    return MixtureFigures(points, second, tuple(withheld), tuple(doubts), tuple(reaches[-1].unbelieved.tolist()))


@dataclass(frozen=True)
class _Policy:
    """What one policy was measured at on the users of its fold.

    Attributes:
        fitted: the numbers that mixtures are computed in.
        reach: how far outcomes may go beyond what these users have shown.
        varies: `[1+m]` whether reward and costs differ in the log where it gave what the policy gives.
        withheld: why there are none that could be believed, or None.
        second: the same by an estimate that assumes less.
    """

    fitted: Fitted
    reach: Reach
    varies: NDArray[np.bool_]
    withheld: Reason | None
    second: Joint


def _measured(at: Measure, campaign: Campaign, report: Progress) -> list[list[_Policy]]:
    """Every policy on the users of its fold, by fold in the order of the bundle's members."""
    names, found = needed(campaign), []
    for k, part in enumerate(at.folds):
        propensity, behaviour = part.propensity(), part.behaviour_check
        whole = mixture_of(part, "the frontier")
        policies = []
        for i, policy in enumerate(whole.members() or [whole]):
            share = (i / len(whole.parts) + k) / len(at.folds)
            report(share, f"policy {i + 1} of {len(whole.parts)} on certify users")
            days = needed_days(campaign) if at.counted else at.days
            fitted = part.evaluator(i).fit(policy.parts[0], days=days)
            absent = missing(fitted, campaign)
            reason = None if absent is None else Reason(ReasonKind.UNSUPPORTED, {"found": absent})
            if reason is None and not at.counted:  # each policy is to be confirmed by something that assumes less
                vague = too_few_follow(part, policy, propensity, fitted) if part.sequential else None
                steps = single_steps(part, policy, propensity)
                told = PolicyEstimates(policy, {"fqe": fitted}, {}, steps, part.sequential, vague)
                reason = agreement_of(told, behaviour).reason
            second = assuming_less(part, policy.parts[0], fitted, propensity, days) or fitted
            absent = missing(second, campaign)
            reason = reason or (None if absent is None else Reason(ReasonKind.UNSUPPORTED, {"found": absent}))
            policies.append(
                _Policy(
                    _picked(fitted, names),
                    part.reach(policy.parts),
                    part.varies(policy.parts),
                    reason,
                    _picked(second, names),
                )
            )
        found.append(policies)
    return found


def _picked(joint: J, names: Sequence[str]) -> J:
    """The numbers that mixtures are computed in."""
    return joint.picked(names, [joint.column(name) for name in names], [1.0] * len(names))


def _identity(run: Run) -> str:
    """What is looked at: the bundle of the run, and what else its frontier holds."""
    return unseal(run.bundle).id
