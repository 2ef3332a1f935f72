"""The page of `outlay compare`: methods side by side at equal spend, complete in itself like the report's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outlay.comparing.results import (
    CAPTURED,
    CONTROLS,
    ORIGINAL,
    Comparison,
    Kind,
    MethodRow,
    SeedMean,
    StoredCount,
    breaks_limit,
    leaders,
)
from outlay.core.campaign import BudgetLimit
from outlay.core.target import Target
from outlay.core.version import __version__
from outlay.pages import comparison_charts as charts
from outlay.pages import comparison_words, words
from outlay.pages.page import Figure, scripts, template
from outlay.pages.style import CONFIG
from outlay.pages.words import Interval

GROUPS = {"log": "", "constant": "", "two-stage": "Two-stage: predict k days, then price",
          "rl": "Looking ahead: an oracle and a mixing rule, or the frontier"}  # fmt: skip


class FigureCell(NamedTuple):
    """One figure in words: the estimate with its spread and interval, the truth, whether it breaks a limit.

    What is absent is empty.
    """

    value: str
    spread: str = ""
    ends: str = ""
    truth: str = ""
    limit: str = ""
    best: bool = False
    true_best: bool = False
    over: bool = False
    true_over: bool = False


class MethodLine(NamedTuple):
    """One row of a table; `cells` is empty where the method was refused, and `note` has the reason."""

    name: str
    note: str
    group: str
    cells: list[FigureCell]
    stored: str
    seconds: str


def render(comparison: Comparison) -> str:
    """The page."""
    c = comparison
    figures = _figures(c)
    specs = {figure.name: figure.spec for made in figures.values() for figure in made}
    lines = _stored(c)
    return template("comparison.html").render(
        c=c,
        words=words,
        heads={control: _heads(c, control) for control in CONTROLS},
        groups=GROUPS,
        tables={control: _table(c, control) for control in CONTROLS},
        leads={control: comparison_words.lead(c, control) for control in CONTROLS},
        ties={control: comparison_words.ties(c, control) for control in CONTROLS},
        truth=any(figure.truth is not None for row in c.rows for figure in row.figures.values()),
        captures=_captures(c),
        stored_by=_first_oracle(c),
        stored_words=_stored_words(lines),
        stored_frontier="frontier" in lines,
        figures=figures,
        specs=specs,
        config=CONFIG,
        scripts=scripts() if specs else None,
        version=__version__,
    )


def _rows(c: Comparison, control: str) -> list[MethodRow]:
    """Those of one control and the log's policy, group by group."""
    return sorted(c.under(control), key=lambda row: list(GROUPS).index(row.group))


def _figures(c: Comparison) -> dict[str, list[Figure]]:
    """The figures of each section; no data, no figure."""
    longest = max(c.report_days)
    made: dict[str, list[Figure]] = {}
    for control, title in CONTROLS.items():
        rows = _rows(c, control)
        if any(str(Target("reward", longest)) in row.figures for row in rows):
            title = f"{c.reward_label} in {words.days(longest)}, {title}"
            made[control] = [Figure(f"{control}-rewards", title, charts.rewards(rows, longest, c.reward_label))]
    if "total" in made:
        for j, budget in enumerate(c.budgets):
            if spec := charts.plane(_rows(c, "total"), budget, c.reward_label, c.horizon_days):
                made["total"].append(Figure(f"total-plane-{j}", f"Reward against {budget.name}", spec))
    if lines := _stored(c):
        made["stored"] = [Figure("stored-parameters", "Stored parameters", charts.stored(lines))]
    return made


def _heads(c: Comparison, control: str) -> list[tuple[str, str]]:
    """(head, small print) of each column; a cost that the control limits has its limit."""
    totals = [(words.days(k), c.reward_label) for k in sorted(c.report_days)]
    unit = f"{c.unit} per user"
    if control == "immediate":
        unit = f"at most {words.number(c.immediate)} {unit}"
    costs = [(b.name, words.limit(b) if control == "total" else words.per(b)) for b in c.budgets]
    against = [("against the limit", b.name) for b in c.limits(control)]
    against += [("captured share", "true")] if _captures(c) else []
    return [*totals, (f"{c.money} on day one", unit), *costs, *against]


def _table(c: Comparison, control: str) -> list[MethodLine]:
    rows, limits = _rows(c, control), c.limits(control)
    targets = [
        *(str(Target("reward", k)) for k in sorted(c.report_days)),
        str(Target(c.money, 1)),
        *(b.name for b in c.budgets),
    ]
    columns = [_column(rows, target, limits, c.seeds) for target in targets]
    columns += [_against(rows, limit) for limit in limits]
    columns += [[FigureCell(*comparison_words.share(row.figures.get(CAPTURED))) for row in rows]] * _captures(c)
    lines = []
    for i, row in enumerate(rows):
        cells = [column[i] for column in columns] if row.figures else []
        count = row.stored_parameters
        stored = words.NONE if count is None else words.short(count)
        lines.append(MethodLine(*_name(row), row.group, cells, stored, comparison_words.seconds(row.seconds)))
    return lines


def _name(row: MethodRow) -> tuple[str, str]:
    """The name of a row, and the note beside it."""
    if row.refused:
        return row.name, f"refused{' with some seeds' if row.figures else ''}: {row.refused}"
    if row.group == "constant":
        name, _, which = row.name.partition(" (")
        return name, which.removesuffix(")")
    return row.name, ""


def _column(rows: Sequence[MethodRow], target: str, limits: Sequence[BudgetLimit], seeds: int) -> list[FigureCell]:
    """A target for every row, rounded alike; the best rewards and the broken limits marked."""
    figures = [row.figures.get(target) for row in rows]
    digits = _digits([figure for figure in figures if figure is not None])
    what = Target.parse(target)
    marked = what.name == "reward" and what.days is not None and seeds > 1
    best, true_best = (leaders(rows, target, kind, limits) if marked else [] for kind in ("value", "truth"))
    limit = next((limit for limit in limits if limit.name == target), None)

    def text(number: float | None) -> str:
        return words.number(number, digits)

    cells = []
    for i, figure in enumerate(figures):
        if figure is None:
            cells.append(FigureCell(words.NONE))
            continue
        ends = "" if figure.low is None or figure.high is None else f"{text(figure.low)} to {text(figure.high)}"
        truth = "" if figure.truth is None else f"true {text(figure.truth)}"
        if truth and figure.truth_sd is not None:
            truth += f" ± {text(figure.truth_sd)}"
        spread = "" if figure.sd is None else f"± {text(figure.sd)}"
        over, true_over = (limit is not None and breaks_limit(cost, limit) for cost in (figure.value, figure.truth))
        broken = "breaks the limit" if over else "breaks the limit in truth" if true_over else ""
        cells.append(
            FigureCell(text(figure.value), spread, ends, truth, broken, i in best, i in true_best, over, true_over)
        )
    return cells


def _against(rows: Sequence[MethodRow], limit: BudgetLimit) -> list[FigureCell]:
    """Each cost as a share of its limit: the true one where it is known."""
    cells = []
    for row in rows:
        kind: Kind = "value" if row.number(limit.name, "truth") is None else "truth"
        cost = row.number(limit.name, kind)
        share = comparison_words.of_limit(cost, limit.limit)
        by = comparison_words.BY[kind] if share != words.NONE else ""
        cells.append(FigureCell(share, ends=by, over=breaks_limit(cost, limit)))
    return cells


def _captures(c: Comparison) -> bool:
    """Whether the optimum is known, and so the share of it that each row captures."""
    return any(CAPTURED in row.figures for row in c.rows)


def _digits(figures: Sequence[SeedMean]) -> int:
    """Digits after the point: those of the intervals, and one more where the spread over seeds calls for it."""
    known = [(f.value, f.low, f.high, f.sd) for f in figures if f.value is not None]
    if not known:  # every estimate is withheld
        known = [(f.truth, f.low, f.high, f.truth_sd) for f in figures if f.truth is not None]
    digits = words.decimals([Interval(value, low, high) for value, low, high, _ in known])
    spreads = [Interval(value, value - sd, value + sd) for value, _, _, sd in known if sd]
    return max(digits, min(words.decimals(spreads), digits + 1)) if spreads else digits


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
