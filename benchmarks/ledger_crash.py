"""The ledger under `kill -9`: no overspend, no double spend, counters equal the sums of the rows.

    python benchmarks/ledger_crash.py                      # 200 rounds each on SQLite and on a PostgreSQL of its own
    python benchmarks/ledger_crash.py --rounds 20 --ledger sqlite:///crash.db

A round: writer processes open the ledger and, without a pause, record groups of 1 to 64 requests, redeem, refund and
release, all on ids that they share and repeat; each writes every answer into a journal once it has it. 20 to 200 ms
after all of them have had answers they are killed with SIGKILL. On PostgreSQL, every tenth round kills a process of the
server's own first, so that the whole server goes through its crash recovery. Then:

* `ledger.check()` finds nothing, and no more is committed than the cap;
* every answer in every journal is the answer in the ledger: one decision and one amount per request, one per event.

At the end the rest of the money is asked for, the last of it unit by unit: the ledger must give exactly the cap.

Result: one line of JSON per ledger on stdout, exit code 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps, Totals
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.ledger.records import EXPIRED, Outcome, OutcomeResult, Proposal, Recorded, new_decision_id
from own_postgres import own_postgres

CAMPAIGN = "crash"
CAP = 300_000  # minor units; all requests together ask for about three times as much
REQUESTS = 9_000
DAYS = 7
RECENT = 600  # requests from which the writers of one round draw
PATIENCE = 300.0  # seconds for what takes milliseconds, unless the machine has other work


@dataclass
class Tally:
    """What was seen.

    Attributes:
        broken: promises that did not hold, in words.
    """

    ledger: str
    rounds: int = 0
    kills: int = 0
    server_kills: int = 0
    answers: int = 0
    repeated: int = 0
    decisions: int = 0
    outcomes: int = 0
    committed: int = 0
    broken: list[str] = field(default_factory=list)


def request(number: int, now: int) -> Proposal:
    """Request `number`: whoever sends it, its amount, user, day and arm are the same."""
    rng = random.Random(number)
    amount = rng.randint(1, 200)
    return Proposal(
        campaign=CAMPAIGN,
        request_id=f"r{number}",
        body=f"b{number}",
        decision_id=new_decision_id(now),
        ts=now,
        day=rng.randrange(DAYS),
        arm=rng.choice(["main", "main", "random"]),
        user=f"u{rng.randrange(REQUESTS // 4)}",
        episode="e",
        bundle="b",
        member=None,
        action=amount / 100,
        action_index=1,
        amount=amount,
        probability=1.0,
        members="[]",
        features='{"level": "gold", "spend_28d": 12.5}',
        reason="policy",
        expires=now + rng.choice([50, 500, 10**9]),
        forced=False,
        none_action=0.0,
        none_index=-1,
    )


def event(decision_id: str, rng: random.Random, now: int) -> Outcome:
    """One of four events of a decision: whoever sends it, its amount is the same."""
    kind, name = rng.choice(["redeemed", "redeemed", "refund"]), rng.choice(["e1", "e2"])
    amount = random.Random(decision_id + kind + name).randint(0, 150)
    return Outcome(decision_id=decision_id, kind=kind, event_id=name, ts=0, received=now, amount=amount)


def write(url: str, journal: Path, seed: int, first: int) -> None:
    """A writer: works until it is killed."""
    rng = random.Random(seed)
    ledger = open_ledger(url)
    with journal.open("ab", buffering=0) as book:
        while True:
            now = time.time_ns() // 1_000_000
            low = first if rng.random() < 0.8 else 0  # some come again long after
            numbers = [rng.randrange(low, first + RECENT) for _ in range(rng.choice([1, 4, 64]))]
            with suppress(LedgerError):  # PostgreSQL is recovering; the same requests come again some time
                answers = ledger.record([request(number, now) for number in numbers])
                book.write(_lines((_asked(a), [a.decision_id, a.amount]) for a in answers))
                events = [event(a.decision_id, rng, now) for a in rng.sample(answers, min(8, len(answers)))]
                settled = ledger.outcomes(events)
                book.write(_lines((_name(s), [s.status, s.amount]) for s in settled))
                if rng.random() < 0.2:
                    ledger.release(CAMPAIGN, now)


def _lines(answers: Iterable[tuple[str, list[Any]]]) -> bytes:
    return b"".join(json.dumps(answer).encode() + b"\n" for answer in answers)


def _asked(answer: Recorded) -> str:
    """A request has two answers at most: the first one, and that it has expired."""
    return f"{answer.request_id} {EXPIRED}" if answer.reason == EXPIRED else answer.request_id


def _name(event: Outcome | OutcomeResult) -> str:
    return f"{event.decision_id} {event.kind} {event.event_id}"


def play(url: str, rounds: int, writers: int, folder: Path) -> Tally:
    """All rounds on a new ledger at `url`."""
    tally = Tally(url.split(":")[0])
    ledger = open_ledger(url)
    ledger.set_caps(CAMPAIGN, Caps(total=CAP, day=CAP // 3, arms={"random": CAP // 4}, user_amount=300, user_offers=3))
    ledger.close()
    seen: dict[str, list[Any]] = {}
    for number in range(rounds):
        _round(tally, url, number, int(number / rounds * (REQUESTS - RECENT)), writers, folder, seen)
        if tally.broken:
            return tally
    _spend_the_rest(tally, url)
    return tally


def _round(
    tally: Tally, url: str, number: int, first: int, writers: int, folder: Path, seen: dict[str, list[Any]]
) -> None:
    rng = random.Random(number)
    journals = [folder / f"{tally.ledger}-{number}-{writer}" for writer in range(writers)]
    fork = multiprocessing.get_context("fork")
    started = [
        fork.Process(target=write, args=(url, journal, number * writers + k, first))
        for k, journal in enumerate(journals)
    ]
    for process in started:
        process.start()
    _wait_for_work(journals)
    time.sleep(rng.uniform(0.02, 0.2))
    if number % 10 == 9 and tally.ledger == "postgresql":
        tally.server_kills += _kill_server_process(url)
    for process in rng.sample(started, writers):
        process.kill()
    for process in started:
        process.join()
    tally.rounds += 1
    tally.kills += sum(process.exitcode == -signal.SIGKILL for process in started)
    for journal in journals:
        journal.touch()  # killed before its first answer
        for line in journal.read_bytes().split(b"\n")[:-1]:  # the last may be cut short
            name, answer = json.loads(line)
            tally.answers += 1
            tally.repeated += name in seen
            if seen.setdefault(name, answer) != answer:
                tally.broken.append(f"{name} was answered {seen[name]} and then {answer}")
        journal.unlink()
    _inspect(tally, url, seen)


def _wait_for_work(journals: list[Path]) -> None:
    """Until each writer has had answers: on a slow disk a fixed time would be too short for some."""
    until = time.monotonic() + PATIENCE
    while not all(journal.exists() and journal.stat().st_size for journal in journals):
        if time.monotonic() > until:
            raise TimeoutError(f"a writer has written nothing in {PATIENCE:g} seconds")
        time.sleep(0.002)


def _inspect(tally: Tally, url: str, seen: dict[str, list[Any]]) -> None:
    """What the journals and the ledger say after everyone is dead."""
    ledger = reopened(url)
    totals = ledger.totals(CAMPAIGN)
    tally.broken += ledger.check() + above_caps(totals)
    stored: dict[str, list[Any]] = {}
    tally.decisions = tally.outcomes = 0
    now = time.time_ns() // 1_000_000
    for row in ledger.rows(CAMPAIGN, 0, 2**47):
        stored[row.request_id] = [row.decision_id, row.amount]
        if row.offer and row.expires <= now:
            stored[f"{row.request_id} {EXPIRED}"] = [row.decision_id, 0]
        stored |= {_name(outcome): [answer.status, answer.amount] for outcome, answer in row.outcomes}
        tally.decisions += 1
        tally.outcomes += len(row.outcomes)
    lost = [name for name, answer in seen.items() if stored.get(name) != answer]
    tally.broken += [f"{name} was answered {seen[name]}; the ledger has {stored.get(name)}" for name in lost[:20]]
    tally.committed = totals.total.reserved + totals.total.settled
    ledger.close()


def above_caps(totals: Totals) -> list[str]:
    """What is held above a cap, in words."""
    return [
        f"{name}: {scope.reserved} + {scope.settled} - {scope.excess} are more than {scope.cap}"
        for name, scope in [("total", totals.total), *totals.days.items(), *totals.arms.items()]
        if scope.cap is not None and scope.reserved + scope.settled - scope.excess > scope.cap
    ]


def reopened(url: str) -> Ledger:
    """The ledger, once its server has recovered."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(LedgerError):
            return open_ledger(url)
        time.sleep(0.1)
    return open_ledger(url)


def _spend_the_rest(tally: Tally, url: str) -> None:
    ledger = reopened(url)
    ledger.set_caps(CAMPAIGN, Caps(total=CAP))
    now, number = time.time_ns() // 1_000_000, REQUESTS
    before = ledger.totals(CAMPAIGN).total
    wanted = max(CAP, before.reserved + before.settled)  # redemptions cost more than was reserved
    for amount in (4096, 256, 16, 1):
        given = 1
        while given:
            number += 100
            group = [replace(request(number + k, now), amount=amount, expires=now + 10**9) for k in range(100)]
            given = sum(answer.amount for answer in ledger.record(group))
    total = ledger.totals(CAMPAIGN).total
    tally.committed = total.reserved + total.settled
    if tally.committed != wanted:
        tally.broken.append(f"the last units make {tally.committed}, not {wanted}")
    tally.broken += ledger.check()
    ledger.close()


def _kill_server_process(url: str) -> int:
    """Kill a process of the server that serves a writer: PostgreSQL then stops them all and recovers from its log."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        mine = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() limit 1"
        found = connection.execute(mine).fetchall()
    for (pid,) in found:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    return len(found)


def main() -> int:
    """Play, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--ledger", action="append", help="URL of a new ledger; default: one of each kind")
    given = parser.parse_args()
    broken = False
    with tempfile.TemporaryDirectory(prefix="outlay-crash-") as name, ExitStack() as stack:
        folder = Path(name)
        urls = given.ledger or [f"sqlite:///{folder / 'ledger.db'}", stack.enter_context(own_postgres(folder)).url()]
        for url in urls:
            tally = play(url, given.rounds, given.writers, folder)
            print(json.dumps(asdict(tally)), flush=True)
            broken |= bool(tally.broken)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
