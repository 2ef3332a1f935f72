"""`outlay report`: fill the report's content from a RUN folder, and write the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.run import Run
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.core.files import new_file
from outlay.core.target import Target
from outlay.jobs.report_evidence import against, certificate, evidence, segments
from outlay.pages.content import BudgetLine, DailyRow, Interval, PolicyKind, PolicyRow, ReportContent, ShareRow
from outlay.pages.learned_content import (
    CalibrationLine,
    CalibrationTenth,
    Candidate,
    Measured,
    MemberPoint,
    Point,
    TrainingPoint,
)
from outlay.pages.page import render

ONE_MODEL = ("frontier", "two-stage")  # methods in which one model answers every λ: no rule, no candidates
DISCOUNTED = (
    "A cost per decision is the discount-weighted mean over all days to come (each day weighs {discount:g} times the "
    "day before), so single days lie above and below it."
)
BESIDE_CURVE = (
    "outlay frontier has other figures for the same budget: its mixtures leave room for the certificate of every "
    "budget at once, so they spend a little less, and they are measured on the select users who chose them. What "
    "stands here is the run's own bundle, with room for its own certificate, on certify users."
)


def report(folder: str | Path | Run) -> Path:
    """Write RUN/report.html: one self-contained page. Before the evaluation it is shorter.

    Raises:
        FolderError: if the run is missing or damaged, or was evaluated by an older version.
    """
    run = folder if isinstance(folder, Run) else Run.open(folder)
    page = render(content(run))
    path = run.folder / "report.html"
    with new_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def content(run: Run) -> ReportContent:
    """What the report of a run shows."""
    campaign, manifest, found = run.campaign, run.manifest, run.estimates()
    metrics = run.metrics()
    members = manifest["members"]
    kept = {m["step"] for m in members}
    weights = np.array([m["weight"] for m in members])
    critic, fitted = (_mean(weights, [m[by] for m in members]) for by in ("critic", "fitted"))
    return ReportContent(
        title=campaign.meta.name,
        unit=campaign.meta.unit,
        reward_label=campaign.reward_label,
        action_label=f"{campaign.action_label} ({campaign.meta.unit})",
        verdict=found["verdict"] if found else f"Not evaluated yet: run outlay evaluate {run.folder}.",
        certified=found["certificate"]["certified"] if found else None,
        loses=found is not None and (most := found["certificate"]["gain_most"]) is not None and most < 0,
        confidence=found["confidence"] if found else campaign.train.confidence,
        method=manifest["method"],
        candidates_measured_by=manifest["candidates_measured_by"],
        notes=_notes(run),
        budgets=tuple(_budget(b, campaign) for b in campaign.budgets),
        policies=tuple(policy_rows(campaign, found)) if found else (),
        candidates=tuple(
            Candidate(step=m["step"], multiplier=tuple(m["multiplier"]), measured=_point(m["measured"]),
                      kept=m["step"] in kept)
            for m in metrics
        ),
        members=tuple(
            MemberPoint(name=f"member {i}", weight=m["weight"], multiplier=tuple(m["multiplier"]),
                        measured=_measured(m["critic"], m["fitted"], campaign))
            for i, m in enumerate(members)
        ),
        mixture=_measured(critic, fitted, campaign),
        old=_old(found, campaign),
        training=() if manifest["method"] in ONE_MODEL else tuple(
            TrainingPoint(step=m["step"], multiplier=tuple(m["multiplier"]), measured=_point(m["critic"]),
                          stored_parameters=m["stored_parameters"], original_parameters=m["original_parameters"],
                          loss=m["loss"])
            for m in metrics
        ),
        calibration=tuple(_calibration(line) for line in manifest.get("calibration", ())),
        label_days=manifest.get("label_days", 1),
        shares=tuple(ShareRow(**row) for row in found["shares"]) if found else (),
        daily=tuple(
            DailyRow(policy=row["policy"], day=row["day"], reward=row["reward"], costs=tuple(row["costs"]))
            for row in found["daily"]
        ) if found else (),
        certificate=certificate(run, found) if found else None,
        segments=segments(found) if found else (),
        estimates=tuple(Estimate(**e) for e in _all_estimates(found)) if found else (),
        against=against(found) if found else (),
        evidence=evidence(found) if found else None,
        settings=_settings(run),
        window=found["window"]["days"] if found and found["window"] else None,
        window_words=found["window"]["words"] if found and found["window"] else "",
        condition=found["condition"] if found else "",
    )  # fmt: skip


def policy_rows(campaign: Campaign, found: dict[str, Any]) -> list[PolicyRow]:
    """The table of policies, from an evaluation as JSON."""
    by = {(e["policy"], e["estimator"], e["target"]): e for e in _all_estimates(found)}
    kinds: dict[str, PolicyKind] = {"old": "old", "constants": "constant", "against": "method",
                                    found["subject"]: "chosen"}  # fmt: skip
    rows = []
    for policy, name in found["policies"].items():
        observed = "observed" if policy == "old" else "fqe"
        rows.append(
            PolicyRow(
                name=name,
                kind=kinds.get(policy, "member"),
                note=found["notes"].get(policy, ""),
                totals={
                    k: value for k in campaign.meta.report_days
                    if (value := _interval(by.get((policy, observed, str(Target("reward", k)))))) is not None
                },
                costs={
                    b.name: value for b in campaign.budgets
                    if (value := _interval(by.get((policy, "fqe", b.name)))) is not None
                },
                reward=_interval(by.get((policy, "fqe", "reward"))),
                certified=found["certificate"]["certified"] if policy == found["subject"] else None,
            )
        )  # fmt: skip
    return rows


def _all_estimates(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the policy and of those beside it."""
    return [*found["estimates"], *found["beside"]]


def _interval(estimate: dict[str, Any] | None) -> Interval | None:
    if estimate is None or estimate["value"] is None:
        return None
    return Interval(estimate["value"], estimate["low"], estimate["high"])


def _calibration(line: dict[str, Any]) -> CalibrationLine:
    tenths = line["tenths"]
    cells = zip(*(tenths[name] for name in ("predicted", "observed", "std_error", "count")), strict=True)
    return CalibrationLine(
        head=line["head"],
        slope=line["slope"],
        slope_error=line["slope_error"],
        expected_error=line["expected_error"],
        tenths=tuple(
            CalibrationTenth(head=line["head"], predicted=p, observed=o, std_error=e, rows=n) for p, o, e, n in cells
        ),
    )


def _point(x: Any) -> Point:
    return Point(float(x[0]), tuple(float(c) for c in x[1:]))


def _mean(weights: NDArray[np.float64], figures: list[Any]) -> Any:
    """Of the members, where all of them have figures (a constant action has none by the critic)."""
    return None if any(x is None for x in figures) else weights @ np.array(figures)


def _measured(critic: Any, fitted: Any, campaign: Campaign) -> Measured:
    """The two figures; totals over a horizon have no place on the plane of figures per decision."""
    comparable = all(b.per == "decision" for b in campaign.budgets)
    return Measured(critic=None if critic is None else _point(critic), fitted=_point(fitted) if comparable else None)


def _budget(budget: Any, campaign: Campaign) -> BudgetLine:
    money = campaign.budgets[campaign.money] is budget
    return BudgetLine(name=budget.name, limit=budget.limit, sign=budget.sign, per=budget.per,
                      unit=campaign.meta.unit if money else "",
                      training_limit=budget.limit if budget.per == "user" else None)  # fmt: skip


def _old(found: dict[str, Any] | None, campaign: Campaign) -> Point | None:
    if not found or any(b.per == "user" for b in campaign.budgets):
        return None
    by = {e["target"]: e["value"] for e in found["beside"] if (e["policy"], e["estimator"]) == ("old", "fqe")}
    values = [by.get("reward"), *(by.get(b.name) for b in campaign.budgets)]
    return None if any(v is None for v in values) else _point(values)


def _notes(run: Run) -> tuple[str, ...]:
    notes = list(run.manifest["notes"])
    campaign = run.campaign
    discounted = campaign.meta.discount > 0 and run.manifest.get("window") is None
    if discounted and any(b.per == "decision" for b in campaign.budgets):
        notes.append(DISCOUNTED.format(discount=campaign.meta.discount))
    if run.manifest["method"] == "frontier":
        notes.append(BESIDE_CURVE)
    if run.manifest["method"] not in ONE_MODEL:
        notes.append(f"While training, the rule chose by {run.manifest['candidates_measured_by']}; the kept members "
                     "were measured again by a fitted evaluation.")  # fmt: skip
    return tuple(notes)


def _settings(run: Run) -> dict[str, dict[str, object]]:
    m = run.manifest
    return {
        "run": {name: m[name] for name in ("method", "oracle", "seed", "steps", "seconds", "parameters",
                                           "stored_parameters", "multiplier_max", "multiplier_mean")}
        | {f"gap_{name}": m["gap"][name] for name in ("value", "std_error", "added") if m.get("gap")},
        "train": run.campaign.train.model_dump(mode="json", exclude_none=True),
        "data": {"source": m["source"], "hash": m["data_hash"]},
        "versions": m["versions"],
    }  # fmt: skip
