"""What a report shows of the evaluation, from estimates.json: certificate, segments, differences, checks."""

from __future__ import annotations

from typing import Any

from outlay.choosing.run import Run
from outlay.core.estimate import Estimate
from outlay.estimators.certificate import CONDITIONS, LEAST_USERS
from outlay.estimators.units import objective
from outlay.pages.evidence_content import (
    Against,
    Bound,
    Certificate,
    Check,
    Evidence,
    FitLine,
    Gain,
    OverlapLine,
    PathLine,
    SegmentLine,
)

AFTER = (
    "Outcomes and moves depend on state and action alone, the same on every day of the log: that is why a week of log "
    "can say something about the days after it."
)
SAME_USERS = "The users of the next campaign are like those of this one."
AS_LOGGED = "as logged; they were compared with the log when it was prepared"


def certificate(run: Run, found: dict[str, Any]) -> Certificate:
    """The certificate, with the margins that the mixture was chosen by."""
    given = found["certificate"]
    lines, refused = given["budgets"], given["withheld"]
    absent = any(line["bound"] is None for line in lines)
    if absent or given["users"] < LEAST_USERS:
        refused = (refused if absent else None) or given["words"]
    value, bound = given["gain"], given["gain_bound"]
    return Certificate(
        bounds=() if absent else tuple(
            Bound(budget=line["budget"], value=line["value"], bound=line["bound"], margin=margin, kept=line["kept"])
            for line, margin in zip(lines, run.manifest["margin"], strict=True)
        ),
        confidence=given["confidence"],
        look=given["look"],
        level=given["alpha"],
        users=given["users"],
        policies=given["policies"],
        gain=None if value is None or bound is None
        else Gain(target=objective(run.campaign), value=value, bound=bound),
        rests_on=(
            *([AFTER] if found["window"] is None else ()),
            *(f"{condition[0].upper()}{condition[1:]}." for condition in CONDITIONS),
            SAME_USERS,
        ),
        refused=refused,
    )  # fmt: skip


def segments(found: dict[str, Any]) -> tuple[SegmentLine, ...]:
    """By segment and quantity: the old policy, the one that was evaluated, and the gain."""
    rows: dict[tuple[str, int, str], dict[str, Estimate]] = {}
    for row in found["segments"]:
        name, users, estimate = row["segment"], row["users"], _estimate(row)
        rows.setdefault((name, users, estimate.target), {})[estimate.policy] = estimate
    return tuple(
        SegmentLine(segment=name, users=users, target=target, old=by["old"], new=by[found["subject"]], gain=by["gain"])
        for (name, users, target), by in rows.items()
    )


def against(found: dict[str, Any]) -> tuple[Against, ...]:
    """Differences to other policies."""
    return tuple(
        Against(
            title="the old policy" if name == "old" else found["policies"][name],
            estimates=tuple(_estimate(row) for row in found["differences"] if row["against"] == name),
        )
        for name in dict.fromkeys(row["against"] for row in found["differences"])
    )


def evidence(found: dict[str, Any]) -> Evidence:
    """What the numbers rest on."""
    checks = found["diagnostics"]
    model, agreement = checks["propensities"], checks["agreement"]
    return Evidence(
        checks=(
            Check(name="propensities", ok=model["ok"], words=model.get("words", AS_LOGGED)),
            Check(name="reproduction", ok=checks["reproduction"]["ok"], words=checks["reproduction"]["words"]),
            Check(name="agreement", ok=None if agreement["ok"] and not agreement["differences"] else agreement["ok"],
                  words=agreement["words"]),
        ),
        paths=tuple(PathLine(**line) for line in checks["paths"]),
        overlap=tuple(
            OverlapLine(
                segment=line["segment"],
                choices=line["choices"],
                matched=line["matched"],
                ess=line["ess"],
                mean_ratio=line["mean_ratio"],
                error=line["mean_ratio_error"],
                unseen=tuple(line["unseen"]),
                unseen_share=line["unseen_share"],
            )
            for line in checks["overlap"]
        ),
        model=tuple(
            FitLine(action=line["action"], rows=line["rows"], predicted=line["predicted"], observed=line["observed"])
            for line in model.get("actions", ())
        ),
    )  # fmt: skip


def _estimate(row: dict[str, Any]) -> Estimate:
    """The estimate in a row that says more than that."""
    return Estimate(**{name: row[name] for name in Estimate.__dataclass_fields__})
