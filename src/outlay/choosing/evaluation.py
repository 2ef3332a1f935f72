"""What an evaluation found, as the report, the command line and --json have it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from outlay.core.estimate import Estimate
from outlay.estimators.certificate import CONDITION, Certificate


@dataclass(frozen=True)
class Evaluation:
    """`to_dict` is what --json prints and, for the mixture of a run, estimates.json.

    Attributes:
        subject: the name of the policy that was evaluated: `mixture` or `policy`.
        titles: what tables call each policy, in their order.
        estimates: of that policy, by every estimator.
        beside: of the others: the old policy, constants, members, the one it is held against.
        differences: `[{against, …estimate}]` of that policy less another, paired by user.
        segments: `[{segment, users, …estimate}]` by the segment of a user's first row; policy `gain`: less the old one.
        certificate: of that policy.
        confidence: of the intervals; the certificate has its own, by the look.
        look: which look at the certify users this was.
        alpha: what that look may spend.
        verdict: one sentence that says what to do.
        diagnostics: what it rests on: propensities, reproduction, agreement, paths, overlap.
        notes: a few words beside a policy, by its name.
        daily: per policy and day: means per user of reward and costs, `[{policy, day, reward, costs}]`.
        shares: actions by segment, `[{segment, policy, action, share}]`.
        window: where states are not counted: `{days, beyond, words}` of the days that claims are about, whose means
            stand in the place of discounted ones; else None.
        users: on whom it was measured: `certify`, or `all` where the policy learned from none of them.
        condition: what every "sure" and "certified" rests on.
    """

    subject: str
    titles: dict[str, str]
    estimates: list[Estimate]
    beside: list[Estimate]
    differences: list[dict[str, Any]]
    segments: list[dict[str, Any]]
    certificate: Certificate
    confidence: float
    look: int
    alpha: float
    verdict: str
    diagnostics: dict[str, Any]
    notes: dict[str, str]
    daily: list[dict[str, Any]]
    shares: list[dict[str, Any]]
    window: dict[str, Any] | None = None
    users: str = "certify"
    condition: str = CONDITION

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return {
            "verdict": self.verdict,
            "confidence": self.confidence,
            "estimates": [estimate.to_dict() for estimate in self.estimates],
            "certificate": {**asdict(self.certificate), "look": self.look, "alpha": self.alpha},
            "differences": self.differences,
            "segments": self.segments,
            "subject": self.subject,
            "policies": self.titles,
            "beside": [estimate.to_dict() for estimate in self.beside],
            "diagnostics": self.diagnostics,
            "notes": self.notes,
            "daily": self.daily,
            "shares": self.shares,
            "window": self.window,
            "users": self.users,
            "condition": self.condition,
        }
