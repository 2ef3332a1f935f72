"""What it costs a decision of `outlay serve` to look up the user's past in a large ledger.

    python benchmarks/serve_past.py                     # SQLite; about five minutes
    python benchmarks/serve_past.py --postgres          # and a PostgreSQL of its own
    python benchmarks/serve_past.py --users 10000

A ledger with a decision of every user on each of the 14 days before today, a third of them with an outcome. Two bundles
are served on it in turn, alike but for `[log.history]` with days = 14; the reward is an SQL expression. One connection
asks for one decision at a time, about users far from one another in the ledger; then 64 connections do. Printed are the
medians over rounds. Results: Markdown on stdout, benchmarks/out/serve_past.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import serve_load
from outlay.core.schema import Schema
from outlay.serve.clock import EPOCH
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.records import Outcome, Proposal, new_decision_id
from own_postgres import own_postgres
from results import head, keep
from serve_speed import schema, served, states, write

DAYS, GROUP = 14, 2_000
REWARD = "case when active > 0 then 1 else 0 end"
MEMBERS = '{"members":[0,1],"actions":[2,3],"weights":[0.7,0.3]}'


def fill(url: str, users: int, features: list[dict[str, Any]]) -> None:
    """Write the days before today."""
    ledger, began = open_ledger(url), time.perf_counter()
    ledger.set_caps("speed", Caps())
    texts = [json.dumps(state) for state in features]
    today = (datetime.datetime.now(datetime.UTC).date() - EPOCH).days
    for day in range(today - DAYS, today):
        for start in range(0, users, GROUP):
            group = range(start, min(start + GROUP, users))
            ts = day * 86_400_000 + 43_200_000 + start
            made = [_proposal(user, day, ts, texts[(user + day) % len(texts)]) for user in group]
            ledger.record(made)
            ledger.outcomes(
                [
                    Outcome(decision_id=each.decision_id, kind="active", event_id="1", ts=ts, received=ts)
                    for each in made[day % 3 :: 3]
                ]
            )
    ledger.close()
    print(f"{users * DAYS:,} decisions written in {time.perf_counter() - began:.0f} s\n", flush=True)


def _proposal(user: int, day: int, ts: int, features: str) -> Proposal:
    index = (user + day) % 7
    return Proposal(
        campaign="speed",
        request_id=f"{day}-{user}",
        body="",
        decision_id=new_decision_id(ts),
        ts=ts,
        day=day,
        arm="policy",
        user=f"user-{user}",
        episode="speed",
        bundle="before",
        member=0,
        action=index / 2,
        action_index=index,
        amount=0,
        probability=0.7,
        members=MEMBERS,
        features=features,
        reason="policy",
        expires=ts,
        forced=False,
        none_action=0.0,
        none_index=0,
    )


def measure(
    url: str, bundles: dict[str, Path], sent: list[dict[str, Any]], users: int, rounds: int, seconds: float
) -> Any:
    """Latencies of both bundles in turn, milliseconds, and decisions a second."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in bundles}
    for _ in range(rounds):
        for name, bundle in bundles.items():
            with served(url, bundle, sent, "--change-settings") as server:
                server.load(serve_load.full, 1, 1.0, 1, users)
                for clients in (1, 64):
                    load = server.load(serve_load.full, clients, seconds, 1, users)
                    for key in ("p50_ms", "p99_ms", "per_second", "server_us"):
                        found[name].setdefault(f"{clients} {key}", []).append(load[key])
    return {name: {key: statistics.median(each) for key, each in loads.items()} for name, loads in found.items()}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--postgres", action="store_true")
    given = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="outlay-past-") as name, ExitStack() as stack:
        folder, fields = Path(name), schema(20)
        sent = states(fields)
        bundles = {key: _bundle(folder / key, fields, past=key == "past") for key in ("plain", "past")}
        urls = {"SQLite": f"sqlite:///{folder / 'ledger.db'}"}
        if given.postgres:
            urls["PostgreSQL"] = stack.enter_context(own_postgres(folder)).url()
        for kind, url in urls.items():
            fill(url, given.users, sent)
            results[kind] = measure(url, bundles, sent, given.users, given.rounds, given.seconds)
            _print(kind, results[kind])
    keep("serve_past", settings=vars(given), results=results)


def _bundle(folder: Path, fields: Schema, *, past: bool) -> Path:
    folder.mkdir()
    log: dict[str, Any] = {"history": {"days": DAYS}} if past else {}
    return write(folder, fields, reward=REWARD, **log)


def _print(kind: str, found: dict[str, dict[str, float]]) -> None:
    columns = ("", "p50, ms", "p99, ms", "64 connections: p50, ms", "decisions a second", "server, µs a decision")
    print(f"**{kind}**\n\n{head(*columns)}")
    for name, load in found.items():
        times = " | ".join(f"{load[key]:.2f}" for key in ("1 p50_ms", "1 p99_ms", "64 p50_ms"))
        print(f"| {name} | {times} | {load['64 per_second']:,.0f} | {load['64 server_us']:.0f} |")
    print(f"\nthe past: {found['past']['1 p50_ms'] - found['plain']['1 p50_ms']:+.2f} ms at the median\n", flush=True)


if __name__ == "__main__":
    main()
