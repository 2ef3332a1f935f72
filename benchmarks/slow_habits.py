"""A world of rich states whose truth is known: habits that change over weeks, 20 features, no state met twice.

    world = World(days=7, discount=0.9)
    path = world.write("folder", users=20_000, seed=1)   # log.parquet and campaign.toml
    world.value(world.daily(None))                       # {"reward": …, "reward@7": …, …} of the log's policy
    world.value(served(world, bundle))                   # of a bundle's mixture

A user has a habit h ∈ [0, 1], which moves 6% of the way towards today's activity, and a fatigue f ∈ [0, 1], which
moves 20% of the way towards today's coupon:

    P(active) = σ(−1.6 + 3.4 h − 1.1 f + level + kind + (sensitivity · (1 − 0.7 h)) · log(1 + coupon))
    h' = h + 0.06 (active − h)        f' = f + 0.2 (coupon / 5 − f)        cost = coupon · active

All of h, f, level, sensitivity and kind are in the log, so the features say enough; but nothing linear in them, and no
layer of a network that was trained to act, need close under these moves. The coupons were drawn with probabilities that
depend on the features and are logged. People start below the habit that the log's policy sustains, so that a log of
days shows a rise of which it does not show the end. With `counter` the money that a user ever got is a feature: it only
grows, and later days lie where no logged day lay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
Policy = Callable[[Any], Index]  # action index `[n]` of the rows of a table

COUPONS = np.array([0.0, 1.0, 2.0, 3.0, 5.0])
LEAST_CHANCE = 0.08  # of every coupon under the log's policy
NEGLIGIBLE = 1e-3  # share of the discounted weight beyond the days that are simulated for the truth
NUMERIC = ("habit", "fatigue", "level", "sensitivity", "gap", "recent", "age", "score", "balance", "visits")
CATEGORICAL = {
    "kind": 6,
    "plan": 3,
    "city": 20,
    "device": 4,
    "channel": 8,
    "weekday": 7,
    "os": 5,
    "theme": 3,
    "cohort": 12,
    "partner": 9,
}
KIND = np.array([-0.5, -0.2, 0.0, 0.1, 0.3, 0.5])
PLAN = np.array([0.4, 0.8, 1.2])


@dataclass
class People:
    """n users as they are today, and what they are drawn from."""

    rng: np.random.Generator
    fixed: dict[str, NDArray[Any]]
    habit: Floats
    fatigue: Floats
    gap: Floats
    recent: Floats
    spent: Floats
    day: int = 0

    @classmethod
    def draw(cls, users: int, seed: int) -> People:
        """New users."""
        rng = np.random.default_rng(seed)
        fixed: dict[str, NDArray[Any]] = {
            name: rng.integers(size, size=users) for name, size in CATEGORICAL.items() if name != "weekday"
        }
        fixed["level"] = rng.normal(0, 0.6, users)
        fixed["sensitivity"] = PLAN[fixed["plan"]] * rng.uniform(0.5, 1.5, users)
        for name in ("age", "score", "balance"):
            fixed[name] = rng.normal(0, 1, users)
        habit = rng.beta(1.6, 3.4, users)
        return cls(
            rng,
            fixed,
            habit,
            rng.beta(1.5, 6, users),
            rng.geometric(0.3, users).astype(float),
            rng.gamma(1.0, 0.5, users),
            np.zeros(users),
        )

    def table(self, counter: bool) -> dict[str, NDArray[Any]]:
        """The features of today."""
        users = len(self.habit)
        return {
            **self.fixed,
            "habit": self.habit,
            "fatigue": self.fatigue,
            "gap": self.gap,
            "recent": self.recent,
            "weekday": np.full(users, self.day % 7),
            "visits": self.spent if counter else self.rng.normal(0, 1, users),
        }

    def chance(self, coupon: Floats) -> Floats:
        """`[n]` probability that each user is active today, given the coupon."""
        pull = self.fixed["sensitivity"] * (1 - 0.7 * self.habit) * np.log1p(coupon)
        x = -1.6 + 3.4 * self.habit - 1.1 * self.fatigue + self.fixed["level"] + KIND[self.fixed["kind"]] + pull
        return np.asarray(1 / (1 + np.exp(-x)))

    def logged(self) -> Floats:
        """`[n, K]` probabilities of the log's policy: more for those who come less and those who respond."""
        want = 1.5 * (0.5 - self.habit) + 0.4 * (self.fixed["sensitivity"] - 1)
        score = want[:, None] * np.linspace(-1, 1, len(COUPONS))
        share = np.exp(score - score.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        return np.asarray(LEAST_CHANCE + (1 - len(COUPONS) * LEAST_CHANCE) * share)

    def move(self, coupon: Floats, active: NDArray[np.bool_]) -> None:
        """To tomorrow."""
        self.habit = self.habit + 0.06 * (active - self.habit)
        self.fatigue = self.fatigue + 0.2 * (coupon / COUPONS[-1] - self.fatigue)
        self.gap = np.where(active, 1.0, np.minimum(self.gap + 1, 30))
        self.recent = 0.7 * self.recent + coupon * active
        self.spent = self.spent + coupon * active
        self.day += 1


@dataclass(frozen=True)
class World:
    """A campaign on these people.

    Attributes:
        days: of the log.
        discount: γ.
        counter: whether the money that a user ever got is a feature.
        at_most: limit of the cost per decision.
        late: share of users who join on a later day of the log.
        users: that the truth is averaged over.
        train: settings of the campaign file's `[train]`.
    """

    days: int = 7
    discount: float = 0.9
    counter: bool = False
    at_most: float = 0.9
    late: float = 0.0
    users: int = 20_000
    train: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def horizon(self) -> int:
        """Days that the truth is simulated for."""
        return max(self.days, int(np.ceil(np.log(NEGLIGIBLE) / np.log(self.discount))))

    def write(self, folder: str | Path, *, users: int, seed: int) -> Path:
        """Log and campaign file of a campaign; its path."""
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.log(users, seed), out / "log.parquet")
        (out / "campaign.toml").write_text(self.text())
        return out / "campaign.toml"

    def log(self, users: int, seed: int) -> Any:
        """A row per user and day."""
        people = People.draw(users, seed)
        joins = np.where(people.rng.random(users) < self.late, people.rng.integers(1, max(2, self.days), users), 0)
        parts = []
        for day in range(self.days):
            chance = people.logged()
            drawn = np.minimum((people.rng.random((users, 1)) > chance.cumsum(axis=1)).sum(axis=1), len(COUPONS) - 1)
            coupon = COUPONS[drawn]
            active = people.rng.random(users) < people.chance(coupon)
            seen = {"user": np.arange(users), "day": np.full(users, day), **people.table(self.counter)}
            rows = seen | {"coupon": coupon, "p": chance[np.arange(users), drawn], "active": active.astype(np.int8)}
            here = joins <= day
            parts.append(pa.table({name: column[here] for name, column in rows.items()}))
            people.move(np.where(here, coupon, 0.0), active)
        return pa.concat_tables(parts).sort_by([("user", "ascending"), ("day", "ascending")])

    def text(self) -> str:
        """The campaign file."""
        lines = [
            "[campaign]",
            'name = "slow habits"',
            'unit = "yuan"',
            f"discount = {self.discount}",
            f"horizon_days = {self.days}",
            f"report_days = {sorted({1, 3, 7, self.days})}",
            "none = 0.0",
            "",
            "[log]",
            'source = "log.parquet"',
            'user = "user"',
            'time = "day"',
            'action = "coupon"',
            'reward = "active"',
            'propensity = "p"',
            "",
            "[log.features]",
            f"categorical = {list(CATEGORICAL)}",
            f"numeric = {list(NUMERIC)}",
            "",
            "[[budget]]",
            'name = "coupon_cost"',
            'cost = "coupon * active"',
            f"at_most = {self.at_most}",
            'per = "decision"',
            "money = true",
            "",
            "[train]",
            *(f"{name} = {value}" for name, value in self.train.items()),
            "",
        ]
        return "\n".join(lines)

    def daily(self, policy: Policy | None, *, seed: int = 987_654) -> Floats:
        """`[H, 2]` expected reward and cost a day per user under a policy; None is the log's own."""
        people, found = People.draw(self.users, seed), np.zeros((self.horizon, 2))
        for day in range(self.horizon):
            chance, dice = people.logged(), people.rng.random((2, self.users))  # the same for every policy
            table = people.table(self.counter)
            if policy is None:
                action = np.minimum((dice[0][:, None] > chance.cumsum(axis=1)).sum(axis=1), len(COUPONS) - 1)
            else:
                action = policy(pa.table(table))
            coupon = COUPONS[action]
            active = people.chance(coupon)
            found[day] = active.mean(), (coupon * active).mean()
            people.move(coupon, dice[1] < active)
        return found

    def value(self, daily: Floats, days: Sequence[int] = ()) -> dict[str, float]:
        """Discounted values and totals of k days of what comes a day `[H, 2]`; a decision is made every day."""
        weight = (1 - self.discount) * self.discount ** np.arange(len(daily))
        names, whole = ("reward", "coupon_cost"), daily.cumsum(axis=0)
        found = dict(zip(names, (weight / weight.sum() @ daily).tolist(), strict=True))
        return found | {f"{n}@{k}": float(whole[k - 1, j]) for k in {*days, self.days} for j, n in enumerate(names)}


def bundle_policies(bundle: Bundle) -> list[Policy]:
    """Every member of a bundle."""

    def of(member: int) -> Policy:
        def act(table: Any) -> Index:
            seen = bundle.schema.encode(table)
            return np.asarray(bundle.member_actions(member, seen.codes, seen.numbers), np.intp)

        return act

    return [of(member) for member in range(len(bundle.members))]


def always(action: int) -> Policy:
    """The same action for everybody, every day."""
    return lambda table: np.full(table.num_rows, action, np.intp)


def served(world: World, bundle: Bundle) -> Floats:
    """`[H, 2]` of a bundle's sticky mixture."""
    parts = np.array([world.daily(policy) for policy in bundle_policies(bundle)])
    return np.asarray(np.tensordot(bundle.weights, parts, axes=1))
