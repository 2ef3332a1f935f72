"""The report page: results of a run in, one self-contained HTML page out. Parts without results are left out."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from outlay.choosing.estimators import ESTIMATORS
from outlay.core.estimate import Estimate
from outlay.core.version import __version__
from outlay.pages import charts, course, evidence_charts, evidence_words, plane, report_words, words
from outlay.pages import evidence_tables as tables
from outlay.pages.page import Figure, scripts, template
from outlay.pages.results import RunResults
from outlay.pages.style import CONFIG, Spec


def render(results: RunResults) -> str:
    """Return the page."""
    figures = {section: made for section, made in _figures(results).items() if made}
    specs = {figure.name: figure.spec for made in figures.values() for figure in made}
    return template("report.html").render(
        results=results,
        evaluation=results.evaluation,
        words=words,
        findings=report_words,
        evidence=evidence_words,
        tables=tables,
        estimators=ESTIMATORS,
        figures=figures,
        specs=specs,
        config=CONFIG,
        scripts=scripts() if specs else None,
        table=_result_table(results),
        settings={group: values for group, values in report_words.settings(results).items() if values},
        version=__version__,
    )


def _figures(results: RunResults) -> dict[str, list[Figure]]:
    """Return the figures of each section, in the order of the page."""
    made = defaultdict[str, list[Figure]](list)

    def add(section: str, title: str, spec: Spec) -> None:
        made[section].append(Figure(f"{section}-{len(made[section])}", title, spec))

    if any(row.totals for row in results.policies):
        add("policies", f"What users do: {results.reward_label}", charts.policy_totals(results))
    for budget in results.budgets:
        if any(budget.name in row.costs for row in results.policies):
            add("policies", f"What it costs: {budget.name}", charts.policy_costs(results, budget))
    for j, budget in enumerate(results.budgets):
        if results.candidates or results.run.members:
            add("plane", f"Reward against {budget.name}", plane.measurement_plane(results, j))
    if results.evaluation is not None:
        for section, title, spec in _evaluation_figures(results):
            add(section, title, spec)
    for record in results.run.calibration:
        add("calibration", report_words.calibration_title(results, record), charts.calibration(results, record))
    if len(results.course) > 1:
        add("training", "λ, the price of the budget", course.multipliers(results))
        for j, budget in enumerate(results.budgets):
            if any(c.critic for c in results.course):
                add("training", f"{budget.name}, by the critic", course.measured_cost(results, j))
        if any(c.loss for c in results.course):
            add("training", "Loss of the critic", course.training_loss(results))
        if any(c.stored_parameters for c in results.course):
            add("stored", "Stored parameters", course.stored_parameters(results))
    return made


def _evaluation_figures(results: RunResults) -> list[tuple[str, str, Spec]]:
    """Return section, title and chart of each figure of the evaluation."""
    evaluation = results.evaluated
    made: list[tuple[str, str, Spec]] = []
    if evaluation.shares:
        made.append(("shares", "How often each value is given", charts.action_shares(results)))
        made.append(("shares", "Mean value given", charts.mean_action(results)))
    for target in tables.segment_targets(results):
        gains = [line.gain for line in results.segments if line.gain.target == target]
        if any(e.value is not None for e in gains):
            title = report_words.target(results, target)
            made.append(("segments", title, evidence_charts.segment_gains(results, gains)))
    if not evidence_words.refusal(results):
        for budget, line, margin in evidence_words.certificate_lines(results):
            made.append(("certificate", budget.name, evidence_charts.certificate_bound(budget, line, margin)))
    for estimates in tables.compared(results):
        title = report_words.target(results, estimates[0].target)
        made.append(("estimates", title, evidence_charts.estimators(results, estimates)))
    if paths := evaluation.diagnostics.paths:
        made.append(("evidence", "Logged paths that match the policy", evidence_charts.matching_paths(paths)))
    if overlap := evaluation.diagnostics.overlap:
        made.append(("evidence", "Weights of single decisions", evidence_charts.mean_ratios(overlap)))
    if evaluation.daily:
        made.append(("daily", results.reward_label, charts.daily(results, None)))
        for j, budget in enumerate(results.budgets):
            made.append(("daily", budget.name, charts.daily(results, j)))
    return made


def _result_table(results: RunResults) -> dict[str, Any] | None:
    """Return the heads of the columns, and rows of cells, rounded alike within a column."""
    rows = results.policies
    if not rows:
        return None
    columns: list[tuple[str, str, list[Estimate | None]]] = [
        (words.days(d), results.reward_label, [row.totals.get(d) for row in rows])
        for d in sorted({d for row in rows for d in row.totals})
    ]
    columns += [(b.name, words.limit(b), [row.costs.get(b.name) for row in rows]) for b in results.budgets]
    columns = [column for column in columns if any(column[2])]
    digits = [words.decimals(cells) for _, _, cells in columns]
    return {
        "heads": [(head, note) for head, note, _ in columns],
        "rows": [
            (row, [_cell(cells[i], n) for (_, _, cells), n in zip(columns, digits, strict=True)])
            for i, row in enumerate(rows)
        ],
    }


def _cell(estimate: Estimate | None, digits: int) -> tuple[str, str]:
    """Return value and interval in words."""
    if estimate is None:
        return words.NONE, ""
    value, ends = evidence_words.estimate(estimate, digits)
    return value, "" if ends == words.NONE else ends
