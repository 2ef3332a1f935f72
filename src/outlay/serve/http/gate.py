"""Who may ask: a bearer token for /v1/admin, and for everything where the server does not listen on loopback only."""

from __future__ import annotations

import hmac
import ipaddress

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

ADMIN = "/v1/admin/"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Gate:
    """Middleware that lets nothing past without the token where one is needed.

    Attributes:
        app: what stands behind it.
        token: the secret; None where there is none, and then the admin routes are closed.
        everywhere: every route needs it.
    """

    def __init__(self, app: ASGIApp, token: str | None, everywhere: bool) -> None:
        self.app = app
        self.token = token
        self.everywhere = everywhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse with 401 or 403."""
        if scope["type"] == "http" and (self.everywhere or scope["path"].startswith(ADMIN)):
            refusal = self._refusal(dict(scope["headers"]).get(b"authorization", b""))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, header: bytes) -> Response | None:
        if self.token is None:
            return _json(403, "this server has no token, so nobody may do this. Start it with OUTLAY_TOKEN set.")
        kind, _, given = header.partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self.token.encode()):
            return None
        return _json(401, "a bearer token is wanted. Send the header Authorization: Bearer and the server's token.")


def _json(status: int, words: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Response(f'{{"error":"{words}"}}', status, headers, "application/json")
