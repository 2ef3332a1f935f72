"""A backend in memory, for the tests: what "How to add a ledger backend" in CONTRIBUTING.md asks for, and nothing more.

Ledgers of one name share a database; one transaction runs at a time. It does not outlive the process.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from outlay.serve.ledger.campaigns import columns_by_table, prepare, read_clock
from outlay.serve.ledger.clock import LedgerClock
from outlay.serve.ledger.ledger import LedgerError, NoLedgerError, UndecidedError
from outlay.serve.ledger.sql_ledger import SqlLedger
from outlay.serve.ledger.tables import SqlTable


class Database(NamedTuple):
    """A database, and the lock that each transaction holds."""

    connection: sqlite3.Connection
    lock: threading.Lock


_databases: dict[str, Database] = {}
_opening = threading.Lock()


def database(url: str) -> Database:
    with _opening:
        if url not in _databases:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            _databases[url] = Database(connection, threading.Lock())
        return _databases[url]


def open_url(url: str, *, create: bool) -> MemoryLedger:
    if not create and url not in _databases:
        raise NoLedgerError("there is no such ledger.", file=url)
    return MemoryLedger(url)


class MemoryLedger(SqlLedger):
    """A `Ledger` in the memory of this process."""

    def __init__(self, url: str) -> None:
        self.clock = LedgerClock()
        self._database = database(url)
        self._writer: Any = self._database.connection
        self._closed = False
        with self._writing() as tx:
            columns = "select t.name, c.name from sqlite_master as t, pragma_table_info(t.name) as c"
            prepare(tx, columns_by_table(tx.read(f"{columns} where t.type = 'table'")), url)
            read_clock(tx)

    def close(self) -> None:
        """No transaction begins any more; the database stays."""
        self._closed = True

    @contextmanager
    def _writing(self) -> Iterator[_Transaction]:
        with self._database.lock:
            if self._closed:
                raise LedgerError("the ledger is closed.")
            self._writer.execute("begin")
            try:
                yield _Transaction(self._writer, self.clock)
            except BaseException as error:
                self._writer.execute("rollback")
                if isinstance(error, sqlite3.Error):
                    raise LedgerError(f"{error}.") from error
                raise
            try:
                self._writer.execute("commit")
            except sqlite3.Error as error:
                raise UndecidedError(f"{error}.") from error
            time.sleep(0.001)  # as long as a fast disk takes: notes are ordered by milliseconds

    _reading = _writing


class _Transaction:
    """One transaction; the methods are those of the `Transaction` protocol in `ledger/repository.py`."""

    time = "cast((julianday('now') - 2440587.5) * 86400000 as integer)"

    def __init__(self, connection: sqlite3.Connection, clock: LedgerClock) -> None:
        self._connection = connection
        self.clock = clock

    def run(self, sql: str, *values: object) -> None:
        self._connection.execute(sql, values)

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def match(self, sql: str, keys: Collection[tuple[str, ...]]) -> list[tuple[Any, ...]]:
        columns = ", ".join(f"json_extract(value, '$[{place}]') as {name}" for place, name in enumerate("abcd"))
        return self.read(sql.format(keys=f"(select {columns} from json_each(?))"), json.dumps(list(keys)))

    def insert(self, table: SqlTable, rows: Sequence[tuple[Any, ...]], otherwise: str = "") -> None:
        values = ", ".join("?" * len(table.columns))
        self._connection.executemany(f"insert into {table.name} ({table.names}) values ({values}) {otherwise}", rows)

    def move(self, positions: Sequence[tuple[str, int, int, int, str]]) -> None:
        sql = "update decision set state = ?, held = ?, paid = ?, excess = ? where decision_id = ?"
        self._connection.executemany(sql, positions)

    def take_time(self) -> None:
        """There is no time limit."""

    def in_order(self) -> None:
        """The query planner does so by itself."""
