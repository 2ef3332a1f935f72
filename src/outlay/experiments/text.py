"""experiment.toml as text, with comments and the seal."""

from __future__ import annotations

import json
from typing import Any

from outlay.experiments.design import Arm, Experiment

MEANINGS = {
    "salt": "of the draw of arms; every test needs its own",
    "start": "day 0",
    "days": "whole weeks",
    "metric": "of the verdict: total per user",
    "better": "the wanted direction",
    "guardrails": "may be looked at on any day",
    "unit": "of money",
    "confidence": "of intervals and of the verdict, over all its decisions",
    "power": "planned",
    "decisions": "days after which the verdict may be given",
    "eligible": "who may be in the test: SQL over the log or the table of users",
    "cluster": "arms are drawn by it, not by user: a column, or SQL over the log or the table of users",
    "seal": "hash of all but the ramp: changes by hand are refused",
}


def experiment_text(experiment: Experiment) -> str:
    """The text of a sealed experiment.toml, which `Experiment.load` reads back as the same experiment."""
    meta = experiment.meta.model_dump(exclude_none=True) | {"seal": experiment.seal()}
    lines = [
        "# Written by outlay experiment plan. Once the test is live, only the ramp may change here, and its coverage",
        "# may only grow. Another split, salt, budget or metric makes it another test.",
        "",
        "[experiment]",
        *(_line(key, value, MEANINGS.get(key)) for key, value in meta.items()),
        "",
        "# From a day on, this part of every arm's share is in the test; nobody changes arms.",
    ]
    for step in experiment.ramp:
        lines += ["[[ramp]]", *(_line(key, value) for key, value in step.model_dump().items()), ""]
    lines += ["# The first arm is the control. Each arm has a range of the hash, in this order, and its own budget."]
    for arm in experiment.arms:
        lines += ["[[arm]]", *(_line(key, value, _meaning(arm, key)) for key, value in _given(arm).items()), ""]
    return "\n".join(lines)


def _given(arm: Arm) -> dict[str, Any]:
    return arm.model_dump(exclude_none=True)


def _meaning(arm: Arm, key: str) -> str | None:
    if key == "kind":
        return {
            "bundle": "decided by a bundle",
            "constant": "everyone gets the same action",
            "random": "actions drawn evenly",
            "holdout": "nobody gets anything",
        }[arm.kind]
    return {"share": "of eligible users, at full coverage", "budget": "money of this arm alone"}.get(key)


def _line(key: str, value: Any, meaning: str | None = None) -> str:
    line = f"{key} = {_toml(value)}"
    return f"{line:<24}  # {meaning}" if meaning else line


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML forbids it, JSON does not
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(part) for part in value)}]"
    return str(value)  # numbers and dates: TOML's own form
