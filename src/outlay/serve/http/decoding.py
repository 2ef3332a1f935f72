"""The border: bodies become messages, or a clear refusal that names the field.

413  the body is too large          400  it is not JSON          422  it is JSON, but not what is wanted
415  it does not say that it is JSON (a browser then cannot be made to send it from a foreign page)
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec
from starlette.types import Receive, Scope

from outlay.serve.handlers.messages import BadRequestError, Feature, Problem

FEATURE: Any = Feature  # a union, which type checkers do not take for a type
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Features(msgspec.Struct):
    features: dict[str, msgspec.Raw]


_whole = msgspec.json.Decoder(msgspec.Raw)
_features = msgspec.json.Decoder(_Features)
_feature = msgspec.json.Decoder(FEATURE)


One = TypeVar("One")
Many = TypeVar("Many")


async def body_of(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The body of a request, read no further than `limit` bytes.

    Raises:
        BadRequestError: 413 or 415; 400 if the client went away in the middle of it.
    """
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if not kind.lower().startswith(b"application/json"):
        words = f"the content type is {kind.decode('latin-1')!r}."
        raise BadRequestError(415, Problem(error=words, way_out="Send Content-Type: application/json."))
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        part = await receive()
        if part["type"] != "http.request":
            raise BadRequestError(400, Problem(error="the body has no end."))
        parts.append(part.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise BadRequestError(
                413, Problem(error=f"the body is larger than {limit} bytes.", way_out="Send several requests.")
            )
        more = part.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Reader(Generic[One, Many]):
    """Reads bodies that hold one thing, or many under `key`."""

    def __init__(self, one: type[One], many: type[Many], key: str) -> None:
        self._one = msgspec.json.Decoder(one)
        self._many = msgspec.json.Decoder(many)
        self._probe = msgspec.json.Decoder(msgspec.defstruct("Probe", [(key, msgspec.Raw)]))
        self._key = key

    def read(self, body: bytes, limit: int) -> tuple[list[One], bool]:
        """The things, and whether they came as many.

        Raises:
            BadRequestError: 400 if it is not JSON, 422 if it is other JSON than wanted or more than `limit` things.
        """
        try:
            return [self._one.decode(body)], False
        except msgspec.ValidationError as error:
            refusal = error
        except NOT_JSON as error:
            raise _not_json(error) from None
        try:
            self._probe.decode(body)
        except NOT_JSON:
            raise _refused(refusal, body) from None
        things: list[One] = getattr(read(self._many, body), self._key)
        if len(things) > limit:
            raise BadRequestError(
                422,
                Problem(
                    error=f"holds {len(things)} entries; at most {limit} are taken.",
                    where=f"$.{self._key}",
                    way_out="Send them in several requests.",
                ),
            )
        return things, True


def read(decoder: msgspec.json.Decoder[One], body: bytes) -> One:
    """One message.

    Raises:
        BadRequestError: as in `Reader.read`.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _refused(error, body) from None
    except NOT_JSON as error:
        raise _not_json(error) from None


def _not_json(error: Exception) -> BadRequestError:
    return BadRequestError(400, Problem(error=f"{error}.", way_out="Send JSON."))


def _refused(error: msgspec.ValidationError, body: bytes) -> BadRequestError:
    """422 with the field; but what is no JSON further on is no JSON."""
    try:
        _whole.decode(body)
    except NOT_JSON as worse:
        return _not_json(worse)
    words, _, where = str(error).partition(" - at `")
    where = where.rstrip("`") or "$"
    if where.endswith(".features[...]"):
        where = _named(where.removesuffix("[...]"), body)
    return BadRequestError(422, Problem(error=f"{words}.", where=where))


def _named(where: str, body: bytes) -> str:
    """The path with its key, which msgspec does not say of a mapping: the first that is wrong."""
    try:
        request = body
        for key, place in re.findall(r"\.(\w+)\[(\d+)\]", where):
            request = msgspec.json.decode(body, type=dict[str, list[msgspec.Raw]])[key][int(place)]
        features = _features.decode(request).features
    except msgspec.DecodeError:  # a key that comes twice, and is something else the second time
        return where
    for name, value in features.items():
        try:
            _feature.decode(value)
        except msgspec.DecodeError:
            return f"{where}.{name}"
    return where
