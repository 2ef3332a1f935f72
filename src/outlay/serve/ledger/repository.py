"""Reading and writing the ledger's tables within a transaction, as typed values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Protocol

from msgspec.structs import astuple

from outlay.serve.ledger.admission import Admitted, Counter, Key, Request
from outlay.serve.ledger.clock import LedgerClock
from outlay.serve.ledger.ledger import DecisionRow
from outlay.serve.ledger.records import Outcome, OutcomeResult, Recorded
from outlay.serve.ledger.settlement import LedgerEntry, Position
from outlay.serve.ledger.tables import COUNTER, DECISION, ENTRY, OUTCOME, SqlTable

EventKey = tuple[str, str, str]  # decision id, kind, event id

_ANSWER = tuple(name for name in Recorded.__struct_fields__ if name != "status")
_proposed = attrgetter(*tuple(DECISION.columns)[:-5])  # the columns before room, state, held, paid and excess
_OUTCOME = tuple(OUTCOME.columns)[:-3]  # the columns before status, moved and excess
_happened = attrgetter(*_OUTCOME)
_EVENT = ", ".join(OUTCOME.columns)
_ROW = tuple(name for name in DecisionRow.__struct_fields__ if name not in ("forced", "offer", "outcomes"))


class Transaction(Protocol):
    """The operations of a backend within one transaction. In SQL, `?` stands for a value.

    Attributes:
        clock: the ledger's clock, as this process knows it.
        time: an SQL expression that reads it, epoch ms.
    """

    clock: LedgerClock
    time: str

    def run(self, sql: str, *values: object) -> None:
        """Execute a statement that returns no rows."""
        ...

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        ...

    def match(self, sql: str, keys: Collection[tuple[str, ...]]) -> list[tuple[Any, ...]]:
        """Return the rows of a query in which `{keys}` is a table of the keys, with text columns a, b, c and d."""
        ...

    def insert(self, table: SqlTable, rows: Sequence[tuple[Any, ...]], otherwise: str = "") -> None:
        """Insert rows; `otherwise` is an ON CONFLICT clause."""
        ...

    def move(self, positions: Sequence[tuple[str, int, int, int, str]]) -> None:
        """Update decisions; each tuple holds the new state, held, paid and excess, and the id."""
        ...

    def take_time(self) -> None:
        """Lift the time limit for the statements that follow."""
        ...

    def in_order(self) -> None:
        """Make the query that follows read along an index rather than sort."""
        ...


def campaigns_of(tx: Transaction, ids: Collection[str]) -> set[str]:
    """Return the campaigns of decisions."""
    sql = "select distinct campaign from {keys} as k join decision on decision_id = a"
    return {name for (name,) in tx.match(sql, [(key,) for key in ids])}


def answers(tx: Transaction, requests: Collection[Request]) -> dict[Request, tuple[str, Recorded]]:
    """Return the bodies and answers of the requests that are recorded already."""
    sql = (
        f"select campaign, body, {', '.join(_ANSWER)} from {{keys}} as k"
        " join decision on campaign = a and request_id = b"
    )
    stored = {}
    for campaign, body, *row in tx.match(sql, requests):
        fields = dict(zip(_ANSWER, row, strict=True)) | {"forced": bool(row[-1])}
        stored[campaign, fields["request_id"]] = body, Recorded(status="replay", **fields)
    return stored


def counters(tx: Transaction, keys: Iterable[Key]) -> dict[Key, Counter]:
    """Return counters; one that is not stored starts at 0."""
    wanted = {key: Counter() for key in keys}
    sql = f"""select {COUNTER.names} from {{keys}} as k
        join counter on campaign = a and scope = b and key = c and day = d"""
    for campaign, scope, key, day, *row in tx.match(sql, wanted.keys()):
        wanted[campaign, scope, key, day] = Counter(*row)
    return wanted


def positions(tx: Transaction, ids: Collection[str]) -> dict[str, Position]:
    """Return the money of the decisions that are recorded already."""
    names = ", ".join(f'"{name}"' for name in Position.__struct_fields__)
    sql = f"select {names} from {{keys}} as k join decision on decision_id = a"
    return {row[0]: Position(*row) for row in tx.match(sql, [(key,) for key in ids])}


def events(tx: Transaction, keys: Collection[EventKey]) -> dict[EventKey, tuple[Outcome, OutcomeResult]]:
    """Return the outcomes that are stored already, with the answers they got."""
    sql = (
        f"select {', '.join(f'outcome.{name}' for name in _OUTCOME)}, status, moved, excess from {{keys}} as k"
        " join outcome on decision_id = a and kind = b and event_id = c"
    )
    return {(row[0], row[1], row[2]): _event(row) for row in tx.match(sql, keys)}


def rows(tx: Transaction, campaign: str, after: str, until: str, limit: int) -> list[DecisionRow]:
    """Return the first `limit` decisions with after < id < until, by id, each with its outcomes."""
    tx.in_order()
    # `|| ''` keeps SQLite from sorting the whole campaign instead of reading on from `after`.
    sql = f"""select {DECISION.names} from decision where campaign || '' = ? and decision_id > ? and decision_id < ?
        order by decision_id limit {limit}"""
    page = [dict(zip(DECISION.columns, row, strict=True)) for row in tx.read(sql, campaign, after, until)]
    last = page[-1]["decision_id"] if page else after
    sql = f"select {_EVENT} from outcome where decision_id > ? and decision_id <= ?"
    return _with_outcomes(page, tx.read(sql, after, last))


def past(
    tx: Transaction, campaign: str, users: Collection[str], first: int, until: int
) -> tuple[list[DecisionRow], set[str]]:
    """Return the decisions of users on the days from `first` to before `until`, by id, and who has earlier ones."""
    keys = [(user, campaign) for user in users]
    here = 'campaign = b and "user" = a'
    names = ", ".join(f'decision."{name}"' for name in DECISION.columns)
    sql = f"select {names} from {{keys}} as k join decision on {here} and day >= {first} and day < {until}"
    found = [dict(zip(DECISION.columns, row, strict=True)) for row in tx.match(sql, keys)]
    found.sort(key=itemgetter("decision_id"))
    names = ", ".join(f"outcome.{name}" for name in OUTCOME.columns)
    sql = f"select {names} from {{keys}} as k join outcome on decision_id = a"
    happened = tx.match(sql, [(row["decision_id"],) for row in found]) if found else []
    sql = f"select a from {{keys}} as k where exists (select 1 from decision where {here} and day < {first})"
    return _with_outcomes(found, happened), {user for (user,) in tx.match(sql, keys)}


def _with_outcomes(found: Sequence[dict[str, Any]], happened: Iterable[tuple[Any, ...]]) -> list[DecisionRow]:
    outcomes: dict[str, list[tuple[Outcome, OutcomeResult]]] = {}
    for event, answer in sorted(map(_event, happened), key=_by_arrival):
        outcomes.setdefault(event.decision_id, []).append((event, answer))
    return [
        DecisionRow(
            **{name: row[name] for name in _ROW},
            forced=bool(row["forced"]),
            offer=bool(row["offer"]),
            outcomes=tuple(outcomes.get(row["decision_id"], ())),
        )
        for row in found
    ]


def add_decisions(tx: Transaction, admitted: Sequence[Admitted], changed: Mapping[Key, Counter]) -> None:
    """Write new decisions, each with its reservation, and the counters that they changed."""
    rows = [
        (*_proposed(decision), room, "reserved" if decision.offer else "free", decision.amount, 0, 0)
        for decision, room in admitted
    ]
    tx.insert(DECISION, rows)
    _put(tx, changed)


def add_outcomes(tx: Transaction, kept: Sequence[tuple[Outcome, OutcomeResult]]) -> None:
    """Write outcomes with the answers they got."""
    tx.insert(OUTCOME, [(*_happened(event), answer.status, answer.amount, answer.excess) for event, answer in kept])


def add_entries(
    tx: Transaction, entries: Sequence[LedgerEntry], moved: Mapping[str, Position], changed: Mapping[Key, Counter]
) -> None:
    """Write movements of money, the decisions' money after them, and the counters that they changed."""
    tx.insert(ENTRY, entries)
    now = [moved[key] for key in dict.fromkeys(entry.decision_id for entry in entries)]
    tx.move([(each.state, each.held, each.paid, each.excess, each.decision_id) for each in now])
    _put(tx, changed)


def _put(tx: Transaction, changed: Mapping[Key, Counter]) -> None:
    values = ", ".join(f"{name} = excluded.{name}" for name in list(COUNTER.columns)[4:])
    tx.insert(
        COUNTER,
        [(*key, *astuple(counter)[:-1]) for key, counter in changed.items() if counter.touched],
        f"on conflict (campaign, scope, key, day) do update set {values}",
    )


def _by_arrival(happened: tuple[Outcome, OutcomeResult]) -> tuple[int, str, str]:
    event, _ = happened
    return event.received, event.kind, event.event_id


def _event(row: tuple[Any, ...]) -> tuple[Outcome, OutcomeResult]:
    *event, status, moved, excess = row
    outcome = Outcome(**dict(zip(_OUTCOME, event, strict=True)))
    return outcome, settled(outcome, status, moved, excess)


def settled(event: Outcome, status: Any, amount: int = 0, excess: int = 0) -> OutcomeResult:
    """Return the answer to an outcome that is new to the ledger."""
    return OutcomeResult(
        decision_id=event.decision_id,
        kind=event.kind,
        event_id=event.event_id,
        status=status,
        amount=amount,
        excess=excess,
        replayed=False,
    )
