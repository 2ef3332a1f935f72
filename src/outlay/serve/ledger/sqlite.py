"""The ledger in one SQLite file: the default, for one machine.

With a write-ahead log and synchronous=FULL, what is committed survives a crash of the machine. One connection writes at
a time, across all processes; the others wait for it, at most `WAIT` seconds. A process that stands still while it
writes stops all others, since SQLite takes no lock away. Readers never wait. Not for network file systems, whose locks
are unreliable.

The log is copied back into the file by a thread of its own (`Checkpoints`), so that no commit waits for it:

    commit ─▶ log ──passive, while others write──▶ file        log long ──full, before the next commit──▶ restarted

SQLite would do this within every commit that finds 1,000 pages in the log, and that commit would wait for the disk
three times. A passive checkpoint blocks nobody; but while others keep writing, it never reaches the end of the log,
which would grow for ever. So if the log was long, the next commit first copies the few pages written in between.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from outlay.core.errors import OutlayError
from outlay.serve.ledger.backends import unknown_url
from outlay.serve.ledger.campaigns import columns_by_table, prepare, read_clock
from outlay.serve.ledger.clock import HERE, ClockAnchor, LedgerClock, Machine
from outlay.serve.ledger.ledger import LedgerError, NoLedgerError, UndecidedError
from outlay.serve.ledger.sql_ledger import SqlLedger
from outlay.serve.ledger.tables import SqlTable

EVERY = 0.25  # seconds between two checkpoints while there are writes
LONG = 8_192  # pages of the log: 32 MiB

# Pages at which SQLite itself makes a checkpoint: the thread cannot keep up, or a reader holds the log for long.
LONGEST = 65_536
WAIT = 5.0  # seconds
POLL = 0.0005  # seconds
LOG = 64 * 2**20  # bytes that the log keeps when it is restarted
NOT_WRITTEN = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CONSTRAINT)
MODE = 0o600  # of a new ledger; SQLite gives its log and its index the same
CACHE = 65_536  # KiB of pages that the writer keeps: the counters of about a million users

_NOW = "(select ledger_time(boot, ticks, ts) from clock)"
_COLUMNS = ", ".join(f"json_extract(value, '$[{position}]') as {name}" for position, name in enumerate("abcd"))
_KEYS = f"(select {_COLUMNS} from json_each(?))"


def open_url(url: str, *, create: bool) -> SqliteLedger:
    """Open the file that `sqlite:///path` names. See `backends.open_ledger`."""
    path = Path(url.removeprefix("sqlite:///"))
    if not path.name:
        raise unknown_url(url)
    if path.is_dir():
        raise OutlayError("is a folder.", file=path, where="--ledger", way_out="Name a file in it.")
    if not create and not path.exists():
        raise NoLedgerError(
            "there is no such ledger.",
            file=path,
            where="LEDGER",
            way_out="Check the path: sqlite:///ledger.db is in the working folder.",
        )
    if not path.parent.is_dir():
        raise OutlayError(
            "the folder does not exist.", file=path.parent, where="--ledger", way_out="Create it, or give another path."
        )
    target = path if path.exists() and not os.access(path, os.W_OK) else path.parent
    if not os.access(target, os.W_OK):
        raise OutlayError("cannot be written.", file=target, where="--ledger", way_out="Give another path.")
    return SqliteLedger(path, create=create)


class SqliteLedger(SqlLedger):
    """A `Ledger` in the file at `path`; it is created if it does not exist and `create` is true.

    Raises:
        LedgerError: if the file cannot be opened, is not a ledger, or has another format version.
    """

    def __init__(self, path: str | Path, machine: Machine = HERE, *, create: bool = True) -> None:
        self.path = Path(path)
        self.clock = LedgerClock(machine)
        self._turn = threading.Lock()
        with suppress(OSError):  # SQLite says better what is wrong
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, MODE))
        if (mode := _mode(self.path)) & ~MODE:
            self.warnings = (
                f"{self.path} holds the ids of users, and others on this machine may read it (mode {mode:o}): "
                f"chmod {MODE:o} {self.path}*",
            )
        with self._own_errors():
            self._writer = self._connect()
        self._file = _identity(self.path)
        self._checkpoints = Checkpoints(self._connect)
        self._prepared = False
        try:
            with self._own_errors():
                self._writer.execute("pragma journal_mode = wal")
                self._writer.execute("pragma busy_timeout = 0")  # `_begin_writing` does the waiting
                self._writer.execute(f"pragma cache_size = {-CACHE}")
                self._writer.execute(f"pragma wal_autocheckpoint = {LONGEST}")
                self._writer.execute(f"pragma journal_size_limit = {LOG}")
            self._prepare(create)
            self._prepared = True
        except LedgerError:
            self.close()
            raise

    def _prepare(self, create: bool) -> None:
        with self._reading() as tx:
            exists = tx.read("select 1 from sqlite_master limit 1")
        if not exists and not create:
            raise NoLedgerError("it is empty.", file=self.path, where="LEDGER", way_out="Check the path.")
        # If there are tables, reading is enough: later processes need not wait for writers.
        with self._reading() if exists else self._writing() as tx:
            columns = tx.read(
                "select t.name, c.name from sqlite_master as t, pragma_table_info(t.name) as c where t.type = 'table'"
            )
            prepare(tx, columns_by_table(columns), str(self.path), short="without rowid")
            read_clock(tx)

    def close(self) -> None:
        """Close the connections."""
        self._checkpoints.close()
        with self._turn:
            self._writer.close()

    @contextmanager
    def _writing(self) -> Iterator[_SqliteTransaction]:
        with self._turn, self._own_errors():
            if _identity(self.path) != self._file:
                raise LedgerError(
                    "the file was moved or replaced while it was in use.",
                    file=self.path,
                    way_out="Restart the server.",
                )
            self._checkpoints.finish(self._writer)
            _begin_writing(self._writer, self.path)
            with _transaction(self._writer, self.path, self.clock) as tx:
                if self._prepared:
                    _move_anchor(tx)
                yield tx
        self._checkpoints.written()

    @contextmanager
    def _reading(self) -> Iterator[_SqliteTransaction]:
        with self._own_errors(), closing(self._connect()) as reader:
            reader.execute("begin")
            with _transaction(reader, self.path, self.clock) as tx:
                yield tx

    @contextmanager
    def _looking(self) -> Iterator[_SqliteTransaction]:
        with self._turn, self._own_errors():  # the writer's connection: its pages are in memory
            self._writer.execute("begin")
            with _transaction(self._writer, self.path, self.clock) as tx:
                yield tx

    def _connect(self) -> sqlite3.Connection:
        place = f"{self.path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(place, timeout=WAIT, isolation_level=None, check_same_thread=False, uri=True)
        connection.execute("pragma synchronous = full")
        connection.execute("pragma fullfsync = on")  # macOS: past the cache of the disk
        connection.create_function("ledger_time", 3, lambda *anchor: ClockAnchor(*anchor).now(self.clock.machine))
        return connection

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise LedgerError(f"{error}.", file=self.path) from error


class _SqliteTransaction:
    time = _NOW

    def __init__(self, connection: sqlite3.Connection, clock: LedgerClock) -> None:
        self._connection = connection
        self.clock = clock

    def run(self, sql: str, *values: object) -> None:
        self._connection.execute(sql, values)

    def read(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def match(self, sql: str, keys: Collection[tuple[str, ...]]) -> list[tuple[Any, ...]]:
        return self.read(sql.format(keys=_KEYS), msgspec.json.encode(list(keys)).decode())

    def insert(self, table: SqlTable, rows: Sequence[tuple[Any, ...]], otherwise: str = "") -> None:
        holes = ", ".join("?" * len(table.columns))
        self._connection.executemany(f"insert into {table.name} ({table.names}) values ({holes}) {otherwise}", rows)

    def move(self, positions: Sequence[tuple[str, int, int, int, str]]) -> None:
        sql = "update decision set state = ?, held = ?, paid = ?, excess = ? where decision_id = ?"
        self._connection.executemany(sql, positions)

    def take_time(self) -> None:
        """There is no time limit to lift."""

    def in_order(self) -> None:
        """SQLite does so whenever it can."""


def _mode(path: Path) -> int:
    """Return the permissions of the file at `path`; 0 if there is none, or the system has no such permissions."""
    try:
        return path.stat().st_mode & 0o777 if os.name == "posix" else 0
    except OSError:
        return 0


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at `path`; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _begin_writing(connection: sqlite3.Connection, path: Path) -> None:
    """Begin a writing transaction; wait for other processes if necessary.

    SQLite's own waiting backs off to 100 ms, so that a process that writes without pause starves the others for
    seconds; with a retry every `POLL` seconds all have the same chance.
    """
    until = time.monotonic() + WAIT
    while True:
        try:
            connection.execute("begin immediate")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if time.monotonic() > until:
                raise LedgerError(
                    f"another process has been writing to it for {WAIT:g} seconds.",
                    file=path,
                    way_out="If it stands still (SIGSTOP, a debugger, a paused container), let it go on or end it; "
                    f"fuser {path} names it.",
                ) from error
        time.sleep(POLL)


def _move_anchor(tx: _SqliteTransaction) -> None:
    [row] = tx.read("select boot, ticks, ts from clock")
    anchor = ClockAnchor(*row)
    if (moved := anchor.moved(tx.clock.machine)) is not anchor:
        tx.run("update clock set boot = ?, ticks = ?, ts = ?", *moved)


@contextmanager
def _transaction(connection: sqlite3.Connection, path: Path, clock: LedgerClock) -> Iterator[_SqliteTransaction]:
    try:
        yield _SqliteTransaction(connection, clock)
        _commit(connection, path)
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk may have rolled back already
            connection.execute("rollback")
        raise


def _commit(connection: sqlite3.Connection, path: Path) -> None:
    try:
        connection.execute("commit")
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_IOERR_WRITE or error.sqlite_errorcode & 0xFF in NOT_WRITTEN:
            raise  # the last page of the transaction, which makes it valid, is not in the log
        # Mostly a disk that did not confirm: after a crash, the log may or may not contain the transaction.
        raise UndecidedError(f"{error}.", file=path) from error


class Checkpoints:
    """The thread that copies the log back into the file.

    Args:
        connect: opens a new connection.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._written = threading.Event()
        self._ended = threading.Event()
        self._long = False
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def written(self) -> None:
        """Report that something was written to the log."""
        self._written.set()

    def finish(self, writer: sqlite3.Connection) -> None:
        """Copy the rest of the log if it is long. Call this between two transactions."""
        if self._long:
            self._long = False
            with suppress(sqlite3.Error):  # another process writes; the thread sees a long log again
                writer.execute("pragma wal_checkpoint(full)").fetchone()

    def close(self) -> None:
        """Stop the thread. The last connection to close empties the log."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            if self._written.is_set():
                self._written.clear()
                with suppress(sqlite3.Error), closing(self._connect()) as connection:  # the next one tries again
                    busy, pages, done = connection.execute("pragma wal_checkpoint(passive)").fetchone()
                    # If fewer pages were copied than there are, a reader holds an old state; do not wait for it.
                    self._long = not busy and done == pages > LONG
