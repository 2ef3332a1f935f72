"""The tables of a comparison, laid out once for page and terminal, and what leads in each."""

from __future__ import annotations

from collections.abc import Sequence

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
from outlay.core.wording import NONE, Interval, change, days, decimals, ends, number, percent, short
from outlay.pages.tables import Cell, Column, Look, Row, Table, numbers, per, words
from outlay.pages.tables import limit as limit_words

GROUPS = {
    "log": "",
    "constant": "",
    "two-stage": "Two-stage: predict k days, then price",
    "rl": "Looking ahead: an oracle and a mixing rule, or the frontier",
}
BY: dict[Kind, str] = {"truth": "true", "value": "estimated"}
MOST_TIED = 8  # methods that are named
_KINDS = {"rl": "looking ahead", "two-stage": "two-stage", "constant": "best constants"}


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


def table(c: Comparison, control: str) -> Table:
    """The table of one control; a cost that the control limits has its limit."""
    rows, limits = rows_of(c, control), c.limits(control)
    unit = f"{c.unit} per user"
    if control == "immediate":
        unit = f"at most {number(c.immediate)} {unit}"
    targets = [str(Target("reward", k)) for k in sorted(c.report_days)]
    columns = [Column(days(k), c.reward_label) for k in sorted(c.report_days)]
    targets += [str(Target(c.money, 1)), *(b.name for b in c.budgets)]
    columns.append(Column(f"{c.called(c.money)} on day one", unit))
    columns += [Column(c.called(b.name), limit_words(b) if limits else per(b)) for b in c.budgets]
    cells = [_column(rows, target, limits, c.seeds) for target in targets]
    for limit in limits:
        columns.append(Column("against the limit", c.called(limit.name)))
        cells.append([_against(row, limit) for row in rows])
    if captures(c):
        columns.append(Column(CAPTURED, BY["truth"]))
        cells.append([_share(row.figures.get(CAPTURED)) for row in rows])
    lines = (_line(row, own) for row, *own in zip(rows, *cells, strict=True))
    ends = (*numbers("stored parameters"), Column("training", "all of it"))
    return Table(title(c, control), (*words("method"), *columns, *ends), tuple(lines))


def _line(row: MethodRow, figures: Sequence[Cell]) -> Row:
    """A row: the name, the figures or why there are none, what it stores and takes."""
    stored, time = row.stored_parameters, row.seconds
    price = (
        Cell(NONE if stored is None else short(stored)),
        Cell(NONE if time is None else f"{number(time, 0 if time >= 10 else 1)} s"),
    )
    if not row.figures:
        why = Cell(f"refused: {row.refused}" if row.refused else NONE, look="over", span=len(figures))
        return Row((Cell(row.name), why, *price), group=GROUPS[row.group])
    return Row((_name(row), *figures, *price), group=GROUPS[row.group])


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
    more = f"; and {len(others) - MOST_TIED} more" if len(others) > MOST_TIED else ""
    told = "; ".join(others[:MOST_TIED])
    return f"Not behind {first} by more than two standard deviations over seeds: {told}{more}"


def _name(row: MethodRow) -> Cell:
    """The name of a row, and the note beside it."""
    if row.refused:
        return Cell(row.name, f"refused with some seeds: {row.refused}")
    if row.group == "constant":
        name, _, which = row.name.partition(" (")
        return Cell(name, which.removesuffix(")"))
    return Cell(row.name)


def _column(rows: Sequence[MethodRow], target: str, limits: Sequence[BudgetLimit], seeds: int) -> list[Cell]:
    """A target for every row, rounded alike; the best rewards and the broken limits marked."""
    figures = [row.figures.get(target) for row in rows]
    digits = _digits([figure for figure in figures if figure is not None])
    what = Target.parse(target)
    marked = what.name == "reward" and what.days is not None and seeds > 1
    best, true_best = (leaders(rows, target, kind, limits) if marked else [] for kind in ("value", "truth"))
    limit = next((limit for limit in limits if limit.name == target), None)

    def cell(i: int, figure: SeedMean | None) -> Cell:
        if figure is None:
            return Cell()
        over, true_over = (limit is not None and breaks_limit(cost, limit) for cost in (figure.value, figure.truth))
        told = _with_spread(figure.value, figure.sd, digits)
        truth = _with_spread(figure.truth, figure.truth_sd, digits)
        more: list[tuple[str, Look]] = []
        if truth:
            more.append((f"true {truth}", "over" if true_over else "best" if i in true_best else ""))
        if over or true_over:
            more.append(("breaks the limit" if over else "breaks the limit in truth", "over"))
        return Cell(
            told or NONE,
            ends(figure.low, figure.high, digits),
            brief=f"{told or NONE} [{truth}]" if truth else told,
            look="over" if over else "best" if i in best else "",
            more=tuple(more),
        )

    return [cell(i, figure) for i, figure in enumerate(figures)]


def _with_spread(value: float | None, sd: float | None, digits: int) -> str:
    """`4.70 ± 0.01`; empty without a value."""
    parts = [] if value is None else [number(value, digits), *([] if sd is None else [f"± {number(sd, digits)}"])]
    return " ".join(parts)


def _against(row: MethodRow, limit: BudgetLimit) -> Cell:
    """A cost as a share of its limit, `99.2% true`: the true one where it is known."""
    kind: Kind = "value" if row.number(limit.name, "truth") is None else "truth"
    cost = row.number(limit.name, kind)
    if cost is None or limit.limit <= 0:
        return Cell()
    return Cell(percent(cost / limit.limit, 1), BY[kind], look="over" if breaks_limit(cost, limit) else "")


def _share(figure: SeedMean | None) -> Cell:
    """A true share with its spread over seeds: `0.62 ± 0.05`."""
    return Cell() if figure is None else Cell(_with_spread(figure.truth, figure.truth_sd, 2) or NONE)


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
