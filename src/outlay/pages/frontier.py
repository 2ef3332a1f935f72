"""The page of `outlay frontier`: what more money would buy, with a slider over budgets.

Every budget that the slider can stand on is put into words here; the page's script only shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from outlay.core.version import __version__
from outlay.evaluating.budget_curve import BudgetCurve, CurvePoint
from outlay.pages import frontier_charts as charts
from outlay.pages import words
from outlay.pages.frontier_words import CurveWording, badge, beside_old, headline, marginal_course, measured_on
from outlay.pages.page import template

TABLE_STEPS = 10  # of the curve, in the table
NEAR = 0.25  # of the curve's width: a limit further off is not drawn


def render(curve: BudgetCurve) -> str:
    """The page."""
    wording, requested, old = CurveWording.of(curve), curve.requested, curve.old
    points = _distinct([*curve.curve, *(p for p in requested if p.budget <= curve.most)])
    start = min(range(len(points)), key=lambda i: abs(points[i].budget - requested[0].budget))
    limit, near = curve.money_limit.limit, NEAR * (curve.most - curve.least)
    drawn = limit if curve.least - near <= limit <= curve.most + near else None
    axes = charts.Axes.around(
        [p.budget for p in points]
        + ([] if drawn is None else [drawn])
        + ([] if old is None else [old.spend[curve.place]]),
        [end for p in points for end in (p.low, p.high)]
        + ([] if old is None else [old.low, old.high])
        + [row["value"] for row in charts.sure_gain(curve, points)],
    )
    below = charts.marginal_axes(points, axes)
    records = [
        {
            "text": wording.panel(p),
            "curve": axes.place(p.budget, p.value),
            "marginal": below.place(p.budget, min(p.marginal, below.top)),
        }
        for p in points
    ]
    rows = _distinct([*curve.curve[::TABLE_STEPS], *requested])
    return template("frontier.html").render(
        c=curve,
        words=words,
        wording=wording,
        money=curve.money_limit,
        limit_drawn=drawn is not None,
        figures={
            "curve": charts.budget_curve(curve, points, axes, drawn),
            "marginal": charts.marginal_reward(curve, points, below, drawn),
        },
        sizes=charts.SIZES,
        ends=[axes.place(points[i].budget, axes.top)[0] for i in (0, -1)],
        uncertified=any(p.certified is False for p in points),
        sure=bool(charts.sure_gain(curve, points)),
        headline=headline(requested[0], wording),
        beside_old=beside_old(curve, wording),
        marginal_course=marginal_course(curve.curve, wording, [p for p in points if p.marginal > below.top]),
        badge=badge(curve),
        measured_on=measured_on(curve),
        records=records,
        start=start,
        rows=[(p, wording.panel(p), _note(p, requested, limit), _marginal(p)) for p in rows],
        version=__version__,
    )


def _note(point: CurvePoint, requested: Sequence[CurvePoint], limit: float) -> str:
    """The mark of a row of the table; most have none."""
    if point.budget == limit:
        return "the campaign’s"
    return "requested" if any(point.budget == other.budget for other in requested) else ""


def _marginal(point: CurvePoint) -> str:
    return words.number(0.0 if point.slack else max(point.marginal, 0.0))


def _distinct(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """By budget, each once."""
    ordered = sorted(points, key=lambda p: p.budget)
    return ordered[:1] + [p for before, p in pairwise(ordered) if p.budget > before.budget]
