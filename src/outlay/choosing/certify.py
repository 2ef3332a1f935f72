"""One look at the certify users for the whole frontier of a run: every mixture and every budget is certified by it.

    found = certify_frontier(run, run.data(), run.campaign)
    certificate = found.band.certificate(curve.between(budget), curve.under(budget))

The mixtures of the grid of budgets (`budget_grid.py`) are measured there, once: each policy on the users of its fold.
What was measured stays in RUN/frontier/band.npz, without a line about any user. A later request, at this confidence
or another, reads it, and it stays the same look.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from outlay.bundles.in_memory import in_memory
from outlay.bundles.manifest import digest
from outlay.bundles.read import load_bundle
from outlay.choosing.checks import Checks
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
from outlay.choosing.looks import look
from outlay.choosing.measure import Measure
from outlay.choosing.rotation import measured_on
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier
from outlay.choosing.window import claimed, window_of
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, InfeasibleError
from outlay.core.files import new_file
from outlay.core.progress import Progress, silent, within
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import Transitions
from outlay.estimators.balance import BalanceCheck
from outlay.estimators.band import Band
from outlay.estimators.certificate import Certificate
from outlay.estimators.day_effects import DayEffects
from outlay.estimators.fitted import Fitted, combine
from outlay.estimators.frontier import Points, needed
from outlay.estimators.joint import Joint, mixed
from outlay.estimators.observed import Reproduction, observe, reproduces
from outlay.estimators.reach import Reach, largest
from outlay.estimators.units import missing, needed_days, objective

BAND = "band.npz"
J = TypeVar("J", bound=Joint)


@dataclass(frozen=True)
class Certified:
    """The band of a run's frontier, and the look that it cost.

    Attributes:
        band: bounds of the G mixtures at 1 − `alpha`.
        look: which look at the certify users it was.
        alpha: what that look may spend.
    """

    band: Band
    look: int
    alpha: float

    def looked(self, certificate: Certificate) -> Certificate:
        """Return a certificate from this band with the number of its look and α."""
        return replace(certificate, look=self.look, alpha=self.alpha)


def certify_frontier(
    run: Run,
    data: Transitions,
    campaign: Campaign,
    report: Progress = silent,
    *,
    refused: Reason | None = None,
) -> Certified:
    """The band of a run's frontier: a look at the certify users, the first time.

    Args:
        run: with a frontier.
        data: its transitions.
        campaign: budgets, and the confidence of all looks together.
        report: called with the fraction done and what is being done.
        refused: why nothing that is measured is to be believed, where somebody knows it already.

    Raises:
        FolderError: if the run has no frontier, or it or its band is damaged.
    """
    if (found := certified(run, data, campaign)) is not None:
        return found
    stored = StoredFrontier.read(run.folder / "frontier")
    if not len(stored.budgets):
        raise InfeasibleError(
            stored.manifest["no_curve"],
            file=stored.folder,
            way_out="Change the limits in the campaign file, and train again.",
        )
    share = stored.weights.max(axis=0) > 0  # policies that any mixture needs
    used = np.flatnonzero(share)
    bundle = in_memory(stored.spec(share / len(used), campaign, data))
    # Counted before anything is seen: a killed run may have looked. The run's own mixture keeps the look before,
    # for which it was chosen.
    confidence, view = campaign.train.confidence, views(data, len(stored.shares))[0]
    look(view, str(load_bundle(run.bundle).manifest["id"]), confidence, view.certifying)
    look(view, _identity(stored), confidence, view.certifying)
    at = measured_on(data, bundle, stored.fold_weights(share / len(used)))
    old = at.old()
    check = reproduces(observe(at.panel, days=at.days), at.old_as_observed(old), at.state.day_effects)
    balance = at.state.balance(at.propensity())
    folds = _measured(at, campaign, check, balance, within(report, 0, 0.9))
    shares = [[weights[used[stored.fold[used] == k]] for k in range(len(folds))] for weights in stored.weights]
    withheld, reaches, doubts = [], [], []
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
            own = unseen(whole, at.panel.names, varies)[whole.column(aim)]
            doubts.append(gain_doubt(whole, old, aim, (own, base)))
            yield whole
        reaches.append(largest(old, campaign, at.reach([None])))
        yield old

    def assuming_less_of_them() -> Iterator[Joint]:
        for by_fold in shares:
            yield at.pool_joint(
                [
                    Joint(**mixed([policy.second for policy in fold], share / share.sum()))
                    for fold, share in zip(folds, by_fold, strict=True)
                ]
            )
        yield at.fit_second(None) or old

    points = Points.of(mixtures(), campaign, reaches=reaches)
    second = Points.of(assuming_less_of_them(), campaign)
    doubt = check.refused or refused or at.state.markov_check.refused or balance.refused
    with new_file(run.folder / "frontier" / BAND) as temporary, temporary.open("wb") as handle:
        np.savez(
            handle,
            value=points.value,
            covariance=points.covariance,
            tails=points.tails,
            gains=points.gains,
            users=points.users,
            second_value=second.value,
            second_covariance=second.covariance,
            said=json.dumps(
                {
                    "withheld": [None if reason is None else asdict(reason) for reason in withheld],
                    "refused": None if doubt is None else asdict(doubt),
                    "doubts": doubts,
                    "window": at.window,
                    "clusters": points.clusters,
                    "days": asdict(at.state.day_effects),
                    "unbelieved": reaches[-1].unbelieved.tolist(),
                }
            ),
        )
    found = certified(run, data, campaign)
    assert found is not None
    return found


def certified(run: Run, data: Transitions, campaign: Campaign) -> Certified | None:
    """The band as it was measured before, or None.

    Raises:
        FolderError: if it is damaged.
    """
    path = run.folder / "frontier" / BAND
    if not path.exists():
        return None
    stored = StoredFrontier.read(run.folder / "frontier")
    try:
        with path.open("rb") as handle, np.load(handle) as file:
            part = {name: file[name] for name in file.files}
        said = json.loads(str(part["said"]))
        if "second_value" not in part:  # of an older version, whose bounds trusted the fitted evaluation alone
            return None
        reasons = TypeAdapter(tuple[Reason | None, ...]).validate_python((said["refused"], *said["withheld"]))
        doubts, window = said["doubts"], said.get("window")
        days = TypeAdapter(DayEffects | None).validate_python(said.get("days"))
        second, points = (
            Points(
                part[f"{kind}value"],
                part[f"{kind}covariance"],
                part[f"{kind}covariance"],
                int(part["users"]),
                part["tails"],
                part["gains"],
                said.get("clusters"),
            )
            for kind in ("second_", "")
        )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        raise FolderError("is damaged.", file=path, way_out="Remove it: it is made again, as the same look.") from None
    view = views(data, len(stored.shares))[0]
    if window != window_of(view):  # of an older version, which certified discounted figures between features
        return None
    number, alpha = look(view, _identity(stored), campaign.train.confidence, view.certifying)
    band = Band.of(
        points,
        reasons[1:],
        reasons[0],
        campaign,
        confidence=1 - alpha,
        window=claimed(campaign, window),
        days=days,
        unbelieved=tuple(said.get("unbelieved", ())),
        doubts=doubts,
        second=second,
    )
    return Certified(band, number, alpha)


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


def _measured(
    at: Measure, campaign: Campaign, check: Reproduction, balance: BalanceCheck, report: Progress
) -> list[list[_Policy]]:
    """Every policy on the users of its fold, by fold in the order of the bundle's members."""
    names, found = needed(campaign), []
    for k, part in enumerate(at.folds):
        propensity, behaviour = part.propensity(), part.behaviour_check()
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
                reason = Checks.of(told, check, behaviour, at.state.markov_check, balance).agreement.reason
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


def _identity(stored: StoredFrontier) -> str:
    """What is looked at: these mixtures of these policies, on these data."""
    content = hashlib.sha256()
    for part in (stored.network, stored.policy, stored.fold, stored.head_weights, stored.value, stored.weights):
        content.update(np.ascontiguousarray(part).tobytes())
    what = [content.hexdigest(), stored.manifest["imitation_threshold"], stored.manifest["data_hash"]]
    return f"frontier-{digest(what)[:16]}"
