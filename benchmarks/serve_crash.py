"""The money test: `outlay serve` is killed, frozen, attacked and asked twice; no cap breaks and no answer is lost.

    python benchmarks/serve_crash.py                        # an hour, half of it on SQLite, half on PostgreSQL
    python benchmarks/serve_crash.py --rounds 20 --database sqlite

A round: `outlay serve` starts, on PostgreSQL two of them on one ledger. Clients ask over HTTP without a pause, for
decisions and with outcomes, alone and in batches, on ids that they share and repeat; in every second round reservations
expire after a second, so that many of the repeated requests come after their decision has expired. What a client got no
answer to, it asks again with the same ids until it has one, from this server or the next. In the midst of it one of the
deeds of `crash_deeds.py` is done, by turns. 50 to 400 ms later the servers are killed with SIGKILL. On PostgreSQL, the
clock of the second server's machine is right, 25 hours ahead, or jumps 30 days ahead and back, by turns, and two rounds
in three kill PostgreSQL too: one process of it, after which it recovers by itself while the servers run; or all of
them, with the servers, or before them and started again. When all are dead:

* `ledger.check()` finds nothing, and no scope has more committed than its cap;
* SQL of the benchmark's own (`crash_sql.py`) finds nothing: no scope, day or user over a cap, no incentive without a
  reservation, nothing answered or redeemed twice, nothing timed after the database's clock or released early;
* every answer that a client ever got is the answer in the ledger: one decision per request id, one movement per event;
  no answer gives an incentive whose time is over;
* no server left a traceback.

At the end the rest of the money is asked for: the ledger must give it down to the last action that fits.

Result: one line of JSON per database on stdout, exit code 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import crash_sql
from crash_clients import GIVEN, RECENT, REQUESTS, SAME, TOKENS, Client, Play, Tally, request
from crash_deeds import DEEDS, ENOUGH, Stage
from ledger_crash import PATIENCE, above_caps, reopened
from own_postgres import OwnPostgres, kill, own_postgres
from serve_speed import ACTIONS, schema, write

CAMPAIGN = "speed"  # of the bundle that `serve_speed` writes
CAP = 5_000.0  # money; all requests together ask for about twice as much
CLIENTS = 6
DEAREST, CHEAPEST = max(ACTIONS), min(filter(None, ACTIONS))
SHORT, LONG = 0.0003, 24.0  # hours until a reservation expires; a second, or longer than the play
HARM = (None, "a process", "with the servers", None, "a process", "before the servers")  # to PostgreSQL, by round
CLOCKS = (  # of the second server's machine, by round: what is added to its time
    "0",
    "90_000",
    "2_592_000 * (_time.monotonic() % 0.4 < 0.2)",
)
OUTLAY = [sys.executable, "-c", "from outlay.cli.main import run; run()"]
AHEAD = """
import time as _time
_ahead, _now, _now_ns = lambda: {ahead}, _time.time, _time.time_ns
_time.time, _time.time_ns = (lambda: _now() + _ahead()), (lambda: _now_ns() + _ahead() * 10**9)
"""
CONFIG = f"""
ledger_seconds = {PATIENCE}
expiry_hours = {{expiry}}
[caps]
day = 5000
[user]
amount = 8
decisions = 4
[random]
share = 0.2
cap = 1000
"""


def play(database: str, rounds: int | None, minutes: float, folder: Path) -> Tally:
    """So many rounds, or minutes, on a new ledger."""
    with ExitStack() as stack:
        postgres = None if database == "sqlite" else stack.enter_context(own_postgres(folder))
        url = f"sqlite:///{folder / 'ledger.db'}" if postgres is None else postgres.url()
        ports = _free_ports(1 if postgres is None else 2)
        bundle, free = write(folder, schema(5)), write(folder / "free", schema(5), reserve=[*ACTIONS[:-1], 0.0])
        settings = folder / "refused.toml"
        settings.write_text(f"minor = 1000\n{CONFIG.format(expiry=LONG)}")
        refused = [*OUTLAY, *_options(bundle, url, settings), "--port", "0"]
        tally = Tally(database)
        game = Play(tally, ports)
        clients = [Client(game, seed) for seed in range(CLIENTS)]
        start = time.monotonic()
        with ExitStack() as still:  # nobody asks until a round begins
            for client in clients:
                still.enter_context(client.busy)
                client.start()
            for number in itertools.count():
                past = (time.monotonic() - start) / 60 / minutes if rounds is None else number / rounds
                if past >= 1 or tally.broken:
                    break
                game.first = int(past * (REQUESTS - RECENT))
                expiry, clock = SHORT if number % 2 else LONG, CLOCKS[number // 2 % len(CLOCKS)]
                with _served(bundle, url, ports, folder, expiry, tally, clock) as servers:
                    still.close()
                    _wait_for_answers(game, servers)
                    name = [*DEEDS][number % len(DEEDS)]
                    DEEDS[name](Stage(game, url, servers, refused, free, CAP))
                    tally.deeds[name] = tally.deeds.get(name, 0) + 1
                    _kill(game, number, servers, postgres)
                    for client in clients:  # its last answer may be on its way
                        still.enter_context(client.busy)
                tally.rounds += 1
                if postgres is not None:
                    postgres.start()  # if it does not run
                _inspect(tally, url, game.seen)
            game.over = True
        for client in clients:
            client.join()
        if not tally.broken:
            _spend_the_rest(tally, bundle, url, ports, folder)
        tally.seconds = round(time.monotonic() - start, 1)
    return tally


def _kill(game: Play, number: int, servers: list[subprocess.Popen[bytes]], postgres: OwnPostgres | None) -> None:
    """PostgreSQL, in some rounds, and the servers."""
    rng = random.Random(number)
    time.sleep(rng.uniform(0.05, 0.4))
    harm = HARM[number % len(HARM)]
    if harm is not None and postgres is not None:
        game.tally.database_kills += 1
        family = postgres.processes
        kill(rng.sample(family[1:], 1) if harm == "a process" else family)
        if harm != "with the servers":
            time.sleep(rng.uniform(0.0, 0.3))
            postgres.start()
            _wait_for_answers(game, servers)
    _signal(servers, signal.SIGKILL)
    game.tally.kills += len(servers)


def _wait_for_answers(game: Play, servers: list[subprocess.Popen[bytes]]) -> None:
    """Enough of them from every server: one that has not started yet would rightly end if its database were killed."""
    before, until = game.answered.copy(), time.monotonic() + PATIENCE
    while any(game.answered[port] < count + ENOUGH for port, count in before.items()) and not game.tally.broken:
        if any(server.poll() is not None for server in servers):
            game.complain("a server ended of itself")
        if time.monotonic() > until:
            game.complain(f"a server has answered hardly anybody in {PATIENCE:g} seconds")
        time.sleep(0.005)


@contextmanager
def _served(
    bundle: Path, url: str, ports: list[int], folder: Path, expiry: float, tally: Tally, clock: str = "0"
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A server on each port; what they said is looked through when they are dead."""
    settings, said = folder / "serve.toml", folder / "said.txt"
    settings.write_text(CONFIG.format(expiry=expiry))
    with said.open("wb") as file:
        servers = []
        for port, ahead in zip(ports, ("0", clock), strict=False):
            command = [
                *OUTLAY[:2],
                AHEAD.format(ahead=ahead) + OUTLAY[2],
                *_options(bundle, url, settings),
                "--port",
                str(port),
            ]
            servers.append(subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | TOKENS))
    try:
        yield servers
    finally:
        _signal(servers, signal.SIGKILL)
        for server in servers:
            server.wait()
    if tally.broken or "Traceback" in said.read_text():
        tally.broken.append(said.read_text())


def _options(bundle: Path, url: str, settings: Path) -> list[str]:
    cap = ["--cap", str(CAP), "--config", str(settings), "--change-settings"]
    return ["serve", str(bundle), "--ledger", url, *cap]


def _signal(servers: list[subprocess.Popen[bytes]], number: int) -> None:
    for server in servers:
        server.send_signal(number)


def _inspect(tally: Tally, url: str, seen: dict[str, Any]) -> None:
    """What the clients have seen and what the ledger says, after everyone is dead."""
    ledger = reopened(url)
    totals = ledger.totals(CAMPAIGN)
    tally.broken += ledger.check() + above_caps(totals)
    stored: dict[str, Any] = {}
    tally.decisions = tally.outcomes = 0
    for row in ledger.rows(CAMPAIGN, 0, 2**47):
        stored[row.request_id] = row
        for outcome, answer in row.outcomes:
            name = f"{row.decision_id} {outcome.kind} {outcome.event_id}"
            stored[name] = {"status": answer.status, "amount": answer.amount}
        tally.decisions += 1
        tally.outcomes += len(row.outcomes)
    lost = [name for name, answer in seen.items() if name not in stored or not _kept(answer, stored[name])]
    tally.broken += [f"{name} was answered {seen[name]}; the ledger has {stored.get(name)}" for name in lost[:20]]
    tally.broken += crash_sql.wrong(url)
    tally.committed = (totals.total.reserved + totals.total.settled) / 100
    ledger.close()


def _kept(answer: dict[str, Any], stored: Any) -> bool:
    """Whether the ledger has what was answered; of a decision that had expired, who got it."""
    if "status" in answer:
        return bool(answer == stored)
    fields = SAME if answer["state"] == "expired" else SAME + GIVEN
    return all(answer[name] == getattr(stored, name) for name in fields if name != "expires_at")


def _spend_the_rest(tally: Tally, bundle: Path, url: str, ports: list[int], folder: Path) -> None:
    """New users ask for the cheapest action until a cap says no."""
    ledger = reopened(url)
    ledger.release(CAMPAIGN, time.time_ns() // 1_000_000 + 10_000)  # what expires in a moment must not come back below
    with _served(bundle, url, ports[:1], folder, LONG, tally):
        client = Client(Play(tally, ports[:1]), 0)
        number = REQUESTS
        for action in DEAREST, CHEAPEST:
            reasons = set[str]()
            while not reasons & {"total_cap", "day_cap"} and not tally.broken:
                late = range(number, number + 100)
                group = [request(k) | {"user_id": f"late {k}", "eligible": [action]} for k in late]
                with suppress(OSError, http.client.HTTPException):
                    status, answer = client.post("/v1/decisions", {"requests": group})
                    if status != 503:  # else the same are asked again
                        reasons |= {decision["reason"] for decision in answer["decisions"]}
                        number += 100
                time.sleep(0.01)
    total = ledger.totals(CAMPAIGN).total
    tally.committed = (total.reserved + total.settled) / 100
    # Redemptions cost more than was reserved, so the excess may have taken the sum beyond the cap.
    if not CAP - CHEAPEST < tally.committed <= CAP + total.excess / 100:
        tally.broken.append(f"the last money makes {tally.committed}, not {CAP}")
    tally.broken += ledger.check()
    ledger.close()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in taken]


def main() -> int:
    """Play, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="on each database")
    parser.add_argument("--rounds", type=int, help="instead of --minutes")
    parser.add_argument("--database", action="append", choices=("sqlite", "postgresql"), help="default: both")
    given = parser.parse_args()
    broken = False
    for database in given.database or ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory(prefix="outlay-crash-") as name:
            tally = play(database, given.rounds, given.minutes, Path(name))
            print(json.dumps(asdict(tally)), flush=True)
            broken |= bool(tally.broken)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
