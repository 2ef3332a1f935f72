"""The interface's description: the OpenAPI document, and the same as a page.

openapi.json   what every endpoint takes and gives, with the messages as JSON schemas by msgspec
/docs          the document as one page of HTML without scripts, which works offline
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import msgspec

from outlay.core.version import __version__
from outlay.serve.handlers.messages import DecisionAnswer, DecisionAnswers, OutcomeAnswer, OutcomeAnswers, Problem
from outlay.serve.http.routes import Endpoint

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "pre{background:#f3f4f5;padding:.8em;overflow:auto;font-size:14px}h2{margin-top:2em;font-size:1.1em}"
)
SCHEMAS = "#/components/schemas/"


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
