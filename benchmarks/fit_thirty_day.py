"""Find the parameters of the thirty-day campaign, and assert that looking ahead pays in it.

    python benchmarks/fit_thirty_day.py

Starts from round, plausible values (START) and changes them as little as it can until the exact optimum is TARGET_GAIN
above the 1-day allocator, and that allocator captures TARGET_SHARE or less, at equal discounted spend, while activity
stays at a plausible level. The search is a seeded (1+1) evolution strategy on values of two decimals. Prints the
parameters and, at 20, 40 and 60% of what the dearest constant coupon spends, the optimum, the 1-day allocator (true
responses, priced in every state, solved again each day) and the best mixture of constant coupons.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from myopic import constant_points, one_day_points
from outlay.core.cmdp import TabularCMDP
from outlay.ops.mixture_lp import value_at
from outlay.ops.tabular import constrained_optimum, measure
from outlay.simulators import thirty_day as campaign
from outlay.simulators.thirty_day import ThirtyDay, UserType

BUDGETS = (0.2, 0.4, 0.6)  # of the spend of the dearest constant coupon
LEAST_GAIN = 0.03  # of the optimum over the 1-day allocator: what must hold
LARGEST_SHARE = 0.65  # (1-day − best constants) / (optimum − best constants): what must hold
TARGET_GAIN, TARGET_SHARE = 0.055, 0.45  # what the search aims at, well inside
ACTIVE_UNPAID, ACTIVE_DEAREST = 0.15, 0.50  # least activity without coupons and at the dearest
TRIALS = 2500
SEED = 0

# name: (lowest, highest, start). Units in ThirtyDay and UserType.
RANGES = {
    "regular.share": (0.15, 0.50, 0.30),
    "regular.intercept": (-4.0, 0.0, -2.0),
    "regular.level_effect": (0.2, 1.5, 0.8),
    "regular.coupon_effect": (0.2, 1.5, 1.0),
    "wavering.share": (0.15, 0.50, 0.30),
    "wavering.intercept": (-4.5, -1.5, -3.0),
    "wavering.level_effect": (0.5, 2.0, 1.4),
    "wavering.coupon_effect": (0.2, 1.5, 0.7),
    "bargain.intercept": (-3.5, -1.0, -2.0),
    "bargain.coupon_effect": (1.0, 3.0, 2.2),
    "climb_prob": (0.2, 0.8, 0.5),
    "slide_prob": (0.1, 0.7, 0.5),
    "start_prob": (0.05, 0.60, 0.20),
}
LOW, HIGH, START = np.array(list(RANGES.values())).T


class Row(NamedTuple):
    """Values at one budget; all per decision, (1−γ)·J."""

    spend: float
    optimum: float
    one_day: float
    constants: float

    @property
    def gain(self) -> float:
        """Of the optimum over the 1-day allocator."""
        return self.optimum / self.one_day - 1

    @property
    def share(self) -> float:
        """Of what can be had over the best constants, captured by the 1-day allocator."""
        return (self.one_day - self.constants) / (self.optimum - self.constants)


def table(cmdp: TabularCMDP) -> list[Row]:
    """One row a budget."""
    constants, one_day = constant_points(cmdp), one_day_points(cmdp).measurements
    spends = [budget * float(constants[:, 1].max()) for budget in BUDGETS]
    return [
        Row(spend, constrained_optimum(cmdp, [spend]).value, value_at(one_day, spend), value_at(constants, spend))
        for spend in spends
    ]


def parameters(x: NDArray[np.float64]) -> ThirtyDay:
    """Parameters by name, from the order of RANGES. The shares add up to 1; bargain hunters form no habit."""
    value = {name: round(float(number), 2) for name, number in zip(RANGES, x, strict=True)}
    parts = {
        kind: {name.split(".")[1]: number for name, number in value.items() if name.startswith(f"{kind}.")}
        for kind in campaign.TYPES
    }
    parts["bargain"] |= {"share": round(1 - value["regular.share"] - value["wavering.share"], 2), "level_effect": 0.0}
    rest = {name: number for name, number in value.items() if "." not in name}
    return ThirtyDay(**{kind: UserType(**part) for kind, part in parts.items()}, **rest)  # type: ignore[arg-type]


def loss(x: NDArray[np.float64]) -> float:
    """Squared misses, each in the unit of what we would call one, and a weak pull towards the start."""
    cmdp = campaign.model(parameters(x)).cmdp()
    rows = table(cmdp)
    constants = constant_points(cmdp)
    misses = [
        *((TARGET_GAIN - row.gain) / 0.005 for row in rows),
        *((row.share - TARGET_SHARE) / 0.05 for row in rows),
        (ACTIVE_UNPAID - constants[0, 0]) / 0.01,
        (ACTIVE_DEAREST - constants[-1, 0]) / 0.01,
    ]
    pull = (x - START) / (HIGH - LOW)
    return float(np.square(np.maximum(0.0, misses)).sum() + 0.3 * pull @ pull)


def search() -> ThirtyDay:
    """The best of TRIALS steps; the step grows after a success and shrinks after a failure (1/5 rule)."""
    rng = np.random.default_rng(SEED)
    x, least, step = START, loss(START), 0.1
    for _ in range(TRIALS):
        moved = rng.random(len(x)) < 0.4
        y = np.clip(x + step * moved * rng.normal(size=len(x)) * (HIGH - LOW), LOW, HIGH).round(2)
        found = loss(y)
        better = found < least
        if better:
            x, least = y, found
        step = float(np.clip(step * (1.5 if better else 0.9), 0.01, 0.2))
    return parameters(x)


def report(found: ThirtyDay) -> list[Row]:
    """Print the parameters, the level of activity and the table; the table."""
    cmdp = campaign.model(found).cmdp()
    print("parameters (effects in log odds of being active; probabilities per day)")
    for name, value in asdict(found).items():
        text = "  ".join(f"{key} {number:6.2f}" for key, number in value.items()) if isinstance(value, dict) else value
        print(f"  {name:12} {text}")
    constants = constant_points(cmdp)
    uniform = measure(cmdp, np.full(cmdp.reward.shape, 1 / cmdp.num_actions))
    print("\nper decision ((1−γ)·J):   active    yuan")
    for name, point in (
        ("no coupon", constants[0]),
        ("dearest coupon", constants[-1]),
        ("old policy (uniform)", uniform),
    ):
        print(f"  {name:22} {point[0]:.4f}  {point[1]:.4f}")
    print("\nequal discounted spend\n  budget   spend  optimum   1-day  constants  optimum over 1-day  1-day's share")
    rows = table(cmdp)
    for budget, row in zip(BUDGETS, rows, strict=True):
        print(
            f"  {budget:6.0%}  {row.spend:.4f}   {row.optimum:.4f}  {row.one_day:.4f}     {row.constants:.4f}"
            f"              {row.gain:+.2%}           {row.share:.2f}"
        )
    return rows


if __name__ == "__main__":
    found = search()
    frozen = ThirtyDay()
    for row in report(frozen):
        assert row.gain >= LEAST_GAIN, row
        assert row.share <= LARGEST_SHARE, row
    print(f"\nthe search finds {'these' if found == frozen else 'OTHER'} parameters")
    if found != frozen:
        report(found)
