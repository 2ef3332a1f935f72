"""What the scripts of public grounds share: the two commands of a job, with seconds, memory and what they said.

found = job(folder / "campaign.toml", folder / "run", seed=1)
found["told"], found["verdict"], found["train_s"]      # the run is in folder / "run"
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from own_looks import count_looks_in

PROGRAM = str(Path(sys.executable).with_name("outlay"))

# A child's peak starts at what the process that forked it held: so a small one stands between.
WATCHED = """
import os, sys
pid = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def timed(*arguments: str | Path) -> tuple[float, float]:
    """Run a command of outlay: seconds and peak GB."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, PROGRAM, *map(str, arguments)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"outlay {' '.join(map(str, arguments))} failed:\n{done.stderr}")
    return time.perf_counter() - began, int(done.stderr.split()[-1]) / 1e9


def job(campaign: Path, run: Path, *, seed: int, options: Sequence[str] = ()) -> dict[str, Any]:
    """Train on a campaign file and evaluate the run; what they took and what they said of the mixture.

    Looks are counted in the folder of the run.
    `measured` is reward and costs of the mixture as select users measure them, `margin` the room left below the limit.
    """
    count_looks_in(run.parent)
    train_s, train_gb = timed("train", campaign, "--out", run, "--seed", str(seed), "--overwrite", "--quiet", *options)
    evaluate_s, evaluate_gb = timed("evaluate", run, "--quiet")
    manifest, result = (json.loads((run / name).read_text()) for name in ("manifest.json", "estimates.json"))
    budget, members = result["certificate"]["budgets"], manifest["members"]
    return {
        "seed": seed,
        "told": {
            e["target"]: [e["value"], e["low"], e["high"]]
            for e in result["estimates"]
            if e["policy"] == result["subject"] and e["estimator"] == "fqe" and e["value"] is not None
        },
        "certified": result["certificate"]["certified"],
        "spends": budget[0]["value"] if budget else None,
        "limit": budget[0]["limit"] if budget else None,
        "grade": result["grade"],
        "verdict": result["verdict"]["kind"],
        "words": result["verdict"]["words"],
        "margin": manifest.get("margin"),
        "measured": [
            sum(m["weight"] * figure for m, figure in zip(members, figures, strict=True))
            for figures in zip(*(m["fitted"] for m in members), strict=True)
        ]
        if all(m["fitted"] for m in members)
        else None,
        "to_constants": sum(m["weight"] for m in members if m["number"] is None),
        "folds": manifest.get("folds"),
        "train_s": train_s,
        "evaluate_s": evaluate_s,
        "peak_gb": max(train_gb, evaluate_gb),
    }
