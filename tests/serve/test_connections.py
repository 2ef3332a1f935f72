"""Real processes and connections: some that never finish a request, and many that are busy when the server ends."""

from __future__ import annotations

import asyncio
import http.client
import json
import resource
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from small_processes import Process, outlay_serve, workers
from small_servers import request

from outlay.bundles.decide import Bundle
from outlay.serve.http import connections
from outlay.serve.launch import UVICORN
from outlay.serve.ledger.backends import open_ledger
from patience import PATIENCE, wait_until

HALF = b'POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"requ'


def address(process: Process) -> tuple[str, int]:
    parts = urlsplit(process.url)
    return str(parts.hostname), int(parts.port or 0)


def test_requests_that_never_end_lock_nobody_out(bundle: Bundle, tmp_path: Path) -> None:
    limits = {"outlay.serve.http.connections:REQUEST": 2 * PATIENCE}  # time ends none of them
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    with outlay_serve(bundle.folder, ledger, tmp_path, limits=limits) as process, ExitStack() as stack:
        assert process.get("/v2/health/ready").status_code == 200
        open_files = 60 + connections.SPARE
        resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (open_files, open_files))
        for _ in range(200):
            half = stack.enter_context(socket.create_connection(address(process), timeout=PATIENCE))
            half.sendall(HALF)
        for number in range(5):
            assert process.decide(request(number))["decision_id"]


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers go by a clock that can be put forward.

    Attributes:
        ahead: seconds.
    """

    ahead = 0.0

    def time(self) -> float:
        """The loop's clock."""
        return super().time() + self.ahead

    def forward(self, seconds: float) -> None:
        """Put it forward, from another thread."""
        self.ahead += seconds
        self.call_soon_threadsafe(lambda: None)


@pytest.fixture
def stepped() -> Iterator[tuple[SteppedLoop, tuple[str, int]]]:
    """A loop with a server of our connections that answers with what it is sent, and where it listens."""

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", scope["path"] != "/early"
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        if scope["path"] == "/large":
            body = bytes(100 << 20)  # more than the system keeps for a client
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    loop, listener = SteppedLoop(), socket.create_server(("127.0.0.1", 0))
    settings: dict[str, Any] = UVICORN | {"timeout_keep_alive": 10**6, "lifespan": "off", "log_config": None}
    running = uvicorn.Server(uvicorn.Config(echo, **settings))
    thread = threading.Thread(target=lambda: loop.run_until_complete(running.serve([listener])))
    thread.start()
    wait_until(lambda: running.started)
    yield loop, listener.getsockname()
    running.should_exit = True
    thread.join(PATIENCE)
    loop.close()


def test_a_request_that_takes_too_long_is_ended_and_a_slow_one_is_not(
    stepped: tuple[SteppedLoop, tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST", PATIENCE)
    loop, place = stepped
    body = json.dumps(request(1)).encode()
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    for piece in (HALF, b"POST /v1/deci", b""):
        with socket.create_connection(place, timeout=PATIENCE) as late:
            late.sendall(piece)
            if piece:
                wait_until(lambda: connections.Connection.begun)
                loop.forward(PATIENCE + 1)
                assert late.recv(1000).startswith(b"HTTP/1.1 408 ")
                assert late.recv(1000) == b""
            else:  # who has not begun may wait
                wait_until(lambda: connections.Connection.idle)
                loop.forward(PATIENCE + 1)
                late.sendall(head + body)
                assert answer_from(late).startswith(b"HTTP/1.1 200 ")
    with socket.create_connection(place, timeout=PATIENCE) as slow:
        for _ in range(2):  # the clock begins anew with each request
            slow.sendall(head)
            wait_until(lambda: connections.Connection.begun)
            loop.forward(0.6 * PATIENCE)
            slow.sendall(body)
            assert answer_from(slow).startswith(b"HTTP/1.1 200 ")


def test_who_begins_a_second_request_slowly_is_told(
    stepped: tuple[SteppedLoop, tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST", PATIENCE)
    loop, place = stepped
    for slowly in (b"POST /v1/deci", b"\r\n"):  # an empty line is a beginning as well
        with socket.create_connection(place, timeout=PATIENCE) as late:
            late.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            assert answer_from(late).startswith(b"HTTP/1.1 200 ")
            late.sendall(slowly)
            wait_until(lambda: connections.Connection.begun)
            loop.forward(PATIENCE + 1)
            assert late.recv(1000).startswith(b"HTTP/1.1 408 ")
            assert late.recv(1000) == b""


def test_a_request_that_ends_after_its_answer_leaves_an_idle_connection(
    stepped: tuple[SteppedLoop, tuple[str, int]],
) -> None:
    _, place = stepped
    with socket.create_connection(place, timeout=PATIENCE) as client:
        client.sendall(b"GET /early HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"}")
        wait_until(lambda: connections.Connection.idle and not connections.Connection.begun)


def test_who_does_not_read_answers_is_closed(
    stepped: tuple[SteppedLoop, tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST", PATIENCE)
    loop, place = stepped
    with socket.create_connection(place, timeout=PATIENCE) as deaf:
        deaf.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: any(each.flow.write_paused for each in connections.Connection.begun))
        loop.forward(PATIENCE + 1)
        wait_until(lambda: not connections.Connection.begun and not connections.Connection.idle)


@pytest.mark.parametrize("path", ["/early", "/"])
def test_no_more_than_a_slice_of_a_pipeline_waits(
    stepped: tuple[SteppedLoop, tuple[str, int]], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Whether or not the application reads bodies, which lets uvicorn read on."""
    began, waiting = connections.Connection.on_headers_complete, list[int]()

    def watched(self: connections.Connection) -> None:
        began(self)
        waiting.append(len(self.pipeline))

    monkeypatch.setattr(connections.Connection, "on_headers_complete", watched)
    _, place = stepped
    one, count = b"GET %s HTTP/1.1\r\n\r\n" % path.encode(), 3_000
    with socket.create_connection(place, timeout=PATIENCE) as client:
        client.sendall(one * count)
        answers = b""
        while answers.count(b"HTTP/1.1 200 ") < count:
            part = client.recv(1 << 16)
            assert part
            answers += part
    assert len(waiting) == count
    assert 0 < max(waiting) <= connections.SLICE // len(one) + 1


def test_a_client_that_goes_ends_its_requests(
    stepped: tuple[SteppedLoop, tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one whose answer it does not read writes no more; those that wait are dropped, with the connection."""
    begin, cycles = connections.Connection._start_asgi_task, list[Any]()

    def watched(self: connections.Connection, cycle: Any, app: Any) -> None:
        cycles.append(cycle)
        begin(self, cycle, app)

    monkeypatch.setattr(connections.Connection, "_start_asgi_task", watched)
    _, place = stepped
    with socket.create_connection(place, timeout=PATIENCE) as client:
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n" * 4)
        wait_until(lambda: any(len(each.pipeline) == 2 for each in connections.Connection.begun))
        gone: Any = next(iter(connections.Connection.begun))
    wait_until(lambda: gone not in connections.Connection.begun and cycles[1].disconnected)
    wait_until(lambda: not gone.tasks)
    assert [cycle.response_complete for cycle in cycles] == [True, False]
    assert (len(gone.pipeline), gone.cycle) == (0, None)


def test_a_connection_rests_after_a_piece_that_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine times as long, whatever the application wants to read in the meantime."""
    now = [0.0]

    class Transport(asyncio.Transport):
        """Keeps whether it reads."""

        reads = True

        def pause_reading(self) -> None:
            self.reads = False

        def resume_reading(self) -> None:
            self.reads = True

        def is_closing(self) -> bool:
            return False

    class Slow(connections.Connection):
        """Takes two seconds for a piece."""

        def __init__(self) -> None:
            self.transport = transport
            self.flow = connections.PieceFlow(transport, [])

        def data_received(self, _data: bytes | memoryview) -> None:
            now[0] += 2

    monkeypatch.setattr(connections, "Connection", Slow)
    monkeypatch.setattr(connections, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    transport, loop = Transport(), SteppedLoop()

    async def story() -> None:
        pieces = connections.Pieces()
        slow = pieces._connection
        for size in (connections.PIECE, 7):  # the second is slow as well
            pieces.get_buffer(-1)
            pieces.buffer_updated(size)
            slow.flow.pause_reading()
            slow.flow.resume_reading()
            assert not transport.reads
            loop.ahead += 17.5
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not transport.reads
            loop.ahead += 1.0
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert transport.reads

    loop.run_until_complete(story())
    loop.close()


def answer_from(connection: socket.socket) -> bytes:
    """A whole answer with a JSON object: head and body may come apart."""
    answer = b""
    while not answer.endswith(b"}"):
        part = connection.recv(1000)
        assert part, answer
        answer += part
    return answer


class Busy(threading.Thread):
    """Asks without a pause, on one connection as long as the server keeps it, until nobody answers any more.

    Attributes:
        ended: how requests ended; "cut" are those that were sent on a connection that had answered before, and got no
            answer. A new connection may still wait to be accepted when the server ends: that is told as "refused".
    """

    def __init__(self, process: Process, number: int, ended: Counter[str], decisions: set[str]) -> None:
        super().__init__(daemon=True)
        self._address = address(process)
        self._number = number
        self._ended = ended
        self._decisions = decisions

    def run(self) -> None:
        """Until a connection is refused."""
        connection = http.client.HTTPConnection(*self._address, timeout=PATIENCE)
        for turn in range(100_000):
            body = json.dumps(request(1000 * self._number + turn, eligible=[3]))
            known = connection.sock is not None
            try:
                if not known:
                    connection.connect()
            except OSError:
                self._ended["refused"] += 1
                return
            try:
                connection.request("POST", "/v1/decisions", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                found = json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                connection.close()
                if not known:
                    self._ended["refused"] += 1
                    return
                self._ended["cut"] += 1
                continue
            self._ended["answered" if found.get("decision_id") else "without a decision"] += 1
            self._ended["last"] += answer.will_close
            self._decisions.add(found.get("decision_id"))
            time.sleep(0.02)  # most connections are between two requests when the server is told to end


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_server_that_ends_answers_every_busy_connection(bundle: Bundle, tmp_path: Path, count: int) -> None:
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    limits = {"outlay.serve.http.connections:LINGER": PATIENCE}  # every client comes again, some of them late
    with outlay_serve(bundle.folder, ledger, tmp_path, "--workers", str(count), limits=limits) as process:
        if count > 1:  # whoever serves has meters of its own
            wait_until(lambda: len(workers(process)) == count)
            wait_until(lambda: all(list(tmp_path.glob(f"*/meters/*_{worker.pid}.db")) for worker in workers(process)))
        assert process.decide(request(1))["decision_id"]
        ended, decisions = Counter[str](), set[str]()
        clients = [Busy(process, number, ended, decisions) for number in range(1, 65 if count == 1 else 33)]
        for client in clients:
            client.start()
        wait_until(lambda: ended["answered"] > 300)
        process.popen.send_signal(signal.SIGTERM)
        for client in clients:
            client.join(PATIENCE)
        process.popen.wait(PATIENCE)
        assert "Traceback" not in process.said(), process.said()
    assert ended["cut"] == ended["without a decision"] == 0, ended
    assert ended["refused"] == len(clients)
    books = open_ledger(ledger)
    assert decisions <= {row.decision_id for row in books.rows("coupons", 0, 2**47)}
    assert books.check() == []
    books.close()
