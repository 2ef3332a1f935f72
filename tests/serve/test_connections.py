"""Real processes and connections: some that never finish a request, and many that are busy when the server ends."""

from __future__ import annotations

import http.client
import json
import resource
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from small_processes import Process, outlay_serve, wait_until, workers
from small_servers import request

from outlay.bundles.decide import Bundle
from outlay.serve.http import connections
from outlay.serve.ledger.backends import open_ledger

HALF = b'POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"requ'


def address(process: Process) -> tuple[str, int]:
    parts = urlsplit(process.url)
    return str(parts.hostname), int(parts.port or 0)


def test_requests_that_never_end_lock_nobody_out(bundle: Bundle, tmp_path: Path) -> None:
    with outlay_serve(bundle.folder, f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as process, ExitStack() as stack:
        assert process.get("/v2/health/ready").status_code == 200
        open_files = 60 + connections.SPARE
        resource.prlimit(process.popen.pid, resource.RLIMIT_NOFILE, (open_files, open_files))
        begun = time.monotonic()
        for _ in range(200):
            half = stack.enter_context(socket.create_connection(address(process), timeout=5))
            half.sendall(HALF)
        for number in range(5):
            assert process.decide(request(number))["decision_id"]
        assert time.monotonic() - begun < 8


def test_a_request_that_takes_too_long_is_ended_and_a_slow_one_is_not(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("small_processes.RUN", f"import outlay.serve.http.connections as c; c.REQUEST = 0.5; {RUN}")
    body = json.dumps(request(1)).encode()
    head = b"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with outlay_serve(bundle.folder, f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as process:
        for piece in (HALF, b"POST /v1/deci", b""):
            with socket.create_connection(address(process), timeout=5) as late:
                late.sendall(piece)
                if piece:
                    assert late.recv(1000).startswith(b"HTTP/1.1 408 ")
                    assert late.recv(1000) == b""
                else:  # who has not begun may wait
                    time.sleep(0.8)
                    late.sendall(head % len(body) + body)
                    assert answer_from(late).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(address(process), timeout=5) as slow:
            for _ in range(2):  # the clock begins anew with each request
                slow.sendall(head % len(body))
                time.sleep(0.3)
                slow.sendall(body)
                assert answer_from(slow).startswith(b"HTTP/1.1 200 ")


RUN = "from outlay.cli.main import run; run()"


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
        connection = http.client.HTTPConnection(*self._address, timeout=20)
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


@pytest.mark.parametrize("count", [1, 2])
def test_a_server_that_ends_answers_every_busy_connection(bundle: Bundle, tmp_path: Path, count: int) -> None:
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    with outlay_serve(bundle.folder, ledger, tmp_path, "--workers", str(count)) as process:
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
            client.join(20)
        process.popen.wait(10)
        assert "Traceback" not in process.said(), process.said()
    assert ended["cut"] == ended["without a decision"] == 0, ended
    assert ended["refused"] == len(clients)
    books = open_ledger(ledger)
    assert decisions <= {row.decision_id for row in books.rows("coupons", 0, 2**47)}
    assert books.check() == []
    books.close()
