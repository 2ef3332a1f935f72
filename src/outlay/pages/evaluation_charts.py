"""The figures of an evaluation: actions, estimators, segments, matching paths, overlap.

Content in, Vega-Lite specifications out, one function a figure. Every chart is as wide as its place on the page.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from outlay.core.actions import shown
from outlay.core.campaign import BudgetLimit
from outlay.core.estimate import Estimate, Target
from outlay.core.wording import days, exact, number
from outlay.evaluating.diagnostics import MatchingPaths, SegmentOverlap
from outlay.evaluating.evaluation import SegmentEstimate
from outlay.pages.page import (
    BLUE,
    BLUES,
    GREY,
    INK,
    QUIET,
    Spec,
    along_x,
    finished,
    inline,
    limit_line,
    rule_line,
    scale_around,
    text_tip,
    value_tip,
)
from outlay.pages.results import RunResults

TWO = 2  # standard errors of a bar
MOST_NAMES = 12  # of actions in a legend
MOST_FIGURES = 4  # of estimators side by side
USES = {True: "recommended", False: "not recommended"}
KINDS = {USES[True]: (BLUE, BLUE), USES[False]: (GREY, "white")}  # of a row: colour and fill


def action_shares(results: RunResults) -> Spec:
    """The share of each action by segment and policy: bars of 100%, darker for a higher value, or a later name."""
    told = results.campaign.told
    shares = [replace(row, segment=told("segments", row.segment)) for row in results.evaluated.shares]
    with_names = any(isinstance(row.action, str) for row in shares)
    shade = {
        a: float(place if isinstance(a, str) else a) for place, a in enumerate(dict.fromkeys(r.action for r in shares))
    }
    data = [
        {
            "bar": _bar(row.segment, row.policy),
            "segment": row.segment,
            "policy": row.policy,
            "action": shade[row.action],
            "name": told("actions", shown(row.action)),
            "share": row.share,
            "label": told("actions", shown(row.action)) if row.share >= 0.07 else "",
        }
        for row in sorted(shares, key=lambda row: shade[row.action])
    ]
    segments, policies = (
        list(dict.fromkeys(names)) for names in zip(*((r.segment, r.policy) for r in shares), strict=True)
    )
    bars = [_bar(segment, policy) for segment in segments for policy in policies]
    actions = sorted(shade.values())
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
        alt.Tooltip("name:N", title=results.action_label) if with_names else value_tip("action", results.action_label),
        alt.Tooltip("share:Q", format=".1%"),
    ]
    legend: alt.Legend | None = alt.Legend(title=results.action_label, gradientLength=150, gradientThickness=9)
    if with_names:
        places = f"{json.dumps([told('actions', shown(each)) for each in shade])}[datum.value]"
        legend = (
            None
            if len(shade) > MOST_NAMES
            else alt.Legend(
                title=None,
                type="symbol",
                symbolType="square",
                values=actions,
                labelExpr=places,
                columns=1,
                labelLimit=290,
            )
        )
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
    fits = alt.expr("max(1, width * datum.share - 6)")  # a longer name ends in …, and stands in the legend
    texts = base.mark_text(fontSize=10.5, limit=fits).encode(
        x=inside, text="label:N", detail="action:O", color=alt.condition(on_dark, alt.value("white"), alt.value(INK))
    )
    chart = alt.layer(rects, texts).resolve_scale(color="independent")
    return finished(chart, 42 * len(bars) + 10, f"share of each {results.action_label} by segment and policy")


def _bar(segment: str, policy: str) -> str:
    return f"{segment}\n{policy}"


def compared(results: RunResults) -> list[list[Estimate]]:
    """The mixture's estimates for the quantities to draw: its longest total and its budgets first."""
    groups: dict[str, list[Estimate]] = defaultdict(list)
    for e in results.evaluated.estimates:
        groups[e.target].append(e)
    shown = [text for text, each in groups.items() if sum(e.value is not None for e in each) > 1]
    days = {span for text in shown if (span := Target.parse(text).days) is not None}
    totals = [str(Target("reward", span)) for span in sorted(days, reverse=True)]
    order = [*totals[:1], *(b.name for b in results.budgets), "reward", *totals[1:]]
    return [groups[text] for text in order if text in shown][:MOST_FIGURES]


def estimators(results: RunResults, estimates: Sequence[Estimate]) -> Spec:
    """One quantity by every estimator; recommended ones are filled, withheld ones stand in words."""
    budget = next((b for b in results.budgets if b.name == estimates[0].target), None)
    rows = [_row(e.estimator, e, USES[e.recommended]) for e in estimates]
    return _finished_forest(rows, results.quantity(estimates[0].target), "estimator", budget)


def segment_gains(results: RunResults, gains: Sequence[SegmentEstimate]) -> Spec:
    """What each segment gains in one quantity, beside the line of no change."""
    rows = [_row(results.campaign.told("segments", e.segment), e, USES[e.recommended]) for e in gains]
    return _finished_forest(
        rows, f"change in {results.quantity(gains[0].target)}", "segment", beside=(0.0, "no change")
    )


def matching_paths(lines: Sequence[MatchingPaths]) -> Spec:
    """The share of users whose logged actions are the policy's, by number of days."""
    data = [
        {
            "days": days(line.days),
            "matched": line.matched,
            "users": line.users,
            "effective": line.ess,
            "label": f"{exact(line.matched, 3)}, {number(line.ess, 0)} effective",
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


def mean_ratios(results: RunResults, lines: Sequence[SegmentOverlap]) -> Spec:
    """The mean of π/p by segment, with two standard errors, beside 1."""
    rows = []
    for line in lines:
        ratio, reach = line.mean_ratio, TWO * (line.mean_ratio_error or 0.0)
        rows.append(
            {
                "name": results.campaign.told("segments", line.segment),
                "kind": USES[True],
                "value": ratio,
                "low": ratio - reach,
                "high": ratio + reach,
            }
        )
    return _finished_forest(rows, "mean of π/p", "segment", beside=(1.0, "right propensities"))


def _row(name: str, e: Estimate, kind: str) -> Spec:
    return {
        "name": name,
        "kind": kind,
        "label": "" if e.value is not None else "no number",
        "value": e.value,
        "low": e.low,
        "high": e.high,
        "why": str(e.withheld or e.caution or ""),
    }


def _finished_forest(
    rows: Sequence[Spec],
    title: str,
    by: str,
    budget: BudgetLimit | None = None,
    beside: tuple[float, str] | None = None,
) -> Spec:
    """Values with their intervals, one row each, beside a limit or another line with its words.

    Words stand in the place of a value that is withheld.
    """
    scale = scale_around(
        [
            *(row[end] for row in rows for end in ("value", "low", "high")),
            *(() if budget is None else (budget.limit,)),
            *(() if beside is None else beside[:1]),
        ]
    )
    y = alt.Y("name:N", title=None, sort=None, axis=alt.Axis(domain=False, ticks=False, labelColor=INK))
    tips = [text_tip("name"), value_tip("value", title), *(value_tip(end, end) for end in ("low", "high"))]
    tips += [text_tip(field) for field in ("kind", "why") if "why" in rows[0]]
    color, fill = (alt.Scale(domain=list(KINDS), range=list(x)) for x in zip(*KINDS.values(), strict=True))
    base = alt.Chart(inline([row for row in rows if row["value"] is not None])).encode(
        y=y, tooltip=tips, color=alt.Color("kind:N", legend=None, scale=color)
    )
    layers = [
        base.mark_rule(strokeWidth=2.2).encode(x=along_x("low", title, scale), x2="high:Q"),
        base.mark_point(shape="circle", size=80, opacity=1, strokeWidth=1.8).encode(
            x=along_x("value", title, scale), fill=alt.Fill("kind:N", legend=None, scale=fill)
        ),
    ]
    if absent := [row for row in rows if row["value"] is None]:
        texts = alt.Chart(inline(absent)).mark_text(align="left", dx=4, fontSize=11, color=QUIET)
        layers.append(texts.encode(x=alt.value(0), y=y, text="label:N", tooltip=[text_tip("name"), text_tip("why")]))
    lines = [] if beside is None else rule_line(*beside, "x", scale)
    lines += [] if budget is None else limit_line(budget, "x", scale)
    return finished(alt.layer(*lines, *layers), 34 * len(rows) + 14, f"{title} by {by}")
