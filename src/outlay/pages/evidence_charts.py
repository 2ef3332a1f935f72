"""The figures of the evaluation: certificate, estimators side by side, gains by segment, matching paths, overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from outlay.core.campaign import BudgetLimit
from outlay.core.estimate import Estimate
from outlay.estimators.certificate import BudgetBound
from outlay.evaluating.diagnostics import MatchingPaths, SegmentOverlap
from outlay.evaluating.evaluation import SegmentEstimate
from outlay.pages import evidence_words, words
from outlay.pages.report_words import target
from outlay.pages.results import RunResults
from outlay.pages.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    QUIET,
    Spec,
    along_x,
    finished,
    inline,
    limit_line,
    named_colors,
    scale_around,
    text_tip,
    value_tip,
)

USES = {"recommended": BLUE, "not recommended": GREY}
TWO = 2  # standard errors of a bar


def certificate_bound(budget: BudgetLimit, line: BudgetBound, margin: float) -> Spec:
    """Draw one limit: the estimate, its one-sided bound, the limit and what was aimed at when choosing."""
    aimed = budget.limit - budget.sign * margin
    scale = scale_around([line.value, line.bound, budget.limit, aimed], pad=0.15)
    names = ["estimate", f"{'upper' if budget.sign > 0 else 'lower'} bound", "aimed at when choosing"]
    points = [{"what": n, "value": v} for n, v in zip(names, (line.value, line.bound, aimed), strict=True)]
    title = f"{budget.name} ({words.per(budget)})"
    color = GREEN if line.kept else ORANGE
    legend = alt.Legend(title=None, columns=2)
    pointer = "triangle-left" if budget.sign > 0 else "triangle-right"
    shapes = alt.Scale(domain=names, range=["circle", pointer, "cross"])
    colors = named_colors(dict(zip(names, (color, color, QUIET), strict=True)))
    span = alt.Chart(inline([{"from": line.value, "to": line.bound}])).mark_rule(color=color, strokeWidth=4)
    marks = alt.Chart(inline(points)).mark_point(filled=True, size=150, opacity=1)
    layers = [
        *limit_line(budget.limit, budget, "x", scale),
        span.encode(x=along_x("from", title, scale), x2="to:Q", y=alt.value(36), opacity=alt.value(0.45)),
        marks.encode(
            x=along_x("value", title, scale),
            y=alt.value(36),
            color=alt.Color("what:N", legend=legend, scale=colors),
            shape=alt.Shape("what:N", legend=legend, scale=shapes),
            tooltip=[text_tip("what"), value_tip("value", "value")],
        ),
    ]
    return finished(alt.layer(*layers), 60, f"certificate of {budget.name}")


def estimators(results: RunResults, estimates: Sequence[Estimate]) -> Spec:
    """Draw one quantity by every estimator; recommended ones are filled, withheld ones stand in words."""
    title = target(results, estimates[0].target)
    budget = next((b for b in results.budgets if b.name == estimates[0].target), None)
    ends = [end for e in estimates for end in (e.value, e.low, e.high)] + ([budget.limit] if budget else [])
    scale = scale_around(ends)
    layers = _forest([_row(e.estimator, e) for e in estimates], title, scale)
    if budget:
        layers = [*limit_line(budget.limit, budget, "x", scale), *layers]
    return finished(alt.layer(*layers), 30 * len(estimates) + 14, f"{title} by estimator")


def segment_gains(results: RunResults, gains: Sequence[SegmentEstimate]) -> Spec:
    """Draw what each segment gains in one quantity, beside the line of no change."""
    title = f"change in {target(results, gains[0].target)}"
    scale = scale_around([0.0, *(end for e in gains for end in (e.value, e.low, e.high))])
    layers = _forest([_row(e.segment, e) for e in gains], title, scale)
    return finished(alt.layer(*_rule(0.0, "no change", scale), *layers), 34 * len(gains) + 20, f"{title} by segment")


def matching_paths(lines: Sequence[MatchingPaths]) -> Spec:
    """Draw the share of users whose logged actions are the policy's, by number of days."""
    data = [
        {
            "days": words.days(line.days),
            "matched": line.matched,
            "users": line.users,
            "effective": line.ess,
            "label": f"{evidence_words.share(line.matched)}, {words.number(line.ess, 0)} effective",
        }
        for line in lines
    ]
    most = max([line.matched for line in lines] or [0.0]) or 1.0
    x = alt.X(
        "matched:Q",
        title="share of users",
        scale=alt.Scale(domain=[0, 1.9 * most], nice=False),
        axis=alt.Axis(format="%", tickCount=4),
    )
    y = alt.Y("days:N", title=None, sort=None, axis=alt.Axis(domain=False, ticks=False, labelColor=INK))
    tips = [text_tip("days"), alt.Tooltip("matched:Q", format=".2%"), value_tip("users", "users in the log")]
    base = alt.Chart(inline(data)).encode(x=x, y=y, tooltip=[*tips, value_tip("effective", "effective users")])
    bars = base.mark_bar(color=BLUE, height={"band": 0.55})
    texts = base.mark_text(align="left", dx=5, fontSize=11, color=INK).encode(text="label:N")
    return finished(alt.layer(bars, texts), 36 * len(data) + 14, "share of users whose logged path is the policy's")


def mean_ratios(lines: Sequence[SegmentOverlap]) -> Spec:
    """Draw the mean of π/p by segment, with two standard errors, beside 1."""
    rows, ends = [], [1.0]
    for line in lines:
        reach = TWO * (line.mean_ratio_error or 0.0)
        low, high = line.mean_ratio - reach, line.mean_ratio + reach
        ends += [low, high]
        rows.append({"name": line.segment, "use": "recommended", "value": line.mean_ratio, "low": low, "high": high})
    scale = scale_around(ends)
    title = "mean of π/p"
    layers = [*_rule(1.0, "right propensities", scale), *_forest(rows, title, scale)]
    return finished(alt.layer(*layers), 34 * len(rows) + 20, f"{title} by segment")


def _row(name: str, e: Estimate) -> dict[str, Any]:
    label = "" if e.value is not None else "no number"
    return {
        "name": name,
        "use": "recommended" if e.recommended else "not recommended",
        "label": label,
        "value": e.value,
        "low": e.low,
        "high": e.high,
        "why": str(e.withheld or e.caution or ""),
    }


def _forest(rows: Sequence[dict[str, Any]], title: str, scale: Any) -> list[Any]:
    """Draw values with their intervals, one row each; words stand in the place of a value that is withheld."""
    y = alt.Y("name:N", title=None, sort=None, axis=alt.Axis(domain=False, ticks=False, labelColor=INK))
    tooltip = [
        text_tip("name"),
        *(value_tip(end, end) for end in ("value", "low", "high")),
        *(text_tip(field) for field in ("use", "why") if "why" in rows[0]),
    ]
    known = [row for row in rows if row["value"] is not None]
    colors = {"scale": named_colors(USES), "legend": None}
    fills = alt.Scale(domain=list(USES), range=[BLUE, "white"])
    base = alt.Chart(inline(known)).encode(y=y, tooltip=tooltip, color=alt.Color("use:N", **colors))
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=along_x("low", title, scale), x2="high:Q"),
        base.mark_point(size=75, opacity=1, strokeWidth=1.8).encode(
            x=along_x("value", title, scale), fill=alt.Fill("use:N", scale=fills, legend=None)
        ),
    ]
    absent = [row for row in rows if row["value"] is None]
    if absent:
        texts = alt.Chart(inline(absent)).mark_text(align="left", dx=4, fontSize=11, color=QUIET)
        layers.append(texts.encode(x=alt.value(0), y=y, text="label:N", tooltip=[text_tip("name"), text_tip("why")]))
    return layers


def _rule(value: float, label: str, scale: Any) -> list[Any]:
    """Draw a dashed rule with its label at the foot."""
    chart = alt.Chart(inline([{"at": value, "words": label}])).encode(x=alt.X("at:Q", scale=scale))
    look: dict[str, Any] = {"align": "left", "baseline": "top", "dx": 4, "fontSize": 10.5}
    texts = chart.encode(text="words:N", y=alt.value(0))
    return [
        chart.mark_rule(color=INK, strokeDash=[5, 4], strokeWidth=1.2),
        texts.mark_text(stroke="white", strokeWidth=3, strokeJoin="round", **look),
        texts.mark_text(color=INK, **look),
    ]
