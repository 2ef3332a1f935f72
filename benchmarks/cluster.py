"""Two workers of a local Ray cluster beside one process: what the process group costs, and what a killed worker costs.

    python benchmarks/cluster.py                       # 20,000 users of the campaign city; six minutes
    python benchmarks/cluster.py --users 60000 --fields 1000     # the campaign wide, at its width

The networks of the orthogonal critic are trained by one process and by two workers that have one processor each, which
is the same work on the same processors, at two lengths; the seconds of a step are the difference of the two, so that
nothing that happens once is in them. Then a worker is killed a few seconds after a checkpoint. Printed are the
milliseconds of a step, the largest relative difference of the losses of a block, and the steps that were made twice.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from threading import Thread

import psutil  # type: ignore[import-untyped]

import outlay
from outlay.cluster.networks import NetworkSpec, train_networks
from outlay.core.progress import silent
from outlay.core.transitions import Transitions
from outlay.learning.checkpoint import PROGRESS
from outlay.learning.in_steps import train_through
from results import head

LEARNER = "orthogonal"


def spec_of(data: Path, folder: Path, epochs: float) -> NetworkSpec:
    """A training of so many epochs."""
    campaign = Transitions.open(data).campaign.with_train(epochs=epochs)
    return NetworkSpec(data, None, campaign, LEARNER, 0, 0, 1, LEARNER, folder)


def told(spec: NetworkSpec) -> tuple[int, float, list[float]]:
    """Steps, seconds and losses of a training that has ended."""
    found = json.loads((spec.folder / PROGRESS).read_text(encoding="utf-8"))
    return found["step"], found["seconds"], found["losses"]


def step_time(short: NetworkSpec, long: NetworkSpec) -> float:
    """Milliseconds of a step."""
    (steps, seconds, _), (more_steps, more_seconds, _) = told(short), told(long)
    return 1000 * (more_seconds - seconds) / (more_steps - steps)


def kill_after_checkpoint(folder: Path, found: list[int]) -> None:
    """Kill a worker five seconds after the first checkpoint; append the step of the last checkpoint before."""
    while not (folder / PROGRESS).exists():
        time.sleep(0.2)
    time.sleep(5)
    found.append(json.loads((folder / PROGRESS).read_text(encoding="utf-8"))["step"])
    worker = next(p for p in psutil.process_iter(["cmdline"]) if "RayTrainWorker" in " ".join(p.info["cmdline"] or []))
    worker.kill()


def main() -> None:
    """Train alone and together in turn, then kill a worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--fields", type=int, default=0, help="of the campaign wide; 0: the campaign city")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=float, nargs=2, default=(2.0, 6.0))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if options.fields:
            outlay.simulate("wide", folder / "log", users=options.users, fields=options.fields, values=100_000)
        else:
            outlay.simulate("city", folder / "log", users=options.users)
        data = folder / "data"
        outlay.prepare(folder / "log" / "campaign.toml", data)
        print(head("round", "one process, ms a step", "two workers, ms a step", "ratio", "losses differ by"))
        ratios, longest = [], 0.0
        for number in range(options.rounds):
            times = []
            curves = []
            for name in ("alone", "together"):
                specs = [spec_of(data, folder / f"{name}-{number}-{epochs}", epochs) for epochs in options.epochs]
                for spec in specs:
                    if name == "alone":
                        training, task = spec.open()
                        train_through(training, spec.folder, task.key, False, silent)
                    else:
                        train_networks(spec, spec.open()[0], 2, False, silent)
                times.append(step_time(specs[0], specs[1]))
                curves.append(told(specs[1])[2])
                longest = told(specs[1])[1]
            ratios.append(times[1] / times[0])
            apart = max(abs(a - b) / abs(a) for a, b in zip(*curves, strict=True))
            print(f"| {number + 1} | {times[0]:.1f} | {times[1]:.1f} | {ratios[-1]:.2f} | {apart:.1e} |", flush=True)
        print(f"median of the ratios: {statistics.median(ratios):.2f}")
        if longest < 25:
            print("too short for a checkpoint on the way, so no worker is killed: give more --epochs")
            return
        spec, kept = spec_of(data, folder / "killed", options.epochs[1]), list[int]()
        killer = Thread(target=kill_after_checkpoint, args=(spec.folder, kept))
        killer.start()
        begun = time.perf_counter()
        train_networks(spec, spec.open()[0], 2, False, silent)
        killer.join()
        print(
            f"a worker was killed 5 s after the checkpoint at step {kept[0]}; all {told(spec)[0]} steps took "
            f"{time.perf_counter() - begun:.0f} s with the start of the workers, twice"
        )


if __name__ == "__main__":
    main()
