"""docs/thresholds.md holds every threshold that can change a verdict, with the value that it has in the code."""

from __future__ import annotations

import ast
import importlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import outlay

PAGE = Path(__file__).parents[1] / "docs" / "thresholds.md"
SOURCE = Path(outlay.__file__).parent
ROW = re.compile(r"^\| `([\w.]+)` \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$")
NUMBER = re.compile(r"[A-Z][A-Z0-9_]*")

# Rooms and modules that decide: each number at the top of one of their modules is on the page, or below.
DECIDING = (
    *("estimators", "choosing", "evaluating", "experiments", "logs", "training"),
    *("ops/intervals.py", "ops/importance.py", "jobs/check.py"),
)

# Names that mean speed, memory, rounding or layout wherever they stand.
EVERYWHERE = re.compile(
    r"CELLS|FARTHEST|ROUNDING|SAMPLE|SHOWN|TINY|VALUES|(BATCH|BLOCK|CHUNK|PRODUCT|SAMPLE|SPREAD)_\w+"
)

# Others, by module.
SPEED = {  # speed and memory
    "choosing.estimates": "SAMPLED",
    "choosing.looks": "PATIENCE",
    "estimators.behaviour.check": "MOST_CELLS",
    "estimators.behaviour.logistic": "MOST_ENTRIES MOST_PRODUCTS MOST_WEIGHTS STEPS",
    "estimators.behaviour.model": "SHARE_STEPS",
    "estimators.day_effects": "MOST_ROWS",
    "estimators.long_run": "MOST_USERS",
    "estimators.markov": "MOST_ROWS",
    "estimators.regression": "LARGE",
    "estimators.row_features": "LEARN_ROWS",
    "evaluating.totalling": "MOST_CELLS",
    "experiments.lift": "EXACT",
    "logs.blocks": "ROWS",
    "logs.columns": "CHUNK",
    "logs.drivers": "MOST_ACTIONS MOST_FEATURES",
    "logs.evidence": "ROWS",
    "logs.encode": "FIELDS SAVE_SECONDS STRIP",
    "logs.fetch": "CHUNK",
    "logs.values": "MOST_AMOUNTS",
    "logs.randomisation": "MAX_FEATURES MAX_VALUES",
    "logs.vocabulary": "AGGREGATES DENSE PENDING",
    "ops.intervals": "BINS CHUNK DRAWS",
    "training.limits": "ROUNDS",
}
ROUNDING = {  # what arithmetic leaves, and when an iteration ends
    "choosing.budget_grid": "HALVINGS REFININGS",
    "choosing.own_margin": "ENOUGH STEPS",
    "estimators.behaviour.logistic": "SETTLED TOLERANCE",
    "estimators.behaviour.model": "SHARE_CHANGE",
    "evaluating.goals": "HALVINGS",
    "experiments.lift": "LONGEST",
    "experiments.moments": "CONSTANT",
    "experiments.sequential": "NODES_PER_STEP SLOWEST WIDEST",
    "logs.values": "AS_PRINTED NOISE",
    "logs.drivers": "LEAST",
    "logs.fetch": "EXACT",
    "logs.propensities": "SAME",
    "ops.intervals": "FLAT MANY NONE",
}
LAYOUT = {  # what is shown or guessed
    "choosing.budget_grid": "BUDGETS",
    "estimators.sensitivity": "MOST",
    "evaluating.curve": "BUDGETS",
    "evaluating.diagnostics": "LEAST_SHARE",
    "evaluating.goals": "GAINS MOST_WORTHS",
    "evaluating.totalling": "APART MOST_OTHERS OTHERS",
    "experiments.checks": "MOST_PARTS RAREST",
    "experiments.design": "WEEK",
    "experiments.split": "OUTSIDE",
    "experiments.words": "MOST MOST_DIGITS MOST_RUNS",
    "logs.by_day": "BINS MOST_SPANS",
    "logs.columns": "FEW PAIRS",
    "logs.clues": "LIKELY NEAR SURE",
    "logs.evidence": "BY_CHANCE CALIBRATED MOST_ARMS SPANS",
    "logs.guess": "MANY",
    "logs.who": "ODD PEOPLE SUMMED",
    "logs.naming": "MOST",
}
METHOD = {  # inside a method: ridges, folds, bins
    "estimators.basis": "RIDGE",
    "estimators.behaviour.check": "BINS",
    "estimators.behaviour.logistic": "ROUNDS STRONGEST WEAKEST",
    "estimators.behaviour.model": "PSEUDO_ROWS",
    "estimators.doubly_robust": "FOLDS",
    "estimators.long_run": "RIDGE",
    "estimators.row_features": "FOLDS KNOTS MOST_BENT MOST_FEATURES SHRINK WITHIN",
    "estimators.sequential": "RIDGE",
    "estimators.state_residuals": "FOLDS RIDGE",
    "estimators.windowed": "RIDGE",
    "logs.drivers": "EXPECTED FOLDS JOINT_ROWS",
    "logs.randomisation": "EXPECTED",
    "logs.sampled": "BINS",
    "logs.vocabulary": "BUCKETS",
}
EXCUSED = {
    f"{module}.{name}"
    for group in (SPEED, ROUNDING, LAYOUT, METHOD)
    for module, names in group.items()
    for name in names.split()
}


def listed() -> list[tuple[str, str]]:
    """Name and value of every row of the page's tables."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [(match[1], match[2]) for line in lines if (match := ROW.match(line))]


def written(value: str) -> Any:
    """What a cell of the column *value* says: `0.05`, `30,000`, `1e-6`, `(0.5, 1)`, `{1: 33}` or `ln 4`."""
    if value.startswith("ln "):
        return math.log(float(value.removeprefix("ln ")))
    return ast.literal_eval(re.sub(r"(?<=\d),(?=\d{3})", "", value))


def coded(name: str) -> Any:
    """The value of `module.NAME`, or the default of `module.Class.field`."""
    owner, last = name.rsplit(".", 1)
    try:
        return getattr(importlib.import_module(f"outlay.{owner}"), last)
    except ModuleNotFoundError:
        module, kind = owner.rsplit(".", 1)
        model = getattr(importlib.import_module(f"outlay.{module}"), kind)
        assert issubclass(model, BaseModel)
        return model.model_fields[last].default


def numbers(path: Path) -> Iterator[str]:
    """Names `module.NAME` of numbers, and of tuples of them, that a module gives a value of its own."""
    module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = [name for target in targets for name in getattr(target, "elts", [target]) if isinstance(name, ast.Name)]
        for name in (each.id for each in names if NUMBER.fullmatch(each.id)):
            value = getattr(importlib.import_module(f"outlay.{module}"), name)
            parts = value if isinstance(value, tuple) and value else (value,)
            if all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts):
                yield f"{module}.{name}"


def thresholds() -> list[str]:
    """All numbers of the modules that decide."""
    paths = [SOURCE / place for place in DECIDING]
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [name for file in files for name in numbers(file)]


def test_every_row_of_a_table_is_read() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(listed()) == len(rows) > 100
    assert len({name for name, _ in listed()}) == len(rows)


@pytest.mark.parametrize(("name", "value"), listed())
def test_the_page_says_what_the_code_says(name: str, value: str) -> None:
    assert coded(name) == written(value)


def test_every_threshold_of_the_code_is_on_the_page() -> None:
    """A new one goes into a table, with the benchmark that justifies it or "nothing yet"."""
    known = {name for name, _ in listed()} | EXCUSED
    missing = [name for name in thresholds() if name not in known and not EVERYWHERE.fullmatch(name.rsplit(".", 1)[1])]
    assert not missing


def test_nothing_is_excused_that_does_not_exist_or_is_on_the_page() -> None:
    assert not EXCUSED - set(thresholds())
    assert not EXCUSED & {name for name, _ in listed()}


def test_justifications_name_files_that_exist() -> None:
    root = PAGE.parents[1]
    for name in re.findall(r"`(tests/[\w/]+\.py)`", PAGE.read_text(encoding="utf-8")):
        assert (root / name).is_file(), name
    for name in re.findall(r"`(\w+\.py)\b", PAGE.read_text(encoding="utf-8")):
        assert (root / "benchmarks" / name).is_file(), name
