"""`outlay frontier`: what every budget buys, from one training.

    found = frontier("run")                              # the curve
    found = frontier("run", budgets=[1.5, 2.0])          # and the mixtures for these
    found = frontier("run", budgets=[1.5], export="bundles/1.5")      # the bundle of one, certified

The budget that moves is the money budget; the others keep the limits of the campaign file. The curve comes from what
the training measured on *select* users. One look at the *certify* users certifies all of it (`certify_frontier.py`):
`outlay evaluate` or the first export takes it, and every later curve and export knows what it said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outlay.bundles.read import load_bundle
from outlay.bundles.write import update_certificate, write_bundle
from outlay.choosing.certify import Certified, certified, certify_frontier
from outlay.choosing.constants import beside_constants
from outlay.choosing.curve import Curve, Point
from outlay.choosing.evaluated_policy import mixture_of
from outlay.choosing.rotation import measured_on
from outlay.choosing.run import Run
from outlay.choosing.stored import Stored
from outlay.choosing.verdict import verdict
from outlay.choosing.window import window_words
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import check_replaceable, new_file, write_json
from outlay.estimators.certificate import CONDITION
from outlay.estimators.fitted import combine
from outlay.estimators.frontier import shown
from outlay.estimators.units import objective
from outlay.ops.intervals import interval
from outlay.pages.frontier import render

BUDGETS = 101  # of the curve


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
        old: where the log's policy stands: `{value, low, high, spend}`; None where that could not be measured.
        folds: in which users took turns to certify; 1: they did not.
        policies: `[{multiplier, fold, value, spend}]` measured.
        check: whether costs fall as λ grows, in words.
        band: `{users, policies, confidence, factor, look, old}` of the look at the *certify* users: how many policies'
            bounds hold together, with which confidence, standard errors above the estimate; `old`: the objective of the
            log's policy there. None before the look.
        window: `{days, beyond, words}` where the figures are means over a window of the log; else None.
        condition: what "certified" rests on.
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
    old: dict[str, Any] | None
    policies: list[dict[str, Any]]
    folds: int
    check: str
    band: dict[str, Any] | None = None
    window: dict[str, Any] | None = None
    condition: str = CONDITION
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
        export: a folder for the bundle of the one budget asked for, which is then certified. The first time that is a
            look at *certify*.
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
    curve = Curve(stored, campaign, run.data())
    own = campaign.budgets[campaign.money].limit
    wanted = list(budgets) or [own if export is not None else max(own, curve.least)]
    asked = [curve.point(budget) for budget in wanted]
    if export is None:
        known = certified(run, curve.data, campaign)
    else:
        known = certify_frontier(run, curve.data, campaign, lambda f, text: report(0.1 + 0.8 * f, text))
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
        curve=_points(curve, known, report),
        asked=[_bounded(point, curve, known) for point in asked],
        old=_old(stored, campaign),
        policies=[
            {"multiplier": multiplier.tolist(), "fold": int(fold), "value": float(of[0]), "spend": of[1:].tolist()}
            for multiplier, fold, of in zip(
                stored.multiplier, stored.fold, (shown(value, campaign) for value in stored.value), strict=True
            )
        ],
        folds=len(stored.shares),
        check=stored.manifest["check"],
        band=None if known is None else _band(known),
        window=window_words(curve.data),
    )  # fmt: skip
    if export is not None and known is not None:
        report(0.9, "writing the bundle")
        found = replace(found, export=_exported(curve, wanted[0], Path(export), known))
    else:  # an export leaves the page of the run as it is
        write_json(run.folder / "frontier.json", found.to_dict())
        with new_file(run.folder / "frontier.html") as temporary:
            temporary.write_text(render(found.to_dict()), encoding="utf-8")
    report(1.0, "done")
    return found


def _points(curve: Curve, known: Certified | None, report: Callable[[float, str], None]) -> list[Point]:
    """From the least budget to the most."""
    found = []
    for i, budget in enumerate(np.linspace(curve.least, curve.most, BUDGETS)):
        report(0.8 + 0.15 * i / BUDGETS, f"budget {i + 1} of {BUDGETS}")
        found.append(_bounded(curve.point(float(budget)), curve, known))
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


def _old(stored: Stored, campaign: Campaign) -> dict[str, Any] | None:
    value, error = stored.old.shown(np.ones(1), campaign)
    if not np.isfinite([*value, *error]).all():
        return None
    low, high = interval(value, error, campaign.train.confidence)
    return {"value": float(value[0]), "low": float(low[0]), "high": float(high[0]), "spend": value[1:].tolist()}


def _band(known: Certified) -> dict[str, Any]:
    band, old = known.band, float(known.band.points.value[-1, 0])
    return {"users": band.points.users, "policies": len(band), "confidence": band.confidence, "factor": band.factor,
            "look": known.look, "old": old if np.isfinite(old) else None}  # fmt: skip


def _bounded(point: Point, curve: Curve, known: Certified | None) -> Point:
    """With what the look at the certify users says of it, if there was one."""
    if known is None:
        return point
    found = known.band.certificate(curve.between(point.budget), curve.under(point.budget))
    return replace(point, certified=found.certified, certificate=found.words, gain=found.gain,
                   gain_bound=found.gain_bound, gain_most=found.gain_most,
                   bounds=[line.bound for line in found.budgets])  # fmt: skip


def _exported(curve: Curve, budget: float, folder: Path, known: Certified) -> dict[str, Any]:
    identity, campaign = write_bundle(folder, curve.spec(budget)), curve.under(budget)
    bundle = load_bundle(folder)
    between = curve.between(budget)
    certificate, estimates = known.band.certificate(between, campaign), known.band.estimates(between, campaign)
    weights = between @ curve.stored.weights
    at = measured_on(curve.data, bundle, curve.stored.fold_weights(weights))
    subject = mixture_of(at, "")
    fitted = combine([at.fit(*part) for part in zip(subject.parts, subject.features, strict=True)], subject.weights)
    constants = beside_constants(at, fitted, campaign, certificate.confidence)
    update_certificate(folder, [estimate.to_dict() for estimate in estimates], known.record(certificate))
    return {"path": str(folder), "id": identity, "budget": float(budget), "look": known.look,
            "verdict": verdict(estimates, certificate, campaign, constants=constants),
            "certificate": known.record(certificate)}  # fmt: skip
