"""`outlay score` on a long file, against bare onnxruntime with the same network and batches.

    python benchmarks/score_speed.py                       # 10 million rows × 20 fields, three rounds; six minutes
    python benchmarks/score_speed.py --rows 1000000 --fields 10

The bundle has one network of the size that training makes, with fields of 50 values and random weights, and a mixture
of two of its policies, so that every user is drawn. `outlay score` is timed as a command, from its start to the
finished Parquet file. Bare onnxruntime gets the encoded rows in memory, in batches of 1,024, which are the fastest, and
as many threads as the command has processes; nothing is read, allowed, drawn or written. Printed are rows a second, the
ratio of each round, and the largest process of the command in GB.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq

from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.arrays import Dense, NetworkArrays
from outlay.core.campaign import Campaign
from outlay.core.machine import processors
from outlay.core.schema import Categorical, Schema
from results import head

ACTIONS = [0.0, 1.0, 1.5, 2.0, 3.0]
VALUES, EMBEDDING, HIDDEN, BATCH = 50, 16, (256, 128), 1_024


def write(folder: Path, fields: int) -> Path:
    """The bundle."""
    rng = np.random.default_rng(0)

    def dense(width: int, out: int) -> Dense:
        weight = rng.normal(0, (2 / width) ** 0.5, (2, width, out)).astype(np.float32)
        return weight, np.zeros((2, out), np.float32)

    schema = Schema(tuple(Categorical(f"f{i}", tuple(map(str, range(VALUES)))) for i in range(fields)), ())
    campaign = Campaign.parse(
        {
            "campaign": {"name": "speed"},
            "log": {
                "source": "log.parquet",
                "user": "user_id",
                "time": "day",
                "action": "coupon",
                "reward": "active",
                "features": {"categorical": [field.name for field in schema.categorical]},
            },
            "budget": [{"name": "cost", "cost": "coupon * active", "at_most": 1.2}],
        },
        folder / "campaign.toml",
    )
    network = NetworkArrays(
        embedding=rng.normal(0, 1, (2, sum(schema.sizes), EMBEDDING)).astype(np.float32),
        offsets=np.cumsum((0, *schema.sizes))[:-1].astype(np.int64),
        layers=tuple(dense(a, b) for a, b in itertools.pairwise((EMBEDDING * fields, *HIDDEN))),
        head=dense(HIDDEN[-1], 2 * len(ACTIONS)),
        imitation=None,
        num_actions=len(ACTIONS),
    )
    members = tuple(
        MemberSpec(network, weight, [0.1 * i], [1.0, -0.1 * i], [0.2, 1.0]) for i, weight in enumerate((0.7, 0.3))
    )
    write_bundle(folder / "bundle", BundleSpec(campaign, schema, ACTIONS, ("reward", "cost"), members))
    return folder / "bundle"


def write_rows(path: Path, rows: int, fields: int) -> None:
    """Users and their fields."""
    rng = np.random.default_rng(1)
    writer = None
    for first in range(0, rows, 500_000):
        count = min(500_000, rows - first)
        columns = {f"f{i}": rng.integers(0, VALUES, count, np.int32) for i in range(fields)}
        users = pa.array(np.arange(first, first + count)).cast(pa.string())
        table = pa.table({"user_id": users, **columns})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=122_880)
    if writer:
        writer.close()


def bare(bundle: Path, rows: int, fields: int, threads: int) -> float:
    """Seconds of onnxruntime alone."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(bundle / "policy-0.onnx", options, providers=["CPUExecutionProvider"])
    codes = np.random.default_rng(2).integers(2, VALUES + 2, (100 * BATCH, fields)).astype(np.int32)
    session.run(["q"], {"codes": codes[:BATCH]})
    begin = time.perf_counter()
    for first in range(0, rows, BATCH):
        at = first % len(codes)
        session.run(["q"], {"codes": codes[at : at + min(BATCH, rows - first)]})
    return time.perf_counter() - begin


def main() -> None:
    """Time both in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 10_000_000), ("fields", 20), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        bundle, rows = write(folder, options.fields), folder / "rows.parquet"
        write_rows(rows, options.rows, options.fields)
        command = [str(Path(sys.executable).parent / "outlay"), "score", str(bundle), str(rows), "--quiet", "--out"]
        print(head("rows", "fields", "onnxruntime, rows/s", "outlay score, rows/s", "ratio", "GB"))
        ratios = []
        for _ in range(options.rounds):
            other = bare(bundle, options.rows, options.fields, processors())
            begin = time.perf_counter()
            subprocess.run([*command, str(folder / "decisions.parquet")], check=True)
            own = time.perf_counter() - begin
            ratios.append(other / own)
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
            print(
                f"| {options.rows:,} | {options.fields} | {options.rows / other:,.0f} | {options.rows / own:,.0f} | "
                f"{ratios[-1]:.2f} | {memory:.2f} |",
                flush=True,
            )
        print(f"median of the ratios: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
