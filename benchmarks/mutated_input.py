"""Mutated campaign files and logs: outlay answers each with its result or with one error, and never with a traceback.

    .venv/bin/python benchmarks/mutated_input.py            # --files 1000 --logs 1000 --seed 0 --train-every 100

Every mutation is drawn from a seed, so that a failure can be repeated: `--seed` and the number that is printed name it.
"""

from __future__ import annotations

import argparse
import collections
import random
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

import outlay
from outlay.core.errors import OutlayError
from own_looks import count_looks_in
from results import head

CAMPAIGN = """[campaign]
name = "coupons"
unit = "yuan"
discount = 0.8
horizon_days = 4
report_days = [1, 3]
none = 1.0

[log]
source = "log.parquet"
where = "level >= 0"
user = "user_id"
time = "day"
action = "coupon"
actions = [1.0, 2.0, 3.0]
reward = "active"
propensity = "p"
forced = "kept"
terminal = "gone"
eligible = "may"
complete = false
start = "first"
segment = "case when level > 1 then 'high' else 'low' end"
contrast = [1.0, 3.0]

[log.features]
categorical = ["level"]
numeric = ["spend"]

[[budget]]
name = "coupon_cost"
cost = "coupon * active"
at_most = 1.0
per = "decision"
reserve = "coupon"

[train]
layers = [8]
min_steps = 100
epochs = 0.1
batch = 64
shares = [0.6, 0.2, 0.2]
"""
VALUES = (
    *("", "-1", "0", "1e300", "-1e300", "1e-300", "nan", "inf", "true", "99999999999999999999", "2027-03-01"),
    *('""', '"x"', '"user_id"', '"1/0"', '"sqrt(-1)"', '"coupon"', '"*"', '"select 1"', '"level; drop table log"'),
    *('"\\u0000"', '"é"', '"cast(day as date)"', '"no_such_column"', '"sum(active)"'),
    *("[]", "[1.0]", "[1.0, 1.0]", '["level", "level"]', "{}"),
)
Columns = dict[str, Any]


def small_log(users: int = 60, days: int = 4) -> Columns:
    """A healthy log: a row per user and day."""
    rng = np.random.default_rng(0)
    rows = users * days
    coupon = rng.integers(1, 4, rows).astype(float)
    return {
        "user_id": [f"u{i // days}" for i in range(rows)],
        "day": [i % days for i in range(rows)],
        "level": rng.integers(0, 3, rows).tolist(),
        "spend": rng.normal(10, 4, rows).round(2).tolist(),
        "coupon": coupon.tolist(),
        "active": (rng.random(rows) < 0.2 + 0.1 * coupon).astype(float).tolist(),
        "p": [1 / 3] * rows,
        "kept": [False] * rows,
        "gone": [False] * rows,
        "may": [[1.0, 2.0, 3.0]] * rows,
    }


def mutated_text(text: str, rng: random.Random) -> str:
    """The file with one or two lines or characters changed."""
    lines = text.splitlines()
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        kind = rng.choice(["value", "value", "value", "drop", "twice", "key", "character", "move", "garbage"])
        if kind == "value" and equals:
            lines[at] = f"{key} = {rng.choice(VALUES)}"
        elif kind == "drop" and len(lines) > 1:
            del lines[at]
        elif kind == "twice":
            lines.insert(at, lines[at])
        elif kind == "key" and equals:
            lines[at] = f"{key[:-1]}{rng.choice('xyz_-. ')} = {lines[at].partition(' = ')[2]}"
        elif kind == "character" and lines[at]:
            place = rng.randrange(len(lines[at]))
            lines[at] = (
                lines[at][:place] + chr(rng.choice([0, 9, 34, 39, 91, 123, 8232, 65533])) + lines[at][place + 1 :]
            )
        elif kind == "move":
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        elif kind == "garbage":
            lines.insert(at, "".join(chr(rng.randint(32, 126)) for _ in range(rng.randint(1, 40))))
    return "\n".join(lines) + "\n"


def mutated_columns(columns: Columns, rng: random.Random) -> Columns:
    """The log with one or two columns spoilt."""
    columns = {name: list(values) for name, values in columns.items()}
    for _ in range(rng.randint(1, 2)):
        if not columns:
            break
        name = rng.choice(list(columns))
        values = columns[name]
        kind = rng.choice(
            [
                "drop",
                "none",
                "extreme",
                "extreme",
                "text",
                "same",
                "same",
                "type",
                "shuffle",
                "shuffle",
                "rename",
                "rows",
                "some",
                "some",
            ]
        )
        if kind == "drop":
            del columns[name]
        elif kind == "none":
            columns[name] = [None] * len(values)
        elif kind == "extreme":
            bad = rng.choice([float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 1e-300, 2.0**60, -1.0])
            columns[name] = [bad if rng.random() < 0.1 else v for v in values] if name != "may" else values
        elif kind == "text":
            columns[name] = [f"{rng.choice(['', 'NA', 'x', '7', '1e400'])}" for _ in values]
        elif kind == "same":
            columns[name] = [values[0]] * len(values) if values else values
        elif kind == "type":
            wraps: list[Callable[[Any], Any]] = [
                lambda x: [x],
                lambda x: {"a": x},
                lambda x: str(x).encode(),
                bool,
                str,
            ]
            wrapped = rng.choice(wraps)
            columns[name] = [wrapped(x) for x in values]
        elif kind == "shuffle":
            rng.shuffle(values)
            columns[name] = values
        elif kind == "rename":
            columns[rng.choice(["", "Active", "user", "__row", "a b", 'q"q', "x" * 300])] = columns.pop(name)
        elif kind == "rows":
            keep = rng.choice([0, 1, 2, 5, len(values) // 2])
            columns = {n: v[:keep] for n, v in columns.items()}
        elif kind == "some":
            columns[name] = [None if rng.random() < 0.05 else v for v in values]
    return columns


def write_log(folder: Path, columns: Columns, rng: random.Random) -> str:
    """Write it as Parquet or CSV, sometimes with damaged bytes; the name of the file."""
    try:
        table = pa.table(columns)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # values of several types
        table = pa.table({name: [None if v is None else str(v) for v in values] for name, values in columns.items()})
    flat = all(not pa.types.is_nested(field.type) for field in table.schema)
    name = rng.choice(["log.parquet", "log.csv"]) if flat and table.num_columns else "log.parquet"
    path = folder / name
    if name == "log.csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    if rng.random() < 0.1:
        content = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 20)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content[: rng.randint(0, len(content))] if rng.random() < 0.3 else content)
    return name


def outcome(folder: Path, *, train: bool) -> tuple[str, str]:
    """What outlay makes of the campaign in a folder: `done`, `refused` or `failed`, and the words."""
    path = folder / "campaign.toml"
    said = "done", ""
    steps: list[Callable[[], Any]] = [
        lambda: outlay.check(path),
        lambda: outlay.prepare(path, folder / "data"),
    ]
    if train:
        count_looks_in(folder)
        steps += [lambda: outlay.train(folder / "data", folder / "run"), lambda: outlay.evaluate(folder / "run")]
    for number, step in enumerate(steps):
        try:
            step()
        except OutlayError as error:
            said = "refused", str(error)
            if number > 0:
                break
        except Exception:
            return "failed", traceback.format_exc()
    return said


def one(kind: str, number: int, seed: int, *, train: bool = False) -> tuple[str, str]:
    """The outcome of one mutation; `kind` is `file` or `log`."""
    rng = random.Random(f"{seed} {kind} {number}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        columns, text = small_log(), CAMPAIGN
        if kind == "file":
            text, written = mutated_text(text, rng), "log.parquet"
            pq.write_table(pa.table(columns), folder / written)
        else:
            written = write_log(folder, mutated_columns(columns, rng), rng)
            if written == "log.csv":
                text = text.replace('eligible = "may"\n', "")
        (folder / "campaign.toml").write_text(text.replace('"log.parquet"', f'"{written}"'), encoding="utf-8")
        return outcome(folder, train=train)


def main() -> None:
    """Run all mutations and print what came of them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--files", type=int, default=1000)
    options.add_argument("--logs", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--train-every", type=int, default=100, help="train and evaluate on every so many; 0: never")
    given = options.parse_args()
    began = time.perf_counter()
    print(head("mutations", "done", "refused with one error", "failed"))
    failures = []
    for kind, count in (("file", given.files), ("log", given.logs)):
        found: collections.Counter[str] = collections.Counter()
        for number in range(count):
            train = given.train_every > 0 and number % given.train_every == 0
            what, words = one(kind, number, given.seed, train=train)
            found[what] += 1
            if what == "failed":
                failures.append(f"{kind} {number}:\n{words}")
        print(f"| {count:,} {kind}s | {found['done']} | {found['refused']} | {found['failed']} |", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")
    for failure in failures:
        print(failure)


if __name__ == "__main__":
    main()
