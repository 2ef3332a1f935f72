"""Is a policy at its limit certified where few users cost anything, or few users cost most?

    python benchmarks/evaluation_rare.py                  # 4,000 samples each (ten minutes)
    python benchmarks/evaluation_rare.py --samples 400

A share of the users costs something: all the same (σ = 0), log-normally with σ, or by a power whose index is given
(1.5: no variance). The limit is the true mean, so that a certificate is false. Also costs that suit the normal bound,
where nothing is to be lost.

    normal       share certified by mean + 1.96 se
    certified    share certified by `ops/intervals.py`, nothing being known of the largest; 2.5% is aimed at
    no bound     share where events are too few for a bound, so that nothing is certified
    room         median of bound − mean where there is one, in standard errors: 1.96 where errors are normal
    stated       share certified where the largest cost is known: here sizes end at LARGEST times their mean, which
                 widens the bound where the sample has shown none that large
    stated room  as above; there is always a bound

Results: Markdown on stdout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from outlay.ops.intervals import Spread, quantile
from results import head

Array = NDArray[np.float64]
Sizes = Callable[[np.random.Generator, int], Array]

ALPHA = 0.025
USERS = (138, 548, 2_000, 20_000)
SHARES = (0.005, 0.02, 0.1, 1.0)
CELLS = 2_000_000  # numbers in memory at a time
LARGEST = 30.0


def lognormal(sigma: float) -> Sizes:
    """Of mean 1."""
    return lambda rng, count: np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2)


def pareto(index: float) -> Sizes:
    """Of mean 1."""
    return lambda rng, count: (1 + rng.pareto(index, count)) * (index - 1) / index


def normal(rng: np.random.Generator, count: int) -> Array:
    """More or less the same."""
    return 1 + rng.standard_normal(count) / 2


SIZES: dict[str, Sizes] = {
    "σ = 0": lognormal(0),
    "σ = 1": lognormal(1),
    "σ = 2": lognormal(2),
    "power 2.5": pareto(2.5),
    "power 1.5": pareto(1.5),
    "normal": normal,
}


def row(sizes: Sizes, share: float, users: int, samples: int) -> tuple[float, ...]:
    """The six figures of one setting."""
    rng, done, sums, rooms = np.random.default_rng(users), 0, np.zeros(4), ([], [])  # type: ignore[var-annotated]
    short = share * np.minimum(sizes(np.random.default_rng(0), CELLS), LARGEST).mean()
    factor = quantile(1 - ALPHA)
    while done < samples:
        count = min(samples - done, max(1, CELLS // users))
        some = rng.random((users, count)) < share
        x = np.zeros((users, count))
        x[some] = sizes(rng, int(some.sum()))
        free, known = Spread.of(x), Spread.of(np.minimum(x, LARGEST), LARGEST)
        value, above = x.mean(axis=0), free.above(factor)
        sums += [
            np.sum(value + factor * free.error <= share),
            np.sum(value + above <= share),
            np.isinf(above).sum(),
            np.sum(np.minimum(x, LARGEST).mean(axis=0) + known.above(factor) <= short),
        ]
        for found, spread in zip(rooms, (free, known), strict=True):
            told = np.isfinite(spread.above(factor)) & (spread.error > 0)
            found += (spread.above(factor)[told] / spread.error[told]).tolist()
        done += count
    mine, its = (float(np.median(room)) if len(room) >= samples // 100 else float("nan") for room in rooms)
    return (*(sums[:3] / samples).tolist(), mine, float(sums[3] / samples), its)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=4_000)
    samples = parser.parse_args().samples
    print(head("costs", "share of users", "users", "normal", "certified", "no bound", "room", "stated", "stated room"))
    for name, sizes in SIZES.items():
        for share in SHARES:
            if (share == 1) if name == "σ = 0" else (share < 1 and name == "normal"):
                continue
            for users in USERS:
                old, new, none, room, stated, stated_room = row(sizes, share, users, samples)
                shown = "–" if np.isnan(room) else f"{room:.2f}"
                print(
                    f"| {name} | {share:.1%} | {users:,} | {old:.1%} | {new:.1%} | {none:.0%} | {shown} "
                    f"| {stated:.1%} | {stated_room:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
