"""`outlay evaluate`: what a policy will bring and cost as it will be served, on users never used for choosing.

    result = evaluate("runs/first")                          # the mixture of a run; written to RUN/estimates.json
    result = evaluate("data", policy="rules.parquet")        # any policy, on the log alone, on all its users
    result = evaluate("runs/first", against="runs/second")   # and the paired difference to another

Every estimator stands beside every other; the log's own policy, the best constant actions and the members stand beside
the policy itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.read import load_bundle
from outlay.bundles.write import update_certificate
from outlay.choosing.certify import certify_frontier
from outlay.choosing.checks import Checks
from outlay.choosing.constants import Constants, beside_constants, constants_of
from outlay.choosing.diagnostics import daily, overlap, paths, shares
from outlay.choosing.estimates import PolicyEstimates, estimate_policy
from outlay.choosing.evaluated_policy import OLD, EvaluatedPolicy, compared_policy, from_file, mixture_of
from outlay.choosing.evaluation import Evaluation
from outlay.choosing.looks import look
from outlay.choosing.measure import Measure
from outlay.choosing.rotation import measured_on
from outlay.choosing.run import ESTIMATES, Run
from outlay.choosing.stored import StoredFrontier
from outlay.choosing.verdict import verdict
from outlay.choosing.window import claimed, window_words
from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError
from outlay.core.estimate import Estimate
from outlay.core.files import kind_of, write_json
from outlay.core.target import Target
from outlay.core.transitions import CERTIFY, EVERYONE, Transitions
from outlay.estimators.certificate import LEAST_USERS, Certificate, certify
from outlay.estimators.fitted import Fitted
from outlay.estimators.importance import Weighted
from outlay.estimators.observed import observe, reproduces
from outlay.estimators.reach import largest
from outlay.estimators.units import coordinates, decisions, missing, objective

Report = Callable[[float, str], None]


def evaluate(
    source: str | Path | Run | Transitions,
    *,
    policy: str | Path | None = None,
    against: str | Path | Run | None = None,
    confidence: float | None = None,
    learned_here: bool = False,
    progress: Report | None = None,
) -> Evaluation:
    """Evaluate and certify a policy on users never used for choosing.

    The mixture of a run is measured on *certify* users. A policy from outside learned from none, so that with a DATA
    folder it is measured on all of them, where the log states propensities (a model of them needs users of its own)
    and no run is held against it.

    Args:
        source: a RUN folder, or a DATA folder together with `policy`.
        policy: a Parquet table of probabilities (`logs/policy_file.py`); default: the run's mixture.
        against: another policy to hold it against, user by user: a RUN folder or a Parquet table; the log's own policy
            (`"old"`) is always there. It is looked at like any other, and counted.
        confidence: of intervals and certificate, in (0.5, 1); default as in the campaign file.
        learned_here: whether the policy from outside was learned from this log: then on *certify* users alone.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: if the run, its data or its bundle is missing or damaged, the table is no policy for this log, or
            `confidence` is impossible.
    """
    if confidence is not None and not 0.5 < confidence < 1:
        raise OutlayError(
            f"is {confidence:g}.", where="confidence", way_out="Give a share above 0.5 and below 1: 0.95."
        )
    run, data = opened(source)
    if run is None and policy is None:
        raise OutlayError("is a DATA folder, which holds no policy.", file=data.folder,
                          way_out="Name one with --policy FILE, or give a RUN folder.")  # fmt: skip
    campaign = (run.campaign if run else data.campaign).with_train(confidence=confidence)
    at = _measure(data, run, policy, against, learned_here)
    if policy is None:
        assert run is not None
        subject = mixture_of(at, f"{run.manifest['method']}, as served")
    else:
        subject = from_file(at, policy, "policy")
    other = compared_policy(at, against)
    result = _evaluated(at, subject, campaign, other=other, run=run if policy is None else None, progress=progress)
    if other is not None:
        result = _seen_beside(result, at, other, campaign)
    if run is not None and policy is None:
        write_json(run.folder / ESTIMATES, result.to_dict())
        written = result.to_dict()
        update_certificate(run.bundle, written["estimates"], written["certificate"])
    return result


def _measure(
    data: Transitions,
    run: Run | None,
    policy: str | Path | None,
    against: str | Path | Run | None,
    learned_here: bool,
) -> Measure:
    """The users who certify a run, where its mixture is evaluated or a policy is held against it; else all."""
    if run is not None and policy is None:
        return measured_on(data, load_bundle(run.bundle), run.fold_weights)
    if against is not None and not isinstance(against, Run) and against != "old" and Path(against).is_dir():
        against = Run.open(against)
    if isinstance(against, Run) and len(against.fold_weights) > 1:
        return measured_on(data, load_bundle(against.bundle), against.fold_weights)
    if run is None and not learned_here and not isinstance(against, Run) and data.propensity is not None:
        return Measure(data, EVERYONE, None)
    # Networks of folds were taught by these users, so what they make of a state is no basis to measure others on.
    taught = run is None or len(run.fold_weights) > 1
    return Measure(data, CERTIFY, None if taught or run is None else load_bundle(run.bundle))


def opened(source: str | Path | Run | Transitions) -> tuple[Run | None, Transitions]:
    """A RUN folder with its data, or a DATA folder alone.

    Raises:
        FolderError: if it is neither, or damaged.
    """
    if isinstance(source, Transitions):
        return None, source
    if not isinstance(source, Run):
        if kind_of(Path(source)) == "data":
            return None, Transitions.open(source)
        source = Run.open(source)
    return source, source.data()


def _seen_beside(result: Evaluation, at: Measure, other: EvaluatedPolicy, campaign: Campaign) -> Evaluation:
    """The evaluation, after the look that the other policy has cost: its figures on the certify users are known now."""
    run = other.run
    look(at.data, other.identity, campaign.train.confidence, at.data.certifying)
    if run is None or run.manifest["data_hash"] == at.data.manifest["data_hash"]:
        return result
    return replace(result, notes={**result.notes, other.name: "trained on other data, maybe on these users"})


def _evaluated(
    at: Measure,
    subject: EvaluatedPolicy,
    campaign: Campaign,
    *,
    other: EvaluatedPolicy | None,
    run: Run | None,
    progress: Report | None,
) -> Evaluation:
    """Evaluate and certify `subject`, a look; `run` where it is that run's own mixture."""
    report = progress or (lambda _fraction, _text: None)
    level = campaign.train.confidence
    report(0.02, "propensities")
    propensity = at.propensity()
    report(0.1, "the old policy")
    seen, old = observe(at.panel, days=at.days), estimate_policy(at, OLD, propensity)
    report(0.2, "the policy")
    told = estimate_policy(at, subject, propensity)
    reproduction, behaviour = reproduces(seen, old.fitted), at.behaviour_check()
    checks = Checks.of(told, reproduction, behaviour)
    told, old = checks.doubted(told), checks.doubted(old)
    report(0.4, "the policies beside it")
    held = [] if other is None else [estimate_policy(at, other, propensity)]
    held = [checks.doubted(Checks.of(each, reproduction, behaviour).doubted(each)) for each in held]
    constants = constants_of(at, campaign)
    members = [checks.doubted(each) for each in _members(at, subject, propensity)]
    beside_it = [] if constants is None else [_constants(*constants, checks)]
    others = [*beside_it, *held, *members]
    order = [old, *others[: len(others) - len(members)], told, *members]
    beside = [e for each in [old, *others] for e in each.rows(campaign, level)]

    report(0.7, "segments")
    segments = _segments(at, told, old, propensity, checks, campaign)
    report(0.8, "the certificate")
    certificate, number, alpha = _certified(at, told, old, campaign, checks.refused)
    less = [(each, told.rows_less(each, campaign, level)) for each in [old, *held]]
    gain = [e for e in less[0][1] if (e.estimator, e.target) == ("fqe", objective(campaign))]
    if not all(e.recommended for e in gain):  # no verdict is surer than its table
        certificate = replace(certificate, gain_bound=None, gain_most=None)
    curve = None if run is None else _curve(at, run, campaign, checks.refused, report)
    found = _asked(told.rows(campaign, level), at, campaign)
    beside = _asked([*seen.estimates("old", "observed", confidence=level), *beside], at, campaign)
    weighed = told.joints["pdis"]
    assert isinstance(weighed, Weighted)
    return Evaluation(
        subject=subject.name,
        titles={each.subject.name: each.subject.title for each in order},
        estimates=found,
        beside=beside,
        differences=[
            {"against": each.subject.name, **estimate.to_dict()}
            for each, rows in less
            for estimate in _asked(rows, at, campaign)
        ],
        segments=segments,
        certificate=certificate,
        confidence=level,
        look=number,
        alpha=alpha,
        verdict=verdict(
            [*found, *beside],
            certificate,
            campaign,
            subject.name,
            constants=beside_constants(at, told.fitted, campaign, certificate.confidence),
            doubt=checks.refused,
        ),
        diagnostics={
            **checks.to_dict(),
            "paths": paths(weighed, campaign.meta.report_days),
            "overlap": overlap(at, subject, propensity),
            "curve": curve,
        },
        notes={"constants": constants[0].words(at.data)} if constants else {},
        daily=[*daily("old", old.fitted), *daily(subject.name, told.fitted)],
        shares=shares(at, subject),
        window=window_words(at.data),
        users="all" if at.split == EVERYONE and at.data.folds == 1 else "certify",
    )


def _members(at: Measure, subject: EvaluatedPolicy, propensity: NDArray[np.float64]) -> list[PolicyEstimates]:
    """Each member of a mixture; of a mixture of folds each fold's own mixture, on its own users."""
    if len(at.folds) == 1 or subject.name != "mixture":
        return [estimate_policy(at, part, propensity, estimators=("fqe",)) for part in subject.members()]
    found = []
    for k, part in enumerate(at.folds):
        own = replace(mixture_of(part, f"fold {k + 1}, on its users"), name=f"fold {k + 1}")
        found.append(estimate_policy(part, own, propensity[part.panel.rows], estimators=("fqe",)))
    return found


def _constants(found: Constants, whole: Fitted, checks: Checks) -> PolicyEstimates:
    """The best mixture of constant actions, as it was measured."""
    subject = replace(OLD, name="constants", title=found.title)
    return checks.doubted(PolicyEstimates(subject, {"fqe": whole}, {"fqe": [None] * len(whole.targets)}))


def _certified(
    at: Measure, told: PolicyEstimates, old: PolicyEstimates, campaign: Campaign, refused: str | None
) -> tuple[Certificate, int, float]:
    """The certificate of a policy, which look it is, and its α."""
    x, influence, limits = coordinates(told.fitted, campaign)
    x_old, influence_old, _ = coordinates(old.fitted, campaign)
    gain, gain_influence = float(x[0] - x_old[0]), influence[:, 0] - influence_old[:, 0]
    number, alpha = look(at.data, told.subject.identity, campaign.train.confidence, at.data.certifying)
    reason = missing(told.fitted, campaign) or refused
    if refused is not None:
        x, gain = np.full_like(x, np.nan), float("nan")
    certificate = certify(
        x,
        influence,
        limits,
        [budget.name for budget in campaign.budgets],
        gain=gain,
        gain_influence=gain_influence,
        confidence=1 - alpha,
        signs=[budget.sign for budget in campaign.budgets],
        decisions=decisions(told.fitted, campaign),
        withheld=reason,
        known=largest(told.fitted, campaign, at.known_costs(told.subject.parts)),
    )
    return replace(certificate, window=claimed(campaign, at.window)), number, alpha


def _curve(at: Measure, run: Run, campaign: Campaign, refused: str | None, report: Report) -> dict[str, Any] | None:
    """The look that certifies every other budget of a frontier (`certify_frontier.py`), in a few numbers."""
    if not (run.folder / "frontier").is_dir():
        return None
    if not len(StoredFrontier.read(run.folder / "frontier").budgets):
        return None
    found = certify_frontier(run, at.data, campaign, lambda f, text: report(0.8 + 0.15 * f, text), refused=refused)
    return {"policies": len(found.band), "look": found.look, "alpha": found.alpha, "refused": found.band.refused}


def _asked(found: Sequence[Estimate], at: Measure, campaign: Campaign) -> list[Estimate]:
    """Without the totals that were only needed on the way."""
    names, report_days = at.panel.names, campaign.meta.report_days
    horizon = {str(Target(b.name, campaign.meta.horizon_days)) for b in campaign.budgets if b.per == "user"}
    beyond = {str(Target(name, k)) for name in names for k in at.days if k not in report_days}
    return [e for e in found if e.target not in beyond - horizon - {objective(campaign)}]


def _segments(
    at: Measure,
    told: PolicyEstimates,
    old: PolicyEstimates,
    propensity: NDArray[np.float64],
    checks: Checks,
    campaign: Campaign,
) -> list[dict[str, Any]]:
    """The fitted values of each segment's users, and the gain over the old policy; few users give no number."""
    segment, level = at.data.users["segment"][at.data.users_of(at.split)], campaign.train.confidence
    rows: list[dict[str, Any]] = []
    for s, name in enumerate(at.data.segments if len(at.data.segments) > 1 else ()):
        among = segment == s
        users = int(among.sum())
        few = f"{users} of these users are in it; {LEAST_USERS} are needed" if users < LEAST_USERS else None
        mine, its = told, old
        if few is None:
            mine, its = (
                checks.doubted(estimate_policy(at, each.subject, propensity, among=among, estimators=("fqe",)))
                for each in (told, old)
            )
        gain = [replace(e, policy="gain") for e in mine.rows_less(its, campaign, level)]
        for e in _asked([*its.rows(campaign, level), *mine.rows(campaign, level), *gain], at, campaign):
            if e.estimator != "fqe":
                continue
            if few is not None:
                e = Estimate(policy=e.policy, estimator=e.estimator, target=e.target, value=None, withheld=few)
            rows.append({"segment": name, "users": users, **e.to_dict()})
    return rows
