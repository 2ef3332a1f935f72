"""The page of `outlay frontier`: what more money would buy, with a slider over budgets.

Every budget that the slider can stand on is put into words here; the page's script only shows them. The figures are
drawn once as plain SVG, so they are there without JavaScript as well: wide and narrow, for screens of either kind, in
colours that the page's style sets. The slider's marker stands above a figure; `Axes.place` says where.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import altair as alt
import vl_convert
from markupsafe import Markup

from outlay.core.wording import plain
from outlay.evaluating.budget_curve import BudgetCurve, CurvePoint, OldPolicy
from outlay.pages.frontier_words import CurveWording, badge, beside_old, headline, marginal_course, measured_on, table
from outlay.pages.page import CONFIG, Spec, inline, middle, scale_around, template
from outlay.pages.tables import per

NEAR = 0.25  # of the curve's width: a limit further off is not drawn
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 22, 42  # pixels around the plot area
SIZES = {"wide": (800, 400), "narrow": (400, 310)}  # of a figure, in pixels
LOW = 0.6  # height of a low figure, as a share
QUIET, INK, PAPER, BLUE, GREEN = (f"var(--{name})" for name in ("quiet", "ink", "paper", "blue", "green"))


def render(curve: BudgetCurve) -> str:
    """The page."""
    wording, requested, old = CurveWording.of(curve), curve.requested, curve.old
    points = _distinct([*curve.curve, *(p for p in requested if p.budget <= curve.most)])
    start = min(range(len(points)), key=lambda i: abs(points[i].budget - requested[0].budget))
    limit, near = curve.money_limit.limit, NEAR * (curve.most - curve.least)
    drawn = limit if curve.least - near <= limit <= curve.most + near else None
    axes = Axes.around(
        [p.budget for p in points]
        + ([] if drawn is None else [drawn])
        + ([] if old is None else [old.spend[curve.place]]),
        [end for p in points for end in (p.low, p.high)]
        + ([] if old is None else [old.low, old.high])
        + [row["value"] for row in sure_gain(curve, points)],
    )
    below = marginal_axes(points, axes)
    records = [
        {
            "text": wording.panel(p),
            "curve": axes.place(p.budget, p.value),
            "marginal": below.place(p.budget, min(p.marginal, below.top)),
        }
        for p in points
    ]
    return template("frontier.html").render(
        c=curve,
        wording=wording,
        money=curve.money_limit,
        limit_drawn=drawn is not None,
        figures={
            "curve": budget_curve(curve, points, axes, drawn),
            "marginal": marginal_reward(curve, points, below, drawn),
        },
        sizes=SIZES,
        ends=[axes.place(points[i].budget, axes.top)[0] for i in (0, -1)],
        uncertified=any(p.certified is False and not p.held for p in points),
        sure=bool(sure_gain(curve, points)),
        headline=headline(requested[0], wording),
        beside_old=beside_old(curve, wording),
        marginal_course=marginal_course(curve.curve, wording, [p for p in points if p.marginal > below.top]),
        badge=badge(curve),
        measured_on=measured_on(curve),
        records=records,
        start=start,
        table=table(curve, wording),
    )


def _distinct(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """By budget, each once."""
    ordered = sorted(points, key=lambda p: p.budget)
    return ordered[:1] + [p for before, p in pairwise(ordered) if p.budget > before.budget]


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
        return alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=7))

    def y(self, field: str) -> Any:
        """The channel upwards."""
        scale = alt.Scale(domain=[self.bottom, self.top], nice=False, zero=False)
        return alt.Y(f"{field}:Q", title=None, scale=scale, axis=alt.Axis(tickCount=6))


class Picture(NamedTuple):
    """A figure of one size: `svg`, and how far its plot area is from the top, right, bottom and left, in percent."""

    size: str
    svg: Markup
    inset: tuple[float, ...]


def budget_curve(curve: BudgetCurve, points: Sequence[CurvePoint], axes: Axes, limit: float | None) -> list[Picture]:
    """The objective against the budget, with all else that was measured.

    Args:
        curve: the frontier.
        points: of the curve, by budget.
        axes: of the figure.
        limit: the campaign's budget; None where it is outside.
    """
    rows = [{"budget": p.budget, "value": p.value, "low": p.low, "high": p.high} for p in points]
    single = [(p.spend[curve.place], p.value) for p in curve.policies]
    inside = [{"budget": x, "value": y} for x, y in single if axes.holds(x, y)]
    layers = [
        *([] if limit is None else _limit(limit, axes)),
        _marks("band", rows, axes).mark_area(color="var(--band)").encode(y=axes.y("low"), y2="high:Q"),
        _marks("policies", inside, axes).mark_point(size=36, filled=True, opacity=0.35, color=BLUE),
        _marks("line", rows, axes).mark_line(strokeWidth=2.5, color=BLUE),
        _marks("open", _uncertified(points), axes)
        .mark_line(strokeWidth=3, strokeDash=[5, 6], color=PAPER)
        .encode(detail="run:N"),
        _marks("sure", sure_gain(curve, points), axes).mark_line(strokeWidth=1.8, color=GREEN),
        *([] if curve.old is None else _old(curve.old, curve.place, axes)),
    ]
    return _pictures(alt.layer(*layers), _title(curve), 1.0)


def marginal_reward(curve: BudgetCurve, points: Sequence[CurvePoint], axes: Axes, limit: float | None) -> list[Picture]:
    """The marginal reward against the budget; where it is above the axis the line leaves the figure."""
    line = _marks("line", within(points, axes.top), axes).mark_line(strokeWidth=2.5, color=BLUE)
    line = line.encode(detail="run:N")
    return _pictures(alt.layer(*([] if limit is None else _limit(limit, axes)[:1]), line), _title(curve), LOW)


def marginal_axes(points: Sequence[CurvePoint], axes: Axes) -> Axes:
    """The axes of the marginal reward, from 0: values far above all others are beyond them."""
    low, high = scale_around([0.0, *middle([p.marginal for p in points])], 0.06)["domain"]
    return Axes(axes.left, axes.right, low, high)


def sure_gain(curve: BudgetCurve, points: Sequence[CurvePoint]) -> list[Spec]:
    """What the curve is sure to reach: the old policy and the certified gain; empty before the look."""
    if curve.old is None:
        return []
    old = curve.old.value
    return [{"budget": p.budget, "value": old + p.gain_bound} for p in points if p.gain_bound is not None]


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


def _uncertified(points: Sequence[CurvePoint]) -> list[Spec]:
    """Runs of budgets that are not certified, each up to the next budget."""
    rows, begin = [], 0
    for missing, run in groupby(points, lambda p: p.certified is False and not p.held):
        end = begin + len(list(run))
        if missing:
            rows += [{"run": begin, "budget": p.budget, "value": p.value} for p in points[begin : end + 1]]
        begin = end
    return rows


def _limit(limit: float, axes: Axes) -> list[Any]:
    """A dashed rule at the campaign's budget, and its name above."""
    chart = alt.Chart(inline([{"budget": limit, "name": f"campaign’s budget {plain(limit)}"}]))
    rule = chart.mark_rule(color=INK, strokeDash=[4, 4], strokeWidth=1.2).encode(x=axes.x("budget"))
    text = chart.mark_text(color=INK, baseline="bottom").encode(x=axes.x("budget"), y=alt.value(-5), text="name:N")
    return [rule, text]


def _old(old: OldPolicy, place: int, axes: Axes) -> list[Any]:
    """The old policy with its interval and its name."""
    spend = old.spend[place]
    rows = [{"budget": spend, "value": old.value, "low": old.low, "high": old.high, "name": "old policy"}]
    near_end = axes.place(spend, old.value)[0] > 70
    look: Spec = {"align": "right", "dx": -12} if near_end else {"align": "left", "dx": 12}
    return [
        _marks("old", rows, axes).mark_rule(color=QUIET, strokeWidth=1.5).encode(y=axes.y("low"), y2="high:Q"),
        _marks("old-policy", rows, axes).mark_point(shape="square", size=121, filled=True, opacity=1, color=QUIET),
        _marks("old-name", rows, axes).mark_text(color=INK, **look).encode(text="name:N"),
    ]


def _title(curve: BudgetCurve) -> str:
    return f"{curve.money}, {per(curve.money_limit)}"


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
        axis = {
            **CONFIG["axis"],
            "gridColor": "var(--grid)",
            "labelColor": QUIET,
            "titleColor": QUIET,
            "domain": False,
            "ticks": False,
            "labelPadding": 6,
            "titleAnchor": "end",
        }
        spec |= {"autosize": {"type": "none"}, "config": {**CONFIG, "axis": axis}}
        inset = tuple(round(100 * part, 3) for part in (TOP / height, RIGHT / width, BOTTOM / height, LEFT / width))
        pictures.append(Picture(size, _inline_svg(vl_convert.vegalite_to_svg(spec)), inset))
    return pictures


def _inline_svg(svg: str) -> Markup:
    """The drawing to stand inside a page that describes it; places to a tenth of a pixel, without its own size."""
    svg = re.sub(r' (xmlns(:xlink)?|version|aria-\w+|role|pointer-events)="[^"]*"', "", svg)
    svg = re.sub(r' (d|transform)="[^"]*"', lambda places: re.sub(r"(\.\d)\d+", r"\1", places[0]), svg)
    return Markup(re.sub(r' width="\d+" height="\d+"', ' aria-hidden="true"', svg, count=1))  # Vega escapes texts
