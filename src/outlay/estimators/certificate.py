"""The certificate: on users never used for choosing, every budget is kept at the stated confidence.

    certified  ⇔  x_j + above_j ≤ limit_j  for every budget j          P(certified and some budget over) ≤ α

above_j is z_{1−α}·se_j if the error is normal, and more if few events or few users make it. If they are too few to show
how large an event may be, and the campaign file does not state it, there is no bound (`ops/intervals.py`).

All budgets are one verdict and need no correction for their number: a mixture that is over breaks one budget at least,
and to be certified it must pass that budget's own test, which a truth beyond the limit passes with probability at most
α (an intersection–union test). The margin lowers the limits at the time of choosing, so that a mixture that keeps
them on *select* is certified on *certify* with probability 1 − β:

    margin_j = above_j + z_{1−β}·√(se_select² + se_certify²)

Where an estimate that assumes less than the fitted one was made, both above_j and se_certify are those of the weaker
of the two bounds (`weaker.py`).

A budget that a cap holds while serving (`Campaign.held`) has no margin, and is not asked to pass: whether it does is
told, with its estimate and interval, and nothing is certified (`ReasonKind.HELD`). That holds the gain of the mixture
only where it is served, so one whose cost is surely and far beyond the limit (`MOST_OVER`) breaks it as any other does.

A budget that the campaign file calls `shared` costs or brings something else when others get more of it. A log shows
only what happened at its own level, so no bound holds for another policy, and nothing is certified.

For mixtures of many policies whose bounds hold together (`band.py`) k stands for z_{1−α} in above_j.

Source: Berger (1982) for intersection–union tests; the margin is method section 6's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.campaign import Campaign
from outlay.core.inequalities import Inequalities
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.wording import four, plain
from outlay.estimators.weaker import above_second
from outlay.ops.intervals import FEWEST, LEAST_USERS, Spread, quantile

CONDITIONS = (
    "the features say enough about a user",
    "users do not influence one another",
    "nothing unlogged drove the log's actions",
    "later days are like the log's",
)
CONDITION = f"if {', '.join(CONDITIONS[:-1])}, and {CONDITIONS[-1]}"
STATE = f"{FEWEST} of one size are needed, or the largest cost of each action in the campaign file (budget.reserve)"
UNBELIEVED = "what budget.reserve states is not the largest cost: {rows:,} rows of the log cost more"
RARE = "; {share:.0%} of its distance from the estimate allows for one more user, or cluster, as dear as the dearest"
SHOWN = 0.5  # of that distance: a larger share is told
OWN = 0.75  # of the α of a look at a whole curve: for the mixture that is served; the rest is for all other budgets
ROUNDING = 1e-6  # of a limit: less beyond it is what adding up 32 bits leaves of costs that are all at the limit
MOST_OVER = 0.1  # of its limit, by which a cost that a cap holds may be estimated above it
LIKELY = 0.9  # one-sided confidence at which a gain is worth a test: of 10 policies that gain nothing one may pass


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
        rare: share of the distance from value to bound that allows for one more user as dear as the dearest of the log;
            None for a floor, and where there is no bound.
        label: what sentences call it; empty: by its name.
    """

    budget: str
    value: float | None
    bound: float | None
    limit: float
    floor: bool
    kept: bool
    events: int | None = None
    unbelieved: int = 0
    rare: float | None = None
    label: str = ""

    @property
    def measured(self) -> bool:
        """Whether there is an estimate, and a bound of it or the events that are too few for one."""
        return self.value is not None and (self.bound is not None or self.events is not None)

    def keeps(self, cost: float) -> bool:
        """Whether a cost keeps the limit."""
        return (1 - 2 * self.floor) * (cost - self.limit) <= ROUNDING * abs(self.limit)

    @property
    def words(self) -> str:
        """`coupon_cost by 0.013 (upper bound 2.013 against 2)`."""
        name = self.label or self.budget
        if self.events is not None:
            doubt = f"; {UNBELIEVED.format(rows=self.unbelieved)}" if self.unbelieved else ""
            return f"{name} rests on too few events ({_events(self.events)}): {STATE}{doubt}"
        if self.bound is None:
            return f"{name} could not be measured"
        side, by = "lower" if self.floor else "upper", abs(self.bound - self.limit)
        rare = "" if self.rare is None or self.rare <= SHOWN else RARE.format(share=self.rare)
        return f"{name} by {four(by)} ({side} bound {four(self.bound)} against {plain(self.limit)}{rare})"


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
        words: `certified`, `held while serving: …`, or `not certified: …`.
        withheld: the same reason where its figures are not believed or missing; None where they are given.
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
    withheld: Reason | None = field(init=False)

    def __post_init__(self) -> None:
        reason = self.reason
        object.__setattr__(self, "certified", reason is None)
        object.__setattr__(self, "words", _words(reason, self.budgets))
        object.__setattr__(self, "withheld", reason if reason is not None and reason.withholds else None)

    @property
    def too_few(self) -> bool:
        """Whether the users, or their clusters, are too few for any bound to be believed."""
        return (self.clusters or self.users) < LEAST_USERS

    @property
    def held(self) -> str | None:
        """The budget that a cap holds while serving, where nothing but the proof of it is missing; else None."""
        held = self.reason is not None and self.reason.kind is ReasonKind.HELD
        return str(self.reason.figures["budget"]) if held and self.reason is not None else None

    @property
    def loses(self) -> bool:
        """Whether the mixture surely brings less than the old policy, at `confidence`."""
        return self.gain_most is not None and self.gain_most < 0

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


class CostBounds(NamedTuple):
    """Costs of one policy against their limits, in coordinates.

    Attributes:
        value: `[m]` in ≤ form; NaN where it is not known.
        bound: `[m]` of it.
        decisions: x_1: lines are written as tables show costs (`core/inequalities.py`). It changes no verdict.
        events: `[m]` those of `Spread`.
        unbelieved: `[m]` those of `Reach`.
        plain: `[m]` the bound that does not allow for one more user as dear as the dearest of the log; NaN: not known.
    """

    value: ArrayLike
    bound: ArrayLike
    decisions: float = 1.0
    events: ArrayLike = np.nan
    unbelieved: ArrayLike = 0
    plain: ArrayLike = np.nan

    @property
    def rare(self) -> NDArray[np.float64]:
        """`[m]` share of the distance from value to bound that allows for that user."""
        value, bound, plain = (np.asarray(each, np.float64) for each in (self.value, self.bound, self.plain))
        room = bound - value
        known = np.isfinite(room) & (room > 0)
        share: NDArray[np.float64] = np.divide(bound - plain, room, out=np.full(room.shape, np.nan), where=known)
        return share


class Bounds(NamedTuple):
    """What was measured of one policy against its limits, before anything else is weighed.

    Attributes:
        lines: of the budgets.
        gain: over the old policy; None where it was not measured.
        gain_bound: one-sided lower bound of it; None likewise.
        gain_most: one-sided upper bound of it.
        confidence: of each bound.
        window: days of a user that they are about (`Certificate.window`).
        reason: why a limit is not kept; None: all are that have to be.
        held: names of budgets whose bounds do not have to keep their limits.
    """

    lines: tuple[BudgetBound, ...]
    gain: float | None
    gain_bound: float | None
    gain_most: float | None
    confidence: float
    window: int | None
    reason: Reason | None
    held: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether every bound keeps its limit that has to."""
        return all(line.kept or line.budget in self.held for line in self.lines)

    @classmethod
    def of(
        cls,
        costs: CostBounds,
        gain: tuple[float, float, float],
        campaign: Campaign,
        confidence: float,
        window: int | None = None,
        held: tuple[str, ...] = (),
    ) -> Bounds:
        """Write coordinates as the campaign file does.

        Args:
            costs: with their bounds.
            gain: itself, and its lower and upper bound.
            campaign: its budgets.
            confidence: of each bound.
            window: days of a user that they are about.
            held: names of budgets whose bounds do not have to keep their limits.
        """
        form = Inequalities.of(campaign.budgets)
        kept = np.asarray(costs.bound, np.float64) <= form.limits + ROUNDING * np.abs(form.limits)  # NaN is not
        shown, reach = (form.shown(np.asarray(x), form.divisors(costs.decisions)) for x in (costs.value, costs.bound))
        told = costs.events, costs.unbelieved, costs.rare
        few, more, rare = (np.broadcast_to(each, form.limits.shape) for each in told)
        lines = tuple(
            BudgetBound(
                budget=budget.name,
                value=_number(shown[j]),
                bound=_number(reach[j]),
                limit=float(budget.limit),
                floor=budget.sign < 0,
                kept=bool(kept[j]),
                events=int(few[j]) if np.isfinite(few[j]) and np.isfinite(shown[j]) else None,
                unbelieved=int(more[j]),
                rare=None if budget.sign < 0 else _number(rare[j]),
                label=campaign.told("budgets", budget.name),
            )
            for j, budget in enumerate(campaign.budgets)
        )
        middle, least, most = map(_number, gain)
        bounds = cls(lines, middle, least, most, confidence, window, None, held)
        return bounds if bounds.kept else bounds._replace(reason=Reason(ReasonKind.LIMIT))


def issue(
    bounds: Bounds,
    against: Sequence[Reason],
    *,
    users: int,
    clusters: int | None = None,
    policies: int = 1,
    likely: float | None = None,
    held: Reason | None = None,
) -> Certificate:
    """Return the certificate that bounds amount to, wherever they come from.

    Args:
        bounds: with all that is allowed for.
        against: what stands against it, whatever the bounds. The first that withholds them is its reason; one that does
            not, only where nothing else is.
        users: that they rest on.
        clusters: that these come in.
        policies: for which the bounds hold together.
        likely: lower bound of the gain at the confidence `LIKELY`.
        held: that a budget is held while serving, which is the reason where there is no other.
    """
    count, what = (users, "users") if clusters is None else (clusters, "clusters of users")
    unmeasured = not all(line.measured for line in bounds.lines)
    # A reward alone that could not be measured takes no limit away.
    withheld = [r for r in against if r.withholds and (r.kind is not ReasonKind.UNSUPPORTED or unmeasured)]
    few = Reason(ReasonKind.FEW_USERS, {"count": count, "units": what, "needed": LEAST_USERS})
    found = [*withheld, *([few] if count < LEAST_USERS else ()), *([bounds.reason] if bounds.reason else ())]
    others = [reason for reason in against if not reason.withholds]
    return Certificate(
        reason=next(iter([*found, *others]), held),
        confidence=bounds.confidence,
        users=users,
        budgets=bounds.lines,
        gain=bounds.gain,
        gain_bound=bounds.gain_bound,
        gain_most=bounds.gain_most,
        gain_likely=likely,
        policies=policies,
        window=bounds.window,
        clusters=clusters,
    )


def margins(
    se_select: ArrayLike,
    certifying: Spread,
    *,
    factor: float,
    margin: float,
    further: ArrayLike = 0.0,
    held: ArrayLike = False,
    rare: bool = True,
) -> NDArray[np.float64]:
    """How much to lower each limit when choosing, `[…]`.

    Args:
        se_select: `[…]` standard errors on the users that choose.
        certifying: `[…]` how the estimates are expected to err on the users that certify.
        factor: z_{1−α} of the certificate, or k of many policies together.
        margin: 1 − β, the wanted chance that a mixture on its lowered limit is certified.
        further: how much more an estimate that assumes less errs than the one that certifies, as a multiple of the
            error of the latter (`weaker.further_error`); 0 where there is none.
        held: `[…]` budgets that a cap holds while serving (`Campaign.held`): none is kept below them.
        rare: whether the bound to come is allowed for where few users make the errors; False: that of normal errors.

    Where the certificate will have no bound, the margin is the normal one: no margin could help it.
    """
    error: NDArray[np.float64] = certifying.error * np.hypot(1.0, further)
    above = above_second(certifying, error, factor)
    both = np.hypot(np.asarray(se_select, np.float64), error)
    normal = np.isposinf(above) | (not rare)
    return np.where(held, 0.0, np.where(normal, factor * error, above) + quantile(margin) * both)


def _words(reason: Reason | None, lines: Sequence[BudgetBound]) -> str:
    """`certified`, or `not certified: …` with the lines that are not kept."""
    if reason is None:
        return "certified"
    if reason.kind is ReasonKind.HELD:
        return f"held while serving: {reason.words}"
    broken = ", ".join(line.words for line in lines if not line.kept)
    if reason.kind is ReasonKind.LIMIT:
        return f"not certified: {broken}"
    if reason.kind is ReasonKind.DAYS:
        return f"not certified: {broken}, {reason.words}"
    if reason.kind is ReasonKind.UNSUPPORTED and not all(line.measured for line in lines):
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
