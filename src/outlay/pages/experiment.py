"""The page of an A/B test: content in, one self-contained HTML page out, like the report's page."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from outlay.core.version import __version__
from outlay.pages import experiment_charts as charts
from outlay.pages import experiment_sections as found
from outlay.pages import experiment_words as said
from outlay.pages import words
from outlay.pages.experiment_content import ArmComparison, ArmLine, Effect, ExperimentContent, MetricLine
from outlay.pages.page import Figure, scripts, template
from outlay.pages.style import CONFIG


def render(content: ExperimentContent) -> str:
    """The page. Parts that `content` lacks are left out, with their headings."""
    figures = _figures(content)
    specs = {figure.name: figure.spec for made in figures.values() for figure in made}
    return template("experiment.html").render(
        c=content,
        words=words,
        said=said,
        found=found,
        figures=figures,
        specs=specs,
        config=CONFIG,
        scripts=scripts() if specs else None,
        courses={arm.arm: _courses(arm) for arm in content.comparisons},
        by_group={arm.arm: _groups(arm) for arm in content.comparisons if arm.groups},
        metrics={arm.arm: [_metric(line) for line in arm.metrics] for arm in content.comparisons},
        exposed={arm.arm: [_metric(line) for line in arm.exposed] for arm in content.comparisons},
        widened=any(line.cautious for arm in content.comparisons for line in (*arm.metrics, *arm.exposed)),
        spent=_spent(content),
        settings={group: values for group, values in content.settings.items() if values},
        version=__version__,
    )


def _figures(c: ExperimentContent) -> dict[str, list[Figure]]:
    """The figures of each section; no data, no figure."""
    made = defaultdict[str, list[Figure]](list)

    def add(section: str, title: str, spec: Any) -> None:
        if spec is not None:
            made[section].append(Figure(f"{section}-{len(made[section])}", title, spec))

    for i, arm in enumerate(c.comparisons):
        if arm.course is not None:
            add(f"lift-{i}", f"{c.metric}: {arm.arm} against {c.control}", charts.effect_by_day(c, arm.course, arm))
        for guardrail in arm.guardrails:
            add(f"guardrails-{i}", guardrail.metric, charts.effect_by_day(c, guardrail, arm))
        add(f"metrics-{i}", f"{arm.arm} against {c.control}", charts.metrics(c, arm))
        add(f"segments-{i}", f"{c.metric}: {arm.arm} against {c.control}", charts.groups(c, arm))
    if any(arm.budget and arm.spent_by_day for arm in c.arms):
        add("spend", "Spending against the plan", charts.spending(c))
    if c.promised:
        add("promised", "Promised and happened", charts.promises(c))
    return dict(made)


def _courses(arm: ArmComparison) -> dict[str, Any]:
    """Every followed metric by day: value, interval for all days."""
    courses = (*((arm.course,) if arm.course else ()), *arm.guardrails)
    effects = {course.metric: {day.day: day.always for day in course.days} for course in courses}
    days = sorted({day for by_day in effects.values() for day in by_day})
    return {
        "heads": list(effects),
        "rows": [([day], [_cell(by_day.get(day)) for by_day in effects.values()]) for day in days],
    }


def _spent(c: ExperimentContent) -> dict[str, Any]:
    """What each arm has spent by day, and as a share of its budget."""
    arms = [arm for arm in c.arms if arm.spent_by_day]

    def cell(arm: ArmLine, spent: float) -> tuple[str, str, bool]:
        return found.money(spent), found.share(spent / arm.budget, 1) if arm.budget else "", True

    days = zip(*(arm.spent_by_day for arm in arms), strict=True)
    rows = [
        ([day], [cell(arm, spent) for arm, spent in zip(arms, after, strict=True)]) for day, after in enumerate(days, 1)
    ]
    return {"heads": [arm.name for arm in arms], "rows": rows}


def _groups(arm: ArmComparison) -> dict[str, Any]:
    """Every metric by segment."""
    return {
        "heads": [line.name for line in arm.groups[0].metrics],
        "rows": [
            ([group.name, words.number(group.users, 0)], [_cell(line.effect) for line in group.metrics])
            for group in arm.groups
        ],
    }


def _cell(effect: Effect | None) -> tuple[str, str, bool]:
    """Value, interval, and that it is relied on, as `tables.html` has it."""
    return (words.NONE, "", True) if effect is None else (said.value(effect), said.ends(effect), True)


def _metric(line: MetricLine) -> tuple[MetricLine, list[tuple[str, str]]]:
    """A metric with its cells: control, arm, difference, relative difference, saved by CUPED."""
    if line.effect is None or line.control is None or line.treatment is None:
        return line, []
    digits = words.decimals([line.effect.absolute])
    difference = Effect(line.effect.absolute, None)
    return line, [
        (words.number(line.control, digits), ""),
        (words.number(line.treatment, digits), ""),
        (said.value(difference).removesuffix(" per user"), said.ends(difference).removesuffix(" per user")),
        _cell(line.effect)[:2] if line.effect.relative is not None else (words.NONE, ""),
        (words.NONE if line.saved is None else words.percent(max(line.saved, 0.0)), ""),
    ]
