"""The page of `outlay frontier`: what more money would buy, with a slider over budgets.

Every budget that the slider can stand on is put into words here; the page's script only shows them. The figures are
drawn once as plain SVG, so they are there without JavaScript as well: wide and narrow, for screens of either kind, in
colours that the page's style sets. The slider's marker stands above a figure; `Axes.place` says where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from markupsafe import Markup

from outlay.core.campaign import Campaign
from outlay.core.wording import Interval, plain
from outlay.evaluating.budget_curve import BudgetCurve, CurvePoint
from outlay.evaluating.goals import stops
from outlay.pages.amounts import Names, head
from outlay.pages.frontier_answers import CurveAnswers
from outlay.pages.frontier_words import (
    CurveWording,
    badge,
    beside_old,
    distinct,
    headline,
    marginal_course,
    measured_on,
    one_more,
    table,
)
from outlay.pages.page import Spec, in_colours, inline, middle, scale_around, template, told_page, told_value
from outlay.pages.tables import per

NEAR = 0.25  # of the curve's width: a limit further off is not drawn
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 22, 42  # pixels around the plot area
SIZES = {"wide": (800, 400), "narrow": (400, 310)}  # of a figure, in pixels
LARGE = 10_000  # numbers from there on are told in thousands and millions
LOW = 0.6  # height of a low figure, as a share
QUIET, INK, PAPER, BLUE, GREEN = (f"var(--{name})" for name in ("quiet", "ink", "paper", "blue", "green"))


def render(curve: BudgetCurve, campaign: Campaign, run: str = "RUN") -> str:
    """The page, with its sentences in the campaign's unit of time.

    Args:
        curve: of a run.
        campaign: its labels and budgets.
        run: its folder, for commands to copy.
    """
    told = None if campaign.unit == "day" else campaign.timed
    wording, answers = CurveWording.of(curve, campaign, run), CurveAnswers.of(curve, campaign)
    drawn, requested, money = Drawn(curve, answers, wording.names), curve.requested, curve.money_limit
    goals = [p for goal in curve.goals for p in (goal.point, goal.sure) if p is not None]
    points = distinct([*curve.curve, *(p for p in (*requested, *goals) if p.budget <= curve.most)])
    points = [p for p in points if answers is None or p.totals is not None]
    start = min(range(len(points)), key=lambda i: abs(points[i].budget - requested[0].budget))
    near = NEAR * (curve.most - curve.least)
    limit = money.limit if curve.least - near <= money.limit <= curve.most + near else None
    axes = drawn.axes(points, limit)
    below = marginal_axes(points, axes)
    corners = stops(curve)
    worths = {stop.point.budget: stop.worth for stop in corners}
    records = [
        {
            "text": {
                **wording.panel(p),
                **({} if answers is None else answers.panel(p)),
                "one_more": one_more(p, corners, curve, wording.names),
            },
            "curve": axes.place(drawn.x(p.budget), drawn.value(p).value),
            "marginal": below.place(drawn.x(p.budget), min(p.marginal, below.top)),
            "budget": float(f"{p.budget:.12g}"),
            "worth": worths.get(p.budget),
            "gain": drawn.gain(p),
        }
        for p in points
    ]
    page = template("frontier.html").render(
        c=curve,
        wording=wording,
        answers=answers,
        names=wording.names,
        money=money,
        limit_drawn=limit is not None,
        figures={
            "curve": budget_curve(drawn, points, axes, limit),
            "marginal": marginal_reward(drawn, points, below, limit),
        },
        sizes=SIZES,
        ends=[axes.place(drawn.x(points[i].budget), axes.top)[0] for i in (0, -1)],
        uncertified=any(p.certified is False and not p.held for p in points),
        sure=bool(drawn.sure_gain(points)),
        headline=headline(requested[0], wording, curve.confidence),
        beside_old=beside_old(curve, wording),
        marginal_course=marginal_course(curve.curve, wording, [p for p in points if p.marginal > below.top]),
        badge=badge(curve),
        measured_on=measured_on(curve),
        records=records if told is None else told_value(records, told),
        once=campaign is not None and campaign.log.once,
        start=start,
        table=table(curve, wording),
    )
    return page if told is None else told_page(page, told)


@dataclass(frozen=True)
class Drawn:
    """What is drawn of a curve: totals for all users where they are told, else its own figures."""

    curve: BudgetCurve
    answers: CurveAnswers | None
    names: Names

    def x(self, budget: float) -> float:
        """Where a budget stands."""
        totals = None if self.answers is None else self.curve.totals
        return budget if totals is None or totals.times is None else totals.times * budget

    def value(self, point: CurvePoint) -> Interval:
        """What it buys."""
        if self.answers is None or point.totals is None:
            return Interval(point.value, point.low, point.high)
        found = point.totals.reward
        return Interval(found.value, found.low, found.high)

    def old(self) -> tuple[float, Interval] | None:
        """Where the log's policy stands, and what it brings; None where that is not known."""
        if self.answers is None:
            old = self.curve.old
            return None if old is None else (old.spend[self.curve.place], Interval(old.value, old.low, old.high))
        now, money = self.answers.now_reward, self.answers.now_money
        if now is None or money is None or self.curve.totals is None:
            return None
        times = self.curve.totals.times
        # Where a limit is no total, it stands at the limit that spends as much.
        at = money.value if times is not None else self._limit_of(money.value)
        return None if at is None else (at, Interval(now.value, now.low, now.high))

    def _limit_of(self, money: float) -> float | None:
        known = [(p.totals.money.value, p.budget) for p in self.curve.curve if p.totals is not None]
        spent, budgets = np.maximum.accumulate([x for x, _ in known]), [budget for _, budget in known]
        return float(np.interp(money, spent, budgets)) if spent[0] <= money <= spent[-1] else None

    def gain(self, point: CurvePoint) -> float | None:
        """Over the log's policy, as a share; None where that is not known."""
        old = self.old()
        return None if old is None or not old[1].value else self.value(point).value / abs(old[1].value) - 1

    def sure_gain(self, points: Sequence[CurvePoint]) -> list[Spec]:
        """What the curve is sure to reach: the old policy and the certified gain; empty before the look."""
        old, rows = self.old(), []
        for p in points:
            found = None if self.answers is None else p.totals
            least = p.gain_bound if found is None else found.at_least
            if old is not None and least is not None:
                rows.append({"budget": self.x(p.budget), "value": old[1].value + least})
        return rows

    def rows(self, points: Sequence[CurvePoint]) -> list[Spec]:
        """The line with its band."""
        return [{"budget": self.x(p.budget), **self.value(p)._asdict()} for p in points]

    def single(self) -> list[Spec]:
        """Single policies, of which no totals are known."""
        if self.answers is not None:
            return []
        return [{"budget": p.spend[self.curve.place], "value": p.value} for p in self.curve.policies]

    def axes(self, points: Sequence[CurvePoint], limit: float | None) -> Axes:
        """Axes that hold all of it."""
        old, rows = self.old(), self.rows(points)
        beside = [] if old is None else [end for end in (old[1].low, old[1].high) if end is not None]
        return Axes.around(
            [row["budget"] for row in rows]
            + ([] if limit is None else [self.x(limit)])
            + ([] if old is None else [old[0]]),
            [row[end] for row in rows for end in ("low", "high") if row[end] is not None]
            + beside
            + [row["value"] for row in self.sure_gain(points)],
        )

    @property
    def title(self) -> str:
        """Of the axis of budgets."""
        money = self.curve.money_limit
        if self.answers is None:
            return f"{self.names.budget(money)}, {per(money)}"
        times = None if self.curve.totals is None else self.curve.totals.times
        names = self.names
        unit = names.money_unit if times is not None else " ".join([names.money_unit, names.per(money, daily=False)])
        return f"{head(f'limit on {names.budget(money)}', unit)}{self.answers.span if times is not None else ''}"


class Axes(NamedTuple):
    """The ends of both axes."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, x: Sequence[float], y: Sequence[float]) -> Axes:
        """Axes that hold all values, with a margin."""
        return cls(*scale_around(x, 0.03)["domain"], *scale_around(y, 0.06)["domain"])

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Percent of the plot area from its left and from its top."""
        across, down = (x - self.left) / (self.right - self.left), (self.top - y) / (self.top - self.bottom)
        return round(100 * across, 2), round(100 * down, 2)

    def holds(self, x: float, y: float) -> bool:
        """Whether a point is inside."""
        return self.left <= x <= self.right and self.bottom <= y <= self.top

    def x(self, field: str, title: str | None = None) -> Any:
        """The channel across."""
        scale = alt.Scale(domain=[self.left, self.right], nice=False, zero=False)
        return alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=7, **_short(self.right)))

    def y(self, field: str) -> Any:
        """The channel upwards."""
        scale = alt.Scale(domain=[self.bottom, self.top], nice=False, zero=False)
        return alt.Y(f"{field}:Q", title=None, scale=scale, axis=alt.Axis(tickCount=6, **_short(self.top)))


def _short(most: float) -> Spec:
    """How an axis of large numbers is labelled: 1.2M."""
    return {"format": "~s"} if abs(most) >= LARGE else {}


class Picture(NamedTuple):
    """A figure of one size: `svg`, and how far its plot area is from the top, right, bottom and left, in percent."""

    size: str
    svg: Markup
    inset: tuple[float, ...]


def budget_curve(drawn: Drawn, points: Sequence[CurvePoint], axes: Axes, limit: float | None) -> list[Picture]:
    """What budgets buy, with all else that was measured.

    Args:
        drawn: the frontier.
        points: of the curve, by budget.
        axes: of the figure.
        limit: the campaign's budget; None where it is outside.
    """
    rows, old = drawn.rows(points), drawn.old()
    inside = [row for row in drawn.single() if axes.holds(row["budget"], row["value"])]
    layers = [
        *([] if limit is None else _limit(limit, drawn, axes)),
        _marks("band", rows, axes).mark_area(color="var(--band)").encode(y=axes.y("low"), y2="high:Q"),
        _marks("policies", inside, axes).mark_point(size=36, filled=True, opacity=0.35, color=BLUE),
        _marks("line", rows, axes).mark_line(strokeWidth=2.5, color=BLUE),
        _marks("open", _uncertified(points, rows), axes)
        .mark_line(strokeWidth=3, strokeDash=[5, 6], color=PAPER)
        .encode(detail="run:N"),
        _marks("sure", drawn.sure_gain(points), axes).mark_line(strokeWidth=1.8, color=GREEN),
        *([] if old is None else _old(*old, axes)),
    ]
    return _pictures(alt.layer(*layers), drawn.title, 1.0)


def marginal_reward(drawn: Drawn, points: Sequence[CurvePoint], axes: Axes, limit: float | None) -> list[Picture]:
    """The marginal reward against the budget; where it is above the axis the line leaves the figure."""
    rows = [{**row, "budget": drawn.x(row["budget"])} for row in within(points, axes.top)]
    line = _marks("line", rows, axes).mark_line(strokeWidth=2.5, color=BLUE)
    line = line.encode(detail="run:N")
    return _pictures(alt.layer(*([] if limit is None else _limit(limit, drawn, axes)[:1]), line), drawn.title, LOW)


def marginal_axes(points: Sequence[CurvePoint], axes: Axes) -> Axes:
    """The axes of the marginal reward, from 0: values far above all others are beyond them."""
    low, high = scale_around([0.0, *middle([p.marginal for p in points])], 0.06)["domain"]
    return Axes(axes.left, axes.right, low, high)


def _marks(name: str, rows: Sequence[Spec], axes: Axes) -> Any:
    return alt.Chart(inline(rows), name=name).encode(x=axes.x("budget"), y=axes.y("value"))


def within(points: Sequence[CurvePoint], top: float) -> list[Spec]:
    """The line through the marginal rewards where it is below the top of the figure, a run for each piece."""
    rows: list[Spec] = []
    run = 0
    for before, point in zip([None, *points], points, strict=False):
        if before is not None and (before.marginal > top) != (point.marginal > top):
            share = (top - before.marginal) / (point.marginal - before.marginal)
            rows.append({"run": run, "budget": before.budget + share * (point.budget - before.budget), "value": top})
            run += point.marginal > top
        if point.marginal <= top:
            rows.append({"run": run, "budget": point.budget, "value": point.marginal})
    return rows


def _uncertified(points: Sequence[CurvePoint], drawn: Sequence[Spec]) -> list[Spec]:
    """Runs of budgets that are not certified, each up to the next budget."""
    rows, begin = [], 0
    for missing, run in groupby(points, lambda p: p.certified is False and not p.held):
        end = begin + len(list(run))
        if missing:
            rows += [{"run": begin, **row} for row in drawn[begin : end + 1]]
        begin = end
    return rows


def _limit(limit: float, drawn: Drawn, axes: Axes) -> list[Any]:
    """A dashed rule at the campaign's budget, and its name above."""
    chart = alt.Chart(inline([{"budget": drawn.x(limit), "name": f"campaign’s budget {plain(limit)}"}]))
    rule = chart.mark_rule(color=INK, strokeDash=[4, 4], strokeWidth=1.2).encode(x=axes.x("budget"))
    text = chart.mark_text(color=INK, baseline="bottom").encode(x=axes.x("budget"), y=alt.value(-5), text="name:N")
    return [rule, text]


def _old(spend: float, value: Interval, axes: Axes) -> list[Any]:
    """The old policy with its interval and its name."""
    rows = [{"budget": spend, **value._asdict(), "name": "today"}]
    near_end = axes.place(spend, value.value)[0] > 70
    look: Spec = {"align": "right", "dx": -12} if near_end else {"align": "left", "dx": 12}
    return [
        _marks("old", rows, axes).mark_rule(color=QUIET, strokeWidth=1.5).encode(y=axes.y("low"), y2="high:Q"),
        _marks("old-policy", rows, axes).mark_point(shape="square", size=121, filled=True, opacity=1, color=QUIET),
        _marks("old-name", rows, axes).mark_text(color=INK, **look).encode(text="name:N"),
    ]


def _pictures(chart: Any, title: str, share: float) -> list[Picture]:
    """The chart in both sizes, `share` of their heights."""
    pictures = []
    for size, (width, full_height) in SIZES.items():
        height = round(share * full_height)
        spec: Spec = chart.properties(
            width=width - LEFT - RIGHT,
            height=height - TOP - BOTTOM,
            padding={"left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
        ).to_dict(validate=False)
        for layer in spec["layer"]:
            layer["encoding"]["x"]["title"] = title
        spec["autosize"] = {"type": "none"}
        inset = tuple(round(100 * part, 3) for part in (TOP / height, RIGHT / width, BOTTOM / height, LEFT / width))
        pictures.append(Picture(size, in_colours(spec), inset))
    return pictures
