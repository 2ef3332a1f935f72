"""The figures of the pages: the course of a game's rules, what noise does, and captured shares. Rows in, SVG out."""

from __future__ import annotations

from typing import Any

import altair as alt
import vl_convert

from outlay.pages.page import BLUE, CONFIG, GREEN, GREY, INK, LINE, ORANGE, PURPLE, QUIET, Spec, inline, named_colors

COLUMN_GENERATION = "column generation"
LOOKS = {  # colour and shape
    "uniform": (GREY, "square"),
    "single-best": (ORANGE, "triangle-up"),
    "aim-mean": (PURPLE, "cross"),
    "aim-greedy": (GREEN, "diamond"),
    "lp": ("#56b4e9", "circle"),
    COLUMN_GENERATION: (BLUE, "triangle-down"),
}
METHODS = {  # method: colour, and its name in the figure
    "frontier, counted": (BLUE, "frontier, counted"),
    "frontier, bcq": ("#56b4e9", "frontier, bcq"),
    "plug-in (counted, not smoothed)": (GREEN, "plug-in"),
    "aim-greedy, bcq (3 budgets)": (PURPLE, "aim-greedy, bcq"),
    "DeepFM, 7-day label": (ORANGE, "DeepFM, 7 days"),
    "1-day rule, true responses": (GREY, "1-day rule"),
}
LEAST_SHOWN = 1e-6  # on logarithmic axes, where 0 has no place
WIDTH = 690  # of a figure, in pixels


def course(rows: list[Spec], title: str) -> str:
    """Uplift lost and violation after so many best responses; `rows`: rule, responses, lost, violation."""
    names = {name: name for name in LOOKS if name != "aim-mean"} | {"uniform": "uniform = aim-mean"}
    rows = [{**row, "rule": names[row["rule"]]} for row in rows if row["rule"] in names]
    # Before, it is far over the limits and all but optimal at what it spends: that says nothing.
    kept = [row for row in rows if row["rule"] != COLUMN_GENERATION or row["violation"] <= LEAST_SHOWN]
    looks = {names[name]: look for name, look in LOOKS.items() if name in names}
    percents = {10.0**k: f"{10.0 ** (k + 2):g}%" for k in range(-5, 1)} | {LEAST_SHOWN: "≤ 0.0001%"}
    plain = {10.0**k: f"{10.0**k:.{-k}f}" for k in range(-5, 1)} | {LEAST_SHOWN: "kept"}
    panels = [
        _course_panel(kept, "lost", "share of the uplift lost", percents, looks),
        _course_panel(rows, "violation", "scaled violation of the limits", plain, looks),
    ]
    return svg(alt.hconcat(*panels, spacing=28), title)


def _course_panel(
    rows: list[Spec], field: str, title: str, labels: dict[float, str], looks: dict[str, tuple[str, str]]
) -> Any:
    words = " : ".join(f"datum.value < {1.5 * value:g} ? '{label}'" for value, label in sorted(labels.items()))
    axis = alt.Axis(values=list(labels), labelExpr=f"{words} : ''")
    shown = [{**row, field: max(row[field], LEAST_SHOWN)} for row in rows]
    base = alt.Chart(inline(shown)).encode(
        x=alt.X(
            "responses:Q",
            title="best responses",
            scale=alt.Scale(type="log", domain=[1, 1500], nice=False),
            axis=alt.Axis(values=[1, 3, 10, 30, 100, 300, 1000], format=","),
        ),
        y=alt.Y(f"{field}:Q", title=title, axis=axis, scale=alt.Scale(type="log", domain=[LEAST_SHOWN, 2], nice=False)),
    )
    return _lines(base, looks, interpolate="step-after").properties(width=(WIDTH - 200) // 2, height=250)


def noise(rows: list[Spec], title: str) -> str:
    """Optimism and overspending against noise; `rows`: rule, noise, panel (heading, subheading), line, value.

    The first panel has an axis of its own, the others share one.
    """
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    charts = [_noise_panel([r for r in rows if r["panel"] == panel], panel) for panel in panels]
    shares = alt.hconcat(*charts[1:], spacing=24).resolve_scale(y="shared")
    return svg(alt.hconcat(charts[0], shares, spacing=24), title)


def _noise_panel(rows: list[Spec], panel: tuple[str, str]) -> Any:
    levels = sorted({row["noise"] for row in rows})
    data = [{key: value for key, value in row.items() if key != "panel"} for row in rows]
    base = alt.Chart(inline(data)).encode(
        x=alt.X(
            "noise:Q",
            title="sd of a measurement",
            axis=alt.Axis(values=levels, format=".1%"),
            scale=alt.Scale(domain=[0, 1.1 * levels[-1]], nice=False),
        ),
        y=alt.Y("value:Q", title=None, axis=alt.Axis(format="%", tickCount=6)),
        strokeDash=alt.StrokeDash(
            "line:N", legend=None, scale=alt.Scale(domain=["solid", "dashed"], range=[[1, 0], [4, 3]])
        ),
    )
    zero = alt.Chart(inline([{"y": 0}])).mark_rule(color=LINE).encode(y="y:Q")
    looks = {name: look for name, look in LOOKS.items() if name != COLUMN_GENERATION}
    heading = alt.TitleParams(
        panel[0], subtitle=panel[1], fontSize=12, fontWeight="normal", color=INK, anchor="start", subtitleColor=QUIET
    )
    return alt.layer(zero, _lines(base, looks)).properties(width=(WIDTH - 140) // 3, height=220, title=heading)


def _lines(base: Any, looks: dict[str, tuple[str, str]], **line: Any) -> Any:
    legend = alt.Legend(title=None, columns=5, symbolSize=70)
    base = base.encode(
        color=alt.Color("rule:N", scale=named_colors({n: color for n, (color, _) in looks.items()}), legend=legend)
    )
    shapes = alt.Scale(domain=list(looks), range=[shape for _, shape in looks.values()])
    points = base.mark_point(filled=True, size=42, opacity=1, strokeDash=[1, 0])
    return alt.layer(
        base.mark_line(strokeWidth=1.8, **line),
        points.encode(shape=alt.Shape("rule:N", scale=shapes, legend=legend), strokeDash=alt.Undefined),
    )


def svg(chart: Any, title: str) -> str:
    """A chart with its title, on white."""
    heading = alt.TitleParams(title, fontSize=13, fontWeight="bold", color=INK, anchor="start", offset=14)
    spec: Spec = chart.properties(title=heading).to_dict()
    spec["config"] = {**CONFIG, "background": "white", "aria": False}
    drawn: str = vl_convert.vegalite_to_svg(spec)
    return drawn


def captured(rows: list[Spec], title: str) -> str:
    """Median over seeds, with the range over seeds as a band; `rows`: method, budget, share."""
    names = {method: name for method, (_, name) in METHODS.items()}
    shown = [{**row, "method": names[row["method"]]} for row in rows if row["method"] in names]
    colours = {name: colour for colour, name in METHODS.values()}
    base = alt.Chart(inline(shown)).encode(
        x=alt.X("budget:Q", title="budget, yuan per decision"),
        color=alt.Color(
            "method:N",
            scale=named_colors(colours),
            title=None,
            legend=alt.Legend(
                orient="right", symbolType="stroke", symbolOpacity=1, symbolStrokeWidth=2, labelLimit=200
            ),
        ),
    )
    share = alt.Scale(domain=[0, 1], clamp=True)
    band = base.mark_area(opacity=0.15).encode(
        y=alt.Y(
            "min(share):Q", scale=share, title="captured share of what states are worth", axis=alt.Axis(format="%")
        ),
        y2="max(share):Q",
    )
    line = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=22)).encode(y=alt.Y("median(share):Q"))
    return svg((band + line).properties(width=480, height=300), title)
