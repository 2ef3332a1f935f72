"""The peers that benchmarks compare with: an environment of its own, made at first use, and how it is asked.

    python = peer_python(D3RLPY)
    answer = ask(python, "d3rlpy_bcq.py", log, 400, threads=1)      # the last line it prints, as JSON

pip, not uv: the first package is a wheel for the processor alone, which the second must not replace.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEERS = HERE / ".venv-peers"
D3RLPY = ("torch==2.13.0", "d3rlpy==2.8.1")
SCOPE_RL = (*D3RLPY, "scope-rl==0.2.1")
NEORL = ("torch==2.13.0", "gym==0.26.2", "tqdm==4.70.1")
THREADS = tuple(sorted({1, os.cpu_count() or 1}))  # PyTorch's threads wait for each other on a machine not quite idle


def peer_python(packages: Sequence[str]) -> Path:
    """The Python of an environment that has these packages (`name==version`); what is absent is installed, in order."""
    python = PEERS / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
    for package in packages:
        name, version = package.replace("-", "_").split("==")
        if not any(PEERS.glob(f"lib/python*/site-packages/{name}-{version}*.dist-info")):
            print(f"installing {package} into {PEERS.name} (minutes)", file=sys.stderr)
            subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
    return python


def ask(python: Path, script: str, *arguments: object, threads: int) -> Any:
    """What a script of `peers/` answers, in a fresh process with so many threads: its last line."""
    done = subprocess.run(
        [str(python), str(HERE / "peers" / script), *map(str, arguments)],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    return json.loads(done.stdout.strip().splitlines()[-1])
