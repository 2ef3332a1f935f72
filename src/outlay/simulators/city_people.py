"""Users of the city: their features, their log, and the value of policies that depend on the features.

    values = PolicyValues(CityTruth(City(slow=True)))
    values(None).value                     # the log's own policy: {"reward": …, "coupon_cost": …, "reward@7": …}
    values(policy)                         # policy: a table of features → action indices [n], or probabilities [n, A]
    values(first, second, weights=(0.3, 0.7)).std_error                  # a sticky mixture

The log's policy depends on features only: larger coupons for users with a weak habit or a taste for low prices, and by
plan. Every coupon has a probability of at least `LEAST_CHANCE`.

Source: ours; `PolicyValues` after Henderson & Glynn (2002), approximating martingales as control variates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit

from outlay.core.errors import OutlayError
from outlay.core.estimate import Target
from outlay.simulators.city import (
    BAR,
    BASE,
    BASE_GRID,
    BASKET_SPREAD,
    CATEGORICAL,
    CHANNEL,
    COUPONS,
    DAYS,
    F_GRID,
    GAPS,
    H_GRID,
    LEAN,
    NUMERIC,
    PULL,
    PULL_GRID,
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
from outlay.simulators.city_truth import CityTruth, pull_of
from outlay.simulators.simulator import Held
from outlay.simulators.write import CampaignFile, Columns

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Features = Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]]  # from a day's features to the log's columns
Policy = Callable[[pa.Table], NDArray[Any]]  # features of n users today → action indices [n] or probabilities [n, A]

LEAST_CHANCE = 0.08  # least probability of a coupon under the log's policy
LONGEST_GAP = 30  # largest number of days since the last active one in the log
FAR = 1e-3  # weight of the days that are not simulated, in a discounted value
CHUNK_USERS = 20_000
REPORT_DAYS = (1, 3, 7)
AT_MOST = 0.8  # yuan per decision: below what the log spends, so that the limit binds


@dataclass
class People:
    """The state of n users on a calendar day.

    Attributes:
        city: their city.
        rng: random numbers of their behaviour; a day takes the same number of them for any action, so that policies
            share them.
        shown: random numbers of the noise in the logged habit and fatigue.
        fixed: the features that never change, `[n]` each.
        seeker, base, pull, basket: `[n]` their type, as points of its grids.
        habit, fatigue: `[n]` points of H_GRID and F_GRID.
        gap: `[n]` days since the last active one, from 1.
        recent: `[n]` coupons used recently, in yuan.
        joins: `[n]` first day.
        day: the calendar day, from 0.
    """

    city: City
    rng: np.random.Generator
    shown: np.random.Generator
    fixed: dict[str, NDArray[Any]]
    seeker: Index
    base: Index
    pull: Index
    basket: Index
    habit: Index
    fatigue: Index
    gap: Index
    recent: Floats
    joins: Index
    day: int = 0

    @classmethod
    def draw(cls, city: City, users: int, rng: np.random.Generator) -> People:
        """Draw new users, in the state of their first days."""
        rng, shown = rng.spawn(2)
        fixed: dict[str, NDArray[Any]] = {
            name: rng.integers(size, size=users, dtype=np.int8)
            for name, size in CATEGORICAL.items()
            if name != "weekday"
        }
        for name in ("engagement", "price_taste", "basket_mix", "age", "score", "balance"):
            fixed[name] = rng.normal(size=users)
        kind, plan, channel = fixed["kind"], fixed["plan"], fixed["channel"]
        base = _nearest(BASE_GRID, BASE[kind] + SLOPE[plan] * fixed["engagement"])
        pull = _nearest(PULL_GRID, PULL[plan] + TOWN[fixed["city"]] + TASTE * fixed["price_taste"])
        habit = _drawn(first_habit(city)[base], rng)
        return cls(
            city=city,
            rng=rng,
            shown=shown,
            fixed=fixed,
            seeker=(fixed["basket_mix"] > BAR - LEAN[kind] * CHANNEL[channel]).astype(np.intp),
            base=base,
            pull=pull,
            basket=fixed["partner"].astype(np.intp) % len(city.baskets),
            habit=habit,
            fatigue=_drawn(np.broadcast_to(first_fatigue(), (users, len(F_GRID))), rng),
            gap=np.minimum(rng.geometric(came_lately()[habit]), LONGEST_GAP),
            recent=rng.gamma(1.0, 0.5, users),
            joins=_drawn(np.broadcast_to(city.joining(), (users, len(city.joining()))), rng),
        )

    def table(self) -> dict[str, NDArray[Any]]:
        """Return today's features, integers and float32, including those that `hidden` leaves out of the log."""
        jitter = self.shown.random((2, len(self.habit))) - 0.5
        own = {
            "habit": np.clip(H_GRID[self.habit] + jitter[0] * H_GRID[1], 0, 1),
            "fatigue": np.clip(F_GRID[self.fatigue] + jitter[1] * F_GRID[1], 0, 1),
            "gap": self.gap,
            "recent": self.recent,
            "weekday": np.full(len(self.habit), self.day % 7, np.int8),
        }
        features = self.fixed | own
        return {
            **{name: features[name] for name in CATEGORICAL},
            **{name: np.asarray(features[name], np.float32) for name in NUMERIC},
        }

    def features(self, table: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the feature columns of the log."""
        return {name: table[name] for name in (*CATEGORICAL, *self.city.numeric)}

    def active_prob(self, coupon: Index) -> Floats:
        """Return `[n]` the probability that each user is active today, given the index of the coupon."""
        without, factor = self.city.odds(BASE_GRID[self.base], H_GRID[self.habit], F_GRID[self.fatigue], self.gap)
        pull = pull_of(self.seeker, self.pull) * factor * STRENGTH[coupon]
        return np.asarray(expit(without + self.city.calendar(self.day) + pull))

    def live(self, coupon: Index) -> tuple[Floats, NDArray[np.bool_]]:
        """Simulate a day, given the index of each user's coupon; return `[n]` probabilities of activity and activity.

        The state of users who have not joined yet does not change, and their results are to be ignored.
        """
        dice = self.rng.random((3, len(self.habit)))
        chance = self.active_prob(coupon)
        active = dice[0] < chance
        none, some, bought = (moves.draw(self.habit, dice[1]) for moves in habit_moves(self.city))
        habit = np.where(active, np.where((self.seeker == 1) & (coupon > 0), bought, some), none)
        moves = fatigue_moves()
        fatigue = np.choose(coupon, [each.draw(self.fatigue, dice[2]) for each in moves])
        here = self.joins <= self.day
        self.habit = np.where(here, habit, self.habit)
        self.fatigue = np.where(here, fatigue, self.fatigue)
        self.gap = np.where(here, np.where(active, 1, np.minimum(self.gap + 1, LONGEST_GAP)), self.gap)
        self.recent = np.where(here, 0.7 * self.recent + COUPONS[coupon] * active, self.recent)
        self.day += 1
        return chance, active


def logged(table: dict[str, NDArray[Any]]) -> Floats:
    """Return `[n, A]` the probabilities of the log's policy."""
    want = 1.2 * (0.45 - table["habit"]) + 0.4 * table["price_taste"] + 0.3 * (table["plan"] - 1.0)
    score = want[:, None] * np.linspace(-1, 1, len(COUPONS))
    share = np.exp(score - score.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    return np.asarray(LEAST_CHANCE + (1 - len(COUPONS) * LEAST_CHANCE) * share, np.float64)


def log_of(
    city: City,
    users: int,
    days: int,
    seed: int,
    *,
    show: Callable[[People], Features] | None = None,
    chunk_users: int = CHUNK_USERS,
) -> Iterator[Columns]:
    """Generate the log in chunks of whole users; a user's rows are contiguous and in the order of the days.

    Args:
        city: the campaign.
        users: number of users.
        days: number of calendar days; a user who joins late has fewer rows, but joins on the last day at the latest.
        seed: random seed; the same arguments give the same log.
        show: how some people show in the columns of the log; None: by `People.features`.
        chunk_users: number of users of a chunk.

    Yields:
        Columns of N rows: `user` (index), `day`, the features, `segment`, `coupon`, `active`, with money `spend`,
        `cost` and `propensity`.
    """
    rng = np.random.default_rng(seed)
    for begin in range(0, users, chunk_users):
        n = min(chunk_users, users - begin)
        people = People.draw(city, n, rng)
        features = people.features if show is None else show(people)
        people.joins = np.minimum(people.joins, days - 1)
        spread = rng.spawn(1)[0]
        parts = []
        for day in range(days):
            table = people.table()
            chance = logged(table)
            action = _drawn(chance, people.rng)
            gap = people.gap
            _, active = people.live(action)
            rows: dict[str, NDArray[Any]] = {
                "user": np.arange(begin, begin + n),
                "day": np.full(n, day, np.int32),
                **features(table),
                "segment": np.where(gap > 2, "away", "around"),
                "coupon": COUPONS[action],
                "active": active.astype(np.int8),
            }
            if city.money:
                luck = np.exp(BASKET_SPREAD * spread.normal(size=n) - BASKET_SPREAD**2 / 2)
                rows["spend"] = city.baskets[people.basket] * luck * active
            rows["cost"] = COUPONS[action] * active
            rows["propensity"] = chance[np.arange(n), action]
            here = people.joins <= day
            if city.sparse:
                here &= (action > 0) | active | (people.joins == day)
            parts.append({name: column[here] for name, column in rows.items()})
        order = np.argsort(np.concatenate([part["user"] for part in parts]), kind="stable")
        yield {name: np.concatenate([part.pop(name) for part in parts])[order] for name in list(parts[0])}


@dataclass(frozen=True)
class CityWorld:
    """The city as a simulated campaign."""

    city: City
    log_days: int = DAYS

    @property
    def coupons(self) -> Floats:
        """`[A]` values given, ascending."""
        return COUPONS

    @property
    def num_features(self) -> int:
        """Number of feature columns in the log."""
        return len(CATEGORICAL) + len(self.city.numeric)

    def generate(self, users: int, days: int, seed: int, *, held: Held = None) -> Iterator[Columns]:
        """Generate a log, as `log_of` does.

        Raises:
            OutlayError: if `held` is given.
        """
        no_held("city", held)
        return log_of(self.city, users, days, seed)

    def text(self, days: int, held: Held = None) -> str:
        """Return the text of campaign.toml.

        Raises:
            OutlayError: if `held` is given.
        """
        no_held("city", held)
        return self.file(days).text()

    def file(self, days: int) -> CampaignFile:
        """Return what campaign.toml says of a log of so many days."""
        city = self.city
        sparse = "\ncomplete = true           # days without a coupon and without activity have no row"
        return CampaignFile(
            name="city",
            discount=city.gamma,
            horizon_days=min(days, DAYS),
            report_days=[k for k in REPORT_DAYS if k <= days],
            none=0.0,
            actions=COUPONS.tolist(),
            propensity="by habit, price_taste and plan",
            more=sparse if city.sparse else "",
            reward="spend" if city.money else "active",
            about_reward="tens of yuan spent that day" if city.money else "1 if the user was active that day",
            label="tens of yuan of sales" if city.money else "active days",
            segment="segment",
            contrast=(0.0, 2.0),
            categorical=tuple(CATEGORICAL),
            numeric=city.numeric,
            about_features="habit, fatigue, recency and coupons used lately are numbers; most others are noise",
            at_most=AT_MOST,
            truth="city.json",
        )

    def write_truth(self, folder: Path) -> None:
        """Write the options, which determine the truth."""
        self.city.write(folder)


def simulator(
    slow: bool = False,
    money: bool = False,
    hidden: bool = False,
    rhythm: bool = False,
    sparse: bool = False,
    late: bool = False,
    discount: float | None = None,
) -> CityWorld:
    """Return the simulated campaign of a city; the options are those of `City`.

    Raises:
        OutlayError: if the discount is invalid.
    """
    return CityWorld(
        City(slow=slow, money=money, hidden=hidden, rhythm=rhythm, sparse=sparse, late=late, discount=discount)
    )


def no_held(name: str, held: Held) -> None:
    """Check that no coupons are held.

    Raises:
        OutlayError: if some are.
    """
    if held is not None:
        raise OutlayError(f"{name} has no such option.", where="held", way_out="Leave it out; its log is randomised.")


class PolicyValue(NamedTuple):
    """A policy's value, by target: `reward`, `coupon_cost`, `reward@k`, `coupon_cost@k`."""

    value: dict[str, float]
    std_error: dict[str, float]


class PolicyValues:
    """Values of policies of features, by simulation with common random numbers.

    A discounted value is J = E V(s₀) + E Σ γᵗ ((1−γ) r + γ E[V(s')] − V(s)) for any V. With the exact V of a constant
    coupon, whose mean over first states is known, the variance is small. The days after the simulated ones, which weigh
    0.001, are approximated by V. Totals of k days are means of expected outcomes.

    Args:
        truth: truth of the city.
        users: number of simulated users.
        seed: random seed of the users and their behaviour, the same for every policy.
        show: how people show in the columns that policies read; None: by `People.features`.
    """

    def __init__(
        self,
        truth: CityTruth,
        *,
        users: int = 20_000,
        seed: int = 987_654,
        show: Callable[[People], Features] | None = None,
    ) -> None:
        self.truth, self.city, self.users, self.seed, self.show = truth, truth.city, users, seed, show
        self._around = truth.around()

    def __call__(
        self, *members: Policy | None, weights: Sequence[float] | None = None, days: Sequence[int] = (1, 3, 7)
    ) -> PolicyValue:
        """Return the value of a policy, or of the sticky mixture of several.

        Args:
            members: policies; None is the log's own.
            weights: weights of the members; None: equal weights.
            days: numbers of days of the totals.
        """
        shares = np.full(len(members), 1 / len(members)) if weights is None else np.asarray(weights, np.float64)
        values: dict[str, Floats] = {}
        for member, share in zip(members, shares, strict=True):
            for target, each in self._by_user(member, days).items():
                values[target] = values.get(target, 0.0) + share * each
        return PolicyValue(
            {target: float(each.mean()) for target, each in values.items()},
            {target: float(each.std() / math.sqrt(len(each))) for target, each in values.items()},
        )

    def _by_user(self, policy: Policy | None, days: Sequence[int]) -> dict[str, Floats]:
        """Return `[n]` by target: each user's contribution to the mean."""
        city, gamma = self.city, self.city.gamma
        people = People.draw(city, self.users, np.random.default_rng(self.seed))
        features = people.features if self.show is None else self.show(people)
        dice = people.rng.spawn(1)[0]
        worth = city.baskets[people.basket]
        far = 1 if gamma == 0 else math.ceil(math.log(FAR) / math.log(gamma))
        last = max(far, *days) + len(city.joining()) - 1
        discounted = np.zeros((2, self.users)) + self._around.mean[:, None]
        totals = {k: np.zeros((2, self.users)) for k in days}
        for day in range(last):
            table = people.table()
            drawn = dice.random(self.users)
            action = _act(policy, features, table, drawn)
            type_of, habit, fatigue, gap = self._state(people)
            age = day - people.joins
            chance, _ = people.live(action)
            day_of = np.stack([worth * chance, COUPONS[action] * chance])
            then = self._around.idle[:, action, type_of, habit, fatigue, gap]
            then = then + chance * (self._around.active[:, action, type_of, habit, fatigue] - then)
            surprise = (1 - gamma) * day_of + gamma * then - self._around.values[:, type_of, habit, fatigue, gap]
            discounted += np.where((age >= 0) & (age < far), gamma ** np.maximum(age, 0), 0.0) * surprise
            for k, total in totals.items():
                total += ((age >= 0) & (age < k)) * day_of
        names = ("reward", "coupon_cost")
        values = dict(zip(names, discounted, strict=True))
        return values | {str(Target(name, k)): total[i] for k, total in totals.items() for i, name in enumerate(names)}

    def _state(self, people: People) -> tuple[Index, Index, Index, Index]:
        """Return the users' indices in the arrays of the truth."""
        type_of = np.ravel_multi_index(
            (people.seeker, people.base, people.pull, people.basket), self.truth.shares.shape
        )
        return type_of, people.habit, people.fatigue, np.minimum(people.gap, GAPS) - 1


def _act(policy: Policy | None, features: Features, table: dict[str, NDArray[Any]], drawn: Floats) -> Index:
    """Return `[n]` action indices."""
    chosen = logged(table) if policy is None else np.asarray(policy(pa.table(features(table))))
    if chosen.ndim == 1:
        return chosen.astype(np.intp)
    return _placed(chosen.cumsum(axis=1), drawn)


def _nearest(grid: Floats, values: Floats) -> Index:
    return np.searchsorted((grid[1:] + grid[:-1]) / 2, values)


def _drawn(shares: Floats, rng: np.random.Generator) -> Index:
    """Draw `[n]` an index from each row of probabilities `[n, k]`."""
    return _placed(shares.cumsum(axis=1), rng.random(len(shares)))


def _placed(below: Floats, dice: Floats) -> Index:
    return np.asarray(np.minimum((dice[:, None] > below).sum(axis=1), below.shape[1] - 1), np.intp)
