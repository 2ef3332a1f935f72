"""What do users who come back every day, and ramps, make of bounds and sequences that are for independent days?

    python benchmarks/experiment_dependence.py [--users 40000] [--paths 100000]

A look's z is a mean over users, so for large tests z over all days is normal, with the correlations of what a user adds
to each look: ψ_d = (T_d − μ_d) · 1[in the test by day d], T_d the user's total. These are taken from simulated users,
and A/A tests are drawn from that normal. It is what `benchmarks/experiment_looks.py` does with few repetitions of whole
tests, without their noise: here a tenth of a per cent shows.

Eight kinds of users, five ways of coming in, with CUPED in one of them; tests of 14, 28 and 56 days.

Results: Markdown on stdout, benchmarks/out/experiment_dependence.json. The columns are the parts of A/A tests in which

* plain: an ordinary 95% interval excludes 0 on some day;
* always: the confidence sequence does;
* halves, weekly, daily: a bound is crossed of decisions at half and whole, every week, every day (no test may have it).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from outlay.experiments.sequential import obrien_fleming, sequence_half_width, spending_bounds, tuned_rho
from results import head, keep

Array = NDArray[np.float64]

ALPHA, BEFORE = 0.05, 14  # days of the covariate
Z = 1.959964


def _chances(users: int, rng: np.random.Generator) -> Array:
    return 0.9 * rng.beta(2, 2, (users, 1))


def _sticky(users: int, days: int, rng: np.random.Generator) -> Array:
    """Active or not for ten days on average."""
    chance = _chances(users, rng)[:, 0]
    found = np.empty((users, days))
    now = rng.random(users) < chance
    for day in range(days):
        now = np.where(rng.random(users) < 0.1, rng.random(users) < chance, now)
        found[:, day] = now
    return found


def _walking(users: int, days: int, rng: np.random.Generator) -> Array:
    """A taste that walks away from everybody's and never comes back."""
    taste = 0.3 * rng.normal(size=(users, days)).cumsum(axis=1)
    return (rng.random((users, days)) < 1 / (1 + np.exp(-taste))).astype(float)


def _by_calendar(period: int) -> Callable[[int, int, np.random.Generator], Array]:
    """Active on every so-manieth day only, each user on days of their own."""

    def draw(users: int, days: int, rng: np.random.Generator) -> Array:
        own = (np.arange(days) + rng.integers(0, period, (users, 1))) % period == 0
        return np.where(own & (rng.random((users, days)) < 0.9), 1.0, 0.0)

    return draw


def _growing(start: float, end: float) -> Callable[[int, int, np.random.Generator], Array]:
    """Spending that grows or fades by a factor of e^|end − start| over the days."""

    def draw(users: int, days: int, rng: np.random.Generator) -> Array:
        return rng.exponential(size=(users, days)) * np.exp(np.linspace(start, end, days))

    return draw


USERS: dict[str, Callable[[int, int, np.random.Generator], Array]] = {
    "all alike": lambda users, days, rng: (rng.random((users, days)) < 0.45).astype(float),
    "differ": lambda users, days, rng: (rng.random((users, days)) < _chances(users, rng)).astype(float),
    "sticky": _sticky,
    "walk": _walking,
    "every other day": _by_calendar(2),
    "a weekday": _by_calendar(7),
    "spending fades": _growing(4, -4),
    "spending explodes": _growing(-4, 4),
}


def entries(way: str, users: int, days: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The day on which each user comes in; `days` for never."""
    if way == "by themselves":
        return np.minimum(rng.geometric(0.08, users) - 1, days)
    steps = {
        "at once": [(0, 1.0)],
        "1, 10, 100%": [(0, 0.01), (2, 0.1), (4, 1.0)],
        "10, 50, 100%": [(0, 0.1), (days // 4, 0.5), (days // 2, 1.0)],
        "doubling": [(k, 2.0 ** (k - 6)) for k in range(7)],
    }[way]
    drawn, found = rng.random(users), np.full(users, days)
    for day, coverage in reversed(steps):
        found[drawn < coverage] = day
    return found


WAYS = ("at once", "1, 10, 100%", "10, 50, 100%", "doubling", "by themselves")


def law(x: Array, entry: NDArray[np.int64], before: Array | None) -> tuple[Array, Array]:
    """Correlations of z over the days `[D, D]`, and the information about the effect of a day `[D]`."""
    users, days = x.shape
    totals = (x * (entry[:, None] <= np.arange(days))).cumsum(axis=1)
    influence, exposure = np.zeros((users, days)), np.zeros(days)
    for d in range(days):
        inside = entry <= d
        y = totals[inside, d] - totals[inside, d].mean()
        if before is not None:
            c = before[inside] - before[inside].mean()
            y = y - (y @ c) / (c @ c) * c
        influence[inside, d] = y / inside.mean()
        exposure[d] = (d + 1 - entry[inside]).mean()
    covariance = influence.T @ influence / users
    error = np.sqrt(np.diag(covariance))
    return covariance / np.outer(error, error), (exposure / error) ** 2


def study(correlation: Array, information: Array, paths: int, rng: np.random.Generator) -> dict[str, float]:
    """Parts of A/A tests that say something false."""
    days = len(information)
    root = np.linalg.cholesky(correlation + 1e-10 * np.eye(days))
    z = np.abs(rng.normal(size=(paths, days)) @ root.T)
    day = np.arange(1, days + 1)
    found = {
        "plain": float((z > Z).any(axis=1).mean()),
        "always": float((z > sequence_half_width(1.0, day, tuned_rho(days, ALPHA), ALPHA)).any(axis=1).mean()),
    }
    for name, planned in (("halves", day[days // 2 - 1 :: days // 2]), ("weekly", day[6::7]), ("daily", day)):
        bounds = spending_bounds(information[planned - 1], obrien_fleming(planned / days, ALPHA))
        found[name] = float((z[:, planned - 1] >= bounds).any(axis=1).mean())
    return found


def main() -> None:
    """Run all users, ways and lengths and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=40_000)
    parser.add_argument("--paths", type=int, default=100_000)
    given = parser.parse_args()
    began, rng, record = time.perf_counter(), np.random.default_rng(0), []
    for days in (14, 28, 56):
        print(f"\n{days} days\n\n{head('users', 'come in', 'plain', 'always', 'halves', 'weekly', 'daily')}")
        for kind, draw in USERS.items():
            x = draw(given.users, BEFORE + days, rng)
            for way, cuped in [*((way, False) for way in WAYS), ("1, 10, 100%", True)]:
                entry = entries(way, given.users, days, rng)
                said = study(*law(x[:, BEFORE:], entry, x[:, :BEFORE].sum(axis=1) if cuped else None), given.paths, rng)
                record.append({"days": days, "users": kind, "way": way, "cuped": cuped, **said})
                print(
                    f"| {kind} | {way}{', CUPED' if cuped else ''} | "
                    f"{' | '.join(f'{100 * part:.1f}%' for part in said.values())} |",
                    flush=True,
                )
    keep("experiment_dependence", **vars(given), results=record, seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main()
