"""From a wide log to a bundle and its curve, as a user runs it: wall time and memory of each command.

    python benchmarks/wide_job.py  # the full size: 4.2 million rows × 1,000 fields; 20 GB of disk
    python benchmarks/wide_job.py --users 60000               # a tenth, five minutes
    python benchmarks/wide_job.py --log /data/wide            # a log that `outlay simulate wide` has written already

Each command runs in a process of its own. Memory is the peak of what the process and its children hold themselves
(`RssAnon`, read ten times a second from beginning to end), without the pages of mapped files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import head

PROGRAM = Path(sys.executable).with_name("outlay")


def own_memory(process: int) -> float:
    """GB that a process and its children hold now; 0 for what has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0.0
    own = next((int(line.split()[1]) * 1024 / 1e9 for line in status.splitlines() if line.startswith("RssAnon")), 0.0)
    return own + sum(own_memory(int(child)) for child in children)


def measured(arguments: list[str], folder: Path) -> str:
    """Run a command of outlay in a folder; a row of the table."""
    began, peak, reached = time.perf_counter(), 0.0, 0.0
    running = subprocess.Popen([PROGRAM, *arguments, "--quiet"], cwd=folder, stdout=sys.stderr)
    while running.poll() is None:
        now = own_memory(running.pid)
        if now > peak:
            peak, reached = now, time.perf_counter() - began
        time.sleep(0.1)
    if running.returncode:
        sys.exit(f"outlay {' '.join(arguments)} failed")
    seconds = time.perf_counter() - began
    return f"| `outlay {' '.join(arguments)}` | {clock(seconds)} | {peak:.2f} | {clock(reached)} |"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def main() -> None:
    """Run the commands one after another, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("users", 600_000), ("fields", 1000), ("values", 100_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--log", type=Path, help="the folder of a log that is there; default: one is simulated")
    options = parser.parse_args()
    print(head("command", "time", "own memory at its peak, GB", "reached after"), flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if options.log is None:
            sizes = [f"--{name}={getattr(options, name)}" for name in ("users", "fields", "values")]
            print(measured(["simulate", "wide", "--out", "log", *sizes], folder), flush=True)
        else:
            (folder / "log").symlink_to(options.log.resolve())
        for command in (["train", "log/campaign.toml", "--out", "run"], ["evaluate", "run"], ["frontier", "run"]):
            print(measured(command, folder), flush=True)


if __name__ == "__main__":
    main()
