"""Mutated campaign files and logs: outlay answers each with its result or with one error, and never with a traceback.

    .venv/bin/python benchmarks/mutated_input.py            # --each 334 --seed 0 --train-every 100

    file      a campaign file of amounts        log      its log
    named     one with names and a price each   once     its log, a row per user
    format    logs as JSON lines, Arrow, Excel, SQLite, and as CSV of other countries; `init`, then `check`
    init      drawn logs (`init_logs.py`); a draft that its own check rejects has failed

What is refused, and every finding but a note, has a place and a way out; else it has failed.

Every mutation is drawn from a seed, so that a failure can be repeated: `--seed` and the number that is printed name it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import importlib.util
import json
import random
import sqlite3
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as pafeather
import pyarrow.parquet as pq

import outlay
from init_logs import draw
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
NAMED = """[campaign]
name = "mails"
unit = "EUR"
none = "none"

[log]
source = "log.parquet"
user = "user_id"
action = "offer"
actions = ["none", "10 % off", "men's mail"]
reward = "active"
propensity = "p"
contrast = ["none", "10 % off"]

[log.features]
categorical = ["level"]
numeric = ["spend"]

[[budget]]
name = "mail_cost"
cost = { "10 % off" = 0.5, "men's mail" = 0.15 }
at_most = 0.2

[train]
layers = [8]
min_steps = 100
epochs = 0.1
batch = 64
"""
VALUES = (
    *("", "-1", "0", "1e300", "-1e300", "1e-300", "nan", "inf", "true", "99999999999999999999", "2027-03-01"),
    *('""', '"x"', '"user_id"', '"1/0"', '"sqrt(-1)"', '"coupon"', '"*"', '"select 1"', '"level; drop table log"'),
    *('"\\u0000"', '"é"', '"cast(day as date)"', '"no_such_column"', '"sum(active)"'),
    *('"none"', '"None"', '["none", "x"]', '{ "none" = 1 }', '{ x = "y" }', '"10 %"', "6", "[0, 5, 2]"),
    *("[]", "[1.0]", "[1.0, 1.0]", '["level", "level"]', "{}"),
)
Columns = dict[str, Any]
KINDS = ("file", "log", "named", "once", "format", "init")


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


def one_row_log(rows: int = 160) -> Columns:
    """A healthy log: a row per user, and actions with names."""
    columns = {name: values[:rows] for name, values in small_log().items() if name in ("level", "spend", "active", "p")}
    names = ["none", "10 % off", "men's mail"]
    return {"user_id": [f"u{i}" for i in range(rows)], **columns, "offer": [names[i * 7 % 3] for i in range(rows)]}


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


def write_format(folder: Path, columns: Columns, rng: random.Random) -> str:
    """Write it as a format of other tools, or as a CSV of another country, sometimes damaged; the name of the file."""
    frame = {name: [None if v is None else v for v in values] for name, values in columns.items() if name != "may"}
    texts = {name: ["" if v is None else str(v) for v in values] for name, values in frame.items()}
    kind = rng.choice(["jsonl", "json", "feather", "sqlite", "xlsx", "csv", "csv", "csv"])
    path = folder / f"log.{kind if kind != 'xlsx' or importlib.util.find_spec('python_calamine') else 'csv'}"
    rows = list(zip(*texts.values(), strict=True))
    if kind in ("jsonl", "json"):
        path.write_text("\n".join(json.dumps(dict(zip(texts, row, strict=True))) for row in rows), encoding="utf-8")
    elif kind == "feather":
        pafeather.write_feather(pa.table(texts), path)
    elif kind == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as store:
            heads = ", ".join('"' + name.replace('"', '""') + '"' for name in texts)
            with contextlib.suppress(sqlite3.Error):  # names that SQLite does not take
                store.execute(f"CREATE TABLE log ({heads})")
                store.executemany(f"INSERT INTO log VALUES ({', '.join('?' * len(texts))})", rows)
            store.commit()
    elif kind == "xlsx" and path.suffix == ".xlsx":
        path.write_bytes(rng.randbytes(400))  # no workbook at all
    else:
        encoding, sign = rng.choice(["utf-8", "utf-8-sig", "latin-1", "utf-16"]), rng.choice(";,\t|")
        day = rng.choice(["{:02d}.03.2026", "03/{:02d}/2026", "{:02d}/03/26", "2026-03-{:02d}", "{}"])
        if "day" in texts:
            texts["day"] = [day.format(int(v) + 1) if v.isdigit() else v for v in texts["day"]]
        if rng.random() < 0.5 and "spend" in texts:
            texts["spend"] = [v.replace(".", ",") + rng.choice(["", " €", "%"]) for v in texts["spend"]]
        with path.open("w", newline="", encoding=encoding, errors="replace") as file:
            lines = csv.writer(file, delimiter=sign)
            lines.writerow(texts)
            lines.writerows(zip(*texts.values(), strict=True))
    if rng.random() < 0.2:
        content = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 20) if content else 0):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
    return path.name


def placeless(error: OutlayError) -> bool:
    """Whether a refusal lacks its place or its way out."""
    return not (error.file or error.where) or not error.way_out


def drafted(folder: Path, log: Path) -> tuple[str, str]:
    """What `init` makes of a log, and `check` of its draft."""
    try:
        outlay.init(log, folder / "draft.toml")
    except OutlayError as error:
        return ("failed" if placeless(error) else "refused"), str(error)
    except Exception:
        return "failed", traceback.format_exc()
    try:
        found = outlay.check(folder / "draft.toml")
    except Exception:
        return "failed", traceback.format_exc()
    worst = [f for f in found.findings if f.level == "error" or (f.level == "warning" and not (f.where and f.way_out))]
    return ("failed", f"its own draft: {worst[0]}") if worst else ("done", "")


def outcome(folder: Path, *, train: bool) -> tuple[str, str]:
    """What outlay makes of the campaign in a folder: `done`, `refused` or `failed`, and the words."""
    path = folder / "campaign.toml"
    said = "done", ""

    def check() -> None:
        found = outlay.check(path)
        if bare := [f for f in found.findings if f.level != "note" and not (f.where and f.way_out)]:
            raise AssertionError(f"no place or no way out: {bare[0]}")

    steps: list[Callable[[], Any]] = [check, lambda: outlay.prepare(path, folder / "data")]
    if train:
        count_looks_in(folder)
        steps += [lambda: outlay.train(folder / "data", folder / "run"), lambda: outlay.evaluate(folder / "run")]
    for number, step in enumerate(steps):
        try:
            step()
        except OutlayError as error:
            if placeless(error):
                return "failed", f"no place or no way out: {error}"
            said = "refused", str(error)
            if number > 0:
                break
        except Exception:
            return "failed", traceback.format_exc()
    return said


def one(kind: str, number: int, seed: int, *, train: bool = False) -> tuple[str, str]:
    """The outcome of one mutation."""
    rng = random.Random(f"{seed} {kind} {number}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        columns, text = small_log(), CAMPAIGN
        if kind == "init":
            drawn = draw(np.random.default_rng([seed, number]), 200).columns
            if number % 2:
                drawn = mutated_columns(drawn, rng)
            return drafted(folder, folder / write_log(folder, drawn, rng))
        if kind == "format":
            return drafted(folder, folder / write_format(folder, mutated_columns(columns, rng), rng))
        if kind in ("named", "once"):
            columns, text = one_row_log(), NAMED
        if kind in ("file", "named"):
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
    options.add_argument("--each", type=int, default=334)
    options.add_argument("--kinds", default=",".join(KINDS))
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--train-every", type=int, default=100, help="train and evaluate on every so many; 0: never")
    given = options.parse_args()
    began = time.perf_counter()
    print(head("mutations", "done", "refused with one error", "failed"))
    failures = []
    for kind in given.kinds.split(","):
        count = given.each
        found: collections.Counter[str] = collections.Counter()
        for number in range(count):
            train = given.train_every > 0 and number % given.train_every == 0
            what, words = one(kind, number, given.seed, train=train)
            found[what] += 1
            if what == "failed":
                failures.append(f"{kind} {number}:\n{words}")
        print(f"| {count:,} of {kind} | {found['done']} | {found['refused']} | {found['failed']} |", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")
    for failure in failures:
        print(failure)


if __name__ == "__main__":
    main()
