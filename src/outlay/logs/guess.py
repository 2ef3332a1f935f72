"""Guess the roles of a log's columns from names, types and values; `init` writes them down for a person to check."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from outlay.logs.reading import plain, quoted
from outlay.logs.source import NUMBERS, WHOLE, Source

CHUNK = 100  # columns a scan
FEW, MANY = 50, 10_000  # distinct values: of a category at most; of a text that is still a feature
EARLIER = r"(^|_)(pre|prev|previous|last|lag|yesterday|past|before|preperiod|\d+d)(_|$)"
AFTER = (
    r"(^|_)(out|outcomes?|click(s|ed)?|open(s|ed)?|redeem(s|ed)?|redemptions?|response|responded|used|bought|sold|gross|"
    r"net|gmv|profit|refund(s|ed)?|return(s|ed)?|churn(ed)?|retained|label|target|next|after|later|future|post)(_|$)"
)
IDENTIFIER = r"(^|_)(id|key|uuid|code|number)$"
NAMES = {
    "user": r"(^|_)(user|customer|client|member|household|player|person|account|subscriber|rider|visitor)s?"
            r"(_?(id|no|key))?$",
    "time": r"^(day|date|dt|period|week|month|time|ts|timestamp|t|event_date|\w+_(day|date))$",
    "action": r"(^|_)(action|treatment|treated|coupons?|incentive|offer|discount|bonus|promo|voucher|arm|ratio|gift)"
              r"(_|$)",
    "propensity": r"^(p|prob|probability|propensity|pscore|action_prob|\w+_propensity)$",
    "reward": r"(^|_)(reward|active|outcome|converted|conversion|orders?|purchases?|purchased|visits?|y)(_|$)",
    "money": r"(^|_)(revenue|sales|margin|spend|spending|dailyspending|gave|amount|amountgive)(_|$)",
    "cost": r"(^|_)(costs?|payout|paid|expense)(_|$)",
    "forced": r"^(forced|no_choice|is_forced)$",
    "terminal": r"^(terminal|left|churned|is_last|done|ended)$",
    "eligible": r"^(eligible|allowed|allowed_actions|eligible_actions)$",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column and what one scan tells about it. `distinct` is approximate; `low` and `high` of numbers only."""

    name: str
    type: str
    distinct: int
    missing: int
    low: float | None
    high: float | None

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers or truth values."""
        return self.type in NUMBERS


@dataclass(frozen=True)
class Guess:
    """A column or expression, and why it was chosen (for the comment)."""

    text: str
    why: str


def describe(source: Source) -> tuple[int, list[Column]]:
    """Number of rows, and facts of every column."""
    [(rows,)] = source.run("SELECT count(*) FROM log")
    columns = []
    names = list(source.columns.items())
    for i in range(0, len(names), CHUNK):
        part = [(name, "LIST" if type_.endswith("]") else type_.split("(")[0]) for name, type_ in names[i : i + CHUNK]]
        parts = []
        for name, type_ in part:
            number = f"CAST({quoted(name)} AS DOUBLE)" if type_ in NUMBERS else "NULL"
            parts += [
                f"approx_count_distinct({quoted(name)})",
                f"count({quoted(name)})",
                f"min({number})",
                f"max({number})",
            ]
        row: tuple[Any, ...] = source.run(f"SELECT {', '.join(parts)} FROM log")[0]
        for j, (name, type_) in enumerate(part):
            distinct, present, low, high = row[4 * j : 4 * j + 4]
            columns.append(Column(name, type_, int(distinct), rows - int(present), low, high))
    return int(rows), columns


def guess_roles(columns: list[Column]) -> dict[str, Guess]:
    """Roles by name first, then by values. `user`, `time`, `action`, `reward` and `cost` are always given.

    Raises:
        LookupError: if no column could be the action; its text says so.
    """
    free = {column.name: column for column in columns}
    roles: dict[str, Guess] = {}

    def named(names: str, fits: Any) -> list[Column]:
        return [c for c in free.values() if _named(c, NAMES[names]) and not _earlier(c) and fits(c)]

    def take(role: str, fits: Any, why: str, *, names: str | None = None, check: str = "") -> Column | None:
        found = named(names or role, fits)
        if not found:
            return None
        column, *others = found
        del free[column.name]
        reason = f"by its name; {why.format(column)}"
        if check:
            also = f"; so might {', '.join(other.name for other in others[:5])}" if others else ""
            reason += f". CHECK: {check}{also}"
        roles[role] = Guess(column.name, reason)
        return column

    def fall_back(role: str, fits: Any, why: str) -> Column | None:
        column = next((c for c in free.values() if fits(c)), None)
        if column is not None:
            del free[column.name]
            roles[role] = Guess(column.name, f"CHECK: {why.format(column)}")
        return column

    take("propensity", lambda c: c.is_number and (c.low or 0) > 0 and (c.high or 2) <= 1, "all values in (0, 1]")
    take("forced", lambda c: c.is_number, "true where there was no choice")
    take("terminal", lambda c: c.is_number, "true in the last row of a user who left")
    take("eligible", lambda c: c.type == "LIST", "the actions allowed in the row")
    user = take("user", lambda c: c.distinct > 1, "about {0.distinct} different values")
    if user is None:
        user = fall_back(
            "user", lambda c: c.name.lower().endswith("id") and c.distinct > FEW, "the first column named …id"
        )
    if user is None:
        roles["user"] = Guess("row_number() over ()", "CHECK: no column names users, so every row is a user of its own")
    _guess_time(free, roles)
    action = take("action", lambda c: _may_act(c) and not _named(c, IDENTIFIER), "{0.distinct} different values")
    if action is None:
        action = take("action", _may_act, "{0.distinct} different values", check="are these amounts")
    if action is None:
        action = fall_back(
            "action",
            lambda c: _may_act(c) and not (_earlier(c) or _outcome(c) or _named(c, IDENTIFIER)),
            "a number with few different values",
        )
    if action is None:
        raise LookupError(_no_action(columns, roles))
    reward = None
    for names in ("reward", "money"):
        if reward is None:
            reward = take("reward", _may_reward, "{0.low:g} to {0.high:g}", names=names,
                          check="this is what you want more of")  # fmt: skip
    if reward is None:
        others = [c for c in free.values() if _may_reward(c) and not _earlier(c)]
        name = others[-1].name if others else action.name
        free.pop(name, None)
        roles["reward"] = Guess(name, "CHECK: the last column of numbers; what do you want more of?")
    cost = take("cost", lambda c: c.is_number, "{0.low:g} to {0.high:g}")
    if cost is None:
        binary = reward is not None and (reward.low, reward.high) == (0, 1)
        given = f"{plain(action.name)} * {plain(reward.name)}" if binary and reward else action.name
        why = "paid only when the reward comes" if binary else "paid whenever the action is given"
        roles["cost"] = Guess(given, f"CHECK: {why}; no column is named cost")
    return roles


def guess_features(
    rows: int, columns: list[Column], roles: dict[str, Guess]
) -> tuple[list[str], list[str], dict[str, str]]:
    """Categorical and numeric features, and the columns left out with the reason."""
    used = {guess.text for guess in roles.values()}
    categorical, numeric, out = [], [], {}
    for column in columns:
        if column.name in used or plain(column.name) in " ".join(used).split():
            continue
        alike = [role for role in ("action", "reward") if _alike(column.name, roles[role].text)]
        if alike and not _earlier(column):
            out[column.name] = f"named like the {alike[0]}: perhaps known only after the decision"
        elif not _earlier(column) and _outcome(column):
            out[column.name] = "named like an outcome: perhaps known only after the decision"
        elif column.distinct > FEW and _named(column, IDENTIFIER):
            out[column.name] = f"named like an identifier, with about {column.distinct:,} values"
        elif column.distinct <= 1:
            out[column.name] = "one value only"
        elif column.type in ("LIST", "STRUCT", "MAP", "BLOB", "DATE") or column.type.startswith("TIME"):
            out[column.name] = f"of type {column.type.lower()}"
        elif column.is_number and (column.type not in (*WHOLE, "BOOLEAN") or column.distinct > FEW):
            numeric.append(column.name)
        elif column.type == "VARCHAR" and (column.distinct > MANY or column.distinct > 0.5 * rows > FEW):
            out[column.name] = f"about {column.distinct:,} different texts"
        else:
            categorical.append(column.name)
    return categorical, numeric, out


def _guess_time(free: dict[str, Column], roles: dict[str, Guess]) -> None:
    def kind(column: Column) -> bool:
        return column.type in (*WHOLE, "DATE") or column.type.startswith("TIMESTAMP")

    named = [c for c in free.values() if re.search(NAMES["time"], c.name.lower()) and kind(c)]
    typed = [c for c in free.values() if c.type == "DATE" or c.type.startswith("TIMESTAMP")]
    if not named and not typed:
        roles["time"] = Guess("1", "CHECK: no column looks like a day, so every user has one row, on day 1")
        return
    column = (named or typed)[0]
    del free[column.name]
    why = "by its name" if named else "by its type"
    if column.type.startswith("TIMESTAMP"):
        roles["time"] = Guess(f"cast({plain(column.name)} as date)", f"{why}; a timestamp, cut to its date")
    else:
        roles["time"] = Guess(column.name, f"{why}; {'a date' if column.type == 'DATE' else 'a whole number'}")


def _may_act(column: Column) -> bool:
    return column.is_number and 2 <= column.distinct <= FEW


def _may_reward(column: Column) -> bool:
    return column.is_number and column.distinct > 1 and not _named(column, IDENTIFIER)


def _named(column: Column, pattern: str) -> bool:
    return re.search(pattern, column.name.lower()) is not None


def _outcome(column: Column) -> bool:
    """Whether the name is one of what happens after a decision."""
    return any(_named(column, pattern) for pattern in (NAMES["reward"], NAMES["money"], NAMES["cost"], AFTER))


def _no_action(columns: list[Column], roles: dict[str, Guess]) -> str:
    """Why no column can be the action: for each that is named like one, else for all."""
    used = {guess.text for guess in roles.values()}
    rest = [column for column in columns if column.name not in used]
    near = [column for column in rest if _named(column, NAMES["action"])] or rest

    def reason(column: Column) -> str:
        if not column.is_number:
            return f"{column.name} holds no numbers"
        if not _may_act(column):
            return f"{column.name} has {column.distinct:,} different value{'s' if column.distinct != 1 else ''}"
        return f"{column.name} is named like an identifier, an outcome or something of the past"

    listed = "; ".join(map(reason, near[:6])) + (" …" if len(near) > 6 else "") or "all columns have another role"
    return f"no column can be the action, a number with 2 to {FEW} different values: {listed}."


def _earlier(column: Column) -> bool:
    """Whether the name speaks of the past: such a column is part of the state."""
    return re.search(EARLIER, column.name.lower()) is not None


def _alike(name: str, other: str) -> bool:
    """Whether two names begin with the same word: coupons_Food and coupons_Any, treat_size and treatment."""
    one, two = (text.lower().split("_")[0] for text in (name, other))
    return min(len(one), len(two)) >= 3 and (one.startswith(two) or two.startswith(one))
