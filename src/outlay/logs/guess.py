"""Guess the roles of a log's columns from what they do, and from their names; `init` shows and writes them.

Every column gets points for a role, each with its reason. A guess is sure if it is well ahead of the next column. What
a person has answered already is taken as it is (`fixed`), and the rest is guessed again from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from outlay.logs.columns import (
    FEW,
    IDENTIFIER,
    NAMES,
    ScannedColumn,
    earlier,
    named,
    of_next_row,
    outcome,
    paid_out,
    repeats,
    since,
    snake,
)
from outlay.logs.evidence import Evidence, gather
from outlay.logs.naming import MOST
from outlay.logs.reading import literal, plain, setting
from outlay.logs.source import WHOLE, Source
from outlay.logs.values import NUMBER, means_nothing

MANY = 10_000  # distinct values of a text that is still a feature
AHEAD = 1.0  # points by which a sure guess leads
LEAST_ACTION, LEAST_USER = 1.5, 2.5  # points below which there is none
SURE_ACTION = 3.0  # points that no value and no pattern gives alone: a name, or a word as `control`
FORETOLD = 0.2  # Cramér's V with what was known before, from which it counts against an action
BETWEEN = 0.15  # the same of a column between action and reward with the reward, from which it is an outcome
MOVES = 0.5  # the same of a column behind both
PEOPLE = 300  # users below which rows may be sums over people
SUMMED = 20_000  # rows of a log of sums at most

ARMS = ("treatment", "test", "treated", "target", "exposed", "variant", "ad", "a", "b")

Fits = Callable[[ScannedColumn], bool]


@dataclass(frozen=True)
class Guess:
    """A column or expression, and why it was chosen.

    Attributes:
        text: as the campaign file has it.
        why: for the comment.
        column: the column; None where there is not one.
        sure: whether no other column is near.
        others: columns that might be meant, likeliest first.
        labels: of named actions: all of them.
    """

    text: str
    why: str
    column: str | None = None
    sure: bool = True
    others: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def nothing(self) -> str | None:
        """The label of the action that gives nothing, if one of them alone says so."""
        found = [label for label in self.labels if means_nothing(label)]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class GuessedRoles:
    """What was guessed.

    Attributes:
        found: role → the guess. `user`, `time`, `action`, `reward` and `cost` are always there.
        repeats: whether users have more than one row.
        later: columns that follow from the action → how that shows.
        before: columns that are known before → how that shows.
        doubted: those of `later` that only their names or places speak for.
    """

    found: dict[str, Guess]
    repeats: bool
    later: dict[str, str]
    before: dict[str, str]
    doubted: frozenset[str] = frozenset()


class NoActionError(LookupError):
    """No column could be the action.

    Attributes:
        near: columns that it might be all the same, likeliest first.
    """

    def __init__(self, text: str, near: tuple[str, ...]) -> None:
        super().__init__(text)
        self.near = near


class SumsError(LookupError):
    """The rows are sums over many people; its text says how that shows."""


def guess_roles(
    source: Source, rows: int, columns: list[ScannedColumn], fixed: Mapping[str, str] | None = None
) -> GuessedRoles:
    """Roles by what columns do and are called; `fixed`: role → the column that a person has named.

    Raises:
        SumsError: if rows are sums over people.
        NoActionError: if no column could be the action; its text says so.
        LookupError: if none could be the reward.
    """
    return _Guesser(source, rows, columns, fixed or {}).roles()


@dataclass
class _Points:
    """Points of a column for a role, with their reasons."""

    total: float = 0.0
    reasons: list[str] = field(default_factory=list)

    def add(self, points: float, reason: str = "") -> None:
        """More points; a reason is kept where they speak for the role."""
        self.total += points
        if reason and points > 0:
            self.reasons.append(reason)

    @property
    def words(self) -> str:
        """The first reasons."""
        return "; ".join(self.reasons[:4]) or "by elimination"


class _Guesser:
    """Takes columns for roles, one after another.

    Attributes:
        free: columns that have no role yet.
        found: role → the guess.
    """

    def __init__(self, source: Source, rows: int, columns: list[ScannedColumn], fixed: Mapping[str, str]) -> None:
        self.free = {column.name: column for column in columns}
        self.found: dict[str, Guess] = {}
        self._source, self._rows, self._columns, self._fixed = source, rows, columns, fixed
        self._by_name = {column.name: column for column in columns}
        self._since: dict[str, list[str]] = {}
        self._lags: dict[str, str] = {}
        self._constant: set[str] = set()
        self._doubted: set[str] = set()  # outcomes by their name or place alone
        self._when: str | None = None  # the column of times, where it was found with that of users
        self._user: str | None = None  # SQL, where users have more than one row
        self._rare: Evidence

    def roles(self) -> GuessedRoles:
        """All of them."""
        self._take(
            "propensity", lambda c: c.is_number and (c.low or 0) >= 0 and (c.high or 2) <= 1, "all values in [0, 1]"
        )
        self._take("forced", lambda c: c.is_number, "true where there was no choice")
        self._take("terminal", lambda c: c.is_number, "true in the last row of a user who left")
        self._take("eligible", lambda c: c.type == "LIST", "the actions allowed in the row")
        self._guess_user()
        self._refuse_sums()
        self._guess_time()
        time = self.found["time"].column
        self._rare = gather(self._source, self._rows, self._columns, self._user, None if time is None else plain(time))
        if self._user is not None:
            self._look_back(time)
        action = self._guess_action()
        reward = self._guess_reward(action)
        self._guess_cost(action, reward)
        self._guess_cluster(action)
        later = self._later(action, reward, time)
        before = {x: f"counts since {', '.join(y) or 'something'}" for x, y in self._since.items()}
        before |= {x: f"holds or adds up {y} of the row before" for x, y in self._lags.items()}
        before |= dict.fromkeys(self._constant, "one value per user")
        later = {x: why for x, why in later.items() if x not in before}
        doubted = frozenset(x for x in later if x in self._doubted)
        return GuessedRoles(self.found, self._user is not None, later, before, doubted)

    # Roles that a name is needed for.

    def _take(self, role: str, fits: Fits, why: str) -> None:
        """The first column with one of the names."""
        if role in self._fixed:
            column = self._by_name[self._fixed[role]]
            self._give(role, column, "as answered")
            return
        found = [c for c in self.free.values() if named(c, NAMES[role]) and not earlier(c) and fits(c)]
        if found:
            self._give(role, found[0], f"by its name; {why.format(found[0])}")

    def _give(
        self,
        role: str,
        column: ScannedColumn,
        why: str,
        text: str | None = None,
        *,
        sure: bool = True,
        others: Iterable[str] = (),
    ) -> ScannedColumn:
        self.free.pop(column.name, None)
        others = tuple(others)
        if not sure:
            also = f"; so might {', '.join(others[:5])}" if others else ""
            why = f"{why}. CHECK: not sure{also}"
        labels = column.texts if role == "action" else ()
        self.found[role] = Guess(text or column.written, why, column.name, sure, others, labels)
        return column

    def _best(self, points: Mapping[str, _Points], least: float) -> tuple[ScannedColumn, _Points] | None:
        """The column with the most points, others by theirs; the first in the log of those that are level."""
        ranked = sorted(points, key=lambda name: -points[name].total)
        if not ranked or points[ranked[0]].total < least:
            return None
        return self._by_name[ranked[0]], points[ranked[0]]

    # Who and when.

    def _guess_user(self) -> None:
        if role := self._fixed.get("user"):
            self._settle_user(self._by_name[role], "as answered", [])
            return
        points = {c.name: self._points_of_user(c) for c in self.free.values() if self._may_name(c)}
        best = self._best(points, LEAST_USER)
        if best is None and (pair := self._path()):
            user, self._when = pair
            self._settle_user(self._by_name[user], f"{self._when} counts on in every one of its values", [])
            return
        if best is None:
            if index := next((c for c in self._columns if c.index), None):
                self._give("user", index, "it numbers the rows, each of a user of its own")
                return
            why = "no column names users, so every row is a user of its own"
            self.found["user"] = Guess("each row", why, None, sure=True)
            return
        column, found = best
        near = [n for n, p in points.items() if n != column.name and p.total > max(found.total - AHEAD, LEAST_USER)]
        self._settle_user(column, found.words, near)

    def _path(self) -> tuple[str, str] | None:
        """A column of users and one of times, by no name: in all rows of a user the times count on by one."""
        whole = [c for c in self.free.values() if c.type in WHOLE and not c.index]
        times = [c for c in whole if 3 <= c.distinct <= 400 and c.distinct == (c.high or 0) - (c.low or 0) + 1][:8]
        users = [c for c in self.free.values() if c.type in (*WHOLE, "VARCHAR") and 20 <= c.distinct <= self._rows / 3]
        for u in users[:8]:
            looked = [t for t in times if t.name != u.name]
            sql = [plain(t.name) for t in looked]
            wrong = ", ".join(f"count(*) FILTER (a{i} - b{i} + 1 != k OR d{i} != k)" for i in range(len(looked)))
            parts = [f"max({t}) AS a{i}, min({t}) AS b{i}, count(DISTINCT {t}) AS d{i}" for i, t in enumerate(sql)]
            if not looked:
                continue
            inner = f"SELECT count(*) AS k, {', '.join(parts)} FROM log GROUP BY {plain(u.name)}"
            [(least, *counts)] = self._source.run(f"SELECT min(k), {wrong} FROM ({inner})")
            if least >= 3 and 0 in counts:
                return u.name, looked[counts.index(0)].name
        return None

    def _settle_user(self, column: ScannedColumn, why: str, near: list[str]) -> None:
        self._give("user", column, why, sure=not near, others=near)
        if repeats(self._source, plain(column.name)):
            self._user = plain(column.name)

    def _may_name(self, c: ScannedColumn) -> bool:
        return c.type in (*WHOLE, "VARCHAR", "UUID", "DOUBLE") and c.distinct > 1 and not c.index and not earlier(c)

    def _points_of_user(self, c: ScannedColumn) -> _Points:
        points = _Points()
        few = c.distinct <= 20 and c.distinct < 0.2 * self._rows
        if named(c, NAMES["user"]):
            points.add(5 if named(c, IDENTIFIER) or c.type != "DOUBLE" else 1, "named like a user")
            if outcome(c):
                points.add(-4)
        elif snake(c.name) == "id":
            points.add(3.5, "named id")
        elif named(c, NAMES["place"]):
            points.add(2.6 if named(c, IDENTIFIER) else 1.5, "named like a place")
        elif named(c, IDENTIFIER):
            other = named(c, r"^(order|session|item|product|coupon|basket|campaign|transaction|invoice|offer|ad|sku)_?")
            points.add(0.5 if other else 2.0, "named like an identifier")
        if c.distinct == self._rows and c.type != "DOUBLE":
            points.add(1, f"{c.distinct:,} values, one a row")
        elif points.total > 0:
            points.add(0, "")
            if c.distinct > FEW:
                points.reasons.append(f"about {c.distinct:,} values, each in several rows")
        if not outcome(c) and 20 < c.distinct < self._rows and self._people(c):
            points.add(2.6, "other columns have one value for each, and time tells its rows apart")
        if few:
            points.add(-3)
        if points.total >= LEAST_USER and c.distinct < self._rows and self._shared(c):
            points.add(-6)
        return points

    def _people(self, c: ScannedColumn) -> bool:
        """Whether a repeated value stands for one user: time tells its rows apart, and something is constant in it."""
        times = [t for t in self._columns if t.name != c.name and self._is_time(t)]
        others = [o for o in self._columns if o.name != c.name and 2 <= o.distinct <= FEW and o not in times][:20]
        if not times or not others or self._is_time(c):
            return False
        spread = ", ".join(f"max(n{i})" for i in range(len(others)))
        counts = ", ".join(f"count(DISTINCT {plain(o.name)}) AS n{i}" for i, o in enumerate(others))
        name = plain(c.name)
        [(same, *most)] = self._source.run(
            f"SELECT max(k), {spread} FROM (SELECT count(*) - count(DISTINCT {plain(times[0].name)}) AS k, {counts} "
            f"FROM log GROUP BY {name} HAVING count(*) > 1)"
        )
        return same == 0 and 1 in most

    def _shared(self, c: ScannedColumn) -> bool:
        """Whether a repeated id is one of groups (a household): nothing tells a group's rows apart in time."""
        times = [t for t in self._columns if t.name != c.name and self._is_time(t)]
        if times or not named(c, r"(^|_)(household|hh|family|cluster|haushalt)(_|$)"):
            return False
        [(mean,)] = self._source.run(f"SELECT avg(n) FROM (SELECT count(*) AS n FROM log GROUP BY {plain(c.name)})")
        return float(mean) < 10

    def _is_time(self, c: ScannedColumn) -> bool:
        typed = c.type == "DATE" or c.type.startswith("TIMESTAMP")
        return typed or (named(c, NAMES["time"]) and c.type in WHOLE and not outcome(c))

    def _guess_time(self) -> None:
        candidates = [c for c in self.free.values() if self._is_time(c)]
        if self._user is None:  # a whole number does not say when, where users have one row
            candidates = [c for c in candidates if c.type not in WHOLE]
        if self._when is not None:
            candidates = [self._by_name[self._when]]
        if role := self._fixed.get("time"):
            candidates = [self._by_name[role]]
        if not candidates:
            self.found["time"] = Guess("1", "no column looks like a day, so every user has one row, on day 1")
            return
        typed = sorted(candidates, key=lambda c: (not named(c, NAMES["time"]), c.type in WHOLE))
        if self._user is not None and len(typed) > 1:  # the one that tells a user's rows apart
            typed.sort(key=self._same_times)
        column = typed[0]
        why = "by its name" if named(column, NAMES["time"]) else "by its type"
        why = "it counts a user's rows on" if self._when is not None else why
        if column.type.startswith("TIMESTAMP"):
            text, kept = f"cast({plain(column.name)} as date)", "a timestamp, cut to its date"
        else:
            text, kept = column.name, "a date" if column.type == "DATE" else "a whole number"
        self._give("time", column, f"{why}; {kept}", text, others=[c.name for c in typed[1:]])

    def _same_times(self, c: ScannedColumn) -> int:
        text = f"cast({plain(c.name)} as date)" if c.type.startswith("TIMESTAMP") else plain(c.name)
        [(same,)] = self._source.run(f"SELECT count(*) - count(DISTINCT ({self._user}, {text})) FROM log")
        return int(same)

    def _refuse_sums(self) -> None:
        """Raise SumsError where rows are sums over many people: spend by channel and week, say."""
        user = self.found["user"].column
        who = None if user is None else self._by_name[user]
        if who is not None and not who.index and named(who, NAMES["user"]):
            return
        numbers = [c for c in self._columns if c.is_number and c.type != "BOOLEAN" and c.name != user]
        large = [c for c in numbers if (c.low or 0) >= 0 and c.distinct > min(20, 0.5 * self._rows)]
        media = [c for c in large if named(c, NAMES["media"])]
        times = [c for c in self._columns if self._is_time(c) or named(c, NAMES["time"])]
        shown = [c for c in large if named(c, r"(^|_)(impressions?|reach)(_|$)") and (c.high or 0) >= 50]
        clicked = [c for c in numbers if named(c, r"(^|_)(clicks?|spend|spent|conversions?)(_|$)")]
        if shown and len(clicked) >= 1:
            names = ", ".join(c.name for c in [*shown, *clicked][:4])
            raise SumsError(f"a row counts many people ({names}), and no column names a user")
        unit = next((c for c in times if c.distinct >= 5), None)
        if unit is None or self._rows > SUMMED or (who is not None and who.distinct > PEOPLE and not who.index):
            return
        if len(media) >= 2 and self._rows / unit.distinct <= PEOPLE:
            names = ", ".join(c.name for c in media[:4])
            raise SumsError(
                f"a row is a {snake(unit.name)} with totals ({names}), {self._rows / unit.distinct:.3g} rows for each "
                f"of {unit.distinct:,}, and no column names a user"
            )

    def _look_back(self, time: str | None) -> None:
        rare = self._rare
        names = [name for name in rare.codes if self._by_name[name].is_number and name != self.found["user"].column]
        self._constant = {name for name in rare.codes if rare.constant(name)} - {self.found["user"].column or ""}
        if time is None:
            return
        numbers = [c for c in self.free.values() if c.is_number]
        counts = [c for c in numbers if earlier(c) or not outcome(c)]
        self._since = since(self._source, str(self._user), plain(time), counts, numbers)
        looked = [n for n in names if n not in self._constant and n != time and n not in self._since][:120]
        for x, y in rare.lags(looked).items():
            if self._lags.get(y) != x and not (outcome(self._by_name[x]) and not earlier(self._by_name[x])):
                self._lags[x] = y

    # What was given.

    def _guess_action(self) -> ScannedColumn:
        if role := self._fixed.get("action"):
            column = self._by_name[role]
            return self._give("action", column, "as answered")
        able = [c for c in self.free.values() if self._may_act(c)]
        points = {c.name: self._points_of_action(c) for c in able}
        for c in able:  # a part of another one: every row with a value of it has that one too
            wider = [o for o in able if o is not c and self._within(c, o)]
            points[c.name].add(-min(len(wider), 2) * 0.75)
        best = self._best(points, LEAST_ACTION)
        if best is None:
            likely = sorted(points, key=lambda n: -points[n].total)[:5]
            raise NoActionError(_no_action(self._columns, self.found), tuple(likely))
        column, found = best
        near = [n for n, p in points.items() if n != column.name and p.total > max(found.total - AHEAD, LEAST_ACTION)]
        near = sorted(near, key=lambda n: -points[n].total)
        found.reasons.append(_spread(column))
        sure = not near and found.total >= SURE_ACTION
        return self._give("action", column, found.words, sure=sure, others=near)

    def _may_act(self, c: ScannedColumn) -> bool:
        if (
            c.name in self._since
            or c.name in self._lags
            or c.index
            or 2 * c.distinct > self._rows + 2
            or c.distinct < 2
        ):
            return False
        if c.type == "DOUBLE" and c.distinct > FEW:
            return False
        stated = "propensity" in self.found or named(c, NAMES["offered"]) or named(c, NAMES["treated"])
        most = MOST if stated and not named(c, NAMES["money"]) else FEW
        return (c.is_number and c.distinct <= most) or 2 <= len(c.texts) <= (FEW if stated else 20)

    def _within(self, c: ScannedColumn, o: ScannedColumn) -> bool:
        """Whether `c` is not 0 only where `o` is not 0, and more seldom."""
        if not (c.is_number and o.is_number) or c.low != 0 or o.low != 0:
            return False
        mine, its = self._rare.values[c.name] > 0, self._rare.values[o.name] > 0
        return bool(mine.any() and its[mine].all() and its.sum() > mine.sum() and its.mean() < 0.9)

    def _points_of_action(self, c: ScannedColumn) -> _Points:
        points, rare = _Points(), self._rare
        for kind, worth in (("treated", 4.0), ("offered", 3.0), ("arm", 1.5)):
            if named(c, NAMES[kind]):
                points.add(worth, "named like an action")
                if _exactly(c, NAMES[kind]):
                    points.add(0.75)
                break
        if earlier(c):
            points.add(-6)
        if outcome(c):
            points.add(-4)
        if named(c, NAMES["time"]) or self._is_time(c):
            points.add(-3)
        if named(c, IDENTIFIER) and not named(c, NAMES["offered"]):
            points.add(-2)
        self._add_values(c, points)
        if "propensity" in self.found and (p := self.found["propensity"].column):
            if rare.calibrated(c.name, p):
                points.add(6, f"{p} is the probability of its values")
            else:
                points.add(-1)
        if self._user is not None:
            points.add(*((-1.5, "") if c.name in self._constant else (1.0, "varies within users")))
        foretold, by = self._foretold(c)
        if foretold > FORETOLD:
            points.add(-min(4 * foretold, 2.5))
        elif by:
            points.add(0.5, "what was known before does not foretell it")
        if moved := self._moves(c):
            points.add(0.5, f"{moved} goes with it")
        return points

    def _add_values(self, c: ScannedColumn, points: _Points) -> None:
        if c.texts:
            words = [text.strip().lower() for text in c.texts]
            nothing = [text for text in c.texts if means_nothing(text)]
            hard = [w for w in words if w in ("control", "placebo", "holdout", "kontrolle", "control group")]
            if hard or (nothing and any(w in ARMS for w in words)):
                points.add(3, f"{hard[0] if hard else nothing[0]!r} is among its values")
            elif nothing and len(words) <= 10 and words != ["no", "yes"]:
                points.add(2, f"{nothing[0]!r} gives nothing")
            elif set(words) <= {"a", "b", "c", "d"} and {"a", "b"} <= set(words):
                points.add(1.5, "its values are A, B …")
            elif words[0] in ("test", "treatment") or all(map(NUMBER.search, words)):
                points.add(0.5, "its names tell amounts")
            elif len(words) > 5:
                points.add(-0.5)
        elif c.type == "BOOLEAN" or (c.distinct == 2 and (c.low, c.high) == (0, 1)):
            points.add(0.5, "yes or no")
        elif c.distinct > 20 and "propensity" not in self.found:
            points.add(-1)
        elif c.type not in WHOLE or c.distinct < (c.high or 0) - (c.low or 0) + 1:
            amounts_ = c.low == 0 and 3 <= c.distinct <= 12
            points.add(0.75 if amounts_ else 0, "few amounts, 0 among them")

    def _foretold(self, c: ScannedColumn) -> tuple[float, bool]:
        """How far what is known before tells it; whether anything could be known before."""
        rare, most, looked = self._rare, 0.0, False
        for other in self._columns:
            if other.name == c.name or other.name not in rare.codes or other.index:
                continue
            if (outcome(other) and not earlier(other)) or other.name == self.found["user"].column:
                continue
            known = earlier(other) or other.name in self._constant or other.name in self._lags
            if self._user is None:
                known = not (_family(other) & _family(c)) and not self._is_arm(other) and other.distinct > 1
                known &= not (rare.only_where(other.name, c.name) or rare.only_where(c.name, other.name))
            if known and other.name != self.found["time"].column:
                looked = True
                most = max(most, rare.association(c.name, other.name, first=c.name in self._constant))
        return most, looked

    def _is_arm(self, c: ScannedColumn) -> bool:
        return (named(c, NAMES["treated"]) or named(c, NAMES["offered"])) and not earlier(c)

    def _moves(self, c: ScannedColumn) -> str | None:
        """An outcome that goes with it."""
        for other in self._columns:
            follows = other.name != c.name and outcome(other) and not earlier(other) and other.name in self._rare.codes
            if follows and self._rare.association(c.name, other.name) > 0:
                return other.name
        return None

    # What came of it.

    def _guess_reward(self, action: ScannedColumn) -> ScannedColumn:
        if role := self._fixed.get("reward"):
            return self._give("reward", self._by_name[role], "as answered")
        able = [c for c in self.free.values() if self._may_reward(c)]
        points = {c.name: self._points_of_reward(c, action) for c in able}
        if (best := self._best(points, -3)) is None:
            raise LookupError("no column can be the reward, a number that varies: name what you want more of.")
        column, found = best
        near = [n for n, p in points.items() if n != column.name and p.total > max(found.total - AHEAD, 1.5)]
        near = sorted(near, key=lambda n: -points[n].total)
        if found.total < 2 and not near:
            near = [n for n in sorted(points, key=lambda n: -points[n].total) if n != column.name][:5]
            found.reasons.append("the likeliest column of numbers; what do you want more of?")
        found.reasons.append(f"{column.low:g} to {column.high:g}")
        sure = not near and found.total >= 2
        return self._give("reward", column, found.words, sure=sure, others=near)

    def _may_reward(self, c: ScannedColumn) -> bool:
        known = c.name in self._since or c.name in self._lags or c.name in self._constant or c.index
        return c.is_number and c.distinct > 1 and not known and not (named(c, IDENTIFIER) and c.distinct > 2)

    def _points_of_reward(self, c: ScannedColumn, action: ScannedColumn) -> _Points:
        points, rare = _Points(), self._rare
        if earlier(c):
            points.add(-6)
        if _exactly(c, r"^(reward|y|target|label|outcome)$") or named(c, r"(^|_)reward(_|$)"):
            points.add(5, "named like what one wants more of")
        elif named(c, r"(^|_)(exposure|exposed|opens?|opened|used|churn(ed)?|refund(s|ed)?|returns?|returned)(_|$)"):
            points.add(2, "named like an outcome")
        elif named(c, NAMES["cost"]) or named(c, r"(^|_)redeem"):
            points.add(1.5)
        elif named(c, NAMES["reward"]):
            points.add(4.3, "named like what one wants more of")
        elif named(c, NAMES["money"]):
            points.add(3.6, "named like money that comes in")
        elif named(c, NAMES["after"]):
            points.add(3.4, "named like an outcome")
        elif named(c, r"(^|_)(total|sum|count|minutes|duration|playtime|session|score|watch|steps|jbsteps\d*)(_|$)"):
            points.add(1)
        if named(c, NAMES["treated"]) or named(c, NAMES["offered"]):
            points.add(-2)
        if named(c, NAMES["time"]):
            points.add(-2)
        if any(c.name in happened for happened in self._since.values()):
            points.add(2.5, "another column counts the days since it happened")
        if (c.low, c.high) == (0, 1) and c.distinct == 2:
            points.add(0.3, "")
        if c.name in self._lags.values():
            points.add(1, "the next row holds it as of before")
        if rare.association(c.name, action.name) > 0 and not rare.tells(c.name, action.name):
            points.add(0.5, f"goes with {action.name}")
        names = [column.name for column in self._columns]
        if names.index(c.name) > names.index(action.name):
            points.add(0.25, "stands after the action")
        if c.name == names[-1] and points.total < 3:
            points.add(0.5, "the last column")
        if points.total > 2 and any(o is not c and outcome(o) and self._within(c, o) for o in self.free.values()):
            points.add(-0.4)  # a rarer step of the same
        return points

    def _later(self, action: ScannedColumn, reward: ScannedColumn, time: str | None) -> dict[str, str]:
        rare, free = self._rare, [c for c in self.free.values() if c.name in self._rare.codes]
        later = {y: f"{x} counts the days since it" for x, happened in self._since.items() for y in happened}
        later |= {y: f"{x} holds it in the next row" for x, y in self._lags.items()}
        for c in free:
            if (outcome(c) or named(c, r"(^|_)redeem")) and not earlier(c):
                if c.name not in later and not rare.only_where(c.name, action.name):
                    self._doubted.add(c.name)
                later.setdefault(c.name, "named like an outcome")
            elif rare.only_where(c.name, action.name):
                later.setdefault(c.name, f"is told by {action.name} where that is nothing")
            elif c.is_number and self._part_of(c, reward):
                later.setdefault(c.name, f"is 0 wherever {reward.name} is")
        if self._user is not None and time is not None:
            numbers = [c for c in self.free.values() if c.is_number]
            for role, column in (("action", action), ("reward", reward)):
                found = of_next_row(self._source, self._user, plain(time), numbers, column)
                later |= dict.fromkeys(found, f"the {role} of the user's next row")
        elif self._user is None:
            names = [column.name for column in self._columns]
            first, last = names.index(action.name), names.index(reward.name)
            alphabetical = [a <= b for a, b in pairwise(map(str.lower, names))]
            for c in free if sum(alphabetical) < 0.9 * len(alphabetical) else []:
                if names.index(c.name) < first or earlier(c) or c.name in later:
                    continue
                tied, least = rare.association(c.name, reward.name), BETWEEN if names.index(c.name) < last else MOVES
                if tied > least or named(c, r"^(sum|total)_"):
                    self._doubted.add(c.name)
                    later[c.name] = f"it stands after {action.name} and goes with {reward.name}, or sums up"
        return {name: why for name, why in later.items() if name in self.free}

    def _part_of(self, c: ScannedColumn, reward: ScannedColumn) -> bool:
        """Whether it is never above 0 without the reward, and not nearly always 0."""
        if c.low != 0 or reward.low != 0 or c.name in self._constant or earlier(c):
            return False
        mine, its = self._rare.values[c.name] > 0, self._rare.values[reward.name] > 0
        return bool(mine.sum() >= 20 and its[mine].all() and not its.all())

    # What it cost, and who belongs together.

    def _guess_cost(self, action: ScannedColumn, reward: ScannedColumn) -> None:
        by_name = [c for c in self.free.values() if named(c, NAMES["cost"]) and c.is_number and not earlier(c)]
        if by_name:
            self._give("cost", by_name[0], f"by its name; {by_name[0].low:g} to {by_name[0].high:g}")
            return
        off = [c for c in self.free.values() if named(c, r"(^|_)(disc|discount|rebate|redeemed|saved)(_|$)")]
        off = [c for c in off if c.is_number and c.distinct > 2 and not earlier(c)]
        if given_back := next((c for c in off if self._rare.only_where(c.name, action.name)), None):
            self._give("cost", given_back, f"named like what was taken off, and 0 where {action.name} gives nothing")
            return
        if action.is_number:
            numbers = [c for c in self.free.values() if c.is_number]
            paid = paid_out(self._source, action, numbers)
            if paid is not None:
                self._give("cost", paid, "since it is 0 or the action in every row. CHECK: what it cost")
                return
        binary = (reward.low, reward.high) == (0, 1)
        given, why = action.sql, "paid whenever the action is given"
        if action.texts:
            nothing = [text for text in action.texts if means_nothing(text)]
            cases = " ".join(f"when {literal(text)} then 0" for text in nothing)
            given = f"case {plain(action.name)} {cases} else 1 end" if nothing else "1"
            why = "1 for every action that gives something" if nothing else "1 for every action"
        elif named(action, IDENTIFIER):
            given, why = "1", "1 for every action, since its numbers are no amounts"
        elif binary and action.distinct > 2:
            given, why = f"{action.sql} * {reward.sql}", "paid only when the reward comes"
        self.found["cost"] = Guess(given, f"CHECK: {why}; no column is named cost", None, sure=True)

    def _guess_cluster(self, action: ScannedColumn) -> None:
        """A column of groups whose members all got the same."""
        if self._user is not None:
            return
        for c in self.free.values():
            if not named(c, r"(^|_)(household|hh|family|haushalt|cluster)(_id|_no)?$") or c.distinct < 30:
                continue
            name = plain(c.name)
            [(groups, mixed)] = self._source.run(
                f"SELECT count(*), count(*) FILTER (a > 1) FROM (SELECT count(DISTINCT {plain(action.name)}) AS a "
                f"FROM log GROUP BY {name} HAVING count(*) > 1)"
            )
            if groups >= 20 and mixed <= 0.02 * groups:
                self._give("cluster", c, "all rows of a value got the same action")
                return


def _exactly(c: ScannedColumn, pattern: str) -> bool:
    """Whether the whole name is one of a pattern."""
    found = re.search(pattern, snake(c.name))
    return found is not None and found.group(0).strip("_") == snake(c.name)


def _family(c: ScannedColumn) -> set[str]:
    """The first word of a name, if it is one of some length."""
    first = snake(c.name).split("_")[0]
    return {first[:5]} if len(first) >= 4 else set()


def _spread(c: ScannedColumn) -> str:
    if c.texts:
        return f"{len(c.texts)} names"
    return f"{c.distinct} values, {c.low:g} to {c.high:g}"


def guess_features(
    rows: int, columns: list[ScannedColumn], roles: GuessedRoles
) -> tuple[list[str], list[str], dict[str, str]]:
    """Categorical and numeric features, and the columns left out with the reason."""
    used = {guess.column for guess in roles.found.values()}
    categorical, numeric, out = [], [], {}
    for column in columns:
        if column.name in used:
            continue
        if column.name in roles.later:
            out[column.name] = f"{roles.later[column.name]}: known only after the decision"
        elif column.index:
            out[column.name] = "numbers the rows"
        elif column.distinct > FEW and (named(column, IDENTIFIER) and column.type != "DOUBLE"):
            out[column.name] = f"named like an identifier, with about {column.distinct:,} values"
        elif column.distinct == rows > FEW and column.type in ("VARCHAR", "UUID"):
            out[column.name] = "another text in every row"
        elif column.distinct <= 1:
            out[column.name] = "one value only"
        elif column.type in ("LIST", "STRUCT", "MAP", "BLOB", "DATE", "UUID") or column.type.startswith("TIME"):
            out[column.name] = f"of type {column.type.lower()}"
        elif column.is_number and (column.type not in (*WHOLE, "BOOLEAN") or column.distinct > FEW):
            numeric.append(column.written)
        elif column.type == "VARCHAR" and (column.distinct > MANY or column.distinct > 0.5 * rows > FEW):
            out[column.name] = f"about {column.distinct:,} different texts"
        else:
            categorical.append(column.name)
    return categorical, numeric, out


def _no_action(columns: list[ScannedColumn], roles: dict[str, Guess]) -> str:
    """Why no column can be the action: for each that is named like one, else for all."""
    used = {guess.column for guess in roles.values()}
    rest = [column for column in columns if column.name not in used]
    near = [c for c in rest if any(named(c, NAMES[kind]) for kind in ("treated", "offered", "arm"))] or rest

    def reason(column: ScannedColumn) -> str:
        if not column.is_number and not column.texts:
            return f"{column.name} holds too many different texts"
        if not 2 <= column.distinct <= FEW:
            return f"{column.name} has {column.distinct:,} different value{'s' if column.distinct != 1 else ''}"
        return f"nothing says that {column.name} was given"

    listed = "; ".join(map(reason, near[:6])) + (" …" if len(near) > 6 else "") or "all columns have another role"
    arm = next((c for c in near if len(c.texts) > 1), None)
    offered = "" if arm is None else f" If it is {arm.name}: {setting('action', arm.written)}."
    return f"no column can be the action, what each user was given out of 2 to {FEW} values: {listed}.{offered}"
