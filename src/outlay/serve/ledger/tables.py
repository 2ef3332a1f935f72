"""The ledger's tables, in the SQL that SQLite and PostgreSQL share.

Money is `bigint` minor units, time is `bigint` epoch milliseconds. The CHECK constraints are the last guard: a
transaction that would grant more than a cap allows cannot commit, whatever the code above it does. A counter's caps are
those in force when money was last granted from it, since a cap may later be lowered below what is committed. Where
excess has been paid since and went beyond that, the counter's cap is what is committed.
"""

from __future__ import annotations

from typing import NamedTuple

FORMAT = 4  # version of the tables, raised by whatever changes them; another one is refused
MONEY = "bigint not null"
WORD = "text not null"
FLAG = "boolean not null"


class Table(NamedTuple):
    """A table: its columns with their types, and its rules."""

    name: str
    columns: dict[str, str]
    rules: tuple[str, ...]

    @property
    def create(self) -> str:
        """The statement that makes it."""
        columns = [f'"{name}" {kind}' for name, kind in self.columns.items()]
        return f"create table {self.name} ({', '.join([*columns, *self.rules])})"

    @property
    def names(self) -> str:
        """Its columns, quoted, since `user` is a word of SQL."""
        return ", ".join(f'"{name}"' for name in self.columns)


LEDGER_FORMAT = Table("ledger_format", {"version": MONEY}, ())
CLOCK = Table("clock", {"boot": WORD, "ticks": MONEY, "ts": MONEY}, ())  # one row; read where the database has no clock
CAMPAIGN = Table(
    "campaign",
    {
        "name": WORD,
        "caps": WORD,
        "paused": FLAG,
        "by_user": FLAG,  # the counters that it keeps
        "by_user_day": FLAG,
        "settings": WORD,
        "bundle": WORD,
        "path": WORD,
    },
    ("primary key (name)",),
)
NOTE = Table(
    "note",
    {"campaign": WORD, "kind": WORD, "key": WORD, "ts": MONEY, "content": WORD},
    ("primary key (campaign, kind, key)",),
)
DECISION = Table(
    "decision",
    {
        "campaign": WORD,
        "request_id": WORD,
        "body": WORD,
        "decision_id": WORD,
        "ts": MONEY,
        "time": "text",
        "day": MONEY,
        "arm": WORD,
        "user": WORD,
        "episode": WORD,
        "bundle": WORD,
        "member": "bigint",
        "action": "double precision not null",
        "action_index": MONEY,
        "amount": MONEY,
        "probability": "double precision not null",
        "members": WORD,
        "features": WORD,
        "reason": WORD,
        "expires": MONEY,
        "forced": FLAG,
        "room": "bigint",
        "state": WORD,
        "held": MONEY,
        "paid": MONEY,
        "excess": MONEY,
    },
    (
        "primary key (decision_id)",
        "unique (campaign, request_id)",
        "check (state in ('free', 'reserved', 'settled', 'released'))",
        "check (amount >= 0 and held >= 0 and excess >= 0 and paid >= excess and held + paid - excess <= amount)",
    ),
)
ENTRY = Table(
    "entry",
    {
        "decision_id": WORD,
        "kind": WORD,
        "event_id": WORD,
        "ts": MONEY,
        "reserved": MONEY,
        "settled": MONEY,
        "excess": MONEY,
    },
    ("primary key (decision_id, kind, event_id)",),  # so a reservation is released once at most
)
OUTCOME = Table(
    "outcome",
    {
        "decision_id": WORD,
        "kind": WORD,
        "event_id": WORD,
        "ts": MONEY,
        "received": MONEY,
        "value": "double precision",
        "amount": "bigint",
        "status": WORD,
        "moved": MONEY,
        "excess": MONEY,
    },
    ("primary key (decision_id, kind, event_id)",),
)
COUNTER = Table(
    "counter",
    {
        "campaign": WORD,
        "scope": WORD,
        "key": WORD,
        "day": WORD,
        "cap": "bigint",
        "offers_cap": "bigint",
        "reserved": MONEY,
        "settled": MONEY,
        "excess": MONEY,
        "offers": MONEY,
        "decisions": MONEY,
        "granted": MONEY,
    },
    (
        "primary key (campaign, scope, key, day)",  # a user and his day are on one page
        "check (reserved >= 0 and excess >= 0 and settled >= excess)",
        "check (offers >= 0 and decisions >= 0 and granted >= 0)",
        "check (reserved + settled <= cap)",
        "check (offers <= offers_cap)",
    ),
)


TABLES = (LEDGER_FORMAT, CLOCK, CAMPAIGN, NOTE, DECISION, ENTRY, OUTCOME, COUNTER)


def create(short: str = "") -> list[str]:
    """The statements that make the tables; `short` ends that of the table with short rows and many keys."""
    return [
        *(f"{table.create} {short if table is COUNTER else ''}".strip() for table in TABLES),
        "create index decision_expiry on decision (expires) where state = 'reserved'",
        f"insert into ledger_format values ({FORMAT})",
        "insert into clock values ('', 0, 0)",
    ]
