"""Participation: each day a user is active or not, and a coupon is paid only on an active day.

    active ~ P(active | state, coupon)         reward = active         cost = coupon · active
    state' = moved[state, active] with probability move_prob[state, active], else stayed[state, active]

The coupon acts through today's activity alone; what is lasting about it lies in the states.

Source: ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.cmdp import TabularCMDP


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Participation:
    """The truth of a campaign, with S states and A coupons, as it is drawn from.

    Attributes:
        active_prob: `[S, A]` probability of being active today.
        move_prob: `[S, 2]` probability of a move after the day; column 0 after a day that was not active, 1 after one
            that was.
        moved, stayed: `[S, 2]` the state of the next day with and without that move; columns as in `move_prob`.
        start: `[S]` distribution of the first state.
        coupons: `[A]` values given, ascending, in the campaign's unit of money.
        discount: γ per day.
    """

    active_prob: NDArray[np.float64]
    move_prob: NDArray[np.float64]
    moved: NDArray[np.intp]
    stayed: NDArray[np.intp]
    start: NDArray[np.float64]
    coupons: NDArray[np.float64]
    discount: float

    def cmdp(self) -> TabularCMDP:
        """The exact model: expected reward and cost, and where each state leads."""
        num_states, num_coupons = self.active_prob.shape
        transition = np.zeros((num_states, num_coupons, num_states))
        state = np.arange(num_states)
        for active, day_prob in ((0, 1 - self.active_prob), (1, self.active_prob)):
            move = self.move_prob[:, active, None]
            transition[state, :, self.moved[:, active]] += day_prob * move
            transition[state, :, self.stayed[:, active]] += day_prob * (1 - move)
        return TabularCMDP(
            transition=transition,
            reward=self.active_prob,
            cost=(self.active_prob * self.coupons)[:, :, None],
            start=self.start,
            discount=self.discount,
        )

    def newcomers(self, rng: np.random.Generator, n: int) -> NDArray[np.intp]:
        """`[n]` first states."""
        return rng.choice(len(self.start), size=n, p=self.start)

    def day(
        self, rng: np.random.Generator, state: NDArray[np.intp], action: NDArray[np.integer]
    ) -> tuple[NDArray[np.int8], NDArray[np.intp]]:
        """One day of n users: `active` (0 or 1) and the next state, both `[n]`, from state and action index `[n]`."""
        active = (rng.random(len(state)) < self.active_prob[state, action]).astype(np.int8)
        moves = rng.random(len(state)) < self.move_prob[state, active]
        return active, np.where(moves, self.moved[state, active], self.stayed[state, active])
