"""Do arms need budgets of their own? The same A/B test again and again, with one budget for both arms and with two.

    python benchmarks/experiment_budgets.py [--repetitions 400] [--users 4000]

The thirty-day campaign for two weeks. The old arm has a 1-day rule, the new one looks ahead; the budget is what a rule
on plan needs for as many users, and 3% more. In three worlds

    both on plan    nobody is ever short of money
    new in haste    the new arm spends about 40% faster than planned
    old in haste    the old arm does

The true lift is that of a launch: everybody has one policy and all the money, against everybody with the other. Bias is
the mean of the lifts that were found in the tests less the true one; it is given with its standard error.

Users come once a day, a 24th of them every hour. A coupon is reserved, settled if the user is active, and else released
a day later. Where money is short, the ledger's own rule (`serve/ledger/admission.py`) says who gets it, one by one.

Results: Markdown on stdout, benchmarks/out/experiment_budgets.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from myopic import one_day_points
from outlay.ops.tabular import policy_iteration, totals
from outlay.serve.ledger.admission import Counter, Key, ScopeLimit, refusal
from outlay.simulators import thirty_day
from results import head, keep

DAYS, HOURS = 14, 24
PLANNED = 0.3  # yuan per user and day
HASTE = 1.4
MARGIN = 1.03
UNITS = 10  # minor units in a yuan: coupons are tenths
KEY: Key = ("", "", "", "")

PEOPLE = thirty_day.model()
TRUTH = PEOPLE.cmdp()
FACE = np.round(thirty_day.COUPONS * UNITS).astype(np.int64)

Policy = NDArray[np.intp]


@dataclass(frozen=True)
class World:
    """Two arms: the old one first."""

    name: str
    old: Policy
    new: Policy


@dataclass
class Result:
    """What the tests found; errors are standard errors of means over the repetitions.

    Attributes:
        world: its name.
        spends: of each arm, over the plan, if money were never short.
        truth: the lift at launch, and its error.
        own: bias with budgets of their own, and its error.
        shared: bias with one budget, and its error.
        seconds: of the machine.
    """

    world: str
    spends: tuple[float, float]
    truth: tuple[float, float]
    own: tuple[float, float]
    shared: tuple[float, float]
    seconds: float


def spend(policy: Policy) -> float:
    """Yuan per user and day, where money is never short."""
    return float(totals(TRUTH, policy, DAYS)[-1, 1]) / DAYS


def nearest(policies: Sequence[Policy], wanted: float) -> Policy:
    """The policy whose spend is nearest."""
    return min(policies, key=lambda policy: abs(spend(policy) - wanted))


def worlds() -> list[World]:
    """Both rules at the planned spend, and in haste."""
    one_day = list(one_day_points(TRUTH).policies)
    ahead = [policy_iteration(TRUTH, (1.0, -price)) for price in np.geomspace(0.02, 10, 400)]
    old, new = nearest(one_day, PLANNED), nearest(ahead, PLANNED)
    return [
        World("both on plan", old, new),
        World("new in haste", old, nearest(ahead, HASTE * PLANNED)),
        World("old in haste", nearest(one_day, HASTE * PLANNED), new),
    ]


def needed(policy: Policy) -> float:
    """Minor units per user that a policy has committed at the most: all that is settled, and the day's reservations."""
    at, most, settled = TRUTH.start, 0.0, 0.0
    states = np.arange(len(at))
    for _ in range(DAYS):
        most = max(most, settled + float(at @ FACE[policy]))
        settled += float(at @ (FACE[policy] * TRUTH.reward[states, policy]))
        at = at @ TRUTH.transition[states, policy]
    return most


def grant(amounts: NDArray[np.int64], budget: Counter) -> NDArray[np.bool_]:
    """Who gets the coupon, in the order in which they come; the money is reserved."""
    every = np.ones(len(amounts), np.bool_)
    if budget.cap is not None and budget.reserved + budget.settled + amounts.sum() > budget.cap:
        limit = [ScopeLimit(KEY, "total_cap", budget.cap, None)]
        for i, amount in enumerate(amounts.tolist()):
            every[i] = not amount or refusal(limit, {KEY: budget}, amount) is None
            budget.move(amount if every[i] else 0, 0)
    else:
        budget.move(int(amounts.sum()), 0)
    return every


def play(rng: np.random.Generator, users: int, policies: Sequence[Policy], budgets: Sequence[Counter]) -> float:
    """Two weeks. Users are drawn into arms evenly; arm i has policy i and pays from budget i.

    Returns:
        The lift found: active days per user of the last arm over those of the first, less 1. With one arm only, its
        active days per user.
    """
    arm = rng.permutation(np.arange(users) % len(policies))
    policy = np.stack(policies)
    state, active_days = PEOPLE.newcomers(rng, users), np.zeros(users)
    parts = np.array_split(np.arange(users), HOURS)
    held = np.zeros((HOURS, len(policies)), np.int64)  # reserved a day ago, not used
    for _ in range(DAYS):
        for hour, part in enumerate(parts):
            action = policy[arm[part], state[part]]
            for i, budget in enumerate(budgets):
                budget.move(-int(held[hour, i]), 0)
            for one in {id(budget): budget for budget in budgets}.values():
                here = np.array([budget is one for budget in budgets])[arm[part]]
                action[here] = np.where(grant(FACE[action[here]], one), action[here], 0)
            active, state[part] = PEOPLE.day(rng, state[part], action)
            active_days[part] += active
            for i, budget in enumerate(budgets):
                mine = arm[part] == i
                paid, given = int((FACE[action] * active)[mine].sum()), int(FACE[action][mine].sum())
                budget.move(-paid, paid)
                held[hour, i] = given - paid
    means = [float(active_days[arm == i].mean()) for i in range(len(policies))]
    return means[0] if len(means) == 1 else means[-1] / means[0] - 1


def study(world: World, users: int, repetitions: int, seed: int) -> Result:
    """Tests and launches of one world."""
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    on_plan = max(needed(policy) for policy in (world.old, world.new) if spend(policy) < PLANNED * (1 + HASTE) / 2)
    budget = MARGIN * on_plan  # per user

    def counter(count: int) -> Counter:
        return Counter(cap=int(budget * count))

    def shared() -> float:
        one = counter(users)
        return play(rng, users, (world.old, world.new), (one, one))

    def own() -> float:
        return play(rng, users, (world.old, world.new), (counter(users // 2), counter(users // 2)))

    def launch(policy: Policy) -> Callable[[], float]:
        return lambda: play(rng, users, (policy,), (counter(users),))

    old, new = (_mean(launch(policy), repetitions) for policy in (world.old, world.new))
    truth = new[0] / old[0] - 1
    error = (1 + truth) * float(np.hypot(old[1] / old[0], new[1] / new[0]))
    biases = [
        (mean - truth, float(np.hypot(its, error)))
        for mean, its in (_mean(own, repetitions), _mean(shared, repetitions))
    ]
    return Result(
        world=world.name,
        spends=(spend(world.old) / PLANNED, spend(world.new) / PLANNED),
        truth=(truth, error),
        own=biases[0],
        shared=biases[1],
        seconds=time.perf_counter() - began,
    )


def _mean(draw: Callable[[], float], repetitions: int) -> tuple[float, float]:
    found = np.array([draw() for _ in range(repetitions)])
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(repetitions))


def main() -> None:
    """Run all worlds, print, write."""
    parser = argparse.ArgumentParser(description="A/B tests with one budget and with two.")
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--users", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    results = [study(world, asked.users, asked.repetitions, asked.seed) for world in worlds()]
    print(f"{asked.repetitions} repetitions, {asked.users:,} users, {DAYS} days\n")
    print(head("world", "spend over plan, old, new", "true lift", "bias, own budgets", "bias, one budget"))
    for one in results:
        print(
            f"| {one.world} | {one.spends[0]:.2f}, {one.spends[1]:.2f} | {_percent(one.truth)} "
            f"| {_percent(one.own)} | {_percent(one.shared)} |"
        )
    print(f"\n{sum(one.seconds for one in results):.0f} s.")
    keep("experiment_budgets", **vars(asked), results=[asdict(one) for one in results])


def _percent(found: tuple[float, float]) -> str:
    return f"{100 * found[0]:+.2f}% ± {100 * found[1]:.2f}"


if __name__ == "__main__":
    main()
