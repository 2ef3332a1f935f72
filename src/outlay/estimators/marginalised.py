"""Marginalised importance sampling: the ratio of the policy's states to the log's × the ratio ρ of one step.

    V̂ = Σ_t w(s_t) ρ_t x_t        ψ_u = share_u·U (V(s₀_u) − V̂) + U Σ_{t∈u} w ρ (x + γ^Δ V(s') − V(s))

The variance does not grow as K^days, for no product of ratios is ever taken. The system behind w and V is in
`marginal_system.py`: exact where states are counted, linear in the features elsewhere.

What this rests on: the propensities; and that the state is Markov, so that what follows a state does not depend on how
it was reached. Totals of k days do not take days to be alike, nor outcomes to depend on the state and action alone
(a log whose propensities follow something outside the state is reweighted rightly), which `fitted.py` does; discounted
values take days to be alike, as the tail beyond the log must. Residuals are divided by √(1 − leverage), as there.

Where states are counted the totals are those of `sequential.py` on one-hot states. Its discounted means are not these:
they take all later days to be like the later half of those that the log shows, which is off by several standard errors
where users stay in their states for long. And its regressions are dense: a thousand states take it minutes.

Source: `marginal_system.py` names them; Kallus & Uehara (2020) for the influence function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from outlay.core.reasons import Reason, ReasonKind
from outlay.core.target import Target
from outlay.estimators.basis import Array, Basis
from outlay.estimators.fitted import LEAST_ROWS, SUPPORT, possible, range_of
from outlay.estimators.importance import few_users, mean_ratio, off_one, row_ratios
from outlay.estimators.joint import Joint, certain, joined, withheld
from outlay.estimators.marginal_system import StateSolution, closed, discounted, of_states, totals
from outlay.estimators.panel import Index, Panel
from outlay.estimators.windowed import over_window

LEAST_BEHIND = 40  # rows


@dataclass(frozen=True, kw_only=True)
class Marginal(Joint):
    """Reweighted values of one policy or mixture: reward, budgets, decisions, `reward@k`, ….

    Attributes:
        leverage: `[T]` mean over the mass: one over the number of rows that typically stand behind a state's value.
        mean_ratio: mean of ρ over the rows with a choice: 1, except for noise, if the propensities are right.
        mean_ratio_error: its standard error, by cluster; of a mixture the weighted sum, the most that it can be.
    """

    leverage: NDArray[np.float64]
    mean_ratio: float = np.nan
    mean_ratio_error: float = np.nan

    @classmethod
    def further(cls, parts: Sequence[Self], weights: Sequence[float], *, apart: bool) -> dict[str, Any]:
        """As in Joint; errors of users who are apart are independent."""
        found = super().further(parts, weights, apart=apart)
        if apart:
            errors = (w * part.mean_ratio_error for w, part in zip(weights, parts, strict=True))
            found["mean_ratio_error"] = sum(error**2 for error in errors) ** 0.5
        return found

    def cautions(self) -> list[Reason | None]:
        """`[T]` why not to rely on a number, or None.

        The mean ratio contradicts the propensities, it rests on few users, or so few rows stand behind a state
        that their weighted mean is biased.
        """
        misfit = off_one(self.mean_ratio, self.mean_ratio_error, self.freedom)
        return [
            misfit or few_users(ess) or _few_rows(float(leverage))
            for ess, leverage in zip(self.ess, self.leverage, strict=True)
        ]


@dataclass(frozen=True)
class Marginalised:
    """Marginalised importance sampling on the rows of a panel.

    It takes about 100 bytes for each row, and 16 for each of its outcomes, while it works; a result takes 16 for each
    user and target.

    Attributes:
        panel: the rows; `basis` is over the same rows.
        basis: of their states and actions; V takes the states.
        support: largest share of paths that meet thin states with which a number is still given.
        least_rows: a state with fewer rows behind it is thin.
        window: days k whose means stand in the place of discounted ones (`windowed.py`); None: discounted.
    """

    panel: Panel
    basis: Basis
    support: float = SUPPORT
    least_rows: int = LEAST_ROWS
    window: int | None = None

    def estimate(
        self,
        policy: NDArray[Any] | None,
        *,
        days: Sequence[int] = (),
        propensity: NDArray[np.floating] | None = None,
        among: NDArray[np.bool_] | None = None,
    ) -> Marginal:
        """Value of a policy: discounted from start rows, and totals of k days from first rows.

        Args:
            policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose ratios are 1.
            days: horizons k of the totals.
            propensity: `[n]` of the logged action; default as logged.
            among: `[U]` users whose value it is; default all. The rows of all users are used in any case.

        Raises:
            LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
        """
        panel, steady = self.panel, self.panel.data.steady
        _, ratio = row_ratios(panel, policy, propensity)
        chosen = np.ones(panel.num_users, np.bool_) if among is None else among
        horizons = sorted({*days, *([] if self.window is None else [self.window])})
        parts = [self._discounted(ratio, chosen)]
        if steady:
            parts.append(self._certain("decisions", 1.0))
        parts += [self._total(ratio, chosen, k) for k in horizons]
        if steady and self.window is not None:
            parts.append(self._certain(str(Target("decisions", self.window)), float(self.window)))
        whole = Marginal(**joined(parts, panel.clusters), leverage=np.concatenate([part.leverage for part in parts]))
        if ratio is not None:
            mean, error = mean_ratio(panel, ratio)
            whole = replace(whole, mean_ratio=mean, mean_ratio_error=error)
        return over_window(whole, (*panel.names, "decisions"), self.window)

    def _discounted(self, ratio: Array | None, chosen: NDArray[np.bool_]) -> Marginal:
        panel, outcome = self.panel, self._outcome(not self.panel.data.steady)
        names = panel.names if panel.data.steady else (*panel.names, "decisions")
        reason = _why_not(ratio, chosen) or (None if closed(panel).any() else Reason(ReasonKind.NOTHING_FOLLOWS))
        if reason is not None:
            return self._withheld(names, reason)
        assert ratio is not None
        share = chosen / chosen.sum()
        solution = discounted(panel, of_states(self.basis), outcome, ratio, share, self.least_rows)
        return self._part(names, solution, share, panel.start, outcome, 1)

    def _total(self, ratio: Array | None, chosen: NDArray[np.bool_], days: int) -> Marginal:
        """The totals of `days` days, where means over a window replace the discounted ones of decisions as well."""
        panel, ones = self.panel, self.window is not None and not self.panel.data.steady
        outcome = self._outcome(ones)
        names = tuple(str(Target(name, days)) for name in (*panel.names, *(["decisions"] if ones else [])))
        shown = (chosen & panel.covers(days)).any()
        reason = _why_not(ratio, chosen) or (None if shown else Reason(ReasonKind.NOT_SHOWN, {"days": days}))
        if reason is not None:
            return self._withheld(names, reason)
        assert ratio is not None
        share = chosen / chosen.sum()
        solution = totals(panel, of_states(self.basis), outcome, ratio, share, self.least_rows, days)
        return self._part(names, solution, share, panel.first, outcome, days)

    def _part(
        self,
        names: tuple[str, ...],
        found: StateSolution,
        share: Array,
        begin: Index,
        outcome: Array,
        rows_at_most: int,
    ) -> Marginal:
        """Values over users with this share `[U]` from the rows `begin` `[U]`, without those the log cannot carry.

        They add up the outcomes `[n, T]` of `rows_at_most` rows.
        """
        panel, first = self.panel, found.value[begin]
        value = share @ first
        shared = found.reason(self.support)
        influence = panel.num_users * (share[:, None] * (first - value) + panel.by_user(found.error))
        whole = Marginal(
            targets=names,
            value=value,
            influence=influence,
            mass=np.repeat(panel.by_user(found.mass[:, None]), len(names), axis=1),
            withheld=(None,) * len(names),
            leverage=np.full(len(names), found.leverage),
        )
        fits = possible(value, range_of(outcome), rows_at_most)
        return whole.without([shared or (None if ok else Reason(ReasonKind.UNSTABLE)) for ok in fits])

    def _outcome(self, decisions: bool) -> Array:
        """`[n, T]` reward and costs, and 1 per decision where that is asked for."""
        panel = self.panel
        return np.column_stack([panel.outcome, ~panel.forced]) if decisions else panel.outcome

    def _certain(self, target: str, value: float) -> Marginal:
        return Marginal(**vars(certain(target, value, self.panel.num_users)), leverage=np.zeros(1))

    def _withheld(self, names: tuple[str, ...], reason: Reason) -> Marginal:
        return Marginal(**withheld(names, self.panel.num_users, reason), leverage=np.ones(len(names)))


def _why_not(ratio: Array | None, chosen: NDArray[np.bool_]) -> Reason | None:
    """Why nothing can be told of these users, or None."""
    if ratio is None:
        return Reason(ReasonKind.NO_PROPENSITIES)
    return None if chosen.any() else Reason(ReasonKind.NOBODY)


def _few_rows(leverage: float) -> Reason | None:
    """Why so few rows behind a state's value are too few, or None."""
    if leverage <= 1 / LEAST_BEHIND:
        return None
    return Reason(ReasonKind.FEW_ROWS, {"count": 1 / leverage, "needed": LEAST_BEHIND})
