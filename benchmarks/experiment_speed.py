"""Seconds and memory of `outlay experiment analyze` on ten million rows, as a user runs it.

    python benchmarks/experiment_speed.py [--rows 10000000]

Two logs, each Parquet on disk: a row per user and day (714,285 users over 14 days, in the order of days, as a server
exports them), and a row per user with the time before beside. Users are texts; there are two segments. The command runs
in a process of its own; memory is the peak resident set of that process. Targets: one minute and 2 GB.

Results: Markdown on stdout, benchmarks/out/experiment_speed.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import head, keep

PROGRAM = Path(sys.executable).with_name("outlay")
DAYS = 14

WRITE = """
import sys
import duckdb
from outlay.experiments.design import Experiment, experiment_text

rows, days, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
arms = [{"name": name, "kind": "constant", "action": 1.0, "share": 0.5, "budget": 1e9} for name in ("old", "new")]
meta = {"name": "speed", "campaign": "habit", "start": "2026-03-02", "days": days, "metric": "active",
        "guardrails": ["cost", "redemption"], "decisions": [7, days]}
with open(folder + "/experiment.toml", "w", encoding="utf-8") as handle:
    handle.write(experiment_text(Experiment.parse({"experiment": meta, "arm": arms})))
who = '''concat('user-', u) AS "user", CASE WHEN hash(u) % 2 = 0 THEN 'old' ELSE 'new' END AS arm,
    CASE WHEN u % 3 = 0 THEN 'inactive' ELSE 'active' END AS segment'''
connection = duckdb.connect(config={"memory_limit": "2GB", "temp_directory": folder})
connection.execute("SET enable_progress_bar = false")
connection.execute(f'''COPY (SELECT *, active * 2.0 * (random() < 0.6)::int AS paid FROM (
    SELECT {who}, DATE '2026-03-02' + d::int AS day, (random() < 0.3 + 0.1 * (u % 5))::int AS active
    FROM range({rows // days}) AS a(u), range({days}) AS b(d)) ORDER BY day, hash("user"))
    TO '{folder}/days.parquet' (FORMAT parquet)''')
connection.execute(f'''COPY (SELECT *, active * random() AS cost, active_before * random() AS cost_before FROM (
    SELECT {who}, floor(random() * 8) + u % 5 AS active, floor(random() * 8) + u % 5 AS active_before
    FROM range({rows}) AS a(u))) TO '{folder}/users.parquet' (FORMAT parquet)''')
"""


def timed(log: Path, experiment: Path) -> dict[str, float]:
    """Seconds and peak GB of one analysis."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [PROGRAM, "experiment", "analyze", log, "--experiment", experiment, "--day", "14"],
        stdout=sys.stderr,
        stderr=sys.stderr,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"the analysis of {log} failed")
    unit = 1 if sys.platform == "darwin" else 1024
    cpu = usage.ru_utime + usage.ru_stime
    return {"seconds": time.perf_counter() - began, "cpu": cpu, "peak_gb": usage.ru_maxrss * unit / 1e9}


def main() -> None:
    """Write both logs, analyse each, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    results = {}
    with tempfile.TemporaryDirectory(prefix="outlay-") as folder:
        subprocess.run([sys.executable, "-c", WRITE, str(rows), str(DAYS), folder], check=True)
        for name, text in (("days", "a row per user and day"), ("users", "a row per user")):
            results[text] = timed(Path(folder) / f"{name}.parquet", Path(folder) / "experiment.toml")
    print(head(f"log of {rows:,} rows", "seconds", "of processor", "peak memory"))
    for text, found in results.items():
        print(f"| {text} | {found['seconds']:.1f} | {found['cpu']:.1f} | {found['peak_gb']:.2f} GB |")
    keep("experiment_speed", rows=rows, results=results)


if __name__ == "__main__":
    main()
