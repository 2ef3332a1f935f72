"""Connections of one process: what one of them sends, or does not, keeps no other waiting for long.

    opened ──bytes──▶ request begun ──complete in REQUEST seconds───▶ answered ──▶ idle
                             ├─────────── else 408
                             └─────────── more than HEAD bytes without a byte of the body: 431

* A request has REQUEST seconds from its first byte to its last, headers and body together; an answer that the client
  does not read has as long.
* Of request line, headers, chunk extensions and trailers, at least HEAD bytes are taken and at most one SLICE more. The
  parser joins the parts of a header as they come, so one without an end would be copied again with every part.
* A connection is read in pieces of PIECE bytes, one in each turn of the event loop. After a full piece, and after two
  that take longer than SLOW, it rests for RESTS times as long as the piece took, in whole milliseconds. So parsing what
  one client sends takes a tenth of the process's time, or less than SLOW in each turn.
* A piece is parsed in slices of SLICE bytes. While requests wait in a pipeline, nothing is read and nothing more of the
  piece is parsed: a waiting request takes a hundred times the memory of its bytes, so no more of them wait than fit
  into a slice.
* When the client has gone, its waiting requests are dropped, and the one in progress is told and writes no more.
* If the process is about to run out of file descriptors, a new connection replaces the one that has waited longest for
  its client: one in the middle of a request or of an answer, or else an idle one. A complete request is not dropped
  unless its client has begun another one or does not read.
* When the server stops, the answer to every further request closes its connection (`Connection: close`); a connection
  on which nothing is sent for LINGER seconds is closed then.

So one client takes little from the others. Many at once, each with many connections, are for a proxy in front.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Sized
from typing import Any, ClassVar, cast

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

REQUEST = 10.0  # seconds
LINGER = 1.0  # seconds
HEAD = 64 << 10  # bytes
PIECE = 16 << 10  # bytes
SLICE = 512  # bytes
RESTS = 9
SLOW = 1e-3  # seconds for a piece, however small
SPARE = 64  # file descriptors kept free for everything else: the ledger, the log, modules
END = b"content-length: 0\r\nconnection: close\r\n\r\n"
LATE = b"HTTP/1.1 408 Request Timeout\r\n" + END
LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + END


class Connection(HttpToolsProtocol):
    """A client's connection as in uvicorn, with limits.

    Attributes:
        begun: connections that wait for their clients in the middle of a request or of an answer, oldest first.
        idle: connections without a request, oldest first.
    """

    begun: ClassVar[dict[Connection, None]] = {}
    idle: ClassVar[dict[Connection, None]] = {}
    flow: PieceFlow

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._complete = True
        self._in_head = False
        self._barren = 0  # bytes since the request began, or since its last byte of body
        self._ending = False
        self._unparsed = b""  # of the last piece; only while requests wait in the pipeline
        self._running: RequestResponseCycle | None = None  # `cycle` is the newest one, which may be waiting
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection; close another one if file descriptors run out."""
        super().connection_made(transport)
        self.flow = PieceFlow(transport, self.pipeline)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self.connections) > most - SPARE and (oldest := next(iter(self.begun or self.idle), None)) is not None:
            oldest.transport.abort()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and the requests that wait; let the one in progress write no more."""
        self._forget()
        super().connection_lost(exc)
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()
        self._unparsed = b""
        self._running = self.cycle = None  # type: ignore[assignment]  # they refer to the connection

    def data_received(self, data: bytes | memoryview) -> None:
        """Handle part of a request, all of it, or more than one; put off what comes after requests that wait."""
        if self in self.idle:
            del self.idle[self]
            self._complete, self._in_head, self._barren = False, True, 0  # even if it is only an empty line
        self._unparsed = b""
        for start in range(0, len(data), SLICE):
            if self.pipeline:
                self._unparsed = bytes(data[start:])
                break
            part = data[start : start + SLICE]
            self._barren += len(part)
            super().data_received(part)  # type: ignore[arg-type]
            if not self._complete and self._barren > HEAD:
                self._refuse(LARGE)
            if self.transport.is_closing():
                break
        self._settle()

    def on_message_begin(self) -> None:
        """Note that a request has begun."""
        self._complete, self._in_head, self._barren = False, True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Close the connection after this request if the server stops."""
        self._in_head = False
        super().on_headers_complete()
        if self._ending and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Note that the request has come further."""
        self._barren = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._complete = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note what the connection waits for now."""
        super().on_response_complete()
        if self._unparsed and not self.pipeline:
            self.data_received(self._unparsed)
        else:
            self._settle()

    def pause_writing(self) -> None:
        """Note that the client does not read its answer."""
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        """Note that it does."""
        super().resume_writing()
        self._settle()

    def shutdown(self) -> None:
        """Stop: close the connection after its answer, or soon if it has none to send."""
        self._ending = True
        if self._answering():
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(LINGER, self._close_if_idle)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _settle(self) -> None:
        """Decide whom the connection waits for: its client, with a time limit, the application, or a next request."""
        if not self._complete or self.flow.write_paused or self.transport.is_closing():
            self.idle.pop(self, None)
            self.begun[self] = None
            if self._due is None:
                self._due = self.loop.call_later(REQUEST, self._too_late)
            return
        if self._due is not None:
            self._forget()
        if not self._answering():
            self.idle[self] = None
            if self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

    def _forget(self) -> None:
        self.begun.pop(self, None)
        self.idle.pop(self, None)
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _too_late(self) -> None:
        if self.flow.write_paused or self.transport.is_closing():
            self.transport.abort()
        else:
            self._refuse(LATE)

    def _refuse(self, answer: bytes) -> None:
        """Close the connection, with an answer to the request that is being read if it is that one's turn."""
        if not self.pipeline and not (self._answering() if self._in_head else self._started()):
            self.transport.write(answer)
        self.transport.close()
        self._forget()
        self._due = self.loop.call_later(LINGER, self.transport.abort)  # whether or not the client reads it

    def _started(self) -> bool:
        return self.cycle is not None and self.cycle.response_started

    def _close_if_idle(self) -> None:
        if self in self.idle or self in self.begun:
            self.transport.close()


class PieceFlow(FlowControl):
    """Reads nothing while the connection rests, or while requests wait in the pipeline."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline
        self._resting = False
        self._stopped = False

    def pause_reading(self) -> None:
        """Read nothing until told to."""
        self.read_paused = True
        self._stop()

    def resume_reading(self) -> None:
        """Read on, unless there is enough to do."""
        self.read_paused = False
        if self._stopped:
            self._read_on()

    def rest(self, seconds: float) -> None:
        """Read nothing for so long."""
        self._resting = True
        self._stop()
        asyncio.get_running_loop().call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._resting = False
        self._read_on()

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if not (self._resting or self.read_paused or self._pipeline or self._transport.is_closing()):
            self._stopped = False
            self._transport.resume_reading()


class Pieces(asyncio.BufferedProtocol):
    """What uvicorn makes for each connection: reads a `Connection` piece by piece."""

    _piece: ClassVar[memoryview] = memoryview(bytearray(PIECE))  # parsed before anything else is read into it

    def __init__(self, *args: Any, **more: Any) -> None:
        self._connection = Connection(*args, **more)
        self._slow = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass it on."""
        self._connection.connection_made(cast(asyncio.Transport, transport))

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._connection.resume_writing()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the next piece is to be read into."""
        return self._piece

    def buffer_updated(self, nbytes: int) -> None:
        """Handle a piece; rest after a full one, and after two slow ones: one may have waited for the processor."""
        start = time.perf_counter()
        self._connection.data_received(self._piece[:nbytes])
        took = time.perf_counter() - start
        slow_before, self._slow = self._slow, took > SLOW
        if (nbytes == PIECE or (self._slow and slow_before)) and not self._connection.transport.is_closing():
            self._connection.flow.rest(round(RESTS * took, 3))
