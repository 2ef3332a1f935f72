"""Fitted Q evaluation in a linear class, as one linear system, with the influence function of its value.

Discounted, rows with a next row or a terminal end, φ' = φ(s', π(s')) (0 where terminal):

    M θ = Σ φ (1−γ) x        M = Σ φ (φ − γ^Δ φ')ᵀ        V = mean over users of φ(s₀, π(s₀))ᵀ θ
    ψ_u = φ₀_uᵀθ − V + U Σ_{t∈u} (dᵀφ_t) δ_t              d = M⁻ᵀ mean φ₀,   δ = (1−γ) x + γ^Δ φ'ᵀθ − φᵀθ

dᵀφ_t is the marginal ratio (of the policy's visits to the log's): with counted states exactly the counted ratio.

Totals of k days, from first rows, go by the horizon that is left (`recursion.py`). They are of all users, as discounted
values are: a user whose window ends earlier goes on as users in the same states do. Where no user's window covers k
days, the total would come from the model alone, and is withheld. Rows of all users are used. Sums run over cells of
alike rows (`cells.py`), and what no policy changes is computed once for all policies.

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
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.target import Target
from outlay.estimators.joint import Everyone, Joint, UserFold, certain, joined, mixed, pooled, withheld
from outlay.estimators.linear.basis import Array, Basis
from outlay.estimators.linear.cells import PolicyMoves
from outlay.estimators.linear.recursion import Backward, adjoint, backward, forward, solve
from outlay.estimators.linear.regression import Need, Regression, Stage
from outlay.estimators.linear.sample import NOTHING_FOLLOWS, UNSTABLE, Sample
from outlay.estimators.panel import Panel
from outlay.estimators.windowed import over_window


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


def combine(fitted: Sequence[Fitted], weights: NDArray[np.float64]) -> Fitted:
    """The sticky mixture of policies fitted on the same users, with weights `[k]` ≥ 0."""
    used = [(w, part) for w, part in zip(weights, fitted, strict=True) if w != 0]
    return Fitted(
        **mixed(fitted, weights),
        unsupported=np.asarray(sum(w * part.unsupported for w, part in used)),
        daily=np.asarray(sum(w * part.daily for w, part in used)),
    )


def pool(parts: Sequence[Fitted], folds: Sequence[UserFold], everyone: Everyone) -> Fitted:
    """The weighted mean of estimates from users that have nobody in common (`joint.pooled`)."""
    shared = list(zip(parts, folds, strict=True))
    return Fitted(
        **pooled(parts, folds, everyone),
        unsupported=np.asarray(sum(fold.share * part.unsupported for part, fold in shared)),
        daily=np.asarray(sum(fold.share * part.daily for part, fold in shared)),
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
    support: float = 0.01
    least_rows: int = 2
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
        back = adjoint(self.basis, solution, starts, Need(self.panel.data.actions))
        first = solution.values[moves.start]
        parts = [self._result(self.sample.names, first, share, moves, back, 0, stage.reg, 1)]
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
        back = backward(self.basis, moves, stages, horizons, ahead, share, self.panel.data.actions)
        daily = np.full((len(stages), len(self.panel.names)), np.nan)
        totals: list[Fitted] = []
        for k, horizon in enumerate(horizons):
            first = ahead.values[horizon][moves.first]
            targets = tuple(str(Target(name, horizon)) for name in names)
            reg = stages[horizon - 1].reg
            totals.append(self._result(targets, first, share, moves, back, k, reg, horizon))
            for h in range(horizons[k - 1] + 1 if k else 1, horizon + 1):
                before, value = (share @ ahead.values[left][moves.first] for left in (h - 1, h))
                given = np.isfinite(totals[-1].value) & self.sample.possible(value, h)
                daily[h - 1] = np.where(given, value - before, np.nan)[: daily.shape[1]]
            if horizon == self.window:
                totals += self._certain(str(Target("decisions", horizon)), horizon)
        return totals, daily

    def _not_shown(self, days: int) -> Fitted:
        """Totals of this many days, which the log shows for nobody, so that they would come from the model alone."""
        names = (*self.panel.names, *(["decisions"] if days == self.window else []))
        targets = tuple(str(Target(name, days)) for name in names)
        return Fitted(
            **withheld(targets, self.panel.num_users, f"no user's window covers {days} days"),
            unsupported=np.ones(len(targets)),
            daily=np.empty((0, len(self.panel.names))),
        )

    def _certain(self, target: str, value: float) -> list[Fitted]:
        """Decisions, where every policy makes one a day; else they are estimated with the outcomes."""
        if not self.panel.data.steady:
            return []
        known = certain(target, value, self.panel.num_users)
        return [Fitted(**vars(known), unsupported=np.zeros(1), daily=np.empty((0, len(self.panel.names))))]

    def _result(
        self,
        names: tuple[str, ...],
        first: Array,
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
            share: `[U]` of each user in the value.
            moves: of the policy.
            back: what the rows add to the error.
            k: which of the horizons in `back` it is.
            reg: the regression with the whole horizon left.
            rows_at_most: how many rows the value adds up.
        """
        users, user, of = self.panel.num_users, self.panel.user, moves.cells.of
        value, need = share @ first, back.needs[k]
        errors = self.sample.errors(moves, back, k)
        shared = need.reason(self.support) if reg.usable.any() else NOTHING_FOLLOWS
        reasons = tuple(shared or (None if ok else UNSTABLE) for ok in self.sample.possible(value, rows_at_most))
        gone = np.array([reason is not None for reason in reasons])
        return Fitted(
            targets=names,
            value=np.where(gone, np.nan, value),
            influence=np.where(gone, np.nan, users * (share[:, None] * (first - value) + errors)),
            mass=np.repeat(np.bincount(user, back.visits[:, k][of], users)[:, None], len(names), axis=1),
            withheld=reasons,
            unsupported=np.full(len(names), need.share),
            daily=np.empty((0, len(self.panel.names))),
        )


def _share(members: NDArray[np.bool_]) -> Array:
    """`[U]` of each user in a mean over some."""
    share: Array = members / max(1, members.sum())
    return share
