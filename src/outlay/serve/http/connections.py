"""Connections of one process: none keeps others out, and none is cut while its client is busy.

    opened ──bytes──▶ request begun ──whole within REQUEST seconds──▶ answered ──▶ idle
                             └─────────── else 408 ───────────┘

* A request has REQUEST seconds from its first byte to its last, headers and body together.
* Where the process is about to run out of file descriptors, a newcomer takes the place of the one that has waited
  longest for its client: of those in the middle of a request, else of those that are idle. Requests that are whole are
  never dropped.
* When the server ends, the answer to every further request ends its connection (`Connection: close`); who sends nothing
  for LINGER seconds is closed then.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST = 10.0  # seconds
LINGER = 1.0  # seconds
SPARE = 64  # file descriptors that are kept for everything else: the ledger, the log, what starts
LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Connection(HttpToolsProtocol):
    """A client's connection, as uvicorn has it, with an eye on the time.

    Attributes:
        begun: those in the middle of a request, by how long they are.
        idle: those without one, by how long they are.
    """

    begun: ClassVar[dict[Connection, None]] = {}
    idle: ClassVar[dict[Connection, None]] = {}

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._whole = True
        self._ending = False
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more; perhaps instead of another."""
        super().connection_made(transport)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self.connections) > most - SPARE and (oldest := next(iter(self.begun or self.idle), None)) is not None:
            oldest.transport.abort()
        self.idle[self] = None
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request, all of it, or more than one."""
        self.idle.pop(self, None)
        super().data_received(data)
        if self._whole:
            self._forget()
        elif self._due is None:
            self.begun[self] = None
            self._due = self.loop.call_later(REQUEST, self._too_late)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._whole = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are here."""
        super().on_headers_complete()
        if self._ending and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """Its last byte."""
        self._whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Its answer is sent."""
        super().on_response_complete()
        if self._whole and not self.pipeline and not self.transport.is_closing():
            self.idle[self] = None

    def shutdown(self) -> None:
        """The server ends."""
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
