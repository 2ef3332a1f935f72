"""The routes. Handlers read a body, call one function and write bytes; FastAPI only finds them and shows the page."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec.structs import replace
from starlette.responses import Response

from outlay.core.errors import OutlayError
from outlay.server.border import BadRequestError, Reader, body_of, read
from outlay.server.ledger import Caps, LedgerError
from outlay.server.messages import (
    BundleRequest,
    CapsRequest,
    DecisionRequest,
    DecisionRequests,
    Decisions,
    OutcomeAnswers,
    OutcomeRequest,
    OutcomeRequests,
    Problem,
)
from outlay.server.openapi import TEXT, operation
from outlay.server.service import Service

router = APIRouter()
_decisions = Reader(DecisionRequest, DecisionRequests, "requests")
_outcomes = Reader(OutcomeRequest, OutcomeRequests, "outcomes")
_bundle = msgspec.json.Decoder(BundleRequest)
_caps = msgspec.json.Decoder(CapsRequest)
_encode = msgspec.json.Encoder().encode


def answer(content: Any, status: int = 200) -> Response:
    """A message as the body of an answer."""
    return Response(_encode(content), status, media_type="application/json")


@router.post(
    "/v1/decisions",
    openapi_extra=operation(("DecisionRequest", "DecisionRequests"), ("Decision", "Decisions"), (409,)),
)
async def decisions(request: Request) -> Response:
    """Which incentive users get. One request, or many under `requests`."""
    start = time.perf_counter()
    service: Service = request.app.state.service
    limits = service.serving.config.limits
    asked, many = _decisions.read(await body_of(request, limits.body_bytes), limits.batch)
    found = await service.decisions.decide(asked, many=many)
    service.metrics.decision_seconds.observe(time.perf_counter() - start)
    if many:
        return answer(Decisions(found))
    return answer(found[0], 409 if isinstance(found[0], Problem) else 200)


@router.post(
    "/v1/outcomes",
    openapi_extra=operation(
        ("OutcomeRequest", "OutcomeRequests"), ("OutcomeAnswer", "OutcomeAnswers"), (409, 503), "No such decision."
    ),
)
async def outcomes(request: Request) -> Response:
    """What happened after decisions. One outcome, or many under `outcomes`."""
    service: Service = request.app.state.service
    limits = service.serving.config.limits
    told, many = _outcomes.read(await body_of(request, limits.body_bytes), limits.batch)
    found = await service.outcomes.settle(told, many=many)
    if many:
        return answer(OutcomeAnswers(found))
    if isinstance(found[0], Problem):
        return answer(found[0], 404 if str(found[0].where).endswith("decision_id") else 409)
    return answer(found[0])


@router.post("/v1/admin/pause", openapi_extra=operation(refuses=(401, 403, 503)))
async def pause(request: Request) -> Response:
    """Answer none from now on, on every server of this ledger; it lasts over restarts."""
    return await _paused(request.app.state.service, True)


@router.post("/v1/admin/resume", openapi_extra=operation(refuses=(401, 403, 503)))
async def resume(request: Request) -> Response:
    """End a pause."""
    return await _paused(request.app.state.service, False)


async def _paused(service: Service, wanted: bool) -> Response:
    change = service.ledger.pause if wanted else service.ledger.resume
    await service.call(change, service.serving.ready.campaign)
    service.decisions.paused = wanted
    return answer({"campaign": service.serving.ready.campaign, "paused": wanted})


@router.post("/v1/admin/bundle", openapi_extra=operation(("BundleRequest",), refuses=(401, 403)))
async def bundle(request: Request) -> Response:
    """Verify a bundle, warm it up and serve it from now on; a broken one leaves the old in service."""
    service: Service = request.app.state.service
    wanted = read(_bundle, await body_of(request, service.serving.config.limits.body_bytes))
    old = service.serving.ready.bundle.id
    error = await service.load(wanted.path)
    if error is not None:
        words = f"{error} Bundle {old} stays in service."
        raise BadRequestError(422, Problem(error=words, where="$.path"))
    service.serving.announce()
    return answer({"bundle": service.serving.ready.bundle.id, "before": old})


@router.post("/v1/admin/caps", openapi_extra=operation(("CapsRequest",), refuses=(401, 403, 503)))
async def caps(request: Request) -> Response:
    """Raise or lower caps, in money. What is absent stays; null takes a limit away."""
    service: Service = request.app.state.service
    wanted = read(_caps, await body_of(request, service.serving.config.limits.body_bytes))
    money = service.serving.ready.money
    totals = await service.totals()
    changed: dict[str, Any] = {}
    try:
        for key in ("total", "day"):
            value = getattr(wanted, key)
            if value is not msgspec.UNSET:
                changed[key] = None if value is None else money.exact(value)
        if wanted.arms is not msgspec.UNSET:
            arms = dict(totals.caps.arms) | {k: money.exact(v) for k, v in wanted.arms.items() if v is not None}
            changed["arms"] = {k: v for k, v in arms.items() if wanted.arms.get(k, v) is not None}
    except OutlayError as error:
        raise BadRequestError(422, Problem(error=error.found, where="$", way_out=error.way_out)) from None
    await service.call(service.ledger.set_caps, totals.campaign, replace(totals.caps, **changed))
    return answer(_in_units((await service.totals()).caps, money.units))


def _in_units(caps: Caps, units: Any) -> dict[str, Any]:
    return {
        "total": None if caps.total is None else units(caps.total),
        "day": None if caps.day is None else units(caps.day),
        "arms": {name: units(cap) for name, cap in caps.arms.items()},
    }


@router.get("/v2/health/live", openapi_extra=operation())
async def live() -> Response:
    """The process answers."""
    return answer({"live": True})


@router.get("/v2/health/ready", openapi_extra=operation(refuses=(503,)))
async def ready(request: Request) -> Response:
    """It can decide: a bundle is in service and the ledger answers."""
    service: Service = request.app.state.service
    totals = await service.totals()
    return answer({"ready": True, "bundle": service.serving.ready.bundle.id, "paused": totals.paused})


@router.get("/metrics", openapi_extra=TEXT)
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    service: Service = request.app.state.service
    service.metrics.features(service.serving.ready.decider.encoder)
    try:
        totals = await service.totals()
    except (LedgerError, TimeoutError):
        totals = None
    page = service.metrics.page(totals, service.serving.ready.money)
    return Response(page, media_type="text/plain; version=0.0.4")
