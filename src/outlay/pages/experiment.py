"""The page of an A/B test: an analysis in, one self-contained HTML page out."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from outlay.core.errors import OutlayError
from outlay.core.files import new_file
from outlay.core.version import __version__
from outlay.core.wording import NONE, number
from outlay.experiments import words
from outlay.experiments.lift import ArmDifference, Lift, Withheld
from outlay.experiments.results import Analysis, ArmComparison, ArmState
from outlay.pages import experiment_charts as charts
from outlay.pages import experiment_words as page_words
from outlay.pages.page import Figure, scripts, template
from outlay.pages.style import CONFIG

Cell = tuple[str, str, bool]  # value, interval, whether it is relied on: as `tables.html` takes it


def check_page_path(path: str | Path) -> Path:
    """The path, if a page may be written there; to be called before the log is read.

    Raises:
        OutlayError: if it does not end in .html, or is a folder.
    """
    path = Path(path)
    if path.suffix != ".html" or path.is_dir():
        raise OutlayError(f"is {str(path)!r}.", where="--report", way_out="Give a file that ends in .html.")
    return path


def write_page(analysis: Analysis, path: str | Path) -> Path:
    """Write the page of a test: one self-contained HTML file; an existing one is replaced as a whole.

    Raises:
        OutlayError: as `check_page_path`.
    """
    path = check_page_path(path)
    with new_file(path) as temporary:
        temporary.write_text(render(analysis), encoding="utf-8")
    return path


def render(analysis: Analysis) -> str:
    """The page. Sections without data are left out, with their headings."""
    figures = _figures(analysis)
    specs = {figure.name: figure.spec for made in figures.values() for figure in made}
    lifts = [x for arm in analysis.comparisons for x in (*arm.lifts, *arm.exposed)]
    return template("experiment.html").render(
        a=analysis,
        meta=analysis.experiment.meta,
        words=words,
        page=page_words,
        figures=figures,
        specs=specs,
        config=CONFIG,
        scripts=scripts() if specs else None,
        courses={arm.arm: _courses(arm) for arm in analysis.comparisons},
        by_segment={arm.arm: _by_segment(arm) for arm in analysis.comparisons if arm.segments},
        widened=any(isinstance(x, Lift) and x.cautious for x in lifts),
        spent=_spent(analysis),
        settings=page_words.settings(analysis, __version__),
        version=__version__,
    )


def _figures(a: Analysis) -> dict[str, list[Figure]]:
    """The figures of each section; no data, no figure."""
    made = defaultdict[str, list[Figure]](list)

    def add(section: str, title: str, spec: Any) -> None:
        if spec is not None:
            made[section].append(Figure(f"{section}-{len(made[section])}", title, spec))

    metric = a.experiment.meta.metric
    for i, arm in enumerate(a.comparisons):
        against = f"{arm.arm} against {a.control}"
        if arm.course is not None:
            add(f"lift-{i}", f"{metric}: {against}", charts.effect_by_day(a, arm, arm.course))
        for guardrail in arm.guardrails:
            add(f"guardrails-{i}", guardrail.metric, charts.effect_by_day(a, arm, guardrail))
        add(f"metrics-{i}", against, charts.metrics(a, arm))
        add(f"segments-{i}", f"{metric}: {against}", charts.segments(a, arm))
    if any(arm.budget and arm.spent_by_day for arm in a.arms):
        add("spend", "Spending against the plan", charts.spending(a))
    if a.promised:
        add("promised", "Promised and happened", charts.promises(a))
    return dict(made)


def _courses(arm: ArmComparison) -> dict[str, Any]:
    """Every followed metric by day: value, and the interval for all days."""
    courses = [*([arm.course] if arm.course else []), *arm.guardrails]
    effects = {course.metric: {point.day: point.on_all_days for point in course.points} for course in courses}
    days = sorted({day for by_day in effects.values() for day in by_day})
    return {
        "heads": list(effects),
        "rows": [([day], [_cell(by_day.get(day)) for by_day in effects.values()]) for day in days],
    }


def _spent(a: Analysis) -> dict[str, Any]:
    """What each arm has spent by day, and as a share of its budget."""
    arms = [arm for arm in a.arms if arm.spent_by_day]

    def cell(arm: ArmState, spent: float) -> Cell:
        return page_words.money(spent), page_words.share(spent / arm.budget, 1) if arm.budget else "", True

    days = zip(*(arm.spent_by_day for arm in arms), strict=True)
    rows = [
        ([day], [cell(arm, spent) for arm, spent in zip(arms, after, strict=True)]) for day, after in enumerate(days, 1)
    ]
    return {"heads": [arm.name for arm in arms], "rows": rows}


def _by_segment(arm: ArmComparison) -> dict[str, Any]:
    """Every metric by segment."""
    return {
        "heads": [x.metric for x in arm.segments[0].lifts],
        "rows": [
            ([segment.name, number(segment.users, 0)], [_cell(x) for x in segment.lifts]) for segment in arm.segments
        ],
    }


def _cell(x: ArmDifference | Withheld | None) -> Cell:
    return (words.value(x), words.ends(x), True) if isinstance(x, ArmDifference) else (NONE, "", True)
