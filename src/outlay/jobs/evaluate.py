"""`outlay evaluate`: what a policy will bring and cost as it will be served, on users never used for choosing.

    result = evaluate("runs/first")                          # the mixture of a run; written to RUN/estimates.json
    result = evaluate("data", policy="rules.parquet")        # any policy, on the log alone, on all its users
    result = evaluate("runs/first", against="runs/second")   # and the paired difference to another

The result has the estimates of every estimator, for the policy and for those it is compared with: the log's own policy,
the best constant actions and the members of the mixture.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from outlay.bundles.certificate import write_certificate
from outlay.bundles.read import load_bundle
from outlay.choosing.evaluated_policy import EvaluatedPolicy, compared_policy, from_file, mixture_of
from outlay.choosing.looks import look
from outlay.choosing.measure import Measure
from outlay.choosing.rotation import measured_on
from outlay.choosing.run import Run
from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError
from outlay.core.files import as_path, kind_of
from outlay.core.progress import Progress, telling
from outlay.core.shown import told_in
from outlay.core.transitions import CERTIFY, EVERYONE, Transitions
from outlay.evaluating.evaluate import evaluate_policy
from outlay.evaluating.evaluation import Evaluation


def evaluate(
    source: str | Path | Run | Transitions,
    *,
    policy: str | Path | None = None,
    against: str | Path | Run | None = None,
    confidence: float | None = None,
    learned_here: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate and certify a policy on users never used for choosing.

    The mixture of a run is measured on *certify* users. A policy from outside learned from no user of the log, so with
    a DATA folder it is measured on all of them, if the log states propensities (a model of them needs users of its own)
    and the policy is not compared with a run.

    Args:
        source: a RUN folder, or a DATA folder together with `policy`.
        policy: a Parquet table of probabilities (`logs/policy_file.py`); default: the run's mixture.
        against: another policy to compare it with, user by user: a RUN folder or a Parquet table. The log's own policy
            (`"old"`) is always compared. Measuring it is a look as well, and is counted.
        confidence: of intervals and certificate, in (0.5, 1); default as in the campaign file.
        learned_here: whether the policy from outside was learned from this log: then on *certify* users alone.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: if the run, its data or its bundle is missing or damaged, the table is not a policy for this log,
            or `confidence` is out of range.
    """
    run, data = opened(source)
    if run is None and policy is None:
        raise OutlayError(
            "is a DATA folder, which holds no policy.",
            file=data.folder,
            way_out="Name one with --policy FILE, or give a RUN folder.",
        )
    campaign = with_confidence(run.campaign if run else data.campaign, confidence)
    measure = _measure(data, run, policy, against, learned_here)
    if policy is not None:  # only a run's own mixture was chosen to be held while serving
        campaign = campaign.with_train(hold="certified")
    if policy is None:
        assert run is not None
        evaluated = mixture_of(measure, f"{run.manifest['method']}, as served")
    else:
        evaluated = from_file(measure, policy, "policy")
    other = compared_policy(measure, against)
    own_run = run if policy is None else None
    result = told_in(evaluate_policy(measure, evaluated, campaign, other, own_run, telling(progress)), campaign)
    if other is not None:
        result = _with_look_at(result, measure, other, campaign)
    if own_run is not None:
        result.write(own_run.folder)
        write_certificate(own_run.bundle, result.estimates, result.certificate.to_dict())
    return result


def opened(source: str | Path | Run | Transitions) -> tuple[Run | None, Transitions]:
    """Open a RUN folder with its data, or a DATA folder alone.

    Raises:
        FolderError: if it is neither, or damaged.
    """
    if isinstance(source, Transitions):
        return None, source
    if not isinstance(source, Run):
        taken = "the path of a RUN or DATA folder, or what train or prepare gives"
        if kind_of(as_path(source, "source", taken)) == "data":
            return None, Transitions.open(source)
        source = Run.open(source)
    return source, source.data()


def with_confidence(campaign: Campaign, confidence: float | None) -> Campaign:
    """The campaign with that confidence of intervals and certificate; None: its own.

    Raises:
        OutlayError: if it is out of range.
    """
    number = isinstance(confidence, int | float | np.integer | np.floating)
    if confidence is not None and not (number and 0.5 < confidence < 1):
        raise OutlayError(
            f"is {confidence!r}; must be above 0.5 and below 1.",
            where="confidence",
            way_out="Give a share such as 0.95.",
        )
    return campaign.with_train(confidence=confidence)


def _measure(
    data: Transitions,
    run: Run | None,
    policy: str | Path | None,
    against: str | Path | Run | None,
    learned_here: bool,
) -> Measure:
    """Choose the users: those who certify a run if its mixture is evaluated or compared, else all of them."""
    if run is not None and policy is None:
        return measured_on(data, load_bundle(run.bundle), run.fold_weights)
    if against is not None and not isinstance(against, Run) and against != "old" and Path(against).is_dir():
        against = Run.open(against)
    if isinstance(against, Run) and len(against.fold_weights) > 1:
        return measured_on(data, load_bundle(against.bundle), against.fold_weights)
    if run is None and not learned_here and not isinstance(against, Run) and data.propensity is not None:
        return Measure(data, EVERYONE, None)
    # The networks of folds learned from these users, so their features are no basis to measure others on.
    learned = run is None or len(run.fold_weights) > 1
    return Measure(data, CERTIFY, None if learned or run is None else load_bundle(run.bundle))


def _with_look_at(result: Evaluation, measure: Measure, other: EvaluatedPolicy, campaign: Campaign) -> Evaluation:
    """Count the look at the other policy, whose figures on the certify users are known now."""
    run, data = other.run, measure.data
    look(data, other.identity, campaign.train.confidence, data.certifying)
    if run is None or run.manifest["data_hash"] == data.manifest.data_hash:
        return result
    return replace(result, notes={**result.notes, other.name: "trained on other data, maybe on these users"})
