"""A finished comparison: three oracles, four rules and the frontier, two response models."""

from __future__ import annotations

from typing import Any

import numpy as np

from outlay.comparing.results import Comparison, MethodRow, SeedMean, StoredCount
from outlay.core.campaign import BudgetLimit

RULES = ("single-best", "aim-mean", "aim-greedy", "lp")
ORACLES = ("DDQN", "EDRR", "BCQ")
NETWORK = 29_419  # parameters of one policy


def found(budgets: int = 1, *, seeds: int = 3, truth: bool = True) -> Comparison:
    """With two budgets the second is a floor; DIN and aim-mean of DDQN find nothing within the limits."""
    rng = np.random.default_rng(0)

    def figure(value: float, width: float, sd: float | None, *, known: bool = True) -> SeedMean:
        near = value + width * float(rng.normal()) / 3
        return SeedMean(
            near,
            near - width,
            near + width,
            sd if seeds > 1 else None,
            truth=value if truth and known else None,
            truth_sd=sd / 2 if truth and known and sd is not None and seeds > 1 else None,
        )

    def row(name: str, group: str, control: str, gain: float, **more: Any) -> MethodRow:
        sd = None if group in ("log", "constant") else 0.01
        known = more.get("oracle") != "din" and group != "log"
        cost = 2.31 if group == "log" else 1.94 if control == "total" else 2.1 + gain
        figures = {
            f"reward@{k}": figure((0.57, 1.85, 4.55)[i] + gain * k / 7, 0.006 * k, sd and sd * k / 7, known=known)
            for i, k in enumerate((1, 3, 7))
        }
        figures["reward"] = figure(0.64 + gain / 8, 0.004, sd and sd / 8, known=known)
        figures["coupon_cost"] = figure(cost, 0.03, sd, known=known)
        figures["coupon_cost@1"] = figure(1.8, 0.01, sd, known=known)
        if budgets == 2:
            figures["reach"] = figure(0.55 + gain / 10, 0.006, sd and sd / 4, known=known)
            figures["reach@1"] = figure(0.55, 0.004, sd and sd / 4, known=known)
        if control == "total" and name in ("DIN, 1-day label", "DDQN, aim-mean"):
            more.update(figures={}, stored_parameters=None, refused="the least that can be spent is 2.07")
        return MethodRow(name, group, control, **{"figures": figures, **more})

    rows = [
        row("old policy", "log", "none", 0.0),
        row("best constants (1.5 for 38% of users, 2 for 62% of users)", "constant", "total", 0.08),
    ]
    for model in ("DeepFM", "DIN"):
        for days in (1, 3, 7):
            for control in ("immediate", "total"):
                more = {"oracle": model.lower(), "label_days": days, "stored_parameters": 51_204.0, "seconds": 21.0}
                gain = 0.05 + 0.015 * days
                rows.append(row(f"{model}, {days}-day label", "two-stage", control, gain, **more))
    for i, oracle in enumerate(ORACLES):
        for j, rule in enumerate(RULES):
            for control in ("immediate", "total"):
                more = {
                    "oracle": oracle.lower(),
                    "rule": rule,
                    "stored_parameters": NETWORK * (1.0, 1, 2.7, 12)[j],
                    "seconds": 64.0,
                }
                rows.append(row(f"{oracle}, {rule}", "rl", control, 0.12 + 0.03 * i + 0.02 * (j % 3), **more))
    for i, oracle in enumerate((*ORACLES, "tabular")):
        for control in ("immediate", "total"):
            more = {"oracle": oracle.lower(), "rule": "frontier", "stored_parameters": NETWORK * 1.1, "seconds": 8.25}
            name = f"frontier, {'counted' if oracle == 'tabular' else oracle.lower()}"
            rows.append(row(name, "rl", control, 0.19 + 0.01 * i, **more))

    steps, sd = range(200, 30_200, 200), 0.4 * NETWORK if seeds > 1 else None
    held = {"single-best": 1.0, "aim-mean": 1, "aim-greedy": 2.7, "lp": 12}
    stored = {
        f"{oracle}, {rule}": tuple(StoredCount(step, float(min(step // 200, count) * NETWORK), sd) for step in steps)
        for oracle in ORACLES
        for rule, count in held.items()
    }
    stored |= {
        f"frontier, {oracle.lower()}": tuple(
            StoredCount(step, float(round(NETWORK * 1.1)), sd and 0.0) for step in (0, 30_000)
        )
        for oracle in ORACLES
    }
    stored["original method"] = tuple(StoredCount(step, float(step // 200 * NETWORK), sd and 0.0) for step in steps)
    return Comparison(
        campaign="habit",
        unit="yuan",
        reward_label="active days",
        money="coupon_cost",
        budgets=(
            BudgetLimit(name="coupon_cost", limit=2.0, unit="yuan"),
            BudgetLimit(name="reach", limit=0.52, sign=-1),
        )[:budgets],
        immediate=1.8123,
        report_days=(1, 3, 7),
        horizon_days=7,
        seeds=seeds,
        confidence=0.95,
        users=29_874,
        rows=tuple(rows),
        stored=stored,
    )
