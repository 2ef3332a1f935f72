"""The ledger in PostgreSQL: for several servers.

    begin · lock the campaigns · read what the group needs · decide · insert · commit

There is one set-based statement per table, whatever the size of the group. READ COMMITTED is enough: once the
campaign's row is locked, every statement sees what the previous holder committed. The tables are in the schema
`outlay`.

A server that stands still in a transaction would keep the campaign's row, and with it all others, for ever. So every
transaction tells the database for how long it may wait (`IDLE`); after that it is rolled back and its connection ends.
When the server goes on, its transaction fails, and its callers are told to ask again.

Nothing outlives a transaction: no setting, no prepared statement, no lock. A pooler such as PgBouncer may give every
transaction another session, and give ours to others.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import msgspec
import psycopg
from psycopg import Connection

from outlay.serve.ledger.backends import check_password, without_password
from outlay.serve.ledger.campaigns import columns_by_table, prepare, read_clock
from outlay.serve.ledger.clock import HERE, LedgerClock, Machine
from outlay.serve.ledger.ledger import LedgerError, NoLedgerError, UndecidedError
from outlay.serve.ledger.sql_ledger import SqlLedger
from outlay.serve.ledger.tables import DECISION, SqlTable

PLACE = "the PostgreSQL ledger"
SCHEMA = "the database's schema outlay"
NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
WAIT = 5  # seconds for a connection or a statement, until the ledger counts as unreachable
LOCKED = 4  # seconds for a lock: less than for its statement, so that the error says which it was
IDLE = 2  # seconds that a server may leave a transaction waiting; the database then takes it, and its locks, away
READING = 60  # the same for one that only reads: it blocks nobody, but keeps old rows from being cleaned up
# A database whose machine is gone, or whose network is, is noticed after 2 + 3 · 1 seconds.
ALIVE: dict[str, Any] = {"keepalives": 1, "keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 3}

# The planner does not know how fast a new ledger grows: plans made for empty tables must not scan them later.
_BY_INDEX = "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off;"
_IN_ORDER = f"{_BY_INDEX} set local enable_bitmapscan = off; set local enable_sort = off"
# Against servers that stand still or are gone: one that sends nothing, and (TCP) one that takes nothing.
_ENDS = "set local idle_in_transaction_session_timeout = '{}s'; set local tcp_user_timeout = '{}s';"
_HERE = "set local search_path = outlay; set local jit = off;"
_ROWS = f"begin isolation level repeatable read; {_HERE}"
_READ = f"{_ROWS} {_ENDS.format(READING, READING)}"
_LIMITS = f"{_BY_INDEX} {_ENDS.format(IDLE, WAIT)} set local statement_timeout = '{WAIT}s';"
_LOOK = f"{_ROWS} {_LIMITS}"
_WRITE = f"""
    begin isolation level read committed; {_HERE} {_LIMITS} set local synchronous_commit = on;
    set local lock_timeout = '{LOCKED}s'
"""

# Values travel as one JSON array of rows: psycopg writes 23 arrays at 20 µs a row, msgspec this at 3.
_COLUMNS = ", ".join(f"row->>{position} as {name}" for position, name in enumerate("abcd"))
_KEYS = f"(select {_COLUMNS} from jsonb_array_elements(?::jsonb) as row)"


def open_url(url: str, *, create: bool) -> PostgresLedger:
    """Connect to the database at `url`. See `backends.open_ledger`."""
    check_password(url)
    return PostgresLedger(url, create=create)


class PostgresLedger(SqlLedger):
    """A `Ledger` in the database at `url`; it is created if it does not exist and `create` is true.

    Raises:
        LedgerError: if the database cannot be reached, or holds a ledger of another format version.
    """

    lock = "for update"

    def __init__(self, url: str, machine: Machine = HERE, *, create: bool = True) -> None:
        self._url = url
        self.clock = LedgerClock(machine)
        self._turn = threading.Lock()
        self._writer: Connection | None = None
        self._closed = False
        try:
            with self._looking() as tx:
                _check_encoding(tx)
                if existing := _columns(tx):  # then no right is needed but those to its rows
                    prepare(tx, existing, SCHEMA)
                read_clock(tx)
            if not existing and not create:
                raise NoLedgerError("there is no ledger.", file=SCHEMA, where="LEDGER", way_out="Check the URL.")
            if not existing:
                self._create()
        except LedgerError:
            self.close()
            raise

    def _create(self) -> None:
        with self._writing() as tx:
            tx.read("select pg_advisory_xact_lock(hashtext('outlay'))")  # servers that start together
            if not tx.read("select 1 from pg_namespace where nspname = 'outlay'"):
                tx.run("create schema outlay")
            prepare(tx, _columns(tx), SCHEMA)

    def close(self) -> None:
        """Close the connections."""
        with self._turn:
            self._closed = True
            if self._writer is not None:
                self._writer.close()

    @contextmanager
    def _writing(self) -> Iterator[_PostgresTransaction]:
        with self._kept(_WRITE) as tx:
            yield tx

    @contextmanager
    def _looking(self) -> Iterator[_PostgresTransaction]:
        try:
            with self._kept(_LOOK) as tx:
                yield tx
        except UndecidedError as error:  # of a transaction that wrote nothing
            raise LedgerError(error.found, file=PLACE) from error

    @contextmanager
    def _kept(self, begin: str) -> Iterator[_PostgresTransaction]:
        """Begin on the connection that is kept."""
        with self._turn, _own_errors(self._url):
            if self._closed:
                raise LedgerError("the ledger is closed.")
            if self._writer is None or self._writer.closed:  # not opened yet, or closed after an error
                self._writer = self._connect()
            try:
                with _transaction(self._writer, begin, self.clock) as tx:
                    yield tx
            except (psycopg.Error, UndecidedError):
                self._writer.close()  # a session may stay read-only after its database no longer is
                raise

    @contextmanager
    def _reading(self) -> Iterator[_PostgresTransaction]:
        with (
            _own_errors(self._url),
            closing(self._connect()) as reader,
            _transaction(reader, _READ, self.clock) as tx,
        ):
            yield tx

    def _connect(self) -> Connection:
        return psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=WAIT,
            tcp_user_timeout=WAIT * 1000,
            prepare_threshold=None,
            **ALIVE,
        )


class _PostgresTransaction:
    time = NOW

    def __init__(self, connection: Connection, clock: LedgerClock) -> None:
        self._connection = connection
        self.clock = clock

    def run(self, sql: str, *values: object) -> None:
        self._connection.execute(sql.replace("?", "%s").encode(), values)

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql.replace("?", "%s").encode(), values).fetchall()

    def match(self, sql: str, keys: Collection[tuple[str, ...]]) -> list[tuple[Any, ...]]:
        return self.read(sql.format(keys=_KEYS), _json(keys))

    def insert(self, table: SqlTable, rows: Sequence[tuple[Any, ...]], otherwise: str = "") -> None:
        sql = f"insert into {table.name} ({table.names}) {_select(table.columns.values())} {otherwise}"
        self._connection.execute(sql.encode(), [_json(rows)])

    def move(self, positions: Sequence[tuple[str, int, int, int, str]]) -> None:
        kinds = [DECISION.columns[name] for name in ("state", "held", "paid", "excess", "decision_id")]
        sql = f"""update decision set state = v.state, held = v.held, paid = v.paid, excess = v.excess
            from ({_select(kinds)}) as v (state, held, paid, excess, id) where decision_id = v.id"""
        self._connection.execute(sql.encode(), [_json(positions)])

    def take_time(self) -> None:
        self.run("set local statement_timeout = 0; set local enable_seqscan = on")

    def in_order(self) -> None:
        self.run(_IN_ORDER)


@contextmanager
def _transaction(connection: Connection, begin: str, clock: LedgerClock) -> Iterator[_PostgresTransaction]:
    try:
        connection.execute(begin.encode())  # with its settings in one message
        yield _PostgresTransaction(connection, clock)
    except BaseException:
        with suppress(psycopg.Error):  # the connection may be gone, and the transaction with it
            connection.execute("rollback")
        raise
    try:
        connection.execute("commit")
    except psycopg.Error as error:
        raise UndecidedError(f"{str(error).strip()}.", file=PLACE) from error


def _columns(tx: _PostgresTransaction) -> dict[str, list[str]]:
    """Return the tables that exist, each with its columns, whether or not this user may read them."""
    sql = """select relname, attname from pg_attribute join pg_class on pg_class.oid = attrelid
        join pg_namespace on pg_namespace.oid = relnamespace
        where nspname = 'outlay' and relkind in ('r', 'p') and attnum > 0 and not attisdropped"""
    return columns_by_table(tx.read(sql))


def _check_encoding(tx: _PostgresTransaction) -> None:
    encoding = str(tx.read("show server_encoding")[0][0])
    if encoding != "UTF8":
        raise LedgerError(
            f"has the encoding {encoding}, which cannot represent every name.",
            file="the PostgreSQL database",
            way_out="Create another database: createdb -E UTF8 -T template0 NAME.",
        )


def _select(kinds: Iterable[str]) -> str:
    columns = [f"(row->>{position})::{kind.removesuffix(' not null')}" for position, kind in enumerate(kinds)]
    return f"select {', '.join(columns)} from jsonb_array_elements(%s::jsonb) as row"


def _json(rows: Collection[tuple[Any, ...]]) -> str:
    return msgspec.json.encode(list(rows)).decode()


@contextmanager
def _own_errors(url: str) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise LedgerError(
            f"another session has held the campaign's lock for {LOCKED} seconds.",
            file=PLACE,
            way_out="It is none of outlay's, which would have lost it by now: pg_stat_activity shows it.",
        ) from error
    except psycopg.Error as error:
        raise LedgerError(f"{without_password(str(error).strip(), url)}.", file=PLACE) from error
