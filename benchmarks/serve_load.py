"""The clients of `serve_speed.py`: keep-alive connections in one process that does little, since it shares the cores.

    full(port, …)     every connection asks again as soon as it has its answer: what the server can do
    paced(port, …)    requests are due at random moments, at a rate; each waits from the moment at which it was due

A server that stalls keeps paced requests from being sent; counted from the send, that wait would be lost. The bodies
are pieces made beforehand around an id; an answer is read no further than its status line and its length.
"""

from __future__ import annotations

import json
import random
import select
import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

USERS = 1_000_003
HEAD = "POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "


@dataclass
class Load:
    """What the clients saw.

    Attributes:
        seconds: from the first request to the last answer.
        answers: with status 200.
        wrong: other answers, and those that name no decision.
        took: seconds of each request.
        cpu: processor seconds of this process.
    """

    seconds: float = 0.0
    answers: int = 0
    wrong: int = 0
    took: list[float] = field(default_factory=list)
    cpu: float = 0.0


class Requests:
    """Requests without end, each with an id of its own.

    Args:
        states: feature sets, drawn at random.
        batch: decisions in one request; 1 asks for a single one.
        first: number of the first decision.
        users: how many there are.
    """

    def __init__(self, states: list[dict[str, Any]], batch: int, first: int, users: int = USERS) -> None:
        self._tails = [b'","features":' + json.dumps(state, separators=(",", ":")).encode() + b"}" for state in states]
        self._batch = batch
        self._number = first
        self._users = users
        self._random = random.Random(first)

    def next(self) -> bytes:
        """The bytes of one request."""
        if self._batch == 1:
            body = self._decision()
        else:
            body = b'{"requests":[' + b",".join([self._decision() for _ in range(self._batch)]) + b"]}"
        return b"%s%d\r\n\r\n%s" % (HEAD.encode(), len(body), body)

    def _decision(self) -> bytes:
        self._number += 1
        tail = self._tails[int(self._random.random() * len(self._tails))]
        return b'{"request_id":"%012d","user_id":"user-%d%s' % (self._number, self._number * 7919 % self._users, tail)


class Clients:
    """Connections to a server on this machine, each with one request at a time.

    Attributes:
        free: those without a request.
    """

    def __init__(self, port: int, number: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._parts: dict[socket.socket, bytes] = {}
        self.free: deque[socket.socket] = deque()
        for _ in range(number):
            client = socket.create_connection(("127.0.0.1", port))
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(client, selectors.EVENT_READ)
            self.free.append(client)

    def answers(self, until: float | None = None) -> list[tuple[socket.socket, bytes]]:
        """Whole answers that have come, with their clients; waits for one, until `until` at most."""
        if until is not None:  # the selector's own timeout counts in milliseconds
            select.select([self._selector], [], [], max(0.0, until - time.perf_counter()))
        whole = []
        for key, _ in self._selector.select(None if until is None else 0):
            client: Any = key.fileobj
            data = client.recv(1 << 20)
            if not data:
                raise ConnectionError("the server has closed a connection")
            data = self._parts.pop(client, b"") + data
            end = data.find(b"\r\n\r\n") + 4
            if end > 3 and len(data) - end >= _length(data, end):
                whole.append((client, data))
            else:
                self._parts[client] = data
        return whole

    def close(self) -> None:
        """End the connections; all of them are free."""
        for client in self.free:
            client.close()
        self._selector.close()


def full(
    port: int, states: list[dict[str, Any]], first: int, clients: int, seconds: float, batch: int, users: int = USERS
) -> Load:
    """Every client asks again at once."""
    requests, load, connections = Requests(states, batch, first, users), Load(), Clients(port, clients)
    sent: dict[socket.socket, float] = {}
    worked, start = time.process_time(), time.perf_counter()
    until = start + seconds
    while connections.free:
        client = connections.free.popleft()
        sent[client] = time.perf_counter()
        client.sendall(requests.next())
    while sent:
        for client, data in connections.answers():
            now = time.perf_counter()
            _count(load, data, now - sent.pop(client), batch)
            if now < until:
                sent[client] = now
                client.sendall(requests.next())
            else:
                connections.free.append(client)
    load.seconds, load.cpu = time.perf_counter() - start, time.process_time() - worked
    connections.close()
    return load


def paced(port: int, states: list[dict[str, Any]], first: int, clients: int, seconds: float, rate: float) -> Load:
    """Requests are due as independent users come, `rate` a second; who finds no free connection waits for one."""
    requests, load, connections = Requests(states, 1, first), Load(), Clients(port, clients)
    rng = random.Random(first)
    due = deque([0.0])
    while due[-1] < seconds:
        due.append(due[-1] + rng.expovariate(rate))
    sent: dict[socket.socket, float] = {}
    worked, start = time.process_time(), time.perf_counter()
    while due or sent:
        while due and connections.free and start + due[0] <= time.perf_counter():
            client = connections.free.popleft()
            sent[client] = start + due.popleft()
            client.sendall(requests.next())
        idle = due and connections.free
        for client, data in connections.answers(start + due[0] if idle else time.perf_counter() + 1):
            _count(load, data, time.perf_counter() - sent.pop(client), 1)
            connections.free.append(client)
    load.seconds, load.cpu = time.perf_counter() - start, time.process_time() - worked
    connections.close()
    return load


def _count(load: Load, data: bytes, seconds: float, batch: int) -> None:
    load.took.append(seconds)
    wrong = batch if not data.startswith(b"HTTP/1.1 200") else data.count(b'"decision_id":null')
    load.answers += batch - wrong
    load.wrong += wrong


def _length(data: bytes, end: int) -> int:
    at = data.find(b"content-length: ", 0, end) + 16
    return int(data[at : data.find(b"\r", at)])
