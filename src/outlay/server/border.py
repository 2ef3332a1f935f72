"""The border: bodies become messages, or a clear refusal that names the field.

413  the body is too large          400  it is not JSON          422  it is JSON, but not what is wanted
415  it does not say that it is JSON (a browser then cannot be made to send it from a foreign page)
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request

from outlay.server.messages import Feature, Problem

FEATURE: Any = Feature  # a union, which type checkers do not take for a type


class BadRequestError(Exception):
    """A request that cannot be answered.

    Attributes:
        status: of HTTP.
        problem: in words.
    """

    def __init__(self, status: int, problem: Problem) -> None:
        self.status = status
        self.problem = problem
        super().__init__(problem.error)


One = TypeVar("One")
Many = TypeVar("Many")


async def body_of(request: Request, limit: int) -> bytes:
    """The body, read no further than `limit` bytes.

    Raises:
        BadRequestError: 413 or 415.
    """
    kind = request.headers.get("content-type", "")
    if not kind.startswith("application/json"):
        raise BadRequestError(
            415, Problem(error=f"the content type is {kind!r}.", way_out="Send Content-Type: application/json.")
        )
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise BadRequestError(
                413, Problem(error=f"the body is larger than {limit} bytes.", way_out="Send several requests.")
            )
        parts.append(part)
    return b"".join(parts)


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
        except msgspec.DecodeError as error:
            raise BadRequestError(400, Problem(error=f"{error}.", way_out="Send JSON.")) from None
        try:
            self._probe.decode(body)
        except msgspec.DecodeError:
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
    except msgspec.DecodeError as error:
        raise BadRequestError(400, Problem(error=f"{error}.", way_out="Send JSON.")) from None


def _refused(error: msgspec.ValidationError, body: bytes) -> BadRequestError:
    words, _, where = str(error).partition(" - at `")
    where = where.rstrip("`") or "$"
    if where.endswith(".features[...]"):
        where = _named(where.removesuffix("[...]"), body)
    return BadRequestError(422, Problem(error=f"{words}.", where=where))


def _named(where: str, body: bytes) -> str:
    """The path with its key, which msgspec not say of a mapping: the first that is wrong."""
    features: Any = msgspec.json.decode(body)
    for step in re.findall(r"\.(\w+)|\[(\d+)\]", where):
        features = features[step[0] or int(step[1])]
    for name, value in features.items():
        try:
            msgspec.convert(value, FEATURE)
        except msgspec.ValidationError:
            return f"{where}.{name}"
    return where
