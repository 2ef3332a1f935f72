"""`outlay serve` with bundles of very many fields or values: speed, and memory of each worker.

    python benchmarks/serve_wide.py                 # about four minutes

Ground: networks of the default size with random weights (`serve_speed.py`), categorical features only, every value
drawn evenly, which is the hardest case for the dictionaries of frequent values; SQLite; clients on the server's cores.

* 20 fields of 50 values, to compare with;
* 1,000 fields of 100 values: a log of the paper's width whose training kept every field;
* 10 fields of 100,000 values.

For each: decisions a second from 64 connections beside a route that only decodes the same messages, in turns; latency
of single decisions at a tenth of that rate; and the memory of one process that serves alone, beside that of each of
four workers, which share the vocabulary. Private is what a process has for itself; the rest is mapped files.
Results: Markdown on stdout, benchmarks/out/serve_wide.json.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import serve_load
import serve_speed
from outlay.core.schema import Categorical, Schema
from results import head, keep
from serve_speed import CLIENTS

GROUNDS = ((20, 50), (1_000, 100), (10, 100_000))  # fields, values of each
ROUNDS, SECONDS, WORKERS = 3, 4.0, 4


def schema(fields: int, values: int) -> Schema:
    """Categorical fields whose values are numbers."""
    texts = tuple(map(str, range(values)))
    return Schema(tuple(Categorical(f"category_{i}", texts) for i in range(fields)), ())


def states(fields: int, values: int) -> list[dict[str, Any]]:
    """Features as callers send them."""
    rng = random.Random(0)
    return [{f"category_{i}": rng.randrange(values) for i in range(fields)} for _ in range(serve_speed.STATES)]


def memory(process: int) -> dict[str, float]:
    """Private memory of a process and all that it maps, in MB."""
    lines = (line.split() for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:])
    kb = {line[0].rstrip(":"): int(line[1]) for line in lines}
    return {"private": (kb["Private_Clean"] + kb["Private_Dirty"]) / 1e3, "all": kb["Rss"] / 1e3}


def workers_of(launcher: int) -> list[int]:
    """Processes of the launcher that serve: those that map onnxruntime."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(child) for child in children if "onnxruntime" in Path(f"/proc/{child}/maps").read_text()]


def worker_memory(url: str, bundle: Path, sent: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Memory of each of several workers, once all of them have loaded the bundle and answered."""
    with serve_speed.served(url, bundle, sent, "--workers", str(WORKERS)) as server:
        until = time.monotonic() + 60
        while len(found := workers_of(server.process.pid)) < WORKERS and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(3)
        server.load(serve_load.full, CLIENTS, 2.0, 1)
        return [memory(process) for process in found]


def one(folder: Path, fields: int, values: int) -> dict[str, Any]:
    """All measurements of a bundle."""
    folder.mkdir()
    bundle, sent = serve_speed.write(folder, schema(fields, values)), states(fields, values)
    full = serve_load.full
    before = time.perf_counter()
    with serve_speed.served(f"sqlite:///{folder / 'alone.db'}", bundle, sent) as server:
        start = time.perf_counter() - before
        with serve_speed.bare(sent) as other:
            server.load(full, CLIENTS, 1.0, 1), other.load(full, CLIENTS, 1.0, 1)
            pairs = [[each.load(full, CLIENTS, SECONDS, 1) for each in (other, server)] for _ in range(ROUNDS)]
        rate = statistics.median(mine["per_second"] for _, mine in pairs)
        calm = server.load(serve_load.paced, CLIENTS, 2 * SECONDS, rate / 10)
        alone = memory(server.process.pid)
    return {
        "fields": fields,
        "values": values,
        "start_s": start,
        "per_second": rate,
        "ratio": statistics.median(mine["per_second"] / theirs["per_second"] for theirs, mine in pairs),
        "server_us": statistics.median(mine["server_us"] for _, mine in pairs),
        "calm": calm,
        "alone": alone,
        "workers": worker_memory(f"sqlite:///{folder / 'workers.db'}", bundle, sent),
    }


def main() -> None:
    """Measure, print, write."""
    with tempfile.TemporaryDirectory(prefix="outlay-serve-") as name:
        results = [one(Path(name) / f"{fields}-{values}", fields, values) for fields, values in GROUNDS]
    speed = ("decisions a second", "of the bare route", "server, µs", "p50, ms", "p99, ms", "start, s")
    print(head("fields × values", *speed, "alone: private, MB", "worker: private, MB", "worker: all, MB"))
    for r in results:
        calm = r["calm"]
        private, every = (statistics.median(each[key] for each in r["workers"]) for key in ("private", "all"))
        print(
            f"| {r['fields']:,} × {r['values']:,} | {r['per_second']:,.0f} | {r['ratio']:.2f} | "
            f"{r['server_us']:.0f} | "
            f"{calm['p50_ms']:.2f} | {calm['p99_ms']:.2f} | {r['start_s']:.1f} | "
            f"{r['alone']['private']:.0f} | {private:.0f} | {every:.0f} |"
        )
    keep("serve_wide", results=results)


if __name__ == "__main__":
    main()
