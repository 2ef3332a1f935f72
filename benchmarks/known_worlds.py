"""Worlds that are known to the last number, for public_worlds.py: a shop, and people with 20 features.

    world = WORLDS["shop"]
    path = world.write("folder", users=20_000, seed=1)    # log.parquet and campaign.toml
    world.truth(policy)                                   # what a decision brings for good, and costs while it counts
    world.known(0.4)                                      # a policy that knows the world and pays 0.4 for a yuan

A user acts on a day (buys, or is active), given an offer of strength s ∈ [0, 1]:

    P = σ(start + own + carry·habit + week_d + pull·√s − tire·fatigue)
    habit' = habit + pace·(acts − habit)          fatigue' = fatigue + 0.25·(s − fatigue)

    own, pull  of a user, from its traits, some of which matter only together
    shop       reward is the amount bought, log-normal around the user's basket; an offer is a share of it, and costs
               that share; Saturdays are best; half of the users join on one of the days 1 to 9
    mild       reward is 1 on an active day; an offer of 0 to 5 yuan is paid on active days; habits last a week
    slow       the same, but habits move by 4% a day, and weigh three times as much

All that drives a user is in the log: the state says enough. Offers are drawn evenly. Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float64]
Actions = NDArray[np.int64]
YUAN, PRICES = np.array([0.0, 1.0, 2.0, 3.0, 5.0]), np.array([0.03, 0.06, 0.1, 0.15, 0.25])
WEEK = np.array([0.0, 0.0, 0.1, 0.1, 0.3, 0.6, 0.4])
SIZES = (3, 4, 6, 8, 12)  # of the categorical traits
TRAITS = 13  # numeric ones
PLAYED, SEED = 10_000, 987_654  # users of the truth, and their seed
NEGLIGIBLE = 0.005  # weight of the days that the truth leaves out

CAMPAIGN = """[campaign]
name = "{name}"
unit = "yuan"
discount = {discount}
horizon_days = 7
report_days = [1, 7]
none = 0.0

[log]
source = "log.parquet"
user = "user"
time = "day"
action = "offer"
actions = {actions}
reward = "reward"
propensity = "p"

[log.features]
categorical = {categorical}
numeric = {numeric}

[[budget]]
name = "cost"
cost = "cost"
at_most = {at_most}
per = "decision"
money = true
"""


@dataclass(frozen=True)
class People:
    """n users on one day.

    Attributes:
        traits, kinds: `[n, 13]` and `[n, 5]` what is told of them.
        own, pull, basket: `[n]` what follows from it.
        habit, fatigue: `[n]` from 0 to 1.
        weekday: `[n]`.
    """

    world: World
    traits: Floats
    kinds: NDArray[np.int64]
    own: Floats
    pull: Floats
    basket: Floats
    habit: Floats
    fatigue: Floats
    weekday: NDArray[np.int64]

    @classmethod
    def draw(cls, world: World, joined: NDArray[np.int64], rng: np.random.Generator) -> People:
        """New users, each on the day `[n]` of joining."""
        users = len(joined)
        traits = rng.normal(size=(users, TRAITS))
        kinds = np.column_stack([rng.integers(size, size=users) for size in SIZES])
        own = 0.5 * traits[:, 0] - 0.4 * traits[:, 1] * (kinds[:, 0] == 1) + 0.25 * (kinds[:, 2] - 2.5)
        pull = np.exp(0.8 * traits[:, 2] - 0.5 * np.abs(traits[:, 3])) * np.where(kinds[:, 1] == 0, 0.3, 1.0)
        basket = 40 * np.exp(0.6 * traits[:, 4]) if world.shop else np.ones(users)
        return cls(
            world,
            traits,
            kinds,
            own,
            2.0 * pull,
            basket,
            rng.beta(1.5, 4.0, users),
            np.zeros(users),
            joined % 7,
        )

    def table(self) -> dict[str, NDArray[Any]]:
        """The features of today."""
        week = {"weekday": self.weekday} if self.world.shop else {}
        return {
            **{f"k{i}": column for i, column in enumerate(self.kinds.T)},
            **week,
            **{f"t{i}": column for i, column in enumerate(self.traits.T)},
            "habit": self.habit,
            "fatigue": self.fatigue,
        }

    def chance(self, action: Actions) -> Floats:
        """`[n]` probability that each acts today."""
        world, strength = self.world, self.world.strength[action]
        x = (
            world.start
            + self.own
            + world.carry * self.habit
            + self.pull * np.sqrt(strength)
            - world.tire * self.fatigue
        )
        x = x + WEEK[self.weekday] * world.shop
        return np.asarray(1 / (1 + np.exp(-x)))

    def worth(self, action: Actions, acts: Floats) -> tuple[Floats, Floats]:
        """Expected reward and cost of a day on which they act, or with so much probability."""
        reward = acts * self.basket
        return reward, reward * self.world.offers[action]

    def after(self, action: Actions, acts: NDArray[Any]) -> People:
        """The same users tomorrow."""
        strength = self.world.strength[action]
        return replace(
            self,
            habit=self.habit + self.world.pace * (acts - self.habit),
            fatigue=self.fatigue + 0.25 * (strength - self.fatigue),
            weekday=(self.weekday + 1) % 7,
        )


Policy = Callable[[People], Actions]


@dataclass(frozen=True)
class World:
    """One of the worlds above."""

    name: str
    offers: Floats  # [K] yuan, or shares of the amount
    prices: Floats  # λ of the curves of what is known, and of the peers
    at_most: float
    shop: bool = False
    start: float = -1.6
    carry: float = 1.0
    pace: float = 0.15
    tire: float = 0.6
    days: int = 7
    counted: int = 7  # days of a user that limits and claims are about: outlay's own choice, from when users joined
    discount: float = 0.9

    @property
    def strength(self) -> Floats:
        """`[K]` of the offers."""
        return np.asarray(self.offers / self.offers[-1])

    @property
    def horizon(self) -> int:
        """Days that the truth spans."""
        return int(np.ceil(np.log(NEGLIGIBLE) / np.log(self.discount)))

    def joined(self, users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """`[users]` the day of the log on which each joins."""
        late = rng.random(users) < 0.5 * self.shop
        return np.where(late, rng.integers(1, 10, users), 0)

    def write(self, folder: str | Path, *, users: int, seed: int) -> Path:
        """The log and its campaign file; the latter's path."""
        out, rng = Path(folder), np.random.default_rng(seed)
        out.mkdir(parents=True, exist_ok=True)
        joined = self.joined(users, rng)
        people, parts = People.draw(self, joined, rng), []
        for step in range(self.days):
            action = rng.integers(len(self.offers), size=users)
            acts = rng.random(users) < people.chance(action)
            reward, cost = people.worth(action, acts.astype(float))
            if self.shop:
                luck = rng.lognormal(-0.32, 0.8, users)
                reward, cost = reward * luck, cost * luck
            rows = pa.table(
                {
                    "user": np.arange(users),
                    "day": joined + step,
                    **people.table(),
                    "offer": self.offers[action],
                    "reward": reward,
                    "cost": cost,
                    "p": np.full(users, 1 / len(self.offers)),
                }
            )
            parts.append(rows.filter(pa.array(joined + step < self.days)))
            people = people.after(action, acts)
        pq.write_table(pa.concat_tables(parts), out / "log.parquet")
        names = list(people.table())
        whole = [name for name in names if name.startswith(("k", "w"))]
        text = CAMPAIGN.format(
            name=self.name,
            discount=self.discount,
            actions=self.offers.tolist(),
            categorical=whole,
            numeric=[name for name in names if name not in whole],
            at_most=self.at_most,
        )
        path = out / "campaign.toml"
        path.write_text(text.replace("'", '"'))
        return path

    def daily(self, policy: Policy, users: int = PLAYED, seed: int = SEED, span: int | None = None) -> Floats:
        """`[D, 2]` mean reward and cost of each day; the same users and luck for every policy; of `span` days."""
        rng, days = np.random.default_rng(seed), np.zeros((span or self.horizon, 2))
        people = People.draw(self, self.joined(users, rng), rng)
        for day in days:
            action = policy(people)
            chance = people.chance(action)
            day[:] = np.mean(people.worth(action, chance), axis=1)
            people = people.after(action, rng.random(users) < chance)
        return days

    def of_days(self, days: Floats) -> tuple[float, float]:
        """Discounted mean of the reward `[D, 2]`, and mean cost of the days that a limit is about."""
        weights = self.discount ** np.arange(self.horizon)
        return float(weights @ days[:, 0] / weights.sum()), float(days[: self.counted, 1].mean())

    def truth(self, policy: Policy, users: int = PLAYED, seed: int = SEED) -> tuple[float, float]:
        """Both of a policy."""
        return self.of_days(self.daily(policy, users, seed))

    def constants(self) -> Floats:
        """`[K, 2]` value and cost of every offer to all."""

        def given(action: int) -> Policy:
            return lambda people: np.full(len(people.own), action)

        return np.array([self.truth(given(action)) for action in range(len(self.offers))])

    def one_day(self, price: float) -> Policy:
        """The best of every day alone at a price of a yuan of cost, by true responses."""
        return lambda people: self._gains(people, price).argmax(axis=1)

    def known(self, price: float, users: int = 3_000, plays: int = 120) -> Policy:
        """A policy that knows the world and looks ahead: the best of a family, by playing it.

            argmax_a  r(a) − λ c(a) + (θ₀ + θ₁ q) P(a) − (θ₂ + θ₃ q) s(a),    q = P(none) (1 − P(none))

        of true responses: what acting today is worth tomorrow, and what the offer's fatigue costs. θ = 0 is the one-day
        rule. Found on other users than those of the truth, by Nelder and Mead's simplex.
        """

        def of(theta: Floats) -> Policy:
            def act(people: People) -> Actions:
                rest = people.chance(np.zeros(len(people.own), np.int64))
                spread = rest * (1 - rest)
                gains = self._gains(people, price)
                for a, strength in enumerate(self.strength):
                    chance = people.chance(np.full(len(rest), a))
                    gains[:, a] += (theta[0] + theta[1] * spread) * chance
                    gains[:, a] -= (theta[2] + theta[3] * spread) * strength
                return np.asarray(gains.argmax(axis=1))

            return act

        def loss(theta: Floats) -> float:
            reward, cost = self.truth(of(theta), users, SEED + 1)
            return price * cost - reward

        start = np.vstack([np.zeros(4), np.diag([0.2, 0.2, 0.1, 0.3])])
        settings = {"maxfev": plays, "initial_simplex": start}
        return of(minimize(loss, np.zeros(4), method="Nelder-Mead", options=settings).x)

    def _gains(self, people: People, price: float) -> Floats:
        """`[n, K]` today's reward less priced cost, by basket."""
        gains = []
        for a in range(len(self.offers)):
            action = np.full(len(people.own), a)
            reward, cost = people.worth(action, people.chance(action))
            gains.append((reward - price * cost) / people.basket)
        return np.stack(gains, axis=1)


WORLDS: Mapping[str, World] = {
    world.name: world
    for world in (
        World(
            "shop",
            np.array([0.0, 0.05, 0.1, 0.2, 0.3]),
            np.array([0.5, 1.0, 1.7, 2.5, 4.0]),
            1.0,
            shop=True,
            start=-2.6,
            tire=1.5,
            days=14,
            counted=8,
        ),
        World("mild", YUAN, PRICES, 0.6),
        World("slow", YUAN, PRICES, 0.6, start=-2.6, carry=4.0, pace=0.04),
    )
}
