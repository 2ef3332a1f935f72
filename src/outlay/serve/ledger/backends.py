"""Ledger backends, one row each, and the URLs that name them: `sqlite:///ledger.db`, `postgresql://…`.

The password of a database stays out of errors and logs, and out of the list of processes where possible.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import NamedTuple
from urllib.parse import unquote

from outlay.core.errors import OutlayError
from outlay.core.machine import optional
from outlay.serve.ledger.ledger import Ledger


class Backend(NamedTuple):
    """A kind of ledger.

    Attributes:
        prefixes: what its URLs start with.
        example: a URL, for errors.
        module: has `open_url(url, *, create)`. It is imported when it is needed, since it may need an extra.
    """

    prefixes: tuple[str, ...]
    example: str
    module: str


BACKENDS = {
    "sqlite": Backend(("sqlite:///",), "sqlite:///ledger.db", "outlay.serve.ledger.sqlite"),
    "postgres": Backend(
        ("postgresql://", "postgres://"), "postgresql://user@host/database", "outlay.serve.ledger.postgres"
    ),
}
HIDDEN = "***"
_PASSWORD = re.compile(r"(?<=://)[^:/?#@]*:([^/?#]*)@|[?&]password=([^&#]*)")  # of the user, or as a parameter


def open_ledger(url: str, *, create: bool = True) -> Ledger:
    """Open the ledger that a URL names.

    Args:
        url: for SQLite the path comes after three slashes: `sqlite:///ledger.db` is in the working folder,
            `sqlite:////var/ledger.db` is not.
        create: whether to create a ledger that does not exist.

    Raises:
        OutlayError: if no backend knows the URL, the ledger's file cannot be written, or an extra is not installed.
        NoLedgerError: if it does not exist and is not to be created.
        LedgerError: if the ledger cannot be opened, or is not an outlay ledger.
    """
    backend = next((backend for backend in BACKENDS.values() if url.startswith(backend.prefixes)), None)
    if backend is None:
        raise unknown_url(url)
    with optional():
        module = import_module(backend.module)
    ledger: Ledger = module.open_url(url, create=create)
    return ledger


def unknown_url(url: str) -> OutlayError:
    """Return the error for a URL that is not a ledger's; it lists examples that are."""
    examples = " or ".join(backend.example for backend in BACKENDS.values())
    return OutlayError(
        f"is {without_password(url, url)!r}, which is not the URL of a ledger.",
        where="--ledger",
        way_out=f"Give {examples}.",
    )


def password_of(url: str) -> str | None:
    """Return the password in a ledger's URL, as it is written there; None if there is none."""
    match = _PASSWORD.search(url)
    return (match[1] or match[2] or None) if match else None


def without_password(text: str, url: str) -> str:
    """Return the text with the password of `url` replaced by stars."""
    password = password_of(url)
    for secret in {password, unquote(password)} if password else ():
        text = text.replace(secret, HIDDEN)
    return text


def check_password(url: str) -> None:
    """Raise OutlayError if characters of the password would be read as the host or the database."""
    _, _, rest = url.partition("://")
    authority, _, behind = rest.partition("/")
    if authority.count("@") > 1 or "@" in behind.partition("?")[0]:
        raise OutlayError(
            "has an '@' or a '/' in its user name or password.",
            where="--ledger",
            way_out="Write them as %40 and %2F; or leave the password out, and use PGPASSWORD or ~/.pgpass.",
        )
