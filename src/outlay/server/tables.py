"""The ledger's tables, in the SQL that SQLite and PostgreSQL share.

Money is `bigint` minor units, time is `bigint` epoch milliseconds. The CHECK constraints are the last guard: a
transaction that would break a cap cannot commit, whatever the code above it does. A counter's caps are those in force
when it was last raised, since a cap may later be lowered below what is committed.
"""

from __future__ import annotations

from typing import NamedTuple

FORMAT = 1  # version of the tables; another one is refused
MONEY = "bigint not null"
WORD = "text not null"


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
CAMPAIGN = Table("campaign", {"name": WORD, "caps": WORD, "paused": "boolean not null"}, ("primary key (name)",))
DECISION = Table(
    "decision",
    {
        "campaign": WORD,
        "request_id": WORD,
        "body": WORD,
        "decision_id": WORD,
        "ts": MONEY,
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
        "forced": "boolean not null",
        "state": WORD,
        "held": MONEY,
        "paid": MONEY,
    },
    (
        "primary key (decision_id)",
        "unique (campaign, request_id)",
        "check (state in ('free', 'reserved', 'settled', 'released'))",
        "check (amount >= 0 and held >= 0 and paid >= 0 and held + paid <= amount)",
    ),
)
ENTRY = Table(
    "entry",
    {"decision_id": WORD, "kind": WORD, "event_id": WORD, "ts": MONEY, "reserved": MONEY, "settled": MONEY},
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
        "offers": MONEY,
    },
    (
        "primary key (campaign, scope, key, day)",  # a user and his day are on one page
        "check (reserved >= 0 and settled >= 0 and offers >= 0)",
        "check (reserved + settled <= cap)",
        "check (offers <= offers_cap)",
    ),
)


def create(short: str = "") -> list[str]:
    """The statements that make the tables; `short` ends that of the table with short rows and many keys."""
    return [
        *(table.create for table in (LEDGER_FORMAT, CAMPAIGN, DECISION, ENTRY, OUTCOME)),
        f"{COUNTER.create} {short}",
        "create index decision_expiry on decision (expires) where state = 'reserved'",
        f"insert into ledger_format values ({FORMAT})",
    ]


# Each query finds what must not be.
_SUMS = " union all ".join(
    f"""select campaign, '{scope}' as scope, {key} as key, {day} as day,
        sum(held) as reserved, sum(paid) as settled, count(*) as offers
        from decision where amount > 0 group by {", ".join(["campaign", *groups])}"""
    for scope, key, day, groups in (
        ("total", "''", "''", []),
        ("day", "''", "cast(day as text)", ["day"]),
        ("arm", "arm", "''", ["arm"]),
        ("user", '"user"', "''", ['"user"']),
        ("user", '"user"', "cast(day as text)", ['"user"', "day"]),
    )
)
_COUNTERS = "select campaign, scope, key, day, reserved, settled, offers from counter"
CHECKS = {
    "the sums of the decisions have no such counter": f"{_SUMS} except {_COUNTERS}",
    "the counter is not the sum of its decisions": f"{_COUNTERS} except select * from ({_SUMS}) as sums",
    "more is committed than the cap": f"{_COUNTERS} where reserved + settled > cap or offers > offers_cap",
    "reserved and settled are not the amount and the sums of the entries": """
        select decision.decision_id, amount, held, paid, sum(entry.reserved), sum(entry.settled)
        from decision left join entry on entry.decision_id = decision.decision_id
        group by decision.decision_id, amount, held, paid
        having held <> amount + coalesce(sum(entry.reserved), 0) or paid <> coalesce(sum(entry.settled), 0)
    """,
    "the state does not fit the money": """
        select decision_id, state, amount, held, paid from decision
        where (state = 'free') <> (amount = 0) or (state = 'reserved' and held <> amount)
            or (state <> 'reserved' and held <> 0) or (state <> 'settled' and paid <> 0)
    """,
    "the entry has no outcome that moved as much": """
        select entry.decision_id, entry.kind, entry.event_id, entry.settled from entry left join outcome
            on outcome.decision_id = entry.decision_id and outcome.event_id = entry.event_id
            and outcome.kind = case when entry.kind = 'refund' then 'refund' else 'redeemed' end
        where entry.kind <> 'release' and coalesce(outcome.moved, -1) <> abs(entry.settled)
    """,
}
