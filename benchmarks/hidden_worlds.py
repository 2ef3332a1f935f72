"""Worlds in which a log hides what matters, each with the truth of any policy: for trust.py and tests.

    world = WORLDS["hidden"]
    path = world.write("folder", users=20_000, seed=1)         # log.parquet and campaign.toml
    world.truth(served(bundle), days=7)                        # {"reward@7": …, "coupon_cost@7": …, …}

Every user acts or not on each day, with a coupon of 0, 1, 2 or 4:

    P(active) = σ(−0.9 + 1.2·yesterday + base + pull·ln(1 + coupon)/ln 5 + slow − tired + shock_d + trend·d + intent)

    base, pull   of two types of users: loyal (0.9, 0.3) and deal seekers (−0.9, 1.1); of one type where types = 0
    slow         3·h: h moves 4% a day towards activity, from 0.2: a habit that lasts longer than the log
    tired        1.2·f: f moves 30% a day towards coupon/4
    shock_d      normal, common to all users of a day
    intent       normal, of a user on a day: where it is high, the log's policy gave large coupons, and did not log why
    stock        the pull shrinks with what all users of the day are given, above what the log gave
    delay        a coupon that was not used stays valid: it is paid on a later active day, at most 14 days on

    late         this share of the deal seekers joins on a day after the first, each with as many days as are left
    drift        a row per user, invited on one of 14 dates: activity rises by this much from first to last, and large
                 coupons from 1 row in 10 to 9 in 10; the file has the date, no propensities, and declares a random draw
    strata       a row per user: loyal ones get large coupons in 8 rows of 10, deal seekers in 2; the file has the type,
                 but not among the features, no propensities, and declares a random draw
    idle         coupons change nothing

    visits       users come on some days, P = σ(−0.3 + base + 1.2·yesterday), with yesterday that of the last visit; the
                 log has rows of those days alone, and complete = true

    seldom       the log gives a coupon on this share of the days
    eager        a coupon is redeemed on this share of active days, and on 95% of them from the fifth coupon on

    money        the reward of an active day is an amount of money instead of 1: log-normal of mean 1 with this σ

The log has the activity of yesterday, where `told` the type, and where `noise` that many columns of noise.

Source: ours; the kinds of worlds are those in which outside reviewers found certificates that did not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.core.history import History, PastRows
from outlay.ops.hashing import rendezvous

Floats = NDArray[np.float64]
COUPONS = np.array([0.0, 1.0, 2.0, 4.0])
STRENGTH = np.log1p(COUPONS) / np.log(5)
PAST = ("action", "reward", "coupon_cost")  # columns of a day before
VALID = 14  # days of an unused coupon
Policy = Callable[["People"], NDArray[np.int64]]  # index of the coupon of every user today

CAMPAIGN = """[campaign]
name = "{name}"
unit = "yuan"
discount = {discount}
horizon_days = {horizon}
report_days = {report}
none = 0.0

[log]
source = "log.parquet"
user = "user_id"
time = "day"
action = "coupon"
actions = [0.0, 1.0, 2.0, 4.0]
reward = "reward"
{propensity}
{more}
[log.features]
categorical = {categorical}
numeric = {numeric}

[[budget]]
name = "coupon_cost"
cost = "cost"
at_most = {at_most}
per = "decision"
money = true
{budget}
"""


@dataclass
class People:
    """Users on one day, and what they did before."""

    world: World
    rng: np.random.Generator
    type: NDArray[np.int64]
    yesterday: NDArray[np.int64]
    slow: Floats
    tired: Floats
    pending: Floats  # value of an unused coupon
    left: NDArray[np.int64]  # days that it stays valid
    intent: Floats
    noise: Floats
    date: Floats = field(default_factory=lambda: np.zeros(0))  # of the invitation, from 0 to 1
    day: int = 0
    own_shocks: bool = False  # each user has shocks of its own: the expectation over days to come
    here: NDArray[np.bool_] = field(default_factory=lambda: np.ones(1, np.bool_))  # who comes today
    visits: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))  # before today
    given: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))  # coupons before today
    past: tuple[Floats, ...] = ()  # [users, 3] of each day: action, reward, cost

    @classmethod
    def draw(cls, world: World, users: int, seed: int, day: int = 0, own_shocks: bool = False) -> People:
        """New users."""
        rng = np.random.default_rng(seed)
        zeros = np.zeros(users)
        people = cls(
            world,
            rng,
            rng.integers(2, size=users),
            rng.integers(2, size=users),
            zeros + 0.2,
            zeros.copy(),
            zeros.copy(),
            np.zeros(users, np.int64),
            zeros,
            rng.normal(size=(users, world.noise)),
            rng.integers(14, size=users) / 13,
            day,
            own_shocks,
        )
        people.intent = rng.normal(size=users)
        people.here, people.visits = np.ones(users, np.bool_), np.zeros(users, np.int64)  # everybody begins by coming
        people.given = np.zeros(users, np.int64)
        return people

    def table(self) -> dict[str, NDArray[Any]]:
        """The features of today, as logged."""
        told = {"type": self.type} if self.world.told else {}
        told |= {"visits": self.visits} if self.world.visits else {}
        return {"yesterday": self.yesterday, **told, **{f"n{i}": c for i, c in enumerate(self.noise.T)}}

    def chances(self) -> Floats:
        """`[users, K]` probabilities of the log's policy."""
        world, users = self.world, len(self.type)
        if world.declared:
            share = 0.1 + 0.8 * self.date if world.drift else np.array([0.8, 0.2])[self.type]
            return np.stack([1 - share, 1 - share, share, share], axis=1) / 2
        if world.intent:
            large = np.where(self.intent > 0, 0.8, 0.2)[:, None]
            return np.hstack([1 - large, 1 - large, large, large]) / 2
        if world.targeted:
            chances = np.full((users, len(COUPONS)), 0.04 / len(COUPONS))
            chances[np.arange(users), np.where(self.yesterday == 1, 0, 2)] += 0.96
            return chances
        coupons, given = len(COUPONS) - 1, world.seldom or 1 - 1 / len(COUPONS)
        return np.tile([1 - given, *[given / coupons] * coupons], (users, 1))

    def act(self, action: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Reward and cost of today, after which it is tomorrow."""
        world, rng, users = self.world, self.rng, len(action)
        coupon = COUPONS[action] * self.here
        base, pull = np.zeros(users), np.full(users, 0.7)
        if world.types:
            base, pull = np.array([0.9, -0.9])[self.type], np.array([0.3, 1.1])[self.type]
        base, pull = base + world.drift * self.date, pull * (not world.idle)
        if world.stock:
            pull = pull * np.clip(1 - world.stock * (coupon.mean() - COUPONS.mean()), 0.1, 2)
        shock = rng.normal(0, world.shocks, users if self.own_shocks else 1)
        worth = np.maximum(coupon, self.pending) if world.delay else coupon
        x = -0.9 + 1.2 * self.yesterday + base + pull * np.log1p(worth) / np.log(5) + shock + world.trend * self.day
        x += 3.0 * self.slow * (world.habit > 0) - 1.2 * self.tired * (world.fatigue > 0)
        x += world.intent * self.intent
        active = (rng.random(users) < 1 / (1 + np.exp(-x))) & self.here
        cost = worth * active
        if world.eager:
            cost = cost * (rng.random(users) < np.where(self.given >= 4, 0.95, world.eager))
            self.given = self.given + (coupon > 0)
        fresh = coupon >= self.pending
        self.left = np.where(fresh & (coupon > 0), VALID, self.left - 1)
        self.pending = np.where(active | (self.left <= 0), 0.0, np.maximum(coupon, self.pending))
        self.slow = self.slow + world.habit * (active - self.slow)
        self.tired = self.tired + world.fatigue * (coupon / COUPONS[-1] - self.tired)
        self.yesterday = np.where(self.here, active, self.yesterday).astype(np.int64)
        self.visits = self.visits + self.here
        if world.visits:
            self.here = rng.random(users) < 1 / (1 + np.exp(0.3 - base - 1.2 * self.yesterday))
        self.intent = rng.normal(size=users)
        self.noise = rng.normal(size=self.noise.shape)
        reward = active.astype(float)
        if world.money:
            reward *= rng.lognormal(-(world.money**2) / 2, world.money, users)
        self.past = (*self.past, np.column_stack([coupon, reward, cost]))
        self.day += 1
        return reward, cost


@dataclass(frozen=True)
class World:
    """One of the worlds above; parameters that are 0 are switched off.

    Attributes:
        suffices: whether the state, or with `history` the past, suffices, so that certificates are to be had; where
            it cannot, runs are to be flagged, widened or not certified.
        history: past days under `[log.history]`; 0: none.
        columns, summaries: of that; those that `outlay check` recommends.
    """

    name: str
    types: bool = False
    told: bool = False
    habit: float = 0.0
    fatigue: float = 0.0
    shocks: float = 0.0
    trend: float = 0.0
    intent: float = 0.0
    drift: float = 0.0
    strata: bool = False
    idle: bool = False
    stock: float = 0.0
    delay: bool = False
    targeted: bool = False
    money: float = 0.0
    seldom: float = 0.0
    eager: float = 0.0
    late: float = 0.0
    visits: bool = False
    noise: int = 0
    history: int = 0
    columns: tuple[str, ...] = ("reward",)
    summaries: tuple[str, ...] = ("mean",)
    days: int = 14
    at_most: float = 0.8
    suffices: bool = True

    def write(self, folder: str | Path, users: int, seed: int) -> Path:
        """Write log.parquet and campaign.toml; the path of the latter."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        people, parts = People.draw(self, users, seed), []
        joined = self._joined(people.type, seed)
        for day in range(self.days):
            features, chances, here = people.table(), people.chances(), people.here
            action = _drawn(chances, people.rng)
            reward, cost = people.act(action)
            chance = chances[np.arange(users), action]
            features |= {"type": people.type} if self.strata else {}
            features |= (
                {"date": (np.datetime64("2026-03-02") + np.rint(13 * people.date).astype(int))} if self.drift else {}
            )
            columns = {"user_id": np.arange(users), "day": joined + day, **features, "coupon": COUPONS[action]}
            stated = {} if self.declared else {"p": chance}
            every = pa.table({**columns, "reward": reward, "cost": cost, **stated})
            parts.append(every.filter(pa.array((joined + day < self.days) & here)))
        pq.write_table(pa.concat_tables(parts), folder / "log.parquet")
        numeric = [*(["visits"] if self.visits else []), *(f"n{i}" for i in range(self.noise))]
        text = CAMPAIGN.format(
            name=self.name,
            discount=0.9 if self.days > 1 else 0.0,
            at_most=self.at_most,
            horizon=self.horizon,
            report=[1, self.horizon] if self.days > 1 else [1],
            propensity=("" if self.intent else "randomised = true" if self.declared else 'propensity = "p"')
            + ("\ncomplete = true" if self.visits else ""),
            more=f"[log.history]\ndays = {self.history}\ncolumns = {list(self.columns)}\n"
            f"summaries = {list(self.summaries)}"
            if self.history
            else "",
            categorical=["yesterday", *(["type"] if self.told else [])],
            numeric=numeric,
            budget="shared = true" if self.stock else "",
        )
        path = folder / "campaign.toml"
        path.write_text(text.replace("'", '"'))
        return path

    def _joined(self, kind: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """`[users]` day of each user's first row."""
        rng = np.random.default_rng([seed, 1])
        late = (kind == 1) & (rng.random(len(kind)) < self.late)
        return np.where(late, rng.integers(min(1, self.days - 1), self.days, len(kind)), 0)

    @property
    def horizon(self) -> int:
        """Days that totals span."""
        return 1 if self.days == 1 else 12 if self.visits else 7

    @property
    def declared(self) -> bool:
        """Whether the campaign file states no propensities, and declares that actions were drawn at random."""
        return self.drift > 0 or self.strata

    def truth(self, policy: Policy, *, users: int = 160_000, days: int = 7, seed: int = 99) -> dict[str, float]:
        """Totals of the first k days; means of the first `days`, of days 15 to 28, and discounted: expected over days.

        The mean cost of the first `days` is per decision, as the limit is. The users are new ones. Where there is a
        trend, the days are those after the log.
        """
        alike = replace(self, money=0.0)  # amounts have mean 1 whatever happened: their expectation has no noise
        people = People.draw(alike, users, seed, self.days if self.trend else 0, own_shocks=True)
        sums: list[tuple[float, float, float]] = []
        for _ in range(60):
            deciding = people.here.mean()
            reward, cost = people.act(policy(people))
            sums.append((float(reward.mean()), float(cost.mean()), float(deciding)))
        daily, weights = np.array(sums), 0.9 ** np.arange(60)
        found: dict[str, float] = {}
        for j, name in enumerate(("reward", "coupon_cost")):
            found |= {f"{name}@{k}": float(daily[:k, j].sum()) for k in (1, self.horizon)}
            found[name] = float(daily[:days, j].mean())
            found[f"{name}/later"] = float(daily[14:28, j].mean())
            found[f"{name}/discounted"] = float(daily[:, j] @ weights / weights.sum())
        found["coupon_cost"] /= float(daily[:days, 2].mean())
        return found


def served(bundle: Bundle) -> Policy:
    """What a bundle does to each user, every user keeping one member."""
    drawn: dict[int, NDArray[np.int64]] = {}

    def act(people: People) -> NDArray[np.int64]:
        users = len(people.type)
        columns: dict[str, Any] = dict(people.table())
        if bundle.history is not None:
            columns |= dict(
                zip(bundle.history.names, past_features(bundle.history, people.past, PAST, users).T.copy(), strict=True)
            )
        encoded = bundle.schema.encode(pa.table(columns))
        if users not in drawn:
            drawn[users] = drawn_members(bundle, users)
        actions = np.stack([chosen for chosen, _ in bundle.choices(encoded.codes, encoded.numbers)])
        return np.asarray(actions[drawn[users], np.arange(users)])

    return act


def behind_cap(bundle: Bundle) -> Bundle:
    """The same bundle with the mixture that it serves where a cap holds the money budget."""
    return replace(bundle, members=bundle.capped) if bundle.capped else bundle


def drawn_members(bundle: Bundle, users: int) -> NDArray[np.int64]:
    """`[users]` the member that each user keeps."""
    names = (f"{i}:truth" for i in range(users))
    return np.asarray(rendezvous([m.salt for m in bundle.members], bundle.weights, names))


def past_features(history: History, past: Sequence[Floats], names: Sequence[str], users: int) -> NDArray[np.float32]:
    """`[users, F]` the features of the users' past today; `past` has a `[users, len(names)]` of each day before."""
    last = past[-history.days :]
    days = len(last)
    values = np.stack(last, axis=1).reshape(users * days, len(names)) if days else np.empty((0, len(names)))
    kept = values[:, [names.index(column) for column in history.columns]].astype(np.float32)
    rows = PastRows(np.repeat(np.arange(users), days), np.tile(np.arange(days), users), kept)
    return history.summarise(rows, np.arange(users), np.full(users, days))


def logged(people: People) -> NDArray[np.int64]:
    """The log's own policy."""
    return _drawn(people.chances(), people.rng)


def _drawn(chances: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw an action of each user from `[users, K]`."""
    drawn = (chances.cumsum(axis=1) < rng.random((len(chances), 1))).sum(axis=1)
    return np.asarray(np.minimum(drawn, chances.shape[1] - 1))


def _worlds() -> dict[str, World]:
    known = World("known", types=True, told=True)
    every = [
        known,
        World("known rich", types=True, told=True, noise=6),
        World("hidden", types=True, suffices=False),
        World("hidden, past", types=True, history=14, columns=("reward", "coupon_cost")),
        World("habits", types=True, told=True, habit=0.04, suffices=False),
        World("habits, past", types=True, told=True, habit=0.04, history=14),
        World("fatigue", types=True, told=True, fatigue=0.3, suffices=False),
        World(
            "fatigue, past", types=True, told=True, fatigue=0.3, history=7, columns=("action",), summaries=("decayed",)
        ),
        World("eager", types=True, told=True, seldom=0.24, eager=0.4, days=7, at_most=0.5, suffices=False),
        World("seldom", types=True, told=True, seldom=0.24, days=7, at_most=0.5),
        World("seldom, fatigue", types=True, told=True, seldom=0.2, fatigue=0.3, days=7, at_most=0.5, suffices=False),
        World("intent", types=True, told=True, intent=0.8, suffices=False),
        World("dated", drift=3.0, idle=True, days=1, at_most=2.5, suffices=False),
        World("strata", types=True, strata=True, idle=True, days=1, at_most=2.5, suffices=False),
        World("stock", types=True, told=True, stock=0.4, suffices=False),
        World("rising", types=True, told=True, trend=0.02),
        World("falling", types=True, told=True, trend=-0.02),
        World("shocks", types=True, told=True, shocks=0.15),
        World("shocks 1%", types=True, told=True, shocks=0.022),  # of the mean reward: (1 − P) times the logit's
        World("shocks 3%", types=True, told=True, shocks=0.066),
        World("shocks 8%", types=True, told=True, shocks=0.18),
        World("rising 0.3%", types=True, told=True, trend=0.0067),  # a day; *rising* is 0.9%
        World("targeted", types=True, told=True, targeted=True),
        World("money", types=True, told=True, money=1.5),
        World("late joiners", types=True, told=True, late=0.8),
        World("late joiners, rich", types=True, told=True, late=0.8, noise=6),
        World("late joiners, untold", types=True, late=0.8, suffices=False),
        World("visits", types=True, told=True, visits=True, late=0.8, history=13),
        World("delay", types=True, told=True, delay=True, suffices=False),
        World(
            "delay, past",
            types=True,
            told=True,
            delay=True,
            history=7,
            columns=("action", "reward", "coupon_cost"),
            summaries=("mean", "decayed", "last", "since"),
        ),
    ]
    return {world.name: world for world in every}


WORLDS: Mapping[str, World] = _worlds()
