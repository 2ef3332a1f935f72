"""The figures of results: policies, actions, days, a response model's calibration. One function a figure.

Content in, Vega-Lite specifications out. Every chart is as wide as its place on the page.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from outlay.choosing.run import CalibrationRecord
from outlay.core.campaign import BudgetLimit
from outlay.core.estimate import Estimate
from outlay.evaluating.evaluation import PolicyRow
from outlay.pages import report_words, words
from outlay.pages.results import RunResults
from outlay.pages.style import (
    BLUE,
    BLUES,
    GREEN,
    GREY,
    INK,
    LINE,
    PURPLE,
    QUIET,
    Spec,
    along_x,
    finished,
    inline,
    limit_line,
    named_colors,
    policy_colors,
    scale_around,
    text_tip,
    value_tip,
)

KIND_COLORS = {"chosen": BLUE, "old": GREY, "constant": GREEN, "method": PURPLE, "member": "#56b4e9"}
KIND_SHAPES = ["diamond", "square", "triangle-up", "circle", "circle"]


def policy_totals(results: RunResults) -> Spec:
    """The total over the longest horizon of every policy, with intervals."""
    days = max(d for row in results.policies for d in row.totals)
    rows = [(row, row.totals.get(days)) for row in results.policies]
    return _forest(rows, f"{results.reward_label} per user in {words.days(days)}")


def policy_costs(results: RunResults, budget: BudgetLimit) -> Spec:
    """The cost of every policy against its limit, with intervals."""
    rows = [(row, row.costs.get(budget.name)) for row in results.policies]
    return _forest(rows, f"{budget.name} ({words.per(budget)})", budget)


def _forest(rows: Sequence[tuple[PolicyRow, Estimate | None]], title: str, budget: BudgetLimit | None = None) -> Spec:
    data = [
        {"policy": row.name, "kind": row.kind, "value": e.value, "low": e.low, "high": e.high}
        for row, e in rows
        if e is not None
    ]
    ends = [end for _, e in rows if e is not None for end in (e.value, e.low, e.high)] + (
        [budget.limit] if budget else []
    )
    scale = scale_around(ends)
    y = alt.Y("policy:N", title=None, sort=None, axis=alt.Axis(domain=False, ticks=False, labelColor=INK))
    color = alt.Color("kind:N", legend=None, scale=named_colors(KIND_COLORS))
    tooltip = [text_tip("policy"), value_tip("value", title), value_tip("low", "low"), value_tip("high", "high")]
    base = alt.Chart(inline(data)).encode(y=y, color=color, tooltip=tooltip)
    layers = [
        base.mark_rule(strokeWidth=2.5).encode(x=along_x("low", title, scale), x2="high:Q"),
        base.mark_point(size=85, filled=True, opacity=1).encode(
            x=along_x("value", title, scale),
            shape=alt.Shape("kind:N", legend=None, scale=alt.Scale(domain=list(KIND_COLORS), range=KIND_SHAPES)),
        ),
    ]
    if budget:
        layers = [*limit_line(budget.limit, budget, "x", scale), *layers]
    return finished(alt.layer(*layers), 34 * len(data) + 14, f"{title} by policy")


def calibration(results: RunResults, record: CalibrationRecord) -> Spec:
    """Draw predictions of a response model against outcomes, with two standard errors, and the line of agreement."""
    tenths = record.tenths
    columns = zip(tenths.predicted, tenths.observed, tenths.std_error, tenths.count, strict=True)
    data = [
        {
            "predicted": predicted,
            "observed": observed,
            "rows": rows,
            "low": observed - 2 * (error or 0),
            "high": observed + 2 * (error or 0),
        }
        for predicted, observed, error, rows in columns
    ]
    title = report_words.calibration_title(results, record)
    scale = scale_around([*tenths.predicted, *tenths.observed])
    low, high = scale["domain"]
    ends = [{"predicted": low, "observed": low}, {"predicted": high, "observed": high}]
    y = alt.Y("observed:Q", title="observed", scale=scale, axis=alt.Axis(tickCount=5))
    x = along_x("predicted", f"predicted: {title}", scale)
    tips = [value_tip("predicted", "predicted"), value_tip("observed", "observed"), value_tip("rows", "rows")]
    agree = alt.Chart(inline(ends)).mark_line(color=QUIET, strokeDash=[5, 4], strokeWidth=1.2).encode(x=x, y=y)
    base = alt.Chart(inline(data)).encode(x=x, tooltip=tips)
    bars = base.mark_rule(color=BLUE, strokeWidth=2, clip=True).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    points = base.mark_point(color=BLUE, filled=True, size=60, opacity=1).encode(y=y)
    return finished(alt.layer(agree, bars, points), 210, f"{title}: observed against predicted, by tenths")


def action_shares(results: RunResults) -> Spec:
    """The share of each action by segment and policy: bars of 100%, darker for a higher value."""
    data = [
        {
            "bar": _bar(row.segment, row.policy),
            "segment": row.segment,
            "policy": row.policy,
            "action": row.action,
            "share": row.share,
            "label": words.plain(row.action) if row.share >= 0.07 else "",
        }
        for row in sorted(results.evaluated.shares, key=lambda row: row.action)
    ]
    segments, policies = (list(dict.fromkeys(names)) for names in zip(*report_words.mean_actions(results), strict=True))
    bars = [_bar(segment, policy) for segment in segments for policy in policies]
    actions = sorted({row.action for row in results.evaluated.shares})
    dark_from = actions[0] + 0.65 * (actions[-1] - actions[0])
    labels = alt.Axis(
        labelExpr="split(datum.label, '\\n')", domain=False, ticks=False, labelColor=INK, labelOverlap=False
    )
    y = alt.Y("bar:N", title=None, sort=bars, axis=labels)
    x = alt.X(
        "share:Q",
        title="share of decisions",
        stack="zero",
        axis=alt.Axis(format="%", tickCount=5),
        scale=alt.Scale(domain=[0, 1], nice=False),
    )
    order = alt.Order("action:Q", sort="ascending")
    tooltip = [
        text_tip("segment"),
        text_tip("policy"),
        value_tip("action", results.action_label),
        alt.Tooltip("share:Q", format=".1%"),
    ]
    legend = alt.Legend(title=results.action_label, gradientLength=150, gradientThickness=9)
    color = alt.Color("action:Q", scale=alt.Scale(domain=[actions[0], actions[-1]], range=BLUES), legend=legend)
    base = alt.Chart(inline(data)).encode(y=y, order=order, tooltip=tooltip)
    rects = base.mark_bar(stroke="white", strokeWidth=0.8, height={"band": 0.78}).encode(
        x=x, color=color, detail="action:O"
    )
    inside = alt.X(
        "share:Q",
        title="share of decisions",
        stack="zero",
        bandPosition=0.5,
        scale=alt.Scale(domain=[0, 1], nice=False),
    )
    on_dark = alt.datum.action >= dark_from
    texts = base.mark_text(fontSize=10.5).encode(
        x=inside, text="label:N", detail="action:O", color=alt.condition(on_dark, alt.value("white"), alt.value(INK))
    )
    chart = alt.layer(rects, texts).resolve_scale(color="independent")
    return finished(chart, 42 * len(bars) + 10, f"share of each {results.action_label} by segment and policy")


def _bar(segment: str, policy: str) -> str:
    return f"{segment}\n{policy}"


def mean_action(results: RunResults) -> Spec:
    """The mean value given in each segment, old and new side by side."""
    means = report_words.mean_actions(results)
    names = list(dict.fromkeys(policy for _, policy in means))
    data = [{"segment": s, "policy": p, "mean": value} for (s, p), value in means.items()]
    segments = list(dict.fromkeys(s for s, _ in means))
    title = f"mean {results.action_label}"
    x = along_x("mean", title, scale_around(means.values(), pad=0.12))
    y = alt.Y("segment:N", title=None, sort=segments, axis=alt.Axis(domain=False, ticks=False, labelColor=INK))
    legend = alt.Legend(title=None)
    colors = policy_colors(names)
    shapes = alt.Scale(domain=names, range=["square" if name == "old" else "diamond" for name in names])
    base = alt.Chart(inline(data)).encode(y=y)
    line = base.mark_line(color=LINE, strokeWidth=4).encode(x=x, detail="segment:N")
    points = base.mark_point(filled=True, size=130, opacity=1).encode(
        x=x,
        color=alt.Color("policy:N", scale=named_colors(colors), legend=legend),
        shape=alt.Shape("policy:N", scale=shapes, legend=legend),
        tooltip=[text_tip("segment"), text_tip("policy"), value_tip("mean", title)],
    )
    return finished(alt.layer(line, points), 44 * len(segments) + 20, f"{title} by segment")


def daily(results: RunResults, budget_index: int | None) -> Spec:
    """The reward (None) or one cost, day by day, a line per policy."""
    budget = None if budget_index is None else results.budgets[budget_index]
    data: list[Spec] = [
        {"day": row.day, "policy": row.policy, "value": row.reward if budget_index is None else row.costs[budget_index]}
        for row in results.evaluated.daily
    ]
    title = f"{budget.name} ({f'{budget.unit} per user'.strip()})" if budget else f"{results.reward_label} per user"
    names = list(dict.fromkeys(row.policy for row in results.evaluated.daily))
    colors = policy_colors(names)
    legend = alt.Legend(title=None) if len(names) > 1 else None
    days = sorted({row.day for row in results.evaluated.daily})
    axis = alt.Axis(values=days, format="d") if len(days) <= 15 else alt.Axis(tickCount=8, format="d")
    limit = [budget.limit] if budget and budget.per == "decision" else []
    scale = scale_around([*(d["value"] for d in data), *limit])
    chart = (
        alt.Chart(inline(data))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=45, filled=True))
        .encode(
            x=alt.X("day:Q", title="day of the user", axis=axis, scale=alt.Scale(nice=False, padding=10)),
            y=alt.Y("value:Q", title=title, scale=scale),
            color=alt.Color("policy:N", scale=named_colors(colors), legend=legend),
            tooltip=[
                text_tip("policy"),
                value_tip("day", "day"),
                value_tip("value", title),
            ],
        )
    )
    layers = [chart, *(limit_line(budget.limit, budget, "y", scale) if budget and limit else [])]
    return finished(alt.layer(*layers), 200, f"{title} day by day")
