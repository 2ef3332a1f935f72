"""How often does a test that is looked at every day say something false? And do fixed intervals cover the truth?

    python benchmarks/experiment_looks.py [--repetitions 2000] [--users 4000]

A/A tests of two arms over 14 days, analysed by `outlay.experiments` as `outlay experiment analyze` does, on every day:

* planned: the verdict at the decisions after days 7 and 14, by spending bounds; and by bounds for 14 daily decisions.
* always: whether the confidence sequence of the metric, or of the cost, excludes 0 on any of the 14 days.
* change by week: whether the effect is said to have changed after the first week.
* plain: whether the ordinary 95% interval does, for comparison.
* fixed: whether the ordinary 95% intervals at the end, absolute and relative, cover the truth; here the arms differ.

Five worlds: users who all have the same chance to be active, so that days are independent; users who differ and stay as
they are, so that looks resemble each other; the same with a covariate of the 14 days before (CUPED); the same after a
ramp of 1%, 10%, 100% on days 0, 2, 4; and that again with a new arm of 5% and money that few users take, in amounts
that differ much. There a small arm's own variance would make 20 to 50% false alarms.

Results: Markdown on stdout, benchmarks/out/experiment_looks.json.
"""

from __future__ import annotations

import argparse
import datetime
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.experiments.analyze import analyze
from outlay.experiments.design import WEEK, Experiment
from outlay.experiments.moments import BEFORE, FIRST_WEEK, SINCE, Metric
from outlay.experiments.results import ArmComparison, Course
from outlay.experiments.sequential import obrien_fleming, spending_bounds
from outlay.experiments.sums import DailySums
from results import head, keep

DAYS, COUPON, LIFT = 14, 2.0, 0.05
METRICS = (Metric("active", "active"), Metric("cost", "cost"))
EXPERIMENT = Experiment.parse(
    {
        "experiment": {
            "name": "looks",
            "campaign": "habit",
            "start": datetime.date(2026, 3, 2),
            "days": DAYS,
            "metric": "active",
            "guardrails": ["cost"],
            "decisions": [7, 14],
        },
        "arm": [
            {"name": name, "kind": "constant", "action": 1.0, "share": 0.5, "budget": 1.0} for name in ("old", "new")
        ],
    }
)


@dataclass(frozen=True)
class World:
    """How users differ, whether the time before is known, when they come in (part by day), and the new arm's share."""

    name: str
    differ: bool
    before: bool
    ramp: tuple[tuple[int, float], ...] = ((0, 1.0),)
    share: float = 0.5
    rare: bool = False  # few redeem, and what they redeem is lognormal


RAMP = (0, 0.01), (2, 0.10), (4, 1.0)
WORLDS = (
    World("days independent", differ=False, before=False),
    World("users differ", differ=True, before=False),
    World("users differ, CUPED", differ=True, before=True),
    World("users differ, CUPED, ramp", differ=True, before=True, ramp=RAMP),
    World("small arm, rare and large costs, ramp", differ=True, before=False, ramp=RAMP, share=0.05, rare=True),
)


def draw(world: World, users: int, lift: float, rng: np.random.Generator) -> DailySums:
    """The sums of one test, in which arm `new` is active by `lift` more."""
    chance = 0.9 * rng.beta(2, 2, users) if world.differ else np.full(users, 0.45)
    arm = (rng.random(users) < world.share).astype(np.int64)
    part = rng.random(users)
    entry = np.full(users, DAYS)
    for day, share in reversed(world.ramp):
        entry[part < share] = day
    inside = entry[:, None] <= np.arange(DAYS)
    active = (rng.random((users, DAYS)) < chance[:, None] * np.where(arm == 1, 1 + lift, 1)[:, None]) * inside
    price = rng.lognormal(0, 1, active.shape) if world.rare else COUPON
    paid = price * active * (rng.random(active.shape) < (0.05 if world.rare else 0.6))
    columns = [active.astype(float), paid]
    names = ["active", "cost"]
    if world.before:
        past = rng.binomial(DAYS, chance).astype(float)
        columns += [np.where(np.arange(DAYS) == entry[:, None], past[:, None], 0.0)]
        columns += [
            np.where(np.arange(DAYS) == entry[:, None], COUPON * rng.binomial(past.astype(int), 0.6)[:, None], 0)
        ]
        names += ["active" + BEFORE, "cost" + BEFORE]
    left, days = np.maximum(WEEK - entry, 0)[:, None], np.arange(DAYS)
    columns += [np.where((days < WEEK) & (left > 0), active / np.maximum(left, 1), 0.0)]
    columns += [np.where((days >= WEEK) & (left > 0), active, 0.0)]
    names += ["active" + FIRST_WEEK, "active" + SINCE]
    return added_up(np.stack(columns, axis=2), arm, entry, tuple(names))


def added_up(
    x: NDArray[np.float64], arm: NDArray[np.int64], entry: NDArray[np.int64], names: tuple[str, ...]
) -> DailySums:
    """What `read_sums` makes of a log with rows `x` `[U, D, M]`, without writing one."""
    totals = x.cumsum(axis=1)
    products = [np.einsum("udi,udj->dij", totals[arm == a], totals[arm == a], optimize=True) for a in (0, 1)]
    cubes = np.stack([(totals[arm == a] ** 3).sum(axis=0) for a in (0, 1)], axis=1)
    counts = [np.bincount(entry[arm == a], minlength=DAYS + 1)[:DAYS] for a in (0, 1)]
    came = np.stack(counts, axis=1)[:, :, None]
    return DailySums(
        names=names,
        arms=("old", "new"),
        segments=("all",),
        daily=True,
        listed=True,
        users=came,
        seen=came,
        shown=came.cumsum(axis=0),
        first=np.stack([x[arm == a].sum(axis=0) for a in (0, 1)], axis=1)[:, :, None, :],
        second=np.stack([np.diff(p, axis=0, prepend=0.0) for p in products], axis=1)[:, :, None],
        third=np.diff(cubes, axis=0, prepend=0.0)[:, :, None],
        alike=np.zeros((DAYS, 2, len(names)), np.bool_),
        least={},
        rows=(len(x),) * DAYS,
        observed=DAYS,
        beyond=0,
    )


def looks(found: ArmComparison, sums: DailySums) -> dict[str, bool]:
    """What was said falsely in an A/A test."""
    course = found.course_of("active")
    assert course is not None
    return {
        "planned, days 7 and 14": found.decided is not None,
        "planned, 14 days": _daily(course, sums),
        "always, active": course.moved != 0,
        "always, cost": _moved(found, "cost"),
        "change by week": found.change is not None and found.change.side != 0,
        "plain, 14 days": any(p.absolute.low > 0 or p.absolute.high < 0 for p in course.points),
    }


def _daily(course: Course, sums: DailySums) -> bool:
    """Whether z crosses one of the bounds for a decision on every day that could be told."""
    days = np.array([p.day for p in course.points])
    value = np.array([p.absolute.value for p in course.points])
    error = np.array([(p.absolute.high - p.absolute.low) / (2 * 1.959964) for p in course.points])
    information = (np.array([sums.days_per_user(int(d)) for d in days]) / error) ** 2
    bounds = spending_bounds(information, obrien_fleming(days / DAYS, 0.05))
    return bool(np.any(np.abs(value / error) >= bounds))


def _moved(found: ArmComparison, metric: str) -> bool:
    course = found.course_of(metric)
    return course is not None and course.moved != 0


def covers(found: ArmComparison, truth: float, control: float) -> dict[str, bool]:
    """Whether the ordinary intervals at the end hold the truth."""
    lift = found.lift("active")
    assert lift is not None
    assert lift.relative is not None
    absolute = truth * control
    return {
        "fixed, absolute": lift.absolute.low <= absolute <= lift.absolute.high,
        "fixed, relative": lift.relative.low <= truth <= lift.relative.high,
    }


def study(world: World, users: int, repetitions: int) -> dict[str, float]:
    """Shares of repetitions."""
    rng = np.random.default_rng(8)
    said: list[dict[str, bool]] = []
    mean_days = sum(c * (b - a) for (a, c), b in zip(world.ramp, [d for d, _ in world.ramp[1:]] + [DAYS], strict=True))
    for _ in range(repetitions):
        sums = draw(world, users, 0.0, rng)
        (found,) = analyze(sums, EXPERIMENT, METRICS, DAYS, money="cost").comparisons
        other = draw(world, users, LIFT, rng)
        (differs,) = analyze(other, EXPERIMENT, METRICS, DAYS, money="cost").comparisons
        said.append(looks(found, sums) | covers(differs, LIFT, 0.45 * mean_days))
    return {name: float(np.mean([each[name] for each in said])) for name in said[0]}


def main() -> None:
    """Run all worlds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--users", type=int, default=4000)
    given = parser.parse_args()
    began, results = time.perf_counter(), {}
    for world in WORLDS:
        results[world.name] = study(world, given.users, given.repetitions)
    names = list(next(iter(results.values())))
    print(f"{given.repetitions} repetitions, {given.users} users, {DAYS} daily looks\n")
    print(head("world", *names))
    for world_name, found in results.items():
        print(f"| {world_name} | {' | '.join(f'{100 * found[name]:.1f}%' for name in names)} |")
    keep("experiment_looks", **vars(given), results=results, seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main()
