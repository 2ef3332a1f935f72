"""The mixture to serve: weights of measured candidates that keep the limits with a margin.

The mixture whose measured objective is best is served. What keeps it from being the luckiest one is done to the
objectives (`candidates.without_luck`). Constant actions take part where they make it better by more than noise, so
no mixture is served that they visibly beat, and none that needs them for nothing.

Weights are solved with every cost raised by the margin with which the mixture is likely to be certified
(`own_margin.py`, `estimators/certificate.py`), but for a budget that a cap holds while serving (`Campaign.held`): it is
to be spent. Where what rare users may cost leaves less than half of a limit, and other errors leave more, no
certificate worth having is in reach, and policies would be chosen by whether a dear user happens to get something from
them: then the margin is that of normal errors. If the pool cannot keep the limits, the spares are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.candidates import (
    CandidatePolicy,
    MeasuredPolicy,
    RunContext,
    constant_actions,
    measure,
    without_luck,
)
from outlay.choosing.measure import Measure
from outlay.choosing.own_margin import with_own_margin
from outlay.core.campaign import Campaign
from outlay.core.errors import InfeasibleError
from outlay.core.inequalities import Inequalities
from outlay.core.reasons import ReasonKind
from outlay.core.transitions import SELECT
from outlay.core.wording import four
from outlay.estimators.certificate import margins
from outlay.estimators.units import coordinates, decisions
from outlay.ops.intervals import Spread, quantile, std_error
from outlay.ops.mixture_lp import FEASIBLE, MixtureSolution, solve_mixture

OUT_OF_REACH = 0.5  # of a limit: a certificate that takes a larger margin is not aimed at
NOISE = 1.0  # standard errors by which a mixture with constant actions has to be better than one without
LUCK = 2.0  # standard errors by which a mixture of policies that a game found one by one has to beat the best of them

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Selection:
    """The mixture as it will be served.

    Attributes:
        members: those with a weight above 0.
        weights: `[k]`.
        margin: `[m]` by which the costs were raised.
        measured: every candidate, spares included.
        measure: what measured them.
        fold_weights: `[K, k]` of the members in the mixture of each fold.
        rare: as of `SolvedMixture`.
    """

    members: tuple[MeasuredPolicy, ...]
    weights: Vector
    margin: Vector
    measured: tuple[MeasuredPolicy, ...]
    measure: Measure
    fold_weights: Vector
    rare: bool = True


@dataclass(frozen=True)
class SolvedMixture:
    """The best mixture of a pool.

    Attributes:
        pool: the policies.
        weights: `[k]`.
        margin: `[m]` with which it keeps the limits.
        rare: whether the margin allows for what rare users may cost, so that a certificate is in reach.
    """

    pool: list[MeasuredPolicy]
    weights: Vector
    margin: Vector
    rare: bool = True


def choose(
    context: RunContext,
    candidates: Sequence[CandidatePolicy],
    spares: Sequence[CandidatePolicy] = (),
    *,
    weights: Vector | None = None,
    alone: bool = False,
    one_first: bool = False,
) -> Selection:
    """Measure policies on *select*, and solve their weights.

    Args:
        context: what they share.
        candidates: the policies to mix.
        spares: added if those cannot keep the limits.
        weights: `[k]` of the candidates, to be kept as they are, whether the candidates can be measured or not; None
            solves them.
        alone: serve one policy: the best of candidates, else of these and spares, else of all and constant actions.
        one_first: as of `choose_among`.

    Raises:
        InfeasibleError: if no mixture keeps the limits, or nothing can be measured.
    """
    measured, measure_used = measure(context, [*candidates, *spares])
    return choose_among(
        context, measured, measure_used, len(candidates), weights=weights, alone=alone, one_first=one_first
    )


def choose_among(
    context: RunContext,
    measured: list[MeasuredPolicy],
    measure: Measure,
    count: int,
    *,
    weights: Vector | None = None,
    alone: bool = False,
    one_first: bool = False,
    constants: Sequence[MeasuredPolicy] | None = None,
) -> Selection:
    """Solve the weights of policies that were measured.

    Args:
        context: what they share.
        measured: the policies, first those to mix, then the spares.
        measure: what measured them.
        count: how many are to be mixed.
        weights: as of `choose`.
        alone: as of `choose`.
        one_first: where states are not counted, serve the best single policy unless a mixture is better by more than
            luck: policies that a game found one after another differ by noise more than by what they spend.
        constants: constant actions, where they were measured before.

    Raises:
        InfeasibleError: as `choose` does.
    """
    first = measured[:count]
    if weights is not None:  # no cost is raised, and nothing has to be known of them
        return _selection(first, weights, np.zeros(len(context.campaign.budgets)), measured, measure)
    learned = best(first, context, alone) or best(measured, context, alone)
    if one_first and learned is not None and not context.counted:
        learned = _one_first(learned, context)
    every = [*measured, *(measured_constants(context, measure) if constants is None else constants)]
    solved = with_constants(learned, best(every, context, alone))
    if solved is not None:
        return _selection(solved.pool, solved.weights, solved.margin, measured, measure, solved.rare)
    # They do not allow the whole margin: as much of it as they allow, which may still get a certificate.
    pool = [each for each in every if each.withheld is None]
    if pool and not alone and solve(pool, context).feasible:
        margin = margins_of(pool, context)
        weights = solve(pool, context, margin).weights
        return _selection(pool, weights, weights @ margin, measured, measure)
    raise _infeasible(every, pool, context.campaign)


def measured_constants(context: RunContext, measure: Measure) -> list[MeasuredPolicy]:
    """Measure constant actions, and take luck out of them."""
    return without_luck(constant_actions(context, measure), context)


def margin_of_constants(context: RunContext) -> Vector:
    """Return `[m]` by how much limits are to be lowered for the best mixture of constant actions, in their own units.

    It is 0 where no such mixture keeps the limits. A mixture near the limits needs about as much, whatever its policies
    are.
    """
    solved = best(constant_actions(context, Measure(context.data, SELECT, None, long_run=True)), context)
    if solved is None:
        return np.zeros(len(context.campaign.budgets))
    # A coordinate is above its limit by x_1 times what the cost per decision is.
    ones = solved.weights @ np.array([decisions(each.fitted, context.campaign) for each in solved.pool])
    lower: Vector = solved.margin / ones
    return lower


def solve(pool: Sequence[MeasuredPolicy], context: RunContext, margin: Vector | float = 0.0) -> MixtureSolution:
    """Return the mixture of the largest objective under the limits, with costs raised by margins `[k, m]` or `[m]`."""
    return solve_mixture(_to_solve(pool), context.limits, context.scale, margin=margin)


def _to_solve(pool: Sequence[MeasuredPolicy]) -> Vector:
    """`[k, 1+m]` what mixtures maximise, and budgets in ≤ form."""
    return np.array([[each.objective, *each.coordinates[1:]] for each in pool])


def _best_keeping(pool: list[MeasuredPolicy], margin: Vector, context: RunContext) -> Vector | None:
    """All weight on the best policy that keeps the limits with its margins `[k, m]`; None if none does."""
    values = _to_solve(pool)
    keeps = ((values[:, 1:] + margin - context.limits) / context.scale <= FEASIBLE).all(axis=1)
    return np.eye(len(pool))[np.where(keeps, values[:, 0], -np.inf).argmax()] if keeps.any() else None


def _best_alone(pool: list[MeasuredPolicy], margin: Vector, context: RunContext) -> Vector | None:
    """All weight on the best policy that keeps the limits: with the margins if one does, else without."""
    kept = _best_keeping(pool, margin, context)
    return kept if kept is not None else _best_keeping(pool, 0 * margin, context)


def best(policies: Sequence[MeasuredPolicy], context: RunContext, alone: bool = False) -> SolvedMixture | None:
    """Return the best mixture of these, or the best single policy if `alone`; None if none keeps the limits."""
    pool = [each for each in policies if each.withheld is None]
    if not pool:
        return None
    if alone:
        margin = margins_of(pool, context)
        one = _best_alone(pool, margin, context)
        return None if one is None else SolvedMixture(pool, one, one @ margin)

    def solved(margin: Vector) -> Vector | None:
        solution = solve(pool, context, margin)
        return solution.weights if solution.feasible else None

    def needed(weights: Vector, rare: bool = True) -> Vector:
        used = np.flatnonzero(weights)
        return _margin([pool[i] for i in used], weights[used], context, rare)

    def in_reach(margin: Vector) -> bool:
        return bool((margin <= OUT_OF_REACH * np.abs(context.limits)).all())

    found = with_own_margin(solved, needed)
    if found is None or not in_reach(found[1]):
        normal = with_own_margin(solved, partial(needed, rare=False))
        if normal is not None and in_reach(normal[1]):
            return SolvedMixture(pool, *normal, rare=False)
    return None if found is None else SolvedMixture(pool, *found)


def with_constants(learned: SolvedMixture | None, wider: SolvedMixture | None) -> SolvedMixture | None:
    """Return the mixture that constant actions take part in, if it is better than that without by more than noise."""
    if learned is None or wider is None:
        return wider if learned is None else learned
    ahead, error = _ahead(wider, learned)
    return wider if ahead > NOISE * error else learned


def _one_first(mixture: SolvedMixture, context: RunContext) -> SolvedMixture:
    """The best single policy that keeps the limits with its margins, unless the mixture is better by more than luck."""
    margin = margins_of(mixture.pool, context, mixture.rare)
    one = _best_keeping(mixture.pool, margin, context)
    if one is None:
        return mixture
    single = SolvedMixture(mixture.pool, one, one @ margin, mixture.rare)
    ahead, error = _ahead(mixture, single)
    return mixture if ahead > LUCK * error else single


def _ahead(one: SolvedMixture, other: SolvedMixture) -> tuple[float, float]:
    """By how much one mixture is above the other, and the standard error: they are measured on the same users."""
    (a, first), (b, second) = _objective(one), _objective(other)
    return a - b, float(std_error(first - second))


def _objective(solved: SolvedMixture) -> tuple[float, Vector]:
    """The objective of a mixture, and the influence of every user on it."""
    pairs = [(weight, each) for weight, each in zip(solved.weights, solved.pool, strict=True) if weight > 0]
    value = sum(weight * each.objective for weight, each in pairs)
    return float(value), np.sum([weight * each.objective_influence for weight, each in pairs], axis=0)


def _margin(members: list[MeasuredPolicy], weights: Vector, context: RunContext, rare: bool = True) -> Vector:
    """`[m]` by which the costs of a sticky mixture of some policies are raised."""
    influence = []
    for fits in ([each.fitted for each in members], [each.certifying for each in members]):
        parts = [w * coordinates(fitted, context.campaign)[1][:, 1:] for fitted, w in zip(fits, weights, strict=True)]
        influence.append(np.sum(parts, axis=0))
    known = weights @ np.array([each.reach.known for each in members])
    beyond = weights @ np.array([each.reach.beyond[1:] for each in members])
    data, margin = context.data, context.campaign.train.margin
    spread = Spread.of(influence[1], known, beyond, clustered=data.cluster is not None)
    certifying = spread.scaled(data.independent(data.certifying))
    # The folds' mixtures are certified as one, and were chosen on users who have nobody in common.
    return margins(
        std_error(influence[0]) / np.sqrt(data.folds),
        certifying,
        factor=quantile(1 - context.own_share * context.alpha),
        margin=margin,
        further=weights @ np.array([each.further for each in members]),
        held=context.campaign.held,
        rare=rare,
    )


def margins_of(pool: list[MeasuredPolicy], context: RunContext, rare: bool = True) -> Vector:
    """Return `[k, m]` by which each policy's costs are raised; `rare` as of `SolvedMixture`."""
    for each in pool:
        if (id(each.fitted), rare) not in context.margins:
            own = _margin([each], np.ones(1), context, rare)
            context.margins[id(each.fitted), rare] = each.fitted, own
    return np.array([context.margins[id(each.fitted), rare][1] for each in pool])


def _selection(
    pool: list[MeasuredPolicy],
    weights: Vector,
    margin: Vector,
    measured: list[MeasuredPolicy],
    measure: Measure,
    rare: bool = True,
) -> Selection:
    members = tuple(each for each, weight in zip(pool, weights, strict=True) if weight > 0)
    share = weights[weights > 0]
    return Selection(members, share, margin, tuple(measured), measure, share[None], rare)


def _infeasible(measured: list[MeasuredPolicy], pool: list[MeasuredPolicy], campaign: Campaign) -> InfeasibleError:
    if not pool:
        return InfeasibleError(
            f"too few users to measure what any policy is worth: {_why_not(measured)}.",
            file=campaign.path,
            way_out="Use a longer or larger log, a shorter campaign.horizon_days if a limit is per user, or leave "
            "out actions that were hardly ever given (log.actions).",
        )
    form = Inequalities.of(campaign.budgets)
    costs = form.signs * np.array([form.shown(each.coordinates[1:], each.decisions) for each in pool])
    least, place = costs.min(axis=0), costs.argmin(axis=0)
    absent = [each for each in measured if each.withheld]
    alone = np.flatnonzero(least > form.limits).tolist() or range(len(least))
    words = "; ".join(
        f"{b.name}: the limit is {b.words}, and the {'least' if b.sign > 0 else 'most'} that was measured is "
        f"{four(round(b.sign * least[j], 9) + 0)} (by {pool[place[j]].policy.name})"
        for j, b in enumerate(campaign.budgets)
        if j in alone
    )
    if absent:
        words += f". {len(absent)} could not be measured, for example {absent[0].policy.name}: {absent[0].withheld}"
    return InfeasibleError(
        f"no candidate keeps the limits, and neither do constant actions. {words}.",
        file=campaign.path,
        where="[[budget]]",
        way_out="Raise a ceiling or lower a floor beyond what was measured, with some room for the certificate, or "
        "allow actions that reach it (log.actions).",
    )


def _why_not(measured: list[MeasuredPolicy]) -> str:
    """Why none could be measured; reasons that differ in their figures alone are given once."""
    alike: dict[ReasonKind, list[MeasuredPolicy]] = {}
    for each in measured:
        assert each.withheld is not None
        alike.setdefault(each.withheld.kind, []).append(each)
    words = []
    for same in alike.values():
        nearest = min(same, key=lambda each: float(each.certifying.unsupported.max()))
        name = nearest.policy.name
        who = name if len(same) == 1 else f"{len(same)} policies, of which {name} comes nearest"
        words.append(f"{who}: {nearest.withheld}")
    return "; ".join(words)
