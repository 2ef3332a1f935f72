"""Tables, laid out once: values under columns. A page shows them in HTML (`tables.html`), a terminal in lines.

Here are the tables of an evaluation and of a run. Those of a comparison, a curve and a test stand beside their words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from outlay.choosing.estimators import ESTIMATORS
from outlay.choosing.run import Run
from outlay.core.actions import shown
from outlay.core.campaign import BudgetLimit, Campaign
from outlay.core.estimate import Estimate, Target, longest_total
from outlay.core.wording import NONE, Interval, days, decimals, ends, exact, number, percent, plain, spread
from outlay.estimators.behaviour.check import BehaviourCheck
from outlay.evaluating.check_result import CheckResult
from outlay.evaluating.checks import CHECKS
from outlay.evaluating.evaluation import Evaluation

Look = Literal["", "yes", "no", "doubted", "best", "over"]


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column.

    Attributes:
        head: what it holds.
        note: its unit, or more about it.
        words: whether it holds words, which stand to the left.
    """

    head: str
    note: str = ""
    words: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One value.

    Attributes:
        text: the value.
        note: small below it on a page, e.g. its interval.
        brief: what a terminal shows in place of both; by default the text, and the note in brackets.
        look: `yes` and `no` are marked, a doubted number has a star; `best` is bold, `over` a limit orange.
        span: over how many columns.
        link: where the text leads on a page; empty: nowhere.
        more: further small lines below the note, with their looks.
    """

    text: str = NONE
    note: str = ""
    brief: str = ""
    look: Look = ""
    span: int = 1
    link: str = ""
    more: tuple[tuple[str, Look], ...] = ()

    @property
    def line(self) -> str:
        """What a terminal shows."""
        star = "*" if self.look == "doubted" else ""
        return (self.brief or (f"{self.text} ({self.note})" if self.note else self.text)) + star


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table.

    Attributes:
        cells: the first one names the line.
        look: `chosen`, `old`, `member`, `withheld`, …: a class of the page's style.
        group: the heading above this line and those after it on a page; may be empty.
    """

    cells: tuple[Cell, ...]
    look: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; a terminal shows the title, on a page a heading or a finding stands there."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def words(*heads: str) -> tuple[Column, ...]:
    """Columns of words."""
    return tuple(Column(head, words=True) for head in heads)


def numbers(*heads: str) -> tuple[Column, ...]:
    """Columns of numbers."""
    return tuple(map(Column, heads))


def row(*cells: Cell | str, look: str = "", group: str = "") -> Row:
    """A line of cells, some of them mere texts."""
    return Row(tuple(Cell(cell) if isinstance(cell, str) else cell for cell in cells), look, group)


def kept(value: bool | None, *, held: bool = False) -> Cell:
    """Yes, no, or not known; where it is not proved and a cap holds it, that."""
    if held and not value:
        return Cell("held", "while serving")
    return Cell() if value is None else Cell("yes", look="yes") if value else Cell("no", look="no")


def figure(e: Estimate | Interval | None, digits: int, *, doubted: bool = False) -> Cell:
    """A number with its interval."""
    if e is None or e.value is None:
        return Cell()
    value, beside = number(e.value, digits), spread(e.value, e.low, e.high, digits)
    look: Look = "doubted" if doubted else ""
    return Cell(value, ends(e.low, e.high, digits), f"{value} {beside}" if beside else "", look)


def per(budget: BudgetLimit) -> str:
    """The unit of a budget: `yuan per decision`."""
    return f"{budget.unit} per {budget.per}".strip()


def limit(budget: BudgetLimit) -> str:
    """The limit in words: `at most 1.2 yuan per decision`."""
    return f"{'at most' if budget.sign > 0 else 'at least'} {plain(budget.limit)} {per(budget)}"


def quantity(text: str, campaign: Campaign, window: int | None) -> str:
    """What an estimate is of: `reward@7` → `active, total of 7 days`."""
    column = named(text, campaign, window)
    return f"{column.head}, {column.note}"


def named(text: str, campaign: Campaign, window: int | None) -> Column:
    """The same as the head of a column.

    Args:
        text: a target.
        campaign: its labels and budgets.
        window: the days that means are over; None where they are discounted means of all days.
    """
    target = Target.parse(text)
    what = campaign.told_outcomes.get(target.name, target.name)
    if target.days is not None:
        return Column(what, "per user" if campaign.log.once else f"total of {days(target.days)}")
    budget = next((b for b in campaign.limits if b.name == target.name), None)
    over = None if target.kind else window
    if over is not None:
        mean = f"mean of the first {days(over)}"
    else:
        mean = "discounted mean" if campaign.meta.discount > 0 else "on the first day"
    if budget is None:
        return Column(what, "per user") if campaign.log.once else Column(f"{what} per decision", mean)
    if target.kind == "decision":
        return Column(what, f"{budget.unit} per decision".strip())
    return Column(what, per(budget) if window is None or budget.per == "user" else f"{per(budget)}, {mean}")


# An evaluation.


def policies(evaluation: Evaluation, campaign: Campaign, *, brief: bool = False) -> Table:
    """Totals, costs against their limits, and what is certified; each column rounded alike.

    `brief`: without the members of a mixture, and of the totals the longest alone.
    """
    rows = [row for row in evaluation.rows(campaign) if not brief or row.kind != "member"]
    columns: list[tuple[Column, list[Estimate | None]]] = [
        (named(str(Target("reward", k)), campaign, None), [p.totals.get(k) for p in rows])
        for k in sorted({k for p in rows for k in p.totals})
    ]
    columns = [column for column in columns if any(column[1])][-1:] if brief else columns
    columns += [
        (Column(campaign.told("budgets", b.name), limit(b)), [p.costs.get(b.name) for p in rows])
        for b in campaign.limits
    ]
    columns = [column for column in columns if any(column[1])]
    cells = [
        [figure(e, digits, doubted=e is not None and e.caution is not None) for e in estimates]
        for _, estimates in columns
        for digits in (decimals(estimates),)
    ]
    users = "all users" if evaluation.users == "all" else "users never used for choosing"
    return Table(
        f"{campaign.meta.name}: per user, {exact(evaluation.confidence)} intervals, {users}",
        (*words("policy"), *(column for column, _ in columns), *words("certified")),
        tuple(
            row(
                Cell(p.name, p.note, p.name),
                *(column[i] for column in cells),
                kept(p.certified, held=p.held),
                look=p.kind,
            )
            for i, p in enumerate(rows)
        ),
    )


def side_by_side(title: str, estimates: Sequence[Estimate], evaluation: Evaluation, campaign: Campaign) -> Table:
    """A row for each quantity and a column for each estimator."""
    by = {(e.target, e.estimator): e for e in estimates}
    names = list(dict.fromkeys(e.estimator for e in estimates))
    rows = (
        row(quantity(text, campaign, window(evaluation)), *_alike([by.get((text, name)) for name in names]))
        for text in dict.fromkeys(e.target for e in estimates)
        if not (campaign.log.once and _again(Target.parse(text)))
    )
    return Table(title, (*words("quantity"), *numbers(*names)), tuple(rows))


def _again(target: Target) -> bool:
    """Whether a mean is what the total of a user's one row is."""
    return target.days is None and (target.name == "reward" or target.kind is not None)


def by_estimator(evaluation: Evaluation, campaign: Campaign) -> Table:
    """The evaluated policy by every estimator."""
    return side_by_side(f"{evaluation.title}, by each estimator", evaluation.estimates, evaluation, campaign)


def differences(evaluation: Evaluation, campaign: Campaign) -> list[tuple[str, Table]]:
    """A table for each policy that the evaluated one is compared with, with that policy's name; the old one first."""
    by: dict[str, list[Estimate]] = {}
    for e in evaluation.differences:
        by.setdefault(e.against, []).append(e)
    titles = {**evaluation.policies, "old": "the old policy"}
    return [
        (name, side_by_side(f"{evaluation.title} less {titles[name]}, paired by user", each, evaluation, campaign))
        for name, each in by.items()
    ]


def segment_targets(evaluation: Evaluation, campaign: Campaign) -> list[str]:
    """The quantities by segment that are shown, of those that were estimated."""
    known = {e.target for e in evaluation.segments}
    return [text for text in (longest_total(known), *(b.name for b in campaign.limits)) if text in known]


def segments(evaluation: Evaluation, campaign: Campaign) -> list[Table]:
    """Old, new and change of each segment: for the reward's longest total, and for each budget."""
    by = {(e.segment, e.policy, e.target): e for e in evaluation.segments}
    names = list(dict.fromkeys(e.segment for e in evaluation.segments))
    heads = {"old": evaluation.policies["old"], evaluation.subject: evaluation.title, "gain": "change"}
    made = []
    for text in segment_targets(evaluation, campaign):
        found = {name: [by.get((name, policy, text)) for policy in heads] for name in names}
        rows = (
            row(campaign.told("segments", name), number(e.users), *_alike(each))
            for name, each in found.items()
            if (e := each[0]) is not None
        )
        first = Column("segment", quantity(text, campaign, window(evaluation)), words=True)
        columns = (first, *numbers("users", *heads.values()))
        made.append(Table("By segment of a user's first row, by fqe", columns, tuple(rows)))
    return made


def certificate(evaluation: Evaluation, campaign: Campaign, margins: Sequence[float] | None = None) -> Table:
    """Every bound against its limit; `margins` `[m]` are those that limits were tightened by when choosing."""
    rows, held = [], evaluation.certificate.held
    for j, (budget, line) in enumerate(zip(campaign.limits, evaluation.certificate.budgets, strict=True)):
        known = [] if line.value is None or line.bound is None else [around(line.value, abs(line.bound - line.value))]
        values = [*(() if margins is None else (margins[j],)), line.value, line.bound]
        cells = (number(value, decimals(known)) for value in values)
        rows.append(
            row(campaign.told("budgets", budget.name), limit(budget), *cells, kept(line.kept, held=budget.name == held))
        )
    margin = () if margins is None else (Column("margin", "when choosing"),)
    bound = f"{exact(evaluation.certificate.confidence)} bound"
    return Table("", (*words("budget", "limit"), *margin, *numbers("estimate", bound), *words("kept")), tuple(rows))


def checks(evaluation: Evaluation) -> Table:
    """What was asked, whether it was passed, and what was found."""
    rows = (
        row(
            Cell(name, CHECKS[name].question, name),
            kept(found.ok),
            Cell(found.words, consequence(name, found) if found.ok is False else "", found.words),
        )
        for name, found in evaluation.diagnostics.checks.items()
    )
    return Table("What the numbers rest on", words("check", "passed", "found"), tuple(rows))


def consequence(name: str, finding: CheckResult) -> str:
    """What follows from a check that was not passed, and the way out of it where there is one."""
    way_out = None if finding.reason is None else finding.reason.figures.get("way_out")
    return f"{CHECKS[name].consequence}. {way_out}" if way_out else CHECKS[name].consequence


def paths(evaluation: Evaluation, *, once: bool = False) -> Table:
    """The users whose logged path is the policy's, by number of days; `once`: each of them has one row."""
    columns = (
        *(words("rows") if once else words("days")),
        Column("users", "" if once else "with such a window"),
        *numbers("matching paths", "effective users", "weights clipped"),
        Column("heaviest user", "of all weight"),
    )
    rows = (
        row(
            str(line.days),
            number(line.users),
            exact(line.matched, 3),
            number(line.ess, 0),
            exact(line.clipped, 3),
            NONE if line.heaviest is None else exact(line.heaviest, 3),
        )
        for line in evaluation.diagnostics.paths
    )
    return Table("Logged paths that match the policy", columns, tuple(rows))


def overlap(evaluation: Evaluation, campaign: Campaign) -> Table:
    """Single decisions of the policy against the log, by segment."""
    heads = ("decisions", "matching", "effective decisions", "mean of π/p", "standard error")
    rows = (
        row(
            campaign.told("segments", line.segment),
            number(line.choices),
            exact(line.matched, 3),
            number(line.ess, 0),
            number(line.mean_ratio, 3),
            number(line.mean_ratio_error, 3),
        )
        for line in evaluation.diagnostics.overlap
    )
    return Table("", (*words("segment"), *numbers(*heads)), tuple(rows))


def propensities(check: BehaviourCheck, given: str) -> Table:
    """How often each value was given, by the model of the old policy and in truth; `given` is what is given."""
    columns = (*words(given), Column("decisions", "where it could be given"), *numbers("by the model", "given"))
    rows = (
        row(shown(line.action), number(line.rows), exact(line.predicted, 3), exact(line.observed, 3))
        for line in check.actions
    )
    return Table("", columns, tuple(rows))


def estimators(estimates: Sequence[Estimate]) -> Table:
    """What each estimator is, and what it rests on."""
    names = dict.fromkeys(e.estimator for e in estimates)
    rows = (row(name, ESTIMATORS[name].title, ESTIMATORS[name].assumes) for name in names)
    return Table("", words("estimator", "name", "rests on"), tuple(rows))


def window(evaluation: Evaluation) -> int | None:
    """The days that means are over; None where they are discounted means of all days."""
    return evaluation.window.days if evaluation.window else None


def around(value: float, reach: float) -> Interval:
    """A value with an interval of that reach on either side."""
    return Interval(value, value - reach, value + reach)


def _alike(estimates: Iterable[Estimate | None]) -> tuple[Cell, ...]:
    """One row, rounded alike: as finely as the best of the numbers to be relied on needs."""
    estimates = list(estimates)
    given = [e for e in estimates if e is not None]
    digits = decimals([e for e in given if e.recommended] or given)
    return tuple(figure(e, digits, doubted=e is not None and not e.recommended) for e in estimates)


# A run.


def members(run: Run, mixture: tuple[Sequence[float] | None, Sequence[float] | None] = (None, None)) -> Table:
    """The members of the served mixture: share of users, λ, and what each was measured to be worth.

    Args:
        run: with its members.
        mixture: by the critic and measured again, of the mixture as a whole; a row where one of them is known.
    """
    budgets = [run.campaign.told("budgets", b.name) for b in run.campaign.limits]
    critics = any(m.critic for m in run.members)
    notes = ("by the critic", "measured again") if critics else ("measured again",)
    names = run.manifest["members"]

    def figures(pair: tuple[Sequence[float] | None, Sequence[float] | None]) -> list[str]:
        shown = pair if critics else pair[1:]
        values = [None if x is None else x[i] for i in range(1 + len(budgets)) for x in shown]
        return [number(value, 3 if value is not None and abs(value) < 10 else None) for value in values]

    rows = [
        row(
            Cell(f"member {i}", str(names[i].get("name", ""))),
            percent(m.weight),
            *(number(price) for price in m.multiplier),
            *figures((m.critic, m.fitted)),
        )
        for i, m in enumerate(run.members)
    ]
    if any(mixture):
        rows.append(row("mixture", "100%", *(NONE for _ in budgets), *figures(mixture), look="chosen"))
    steps = f"{number(run.manifest['steps'])} steps in " if run.manifest["steps"] else ""
    return Table(
        f"{run.manifest['method']} of {run.manifest['oracle']}, {steps}{number(run.manifest['seconds'], 0)} s",
        (
            *words("policy"),
            *numbers("share of users", *(f"λ for {name}" for name in budgets)),
            *(Column(name, note) for name in (run.campaign.told("reward"), *budgets) for note in notes),
        ),
        tuple(rows),
    )
