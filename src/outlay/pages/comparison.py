"""The page of `outlay compare`: methods side by side at equal spend, complete in itself like the report's page.

What counts as better is what the findings count: a lead of more than two standard deviations over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from outlay.comparing.results import CAPTURED, CONTROLS, Kind, past
from outlay.core.target import Target
from outlay.core.version import __version__
from outlay.pages import comparison_charts as charts
from outlay.pages import comparison_words, words
from outlay.pages.comparison_charts import ORIGINAL, Row
from outlay.pages.comparison_words import MARKS, keeps
from outlay.pages.content import BudgetLine, Interval
from outlay.pages.page import Figure, scripts, template
from outlay.pages.style import CONFIG

GROUPS = {"log": "", "constant": "", "two-stage": "Two-stage: predict k days, then price",
          "rl": "Looking ahead: an oracle and a mixing rule, or the frontier"}  # fmt: skip


class Cell(NamedTuple):
    """One figure in words: the estimate with its spread and interval, the truth, whether it breaks a limit.

    What is not there is empty.
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


class Line(NamedTuple):
    """One row of a table; `cells` is empty where it was refused, and `note` says why."""

    name: str
    note: str
    group: str
    cells: list[Cell]
    stored: str
    seconds: str


def render(found: Mapping[str, Any]) -> str:
    """The page.

    Args:
        found: comparison.json:
            campaign, unit, reward_label, money: names for words; `money` is the name of the money budget.
            budgets: each {name, limit, sign: 1 at most | -1 at least, per: decision | user, words}.
            immediate: what day one costs per user at most under immediate control, in `unit`.
            report_days: of the totals `reward@k`.
            horizon_days: of the totals that budgets per user limit.
            seeds, confidence, users: how many trainings; of intervals; certify users.
            rows: each {name, group: log | constant | two-stage | rl, control: none | immediate | total, oracle, rule,
                label_days, figures: {target: {value, low, high, sd, truth, truth_sd}}, stored_parameters, seconds,
                refused}; targets are `reward@k`, `reward` (per decision), each budget's name (in its unit), `NAME@1`.
            stored: {method: [(gradient step, mean of the parameters over seeds, standard deviation)]}, and `original
                method`.
            findings: each {control, claim, verdict: holds | does not hold | a tie, proven, first, first_value, second,
                second_value, target, true, over}.
    """
    budgets = [
        BudgetLine(name=b["name"], limit=b["limit"], sign=b["sign"], per=b["per"],
                   unit=found["unit"] if b["name"] == found["money"] else "")
        for b in found["budgets"]
    ]  # fmt: skip
    held = {"immediate": [], "total": budgets}
    tables = {control: _rows(found, control) for control in CONTROLS}
    figures = _figures(found, budgets, tables)
    specs = {figure.name: figure.spec for made in figures.values() for figure in made}
    lines = _stored(found)
    return template("comparison.html").render(
        c=found,
        words=words,
        budgets=budgets,
        heads={control: _heads(found, budgets, control) for control in CONTROLS},
        groups=GROUPS,
        tables={control: _table(found, budgets, held[control], rows) for control, rows in tables.items()},
        leads={control: comparison_words.lead(found, rows, held[control]) for control, rows in tables.items()},
        truth=any(f["truth"] is not None for row in found["rows"] for f in row["figures"].values()),
        captures=_captures(found),
        findings={control: [f for f in found["findings"] if f["control"] == control] for control in CONTROLS},
        numbers=comparison_words.numbers,
        controls=CONTROLS,
        marks=MARKS,
        count=comparison_words.count(found["findings"]),
        stored_by=_first_oracle(found),
        stored_words=_stored_words(lines),
        stored_frontier="frontier" in lines,
        figures=figures,
        specs=specs,
        config=CONFIG,
        scripts=scripts() if specs else None,
        version=__version__,
    )


def _rows(found: Mapping[str, Any], control: str) -> list[Row]:
    """Those of one control and the log's policy, group by group."""
    rows = [row for row in found["rows"] if row["control"] in ("none", control)]
    return sorted(rows, key=lambda row: list(GROUPS).index(row["group"]))


def _figures(
    found: Mapping[str, Any], budgets: Sequence[BudgetLine], tables: Mapping[str, Sequence[Row]]
) -> dict[str, list[Figure]]:
    """The figures of each section; no data, no figure."""
    reward, longest = found["reward_label"], max(found["report_days"])
    made: dict[str, list[Figure]] = {}
    for control, rows in tables.items():
        if any(str(Target("reward", longest)) in row["figures"] for row in rows):
            title = f"{reward} in {words.days(longest)}, {CONTROLS[control]}"
            made[control] = [Figure(f"{control}-rewards", title, charts.rewards(rows, longest, reward))]
    if "total" in made:
        for j, budget in enumerate(budgets):
            if spec := charts.plane(tables["total"], budget, reward, found["horizon_days"]):
                made["total"].append(Figure(f"total-plane-{j}", f"Reward against {budget.name}", spec))
    if lines := _stored(found):
        made["stored"] = [Figure("stored-parameters", "Stored parameters", charts.stored(lines))]
    return made


def _columns(found: Mapping[str, Any], budgets: Sequence[BudgetLine]) -> list[str]:
    """The targets that a table shows."""
    totals = [str(Target("reward", k)) for k in sorted(found["report_days"])]
    return [*totals, f"{found['money']}@1", *(budget.name for budget in budgets)]


def _heads(found: Mapping[str, Any], budgets: Sequence[BudgetLine], control: str) -> list[tuple[str, str]]:
    """(head, small print) of each column; what the control holds is told with its limit."""
    totals = [(words.days(k), found["reward_label"]) for k in sorted(found["report_days"])]
    unit = f"{found['unit']} per user"
    if control == "immediate":
        unit = f"at most {words.number(found['immediate'])} {unit}"
    costs = [(b.name, words.limit(b) if control == "total" else words.per(b)) for b in budgets]
    against = [("against the limit", b.name) for b in budgets] if control == "total" else []
    against += [("captured share", "true")] if _captures(found) else []
    return [*totals, (f"{found['money']} on day one", unit), *costs, *against]


def _table(
    found: Mapping[str, Any], budgets: Sequence[BudgetLine], limits: Sequence[BudgetLine], rows: Sequence[Row]
) -> list[Line]:
    columns = [_column(rows, target, limits, found["seeds"]) for target in _columns(found, budgets)]
    columns += [_against(rows, budget) for budget in limits]
    columns += [_shares(rows)] if _captures(found) else []
    lines = []
    for i, row in enumerate(rows):
        cells = [column[i] for column in columns] if row["figures"] else []
        count, seconds = row["stored_parameters"], row["seconds"]
        stored = words.NONE if count is None else words.short(count)
        lines.append(Line(*_name(row), row["group"], cells, stored, comparison_words.seconds(seconds)))
    return lines


def _name(row: Row) -> tuple[str, str]:
    """What the row is called, and what stands beside it."""
    if row["refused"]:
        return row["name"], f"refused{' with some seeds' if row['figures'] else ''}: {row['refused']}"
    if row["group"] == "constant":
        name, _, which = row["name"].partition(" (")
        return name, which.removesuffix(")")
    return row["name"], ""


def _column(rows: Sequence[Row], target: str, limits: Sequence[BudgetLine], seeds: int) -> list[Cell]:
    """A target for every row, rounded alike; the best rewards and the broken limits marked."""
    figures = [row["figures"].get(target) for row in rows]
    digits = _digits([figure for figure in figures if figure is not None])
    judged = (what := Target.parse(target)).name == "reward" and what.days is not None and seeds > 1
    best, true_best = (_best(rows, target, kind, limits) if judged else set() for kind in ("value", "truth"))
    limit = next((budget for budget in limits if budget.name == target), None)
    cells = []
    for i, figure in enumerate(figures):
        if figure is None:
            cells.append(Cell(words.NONE))
            continue
        number = {key: words.number(value, digits) for key, value in figure.items()}
        ends = "" if figure["low"] is None or figure["high"] is None else f"{number['low']} to {number['high']}"
        truth = "" if figure["truth"] is None else f"true {number['truth']}"
        if truth and figure["truth_sd"] is not None:
            truth += f" ± {number['truth_sd']}"
        spread = "" if figure["sd"] is None else f"± {number['sd']}"
        over, true_over = (
            limit is not None and past(figure[kind], limit.limit, limit.sign) for kind in ("value", "truth")
        )
        broken = "breaks the limit" if over else "breaks the limit in truth" if true_over else ""
        cells.append(Cell(number["value"], spread, ends, truth, broken, i in best, i in true_best, over, true_over))
    return cells


def _against(rows: Sequence[Row], budget: BudgetLine) -> list[Cell]:
    """Each cost as a share of its limit: the true one where it is known."""
    cells = []
    for row in rows:
        figure = row["figures"].get(budget.name, {"value": None, "truth": None})
        kind: Kind = "value" if figure["truth"] is None else "truth"
        share = comparison_words.of_limit(figure[kind], budget.limit)
        by = comparison_words.BY[kind] if share != words.NONE else ""
        cells.append(Cell(share, ends=by, over=past(figure[kind], budget.limit, budget.sign)))
    return cells


def _captures(found: Mapping[str, Any]) -> bool:
    """Whether the optimum is known: of what share of it each row captures."""
    return any(CAPTURED in row["figures"] for row in found["rows"])


def _shares(rows: Sequence[Row]) -> list[Cell]:
    """What each row captures of what the optimum has over the best constants, at its own true spend."""
    cells = []
    for row in rows:
        figure = row["figures"].get(CAPTURED)
        cells.append(Cell(*comparison_words.share(figure)) if figure else Cell(words.NONE))
    return cells


def _digits(figures: Sequence[Mapping[str, Any]]) -> int:
    """Digits after the point: those of the intervals, and one more where the spread over seeds calls for it."""
    known = [f for f in figures if f["value"] is not None]
    if not known:  # every estimate is withheld
        known = [{**f, "value": f["truth"], "sd": f["truth_sd"]} for f in figures if f["truth"] is not None]
    digits = words.decimals([Interval(f["value"], f["low"], f["high"]) for f in known])
    spreads = [Interval(f["value"], f["value"] - f["sd"], f["value"] + f["sd"]) for f in known if f["sd"]]
    return max(digits, min(words.decimals(spreads), digits + 1)) if spreads else digits


def _best(rows: Sequence[Row], target: str, kind: Kind, limits: Sequence[BudgetLine]) -> set[int]:
    """The row ahead of all others, and those not behind it by more than two standard deviations of the difference."""
    known = {}
    for i, row in enumerate(rows):
        figure = row["figures"].get(target)
        if figure is not None and figure[kind] is not None and keeps(row, limits, kind):
            known[i] = figure[kind], figure["sd" if kind == "value" else "truth_sd"] or 0.0
    if not known:
        return set()
    most, spread = max(known.values())
    return {i for i, (value, sd) in known.items() if most - value <= 2 * math.hypot(spread, sd)}


def _first_oracle(found: Mapping[str, Any]) -> str:
    """The oracle whose rules the figure of stored parameters shows, as its rows are called."""
    return next((charts.family(row) for row in found["rows"] if row["name"] in found["stored"]), "")


def _stored(found: Mapping[str, Any]) -> dict[str, list[tuple[float, float, float | None]]]:
    """{rule: course}, of the first oracle, and the original method."""
    rows = [row for row in found["rows"] if row["name"] in found["stored"]]
    lines = {row["rule"]: found["stored"][row["name"]] for row in rows if row["oracle"] == rows[0]["oracle"]}
    if lines and ORIGINAL in found["stored"]:
        lines[ORIGINAL] = found["stored"][ORIGINAL]
    return {name: course for name, course in lines.items() if course}


def _stored_words(lines: Mapping[str, Sequence[tuple[float, float, float | None]]]) -> str:
    """What each rule has in store at the end, the mean over seeds, as the figure and the tables have it."""
    parts = [f"{name} {words.short(course[-1][1])}" for name, course in lines.items()]
    return f"Parameters in store at the end: {', '.join(parts)}"
