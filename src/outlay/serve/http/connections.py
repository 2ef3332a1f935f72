"""Connections of one process: none keeps others out, and none is cut while its request is being answered.

    opened ──bytes──▶ request begun ──complete in REQUEST seconds───▶ answered ──▶ idle
                             └─────────── else 408 ───────────┘

* A request has REQUEST seconds from its first byte to its last, headers and body together.
* If the process is about to run out of file descriptors, a new connection replaces the one that has waited longest for
  its client: one in the middle of a request, or else an idle one. Complete requests are never dropped.
* When the server stops, the answer to every further request closes its connection (`Connection: close`); a connection
  on which nothing is sent for LINGER seconds is closed then.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST = 10.0  # seconds
LINGER = 1.0  # seconds
SPARE = 64  # file descriptors kept free for everything else: the ledger, the log, modules
LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connection(HttpToolsProtocol):
    """A client's connection as in uvicorn, with time limits.

    Attributes:
        begun: connections in the middle of a request, oldest first.
        idle: connections without a request, oldest first.
    """

    begun: ClassVar[dict[Connection, None]] = {}
    idle: ClassVar[dict[Connection, None]] = {}

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._complete = True
        self._ending = False
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection; close another one if file descriptors run out."""
        super().connection_made(transport)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self.connections) > most - SPARE and (oldest := next(iter(self.begun or self.idle), None)) is not None:
            oldest.transport.abort()
        self.idle[self] = None
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle part of a request, all of it, or more than one."""
        self.idle.pop(self, None)
        super().data_received(data)
        if self._complete:
            self._forget()
        elif self._due is None:
            self.begun[self] = None
            self._due = self.loop.call_later(REQUEST, self._too_late)

    def on_message_begin(self) -> None:
        """Note that a request has begun."""
        self._complete = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Close the connection after this request if the server stops."""
        super().on_headers_complete()
        if self._ending and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._complete = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note that the connection is idle, unless more requests wait."""
        super().on_response_complete()
        if self._complete and not self.pipeline and not self.transport.is_closing():
            self.idle[self] = None

    def shutdown(self) -> None:
        """Stop: close the connection after its answer, or soon if it has none to send."""
        self._ending = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(LINGER, self._close_if_idle)

    def _forget(self) -> None:
        self.begun.pop(self, None)
        self.idle.pop(self, None)
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _too_late(self) -> None:
        if not self.transport.is_closing():
            if self.cycle is None or not self.cycle.response_started:
                self.transport.write(LATE)
            self.transport.close()

    def _close_if_idle(self) -> None:
        if self in self.idle or self in self.begun:
            self.transport.close()
