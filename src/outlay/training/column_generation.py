"""Column generation on measured policies: what learning can still add at the prices that the limits set, and the gap.

    master     max αᵀr   s.t.   αᵀc + margin ≤ limit,  Σα = 1        over policies measured on *select*; its duals λ.
               r is their aim, which mixtures are chosen by, and the margin the mixture's (`choose.py`)
    column     the best response that learning gives to λ, measured on the same users
    g          (r − λᵀc) of the column less that of the mixture: its reduced cost

A column is taken in while g is above 0, for a few rounds. It need not be above its noise: learning and measuring agree
that the column is better, and they err by different users. Where columns had to be better by a standard error, a limit
between the points of a coarse grid of λ was left unspent. What g is left in the end is the gap: by duality no mixture
of policies is better by more than the largest g of any of them, and the column has the largest that learning knows of.
So it is a gap to the policies of one critic, as select users measure it, not to the true optimum: what the critic does
not know is not in it.

g errs as the select users do who measure both, user by user, so that what column and mixture have in common cancels.
Where no mixture keeps the limits, λ is the proof of it, which knows no reward: columns are then those that keep the
limits best.

Whether costs fall as λ grows is a check of the answers themselves: exact best responses have (λ − λ')ᵀ(c − c') ≤ 0.

Source: Dantzig & Wolfe (1960); for the bound, Lübbecke & Desrosiers (2005), section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.candidates import CandidatePolicy, MeasuredPolicy, RunContext, measure_further, without_luck
from outlay.choosing.choose import best, margins_of, solve
from outlay.choosing.measure import Measure
from outlay.core.campaign import Campaign
from outlay.core.estimate import Target
from outlay.estimators.units import coordinates, days_counted, objective
from outlay.ops.intervals import quantile, std_error

ROUNDS = 8  # in which columns are taken in
LEVEL = 0.05  # chance that the check of costs finds fault where there is none
ROUNDING = 1e-7  # of the objective: a smaller g is none

Vector = NDArray[np.float64]
Respond = Callable[[Vector], Sequence[CandidatePolicy]]
"""λ `[m]`, in reward units per unit of coordinate → the best responses to it; several where several critics learned."""


@dataclass(frozen=True)
class Gap:
    """What best responses would still add to a mixture.

    Attributes:
        value: g in the unit of the objective, 0 where it is not above 0: of the largest column, at the last λ.
        std_error: of g.
        objective: of the mixture, the same unit: its aim, which mixtures are chosen by; before constants take part.
        multiplier: `[m]` the last λ, in units of the objective per unit of coordinate.
        added: how many columns were taken in.
    """

    value: float
    std_error: float
    objective: float
    multiplier: tuple[float, ...]
    added: int

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)

    @property
    def share(self) -> float:
        """The gap as a share of the objective; infinite where that is 0."""
        return self.value / abs(self.objective) if self.objective else np.inf


@dataclass(frozen=True)
class Generated:
    """What column generation ends with.

    Attributes:
        kept: all policies, those taken in last.
        at: what measured them, with all of them in its bundle.
        gap: what is left; None where it cannot be told.
        unknown: why not.
    """

    kept: list[MeasuredPolicy]
    at: Measure
    gap: Gap | None
    unknown: str | None


def generate(context: RunContext, kept: Sequence[MeasuredPolicy], at: Measure, respond: Respond) -> Generated:
    """Take in best responses to the duals of the campaign's limits, while they promise anything.

    Args:
        context: what policies share.
        kept: the policies that were measured, which are those of the bundle in `at`, in its order.
        at: what measured them.
        respond: gives the best responses to any λ ≥ 0.
    """
    pool = list(kept)
    first, members, rounds = len(pool), at.served.members, 0
    days = _days(context.campaign)

    def ended(gap: Gap | None, unknown: str | None = None) -> Generated:
        added = pool[first:]
        wider = replace(at, bundle=replace(at.served, members=members)) if added else at
        return Generated(without_luck([*kept, *added], context), wider, gap, unknown)

    while True:
        master = _master(pool, context)
        if master is None:
            return ended(None, "none of its policies could be measured")
        columns, theirs = measure_further(context, respond(master.multiplier / days), kept, at)
        every = without_luck([*pool, *columns], context)
        known = [i for i, column in enumerate(columns) if column.withheld is None]
        if not known:
            return ended(None, f"its best response could not be measured: {columns[0].withheld}")
        priced = [(*master.promise(every, len(pool) + i, context), i) for i in known]
        value = float(master.weights @ [pool[i].objective for i in master.places])
        taken = [i for promise, _, i in priced if promise > ROUNDING * abs(value)]
        if taken and rounds < ROUNDS:
            pool = without_luck([*pool, *(columns[i] for i in taken)], context)
            members = (*members, *(theirs.members[i] for i in taken))
            rounds += 1
            continue
        if not master.feasible:
            return ended(None, "its policies cannot keep the limits with room for the certificate")
        promise, error, _ = max(priced)
        prices = tuple(master.multiplier.tolist())
        return ended(Gap(promise if taken else 0.0, error, value, prices, len(pool) - first))


@dataclass(frozen=True)
class _Master:
    """A solved master problem: its mixture, and its duals.

    Attributes:
        places: `[k]` of the members of the mixture, among the policies.
        weights: `[k]`.
        multiplier: `[m]` λ. Not feasible: of the proof, scaled to be large beside any reward.
        feasible: whether limits are kept, the margin included.
    """

    places: list[int]
    weights: Vector
    multiplier: Vector
    feasible: bool

    def promise(self, kept: Sequence[MeasuredPolicy], column: int, context: RunContext) -> tuple[float, float]:
        """The reduced cost of one of these policies, and its standard error."""

        def priced(policy: MeasuredPolicy) -> tuple[float, Vector]:
            x, influence, _ = coordinates(policy.fitted, context.campaign)
            value = self.feasible * policy.objective - float(self.multiplier @ x[1:])
            return value, self.feasible * policy.objective_influence - influence[:, 1:] @ self.multiplier

        value, noise = priced(kept[column])
        for place, weight in zip(self.places, self.weights, strict=True):
            theirs, influence = priced(kept[place])
            value, noise = value - weight * theirs, noise - weight * influence
        return float(value), float(std_error(noise))


def _master(kept: Sequence[MeasuredPolicy], context: RunContext) -> _Master | None:
    """The mixture that will be chosen from these policies, and its duals; None where none could be measured."""
    known = [i for i, k in enumerate(kept) if k.withheld is None]
    if not known:
        return None
    pool = [kept[i] for i in known]
    found = best(pool, context)
    solution = solve(pool, context, margins_of(pool, context) if found is None else found.margin)
    used = np.flatnonzero(solution.weights)
    multiplier = solution.duals
    if not solution.feasible:
        most = np.array([k.policy.multiplier for k in pool]).max(axis=0)
        multiplier = multiplier * _days(context.campaign) * np.min(most[multiplier > 0] / multiplier[multiplier > 0])
    return _Master([known[i] for i in used], solution.weights[used], multiplier, solution.feasible)


def _days(campaign: Campaign) -> float:
    """The days that the objective adds up: the horizon where a budget is per user, else 1, as critics know rewards."""
    return float(days_counted(campaign))


def pooled(gaps: Sequence[Gap], shares: Vector) -> Gap:
    """The gap of the mixture of several folds' mixtures, with these shares `[K]`: they err by users of their own."""
    return Gap(
        value=float(shares @ [gap.value for gap in gaps]),
        std_error=float(np.linalg.norm(shares * [gap.std_error for gap in gaps])),
        objective=float(shares @ [gap.objective for gap in gaps]),
        multiplier=tuple((shares @ np.array([gap.multiplier for gap in gaps])).tolist()),
        added=sum(gap.added for gap in gaps),
    )


def gap_words(gap: Gap, campaign: Campaign, of: str) -> str:
    """The gap in one sentence.

    Args:
        gap: it.
        campaign: for units and confidence.
        of: whose best responses they are, e.g. `this critic`.
    """
    error = quantile((1 + campaign.train.confidence) / 2) * gap.std_error
    days = Target.parse(objective(campaign)).days
    unit = f"{campaign.told('reward')} per {f'user in {days} days' if days else 'decision'}"
    share = f" ({gap.share:.1%} ± {error / abs(gap.objective):.1%} of the mixture's)" if gap.objective else ""
    taken = {0: "none of its policies had to be added", 1: "1 policy was added on the way"}.get(
        gap.added, f"{gap.added} policies were added on the way"
    )
    return (
        f"Gap: at the campaign's limits another policy of {of} would add at most {gap.value:.2g} ± {error:.2g} {unit}"
        f"{share}, as select users measure it; {taken}. What was not learned is not in this figure."
    )


class CostsFall(NamedTuple):
    """Whether costs fall as λ grows.

    Attributes:
        pairs: of policies that were compared.
        rising: those in which costs rise by more than noise explains.
        first: the λ of the first of these, in words; empty where there is none.
    """

    pairs: int
    rising: int
    first: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What was found, a sentence or two."""
        if not self.pairs:
            return "Check: one policy was learned, so there is no other to compare its spending with."
        if not self.rising:
            return (
                f"Check: of two policies, the one for a higher price of money (λ) spends less, as it must, in all "
                f"{self.pairs:,} pairs."
            )
        return (
            f"Check: of two policies, the one for a higher price of money (λ) should spend less. In {self.rising:,} of "
            f"{self.pairs:,} pairs it spends more, by more than noise explains, first from λ = {self.first[0]} to "
            f"{self.first[1]}. These were not learned exactly; the mixture is chosen by what was measured."
        )


def worst_of(checks: Sequence[CostsFall]) -> CostsFall:
    """The first check in which costs rise, or else the first."""
    return next((check for check in checks if check.rising), checks[0])


def falls(measured: list[MeasuredPolicy]) -> CostsFall:
    """Whether costs fall as λ grows: (λ − λ')ᵀ(c − c') ≤ 0 for every two exact best responses."""
    if len(measured) < 2:
        return CostsFall(0, 0)
    multiplier = np.array([kept.policy.multiplier for kept in measured])
    cost = np.array([kept.coordinates[1:] for kept in measured])
    error = np.array([kept.std_error[1:] for kept in measured])
    one, other = np.triu_indices(len(measured), 1)
    step = multiplier[other] - multiplier[one]
    rise = (step * (cost[other] - cost[one])).sum(axis=1)
    noise = np.sqrt((step**2 * (error[other] ** 2 + error[one] ** 2)).sum(axis=1))
    # So many pairs are compared that some would rise by chance: all together keep the level.
    wrong = np.flatnonzero(rise > quantile(1 - LEVEL / len(one)) * noise)
    if not len(wrong):
        return CostsFall(len(one), 0)
    ends = (", ".join(f"{price:.3g}" for price in multiplier[pair[wrong[0]]]) for pair in (one, other))
    return CostsFall(len(one), len(wrong), tuple(ends))
