"""Is the state enough? The test on logs of worlds that are known: false alarms where it is, silence where it is not.

    python benchmarks/state_logs.py --worlds shop mild slow --users 20000 --seeds 1 2 3
    python benchmarks/state_logs.py --worlds hidden habits fatigue --users 20000 --seeds 1

Worlds of `known_worlds.py`, whose state is enough, and of `hidden_worlds.py`, which say so themselves (some hide what
another check is for). All users of a log are tested, as `outlay check` does; shown is the dependence that counts, or
else the one furthest from chance.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import hidden_worlds
import known_worlds
import outlay
from outlay.choosing.measure import Measure
from outlay.core.transitions import EVERYONE, Transitions
from results import head


def main() -> None:
    """Run the test on each log and print one row for each."""
    worlds: dict[str, hidden_worlds.World | known_worlds.World] = {**hidden_worlds.WORLDS, **known_worlds.WORLDS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=["shop", "mild", "slow"], choices=sorted(worlds))
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    asked = parser.parse_args()
    print(head("log", "truly enough", "found", "given state and action", "correlation", "error"), flush=True)
    for name in asked.worlds:
        for seed in asked.seeds:
            with tempfile.TemporaryDirectory() as folder:
                path = worlds[name].write(folder, users=asked.users, seed=seed)
                outlay.prepare(path, Path(folder) / "data")
                found = Measure(Transitions.open(Path(folder) / "data"), EVERYONE, None).state.markov_check
            worst, truly = found.dependences[0], getattr(worlds[name], "suffices", True)
            told = [f"{name} {seed}", "yes" if truly else "no", "enough" if found.ok else "not enough"]
            told += [f"{worst.outcome} by {worst.past}, {worst.lag}", f"{worst.correlation:+.4f}"]
            print(f"| {' | '.join(told)} | {worst.std_error:.4f} |", flush=True)


if __name__ == "__main__":
    main()
