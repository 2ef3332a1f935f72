"""What `serve_speed.py` compares with: the same messages over Starlette and msgspec, without model and ledger.

    python benchmarks/serve_bare.py     # prints its port

The route that one writes first: read the body, decode it, answer with bytes. uvicorn, the socket and the garbage
collector are set as in `outlay serve`.
"""

from __future__ import annotations

import atexit
import datetime
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from outlay.serve.application import COLLECT
from outlay.serve.handlers.messages import DecisionAnswer, DecisionRequest
from outlay.serve.launch import UVICORN, listening

_decode = msgspec.json.Decoder(DecisionRequest).decode
_encode = msgspec.json.Encoder().encode


@asynccontextmanager
async def _settle(_app: Starlette) -> AsyncIterator[None]:
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # or extensions report all that is frozen as leaked
    gc.set_threshold(*COLLECT)
    yield


async def decisions(request: Request) -> Response:
    """The same answer for everybody."""
    asked = _decode(await request.body())
    answer = DecisionAnswer(
        decision_id=f"{len(asked.features):032x}",
        action=1.5,
        action_index=3,
        member=1,
        probability=0.7,
        bundle="0123456789abcdef",
        reason="policy",
        arm="policy",
        state="reserved",
        expires_at=datetime.datetime.now(datetime.UTC),
    )
    return Response(_encode(answer), media_type="application/json")


app = Starlette(routes=[Route("/v1/decisions", decisions, methods=["POST"])], lifespan=_settle)

if __name__ == "__main__":
    with listening("127.0.0.1", 0) as listener, suppress(KeyboardInterrupt):
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, **UVICORN)).run(sockets=[listener])
