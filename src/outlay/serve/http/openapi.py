"""The OpenAPI page's words about our messages: FastAPI knows pydantic's, ours are msgspec's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from outlay.serve.handlers import messages

REF = "#/components/schemas/{name}"
PLAIN = (
    messages.DecisionRequest,
    messages.DecisionRequests,
    messages.DecisionAnswer,
    messages.OutcomeRequest,
    messages.OutcomeRequests,
    messages.OutcomeAnswer,
    messages.BundleRequest,
    messages.CapsRequest,
    messages.Problem,
)
REFUSALS = {
    400: "Not JSON.",
    401: "No token, or another one.",
    403: "The server has no token.",
    409: "The id belongs to another request.",
    413: "The body is too large.",
    415: "Not said to be JSON.",
    422: "JSON, but not what is wanted.",
    503: "The ledger cannot be reached, or what it made of the request is not known yet; ask again, with the same ids.",
}


TEXT: dict[str, Any] = {
    "responses": {"200": {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}}}
}


def schemas() -> dict[str, Any]:
    """Every message by name, as JSON schema."""
    _, found = msgspec.json.schema_components(PLAIN, ref_template=REF)
    return found | {
        "DecisionAnswers": _list("decisions", messages.DecisionAnswers.__doc__, "DecisionAnswer"),
        "OutcomeAnswers": _list("outcomes", messages.OutcomeAnswers.__doc__, "OutcomeAnswer"),
    }


def operation(
    takes: tuple[str, ...] = (),
    gives: tuple[str, ...] = (),
    refuses: tuple[int, ...] = (),
    missing: str = "",
    instead: Mapping[int, tuple[str, ...]] = MappingProxyType({}),
) -> dict[str, Any]:
    """What FastAPI has to add to a route.

    Args:
        takes: names of the messages that the body may be.
        gives: names of the messages that the answer may be; any JSON object where it is empty.
        refuses: further statuses with a Problem.
        missing: when the answer is 404, in words.
        instead: names of the messages that an answer with a status may be, where it is not only a Problem.
    """
    codes = (*((400, 413, 415, 422) if takes else ()), *refuses)
    answers: dict[str, Any] = {"200": {"description": "The answer.", "content": _content(gives)}}
    answers |= {
        str(code): {"description": REFUSALS[code], "content": _content(instead.get(code, ("Problem",)))}
        for code in codes
    }
    if missing:
        answers["404"] = {"description": missing, "content": _content(("Problem",))}
    body = {"requestBody": {"required": True, "content": _content(takes)}} if takes else {}
    return {**body, "responses": answers}


def _content(names: tuple[str, ...]) -> dict[str, Any]:
    refs = [{"$ref": REF.format(name=name)} for name in names]
    schema: dict[str, Any] = {"type": "object"} if not refs else refs[0] if len(refs) == 1 else {"oneOf": refs}
    return {"application/json": {"schema": schema}}


def _list(key: str, words: str | None, name: str) -> dict[str, Any]:
    either = {"oneOf": [{"$ref": REF.format(name=name)}, {"$ref": REF.format(name="Problem")}]}
    return {
        "type": "object",
        "description": words,
        "properties": {key: {"type": "array", "items": either}},
        "required": [key],
    }
