"""The page of `outlay compare`: methods side by side at equal spend, complete in itself like the report's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outlay.comparing.results import CONTROLS, ORIGINAL, Comparison, StoredCount
from outlay.core.target import Target
from outlay.core.version import __version__
from outlay.pages import comparison_charts as charts
from outlay.pages import words
from outlay.pages.comparison_table import GROUPS, captures, lead, rows_of, table, ties
from outlay.pages.page import Figure, scripts, template
from outlay.pages.style import CONFIG


def render(comparison: Comparison) -> str:
    """The page."""
    c = comparison
    figures = _figures(c)
    specs = {figure.name: figure.spec for made in figures.values() for figure in made}
    lines = _stored(c)
    return template("comparison.html").render(
        c=c,
        words=words,
        groups=GROUPS,
        tables={control: table(c, control) for control in CONTROLS},
        leads={control: lead(c, control) for control in CONTROLS},
        ties={control: ties(c, control) for control in CONTROLS},
        truth=c.knows_truth,
        captures=captures(c),
        stored_by=_first_oracle(c),
        stored_words=_stored_words(lines),
        stored_frontier="frontier" in lines,
        figures=figures,
        specs=specs,
        config=CONFIG,
        scripts=scripts() if specs else None,
        version=__version__,
    )


def _figures(c: Comparison) -> dict[str, list[Figure]]:
    """The figures of each section; no data, no figure."""
    longest = max(c.report_days)
    made: dict[str, list[Figure]] = {}
    for control, title in CONTROLS.items():
        rows = rows_of(c, control)
        if any(str(Target("reward", longest)) in row.figures for row in rows):
            title = f"{c.reward_label} in {words.days(longest)}, {title}"
            made[control] = [Figure(f"{control}-rewards", title, charts.rewards(rows, longest, c.reward_label))]
    if "total" in made:
        for j, budget in enumerate(c.budgets):
            if spec := charts.plane(rows_of(c, "total"), budget, c.reward_label, c.horizon_days):
                made["total"].append(Figure(f"total-plane-{j}", f"Reward against {budget.name}", spec))
    if lines := _stored(c):
        made["stored"] = [Figure("stored-parameters", "Stored parameters", charts.stored(lines))]
    return made


def _first_oracle(c: Comparison) -> str:
    """The oracle whose rules the figure of stored parameters shows, as its rows are called."""
    return next((charts.family(row) for row in c.rows if row.name in c.stored), "")


def _stored(c: Comparison) -> dict[str, tuple[StoredCount, ...]]:
    """{rule: its parameters over training}, of the first oracle, and those of the original method."""
    rows = [row for row in c.rows if row.name in c.stored]
    lines = {str(row.rule): c.stored[row.name] for row in rows if row.oracle == rows[0].oracle}
    if lines and ORIGINAL in c.stored:
        lines[ORIGINAL] = c.stored[ORIGINAL]
    return {name: course for name, course in lines.items() if course}


def _stored_words(lines: Mapping[str, Sequence[StoredCount]]) -> str:
    """The parameters of each rule in store at the end, the mean over seeds, as in the figure and the tables."""
    parts = [f"{name} {words.short(course[-1].mean)}" for name, course in lines.items()]
    return f"Parameters in store at the end: {', '.join(parts)}"
