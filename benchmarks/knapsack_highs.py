"""The linear program of the multiple-choice knapsack, handed to HiGHS: the reference for the faster solvers.

    max Σ value[i, a] x[i, a]     s.t.     Σₐ x[i, a] = 1,     Σᵢₐ cost[i, a, j] x[i, a] ≤ totalⱼ,     x ≥ 0

Values and costs are divided by their largest first: HiGHS takes entries below 1e-9 for 0 and keeps rows to an
absolute tolerance. Its search over whole actions is not used: on lists of a hundred cells it may take many seconds.

Source: Huangfu & Hall (2018) for the solver. The interior-point method with crossover to a corner: on
20,000 users × 5 actions it takes 2 seconds where the dual simplex takes 28.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from outlay.ops.knapsack import Choices, Floats


@dataclass(frozen=True)
class LinearProgram:
    """The relaxation's optimum.

    Attributes:
        shares: `[N, A]` of each action, a distribution in each row; at most m users have more than one action.
        value: what it brings.
        prices: `[m]` ≥ 0, value units per cost unit.
    """

    shares: Floats
    value: float
    prices: Floats


def linear_program(choices: Choices, totals: Floats) -> LinearProgram | None:
    """The exact optimum with shares of actions, or None if not even shares keep the totals `[m]`."""
    program = _program(choices, totals)
    ones = np.ones(choices.num_users)
    for tolerance in (1e-10, 1e-7):
        found = linprog(
            -program.gains,
            A_ub=program.spend,
            b_ub=program.limits,
            A_eq=program.one,
            b_eq=ones,
            method="highs-ipm",
            options={"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance},
        )
        # Where the totals can only just be kept, it may not know at the finer tolerance.
        if found.status in (0, 2):
            break
    if found.status == 2:
        return None
    assert found.x is not None, found.message
    prices = np.zeros(choices.num_limits)
    prices[np.isfinite(totals)] = -found.ineqlin.marginals
    prices *= program.value_unit / program.cost_units
    return LinearProgram(program.shares(found.x), -float(found.fun) * program.value_unit, prices)


@dataclass(frozen=True)
class _Program:
    """Max gains @ x, one @ x = 1, spend @ x ≤ limits: a variable for each allowed cell, a row for each finite total."""

    gains: Floats
    one: csr_array
    spend: csr_array
    limits: Floats
    value_unit: float
    cost_units: Floats
    cells: NDArray[np.bool_]

    def shares(self, x: Floats) -> Floats:
        """`[N, A]` x in its place."""
        full = np.zeros(self.cells.shape)
        full[self.cells] = x
        return full


def _program(choices: Choices, totals: Floats) -> _Program:
    value, cost = choices.read(slice(0, choices.num_users))
    cells = value > -np.inf
    gains, costs = value[cells], cost[cells]
    value_unit = float(np.abs(gains).max()) or 1.0
    cost_units = costs.max(axis=0)
    cost_units[cost_units == 0] = 1.0
    user = np.nonzero(cells)[0]
    one = csr_array((np.ones(len(user)), (user, np.arange(len(user)))), shape=(choices.num_users, len(user)))
    finite = np.isfinite(totals)
    spend = csr_array((costs / cost_units)[:, finite].T)
    return _Program(gains / value_unit, one, spend, (totals / cost_units)[finite], value_unit, cost_units, cells)
