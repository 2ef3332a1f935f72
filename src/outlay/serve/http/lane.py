"""The short way: what posts a body goes from the gate straight to its handler.

FastAPI finds a route, resolves what it depends on and wraps its answer: two thirds of the time that a request without
work takes. It goes on showing these routes on its page and refuses other methods; it answers everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.datastructures import State
from starlette.types import ASGIApp, Receive, Scope, Send

from outlay.serve.handlers.messages import BadRequestError, Problem
from outlay.serve.handlers.service import Service
from outlay.serve.http.decoding import body_of
from outlay.serve.ledger.ledger import LedgerError, UndecidedError

UNREACHABLE = LedgerError, TimeoutError
AGAIN = "Ask again with the same ids: the answer is what stands in the ledger."
RETRY_AFTER = b"1"  # seconds

log = logging.getLogger("outlay.serve")
_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """What a handler answers: JSON."""

    status: int
    body: bytes

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Those of HTTP."""
        found = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(self.body))]
        return [*found, (b"retry-after", RETRY_AFTER)] if self.status == 503 else found


def answer(content: Any, status: int = 200) -> Answer:
    """A message as an answer."""
    return Answer(status, _encode(content))


def refused(service: Service, error: Exception) -> Answer:
    """The answer where a request cannot be decided, and a count of it."""
    if isinstance(error, BadRequestError):
        found = answer(error.problem, error.status)
    elif isinstance(error, UndecidedError):
        words = f"it is not known yet whether this is written: {error.found}"
        found = answer(Problem(error=words, way_out=AGAIN), 503)
    elif isinstance(error, UNREACHABLE):
        words = f"the ledger cannot be reached: {str(error) or 'it took too long'}"
        found = answer(Problem(error=words, way_out="Ask again."), 503)
    else:
        found = answer(Problem(error="the server failed; its log says why.", way_out="Ask again."), 500)
    service.metrics.refused(found.status)
    return found


class Post(NamedTuple):
    """What takes a body.

    Attributes:
        handle: answers it; raises BadRequestError, LedgerError or TimeoutError.
        takes_body: or else the body is not read.
    """

    handle: Callable[[Service, bytes], Awaitable[Answer]]
    takes_body: bool


class Lane:
    """Middleware that answers what is posted to its paths, and passes on everything else.

    Attributes:
        app: what stands behind it.
        posts: by path.
        state: has the service, once it has started.
    """

    def __init__(self, app: ASGIApp, posts: Mapping[str, Post], state: State) -> None:
        self.app = app
        self.posts = posts
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        post = self.posts.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if post is None:
            await self.app(scope, receive, send)
            return
        service: Service = self.state.service
        try:
            limit = service.state.config.limits.body_bytes
            found = await post.handle(service, await body_of(scope, receive, limit) if post.takes_body else b"")
        except (BadRequestError, *UNREACHABLE) as error:
            found = refused(service, error)
        except Exception as error:
            log.exception("a request to %s failed", scope["path"])
            found = refused(service, error)
        await send({"type": "http.response.start", "status": found.status, "headers": found.headers})
        await send({"type": "http.response.body", "body": found.body})
