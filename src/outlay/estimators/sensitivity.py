"""How much an unlogged cause of the log's actions would have to weigh to undo a claim: the marginal sensitivity model.

Suppose the log's policy also looked at something that nobody logged, which changed the odds of an action by a factor of
at most Γ for some users (Γ = 1: it looked at nothing else). Those who were not given an action might then answer it
otherwise than those who were. With r = y − E(y | s, a), and T_a(Γ) the mean of the 1/(1 + Γ) worst r of action a,
a day of a policy π may be worth less by

    shift(Γ) = (1 − 1/Γ) E_s Σ_a π(a|s) (1 − p(a|s)) |T_a(Γ)|

which what a surprise leaves for later days multiplies (`day_effects.py`). The claim stands up to the Γ at which the
shift uses up its margin. What the log's own policy brought was seen, and does not move.

Source: Tan (2006) for the model; Dorn and Guo (2023) for the form of the worst case given p. Residuals of all rows of
an action stand for those of each state, and the log's states for the policy's: an indication, not a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST = 10.0  # Γ beyond which it is not looked


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The Γ up to which claims stand; 1 where any unlogged cause could undo them, MOST or more where hardly one could.

    Attributes:
        gain: of the gain over the old policy; None where none is claimed.
        limits: `{budget: Γ}` of certified limits.
    """

    gain: float | None
    limits: dict[str, float]

    @property
    def words(self) -> str:
        """A sentence without its full stop."""
        parts = [] if self.gain is None else [f"the gain stands up to Γ = {_shown(self.gain)}"]
        parts += [f"the limit of {name} up to Γ = {_shown(gamma)}" for name, gamma in self.limits.items()]
        if not parts:
            return "nothing is claimed that an unlogged cause of the log's actions could undo"
        return (
            f"if something unlogged changed the odds of an action by a factor of up to Γ (1: nothing did), "
            f"{' and '.join(parts)}"
        )


def _shown(gamma: float) -> str:
    return f"{MOST:g} and more" if gamma >= MOST else f"{gamma:.2f}"


@dataclass(frozen=True)
class WorstCase:
    """What is needed to find the shift of one policy.

    Attributes:
        share: `[K]` E_s π(a|s) (1 − p(a|s)).
        residuals: for each action the residuals `[n_a, 1+m]`, each column ascending.
    """

    share: Array
    residuals: Sequence[Array]

    @classmethod
    def of(cls, given: Array, propensity: Array, action: NDArray[np.integer], residual: Array) -> WorstCase:
        """Collect it.

        Args:
            given: `[n, K]` probability of each action under the policy, of rows with a choice.
            propensity: `[n, K]` under the log's policy.
            action: `[n]` that was given.
            residual: `[n, 1+m]` what state and action leave of reward and costs.
        """
        share = (given * (1 - propensity)).mean(axis=0)
        return cls(share, [np.sort(residual[action == a], axis=0) for a in range(given.shape[1])])

    def shift(self, outcome: int, gamma: float, side: int) -> float:
        """By how much a day's mean of an outcome may lie lower (`side` −1) or higher (+1) than estimated."""
        total = 0.0
        for share, rows in zip(self.share, self.residuals, strict=True):
            if share > 0 and len(rows):
                count = max(1, round(len(rows) / (1 + gamma)))
                tail = rows[:count, outcome] if side < 0 else rows[-count:, outcome]
                total += share * abs(float(tail.mean()))
        return (1 - 1 / gamma) * total

    def stands(self, outcome: int, margin: float, side: int) -> float:
        """The Γ at which the shift uses up a margin, in [1, MOST].

        Args:
            outcome: 0 for the reward, then the costs.
            margin: by which the claim is kept, per day; 0 or less gives 1.
            side: −1 where a lower value would break it, +1 where a higher one would.
        """
        low, high = 1.0, MOST
        if margin <= 0:
            return low
        if self.shift(outcome, high, side) <= margin:
            return high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.shift(outcome, middle, side) <= margin else (low, middle)
        return low
