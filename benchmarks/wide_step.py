"""A gradient step of the orthogonal critic at full width, against the same network written plainly in PyTorch.

    python benchmarks/wide_step.py                       # 1,000 fields, 100,000 values, batch 512; three minutes
    python benchmarks/wide_step.py --fields 20 --values 500 --steps 200
    python benchmarks/wide_step.py --device cuda         # on a GPU, with outlay[cuda] and a PyTorch that has CUDA

The networks, the averages of their weights, V of the next states, the batch, the log and the threads are the same, and
the loss has the same terms. Two rows for PyTorch: AdamW over everything; and `nn.Embedding(sparse=True)` with
SparseAdam, which touches only the rows of a batch. In each round every one of them runs in a process of its own.
Printed are the milliseconds a step, how many times those of outlay they are (the median of the rounds), and the peak
memory of the process. The first steps, with the compiler's time, are printed apart. `compiled` is the share of the wall
time of outlay's steps inside the compiled call, where it does not wait for a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import outlay
from outlay.core.transitions import LEARN, Transitions
from outlay.learning.heads import critic_coordinates
from outlay.learning.orthogonal import Orthogonal
from peers_environment import ask, peer_python
from results import head

PEER = ("torch==2.13.0", "numpy==2.3.5")
PEER_ROWS = 20_000  # of the log, for PyTorch
FEW = 20_000  # rows from which the units of the outcomes are taken
ENDLESS = 1000.0  # epochs: neither looks nor refits of V fall into the steps that are timed
NAMES = {"own": "outlay", "dense": "PyTorch, AdamW", "sparse": "PyTorch, SparseAdam"}


def training(folder: Path) -> Orthogonal:
    """The critic's training on DATA, with the settings of the campaign file."""
    data = Transitions.open(folder)
    coords = critic_coordinates(data.campaign, np.asarray(data.outcome[:FEW]), steady=data.steady)
    train = data.campaign.train.model_copy(update={"epochs": ENDLESS})
    bound = np.ones(len(data.campaign.budgets))
    return Orthogonal(data, train, coords, bound, 0, data.rows_of(LEARN), 0)


def time_own(folder: Path, steps: int) -> None:
    """Print the seconds of a step, as JSON."""
    began = time.perf_counter()
    of = training(folder)
    going = of.blocks(of.begin())
    first = next(going)  # compiles
    compiling, done, inside, before = time.perf_counter() - began, first.step, first.seconds, time.perf_counter()
    for progress in going:
        if progress.step >= done + steps:
            break
    wall = time.perf_counter() - before
    print(
        json.dumps(
            {
                "seconds": wall / (progress.step - done),
                "compiled": (progress.seconds - inside) / wall,
                "first": compiling,
                "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
            }
        )
    )


def dump(folder: Path, path: Path) -> None:
    """Write the first rows and the sizes of the networks for the peer."""
    of = training(folder)
    data, rows = of.data, np.arange(min(PEER_ROWS, len(of.data)))
    following = np.asarray(data.next_row[rows]).astype(np.int64)
    following = np.where((following < 0) | (following >= len(rows)), rows, following)
    np.savez(
        path,
        codes=data.codes(rows, data.code_type),
        next=following,
        outcome=data.outcome[rows],
        action=np.asarray(data.action[rows], np.int64),
        sizes=np.array(data.schema.sizes),
        batch=of.train.batch,
        embedding=of.train.embedding,
        layers=of.train.layers,
        actions=data.num_actions,
        heads=data.outcome.shape[1],
        functions=of.shape.num_functions,
    )


def main() -> None:
    """Write the log, time the three in turn, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("users", 6000), ("fields", 1000), ("values", 100_000), ("steps", 50), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--own", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.own is not None:
        time_own(options.own, options.steps)
        return
    os.environ["JAX_PLATFORMS"] = options.device  # of the processes that it starts
    threads, python = os.cpu_count() or 1, peer_python(PEER)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        outlay.simulate("wide", folder / "log", users=options.users, fields=options.fields, values=options.values)
        outlay.prepare(folder / "log/campaign.toml", folder / "data")
        dump(folder / "data", folder / "peer.npz")
        for _ in range(options.rounds):
            of_own = ("--own", folder / "data", "--steps", options.steps)
            found["own"].append(ask(Path(sys.executable), "../wide_step.py", *of_own, threads=threads))
            for kind in ("dense", "sparse"):
                asked = (folder / "peer.npz", options.steps // 2, kind, options.device)
                found[kind].append(ask(python, "torch_step.py", *asked, threads=threads))
    print(head("step of", "ms, each round", "times outlay's", "peak memory, GB", "first step, s", "compiled"))
    for name, rounds in found.items():
        ratio = statistics.median(
            peer["seconds"] / own["seconds"] for peer, own in zip(rounds, found["own"], strict=True)
        )
        each = ", ".join(f"{1e3 * part['seconds']:.1f}" for part in rounds)
        own = f"{rounds[0]['first']:.0f} | {rounds[0]['compiled']:.0%}" if name == "own" else "– | –"
        print(f"| {NAMES[name]} | {each} | {ratio:.2f} | {max(part['peak'] for part in rounds):.2f} | {own} |")


if __name__ == "__main__":
    main()
