"""The certificate: on users never used for choosing, every budget is kept at the stated confidence.

    certified  ⇔  x_j + above_j ≤ limit_j  for every budget j          P(certified and some budget over) ≤ α

above_j is z_{1−α}·se_j if the error is normal, and more if few events or few users make it. If they are too few to show
how large an event may be, and the campaign file does not state it, there is no bound (`ops/skewed.py`).

All budgets are one verdict and need no correction for their number: a mixture that is over breaks one budget at least,
and to be certified it must pass that budget's own test, which a truth beyond the limit passes with probability at most
α (an intersection–union test). The margin lowers the limits at the time of choosing, so that a mixture that keeps
them on *select* is certified on *certify* with probability 1 − β:

    margin_j = above_j + z_{1−β}·√(se_select² + se_certify²)

Where an estimate that assumes less than the fitted one was made, both above_j and se_certify are those of the weaker
of the two bounds (`weaker.py`).

A budget that the campaign file calls `shared` costs or brings something else when others get more of it. A log shows
only what happened at its own level, so no bound holds for another policy, and nothing is certified (`unless_shared`).

For mixtures of many policies whose bounds hold together (`band.py`) k stands for z_{1−α} in above_j.

Source: Berger (1982) for intersection–union tests; the margin is method section 6's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.campaign import Campaign
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.weaker import above_second
from outlay.ops.intervals import quantile
from outlay.ops.skewed import FEWEST, Spread

CONDITIONS = (
    "the features say enough about a user",
    "users do not influence one another",
    "nothing unlogged drove the log's actions",
    "later days are like the log's",
)
CONDITION = f"if {', '.join(CONDITIONS[:-1])}, and {CONDITIONS[-1]}"
STATE = f"{FEWEST} of one size are needed, or the largest cost of each action in the campaign file (budget.reserve)"
UNBELIEVED = "what budget.reserve states is not the largest cost: {rows:,} rows of the log cost more"
OWN = 0.75  # of the α of a look at a whole curve: for the mixture that is served; the rest is for all other budgets
LIKELY = 0.9  # one-sided confidence at which a gain is worth a test: of 10 policies that gain nothing one may pass
LEAST_USERS = 30  # or clusters of them: below it the normal approximation of the bounds is not believed


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetBound:
    """One budget of a certificate, as written in the campaign file (a floor has a lower bound).

    Attributes:
        budget: its name.
        value: the estimate; None where withheld.
        bound: its one-sided bound at the certificate's confidence; None where there is none.
        limit: the limit.
        floor: whether the limit is a floor.
        kept: whether the bound keeps the limit.
        events: where the value has no bound as too few events make it: events of one size that would say as much.
        unbelieved: rows of the log that cost more than the campaign file states as the largest cost.
    """

    budget: str
    value: float | None
    bound: float | None
    limit: float
    floor: bool
    kept: bool
    events: int | None = None
    unbelieved: int = 0

    @property
    def words(self) -> str:
        """`coupon_cost by 0.013 (upper bound 2.013 against 2)`."""
        if self.events is not None:
            doubt = f"; {UNBELIEVED.format(rows=self.unbelieved)}" if self.unbelieved else ""
            return f"{self.budget} rests on too few events ({_events(self.events)}): {STATE}{doubt}"
        if self.bound is None:
            return f"{self.budget} could not be measured"
        side, by = "lower" if self.floor else "upper", abs(self.bound - self.limit)
        return f"{self.budget} by {by:.4g} ({side} bound {self.bound:.4g} against {self.limit:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The verdict.

    Attributes:
        reason: why it is not issued; None: every budget is kept, at `confidence` jointly.
        confidence: 1 − α.
        users: users it rests on.
        clusters: that these users come in; None where every user is independent.
        budgets: a line per budget.
        gain: objective of the mixture less that of the old policy; None where withheld.
        gain_bound: one-sided lower bound of the gain at `confidence`; None where withheld.
        gain_most: its one-sided upper bound at `confidence`, for itself: below 0 it is a loss; None where withheld.
        gain_likely: its lower bound at the confidence `LIKELY`, for this policy and this look alone: above 0 it is
            worth a test; None where withheld.
        policies: how many policies its bounds hold for together, and so for every mixture of them; 1: this mixture
            alone.
        window: days k of a user that it is about, each weighing the same; None: all days to come, discounted (or, of
            budgets per user, the horizon).
        look: number of the look at the certify users that it was; None where looks are not counted.
        alpha: error probability that the look may spend; None likewise.
        clusters: see above.
        certified: whether it is issued.
        words: `certified`, or `not certified: …`.
        withheld: why its figures are not believed or missing, in words; None where they are given.
    """

    reason: Reason | None
    confidence: float
    users: int
    budgets: tuple[BudgetBound, ...]
    gain: float | None
    gain_bound: float | None
    gain_most: float | None
    gain_likely: float | None = None
    policies: int = 1
    window: int | None = None
    look: int | None = None
    alpha: float | None = None
    clusters: int | None = None
    certified: bool = field(init=False)
    words: str = field(init=False)
    withheld: str | None = field(init=False)

    def __post_init__(self) -> None:
        reason = self.reason
        object.__setattr__(self, "certified", reason is None)
        object.__setattr__(self, "words", _words(reason, self.budgets))
        object.__setattr__(self, "withheld", reason.words if reason is not None and reason.withholds else None)

    @property
    def too_few(self) -> bool:
        """Whether the users, or their clusters, are too few for any bound to be believed."""
        return (self.clusters or self.users) < LEAST_USERS

    @property
    def loses(self) -> bool:
        """Whether the mixture surely brings less than the old policy, at `confidence`."""
        return self.gain_most is not None and self.gain_most < 0

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def issue(
    value: ArrayLike,
    bound: ArrayLike,
    limits: ArrayLike,
    names: Sequence[str],
    *,
    users: int,
    gain: float,
    gain_bound: float,
    gain_most: float,
    confidence: float,
    signs: Sequence[int] | None = None,
    decisions: ArrayLike = 1.0,
    withheld: Reason | None = None,
    events: ArrayLike = np.nan,
    unbelieved: ArrayLike = 0,
    policies: int = 1,
    clusters: int | None = None,
) -> Certificate:
    """The certificate that bounds `[m]` in ≤ form amount to, wherever they come from.

    `events` `[m]` are those of `Spread`, `unbelieved` `[m]` those of `Reach`, the other arguments as above.
    """
    limit = np.asarray(limits, np.float64)
    sign = np.ones(len(limit)) if signs is None else np.asarray(signs, np.float64)
    kept = np.asarray(bound, np.float64) <= limit  # NaN is not
    shown, reach = (limit + (np.asarray(number) - limit) / np.asarray(decisions) for number in (value, bound))
    lines = tuple(
        BudgetBound(
            budget=name,
            value=_number(s * v),
            bound=_number(s * b),
            limit=float(s * at),
            floor=bool(s < 0),
            kept=bool(k),
            events=int(few) if np.isfinite(few) and np.isfinite(v) else None,
            unbelieved=int(more),
        )
        for name, s, v, b, at, k, few, more in zip(
            names, sign, shown, reach, limit, kept, *np.broadcast_arrays(events, unbelieved, limit)[:2], strict=True
        )
    )
    count, what = (users, "users") if clusters is None else (clusters, "clusters of users")
    reason = None if kept.all() else Reason(ReasonKind.LIMIT)
    if count < LEAST_USERS:
        reason = Reason(ReasonKind.FEW_USERS, {"count": count, "units": what, "needed": LEAST_USERS})
    if withheld is not None and (withheld.kind is not ReasonKind.UNSUPPORTED or any(x.value is None for x in lines)):
        reason = withheld  # a reward alone that could not be measured takes no limit away
    return Certificate(
        reason=reason,
        confidence=confidence,
        users=users,
        budgets=lines,
        gain=_number(gain),
        gain_bound=_number(gain_bound),
        gain_most=_number(gain_most),
        policies=policies,
        clusters=clusters,
    )


def unless_shared(certificate: Certificate, campaign: Campaign) -> Certificate:
    """Return the certificate without any bound if a budget of the campaign is shared; else as it is."""
    if not campaign.shared:
        return certificate
    names, verb = " and ".join(campaign.shared), "is" if len(campaign.shared) == 1 else "are"
    return replace(
        certificate,
        reason=Reason(ReasonKind.SHARED, {"budgets": f"{names} {verb}"}),
        budgets=tuple(replace(line, bound=None, kept=False, events=None) for line in certificate.budgets),
        gain_bound=None,
        gain_most=None,
        gain_likely=None,
    )


def unless_unassigned(certificate: Certificate, campaign: Campaign) -> Certificate:
    """Return a certificate as not issued, its bounds still told, if it is not known how actions came about."""
    if not certificate.certified or campaign.log.known_assignment:
        return certificate
    return replace(certificate, reason=Reason(ReasonKind.UNASSIGNED))


def unless_approximate(certificate: Certificate) -> Certificate:
    """Return the certificate of a policy that reads more of the past than the state holds: not issued, bounds told."""
    if not certificate.certified:
        return certificate
    return replace(certificate, reason=Reason(ReasonKind.APPROXIMATE))


def margins(
    se_select: ArrayLike, certifying: Spread, *, factor: float, margin: float, further: ArrayLike = 0.0
) -> NDArray[np.float64]:
    """How much to lower each limit when choosing, `[…]`.

    Args:
        se_select: `[…]` standard errors on the users that choose.
        certifying: `[…]` how the estimates are expected to err on the users that certify.
        factor: z_{1−α} of the certificate, or k of many policies together.
        margin: 1 − β, the wanted chance that a mixture on its lowered limit is certified.
        further: how much more an estimate that assumes less errs than the one that certifies, as a multiple of the
            error of the latter (`weaker.further_error`); 0 where there is none.

    Where the certificate will have no bound, the margin is the normal one: no margin could help it.
    """
    error: NDArray[np.float64] = certifying.error * np.hypot(1.0, further)
    above = above_second(certifying, error, factor)
    both = np.hypot(np.asarray(se_select, np.float64), error)
    return np.where(np.isposinf(above), factor * error, above) + quantile(margin) * both


def _words(reason: Reason | None, lines: Sequence[BudgetBound]) -> str:
    """`certified`, or `not certified: …` with the lines that are not kept."""
    if reason is None:
        return "certified"
    broken = ", ".join(line.words for line in lines if not line.kept)
    if reason.kind is ReasonKind.LIMIT:
        return f"not certified: {broken}"
    if reason.kind is ReasonKind.DAYS:
        return f"not certified: {broken}, {reason.words}"
    if reason.withholds and any(line.value is None for line in lines):
        return f"not certified: {broken} ({reason.words})"
    return f"not certified: {reason.words}"


def _events(count: int) -> str:
    if count == 0:
        return "none was seen"
    if count == FEWEST - 1:
        return "the largest make most of its error"
    return f"those seen are worth {count} of one size"


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
