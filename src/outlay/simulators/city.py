"""The city campaign: rich states whose truth is known. 20 features; habit, fatigue and recency are numbers.

    P(active) = σ(base + habit_effect·h − GAP_EFFECT·g + calendar(day)
                  + pull·(1 − EASE·h)·(1 − WEAR·f)·ln(1 + coupon) / ln(1 + 5))

    h  habit       moves by `habit_rate` towards 1 on an active day, towards 0 on another
    f  fatigue     moves by FATIGUE_RATE towards coupon / 5, whether or not the coupon was used
    g  recency     0 after an active day, and 1/5 more for each day without one, up to 1

Reward: active (0 or 1), or with `money` the amount spent on an active day. Cost: coupon · active. The pull of a *deal
seeker* is strong, but an active day with a coupon forms little habit: h moves towards `seeker_form`, 0.3 or 0. For all
other users, such days form a habit too. So a policy that looks one day ahead spends its budget on deal seekers.

A user's type follows from products of features, and from a category of 20 unordered values:

    base     BASE[kind] + SLOPE[plan]·engagement
    pull     exp(PULL[plan] + TOWN[city] + TASTE·price_taste), SEEKER_PULL times as much for a seeker
    seeker   basket_mix > BAR − LEAN[kind]·CHANNEL[channel]

The true states are countable although no logged state occurs twice: h, f, base and pull lie on grids. A move that ends
between two points of a grid goes to one of them at random, so that its mean is as above; base and pull are rounded to
the nearest point. `city_truth.py` has the optimum and the value of policies of the state, exact on these approximately
100,000 states; `city_people.py` has users, their logs, and the value of policies of features.

Source: ours; parameters invented. A coupon adds 5 to 16 points for most and 11 to 31 for seekers to a base activity of
0.39, or 0.32 with slow habits. At eleven budgets, a 1-day policy with true responses captures 0.60 to 0.71 of the
optimum's gain over the best constants with fast habits, and 0.37 to 0.64 with slow ones. The optimum is 10% above the
best constants at the smallest budget and 1 to 3% at the largest.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import write_json

Floats = NDArray[np.float64]

COUPONS = np.array([0.0, 1.0, 2.0, 3.0, 5.0])  # yuan; 0 is no coupon
DAYS = 7  # of the log
CITY_FILE = "city.json"  # beside the log: the options
GAP_EFFECT, EASE, WEAR = 0.6, 0.5, 0.3
FATIGUE_RATE = 0.2  # per day
SEEKER_PULL = 2.0
BASE = np.array([-0.4, 0.1, 0.5, -0.2, 0.3, -0.1])  # log odds by kind
SLOPE = np.array([0.7, 0.3, -0.5])  # log odds by plan, per standard deviation
PULL = np.array([-0.25, 0.0, 0.25])  # by plan
TOWN = np.array([15, -30, 35, 0, -15, 40, -40, 20, -10, 30, -35, 10, -20, 25, 5, -25, 35, -5, -40, 30]) / 100
TASTE = 0.3
BAR = 0.6
LEAN = np.array([1.0, -0.8, 0.6, -0.3, 0.9, -1.1])  # by kind
CHANNEL = np.array([0.9, -0.7, 0.3, -1.2, 1.3, -0.2, 0.6, -0.9])
BASKET = np.array([0.5, 1.0, 2.0])  # mean spend of an active day in tens of yuan, with `money`; by partner modulo 3
BASKET_SPREAD = 1.2  # of its logarithm
WEEK = np.array([0.1, 0.0, -0.15, -0.25, -0.1, 0.15, 0.25])  # log odds by weekday, with `rhythm`
TREND, TREND_DAYS = -0.4, 28  # log odds lost over so many days, with `rhythm`; none after them
LATE, LATE_DAYS = 0.3, 7  # with `late`: share of the users who join after the first day, and within how many days

H_GRID = np.linspace(0, 1, 17)
F_GRID = np.linspace(0, 1, 5)
GAPS = 6  # days since the last active one, 1 to this or more
BASE_GRID = np.linspace(-1.5, 1.5, 9)
PULL_GRID = np.linspace(-0.9, 0.9, 6)

NUMERIC = ("habit", "fatigue", "gap", "recent", "engagement", "price_taste", "basket_mix", "age", "score", "balance")
CATEGORICAL = {
    "kind": 6,
    "plan": 3,
    "city": 20,
    "channel": 8,
    "weekday": 7,
    "device": 4,
    "os": 5,
    "theme": 3,
    "cohort": 12,
    "partner": 9,
}
HIDDEN = ("engagement", "fatigue")  # what `hidden` leaves out of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class City:
    """The options of a city.

    Attributes:
        slow: habits with a half-life of 17 days instead of 4 and a larger effect; discount 0.95 instead of 0.9.
        money: the reward is the amount spent on an active day, log-normal, instead of the active day.
        hidden: a user's base and fatigue are not in the log; the optimum knows them, and may be out of reach.
        rhythm: weekdays differ, and activity falls over four weeks.
        sparse: the log has no rows for days without a coupon and without activity, except for a user's first day.
        late: 30% of the users join on one of the six days after the first.
        discount: γ per day; None: 0.95 if `slow`, otherwise 0.9.
    """

    slow: bool = False
    money: bool = False
    hidden: bool = False
    rhythm: bool = False
    sparse: bool = False
    late: bool = False
    discount: float | None = None

    def __post_init__(self) -> None:
        if self.discount is not None and not 0 <= self.discount < 1:
            raise OutlayError(
                f"is {self.discount:g}; must be at least 0 and below 1.",
                where="discount",
                way_out="Give 0.9, for instance.",
            )

    def write(self, folder: Path) -> None:
        """Write city.json, from which `read` creates the same city."""
        write_json(folder / CITY_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> City:
        """Read the options of the city in a folder.

        Raises:
            FolderError: if there are none.
        """
        try:
            return cls(**json.loads((folder / CITY_FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise FolderError(f"has no city ({error}).", file=folder, way_out="Run: outlay simulate city") from None

    @property
    def gamma(self) -> float:
        """γ per day."""
        return self.discount if self.discount is not None else 0.95 if self.slow else 0.9

    @property
    def intercept(self) -> float:
        """Log odds of being active without habit and coupon, excluding the user's base."""
        return -2.4 if self.slow else -1.6

    @property
    def habit_effect(self) -> float:
        """Log odds of a full habit."""
        return 5.0 if self.slow else 3.0

    @property
    def habit_rate(self) -> float:
        """Share of the distance to its target that the habit moves in a day."""
        return 0.04 if self.slow else 0.15

    @property
    def seeker_form(self) -> float:
        """The habit that a deal seeker moves towards on an active day with a coupon."""
        return 0.0 if self.slow else 0.3

    @property
    def numeric(self) -> tuple[str, ...]:
        """Numeric features of the log."""
        return tuple(name for name in NUMERIC if not (self.hidden and name in HIDDEN))

    @property
    def baskets(self) -> Floats:
        """`[W]` mean reward of an active day, by class of user; the classes are equally frequent."""
        return BASKET if self.money else np.ones(1)

    def calendar(self, day: int) -> float:
        """Return the change in log odds on a calendar day, counted from 0, due to `rhythm`."""
        return float(WEEK[day % 7] + TREND * min(day, TREND_DAYS) / TREND_DAYS) if self.rhythm else 0.0

    def joining(self) -> Floats:
        """Return `[J]` the share of users whose first day is calendar day j."""
        if not self.late:
            return np.ones(1)
        return np.append(1 - LATE, np.full(LATE_DAYS - 1, LATE / (LATE_DAYS - 1)))

    def odds(self, base: Floats, habit: Floats, fatigue: Floats, gap: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Return log odds without a coupon, and the factor on its pull; arguments broadcast, `gap` starts at 1."""
        without = (
            self.intercept + base + self.habit_effect * habit - GAP_EFFECT * (np.minimum(gap, GAPS) - 1) / (GAPS - 1)
        )
        return without, (1 - EASE * habit) * (1 - WEAR * fatigue)


STRENGTH = np.log1p(COUPONS) / np.log1p(COUPONS[-1])  # [A] of a coupon, 0 to 1


class GridMoves:
    """Random moves on a grid: to the point `low`, or with probability `up` to the one above it."""

    def __init__(self, grid: Floats, target: Floats) -> None:
        place = np.clip(np.interp(target, grid, np.arange(len(grid))), 0, len(grid) - 1)
        self.low = np.minimum(place.astype(np.intp), len(grid) - 2)
        self.up = place - self.low

    def matrix(self) -> Floats:
        """Return `[n, n]` transition probabilities."""
        n = len(self.low)
        matrix, row = np.zeros((n, n)), np.arange(n)
        matrix[row, self.low] = 1 - self.up
        matrix[row, self.low + 1] += self.up
        return matrix

    def draw(self, point: NDArray[np.intp], dice: Floats) -> NDArray[np.intp]:
        """Return `[n]` the next points of n users, from uniform random numbers `dice`."""
        return self.low[point] + (dice < self.up[point])


def habit_moves(city: City) -> tuple[GridMoves, GridMoves, GridMoves]:
    """Return the habit's moves after an inactive day, an active day, and a deal seeker's active day with a coupon."""

    def towards(end: float) -> GridMoves:
        return GridMoves(H_GRID, H_GRID + city.habit_rate * (end - H_GRID))

    return towards(0.0), towards(1.0), towards(city.seeker_form)


def fatigue_moves() -> tuple[GridMoves, ...]:
    """Return the fatigue's moves, by coupon."""
    return tuple(GridMoves(F_GRID, F_GRID + FATIGUE_RATE * (coupon / COUPONS[-1] - F_GRID)) for coupon in COUPONS)


def first_habit(city: City) -> Floats:
    """Return `[B, H]` the distribution of the first day's habit, by point of BASE_GRID; it increases with the base."""
    from scipy.special import expit
    from scipy.stats import beta

    mean = 0.2 + 0.5 * expit(1.2 * BASE_GRID + city.intercept + 1)
    edges = np.concatenate([[0], (H_GRID[1:] + H_GRID[:-1]) / 2, [1]])
    return np.asarray(np.diff(beta.cdf(edges, 4 * mean[:, None], 4 * (1 - mean[:, None])), axis=1))


def first_fatigue() -> Floats:
    """Return `[F]` the distribution of the first day's fatigue."""
    from scipy.stats import beta

    return np.asarray(np.diff(beta.cdf(np.concatenate([[0], (F_GRID[1:] + F_GRID[:-1]) / 2, [1]]), 1.5, 4)))


def came_lately() -> Floats:
    """Return `[H]` the probability of activity on each day before the first; the first recency follows from it."""
    return 0.15 + 0.7 * H_GRID
