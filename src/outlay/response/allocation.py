"""Decide for a fixed list of users under hard totals: the most value, one allowed action each.

    max  Σᵢ value[i, aᵢ]     s.t.     Σᵢ cost[i, aᵢ, j] ≤ totalⱼ

One total: the budget path (for long lists the part of it around the total), all steps that fit, then what still fits.
Several: prices by cutting planes, users divided as the linear program would, repair until all totals hold, then what
still fits. In every case the totals hold (as decimals do: three times 0.1 are within 0.3), and the bound says what
nobody could exceed. The gap is a few users' worth:
nothing on a long list, but look at it on a list of a dozen.

Source: `ops/knapsack.py` and `ops/knapsack_prices.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.errors import InfeasibleError, OutlayError
from outlay.ops.knapsack import Choices, Floats, Indices, apportion, fill, reach, repair
from outlay.ops.knapsack_prices import limit_prices, price_search


class AllocationError(OutlayError, ValueError):
    """Values, costs or totals that no allocation can be made of."""


@dataclass(frozen=True)
class Allocation:
    """One action for each user.

    Attributes:
        action_index: `[N]` position of the action.
        value: what the actions add up to, in the unit of the values.
        cost: what they cost: a number, or `[m]` if the costs were `[N, A, m]`. Never above the total: the costs are
            summed exactly and rounded once (`math.fsum`), and where the sum is above the total by no more than the
            rounding of its float64 terms (`ops.knapsack.reach`), it is the total.
        bound: no allocation within the totals has a higher value, not even one of shares of actions.
    """

    action_index: Indices
    value: float
    cost: float | Floats
    bound: float

    @property
    def gap(self) -> float:
        """Bound − value, in the unit of the values: at most this much is lost against the best allocation."""
        return self.bound - self.value


def allocate(
    value: ArrayLike, cost: ArrayLike, total: float | ArrayLike, allowed: NDArray[np.bool_] | None = None
) -> Allocation:
    """Choose one action for each user so that the values add up to most within the total, or totals.

    Args:
        value: `[N, A]` predicted value of each action for each user, in any unit. float32 and float64 arrays are
            read where they lie; ten million users × ten actions in float32 take some seconds and 0.3 GB beside the
            input.
        cost: `[N, A]`, or `[N, A, m]` for m totals; ≥ 0, column j in the unit of total j. Give amounts of money in
            float64: a float32 is taken for exactly what it is, and 0.1 in float32 is 0.100000001.
        total: the most that the costs may add up to; `[m]` for m totals. May be infinite.
        allowed: `[N, A]`, None if every action is. What stands in the other cells of `value` and `cost` does not
            matter.

    Returns:
        The allocation. It never exceeds a total.

    Raises:
        AllocationError: shapes that do not fit, NaN or infinite values or costs, negative costs, a user without an
            allowed action.
        InfeasibleError: no allocation keeps the totals (with the cheapest there is), or none was found.
    """
    choices, totals, several = _problem(value, cost, total, allowed)
    _check_cells(choices)
    limits = reach(totals)
    _check_totals(choices, totals, limits)
    action, bound = _one_total(choices, limits) if len(totals) == 1 else _several_totals(choices, limits)
    spend = choices.spend_of(action)
    reached = choices.value_of(action)
    assert (spend <= limits).all(), f"the allocation spends {spend} of {totals}"
    spent = np.minimum(spend, totals)
    return Allocation(action, reached, spent if several else float(spent[0]), max(bound, reached))


def _one_total(choices: Choices, totals: Floats) -> tuple[Indices, float]:
    total = float(totals[0])
    path = price_search(choices, total)
    prices, bound = np.array([path.price_at(total)]), path.value_at(total)
    action = _finish(choices, totals, prices, path.actions_at(total))
    assert action is not None, "with one total, the cheapest arms are always there to go back to"
    return action, bound


def _several_totals(choices: Choices, totals: Floats) -> tuple[Indices, float]:
    found = limit_prices(choices, totals)
    if not found.feasible:
        raise InfeasibleError(
            f"{_listed(totals)} can each be kept, but not together.",
            where="total",
            way_out="Raise a total, or allow cheaper actions. (Priced at "
            f"{_listed(found.prices)}, even the cheapest actions cost more than the totals.)",
        )
    action = _finish(choices, totals, found.prices, apportion(choices, found.corners, found.shares))
    if action is None:
        # From the other end: everybody's cheapest arm in shares of the totals, with little left to repair.
        whole = np.maximum(totals, 1e-9 * choices.spend_of(choices.best_at(found.prices)))
        thrift = np.divide(1.0, whole, out=np.zeros(len(totals)), where=whole > 0)
        bare = Choices(np.zeros(choices.value.shape, np.float32), choices.cost, choices.allowed)
        action = _finish(choices, totals, found.prices, bare.best_at(thrift))
    if action is None:
        raise InfeasibleError(
            f"no allocation within {_listed(totals)} was found. With shares of actions there is one, so with whole "
            "actions there may be.",
            where="total",
            way_out="Raise a total a little.",
        )
    return action, found.bound


def _finish(choices: Choices, totals: Floats, prices: Floats, action: Indices) -> Indices | None:
    """Repaired, filled, and repaired where the running sums of filling were rounded."""
    within = repair(choices, totals, prices, action)
    return None if within is None else repair(choices, totals, prices, fill(choices, totals, prices, within))


def _problem(
    value: ArrayLike, cost: ArrayLike, total: float | ArrayLike, allowed: NDArray[np.bool_] | None
) -> tuple[Choices, Floats, bool]:
    """The arrays, the totals `[m]`, and whether the costs came as `[N, A, m]`; shapes checked."""
    values, costs = _numbers("value", value), _numbers("cost", cost)
    if values.ndim != 2 or 0 in values.shape:
        raise AllocationError(
            f"has shape {values.shape}; expected [users, actions], one or more of each.", where="value"
        )
    several = costs.ndim == 3
    if costs.shape[:2] != values.shape or costs.ndim not in (2, 3):
        shape = f"{values.shape}, or {(*values.shape, 'm')} for m totals".replace("'", "")
        raise AllocationError(f"has shape {costs.shape}; expected {shape}.", where="cost")
    costs = costs if several else costs[:, :, None]
    totals = np.atleast_1d(_numbers("total", total)).astype(np.float64)
    if totals.shape != (costs.shape[2],) or not len(totals):
        raise AllocationError(
            f"has shape {totals.shape}; expected ({costs.shape[2]},): one total for each of the costs.", where="total"
        )
    if np.isnan(totals).any():
        raise AllocationError(f"is {_listed(totals)}.", where="total", way_out="Give numbers; inf for no limit.")
    if allowed is not None:
        allowed = np.asarray(allowed)
        if allowed.shape != values.shape or allowed.dtype != np.bool_:
            raise AllocationError(
                f"has shape {allowed.shape} and type {allowed.dtype}; expected {values.shape} of true and false.",
                where="allowed",
            )
    return Choices(values, costs, allowed), totals, several


def _numbers(name: str, given: ArrayLike) -> NDArray[np.floating]:
    try:
        array = np.asarray(given)
    except ValueError:
        raise AllocationError("has rows of different lengths.", where=name) from None
    if array.dtype.kind not in "fiub":
        raise AllocationError(f"is of type {array.dtype}; expected numbers.", where=name)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _check_cells(choices: Choices) -> None:
    """Refuse users without an action, values and costs that are not finite, and negative costs."""

    def first_fault(rows: slice) -> AllocationError | None:
        allowed = True if choices.allowed is None else choices.allowed[rows]
        value, cost = choices.value[rows], choices.cost[rows]
        if choices.allowed is not None and not choices.allowed[rows].any(axis=1).all():
            row = rows.start + int((~choices.allowed[rows].any(axis=1)).argmax())
            return AllocationError(
                "has no allowed action.", where=f"allowed, row {row}", way_out="Allow one, or leave the user out."
            )
        faults = [("value", ~np.isfinite(value) & allowed, value)]
        for j in range(choices.num_limits):
            column = cost[:, :, j]
            fault = ~(np.isfinite(column) & (column >= 0)) & allowed
            faults.append(("cost" if choices.num_limits == 1 else f"cost {j}", fault, column))
        for name, fault, numbers in faults:
            if fault.any():
                row, action = (int(i) for i in np.argwhere(fault)[0])
                expected = "a finite number" if name == "value" else "a finite number, 0 or more"
                return AllocationError(
                    f"is {numbers[row, action]}; expected {expected}.",
                    where=f"{name}, row {rows.start + row}, action {action}",
                    way_out="Put it right, or say in `allowed` that the user cannot get this action.",
                )
        return None

    for fault in choices.map_blocks(first_fault):
        if fault is not None:
            raise fault


def _check_totals(choices: Choices, totals: Floats, limits: Floats) -> None:
    """Refuse a total whose limit is below its own cheapest allocation."""
    for j, total in enumerate(totals):
        least = math.fsum(_least_costs(choices, j))
        if least > limits[j]:
            raise InfeasibleError(
                f"is {float(total)}; the cheapest allocation costs {least}.",
                where="total" if len(totals) == 1 else f"total {j}",
                way_out=f"Give {least} or more, or allow cheaper actions.",
            )


def _least_costs(choices: Choices, limit: int) -> Iterator[float]:
    """Every user's least cost in the unit of one total."""

    def part(rows: slice) -> list[float]:
        cost = choices.cost[rows, :, limit]
        if choices.allowed is not None:
            cost = np.where(choices.allowed[rows], cost, np.inf)
        least: list[float] = cost.min(axis=1).tolist()
        return least

    return chain.from_iterable(map(part, choices.blocks()))


def _listed(numbers: Floats) -> str:
    return ", ".join(f"{float(number):g}" for number in numbers)
