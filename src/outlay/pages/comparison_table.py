"""The tables of a comparison, laid out once for page and terminal, and what leads in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outlay.comparing.results import (
    CAPTURED,
    CONTROLS,
    Comparison,
    Kind,
    MethodRow,
    SeedMean,
    breaks_limit,
    decided_by,
    leaders,
)
from outlay.core.campaign import BudgetLimit
from outlay.core.estimate import Target
from outlay.core.wording import NONE, Interval, change, days, decimals, number, percent, short
from outlay.pages.tables import limit as limit_words
from outlay.pages.tables import per

GROUPS = {
    "log": "",
    "constant": "",
    "two-stage": "Two-stage: predict k days, then price",
    "rl": "Looking ahead: an oracle and a mixing rule, or the frontier",
}
BY: dict[Kind, str] = {"truth": "true", "value": "estimated"}
_KINDS = {"rl": "looking ahead", "two-stage": "two-stage", "constant": "best constants"}


class FigureCell(NamedTuple):
    """One figure in words: the estimate with its spread and interval, the truth, whether it breaks a limit.

    What is absent is empty. Of a share of a limit `by` says whether the cost is true or estimated.
    """

    value: str
    spread: str = ""
    by: str = ""
    ends: str = ""
    truth: str = ""
    limit: str = ""
    best: bool = False
    true_best: bool = False
    over: bool = False
    true_over: bool = False

    @property
    def text(self) -> str:
        """`4.70 ± 0.01 [4.71 ± 0.01]`."""
        return " ".join(filter(None, (self.value, self.spread, self.by, self.truth and f"[{self.truth}]")))


class MethodLine(NamedTuple):
    """One row of a table; `cells` is empty where the method was refused, and `note` has the reason."""

    name: str
    note: str
    group: str
    cells: list[FigureCell]
    stored: str
    seconds: str

    def texts(self, columns: int) -> list[str]:
        """The line in so many columns of figures, the name before them and what it stores and takes after them."""
        name = f"{self.name} ({self.note})" if self.note and self.cells else self.name
        cells = [cell.text for cell in self.cells] or [f"{NONE} {self.note}", *[""] * (columns - 1)]
        return [name, *cells, self.stored, self.seconds]


class ComparisonTable(NamedTuple):
    """A table: (head, small print) of each column of figures, and the lines."""

    heads: list[tuple[str, str]]
    lines: list[MethodLine]


def rows_of(c: Comparison, control: str) -> list[MethodRow]:
    """Those of one control and the log's policy, group by group."""
    return sorted(c.under(control), key=lambda row: list(GROUPS).index(row.group))


def title(c: Comparison, control: str) -> str:
    """`habit, the campaign's limits: coupon_cost at most 2 yuan per decision; estimate ± sd over seeds, 3 seeds`."""
    spend = f"at most {number(c.immediate)} {c.unit} a user"
    if limits := c.limits(control):
        spend = "; ".join(f"{c.called(budget.name)} {limit_words(budget)}" for budget in limits)
    figures = f"estimate{' ± sd over seeds' * (c.seeds > 1)}{' [true value]' * c.knows_truth}"
    return f"{c.campaign}, {CONTROLS[control]}: {spend}; {figures}, {c.seeds} seed{'s' * (c.seeds > 1)}"


def table(c: Comparison, control: str) -> ComparisonTable:
    """The table of one control; a cost that the control limits has its limit."""
    rows, limits = rows_of(c, control), c.limits(control)
    unit = f"{c.unit} per user"
    if control == "immediate":
        unit = f"at most {number(c.immediate)} {unit}"
    columns = [(str(Target("reward", k)), days(k), c.reward_label) for k in sorted(c.report_days)] + [
        (str(Target(c.money, 1)), f"{c.called(c.money)} on day one", unit)
    ]
    columns += [(b.name, c.called(b.name), limit_words(b) if limits else per(b)) for b in c.budgets]
    heads = [(head, small) for _, head, small in columns]
    cells = [_column(rows, target, limits, c.seeds) for target, _, _ in columns]
    for limit in limits:
        heads.append(("against the limit", c.called(limit.name)))
        cells.append([_against(row, limit) for row in rows])
    if captures(c):
        heads.append((CAPTURED, BY["truth"]))
        cells.append([_share(row.figures.get(CAPTURED)) for row in rows])
    lines = [
        MethodLine(*_name(row), row.group, list(own) if row.figures else [], *_price(row))
        for row, *own in zip(rows, *cells, strict=True)
    ]
    return ComparisonTable(heads, lines)


def captures(c: Comparison) -> bool:
    """Whether the optimum is known, and so the share of it that each row captures."""
    return any(CAPTURED in row.figures for row in c.rows)


def lead(comparison: Comparison, control: str) -> str:
    """The best of each kind over the longest horizon, of those that keep every limit, beside the old policy.

    All methods are judged by the truth where it is known of all of them, else all by the estimate.
    """
    longest, limits = max(comparison.report_days), comparison.limits(control)
    target = str(Target("reward", longest))
    rows = [row for row in comparison.under(control) if target in row.figures]
    kind = decided_by([row for row in rows if row.group != "log"], target)
    parts = [_best([row for row in rows if row.group == group], target, limits, kind) for group in _KINDS]
    parts += [_old(row, target, limits, kind) for row in rows if row.group == "log"]
    if not any(parts):
        return "Nothing could be evaluated"
    which = f"the best of each kind{f' that keeps {_every(limits)}' if limits else ''}"
    what = f"{BY[kind].capitalize()} {comparison.reward_label} in {days(longest)}"
    return f"{what}, {which}: {'; '.join(filter(None, parts))}"


def recommendation(comparison: Comparison) -> str:
    """Which method to take under the campaign's limits: of those that tie, the one that trains fastest."""
    target = str(Target("reward", max(comparison.report_days)))
    rows = [row for row in comparison.under("total") if row.group != "log" and target in row.figures]
    kind = decided_by(rows, target)
    places = leaders(rows, target, kind, comparison.limits("total"))
    if not places:
        return "No method is recommended: none that could be measured keeps every limit."
    best = rows[places[0]]
    tied = [rows[place] for place in places]
    taken = min(tied, key=lambda row: (row.group != "constant", row.seconds if row.seconds is not None else 0.0))
    old = next((row for row in comparison.under("total") if row.group == "log" and target in row.figures), None)
    mine, before = taken.figures[target].number(kind), None if old is None else old.figures[target].number(kind)
    gain = "" if mine is None or not before else f" ({change(mine / before - 1)} {comparison.reward_label} than now)"
    if comparison.seeds < 2:
        return f"Take {_short(taken)}{gain}, by one seed: run it with more before you rely on it."
    if len(tied) == 1:
        return f"Take {_short(taken)}{gain}: no other method that keeps every limit comes near."
    why = "is a constant, which needs no training" if taken.group == "constant" else "trains fastest"
    rest = f"of the {len(tied)} methods that do not differ beyond chance, it {why}"
    return f"Take {_short(taken)}{gain}: {rest}{'' if taken is best else f'; {_short(best)} has the highest figure'}."


def ties(comparison: Comparison, control: str) -> str:
    """Which methods are not behind the best by more than two standard deviations; empty for one seed."""
    target = str(Target("reward", max(comparison.report_days)))
    rows = [row for row in comparison.under(control) if row.group != "log" and target in row.figures]
    places = leaders(rows, target, decided_by(rows, target), comparison.limits(control))
    if comparison.seeds < 2 or not places:
        return ""
    first, *others = (_short(rows[place]) for place in places)
    if not others:
        return f"{first} leads by more than two standard deviations over seeds"
    return f"Not behind {first} by more than two standard deviations over seeds: {'; '.join(others)}"


def _name(row: MethodRow) -> tuple[str, str]:
    """The name of a row, and the note beside it."""
    if row.refused:
        return row.name, f"refused{' with some seeds' if row.figures else ''}: {row.refused}"
    if row.group == "constant":
        name, _, which = row.name.partition(" (")
        return name, which.removesuffix(")")
    return row.name, ""


def _price(row: MethodRow) -> tuple[str, str]:
    """What it stores, and `8.4 s`, `64 s`."""
    stored, time = row.stored_parameters, row.seconds
    return (
        NONE if stored is None else short(stored),
        NONE if time is None else f"{number(time, 0 if time >= 10 else 1)} s",
    )


def _column(rows: Sequence[MethodRow], target: str, limits: Sequence[BudgetLimit], seeds: int) -> list[FigureCell]:
    """A target for every row, rounded alike; the best rewards and the broken limits marked."""
    figures = [row.figures.get(target) for row in rows]
    digits = _digits([figure for figure in figures if figure is not None])
    what = Target.parse(target)
    marked = what.name == "reward" and what.days is not None and seeds > 1
    best, true_best = (leaders(rows, target, kind, limits) if marked else [] for kind in ("value", "truth"))
    limit = next((limit for limit in limits if limit.name == target), None)

    def cell(i: int, figure: SeedMean | None) -> FigureCell:
        if figure is None:
            return FigureCell(NONE)

        def text(value: float | None, before: str = "") -> str:
            return "" if value is None else f"{before}{number(value, digits)}"

        over, true_over = (limit is not None and breaks_limit(cost, limit) for cost in (figure.value, figure.truth))
        return FigureCell(
            text(figure.value) or NONE,
            spread=text(figure.sd, "± "),
            ends=f"{text(figure.low)} to {text(figure.high)}" if figure.low is not None else "",
            truth=" ".join(filter(None, (text(figure.truth), text(figure.truth_sd, "± ")))),
            limit="breaks the limit" if over else "breaks the limit in truth" if true_over else "",
            best=i in best,
            true_best=i in true_best,
            over=over,
            true_over=true_over,
        )

    return [cell(i, figure) for i, figure in enumerate(figures)]


def _against(row: MethodRow, limit: BudgetLimit) -> FigureCell:
    """A cost as a share of its limit, `99.2% true`: the true one where it is known."""
    kind: Kind = "value" if row.number(limit.name, "truth") is None else "truth"
    cost = row.number(limit.name, kind)
    if cost is None or limit.limit <= 0:
        return FigureCell(NONE)
    return FigureCell(percent(cost / limit.limit, 1), by=BY[kind], over=breaks_limit(cost, limit))


def _share(figure: SeedMean | None) -> FigureCell:
    """A true share with its spread over seeds: `0.62 ± 0.05`."""
    if figure is None or figure.truth is None:
        return FigureCell(NONE)
    return FigureCell(number(figure.truth, 2), "" if figure.truth_sd is None else f"± {number(figure.truth_sd, 2)}")


def _digits(figures: Sequence[SeedMean]) -> int:
    """Digits after the point: those of the intervals, and one more where the spread over seeds calls for it."""
    known = [(f.value, f.low, f.high, f.sd) for f in figures if f.value is not None]
    if not known:  # every estimate is withheld
        known = [(f.truth, f.low, f.high, f.truth_sd) for f in figures if f.truth is not None]
    digits = decimals([Interval(value, low, high) for value, low, high, _ in known])
    spreads = [Interval(value, value - sd, value + sd) for value, _, _, sd in known if sd]
    return max(digits, min(decimals(spreads), digits + 1)) if spreads else digits


def _best(rows: Sequence[MethodRow], target: str, limits: Sequence[BudgetLimit], kind: Kind) -> str:
    """The best row of one group that keeps every limit."""
    known = [(value, row) for row in rows if (value := row.number(target, kind)) is not None]
    within = [one for one in known if one[1].keeps(limits, kind)]
    if not within:
        return f"{_KINDS[rows[0].group]} none" if known else ""
    value, best = max(within, key=lambda one: one[0])
    return f"{_short(best)} {number(value)}"


def _old(row: MethodRow, target: str, limits: Sequence[BudgetLimit], kind: Kind) -> str:
    """The old policy as it is: it was not chosen to keep a limit."""
    by: Kind = kind if row.number(target, kind) is not None else "value"
    notes = [] if by == kind else [BY[by]]
    notes += [] if row.keeps(limits, by) else [f"does not keep {_every(limits)}"]
    return f"{row.name} {number(row.number(target, by))}" + (f" ({', '.join(notes)})" if notes else "")


def _every(limits: Sequence[BudgetLimit]) -> str:
    return "the limit" if len(limits) == 1 else "every limit"


def _short(row: MethodRow) -> str:
    """The name without the actions of constants."""
    return row.name.partition(" (")[0]
