"""The report page: results of a run in, one self-contained HTML page out. Parts without results are left out."""

from __future__ import annotations

from collections import defaultdict

from outlay.pages import evaluation_charts as charts
from outlay.pages import evaluation_words, results, tables, training_charts
from outlay.pages.page import Figure, Spec, rendered
from outlay.pages.results import RunResults


def render(run: RunResults) -> str:
    """Return the page."""
    return rendered(
        "report.html",
        {section: made for section, made in _figures(run).items() if made},
        results=run,
        evaluation=run.evaluation,
        findings=results,
        evidence=evaluation_words,
        tables=tables,
        settings={group: values for group, values in results.settings(run).items() if values},
    )


def _figures(run: RunResults) -> dict[str, list[Figure]]:
    """Return the figures of each section, in the order of the page."""
    made = defaultdict[str, list[Figure]](list)

    def add(section: str, title: str, spec: Spec) -> None:
        made[section].append(Figure(f"{section}-{len(made[section])}", title, spec))

    if any(row.totals for row in run.policies):
        add("policies", f"What users do: {run.reward_label}", charts.policy_totals(run))
    for budget in run.budgets:
        if any(budget.name in row.costs for row in run.policies):
            add("policies", f"What it costs: {budget.name}", charts.policy_costs(run, budget))
    for j, budget in enumerate(run.budgets):
        if run.candidates or run.run.members:
            add("plane", f"Reward against {budget.name}", training_charts.measurement_plane(run, j))
    if run.evaluation is not None:
        for section, title, spec in _evaluation_figures(run):
            add(section, title, spec)
    for record in run.run.calibration:
        add("calibration", results.calibration_title(run, record), training_charts.calibration(run, record))
    if len(run.course) > 1:
        add("training", "λ, the price of the budget", training_charts.multipliers(run))
        for j, budget in enumerate(run.budgets):
            if any(c.critic for c in run.course):
                add("training", f"{budget.name}, by the critic", training_charts.measured_cost(run, j))
        if any(c.loss for c in run.course):
            add("training", "Loss of the critic", training_charts.training_loss(run))
        if any(c.stored_parameters for c in run.course):
            add("stored", "Stored parameters", training_charts.stored_parameters(run))
    return made


def _evaluation_figures(run: RunResults) -> list[tuple[str, str, Spec]]:
    """Return section, title and chart of each figure of the evaluation."""
    evaluation = run.evaluated
    made: list[tuple[str, str, Spec]] = []
    if evaluation.shares:
        made.append(("shares", "How often each value is given", charts.action_shares(run)))
        made.append(("shares", "Mean value given", charts.mean_action(run)))
    for target in tables.segment_targets(evaluation, run.campaign):
        gains = [e for e in evaluation.segments if e.policy == "gain" and e.target == target]
        if any(e.value is not None for e in gains):
            made.append(("segments", run.quantity(target), charts.segment_gains(run, gains)))
    if not evaluation_words.refusal(run):
        margins = run.run.manifest["margin"]
        for budget, line, margin in zip(run.budgets, evaluation.certificate.budgets, margins, strict=True):
            made.append(("certificate", budget.name, charts.certificate_bound(budget, line, margin)))
    for estimates in charts.compared(run):
        made.append(("estimates", run.quantity(estimates[0].target), charts.estimators(run, estimates)))
    if paths := evaluation.diagnostics.paths:
        made.append(("evidence", "Logged paths that match the policy", charts.matching_paths(paths)))
    if overlap := evaluation.diagnostics.overlap:
        made.append(("evidence", "Weights of single decisions", charts.mean_ratios(overlap)))
    if evaluation.daily:
        made.append(("daily", run.reward_label, charts.daily(run, None)))
        for j, budget in enumerate(run.budgets):
            made.append(("daily", budget.name, charts.daily(run, j)))
    return made
