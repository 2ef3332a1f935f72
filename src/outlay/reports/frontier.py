"""The page of `outlay frontier`: what more money would buy, with a slider over budgets, complete in itself.

Every budget that the slider can stand on is put into words and places here; the page's script only shows them. The
drawings are plain SVG, so that they are there without the script as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from outlay.core.version import __version__
from outlay.reports import words
from outlay.reports.content import BudgetLine, Interval
from outlay.reports.page import template
from outlay.reports.style import middle

TABLE_STEPS = 10  # of the curve, in the table
ROUNDING = 1e-9  # of weights: a linear programme leaves traces
NEAR = 0.25  # of the curve's width: a limit further off is not drawn

Point = Mapping[str, Any]


class Drawing(NamedTuple):
    """Places in percent from the left and the top, and the words of the ticks."""

    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    line: str
    band: str = ""
    dots: str = ""
    old: str = ""
    old_at: tuple[float, float] = (0.0, 0.0)
    old_bar: str = ""


class Frame(NamedTuple):
    """What a drawing shows: the ends of both axes."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, x: Sequence[float], y: Sequence[float]) -> Frame:
        """All of the points, with a little air."""
        return cls(*_aired(x, 0.03), *_aired(y, 0.06))

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Percent from the left and from the top."""
        across = (x - self.left) / (self.right - self.left)
        return round(100 * across, 2), round(100 * (self.top - y) / (self.top - self.bottom), 2)

    def line(self, x: Sequence[float], y: Sequence[float]) -> str:
        """A path through the points."""
        return "M" + "L".join("{} {}".format(*self.place(*xy)) for xy in zip(x, y, strict=True))

    def dot(self, x: float, y: float) -> str:
        """A path of no length, which is drawn as its cap."""
        return "M{} {}h0".format(*self.place(x, y))

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies inside."""
        return self.left <= x <= self.right and self.bottom <= y <= self.top

    def ticks(self) -> tuple[list[tuple[float, str]], list[tuple[float, str]]]:
        """(place, number) of each tick across and up."""
        across = [(self.place(t, self.top)[0], text) for t, text in _round_numbers(self.left, self.right)]
        return across, [(self.place(self.left, t)[1], text) for t, text in _round_numbers(self.bottom, self.top)]


@dataclass(frozen=True)
class _Say:
    """Puts points of one frontier into words.

    Attributes:
        budgets: `[m]`; place: of the money budget among them.
        reward: of the objective, e.g. `active days per decision`; brief: where the sentence has said per what.
        more: `one more yuan per decision`.
        old: value of the log's policy.
        digits: after the point, of the objective; budget_digits: of the money budget; spend_digits: `[m]` of costs.
    """

    budgets: list[BudgetLine]
    place: int
    reward: str
    brief: str
    more: str
    old: float
    digits: int
    budget_digits: int
    spend_digits: list[int]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> _Say:
        budgets = [
            BudgetLine(name=b["name"], limit=b["limit"], sign=b["sign"], per=b["per"],
                       unit=found["unit"] if b["name"] == found["money"] else "")
            for b in found["budgets"]
        ]  # fmt: skip
        place = [b.name for b in budgets].index(found["money"])
        money, label, days = budgets[place], found["reward_label"], found["objective"].partition("@")[2]
        unit = "unit of money" if money.unit == "money" else money.unit
        span = f"user over {words.days(days)}" if money.per == "user" else money.per
        per = f"user in {words.days(days)}" if days else "decision"
        curve = found["curve"]
        return cls(
            budgets=budgets,
            place=place,
            reward=f"{label} per {per}",
            brief=label if money.per == "user" else f"{label} per {per}",
            more=f"one more {unit} per {span}",
            old=found["old"]["value"],
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
        """Over the old policy: `+11 %`."""
        return _percent(value, self.old)

    def ends(self, low: float, high: float, digits: int) -> str:
        return f"{words.number(low, digits)} to {words.number(high, digits)}"

    def marginal(self, point: Point) -> str:
        """What one more unit of money buys there."""
        if point["slack"] or point["marginal"] <= 0:
            spent = words.number(point["spend"][self.place], self.spend_digits[self.place])
            return f"more money buys nothing that these policies know of: they spend {spent} at most"
        return f"{self.more} buys {words.number(point['marginal'])} {self.brief}"

    def mixture(self, point: Point) -> str:
        """A line per member: its λ's and its share of users."""
        lines = []
        for member in (m for m in point["members"] if m["weight"] > ROUNDING):
            prices = ", ".join(words.number(price) for price in member["multiplier"])
            prices = prices if len(self.budgets) == 1 else f"({prices})"
            share = "under 0.1 %" if member["weight"] < 0.0005 else words.percent(member["weight"])
            lines.append(f"λ = {prices} for {'all' if member['weight'] >= 1 - ROUNDING else share + ' of'} users")
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
        return said


def render(content: Mapping[str, Any]) -> str:
    """The page.

    Args:
        content: frontier.json, as `outlay.jobs.frontier.Frontier.to_dict` has it. Numbers are unrounded; a floor and
            its costs are not negated.
    """
    say, asked = _Say.of(content), content["asked"]
    points = _distinct([*content["curve"], *(p for p in asked if p["budget"] <= content["most"])])
    start = min(range(len(points)), key=lambda i: abs(points[i]["budget"] - asked[0]["budget"]))
    limit, near = say.budgets[say.place].limit, NEAR * (content["most"] - content["least"])
    drawn = [limit] if content["least"] - near <= limit <= content["most"] + near else []
    frame = Frame.around(
        [p["budget"] for p in points] + drawn + [content["old"]["spend"][say.place]],
        [p[end] for p in points for end in ("low", "high")] + [content["old"][end] for end in ("low", "high")],
    )
    below = Frame(*frame[:2], *_aired([0.0, *middle([p["marginal"] for p in points])], 0.06))
    records = [
        {"say": say.panel(p), "curve": frame.dot(p["budget"], p["value"]),
         "marginal": below.dot(p["budget"], min(p["marginal"], below.top))}
        for p in points
    ]  # fmt: skip
    rows = _distinct([*content["curve"][::TABLE_STEPS], *asked])
    return template("frontier.html").render(
        c=content,
        words=words,
        say=say,
        money=say.budgets[say.place],
        limit_at=[frame.place(x, frame.top)[0] for x in drawn],
        ends=[frame.place(points[i]["budget"], frame.top)[0] for i in (0, -1)],
        plot=_curve(content, points, frame, say),
        marginals=Drawing(*below.ticks(), below.line([p["budget"] for p in points], [p["marginal"] for p in points])),
        headline=_headline(asked[0], say),
        beside_old=_beside_old(content, say),
        falls=_falls(content["curve"], say),
        records=records,
        start=start,
        rows=[(say.panel(p), _whose(p, asked, limit), _marginal_cell(p)) for p in rows],
        version=__version__,
    )


def _curve(found: Mapping[str, Any], points: Sequence[Point], frame: Frame, say: _Say) -> Drawing:
    """Budget against objective, with what else was measured."""
    budgets, old = [p["budget"] for p in points], found["old"]
    spend = old["spend"][say.place]
    around = [*budgets, *budgets[::-1]], [p["low"] for p in points] + [p["high"] for p in points][::-1]
    single = [(p["spend"][say.place], p["value"]) for p in found["policies"]]
    return Drawing(
        *frame.ticks(),
        line=frame.line(budgets, [p["value"] for p in points]),
        band=frame.line(*around) + "Z",
        dots="".join(frame.dot(*xy) for xy in single if frame.holds(*xy)),
        old=frame.dot(spend, old["value"]),
        old_at=frame.place(spend, old["value"]),
        old_bar=frame.line([spend, spend], [old["low"], old["high"]]),
    )


def _headline(point: Point, say: _Say) -> list[str]:
    """What the budget asked for buys, and what one more unit of money would."""
    money, given = say.budgets[say.place], point["budget"]
    whose = "The campaign’s budget" if given == money.limit else "A budget"
    bought = f"{whose} of {words.plain(given)} {words.per(money)} buys {say.value(point['value'])} {say.reward}"
    return [bought, say.ends(point["low"], point["high"], say.digits), f"At that budget, {say.marginal(point)}."]


def _beside_old(found: Mapping[str, Any], say: _Say) -> str:
    """The curve at the old policy's spend, and the spend at which it reaches the old policy's value."""
    old, money = found["old"], say.budgets[say.place]
    spend, value = (np.array([row[key] for row in found["curve"]]) for key in ("spend", "value"))
    spend, paid, parts = np.maximum.accumulate(spend[:, say.place]), old["spend"][say.place], []
    if spend[0] <= paid <= spend[-1]:
        reached = float(np.interp(paid, spend, value))
        parts.append(f"With what the old policy spends, {words.number(paid)} {words.per(money)}, these policies reach "
                     f"{say.value(reached)} against its {say.value(say.old)} ({say.gain(reached)})")  # fmt: skip
    rising = np.maximum.accumulate(value)
    if rising[0] <= say.old <= rising[-1]:
        needed = words.number(cost := float(np.interp(say.old, rising, spend)))
        what = "its" if parts else "What the old policy reaches,"
        parts.append(f"{what} {say.value(say.old)} they reach for {needed} ({_percent(cost, paid)})")
    broken = [
        f"{b.name} {words.limit(b)}"
        for j, b in enumerate(say.budgets)
        if j != say.place and b.sign * (old["spend"][j] - b.limit) > 0
    ]
    if parts and broken:
        parts.append(f"the old policy does not keep {' and '.join(broken)}, these do")
    ends = say.ends(found["least"], found["most"], say.budget_digits)
    return "; ".join(parts) or f"What budgets from {ends} {words.per(money)} buy"


def _falls(curve: Sequence[Point], say: _Say) -> str:
    """What one more unit of money buys near the beginning, in the middle and near the end."""
    shown = [curve[round(share * (len(curve) - 1))] for share in (0.1, 0.5, 0.9)]
    first, *others = [
        (words.number(max(p["marginal"], 0.0)), words.number(p["budget"], say.budget_digits)) for p in shown
    ]
    text = f"{_sentence(say.more, '')} buys {first[0]} {say.brief} at a budget of {first[1]}"
    return text + "".join(f", {buys} at {budget}" for buys, budget in others)


def _whose(point: Point, asked: Sequence[Point], limit: float) -> str:
    """What a row of the table is marked with; most are not."""
    if point["budget"] == limit:
        return "the campaign’s"
    return "asked for" if any(point["budget"] == other["budget"] for other in asked) else ""


def _marginal_cell(point: Point) -> str:
    return words.number(0.0 if point["slack"] else max(point["marginal"], 0.0))


def _distinct(points: Sequence[Point]) -> list[Point]:
    """By budget, each once."""
    ordered = sorted(points, key=lambda p: float(p["budget"]))
    return ordered[:1] + [p for before, p in pairwise(ordered) if p["budget"] > before["budget"]]


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


def _aired(values: Sequence[float], air: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    more = air * (high - low) or abs(high) * 0.1 or 1.0
    return low - more, high + more


def _round_numbers(low: float, high: float) -> list[tuple[float, str]]:
    """Four to ten round numbers of a range, and how they are written."""
    rough = (high - low) / 7
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(times * size for times in (1, 2, 5, 10) if times * size >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    places = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [(i * step, words.number(i * step, digits)) for i in places]


def _sentence(text: str, end: str = ".") -> str:
    return text[:1].upper() + text[1:] + end
