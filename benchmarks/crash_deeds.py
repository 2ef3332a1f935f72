"""What `serve_crash.py` does to servers besides killing them. Each has to leave the money and the other clients alone.

freeze          SIGSTOP of a server in the middle of its work: the others go on, and a campaign can be paused
endless header  connections whose header never ends: others are answered meanwhile
refused start   a server whose settings are refused: nothing in the ledger has changed
free incentive  a bundle in which an incentive reserves nothing since the log never saw it cost: not served
token           caps asked for with the token of the application, or none: refused; with the other one: changed
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crash_sql
from crash_clients import ADMIN, TOKENS, USE, Client, Play, post
from ledger_crash import PATIENCE

FROZEN = 4.0  # seconds
LONGEST = 15.0  # seconds that a busy machine may need for what takes tenths, or two for a frozen server's lock
ATTACK = 1.0  # seconds
ENOUGH = 20  # answers


@dataclass(frozen=True)
class Stage:
    """What a deed is done to.

    Attributes:
        servers: one on each port.
        refused: the command of a server that counts in other minor units.
        free: a bundle in which an incentive reserves nothing.
    """

    game: Play
    url: str
    servers: list[subprocess.Popen[bytes]]
    refused: list[str]
    free: Path
    cap: float

    def admin(self, path: str, body: Any, token: str = ADMIN) -> tuple[int, Any]:
        """Ask the first server, until it can."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.game.ports[0], timeout=PATIENCE)) as connection:
            until = time.monotonic() + PATIENCE
            while True:
                status, answer = post(connection, path, body, token)
                if status != 503 or time.monotonic() > until:  # the clients keep the ledger busy
                    return status, answer


def freeze(stage: Stage) -> None:
    """The last server stands still; where it is the only one, for a moment."""
    game, frozen = stage.game, stage.servers[-1]
    ports = game.ports
    frozen.send_signal(signal.SIGSTOP)
    try:
        if len(ports) == 1:
            time.sleep(ATTACK)
            return
        game.ports = ports[:1]  # those who have asked the frozen one already, wait for it
        client, until = Client(game, 0), time.monotonic() + FROZEN
        while time.monotonic() < until or game.answered[ports[0]] < ENOUGH:
            begun = time.monotonic()
            client.ask()
            if (took := time.monotonic() - begun) > LONGEST:
                game.complain(f"beside a frozen server an answer took {took:.1f} s")
        for path in ("/v1/admin/pause", "/v1/admin/resume"):
            status, answer = stage.admin(path, {})
            if status != 200:
                game.complain(f"{path} beside a frozen server: {status} {answer}")
    finally:
        game.ports = ports
        frozen.send_signal(signal.SIGCONT)


def endless_header(stage: Stage) -> None:
    """As much as the server takes, and again on a new connection when it closes one, until others are answered."""
    port, begun = stage.game.ports[0], time.monotonic()
    enough = stage.game.answered[port] + ENOUGH
    while time.monotonic() < begun + ATTACK or stage.game.answered[port] < enough:
        if time.monotonic() > begun + LONGEST:
            stage.game.complain(f"beside an endless header {ENOUGH} answers took more than {LONGEST:g} s")
            return
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), timeout=ATTACK)) as attacker:
            attacker.sendall(b"POST /v1/decisions HTTP/1.1\r\nHost: a\r\nX-Endless: ")
            until = time.monotonic() + ATTACK
            while time.monotonic() < until:
                attacker.sendall(65_536 * b"a")


def refused_start(stage: Stage) -> None:
    """Ten times as many minor units, over a ledger that counts in the old ones."""
    before = crash_sql.settings(stage.url)
    done = subprocess.run(stage.refused, capture_output=True, text=True, timeout=PATIENCE, env=os.environ | TOKENS)
    if done.returncode != 2:
        stage.game.complain(f"a start with another minor ended with {done.returncode}: {done.stderr}")
    if (after := crash_sql.settings(stage.url)) != before:
        stage.game.complain(f"a refused start changed {before} to {after}")


def free_incentive(stage: Stage) -> None:
    """A live swap to the bundle in which an incentive reserves nothing."""
    status, answer = stage.admin("/v1/admin/bundle", {"path": str(stage.free)})
    if status != 422:
        stage.game.complain(f"a bundle whose incentive reserves nothing: {status} {answer}")


def token(stage: Stage) -> None:
    """Caps may be changed by who holds the token for it."""
    for given, expected in ((USE, 403), ("", 401), (ADMIN[:-1] + "x", 401)):
        status, answer = stage.admin("/v1/admin/caps", {"total": 10 * stage.cap}, given)
        if status != expected:
            stage.game.complain(f"a change of caps with token {given!r}: {status} {answer}")
    for cap in (stage.cap - 100, stage.cap):
        status, answer = stage.admin("/v1/admin/caps", {"total": cap})
        if status != 200:
            stage.game.complain(f"caps with the administrator's token: {status} {answer}")


DEEDS = {
    "freeze": freeze,
    "endless header": endless_header,
    "refused start": refused_start,
    "free incentive": free_incentive,
    "token": token,
}
