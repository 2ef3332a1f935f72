"""What `[log.history]` adds to the time of `outlay prepare`.

    python benchmarks/prepare_past.py                   # 150,000 users, 14 days; two minutes
    python benchmarks/prepare_past.py --users 10000 --rounds 1

A log of the world *hidden* (`hidden_worlds.py`) with six columns of noise is prepared as it is, with the default
summaries of the action, the reward and the cost over 14 days, and with their lags, in turn. Printed are the seconds of
each round, and the medians of their ratios to the log as it is.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import outlay
from hidden_worlds import World

HISTORIES = {
    "as it is": "",
    "summaries": "\n[log.history]\ndays = 14\n",
    "lags": '\n[log.history]\ndays = 14\nsummaries = ["lags"]\n',
}


def main() -> None:
    """Prepare in turn and print seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=150_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {name: [] for name in HISTORIES}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        written = World("hidden", types=True, noise=6).write(folder, options.users, 1)
        campaigns = {name: folder / f"{i}.toml" for i, name in enumerate(HISTORIES)}
        for name, path in campaigns.items():
            path.write_text(written.read_text() + HISTORIES[name])
        for number in range(options.rounds):
            seconds = {}
            for name, path in campaigns.items():
                begin = time.perf_counter()
                outlay.prepare(path, folder / f"data {number} {name}")
                seconds[name] = time.perf_counter() - begin
            print(", ".join(f"{name} {taken:.1f} s" for name, taken in seconds.items()), flush=True)
            for name, taken in seconds.items():
                ratios[name].append(taken / seconds["as it is"])
    print(", ".join(f"{name} {statistics.median(each):.2f}" for name, each in ratios.items()))


if __name__ == "__main__":
    main()
