"""Do 95% intervals hold the truth on a log with many fields? Logs of `outlay simulate wide`, all users evaluated.

    python benchmarks/wide_coverage.py                          # 100 logs of 5,000 users, 200 fields; ten minutes
    python benchmarks/wide_coverage.py --logs 20 --fields 1000
    python benchmarks/wide_coverage.py --fields 100 --values 10000 --history     # with [log.history]

The policies were not fitted on the users they are evaluated on: two constants, and the mixture that `train` makes of
another log of 20,000 users, which finds by itself which fields tell anything. Evaluation reads these fields alone, as
`outlay evaluate` does. On *wide* the test of the state finds that earlier days still predict what follows (numbers come
in intervals), so without `[log.history]` nothing is certified and every number has a caution; what is asked here is
whether its interval holds the truth all the same. `--history` adds what `outlay check` recommends. Columns are those of
`city_coverage.py`, over all numbers that have an interval.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import outlay
from city_coverage import DAYS, Answer, Ground, Policy, always, answers_of, member, summary
from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.choosing.estimates import estimate_policy
from outlay.choosing.evaluated_policy import OLD, EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.transitions import EVERYONE, Transitions
from outlay.simulators.city_people import PolicyValues
from outlay.simulators.city_truth import CityTruth
from outlay.simulators.wide import WideWorld

PILOT, SIMULATED = 20_000, 50_000
HISTORY = """
[log.history]
days = 7
columns = ["action", "reward", "coupon_cost"]
summaries = ["decayed"]
"""


def ground(fields: int, values: int) -> tuple[Ground, tuple[str, ...]]:
    """The policies, made on a log of their own, their values, and the fields that they read."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = outlay.simulate("wide", folder / "log", users=PILOT, seed=9_999, fields=fields, values=values)
        run = outlay.train(path, folder / "run")
        world, bundle = WideWorld.read(folder / "log"), load_bundle(run.bundle)
        read = tuple(field.name for field in bundle.schema.categorical)
        policies: dict[str, tuple[tuple[Policy, ...], tuple[float, ...]]] = {
            name: ((always(coupon),), (1.0,)) for name, coupon in (("always 2", 2.0), ("always 5", 5.0))
        }
        policies["trained"] = parts_of(bundle)
        true = true_values(world, read)
        truth = {name: true(*p, weights=w, days=DAYS).value for name, (p, w) in policies.items()}
        truth["old"] = true(None, days=DAYS).value
    return Ground("wide", policies, truth), read


def parts_of(bundle: Bundle) -> tuple[tuple[Policy, ...], tuple[float, ...]]:
    """The members of a bundle and their weights."""
    parts = tuple(member(bundle, i) for i in range(len(bundle.members)))
    return parts, tuple(float(weight) for weight in bundle.weights)


def true_values(world: WideWorld, read: Sequence[str]) -> PolicyValues:
    """Values of policies that read some of the fields."""
    return PolicyValues(CityTruth(world.city), users=SIMULATED, show=partial(world.show, fields=set(read)))


def one_log(
    at: Ground, read: tuple[str, ...], users: int, seed: int, history: bool, sizes: dict[str, Any]
) -> Iterator[Answer]:
    """All policies on one log, and differences to the old one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = outlay.simulate("wide", folder / "log", users=users, seed=seed, **sizes)
        if history:
            path.write_text(path.read_text() + HISTORY)
        outlay.prepare(path, folder / "data")
        data = Transitions.open(folder / "data").with_fields(list(read))
        log = pq.read_table(folder / "log" / "log.parquet", columns=list(read))
        measure = Measure(data, EVERYONE, None)
        propensity = measure.propensity()
        old = estimate_policy(measure, OLD, propensity, estimators=("fqe",))
        for name, (parts, weights) in at.policies.items():
            subject = EvaluatedPolicy(
                name, name, tuple(np.asarray(part(log)) for part in parts), np.array(weights), (0,) * len(parts), name
            )
            each = estimate_policy(measure, subject, propensity, estimators=("fqe", "fqe2"))
            rows = each.rows(data.campaign, 0.95)
            yield from answers_of(at, users, seed, name, rows, at.truth[name])
            gain = each.rows_less(old, data.campaign, 0.95)
            truth = {target: at.truth[name][target] - at.truth["old"][target] for target in at.truth[name]}
            yield from answers_of(at, users, seed, f"{name} − old", gain, truth)


def main() -> None:
    """Run the logs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("users", 5000), ("fields", 200), ("values", 20_000), ("logs", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--history", action="store_true", help="summaries of past days are part of the state")
    asked = parser.parse_args()
    at, read = ground(asked.fields, asked.values)
    print(f"{len(read)} of {asked.fields} fields are read", flush=True)
    answers: list[Answer] = []
    for seed in range(asked.logs):
        found = one_log(at, read, asked.users, seed, asked.history, {"fields": asked.fields, "values": asked.values})
        answers += [replace(answer, recommended=answer.low is not None) for answer in found]
    print(summary(answers))


if __name__ == "__main__":
    main()
