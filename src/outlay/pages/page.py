"""The report page: content in, one self-contained HTML page out.

The scripts that draw the figures are embedded once; a content security policy forbids the page every request, so that
it shows the same on a plane, in an archive and behind a strict firewall. Whatever comes from users' files is escaped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from outlay.core.version import __version__
from outlay.pages import charts, course, evidence_charts, evidence_words, learned_words, plane, words
from outlay.pages import evidence_tables as tables
from outlay.pages.content import Interval, ReportContent
from outlay.pages.style import CONFIG, Spec


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with the words under its title.

    Attributes:
        name: its id on the page.
        title: what it is, short.
        spec: Vega-Lite.
    """

    name: str
    title: str
    spec: Spec


def render(content: ReportContent) -> str:
    """The page. Parts that `content` lacks are left out, with their headings."""
    figures = {section: made for section, made in _figures(content).items() if made}
    specs = {figure.name: figure.spec for made in figures.values() for figure in made}
    chosen, others = tables.listed(content)
    return template("page.html").render(
        c=content,
        words=words,
        learned=learned_words,
        said=evidence_words,
        figures=figures,
        specs=specs,
        config=CONFIG,
        scripts=scripts() if specs else None,
        headline=words.headline(content),
        table=_result_table(content),
        by_segment=tables.segments(content),
        by_estimator=tables.side_by_side(content, chosen),
        differences=[(each.title, tables.side_by_side(content, each.estimates)) for each in content.against],
        chosen_estimates=chosen,
        other_estimates=others,
        reasons=evidence_words.reasons(content),
        means=words.mean_actions(content),
        settings={group: values for group, values in content.settings.items() if values},
        version=__version__,
    )


def _figures(content: ReportContent) -> dict[str, list[Figure]]:
    """The figures of each section, in the order of the page; no data, no figure."""
    c, made = content, defaultdict[str, list[Figure]](list)

    def add(section: str, title: str, spec: Spec) -> None:
        made[section].append(Figure(f"{section}-{len(made[section])}", title, spec))

    if any(row.totals for row in c.policies):
        add("policies", f"What users do: {c.reward_label}", charts.policy_totals(c))
    for budget in c.budgets:
        if any(budget.name in row.costs for row in c.policies):
            add("policies", f"What it costs: {budget.name}", charts.policy_costs(c, budget))
    for j, budget in enumerate(c.budgets):
        if c.candidates or c.members:
            add("plane", f"Reward against {budget.name}", plane.measurement_plane(c, j))
    if c.shares:
        add("shares", "How often each value is given", charts.action_shares(c))
        add("shares", "Mean value given", charts.mean_action(c))
    for target in tables.segment_targets(c):
        lines = [line for line in c.segments if line.target == target]
        if any(line.gain.value is not None for line in lines):
            add("segments", words.target(c, target), evidence_charts.segment_gains(c, lines))
    if c.certificate and not c.certificate.refused:
        for bound in c.certificate.bounds:
            add("certificate", bound.budget, evidence_charts.certificate_bound(c, bound))
    for estimates in tables.compared(c):
        add("estimates", words.target(c, estimates[0].target), evidence_charts.estimators(c, estimates))
    if c.evidence and c.evidence.paths:
        add("evidence", "Logged paths that go the policy's way", evidence_charts.matching_paths(c))
    if c.evidence and c.evidence.overlap:
        add("evidence", "Weights of single decisions", evidence_charts.mean_ratios(c))
    for line in c.calibration:
        add("calibration", learned_words.calibration_title(c, line), charts.calibration(c, line))
    if len(c.training) > 1:
        add("training", "λ, the price of the budget", course.multipliers(c))
        for j, budget in enumerate(c.budgets):
            if any(t.measured for t in c.training):
                add("training", f"{budget.name}, by the critic", course.measured_cost(c, j))
        if any(t.loss for t in c.training):
            add("training", "Loss of the critic", course.training_loss(c))
        if any(t.stored_parameters for t in c.training):
            add("stored", "Stored parameters", course.stored_parameters(c))
    if c.daily:
        add("daily", c.reward_label, charts.daily(c, None))
        for j, budget in enumerate(c.budgets):
            add("daily", budget.name, charts.daily(c, j))
    return made


def _result_table(content: ReportContent) -> dict[str, Any] | None:
    """Columns with their digits, and rows of cells, rounded alike within a column."""
    if not content.policies:
        return None
    rows = content.policies
    columns: list[tuple[str, str, list[Interval | None]]] = [
        (words.days(d), content.reward_label, [row.totals.get(d) for row in rows])
        for d in sorted({d for row in rows for d in row.totals})
    ]
    columns += [(b.name, words.limit(b), [row.costs.get(b.name) for row in rows]) for b in content.budgets]
    columns = [column for column in columns if any(column[2])]
    digits = [words.decimals(cells) for _, _, cells in columns]
    return {
        "heads": [(head, note) for head, note, _ in columns],
        "rows": [
            (row, [_cell(cells[i], n) for (_, _, cells), n in zip(columns, digits, strict=True)])
            for i, row in enumerate(rows)
        ],
    }


def _cell(interval: Interval | None, digits: int) -> tuple[str, str]:
    """Value and interval in words."""
    if interval is None:
        return words.NONE, ""
    if interval.low is None or interval.high is None:
        return words.number(interval.value, digits), ""
    ends = words.number(interval.low, digits), words.number(interval.high, digits)
    return words.number(interval.value, digits), f"{ends[0]} to {ends[1]}"


@cache
def template(name: str) -> Template:
    """A page's template of this folder, which may include its neighbours."""
    environment = Environment(
        loader=PackageLoader("outlay.pages", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["setting"] = _setting
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template(name)


@cache
def scripts() -> Markup:
    """Vega, Vega-Lite and Vega-Embed in one script that may stand inside HTML."""
    source: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(source.replace("</script", "<\\/script").replace("<!--", "<\\!--"))  # our own dependency's text


def _setting(value: object) -> str:
    """A setting as a reader writes it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_setting(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_setting(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return words.plain(value)
    return words.NONE if value is None else str(value)
