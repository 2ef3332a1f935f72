"""Campaigns as Gymnasium environments: an episode is one user, a step is one day.

    env = environment("thirty-day")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(7)      # index of the coupon: env.coupons[7]
    info["cost"]                                                        # [m] what the coupon cost

Outcomes are drawn as in the log, and the coupon costs only on an active day. A story never ends by itself; the episode
is truncated after the campaign's days. Observations are codes where states are few, and numbers in a city.

Source: ours; the interface is Gymnasium's, with `info["cost"]` as in Safety-Gymnasium, but one entry a budget.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import OutlayError
from outlay.core.machine import optional
from outlay.simulators import find
from outlay.simulators.city import BASKET_SPREAD, COUPONS
from outlay.simulators.city_people import CityWorld, People
from outlay.simulators.simulator import Simulator
from outlay.simulators.wide import WideWorld

with optional():
    import gymnasium


def environment(
    campaign: str, *, days: int | None = None, **options: float | None
) -> CampaignEnvironment | CityEnvironment:
    """The environment of a campaign.

    Args:
        campaign: a key of `simulators.CAMPAIGNS`.
        days: of an episode; default: the days of the campaign's log.
        options: of the campaign, as `fields` and `values` of *wide* and `slow` of *city*.

    Raises:
        OutlayError: if the campaign is unknown, or an option is not one of its own or impossible.
    """
    world = find(campaign, **options)
    days = world.log_days if days is None else days
    if not isinstance(days, int) or days < 1:
        raise OutlayError(
            f"is {days}; must be a whole number, at least 1.", where="days", way_out="Give 7, for instance."
        )
    if isinstance(world, CityWorld | WideWorld):
        return CityEnvironment(world, days)
    assert isinstance(world, Simulator)
    return CampaignEnvironment(world, days)


class CampaignEnvironment(gymnasium.Env[NDArray[np.int64], np.int64]):
    """One user at a time.

    Attributes:
        coupons: `[A]` the value given by each action, in the campaign's unit of money.
        observation_space: the codes of the F features, in the order of the log's columns.
        action_space: index of the coupon.
    """

    def __init__(self, simulator: Simulator, days: int) -> None:
        self.coupons = simulator.model.coupons
        self.observation_space = gymnasium.spaces.MultiDiscrete([len(f.values) for f in simulator.features])
        self.action_space = gymnasium.spaces.Discrete(len(self.coupons))
        self._simulator = simulator
        self._days = days
        self._day = days  # no episode has begun
        self._state = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """A new user, on the first day. `info["state"]` is the true state, nothing has been spent; no `options`."""
        super().reset(seed=seed, options=options)
        self._day = 0
        self._state = int(self._simulator.model.newcomers(self.np_random, 1)[0])
        return self._observation(), {"cost": np.zeros(1), "state": self._state}

    def step(self, action: np.int64) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        """One day. `info["cost"]` is `[m]` what it cost, `info["state"]` the true state of the next day.

        Raises:
            gymnasium.error.ResetNeeded: if no episode is under way.
            gymnasium.error.InvalidAction: if the action is not the index of a coupon.
        """
        if self._day >= self._days:
            raise gymnasium.error.ResetNeeded("the episode is over, or has not begun: call reset().")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"action is {action!r}; expected 0 to {len(self.coupons) - 1}.")
        active, state = self._simulator.model.day(self.np_random, np.array([self._state]), np.array([action]))
        self._day += 1
        self._state = int(state[0])
        info = {"cost": self.coupons[[action]] * active, "state": self._state}
        return self._observation(), float(active[0]), False, self._day >= self._days, info

    def _observation(self) -> NDArray[np.int64]:
        return self._simulator.codes[:, self._state].astype(np.int64)


BOX = 100.0  # no feature of a city is farther from 0


class CityEnvironment(gymnasium.Env[NDArray[np.float32], np.int64]):
    """One user of a city at a time, seen by its features or, in *wide*, by its fields.

    Attributes:
        coupons: `[A]` the value given by each action, in yuan.
        observation_space: the features in the order of the log's columns, categories as codes.
        action_space: index of the coupon.
    """

    def __init__(self, world: CityWorld | WideWorld, days: int) -> None:
        self.coupons = COUPONS
        largest = max(BOX, world.values) if isinstance(world, WideWorld) else BOX
        self.observation_space = gymnasium.spaces.Box(-BOX, largest, (world.num_features,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(COUPONS))
        self._city = world.city
        self._world = world
        self._days = days
        self._people: People | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A new user, on the first day; there are no `options`."""
        super().reset(seed=seed, options=options)
        rng = np.random.default_rng(int(self.np_random.integers(2**63)))
        self._people = People.draw(self._city, 1, rng)
        self._people.day = int(self._people.joins[0])
        self._features = self._people.features if isinstance(self._world, CityWorld) else self._world.show(self._people)
        self._left = self._days
        return self._observation(self._people), {"cost": np.zeros(1)}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """One day. `info["cost"]` is `[1]` what it cost.

        Raises:
            gymnasium.error.ResetNeeded: if no episode is under way.
            gymnasium.error.InvalidAction: if the action is not the index of a coupon.
        """
        people = self._people
        if people is None or self._left == 0:
            raise gymnasium.error.ResetNeeded("the episode is over, or has not begun: call reset().")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"action is {action!r}; expected 0 to {len(COUPONS) - 1}.")
        reward = self._city.baskets[people.basket]
        _, active = people.live(np.array([action], np.intp))
        if self._city.money:
            reward = reward * self.np_random.lognormal(-(BASKET_SPREAD**2) / 2, BASKET_SPREAD)
        self._left -= 1
        info = {"cost": self.coupons[[action]] * active}
        return self._observation(people), float((reward * active)[0]), False, self._left == 0, info

    def _observation(self, people: People) -> NDArray[np.float32]:
        return np.array([column[0] for column in self._features(people.table()).values()], np.float32)
