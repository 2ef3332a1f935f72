"""Clients of `serve_crash.py`: they ask until they have an answer, and remember every answer that they got."""

from __future__ import annotations

import datetime
import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from ledger_crash import PATIENCE
from serve_speed import schema, states

REQUESTS = 9_000
RECENT = 600  # requests from which the clients of one round draw
STATES = states(schema(5))
USE, ADMIN = "use-" + 16 * "0", "admin-" + 16 * "1"  # tokens
TOKENS = {"OUTLAY_TOKEN": USE, "OUTLAY_ADMIN_TOKEN": ADMIN}
SLACK = 0.1  # seconds between two readings of one clock
SAME = ("decision_id", "member", "bundle", "arm", "expires_at")  # in every answer to one request
GIVEN = ("action", "action_index", "probability", "reason")  # as well, unless the decision has expired since


@dataclass
class Tally:
    """What was seen.

    Attributes:
        retried: attempts that had no answer, or a 503; refused connections too.
        expired: answers that a decision has expired.
        deeds: how often each was done (`crash_deeds.py`).
        broken: promises that did not hold, in words.
    """

    database: str
    rounds: int = 0
    kills: int = 0
    database_kills: int = 0
    deeds: dict[str, int] = field(default_factory=dict)
    answers: int = 0
    repeated: int = 0
    retried: int = 0
    expired: int = 0
    decisions: int = 0
    outcomes: int = 0
    committed: float = 0.0
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)


def request(number: int) -> dict[str, Any]:
    """Return request `number`, which is the same for every client."""
    user = random.Random(number).randrange(REQUESTS // 3)
    return {"request_id": f"r{number}", "user_id": user, "features": STATES[number % len(STATES)]}


def event(decision: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return one of a few events of a decision; each has the same value for every client."""
    kind, name = rng.choice(["redeemed", "redeemed", "refund", "active"]), rng.choice(["e1", "e2"])
    decision_id = decision["decision_id"]
    value = random.Random(decision_id + kind + name).randint(0, round(110 * decision["action"])) / 100
    return {"decision_id": decision_id, "kind": kind, "event_id": name, "value": value}


def event_name(thing: dict[str, Any]) -> str:
    """What tells an outcome from all others."""
    return f"{thing['decision_id']} {thing['kind']} {thing['event_id']}"


def post(connection: http.client.HTTPConnection, path: str, body: Any, token: str = USE) -> tuple[int, Any]:
    """The status and what was answered."""
    connection.request(
        "POST", path, json.dumps(body), {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    )
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


class Play:
    """What the clients share.

    Attributes:
        ports: of the servers that are asked.
        first: number of the oldest request of this round.
        answered: by port, how many requests were.
        seen: every answer that any client got, by request id or event; of a decision the first.
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

    def take_decision(self, name: str, answer: dict[str, Any], asked: float) -> None:
        """An answer to a request that was sent at `asked`, epoch seconds."""
        expired = answer["state"] == "expired"
        with self.lock:
            self.tally.answers += 1
            self.tally.repeated += name in self.seen
            self.tally.expired += expired
            if expired:
                if answer["action"]:
                    self.tally.broken.append(f"{name} has expired and gives: {answer}")
            elif answer["action"]:
                if answer["state"] == "reserved" and asked > _seconds(answer["expires_at"]) + SLACK:
                    self.tally.broken.append(f"{name} was given at {asked} although it had expired: {answer}")
                if name not in self.seen:
                    self.given.append(answer)
            first = self.seen.setdefault(name, answer)
            fields = SAME if expired or first["state"] == "expired" else SAME + GIVEN
            if any(answer[key] != first[key] for key in fields):
                self.tally.broken.append(f"{name} was answered {first} and then {answer}")

    def take_outcome(self, name: str, answer: dict[str, Any]) -> None:
        """What an outcome did."""
        with self.lock:
            self.tally.answers += 1
            self.tally.repeated += name in self.seen
            if self.seen.setdefault(name, answer) != answer:
                self.tally.broken.append(f"{name} was answered {self.seen[name]} and then {answer}")

    def complain(self, words: str) -> None:
        """A promise was broken."""
        with self.lock:
            self.tally.broken.append(words)


def _seconds(time_text: str) -> float:
    return datetime.datetime.fromisoformat(time_text).timestamp()


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
            self.ask()

    def ask(self) -> None:
        """Ask something, again and again until there is an answer or the play is over."""
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
        asked = time.time()
        try:
            status, answer = self.post(path, things[0] if alone else {key: things})
        except (OSError, http.client.HTTPException):
            return things
        if status == 503:
            return things  # whether they are written, the ledger will say
        if status != 200:
            self._play.complain(f"{path} was answered with {status}: {answer}")
            return []
        answers = [answer] if alone else answer["decisions" if key == "requests" else key]
        for thing, found in zip(things, answers, strict=True):
            self._take(thing, found, asked)
        return []

    def _take(self, thing: dict[str, Any], answer: dict[str, Any], asked: float) -> None:
        if "error" in answer:
            self._play.complain(f"{thing} was answered {answer}")
        elif "event_id" in answer:
            moved = {"status": answer["status"], "amount": round(100 * answer["amount"])}
            self._play.take_outcome(event_name(thing), moved)
        elif answer["decision_id"] is None:
            self._play.complain(f"{thing} was answered with 200 and no decision: {answer}")
        else:
            self._play.take_decision(thing["request_id"], answer, asked)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Ask one of the servers, on a connection that is kept."""
        port = self._random.choice(self._play.ports)
        if port not in self._open:
            self._open[port] = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            found = post(self._open[port], path, body)
        except BaseException:
            self._open.pop(port).close()
            raise
        self._play.answered[port] += 1
        return found
