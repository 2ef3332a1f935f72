"""A log while its roles are guessed: what is known of its columns, which are still free, what was found so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from outlay.logs.columns import NAMES, ScannedColumn, earlier, named, outcome
from outlay.logs.evidence import Evidence
from outlay.logs.reading import plain
from outlay.logs.source import WHOLE, Source
from outlay.logs.values import means_nothing

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


@dataclass
class Looked:
    """What is known and guessed so far.

    Attributes:
        source, rows, columns: the log.
        fixed: role → the column that a person has named.
        free: columns that have no role yet.
        found: role → the guess.
        user: SQL of the user; None where every row is a user of its own.
        told_by: SQL of the rows that tell what is one user's: all, or each of several exact copies once.
        rare: some rows, once user and time are known.
        since: columns that count how long something is ago → what they count.
        lags: columns that hold or add up another one's value of the user's row before.
        constant: columns with one value per user.
    """

    source: Source
    rows: int
    columns: list[ScannedColumn]
    fixed: Mapping[str, str]
    free: dict[str, ScannedColumn] = field(default_factory=dict)
    found: dict[str, Guess] = field(default_factory=dict)
    user: str | None = None
    told_by: str = "log"
    rare: Evidence = field(default_factory=lambda: Evidence({}, {}, None))
    since: dict[str, list[str]] = field(default_factory=dict)
    lags: dict[str, str] = field(default_factory=dict)
    constant: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """All columns are free."""
        self.free = {column.name: column for column in self.columns}
        self.by_name = dict(self.free)
        self.names = [column.name for column in self.columns]
        rising = [a <= b for a, b in pairwise(map(str.lower, self.names))]
        numbered = all(
            name.lower().rstrip("0123456789") == self.names[0].lower().rstrip("0123456789") for name in self.names
        )
        self.in_order = numbered or sum(rising) < 0.9 * len(rising) or len(rising) < 6  # not sorted by name

    def give(
        self,
        role: str,
        column: ScannedColumn,
        why: str,
        text: str | None = None,
        *,
        sure: bool = True,
        others: Iterable[str] = (),
    ) -> ScannedColumn:
        """Take a column for a role."""
        self.free.pop(column.name, None)
        others = tuple(others)
        also = f"; so might {', '.join(others[:5])}" if others else ""
        why = f"{why}{also}" if sure else f"{why}. CHECK: not sure{also}"
        labels = column.texts if role == "action" else ()
        self.found[role] = Guess(text or column.written, why, column.name, sure, others, labels)
        return column

    def take(self, role: str, fits: Fits, why: str) -> None:
        """The first column with one of the names."""
        if role in self.fixed:
            self.give(role, self.by_name[self.fixed[role]], "as answered")
            return
        found = [c for c in self.free.values() if named(c, NAMES[role]) and not earlier(c) and fits(c)]
        if found:
            self.give(role, found[0], f"by its name; {why}")

    def is_time(self, c: ScannedColumn) -> bool:
        """Whether it may say when."""
        typed = c.type == "DATE" or c.type.startswith("TIMESTAMP")
        return typed or (named(c, NAMES["time"]) and c.type in WHOLE and not outcome(c))

    def sql_of_time(self) -> str | None:
        """The column of times; None where there is none."""
        column = self.found["time"].column
        return None if column is None else plain(column)
