"""Charts of results for notebooks: `result.plot()`.

outlay.frontier("run").plot()                       # what every budget buys
outlay.check("campaign.toml").plot("given")         # the actions given by day
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from outlay.core.actions import shown
from outlay.core.errors import OutlayError, nearest
from outlay.evaluating.budget_curve import BudgetCurve
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.log_check import CheckReport
from outlay.experiments.results import Analysis, Course
from outlay.pages.page import CONFIG, GREY, Spec, inline, scale_around

Charts = Mapping[str, Callable[[], Any]]
NOW, NEW = "now", "new"


def plot(result: object, what: str | None = None) -> Any:
    """Return a chart of a result.

    Args:
        result: an evaluation, a frontier, a check, or the analysis of a test.
        what: which chart; None: the first.

    Raises:
        OutlayError: if there is none.
    """
    charts = _charts(result)
    name = next(iter(charts), "") if what is None else what
    if name not in charts:
        found = f"has no chart {name!r}." if charts else "has no chart."
        raise OutlayError(found, where=type(result).__name__, way_out=nearest(name, charts, "Charts"))
    return charts[name]().configure(**{key: value for key, value in CONFIG.items() if key != "background"})


def _charts(result: object) -> Charts:
    """The charts of a result by name, as far as it has what they show."""
    if isinstance(result, BudgetCurve):
        return {"curve": lambda: _curve(result)}
    if isinstance(result, CheckReport) and result.by_day:
        return {"rows": lambda: _rows(result), "given": lambda: _given(result)}
    if isinstance(result, Evaluation):
        days = {"reward": lambda: _by_day(result, "reward"), "money": lambda: _by_day(result, "money")}
        intervals = {"estimates": lambda: _estimates(result)}
        return {**days, **intervals} if result.totals and result.totals.by_day else intervals
    if isinstance(result, Analysis):
        courses = [(arm.arm, course) for arm in result.comparisons for course in arm.courses if course.points]
        return {f"{course.metric}, {arm}": lambda course=course: _course(course) for arm, course in courses}  # type: ignore[misc]
    return {}


def _curve(curve: BudgetCurve) -> Any:
    """What every budget buys, with its interval, beside the old policy: totals where they are told."""
    told = curve.totals is not None and all(p.totals is not None for p in curve.curve)
    rows: list[Spec] = []
    for p in curve.curve:
        found = p.totals.reward if told and p.totals is not None else p
        rows.append({"budget": p.budget, "value": found.value, "low": found.low, "high": found.high})
    span = "" if curve.totals is None or not told else f", all users, {curve.totals.days} days"
    x = alt.X("budget:Q", title=f"{curve.money}, {curve.unit} per {curve.money_limit.per}")
    scale = scale_around([row[end] for row in rows for end in ("low", "high")])
    y = alt.Y("value:Q", title=f"{curve.reward_label}{span}", scale=scale)
    base = alt.Chart(inline(rows)).encode(x=x, tooltip=["budget:Q", "value:Q", "low:Q", "high:Q"])
    layers = [
        base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q"),
        base.mark_line().encode(y=y),
    ]
    if curve.old is not None and not told:
        old = alt.Chart(inline([{"budget": curve.old.spend[curve.place], "value": curve.old.value, "name": NOW}]))
        layers.append(
            old.mark_point(shape="square", filled=True, size=110, color=GREY).encode(x=x, y=y, tooltip="name:N")
        )
    return alt.layer(*layers)


def _by_day(found: Evaluation, what: str) -> Any:
    """Reward or money of each day, now and with the policy."""
    assert found.totals is not None
    rows: list[Spec] = []
    for day in found.totals.by_day:
        each = getattr(day, what)
        policy = NOW if day.policy == "old" else NEW
        rows.append({"day": day.day, "policy": policy, "value": each.value, "low": each.low, "high": each.high})
    scale = scale_around([row["value"] for row in rows])
    base = alt.Chart(inline(rows)).encode(x=alt.X("day:Q", axis=alt.Axis(tickMinStep=1)), color="policy:N")
    band = base.mark_area(opacity=0.2, clip=True).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    line = base.mark_line(point=True, clip=True).encode(y=alt.Y("value:Q", title=f"{what}, all users", scale=scale))
    return alt.layer(band, line)


def _estimates(found: Evaluation) -> Any:
    """The policy beside the others, by the fitted evaluation, a panel for each quantity."""
    own = [e for e in (*found.estimates, *found.beside) if e.estimator == "fqe" and e.value is not None]
    rows: list[Spec] = [
        {
            "policy": found.policies.get(e.policy, e.policy),
            "of": e.target,
            "value": e.value,
            "low": e.low,
            "high": e.high,
        }
        for e in own
    ]
    base = alt.Chart(inline(rows)).encode(y=alt.Y("policy:N", title=None, sort=None))
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=None, scale=alt.Scale(zero=False)), x2="high:Q")
    points = base.mark_point(filled=True, size=60, opacity=1).encode(x="value:Q")
    layered = alt.layer(bars, points).properties(width=220)
    return layered.facet("of:N", columns=2).resolve_scale(x="independent")


def _rows(found: CheckReport) -> Any:
    """Rows of each day."""
    rows: list[Spec] = [{"day": str(each.first), "rows": each.rows} for each in found.by_day]
    return alt.Chart(inline(rows)).mark_bar().encode(x=alt.X("day:O", sort=None), y="rows:Q")


def _given(found: CheckReport) -> Any:
    """The actions given by day, as shares of the rows with a choice."""
    rows: list[Spec] = [
        {"day": str(each.first), "action": shown(action), "share": share}
        for each in found.by_day
        for action, share in each.given.items()
    ]
    y = alt.Y("share:Q", axis=alt.Axis(format="%"))
    return alt.Chart(inline(rows)).mark_bar().encode(x=alt.X("day:O", sort=None), y=y, color="action:N")


def _course(course: Course) -> Any:
    """A metric's effect after each day, with the band that holds on all days at once."""
    points: Sequence[Any] = [(p.day, p.on_all_days.relative or p.on_all_days.absolute) for p in course.points]
    rows: list[Spec] = [{"day": day, "value": x.value, "low": x.low, "high": x.high} for day, x in points]
    base = alt.Chart(inline(rows)).encode(x=alt.X("day:Q", axis=alt.Axis(tickMinStep=1)))
    band = base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", title=f"change in {course.metric}"), y2="high:Q")
    zero = alt.Chart(inline([{"at": 0.0}])).mark_rule(strokeDash=[5, 4]).encode(y="at:Q")
    return alt.layer(band, zero, base.mark_line(point=True).encode(y="value:Q"))
