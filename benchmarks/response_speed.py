"""Seconds that the response models take to learn and to answer, on the habit log.

    python benchmarks/response_speed.py            # 600,000 users × 7 days: 4.2 million rows, 2 features; 3 rounds

DeepFM and DIN (a week of history) take turns, so that a machine that slows down slows both. Both are evaluated row by
row in training: the log's few distinct states are no help to them. The time to learn is wall time of `fit`, that is
gathering on the host and two epochs of gradient steps at batch 512; compiling happens in a short fit before and is told
separately. The target is 60 s for DeepFM on two cores. Answers are to all incentives; DeepFM has them from one
evaluation per distinct state. Results: Markdown on stdout, benchmarks/out/response_speed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from outlay.core.looking_back import with_lags
from outlay.jobs.prepare import prepare
from outlay.jobs.simulate import simulate
from outlay.response.answers import Response
from outlay.response.labels import k_day_labels
from outlay.response.model import Kind, fit

OUT = Path(__file__).parent / "out"
KINDS: tuple[Kind, ...] = ("deepfm", "din")
EPOCHS = 2.0
BATCH = 512
ASKED = 200_000  # rows that are predicted, all incentives


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall seconds of a call, and what it gave."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def main() -> None:
    """Prepare the log, let the two take turns, print and write the result."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--users", type=int, default=600_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--label-days", type=int, default=1)
    given = options.parse_args()
    OUT.mkdir(exist_ok=True)
    path = simulate("habit", OUT / "response-habit", users=given.users)
    data = prepare(path, OUT / "response-habit-data")
    label_seconds, (rows, label) = seconds(lambda: k_day_labels(data, given.label_days))
    seen = {"deepfm": data, "din": with_lags(data, 7)}
    train = data.campaign.train.model_copy(update={"epochs": EPOCHS, "min_steps": 0, "batch": BATCH})

    def compile_seconds(kind: Kind) -> float:
        """Seconds of a first block of steps, less those of a second one."""
        short, few = train.model_copy(update={"epochs": 1e-9}), 100 * BATCH
        once, again = (
            seconds(lambda: fit(seen[kind], rows[:few], label[:few], response=kind, train=short)) for _ in "ab"
        )
        return once[0] - again[0]

    result: dict[str, Any] = {
        "rows": len(rows),
        "users": given.users,
        "label_days": given.label_days,
        "label_seconds": label_seconds,
        "batch": BATCH,
        "epochs": EPOCHS,
        "layers": train.layers,
        "cores": os.cpu_count(),
        "machine": platform.platform(),
        "models": {kind: {"compile": compile_seconds(kind), "learn": []} for kind in KINDS},
    }
    trained: dict[Kind, Response] = {}
    for _ in range(given.rounds):
        for kind in KINDS:
            taken, trained[kind] = seconds(partial(fit, seen[kind], rows, label, response=kind, train=train))
            result["models"][kind]["learn"].append(taken)
    asked = rows[:: max(1, len(rows) // ASKED)][:ASKED]
    for kind, model in trained.items():
        model.predict(seen[kind], asked)  # compiles
        answers, _ = seconds(partial(model.predict, seen[kind], asked))
        result["models"][kind] |= {"answers_per_second": len(asked) / answers, "parameters": model.num_parameters}
    result["peak_gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    (OUT / "response_speed.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    steps = EPOCHS * len(rows) / BATCH
    print(
        f"{len(rows):,} rows, labels of {given.label_days} days in {label_seconds:.1f} s, peak memory "
        f"{result['peak_gigabytes']:.2f} GB\n"
    )
    print("| model | learn, two epochs, median (all rounds) | steps a second | compile | rows answered a second |")
    print("|---|---|---|---|---|")
    for name, found in result["models"].items():
        middle, rounds = statistics.median(found["learn"]), ", ".join(f"{s:.1f}" for s in found["learn"])
        print(
            f"| {name} | {middle:.1f} s ({rounds}) | {steps / middle:,.0f} | {found['compile']:.1f} s | "
            f"{found['answers_per_second']:,.0f} |"
        )


if __name__ == "__main__":
    main()
