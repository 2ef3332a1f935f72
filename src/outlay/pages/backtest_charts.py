"""The figures of the backtest: predicted and observed means, day by day."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from outlay.estimators.backtest import BacktestDay
from outlay.pages.style import (
    BLUE,
    ORANGE,
    Spec,
    finished,
    inline,
    named_colors,
    scale_around,
    value_tip,
)  # fmt: skip

PREDICTED, OBSERVED = "predicted", "observed"


def backtest(lines: Sequence[BacktestDay], title: str) -> Spec:
    """Draw one outcome: the predictions with their intervals, and what came."""
    scale = scale_around([end for line in lines for end in (line.low, line.high, line.observed)])
    axis = alt.Axis(values=[line.day for line in lines], format="d")
    x = alt.X("day:Q", title="day of the log", axis=axis, scale=alt.Scale(zero=False, nice=False, padding=20))
    colors = named_colors({PREDICTED: BLUE, OBSERVED: ORANGE})
    color = alt.Color("what:N", scale=colors, legend=alt.Legend(title=None))
    ends = [{"day": line.day, "low": line.low, "high": line.high, "what": PREDICTED} for line in lines]
    dots = [
        {"day": line.day, "value": value, "what": what}
        for line in lines
        for what, value in ((PREDICTED, line.predicted), (OBSERVED, line.observed))
    ]
    bars = alt.Chart(inline(ends)).mark_rule(strokeWidth=3, opacity=0.5)
    points = alt.Chart(inline(dots)).mark_point(filled=True, size=60, opacity=1)
    layers = [
        bars.encode(x=x, y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q", color=color),
        points.encode(
            x=x, y=alt.Y("value:Q", scale=scale), color=color, shape=alt.Shape("what:N", legend=None),
            tooltip=[value_tip("day", "day"), value_tip("value", title)],
        ),
    ]  # fmt: skip
    return finished(alt.layer(*layers), 180, f"{title}, predicted and observed by day")
