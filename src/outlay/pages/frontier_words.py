"""What the frontier's page says, budget by budget: the one place where its numbers are rounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.target import Target
from outlay.pages import words
from outlay.pages.content import BudgetLine, Interval

ROUNDING = 1e-9  # of weights: a linear programme leaves traces
CERTIFIED = "Certified means that the limits are kept, not that a budget gains"

Point = Mapping[str, Any]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Say:
    """Puts points of one frontier into words.

    Attributes:
        budgets: `[m]`; place: of the money budget among them.
        reward: of the objective, e.g. `active days per decision`; brief: where the sentence has said per what.
        more: `one more yuan per decision`.
        old: value of the log's policy; None where it could not be measured.
        sure: `97.5 %`, of the certificates, and sure_old: the old policy's value on the users they rest on; None before
            the look.
        digits: after the point, of the objective; budget_digits: of the money budget; spend_digits: `[m]` of costs.
    """

    budgets: list[BudgetLine]
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
    def of(cls, found: Mapping[str, Any]) -> Say:
        """From frontier.json."""
        budgets = [
            BudgetLine(name=b["name"], limit=b["limit"], sign=b["sign"], per=b["per"],
                       unit=found["unit"] if b["name"] == found["money"] else "")
            for b in found["budgets"]
        ]  # fmt: skip
        place = [b.name for b in budgets].index(found["money"])
        money, label, days = budgets[place], found["reward_label"], Target.parse(found["objective"]).days
        unit = "unit of money" if money.unit == "money" else money.unit
        span = f"user over {words.days(days)}" if money.per == "user" and days else money.per
        per = f"user in {words.days(days)}" if days else "decision"
        curve, band = found["curve"], found["band"]
        return cls(
            budgets=budgets,
            place=place,
            reward=f"{label} per {per}",
            brief=label if money.per == "user" else f"{label} per {per}",
            more=f"one more {unit} per {span}",
            old=None if found["old"] is None else found["old"]["value"],
            sure=None if band is None else words.exact(band["confidence"]),
            sure_old=None if band is None else band["old"],
            digits=_digits([p["value"] for p in curve], [p["high"] - p["value"] for p in curve]),
            budget_digits=_digits([found["most"]], [(found["most"] - found["least"]) / max(len(curve) - 1, 1)]),
            spend_digits=[
                _digits([p["spend"][j] for p in curve], [p["spend_high"][j] - p["spend"][j] for p in curve])
                for j in range(len(budgets))
            ],
        )  # fmt: skip

    def value(self, value: float) -> str:
        """The objective, without its unit."""
        return words.number(value, self.digits)

    def gain(self, value: float) -> str:
        """Over the old policy: `+11 %`; `–` where that could not be measured."""
        return "–" if self.old is None else _percent(value, self.old)

    def ends(self, low: float, high: float, digits: int) -> str:
        """`0.469 to 0.477`."""
        return f"{words.number(low, digits)} to {words.number(high, digits)}"

    def marginal(self, point: Point) -> str:
        """What one more unit of money buys there."""
        if point["slack"] or point["marginal"] <= 0:
            spent = words.number(point["spend"][self.place], self.spend_digits[self.place])
            return f"more money buys nothing that these policies know of: they spend {spent} at most"
        return f"{self.more} buys {words.number(point['marginal'])} {self.brief}"

    def mixture(self, point: Point) -> str:
        """A line per member: its λ's and its share of users."""
        lines, many = [], any(m.get("fold") for m in point["members"])
        for member in (m for m in point["members"] if m["weight"] > ROUNDING):
            prices = ", ".join(words.number(price) for price in member["multiplier"])
            prices = prices if len(self.budgets) == 1 else f"({prices})"
            share = "under 0.1 %" if member["weight"] < 0.0005 else words.percent(member["weight"])
            of = f"fold {member['fold'] + 1}: " if many else ""
            lines.append(f"{of}λ = {prices} for {'all' if member['weight'] >= 1 - ROUNDING else share + ' of'} users")
        return "\n".join(lines)

    def panel(self, point: Point) -> dict[str, str]:
        """All that the panel says of a budget, by the names of its places."""
        budget = words.number(point["budget"], self.budget_digits)
        said = {
            "budget": budget,
            "value": self.value(point["value"]),
            "ends": self.ends(point["low"], point["high"], self.digits),
            "gain": self.gain(point["value"]),
            "margin": words.number(point["margin"], self.spend_digits[self.place]),
            "marginal": _sentence(self.marginal(point)),
            "mixture": self.mixture(point),
            "command": f"outlay frontier RUN --budget {_enough(point['budget'])} --export DIR",
            "spoken": f"budget {budget}: {self.value(point['value'])} {self.reward}",
        }
        for j, digits in enumerate(self.spend_digits):
            said[f"spend{j}"] = words.number(point["spend"][j], digits)
            said[f"ends{j}"] = self.ends(point["spend_low"][j], point["spend_high"][j], digits)
        return said if self.sure is None else {**said, **self.certificate(point)}

    def certificate(self, point: Point) -> dict[str, str]:
        """What the look at the certify users says of a budget."""
        said = {"certificate": f"✓ certified at {self.sure}" if point["certified"] else f"✕ {point['certificate']}"}
        for j, (budget, bound) in enumerate(zip(self.budgets, point["bounds"], strict=True)):
            reach = f"{'at most' if budget.sign > 0 else 'at least'} {words.number(bound, self.spend_digits[j])}"
            said[f"bound{j}"] = "no bound" if bound is None else f"{reach} ({self.sure} sure)"
        if point["gain_bound"] is None or not self.sure_old:
            said["least"] = "no bound"
        else:
            end, which = (point["gain_most"], "a loss, ") if loses(point) else (point["gain_bound"], "")
            reach = f"{_percent(self.sure_old + end, self.sure_old)} at {'best' if which else 'least'}"
            said["least"] = f"{which}{reach} ({self.sure} sure)"
        return said


def headline(point: Point, say: Say) -> list[str]:
    """What the budget asked for buys, and what one more unit of money would."""
    money, given = say.budgets[say.place], point["budget"]
    whose = "The campaign’s budget" if given == money.limit else "A budget"
    bought = f"{whose} of {words.plain(given)} {words.per(money)} buys {say.value(point['value'])} {say.reward}"
    return [bought, say.ends(point["low"], point["high"], say.digits), f"At that budget, {say.marginal(point)}."]


def beside_old(found: Mapping[str, Any], say: Say) -> tuple[str, str]:
    """The curve beside the old policy: a headline, and a sentence below it, which may be empty.

    The users on whom the curve was measured also chose its mixtures, which flatters them. So the headline compares only
    what a look at the certify users bounds; until then the comparison stands below it, with that said.
    """
    old, money = found["old"], say.budgets[say.place]
    ends = say.ends(found["least"], found["most"], say.budget_digits)
    bare = f"What budgets from {ends} {words.per(money)} buy"
    if old is None or say.old is None:
        return f"{bare}. The log says too little about its own policy to compare it with them", ""
    spend, value = (np.array([row[key] for row in found["curve"]]) for key in ("spend", "value"))
    spend, paid = np.maximum.accumulate(spend[:, say.place]), old["spend"][say.place]
    reached = float(np.interp(paid, spend, value)) if spend[0] <= paid <= spend[-1] else None
    broken = [
        f"{b.name} {words.limit(b)}"
        for j, b in enumerate(say.budgets)
        if j != say.place and b.sign * (old["spend"][j] - b.limit) > 0
    ]
    also = f"; the old policy does not keep {' and '.join(broken)}, these do" if broken else ""
    with_as_much = f"With what the old policy spends, {words.number(paid)} {words.per(money)}, these policies"
    if found["band"] is not None and say.sure_old:
        sure = _surely(found["curve"], spend, paid, say)
        if reached is None or sure is None:
            return bare, ""
        return f"{with_as_much} reach {say.value(reached)} against its {say.value(say.old)}; {sure}{also}", ""
    parts = []
    if reached is not None:
        parts.append(f"{with_as_much} reach {say.value(reached)} against its {say.value(say.old)} "
                     f"({say.gain(reached)}){also}")  # fmt: skip
    rising = np.maximum.accumulate(value)
    if rising[0] <= say.old <= rising[-1]:
        needed = words.number(cost := float(np.interp(say.old, rising, spend)))
        parts.append(f"They reach its {say.value(say.old)} with {needed} ({_percent(cost, paid)})")
    if not parts:
        return bare, ""
    return bare, (
        f"{'. '.join(parts)}. These figures are from the select users, who also chose the policies, so they are "
        "likely to be too good; a look at the certify users bounds the gain."
    )


def _surely(curve: Sequence[Point], spend: Vector, paid: float, say: Say) -> str | None:
    """How much of the gain over the old policy is sure: at its own spend, and the least budget sure to lose nothing.

    None where no bound is known at its spend.
    """
    within = np.flatnonzero(spend <= paid)
    bound = curve[int(within[-1])]["gain_bound"] if len(within) else None
    if bound is None or say.sure_old is None:
        return None
    if bound <= 0:
        return f"no gain is {say.sure} sure there"
    text = f"a gain of {_percent(say.sure_old + bound, say.sure_old)} is {say.sure} sure"
    first = next((i for i, p in enumerate(curve) if p["gain_bound"] is not None and p["gain_bound"] >= 0), None)
    if first is None or spend[first] >= paid:
        return text
    return (
        f"{text}, and with {words.number(float(spend[first]))} ({_percent(float(spend[first]), paid)}) they are "
        "sure to bring no less than it does"
    )


def falls(curve: Sequence[Point], say: Say) -> str:
    """What one more unit of money buys near the beginning, in the middle and near the end."""
    shown = [curve[round(share * (len(curve) - 1))] for share in (0.1, 0.5, 0.9)]
    first, *others = [
        (words.number(max(p["marginal"], 0.0)), words.number(p["budget"], say.budget_digits)) for p in shown
    ]
    text = f"{_sentence(say.more, '')} buys {first[0]} {say.brief} at a budget of {first[1]}"
    return text + "".join(f", {buys} at {budget}" for buys, budget in others)


def loses(point: Point) -> bool:
    """Whether a budget is sure to bring less than the old policy."""
    return point["gain_most"] is not None and point["gain_most"] < 0


class Look(NamedTuple):
    """What is certified of a curve.

    Attributes:
        badge: in a few words.
        kind: of the badge: `yes` where all is certified and nothing is a certain loss, `no` where nothing is certified,
            else `open`.
        text: what it rests on; before the look how to get it.
    """

    badge: str
    kind: Literal["yes", "no", "open"]
    text: str


def look(found: Mapping[str, Any]) -> Look:
    """What is certified, and for how many budgets a loss is sure."""
    band, curve = found["band"], found["curve"]
    if band is None:
        return Look("Not certified yet", "open", (
            "These policies were not measured on certify users yet. One look there judges every budget of this curve: "
            "outlay evaluate RUN takes it, or the first export."
        ))  # fmt: skip
    kept, lost = sum(bool(p["certified"]) for p in curve), sum(loses(p) for p in curve)
    sure = words.exact(band["confidence"])
    share = "Every budget" if kept == len(curve) else f"{kept or 'None'} of {len(curve)} budgets"
    badge = f"{share} of the curve certified at {sure}" + (f"; {lost} lose against the old policy" if lost else "")
    told = "" if not lost else f"{CERTIFIED}: {losses(found)} "
    return Look(badge, "no" if not kept else "open" if kept < len(curve) or lost else "yes", told + (
        f"Look {band['look']} at {words.number(band['users'], 0)} certify users, {_apart(found)}, bounds the costs of "
        f"all {words.number(band['policies'], 0)} mixtures of the curve together, "
        f"{words.number(band['factor'], 2)} standard errors from the estimate. So the bounds hold for every mixture "
        "between them at once: wherever the slider stands, and however often it was moved, the chance that any budget "
        f"is certified and over its limit stays under {words.exact(1 - band['confidence'])}."
    ))  # fmt: skip


def _apart(found: Mapping[str, Any]) -> str:
    """Who the certify users are."""
    if found["folds"] == 1:
        return "who had no part in learning or choosing"
    return f"all users of the log, each measuring what was learned and chosen without their fold of {found['folds']}"


def losses(found: Mapping[str, Any]) -> str:
    """Which budgets of the curve are sure to bring less than the old policy; empty where none is."""
    curve, band = found["curve"], found["band"]
    lost = [p["budget"] for p in curve if loses(p)]
    if not lost:
        return ""
    span = f"budgets from {words.number(min(lost))} to {words.number(max(lost))}"
    return (
        f"{len(lost)} of {len(curve)} budgets of the curve ({span}) bring less than the old policy does at its own "
        f"spend, {words.exact(band['confidence'])} sure."
    )


def beside_run(found: Mapping[str, Any]) -> str:
    """Why the report of the run has other figures for the campaign's budget; empty where that is not shown."""
    limit = next(b["limit"] for b in found["budgets"] if b["name"] == found["money"])
    if not any(point["budget"] == limit for point in found["asked"]):
        return ""
    return (
        f"For the campaign’s budget of {words.plain(limit)} the run’s own bundle (RUN/bundle, outlay evaluate, outlay "
        "report) is another mixture and has other figures: it was chosen for this one limit, with room for its own "
        "certificate, and is measured on certify users. The curve leaves room for the certificate of every budget at "
        "once, so it spends a little less there, and it is measured on the select users who chose it."
    )


def _digits(values: Sequence[float], halves: Sequence[float]) -> int:
    """Digits for a whole curve: what its middle half interval calls for; near nothing spent they are all but zero."""
    half = float(np.median(halves))
    return words.decimals([Interval(0.0, -half, half)] if half > 0 else [Interval(value) for value in values])


def _percent(value: float, base: float) -> str:
    """The change from a base: `+11 %`, `−4.2 %`."""
    if not base > 0:
        return words.NONE
    change = 100 * (value / base - 1)
    return f"{change:+.{0 if abs(change) >= 9.95 else 1}f} %".replace("-", "−")


def _enough(budget: float) -> str:
    """Six digits, rounded up: the least budget rounded down could not be kept."""
    if budget <= 0:
        return "0"
    size = 10.0 ** (math.floor(math.log10(budget)) - 5)
    return f"{math.ceil(budget / size - 1e-6) * size:.6g}"


def _sentence(text: str, end: str = ".") -> str:
    return text[:1].upper() + text[1:] + end
