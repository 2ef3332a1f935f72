"""The page of an A/B test and its figures: effects by day, spending against the plan, metrics, segments, promises.

A band holds on all days at once and may be looked at on any day; a bar with ends belongs to a planned decision. Shape
and place say the same as colour.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

from outlay.core.version import __version__
from outlay.experiments import words
from outlay.experiments.lift import ArmDifference, IntervalEstimate, Lift
from outlay.experiments.results import Analysis, ArmComparison, Course
from outlay.experiments.words import MOST, span
from outlay.pages import experiment_words as page_words
from outlay.pages.page import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LINE,
    ORANGE,
    PURPLE,
    QUIET,
    Figure,
    Spec,
    along_x,
    cycled,
    finished,
    inline,
    named_colors,
    rendered,
    scale_around,
    text_tip,
    value_tip,
)

ALWAYS, PLANNED = "holds on all days at once", "planned decision"
SIDES = {"1": GREEN, "-1": ORANGE, "0": "white"}  # of a planned decision: for the arm, against it, neither
PLAN = "the plan"
_DASHES = ([1, 0], [7, 3], [2, 2], [8, 3, 2, 3])
_PERCENT = "+.3~%"
_TWO_LINES = "split(replace(datum.label, /: (promised|happened)$/, ':\\n$1'), '\\n')"
_LABEL = "datum.value === 0 ? '0' : datum.label"  # d3 would write +0


def render(analysis: Analysis) -> str:
    """The page. Sections without data are left out, with their headings."""
    lifts = [x for arm in analysis.comparisons for x in (*arm.lifts, *arm.exposed)]
    return rendered(
        "experiment.html",
        _figures(analysis),
        a=analysis,
        meta=analysis.experiment.meta,
        test=words,
        page=page_words,
        widened=any(isinstance(x, Lift) and x.cautious for x in lifts),
        settings=page_words.settings(analysis, __version__),
    )


def _figures(a: Analysis) -> dict[str, list[Figure]]:
    """The figures of each section; no data, no figure."""
    made = defaultdict[str, list[Figure]](list)

    def add(section: str, title: str, spec: Any) -> None:
        if spec is not None:
            made[section].append(Figure(f"{section}-{len(made[section])}", title, spec))

    metric = a.called(a.experiment.meta.metric)
    for i, arm in enumerate(a.comparisons):
        against = f"{arm.arm} against {a.control}"
        if arm.course is not None:
            add(f"lift-{i}", f"{metric}: {against}", effect_by_day(a, arm, arm.course))
        for guardrail in arm.guardrails:
            add(f"guardrails-{i}", a.called(guardrail.metric), effect_by_day(a, arm, guardrail))
        add(f"metrics-{i}", against, metrics(a, arm))
        add(f"segments-{i}", f"{metric}: {against}", segments(a, arm))
    if any(arm.budget and arm.spent_by_day for arm in a.arms):
        add("spend", "Spending against the plan", spending(a))
    if a.promised:
        add("promised", "Promised and happened", promises(a))
    return dict(made)


def effect_by_day(a: Analysis, arm: ArmComparison, course: Course) -> Spec:
    """A metric's effect after each day, its band, no difference; for the verdict's metric, the planned decisions."""
    decides = course is arm.course
    in_percent = course.points[-1].always_relative is not None
    points = [point for point in course.points if not in_percent or point.always_relative is not None]
    decisions = [d for d in arm.decisions if decides and (not in_percent or d.relative is not None)]
    band: list[Spec] = [{"day": p.day, "what": ALWAYS, **_ends(p.on_all_days, in_percent)} for p in points]
    bars: list[Spec] = [
        {"day": d.day, "what": PLANNED, "side": str(arm.favours(d)), **_ends(d, in_percent)} for d in decisions
    ]
    line, wash = (GREY, "#e3e6e9") if a.doubted(arm.arm) else (BLUE, "#cce3f0")
    title = f"change in {a.called(course.metric)}{'' if in_percent else ', per user'}"
    settled = [row for row in band if row["day"] * 2 >= a.day] + bars[-1:]
    scale = _frame(settled, band + bars, MOST if in_percent else math.inf)
    x = alt.X("day:Q", title="after day", scale=_days_scale(a), axis=_days_axis(a))
    y = alt.Y("low:Q", title=title, scale=scale, axis=_axis(in_percent))
    tips = [value_tip("day", "after day"), text_tip("what"), *_end_tips(in_percent)]
    color = alt.Color(
        "what:N",
        scale=named_colors({ALWAYS: wash, PLANNED: INK} if bars else {ALWAYS: wash}),
        legend=alt.Legend(title=None, symbolType="square", symbolStrokeWidth=0),
    )
    base = alt.Chart(inline(band)).encode(x=x, tooltip=tips)
    wide = (
        base.mark_area(opacity=0.9, clip=True) if len(band) > 1 else base.mark_bar(size=9, orient="vertical", clip=True)
    )
    layers = [
        wide.encode(y=y, y2="high:Q", color=color),
        *(_days_to_come(a) if decides else ()),
        _no_difference("y", scale),
        base.mark_line(color=line, strokeWidth=2, clip=True, point=alt.OverlayMarkDef(size=36, color=line)).encode(
            y=alt.Y("value:Q", scale=scale)
        ),
        *(_bars(bars, scale, x, tips, color) if bars else ()),
    ]
    last = points[-1]
    text = f"{title}, {arm.arm} against {a.control}, by day: "
    text += f"{span(last.on_all_days)} on all days at once, after day {last.day}"
    text += "".join(f"; planned decision after day {d.day}: {span(d)}" for d in decisions)
    return finished(alt.layer(*layers), 260 if decides else 200, text)


def _bars(bars: Sequence[Spec], scale: Any, x: Any, tips: Sequence[Any], color: Any) -> list[Any]:
    """Planned decisions: an interval with ends; the diamond is filled where a bound was crossed and a verdict given."""
    base = alt.Chart(inline(bars)).encode(x=x, tooltip=tips)
    tick = base.mark_tick(color=INK, thickness=2, size=14, clip=True, orient="horizontal")
    return [
        base.mark_rule(strokeWidth=2, clip=True).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q", color=color),
        *(tick.encode(y=alt.Y(f"{end}:Q", scale=scale)) for end in ("low", "high")),
        base.mark_point(shape="diamond", size=130, opacity=1, stroke=INK, strokeWidth=1.4, clip=True).encode(
            y=alt.Y("value:Q", scale=scale), fill=alt.Fill("side:N", scale=named_colors(SIDES), legend=None)
        ),
    ]


def spending(a: Analysis) -> Spec:
    """What each arm has spent by day as a share of its own budget, beside the plan."""
    arms = [arm for arm in a.arms if arm.budget and arm.spent_by_day]
    names = [arm.name for arm in arms]
    data: list[Spec] = [
        {"day": day, "arm": arm.name, "share": spent / (arm.budget or 1.0), "spent": spent}
        for arm in arms
        for day, spent in enumerate((0.0, *arm.spent_by_day))
    ]
    plan: list[Spec] = [
        {"day": day, "arm": PLAN, "share": share} for day, share in enumerate((0.0, *a.experiment.budget_due))
    ]
    colors = {**_arm_colors(names), PLAN: QUIET}
    dashes = [*cycled(_DASHES, range(len(names))), [3, 4]]
    most = max([1.0, *(row["share"] for row in data)])
    x = alt.X("day:Q", title="after day", axis=_days_axis(a), scale=_days_scale(a, 0))
    y = alt.Y(
        "share:Q",
        title="spent, of the arm's own budget",
        axis=alt.Axis(format="~%", tickCount=5),
        scale=alt.Scale(domain=[0, 1.06 * most], nice=False),
    )
    legend = alt.Legend(title=None, symbolType="stroke", symbolSize=300, columns=2 if len(names) > 2 else 0)
    tips = [text_tip("arm"), value_tip("day", "after day"), alt.Tooltip("share:Q", format=".1%")]
    kinds = {
        "color": alt.Color("arm:N", legend=legend, scale=named_colors(colors)),
        "strokeDash": alt.StrokeDash("arm:N", legend=legend, scale=alt.Scale(domain=list(colors), range=dashes)),
    }
    lines = alt.Chart(inline([*plan, *data])).mark_line(strokeWidth=2.2).encode(x=x, y=y, tooltip=tips, **kinds)
    full = alt.Chart(inline([{"share": 1.0, "words": "the whole budget"}]))
    rule = full.mark_rule(color=INK, strokeDash=[5, 4], strokeWidth=1.2).encode(y="share:Q")
    word = full.mark_text(align="left", baseline="bottom", dx=4, dy=-3, fontSize=10.5, color=INK)
    text = f"spending by day: {page_words.spending(a)}"
    layers = [rule, word.encode(x=alt.value(0), y="share:Q", text="words:N"), lines]
    return finished(alt.layer(*layers), 240, text)


def metrics(a: Analysis, arm: ArmComparison) -> Spec | None:
    """Relative effects on all metrics, at a single look; None if there is none to draw."""
    rows = [_row(a.called(x.metric), x.relative) for x in arm.lifts if isinstance(x, Lift) and x.relative]
    return _forest(rows, f"{arm.arm} against {a.control}, all metrics", a.doubted(arm.arm)) if rows else None


def segments(a: Analysis, arm: ArmComparison) -> Spec | None:
    """The verdict's metric by segment, at a single look; None if there is none to draw."""
    effects = [(a.segment_names.get(segment.name, segment.name), segment.lifts[0]) for segment in arm.segments]
    rows = [_row(name, x.relative) for name, x in effects if isinstance(x, Lift) and x.relative]
    text = f"{a.called(a.experiment.meta.metric)}, {arm.arm} against {a.control}, by segment"
    return _forest(rows, text, a.doubted(arm.arm)) if rows else None


def promises(a: Analysis) -> Spec:
    """Each promise over what happened."""
    rows = []
    for p in a.promised:
        name = page_words.promise_name(a, p)
        rows += [
            {**_row(f"{name}: promised", p.promised), "kind": "promised"},
            {**_row(f"{name}: happened", p.happened), "kind": "happened"},
        ]
    return _forest(rows, "promised and happened", all(a.doubted(p.arm) for p in a.promised))


def _row(name: str, x: IntervalEstimate) -> Spec:
    return {"name": name, "value": x.value, "low": x.low, "high": x.high, "kind": "happened"}


def _forest(rows: Sequence[Spec], text: str, doubted: bool) -> Spec:
    """Relative effects with their intervals, a row each, beside no difference."""
    scale = _frame(rows, rows)
    names = alt.Axis(domain=False, ticks=False, labelColor=INK, labelLimit=210, labelExpr=_TWO_LINES)
    y = alt.Y("name:N", title=None, sort=None, axis=names)
    tips = [text_tip("name"), *_end_tips(in_percent=True)]
    shapes = alt.Scale(domain=["happened", "promised"], range=["circle", "diamond"])
    base = alt.Chart(inline(rows)).encode(
        y=y,
        tooltip=tips,
        color=alt.Color(
            "kind:N", legend=None, scale=named_colors({"happened": GREY if doubted else BLUE, "promised": PURPLE})
        ),
    )
    axis = alt.Axis(format=_PERCENT, tickCount=alt.ExprRef("ceil(width / 90)"), labelExpr=_LABEL)
    layers = [
        _no_difference("x", scale),
        base.mark_rule(strokeWidth=2.2, clip=True).encode(
            x=alt.X("low:Q", title="relative change", scale=scale, axis=axis), x2="high:Q"
        ),
        base.mark_point(size=80, filled=True, opacity=1, clip=True).encode(
            x=along_x("value", "relative change", scale), shape=alt.Shape("kind:N", legend=None, scale=shapes)
        ),
    ]
    effects = "; ".join(
        f"{row['name']} {span(IntervalEstimate(row['value'], row['low'], row['high']).in_percent)}" for row in rows
    )
    return finished(alt.layer(*layers), 34 * len(rows) + 20, f"{text}: {effects}")


def _ends(effect: ArmDifference, in_percent: bool) -> Spec:
    x = effect.relative if in_percent and effect.relative is not None else effect.absolute
    return {"value": x.value, "low": x.low, "high": x.high}


def _end_tips(in_percent: bool) -> list[Any]:
    return [alt.Tooltip(f"{end}:Q", format=_PERCENT if in_percent else "+,.4~g") for end in ("value", "low", "high")]


def _frame(settled: Sequence[Spec], rows: Sequence[Spec], most: float = MOST) -> Any:
    """A scale around 0, the later days' intervals and the values near them: the first days' intervals are too wide."""
    reach = max([abs(x) for row in settled for x in (row["low"], row["high"]) if abs(x) <= most] or [1.0])
    near = [row["value"] for row in rows if abs(row["value"]) <= 1.5 * reach]
    inside = [x for row in settled for x in (row["low"], row["high"]) if abs(x) <= reach]
    return scale_around([0.0, *near, *inside], pad=0.1)


def _no_difference(along: Literal["x", "y"], scale: Any) -> Any:
    """A dashed rule at 0."""
    rule = alt.Chart(inline([{"at": 0.0}])).mark_rule(color=INK, strokeDash=[5, 4], strokeWidth=1.2)
    return rule.encode(x=alt.X("at:Q", scale=scale)) if along == "x" else rule.encode(y=alt.Y("at:Q", scale=scale))


def _days_to_come(a: Analysis) -> list[Any]:
    """Marks for the planned decisions that are still to come."""
    rows = [{"day": day, "words": "decision"} for day in a.experiment.meta.decisions if day > a.day]
    if not rows:
        return []
    base = alt.Chart(inline(rows)).encode(x=alt.X("day:Q", scale=_days_scale(a)))
    text = base.mark_text(align="right", baseline="top", dx=-4, fontSize=10.5, color=QUIET)
    rule = base.mark_rule(color=LINE, strokeDash=[2, 3], strokeWidth=1.4)
    return [rule, text.encode(text="words:N", y=alt.value(0))]


def _days_scale(a: Analysis, first: float = 0.5) -> Any:
    return alt.Scale(domain=[first, a.experiment.meta.days + 0.5], nice=False)


def _days_axis(a: Analysis) -> Any:
    length = a.experiment.meta.days
    days = list(range(1, length + 1)) if length <= 14 else list(range(7, length + 1, 7))
    return alt.Axis(values=days, format="d", grid=False)


def _axis(in_percent: bool) -> Any:
    return alt.Axis(format=_PERCENT if in_percent else "+,.3~g", tickCount=6, labelExpr=_LABEL)


def _arm_colors(names: Sequence[str]) -> dict[str, str]:
    """Grey for the control, then a colour each."""
    return dict(zip(names, [GREY, *cycled((BLUE, GREEN, PURPLE, ORANGE), range(len(names) - 1))], strict=True))
