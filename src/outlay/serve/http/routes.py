"""The routes: each reads the body, calls one method and answers; every error becomes an answer that says what to do.

Bodies become messages, or a clear refusal that names the field:

    413  the body is too large
    415  the content type is not JSON: a browser then cannot be made to send it from a foreign page
    400  the body is not JSON
    422  the body is JSON, but not what is expected
"""

from __future__ import annotations

import datetime
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlay.core.errors import OutlayError
from outlay.serve.clock import date_of
from outlay.serve.deciding.decider import POLICY, RANDOM
from outlay.serve.deciding.loaded_bundle import check_held
from outlay.serve.handlers.decisions import not_recorded
from outlay.serve.handlers.messages import (
    BadRequestError,
    BundleRequest,
    CapsRequest,
    DecisionAnswer,
    DecisionAnswers,
    DecisionRequest,
    DecisionRequests,
    Feature,
    NotFound,
    OutcomeAnswer,
    OutcomeAnswers,
    OutcomeRequest,
    OutcomeRequests,
    PastValue,
    Problem,
)
from outlay.serve.handlers.service import Service
from outlay.serve.http.tokens import Role
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import LedgerError, UndecidedError
from outlay.serve.ledger.money import Money, MoneyError

FEATURE: Any = Feature  # a union, which type checkers do not take for a type
PAST_VALUE: Any = PastValue
INVALID = (  # what msgspec says of a message → what we say, and the way out
    (r"missing required field `(\w+)`", "the field {0!r} is missing", "Add {0!r}."),
    (r"contains unknown field `(.*)`", "the field {0!r} is unknown", "Leave {0!r} out."),
    (r"matching regex '\^\(\?!", "the text holds a control character, such as a line break", "Leave it out."),
    (r"matching regex '\^\[0-9a-f\]", "the text is no id of a decision", "Give the decision_id of the answer."),
)
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
UNREACHABLE = LedgerError, TimeoutError
RETRY_AFTER = {"Retry-After": "1"}  # seconds
One = TypeVar("One")
Many = TypeVar("Many")

log = logging.getLogger("outlay.serve")
_encode = msgspec.json.Encoder().encode
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
    for pattern, told, way_out in INVALID:
        if found := re.search(pattern, words):
            words, way_out = told.format(*found.groups()), way_out.format(*found.groups())
            break
    else:
        way_out = "GET /openapi.json says what a request may hold."
    return BadRequestError(422, Problem(error=f"{words}.", where=where, way_out=way_out))


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


class JSON(Response):
    """An answer in JSON; with status 503, it says when to try again."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, RETRY_AFTER if status_code == 503 else headers)

    def render(self, content: Any) -> bytes:
        """Encode the answer with msgspec."""
        return _encode(content)


@dataclass(frozen=True)
class Endpoint:
    """An ASGI application for one method and path.

    Attributes:
        method: "GET", which answers HEAD as well, or "POST".
        path: the path of the URL.
        handle: takes the service and the body, and answers. It may raise BadRequestError, LedgerError or TimeoutError.
        takes: the messages that the body may be; the body is not read if there are none.
        gives: the messages that the answer may be; any JSON object if there are none.
        refuses: statuses of further answers, each with a Problem; those of a wrong body go without saying.
        not_found: when the answer is 404, in words; empty if it never is.
        instead: status → messages that an answer with it may be, where it is not only a Problem.
        media_type: content type of the answer.
        probe: whether it is answered without a token as well, then with no more than whether the status is 200.
    """

    method: str
    path: str
    handle: Callable[[Service, bytes], Awaitable[Response]]
    takes: tuple[type, ...] = ()
    gives: tuple[type, ...] = ()
    refuses: tuple[int, ...] = ()
    not_found: str = ""
    instead: Mapping[int, tuple[type, ...]] = field(default_factory=dict)
    media_type: str = "application/json"
    probe: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        methods = ("GET", "HEAD") if self.method == "GET" else (self.method,)
        if scope["method"] not in methods:
            await JSON(Problem(error="Method Not Allowed."), 405, {"Allow": ", ".join(methods)})(scope, receive, send)
            return
        service: Service = scope["state"]["service"]
        try:
            limit = service.state.config.limits.body_bytes
            response = await self.handle(service, await read_body(scope, receive, limit) if self.takes else b"")
        except Exception as error:
            response = _refusal(error, self.path)
            service.metrics.refused(response.status_code)
        if self.probe and scope["role"] == Role.NOBODY:
            response = JSON({self.path.rpartition("/")[2]: response.status_code == 200}, response.status_code)
        await response(scope, receive, send)


def _refusal(error: Exception, path: str) -> Response:
    if isinstance(error, BadRequestError):
        return JSON(error.problem, error.status)
    if isinstance(error, UndecidedError):
        words = f"it is not known yet whether this is written: {error.found}"
        way_out = "Ask again with the same ids: the answer is what stands in the ledger."
        return JSON(Problem(error=words, way_out=way_out), 503)
    if isinstance(error, UNREACHABLE):
        words = f"the ledger cannot be reached: {str(error) or 'it took too long'}"
        return JSON(Problem(error=words, way_out="Ask again."), 503)
    log.error("a request to %s failed", path, exc_info=error)
    return JSON(Problem(error="the server failed; its log says why.", way_out="Ask again."), 500)


Handler = Callable[[Service, bytes], Awaitable[Response]]

ENDPOINTS: list[Endpoint] = []
_decisions = BatchDecoder(DecisionRequest, DecisionRequests, "requests")
_outcomes = BatchDecoder(OutcomeRequest, OutcomeRequests, "outcomes")
_bundle = msgspec.json.Decoder(BundleRequest)
_caps = msgspec.json.Decoder(CapsRequest)


def endpoint(method: str, path: str, **described: Any) -> Callable[[Handler], Handler]:
    """Add the decorated handler to ENDPOINTS; `described` are further attributes of `Endpoint`."""

    def add(handler: Handler) -> Handler:
        ENDPOINTS.append(Endpoint(method, path, handler, **described))
        return handler

    return add


@endpoint(
    "POST",
    "/v1/decisions",
    takes=(DecisionRequest, DecisionRequests),
    gives=(DecisionAnswer, DecisionAnswers),
    refuses=(409, 503),
    instead={503: (DecisionAnswer, DecisionAnswers, Problem)},
)
async def decisions(service: Service, body: bytes) -> Response:
    """Which incentive users get. One request, or many under `requests`."""
    start = time.perf_counter()
    requests, many = _decisions.decode(body, service.state.config.limits.batch)
    answers = await service.decisions.decide(requests, many=many)
    service.metrics.decision_seconds.observe(time.perf_counter() - start)
    content = DecisionAnswers(answers) if many else answers[0]
    if not_recorded(answers):
        service.metrics.refused(503)
        return JSON(content, 503)
    return JSON(content, 409 if isinstance(content, Problem) else 200)


@endpoint(
    "POST",
    "/v1/outcomes",
    takes=(OutcomeRequest, OutcomeRequests),
    gives=(OutcomeAnswer, OutcomeAnswers),
    refuses=(409, 503),
    not_found="There is no such decision.",
)
async def outcomes(service: Service, body: bytes) -> Response:
    """What happened after decisions. One outcome, or many under `outcomes`."""
    requests, many = _outcomes.decode(body, service.state.config.limits.batch)
    answers = await service.outcomes.settle(requests, many=many)
    if many:
        return JSON(OutcomeAnswers(answers))
    (answer,) = answers
    if isinstance(answer, Problem):
        return JSON(answer, 404 if isinstance(answer, NotFound) else 409)
    return JSON(answer)


@endpoint("POST", "/v1/admin/pause", refuses=(400, 401, 403, 503))
async def pause(service: Service, _body: bytes) -> Response:
    """Answer none from now on, on every server of this ledger. A pause lasts over restarts."""
    campaign = service.state.loaded.campaign
    await service.call(service.ledger.pause, campaign)
    return JSON({"campaign": campaign, "paused": True})


@endpoint("POST", "/v1/admin/resume", refuses=(400, 401, 403, 503))
async def resume(service: Service, _body: bytes) -> Response:
    """End a pause."""
    campaign = service.state.loaded.campaign
    await service.call(service.ledger.resume, campaign)
    return JSON({"campaign": campaign, "paused": False})


@endpoint("POST", "/v1/admin/bundle", takes=(BundleRequest,), refuses=(401, 403, 503))
async def bundle(service: Service, body: bytes) -> Response:
    """Verify a bundle, warm it up and serve it from now on. A broken one leaves the old one in service."""
    path = decode(_bundle, body).path
    old = service.state.loaded.bundle.id
    try:
        loaded = await service.load(path)
    except LedgerError:
        raise
    except OutlayError as error:
        raise BadRequestError(422, Problem(error=f"{error} Bundle {old} stays in service.", where="$.path")) from None
    return JSON({"bundle": loaded.bundle.id, "before": old})


@endpoint("POST", "/v1/admin/caps", takes=(CapsRequest,), refuses=(401, 403, 503))
async def set_caps(service: Service, body: bytes) -> Response:
    """Raise or lower caps, in money. What is absent stays; null takes a limit away."""
    request = decode(_caps, body)
    money, trial = service.state.loaded.money, service.state.trial
    known = (POLICY, RANDOM, *(() if trial is None else (arm.name for arm in trial.arms)))
    arms = {} if request.arms is msgspec.UNSET else request.arms
    for name in arms:
        if name not in known:
            words = f"there is no arm {name!r}; there are {', '.join(known)}."
            raise BadRequestError(422, Problem(error=words, where=f"$.arms.{name}"))

    def exact(value: float | None, where: str) -> int | None:
        try:
            return None if value is None else money.exact(value)
        except MoneyError as error:
            raise BadRequestError(422, Problem(error=error.found, where=where, way_out=error.way_out)) from None

    given = {"total": request.total, "day": request.day}
    changed = {key: exact(value, f"$.{key}") for key, value in given.items() if value is not msgspec.UNSET}
    changed_arms = {name: exact(value, f"$.arms.{name}") for name, value in arms.items()}

    def change(before: Caps | None) -> Caps:
        """Return the new caps; called in the ledger's transaction, so that no administrator undoes another's change."""
        caps = before or Caps()
        merged = {name: cap for name, cap in {**caps.arms, **changed_arms}.items() if cap is not None}
        caps = replace(caps, **changed, arms=merged)
        check_held(service.state.loaded, caps)
        return caps

    try:
        caps = await service.call(service.ledger.change_caps, service.state.loaded.campaign, change)
    except LedgerError:
        raise
    except OutlayError as error:
        raise BadRequestError(422, Problem(error=error.found, where="$", way_out=error.way_out)) from None
    service.state.adopt_caps(caps)
    return JSON(_in_units(caps, money))


def _in_units(caps: Caps, money: Money) -> dict[str, Any]:
    return {
        "total": None if caps.total is None else money.units(caps.total),
        "day": None if caps.day is None else money.units(caps.day),
        "arms": {name: money.units(cap) for name, cap in caps.arms.items()},
    }


@endpoint("GET", "/v2/health/live", probe=True)
async def live(_service: Service, _body: bytes) -> Response:
    """The process answers."""
    return JSON({"live": True})


@endpoint("GET", "/v2/health/ready", refuses=(503,), probe=True)
async def ready(service: Service, _body: bytes) -> Response:
    """The server can decide: a bundle is in service, and the ledger answers and can be written.

    With the time and the day by the server's clock, the bundle and what is wrong, for those who send a token where one
    is needed.
    """
    await service.check_writable()
    totals = await service.totals()
    now = service.clock.now()
    troubles = service.troubles()
    content = {
        "ready": not troubles,
        "bundle": service.state.loaded.bundle.id,
        "paused": totals.paused,
        "time": datetime.datetime.fromtimestamp(now / 1000, service.clock.zone).isoformat(timespec="milliseconds"),
        "day": date_of(service.clock.day(now)).isoformat(),
        **({"troubles": troubles} if troubles else {}),
    }
    return JSON(content, 503 if troubles else 200)


@endpoint("GET", "/metrics", media_type="text/plain")
async def metrics(service: Service, _body: bytes) -> Response:
    """Counters, seconds and money, in the format of Prometheus."""
    service.metrics.features(service.state.loaded.decider.encoder)
    try:
        totals = await service.totals()
    except UNREACHABLE:
        totals = None
    today = service.clock.day(service.clock.now())
    page = service.metrics.page(totals, service.state.loaded.money, today)
    return Response(page, media_type="text/plain; version=0.0.4")
