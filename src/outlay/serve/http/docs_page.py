"""/docs: the OpenAPI document as one page of HTML without scripts, which works offline."""

from __future__ import annotations

import json
from html import escape
from typing import Any

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "pre{background:#f3f4f5;padding:.8em;overflow:auto;font-size:14px}h2{margin-top:2em;font-size:1.1em}"
)
REF = "#/components/schemas/"


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
    return ", ".join(f'<a href="#{name}">{name}</a>' for name in (escape(ref.removeprefix(REF)) for ref in refs))


def _linked(schema: dict[str, Any]) -> str:
    """Return JSON with links in place of references."""
    lines = []
    for line in json.dumps(schema, indent=1, ensure_ascii=False).splitlines():
        before, ref, name = line.partition(REF)
        name, _, rest = name.partition('"')
        link = f'<a href="#{escape(name)}">{escape(name)}</a>"{escape(rest)}' if ref else ""
        lines.append(escape(before) + link)
    return "\n".join(lines)
