"""Fitted values of a policy from the users of some folds, and what they add to the weighted sums of the others.

Ψ = Σ_t w_{t−1} V̂(s_t) + w_t (x_t − Q̂(s_t, a_t))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.basis import Array, Pairs
from outlay.estimators.cells import Moves
from outlay.estimators.discounted import Discounted, adjoint, solve
from outlay.estimators.paths import Paths
from outlay.estimators.recursion import forward
from outlay.estimators.regression import Need, Stage, spoken_for
from outlay.estimators.sample import NOTHING_FOLLOWS, UNSTABLE, Sample


@dataclass(frozen=True)
class Critic:
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
    def of(cls, sample: Sample, moves: Moves, days: int, least_rows: int) -> Critic:
        """Of a policy, up to this many days left."""
        panel, basis = sample.panel, sample.basis
        stages = sample.stages(moves, (None, *range(1, days + 1)), least_rows)
        found = solve(basis, stages[0], panel.discount)
        ahead = forward(basis, stages[0].moves, stages[1:], len(sample.names))
        return cls(sample, found, stages, [found.theta, *ahead.theta], [found.values, *ahead.values[1:]], least_rows)

    def add(self, paths: Paths, users: NDArray[np.bool_], sums: Array) -> None:
        """Add the rows of some users `[U]`, who had no part in these values, to the sums `[U, T]`."""
        panel, basis = self.sample.panel, self.sample.basis
        mine = np.flatnonzero(users[paths.user])
        left = paths.left[mine]
        for h in np.unique(left):
            now = mine[left == h]
            rows, stage = paths.rows[now], self.stages[h]
            logged = spoken_for(Pairs(rows, panel.action[rows]), stage.reg, basis, self.least_rows)
            width = sums.shape[1]
            outcome = self.sample.outcome[rows, :width] * (1 - panel.discount if paths.days is None else 1)
            seen = paths.after[now, None] * (outcome - basis.evaluate(logged, self.theta[h][:, :width]))
            terms = seen + paths.before[now, None] * self.values[h][stage.moves.point[rows], :width]
            for t, column in enumerate(terms.T):
                sums[:, t] += np.bincount(paths.user[now], column, panel.num_users)

    def closing_errors(self, paths: Paths, users: NDArray[np.bool_], need: Need) -> Array:
        """`[U, T]` what the error of the values that close the paths of `users` `[U]` adds to the mean.

        Which states those are is read off the paths of all users, as it is the same in every fold. The paths that meet
        thin pairs from there on are added to `need`.
        """
        sample, moves = self.sample, self.stages[0].moves
        last, share = paths.closes, paths.share[paths.user]
        arriving = np.bincount(moves.point[paths.rows[last]], (share * paths.before)[last], moves.num_points)
        back = adjoint(sample.basis, self.discounted, arriving * paths.share[users].sum(), need)
        return sample.errors(moves, back, 0)

    def unclosed(self, paths: Paths, users: NDArray[np.bool_]) -> str | None:
        """Why these values cannot close the paths of `users` `[U]`, or None."""
        if not self.stages[0].reg.usable.any():
            return NOTHING_FOLLOWS
        share = paths.share * users
        value = share @ self.values[0][self.stages[0].moves.start] / max(share.sum(), 1e-300)
        return None if self.sample.possible(value, 1).all() else UNSTABLE
