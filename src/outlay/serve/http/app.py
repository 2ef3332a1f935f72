"""The ASGI application of one worker: the routes behind a bearer token, and a service that starts and ends with it."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from outlay.serve.handlers.messages import Problem
from outlay.serve.handlers.service import Service
from outlay.serve.http.docs_page import docs_page
from outlay.serve.http.endpoint import JSON
from outlay.serve.http.openapi import document
from outlay.serve.http.routes import ENDPOINTS

ADMIN = "/v1/admin/"


def create_app(
    start: Callable[[], Awaitable[Service]], *, token: str | None = None, everywhere: bool = False
) -> Router:
    """Return the ASGI application of one worker. Its lifespan state has the service, by the key "service".

    Starlette's router alone, without the middleware of `Starlette`, which costs as much as everything else here: every
    endpoint answers its own errors.

    Args:
        start: makes the service, in the worker's event loop.
        token: the bearer token, for the routes that need one.
        everywhere: whether all routes need it.
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
        middleware=[Middleware(RequireToken, token=token, everywhere=everywhere)],
    )


class RequireToken:
    """Middleware that refuses requests without the bearer token where one is needed.

    Attributes:
        app: the application behind it.
        token: the secret; without one the admin routes are closed.
        everywhere: whether every route needs it, or only those of the administrator.
    """

    def __init__(self, app: ASGIApp, token: str | None, everywhere: bool) -> None:
        self.app = app
        self.token = token
        self.everywhere = everywhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with 401 or 403."""
        if scope["type"] == "http" and (self.everywhere or scope["path"].startswith(ADMIN)):
            refusal = self._refusal(dict(scope["headers"]).get(b"authorization", b""))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, header: bytes) -> Response | None:
        if self.token is None:
            words = "this server has no token, so nobody may do this."
            return JSON(Problem(error=words, way_out="Start it with OUTLAY_TOKEN set."), 403)
        scheme, _, given = header.partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self.token.encode()):
            return None
        way_out = "Send the header Authorization: Bearer and the server's token."
        problem = Problem(error="a bearer token is needed.", way_out=way_out)
        return JSON(problem, 401, {"WWW-Authenticate": "Bearer"})


async def _openapi(_request: Request) -> Response:
    return JSON(document(ENDPOINTS))


async def _docs(_request: Request) -> Response:
    return HTMLResponse(docs_page(document(ENDPOINTS)))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await JSON(Problem(error="Not Found."), 404)(scope, receive, send)
