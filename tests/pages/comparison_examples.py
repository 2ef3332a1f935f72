"""A finished comparison as comparison.json has it: three oracles, four rules and the frontier, two response models."""

from __future__ import annotations

from typing import Any

import numpy as np

RULES = ("single-best", "aim-mean", "aim-greedy", "lp")
ORACLES = ("DDQN", "EDRR", "BCQ")
NETWORK = 29_419  # parameters of one policy


def found(budgets: int = 1, *, seeds: int = 3, truth: bool = True) -> dict[str, Any]:
    """With two budgets the second is a floor; DIN and aim-mean of DDQN find nothing within the limits."""
    rng = np.random.default_rng(0)

    def figure(value: float, width: float, sd: float | None, *, known: bool = True) -> dict[str, Any]:
        near = value + width * float(rng.normal()) / 3
        return {"value": near, "low": near - width, "high": near + width, "sd": sd if seeds > 1 else None,
                "truth": value if truth and known else None,
                "truth_sd": sd / 2 if truth and known and sd is not None and seeds > 1 else None}  # fmt: skip

    def row(name: str, group: str, control: str, gain: float, **more: Any) -> dict[str, Any]:
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
        return {"name": name, "group": group, "control": control, "oracle": None, "rule": None, "label_days": None,
                "figures": figures, "stored_parameters": None, "seconds": None, "refused": None, **more}  # fmt: skip

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
                more = {"oracle": oracle.lower(), "rule": rule, "stored_parameters": NETWORK * (1.0, 1, 2.7, 12)[j],
                        "seconds": 64.0}  # fmt: skip
                rows.append(row(f"{oracle}, {rule}", "rl", control, 0.12 + 0.03 * i + 0.02 * (j % 3), **more))
    for i, oracle in enumerate((*ORACLES, "tabular")):
        for control in ("immediate", "total"):
            more = {"oracle": oracle.lower(), "rule": "frontier", "stored_parameters": NETWORK * 1.1, "seconds": 8.25}
            name = f"frontier, {'counted' if oracle == 'tabular' else oracle.lower()}"
            rows.append(row(name, "rl", control, 0.19 + 0.01 * i, **more))
    for unlucky in rows:
        if unlucky["control"] == "total" and unlucky["name"] in ("DIN, 1-day label", "DDQN, aim-mean"):
            unlucky.update(figures={}, stored_parameters=None, refused="the least that can be spent is 2.07")

    def finding(control: str, claim: str, verdict: str, days: int, *pair: tuple[str, float]) -> dict[str, Any]:
        (first, a), (second, b) = pair
        return {"control": control, "claim": claim, "verdict": verdict, "proven": seeds > 1, "first": first,
                "first_value": a, "second": second, "second_value": b, "target": f"reward@{days}", "true": truth,
                "over": ()}  # fmt: skip

    steps, sd = range(200, 30_200, 200), 0.4 * NETWORK if seeds > 1 else None
    held = {"single-best": 1.0, "aim-mean": 1, "aim-greedy": 2.7, "lp": 12}
    stored = {
        f"{oracle}, {rule}": [(step, min(step // 200, count) * NETWORK, sd) for step in steps]
        for oracle in ORACLES
        for rule, count in held.items()
    }
    stored |= {f"frontier, {oracle.lower()}": [(step, round(NETWORK * 1.1), sd and 0.0) for step in (0, 30_000)]
               for oracle in ORACLES}  # fmt: skip
    stored["original method"] = [(step, step // 200 * NETWORK, sd and 0.0) for step in steps]
    return {
        "campaign": "habit",
        "unit": "yuan",
        "reward_label": "active days",
        "money": "coupon_cost",
        "budgets": [
            {"name": "coupon_cost", "limit": 2.0, "sign": 1, "per": "decision", "words": "at most 2 per decision"},
            {"name": "reach", "limit": 0.52, "sign": -1, "per": "decision", "words": "at least 0.52 per decision"},
        ][:budgets],
        "immediate": 1.8123,
        "report_days": (1, 3, 7),
        "horizon_days": 7,
        "seeds": seeds,
        "confidence": 0.95,
        "users": 29_874,
        "rows": rows,
        "stored": stored,
        "findings": [
            finding("immediate", "looking ahead below 1-day labels over 1 day", "does not hold", 1,
                    ("BCQ, aim-greedy", 0.6012), ("DeepFM, 1-day label", 0.5801)),
            finding("immediate", "looking ahead above 1-day labels over 7 days", "holds", 7,
                    ("BCQ, aim-greedy", 4.7701), ("DeepFM, 1-day label", 4.6150)),
            finding("immediate", "BCQ, lp ≥ EDRR, lp", "a tie", 7, ("BCQ, lp", 4.7301), ("EDRR, lp", 4.7298)),
            finding("total", "BCQ, aim-greedy ≥ BCQ, single-best", "holds", 7,
                    ("BCQ, aim-greedy", 4.7701), ("BCQ, single-best", 4.7302)),
            finding("total", "frontier, bcq ≥ BCQ, aim-greedy", "a tie", 7,
                    ("frontier, bcq", 4.7605), ("BCQ, aim-greedy", 4.7701)),
        ],
    }  # fmt: skip
