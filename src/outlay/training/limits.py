"""Whether limits can be kept together at all: before anything is trained.

Where states are counted and limits are per decision, the counted model tells (`check_possible`). Everywhere, what
single days of the log have cost may prove that they cannot (`check_together`):

    v ∈ Rᵐ       a day's excess over the limits, in ≤ form: c − limit where a decision was made
    any policy   its excess is a mean of days; where each is like a day of the log it lies in the hull of the log's v
    proof        λ ≥ 0 with  λᵀv > 0  on every day of the log: then λᵀ(its excess) > 0, so some limit is broken

Nothing is estimated, so there is no error and no look at what states lead to; days may come in any order and of any
users. Limits on costs that follow from the action (how many got a coupon, what it is worth) can be proved to be too
tight this way. Where a cost also depends on what a user does, some day of the log mostly keeps every limit, and nothing
is said.

λ is found by column generation over rows: the least violation over the hull of a few, whose duals ask all rows for the
one that keeps the limits best. Source: Farkas' lemma; the days as columns: ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Budget, Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import InfeasibleError
from outlay.core.inequalities import Inequalities
from outlay.core.transitions import LEARN, Transitions
from outlay.core.wording import advised, four
from outlay.ops.mixture_lp import solve_mixture
from outlay.ops.tabular import constrained_optimum, reachable_limits

ROUNDING = 1e-6  # scaled: what single precision makes of costs that meet their limit
ROUNDS = 100  # of column generation; a handful is usual

Vector = NDArray[np.float64]


class Proof(NamedTuple):
    """λ `[m]` ≥ 0, and what λᵀv is at least on every day: above 0."""

    multiplier: Vector
    least: float


def check_together(data: Transitions, campaign: Campaign) -> None:
    """Whether days of the log's *learn* users can be mixed so that all limits are kept.

    Raises:
        InfeasibleError: if they cannot, with the proof.
    """
    rows = data.rows_of(LEARN)
    cost = np.asarray(data.outcome[rows, 1:], np.float64)
    for per in ("decision", "user"):  # they weigh days differently, so they prove nothing about one another
        places = [j for j, budget in enumerate(campaign.budgets) if budget.per == per]
        if not places:
            continue
        budgets = [campaign.budgets[j] for j in places]
        form = Inequalities.of(budgets)
        limits = form.limits / _days(per, campaign)
        signed = cost[:, places] * form.signs
        if per == "decision":
            excess = signed - np.where(np.asarray(data.forced[rows]), 0.0, 1.0)[:, None] * limits
        else:
            excess = signed - limits
            if not data.steady:
                excess = np.vstack([excess, -limits])  # a day without a row
        scale = np.maximum(np.abs(limits), signed.std(axis=0))
        found = proof(excess / np.where(scale > 0, scale, 1.0))
        if found is not None:
            raise _infeasible(
                found.multiplier / np.where(scale > 0, scale, 1.0), found.least, budgets, limits, campaign
            )


def proof(excess: Vector) -> Proof | None:
    """λ that no mean of the rows `[n, m]` can be at most 0 by, or None where there is none.

    Args:
        excess: over the limits, in units in which 1 is much.
    """
    count = excess.shape[1]
    used = {int(row) for row in np.append(excess.argmin(axis=0), excess.max(axis=1).argmin())}
    for _ in range(ROUNDS):
        columns = excess[sorted(used)]
        solution = solve_mixture(np.column_stack([np.zeros(len(columns)), columns]), np.zeros(count), np.ones(count))
        if solution.violation <= ROUNDING:
            return None
        value = excess @ solution.duals
        best = int(value.argmin())
        if value[best] > ROUNDING:
            return Proof(solution.duals, float(value[best]))
        if best in used:
            return None
        used.add(best)
    return None


def _days(per: str, campaign: Campaign) -> int:
    """Days that a limit is about."""
    return 1 if per == "decision" else campaign.meta.horizon_days


def _infeasible(
    multiplier: Vector, least: float, budgets: list[Budget], limits: Vector, campaign: Campaign
) -> InfeasibleError:
    """The error, with the sum of costs that proves it and what each limit would have to be at least."""
    used = [j for j in range(len(budgets)) if multiplier[j] > ROUNDING * multiplier.max()]
    where = ", ".join(f"budget {budgets[j].name} ({budgets[j].words})" for j in used)
    days = [_days(budget.per, campaign) for budget in budgets]
    within = [(limits[j] + least / multiplier[j]) * days[j] * budgets[j].sign for j in used]
    ends = [four(end) for end in within]
    if len(used) == 1:
        (j,), (end,) = used, ends
        most, words = budgets[j].sign < 0, f"is {end} per decision"
        if budgets[j].per == "user":
            words = f"comes to {end} per user over {days[j]} days"
        return InfeasibleError(
            f"no policy keeps this limit: the {'most' if most else 'least'} that a day of the learn users shows "
            f"{words}.",
            file=campaign.path,
            where=where,
            way_out=f"{'Lower' if most else 'Raise'} the limit at least that far "
            f"(to {advised(within[0], budgets[j].sign)}), or allow other actions (log.actions).",
        )
    price = multiplier / multiplier[used[0]]
    asked = float(price[used] @ limits[used])
    shown = asked + least / multiplier[used[0]]
    terms: list[str] = []
    for j in used:
        sign = "" if not terms and budgets[j].sign > 0 else "− " if budgets[j].sign < 0 else "+ "
        factor = "" if abs(price[j] - 1) < ROUNDING else f"{four(price[j])}·"
        terms.append(f"{sign}{factor}{budgets[j].name}")
    ways = [
        f"{'raise' if budgets[j].sign > 0 else 'lower'} {budgets[j].name} to {end}"
        for j, end in zip(used, ends, strict=True)
    ]
    return InfeasibleError(
        f"their limits cannot be kept together by any policy: {' '.join(terms)} is {four(shown)} or more on every day "
        f"of the learn users, and the limits ask for {four(asked)} or less.",
        file=campaign.path,
        where=where,
        way_out=f"At the least {' or '.join(ways)}, or add actions that reach further.",
    )


def check_possible(data: Transitions, campaign: Campaign, limits: Vector, model: TabularCMDP) -> None:
    """Whether a counted model has any policy that keeps the limits, where those are per decision.

    Raises:
        InfeasibleError: if it has none.
    """
    if data.states is None or any(budget.per != "decision" for budget in campaign.budgets):
        return
    signed = replace(model, cost=Inequalities.of(campaign.budgets).signs * model.cost)
    try:
        constrained_optimum(signed, limits, allowed=data.states.allowed)
    except InfeasibleError:
        reached = reachable_limits(signed, limits, allowed=data.states.allowed)
        raise _out_of_reach(reached, campaign) from None


def _out_of_reach(reached: Vector, campaign: Campaign) -> InfeasibleError:
    """Return the error for limits that no policy keeps.

    Args:
        reached: `[m]` limits in ≤ form, per decision, that some policy keeps together.
        campaign: the limits as written.
    """
    ends = [(b, advised(float(b.sign * end), b.sign)) for b, end in zip(campaign.budgets, reached, strict=True)]
    if len(ends) == 1:
        (budget, end), *_ = ends
        found = f"this limit: the {'least' if budget.sign > 0 else 'most'} that a policy reaches is {end} per decision"
    else:
        words = " and ".join(
            f"{b.name} {'at most' if b.sign > 0 else 'at least'} {end} per decision" for b, end in ends
        )
        found = f"these limits together; it would have to be {words}"
    return InfeasibleError(
        f"no policy keeps {found}, by the log's learn users.",
        file=campaign.path,
        where=", ".join(f"budget {b.name} ({b.words})" for b in campaign.budgets),
        way_out=f"{_loosen(campaign)} at least that far, and a little further for the certificate, or allow other "
        "actions (log.actions).",
    )


def _loosen(campaign: Campaign) -> str:
    limits = "the limit" if len(campaign.budgets) == 1 else "the limits"
    signs = {b.sign for b in campaign.budgets}
    return f"{'Raise' if signs == {1} else 'Lower' if signs == {-1} else 'Loosen'} {limits}"
