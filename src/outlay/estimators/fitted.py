"""Fitted Q evaluation in a linear class, as one linear system, with the influence function of its value.

Discounted, rows with a next row or a terminal end, φ' = φ(s', π(s')) (0 where terminal):

    M θ = Σ φ (1−γ) x        M = Σ φ (φ − γ^Δ φ')ᵀ        V = mean over users of φ(s₀, π(s₀))ᵀ θ
    ψ_u = φ₀_uᵀθ − V + U Σ_{t∈u} (dᵀφ_t) δ_t              d = M⁻ᵀ mean φ₀,   δ = (1−γ) x + γ^Δ φ'ᵀθ − φᵀθ

dᵀφ_t is the marginal ratio (of the policy's visits to the log's): with counted states exactly the counted ratio.

Totals of k days, from first rows, go by the horizon that is left (`recursion.py`). They are of all users, as discounted
values are: a user whose window ends earlier goes on as users in the same states do. Where no user's window covers k
days, the total would come from the model alone, and is withheld. Rows of all users are used. Sums run over cells of
alike rows (`regression.py`), and what no policy changes is computed once for all policies.

Truncated rows take part only where their future does not matter: γ = 0, or the log covers the h days after them.

What this rests on: outcomes and moves depend on state and action alone, the same on every day of the log (that is how
a week of log stands for the tail beyond it), and Q lies in the basis. Residuals are divided by √(1 − leverage), as a
coefficient follows its own rows (HC2). A pair (s', π(s')) with fewer than `least_rows` rows behind it takes the
state-free mean of its action; where more than `support` of the policy's paths need that, no number is given.

Source: Le, Voloshin & Yue (2019) for FQE; Lagoudakis & Parr (2003) for the system; Kallus & Uehara (2020) for the
influence function; MacKinnon & White (1985) for HC2. The k-day recursion and its adjoint: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from outlay.core.cached import cached_property
from outlay.core.estimate import Target
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.basis import Array, Basis
from outlay.estimators.joint import Joint, certain, joined, withheld
from outlay.estimators.panel import Index, Panel
from outlay.estimators.recursion import Backward, Need, adjoint, backward, forward, solve
from outlay.estimators.regression import LogCells, PolicyMoves, Regression, Stage, regress
from outlay.estimators.windowed import LEAST_ROWS, SUPPORT, over_window

IMPOSSIBLE = 0.1  # how far, in ranges of the outcome, a value may lie beyond what outcomes can add up to


@dataclass(frozen=True)
class Sample:
    """Usable rows and the regressions over them, each computed once.

    Attributes:
        panel: all rows.
        basis: over the same rows.
        log: the cells of all rows, counted over the usable ones.
        outcome: `[n, T]` reward, costs, and 1 per decision where policies differ in that.
        usable: `[n]` bool; None: every row.
    """

    panel: Panel
    basis: Basis
    log: LogCells
    outcome: Array
    usable: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, panel: Panel, basis: Basis) -> Sample:
        """Every row of a panel."""
        outcome = panel.outcome if panel.data.steady else np.column_stack([panel.outcome, ~panel.forced])
        return cls(panel, basis, LogCells.of(panel, basis.alike), np.asfortranarray(outcome))

    def only(self, users: NDArray[np.bool_]) -> Sample:
        """The rows of some users `[U]`."""
        usable = users[self.panel.user]
        log = replace(self.log, cells=self.log.cells.counting(usable))
        return Sample(self.panel, self.basis, log, self.outcome, usable)

    @property
    def names(self) -> tuple[str, ...]:
        """`[T]` of the outcomes."""
        return self.panel.names if self.panel.data.steady else (*self.panel.names, "decisions")

    def regression(self, left: int | None) -> Regression:
        """Return the regression of values with `left` days left; None: of discounted values."""
        usable = self._usable(left)
        key = _number(usable)
        if key not in self._regressions:
            self._regressions[key] = regress(self.panel, self.basis, self.log.cells, self._sums, usable)
        return self._regressions[key]

    def stages(self, moves: PolicyMoves, lefts: Sequence[int | None], least_rows: int) -> list[Stage]:
        """A policy's moves, as these rows count them, in the regression of each of `lefts`."""
        counted = moves if self.usable is None else replace(moves, cells=moves.cells.counting(self.usable))
        # A pair that is thin is so with fewer rows too: from the fewest on, only the thin ones are looked at again.
        by_rows = sorted({_number(self._usable(left)): left for left in lefts}.items(), key=lambda each: each[0])
        known: dict[int, Stage] = {}
        thin: NDArray[np.bool_] | None = None
        for key, left in by_rows:
            known[key] = Stage.of(self.regression(left), self.basis, counted, least_rows, thin)
            thin = known[key].thin
        return [known[_number(self._usable(left))] for left in lefts]

    def _usable(self, left: int | None) -> NDArray[np.bool_]:
        """`[B]` the cells whose rows say what `left` more days bring; None: what is discounted."""
        log = self.log
        usable: NDArray[np.bool_] = ~log.open | (self.panel.discount == 0 if left is None else log.left >= left)
        return usable & (log.cells.count > 0)

    def errors(self, moves: PolicyMoves, back: Backward) -> Array:
        """Return `[U, H, T']` what the usable rows of each user add to the errors of the H values of `back`."""
        users, (cells, wanted, outcomes) = self.panel.num_users, back.offset.shape
        rows, begin = self._by_user
        of = moves.cells.of[rows]

        def summed(weight: Array, by_cell: Array) -> Array:
            found: Array = csr_array((weight, of, begin), shape=(users, cells)) @ by_cell
            return found

        errors = summed(np.ones(len(of)), back.offset.reshape(cells, -1)).reshape(users, wanted, outcomes)
        for t in range(outcomes):  # totals leave `decisions` out
            errors[:, :, t] += summed(self.outcome[rows, t], back.slope)
        return errors

    @cached_property
    def _by_user(self) -> tuple[Index, Index]:
        """The usable rows, those of one user after the other, and `[U + 1]` where each user's begin."""
        user = self.panel.user
        usable = np.arange(len(user)) if self.usable is None else np.flatnonzero(self.usable)
        rows = usable[np.argsort(user[usable], kind="stable")]
        return rows, np.searchsorted(user[rows], np.arange(self.panel.num_users + 1))

    def possible(self, value: Array, rows_at_most: int) -> NDArray[np.bool_]:
        """Return `[T']` whether the outcomes of at most `rows_at_most` rows can add up to a value, with some slack."""
        return possible(value, self._range, rows_at_most)

    @cached_property
    def _range(self) -> Array:
        return range_of(self.outcome)

    @cached_property
    def _sums(self) -> Array:
        """`[B, T]` outcomes, summed over the usable rows of each cell of the log."""
        cells, usable = self.log.cells, slice(None) if self.usable is None else self.usable
        of = cells.of[usable]
        return np.stack([np.bincount(of, x[usable], len(cells.rows)) for x in self.outcome.T], axis=1)

    @cached_property
    def _regressions(self) -> dict[int, Regression]:
        return {}


def range_of(outcome: Array) -> Array:
    """`[2, T]` the least and the most that a row of outcomes `[n, T]` can bring, or no row."""
    return np.stack([np.minimum(outcome.min(axis=0), 0), np.maximum(outcome.max(axis=0), 0)])


def possible(value: Array, bounds: Array, rows_at_most: int) -> NDArray[np.bool_]:
    """Return `[T']` whether at most `rows_at_most` rows can add up to a value, each within `bounds` `[2, T]`."""
    low, high = bounds[:, : len(value)]
    slack = IMPOSSIBLE * (high - low) + 1e-9
    each = value / rows_at_most
    inside: NDArray[np.bool_] = (each >= low - slack) & (each <= high + slack)
    return inside


def _number(usable: NDArray[np.bool_]) -> int:
    """Which set of usable cells it is: they only shrink as the horizon grows, so their number says it."""
    return int(usable.sum())


@dataclass(frozen=True, kw_only=True)
class Fitted(Joint):
    """Fitted values of one policy or mixture: reward, budgets, decisions, `reward@k`, ….

    `reward`, budgets and `decisions` (1 per decision) are (1−γ)·J over the start population; `@k` are totals of k
    days per user, from first rows.

    Attributes:
        unsupported: `[T]` share of the policy's paths that meet a pair about which the log says too little; day by day
            (`sequential.py`) how far lines are extended beyond what the log shows.
        daily: `[D, 1+m]` what day 1, 2, …, D brings per user, D the longest k; NaN where the total of the next longer k
            is withheld. Point estimates only, a by-product of the longest k.
    """

    unsupported: NDArray[np.float64]
    daily: NDArray[np.float64]


def sure(target: str, value: float, panel: Panel) -> Fitted:
    """A quantity that is known without a log."""
    fields = vars(certain(target, value, panel.num_users))
    return Fitted(**fields, unsupported=np.zeros(1), daily=np.empty((0, len(panel.names))))


def not_shown(targets: Sequence[str], panel: Panel, days: int) -> Fitted:
    """Totals of this many days, which the log shows for nobody, so that they would come from the model alone."""
    return Fitted(
        **withheld(tuple(targets), panel.num_users, Reason(ReasonKind.NOT_SHOWN, {"days": days})),
        unsupported=np.ones(len(targets)),
        daily=np.empty((0, len(panel.names))),
    )


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
        window: days k whose means stand in the place of discounted ones (`windowed.py`); None: discounted.
    """

    panel: Panel
    basis: Basis
    support: float = SUPPORT
    least_rows: int = LEAST_ROWS
    window: int | None = None

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
            among: `[U]` users whose value it is; default all. The rows of all users are used in any case.

        Raises:
            LogError: if the policy takes an action that is not allowed.
        """
        sample = self.sample
        moves = PolicyMoves.of(self.panel, sample.log, self.panel.follow(policy))
        users = self.panel.num_users
        members = np.ones(users, np.bool_) if among is None else among
        horizons = sorted({*days, *([] if self.window is None else [self.window])})
        covered = [k for k in horizons if (members & self.panel.covers(k)).any()]
        stage, *stages = sample.stages(moves, (None, *range(1, max(covered, default=0) + 1)), self.least_rows)
        totals, daily = self._totals(moves, stages, covered, members)
        not_shown = [self._not_shown(k) for k in horizons if k not in covered]
        parts = [*self._discounted(moves, stage, _share(members)), *totals, *not_shown]
        longest = np.full((max(horizons, default=0) - len(daily), daily.shape[1]), np.nan)
        whole = Fitted(
            **joined(parts, self.panel.clusters),
            unsupported=np.concatenate([part.unsupported for part in parts]),
            daily=np.vstack([daily, longest]),
        )
        return over_window(whole, (*self.panel.names, "decisions"), self.window)

    @cached_property
    def sample(self) -> Sample:
        """The rows, with the regressions over them, each computed once."""
        return Sample.of(self.panel, self.basis)

    def _discounted(self, moves: PolicyMoves, stage: Stage, share: Array) -> list[Fitted]:
        """(1−γ)·J of reward, costs and decisions over the start rows of users with this share `[U]`."""
        solution = solve(self.basis, stage, self.panel.discount)
        starts = np.bincount(moves.start, share, moves.num_points).astype(np.float64)
        back = adjoint(self.basis, solution, starts, Need(self.panel.data.called))
        first, errors = solution.values[moves.start], self.sample.errors(moves, back)
        parts = [self._result(self.sample.names, first, errors, share, moves, back, 0, stage.reg, 1)]
        return [*parts, *self._certain("decisions", 1.0)]

    def _totals(
        self, moves: PolicyMoves, stages: Sequence[Stage], horizons: Sequence[int], members: NDArray[np.bool_]
    ) -> tuple[list[Fitted], Array]:
        """Totals of k days from first rows of `members` `[U]` for each k of `horizons`, and of each day up to then.

        `stages[h − 1]` is the regression with h days left.
        """
        names = self.panel.names if self.window is None else self.sample.names
        ahead = forward(self.basis, moves, stages, len(names))
        share = _share(members)
        back = backward(self.basis, moves, stages, horizons, ahead, share, self.panel.data.called)
        errors = self.sample.errors(moves, back)
        daily = np.full((len(stages), len(self.panel.names)), np.nan)
        totals: list[Fitted] = []
        for k, horizon in enumerate(horizons):
            first = ahead.values[horizon][moves.first]
            targets = tuple(str(Target(name, horizon)) for name in names)
            reg = stages[horizon - 1].reg
            totals.append(self._result(targets, first, errors, share, moves, back, k, reg, horizon))
            for h in range(horizons[k - 1] + 1 if k else 1, horizon + 1):
                before, value = (share @ ahead.values[left][moves.first] for left in (h - 1, h))
                given = np.isfinite(totals[-1].value) & self.sample.possible(value, h)
                daily[h - 1] = np.where(given, value - before, np.nan)[: daily.shape[1]]
            if horizon == self.window:
                totals += self._certain(str(Target("decisions", horizon)), horizon)
        return totals, daily

    def _not_shown(self, days: int) -> Fitted:
        names = (*self.panel.names, *(["decisions"] if days == self.window else []))
        return not_shown([str(Target(name, days)) for name in names], self.panel, days)

    def _certain(self, target: str, value: float) -> list[Fitted]:
        """Decisions, where every policy makes one a day; else they are estimated with the outcomes."""
        return [sure(target, value, self.panel)] if self.panel.data.steady else []

    def _result(
        self,
        names: tuple[str, ...],
        first: Array,
        errors: Array,
        share: Array,
        moves: PolicyMoves,
        back: Backward,
        k: int,
        reg: Regression,
        rows_at_most: int,
    ) -> Fitted:
        """The value, without the numbers that the log cannot carry.

        Args:
            names: `[T]`.
            first: `[U, T]` value of each user's first point.
            errors: `[U, H, T]` of all horizons (`Sample.errors`).
            share: `[U]` of each user in the value.
            moves: of the policy.
            back: what the rows add to the error.
            k: which of the horizons in `back` it is.
            reg: the regression with the whole horizon left.
            rows_at_most: how many rows the value adds up.
        """
        users, user, of = self.panel.num_users, self.panel.user, moves.cells.of
        value, need = share @ first, back.needs[k]
        shared = need.reason(self.support) if reg.usable.any() else Reason(ReasonKind.NOTHING_FOLLOWS)
        whole = Fitted(
            targets=names,
            value=value,
            influence=users * (share[:, None] * (first - value) + errors[:, k]),
            mass=np.repeat(np.bincount(user, back.visits[:, k][of], users)[:, None], len(names), axis=1),
            withheld=(None,) * len(names),
            unsupported=np.full(len(names), need.share),
            daily=np.empty((0, len(self.panel.names))),
        )
        fits = self.sample.possible(value, rows_at_most)
        return whole.without([shared or (None if ok else Reason(ReasonKind.UNSTABLE)) for ok in fits])


def _share(members: NDArray[np.bool_]) -> Array:
    """`[U]` of each user in a mean over some."""
    share: Array = members / max(1, members.sum())
    return share
