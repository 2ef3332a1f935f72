"""Best responses to λ on a model that is known, the bounds that they prove, and the solution with its certificate.

    asked (1, −λ):   max_π r(π) − λᵀ(c(π) − limits)    ≥  reward of every mixture that keeps the limits
    asked (0, −λ):   min_π λᵀ(c(π) − limits)           ≤  scaled violation of every mixture, if ‖λ · scale‖₂ ≤ 1

Source: weak duality; the norm is its own dual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.cmdp import TabularCMDP
from outlay.core.mixture import Mixture
from outlay.learning.mixing import rule
from outlay.ops.mixture_lp import FEASIBLE
from outlay.ops.tabular import measure, policy_iteration

Floats = NDArray[np.float64]
Policy = NDArray[np.intp]
Response = tuple[Policy, Floats]

LEAST_ROOM = 1e-3  # of the scale: with less room under a limit than this, λ_max is not larger still


@dataclass(frozen=True, slots=True)
class SolveHistory:
    """The course of a solution, one row for each mixture (T rows).

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
        best_responses: how many were computed.
        feasible: whether the mixture keeps the limits, to 1e-9 in scaled units.
        violation: Euclidean norm of the mixture's excess over the limits, in scaled units.
        least_violation: no policy at all has less violation; above 0 it proves that the limits cannot be kept.
        multiplier: `[m]` λ that proves `upper`: the marginal reward of each limit, where the gap is small. Where the
            limits cannot be kept: λ with λᵀ(c − limits) ≥ least_violation for every policy.
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


class BestResponder:
    """Best responses of one problem, each started from the last one, and the bounds that they prove.

    Attributes:
        cmdp: the model.
        constraints: limits and their scale.
        allowed: `[S, A]` the actions that may be chosen, or None.
        upper: the least upper bound so far.
        multiplier: `[m]` the λ that proved it.
        least_violation: the largest lower bound of the scaled violation so far; above 0 the limits cannot be kept.
        proof: `[m]` the λ that proved it.
    """

    def __init__(
        self, cmdp: TabularCMDP, constraints: rule.Constraints, allowed: NDArray[np.bool_] | None = None
    ) -> None:
        self.cmdp = cmdp
        self.constraints = constraints
        self.allowed = allowed
        self.upper = float("inf")
        self.multiplier: Floats = np.zeros(len(constraints.limits))
        self.least_violation = 0.0
        self.proof: Floats = np.zeros(len(constraints.limits))
        self.count = 0
        self._last: Policy | None = None
        self._newest: tuple[Floats, Floats] = (self.multiplier, np.full(1 + len(constraints.limits), np.nan))
        self._course: list[tuple[int, Floats, Floats, Floats, float]] = []

    def best(self, multiplier: Floats) -> Response:
        """The policy `[S]` of the largest r − λᵀ(c − limits), and its measurement `[1+m]`."""
        policy, x = self._respond(1.0, multiplier)
        bound = float(x[0] - multiplier @ (x[1:] - self.constraints.limits))
        if bound < self.upper:
            self.upper, self.multiplier = bound, multiplier
        return policy, x

    def least_cost(self, proof: Floats) -> Response:
        """The policy `[S]` of the least λᵀ(c − limits), ‖λ · scale‖₂ ≤ 1, and its measurement `[1+m]`."""
        policy, x = self._respond(0.0, proof)
        least = float(proof @ (x[1:] - self.constraints.limits))
        if least > self.least_violation:
            self.least_violation, self.proof = least, proof
        return policy, x

    def default_bound(self) -> Floats:
        """`[m]` λ_max, by 1 + m responses.

        Slater: Σ λ_j room_j ≤ most reward − reward of any policy with room under every limit. With one limit the policy
        of least cost proves the bound; with more it may have no room under the others, hence the factor m.
        """
        count = len(self.constraints.limits)
        most = self.best(np.zeros(count))[1][0]
        bound = np.empty(count)
        for j, unit in enumerate(np.eye(count) / self.constraints.scale):
            x = self.least_cost(unit)[1]
            room = max(self.constraints.limits[j] - x[1 + j], LEAST_ROOM * self.constraints.scale[j])
            bound[j] = count * (most - x[0]) / room
        return np.maximum(bound, 1e-9 * (float(np.ptp(self.cmdp.reward)) or 1.0) / self.constraints.scale)

    def record(self, mixture: Mixture[Policy]) -> None:
        """Append the mixture after the responses so far to the history."""
        self._course.append((self.count, *self._newest, mixture.measurement, self.upper))

    def result(self, method: str, mixture: Mixture[Policy]) -> SolveResult:
        """Return the mixture with all that is proven about it."""
        constraints, x = self.constraints, mixture.measurement
        violation = rule.violation(constraints, x)
        feasible = violation <= FEASIBLE
        if not feasible and violation > self.least_violation:
            self.least_cost(np.maximum(x[1:] - constraints.limits, 0.0) / constraints.scale**2 / violation)
        impossible = self.least_violation > FEASIBLE
        return SolveResult(
            method=method,
            limits=constraints.limits,
            mixture=mixture,
            lower=float(x[0]) if feasible else float("-inf"),
            upper=float("-inf") if impossible else self.upper,
            best_responses=self.count,
            feasible=feasible,
            violation=violation,
            least_violation=self.least_violation,
            multiplier=self.proof if impossible else self.multiplier,
            history=self._history(),
        )

    def _respond(self, reward_weight: float, multiplier: Floats) -> Response:
        weights = np.concatenate([[reward_weight], -multiplier])
        policy = policy_iteration(self.cmdp, weights, allowed=self.allowed, initial=self._last)
        x = measure(self.cmdp, policy)
        self._last = policy
        self.count += 1
        self._newest = multiplier, x
        return policy, x

    def _history(self) -> SolveHistory:
        counts, multipliers, responses, mixtures, uppers = zip(*self._course, strict=True)
        mixture = np.array(mixtures)
        excess = np.maximum((mixture[:, 1:] - self.constraints.limits) / self.constraints.scale, 0.0)
        violation = np.sqrt((excess * excess).sum(axis=1))
        return SolveHistory(
            best_responses=np.array(counts),
            multiplier=np.array(multipliers),
            response=np.array(responses),
            mixture=mixture,
            violation=violation,
            lower=np.where(violation <= FEASIBLE, mixture[:, 0], -np.inf),
            upper=np.array(uppers),
        )
