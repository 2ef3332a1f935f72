"""Who may do what: two secrets, one for the application and one for administrators.

    role        with                    may
    NOBODY      no token of ours        ask whether the server lives and is ready
    USE         OUTLAY_TOKEN            decisions, outcomes, metrics, the interface's document
    ADMIN       OUTLAY_ADMIN_TOKEN      the same, and everything under /v1/admin/

Without OUTLAY_TOKEN everybody who reaches the server may use it, so it then listens on loopback only. Without
OUTLAY_ADMIN_TOKEN nobody is an administrator.
"""

from __future__ import annotations

import enum
import hmac
from dataclasses import dataclass, field

from outlay.core.errors import OutlayError

USE_TOKEN, ADMIN_TOKEN = "OUTLAY_TOKEN", "OUTLAY_ADMIN_TOKEN"  # environment variables
SHORTEST = 16  # characters of a token
WAY_OUT = "Make each of them with: openssl rand -hex 24"


class Role(enum.IntEnum):
    """What a caller may do; a larger one may do all that a smaller one may."""

    NOBODY = 0
    USE = 1
    ADMIN = 2


@dataclass(frozen=True)
class Tokens:
    """The secrets of a server.

    Attributes:
        use: that of the application, or None.
        admin: that of administrators, or None.
    """

    use: str | None = field(default=None, repr=False)
    admin: str | None = field(default=None, repr=False)

    def check(self, host: str, *, loopback: bool) -> None:
        """Check that the tokens protect a server on this address.

        Args:
            host: the address to listen on.
            loopback: whether only this machine can reach it.

        Raises:
            OutlayError: if a token is short, cannot be sent in a header or is both, or if there is none to use a
                server that other machines reach.
        """
        if not loopback and self.use is None:
            raise OutlayError(
                f"is {host}: other machines could spend the budget, and there is no token.",
                where="--host",
                way_out=f"Set {USE_TOKEN} to a long random text, or listen on 127.0.0.1. {WAY_OUT}",
            )
        for name, token in ((USE_TOKEN, self.use), (ADMIN_TOKEN, self.admin)):
            if token is None:
                continue
            if len(token) < SHORTEST:
                raise OutlayError(
                    f"has {len(token)} characters; needs {SHORTEST} at least.", where=name, way_out=WAY_OUT
                )
            if not all("!" <= character <= "~" for character in token):
                raise OutlayError("has a space, or a character that is not ASCII.", where=name, way_out=WAY_OUT)
        if self.use is not None and self.use == self.admin:
            raise OutlayError(
                f"is the same as {USE_TOKEN}: whoever asks for decisions could lift the caps.",
                where=ADMIN_TOKEN,
                way_out=WAY_OUT,
            )

    def role(self, authorization: bytes) -> Role:
        """Return whose token an Authorization header has; it takes as long for ours as for others."""
        scheme, _, given = authorization.partition(b" ")
        given = given.strip() if scheme.lower() == b"bearer" else b""
        admin, use = (
            token is not None and hmac.compare_digest(given, token.encode()) for token in (self.admin, self.use)
        )
        if admin:
            return Role.ADMIN
        return Role.USE if use else Role.NOBODY
