"""The figure of the frontier's quality: captured share against the budget, a line a method. Rows in, SVG out."""

from __future__ import annotations

import altair as alt

from outlay.pages.style import BLUE, GREEN, GREY, ORANGE, PURPLE, Spec, inline, named_colors
from random_games_charts import svg

LOOKS = {  # method: colour, and its name in the figure
    "frontier, counted": (BLUE, "frontier, counted"),
    "frontier, bcq": ("#56b4e9", "frontier, bcq"),
    "plug-in (counted, not smoothed)": (GREEN, "plug-in"),
    "aim-greedy, bcq (3 budgets)": (PURPLE, "aim-greedy, bcq"),
    "DeepFM, 7-day label": (ORANGE, "DeepFM, 7 days"),
    "1-day rule, true responses": (GREY, "1-day rule"),
}


def captured(rows: list[Spec], title: str) -> str:
    """Median over seeds, with the range over seeds as a band; `rows`: method, budget, share."""
    names = {method: name for method, (_, name) in LOOKS.items()}
    shown = [{**row, "method": names[row["method"]]} for row in rows if row["method"] in names]
    colours = {name: colour for colour, name in LOOKS.values()}
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
