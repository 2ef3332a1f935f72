"""The ledger's tables and checks, in the SQL that SQLite and PostgreSQL share.

Money is `bigint` minor units, time is `bigint` epoch milliseconds. The CHECK constraints are the last guard: a
transaction that would grant more than a cap allows cannot commit, whatever the code above it does. A counter's caps are
those in force when money was last granted from it, since a cap may later be lowered below the committed amount. If
excess has since exceeded them, the counter's cap is the committed amount.
"""

from __future__ import annotations

from typing import NamedTuple

FORMAT = 6  # version of the tables, raised with every change to them; other versions are refused
MONEY = "bigint not null"
WORD = "text not null"
FLAG = "boolean not null"


class SqlTable(NamedTuple):
    """A table: its columns with their types, and its rules."""

    name: str
    columns: dict[str, str]
    rules: tuple[str, ...]

    @property
    def create(self) -> str:
        """The SQL statement that creates the table."""
        columns = [f'"{name}" {kind}' for name, kind in self.columns.items()]
        return f"create table {self.name} ({', '.join([*columns, *self.rules])})"

    @property
    def names(self) -> str:
        """The table's columns, quoted since `user` is an SQL keyword."""
        return ", ".join(f'"{name}"' for name in self.columns)


LEDGER_FORMAT = SqlTable("ledger_format", {"version": MONEY}, ())
CLOCK = SqlTable(
    "clock", {"boot": WORD, "ticks": MONEY, "ts": MONEY}, ()
)  # one row; used if the database has no clock of its own
CAMPAIGN = SqlTable(
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
NOTE = SqlTable(
    "note",
    {"campaign": WORD, "kind": WORD, "key": WORD, "ts": MONEY, "content": WORD},
    ("primary key (campaign, kind, key)",),
)
DECISION = SqlTable(
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
        "offer": FLAG,
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
ENTRY = SqlTable(
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
OUTCOME = SqlTable(
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
COUNTER = SqlTable(
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
        "primary key (campaign, scope, key, day)",  # a user and the user's days are on one page
        "check (reserved >= 0 and excess >= 0 and settled >= excess)",
        "check (offers >= 0 and decisions >= 0 and granted >= 0)",
        "check (reserved + settled <= cap)",
        "check (offers <= offers_cap)",
    ),
)


TABLES = (LEDGER_FORMAT, CLOCK, CAMPAIGN, NOTE, DECISION, ENTRY, OUTCOME, COUNTER)


def create_statements(short: str = "") -> list[str]:
    """Return the statements that create the tables; `short` is appended for the table of many short rows."""
    return [
        *(f"{table.create} {short if table is COUNTER else ''}".strip() for table in TABLES),
        "create index decision_expiry on decision (expires) where state = 'reserved'",
        'create index decision_user on decision (campaign, "user", day)',
        f"insert into ledger_format values ({FORMAT})",
        "insert into clock values ('', 0, 0)",
    ]


class Scope(NamedTuple):
    """A kind of counter, with the SQL that computes it from the decisions.

    Attributes:
        name: of the scope.
        key: the column that is its key.
        day: whether there is a counter for each day.
        kept: the column of `campaign` that says whether these counters are kept; None: always.
    """

    name: str
    key: str | None
    day: bool
    kept: str | None = None

    @property
    def here(self) -> str:
        """The SQL condition that distinguishes the scope's counters from others of the same name."""
        return "day <> ''" if self.day else "day = ''"

    @property
    def sums(self) -> str:
        """A query that computes the scope's counters from the decisions."""
        key, day = self.key or "''", "cast(day as text)" if self.day else "''"
        groups = ["campaign", *([self.key] if self.key else []), *(["day"] if self.day else [])]
        decisions, where = "count(*)", ""
        if self.kept:
            moved, kept = "(offer or state = 'settled')", f"select name from campaign where {self.kept}"
            decisions, where = "0", f"where {moved} and campaign in ({kept})"
        return f"""select campaign, '{self.name}' as scope, {key} as key, {day} as day, sum(held) as reserved,
            sum(paid) as settled, sum(excess) as excess,
            sum(case when offer then 1 else 0 end) as offers, {decisions} as decisions,
            sum(amount) as granted from decision {where} group by {", ".join(groups)}"""


USER = Scope("user", '"user"', False, "by_user")
USER_DAY = Scope("user", '"user"', True, "by_user_day")
SCOPES = (
    Scope("total", None, False),
    Scope("day", None, True),
    Scope("arm", "arm", False),
    Scope("arm", "arm", True),
    USER,
    USER_DAY,
)
COLUMNS = "campaign, scope, key, day, reserved, settled, excess, offers, decisions, granted"

_SUMS = " union all ".join(scope.sums for scope in SCOPES)
_COUNTERS = f"select {COLUMNS} from counter"

# Each query finds rows that must not exist.
CHECKS = {
    "the sums of the decisions have no such counter": f"{_SUMS} except {_COUNTERS}",
    "the counter is not the sum of its decisions": f"{_COUNTERS} except select * from ({_SUMS}) as sums",
    "more is committed than the cap": f"{_COUNTERS} where reserved + settled > cap or offers > offers_cap",
    "reserved and settled are not the amount and the sums of the entries": """
        select decision.decision_id, amount, held, paid, decision.excess, sum(entry.reserved), sum(entry.settled),
            sum(entry.excess)
        from decision left join entry on entry.decision_id = decision.decision_id
        group by decision.decision_id, amount, held, paid, decision.excess
        having held <> amount + coalesce(sum(entry.reserved), 0) or paid <> coalesce(sum(entry.settled), 0)
            or decision.excess <> coalesce(sum(entry.excess), 0)
    """,
    "the state does not fit the money": """
        select decision_id, state, amount, held, paid, excess from decision
        where (state = 'free' and (offer or amount <> 0)) or (state in ('reserved', 'released') and not offer)
            or (state = 'reserved' and held <> amount)
            or (state <> 'reserved' and held <> 0) or (state <> 'settled' and paid <> 0)
    """,
    "less is booked as excess than was paid beyond the reservation": """
        select decision_id, amount, paid, excess from decision where paid - excess > amount
    """,
    "the entry has no outcome that moved as much": """
        select entry.decision_id, entry.kind, entry.event_id, entry.settled, entry.excess from entry left join outcome
            on outcome.decision_id = entry.decision_id and outcome.event_id = entry.event_id
            and outcome.kind = case when entry.kind = 'refund' then 'refund' else 'redeemed' end
        where entry.kind <> 'release' and (coalesce(outcome.moved, -1) <> abs(entry.settled)
            or coalesce(outcome.excess, -1) <> abs(entry.excess))
    """,
}
