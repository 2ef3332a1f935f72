"""Fitted Q evaluation in a linear class, as one linear system, with the influence function of its value.

Discounted, rows with a next row or a terminal end, φ' = φ(s', π(s')) (0 where terminal):

    M θ = Σ φ (1−γ) x        M = Σ φ (φ − γ^Δ φ')ᵀ        V = mean over users of φ(s₀, π(s₀))ᵀ θ
    ψ_u = φ₀_uᵀθ − V + U Σ_{t∈u} (dᵀφ_t) δ_t              d = M⁻ᵀ mean φ₀,   δ = (1−γ) x + γ^Δ φ'ᵀθ − φᵀθ

dᵀφ_t is the marginal ratio (of the policy's visits to the log's): with counted states exactly the counted ratio.

Totals of k days, from first rows, go by the horizon that is left (`recursion.py`). Sums run over cells of alike rows
(`cells.py`), and what no policy changes is computed once for all policies.

Truncated rows take part only where their future does not matter: γ = 0, or the log covers the h days after them.

What this rests on: outcomes and moves depend on state and action alone, the same on every day of the log (that is how
a week of log speaks for the tail beyond it), and Q lies in the basis. Residuals are divided by √(1 − leverage), as a
coefficient follows its own rows (HC2). A pair (s', π(s')) with fewer than `least_rows` rows behind it takes the
state-free mean of its action; where more than `support` of the policy's paths need that, no number is given.

Source: Le, Voloshin & Yue (2019) for FQE; Lagoudakis & Parr (2003) for the system; Kallus & Uehara (2020) for the
influence function; MacKinnon & White (1985) for HC2. The k-day recursion and its adjoint: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.basis import Array, Basis, Solver
from outlay.estimators.cells import Log, Moves
from outlay.estimators.joint import Joint, mixed
from outlay.estimators.panel import Panel
from outlay.estimators.recursion import backward, forward
from outlay.estimators.regression import Need, Regression, Stage, regress

IMPOSSIBLE = 0.1  # how far, in ranges of the outcome, a value may leave what outcomes can add up to


@dataclass(frozen=True, kw_only=True)
class Fitted(Joint):
    """Fitted values of one policy or mixture: reward, budgets, decisions, `reward@k`, ….

    `reward`, budgets and `decisions` (1 per decision) are (1−γ)·J over the start population; `@k` are totals of k
    days per user.

    Attributes:
        unsupported: `[T]` share of the policy's paths that meet a pair about which the log says too little.
        daily: `[D, 1+m]` totals of the first 1, 2, …, D days per user, D the longest k; NaN where the total of the next
            longer k is withheld. Points only: they come with the longest k for nothing.
    """

    unsupported: NDArray[np.float64]
    daily: NDArray[np.float64]


def combine(fitted: Sequence[Fitted], weights: NDArray[np.float64]) -> Fitted:
    """The sticky mixture of policies fitted on the same users, with weights `[k]` ≥ 0."""
    used = [(w, part) for w, part in zip(weights, fitted, strict=True) if w != 0]
    return Fitted(
        **mixed(fitted, weights),
        unsupported=np.asarray(sum(w * part.unsupported for w, part in used)),
        daily=np.asarray(sum(w * part.daily for w, part in used)),
    )


def fit(
    panel: Panel,
    basis: Basis,
    policy: NDArray[Any] | None = None,
    *,
    days: Sequence[int] = (),
    support: float = 0.01,
    least_rows: int = 2,
) -> Fitted:
    """Value of one policy: `Evaluator(panel, basis, …).fit(policy, days=days)`."""
    return Evaluator(panel, basis, support, least_rows).fit(policy, days=days)


@dataclass(frozen=True)
class Evaluator:
    """Fitted evaluation on the rows of a panel; what no policy changes is computed once for all of them.

    It keeps the cells of the log (16 bytes a row, 8 for each of its outcomes, and about 60 for each cell) and, for each
    set of usable rows (of which there are at most as many as days), a Gram matrix with its factors. A fit takes 8 bytes
    for each day up to the longest k, point and outcome while it works; points are pairs of a state and an action, or
    rows where states are not counted. A result takes 16 bytes for each user and target: 33 policies with 3 targets of
    90,000 users are 140 MB.

    Attributes:
        panel: the rows; `basis` is over the same rows.
        basis: Counted or Features.
        support: largest share of paths that meet thin pairs with which a number is still given.
        least_rows: a pair with fewer rows behind it is thin.
    """

    panel: Panel
    basis: Basis
    support: float = 0.01
    least_rows: int = 2

    def fit(
        self,
        policy: NDArray[Any] | None = None,
        *,
        days: Sequence[int] = (),
        among: NDArray[np.bool_] | None = None,
    ) -> Fitted:
        """Value of a policy on the users of the panel.

        Args:
            policy: as `Panel.follow` takes it: `[n]`, `[n, K]` or None.
            days: horizons k of the totals.
            among: `[U]` users whose value it is; default all. Every user's rows speak all the same.

        Raises:
            LogError: if the policy takes an action that is not allowed.
        """
        moves = Moves.of(self.panel, self._log, self.panel.follow(policy))
        users = self.panel.num_users
        share = np.full(users, 1 / users) if among is None else among / max(1, among.sum())
        horizons = sorted(set(days))
        known: dict[int, Stage] = {}

        def stage(reg: Regression) -> Stage:
            if id(reg) not in known:
                known[id(reg)] = Stage.of(reg, self.basis, moves, self.least_rows)
            return known[id(reg)]

        discounted = self._discounted(moves, stage(self._regression(None)), share)
        stages = [stage(self._regression(h)) for h in range(1, max(horizons, default=0) + 1)]
        totals, daily = self._totals(moves, stages, horizons, share)
        parts = [discounted, *totals]
        return Fitted(
            targets=tuple(name for part in parts for name in part.targets),
            value=np.concatenate([part.value for part in parts]),
            influence=np.hstack([part.influence for part in parts]),
            mass=np.hstack([part.mass for part in parts]),
            withheld=tuple(reason for part in parts for reason in part.withheld),
            unsupported=np.concatenate([part.unsupported for part in parts]),
            daily=daily,
        )

    @cached_property
    def _log(self) -> Log:
        return Log.of(self.panel, self.basis.alike)

    @cached_property
    def _outcome(self) -> Array:
        """`[n, T]` what is discounted: reward, costs, and 1 per decision where policies differ in that."""
        outcome = self.panel.outcome
        return np.asfortranarray(outcome if self.panel.data.steady else np.column_stack([outcome, ~self.panel.forced]))

    @cached_property
    def _range(self) -> tuple[Array, Array]:
        """Least and most `[T]` that a row can bring."""
        return np.minimum(self._outcome.min(axis=0), 0), np.maximum(self._outcome.max(axis=0), 0)

    @cached_property
    def _sums(self) -> Array:
        """`[B, T]` outcomes, summed over the rows of each cell of the log."""
        cells = self._log.cells
        return np.stack([np.bincount(cells.of, x, len(cells.rows)) for x in self._outcome.T], axis=1)

    @cached_property
    def _regressions(self) -> dict[int, Regression]:
        return {}

    def _regression(self, left: int | None) -> Regression:
        """Of values with so many days left; None for discounted values."""
        log = self._log
        usable = ~log.open | (self.panel.discount == 0 if left is None else log.left >= left)
        # Usable rows only shrink as the horizon grows, so their number says which set it is.
        key = int(usable.sum())
        if key not in self._regressions:
            self._regressions[key] = regress(self.panel, self.basis, log.cells, self._sums, usable)
        return self._regressions[key]

    def _discounted(self, moves: Moves, stage: Stage, share: Array) -> Fitted:
        """(1−γ)·J of reward, costs and decisions over the start rows of users with this share `[U]`."""
        panel, basis, reg = self.panel, self.basis, stage.reg
        weight = np.where(stage.following >= 0, panel.discount ** stage.gap.astype(float), 0.0)
        on = np.flatnonzero(weight > 0)
        following, mass = stage.following[on], (weight * stage.count)[on]

        place, pair = moves.expand(following)
        flow = basis.moment(stage.logged[on[place]], stage.taken[pair], mass[place] * moves.chance[pair])
        solver = Solver(reg.gram - flow) if len(on) else reg.solver
        theta = solver.solve((1 - panel.discount) * reg.outcome)
        starts = np.bincount(moves.start, share, moves.num_points).astype(np.float64)
        dual = solver.solve_transposed(stage.arrivals(basis, starts[:, None]))

        values = stage.values(basis, theta)
        both = basis.evaluate(stage.logged, np.hstack([theta, dual]))
        fitted, visits = both[:, :-1], both[:, -1:]
        slope = visits * stage.inflation[:, None]
        ahead = -fitted
        ahead[on] += weight[on, None] * values[following]
        offset = slope * ahead
        if stage.thin.any():  # the state-free means are estimated too
            free = stage.logged.state_free
            offset += basis.evaluate(free, dual) * (fitted - basis.evaluate(free, theta))

        need = Need(panel.data.actions)
        need.add(stage, moves.start, share)
        need.add(stage, following, np.abs(visits[on, 0]) * mass)
        terms = np.zeros((len(moves.logged), 2 + offset.shape[1]))
        terms[stage.cells] = np.column_stack([visits, (1 - panel.discount) * slope, offset])
        names = panel.names if panel.data.steady else (*panel.names, "decisions")
        result = self._result(names, values[moves.start], share, moves, terms, need, reg, 1)
        return _with_decisions(result) if panel.data.steady else result

    def _totals(
        self, moves: Moves, stages: Sequence[Stage], horizons: Sequence[int], share: Array
    ) -> tuple[list[Fitted], Array]:
        """Totals of k days from first rows for each k of `horizons`, and the points of all days up to the longest.

        `stages[h − 1]` is the regression with h days left.
        """
        names = self.panel.names
        ahead = forward(self.basis, moves, stages, len(names))
        back = backward(self.basis, moves, stages, horizons, ahead, share, self.panel.data.actions)
        daily = np.full((len(stages), len(names)), np.nan)
        found: list[Fitted] = []
        for k, horizon in enumerate(horizons):
            first = ahead.values[horizon][moves.first]
            terms = np.column_stack([back.visits[:, k], back.slope[:, k], back.offset[:, k]])
            targets = tuple(f"{name}@{horizon}" for name in names)
            reg = stages[horizon - 1].reg
            found.append(self._result(targets, first, share, moves, terms, back.needs[k], reg, horizon))
            for h in range(horizons[k - 1] + 1 if k else 1, horizon + 1):
                value = share @ ahead.values[h][moves.first]
                given = np.isfinite(found[-1].value) & self._possible(value, h)
                daily[h - 1] = np.where(given, value, np.nan)
        return found, daily

    def _result(
        self,
        names: tuple[str, ...],
        first: Array,
        share: Array,
        moves: Moves,
        terms: Array,
        need: Need,
        reg: Regression,
        rows_at_most: int,
    ) -> Fitted:
        """The value, without the numbers that the log cannot carry.

        Args:
            names: `[T]`.
            first: `[U, T]` value of each user's first point.
            share: `[U]` of each user in the value.
            moves: of the policy.
            terms: `[C, 2 + T]` visits to a row of each cell; what multiplies its outcomes in the error; what is added.
            need: paths that meet thin pairs.
            reg: the regression with the whole horizon left.
            rows_at_most: how many rows the value adds up.
        """
        users, user, of = self.panel.num_users, self.panel.user, moves.cells.of
        value, (visits, slope, *offset) = share @ first, terms.T
        slopes = slope[of]
        outcome = self._outcome.T[: len(names)]
        sums = [np.bincount(user, slopes * x + off[of], users) for x, off in zip(outcome, offset, strict=True)]
        if not reg.usable.any():
            shared: str | None = (
                "no row has a next row or a terminal end, so the log does not say what follows a decision"
            )
        else:
            shared = need.reason(self.support)
        reasons = tuple(
            shared
            or (None if ok else "the fitted value lies outside what the outcomes can add up to: the system is unstable")
            for ok in self._possible(value, rows_at_most)
        )
        gone = np.array([reason is not None for reason in reasons])
        return Fitted(
            targets=names,
            value=np.where(gone, np.nan, value),
            influence=np.where(gone, np.nan, users * (share[:, None] * (first - value) + np.stack(sums, axis=1))),
            mass=np.repeat(np.bincount(user, visits[of], users)[:, None], len(names), axis=1),
            withheld=reasons,
            unsupported=np.full(len(names), need.share),
            daily=np.empty((0, len(self.panel.names))),
        )

    def _possible(self, value: Array, rows_at_most: int) -> NDArray[np.bool_]:
        """`[T]` which sums of at most so many rows outcomes can add up to, with some slack."""
        low, high = self._range[0][: len(value)], self._range[1][: len(value)]
        slack = IMPOSSIBLE * (high - low) + 1e-9
        possible: NDArray[np.bool_] = (value / rows_at_most >= low - slack) & (value / rows_at_most <= high + slack)
        return possible


def _with_decisions(result: Fitted) -> Fitted:
    """The head `decisions` where every policy decides once per time unit for ever: exactly 1."""
    users = len(result.influence)
    return Fitted(
        targets=(*result.targets, "decisions"),
        value=np.append(result.value, 1.0),
        influence=np.column_stack([result.influence, np.zeros(users)]),
        mass=np.column_stack([result.mass, np.ones(users)]),
        withheld=(*result.withheld, None),
        unsupported=np.append(result.unsupported, 0.0),
        daily=result.daily,
    )
