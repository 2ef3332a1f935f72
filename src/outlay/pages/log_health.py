"""The page of `outlay check --report`: the health of a log, with charts that need no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from markupsafe import Markup

from outlay.core.actions import Given, shown
from outlay.core.campaign import Campaign
from outlay.core.wording import counted, days, exact, number, percent
from outlay.evaluating.log_check import CheckReport
from outlay.logs.by_day import DayRows
from outlay.pages.amounts import Names, capital
from outlay.pages.page import Spec, in_colours, inline, template
from outlay.pages.tables import Cell, Look, Table, kept, numbers, row, words

WIDTH, HEIGHT = 430, 200
MOST_ACTIONS = 6  # drawn by name; the others are one
COLOURS = ("blue", "orange", "green", "plum", "gold", "sky", "quiet")
LOOKS: Mapping[str, Look] = {"error": "no"}


@dataclass(frozen=True)
class Chart:
    """A figure: its title, what a screen reader says, and the drawing."""

    title: str
    words: str
    svg: Markup


def render(found: CheckReport, campaign: Campaign) -> str:
    """The page."""
    names = Names(campaign)
    return template("log_health.html").render(
        found=found,
        campaign=campaign,
        names=names,
        decision=decision(found),
        facts=facts(found),
        charts=charts(found, names),
        findings=findings(found),
        given=given(found, campaign),
        joins=joined(found),
        effects=effects(found, campaign),
    )


def decision(found: CheckReport) -> str:
    """Whether to go on, and with what."""
    errors = [each for each in found.findings if each.level == "error"]
    warnings = [each for each in found.findings if each.level == "warning"]
    if errors:
        return f"Repair the log first: {counted(len(errors), 'error')} {'stop' if len(errors) > 1 else 'stops'} it."
    if found.assignment is not None and found.assignment.drivers:
        return "Train on it if you like, but nothing will be certified: something unlogged drove who was given what."
    if warnings:
        return f"Go on, but read {counted(len(warnings), 'warning')} first: results are weaker than they look."
    return "Go on: nothing was found that stands against learning from this log."


def facts(found: CheckReport) -> list[tuple[str, str, str]]:
    """The figures that matter most: what, value, note."""
    cards = [("users", number(found.users), f"{number(found.rows)} rows")]
    if not found.once:
        cards.append(("days", number(found.days), f"{found.first} to {found.last}"))
    drawn = found.randomisation
    if drawn is not None:
        cards.append(("given at random", "yes" if drawn.looks_randomised else "no", drawn.verdict))
    if found.state is not None and not found.once:
        told = {True: "yes", False: "no", None: "not tested"}[found.state.ok]
        cards.append(("the columns tell enough", told, f"{capital(found.state.words)}."))
    return cards


def charts(found: CheckReport, names: Names) -> list[Chart]:
    """Rows and actions of every day, and the propensities."""
    made = []
    if len(found.by_day) > 1:
        made += [_rows(found.by_day), _given(found.by_day, names)]
    if any(found.propensities):
        made.append(_propensities(found.propensities))
    return made


def _rows(by_day: Sequence[DayRows]) -> Chart:
    data: list[Spec] = [{"day": i, "rows": each.rows} for i, each in enumerate(by_day)]
    least, most = (end(by_day, key=lambda each: each.rows) for end in (min, max))
    title = "Rows of each day" if by_day[0].days == 1 else f"Rows a day, in spans of {days(by_day[0].days)}"
    chart = alt.Chart(inline(data)).mark_bar(color="var(--blue)", width=alt.RelativeBandSize(0.85))
    chart = chart.encode(x=_days(by_day), y=alt.Y("rows:Q", title=None, axis=alt.Axis(tickCount=4, format="~s")))
    said = f"{title}: from {number(least.rows)} on {least.first} to {number(most.rows)} on {most.first}"
    return Chart(title, said, _drawn(chart))


def _given(by_day: Sequence[DayRows], names: Names) -> Chart:
    totals: dict[Given, float] = {}
    for each in by_day:
        for action, share in each.given.items():
            totals[action] = totals.get(action, 0.0) + share * each.rows * each.days
    ordered = sorted(totals, key=lambda action: -totals[action])
    drawn, others = ordered[:MOST_ACTIONS], ordered[MOST_ACTIONS:]
    called = {action: names.campaign.called("actions", shown(action)).label for action in drawn}
    data: list[Spec] = []
    for i, each in enumerate(by_day):
        data += [{"day": i, "what": called[a], "share": each.given.get(a, 0.0), "at": k} for k, a in enumerate(drawn)]
        if others:
            rest = sum(each.given.get(a, 0.0) for a in others)
            data.append({"day": i, "what": "others", "share": rest, "at": MOST_ACTIONS})
    order = [*called.values(), *(["others"] if others else [])]
    scale = alt.Scale(domain=order, range=[f"var(--{colour})" for colour in COLOURS[: len(order)]])
    chart = alt.Chart(inline(data)).mark_bar(width=alt.RelativeBandSize(0.95))
    chart = chart.encode(
        x=_days(by_day),
        y=alt.Y("share:Q", title=None, axis=alt.Axis(format="%", tickCount=4), scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("what:N", scale=scale, legend=alt.Legend(title=None, columns=4)),
        order=alt.Order("at:Q"),
    )
    whole = sum(totals.values()) or 1.0
    shares = ", ".join(f"{called[action]} {percent(totals[action] / whole)}" for action in drawn)
    title = f"{capital(names.things)} given by day, where there was a choice"
    return Chart(title, f"{title}: {shares}", _drawn(chart))


def _propensities(bins: Sequence[int]) -> Chart:
    step, whole = 1 / len(bins), sum(bins)
    data: list[Spec] = [{"from": i * step, "to": (i + 1) * step, "share": n / whole} for i, n in enumerate(bins)]
    chart = alt.Chart(inline(data)).mark_bar(color="var(--blue)")
    chart = chart.encode(
        x=alt.X("from:Q", title="stated propensity of what was given", scale=alt.Scale(domain=[0, 1]), bin="binned"),
        x2="to:Q",
        y=alt.Y("share:Q", title=None, axis=alt.Axis(format="%", tickCount=4)),
    )
    least = next(i for i, n in enumerate(bins) if n) * step
    said = f"Propensities of {number(whole)} rows with a choice, from {exact(least)} upwards"
    return Chart("Propensities: share of the rows with a choice", said, _drawn(chart))


def _days(by_day: Sequence[DayRows]) -> Any:
    """The axis of days: the first, the last and some between, as the log has them."""
    last = len(by_day) - 1
    ticks = sorted({round(last * share / 4) for share in range(5)})
    labels = {i: str(by_day[i].first) for i in ticks}
    told = " : ".join(f"datum.value === {i} ? '{text}'" for i, text in labels.items()) + " : ''"
    axis = alt.Axis(values=ticks, labelExpr=told, grid=False, labelFlush=True, labelAngle=0)
    return alt.X("day:O", title=None, axis=axis)


def _drawn(chart: Any) -> Markup:
    spec: Spec = chart.properties(width=WIDTH - 60, height=HEIGHT - 40).to_dict(validate=False)
    return in_colours(spec)


# Tables.


def findings(found: CheckReport) -> Table:
    """What is wrong or worth knowing, where, and the way out."""
    rows = (
        row(
            Cell(each.level, look=LOOKS.get(each.level, "")),
            each.where,
            Cell(each.message, each.way_out),
            look=each.level,
        )
        for each in found.findings
    )
    return Table("Findings", words("what", "where", "found, and the way out"), tuple(rows))


def given(found: CheckReport, campaign: Campaign) -> Table:
    """How often each action was given."""
    overlap = {each.action: each for each in found.overlap}
    choices = max(sum(each.choices for each in found.actions), 1)
    rows = []
    for each in found.actions:
        known = overlap.get(each.called)
        rows.append(
            row(
                campaign.called("actions", shown(each.called)).label,
                number(each.count),
                percent(each.choices / choices, 1),
                "–" if known is None else Cell(percent(known.least_share, 1), f"in {known.least_segment}"),
                "–" if known is None or known.least_propensity is None else percent(known.least_propensity, 2),
            )
        )
    heads = ("rows", "share of choices", "least share of a segment", "least propensity")
    return Table("What was given", (*words("action"), *numbers(*heads)), tuple(rows))


def joined(found: CheckReport) -> Table:
    """How the rows of users join, and what is missing."""
    lines: list[tuple[str, int, str]] = []
    if found.joins is not None and not found.once:
        lines = [
            ("followed on the next day", found.joins.next_day, ""),
            ("followed later", found.joins.later, "days between have no row"),
            ("the last of their user", found.joins.last, ""),
            ("beyond the first of their user and day", found.duplicates, ""),
        ]
    lines += [(f"without {name}", count, "") for name, count in found.missing.items() if count]
    rows = (row(Cell(what, note), number(n), percent(n / max(found.rows, 1), 1)) for what, n, note in lines)
    return Table("How rows join", (*words("rows"), *numbers("how many", "of all")), tuple(rows))


def effects(found: CheckReport, campaign: Campaign) -> Table | None:
    """What the first day's action did, over the most days; None where it is not known."""
    longest = max((each.days for each in found.effects), default=0)
    known = [each for each in found.effects if each.days == longest]
    if not known or found.contrast is None:
        return None
    rows = (
        row(
            campaign.called("segments", str(each.segment)).label,
            number(each.users),
            Cell(number(each.effect), f"{number(each.low)} to {number(each.high)}"),
            kept(each.low > 0 if each.low > 0 or each.high < 0 else None),
        )
        for each in known
    )
    return Table("", (*words("segment"), *numbers("users", "effect"), *words("more")), tuple(rows))
