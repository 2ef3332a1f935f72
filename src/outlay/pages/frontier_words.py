"""The frontier in words, budget by budget, and its table, for page and terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import BudgetLimit, Campaign
from outlay.core.estimate import Target
from outlay.core.wording import (
    NONE,
    Interval,
    advised,
    change,
    days,
    decimals,
    ends,
    exact,
    four,
    number,
    percent,
    plain,
    singular,
)
from outlay.evaluating.budget_curve import BudgetCurve, CurvePoint, Goal
from outlay.evaluating.goals import Stop, money_and_reward
from outlay.pages.amounts import Names, capital
from outlay.pages.tables import Cell, Column, Row, Table, figure, kept, limit, per, words

ROUNDING = 1e-9  # of weights: a linear programme leaves traces
FEW = 2  # members that a line has room for
TABLE_STEPS = 10  # of the curve, in its table
CERTIFIED = "Certified means that the limits are kept, not that a budget gains"

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class CurveWording:
    """Puts the points of one curve into words.

    Attributes:
        names: labels and units.
        run: the folder that commands name.
        labels: `[m]` of the budgets.
        budgets: `[m]`; place: of the money budget among them.
        reward: the objective, e.g. `active days per decision`; brief: the same in a sentence that has its unit already.
        more: `one more yuan per decision`.
        old: value of the log's policy; None where it could not be measured.
        sure: `97.5%`, of the certificates, and sure_old: the old policy's value on the users they rest on; None before
            the look.
        digits: after the point, of the objective; budget_digits: of the money budget; spend_digits: `[m]` of costs.
    """

    names: Names
    run: str
    labels: tuple[str, ...]
    budgets: tuple[BudgetLimit, ...]
    place: int
    reward: str
    brief: str
    more: str
    old: float | None
    sure: str | None
    sure_old: float | None
    digits: int
    budget_digits: int
    spend_digits: list[int]

    @classmethod
    def of(cls, curve: BudgetCurve, campaign: Campaign, run: str = "RUN") -> CurveWording:
        """Read names, units and digits from the curve; `run` is the folder that commands name."""
        names = Names(campaign)
        money, label, total = curve.money_limit, names.reward, Target.parse(curve.objective).days
        unit = "unit of money" if money.unit == "money" else money.unit
        span = f"user over {days(total)}" if money.per == "user" and total else money.per
        each = f"user in {days(total)}" if total else "decision"
        points, band = curve.curve, curve.band
        return cls(
            names=names,
            run=run,
            labels=tuple(names.budget(budget) for budget in curve.budgets),
            budgets=curve.budgets,
            place=curve.place,
            reward=f"{label} per {each}",
            brief=label if money.per == "user" else f"{label} per {each}",
            more=f"one more {unit} per {span}",
            old=None if curve.old is None else curve.old.value,
            sure=None if band is None else exact(band.confidence),
            sure_old=None if band is None else band.old,
            digits=_digits([p.value for p in points], [p.high - p.value for p in points]),
            budget_digits=_digits([curve.most], [(curve.most - curve.least) / max(len(points) - 1, 1)]),
            spend_digits=[
                _digits([p.spend[j] for p in points], [p.spend_high[j] - p.spend[j] for p in points])
                for j in range(len(curve.budgets))
            ],
        )

    @property
    def one(self) -> str:
        """What one more of the reward is called: `active day`, or `unit of spend`."""
        label = self.names.reward
        one = singular(label)
        return one if self.names.counts and one != label else f"of {label}"

    def value(self, value: float) -> str:
        """The objective, without its unit."""
        return number(value, self.digits)

    def gain(self, value: float) -> str:
        """Over the old policy: `+11%`; `–` where that could not be measured."""
        return NONE if self.old is None else against(value, self.old)

    def marginal(self, point: CurvePoint) -> str:
        """The marginal reward there, as part of a sentence."""
        if point.slack or point.marginal <= 0:
            spent = number(point.spend[self.place], self.spend_digits[self.place])
            return f"more money buys nothing with these policies: they spend {spent} at most"
        low, high = (number(end) for end in (point.marginal_low, point.marginal_high))
        return f"{self.more} buys {number(point.marginal)} {self.brief} ({low} to {high})"

    def mixture(self, point: CurvePoint) -> str:
        """A line per member: its λ and its share of users."""
        lines, many = [], any(m.fold for m in point.members)
        for member in (m for m in point.members if m.weight > ROUNDING):
            prices = ", ".join(number(price) for price in member.multiplier)
            prices = prices if len(self.budgets) == 1 else f"({prices})"
            share = "under 0.1%" if member.weight < 0.0005 else percent(member.weight)
            of = f"fold {member.fold + 1}: " if many else ""
            lines.append(f"{of}λ = {prices} for {'all' if member.weight >= 1 - ROUNDING else share + ' of'} users")
        return "\n".join(lines)

    def prices(self, point: CurvePoint) -> str:
        """The same in a line: of many members the ends of their λ."""
        lines = self.mixture(point).split("\n")
        if len(lines) <= FEW:
            return "; ".join(lines)
        prices = sorted(m.multiplier for m in point.members if m.weight > ROUNDING)
        low, high = (", ".join(number(price) for price in each) for each in (prices[0], prices[-1]))
        return f"λ = {low} to {high}, {len(prices)} members"

    def panel(self, point: CurvePoint) -> dict[str, str]:
        """The texts of the panel for a budget, by the names of their elements."""
        budget = number(point.budget, self.budget_digits)
        asked = advised(max(0.0, point.budget), digits=6, beyond=False)
        texts = {
            "budget": budget,
            "value": self.value(point.value),
            "ends": ends(point.low, point.high, self.digits),
            "gain": self.gain(point.value),
            "margin": number(point.margin, self.spend_digits[self.place]),
            "marginal": _sentence(self.marginal(point)),
            "mixture": self.mixture(point),
            "command": f"outlay frontier {self.run} --budget {asked} --out {self.run}-{asked}",
            "aria": f"budget {budget}: {self.value(point.value)} {self.reward}",
        }
        for j, digits in enumerate(self.spend_digits):
            texts[f"spend{j}"] = number(point.spend[j], digits)
            texts[f"ends{j}"] = ends(point.spend_low[j], point.spend_high[j], digits)
        return texts if self.sure is None else {**texts, **self.certificate(point)}

    def certificate(self, point: CurvePoint) -> dict[str, str]:
        """The texts that the look at the certify users adds for a budget."""
        sure = self.sure_of(point)
        told = f"✓ certified at {sure}" if point.certified else f"{'' if point.held else '✕ '}{point.certificate}"
        texts = {"certificate": told}
        for j, (budget, bound) in enumerate(zip(self.budgets, point.bounds or (), strict=True)):
            reach = f"{'at most' if budget.sign > 0 else 'at least'} {number(bound, self.spend_digits[j])}"
            texts[f"bound{j}"] = "no bound" if bound is None else f"{reach} ({sure} sure)"
        if point.gain_bound is None or not self.sure_old:
            texts["least"] = "no bound"
        else:
            end, which = (point.gain_most or 0.0, "a loss, ") if point.loses else (point.gain_bound, "")
            reach = f"{against(self.sure_old + end, self.sure_old)} at {'best' if which else 'least'}"
            texts["least"] = f"{which}{reach} ({sure} sure)"
        return texts

    def sure_of(self, point: CurvePoint) -> str | None:
        """How sure the bounds of a budget are: of the mixture that the run serves otherwise than of all others."""
        return self.sure if point.confidence is None else exact(point.confidence)


def _certified(point: CurvePoint, wording: CurveWording) -> Cell:
    """Whether a budget is, and how surely where that is another confidence than the others'."""
    own = wording.sure_of(point)
    cell = kept(bool(point.certified), held=point.held)
    return cell if point.held else replace(cell, note="" if own == wording.sure else f"at {own}")


def table(curve: BudgetCurve, wording: CurveWording, *, brief: bool = False) -> Table:
    """What every tenth budget of the curve buys and spends, and every requested one.

    `brief`: without what a budget's policy is made of, and the marginal reward.
    """
    money = curve.money_limit
    columns = (
        Column("budget", per(money)),
        Column("buys", wording.reward),
        Column("over the old policy", "estimate"),
        *(
            Column("spends", per(b)) if b.name == money.name else Column(label, limit(b))
            for b, label in zip(wording.budgets, wording.labels, strict=True)
        ),
        *(() if brief else (Column("marginal reward"),)),
        *(() if wording.sure is None else (Column("certified", f"at {wording.sure}", words=True),)),
        *(() if brief else words("mixture")),
    )

    def line(point: CurvePoint) -> Row:
        mark = ""
        if any(point.budget == other.budget for other in curve.requested):
            mark = "the campaign’s" if point.budget == money.limit else "requested"
        spends = (
            figure(Interval(*values), digits)
            for *values, digits in zip(
                point.spend, point.spend_low, point.spend_high, wording.spend_digits, strict=True
            )
        )
        cells = (
            Cell(number(point.budget, wording.budget_digits), mark),
            figure(Interval(point.value, point.low, point.high), wording.digits),
            Cell(wording.gain(point.value), wording.certificate(point)["least"] if point.loses else ""),
            *spends,
            *(() if brief else (_marginal(point),)),
            *(() if wording.sure is None else (_certified(point, wording),)),
            *(() if brief else (Cell(wording.mixture(point), brief=wording.prices(point)),)),
        )
        return Row(cells, look="chosen" if mark else "")

    title = f"{curve.campaign}: what a budget buys, {exact(curve.confidence)} intervals on {measured_on(curve)}"
    return Table(title, columns, tuple(map(line, distinct([*curve.curve[::TABLE_STEPS], *curve.requested]))))


def distinct(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """By budget, each once."""
    return [point for _, point in sorted({p.budget: p for p in points}.items())]


def _marginal(point: CurvePoint) -> Cell:
    """The marginal reward with its interval; 0 where only rounding is left of it."""
    if point.slack:
        return Cell("0")
    value, low, high = (round(x, 9) for x in (max(point.marginal, 0.0), point.marginal_low, point.marginal_high))
    return Cell(number(value), ends(low, high))


def headline(point: CurvePoint, wording: CurveWording, confidence: float) -> tuple[str, str]:
    """What the requested budget buys, and how sure that is with the marginal reward there; or that no log can tell."""
    money, given = wording.budgets[wording.place], point.budget
    whose = "the campaign’s budget" if given == money.limit else "a budget"
    budget = f"{whose} of {plain(given)} {per(money)}"
    if point.withheld:
        return f"This log cannot tell what {budget} would buy", f"{capital(str(point.certificate))}."
    bought = f"{capital(budget)} buys {wording.value(point.value)} {wording.reward}"
    between = f"{exact(confidence)} interval: {ends(point.low, point.high, wording.digits)}"
    return bought, f"{between}. At that budget, {wording.marginal(point)}."


def goal_line(goal: Goal, wording: CurveWording, *, looked: bool) -> str:
    """A goal and the budget that reaches it, where no totals are told; `looked`: at the certify users."""
    asked = question(goal, wording.names)
    if goal.point is None:
        return f"{asked}: {out_of_reach(goal)}."
    told = f"{four(goal.point.budget)} {per(wording.budgets[wording.place])} buys {wording.value(goal.point.value)}"
    whose = "who had no part in choosing it" if looked else "who also chose it"
    return f"{asked}: {told}, by the users {whose}."


def out_of_reach(goal: Goal) -> str:
    """Why no budget of the curve reaches a goal."""
    return "even the first costs more" if goal.kind == "worth" else "no budget of this curve does it"


def question(goal: Goal, names: Names) -> str:
    """A goal in a few words, as the beginning of a sentence."""
    match goal.kind:
        case "least money":
            return f"Today's {names.reward} for the least money"
        case "same money":
            return "Today's money, spent better"
        case "gain":
            share = 100 * (goal.asked or 0.0)
            return f"{plain(abs(share))}% {'more' if share >= 0 else names.less} {names.reward}"
        case "worth":
            return f"Stop where one more costs over {plain(goal.asked or 0.0)} {names.money_unit}".strip()


def beside_old(curve: BudgetCurve, wording: CurveWording) -> tuple[str, str]:
    """The curve beside the old policy: a headline, and a sentence below it, which may be empty.

    The users on whom the curve was measured also chose its mixtures, which flatters them. So the headline compares only
    what a look at the certify users bounds; until then the comparison stands below it, with a warning.
    """
    old, money = curve.old, curve.money_limit
    between = ends(curve.least, curve.most, wording.budget_digits)
    bare = f"What budgets from {between} {per(money)} buy"
    if old is None or wording.old is None:
        return f"{bare}. The log says too little about its own policy to compare it with them", ""
    spend, value = np.array([p.spend for p in curve.curve]), np.array([p.value for p in curve.curve])
    spend, paid = np.maximum.accumulate(spend[:, wording.place]), old.spend[wording.place]
    reached = float(np.interp(paid, spend, value)) if spend[0] <= paid <= spend[-1] else None
    broken = [
        f"{label} {limit(b)}"
        for j, (b, label) in enumerate(zip(wording.budgets, wording.labels, strict=True))
        if j != wording.place and b.sign * (old.spend[j] - b.limit) > 0
    ]
    also = f"; the old policy does not keep {' and '.join(broken)}, these do" if broken else ""
    with_as_much = f"With what the old policy spends, {number(paid)} {per(money)}, these policies"
    if curve.band is not None and wording.sure_old:
        sure = _sure_gain(curve.curve, spend, paid, wording)
        if reached is None or sure is None:
            return bare, ""
        return (
            f"{with_as_much} reach {wording.value(reached)} against its {wording.value(wording.old)}; {sure}{also}",
            "",
        )
    parts = []
    if reached is not None:
        parts.append(
            f"{with_as_much} reach {wording.value(reached)} against its {wording.value(wording.old)} "
            f"({wording.gain(reached)}){also}"
        )
    rising = np.maximum.accumulate(value)
    if rising[0] <= wording.old <= rising[-1]:
        needed = number(cost := float(np.interp(wording.old, rising, spend)))
        parts.append(f"They reach its {wording.value(wording.old)} with {needed} ({against(cost, paid)})")
    if not parts:
        return bare, ""
    return bare, (
        f"{'. '.join(parts)}. These figures are from the select users, who also chose the policies, so they are "
        "likely to be too good; a look at the certify users bounds the gain."
    )


def _sure_gain(curve: Sequence[CurvePoint], spend: Vector, paid: float, wording: CurveWording) -> str | None:
    """How much of the gain over the old policy is sure: at its own spend, and the least budget sure to lose nothing.

    None where no bound is known at its spend.
    """
    within = np.flatnonzero(spend <= paid)
    bound = curve[int(within[-1])].gain_bound if len(within) else None
    if bound is None or wording.sure_old is None:
        return None
    if bound <= 0:
        return f"no gain is {wording.sure} sure there"
    text = f"a gain of {against(wording.sure_old + bound, wording.sure_old)} is {wording.sure} sure"
    first = next((i for i, p in enumerate(curve) if p.gain_bound is not None and p.gain_bound >= 0), None)
    if first is None or spend[first] >= paid:
        return text
    less = f"{number(float(spend[first]))} ({against(float(spend[first]), paid)})"
    return f"{text}, and {less} is enough to be {wording.sure} sure of no loss"


def marginal_course(curve: Sequence[CurvePoint], wording: CurveWording, beyond: Sequence[CurvePoint] = ()) -> str:
    """The marginal reward near the beginning, in the middle and near the end, and what is `beyond` the figure."""
    shown = [curve[round(share * (len(curve) - 1))] for share in (0.1, 0.5, 0.9)]
    first, *others = [(number(max(p.marginal, 0.0)), number(p.budget, wording.budget_digits)) for p in shown]
    text = f"{_sentence(wording.more, '')} buys {first[0]} {wording.brief} at a budget of {first[1]}"
    text += "".join(f", {buys} at {budget}" for buys, budget in others)
    if not beyond:
        return text
    most = max(beyond, key=lambda p: p.marginal)
    at = number(most.budget, wording.budget_digits)
    return f"{text}; above the figure it reaches {number(most.marginal)} at {at}"


class Badge(NamedTuple):
    """How much of a curve is certified.

    Attributes:
        title: in a few words.
        kind: `yes` where all is certified and nothing is a certain loss, `no` where nothing is certified, else `open`.
        text: what it rests on; before the look how to get it.
    """

    title: str
    kind: Literal["yes", "no", "open"]
    text: str


def badge(curve: BudgetCurve) -> Badge:
    """How many budgets are certified, and for how many a loss is sure."""
    band, points = curve.band, curve.curve
    if band is None:
        return Badge(
            "Not certified yet",
            "open",
            (
                "These policies were chosen on the users that the figures are from, which flatters them. An evaluation "
                "measures every budget of this curve on other users, once, and tells totals."
            ),
        )
    held, lost = sum(p.held for p in points), sum(p.loses for p in points)
    kept, sure = held or sum(bool(p.certified) for p in points), exact(band.confidence)
    known = (p.confidence for p in (*points, *curve.requested) if p.confidence is not None)
    own = next((exact(each) for each in known if each != band.confidence), None)
    alone = f" The mixture that the run serves has a share of the look for itself: its bounds are at {own}."
    share = "Every budget" if kept == len(points) else f"{kept or 'none'} of {len(points)} budgets"
    how, served = "held while serving" if held else f"certified at {sure}", _own_certified(curve)
    title = capital(f"{served}{share} of the curve {how}") + (f"; {lost} lose against the old policy" if lost else "")
    certify = (
        "who had no part in learning or choosing"
        if curve.folds == 1
        else (f"all users of the log, each measuring what was learned and chosen without their fold of {curve.folds}")
    )
    return Badge(
        title,
        "no" if not kept and not served else "open" if kept < len(points) or lost or held else "yes",
        (
            (f"{curve.holding.words} " if curve.holding is not None else "")
            + (f"{CERTIFIED}: {losses(curve)} " if lost else "")
            + f"Look {band.look} at {number(band.users, 0)} certify users, {certify}, bounds the costs of "
            f"all {number(band.policies, 0)} mixtures of the curve together, "
            f"{number(band.factor, 2)} standard errors from the estimate. "
            "So the bounds hold for every mixture between them at once: wherever the slider stands, "
            "and however often it was moved, the chance that any budget "
            f"is certified and over its limit stays under {exact(1 - band.confidence)}." + (alone if own else "")
        ),
    )


def judged(curve: BudgetCurve) -> str:
    """How many budgets of the curve are certified, or held while serving."""
    assert curve.band is not None
    points, sure = curve.curve, exact(curve.band.confidence)
    if held := sum(p.held for p in points):
        return f"{held} of {len(points)} budgets of the curve are held while serving: nothing else stands against them"
    kept = sum(bool(p.certified) for p in points)
    return f"{_own_certified(curve)}{kept} of {len(points)} budgets of the curve are certified at {sure}"


def _own_certified(curve: BudgetCurve) -> str:
    """That the campaign's own budget is, which has another share of the look, where others are not; else nothing."""
    if all(p.certified for p in curve.curve):
        return ""
    limit = curve.budgets[curve.place].limit
    own = next((p for p in curve.requested if p.budget == limit and p.certified and p.confidence is not None), None)
    return "" if own is None else f"Your budget is certified at {exact(own.confidence or 0)}; "


def losses(curve: BudgetCurve) -> str:
    """Which budgets of the curve are sure to bring less than the old policy; empty where none is."""
    lost = [p.budget for p in curve.curve if p.loses]
    if not lost or curve.band is None:
        return ""
    span = f"budgets from {number(min(lost))} to {number(max(lost))}"
    return (
        f"{len(lost)} of {len(curve.curve)} budgets of the curve ({span}) bring less than the old policy does at its "
        f"own spend, {exact(curve.band.confidence)} sure."
    )


def measured_on(curve: BudgetCurve) -> str:
    """Whose days the figures of the curve are."""
    return "select users" if curve.band is None else "certify users"


def _digits(values: Sequence[float], halves: Sequence[float]) -> int:
    """Digits for a whole curve: what its middle half interval calls for; near nothing spent they are all but zero."""
    half = float(np.median(halves))
    return decimals([Interval(0.0, -half, half)] if half > 0 else [Interval(value) for value in values])


def one_more(point: CurvePoint, found: Sequence[Stop], curve: BudgetCurve, names: Names) -> str:
    """What one more unit of the reward costs from a budget to the next of `stops`: `about 2.62 yuan`."""
    money = money_and_reward(point, curve)[0]
    dearer = next((stop for stop in found[1:] if money_and_reward(stop.point, curve)[0] > money), None)
    if dearer is None:
        return "cannot be bought: no more money is known to bring any"
    return f"about {number(dearer.worth)} {names.money_unit}".strip()


def against(value: float, base: float) -> str:
    """The change from a base: `+11.2%`."""
    return change(value / base - 1) if base > 0 else NONE


def _sentence(text: str, end: str = ".") -> str:
    return capital(text) + end
