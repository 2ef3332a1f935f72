"""`outlay prepare` on a wide log, against DuckDB alone that scans the same Parquet and writes it again.

    python benchmarks/wide_prepare.py                    # 60,000 users, 1,000 fields, 100,000 values; two minutes
    python benchmarks/wide_prepare.py --users 6000 --rounds 1
    python benchmarks/wide_prepare.py --users 600000     # the full width and length of the paper's log; 20 GB of disk

The log of the campaign *wide* is written once. Then, in turn, DuckDB copies it (`COPY (SELECT * FROM …) TO …`, with row
groups of 8,192 rows) and `prepare` makes DATA of it, each in a process of its own, with the same threads and the same
limit of DuckDB's memory. Printed are the seconds of each round, the median of their ratios, the peak memory of the
process (what it holds itself, and with the pages of mapped files that happen to be in memory), and the size of DATA.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import outlay
from results import head

PEAK = """
import threading, time

def resident(kind):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(kind)) / 1e6

peak = [0.0]

def watch():
    while True:
        peak[0] = max(peak[0], resident("RssAnon"))
        time.sleep(0.02)

threading.Thread(target=watch, daemon=True).start()
"""
DUCKDB = """
import json, sys, time, duckdb
log, out, threads, memory, spill = sys.argv[1:]
connection = duckdb.connect(config={"threads": int(threads), "memory_limit": memory, "temp_directory": spill})
connection.execute("SET enable_progress_bar = false")
begin = time.perf_counter()
connection.execute(f"COPY (SELECT * FROM '{log}') TO '{out}' (ROW_GROUP_SIZE 8192)")
seconds = time.perf_counter() - begin
"""
PREPARE = """
import json, sys, time, outlay
campaign, out, threads, memory = sys.argv[1:]
begin = time.perf_counter()
outlay.prepare(campaign, out, threads=int(threads), memory=memory)
seconds = time.perf_counter() - begin
"""
TOLD = """
print(json.dumps({"seconds": seconds, "own": peak[0], "all": resident("VmHWM")}))
"""


def measured(program: str, *arguments: object) -> dict[str, float]:
    """Run a program in a process of its own: seconds, and peak memory in GB (`own`, and `all` with mapped files)."""
    command = [sys.executable, "-c", PEAK + program + TOLD, *map(str, arguments)]
    told: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return told


def size(folder: Path) -> float:
    """GB of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e9


def main() -> None:
    """Write the log, copy and prepare it in turn, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("users", 60_000), ("fields", 1000), ("values", 100_000), ("rounds", 3), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--memory", default="2GB", help="of DuckDB")
    options = parser.parse_args()
    print(
        head(
            "rows", "fields", "DuckDB, s", "prepare, s", "ratio", "peak memory, GB", "with mapped files, GB", "DATA, GB"
        )
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        outlay.simulate("wide", folder / "log", users=options.users, fields=options.fields, values=options.values)
        rounds = []
        for number in range(options.rounds):
            copy, data = folder / "copy.parquet", folder / f"data{number % 2}"
            duckdb = measured(
                DUCKDB, folder / "log/log.parquet", copy, options.threads, options.memory, folder / "spill"
            )
            copy.unlink()
            time.sleep(1)
            own = measured(PREPARE, folder / "log/campaign.toml", data, options.threads, options.memory)
            rows = json.loads((data / "manifest.json").read_text())["rows"]
            rounds.append(
                (
                    duckdb["seconds"],
                    own["seconds"],
                    own["seconds"] / duckdb["seconds"],
                    own["own"],
                    own["all"],
                    size(data),
                )
            )
            print(f"| {rows:,} | {options.fields:,} | " + " | ".join(f"{x:.2f}" for x in rounds[-1]) + " |", flush=True)
        medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
        print("| median | | " + " | ".join(f"{x:.2f}" for x in medians) + " |")


if __name__ == "__main__":
    main()
