"""The password of a database stays out of errors and logs, and out of the list of processes where it can."""

from __future__ import annotations

import re
from urllib.parse import unquote

from outlay.core.errors import OutlayError

HIDDEN = "***"
_IN_URL = re.compile(r"(?<=://)[^:/?#@]*:([^/?#]*)@|[?&]password=([^&#]*)")  # of the user, or as a setting


def password_of(url: str) -> str | None:
    """The password in a ledger's URL, as it is written there; None where it has none."""
    found = _IN_URL.search(url)
    return (found[1] or found[2] or None) if found else None


def without_password(text: str, url: str) -> str:
    """A text in which the password of `url` is not to be read."""
    password = password_of(url)
    for secret in {password, unquote(password)} if password else ():
        text = text.replace(secret, HIDDEN)
    return text


def check_password(url: str) -> None:
    """Raise OutlayError where a password's own characters would be read as the host or the database."""
    _, _, rest = url.partition("://")
    authority, _, behind = rest.partition("/")
    if authority.count("@") > 1 or "@" in behind.partition("?")[0]:
        raise OutlayError(
            "has an '@' or a '/' in its user name or password.", where="--ledger",
            way_out="Write them as %40 and %2F; or leave the password out, and give PGPASSWORD or ~/.pgpass.",
        )  # fmt: skip
