"""A small test, as the content of its file."""

from __future__ import annotations

from typing import Any

from outlay.experiments.design import Experiment

OLD = {"name": "old", "kind": "constant", "action": 1.5, "share": 0.5, "budget": 20_000.0}
NEW = {"name": "new", "kind": "random", "share": 0.3, "budget": 12_000.0}
NONE = {"name": "none", "kind": "holdout", "share": 0.1}
RAMP = [{"day": 0, "coverage": 0.1}, {"day": 2, "coverage": 0.5}, {"day": 4, "coverage": 1.0}]


def content(**meta: Any) -> dict[str, Any]:
    """Three arms with shares 0.5, 0.3, 0.1, a ramp of three steps, 14 days; `meta` changes `[experiment]`."""
    first = {"name": "spring", "campaign": "habit", "start": "2026-03-02", "days": 14, "metric": "active"}
    return {"experiment": first | meta, "ramp": RAMP, "arm": [OLD, NEW, NONE]}


def spring(**meta: Any) -> Experiment:
    return Experiment.parse(content(**meta))
