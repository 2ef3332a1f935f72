"""What is wrong with a log, or worth knowing: findings, worst first.

An *error* stops `prepare`; a *warning* makes results weaker than they look; a *note* is for the reader. Each names the
key or column, what was found, how often, and the way out.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from outlay.core.actions import Given, all_named, named
from outlay.core.campaign import DAYS_OF, Campaign
from outlay.core.errors import LogError
from outlay.core.reserves import ROUNDING, TOO_LOW, WAY_OUT, unpriced, unpriced_words
from outlay.core.wording import counted, small
from outlay.logs.clustering import clustering
from outlay.logs.findings import LEVELS, Finding
from outlay.logs.leaks import leaks
from outlay.logs.propensities import Claims, claims
from outlay.logs.reading import copies_or, plain, setting
from outlay.logs.roles import Log, last_time
from outlay.logs.values import exactly

MAX_ACTIONS, MAX_SEGMENTS = 255, 50
LARGEST = 1e30  # of an amount: networks have floats up to 3e38, and variances square
TO_DATE = re.compile(r"cast\(((?:(?! as date\)).)+) as date\)", re.IGNORECASE)  # and nothing beside it
PLACE = re.compile(r"\b(row_number|rowid)\b", re.IGNORECASE)  # in SQL of a user
EMPTY = 0.02  # share of the log's days on which nobody has a row, from which that is told
LONG, LONGER = 60, 20  # units of time, and times the usual gap, beyond which a user may be somebody else
ABSENT = 0.05  # share of user-days without a row from which somebody has to say what absence means


@dataclass(frozen=True)
class Action:
    """How often an action was given: in all rows, in rows with a choice, and its least propensity there.

    `value` is its number inside, `called` what people call it.
    """

    value: float
    count: int
    choices: int
    least_propensity: float | None
    called: Given = ""


@dataclass(frozen=True)
class Facts:
    """What one scan over the linked log tells.

    Attributes:
        rows, users: counts.
        choices: rows with a choice (not forced).
        first_time, last_time: in units of `time`.
        actions: in ascending order of value; every listed action, and every one that occurs.
        missing: role → rows without a value.
        duplicates: rows beyond the first of their user and time.
        propensities: held against the log; None where none are stated, or not such that they can be.
        findings: worst first.
    """

    rows: int
    users: int
    choices: int
    first_time: int
    last_time: int
    actions: tuple[Action, ...]
    missing: dict[str, int]
    duplicates: int
    propensities: Claims | None
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that stop `prepare`."""
        return tuple(finding for finding in self.findings if finding.level == "error")


def inspect(log: Log) -> Facts:
    """Look at the linked log (tables `roles`, `users`, `links`)."""
    run = log.source.run
    rows, choices, users = run(
        f"SELECT count(*), count(*) FILTER ({log.choice}), (SELECT count(*) FROM users) FROM roles"
    )[0]
    first, last = run('SELECT min("time"), max("time") FROM roles')[0]
    missing = _missing(log)
    actions, findings = _actions(log)
    findings += _values(log, missing)
    findings += _reserves(log, actions)
    findings += _users_by_place(log)
    findings += log.ripeness.findings() if log.ripeness else []
    findings += log.credited.findings() if log.credited else []
    findings += log.made.findings() if log.made else []
    if choices == 0:
        findings.append(
            Finding(
                "error",
                "log.forced",
                "every row is forced, so there was no choice to learn from.",
                "Fix log.forced: it marks rows where there was no choice.",
                rows,
            )
        )
    duplicates = 0
    if users:
        duplicates = int(run("SELECT count(*) FROM links WHERE gap = 0")[0][0])
        findings += _links(log, duplicates) + _gaps(log, users) + _segments(log) + clustering(log)
    held = None
    if users and choices and log.campaign.log.propensity and _can_be_held(findings, actions):
        held = claims(log, [action.value for action in actions])
        findings += held.findings(choices)
    if users and choices and not any(finding.level == "error" for finding in findings):
        findings += leaks(log, weighable=held is not None)
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return Facts(
        rows=rows,
        users=users,
        choices=choices,
        first_time=int(first or 0),
        last_time=int(last or 0),
        actions=tuple(actions),
        missing=missing,
        duplicates=duplicates,
        propensities=held,
        findings=tuple(findings),
    )


def _users_by_place(log: Log) -> list[Finding]:
    """A warning where a user is the number of a row, which says nothing of who it is."""
    user = log.campaign.log.user
    if user is None or user in log.source.columns or not PLACE.search(user):
        return []
    message = (
        f"{user!r} numbers the rows: the same people in another order are other users, in other parts of the split, "
        "with other members of the mixture."
    )
    return [Finding("warning", "log.user", message, "Name a column that stays with a person, or leave user out.", 0)]


def refuse(campaign: Campaign, facts: Facts) -> None:
    """Raise LogError if a finding stops `prepare`; the first in detail, the others by name."""
    if not facts.errors:
        return
    first, *others = facts.errors
    more = "".join(f"\n  also {f.where}: {f.message}" for f in others)
    listed = f" {len(others)} more (outlay check lists all):{more}" if others else ""
    told = campaign.timed
    raise LogError(told(first.message), file=campaign.source, where=first.where, way_out=told(first.way_out + listed))


def _missing(log: Log) -> dict[str, int]:
    """Rows without a value, by role. In forced rows a propensity is not needed."""
    given = {"user": '"user"', "time": '"time"', "action": "action", "reward": "reward"}
    given |= {f"cost of {b.name}": c for b, c in zip(log.campaign.budgets, log.costs, strict=True)}
    sums = {name: f"count(*) - count({sql})" for name, sql in given.items()}
    if log.campaign.log.propensity:
        sums["propensity"] = f"count(*) FILTER ({log.choice} AND propensity IS NULL)"
    if log.campaign.log.eligible:
        sums["eligible"] = f"count(*) FILTER ({log.choice} AND eligible IS NULL)"
    counts = log.source.run(f"SELECT {', '.join(sums.values())} FROM roles")[0]
    return {name: int(count) for name, count in zip(sums, counts, strict=True)}


def _values(log: Log, missing: dict[str, int]) -> list[Finding]:
    """Missing and impossible values."""
    keys: dict[str, tuple[str, str | None]] = {
        role: (f"log.{role}", None) for role in ("user", "time", "action", "reward")
    }
    keys |= {f"cost of {b.name}": ("budget.cost", b.name) for b in log.campaign.budgets}
    columns = {"user": '"user"', "time": '"time"'} | {
        f"cost of {b.name}": c for b, c in zip(log.campaign.budgets, log.costs, strict=True)
    }
    findings = []
    for name, count in missing.items():
        if count and name in keys:
            place = _first(log, f"{columns.get(name, name)} IS NULL")
            way_out = f"Fix them, or leave these rows out: {_leave_out(log, name)}."
            message = f"{name} is missing or NaN in {counted(count, 'row')}, {place}."
            key, budget = keys[name]
            findings.append(Finding("error", key, message, way_out, count, budget))
    wrong = _impossible(log)
    counts = log.source.run("SELECT " + ", ".join(f"count(*) FILTER ({w.condition})" for w in wrong) + " FROM roles")[0]
    for value, count in zip(wrong, counts, strict=True):
        if count:
            message = f"{value.words} in {counted(count, 'row')}, {_first(log, value.condition, value.column)}."
            findings.append(Finding(value.level, value.key, message, value.way_out, int(count), value.budget))
    if log.campaign.log.eligible and log.campaign.log.labels:
        unknown = f"{log.choice} AND len(eligible) > list_count(eligible)"
        [(count,)] = log.source.run(f"SELECT count(*) FILTER ({unknown}) FROM roles")
        if count:
            message = f"{count:,} lists name actions that there are not, which are passed over; {_first(log, unknown)}."
            way_out = f"Write names as the log does: {all_named(log.campaign.log.labels)}."
            findings.append(Finding("warning", "log.eligible", message, way_out, count))
    if missing.get("eligible"):
        count = missing["eligible"]
        message = f"the list is missing in {counted(count, 'row')} with a choice; every action counts as allowed there."
        findings.append(Finding("note", "log.eligible", message, "", count))
    return findings


class _Impossible(NamedTuple):
    """A kind of value that cannot be, or hardly: its key, its column, when, in words, the way out, and its budget."""

    key: str
    column: str
    condition: str
    words: str
    way_out: str
    budget: str | None = None
    level: Literal["error", "warning"] = "error"


def _impossible(log: Log) -> list[_Impossible]:
    drop = "Fix them, or leave these rows out with log.where."
    unit = "Is it a number that stands for something else? Else give it in a larger unit."
    costs = [
        ("budget.cost", c, f"cost of {b.name}", b.name) for b, c in zip(log.campaign.budgets, log.costs, strict=True)
    ]
    outcomes = [("log.reward", "reward", "reward", None), *costs]
    wrong = [_Impossible(key, c, f"isinf({c})", f"{name} is infinite", drop, b) for key, c, name, b in outcomes]
    wrong += [
        _Impossible(key, c, f"abs({c}) > {LARGEST} AND NOT isinf({c})", f"{name} is beyond {LARGEST:g}", unit, b)
        for key, c, name, b in (("log.action", "action", "action", None), *outcomes)
    ]
    money = log.campaign.money
    way_out = "If money came back, take it off the row it was paid for; else fix it, or leave these rows out."
    name, cost = log.campaign.budgets[money].name, log.costs[money]
    below = f"cost of {name} is below 0"
    wrong.append(_Impossible("budget.cost", cost, f"{cost} < 0", below, way_out, name, "warning"))
    if log.campaign.log.propensity:
        way_out = "Give the probability of the action in the row; mark rows without a choice with log.forced."
        for name, condition in {
            "missing": "propensity IS NULL",
            "negative": "propensity < 0",
            "0": "propensity = 0",
            "above 1": "propensity > 1",
        }.items():
            text = f"propensity is {name} (expected: in (0, 1], the chance of the action given)"
            wrong.append(_Impossible("log.propensity", "propensity", f"{log.choice} AND {condition}", text, way_out))
    if log.campaign.log.eligible:
        condition = f"{log.choice} AND eligible IS NOT NULL AND NOT list_contains(eligible, action)"
        text, way_out = (
            "the action given is not among the eligible ones",
            "Fix the list, or mark these rows with log.forced.",
        )
        wrong.append(_Impossible("log.eligible", "action", condition, text, way_out))
    return wrong


def _reserves(log: Log, actions: list[Action]) -> list[Finding]:
    """Largest costs that the log contradicts, that the action alone does not tell, or that nothing tells.

    What is stated of money, servers set aside: a contradiction is an error, but for none, for which nothing is.
    """
    findings = []
    none = log.campaign.none or 0.0
    for j, (budget, cost) in enumerate(zip(log.campaign.budgets, log.costs, strict=True)):
        reserve, money = f"reserve{j}", j == log.campaign.money
        if not budget.stated:
            findings += _unpriced(log, actions, none, budget.name, cost) if money else []
        if budget.reserve is None:
            continue
        stated = budget.reserve if isinstance(budget.reserve, str) else "the table"
        (differ,) = log.source.run(
            f"SELECT count(*) FROM (SELECT 1 FROM roles GROUP BY action HAVING count(DISTINCT {reserve}) > 1 "
            f"OR count({reserve}) < count(*))"
        )[0]
        names = log.campaign.names
        if differ and not (names.labels and names.holds == "amounts"):  # a bin has the amounts of its rows
            findings.append(
                Finding(
                    "warning",
                    "budget.reserve",
                    f"{stated} is not told by the action alone: {differ:,} "
                    "actions have several values, or none. Nothing is certified by it.",
                    "Give the largest cost of each action, by the action and constants.",
                    int(differ),
                    budget.name,
                )
            )
        if budget.sign < 0 and not money:
            continue
        above = f"{cost} > {reserve} + {ROUNDING} * abs({reserve})"
        count, offered = log.source.run(
            f"SELECT count(*) FILTER ({above}), count(*) FILTER ({above} AND action <> {none!r}) FROM roles"
        )[0]
        if count:
            findings.append(
                Finding(
                    "error" if money and offered else "warning",
                    "budget.reserve",
                    f"{stated} is not the largest cost: {counted(count, 'row', 'cost')} more, "
                    f"{_first(log, above, cost)}. It is not believed, so nothing is certified by it, "
                    "and a server that sets it aside may pay more.",
                    TOO_LOW,
                    int(count),
                    budget.name,
                )
            )
    return findings


def _unpriced(log: Log, actions: list[Action], none: float, budget: str, cost: str) -> list[Finding]:
    """Actions of which neither the campaign file nor a row says what they cost."""
    largest = dict(log.source.run(f"SELECT action, max({cost}) FROM roles GROUP BY action"))
    given = {action.value: action.count for action in actions}
    free = unpriced(given, [largest.get(value) or 0.0 for value in given], none)
    count = sum(given[value] for value in free)
    return (
        [Finding("warning", "budget.reserve", unpriced_words(map(log.campaign.given, free)), WAY_OUT, count, budget)]
        if free
        else []
    )


def _leave_out(log: Log, name: str) -> str:
    """A line of the campaign file that filters out the rows without a role's value."""
    text, before = _text(log, name), log.campaign.log.where
    condition = f"{plain(text) if text in log.source.columns else f'({text})'} is not null"
    return setting("where", f"({before}) and {condition}" if before else condition)


def _text(log: Log, name: str) -> str:
    texts = {
        "user": log.campaign.log.user or "",
        "time": log.campaign.log.time or "",
        "action": log.campaign.log.action,
        "reward": log.campaign.log.reward,
    }
    cost = next((b.cost for b in log.campaign.budgets if name == f"cost of {b.name}"), None)
    return texts.get(name) or (cost if isinstance(cost, str) else log.campaign.log.action)


def _first(log: Log, condition: str, column: str | None = None) -> str:
    """Where a condition holds first, in words."""
    value = f", CAST({column} AS VARCHAR)" if column else ""
    row = log.source.run(f'SELECT row, "user", "time"{value} FROM roles WHERE {condition} ORDER BY row LIMIT 1')[0]
    time = None if row[2] is None else log.when(row[2])
    shown = f", value {row[3]}" if column and row[3] is not None else ""
    if shown and column == "action" and log.campaign.log.labels:
        shown = f", value {named(log.campaign.given(float(row[3])))}"
    return f"first in row {row[0] + 1} (user {row[1]}, time {time}{shown})"


def _actions(log: Log) -> tuple[list[Action], list[Finding]]:
    least = f"min(propensity) FILTER ({log.choice})" if log.campaign.log.propensity else "NULL"
    distinct = int(log.source.run("SELECT approx_count_distinct(action) FROM roles")[0][0])
    limit = MAX_ACTIONS + 1
    seen = [
        Action(float(value), int(count), int(choices), None if p is None else float(p))
        for value, count, choices, p in log.source.run(
            f"SELECT action, count(*), count(*) FILTER ({log.choice}), {least} FROM roles "
            f"WHERE action IS NOT NULL GROUP BY action ORDER BY count(*) DESC, action LIMIT {limit}"
        )
    ]
    findings: list[Finding] = []
    listed = _listed(log.campaign)
    if len(seen) > MAX_ACTIONS:
        message = f"has about {distinct:,} different values; at most {MAX_ACTIONS} can be chosen from."
        findings.append(
            Finding(
                "error",
                "log.action",
                message,
                "Put the amounts into bins: write bins = 6 under [log], or edges, as in bins = [0, 5, 10, 20].",
                distinct,
            )
        )
        return sorted(seen, key=lambda action: action.value), findings
    if listed is not None:
        unknown = [action for action in seen if action.value not in listed]
        if unknown:
            values = ", ".join(exactly(action.value) for action in unknown[:5])
            count = sum(action.count for action in unknown)
            more = " …" if len(unknown) > 5 else ""
            message = f"{counted(count, 'row', 'have')} an action that is not listed: {values}{more}."
            way_out = "Add it to the list, or leave these rows out with log.where."
            findings.append(Finding("error", "log.actions", message, way_out, count))
        seen += [Action(value, 0, 0, None) for value in listed if value not in {action.value for action in seen}]
    none = log.campaign.none
    if log.campaign.log.complete and none is not None and none not in {action.value for action in seen}:
        if listed is not None:
            called = named(log.campaign.given(none))
            message = f"is {called}, which is not in log.actions; missing days get it (complete = true)."
            findings.append(Finding("error", "campaign.none", message, "Add it to log.actions.", 0))
        seen.append(Action(none, 0, 0, None))
    elif none is not None and none not in {action.value for action in seen}:
        message = f"is {none:g}, and no row of the log has it: nothing is known of what follows if nothing is given."
        way_out = "Name the action that gives nothing; or leave none out if every action gives something."
        findings.append(Finding("warning" if none else "note", "campaign.none", message, way_out, 0))
    findings += _given(seen, log.campaign) + _alike(seen, log)
    known = {action.value for action in seen}
    way_out = f"Actions: {', '.join(exactly(value) for value in sorted(known))}."
    findings += [
        Finding("error", "log.contrast", f"names {named(given)}, which is not an action of the log.", way_out, 0)
        for given in log.campaign.log.contrast or ()
        if log.campaign.names.value(given) not in known
    ]
    named_so = (replace(action, called=log.campaign.given(action.value)) for action in seen)
    return sorted(named_so, key=lambda action: action.value), findings


def _listed(campaign: Campaign) -> list[float] | None:
    """The actions of the campaign file; None where it leaves them to the log."""
    values = [campaign.names.value(each) for each in campaign.log.actions or ()]
    return [value for value in values if value is not None] if values else None


def _given(actions: list[Action], campaign: Campaign) -> list[Finding]:
    """Whether there is anything to compare."""
    chosen = [action for action in actions if action.choices]
    findings = []
    if len(chosen) == 1:
        only = named(campaign.given(chosen[0].value))
        message = f"every row with a choice has the same action, {only}; there is nothing to compare."
        way_out = "Give a log in which at least two actions were given."
        findings.append(Finding("error", "log.action", message, way_out, chosen[0].choices))
    for action in actions:
        if not action.choices and chosen:
            never = "was never given where there was a choice: the log says nothing about it."
            way_out = "Take it out of log.actions, or leave its rows out."
            message = f"action {named(campaign.given(action.value))} {never}"
            findings.append(Finding("warning", "log.action", message, way_out, action.count))
    return findings


def _alike(actions: list[Action], log: Log) -> list[Finding]:
    """Names that differ only in case or spaces: one action that was written in several ways?"""
    groups: dict[str, list[str]] = {}
    for action in actions:
        called = log.campaign.given(action.value)
        if isinstance(called, str):
            groups.setdefault(" ".join(called.lower().split()), []).append(called)
    names = next((each for each in groups.values() if len(each) > 1), None)
    if names is None:
        return []
    told = ", ".join(map(repr, names))
    message = f"{told} differ only in capitals or spaces, and count as {len(names)} actions."
    text = log.campaign.log.action
    written = plain(text) if text in log.source.columns else text
    way_out = f"If they are one, write {setting('action', f'lower(trim({written}))')}."
    return [Finding("warning", "log.action", message, way_out, len(names))]


def _as_decisions(log: Log, duplicates: int) -> str | None:
    """The line that numbers each user's rows, where a time of day tells them apart; None where none does."""
    user, time = str(log.campaign.log.user), str(log.campaign.log.time)
    moment = log.source.term("log.time", cut[1] if (cut := TO_DATE.fullmatch(time)) else time)
    if not moment.type.startswith("TIMESTAMP"):
        return None
    pair = f"({log.source.term('log.user', user).sql}, {moment.sql})"
    [(same,)] = log.source.run(f"SELECT count(*) - count(DISTINCT {pair}) FROM log_numbered")
    if 2 * same > duplicates:
        return None
    known = log.source.columns
    who, when = (plain(text) if text in known else text for text in (user, moment.text))
    return setting("time", f"row_number() over (partition by {who} order by {when}) - 1")


def _links(log: Log, duplicates: int) -> list[Finding]:
    findings = []
    if duplicates:
        row = log.source.run("SELECT min(next_row) FROM links WHERE gap = 0")[0][0]
        place = _first(log, f"row = {row}")
        one = "one row per user and time: aggregate them, or filter with log.where."
        way_out = f"Keep {one}"
        if (line := _as_decisions(log, duplicates)) is not None:
            way_out = (
                f'If each row is a decision of its own, write {line}, and unit = "decision" in [rows]. Else keep {one}'
            )
        copied, way_out = copies_or(log.source.run, "log_kept", way_out)
        message = f"{counted(duplicates, 'row', 'repeat')} a user and time, {place}.{copied}"
        findings.append(Finding("error", "log.rows", message, way_out, duplicates))
    after = int(log.source.run("SELECT count(*) FROM links WHERE terminal AND next_row IS NOT NULL")[0][0])
    if after:
        row = log.source.run("SELECT min(row) FROM links WHERE terminal AND next_row IS NOT NULL")[0][0]
        findings.append(
            Finding(
                "error",
                "log.terminal",
                f"{after:,} terminal rows are followed by a later row of their user, {_first(log, f'row = {row}')}.",
                "A user ends only once: fix log.terminal.",
                after,
            )
        )
    follows = log.source.run("SELECT count(*) FILTER (next_row IS NOT NULL OR terminal) FROM links")[0][0]
    if not follows and (discount := log.campaign.meta.discount) > 0:  # where once = false
        message = (
            f"is {discount:g}, so what follows a decision counts, but no user has a second row and no row is terminal: "
            "nothing can be learned or measured."
        )
        way_out = "Leave out once = false under [log] if each row stands for itself."
        findings.append(Finding("warning", "campaign.discount", message, way_out, 0))
    return findings


class _Spacing(NamedTuple):
    """How the rows of users lie in time.

    Attributes:
        longest: units of time between two rows of a user; None where no user has two.
        usual: the longest gap but for the longest quarter of them.
        wide: gaps longer than 1.
        step: what every gap is a multiple of; 1 where there is no gap.
        inside, after: times at which others have rows and a user has none, between the user's rows, and after them.
        left: users who have no row at the log's last times.
        window: those times from a user's first row on.
        times: at which anybody has a row.
        empty: the rest, from the first to the last of them.
    """

    longest: int | None
    usual: float
    wide: int
    step: int
    inside: int
    after: int
    left: int
    window: int
    times: int
    empty: int


def _spacing(log: Log) -> _Spacing:
    run, end = log.source.run, last_time(log)
    longest, usual, wide = run(
        "SELECT max(gap), quantile_disc(gap, 0.75), count(*) FILTER (gap > 1) FROM links WHERE gap > 0"
    )[0]
    gaps = [gap for (gap,) in run("SELECT DISTINCT gap FROM links WHERE gap > 0 ORDER BY gap LIMIT 1000")]
    step = math.gcd(*gaps) if gaps else 1
    run("""
        CREATE OR REPLACE TEMP TABLE times AS SELECT "time", row_number() OVER (ORDER BY "time") AS n
        FROM (SELECT DISTINCT "time" FROM roles WHERE "time" IS NOT NULL)""")
    least = step if gaps and gaps[0] == longest else 1
    inside, after, left, window = run(f"""
        SELECT sum(b.n - a.n + 1), coalesce(sum(e.n - b.n) FILTER (away), 0), count(*) FILTER (away),
            sum(e.n - a.n + 1)
        FROM (SELECT *, NOT ended AND last_time <= {end} - {least} AS away FROM users) u
        JOIN times a ON a."time" = u.first_time JOIN times b ON b."time" = u.last_time,
            (SELECT max(n) AS n FROM times) e
        """)[0]
    [(rows,)] = run(
        'SELECT count(*) FROM (SELECT DISTINCT "user", "time" FROM roles SEMI JOIN users USING ("user") '
        'WHERE "time" IS NOT NULL)'
    )
    [(times, span)] = run('SELECT count(*), max("time") - min("time") + 1 FROM times')
    return _Spacing(
        None if longest is None else int(longest),
        float(usual or 0),
        int(wide),
        step,
        int(inside - rows),
        int(after),
        int(left),
        int(window),
        int(times),
        int(span - times),
    )


def _gaps(log: Log, users: int) -> list[Finding]:
    """Absences before the end of the log: information, unless somebody says otherwise (method: variable gaps)."""
    if log.campaign.log.once:
        return []
    found = _spacing(log)
    if found.longest is None and not found.left:
        return []
    told = [*_uneven(log, found), *_returned(log, found)]
    if found.inside + found.after == 0:
        return told
    share = (found.after + found.inside) / found.window
    cases = [_example(log)] if found.inside else []
    cases += [f"{found.left:,} of {users:,} users have no row on the log's last days"] if found.left else []
    absent = f"{small(share)} of the users' days have no row: {', and '.join(cases)}"
    count = found.wide + found.left
    settings, discount = log.campaign.log, log.campaign.meta.discount
    if settings.complete:
        return [*told, Finding("note", "log.complete", f"{absent}; missing days are filled in.", "", count)]
    unsaid = settings.complete is None and settings.terminal is None and discount > 0
    if unsaid and share >= ABSENT:
        message = (
            f"{absent}. If users have rows only on days when they came, their absence is information, and "
            "without it long-term values come out too high."
        )
        way_out = (
            "Write complete = true under [log] (adds the missing days, with no incentive and no reward), or "
            "complete = false if the gaps say nothing, or name the last row of those who left with terminal."
        )
        return [*told, Finding("error", "log.complete", message, way_out, count)]
    level: Literal["warning", "note"] = "warning" if settings.terminal is None and discount > 0 else "note"
    way_out = "If absence is information, write complete = true." if level == "warning" else ""
    message = f"{absent}; this is taken to say nothing, and totals count these days as 0."
    return [*told, Finding(level, "log.complete", message, way_out, count)]


def _example(log: Log) -> str:
    """The first user with a gap in which others have rows, and how long the longest is, in words."""
    user, before, gap = log.source.run("""
        SELECT r."user", r."time", l.gap FROM links l JOIN roles r USING (row)
        JOIN times a ON a."time" = r."time" JOIN times b ON b."time" = r."time" + l.gap WHERE b.n > a.n + 1
        ORDER BY row LIMIT 1""")[0]
    return f"user {user!r}, for one, has none between {log.when(before)} and {log.when(before + gap)}"


def _uneven(log: Log, found: _Spacing) -> list[Finding]:
    """Times at which nobody has a row: rows that are always so far apart, or steps that are not evenly spaced."""
    discount, unit = log.campaign.meta.discount, log.campaign.unit
    if found.longest is None or discount == 0 or log.campaign.log.complete or unit in ("decision", "step"):
        return []
    time = _text(log, "time")
    column = plain(time) if time in log.source.columns else f"({time})"
    if found.step > 1:
        message = (
            f"rows of a user are always {found.step} days apart, or a multiple of it: with a discount of "
            f"{discount:g} per day, what comes a row later counts {discount**found.step:.2g} times, and "
            f"horizon_days = {log.campaign.meta.horizon_days} holds {-(-log.campaign.meta.horizon_days // found.step)} "
            "of a user's rows."
        )
        divided = (
            f"date_diff('day', date '1970-01-01', {column}) // {found.step}"
            if log.dates
            else f"{column} // {found.step}"
        )
        weeks = log.dates and found.step == DAYS_OF["week"]
        what = 'unit = "week" under [rows]' if weeks else setting("time", divided)
        way_out = f"Write {what}: discount, horizon_days and report_days then count rows. Or raise the discount."
        return [Finding("warning", "log.time", message, way_out, found.empty)]
    if not found.empty or found.empty < EMPTY * (found.times + found.empty):
        return []
    [(first, last)] = log.source.run("""
        SELECT "time" + 1, after - 1 FROM (SELECT "time", lead("time") OVER (ORDER BY "time") AS after FROM times)
        WHERE after > "time" + 1 ORDER BY "time" LIMIT 1""")
    where = (
        f"the first on {log.when(first)}" if first == last else f"the first from {log.when(first)} to {log.when(last)}"
    )
    every = found.times + found.empty
    message = (
        f"no user has a row on {found.empty:,} of the log's {every:,} days ({where}), as where a shop is closed, or "
        "steps are not evenly spaced. These days count: over them the future is discounted as over others."
    )
    way_out = (
        "If they should not count, number the days that have rows: write "
        f"{setting('time', f'dense_rank() over (order by {column}) - 1')}."
    )
    return [Finding("note", "log.time", message, way_out, found.empty)]


def _returned(log: Log, found: _Spacing) -> list[Finding]:
    """Users who come back after so long that they may be somebody else."""
    long = max(LONG, LONGER * found.usual)
    if found.longest is None or found.longest <= long or log.campaign.log.user is None:
        return []
    count, user, before, gap = log.source.run(f"""
        SELECT count(DISTINCT r."user"), arg_min(r."user", row), arg_min(r."time", row), arg_min(l.gap, row)
        FROM links l JOIN roles r USING (row) WHERE l.gap > {long}""")[0]
    message = (
        f"{count:,} users have a gap that is far longer than the others (3 of 4 are {found.usual:g} or shorter): user "
        f"{user!r} has rows on {log.when(before)} and then on {log.when(before + gap)}, {gap} days later. If ids are "
        "given anew, these are two people, and the second's rows count as what became of the first."
    )
    return [
        Finding("warning", "log.user", message, f"If so, make ids that tell them apart: {_apart(log)}.", int(count))
    ]


def _apart(log: Log) -> str:
    """A line of the campaign file whose users are told apart by the year, or by a part of the log."""
    user, time = (
        plain(text) if text in log.source.columns else f"({text})" for text in (_text(log, "user"), _text(log, "time"))
    )
    part = f"year({time})" if log.dates else f"{time} // 365"
    return setting("user", f"concat({user}, '-', {part})")


def _segments(log: Log) -> list[Finding]:
    count = int(
        log.source.run("SELECT count(DISTINCT segment) FROM roles WHERE row IN (SELECT first_row FROM users)")[0][0]
    )
    if count <= MAX_SEGMENTS:
        return []
    return [
        Finding(
            "error",
            "log.segment",
            f"makes {count:,} segments; tables have room for {MAX_SEGMENTS}.",
            "Give an expression with fewer values.",
            count,
        )
    ]


def _can_be_held(findings: list[Finding], actions: list[Action]) -> bool:
    """Whether every row with a choice has a propensity, and tables of actions and segments have room."""
    spoilt = {"log.propensity", "log.eligible", "log.segment"}
    return len(actions) <= MAX_ACTIONS and not any(f.level == "error" and f.key in spoilt for f in findings)
