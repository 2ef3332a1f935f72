"""The routes: a handler takes a body, calls one function and gives bytes."""

from __future__ import annotations

import datetime
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import Response

from outlay.core.errors import OutlayError
from outlay.serve.clock import EPOCH
from outlay.serve.deciding.decider import POLICY, RANDOM
from outlay.serve.handlers.decisions import unrecorded
from outlay.serve.handlers.messages import (
    BadRequestError,
    BundleRequest,
    CapsRequest,
    DecisionAnswers,
    DecisionRequest,
    DecisionRequests,
    OutcomeAnswers,
    OutcomeRequest,
    OutcomeRequests,
    Problem,
)
from outlay.serve.handlers.service import Service
from outlay.serve.http.decoding import Reader, read
from outlay.serve.http.lane import UNREACHABLE, Answer, Post, answer
from outlay.serve.http.openapi import TEXT, operation
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import LedgerError
from outlay.serve.ledger.money import MoneyError

Handler = Callable[[Service, bytes], Awaitable[Answer]]

router = APIRouter()  # what FastAPI shows, and what it answers
posts: dict[str, Post] = {}  # what the lane answers
_decisions = Reader(DecisionRequest, DecisionRequests, "requests")
_outcomes = Reader(OutcomeRequest, OutcomeRequests, "outcomes")
_bundle = msgspec.json.Decoder(BundleRequest)
_caps = msgspec.json.Decoder(CapsRequest)


def post(path: str, takes: tuple[str, ...] = (), **words: Any) -> Callable[[Handler], Handler]:
    """Add a handler to the lane and to the page; `words` as for `operation`."""

    def add(handler: Handler) -> Handler:
        async def shown() -> None:
            raise AssertionError(f"the lane answers what is posted to {path}")

        name, says = handler.__name__, operation(takes, **words)
        router.add_api_route(path, shown, methods=["POST"], name=name, description=handler.__doc__, openapi_extra=says)
        posts[path] = Post(handler, bool(takes))
        return handler

    return add


@post(
    "/v1/decisions",
    takes=("DecisionRequest", "DecisionRequests"),
    gives=("DecisionAnswer", "DecisionAnswers"),
    refuses=(409, 503),
    instead={503: ("DecisionAnswer", "DecisionAnswers", "Problem")},
)
async def decisions(service: Service, body: bytes) -> Answer:
    """Which incentive users get. One request, or many under `requests`."""
    start = time.perf_counter()
    asked, many = _decisions.read(body, service.state.config.limits.batch)
    found = await service.decisions.decide(asked, many=many)
    service.metrics.decision_seconds.observe(time.perf_counter() - start)
    if unrecorded(found):
        service.metrics.refused(503)
        return answer(DecisionAnswers(found) if many else found[0], 503)
    if many:
        return answer(DecisionAnswers(found))
    return answer(found[0], 409 if isinstance(found[0], Problem) else 200)


@post(
    "/v1/outcomes",
    takes=("OutcomeRequest", "OutcomeRequests"),
    gives=("OutcomeAnswer", "OutcomeAnswers"),
    refuses=(409, 503),
    missing="No such decision.",
)
async def outcomes(service: Service, body: bytes) -> Answer:
    """What happened after decisions. One outcome, or many under `outcomes`."""
    told, many = _outcomes.read(body, service.state.config.limits.batch)
    found = await service.outcomes.settle(told, many=many)
    if many:
        return answer(OutcomeAnswers(found))
    if isinstance(found[0], Problem):
        return answer(found[0], 404 if str(found[0].where).endswith("decision_id") else 409)
    return answer(found[0])


@post("/v1/admin/pause", refuses=(401, 403, 503))
async def pause(service: Service, _body: bytes) -> Answer:
    """Answer none from now on, on every server of this ledger; it lasts over restarts."""
    await service.call(service.ledger.pause, service.state.loaded.campaign)
    return answer({"campaign": service.state.loaded.campaign, "paused": True})


@post("/v1/admin/resume", refuses=(401, 403, 503))
async def resume(service: Service, _body: bytes) -> Answer:
    """End a pause."""
    await service.call(service.ledger.resume, service.state.loaded.campaign)
    return answer({"campaign": service.state.loaded.campaign, "paused": False})


@post("/v1/admin/bundle", takes=("BundleRequest",), refuses=(401, 403, 503))
async def bundle(service: Service, body: bytes) -> Answer:
    """Verify a bundle, warm it up and serve it from now on; a broken one leaves the old in service."""
    wanted = read(_bundle, body)
    old = service.state.loaded.bundle.id
    try:
        loaded = await service.load(wanted.path)
    except LedgerError:
        raise
    except OutlayError as error:
        words = f"{error} Bundle {old} stays in service."
        raise BadRequestError(422, Problem(error=words, where="$.path")) from None
    return answer({"bundle": loaded.bundle.id, "before": old})


@post("/v1/admin/caps", takes=("CapsRequest",), refuses=(401, 403, 503))
async def set_caps(service: Service, body: bytes) -> Answer:
    """Raise or lower caps, in money. What is absent stays; null takes a limit away."""
    wanted = read(_caps, body)
    money, trial = service.state.loaded.money, service.state.trial
    known = (POLICY, RANDOM, *(() if trial is None else (arm.name for arm in trial.arms)))
    given = {} if wanted.arms is msgspec.UNSET else wanted.arms
    for name in given:
        if name not in known:
            words = f"there is no arm {name!r}; there are {', '.join(known)}."
            raise BadRequestError(422, Problem(error=words, where=f"$.arms.{name}"))

    def exact(value: float | None, where: str) -> int | None:
        try:
            return None if value is None else money.exact(value)
        except MoneyError as error:
            raise BadRequestError(422, Problem(error=error.found, where=where, way_out=error.way_out)) from None

    told = {key: getattr(wanted, key) for key in ("total", "day")}
    changed = {key: exact(value, f"$.{key}") for key, value in told.items() if value is not msgspec.UNSET}
    by_arm = {name: exact(value, f"$.arms.{name}") for name, value in given.items()}

    def change(before: Caps | None) -> Caps:
        """In the ledger's own transaction, so that two administrators do not undo one another."""
        kept = before or Caps()
        arms = {name: cap for name, cap in {**kept.arms, **by_arm}.items() if cap is not None}
        return replace(kept, **changed, arms=arms)

    caps = await service.call(service.ledger.change_caps, service.state.loaded.campaign, change)
    return answer(_in_units(caps, money.units))


def _in_units(caps: Caps, units: Any) -> dict[str, Any]:
    return {
        "total": None if caps.total is None else units(caps.total),
        "day": None if caps.day is None else units(caps.day),
        "arms": {name: units(cap) for name, cap in caps.arms.items()},
    }


def response(found: Answer) -> Response:
    """An answer in the form that FastAPI wants."""
    return Response(found.body, found.status, {name.decode(): value.decode() for name, value in found.headers})


@router.get("/v2/health/live", openapi_extra=operation())
async def live() -> Response:
    """The process answers."""
    return response(answer({"live": True}))


@router.get("/v2/health/ready", openapi_extra=operation(refuses=(503,)))
async def ready(request: Request) -> Response:
    """It can decide: a bundle is in service, and the ledger answers and can be written.

    With the time and the day by the server's clock.
    """
    service: Service = request.app.state.service
    await service.check_writable()
    totals = await service.totals()
    now = service.clock.now()
    troubles = service.troubles()
    told = {
        "ready": not troubles,
        "bundle": service.state.loaded.bundle.id,
        "paused": totals.paused,
        "time": datetime.datetime.fromtimestamp(now / 1000, service.clock.zone).isoformat(timespec="milliseconds"),
        "day": (EPOCH + datetime.timedelta(service.clock.day(now))).isoformat(),
        **({"troubles": troubles} if troubles else {}),
    }
    return response(answer(told, 503 if troubles else 200))


@router.get("/metrics", openapi_extra=TEXT)
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    service: Service = request.app.state.service
    service.metrics.features(service.state.loaded.decider.encoder)
    try:
        totals = await service.totals()
    except UNREACHABLE:
        totals = None
    today = service.clock.day(service.clock.now())
    page = service.metrics.page(totals, service.state.loaded.money, today)
    return Response(page, media_type="text/plain; version=0.0.4")
