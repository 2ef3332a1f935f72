"""Doubly robust values as sums along paths, and the fitted values that enter them.

    Ψ = Σ_t w_{t−1} V̂(s_t) + w_t (x_t − Q̂(s_t, a_t))        mean over users; w_t the weight of the path after row t

A value is a total of k days, or discounted from start rows. V̂ and Q̂ come from the users of other folds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.basis import Array, StateActions
from outlay.estimators.fitted import Sample
from outlay.estimators.panel import Index, Panel
from outlay.estimators.recursion import Discounted, Need, adjoint, forward, solve
from outlay.estimators.regression import PolicyMoves, Stage, supported


@dataclass(frozen=True)
class WeightedPaths:
    """The r rows with a weight that enter one value.

    Attributes:
        days: of the total; None: discounted.
        rows: `[r]` where the weight before the row is above 0.
        user: `[r]` of each.
        before: `[r]` that weight, discounted.
        after: `[r]` the weight after the row, discounted; 0 in rows that close their path.
        left: `[r]` days left, the row's included; 0: discounted.
        closes: `[r]` bool, truncated rows, after which nothing is known; of discounted values.
        share: `[U]` of each user in the value.
        covered: users whose days the log shows.
        mass: `[U]` the weight of each user after the k days; discounted: the discounted mean of the weights.
    """

    days: int | None
    rows: Index
    user: Index
    before: Array
    after: Array
    left: Index
    closes: NDArray[np.bool_]
    share: Array
    covered: int
    mass: Array

    @classmethod
    def total(cls, panel: Panel, days: int, weights: tuple[Array, Array], members: NDArray[np.bool_]) -> WeightedPaths:
        """The first k days of the members.

        What a row adds is known if the log goes on to show what follows it, by the window alone (`Panel.at_risk`); the
        mean of what all such rows of a day add stands for all of that day.

        Args:
            panel: the rows.
            days: k.
            weights: `[n]` before and after each row.
            members: `[U]` whose value it is.
        """
        before, after = weights
        rows = np.flatnonzero((before > 0) & (panel.day < days) & members[panel.user])
        user, following, day = panel.user[rows], panel.following[rows], panel.day[rows]
        risk = panel.at_risk(days)
        up = members.sum() / np.maximum(1, risk @ members)
        known = risk[day, user] * up[day]
        arrived = np.ones(len(panel))
        on = following >= 0
        arrived[following[on]] = known[on]
        last = (following < 0) | (panel.day[following] >= days)
        after = after[rows] * known
        return cls(
            days=days,
            rows=rows,
            user=user,
            before=before[rows] * arrived[rows],
            after=after,
            left=days - day,
            closes=np.zeros(len(rows), np.bool_),
            share=members / max(1, members.sum()),
            covered=int((members & panel.covers(days)).sum()),
            mass=np.bincount(user[last], after[last], panel.num_users).astype(np.float64),
        )

    @classmethod
    def discounted(cls, panel: Panel, weights: tuple[Array, Array], members: NDArray[np.bool_]) -> WeightedPaths:
        """All rows of the members from their start rows on."""
        before, after = weights
        rows = np.flatnonzero((before > 0) & members[panel.user])
        user = panel.user[rows]
        fade = panel.discount ** (panel.day[rows] - panel.day[panel.start[user]]).astype(np.float64)
        rows, user, fade = rows[fade > 0], user[fade > 0], fade[fade > 0]
        closes = (panel.following[rows] < 0) & ~panel.terminal[rows] & (panel.discount > 0)
        known = np.where(closes, 0, fade * after[rows])
        # Each row weighs for the time up to the next, and the last one for all time after it.
        span = np.where(panel.following[rows] < 0, 1, 1 - panel.discount ** panel.gap[rows].astype(np.float64))
        weight = np.where(closes, fade * before[rows], span * known)
        return cls(
            days=None,
            rows=rows,
            user=user,
            before=fade * before[rows],
            after=known,
            left=np.zeros(len(rows), np.intp),
            closes=closes,
            share=members / max(1, members.sum()),
            covered=int(members.sum()),
            mass=np.bincount(user, weight, panel.num_users).astype(np.float64),
        )


@dataclass(frozen=True)
class FoldValues:
    """Values of one policy; place 0 of each list is discounted, place h has h days left.

    Attributes:
        sample: the rows that they were fitted to.
        discounted: the discounted values.
        stages: the policy's moves in each regression.
        theta: of `[P, T]`.
        values: of `[Q, T]`, of every point of the panel.
        least_rows: a pair with fewer rows behind it is thin.
    """

    sample: Sample
    discounted: Discounted
    stages: list[Stage]
    theta: list[Array]
    values: list[Array]
    least_rows: int

    @classmethod
    def of(cls, sample: Sample, moves: PolicyMoves, days: int, least_rows: int) -> FoldValues:
        """Fit the values of a policy, with up to `days` days left."""
        panel, basis = sample.panel, sample.basis
        stages = sample.stages(moves, (None, *range(1, days + 1)), least_rows)
        solution = solve(basis, stages[0], panel.discount)
        ahead = forward(basis, stages[0].moves, stages[1:], len(sample.names))
        return cls(
            sample, solution, stages, [solution.theta, *ahead.theta], [solution.values, *ahead.values[1:]], least_rows
        )

    def add(self, paths: WeightedPaths, users: NDArray[np.bool_], sums: Array) -> None:
        """Add the rows of some users `[U]`, to whom these values were not fitted, to the sums `[U, T]`."""
        panel, basis = self.sample.panel, self.sample.basis
        mine = np.flatnonzero(users[paths.user])
        left = paths.left[mine]
        for h in np.unique(left):
            now = mine[left == h]
            rows, stage = paths.rows[now], self.stages[h]
            logged = supported(StateActions(rows, panel.action[rows]), stage.reg, basis, self.least_rows)
            width = sums.shape[1]
            outcome = self.sample.outcome[rows, :width] * (1 - panel.discount if paths.days is None else 1)
            seen = paths.after[now, None] * (outcome - basis.evaluate(logged, self.theta[h][:, :width]))
            terms = seen + paths.before[now, None] * self.values[h][stage.moves.point[rows], :width]
            for t, column in enumerate(terms.T):
                sums[:, t] += np.bincount(paths.user[now], column, panel.num_users)

    def closing_errors(self, paths: WeightedPaths, users: NDArray[np.bool_], need: Need) -> Array:
        """Return `[U, T]` what the error of the values that close the paths of `users` `[U]` adds to the mean.

        Which states those are is read off the paths of all users, as it is the same in every fold. The paths that meet
        thin pairs from there on are added to `need`.
        """
        sample, moves = self.sample, self.stages[0].moves
        last, share = paths.closes, paths.share[paths.user]
        arriving = np.bincount(moves.point[paths.rows[last]], (share * paths.before)[last], moves.num_points)
        back = adjoint(sample.basis, self.discounted, arriving * paths.share[users].sum(), need)
        return sample.errors(moves, back, 0)

    def unclosed(self, paths: WeightedPaths, users: NDArray[np.bool_]) -> Reason | None:
        """Return why these values cannot close the paths of `users` `[U]`, or None."""
        if not self.stages[0].reg.usable.any():
            return Reason(ReasonKind.NOTHING_FOLLOWS)
        share = paths.share * users
        value = share @ self.values[0][self.stages[0].moves.start] / max(share.sum(), 1e-300)
        return None if self.sample.possible(value, 1).all() else Reason(ReasonKind.UNSTABLE)
