"""How fast `outlay serve` answers, with every decision on disk before it leaves.

    python benchmarks/serve_speed.py                    # SQLite; about two minutes
    python benchmarks/serve_speed.py --postgres         # and a PostgreSQL of its own
    python benchmarks/serve_speed.py --features 2 --rounds 3

* **Throughput**: 64 connections, each with one decision at a time, against a Starlette route of the same messages that
  does nothing (`serve_bare.py`). Both take turns, and turns at going first, so that a machine that slows down slows
  both; the ratio is the median over rounds of the ratios within a round.
* **Latency** at 1,000 decisions a second, due at random moments whether the server is ready or not (`serve_load.py`).
* **Batches** of 100 and 1,000 decisions, from four connections.

Beside each stands the server's processor time for a decision, all its threads together: it says the same on a machine
that others use too, where the rest says little.

Served is a mixture of two networks of the default size (128, 64) with random weights, 7 actions; what is decided does
not matter here, the work does. At the end the ledger must hold a row for every decision that was answered, and its
counters must be the sums of its rows. Results: Markdown on stdout, benchmarks/out/serve_speed.json.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import serve_load
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.arrays import Dense, NetworkArrays
from outlay.core.campaign import Campaign
from outlay.core.history import History
from outlay.core.schema import Categorical, Numeric, Schema
from outlay.serve.ledger.backends import open_ledger
from own_postgres import own_postgres
from results import head, keep

CLIENTS = 64
ACTIONS = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
VALUES = 50  # of a categorical feature
STATES = 1_000  # different feature sets in the requests
_decisions = itertools.count(1, 1_000_000_000)  # every load asks with ids of its own


def schema(features: int) -> Schema:
    """Four fifths of the features are categorical."""
    numeric = features // 5
    return Schema(
        tuple(Categorical(f"category_{i}", tuple(map(str, range(VALUES)))) for i in range(features - numeric)),
        tuple(Numeric(f"number_{i}", 10, 4) for i in range(numeric)),
    )


def states(schema: Schema) -> list[dict[str, Any]]:
    """Features as callers send them."""
    rng = random.Random(0)
    return [
        {field.name: rng.randrange(VALUES + 1) for field in schema.categorical}
        | {field.name: round(rng.gauss(10, 4), 2) for field in schema.numeric}
        for _ in range(STATES)
    ]


def write(folder: Path, schema: Schema, *, reserve: Sequence[float] = ACTIONS, **log: Any) -> Path:
    """The bundle; `reserve` is what the log has seen each action cost, `log` further keys of the campaign's `[log]`."""
    names = {"categorical": [f.name for f in schema.categorical], "numeric": [f.name for f in schema.numeric]}
    log = {"source": "log.parquet", "user": "user", "time": "day", "action": "coupon", "reward": "active"} | log
    campaign = Campaign.parse(
        {
            "campaign": {"name": "speed", "unit": "yuan", "none": 0.0},
            "log": log | {"features": names},
            "budget": [{"name": "cost", "cost": "coupon * active", "at_most": 1.2}],
        },
        folder / "campaign.toml",
    )
    if (history := History.of(campaign)) is not None:
        summaries = tuple(Numeric(name, 0.5, 1.0) for name in history.names)
        schema = Schema(schema.categorical, (*schema.numeric, *summaries))
    members = tuple(
        MemberSpec(_network(schema, i), weight, [0.1 * i], [1.0, -0.1 * i], [0.2, 1.0])
        for i, weight in enumerate((0.7, 0.3))
    )
    spec = BundleSpec(campaign, schema, ACTIONS, ("reward", "cost"), members, reserve=reserve)
    write_bundle(folder / "bundle", spec)
    return folder / "bundle"


def _network(schema: Schema, seed: int) -> NetworkArrays:
    rng = np.random.default_rng(seed)

    def dense(width: int, out: int) -> Dense:
        weight = rng.normal(0, (2 / width) ** 0.5, (2, width, out)).astype(np.float32)
        return weight, np.zeros((2, out), np.float32)

    widths = (8 * len(schema.categorical) + 2 * len(schema.numeric), 128, 64)
    return NetworkArrays(
        embedding=rng.normal(0, 1, (2, sum(schema.sizes), 8)).astype(np.float32),
        offsets=np.cumsum((0, *schema.sizes))[:-1].astype(np.int64),
        layers=tuple(dense(a, b) for a, b in itertools.pairwise(widths)),
        head=dense(64, 2 * len(ACTIONS)),
        imitation=None,
        num_actions=len(ACTIONS),
    )


class Server:
    """A process that answers on `port`."""

    def __init__(self, process: subprocess.Popen[str], port: int, states: list[dict[str, Any]]) -> None:
        self.port = port
        self.answers = 0
        self.process = process
        self._states = states

    def load(self, play: Callable[..., serve_load.Load], *settings: Any) -> dict[str, float]:
        """Put a load on it, from a process of its own; a summary."""
        before = self._cpu()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            load = pool.apply(play, (self.port, self._states, next(_decisions), *settings))
        if load.wrong:
            sys.exit(f"{load.wrong} of {load.wrong + load.answers} requests were not decided.")
        self.answers += load.answers
        p50, p99, p999 = np.percentile(np.array(load.took) * 1e3, [50, 99, 99.9]).tolist()
        return {
            "per_second": load.answers / load.seconds,
            "p50_ms": p50,
            "p99_ms": p99,
            "p999_ms": p999,
            "max_ms": max(load.took) * 1e3,
            "server_cores": (self._cpu() - before) / load.seconds,
            "server_us": (self._cpu() - before) / load.answers * 1e6,
            "clients_cores": load.cpu / load.seconds,
        }

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(states: list[dict[str, Any]], port: Callable[[str], int], *command: str | Path) -> Iterator[Server]:
    """A server from its first line, in which `port` finds the port, until it is interrupted."""
    process = subprocess.Popen([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        yield Server(process, port(line), states)
    finally:
        process.send_signal(signal.SIGINT)
        print(process.communicate()[0], end="", file=sys.stderr)


def served(url: str, bundle: Path, states: list[dict[str, Any]], *options: str) -> Any:
    """`outlay serve`."""
    program = Path(sys.executable).with_name("outlay")
    command: tuple[str | Path, ...] = ("serve", bundle, "--ledger", url, "--cap", str(1e9), "--port", "0", *options)
    return running(states, lambda line: int(line.rsplit(":", 1)[1]), program, *command)


def bare(states: list[dict[str, Any]]) -> Any:
    """The route that does nothing."""
    return running(states, int, sys.executable, Path(__file__).with_name("serve_bare.py"))


def measure(server: Server, other: Server, rounds: int, seconds: float, rate: float) -> dict[str, Any]:
    """All loads on a server, and the first on the other one, in turns."""
    full, paced = serve_load.full, serve_load.paced
    server.load(full, CLIENTS, 1.0, 1), other.load(full, CLIENTS, 1.0, 1)
    pairs = []
    for number in range(rounds):  # whoever goes first alternates
        loads = {s: s.load(full, CLIENTS, seconds, 1) for s in ((other, server) if number % 2 else (server, other))}
        pairs.append((loads[other], loads[server]))
    result: dict[str, Any] = {
        "ratios": [mine["per_second"] / theirs["per_second"] for theirs, mine in pairs],
        "rounds": pairs,
        "bare, 64 clients": _middle([theirs for theirs, _ in pairs]),
        "64 clients": _middle([mine for _, mine in pairs]),
        f"{rate:,.0f} a second": server.load(paced, 4 * CLIENTS, 4 * seconds, rate),
    }
    for batch in (100, 1_000):
        result[f"batches of {batch:,}"] = _middle([server.load(full, 4, seconds, batch) for _ in range(rounds)])
    return result | {"ratio": statistics.median(result["ratios"])}


def _middle(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The medians over rounds."""
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def _verify(url: str, answers: int) -> None:
    ledger = open_ledger(url)
    wrong, totals = ledger.check(), ledger.totals("speed")
    rows = sum(1 for _ in ledger.rows("speed", 0, 1 << 47))
    ledger.close()
    if wrong or rows != answers:
        sys.exit(f"{rows} rows for {answers} answers; {wrong}")
    print(f"{rows:,} decisions in the ledger, {totals.total.offers:,} of them offers; sums agree.\n")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="of a round; the paced load takes four times as long"
    )
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--postgres", action="store_true")
    given = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="outlay-serve-") as name, ExitStack() as stack:
        folder, fields = Path(name), schema(given.features)
        bundle, sent = write(folder, fields), states(fields)
        urls = {"SQLite": f"sqlite:///{folder / 'ledger.db'}"}
        if given.postgres:
            urls["PostgreSQL"] = stack.enter_context(own_postgres(folder)).url()
        for kind, url in urls.items():
            with bare(sent) as other, served(url, bundle, sent) as server:
                results[kind] = measure(server, other, given.rounds, given.seconds, given.rate)
                answers = server.answers
            _print(kind, results[kind])
            _verify(url, answers)
    keep("serve_speed", settings=vars(given), results=results)


def _print(kind: str, result: dict[str, Any]) -> None:
    ratios = ", ".join(f"{ratio:.2f}" for ratio in result["ratios"])
    print(f"**{kind}**: {result['ratio']:.2f} of the bare route (rounds {ratios})\n")
    times = ("p50, ms", "p99, ms", "p99.9, ms", "longest, ms")
    print(head("load", "decisions a second", *times, "server, µs a decision", "server, cores", "clients, cores"))
    for load, r in result.items():
        if isinstance(r, dict):
            shown = " | ".join(f"{r[key]:.2f}" for key in ("p50_ms", "p99_ms", "p999_ms", "max_ms"))
            cores = f"{r['server_us']:.0f} | {r['server_cores']:.2f} | {r['clients_cores']:.2f}"
            print(f"| {load} | {r['per_second']:,.0f} | {shown} | {cores} |")
    print(flush=True)


if __name__ == "__main__":
    main()
