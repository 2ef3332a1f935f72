"""Is a policy at its limit certified where few users cost anything, or few users cost most?

    python benchmarks/evaluation_rare.py                  # 4,000 samples each (ten minutes)
    python benchmarks/evaluation_rare.py --samples 400

A share of the users costs something, log-normally with σ (0: all the same); the limit is the true mean, so that a
certificate is false. Beside the certify users there are four times as many that learn and select, whose largest cost
is known. Also costs that suit the normal bound, where nothing is to be lost.

    normal       share certified by mean + 1.96 se
    certified    share certified: by `ops/skewed.py`, where tables give no star; 2.5 % at most may be
    starred      share with a star, which certifies nothing
    room         median of bound − mean, in standard errors: 1.96 where errors are normal

Results: Markdown on stdout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from outlay.ops.intervals import quantile, std_error
from outlay.ops.skewed import MOST_SKEW, skewness, upper_bound

Array = NDArray[np.float64]

ALPHA = 0.025
USERS = (138, 548, 2_000, 20_000)
CELLS = 2_000_000  # numbers in memory at a time


def rare(share: float, sigma: float) -> Callable[[np.random.Generator, tuple[int, int]], Array]:
    """A share of users that costs something, 1 on average."""

    def drawn(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        size = np.exp(sigma * rng.standard_normal(shape) - sigma**2 / 2)
        return np.where(rng.random(shape) < share, size, 0.0)

    return drawn


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Everybody costs something, more or less the same."""
    return 2 + rng.standard_normal(shape)


def row(draw: Callable[..., Array], mean: float, users: int, samples: int) -> tuple[float, float, float, float]:
    """The four shares of one setting."""
    rng, done, sums, room = np.random.default_rng(users), 0, np.zeros(3), []
    while done < samples:
        count = min(samples - done, max(1, CELLS // users))
        x = draw(rng, (users, count))
        reach = np.max([draw(rng, (users, count)).max(axis=0) for _ in range(4)], axis=0)
        value, psi = x.mean(axis=0), x - x.mean(axis=0)
        error = std_error(psi)
        bound = upper_bound(value, psi, 1 - ALPHA, reach)
        starred = np.abs(skewness((psi**2).sum(axis=0), (psi**3).sum(axis=0))) > MOST_SKEW
        starred |= error == 0
        sums += [np.sum(value + quantile(1 - ALPHA) * error <= mean), np.sum((bound <= mean) & ~starred), starred.sum()]
        room += ((bound - value)[error > 0] / error[error > 0]).tolist()
        done += count
    return (*(sums / samples).tolist(), float(np.median(room)))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=4_000)
    samples = parser.parse_args().samples
    settings = [(f"{share:.1%} of users, σ = {sigma:g}", rare(share, sigma), share)
                for sigma in (0.0, 1.0, 2.0) for share in (0.005, 0.02, 0.1, 1.0) if sigma or share < 1]  # fmt: skip
    print("| costs | users | normal | certified | starred | room |\n|---|---|---|---|---|---|")
    for name, draw, mean in [*settings, ("normal", normal, 2.0)]:
        for users in USERS:
            old, new, starred, room = row(draw, mean, users, samples)
            print(f"| {name} | {users:,} | {old:.1%} | {new:.1%} | {starred:.0%} | {room:.2f} |", flush=True)


if __name__ == "__main__":
    main()
