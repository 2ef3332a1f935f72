"""`outlay serve` under `kill -9`: what was answered is in the ledger, the caps hold, nothing is spent twice.

    python benchmarks/serve_crash.py                        # 200 rounds each on SQLite and PostgreSQL
    python benchmarks/serve_crash.py --rounds 20 --database sqlite

A round: `outlay serve` starts, on PostgreSQL two of them on one ledger. Clients ask over HTTP without a pause, for
decisions and with outcomes, alone and in batches, on ids that they share and repeat. What a client got no answer to, it
asks again with the same ids until it has one, from this server or the next. 50 to 400 ms after the first answer the
servers are killed with SIGKILL. On PostgreSQL, the clock of the second server's machine is right, 25 hours ahead, or
jumps 30 days ahead and back, by turns, and two rounds in three kill PostgreSQL too: one process of it, after which it
recovers by itself while the servers run; or all of them, with the servers, or before them and started again. When all
are dead:

* `ledger.check()` finds nothing, and no scope has more committed than its cap;
* nothing in the PostgreSQL ledger is timed after the database's clock, and no reservation was released before its time;
* every answer that a client ever got is the answer in the ledger: one decision per request id, one movement per event;
* no server left a traceback.

At the end the rest of the money is asked for: the ledger must give it down to the last action that fits.

Result: one line of JSON per database on stdout, exit code 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ledger_crash import PATIENCE, reopened
from outlay.serve.ledger.records import EXPIRED
from own_postgres import OwnPostgres, kill, own_postgres
from serve_speed import ACTIONS, schema, states, write

CAMPAIGN = "speed"  # of the bundle that `serve_speed` writes
CAP = 5_000.0  # money; all requests together ask for about twice as much
REQUESTS = 9_000
RECENT = 600  # requests from which the clients of one round draw
CLIENTS = 6
ENOUGH = 20  # requests that a server answers before anything is killed: some of them ask again
DEAREST, CHEAPEST = max(ACTIONS), min(filter(None, ACTIONS))
STATES = states(schema(5))
SHORT, LONG = 0.0003, 24.0  # hours until a reservation expires; a second, or longer than the play
HARM = (None, "a process", "with the servers", None, "a process", "before the servers")  # to PostgreSQL, by round
CLOCKS = (  # of the second server's machine, by round: what is added to its time
    "0",
    "90_000",
    "2_592_000 * (_time.monotonic() % 0.4 < 0.2)",
)
AHEAD = """
import time as _time
_ahead, _now, _now_ns = lambda: {ahead}, _time.time, _time.time_ns
_time.time, _time.time_ns = (lambda: _now() + _ahead()), (lambda: _now_ns() + _ahead() * 10**9)
"""
FIELDS = ("decision_id", "action", "action_index", "member", "probability", "bundle", "reason", "arm")  # never change
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


@dataclass
class Tally:
    """What was seen.

    Attributes:
        retried: attempts that had no answer, or a 503; refused connections too.
        broken: promises that did not hold, in words.
    """

    database: str
    rounds: int = 0
    kills: int = 0
    database_kills: int = 0
    answers: int = 0
    repeated: int = 0
    retried: int = 0
    decisions: int = 0
    outcomes: int = 0
    committed: float = 0.0
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)


def request(number: int) -> dict[str, Any]:
    """Request `number`: whoever sends it, it is the same."""
    user = random.Random(number).randrange(REQUESTS // 3)
    return {"request_id": f"r{number}", "user_id": user, "features": STATES[number % len(STATES)]}


def event(decision: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One of some events of a decision: whoever sends it, its value is the same."""
    kind, name = rng.choice(["redeemed", "redeemed", "refund", "active"]), rng.choice(["e1", "e2"])
    decision_id = decision["decision_id"]
    value = random.Random(decision_id + kind + name).randint(0, round(110 * decision["action"])) / 100
    return {"decision_id": decision_id, "kind": kind, "event_id": name, "value": value}


class Play:
    """What the clients share.

    Attributes:
        first: number of the oldest request of this round.
        answered: by port, how many requests were.
        seen: every answer that any client got, by request id or event.
    """

    def __init__(self, tally: Tally, ports: list[int]) -> None:
        self.tally = tally
        self.ports = ports
        self.first = 0
        self.answered = dict.fromkeys(ports, 0)
        self.seen: dict[str, Any] = {}
        self.given: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.over = False

    def take(self, name: str, answer: Any) -> None:
        """An answer came."""
        with self.lock:
            self.tally.answers += 1
            self.tally.repeated += name in self.seen
            if name not in self.seen and answer.get("action"):
                self.given.append(answer)
            if self.seen.setdefault(name, answer) != answer:
                self.tally.broken.append(f"{name} was answered {self.seen[name]} and then {answer}")

    def complain(self, words: str) -> None:
        """A promise was broken."""
        with self.lock:
            self.tally.broken.append(words)


class Client(threading.Thread):
    """Asks one thing at a time, until it has an answer.

    Attributes:
        busy: held while a request is on its way; who holds it keeps the client still.
    """

    def __init__(self, play: Play, seed: int) -> None:
        super().__init__(daemon=True)
        self.busy = threading.Lock()
        self._play = play
        self._random = random.Random(seed)
        self._open: dict[int, http.client.HTTPConnection] = {}

    def run(self) -> None:
        """Until the play is over."""
        while not self._play.over:
            path, key, things = self._next()
            while things and not self._play.over:
                with self.busy:
                    things = self._ask(path, key, things)
                if things:
                    self._play.tally.retried += 1
                    time.sleep(0.01)

    def _next(self) -> tuple[str, str, list[dict[str, Any]]]:
        rng, play = self._random, self._play
        size = rng.choice([1, 1, 1, 8, 64])
        if rng.random() < 0.4 and play.given:
            return "/v1/outcomes", "outcomes", [event(rng.choice(play.given), rng) for _ in range(size)]
        low = play.first if rng.random() < 0.8 else 0  # some come again long after
        return "/v1/decisions", "requests", [request(rng.randrange(low, play.first + RECENT)) for _ in range(size)]

    def _ask(self, path: str, key: str, things: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send them; those that are to be sent again."""
        alone = len(things) == 1 and self._random.random() < 0.5
        try:
            status, answer = self._post(path, things[0] if alone else {key: things})
        except (OSError, http.client.HTTPException):
            return things
        if status == 503:
            return things  # whether they are written, the ledger will say
        if status != 200:
            self._play.complain(f"{path} was answered with {status}: {answer}")
            return []
        answers = [answer] if alone else answer["decisions" if key == "requests" else key]
        for thing, found in zip(things, answers, strict=True):
            self._take(thing, found)
        return []

    def _take(self, thing: dict[str, Any], answer: dict[str, Any]) -> None:
        if "error" in answer:
            self._play.complain(f"{thing} was answered {answer}")
        elif "event_id" in answer:
            self._play.take(_name(thing), {"status": answer["status"], "amount": round(100 * answer["amount"])})
        elif answer["decision_id"] is None:
            self._play.complain(f"{thing} was answered with 200 and no decision: {answer}")
        elif answer["state"] == EXPIRED:  # the second answer that a request may have
            self._play.take(f"{thing['request_id']} {EXPIRED}", {"decision_id": answer["decision_id"]})
        else:
            self._play.take(thing["request_id"], {name: answer[name] for name in FIELDS})

    def _post(self, path: str, body: Any) -> tuple[int, Any]:
        port = self._random.choice(self._play.ports)
        if port not in self._open:
            self._open[port] = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            self._open[port].request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = self._open[port].getresponse()
            found = answer.status, json.loads(answer.read())
        except BaseException:
            self._open.pop(port).close()
            raise
        self._play.answered[port] += 1
        return found


def _name(thing: dict[str, Any]) -> str:
    return f"{thing['decision_id']} {thing['kind']} {thing['event_id']}"


def play(database: str, rounds: int, folder: Path) -> Tally:
    """All rounds on a new ledger."""
    with ExitStack() as stack:
        postgres = None if database == "sqlite" else stack.enter_context(own_postgres(folder))
        url = f"sqlite:///{folder / 'ledger.db'}" if postgres is None else postgres.url()
        ports = _free_ports(1 if postgres is None else 2)
        bundle = write(folder, schema(5))
        tally = Tally(database)
        game = Play(tally, ports)
        clients = [Client(game, seed) for seed in range(CLIENTS)]
        start = time.monotonic()
        with ExitStack() as still:  # nobody asks until a round begins
            for client in clients:
                still.enter_context(client.busy)
                client.start()
            for number in range(rounds):
                game.first = int(number / rounds * (REQUESTS - RECENT))
                expiry, clock = SHORT if number % 2 else LONG, CLOCKS[number // 2 % len(CLOCKS)]
                with _served(bundle, url, ports, folder, expiry, tally, clock) as servers:
                    still.close()
                    _round(game, number, servers, postgres)
                    _signal(servers, signal.SIGKILL)
                    for client in clients:  # its last answer may be on its way
                        still.enter_context(client.busy)
                tally.rounds += 1
                if postgres is not None:
                    postgres.start()  # if it does not run
                _inspect(tally, url, game.seen)
                if postgres is not None:
                    _inspect_times(tally, url)
                if tally.broken:
                    break
            game.over = True
        for client in clients:
            client.join()
        if not tally.broken:
            _spend_the_rest(tally, bundle, url, ports, folder)
        tally.seconds = round(time.monotonic() - start, 1)
    return tally


def _round(game: Play, number: int, servers: list[subprocess.Popen[bytes]], postgres: OwnPostgres | None) -> None:
    """Load, until just before the kill."""
    rng = random.Random(number)
    _wait_for_answers(game, servers)
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
    options = ["--ledger", url, "--cap", str(CAP), "--config", str(settings), "--change-settings"]
    with said.open("wb") as file:
        servers = []
        for port, ahead in zip(ports, ("0", clock), strict=False):
            run = [sys.executable, "-c", f"{AHEAD.format(ahead=ahead)}from outlay.cli.main import run; run()", "serve"]
            command = [*run, str(bundle), *options, "--port", str(port)]
            servers.append(subprocess.Popen(command, stdout=file, stderr=file))
    try:
        yield servers
    finally:
        _signal(servers, signal.SIGKILL)
        for server in servers:
            server.wait()
    if tally.broken or "Traceback" in said.read_text():
        tally.broken.append(said.read_text())


def _signal(servers: list[subprocess.Popen[bytes]], number: int) -> None:
    for server in servers:
        server.send_signal(number)


def _inspect(tally: Tally, url: str, seen: dict[str, Any]) -> None:
    """What the clients have seen and what the ledger says, after everyone is dead."""
    ledger = reopened(url)
    tally.broken += ledger.check()
    totals = ledger.totals(CAMPAIGN)
    for name, scope in [("total", totals.total), *totals.days.items(), *totals.arms.items()]:
        if scope.cap is not None and scope.reserved + scope.settled - scope.excess > scope.cap:
            sums = f"{scope.reserved} + {scope.settled} - {scope.excess}"
            tally.broken.append(f"{name}: {sums} are more than {scope.cap}")
    stored: dict[str, Any] = {}
    tally.decisions = tally.outcomes = 0
    for row in ledger.rows(CAMPAIGN, 0, 2**47):
        stored[row.request_id] = {name: getattr(row, name) for name in FIELDS}
        if row.offer and row.expires <= ledger.clock.now():
            stored[f"{row.request_id} {EXPIRED}"] = {"decision_id": row.decision_id}
        for outcome, answer in row.outcomes:
            name = f"{row.decision_id} {outcome.kind} {outcome.event_id}"
            stored[name] = {"status": answer.status, "amount": answer.amount}
        tally.decisions += 1
        tally.outcomes += len(row.outcomes)
    lost = [name for name, answer in seen.items() if stored.get(name) != answer]
    tally.broken += [f"{name} was answered {seen[name]}; the ledger has {stored.get(name)}" for name in lost[:20]]
    tally.committed = (totals.total.reserved + totals.total.settled) / 100
    ledger.close()


def _inspect_times(tally: Tally, url: str) -> None:
    """Whether the database's clock was everybody's, by SQL of its own."""
    import psycopg

    now = "extract(epoch from clock_timestamp()) * 1000"
    released = "select count(*) from outlay.entry as e join outlay.decision as d using (decision_id)"
    wrong = {
        "decisions are timed after the ledger's clock": f"select count(*) from outlay.decision where ts > {now}",
        "movements are timed after the ledger's clock": f"select count(*) from outlay.entry where ts > {now}",
        "reservations were released early": f"{released} where e.kind = 'release' and e.ts < d.expires",
    }
    with psycopg.connect(url) as database:
        for words, sql in wrong.items():
            if (found := database.execute(sql.encode()).fetchone()) != (0,):
                tally.broken.append(f"{found} {words}")


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
                    status, answer = client._post("/v1/decisions", {"requests": group})
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
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--database", action="append", choices=("sqlite", "postgresql"), help="default: both")
    given = parser.parse_args()
    broken = False
    for database in given.database or ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory(prefix="outlay-crash-") as name:
            tally = play(database, given.rounds, Path(name))
            print(json.dumps(asdict(tally)), flush=True)
            broken |= bool(tally.broken)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
