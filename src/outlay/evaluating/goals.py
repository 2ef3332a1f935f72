"""The frontier asked the other way round: which budget reaches a goal.

    today's reward for the least money      least B with V(B) ≥ V_old
    today's money                           least B that spends what the log's policy does
    a gain of g                             least B with V(B) ≥ (1 + g)·V_old
    a unit of the reward is worth X         the B with the most X·V(B) − money spent (`stops`)

V is the total of the first days where totals are told, else the objective. Beside the budget that reaches a level by
estimate stands the one that is sure to, by the lower bound of its gain, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from outlay.core.errors import OutlayError
from outlay.core.wording import advised
from outlay.evaluating.budget_curve import BudgetCurve, CurvePoint, Goal, GoalKind

HALVINGS = 8  # of a step of the curve, to find a budget in it
GAINS = (0.03, 0.1)  # that are asked for a page
MOST_WORTHS = 3  # of the reward, asked for a page

Point = Callable[[float], CurvePoint]
Asked = tuple[GoalKind, float | None]


def asked(*, least_money: bool = False, worth: float | None = None, gain: float | None = None) -> list[Asked]:
    """Return what is asked for.

    Raises:
        OutlayError: for an amount that is none.
    """
    found: list[Asked] = [("least money", None)] if least_money else []
    if worth is not None:
        if isinstance(worth, bool) or not 0 < worth < float("inf"):
            raise OutlayError(
                f"is {worth!r}; expected: an amount of money above 0.",
                where="worth",
                way_out="Say what one more unit of the reward may cost, such as 2.5.",
            )
        found.append(("worth", float(worth)))
    if gain is not None:
        if isinstance(gain, bool) or not -1 < gain < 1:
            raise OutlayError(
                f"is {gain!r}; must be between -1 and 1.",
                where="gain",
                way_out="Give a relative gain, e.g. 0.02 for 2%.",
            )
        found.append(("gain", float(gain)))
    return found


def of_a_page(curve: BudgetCurve) -> list[Asked]:
    """Return what a page asks: today's reward, some gains, and worths at which the answer differs along the curve."""
    dearer = stops(curve)[1:]
    some = [dearer[round(share * (len(dearer) - 1))] for share in (0.15, 0.4, 0.65) if dearer]
    worths = dict.fromkeys(float(advised(stop.worth, digits=1)) for stop in some)
    return [
        ("least money", None),
        ("same money", None),
        *(("gain", g) for g in GAINS),
        *(("worth", w) for w in list(worths)[:MOST_WORTHS]),
    ]


def reached(curve: BudgetCurve, questions: Sequence[Asked], point: Point) -> tuple[Goal, ...]:
    """Return the budgets that reach goals.

    Args:
        curve: its points and the old policy.
        questions: kinds with what was asked.
        point: what a budget buys.
    """
    found = []
    for kind, amount in questions:
        if kind == "worth":
            assert amount is not None
            found.append(Goal(kind=kind, asked=amount, point=_worth(curve, amount), sure=None))
        elif kind == "same money":
            found.append(Goal(kind=kind, asked=None, point=_same_money(curve, point), sure=None))
        else:
            more = amount or 0.0
            level, old = _level(curve, more), _old(curve)
            sure = None if old is None else _least(curve, _bound(more * abs(old)), point)
            by_estimate = None if level is None else _least(curve, level, point)
            found.append(Goal(kind=kind, asked=amount, point=by_estimate, sure=sure))
    return tuple(found)


def _old(curve: BudgetCurve) -> float | None:
    """V_old."""
    if curve.totals is not None:
        return None if curve.totals.reward is None else curve.totals.reward.value
    return None if curve.old is None else curve.old.value


def _level(curve: BudgetCurve, more: float) -> Callable[[CurvePoint], float | None] | None:
    """How far a budget is above (1 + more)·V_old; None where that is not known."""
    old = _old(curve)
    if old is None:
        return None
    level = old + more * abs(old)

    def above(p: CurvePoint) -> float | None:
        if curve.totals is None:
            return p.value - level
        return None if p.totals is None else p.totals.reward.value - level

    return above


def _bound(more: float) -> Callable[[CurvePoint], float | None]:
    """How far the lower bound of a budget's gain is above a gain."""

    def above(p: CurvePoint) -> float | None:
        least = p.gain_bound if p.totals is None else p.totals.at_least
        return None if least is None else least - more

    return above


def _least(curve: BudgetCurve, above: Callable[[CurvePoint], float | None], point: Point) -> CurvePoint | None:
    """The least budget at which something is known and at least 0; None where no budget of the curve is so large."""

    def ok(p: CurvePoint) -> bool:
        value = above(p)
        return value is not None and value >= 0

    return _between(curve.curve, ok, point)


def _same_money(curve: BudgetCurve, point: Point) -> CurvePoint | None:
    """The least budget that spends what the log's policy does; None where that is not known, or off the curve."""
    if curve.totals is not None:
        now = curve.totals.money
        return (
            None
            if now is None
            else _least(curve, lambda p: None if p.totals is None else p.totals.money.value - now.value, point)
        )
    if curve.old is None:
        return None
    place, spent = curve.place, curve.old.spend[curve.place]
    return _least(curve, lambda p: p.spend[place] - spent, point)


def _between(curve: Sequence[CurvePoint], ok: Callable[[CurvePoint], bool], point: Point) -> CurvePoint | None:
    """The first budget that is `ok`, in the step of the curve in which it becomes so."""
    place = next((i for i, p in enumerate(curve) if ok(p)), None)
    if place is None:
        return None
    if place == 0:
        return curve[0]
    low, high = curve[place - 1].budget, curve[place].budget
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if ok(point(middle)) else (middle, high)
    told = float(advised(high, digits=3, beyond=False))
    return point(told if told <= curve[-1].budget else high)


class Stop(NamedTuple):
    """A budget to stop at, from this worth of a unit of the reward on."""

    worth: float
    point: CurvePoint


def stops(curve: BudgetCurve) -> list[Stop]:
    """Return the budgets with the most worth · reward − money spent, from worth 0, which spends least, upwards.

    They are the corners of the upper envelope of money spent and reward: a worth is what one more unit costs between a
    corner and the one before. Budgets that the log cannot tell are none of them, unless it can tell no budget.
    """
    known = [p for p in curve.curve if curve.totals is None or p.totals is not None]
    left = [(*money_and_reward(p, curve), p) for p in known if not p.withheld] or [
        (*money_and_reward(p, curve), p) for p in known
    ]
    if not left:
        return []
    money, reward, point = min(left, key=lambda each: (each[0], -each[1]))
    found = [Stop(0.0, point)]
    while left := [each for each in left if each[1] > reward]:
        worths = [(m - money) / (r - reward) for m, r, _ in left]
        least = min(worths)
        money, reward, point = left[worths.index(least)]
        found.append(Stop(least, point))
    return found


def money_and_reward(point: CurvePoint, curve: BudgetCurve) -> tuple[float, float]:
    """What a budget spends and buys: totals where they are told, else for a unit that the objective is about."""
    if curve.totals is not None and point.totals is not None:
        return point.totals.money.value, point.totals.reward.value
    return point.times * point.spend[curve.place], point.value


def _worth(curve: BudgetCurve, worth: float) -> CurvePoint | None:
    """The last budget to stop at for a worth; None where even the first step from the least money costs more."""
    reached = [stop for stop in stops(curve)[1:] if stop.worth <= worth]
    return reached[-1].point if reached else None
