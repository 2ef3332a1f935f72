"""Marginalised importance sampling: the ratio of the policy's states to the log's × the ratio ρ of one step.

    V̂ = Σ_t w(s_t) ρ_t x_t        ψ_u = share_u·U (V(s₀_u) − V̂) + U Σ_{t∈u} w ρ (x + γ^Δ V(s') − V(s))

The variance does not grow as K^days, for no product of ratios is ever taken. The system behind w and V is in
`marginal_system.py`: exact where states are counted, linear in the features elsewhere.

What this rests on: the propensities; and that the state is Markov, so that what follows a state does not depend on how
it was reached. Totals of k days do not take days to be alike, nor outcomes to depend on the state and action alone
(a log whose propensities follow something outside the state is reweighted rightly), which `fitted.py` does; discounted
values take days to be alike, as the tail beyond the log must. Residuals are divided by √(1 − leverage), as there.

Source: `marginal_system.py` names them; Kallus & Uehara (2020) for the influence function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.target import Target
from outlay.estimators.importance import NO_PROPENSITIES, few_users, mean_ratio, off_one, row_ratios
from outlay.estimators.joint import Everyone, Joint, UserFold, certain, joined, mixed, pooled, withheld
from outlay.estimators.linear.basis import Array, Basis
from outlay.estimators.linear.marginal_system import StateSolution, closed, discounted, of_states, totals
from outlay.estimators.linear.sample import IMPOSSIBLE, NOTHING_FOLLOWS, UNSTABLE
from outlay.estimators.panel import Index, Panel
from outlay.estimators.windowed import over_window

NOBODY = "none of the users asked for is in the log"
LEAST_BEHIND = 40  # rows
FEW_ROWS = f"some {{:.0f}} rows stand behind each of its states; {LEAST_BEHIND} are needed"


@dataclass(frozen=True, kw_only=True)
class Marginal(Joint):
    """Reweighted values of one policy or mixture: reward, budgets, decisions, `reward@k`, ….

    Attributes:
        unsupported: `[T]` share of the policy's paths that meet a state about which the log says too little.
        largest: `[T]` largest share of the mass that one user has.
        leverage: `[T]` mean over the mass: one over the number of rows that typically stand behind a state's value.
        mean_ratio: mean of ρ over the rows with a choice: 1, except for noise, if the propensities are right.
        mean_ratio_error: its standard error, by cluster.
    """

    unsupported: NDArray[np.float64]
    largest: NDArray[np.float64]
    leverage: NDArray[np.float64]
    mean_ratio: float
    mean_ratio_error: float

    def cautions(self) -> list[str | None]:
        """`[T]` why not to rely on a number, or None.

        The mean ratio contradicts the propensities, it rests on few users, or so few rows stand behind a state
        that their weighted mean is biased.
        """
        misfit = off_one(self.mean_ratio, self.mean_ratio_error, self.freedom)
        return [
            misfit or few_users(ess) or (FEW_ROWS.format(1 / leverage) if leverage > 1 / LEAST_BEHIND else None)
            for ess, leverage in zip(self.ess, self.leverage, strict=True)
        ]


def estimate(
    panel: Panel,
    basis: Basis,
    policy: NDArray[Any] | None,
    *,
    days: Sequence[int],
    propensity: NDArray[np.floating] | None = None,
    among: NDArray[np.bool_] | None = None,
    support: float = 0.01,
    least_rows: int = 2,
    window: int | None = None,
) -> Marginal:
    """Value of a policy: discounted from start rows, and totals of k days from first rows.

    It takes about 100 bytes for each row, and 16 for each of its outcomes, while it works; a result takes 16 for each
    user and target.

    Args:
        panel: the rows.
        basis: of their states and actions; V takes the states.
        policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose ratios are 1.
        days: horizons k of the totals.
        propensity: `[n]` of the logged action; default as logged.
        among: `[U]` users whose value it is; default all. The rows of all users are used in any case.
        support: largest share of paths that meet thin states with which a number is still given.
        least_rows: a state with fewer rows behind it is thin.
        window: days k whose means stand in the place of discounted ones (`windowed.py`); None: discounted.

    Raises:
        LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
    """
    _, ratio = row_ratios(panel, policy, propensity)
    chosen = np.ones(panel.num_users, np.bool_) if among is None else among
    parts = [_discounted(panel, basis, ratio, chosen, least_rows, support)]
    horizons = sorted({*days, *([] if window is None else [window])})
    if panel.data.steady:
        parts.append(_certain("decisions", 1.0, panel))
    ones = window is not None and not panel.data.steady
    parts += [_totals(panel, basis, ratio, chosen, least_rows, support, k, ones) for k in horizons]
    if window is not None and not ones:
        parts.append(_certain(str(Target("decisions", window)), float(window), panel))
    mean, error = (np.nan, np.nan) if ratio is None else mean_ratio(panel, ratio)
    fields = joined(parts, panel.clusters)
    whole = Marginal(
        **fields,
        unsupported=np.repeat([part.unsupported for part in parts], [len(part.targets) for part in parts]),
        largest=_largest(fields["mass"]),
        leverage=np.repeat([part.leverage for part in parts], [len(part.targets) for part in parts]),
        mean_ratio=mean,
        mean_ratio_error=error,
    )
    return over_window(whole, (*panel.names, "decisions"), window)


def combine(parts: Sequence[Marginal], weights: NDArray[np.float64]) -> Marginal:
    """The sticky mixture of policies estimated from the same users, with weights `[k]` ≥ 0.

    Its `mean_ratio_error` is the weighted sum of its members', the most that it can be.
    """
    fields = mixed(parts, weights)
    used = [(float(w), part) for w, part in zip(weights, parts, strict=True) if w != 0]
    return Marginal(
        **fields,
        unsupported=np.asarray(sum(w * part.unsupported for w, part in used)),
        largest=_largest(fields["mass"]),
        leverage=np.asarray(sum(w * part.leverage for w, part in used)),
        mean_ratio=sum(w * part.mean_ratio for w, part in used),
        mean_ratio_error=sum(w * part.mean_ratio_error for w, part in used),
    )


def pool(parts: Sequence[Marginal], folds: Sequence[UserFold], everyone: Everyone) -> Marginal:
    """The weighted mean of estimates from users that have nobody in common (`joint.pooled`)."""
    fields, shared = pooled(parts, folds, everyone), list(zip(parts, folds, strict=True))
    return Marginal(
        **fields,
        unsupported=np.asarray(sum(fold.share * part.unsupported for part, fold in shared)),
        largest=_largest(fields["mass"]),
        leverage=np.asarray(sum(fold.share * part.leverage for part, fold in shared)),
        mean_ratio=sum(fold.share * part.mean_ratio for part, fold in shared),
        mean_ratio_error=sum((fold.share * part.mean_ratio_error) ** 2 for part, fold in shared) ** 0.5,
    )


@dataclass(frozen=True, kw_only=True)
class _Part(Joint):
    """Some targets that share their ratios, and so the share of paths that meet thin states."""

    unsupported: float
    leverage: float


def _discounted(
    panel: Panel, basis: Basis, ratio: Array | None, chosen: NDArray[np.bool_], least_rows: int, support: float
) -> _Part:
    steady = panel.data.steady
    names = panel.names if steady else (*panel.names, "decisions")
    if ratio is None:
        return _withheld(panel, names, NO_PROPENSITIES)
    if not chosen.any():
        return _withheld(panel, names, NOBODY)
    if not closed(panel).any():
        return _withheld(panel, names, NOTHING_FOLLOWS)
    share = chosen / chosen.sum()
    outcome = panel.outcome if steady else np.column_stack([panel.outcome, ~panel.forced])
    solution = discounted(panel, of_states(basis), outcome, ratio, share, least_rows)
    return _part(panel, names, solution, share, panel.start, _range(outcome), support)


def _totals(
    panel: Panel,
    basis: Basis,
    ratio: Array | None,
    chosen: NDArray[np.bool_],
    least_rows: int,
    support: float,
    days: int,
    ones: bool,
) -> _Part:
    """Totals of `days` days; `ones`: of decisions as well."""
    outcome = np.column_stack([panel.outcome, ~panel.forced]) if ones else panel.outcome
    names = tuple(str(Target(name, days)) for name in (*panel.names, *(["decisions"] if ones else [])))
    if ratio is None:
        return _withheld(panel, names, NO_PROPENSITIES)
    if not chosen.any():
        return _withheld(panel, names, NOBODY)
    if not (chosen & panel.covers(days)).any():
        return _withheld(panel, names, f"no user's window covers {days} days")
    share = chosen / chosen.sum()
    solution = totals(panel, of_states(basis), outcome, ratio, share, least_rows, days)
    return _part(panel, names, solution, share, panel.first, days * _range(outcome), support)


def _part(
    panel: Panel,
    names: tuple[str, ...],
    found: StateSolution,
    share: Array,
    begin: Index,
    bounds: Array,
    support: float,
) -> _Part:
    """Values over users with this share `[U]` from the rows `begin` `[U]`, without those the log cannot carry.

    `bounds` `[2, T]` is the least and the most that outcomes can add up to.
    """
    users, first = panel.num_users, found.value[begin]
    value = share @ first
    slack = IMPOSSIBLE * (bounds[1] - bounds[0]) + 1e-9
    possible = (value >= bounds[0] - slack) & (value <= bounds[1] + slack)
    shared = found.reason(support)
    reasons = tuple(shared or (None if ok else UNSTABLE) for ok in possible)
    gone = np.array([reason is not None for reason in reasons])
    influence = users * (share[:, None] * (first - value) + panel.by_user(found.error))
    return _Part(
        targets=names,
        value=np.where(gone, np.nan, value),
        influence=np.where(gone, np.nan, influence),
        mass=np.repeat(panel.by_user(found.mass[:, None]), len(names), axis=1),
        withheld=reasons,
        unsupported=min(1.0, found.unsupported),
        leverage=found.leverage,
    )


def _certain(target: str, value: float, panel: Panel) -> _Part:
    return _Part(**vars(certain(target, value, panel.num_users)), unsupported=0.0, leverage=0.0)


def _withheld(panel: Panel, names: tuple[str, ...], reason: str) -> _Part:
    return _Part(**withheld(names, panel.num_users, reason), unsupported=1.0, leverage=1.0)


def _range(outcome: Array) -> Array:
    """`[2, T]` the least and the most that a row can bring, or no row."""
    return np.stack([np.minimum(outcome.min(axis=0), 0), np.maximum(outcome.max(axis=0), 0)])


def _largest(mass: Array) -> Array:
    """`[T]` largest share of the mass `[U, T]` that one user has."""
    size = np.abs(mass)
    total = size.sum(axis=0)
    share: Array = np.divide(size.max(axis=0), total, out=np.zeros_like(total), where=total > 0)
    return share
