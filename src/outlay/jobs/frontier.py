"""`outlay frontier`: what every budget buys, from one training.

    found = frontier("run")                              # the curve
    found = frontier("run", budgets=[1.5, 2.0])          # and the mixtures for these
    found = frontier("run", budgets=[1.5], export="bundles/1.5")      # the bundle of one, certified

The budget that moves is the money budget; the others keep the limits of the campaign file. Everything comes from what
the training measured on *select* users; only an export looks at the *certify* users, and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outlay.bundles.write import write_bundle
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import check_replaceable, new_file, write_json
from outlay.estimators.units import objective
from outlay.jobs.curve import Curve, Point
from outlay.jobs.evaluate import evaluate_bundle
from outlay.jobs.frontier_folder import Stored
from outlay.jobs.run import Run
from outlay.ops.intervals import interval
from outlay.reports.frontier import render

BUDGETS = 101  # of the curve
EXPORTS = "exports.json"


@dataclass(frozen=True)
class Frontier:
    """The frontier of a run; `to_dict` is frontier.json.

    Attributes:
        campaign, unit, reward_label: for words.
        objective: `reward`, per decision, or `reward@30`, a total per user.
        money: the budget that moves.
        budgets: `[{name, limit, sign, per, words}]` as in the campaign file.
        least, most: spend of the cheapest mixture that keeps the other limits, margin included, and of the dearest
            useful one.
        confidence: of the intervals.
        users: select users that it rests on.
        curve: from the least to the most.
        asked: for the budgets asked for; else for the campaign's own, or the least where that lies above.
        old: where the log's policy stands: `{value, low, high, spend}`.
        policies: `[{multiplier, value, spend}]` measured.
        check: whether costs fall as λ grows, in words.
        export: `{path, id, budget, verdict, look, certificate}` of the bundle that was written, or None.
    """

    campaign: str
    unit: str
    reward_label: str
    objective: str
    money: str
    budgets: list[dict[str, Any]]
    least: float
    most: float
    confidence: float
    users: int
    curve: list[Point]
    asked: list[Point]
    old: dict[str, Any]
    policies: list[dict[str, Any]]
    check: str
    export: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return asdict(self)


def frontier(
    run: str | Path | Run,
    budgets: Sequence[float] = (),
    *,
    export: str | Path | None = None,
    confidence: float | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Frontier:
    """The budget curve of a run, and the mixture for any budget.

    Args:
        run: a RUN folder that `--method frontier` made.
        budgets: limits of the money budget, in its unit; default: the campaign's.
        export: a folder for the bundle of the one budget asked for, which is then certified: a look at *certify*.
        confidence: of intervals and certificate; default as in the campaign file.
        progress: called with the fraction done and what is being done.

    Raises:
        FolderError: if the run has no frontier, or it is damaged.
        InfeasibleError: if a budget lies below the curve.
        OutlayError: for wrong input.
    """
    report = progress or (lambda _fraction, _text: None)
    run = run if isinstance(run, Run) else Run.open(run)
    if confidence is not None and not 0.5 < confidence < 1:
        raise OutlayError(f"is {confidence:g}.", where="confidence",
                          way_out="Give a share above 0.5 and below 1: 0.95.")  # fmt: skip
    if export is not None:
        _check_export(Path(export), run, budgets)
    campaign = run.campaign.with_train(confidence=confidence)
    if campaign.budgets[campaign.money].sign < 0:
        raise OutlayError("is a floor, so there is no curve of what more money buys.", file=campaign.path,
                          where=f"budget {campaign.budgets[campaign.money].name}",
                          way_out="Mark a ceiling with money = true, and train again.")  # fmt: skip
    for budget in budgets:
        if not (np.isfinite(budget) and budget >= 0):
            raise OutlayError(f"is {budget:g}.", where="budget", way_out="Give a limit of 0 or more.")
    stored = Stored.read(run.folder / "frontier")
    curve = Curve(stored, campaign, run.data(), _exports(run))
    own = campaign.budgets[campaign.money].limit
    wanted = list(budgets) or [own if export is not None else max(own, curve.least)]
    asked = [curve.point(budget) for budget in wanted]
    found = Frontier(
        campaign=campaign.meta.name,
        unit=campaign.meta.unit,
        reward_label=campaign.reward_label,
        objective=objective(campaign),
        money=campaign.budgets[campaign.money].name,
        budgets=[{"name": b.name, "limit": b.limit, "sign": b.sign, "per": b.per, "words": b.words}
                 for b in campaign.budgets],
        least=curve.least,
        most=curve.most,
        confidence=campaign.train.confidence,
        users=stored.points.users,
        curve=[curve.point(float(budget)) for budget in np.linspace(curve.least, curve.most, BUDGETS)],
        asked=asked,
        old=_old(stored, campaign),
        policies=[
            {"multiplier": multiplier.tolist(), "value": float(shown[0]), "spend": shown[1:].tolist()}
            for multiplier, shown in zip(
                stored.multiplier, (stored.points.shown(unit, campaign)[0] for unit in np.eye(len(stored.points))),
                strict=True,
            )
        ],
        check=stored.manifest["check"],
    )  # fmt: skip
    if export is not None:
        report(0.3, "writing the bundle")
        found = replace(found, export=_exported(curve, wanted[0], Path(export), run, report))
    write_json(run.folder / "frontier.json", found.to_dict())
    with new_file(run.folder / "frontier.html") as temporary:
        temporary.write_text(render(found.to_dict()), encoding="utf-8")
    report(1.0, "done")
    return found


def _check_export(folder: Path, run: Run, budgets: Sequence[float]) -> None:
    if len(budgets) > 1:
        raise OutlayError(f"{len(budgets)} budgets are given.", where="export",
                          way_out="Give the one budget that the bundle is for.")  # fmt: skip
    if folder.resolve() == run.bundle.resolve():
        raise FolderError("is the bundle of the run itself, for the budget that it was trained with.", file=folder,
                          way_out="Export to another folder.")  # fmt: skip
    try:
        check_replaceable(folder, "bundle")
    except FolderError as error:
        raise FolderError(error.found, file=folder, way_out="Export to another folder.") from None


def _exports(run: Run) -> list[dict[str, Any]]:
    """Of the bundles exported before: `[{budget, confidence, id}]`."""
    path = run.folder / EXPORTS
    if not path.exists():
        return []
    try:
        return [{"budget": e["budget"], "confidence": e["confidence"], "id": e["id"]} for e in
                json.loads(path.read_text(encoding="utf-8"))]  # fmt: skip
    except (ValueError, KeyError, TypeError):
        raise FolderError("is damaged: it is not known which budgets were exported.", file=path,
                          way_out="Remove it; every export is then a new look.") from None  # fmt: skip


def _old(stored: Stored, campaign: Campaign) -> dict[str, Any]:
    value, error = stored.old.shown(np.ones(1), campaign)
    low, high = interval(value, error, campaign.train.confidence)
    return {"value": float(value[0]), "low": float(low[0]), "high": float(high[0]), "spend": value[1:].tolist()}


def _exported(
    curve: Curve, budget: float, folder: Path, run: Run, report: Callable[[float, str], None]
) -> dict[str, Any]:
    identity = write_bundle(folder, curve.spec(budget))
    entry = {"budget": float(budget), "confidence": curve.campaign.train.confidence, "id": identity}
    if entry not in (before := _exports(run)):
        write_json(run.folder / EXPORTS, [*before, entry])  # before the look: it must find the same bundle again
    report(0.5, "certifying it")
    found = evaluate_bundle(curve.data, folder, curve.under(budget), lambda f, text: report(0.5 + 0.5 * f, text))
    return {"path": str(folder), "id": identity, "budget": float(budget), "verdict": found.verdict, "look": found.look,
            "certificate": found.to_dict()["certificate"]}  # fmt: skip
