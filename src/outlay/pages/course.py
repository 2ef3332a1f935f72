"""The figures of the course of training: λ, cost, loss, and what had to be stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from outlay.pages.results import RunResults
from outlay.pages.style import (
    BLUE,
    GREY,
    SERIES,
    Spec,
    cycled,
    finished,
    inline,
    limit_line,
    middle,
    named_colors,
    scale_around,
    text_tip,
    thinned,
    value_tip,
)


def multipliers(results: RunResults) -> Spec:
    """λ over training steps, a line per budget."""
    data = [
        {"step": t.step, "budget": b.name, "value": t.multiplier[j]}
        for t in thinned(results.course)
        for j, b in enumerate(results.budgets)
    ]
    title = f"λ ({results.reward_label} per unit of cost)"
    legend = alt.Legend(title=None) if len(results.budgets) > 1 else None
    chart = _lines(data, "budget", title, [b.name for b in results.budgets], legend)
    return finished(chart, 210, f"{title} over training steps")


def measured_cost(results: RunResults, budget_index: int) -> Spec:
    """The critic's cost of the policy of each step, against the limit."""
    j, budget = budget_index, results.budgets[budget_index]
    measured = thinned([(c.step, c.critic[1 + j]) for c in results.course if c.critic is not None])
    data: list[Spec] = [{"step": step, "budget": budget.name, "value": cost} for step, cost in measured]
    title = f"{budget.name} ({f'{budget.unit} per decision'.strip()})"
    scale = scale_around([*middle([d["value"] for d in data]), budget.limit])
    lines = _lines(data, "budget", title, [b.name for b in results.budgets], None, scale)
    return finished(
        alt.layer(lines, *limit_line(budget.limit, budget, "y", scale)),
        210,
        f"{title} over training steps, with its limit",
    )


def training_loss(results: RunResults) -> Spec:
    """The loss of the critic."""
    data: list[Spec] = [
        {"step": t.step, "what": "loss", "value": t.loss} for t in thinned(results.course) if t.loss is not None
    ]
    scale = scale_around(middle([d["value"] for d in data]))
    return finished(_lines(data, "what", "loss (scaled)", ["loss"], None, scale), 210, "loss over training steps")


def stored_parameters(results: RunResults) -> Spec:
    """Numbers held for policies: this run's rule and the original method, on a logarithmic axis."""
    known = thinned([c for c in results.course if c.stored_parameters])
    ours, original = results.method, "original method (keeps every network)"
    data: list[Spec] = [{"step": c.step, "rule": ours, "value": c.stored_parameters} for c in known]
    data += [{"step": c.step, "rule": original, "value": c.original_parameters} for c in known if c.original_parameters]
    low, high = (math.log10(end([d["value"] for d in data])) for end in (min, max))
    ticks = [m * 10**k for k in range(math.floor(low), math.ceil(high) + 1) for m in (1, 3)]
    axis = alt.Axis(format="~s", values=ticks)
    scale = alt.Scale(type="log", domain=[10 ** (low - 0.1), 10 ** (high + 0.1)], nice=False)
    legend = alt.Legend(title=None, columns=1)
    names = [ours, original]
    chart = _lines(data, "rule", "stored parameters (log axis)", names, legend, scale, (BLUE, GREY), axis)
    return finished(chart, 210, "stored parameters over training steps")


def _lines(
    data: list[Spec],
    series: str,
    title: str,
    names: list[str],
    legend: Any,
    scale: Any = None,
    colors: Sequence[str] = SERIES,
    axis: Any = None,
) -> Any:
    """Lines over training steps; colours and dashes go by place in `names`, so that a budget keeps its colour."""
    places = range(len(names))
    dashes = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3]] if legend else [[1, 0]]
    tones = dict(zip(names, cycled(colors, places), strict=True))
    strokes = alt.Scale(domain=names, range=cycled(dashes, places))
    return (
        alt.Chart(inline(data))
        .mark_line(strokeWidth=1.6, clip=True)
        .encode(
            x=alt.X("step:Q", title="training step", axis=alt.Axis(tickCount=6), scale=alt.Scale(nice=False)),
            y=alt.Y("value:Q", title=title, scale=scale or alt.Scale(zero=True), axis=axis or alt.Axis(tickCount=5)),
            color=alt.Color(f"{series}:N", legend=legend, scale=named_colors(tones)),
            strokeDash=alt.StrokeDash(f"{series}:N", legend=legend, scale=strokes),
            tooltip=[value_tip("step", "step"), text_tip(series), value_tip("value", title)],
        )
    )
