"""`outlay evaluate`: what the mixture will bring and cost as it will be served, on users never used for choosing.

    result = evaluate("runs/first")        # also written to RUN/estimates.json and into the bundle's manifest

The old policy and the best mixture of constant actions stand beside it in every table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.read import load_bundle
from outlay.bundles.write import update_certificate
from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError
from outlay.core.estimate import Estimate
from outlay.core.files import write_json
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators import importance
from outlay.estimators.certificate import Certificate, certify
from outlay.estimators.fitted import Fitted, combine
from outlay.estimators.observed import observe, reproduces
from outlay.estimators.units import coordinates, decisions, estimates, objective
from outlay.jobs.constants import best_constants, in_words
from outlay.jobs.looks import look
from outlay.jobs.measure import Measure
from outlay.jobs.run import Run
from outlay.jobs.verdict import verdict

Report = Callable[[float, str], None]
LEAST_SHARE = 0.01  # of the choices: a smaller segment says nothing


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found; `to_dict` is estimates.json.

    Attributes:
        policies: names in the order of the tables: old, constants, mixture, members.
        estimates: all of them.
        certificate: of the mixture.
        confidence: of the intervals; the certificate has its own, by the look.
        look: which look at the certify users this was.
        verdict: one sentence that says what to do.
        reproduction: whether the estimator gives the old policy's observed totals back, in words.
        notes: a few words beside a policy, by its name.
        daily: per policy and day: means per user of reward and costs, `[{policy, day, reward, costs}]`.
        shares: actions by segment, `[{segment, policy, action, share}]`.
    """

    policies: list[str]
    estimates: list[Estimate]
    certificate: Certificate
    confidence: float
    look: int
    alpha: float
    verdict: str
    reproduction: str
    notes: dict[str, str]
    daily: list[dict[str, Any]]
    shares: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return {
            "verdict": self.verdict,
            "confidence": self.confidence,
            "certificate": {**asdict(self.certificate), "look": self.look, "alpha": self.alpha},
            "reproduction": self.reproduction,
            "policies": self.policies,
            "notes": self.notes,
            "estimates": [estimate.to_dict() for estimate in self.estimates],
            "daily": self.daily,
            "shares": self.shares,
        }


def evaluate(run: str | Path | Run, *, confidence: float | None = None, progress: Report | None = None) -> Evaluation:
    """Evaluate and certify the mixture of a run.

    Args:
        run: a RUN folder.
        confidence: of intervals and certificate, in (0.5, 1); default as in the campaign file.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: if the run, its data or its bundle is missing or damaged, or `confidence` is impossible.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    if confidence is not None and not 0.5 < confidence < 1:
        raise OutlayError(
            f"is {confidence:g}.", where="confidence", way_out="Give a share above 0.5 and below 1: 0.95."
        )
    campaign = run.campaign.with_train(confidence=confidence)
    result = evaluate_bundle(run.data(), run.bundle, campaign, progress)
    write_json(run.folder / "estimates.json", result.to_dict())
    return result


def evaluate_bundle(data: Transitions, folder: Path, campaign: Campaign, progress: Report | None = None) -> Evaluation:
    """Evaluate and certify one bundle, and write what was found into its manifest: a look at the certify users.

    Args:
        data: with the users.
        folder: the bundle's.
        campaign: its limits and confidence.
        progress: called with the fraction done and what is being done.
    """
    report = progress or (lambda _fraction, _text: None)
    level = campaign.train.confidence
    bundle = load_bundle(folder)
    at = Measure(data, CERTIFY, bundle)
    report(0.05, "the old policy")
    seen, old = observe(at.panel, days=at.days), at.old()
    check = reproduces(seen, old)
    report(0.2, "the members")
    parts = at.members()
    weights = np.array([member.weight for member in bundle.members])
    mixture = combine(parts, weights)
    report(0.4, "constant actions")
    constants, constant, note = best_constants(at, campaign), None, ""
    if constants is not None:
        constant, note = combine(at.constants(constants[0], at.days), constants[1]), in_words(at, *constants)
    report(0.7, "importance sampling")
    sampled = _sampled(at, weights)

    number, alpha = look(data.folder, str(bundle.manifest["id"]), level)
    certificate = _certificate(mixture, old, campaign, 1 - alpha, None if check.ok else check.words)
    found = [
        *(_trusted(e, True) for e in seen.estimates("old", "observed", confidence=level)),
        *(_trusted(e, check.ok) for e in estimates(old, campaign, "old", "fqe", confidence=level)),
        *(_trusted(e, check.ok) for e in estimates(mixture, campaign, "mixture", "fqe", confidence=level)),
    ]
    policies = ["old", "mixture"]
    if constant is not None:
        found += [_trusted(e, check.ok) for e in estimates(constant, campaign, "constants", "fqe", confidence=level)]
        policies.insert(1, "constants")
    if len(parts) > 1:
        for i, part in enumerate(parts):
            found += [_trusted(e, check.ok) for e in estimates(part, campaign, f"member {i}", "fqe", confidence=level)]
            policies.append(f"member {i}")
    for name, joint in sampled.items():
        found += importance.estimates(joint, "mixture", name, confidence=level)
    wanted = {f"{name}@{k}" for name in at.panel.names for k in at.days if k not in campaign.meta.report_days}
    horizon = {f"{b.name}@{campaign.meta.horizon_days}" for b in campaign.budgets} | {objective(campaign)}
    found = [e for e in found if e.target not in wanted - horizon]

    result = Evaluation(
        policies=policies,
        estimates=found,
        certificate=certificate,
        confidence=level,
        look=number,
        alpha=alpha,
        verdict=verdict(found, certificate, campaign),
        reproduction=check.words,
        notes={"constants": note} if note else {},
        daily=_daily({"old": old, "mixture": mixture}),
        shares=_shares(at, weights),
    )
    update_certificate(folder, [e.to_dict() for e in found], result.to_dict()["certificate"])
    return result


def _trusted(estimate: Estimate, ok: bool) -> Estimate:
    """Not recommended where the estimator does not give the old policy's totals back."""
    fields = estimate.to_dict()
    return Estimate(**{**fields, "recommended": estimate.recommended and ok})


def _certificate(
    mixture: Fitted, old: Fitted, campaign: Campaign, confidence: float, refused: str | None
) -> Certificate:
    x, influence, limits = coordinates(mixture, campaign)
    x_old, influence_old, _ = coordinates(old, campaign)
    reason = next((reason for reason in mixture.withheld if reason), None)
    if refused is not None:
        x, reason = np.full_like(x, np.nan), refused
    return certify(
        x,
        influence,
        limits,
        [budget.name for budget in campaign.budgets],
        gain=float(x[0] - x_old[0]),
        gain_influence=influence[:, 0] - influence_old[:, 0],
        confidence=confidence,
        signs=[budget.sign for budget in campaign.budgets],
        decisions=decisions(mixture, campaign),
        withheld=reason,
    )


def _sampled(at: Measure, weights: NDArray[np.float64]) -> dict[str, importance.Weighted]:
    """Clipped per-decision importance sampling of the mixture, plain and self-normalised."""
    targets = [at.actions(i) for i in range(len(weights))]
    given = at.propensity()
    out = {}
    for name, kind in (("pdis", "plain"), ("snpdis", "self-normalised")):
        parts = [
            importance.weigh(at.panel, target, days=at.data.campaign.meta.report_days, kind=kind, propensity=given)  # type: ignore[arg-type]
            for target in targets
        ]
        out[name] = importance.combine(parts, weights)
    return out


def _daily(fits: dict[str, Fitted]) -> list[dict[str, Any]]:
    """Means per user of each day, up to the first whose total is withheld."""
    rows = []
    for policy, fitted in fits.items():
        for day, today in enumerate(np.diff(fitted.daily, axis=0, prepend=0.0), start=1):
            if not np.isfinite(today).all():
                break
            rows.append({"policy": policy, "day": day, "reward": float(today[0]), "costs": today[1:].tolist()})
    return rows


def _shares(at: Measure, weights: NDArray[np.float64]) -> list[dict[str, Any]]:
    """How often each action is given in each segment, in the states of the log, by the old policy and the mixture.

    Segments with hardly any choices are left out.
    """
    panel, data = at.panel, at.data
    free = ~panel.forced
    segment = data.users["segment"][data.user[panel.rows[free]]].astype(np.int64)
    size = (len(data.segments), data.num_actions)

    def counted(action: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(segment * size[1] + action[free], minlength=size[0] * size[1]).reshape(size).astype(float)

    tables = {"old": counted(panel.action)}
    tables["new"] = sum(w * counted(at.actions(i)) for i, w in enumerate(weights))
    return [
        {"segment": data.segments[s], "policy": policy, "action": float(data.actions[a]),
         "share": float(table[s, a] / table[s].sum())}
        for policy, table in tables.items()
        for s in range(size[0])
        if tables["old"][s].sum() >= LEAST_SHARE * len(segment)
        for a in range(size[1])
    ]  # fmt: skip
