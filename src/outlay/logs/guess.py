"""Guess the roles of a log's columns from names, types and values; `init` writes them down for a person to check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outlay.logs.columns import (
    FEW,
    IDENTIFIER,
    NAMES,
    ScannedColumn,
    alike,
    earlier,
    named,
    of_next_row,
    outcome,
    paid_out,
    repeats,
    since,
    varies,
)
from outlay.logs.reading import literal, plain, setting
from outlay.logs.source import WHOLE, Source
from outlay.logs.values import NUMBER, amounts, case_sql, means_nothing

MANY = 10_000  # distinct values of a text that is still a feature

Fits = Callable[[ScannedColumn], bool]


@dataclass(frozen=True)
class Guess:
    """A column or expression, why it was chosen (for the comment), and the column; None where there is not one."""

    text: str
    why: str
    column: str | None = None


@dataclass(frozen=True)
class GuessedRoles:
    """What was guessed.

    Attributes:
        found: role → the guess. `user`, `time`, `action`, `reward` and `cost` are always there.
        repeats: whether users have more than one row.
        later: columns of what happens after a decision → how that shows.
        counters: columns that count the days since something.
    """

    found: dict[str, Guess]
    repeats: bool
    later: dict[str, str]
    counters: frozenset[str]


def guess_roles(source: Source, rows: int, columns: list[ScannedColumn]) -> GuessedRoles:
    """Roles by name first, then by what the columns do.

    Raises:
        LookupError: if no column could be the action; its text says so.
    """
    return _Guesser(source, rows, columns).roles()


class _Guesser:
    """Takes columns for roles, one after another.

    Attributes:
        free: columns that have no role yet.
        found: role → the guess.
    """

    def __init__(self, source: Source, rows: int, columns: list[ScannedColumn]) -> None:
        self.free = {column.name: column for column in columns}
        self.found: dict[str, Guess] = {}
        self._source, self._rows, self._columns = source, rows, columns
        self._since: dict[str, list[str]] = {}
        self._user: str | None = None  # SQL, where users have more than one row

    def roles(self) -> GuessedRoles:
        """All of them."""
        self._take(
            "propensity", lambda c: c.is_number and (c.low or 0) > 0 and (c.high or 2) <= 1, "all values in (0, 1]"
        )
        self._take("forced", lambda c: c.is_number, "true where there was no choice")
        self._take("terminal", lambda c: c.is_number, "true in the last row of a user who left")
        self._take("eligible", lambda c: c.type == "LIST", "the actions allowed in the row")
        self._guess_user()
        _guess_time(self.free, self.found)
        if self._user is not None and self.found["time"].column is not None:
            numbers = [c for c in self.free.values() if c.is_number]
            counts = [c for c in numbers if earlier(c) or not outcome(c)]
            self._since = since(self._source, self._user, plain(self.found["time"].column), counts, numbers)
        action = self._guess_action()
        reward = self._guess_reward()
        self._guess_cost(action, reward)
        later = {y: f"{x} counts the days since it" for x, happened in self._since.items() for y in happened}
        if self._user is not None and (time := self.found["time"].column) is not None:
            for role, column in (("action", action), ("reward", reward)):
                numbers = [c for c in self.free.values() if c.is_number]
                found = of_next_row(self._source, self._user, plain(time), numbers, column)
                later |= dict.fromkeys(found, f"the {role} of the user's next row")
        elif self._user is None and outcome(reward):
            names = [column.name for column in self._columns]
            between = names[names.index(action.name) + 1 : names.index(reward.name)]
            later = dict.fromkeys(between, "it stands between action and reward")
        return GuessedRoles(self.found, repeats=self._user is not None, later=later, counters=frozenset(self._since))

    def _named(self, names: str, fits: Fits) -> list[ScannedColumn]:
        return [c for c in self.free.values() if named(c, NAMES[names]) and not earlier(c) and fits(c)]

    def _take(
        self, role: str, fits: Fits, why: str, *, names: str | None = None, check: str = ""
    ) -> ScannedColumn | None:
        """The first column with one of the names."""
        found = self._named(names or role, fits)
        if not found:
            return None
        column, *others = found
        reason = f"by its name; {why.format(column)}"
        if check:
            also = f"; so might {', '.join(other.name for other in others[:5])}" if others else ""
            reason += f". CHECK: {check}{also}"
        return self._give(role, column, reason)

    def _give(self, role: str, column: ScannedColumn, why: str, text: str | None = None) -> ScannedColumn:
        self.free.pop(column.name, None)
        self.found[role] = Guess(text or column.written, why, column.name)
        return column

    def _guess_user(self) -> None:
        user = self._take("user", lambda c: c.distinct > 1, "about {0.distinct} different values")
        if user is None:
            user = next((c for c in self.free.values() if self._may_identify(c)), None)
            if user is not None:
                self._give("user", user, "CHECK: the first column named …id")
        if user is None:
            why = "CHECK: no column names users, so every row is a user of its own"
            self.found["user"] = Guess("row_number() over ()", why)
        elif repeats(self._source, plain(user.name)):
            self._user = plain(user.name)

    def _may_identify(self, column: ScannedColumn) -> bool:
        return column.name.lower().endswith("id") and (column.distinct > FEW or column.distinct >= 0.9 * self._rows > 1)

    def _guess_action(self) -> ScannedColumn:
        action = self._take(
            "action", lambda c: self._may_act(c) and not named(c, IDENTIFIER), "{0.distinct} different values"
        ) or self._take("action", self._may_act, "{0.distinct} different values", check="are these amounts")
        if action is not None:
            return action
        texts = [c for c in self.free.values() if self._rows > len(c.texts) >= 2]
        plainly = [c for c in texts if any(map(means_nothing, c.texts))]
        arms = [c for c in texts if named(c, NAMES["action"]) or named(c, NAMES["arm"])]
        sure = [c for c in arms if c in plainly] or [c for c in arms if all(map(NUMBER.search, c.texts))]
        amount = next(
            (c for c in self.free.values() if self._may_act(c) and self._changes(c) and not self._kept(c)), None
        )
        if not sure and amount is not None:
            return self._give("action", amount, "CHECK: a number with few different values")
        if found := sure or [c for c in plainly if not self._kept(c)]:
            why = f"CHECK: {len(found[0].texts)} texts, each with a number of its own"
            return self._give("action", found[0], why, _numbered(found[0]))
        raise LookupError(_no_action(self._columns, self.found))

    def _may_act(self, column: ScannedColumn) -> bool:
        return _may_act(column) and column.name not in self._since

    def _kept(self, column: ScannedColumn) -> bool:
        """Whether it is no action, by its name or since each of its values is rare."""
        other = earlier(column) or outcome(column) or named(column, IDENTIFIER)
        return other or 2 * column.distinct > self._rows

    def _changes(self, column: ScannedColumn) -> bool:
        """Whether it varies within users, or every user has one row."""
        return self._user is None or varies(self._source, self._user, column)

    def _guess_reward(self) -> ScannedColumn:
        def fits(column: ScannedColumn) -> bool:
            return _may_reward(column) and column.name not in self._since

        for names in ("reward", "money", "after"):
            reward = self._take(
                "reward", fits, "{0.low:g} to {0.high:g}", names=names, check="this is what you want more of"
            )
            if reward is not None:
                return reward
        happened = {name for names in self._since.values() for name in names}
        counted = [c for c in self.free.values() if c.name in happened and fits(c)]
        others = [c for c in self.free.values() if fits(c) and not earlier(c) and self._changes(c)]
        if counted:
            return self._give("reward", counted[0], "CHECK: another column counts the days since it happened")
        if others:
            return self._give("reward", others[-1], "CHECK: the last column of numbers; what do you want more of?")
        raise LookupError("no column can be the reward, a number that varies: name what you want more of.")

    def _guess_cost(self, action: ScannedColumn, reward: ScannedColumn) -> None:
        if self._take("cost", lambda c: c.is_number, "{0.low:g} to {0.high:g}") is not None:
            return
        if action.is_number:
            numbers = [c for c in self.free.values() if c.is_number]
            paid = paid_out(self._source, action, numbers)
            if paid is not None:
                self._give("cost", paid, "since it is 0 or the action in every row. CHECK: what it cost")
                return
        binary = (reward.low, reward.high) == (0, 1)
        given, why = action.sql, "paid whenever the action is given"
        if not action.is_number:
            nothing = [text for text in action.texts if means_nothing(text)]
            cases = " ".join(f"when {literal(text)} then 0" for text in nothing)
            given = f"case {plain(action.name)} {cases} else 1 end" if nothing else "1"
            why = "1 for every action that gives something"
        elif binary:
            given, why = f"{action.sql} * {reward.sql}", "paid only when the reward comes"
        self.found["cost"] = Guess(given, f"CHECK: {why}; no column is named cost")


def guess_features(
    rows: int, columns: list[ScannedColumn], roles: GuessedRoles
) -> tuple[list[str], list[str], dict[str, str]]:
    """Categorical and numeric features, and the columns left out with the reason."""
    used = {guess.column for guess in roles.found.values()}
    action, reward = (roles.found[role].column or "" for role in ("action", "reward"))
    categorical, numeric, out = [], [], {}
    for column in columns:
        if column.name in used:
            continue
        past = earlier(column) or column.name in roles.counters
        like = [role for role, name in (("action", action), ("reward", reward)) if alike(column.name, name)]
        if like and not past:
            out[column.name] = f"named like the {like[0]}: perhaps known only after the decision"
        elif not past and outcome(column):
            out[column.name] = "named like an outcome: perhaps known only after the decision"
        elif not past and column.name in roles.later:
            out[column.name] = f"{roles.later[column.name]}: known only after the decision"
        elif column.distinct > FEW and named(column, IDENTIFIER):
            out[column.name] = f"named like an identifier, with about {column.distinct:,} values"
        elif column.distinct <= 1:
            out[column.name] = "one value only"
        elif column.type in ("LIST", "STRUCT", "MAP", "BLOB", "DATE") or column.type.startswith("TIME"):
            out[column.name] = f"of type {column.type.lower()}"
        elif column.is_number and (column.type not in (*WHOLE, "BOOLEAN") or column.distinct > FEW):
            numeric.append(column.written)
        elif column.type == "VARCHAR" and (column.distinct > MANY or column.distinct > 0.5 * rows > FEW):
            out[column.name] = f"about {column.distinct:,} different texts"
        else:
            categorical.append(column.name)
    return categorical, numeric, out


def _guess_time(free: dict[str, ScannedColumn], roles: dict[str, Guess]) -> None:
    def kind(column: ScannedColumn) -> bool:
        return column.type in (*WHOLE, "DATE") or column.type.startswith("TIMESTAMP")

    called = [c for c in free.values() if named(c, NAMES["time"]) and kind(c)]
    typed = [c for c in free.values() if c.type == "DATE" or c.type.startswith("TIMESTAMP")]
    if not called and not typed:
        roles["time"] = Guess("1", "CHECK: no column looks like a day, so every user has one row, on day 1")
        return
    column = (called or typed)[0]
    del free[column.name]
    why = "by its name" if called else "by its type"
    if column.type.startswith("TIMESTAMP"):
        text, kept = f"cast({plain(column.name)} as date)", "a timestamp, cut to its date"
    else:
        text, kept = column.name, "a date" if column.type == "DATE" else "a whole number"
    roles["time"] = Guess(text, f"{why}; {kept}", column.name)


def _may_act(column: ScannedColumn) -> bool:
    return column.is_number and 2 <= column.distinct <= FEW


def _may_reward(column: ScannedColumn) -> bool:
    return column.is_number and column.distinct > 1 and not named(column, IDENTIFIER)


def _no_action(columns: list[ScannedColumn], roles: dict[str, Guess]) -> str:
    """Why no column can be the action: for each that is named like one, else for all."""
    used = {guess.column for guess in roles.values()}
    rest = [column for column in columns if column.name not in used]
    near = [c for c in rest if named(c, NAMES["action"])] or [c for c in rest if named(c, NAMES["arm"])] or rest

    def reason(column: ScannedColumn) -> str:
        if not column.is_number:
            return f"{column.name} holds no numbers"
        if not _may_act(column):
            return f"{column.name} has {column.distinct:,} different value{'s' if column.distinct != 1 else ''}"
        return f"{column.name} is named like an identifier, an outcome or something of the past"

    listed = "; ".join(map(reason, near[:6])) + (" …" if len(near) > 6 else "") or "all columns have another role"
    arm = next((c for c in near if len(c.texts) > 1), None)
    offered = "" if arm is None else f" If it is {arm.name}: {setting('action', _numbered(arm))}, with 0 for nothing."
    return f"no column can be the action, a number with 2 to {FEW} different values: {listed}.{offered}"


def _numbered(column: ScannedColumn) -> str:
    """SQL that gives each text of a column a number."""
    return case_sql(plain(column.name), amounts(column.texts, None))
