"""What all pages share in words: limits with their units. Numbers as text are in `core/wording.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outlay.core.campaign import BudgetLimit
from outlay.core.wording import NONE as NONE
from outlay.core.wording import days as days
from outlay.core.wording import decimals as decimals
from outlay.core.wording import exact as exact
from outlay.core.wording import number as number
from outlay.core.wording import percent as percent
from outlay.core.wording import plain as plain
from outlay.core.wording import short as short


class Interval(NamedTuple):
    """A value with the ends of its interval; None where there is no interval."""

    value: float
    low: float | None = None
    high: float | None = None


def per(budget: BudgetLimit) -> str:
    """Return the unit of a budget: `yuan per decision`."""
    return f"{budget.unit} per {budget.per}".strip()


def limit(budget: BudgetLimit) -> str:
    """Return the limit in words: `at most 1.2 yuan per decision`."""
    return f"{'at most' if budget.sign > 0 else 'at least'} {plain(budget.limit)} {per(budget)}"


def keeps_limits(measured: Sequence[float], budgets: Sequence[BudgetLimit]) -> bool:
    """Return whether a measurement `[1+m]`, the reward and then each cost, keeps every limit."""
    return all(b.sign * (cost - b.limit) <= 0 for cost, b in zip(measured[1:], budgets, strict=True))
