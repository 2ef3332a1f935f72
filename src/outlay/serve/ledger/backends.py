"""Which ledger a URL names: `sqlite:///path`, or `postgresql://…` for several servers."""

from __future__ import annotations

import os
from pathlib import Path

from outlay.core.errors import OutlayError
from outlay.core.machine import optional
from outlay.serve.ledger.ledger import Ledger
from outlay.serve.ledger.passwords import check_password, without_password
from outlay.serve.ledger.sqlite import SqliteLedger

SQLITE = "sqlite:///"
POSTGRESQL = ("postgresql://", "postgres://")


def open_ledger(url: str) -> Ledger:
    """The ledger, made if it is not there.

    Args:
        url: after the three slashes of SQLite comes the path: `sqlite:///ledger.db` lies in the working folder,
            `sqlite:////var/ledger.db` does not.

    Raises:
        OutlayError: if the URL names no ledger, its file cannot be written, or the extra for PostgreSQL is missing.
        LedgerError: if it cannot be opened, or is not ours.
    """
    if url.startswith(POSTGRESQL):
        check_password(url)
        with optional():
            from outlay.serve.ledger.postgres import PostgresLedger
        return PostgresLedger(url)
    path = Path(url.removeprefix(SQLITE))
    if not url.startswith(SQLITE) or not path.name:
        raise OutlayError(
            f"is {without_password(url, url)!r}.",
            where="--ledger",
            way_out="Give sqlite:///ledger.db or postgresql://user@host/database.",
        )
    _check_writable(path)
    return SqliteLedger(path)


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise OutlayError("is a folder.", file=path, where="--ledger", way_out="Name a file in it.")
    if not path.parent.is_dir():
        raise OutlayError(
            "the folder does not exist.", file=path.parent, where="--ledger", way_out="Make it, or give another path."
        )
    blocked = path if path.exists() and not os.access(path, os.W_OK) else path.parent
    if not os.access(blocked, os.W_OK):
        raise OutlayError("cannot be written.", file=blocked, where="--ledger", way_out="Give another path.")
