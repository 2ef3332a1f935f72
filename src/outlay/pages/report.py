"""The report page: results of a run in, one self-contained HTML page out. Parts without results are left out.

Below it the figures of a training: what there was to choose from, the course of λ, cost and loss, and its predictions.
In the plane x = one cost, y = the reward, one figure a budget. A mixture lies between its members, because measurements
are linear in the weights. Both figures of the chosen policies are drawn: the critic's own (hollow) and the fitted one
(filled).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import altair as alt

from outlay.choosing.run import CalibrationRecord, Vector
from outlay.core.wording import percent
from outlay.pages import evaluation_charts as charts
from outlay.pages import evaluation_words, tables
from outlay.pages import results as findings
from outlay.pages.page import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    QUIET,
    SERIES,
    Figure,
    Spec,
    along_x,
    cycled,
    finished,
    inline,
    limit_line,
    middle,
    named_colors,
    rendered,
    scale_around,
    text_tip,
    thinned,
    value_tip,
)
from outlay.pages.page_one import PageOne
from outlay.pages.results import Figures, RunResults, keeps_limits


def render(run: RunResults) -> str:
    """Return the page."""
    return rendered(
        "report.html",
        {section: made for section, made in _figures(run).items() if made},
        None if run.campaign.unit == "day" else run.campaign.timed,
        results=run,
        evaluation=run.evaluation,
        findings=findings,
        evidence=evaluation_words,
        tables=tables,
        page=None if run.evaluation is None else PageOne(run.evaluation, run.campaign),
        settings={group: values for group, values in findings.settings(run).items() if values},
    )


def _figures(run: RunResults) -> dict[str, list[Figure]]:
    """Return the figures of each section, in the order of the page."""
    made = defaultdict[str, list[Figure]](list)

    def add(section: str, title: str, spec: Spec) -> None:
        made[section].append(Figure(f"{section}-{len(made[section])}", title, spec))

    for j, budget in enumerate(run.budgets):
        if run.candidates or run.run.members:
            add("plane", f"Reward against {run.called(budget.name)}", measurement_plane(run, j))
    if run.evaluation is not None:
        for section, title, spec in _evaluation_figures(run):
            add(section, title, spec)
    for record in run.run.calibration:
        add("calibration", findings.calibration_title(run, record), calibration(run, record))
    if len(run.course) > 1:
        add("training", "The price of the budget, λ", multipliers(run))
        for j, budget in enumerate(run.budgets):
            if any(c.critic for c in run.course):
                add("training", f"{run.called(budget.name)}, by the critic", measured_cost(run, j))
        if any(c.loss for c in run.course):
            add("training", "Loss of the critic", training_loss(run))
        if any(c.stored_parameters for c in run.course):
            add("stored", "Stored parameters", stored_parameters(run))
    return made


def _evaluation_figures(run: RunResults) -> list[tuple[str, str, Spec]]:
    """Return section, title and chart of each figure of the evaluation."""
    evaluation = run.evaluated
    made: list[tuple[str, str, Spec]] = []
    if evaluation.shares:
        made.append(("shares", "How often each value is given", charts.action_shares(run)))
    for target in tables.segment_targets(evaluation, run.campaign):
        gains = [e for e in evaluation.segments if e.policy == "gain" and e.target == target]
        if any(e.value is not None for e in gains):
            made.append(("segments", run.quantity(target), charts.segment_gains(run, gains)))
    for estimates in charts.compared(run):
        made.append(("estimates", run.quantity(estimates[0].target), charts.estimators(run, estimates)))
    if paths := evaluation.diagnostics.paths:
        made.append(("evidence", "Logged paths that match the policy", charts.matching_paths(paths)))
    if overlap := evaluation.diagnostics.overlap:
        made.append(("evidence", "Weights of single decisions", charts.mean_ratios(run, overlap)))
    return made


def measurement_plane(results: RunResults, budget_index: int) -> Spec:
    """Candidates, members, mixture, old policy and limit in the plane of one cost and the reward."""
    j, budget = budget_index, results.budgets[budget_index]
    candidates: list[Spec] = [
        {
            "step": c.step,
            "cost": c.measured[1 + j],
            "reward": c.measured[0],
            "multiplier": c.multiplier[j],
            "limits": "kept" if keeps_limits(c.measured, results.budgets) else "not kept",
        }
        for c in results.candidates
    ]
    marks, moves = _plane_marks(results, j)
    costs = [m["cost"] for m in marks] + [budget.limit] + middle([c["cost"] for c in candidates])
    rewards = [m["reward"] for m in marks] + middle([c["reward"] for c in candidates])
    x_scale, y_scale = scale_around(costs, pad=0.06), scale_around(rewards, pad=0.08)
    x = along_x("cost", f"{results.called(budget.name)} ({f'{budget.unit} per decision'.strip()})", x_scale)
    y = alt.Y("reward:Q", title=f"{results.reward_label} per decision", scale=y_scale)

    edge = x_scale["domain"][1 if budget.sign > 0 else 0]
    area = alt.Chart(inline([{"from": budget.limit, "to": edge}])).mark_rect(color=ORANGE, opacity=0.06)
    layers: list[Any] = [
        area.encode(x=alt.X("from:Q", scale=x_scale), x2="to:Q"),
        *limit_line(budget, "x", x_scale),
    ]
    if candidates:
        numbers = (("step", "step"), ("multiplier", "λ"), ("cost", "cost"), ("reward", "reward"))
        tooltip = [*(value_tip(field, title) for field, title in numbers), text_tip("limits")]
        legend = alt.Legend(title="candidate, by training step", orient="top", gradientLength=150, gradientThickness=9)
        layers.append(
            alt.Chart(inline(candidates))
            .mark_circle(size=34, opacity=0.75, clip=True)
            .encode(
                x=x,
                y=y,
                tooltip=tooltip,
                color=alt.Color("step:Q", scale=alt.Scale(scheme="viridis"), legend=legend)
                if results.course
                else alt.value(BLUE),
            )
        )
    links = alt.Chart(inline(moves)).mark_rule(color=INK, opacity=0.55)
    layers.append(
        links.encode(
            x=x,
            y=y,
            x2="cost2:Q",
            y2="reward2:Q",
            strokeDash=alt.condition(alt.datum.why == "share", alt.value([2, 3]), alt.value([1, 0])),
        )
    )
    layers += _plane_layers(marks, x, y, (x_scale["domain"], y_scale["domain"]))
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return finished(
        chart, 380, f"{results.reward_label} against {results.called(budget.name)}: candidates, members, mixture, limit"
    )


LABEL = (0.25, 0.05)  # width and height of a label, as shares of the plane
CRITIC, FITTED = "critic", "fitted"  # by which a policy's figures are
_MARKS = {  # name in the legend: shape, fill, stroke
    "member, critic": ("circle", "white", ORANGE),
    "member, fitted": ("circle", ORANGE, "white"),
    "mixture, critic": ("diamond", "white", INK),
    "mixture, fitted": ("diamond", INK, "white"),
    "old policy": ("square", GREY, "white"),
}


def _plane_marks(results: RunResults, j: int) -> tuple[list[Spec], list[Spec]]:
    """The named points, and the lines between them: a move from figure to figure, and a member's share."""
    marks: list[Spec] = []
    moves: list[Spec] = []
    final = results.mixture.fitted or results.mixture.critic

    def mark(kind: str, name: str, label: str, x: Vector, size: int, weight: float | None = None, by: str = "") -> None:
        marks.append(
            {
                "what": f"{kind}, {by}" if by else kind,
                "by": by,
                "name": name,
                "label": label,
                "weight": weight,
                "size": size,
                "cost": x[1 + j],
                "reward": x[0],
            }
        )

    members = [results.figures(member) for member in results.run.members]
    for i, (member, figures) in enumerate(zip(results.run.members, members, strict=True)):
        name = f"member {i}"
        for figure, x in _known(figures):
            mark("member", name, f"{name} · {percent(member.weight)}", x, 150, member.weight, by=figure)
        here = figures.fitted or figures.critic
        if final and here:
            moves.append(_move("share", here, final, j))
    for figure, x in _known(results.mixture):
        mark("mixture", "mixture", "mixture", x, 280, by=figure)
    for figures in (*members, results.mixture):
        if figures.critic and figures.fitted:
            moves.append(_move("fitted", figures.critic, figures.fitted, j))
    if results.old is not None:
        mark("old policy", "old policy", "old policy", results.old, 110)
    return marks, moves


def _known(figures: Figures) -> list[tuple[str, Vector]]:
    return [(name, x) for name, x in ((CRITIC, figures.critic), (FITTED, figures.fitted)) if x is not None]


def _move(why: str, begin: Vector, end: Vector, j: int) -> Spec:
    return {"why": why, "cost": begin[1 + j], "reward": begin[0], "cost2": end[1 + j], "reward2": end[0]}


def _plane_layers(marks: list[Spec], x: Any, y: Any, domains: Sequence[Sequence[float]]) -> list[Any]:
    shown = [name for name in _MARKS if any(m["what"] == name for m in marks)]
    legend = alt.Legend(title=None, columns=2, symbolStrokeWidth=1.6, symbolOpacity=1)
    scales = [alt.Scale(domain=shown, range=[_MARKS[name][i] for name in shown]) for i in range(3)]
    tooltip = [
        text_tip("what"),
        text_tip("name"),
        alt.Tooltip("weight:Q", format=".1%"),
        value_tip("cost", "cost"),
        value_tip("reward", "reward"),
    ]
    points = (
        alt.Chart(inline(marks))
        .mark_point(opacity=1, strokeWidth=1.6)
        .encode(
            x=x,
            y=y,
            tooltip=tooltip,
            shape=alt.Shape("what:N", scale=scales[0], legend=legend),
            fill=alt.Fill("what:N", scale=scales[1], legend=legend),
            stroke=alt.Stroke("what:N", scale=scales[2], legend=legend),
            size=alt.Size("size:Q", scale=None, legend=None),
        )
    )
    last = [m for m in marks if not (m["by"] == CRITIC and _measured_again(m, marks))]
    # The legend tells the mixture and the old policy, of which there is one each.
    return [points, *_labels(_apart([m for m in last if m["weight"] is not None], domains), -15, x, y)]


def _apart(marks: list[Spec], domains: Sequence[Sequence[float]]) -> list[Spec]:
    """Those whose labels do not cover one another, heaviest first; the others tell their names in tooltips."""
    kept: list[Spec] = []
    for mark in sorted(marks, key=lambda m: -m["weight"]):
        off = (
            [
                abs(mark[field] - other[field]) / ((high - low) or 1.0)
                for field, (low, high) in zip(("cost", "reward"), domains, strict=True)
            ]
            for other in kept
        )
        if all(across > LABEL[0] or down > LABEL[1] for across, down in off):
            kept.append(mark)
    return kept


def _labels(marks: list[Spec], dy: int, x: Any, y: Any) -> list[Any]:
    """Names beside their marks, on a white halo that keeps them readable above dots."""
    base = alt.Chart(inline(marks)).encode(x=x, y=y, text="label:N")
    halo = base.mark_text(dy=dy, fontWeight=600, stroke="white", strokeWidth=3, strokeJoin="round")
    return [halo, base.mark_text(dy=dy, fontWeight=600)]


def _measured_again(mark: Spec, marks: list[Spec]) -> bool:
    return any(m["name"] == mark["name"] and m["by"] == FITTED for m in marks)


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
    title = f"{results.called(budget.name)} ({f'{budget.unit} per decision'.strip()})"
    scale = scale_around([*middle([d["value"] for d in data]), budget.limit])
    lines = _lines(data, "budget", title, [b.name for b in results.budgets], None, scale)
    return finished(
        alt.layer(lines, *limit_line(budget, "y", scale)),
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


def calibration(results: RunResults, record: CalibrationRecord) -> Spec:
    """Predictions of a response model against outcomes, with two standard errors, and the line of agreement."""
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
    title = findings.calibration_title(results, record)
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
