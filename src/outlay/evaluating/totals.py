"""The figures of a decision as totals for all users of the log: what page one of the report shows (`totalling.py`).

Money is in the unit of the money budget, the reward in its own; neither is discounted, and nothing is a mean per user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """A total for all users, with its interval; without ends where there is none."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalChange:
    """A total now and with the policy.

    Attributes:
        now: of the old policy; None where that could not be measured.
        new: of the policy.
        more: new less now, paired by user; None likewise.
        relied_on: whether all of them may be.
    """

    now: Total | None
    new: Total
    more: Total | None
    relied_on: bool = True

    @property
    def share(self) -> float | None:
        """The change as a share of the size of the total now; None where that is not known or nothing."""
        known = self.more is not None and self.now is not None and self.now.value != 0
        return self.more.value / abs(self.now.value) if known and self.more and self.now else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayTotal:
    """What one day brings and costs all users.

    Attributes:
        policy: `old` or `new`.
        day: day of the user, from 1: that of the first row.
        reward: its total.
        money: its total, in the unit of money.
    """

    policy: str
    day: int
    reward: Total
    money: Total


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTotals:
    """Totals of the users of one segment.

    Attributes:
        segment: its name.
        users: how many they are.
        given: mean amount given, now and by the policy, in the states of the log; None where actions have no amounts.
        reward: their change; None where it is withheld.
        money: the same.
    """

    segment: str
    users: int
    given: tuple[float, float] | None
    reward: TotalChange | None
    money: TotalChange | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTotals:
    """What another limit of the money budget would bring, or the same one if a cap holds it.

    Attributes:
        limit: in the unit of the budget.
        reward: total of the mixture for it.
        money: the same.
        more: reward less that of the old policy; None where it is not known.
        at_least: one-sided lower bound of `more`; None where there is none.
        at_most: one-sided upper bound of it; None likewise.
        capped: whether it is for the mixture that keeps no margin, as `outlay serve` takes it behind a cap.
    """

    limit: float
    reward: Total
    money: Total
    more: float | None
    at_least: float | None = None
    at_most: float | None = None
    capped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveTotals:
    """What the totals of every budget of a curve are about.

    Attributes:
        users: whom they are for.
        log_users: users of the log.
        days: of each user, that the totals are over.
        reward: of the old policy; None where it could not be measured.
        money: of the old policy, in the unit of the money budget.
        times: users and days that a limit is for, so that a budget in total is this times the limit; None where users
            do not decide every day.
    """

    users: int
    log_users: int
    days: int
    reward: Total | None
    money: Total | None
    times: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionTotals:
    """The figures of a decision, for all users.

    Attributes:
        users: whom they are for.
        log_users: users of the log.
        days: of each user, that the totals are over.
        confidence: of the intervals.
        sure: confidence of each of the two bounds.
        reward: change of the reward.
        at_least: one-sided lower bound of its change; None where there is none.
        at_most: one-sided upper bound of it; None likewise.
        money: change of the money budget's cost, in its unit.
        first_day: the same on day one.
        limit_a_day: what the limit of the money budget allows on an average day; None where that cannot be said.
        costs: changes of the other budgets' costs, by name.
        by_day: of the old policy and the new one.
        segments: who gets more and who gets less; empty where there are no segments.
        budgets: other limits of the money budget, ascending; empty where the policy has no curve.
    """

    users: int
    log_users: int
    days: int
    confidence: float
    sure: float
    reward: TotalChange
    at_least: float | None
    at_most: float | None
    money: TotalChange
    first_day: TotalChange | None
    limit_a_day: float | None
    costs: Mapping[str, TotalChange]
    by_day: tuple[DayTotal, ...] = ()
    segments: tuple[SegmentTotals, ...] = ()
    budgets: tuple[BudgetTotals, ...] = ()
