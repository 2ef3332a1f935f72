"""The page of `outlay compare` and its figures: methods side by side at equal spend, rewards, costs, what is stored.

Colour shows the family (two-stage, or the oracle of a method that looks ahead; the frontier has its own), shape the
mixing rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import altair as alt

from outlay.comparing.results import CONTROLS, ORIGINAL, Comparison, MethodRow, StoredCount
from outlay.core.campaign import BudgetLimit
from outlay.core.estimate import Target
from outlay.core.wording import days, short
from outlay.pages.comparison_table import captures, lead, recommendation, rows_of, table, ties
from outlay.pages.page import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    Figure,
    Spec,
    along_x,
    cycled,
    finished,
    inline,
    limit_line,
    named_colors,
    rendered,
    scale_around,
    text_tip,
    thinned,
    value_tip,
)
from outlay.pages.tables import per

_YARDSTICKS = {"log": ("old policy", GREY), "constant": ("best constants", INK), "two-stage": ("two-stage", ORANGE)}
_FRONTIER = {"frontier": "#56b4e9"}  # one more of Okabe and Ito's
_ORACLE_COLORS = (PURPLE, GREEN, BLUE)
_SHAPES = {"log": "square", "constant": "cross", "two-stage": "diamond"}
_STAR = "M0,-1L.24,-.32L.95,-.31L.38,.12L.59,.81L0,.4L-.59,.81L-.38,.12L-.95,-.31L-.24,-.32Z"
_RULE_SHAPES = ("triangle-up", "triangle-down", "circle", "triangle-right", _STAR)


def render(comparison: Comparison) -> str:
    """The page."""
    c = comparison
    lines = _stored(c)
    return rendered(
        "comparison.html",
        _figures(c),
        c=c,
        recommendation=recommendation(c),
        tables={control: table(c, control) for control in CONTROLS},
        leads={control: lead(c, control) for control in CONTROLS},
        ties={control: ties(c, control) for control in CONTROLS},
        truth=c.knows_truth,
        captures=captures(c),
        stored_by=_first_oracle(c),
        stored_words=_stored_words(lines),
        stored_frontier="frontier" in lines,
    )


def _figures(c: Comparison) -> dict[str, list[Figure]]:
    """The figures of each section; no data, no figure."""
    longest = max(c.report_days)
    made: dict[str, list[Figure]] = {}
    for control, title in CONTROLS.items():
        rows = rows_of(c, control)
        if any(str(Target("reward", longest)) in row.figures for row in rows):
            title = f"{c.reward_label} in {days(longest)}, {title}"
            made[control] = [Figure(f"{control}-rewards", title, rewards(rows, longest, c.reward_label))]
    if "total" in made:
        for j, budget in enumerate(c.budgets):
            if spec := plane(c, budget):
                made["total"].append(Figure(f"total-plane-{j}", f"Reward against {c.called(budget.name)}", spec))
    if lines := _stored(c):
        made["stored"] = [Figure("stored-parameters", "Stored parameters", stored(lines))]
    return made


def _first_oracle(c: Comparison) -> str:
    """The oracle whose rules the figure of stored parameters shows, as its rows are called."""
    return next((family(row) for row in c.rows if row.name in c.stored), "")


def _stored(c: Comparison) -> dict[str, tuple[StoredCount, ...]]:
    """{rule: its parameters over training}, of the first oracle, and those of the original method."""
    rows = [row for row in c.rows if row.name in c.stored]
    lines = {str(row.rule): c.stored[row.name] for row in rows if row.oracle == rows[0].oracle}
    if lines and ORIGINAL in c.stored:
        lines[ORIGINAL] = c.stored[ORIGINAL]
    return {name: course for name, course in lines.items() if course}


def _stored_words(lines: Mapping[str, Sequence[StoredCount]]) -> str:
    """The parameters of each rule in store at the end, the mean over seeds, as in the figure and the tables."""
    parts = [f"{name} {short(course[-1].mean)}" for name, course in lines.items()]
    return f"Parameters in store at the end: {', '.join(parts)}"


def rewards(rows: Sequence[MethodRow], span: int, reward: str) -> Spec:
    """The total over `span` days of every method with its interval, and the truth where it is known."""
    data: list[Spec] = []
    for row in rows:
        figure = row.figures.get(str(Target("reward", span)))
        if figure is not None:
            data.append({"method": _chart_name(row), "family": family(row), **asdict(figure)})
    names = [d["method"] for d in data]
    title = f"{reward} per user in {days(span)}"
    scale = scale_around([d[end] for d in data for end in ("value", "low", "high", "truth")])
    y = alt.Y("method:N", title=None, sort=names, axis=alt.Axis(domain=False, ticks=False, labelColor=INK))
    tooltip = [
        text_tip("method"),
        value_tip("value", title),
        value_tip("sd", "± over seeds"),
        value_tip("low", "low"),
        value_tip("high", "high"),
        value_tip("truth", "true"),
    ]
    base = alt.Chart(inline(data)).encode(y=y, tooltip=tooltip)
    color = alt.Color("family:N", legend=None, scale=named_colors(_colors(rows)))
    layers = [
        base.mark_rule(strokeWidth=2.5).encode(x=along_x("low", title, scale), x2="high:Q", color=color),
        base.mark_point(size=70, filled=True, opacity=1).encode(x=along_x("value", title, scale), color=color),
        base.mark_point(shape="diamond", size=130, filled=False, stroke=INK, strokeWidth=1.4, opacity=1).encode(
            x=along_x("truth", title, scale)
        ),
    ]
    return finished(alt.layer(*layers), 22 * len(data) + 14, f"{title} by method")


def plane(c: Comparison, budget: BudgetLimit) -> Spec | None:
    """Reward against one cost, both in the budget's unit: up is better, beyond the line is over the limit.

    None where no method has both.
    """
    rows, reward, horizon, per_user = rows_of(c, "total"), c.reward_label, c.horizon_days, budget.per == "user"
    data: list[Spec] = []
    for row in rows:
        reward_value = row.number(str(Target("reward", horizon)) if per_user else "reward", "value")
        cost = row.number(budget.name, "value")
        if reward_value is not None and cost is not None:
            data.append(
                {
                    "method": _chart_name(row),
                    "family": family(row),
                    "rule": row.mixing or row.group,
                    "reward": reward_value,
                    "cost": cost,
                }
            )
    framed = [d for d in data if d["rule"] != "log"]  # an old policy far away must not squeeze the methods
    if not framed:
        return None
    x_scale = scale_around([*(d["cost"] for d in framed), budget.limit])
    y_scale = scale_around([d["reward"] for d in framed])
    span = f" in {days(horizon)}" if per_user else ""
    title = f"{c.called(budget.name)} ({per(budget)}{span})"
    x = along_x("cost", title, x_scale)
    y = alt.Y("reward:Q", title=f"{reward} per {budget.per}{span}", scale=y_scale, axis=alt.Axis(tickCount=6))
    rules = _rules(rows)
    shapes = {**_SHAPES, **dict(zip(rules, cycled(_RULE_SHAPES, range(len(rules))), strict=True))}
    families = alt.Legend(title=None, columns=3, symbolType="circle")
    of_rules = alt.Legend(
        title=None, columns=2, orient="top", values=rules, symbolFillColor=GREY, symbolStrokeColor=GREY
    )
    points = (
        alt.Chart(inline(data))
        .mark_point(size=110, filled=True, clip=True, opacity=0.85, stroke="white", strokeWidth=0.8)
        .encode(
            x=x,
            y=y,
            color=alt.Color("family:N", scale=named_colors(_colors(rows)), legend=families),
            shape=alt.Shape(
                "rule:N",
                scale=alt.Scale(domain=list(shapes), range=list(shapes.values())),
                legend=of_rules if rules else None,
            ),
            tooltip=[text_tip("method"), value_tip("reward", "reward"), value_tip("cost", title)],
        )
    )
    edge = x_scale["domain"][1 if budget.sign > 0 else 0]
    beyond = alt.Chart(inline([{"from": budget.limit, "to": edge}])).mark_rect(color=ORANGE, opacity=0.06)
    area = beyond.encode(x=alt.X("from:Q", scale=x_scale), x2="to:Q")
    layers = [area, *limit_line(budget, "x", x_scale), points]
    return finished(alt.layer(*layers), 340, f"{reward} against {c.called(budget.name)} by method, with the limit")


def stored(lines: Mapping[str, Sequence[StoredCount]]) -> Spec:
    """Parameters in store over training, a line for each rule, on a logarithmic axis; the original method in grey.

    Args:
        lines: {rule, `frontier` or `original method`: parameters over training}; the band around a line is one standard
            deviation over seeds wide on either side.
    """
    data: list[Spec] = [
        {
            "step": at.step,
            "rule": name,
            "value": at.mean,
            "sd": at.sd,
            "low": max(at.mean - (at.sd or 0), at.mean / 10),
            "high": at.mean + (at.sd or 0),
        }
        for name, course in lines.items()
        for at in thinned(course)
        if at.mean
    ]
    low, high = (math.log10(end([d["value"] for d in data])) for end in (min, max))
    scale = alt.Scale(type="log", domain=[10 ** (low - 0.1), 10 ** (high + 0.1)], nice=False)
    ticks = [m * 10**k for k in range(math.floor(low), math.ceil(high) + 1) for m in (1, 3)]
    rules = [name for name in lines if name != ORIGINAL]
    colors = dict(zip(rules, cycled((BLUE, GREEN, PURPLE, ORANGE, INK), range(len(rules))), strict=True))
    dashes = cycled(([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [1, 0]), range(len(rules)))
    names, legend = [*rules, ORIGINAL], alt.Legend(title=None, symbolType="stroke", symbolSize=300)
    base = alt.Chart(inline(data)).encode(
        x=alt.X("step:Q", title="gradient step", axis=alt.Axis(tickCount=6), scale=alt.Scale(nice=False)),
        color=alt.Color("rule:N", legend=legend, scale=named_colors({**colors, ORIGINAL: GREY})),
    )
    line = base.mark_line(strokeWidth=2, clip=True).encode(
        y=alt.Y("value:Q", title="stored parameters (log axis)", scale=scale, axis=alt.Axis(format="~s", values=ticks)),
        strokeDash=alt.StrokeDash("rule:N", legend=legend, scale=alt.Scale(domain=names, range=[*dashes, [1, 0]])),
        tooltip=[
            value_tip("step", "step"),
            text_tip("rule"),
            alt.Tooltip("value:Q", format=","),
            value_tip("sd", "± over seeds"),
        ],
    )
    band = base.mark_area(opacity=0.15, clip=True).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    chart = alt.layer(band, line) if any(d["sd"] for d in data) else line
    return finished(chart, 240, "stored parameters over gradient steps, by mixing rule and for the original method")


def family(row: MethodRow) -> str:
    """The meaning of a row's colour: `old policy`, `two-stage`, `BCQ`, …."""
    yardstick = _YARDSTICKS.get(row.group)
    return row.name.partition(", ")[0] if yardstick is None else yardstick[0]


def _chart_name(row: MethodRow) -> str:
    """The name without the actions of constants, which the table shows."""
    return family(row) if row.group == "constant" else row.name


def _colors(rows: Sequence[MethodRow]) -> dict[str, str]:
    names = list(dict.fromkeys(family(row) for row in rows))
    fixed = {**dict(_YARDSTICKS.values()), **_FRONTIER}
    oracles = [name for name in names if name not in fixed]
    colors = {**fixed, **dict(zip(oracles, cycled(_ORACLE_COLORS, range(len(oracles))), strict=True))}
    return {name: colors[name] for name in names}


def _rules(rows: Sequence[MethodRow]) -> list[str]:
    return list(dict.fromkeys(rule for row in rows if (rule := row.mixing)))
