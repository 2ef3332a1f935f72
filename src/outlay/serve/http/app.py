"""The ASGI application of one worker: the routes behind bearer tokens, and a service that starts and ends with it.

Two further routes describe the others:

    /openapi.json   what every endpoint takes and gives, with the messages as JSON schemas by msgspec
    /docs           the document as one page of HTML without scripts, which works offline
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from html import escape
from typing import Any

import msgspec
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from outlay.core.version import __version__
from outlay.serve.handlers.messages import DecisionAnswer, DecisionAnswers, OutcomeAnswer, OutcomeAnswers, Problem
from outlay.serve.handlers.service import Service
from outlay.serve.http.routes import ENDPOINTS, JSON, Endpoint
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
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "pre{background:#f3f4f5;padding:.8em;overflow:auto;font-size:14px}h2{margin-top:2em;font-size:1.1em}"
)
SCHEMAS = "#/components/schemas/"
REF = SCHEMAS + "{name}"
DESCRIPTION = (
    "Which incentive each user gets, under a hard budget. Every decision is in the ledger before it is answered. If "
    "the server has a token (OUTLAY_TOKEN), every route but the two of /v2/health/ needs it as a bearer token, and "
    "otherwise answers 401. Routes under /v1/admin/ need that of administrators (OUTLAY_ADMIN_TOKEN), which opens all; "
    "the header Outlay-Actor then says whose change it is, for the trail in the ledger."
)
REFUSALS = {
    400: "The body is not JSON, or the header Outlay-Actor is not a name of at most 128 printable characters.",
    401: "There is no token, or it is an unknown one.",
    403: "The token is not the administrator's, or the server has no token for administrators.",
    409: "The id belongs to another request.",
    413: "The body is too large.",
    415: "The content type is not JSON.",
    422: "The body is JSON, but not what is expected.",
    503: "The ledger cannot be reached, or what it made of the request is not known yet; ask again, with the same ids.",
}
WRONG_BODY = 400, 413, 415, 422
LISTS = {DecisionAnswers: ("decisions", DecisionAnswer), OutcomeAnswers: ("outcomes", OutcomeAnswer)}


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


def docs_page(openapi: dict[str, Any]) -> str:
    """Return the HTML of every route, with what it takes and gives, and of every message.

    Args:
        openapi: the OpenAPI document.
    """
    info, schemas = openapi["info"], openapi["components"]["schemas"]
    routes = "".join(
        _route(path, method, operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    )
    messages = "".join(
        f'<h2 id="{escape(name)}">{escape(name)}</h2><p>{escape(schema.get("description", ""))}</p>'
        f"<pre>{_linked({key: part for key, part in schema.items() if key != 'description'})}</pre>"
        for name, schema in schemas.items()
    )
    title = escape(f"{info['title']} {info['version']}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f'<h1>{title}</h1><p>{escape(info["description"])}</p><p>For programs: <a href="openapi.json">openapi.json</a>.'
        f"</p>{routes}<h1>Messages</h1>{messages}</html>"
    )


def _route(path: str, method: str, operation: dict[str, Any]) -> str:
    takes = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    body = "" if takes is None else f"<p>Takes</p><pre>{_linked(takes)}</pre>"
    answers = "".join(
        f"<li>{code}: {escape(answer['description'])} {_messages(answer)}</li>"
        for code, answer in operation["responses"].items()
    )
    words = escape(operation["description"])
    return f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{words}</p>{body}<ul>{answers}</ul>"


def _messages(answer: dict[str, Any]) -> str:
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    refs = [each["$ref"] for each in (schema, *schema.get("oneOf", ())) if "$ref" in each]
    return ", ".join(f'<a href="#{name}">{name}</a>' for name in (escape(ref.removeprefix(SCHEMAS)) for ref in refs))


def _linked(schema: dict[str, Any]) -> str:
    """Return JSON with links in place of references."""
    lines = []
    for line in json.dumps(schema, indent=1, ensure_ascii=False).splitlines():
        before, ref, name = line.partition(SCHEMAS)
        name, _, rest = name.partition('"')
        link = f'<a href="#{escape(name)}">{escape(name)}</a>"{escape(rest)}' if ref else ""
        lines.append(escape(before) + link)
    return "\n".join(lines)


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of the endpoints."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "outlay", "version": __version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {"schemas": _schemas(endpoints)},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    description = inspect.getdoc(endpoint.handle) or ""
    content = _content(endpoint.gives)
    if endpoint.media_type != "application/json":
        content = {endpoint.media_type: {"schema": {"type": "string"}}}
    responses: dict[str, Any] = {"200": {"description": "The answer.", "content": content}}
    for status in (*(WRONG_BODY if endpoint.takes else ()), *endpoint.refuses):
        kinds = endpoint.instead.get(status, (Problem,))
        responses[str(status)] = {"description": REFUSALS[status], "content": _content(kinds)}
    if endpoint.not_found:
        responses["404"] = {"description": endpoint.not_found, "content": _content((Problem,))}
    body = {"requestBody": {"required": True, "content": _content(endpoint.takes)}} if endpoint.takes else {}
    return {
        "operationId": endpoint.handle.__name__,
        "summary": description.partition("\n")[0],
        "description": description,
        **body,
        "responses": responses,
    }


def _schemas(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return every message by name. A list that may hold Problems is written out: msgspec has no schema for it."""
    messages: dict[type, None] = {Problem: None}
    for endpoint in endpoints:
        for kinds in (endpoint.takes, endpoint.gives, *endpoint.instead.values()):
            for message in kinds:
                messages |= dict.fromkeys([LISTS[message][1]] if message in LISTS else [message])
    _, schemas = msgspec.json.schema_components(messages, ref_template=REF)
    for message, (key, item) in LISTS.items():
        schemas[message.__name__] = {
            "type": "object",
            "description": message.__doc__,
            "properties": {key: {"type": "array", "items": _one_of((item, Problem))}},
            "required": [key],
        }
    return schemas


def _content(messages: Sequence[type]) -> dict[str, Any]:
    return {"application/json": {"schema": _one_of(messages) if messages else {"type": "object"}}}


def _one_of(messages: Sequence[type]) -> dict[str, Any]:
    refs = [{"$ref": REF.format(name=message.__name__)} for message in messages]
    return refs[0] if len(refs) == 1 else {"oneOf": refs}
