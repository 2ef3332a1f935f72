"""What solving a known model gives: a mixture, what it is worth, and the proof."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.mixture import Mixture

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SolveHistory:
    """How it went, a row each time the mixture was made anew (T rows).

    Attributes:
        best_responses: `[T]` asked so far.
        multiplier: `[T, m]` the λ of the newest one, in reward per unit of cost (while the limits are not kept by
            column generation: the weights of the limits whose sum it made least).
        response: `[T, 1+m]` its measurement.
        mixture: `[T, 1+m]` measurement of the mixture.
        violation: `[T]` its scaled violation.
        lower: `[T]` its reward, −∞ where it does not keep the limits.
        upper: `[T]` the least upper bound so far.
    """

    best_responses: NDArray[np.intp]
    multiplier: Floats
    response: Floats
    mixture: Floats
    violation: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class SolveResult:
    """A mixed policy under limits, with its certificate. All in (1−γ)·J.

    Attributes:
        method: how it was found.
        limits: `[m]`.
        mixture: members are deterministic policies `[S]`, with weights and measurements `[k, 1+m]`.
        lower: reward of the mixture, −∞ if it does not keep the limits.
        upper: no mixture that keeps the limits has more reward; −∞ if it is proven that none keeps them.
        best_responses: how many were asked for.
        feasible: whether the mixture keeps the limits, to 1e-9 in scaled units.
        violation: Euclidean norm of the mixture's excess over the limits, in scaled units.
        least_violation: no policy at all has less violation; above 0 it proves that the limits cannot be kept.
        multiplier: `[m]` λ that proves `upper`: what one more unit of each limit is worth, in reward, where the gap is
            small. Where the limits cannot be kept: λ with λᵀ(c − limits) ≥ least_violation for every policy.
        history: round by round.
    """

    method: str
    limits: Floats
    mixture: Mixture[NDArray[np.intp]]
    lower: float
    upper: float
    best_responses: int
    feasible: bool
    violation: float
    least_violation: float
    multiplier: Floats
    history: SolveHistory

    @property
    def gap(self) -> float:
        """Upper − lower, in reward: at most this much is lost. ∞ if the mixture does not keep the limits."""
        return self.upper - self.lower if self.feasible else float("inf")

    def __str__(self) -> str:
        """A table of the members, the limits below it, and what is proven."""
        costs = [f"cost {j}" for j in range(len(self.limits))]
        rows = [["member", "weight", "reward", *costs]]
        for i, (weight, x) in enumerate(zip(self.mixture.weights, self.mixture.measurements, strict=True)):
            rows.append([str(i), f"{weight:.4f}", *(f"{value:.6g}" for value in x)])
        rows.append(["mixture", "", *(f"{value:.6g}" for value in self.mixture.measurement)])
        rows.append(["limit", "", "", *(f"{limit:.6g}" for limit in self.limits)])
        rows.append(["multiplier", "", "", *(f"{price:.4g}" for price in self.multiplier)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = "\n".join("  ".join(map(str.rjust, row, widths)).rstrip() for row in rows)
        return f"{table}\n{self._proven()}"

    def _proven(self) -> str:
        effort = f"{self.method}, {self.best_responses} best responses"
        if self.least_violation > 0 and not self.feasible:
            return (
                f"No policy keeps the limits: the scaled violation is {self.violation:.4g}, and at least "
                f"{self.least_violation:.4g} for every policy ({effort})."
            )
        if not self.feasible:
            return f"The mixture does not keep the limits: its scaled violation is {self.violation:.4g} ({effort})."
        return f"Keeps the limits; the optimum is between {self.lower:.8g} and {self.upper:.8g} ({effort})."
