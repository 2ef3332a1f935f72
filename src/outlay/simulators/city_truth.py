"""The truth of the city: the optimum under a budget and the value of policies of the state, by backward recursion.

    truth = CityTruth(City(slow=True))
    truth.constants()                    # [A, 2] reward and cost of every constant coupon
    truth.best_response(0.1)             # maximises reward − 0.1 · cost
    truth.curve()                        # the optimum for every budget
    optimum(folder)                      # the same for a simulated campaign, cached in its folder

The state is (type of user, habit, fatigue, recency), a product of grids; types are (seeker, base, pull, basket). Habit
and fatigue move independently given the action and whether the day was active, so one step back multiplies by small
matrices instead of one of all states:

    V'(s, a, active) = H[a, active] V F[a]ᵀ

All values are (1−γ) Σ γᵗ. Without a rhythm the recursion is a value iteration that stops when the change is the
same in every state, which bounds its error by 2e-5 of a unit of reward (MacQueen 1966; Puterman 1994, section 6.6).
With a rhythm it is a backward recursion from a distant day, beyond which the discounted weight is 1e-4.

For a budget, the Lagrangian bound holds: no policy, even with memory, has a reward above best(λ) + λ·budget, where
best(λ) is the best response's reward − λ·cost. Mixtures of best responses come close to it. The best response knows the
whole state: if a city hides a part of it, the bound is valid but may be out of reach. The share of each type of user is
exact, since features are drawn from distributions whose cells are known.

Source: Altman (1999) for the bound; the factored step is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from outlay.core.files import new_file
from outlay.core.progress import Progress, silent
from outlay.ops.mixture_lp import value_at
from outlay.simulators.city import (
    BAR,
    BASE,
    BASE_GRID,
    CHANNEL,
    COUPONS,
    F_GRID,
    GAPS,
    H_GRID,
    LEAN,
    PULL,
    PULL_GRID,
    SEEKER_PULL,
    SLOPE,
    STRENGTH,
    TASTE,
    TOWN,
    City,
    came_lately,
    fatigue_moves,
    first_fatigue,
    first_habit,
    habit_moves,
)

Floats = NDArray[np.float64]
Choose = Callable[[Floats], NDArray[np.int8]]  # probabilities of being active [A, T, H, F, R] → actions [T, H, F, R]

EVEN = 2e-5  # change of a day that counts as the same in every state
FAR = 1e-4  # weight of what lies beyond the recursion, with a rhythm
LARGEST_PRICE = 2.0  # of reward per yuan: the first of the curve
GAP = 4e-4  # of the reward: the curve is refined until bound and mixtures are as near
REFINEMENTS = 16
KEPT = "optimum.npz"  # beside city.json


class CityCurve(NamedTuple):
    """The optimum for every budget.

    Attributes:
        prices: `[k]` λ, descending.
        points: `[k, 2]` reward and cost of the best response at each λ, ascending in cost.
        bounds: `[k]` reward − λ·cost that no policy exceeds at λ, including numerical error.
        constants: `[A, 2]` reward and cost of every constant coupon.
    """

    prices: Floats
    points: Floats
    bounds: Floats
    constants: Floats

    def most(self, spend: float) -> float:
        """Return a bound on the reward of any policy that spends at most `spend`."""
        return float((self.bounds + self.prices * spend).min())

    def reached(self, spend: float) -> float:
        """Return the reward of the best mixture of best responses that spends at most `spend`."""
        return value_at(self.points, spend)

    def best_constant(self, spend: float) -> float:
        """Return the reward of the best mixture of constant coupons that spends at most `spend`."""
        return value_at(self.constants, spend)

    def captured(self, reward: float, cost: float) -> float:
        """Return the share of the optimum's gain over the best constants that a policy captures, at its own spend."""
        constant = self.best_constant(cost)
        return (reward - constant) / (self.reached(cost) - constant)


@dataclass(frozen=True)
class CityResponse:
    """The exact value of a policy of the state.

    Attributes:
        reward, cost: the value.
        bound: reward − λ·cost that no policy exceeds; NaN if this is not a best response.
        actions: `[T, H, F, R]` index of the action on the first day of the recursion; without a rhythm on every day.
    """

    reward: float
    cost: float
    bound: float
    actions: NDArray[np.int8]


class Around(NamedTuple):
    """A value function of the state, for reward and cost, and its expectation after a day.

    Attributes:
        values: `[2, T, H, F, R]`.
        active: `[2, A, T, H, F]` expected after an active day.
        idle: `[2, A, T, H, F, R]` expected after another.
        mean: `[2]` over the first days of users.
    """

    values: Floats
    active: Floats
    idle: Floats
    mean: Floats


class CityTruth:
    """The exact model of a city."""

    def __init__(self, city: City) -> None:
        self.city = city
        seeker, base, pull, basket = (grid.ravel() for grid in np.indices(self.shares.shape))
        self.seekers = seeker == 1
        self.pull = pull_of(seeker, pull)
        self.worth = city.baskets[basket]
        self.base = BASE_GRID[base]
        without, factor = city.odds(
            self.base[:, None, None, None], H_GRID[:, None, None], F_GRID[:, None], np.arange(1, GAPS + 1)
        )
        self._without = without
        self._factor = factor
        self._habit = [moves.matrix() for moves in habit_moves(city)]
        self._fatigue = [moves.matrix() for moves in fatigue_moves()]
        recency = came_lately()[:, None] * (1 - came_lately()[:, None]) ** np.arange(GAPS)
        recency[:, -1] = 1 - recency[:, :-1].sum(axis=1)
        self.start = (
            self.shares.ravel()[:, None, None, None]
            * first_habit(city)[base][:, :, None, None]
            * first_fatigue()[:, None]
            * recency[:, None, :]
        )
        self._last: dict[str, Floats] = {}

    @cached_property
    def shares(self) -> Floats:
        """`[2, B, P, W]` share of users of each type."""
        base = _cells(BASE[:, None] + np.zeros(len(SLOPE)), np.abs(SLOPE) + np.zeros((len(BASE), 1)), BASE_GRID)
        pull = _cells(PULL[:, None] + TOWN, np.full((len(PULL), len(TOWN)), TASTE), PULL_GRID).mean(axis=1)
        seeker = ndtr(LEAN[:, None] * CHANNEL - BAR).mean(axis=1)
        kinds = len(BASE) * len(PULL)
        share = np.einsum("kd,kqb,qp->dbp", np.stack([1 - seeker, seeker], axis=1), base, pull) / kinds
        return np.asarray(share[..., None] / len(self.city.baskets) * np.ones(len(self.city.baskets)))

    def active_prob(self, day: int | None = None) -> Floats:
        """Return `[A, T, H, F, R]` the probability of being active on a calendar day; None: without a rhythm."""
        without = self._without + (0.0 if day is None else self.city.calendar(day))
        factor = self.pull[:, None, None, None] * self._factor
        return np.stack([expit(without + factor * strength) for strength in STRENGTH])

    def after(self, values: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Yield the values that follow, by action: `[n, T, H, F]` after an active day, `[n, T, H, F, R]` after another.

        Args:
            values: `[n, T, H, F, R]` of the next day.
        """
        none, some, bought = self._habit
        heads, types, habits = values.shape[:3]
        idle = (none @ values.reshape(heads, types, habits, -1)).reshape(values.shape)
        idle = np.concatenate([idle[..., 1:], idle[..., -1:]], axis=-1)
        first = types - int(self.seekers.sum())  # seekers come last
        for action, moves in enumerate(self._fatigue):
            active = values[..., 0] @ moves.T
            theirs = bought if action else some
            yield np.concatenate([some @ active[:, :first], theirs @ active[:, first:]], axis=1), moves @ idle

    def best_response(self, price: float) -> CityResponse:
        """Return the policy with the highest reward − price · cost."""
        return self._solve(price, None)

    def constants(self) -> Floats:
        """Return `[A, 2]` reward and cost of every constant coupon."""
        responses = [self.value(lambda p, a=action: np.full(p.shape[1:], a, np.int8)) for action in range(len(COUPONS))]  # type: ignore[misc]
        return np.array([(one.reward, one.cost) for one in responses])

    def value(self, choose: Choose) -> CityResponse:
        """Compute the exact value of a policy that depends on the state and the day's responses."""
        return self._solve(0.0, choose)

    def around(self) -> Around:
        """Return the value of a constant coupon in every state of the city without its rhythm."""
        p = self.active_prob(None)
        same = np.full(p.shape[1:], len(COUPONS) // 2, np.int8)
        values, _, _ = self._until_even("fixed", p, np.eye(2), same)
        active, idle = (np.stack(parts, axis=1) for parts in zip(*self.after(values), strict=True))
        return Around(values, active, idle, np.tensordot(values, self.start, axes=4))

    def curve(self, report: Progress = silent) -> CityCurve:
        """Compute the optimum for every budget, adding prices where the bound and the mixtures are farthest apart.

        Args:
            report: called with the share done and the current step.
        """
        constants = self.constants()
        responses = {price: self.best_response(price) for price in (LARGEST_PRICE * self.worth.max(), 0.0)}
        for turn in range(REFINEMENTS):
            report(turn / REFINEMENTS, f"best response {len(responses) + 1}")
            prices = np.array(sorted(responses, reverse=True))
            points = np.array([(responses[price].reward, responses[price].cost) for price in prices])
            price, apart = _widest(prices, points)
            if apart <= GAP * points[:, 0].max() or price in responses:
                break
            responses[price] = self.best_response(price)
        prices = np.array(sorted(responses, reverse=True))
        points = np.array([(responses[price].reward, responses[price].cost) for price in prices])
        return CityCurve(prices, points, np.array([responses[price].bound for price in prices]), constants)

    def _solve(self, price: float, choose: Choose | None) -> CityResponse:
        """Solve by backward recursion; `choose` None: for the best response at the price."""
        if self.city.rhythm:
            return self._back_from_far(price, choose)
        p = self.active_prob()
        if choose is not None:
            heads, actions, _ = self._until_even("fixed", p, np.eye(2), choose(p))
            reward, cost = np.tensordot(heads, self.start, axes=4).tolist()
            return CityResponse(reward, cost, np.nan, actions)
        (net,), actions, error = self._until_even("net", p, np.array([[1.0, -price]]), None)
        (spent,), _, _ = self._until_even("cost", p, np.array([[0.0, 1.0]]), actions)
        value, cost = float((net * self.start).sum()), float((spent * self.start).sum())
        return CityResponse(value + price * cost, cost, value + error, actions)

    def _until_even(
        self, name: str, p: Floats, heads: Floats, actions: NDArray[np.int8] | None
    ) -> tuple[Floats, NDArray[np.int8], float]:
        """Run value iteration, starting from the last result under this name; return values, actions and the error."""
        gamma, small = self.city.gamma, EVEN * (1 - self.city.gamma) * self.worth.max()
        values = self._last.get(name, np.zeros((len(heads), *self.start.shape)))
        while True:
            new, done = self._back(values, p, heads, actions)
            change = (new - values).reshape(len(heads), -1)
            low, high, values = change.min(axis=1), change.max(axis=1), new
            if gamma == 0 or (high - low).max() <= small:
                break
        left = gamma / (1 - gamma)
        values = values + (left * (low + high) / 2)[:, None, None, None, None]
        self._last[name] = values
        return values, done, float(left * (high - low).max() / 2)

    def _back_from_far(self, price: float, choose: Choose | None) -> CityResponse:
        """Solve if days differ, starting from a day beyond which at most FAR of the value lies."""
        gamma, joining = self.city.gamma, self.city.joining()
        far = 1 if gamma == 0 else int(np.ceil(np.log(FAR) / np.log(gamma)))
        heads = np.array([[1.0, 0.0], [0.0, 1.0]] if choose is not None else [[1.0, -price], [0.0, 1.0]])
        values, total, calendar = np.zeros((2, *self.start.shape)), np.zeros(2), np.nan
        for day in reversed(range(len(joining) + far)):
            if self.city.calendar(day) != calendar:
                p, calendar = self.active_prob(day), self.city.calendar(day)
            values, actions = self._back(values, p, heads, None if choose is None else choose(p))
            if day < len(joining):
                total += joining[day] * np.tensordot(values, self.start, axes=4)
        first, cost = total.tolist()
        if choose is not None:
            return CityResponse(first, cost, np.nan, actions)
        return CityResponse(first + price * cost, cost, first + FAR * float(self.worth.max()), actions)

    def _back(
        self, values: Floats, p: Floats, heads: Floats, fixed: NDArray[np.int8] | None
    ) -> tuple[Floats, NDArray[np.int8]]:
        """Step one day back.

        Args:
            values: `[n, T, H, F, R]` of the next day.
            p: `[A, T, H, F, R]` probability of being active.
            heads: `[n, 2]` weights of reward and cost in each of the n values.
            fixed: the actions; None: those that are best for the first value.

        Returns:
            Values of the day, and the actions.
        """
        gamma, new = self.city.gamma, np.empty_like(values)
        actions = np.zeros(values.shape[1:], np.int8) if fixed is None else fixed
        for action, (active, idle) in enumerate(self.after(values)):
            if fixed is not None and not (here := fixed == action).any():
                continue
            gain = heads[:, :1] * self.worth + heads[:, 1:] * COUPONS[action]
            value = (1 - gamma) * gain[:, :, None, None, None] + gamma * (active[..., None] - idle)
            value *= p[action]
            value += gamma * idle
            if fixed is None:
                here = value[0] > new[0] if action else np.ones(new.shape[1:], np.bool_)
                actions[here] = action
            np.copyto(new, value, where=here)
        return new, actions


def optimum(folder: Path, report: Progress = silent) -> CityCurve:
    """Return the optimum of the city in a folder written by `outlay simulate city`, and cache it there.

    Args:
        folder: has city.json.
        report: called with the share done and the current step.

    Raises:
        FolderError: if the folder has no city.
    """
    city, kept = City.read(folder), folder / KEPT
    if kept.exists():
        with np.load(kept) as file:
            return CityCurve(*(file[name] for name in CityCurve._fields))
    curve = CityTruth(city).curve(report)
    with new_file(kept) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, **curve._asdict())
    return curve


def pull_of(seeker: NDArray[np.integer], point: NDArray[np.integer]) -> Floats:
    """Return `[n]` the pull of users, from whether they are deal seekers and their point of PULL_GRID."""
    return np.asarray(np.where(seeker == 1, SEEKER_PULL, 1.0) * np.exp(PULL_GRID[point]))


def _cells(mean: Floats, spread: Floats, grid: Floats) -> Floats:
    """Return `[..., n]` the probability that a normal variable is nearest to each point of the grid."""
    edges = (grid[1:] + grid[:-1]) / 2
    below = ndtr((edges - mean[..., None]) / spread[..., None])
    ends = np.zeros((*below.shape[:-1], 1))
    return np.diff(np.concatenate([ends, below, ends + 1], axis=-1), axis=-1)


def _widest(prices: Floats, points: Floats) -> tuple[float, float]:
    """Return the price to add, at which two neighbours are equal, and the gap between bound and mixture there."""
    (reward, cost), (up, step) = points.T, np.diff(points, axis=0).T
    slope = np.divide(up, step, out=np.zeros_like(up), where=step > 1e-9)
    meet = np.divide(
        reward[1:] - prices[1:] * cost[1:] - reward[:-1] + prices[:-1] * cost[:-1],
        prices[:-1] - prices[1:],
        out=cost[:-1].copy(),
        where=prices[:-1] > prices[1:],
    )
    apart = np.where(step > 1e-9, reward[:-1] + (prices[:-1] - slope) * (meet - cost[:-1]) - reward[:-1], 0.0)
    widest = int(apart.argmax())
    return float(slope[widest]), float(apart[widest])
