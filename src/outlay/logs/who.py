"""Who and when: the columns of users and times, and logs whose rows are sums over many people."""

from __future__ import annotations

from dataclasses import dataclass

from outlay.logs.clues import SURE, Clues, rank
from outlay.logs.columns import FEW, IDENTIFIER, NAMES, ScannedColumn, earlier, named, outcome, repeats, snake
from outlay.logs.looked import Guess, Looked
from outlay.logs.reading import plain
from outlay.logs.source import WHOLE

PEOPLE = 300  # users below which rows may be sums over people
SUMMED = 20_000  # rows of a log of sums at most
ONCE = "(SELECT DISTINCT * FROM log)"
ODD = 0.02  # part of users with two rows, or of rows with the time of another, up to which these are doubled


class SumsError(LookupError):
    """The rows are sums over many people; its text says how that shows."""


@dataclass(frozen=True)
class Within:
    """What a column's repeated values have in common.

    Attributes:
        time: the column of times that tells their rows apart; None where none does.
        counts_on: whether its times are all whole numbers from the first to the last.
        constant: whether another column has one value in each.
    """

    time: str | None
    counts_on: bool
    constant: bool


def find_user(log: Looked, *, alone: bool = False) -> None:
    """The column of users; where there is none, each row is one (`alone`: that is known)."""
    if role := log.fixed.get("user"):
        _settle(log, log.by_name[role], "as answered", ())
        return
    able = [] if alone else [c for c in log.free.values() if may_name(c, log.rows)]
    ranked = rank("user", {c.name: clues_of_user(log, c) for c in able})
    if ranked.best is not None:
        sure = ranked.of[ranked.best] >= SURE
        _settle(
            log, log.by_name[ranked.best], ranked.words[ranked.best], () if sure else ranked.near(ranked.best), sure
        )
    elif shared := next(
        (c for c in able if c.distinct > 20 and (named(c, NAMES["user"]) or snake(c.name) == "id")), None
    ):
        _settle(log, shared, "named like a user", (), False)
    elif one := next((c for c in log.free.values() if c.distinct == log.rows and _numbers(c)), None):
        log.give("user", one, f"{log.rows:,} values, one a row")
    elif (first := log.columns[0]).distinct == log.rows and first.type in (*WHOLE, "VARCHAR", "UUID"):
        log.give("user", first, f"the first column, with {log.rows:,} values, one a row")
    elif index := next((c for c in log.columns if c.index), None):
        log.give("user", index, "it numbers the rows, each of a user of its own")
    else:
        why = "no column names users, so every row is a user of its own"
        sure = ranked.none >= SURE
        others = () if sure else tuple(ranked.of)[:3]
        log.found["user"] = Guess("each row", why, None, sure=sure, others=others)


def _settle(log: Looked, column: ScannedColumn, why: str, near: tuple[str, ...], sure: bool = True) -> None:
    """Take it, if its values have one row each or times tell their rows apart; else rows are users in groups."""
    if not repeats(log.source, plain(column.name)):
        log.give("user", column, why, sure=sure, others=near)
        return
    for rows in ("log", ONCE):
        log.told_by = rows
        within = look_within(log, column)
        if within is not None and within.time is not None:
            but = "" if rows == "log" else "; CHECK: but for rows that are exact copies of others"
            log.give("user", column, f"{why}{but}", sure=sure, others=near)
            log.user = plain(column.name)
            return
    log.told_by = "log"
    twice = f"{column.name} has several rows of some values, and no column of times tells them apart"
    log.found["user"] = Guess("each row", f"CHECK: {twice}, so each row counts as a user", None, sure=False)
    log.give("cluster", column, "rows of one value are one user's, or doubled: they count as one piece of evidence")


def may_name(c: ScannedColumn, rows: int) -> bool:
    """Whether its values may be users with several rows each."""
    if not 1 < c.distinct < rows:
        return False
    return c.type in (*WHOLE, "VARCHAR", "UUID", "DOUBLE") and not c.index and not earlier(c)


def _numbers(c: ScannedColumn) -> bool:
    """Whether a column with another value in every row is called like one of users."""
    return c.type in (*WHOLE, "VARCHAR", "UUID") and (named(c, NAMES["user"]) or named(c, IDENTIFIER))


def clues_of_user(log: Looked, c: ScannedColumn) -> Clues:
    """What speaks for a column as that of users, and against it."""
    clues: Clues = {}
    if named(c, NAMES["user"]):
        clues["user name"] = 1, "named like a user"
    elif snake(c.name) == "id":
        clues["id"] = 1, "named id"
    elif named(c, NAMES["place"]):
        clues["place"] = 1, "named like a place"
    elif named(c, IDENTIFIER):
        other = named(c, r"^(order|session|item|product|coupon|basket|campaign|transaction|invoice|offer|ad|sku)_?")
        clues["other id" if other else "identifier"] = 1, "named like an identifier"
    if outcome(c):
        clues["outcome"] = 1, ""
    if log.is_time(c):
        clues["time"] = 1, ""
    if c.type == "DOUBLE":
        clues["fractions"] = 1, ""
    if c.distinct <= 20:
        clues["few"] = 1, ""
    if c.name == log.names[0] and log.in_order:
        clues["first"] = 1, ""
    clues["often"] = min(log.rows / c.distinct, 30) / 30, ""
    if named(c, r"(^|_)(household|hh|family|cluster|haushalt)(_|$)"):
        clues["household"] = 1, ""
    if c.distinct > 5 and (within := look_within(log, c)) is not None:
        if within.time is not None:
            clues["told apart"] = 1, f"{within.time} tells its rows apart"
            if within.counts_on:
                clues["counts on"] = 1, f"{within.time} counts on in every one of its values"
            if within.constant:
                clues["constant"] = 1, "other columns have one value for each"
        elif log.rows / c.distinct < 10:
            clues["not told apart"] = 1, ""
    return clues


def look_within(log: Looked, c: ScannedColumn) -> Within | None:
    """What a column's repeated values have in common; None where none is repeated."""
    whole = [t for t in log.columns if t.type in WHOLE and t.name != c.name and not t.index and not outcome(t)]
    counting = [t for t in whole if 3 <= t.distinct <= 400 and t.distinct == (t.high or 0) - (t.low or 0) + 1][:8]
    times = [t for t in log.columns if t.name != c.name and log.is_time(t) and t not in counting][:4] + counting
    others = [o for o in log.columns if o.name != c.name and 2 <= o.distinct <= FEW and o not in times][:20]
    if c.type == "DOUBLE" and c.distinct > log.rows / 2:
        return None
    parts = [
        *(f"sum(k - d{i})" for i in range(len(times))),
        *(f"count(*) FILTER (s{i} != k - 1 OR k < 2)" for i in range(len(times))),
        *(f"max(n{i})" for i in range(len(others))),
    ]
    inner = [f"count(DISTINCT {plain(t.name)}) AS d{i}" for i, t in enumerate(times)]
    inner += [
        f"{f'max({plain(t.name)}) - min({plain(t.name)})' if t.type in WHOLE else '-2'} AS s{i}"
        for i, t in enumerate(times)
    ]
    inner += [f"count(DISTINCT {plain(o.name)}) AS n{i}" for i, o in enumerate(others)]
    [(users, twice, *rest)] = log.source.run(
        f"SELECT count(*), count(*) FILTER (k > 1), {', '.join(parts) or '0'} FROM "
        f"(SELECT count(*) AS k{''.join(', ' + each for each in inner)} FROM {log.told_by} "
        f"WHERE {plain(c.name)} IS NOT NULL GROUP BY {plain(c.name)})"
    )
    if not twice or twice < ODD * users:
        return None
    same, wrong, most = rest[: len(times)], rest[len(times) : 2 * len(times)], rest[2 * len(times) :]
    apart = [i for i, count in enumerate(same) if (count or 0) <= ODD * log.rows]
    apart.sort(key=lambda i: (wrong[i], not log.is_time(times[i])))
    constant = 1 in most[: len(others)]
    if not apart:
        return Within(None, False, constant)
    return Within(times[apart[0]].name, not wrong[apart[0]], constant)


def find_time(log: Looked) -> None:
    """The column of times."""
    candidates = [c for c in log.free.values() if log.is_time(c)]
    if log.user is None:  # a whole number does not say when, where users have one row
        candidates = [c for c in candidates if c.type not in WHOLE]
    elif (user := log.found["user"].column) and not any(map(log.is_time, candidates)):
        within = look_within(log, log.by_name[user])
        candidates = [] if within is None or within.time is None else [log.by_name[within.time]]
    if role := log.fixed.get("time"):
        candidates = [log.by_name[role]]
    if not candidates:
        log.found["time"] = Guess("1", "no column looks like a day, so every user has one row, on day 1")
        return
    ordered = sorted(candidates, key=lambda c: (not named(c, NAMES["time"]), c.type in WHOLE))
    if log.user is not None and len(ordered) > 1:  # the one that tells a user's rows apart
        ordered.sort(key=lambda c: _same_times(log, c))
    column = ordered[0]
    why = "by its name" if named(column, NAMES["time"]) else "by its type"
    why = why if log.is_time(column) else "it counts a user's rows on"
    text, kept = column.name, "a date" if column.type == "DATE" else "a whole number"
    if column.type.startswith("TIMESTAMP"):
        text, kept = f"cast({plain(column.name)} as date)", "a timestamp, cut to its date"
    log.give("time", column, f"{why}; {kept}", text, others=[c.name for c in ordered[1:]])


def _same_times(log: Looked, c: ScannedColumn) -> int:
    text = f"cast({plain(c.name)} as date)" if c.type.startswith("TIMESTAMP") else plain(c.name)
    [(same,)] = log.source.run(f"SELECT count(*) - count(DISTINCT ({log.user}, {text})) FROM log")
    return int(same)


def refuse_sums(log: Looked) -> None:
    """Raise SumsError where rows are sums over many people: spend by channel and week, say."""
    user = log.found["user"].column
    who = None if user is None else log.by_name[user]
    if who is not None and not who.index and named(who, NAMES["user"]):
        return
    numbers = [c for c in log.columns if c.is_number and c.type != "BOOLEAN" and c.name != user]
    large = [c for c in numbers if (c.low or 0) >= 0 and c.distinct > min(20, 0.5 * log.rows)]
    media = [c for c in large if named(c, NAMES["media"])]
    times = [c for c in log.columns if log.is_time(c) or named(c, NAMES["time"])]
    shown = [c for c in large if named(c, r"(^|_)(impressions?|reach)(_|$)") and (c.high or 0) >= 50]
    clicked = [c for c in numbers if named(c, r"(^|_)(clicks?|spend|spent|conversions?)(_|$)")]
    if shown and len(clicked) >= 1:
        names = ", ".join(c.name for c in [*shown, *clicked][:4])
        raise SumsError(f"a row counts many people ({names}), and no column names a user")
    unit = next((c for c in times if c.distinct >= 5), None)
    if unit is None or log.rows > SUMMED or (who is not None and who.distinct > PEOPLE and not who.index):
        return
    if len(media) >= 2 and log.rows / unit.distinct <= PEOPLE:
        names = ", ".join(c.name for c in media[:4])
        raise SumsError(
            f"a row is a {snake(unit.name)} with totals ({names}), {log.rows / unit.distinct:.3g} of them for each "
            f"of {unit.distinct:,}, and no column names a user"
        )
