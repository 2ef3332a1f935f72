"""Guess the roles of a log's columns from what they do, and from their names; `init` shows and writes them.

What a person has answered already is taken as it is (`fixed`), and the rest is guessed again from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outlay.logs.columns import FEW, IDENTIFIER, ScannedColumn, earlier, named, outcome, since
from outlay.logs.evidence import gather
from outlay.logs.looked import Guess, Looked
from outlay.logs.source import NO_CATEGORY, WHOLE, Source
from outlay.logs.what import find_action, find_cluster, find_cost, find_outcomes, find_reward, is_twin
from outlay.logs.who import find_time, find_user, refuse_sums

MANY = 10_000  # distinct values of a text that is still a feature


@dataclass(frozen=True)
class GuessedRoles:
    """What was guessed.

    Attributes:
        found: role → the guess. `user`, `time`, `action`, `reward` and `cost` are always there.
        repeats: whether users have more than one row.
        later: columns that follow from the action → how that shows.
        before: columns that are known before → how that shows.
        random: whether no column predicts the action.
        doubted: columns of which it is not sure whether they follow from the action.
    """

    found: dict[str, Guess]
    repeats: bool
    later: dict[str, str]
    before: dict[str, str]
    random: bool = False
    doubted: frozenset[str] = frozenset()


def guess_roles(
    source: Source, rows: int, columns: list[ScannedColumn], fixed: Mapping[str, str] | None = None
) -> GuessedRoles:
    """Roles by what columns do and are called; `fixed`: role → the column that a person has named.

    Raises:
        SumsError: if rows are sums over people.
        NoActionError: if no column could be the action; its text says so.
        LookupError: if none could be the reward.
    """
    log = look(source, rows, columns, fixed or {})
    action = find_action(log)
    reward = find_reward(log, action)
    find_cost(log, action, reward)
    find_cluster(log, action)
    later, doubted = find_outcomes(log, action, reward)
    before = {x: f"counts since {', '.join(y) or 'something'}" for x, y in log.since.items()}
    before |= {x: f"holds or adds up {y} of the row before" for x, y in log.lags.items()}
    before |= dict.fromkeys(log.constant, "one value per user")
    later = {x: why for x, why in later.items() if x not in before}
    later |= {c.name: f"says {action.name} once more" for c in log.free.values() if is_twin(log, c, action)}
    known = [c.name for c in log.free.values() if c.name not in later and c.name in log.rare.codes and not c.index]
    random = not any(log.rare.association(action.name, name, first=name in log.constant) > 0 for name in known)
    return GuessedRoles(log.found, log.user is not None, later, before, random, frozenset(doubted))


def look(
    source: Source, rows: int, columns: list[ScannedColumn], fixed: Mapping[str, str], *, alone: bool = False
) -> Looked:
    """What can be said before the action is known: roles that need a name, who, when, and what looks back.

    Args:
        source: the log.
        rows: of it.
        columns: of it.
        fixed: role → the column that a person has named.
        alone: whether every row is known to be a user of its own.

    Raises:
        SumsError: if rows are sums over people.
    """
    log = Looked(source, rows, columns, fixed)
    log.take("propensity", lambda c: c.is_number and (c.low or 0) >= 0 and (c.high or 2) <= 1, "all values in [0, 1]")
    log.take("forced", lambda c: c.is_number, "true where there was no choice")
    log.take("terminal", lambda c: c.is_number, "true in the last row of a user who left")
    log.take("eligible", lambda c: c.type == "LIST", "the actions allowed in the row")
    find_user(log, alone=alone)
    refuse_sums(log)
    find_time(log)
    log.rare = gather(source, rows, columns, log.user, log.sql_of_time())
    if log.user is not None:
        _look_back(log)
    return log


def _look_back(log: Looked) -> None:
    """Columns that are constant per user, count since something, or hold what was in the row before."""
    rare, time, user = log.rare, log.sql_of_time(), log.found["user"].column
    log.constant = {name for name in rare.codes if name != user and rare.constant(name)}
    if time is None:
        return
    numbers = [c for c in log.free.values() if c.is_number]
    counts = [c for c in numbers if earlier(c) or not outcome(c)]
    log.since = since(log.source, str(log.user), time, counts, numbers)
    looked = [c.name for c in numbers if c.name in rare.codes and c.name not in log.constant | log.since.keys()][:120]
    for x, y in rare.lags(looked).items():
        if log.lags.get(y) != x and not (outcome(log.by_name[x]) and not earlier(log.by_name[x])):
            log.lags[x] = y


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
        elif column.type in (*NO_CATEGORY, "DATE", "UUID") or column.type.startswith("TIME"):
            out[column.name] = f"of type {column.type.lower()}"
        elif column.is_number and (column.type not in (*WHOLE, "BOOLEAN") or column.distinct > FEW):
            numeric.append(column.written)
        elif column.type == "VARCHAR" and (column.distinct > MANY or column.distinct > 0.5 * rows > FEW):
            out[column.name] = f"about {column.distinct:,} different texts"
        else:
            categorical.append(column.name)
    return categorical, numeric, out
