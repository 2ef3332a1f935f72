"""The frontier's answers for a manager: what today's money or today's reward would be, in totals, and goals reached.

Where totals are told, a budget is money for all users over the days of the totals; before the look it is the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from outlay.core.campaign import Campaign
from outlay.core.wording import NONE, change, exact, number, plain
from outlay.evaluating.budget_curve import BudgetCurve, CurvePoint, Goal
from outlay.evaluating.totals import BudgetTotals, Total
from outlay.evaluating.verdict import ALIKE
from outlay.pages.amounts import Names, Rounding, brief_change, capital, head
from outlay.pages.frontier_words import TABLE_STEPS, distinct, out_of_reach, question
from outlay.pages.tables import Cell, Column, Look, Row, Table, numbers, row, words

TICK = "✓"  # beside a certified budget


@dataclass(frozen=True)
class CurveAnswers:
    """The answers of a curve whose totals are told."""

    curve: BudgetCurve
    campaign: Campaign

    @classmethod
    def of(cls, curve: BudgetCurve, campaign: Campaign) -> CurveAnswers | None:
        """None where totals are not told."""
        told = curve.totals is not None and all(p.totals is not None for p in curve.requested)
        return cls(curve, campaign) if told else None

    # The first lines.

    @property
    def kicker(self) -> str:
        """`What every budget buys · for the 20,000 users of this log · their first 7 days`."""
        found = self.curve.totals
        whom = [] if found is None else self.names.whom(found.users, found.log_users, found.days)
        return " · ".join(["What every budget buys", *whom])

    @property
    def headline(self) -> str:
        """What today's reward would cost, and what today's money would bring; that neither is sure, where it is not."""
        told = [part for part in (self._saving, self._bringing) if part]
        if not told:
            return "No budget of this curve is shown to do better than what you do today."
        least, money = self._goal("least money"), self._goal("same money")
        unsure = self._saving and not (least and self._saves(least.sure))
        doubt = "; no limit that saves is sure to keep it" if unsure else ""
        if not unsure and self._bringing and not (money and self._gains(money.point)):
            told[-1] = f"by estimate, {told[-1]}"
        return capital(f"{'by estimate, ' if unsure else ''}{', or '.join(told)}{doubt}.")

    @property
    def how(self) -> list[str]:
        """The limits that do it, and how sure that is, in sentences."""
        said = []
        least, money = self._goal("least money"), self._goal("same money")
        if least is not None and self._saving:
            said.append(self._saved(least))
        elif self._dearer:
            said.append(self._dearer)
        if money is not None and money.point is not None and self._bringing:
            said.append(f"A limit of {self.limit(money.point)} spends what you spend today: {self._sure(money.point)}.")
        elif self._saves(dearest := max(self.curve.curve, key=lambda p: p.totals.money.value if p.totals else 0.0)):
            said.append(f"These policies spend {self.spends(dearest)} at most, less than today.")
        return said

    def _saved(self, goal: Goal) -> str:
        today = f"today's {self.names.reward}"
        if goal.sure is not None and self._saves(goal.sure):
            return f"A limit of {self.limit(goal.sure)} keeps {today}: sure ({self.sure}) of no less."
        assert goal.point is not None
        none = f"no limit up to today's money is sure ({self.sure}) of it"
        more = none if goal.sure is None else f"{self.limit(goal.sure)} is sure of it ({self.sure})"
        return f"By estimate a limit of {self.limit(goal.point)} keeps {today}; {more}."

    @property
    def _saving(self) -> str:
        """`keep today's active days for 405,000 yuan less in 30 days (−29%)`."""
        goal = self._goal("least money")
        if goal is None:
            return ""
        point = next((p for p in (goal.sure, goal.point) if p is not None and self._saves(p) and not p.withheld), None)
        now = self.now_money
        if point is None or point.totals is None or now is None:
            return ""
        less = now.value - point.totals.money.value
        share = brief_change(-less / now.value)
        return f"keep today's {self.names.reward} for {self.money.amount(less, self._unit)} less{self.span} ({share})"

    @property
    def _bringing(self) -> str:
        """`spend what you spend today for 216,000 more active days in 30 days (+19%)`."""
        goal = self._goal("same money")
        point = None if goal is None else goal.point
        if point is None or point.totals is None or point.withheld or self.now_reward is None:
            return ""
        if (point.totals.more or 0.0) <= 0:
            return ""
        more = point.totals.more or 0.0
        by = f"{self.reward.amount(more, self.names.reward_unit)} more {self.names.reward}{self.span}"
        if not self.names.counts:
            by = f"{self.reward.amount(more, self.names.reward_unit)} more of {self.names.reward}{self.span}"
        whole = f" ({change(more / abs(self.now_reward.value))})" if self.now_reward.value else ""
        return f"spend what you spend today on about {by}{whole}"

    @property
    def ticks(self) -> str:
        """What a tick of the table means; empty without one."""
        return f"{TICK} certified." if any(p.certified for p in (*self.curve.curve, *self.curve.requested)) else ""

    @property
    def doubt(self) -> str:
        """What a star of the table means: why budgets could not be measured, and of how many; empty without one."""
        why = Counter(str(p.certificate) for p in self.curve.curve if p.withheld)
        if not why:
            return ""
        reason, each = why.most_common(1)[0][0], "They are" if len(why) == 1 else "Many are"
        count = f"{sum(why.values())} of {len(self.curve.curve)} budgets"
        return f"* not to rely on: this log cannot tell what {count} bring. {each} {reason}."

    def _saves(self, point: CurvePoint | None) -> bool:
        now, found = self.now_money, None if point is None else point.totals
        return now is not None and found is not None and found.money.value < (1 - ALIKE) * now.value

    @staticmethod
    def _gains(point: CurvePoint | None) -> bool:
        found = None if point is None else point.totals
        return found is not None and (found.at_least or 0.0) > 0

    @property
    def _dearer(self) -> str:
        """That today's reward costs more on the whole curve than today; empty where it does not, or is out of reach."""
        now, money = self.now_reward, self.now_money
        if now is None or money is None:
            return ""
        totals = [p.totals for p in self.curve.curve if p.totals is not None]
        least = min((found.money.value for found in totals if found.reward.value >= now.value), default=0.0)
        if least <= (1 + ALIKE) * money.value:
            return ""
        return f"What you do today is cheaper: no limit of this curve keeps today's {self.names.reward} for so little."

    # Goals.

    @property
    def goals(self) -> Table:
        """What was asked for, the limit that reaches it, what it spends and brings, and how sure that is."""
        rows = []
        for goal in self.curve.goals:
            rows.append(self._line(question(goal, self.names), goal.point, out_of_reach(goal)))
            if goal.sure is not None and (goal.point is None or goal.sure.budget != goal.point.budget):
                rows.append(self._line(f"the same, {self.sure} sure", goal.sure, ""))
        return Table("Which budget does it", self._columns("what you want"), tuple(rows))

    def line(self, goal: Goal) -> str:
        """A goal and the budgets that reach it, in a sentence."""
        asked = question(goal, self.names)
        if goal.point is None or goal.point.totals is None:
            return f"{asked}: {out_of_reach(goal)}."
        share = self._of_now(goal.point)
        told = (
            f"{asked}: a limit of {self.limit(goal.point)}, {self.spends(goal.point)}{share}; {self._sure(goal.point)}."
        )
        if goal.kind == "least money" and self._dearer:
            told = f"{told} {self._dearer}"
        if goal.sure is None or goal.sure.budget == goal.point.budget:
            return told
        spends = f"{self.spends(goal.sure)}{self._of_now(goal.sure)}"
        return f"{told} {self.limit(goal.sure)} is {self.sure} sure of it: {spends}."

    def _of_now(self, point: CurvePoint) -> str:
        """` (−29% of today's money)`."""
        now = self.now_money
        if now is None or not now.value or point.totals is None:
            return ""
        share = point.totals.money.value / now.value - 1
        return "" if abs(share) < ALIKE else f" ({brief_change(share)})"

    @property
    def table(self) -> Table:
        """Every tenth budget of the curve, and those requested."""
        asked = {p.budget for p in self.curve.requested}
        own = self.curve.money_limit.limit
        rows = []
        for point in distinct([*self.curve.curve[::TABLE_STEPS], *self.curve.requested]):
            mark = "" if point.budget not in asked else " (yours)" if point.budget == own else " (asked for)"
            sure = f" {TICK}" if point.certified else ""
            rows.append(
                self._line(
                    f"{self._bare(point)}{sure}{mark}", point, "not told", look="chosen" if mark else "", limit=False
                )
            )
        heads = self._columns(f"limit {self.names.per(self.curve.money_limit, daily=self._daily)}", limit=False)
        return Table(f"{self.curve.campaign}: what a budget buys", heads, tuple(rows))

    def _columns(self, first: str, *, limit: bool = True) -> tuple[Column, ...]:
        per = self.names.per(self.curve.money_limit, daily=self._daily)
        budget, names = self.curve.money_limit, self.names
        spend, reward = head(names.budget(budget), self._unit), head(names.reward, names.reward_unit)
        limits = (f"limit {per}",) if limit else ()
        return (
            *words(first),
            *numbers(*limits, f"{spend}{self.span}", f"{reward}{self.span}", "more than now", "at least"),
        )

    def _line(self, first: str, point: CurvePoint | None, without: str, *, look: str = "", limit: bool = True) -> Row:
        if point is None or point.totals is None:
            return row(first, Cell(without, span=5 if limit else 4), look="withheld")
        found, now = point.totals, self.now_reward
        share = "" if found.more is None or now is None or not now.value else change(found.more / abs(now.value))
        doubt: Look = "doubted" if point.withheld else ""
        return row(
            Cell(first, link=f"#budget={plain(point.budget)}"),
            *((self._bare(point),) if limit else ()),
            Cell(self.money.number(found.money.value), look=doubt),
            Cell(self.reward.number(found.reward.value), look=doubt),
            Cell(NONE if found.more is None else self.reward.signed(found.more), share),
            NONE if found.at_least is None else self.reward.signed(found.at_least),
            look=look,
        )

    # A budget.

    def panel(self, point: CurvePoint) -> dict[str, str]:
        """The texts of the panel for a budget, by the names of their elements."""
        found = point.totals
        assert found is not None
        now = self.now_reward
        more = NONE if found.more is None else self.reward.signed(found.more)
        texts = {
            "total": self.total(point),
            "limit": self.limit(point),
            "buys": self.reward.amount(found.reward.value, self.names.reward_unit),
            "between": _ends(found.reward, self.reward.number),
            "more": more,
            "share": "" if found.more is None or now is None or not now.value else change(found.more / abs(now.value)),
            "spends": self.money.amount(found.money.value, self._unit),
            "spends_between": _ends(found.money, self.money.number),
            "sure_of": self._sure(point),
        }
        aria = f"{self.names.budget(self.curve.money_limit)} {texts['total']}: {texts['buys']} {self.names.reward}"
        return {**{name: text or NONE for name, text in texts.items()}, "aria": aria}

    def total(self, point: CurvePoint) -> str:
        """The budget for all users: `1,200,000 yuan`; its limit where users do not decide every day."""
        times = None if self.curve.totals is None else self.curve.totals.times
        if times is None:
            return self.limit(point)
        return self.money.amount(times * point.budget, self._unit)

    def limit(self, point: CurvePoint) -> str:
        """`0.4 yuan per user and day`."""
        per = self.names.per(self.curve.money_limit, daily=self._daily)
        return " ".join(part for part in (self._bare(point), self._unit, per) if part)

    def spends(self, point: CurvePoint) -> str:
        """What a budget spends in all."""
        return NONE if point.totals is None else f"{self.money.amount(point.totals.money.value, self._unit)}{self.span}"

    def _sure(self, point: CurvePoint) -> str:
        found = point.totals
        if found is None or found.at_least is None:
            return "how much it may lose is not known"
        if found.at_least > 0:
            return f"sure ({self.sure_of(point)}) of at least {self.reward.number(found.at_least)} more than now"
        if found.at_most is not None and found.at_most < 0:
            return f"sure ({self.sure_of(point)}) to lose at least {self.reward.number(-found.at_most)}"
        return "not sure of a gain"

    # What they are made of.

    @property
    def names(self) -> Names:
        """Labels and units."""
        return Names(self.campaign)

    @property
    def span(self) -> str:
        """` in 30 days`; empty where a user has one row."""
        found = self.curve.totals
        span = "" if found is None else self.names.span(found.days)
        return f" {span}" if span else ""

    @property
    def sure(self) -> str:
        """Confidence of the bounds of the curve."""
        return "" if self.curve.band is None else exact(self.curve.band.confidence, 3)

    def sure_of(self, point: CurvePoint) -> str:
        """Confidence of the bounds of one budget."""
        return self.sure if point.confidence is None else exact(point.confidence, 3)

    @property
    def now_reward(self) -> Total | None:
        """The reward now."""
        return None if self.curve.totals is None else self.curve.totals.reward

    @property
    def now_money(self) -> Total | None:
        """The money now."""
        return None if self.curve.totals is None else self.curve.totals.money

    @cached_property
    def reward(self) -> Rounding:
        """How rewards are rounded, alike along the curve."""
        return self._rounding(lambda found: found.reward)

    @cached_property
    def money(self) -> Rounding:
        """How money is."""
        return self._rounding(lambda found: found.money)

    def _rounding(self, of: Callable[[BudgetTotals], Total]) -> Rounding:
        """As what is requested calls for, but four digits of the largest total at most: the one requested may be 0."""
        known = [of(p.totals) for p in (*self.curve.requested, *self.curve.curve[::-1]) if p.totals is not None]
        largest = Total(value=max(abs(each.value) for each in known))
        return Rounding(max(Rounding.of(known[0]).step, Rounding.of(largest).step / 10))

    @property
    def _daily(self) -> bool:
        return self.curve.totals is not None and self.curve.totals.times is not None

    @property
    def _unit(self) -> str:
        return self.names.money_unit

    def _bare(self, point: CurvePoint) -> str:
        """A limit as it may be typed."""
        return plain(point.budget) if f"{point.budget:.4g}" == f"{point.budget:.12g}" else number(point.budget)

    def _goal(self, kind: str) -> Goal | None:
        return next((goal for goal in self.curve.goals if goal.kind == kind), None)


def _ends(of: Total, told: Callable[[float], str]) -> str:
    return "" if of.low is None or of.high is None else f"{told(of.low)} to {told(of.high)}"
