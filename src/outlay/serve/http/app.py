"""The application: routes behind the gate, and a service that starts and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from outlay.core.version import __version__
from outlay.serve.handlers.messages import Problem
from outlay.serve.handlers.service import Service
from outlay.serve.http.docs_page import page
from outlay.serve.http.gate import Gate
from outlay.serve.http.lane import UNREACHABLE, Lane, answer, refused
from outlay.serve.http.openapi import schemas
from outlay.serve.http.routes import posts, response, router

WORDS = "Which incentive each user gets, under a hard budget. Every decision is in the ledger before it is answered."


class Application(FastAPI):
    """FastAPI behind the gate and the lane.

    Attributes:
        front: what is asked first.
    """

    front: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self.front(scope, receive, send)

    async def inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What FastAPI answers."""
        await super().__call__(scope, receive, send)


def create_app(
    start: Callable[[], Awaitable[Service]], *, token: str | None = None, everywhere: bool = False
) -> FastAPI:
    """The ASGI application of one worker.

    Args:
        start: makes the service, in the worker's event loop.
        token: of the bearer, for the routes that need one.
        everywhere: all routes need it.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = app.state.service = await start()
        await asyncio.to_thread(service.tend)  # one that takes a dead one's place serves what the others serve
        care = asyncio.create_task(service.look_after())
        try:
            yield
        finally:
            care.cancel()
            with suppress(asyncio.CancelledError):
                await care
            await service.close()

    app = Application(
        title="outlay", version=__version__, description=WORDS, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.front = Gate(Lane(app.inside, posts, app.state), token, everywhere)
    app.include_router(router)
    app.add_route("/docs", lambda _request: HTMLResponse(page(app.openapi())), include_in_schema=False)
    for kind in (*UNREACHABLE, Exception):
        app.add_exception_handler(kind, _failed)
    app.add_exception_handler(HTTPException, _no_route)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        found.setdefault("components", {}).setdefault("schemas", {}).update(schemas())
        app.openapi_schema = found
    return app.openapi_schema


async def _failed(request: Request, error: Exception) -> Response:
    return response(refused(request.app.state.service, error))


async def _no_route(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refusal = response(answer(Problem(error=f"{error.detail}."), error.status_code))
    refusal.headers.update(error.headers or {})
    return refusal
