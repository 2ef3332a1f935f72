"""A test of the small bundle's campaign with an arm of every kind, and a clock to walk through it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from outlay.experiments.design import Experiment, experiment_text
from outlay.serve.clock import Clock

START = datetime.date(2026, 3, 2)
BEGIN = datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC).timestamp()
RAMP = [{"day": 0, "coverage": 0.2}, {"day": 2, "coverage": 0.6}, {"day": 4, "coverage": 1.0}]


class Days(Clock):
    """Stands still until it is told the day of the test, which may be negative."""

    def __init__(self, day: float = 0.0) -> None:
        self.at = day
        super().__init__("UTC", lambda: BEGIN + 86_400 * self.at)


def trial(folder: Path, bundle: Path, ramp: Any = RAMP, arms: Any = (), **meta: Any) -> Experiment:
    """An experiment.toml in `folder`, read back: a bundle, a constant, a random arm and a holdout."""
    ours = [
        {"name": "old", "kind": "constant", "action": 1.5, "share": 0.25, "budget": 1_000.0},
        {"name": "new", "kind": "bundle", "bundle": str(bundle), "share": 0.25, "budget": 1_000.0},
        {"name": "even", "kind": "random", "share": 0.2, "budget": 1_000.0},
        {"name": "nobody", "kind": "holdout", "share": 0.1},
    ]
    first = {"name": "spring", "campaign": "coupons", "start": START, "days": 7, "metric": "active"}
    found = Experiment.parse({"experiment": first | meta, "ramp": ramp, "arm": list(arms or ours)})
    file = folder / f"{found.meta.name}.toml"
    file.write_text(experiment_text(found))
    return Experiment.load(file)
