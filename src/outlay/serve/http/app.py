"""The ASGI application of one worker: the routes behind bearer tokens, and a service that starts and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from outlay.serve.handlers.messages import Problem
from outlay.serve.handlers.service import Service
from outlay.serve.http.openapi import docs_page, document
from outlay.serve.http.routes import ENDPOINTS, JSON
from outlay.serve.http.tokens import ADMIN_TOKEN, Role, Tokens
from outlay.serve.ledger.actor import Actor, acting

ADMIN = "/v1/admin/"
PROBES = {endpoint.path for endpoint in ENDPOINTS if endpoint.probe}
ACTOR = b"outlay-actor"  # the header in which administrators say who they are
LONGEST = 128  # characters of it
NO_TOKEN = JSON(
    Problem(error="a bearer token is needed.", way_out="Send the header Authorization: Bearer and the token."),
    401,
    {"WWW-Authenticate": "Bearer"},
)
NOT_ADMIN = JSON(Problem(error="this token is not the administrator's.", way_out=f"Send that of {ADMIN_TOKEN}."), 403)
NO_ADMIN = JSON(
    Problem(
        error="this server has no administrator's token, so nobody may do this.",
        way_out=f"Start it with {ADMIN_TOKEN} set.",
    ),
    403,
)
BAD_NAME = JSON(
    Problem(
        error="the header Outlay-Actor is not a name.",
        way_out=f"Send at most {LONGEST} printable characters, in UTF-8.",
    ),
    400,
)


def create_app(start: Callable[[], Awaitable[Service]], tokens: Tokens) -> Router:
    """Return the ASGI application of one worker. Its lifespan state has the service, by the key "service".

    Starlette's router alone, without the middleware of `Starlette`, which costs as much as everything else here: every
    endpoint answers its own errors.

    Args:
        start: makes the service, in the worker's event loop.
        tokens: the secrets of its callers.
    """

    @asynccontextmanager
    async def lifespan(_app: Router) -> AsyncIterator[dict[str, Service]]:
        service = await start()
        await asyncio.to_thread(service.maintain)  # a worker that replaces a dead one serves what the others serve
        upkeep = asyncio.create_task(service.run_maintenance())
        try:
            yield {"service": service}
        finally:
            upkeep.cancel()
            with suppress(asyncio.CancelledError):
                await upkeep
            await service.close()

    return Router(
        routes=[
            *(Route(endpoint.path, endpoint, name=endpoint.handle.__name__) for endpoint in ENDPOINTS),
            Route("/openapi.json", _openapi),
            Route("/docs", _docs),
        ],
        default=_not_found,
        lifespan=lifespan,
        redirect_slashes=False,
        middleware=[Middleware(RequireToken, tokens=tokens)],
    )


class RequireToken:
    """Middleware that refuses requests whose sender may not make them, and says in whose name the others act.

    Attributes:
        app: the application behind it; its endpoints find the sender's `Role` in the scope, by the key "role".
        tokens: the secrets of callers.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self.app = app
        self.tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with 400, 401 or 403."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        if self.tokens.use is None and not path.startswith(ADMIN):
            scope["role"] = Role.USE
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        role = scope["role"] = self.tokens.role(headers.get(b"authorization", b""))
        if not path.startswith(ADMIN):
            allowed = role >= Role.USE or path in PROBES
            await (self.app if allowed else NO_TOKEN)(scope, receive, send)
        elif self.tokens.admin is None:
            await NO_ADMIN(scope, receive, send)
        elif role != Role.ADMIN:
            await (NOT_ADMIN if role == Role.USE else NO_TOKEN)(scope, receive, send)
        elif (name := _name(headers.get(ACTOR, b""))) is None:
            await BAD_NAME(scope, receive, send)
        else:
            with acting(Actor("admin", name)):
                await self.app(scope, receive, send)


def _name(header: bytes) -> str | None:
    """Return the name that a caller gives for the trail, empty if none is given; None if it is not a name."""
    try:
        name = header.decode()
    except UnicodeDecodeError:
        return None
    return name if len(name) <= LONGEST and name.isprintable() else None


async def _openapi(_request: Request) -> Response:
    return JSON(document(ENDPOINTS))


async def _docs(_request: Request) -> Response:
    return HTMLResponse(docs_page(document(ENDPOINTS)))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await JSON(Problem(error="Not Found."), 404)(scope, receive, send)
