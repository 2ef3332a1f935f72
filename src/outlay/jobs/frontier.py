"""`outlay frontier`: what every budget buys, from one training.

    curve = frontier("run")                              # the curve; its page is RUN/frontier.html
    curve = frontier("run", budgets=[1.5, "+20%"])       # and the mixtures for these; the page stays as it is
    curve = frontier("run", budgets=[1.5], export="bundles/1.5")      # the bundle of one, certified
    curve = frontier("run", least_money=True)            # curve.goals[0].point: today's reward for the least money

The budget that moves is the money budget; the others keep the limits of the campaign file. What the run itself serves
is a point of the curve. Its figures come from the *select* users, until `outlay evaluate` or the first export has
looked at the *certify* users: that one look certifies every budget (`evaluating/certify.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from outlay.bundles.certificate import write_certificate
from outlay.bundles.read import load_bundle
from outlay.bundles.write import write_bundle
from outlay.choosing.estimates import assuming_less
from outlay.choosing.evaluated_policy import mixture_of
from outlay.choosing.rotation import measured_on
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import check_replaceable, new_file, write_json
from outlay.core.progress import Progress, telling, within
from outlay.core.shown import told_in
from outlay.estimators.joint import combine
from outlay.estimators.units import needed_days
from outlay.evaluating.budget_curve import BudgetCurve, ExportedBundle
from outlay.evaluating.certify import Certified, certified
from outlay.evaluating.constants import beside_constants
from outlay.evaluating.curve import BudgetMixtures, curve_of
from outlay.evaluating.diagnostics import daily
from outlay.evaluating.first_days import FirstDays
from outlay.evaluating.goals import asked
from outlay.evaluating.verdict import verdict
from outlay.jobs.evaluate import evaluate, with_confidence
from outlay.pages.frontier import render

CHANGE = re.compile(r"([+-]\d+(?:\.\d+)?)\s*(%?)")


def frontier(
    run: str | Path | Run,
    budgets: Sequence[float | str] = (),
    *,
    export: str | Path | None = None,
    confidence: float | None = None,
    least_money: bool = False,
    worth: float | None = None,
    gain: float | None = None,
    progress: Progress | None = None,
) -> BudgetCurve:
    """Return the budget curve of a run, the mixture for any budget, and the budget that reaches a goal.

    Args:
        run: a RUN folder that `--method frontier` made.
        budgets: limits of the money budget, in its unit, or "+20%" of the campaign's; default: the campaign's.
        export: a folder for the bundle of the one budget given, which is then certified. The first time, that is a
            look at the *certify* users.
        confidence: of intervals and certificate; default as in the campaign file.
        least_money: ask for the budget that brings what the log's policy does, for the least money.
        worth: what one more unit of the reward is worth, in money: ask for the budget at which it costs as much.
        gain: ask for the least budget that brings so much more than the log's policy, as a share of that.
        progress: called with the fraction done and what is being done.

    Raises:
        FolderError: if the run has no frontier, or it is damaged.
        InfeasibleError: if a budget lies below the curve.
        OutlayError: for wrong input.
    """
    report = telling(progress)
    run = run if isinstance(run, Run) else Run.open(run)
    campaign = with_confidence(run.campaign, confidence)
    _check_ceiling(campaign)
    own = campaign.budgets[campaign.money].limit
    budgets, questions = _limits(budgets, own), asked(least_money=least_money, worth=worth, gain=gain)
    if export is not None:
        _check_export(Path(export), run, budgets)
    stored = StoredFrontier.read(run.folder / "frontier")
    mixtures = BudgetMixtures(stored, campaign, run.data())
    if own != stored.own and export is None:  # the campaign of the run was changed by hand
        own = max(own, mixtures.least)
    wanted = list(budgets) or [own]
    for budget in wanted:
        mixtures.between(budget)  # refuses one that lies below the curve, before any look
    measuring = within(report, 0.5, 0.8)
    known = certified(stored, run.identity, mixtures.data, campaign, measuring)
    if known is None and export is not None:
        evaluate(run, progress=within(report, 0.1, 0.5))
        known = certified(stored, run.identity, mixtures.data, campaign, measuring)
    whole = not (budgets or questions or export) and confidence is None  # the page is the run's own
    curve = curve_of(mixtures, wanted, known, within(report, 0.8, 0.95), None if whole else questions)
    curve = told_in(curve, campaign)
    if export is not None and known is not None:
        report(0.95, "writing the bundle")
        curve = replace(curve, export=_exported(mixtures, wanted[0], Path(export), known))
    elif whole:
        write_json(run.folder / "frontier.json", asdict(curve))
        with new_file(run.folder / "frontier.html") as temporary:
            temporary.write_text(render(curve, run.labelled, str(run.folder)), encoding="utf-8")
    report(1.0, "done")
    return curve


def _check_ceiling(campaign: Campaign) -> None:
    if campaign.budgets[campaign.money].sign < 0:
        raise OutlayError(
            "is a floor, so there is no curve of what more money buys.",
            file=campaign.path,
            where=f"budget {campaign.budgets[campaign.money].name}",
            way_out="Mark a ceiling with money = true, and train again.",
        )


def _limits(budgets: Any, own: float) -> list[float]:
    """Return the budgets as numbers, those like "+20%" as changes of the campaign's own.

    Raises:
        OutlayError: for anything that is neither such a change nor a number of at least 0, as a change without its %.
    """
    if isinstance(budgets, str | bytes) or not isinstance(budgets, Iterable):
        raise OutlayError(
            f"is {budgets!r}; expected: a list of numbers.", where="budgets", way_out="Give limits such as [1.5, 2.0]."
        )
    found = []
    for budget in budgets:
        change = CHANGE.fullmatch(budget.strip()) if isinstance(budget, str) else None
        number = isinstance(budget, int | float | np.integer | np.floating) and not isinstance(budget, bool)
        limit = float(budget) if number else np.nan
        if change and not change[2]:
            raise OutlayError(
                f"is {change[0]}; a limit has no sign, and a change has a % after it.",
                where="budget",
                way_out=f"Write {change[0]}% for a change of the limit, or {change[0][1:]} for the limit itself.",
            )
        if change:
            limit = float(f"{own * (1 + float(change[1]) / 100):.12g}")  # 2.64, not 2.6400000000000001
        if not 0 <= limit < np.inf:
            raise OutlayError(
                f"is {f'{budget:g}' if number else repr(budget)}; expected: a number of at least 0, or a change such "
                "as '+20%'.",
                where="budget",
                way_out=f"Give a limit such as 1.5, or +20% for {1.2 * own:g}.",
            )
        found.append(limit)
    return found


def _check_export(folder: Path, run: Run, budgets: Sequence[float]) -> None:
    if len(budgets) > 1:
        raise OutlayError(
            f"{len(budgets)} budgets are given; a bundle is for one.",
            where="export",
            way_out="Give the one budget that the bundle is for.",
        )
    if folder.resolve() == run.bundle.resolve():
        raise FolderError(
            "is the bundle of the run itself, for the budget that it was trained with.",
            file=folder,
            way_out="Export to another folder.",
        )
    try:
        check_replaceable(folder, "bundle")
    except FolderError as error:
        raise FolderError(error.found, file=folder, way_out="Export to another folder.") from None


def _exported(mixtures: BudgetMixtures, budget: float, folder: Path, known: Certified) -> ExportedBundle:
    identity, campaign = write_bundle(folder, mixtures.spec(budget)), mixtures.under(budget)
    bundle = load_bundle(folder)
    between = mixtures.between(budget)
    certificate = known.certificate(between, campaign)
    estimates = [*known.curve.old_estimates(campaign), *known.estimates(between, campaign)]
    weights = between @ mixtures.stored.weights
    measure = measured_on(mixtures.data, bundle, mixtures.stored.fold_weights(weights))
    mixture = mixture_of(measure, "")
    propensity, days = measure.propensity(), needed_days(campaign)
    fits = [measure.fit(*part) for part in zip(mixture.parts, mixture.features, strict=True)]
    seconds = [
        assuming_less(measure, part, fit, propensity, days) or fit
        for part, fit in zip(mixture.parts, fits, strict=True)
    ]
    fitted = combine(fits, mixture.weights)
    constants = beside_constants(
        measure,
        fitted,
        campaign,
        certificate.confidence,
        second=combine(seconds, mixture.weights),
        propensity=propensity,
        reach=measure.reach(mixture.parts, mixture.weights),
    )
    course = (*daily("old", measure.old()), *daily("mixture", fitted))
    first_days = FirstDays.of(course, "mixture", campaign, steady=mixtures.data.steady)
    write_certificate(folder, estimates, certificate.to_dict())
    return ExportedBundle(
        path=str(folder),
        id=identity,
        budget=float(budget),
        look=known.look,
        verdict=verdict(estimates, certificate, campaign, constants=constants, first_days=first_days),
        certificate=certificate,
    )
