"""An endpoint: reads the body, calls a handler, and turns every error into an answer that says what to do."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlay.serve.handlers.messages import BadRequestError, Problem
from outlay.serve.handlers.service import Service
from outlay.serve.http.decoding import read_body
from outlay.serve.http.tokens import Role
from outlay.serve.ledger.ledger import LedgerError, UndecidedError

UNREACHABLE = LedgerError, TimeoutError
RETRY_AFTER = {"Retry-After": "1"}  # seconds

log = logging.getLogger("outlay.serve")
_encode = msgspec.json.Encoder().encode


class JSON(Response):
    """An answer in JSON; with status 503, it says when to try again."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, RETRY_AFTER if status_code == 503 else headers)

    def render(self, content: Any) -> bytes:
        """Encode the answer with msgspec."""
        return _encode(content)


@dataclass(frozen=True)
class Endpoint:
    """An ASGI application for one method and path.

    Attributes:
        method: "GET", which answers HEAD as well, or "POST".
        path: the path of the URL.
        handle: takes the service and the body, and answers. It may raise BadRequestError, LedgerError or TimeoutError.
        takes: the messages that the body may be; the body is not read if there are none.
        gives: the messages that the answer may be; any JSON object if there are none.
        refuses: statuses of further answers, each with a Problem; those of a wrong body go without saying.
        not_found: when the answer is 404, in words; empty if it never is.
        instead: status → messages that an answer with it may be, where it is not only a Problem.
        media_type: content type of the answer.
        probe: whether it is answered without a token as well, then with no more than whether the status is 200.
    """

    method: str
    path: str
    handle: Callable[[Service, bytes], Awaitable[Response]]
    takes: tuple[type, ...] = ()
    gives: tuple[type, ...] = ()
    refuses: tuple[int, ...] = ()
    not_found: str = ""
    instead: Mapping[int, tuple[type, ...]] = field(default_factory=dict)
    media_type: str = "application/json"
    probe: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        methods = ("GET", "HEAD") if self.method == "GET" else (self.method,)
        if scope["method"] not in methods:
            await JSON(Problem(error="Method Not Allowed."), 405, {"Allow": ", ".join(methods)})(scope, receive, send)
            return
        service: Service = scope["state"]["service"]
        try:
            limit = service.state.config.limits.body_bytes
            response = await self.handle(service, await read_body(scope, receive, limit) if self.takes else b"")
        except Exception as error:
            response = _refusal(error, self.path)
            service.metrics.refused(response.status_code)
        if self.probe and scope["role"] == Role.NOBODY:
            response = JSON({self.path.rpartition("/")[2]: response.status_code == 200}, response.status_code)
        await response(scope, receive, send)


def _refusal(error: Exception, path: str) -> Response:
    if isinstance(error, BadRequestError):
        return JSON(error.problem, error.status)
    if isinstance(error, UndecidedError):
        words = f"it is not known yet whether this is written: {error.found}"
        way_out = "Ask again with the same ids: the answer is what stands in the ledger."
        return JSON(Problem(error=words, way_out=way_out), 503)
    if isinstance(error, UNREACHABLE):
        words = f"the ledger cannot be reached: {str(error) or 'it took too long'}"
        return JSON(Problem(error=words, way_out="Ask again."), 503)
    log.error("a request to %s failed", path, exc_info=error)
    return JSON(Problem(error="the server failed; its log says why.", way_out="Ask again."), 500)
