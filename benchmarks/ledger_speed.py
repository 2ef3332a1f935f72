"""Decisions a second that the ledger makes durable, and how long a commit takes.

    python benchmarks/ledger_speed.py

Groups of 1, 64 and 1,000 new decisions, each with its reservation, from one process without a pause; then two processes
at once with groups of 64; then 64 clients that each wait for their own decision through the group commit; then groups
of 64 where users are limited, and each user's counters have to be kept. On SQLite and on a PostgreSQL of its own.
Beside them the disk: one fdatasync of 4 KB. What a decision costs in processor time of this process is told too: where
the disk is slow, it says what a faster one would give.

Results: Markdown on stdout, benchmarks/out/ledger_speed.json.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from outlay.serve.handlers.commit import GroupCommit
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import Ledger
from outlay.serve.ledger.records import Proposal, new_decision_id
from own_postgres import own_postgres
from results import head, keep

SECONDS = 5.0
_numbers = itertools.count()


def decision(campaign: str = "speed") -> Proposal:
    """A new one, of a user among a million."""
    now, number = time.time_ns() // 1_000_000, next(_numbers)
    return Proposal(
        campaign=campaign,
        request_id=f"{os.getpid()}-{number}",
        body="0123456789abcdef0123456789abcdef",
        decision_id=new_decision_id(now),
        ts=now,
        day=now // 86_400_000,
        arm="main",
        user=f"user-{number * 7919 % 1_000_003}",
        episode="speed",
        bundle="0123456789abcdef",
        member=1,
        action=1.5,
        action_index=2,
        amount=150,
        probability=0.7,
        members="[1.5, 2.0, 1.5]",
        features='{"yesterday": "1", "level": "gold", "spend_28d": 12.5}',
        reason="policy",
        expires=now + 86_400_000,
        forced=False,
        none_action=0.0,
        none_index=0,
    )


def groups(ledger: Ledger, size: int, campaign: str = "speed") -> dict[str, float]:
    """Groups of `size`, one after the other."""
    took, cpu, until = [], 0.0, time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        group = [decision(campaign) for _ in range(size)]
        began, worked = time.perf_counter(), time.process_time()
        ledger.record(group)
        took.append(time.perf_counter() - began)
        cpu += time.process_time() - worked
    return _summary(took, len(took) * size / sum(took), cpu / len(took) / size)


def processes(url: str, number: int, size: int) -> dict[str, float]:
    """The same from several processes; commits of all of them together."""
    with multiprocessing.get_context("fork").Pool(number) as pool:
        seen = pool.starmap(_process, [(url, size)] * number)
    took = [seconds for one in seen for seconds in one]
    return _summary(took, len(took) * size / SECONDS)


def _process(url: str, size: int) -> list[float]:
    ledger = open_ledger(url)
    took, until = [], time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        group = [decision() for _ in range(size)]
        began = time.perf_counter()
        ledger.record(group)
        took.append(time.perf_counter() - began)
    ledger.close()
    return took


def clients(ledger: Ledger, number: int) -> dict[str, float]:
    """`number` clients in one event loop, each with one decision at a time; what a client waits."""
    took: list[float] = []

    async def client(record: GroupCommit[Proposal, Any], until: float) -> None:
        while time.perf_counter() < until:
            began = time.perf_counter()
            await record([decision()])
            took.append(time.perf_counter() - began)

    async def play() -> None:
        record = GroupCommit(ledger.record)
        until = time.perf_counter() + SECONDS
        await asyncio.gather(*(client(record, until) for _ in range(number)))
        await record.close()

    asyncio.run(play())
    return _summary(took, len(took) / SECONDS)


def disk(folder: Path) -> dict[str, float]:
    """One block, and the wait until it is there."""
    took = []
    with (folder / "block").open("wb", buffering=0) as file:
        for _ in range(500):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return _summary(took, 1 / float(np.mean(took)))


def _summary(seconds: list[float], rate: float, cpu: float = float("nan")) -> dict[str, float]:
    p50, p99 = np.percentile(np.array(seconds) * 1e3, [50, 99])
    return {"per_second": rate, "p50_ms": float(p50), "p99_ms": float(p99), "cpu_us": cpu * 1e6}


def main() -> None:
    """Measure, print, write."""
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="outlay-speed-") as name, ExitStack() as stack:
        folder = Path(name)
        results["disk: fdatasync of 4 KB"] = disk(folder)
        postgres = stack.enter_context(own_postgres(folder))
        urls = {"SQLite": f"sqlite:///{folder / 'ledger.db'}", "PostgreSQL": postgres.url()}
        for kind, url in urls.items():
            ledger = open_ledger(url)
            ledger.set_caps("speed", Caps(total=2**50))
            for size in (1, 64, 1000):
                results[f"{kind}: groups of {size}"] = groups(ledger, size)
            results[f"{kind}: 64 clients, group commit"] = clients(ledger, 64)
            results[f"{kind}: two processes, groups of 64"] = processes(url, 2, 64)
            ledger.set_caps("limited", Caps(total=2**50, user_day_offers=2**20))
            results[f"{kind}: groups of 64, users limited"] = groups(ledger, 64, "limited")
            ledger.close()
    print(head("case", "a second", "p50, ms", "p99, ms", "processor time a decision, µs"))
    for case, r in results.items():
        print(f"| {case} | {r['per_second']:,.0f} | {r['p50_ms']:.2f} | {r['p99_ms']:.2f} | {r['cpu_us']:.0f} |")
    keep("ledger_speed", results=results)


if __name__ == "__main__":
    main()
