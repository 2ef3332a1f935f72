"""What a learner knows of effects in the states of a city's log, by the exact Q of the log's policy: quick and exact.

    python benchmarks/city_effects.py --users 50000 --seeds 10 12 --learners orthogonal trees     # a minute a log
    python benchmarks/city_effects.py --setting wide --users 60000 --seeds 1 2                    # two minutes a log

The type of a user and their place on the grids of habit and fatigue follow from the features, so the model behind the
log (`simulators/city_truth.py`) has the exact Q(s, a) of its policy in every row: of the day, and of what comes after
it. In rows of *select* users the policies of all λ are valued by it, without measuring, mixing or simulating them:

    captured share    as in city_quality.py, of one step of policy improvement in these states; the mean of 11 budgets
    exact later       the same with the exact effects on later days beside the learned ones on the day: what is left
                      to be lost by the day
    explained         r² of the effects on the reward, less their mean under the log's policy: of the day, of later days

*Wide* is the fast city behind the categorical fields of `outlay simulate wide`, 1,000 with 100,000 values, of which the
learners read the ten that matter. Not for a `hidden` city, whose features do not tell the state, nor with a rhythm.
Results: Markdown on stdout.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import outlay
from outlay.bundles.reference import forward
from outlay.core.arrays import NetworkArrays
from outlay.core.progress import silent
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.learning import orthogonal, trees
from outlay.learning.heads import critic_coordinates, largest_multiplier
from outlay.learning.orthogonal import answers
from outlay.learning.outcomes import without_amount_luck
from outlay.ops.mixture_lp import value_at
from outlay.simulators import wide
from outlay.simulators.city import (
    BAR,
    BASE,
    BASE_GRID,
    CATEGORICAL,
    CHANNEL,
    COUPONS,
    DAYS,
    F_GRID,
    GAPS,
    H_GRID,
    LEAN,
    PULL,
    PULL_GRID,
    SLOPE,
    TASTE,
    TOWN,
    City,
)
from outlay.simulators.city_people import log_of, logged
from outlay.simulators.city_truth import CityTruth
from outlay.training.log_game import spread_rows

ROWS, BUDGETS = 20_000, 11
FIELDS, VALUES = 1000, 100_000  # of *wide*
PRICES = np.concatenate([[0.0], np.geomspace(0.003, 1.0, 60)])  # of reward per yuan
EVEN = 2e-5  # change of the values of a sweep that counts as the same in all states

Floats = NDArray[np.float64]


class Exact:
    """The exact Q of the log's policy in rows of a log.

    Attributes:
        day, later: `[n, A, 2]` reward and cost of the day, and the discounted value of what comes after it.
        chance: `[n, A]` the log's policy.
    """

    def __init__(self, truth: CityTruth, seen: dict[str, NDArray[np.generic]]) -> None:
        city = truth.city
        kind, plan, channel = (np.asarray(seen[name], np.int64) for name in ("kind", "plan", "channel"))
        number = {name: np.asarray(seen[name], np.float64) for name in city.numeric}
        base = _nearest(BASE_GRID, BASE[kind] + SLOPE[plan] * number["engagement"])
        town = TOWN[np.asarray(seen["city"], np.int64)]
        pull = _nearest(PULL_GRID, PULL[plan] + town + TASTE * number["price_taste"])
        seeker = (number["basket_mix"] > BAR - LEAN[kind] * CHANNEL[channel]).astype(np.int64)
        basket = np.asarray(seen["partner"], np.int64) % len(city.baskets)
        place = (
            np.ravel_multi_index((seeker, base, pull, basket), truth.shares.shape),
            _nearest(H_GRID, number["habit"]),
            _nearest(F_GRID, number["fatigue"]),
            np.minimum(number["gap"].astype(np.int64), GAPS) - 1,
        )
        self.discount = city.gamma
        self.chance = logged({name: np.asarray(column) for name, column in seen.items()})
        met = [self.chance[place[1] == h] for h in range(len(H_GRID))]
        share = np.stack([(some if len(some) else self.chance).mean(axis=0) for some in met], axis=1)  # [A, H]
        value, prob = np.zeros((2, *truth.start.shape)), truth.active_prob()
        while True:
            new = np.zeros_like(value)
            for by_habit, (day, later) in zip(share, _parts(truth, prob, value), strict=True):
                new += by_habit[:, None, None] * ((1 - city.gamma) * day + later)
            change, value = (new - value).reshape(2, -1), new
            if np.ptp(change, axis=1).max() < EVEN * (1 - city.gamma):  # what all states share changes no effect
                break
        found = [(day[:, *place].T, later[:, *place].T) for day, later in _parts(truth, prob, value)]
        self.day, self.later = (np.stack(part, axis=1) for part in zip(*found, strict=True))

    def captured(self, day: Floats, later: Floats) -> Floats:
        """`[BUDGETS]` captured share of the policies of all λ by some `[n, A, 2]` of both."""
        true, own = ((1 - self.discount) * d + after for d, after in ((self.day, self.later), (day, later)))
        constants = true.mean(axis=0)

        def points(q: Floats) -> Floats:
            best = [(q @ np.array([1.0, -price])).argmax(axis=1) for price in PRICES]
            values = [np.take_along_axis(true, one[:, None, None], axis=1)[:, 0].mean(axis=0) for one in best]
            return _ascending(np.concatenate([values, constants]))

        optimum, mine, none = points(true), points(own), _ascending(constants)
        budgets = np.linspace(none[0, 1], none[-1, 1], BUDGETS + 2)[1:-1]
        least = np.array([value_at(none, budget) for budget in budgets])
        most, reached = (np.array([value_at(each, budget) for budget in budgets]) for each in (optimum, mine))
        return np.asarray((reached - least) / (most - least))

    def explained(self, true: Floats, own: Floats) -> float:
        """r² of the effects on the reward."""
        one, other = (each[..., 0] - (self.chance * each[..., 0]).sum(axis=1, keepdims=True) for each in (true, own))
        both = (self.chance * one * other).sum()
        return float(both**2 / ((self.chance * one**2).sum() * (self.chance * other**2).sum()))


def learned(data: Transitions, learner: str, seed: int) -> NetworkArrays:
    """One Q, as `train` learns it."""
    data = without_amount_luck(data, seed)
    campaign, rows = data.campaign, data.rows_of(LEARN)
    sample = spread_rows(rows)
    coords = critic_coordinates(campaign, data.outcome[sample], steady=data.steady)
    scaled = largest_multiplier(data.action[sample], data.outcome[sample], coords, campaign.meta.discount)
    bound = scaled * coords.reward_scale / coords.scale
    settings = (data, campaign.train, coords, bound, campaign.money, rows, seed)
    if learner == "trees":
        return trees.fit(trees.TreesTraining(*settings), silent)
    training = orthogonal.Orthogonal(*settings)
    *_, progress = training.blocks(training.begin())
    return answers(training, progress).network


def log_and_truth(setting: str, users: int, seed: int, folder: Path) -> tuple[Transitions, City, dict[str, Any]]:
    """A log as it is learned from, its city, and the city's features in every row of it."""
    if setting == "wide":
        path = outlay.simulate("wide", folder / "log", users=users, seed=seed, fields=FIELDS, values=VALUES)
    else:
        options = {setting: True} if setting != "fast" else {}
        path = outlay.simulate("city", folder / "log", users=users, seed=seed, **options)  # type: ignore[arg-type]
    outlay.prepare(path, folder / "data")
    data, city = Transitions.open(folder / "data"), City.read(folder / "log")
    if setting == "wide":
        data = data.with_fields(wide.WideWorld.read(folder / "log").fields_of(*wide.MATTER))
        parts = list(log_of(city, users, DAYS, seed, chunk_users=max(1, wide.CELLS // (FIELDS * DAYS))))
        log = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    else:
        table = pq.read_table(folder / "log" / "log.parquet")
        log = {name: table[name].to_numpy() for name in (*CATEGORICAL, *city.numeric, "propensity")}
    assert np.allclose(np.asarray(data.propensity), log["propensity"]), "rows in another order"
    return data, city, log


def main() -> None:
    """Learn, and print a row a log and learner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="slow", choices=("fast", "slow", "money", "wide"))
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10])
    parser.add_argument("--learners", nargs="+", default=["orthogonal", "trees"], choices=("orthogonal", "trees"))
    asked = parser.parse_args()
    print("| setting | users | seed | learner | captured share | exact later | explained, day | later | seconds |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for seed in asked.seeds:
        with tempfile.TemporaryDirectory() as place:
            data, city, log = log_and_truth(asked.setting, asked.users, seed, Path(place))
            rows = data.rows_of(SELECT)
            rows = np.sort(np.random.default_rng(0).choice(rows, min(ROWS, len(rows)), replace=False))
            exact = Exact(CityTruth(city), {name: log[name][rows] for name in (*CATEGORICAL, *city.numeric)})
            for learner in asked.learners:
                began = time.perf_counter()
                told = forward(learned(data, learner, seed), *data.features(rows))
                seconds = time.perf_counter() - began
                assert told.outcome is not None
                day = np.asarray(told.outcome, np.float64)[..., :2]
                later = np.asarray(told.q, np.float64)[..., :2] - (1 - city.gamma) * day
                share, alone = exact.captured(day, later).mean(), exact.captured(day, exact.later).mean()
                known = exact.explained(exact.day, day), exact.explained(exact.later, later)
                print(
                    f"| {asked.setting} | {asked.users:,} | {seed} | {learner} | {share:.2f} | {alone:.2f} "
                    f"| {known[0]:.2f} | {known[1]:.2f} | {seconds:.0f} |",
                    flush=True,
                )


def _parts(truth: CityTruth, prob: Floats, value: Floats) -> Iterator[tuple[Floats, Floats]]:
    """By action, `[2, T, H, F, R]` each: what the day brings, and what comes after it."""
    for action, (active, idle) in enumerate(truth.after(value)):
        gain = np.stack([truth.worth, np.full_like(truth.worth, COUPONS[action])])[:, :, None, None, None]
        p = prob[action]
        yield gain * p, truth.city.gamma * (active[..., None] * p + idle * (1 - p))


def _nearest(grid: Floats, value: Floats) -> NDArray[np.int64]:
    """Points of an even grid."""
    step = grid[1] - grid[0]
    return np.asarray(np.clip(np.rint((value - grid[0]) / step), 0, len(grid) - 1), np.int64)


def _ascending(points: Floats) -> Floats:
    """By cost."""
    return points[np.argsort(points[:, 1])]


if __name__ == "__main__":
    main()
