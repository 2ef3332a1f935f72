"""Bodies become messages, or a clear refusal that names the field.

413  the body is too large
415  the content type is not JSON: a browser then cannot be made to send it from a foreign page
400  the body is not JSON
422  the body is JSON, but not what is expected
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec
from starlette.types import Receive, Scope

from outlay.serve.handlers.messages import BadRequestError, Feature, PastValue, Problem

FEATURE: Any = Feature  # a union, which type checkers do not take for a type
PAST_VALUE: Any = PastValue
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
One = TypeVar("One")
Many = TypeVar("Many")


_raw_decoder = msgspec.json.Decoder(msgspec.Raw)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_feature_decoder = msgspec.json.Decoder(FEATURE)
_past_decoder = msgspec.json.Decoder(PAST_VALUE)


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return the body of a request; read no further than `limit` bytes.

    Raises:
        BadRequestError: 413 or 415; 400 if the client disconnected in the middle of it.
    """
    content_type = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if not content_type.lower().startswith(b"application/json"):
        words = f"the content type is {content_type.decode('latin-1')!r}."
        raise BadRequestError(415, Problem(error=words, way_out="Send Content-Type: application/json."))
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        part = await receive()
        if part["type"] != "http.request":
            raise BadRequestError(400, Problem(error="the body is incomplete."))
        parts.append(part.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise BadRequestError(
                413, Problem(error=f"the body is larger than {limit} bytes.", way_out="Send several requests.")
            )
        more = part.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class BatchDecoder(Generic[One, Many]):
    """Decodes bodies that are one message, or many under `key`."""

    def __init__(self, one: type[One], many: type[Many], key: str) -> None:
        self._one = msgspec.json.Decoder(one)
        self._many = msgspec.json.Decoder(many)
        self._probe = msgspec.json.Decoder(msgspec.defstruct("Probe", [(key, msgspec.Raw)]))
        self._key = key

    def decode(self, body: bytes, limit: int) -> tuple[list[One], bool]:
        """Return the messages, and whether they came under `key`.

        Raises:
            BadRequestError: 400 if the body is not JSON, 422 if it is other JSON than expected or has more than `limit`
                messages.
        """
        try:
            return [self._one.decode(body)], False
        except msgspec.ValidationError as error:
            invalid = error
        except NOT_JSON as error:
            raise _not_json(error) from None
        try:
            self._probe.decode(body)
        except NOT_JSON:
            raise _invalid(invalid, body) from None
        messages: list[One] = getattr(decode(self._many, body), self._key)
        if len(messages) > limit:
            raise BadRequestError(
                422,
                Problem(
                    error=f"holds {len(messages)} entries; at most {limit} are taken.",
                    where=f"$.{self._key}",
                    way_out="Send them in several requests.",
                ),
            )
        return messages, True


def decode(decoder: msgspec.json.Decoder[One], body: bytes) -> One:
    """Return the one message that a body is.

    Raises:
        BadRequestError: 400 if the body is not JSON, 422 if it is other JSON than expected.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(error, body) from None
    except NOT_JSON as error:
        raise _not_json(error) from None


def _not_json(error: Exception) -> BadRequestError:
    return BadRequestError(400, Problem(error=f"{error}.", way_out="Send JSON."))


def _invalid(error: msgspec.ValidationError, body: bytes) -> BadRequestError:
    """Return a 422 that names the field; a 400 if what follows the field is not JSON."""
    try:
        _raw_decoder.decode(body)
    except NOT_JSON as worse:
        return _not_json(worse)
    words, _, where = str(error).partition(" - at `")
    where = where.rstrip("`") or "$"
    if (mapping := re.search(r"\.(features|past\[\d+\])\[\.\.\.\]$", where)) is not None:
        valid = _feature_decoder if mapping[1] == "features" else _past_decoder
        where = _path_of_key(where.removesuffix("[...]"), body, valid)
    return BadRequestError(422, Problem(error=f"{words}.", where=where))


def _path_of_key(where: str, body: bytes, valid: msgspec.json.Decoder[Any]) -> str:
    """Return the path of a mapping with the key of its first invalid value: msgspec does not name keys of a mapping."""
    try:
        part = body
        for key, index in re.findall(r"\.(\w+)|\[(\d+)\]", where):
            part = _items_decoder.decode(part)[int(index)] if index else _fields_decoder.decode(part)[key]
        fields = _fields_decoder.decode(part)
    except (msgspec.DecodeError, LookupError):  # a key that comes twice, and is something else the second time
        return where
    for name, value in fields.items():
        try:
            valid.decode(value)
        except msgspec.DecodeError:
            return f"{where}.{name}"
    return where
