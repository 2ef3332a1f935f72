"""One client sends what never ends to a real server, and the decisions of others go on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from small_processes import Process, outlay_serve
from small_servers import request

from outlay.bundles.decide import Bundle
from patience import PATIENCE

ENOUGH = 256 << 20  # bytes: far more than the system keeps for a server that does not read them
HEAD = b"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = b"a" * (1 << 18)
SMALL = b"a: b\r\n" * 40_000
HEADS = {
    "header value": (HEAD + b"X-A: ", LONG),
    "header name": (HEAD, LONG),
    "request line": (b"GET /", LONG),
    "small headers": (HEAD, SMALL),
    "empty lines": (b"", b"\r\n" * 100_000),
    "chunk extension": (CHUNKED + b"2;", LONG),
    "trailer": (CHUNKED + b"2\r\n{}\r\n0\r\nX-A: ", LONG),
    "small trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", SMALL),
}
OTHERS = {
    "body nobody reads": (b"GET /nowhere HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", LONG),
    "body that is too large": (HEAD + b"Content-Length: 99999999999\r\n\r\n", LONG),
    "small chunks": (CHUNKED, b"1\r\n \r\n" * 40_000),
    "requests without bodies": (b"", b"GET / HTTP/1.1\r\n\r\n" * 14_000),
    "requests with bodies": (b"", (HEAD + b"Content-Length: 2\r\n\r\n{}") * 2_500),
}


@pytest.fixture(scope="module")
def process(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("hostile")
    limits = {"outlay.serve.http.connections:REQUEST": 2 * PATIENCE}  # time ends none of them
    with outlay_serve(bundle.folder, f"sqlite:///{folder / 'ledger.db'}", folder, limits=limits) as process:
        yield process


class Attack(threading.Thread):
    """Sends without end.

    Attributes:
        sent: bytes.
        answer: the first line of the last answer, once the server has closed the connection.
        stopped: set it to end the attack.
    """

    def __init__(self, process: Process, first: bytes, more: bytes) -> None:
        super().__init__(daemon=True)
        parts = urlsplit(process.url)
        self._socket = socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=PATIENCE)
        self._first = first
        self._more = more
        self.sent = 0
        self.answer = b""
        self.stopped = threading.Event()

    def run(self) -> None:
        """Until the server closes the connection, or has taken enough."""
        with self._socket:
            try:
                self._socket.sendall(self._first)
                while self.sent < ENOUGH and not self.stopped.is_set():
                    self._socket.settimeout(1)
                    try:
                        self.sent += self._socket.send(self._more)
                    except TimeoutError:
                        continue
            except OSError:
                self._socket.settimeout(PATIENCE)
                self.answer = self._socket.recv(1000).partition(b"\r\n")[0]


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_without_end_is_refused(process: Process, kind: str) -> None:
    attack = Attack(process, *HEADS[kind])
    attack.start()
    numbers = iter(range(1_000 * list(HEADS).index(kind), 10**6))
    while attack.is_alive():
        assert process.decide(request(next(numbers)))["decision_id"]
    assert attack.sent < ENOUGH
    assert attack.answer.startswith(b"HTTP/1.1 431 ") or "trailer" in kind  # an answered request gets no second answer


@pytest.mark.parametrize("kind", OTHERS)
def test_decisions_go_on_beside_it(process: Process, kind: str) -> None:
    attack = Attack(process, *OTHERS[kind])
    attack.start()
    for number in range(100):
        assert process.decide(request(10**6 * (1 + list(OTHERS).index(kind)) + number))["decision_id"]
    attack.stopped.set()
    attack.join(PATIENCE)
    assert not attack.is_alive()


def test_a_head_of_64_kib_is_taken(process: Process) -> None:
    for _ in range(2):
        answer = process.http.get("/v2/health/live", headers={"X-A": "a" * (63 << 10)})
        assert answer.status_code == 200
