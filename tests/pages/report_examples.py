"""Results of a run as training and evaluation leave them: 150 candidates, one or two budgets, an evaluation."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from outlay.choosing.run import CandidateRecord, Run
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators import agreement
from outlay.estimators.balance import BalanceCheck
from outlay.estimators.behaviour import check as behaviour_check
from outlay.estimators.certificate import BudgetBound, Certificate
from outlay.estimators.day_effects import DayEffects, OutcomeByDay
from outlay.estimators.markov import MarkovCheck, PastDependence
from outlay.estimators.observed import Reproduction
from outlay.evaluating.checks import of_agreement, of_balance, of_behaviour, of_state
from outlay.evaluating.diagnostics import ActionShare, DayMeans, MatchingPaths, SegmentOverlap
from outlay.evaluating.evaluation import Diagnostics, Evaluation, PairedDifference, SegmentEstimate
from outlay.evaluating.first_days import FirstDays
from outlay.evaluating.totals import BudgetTotals, DayTotal, DecisionTotals, SegmentTotals, Total, TotalChange
from outlay.evaluating.verdict import Verdict, VerdictKind
from outlay.pages.results import RunResults

COUPONS = [1 + i / 2 for i in range(11)]
VERDICT = "Serve the mixture: it wins 0.2 active a day per user over the old policy and spends 0.2 yuan more."
NO_PATH = Reason(ReasonKind.NO_PATH_SO_LONG, {"days": 7})
FEW = Reason(ReasonKind.FEW_EFFECTIVE, {"count": 8.0, "needed": 100.0})
CLIPPED = Reason(ReasonKind.CLIPPED, {"share": 0.0926})
NETWORK = 29_419  # parameters of one policy
BUDGETS: list[dict[str, Any]] = [
    {"name": "coupon_cost", "cost": "coupon_cost", "at_most": 2.0},
    {"name": "reach", "cost": "reach", "at_least": 0.52},
]
POLICIES = {
    "old": "old policy",
    "constants": "best constant mixture",
    "mixture": "aim-greedy, as served",
    "member 0": "member 0",
    "member 1": "member 1",
    "against": "second (lp)",
}


def example(budgets: int = 1) -> RunResults:
    """A run that was trained and evaluated; with two budgets the second is a floor."""
    candidates, steps = _candidates(np.random.default_rng(0), budgets)
    return RunResults(run(budgets, _members(candidates, steps)), candidates, _evaluation(budgets))


def run(
    budgets: int = 1, members: list[dict[str, Any]] | None = None, about: dict[str, Any] | None = None, **changes: Any
) -> Run:
    """A run in memory; `about` changes the campaign, `changes` the manifest."""
    manifest: dict[str, Any] = {
        "campaign": campaign(budgets, **(about or {})),
        "campaign_file": "campaign.toml",
        "members": members or [],
        "method": "aim-greedy",
        "oracle": "bcq",
        "seed": 0,
        "steps": 15_000,
        "seconds": 31.5,
        "parameters": NETWORK,
        "stored_parameters": (budgets + 2) * NETWORK,
        "multiplier_max": [0.6] * budgets,
        "multiplier_mean": [0.1] * budgets,
        "candidates_measured_by": "the critic",
        "margin": [0.031, 0.008][:budgets],
        "notes": ["λ never reached its upper end.", "The log's propensities were used as they stand."],
        "source": "log.parquet",
        "data_hash": "9f86d081884c7d659a2feaa0c55ad015",
        "versions": {"outlay": "0.1.0", "jax": "0.6.2"},
    }
    return Run(Path("runs/first"), {**manifest, **changes})


def campaign(budgets: int, **meta: Any) -> dict[str, Any]:
    """The campaign as a manifest has it."""
    content = {
        "campaign": {"name": "habit", "unit": "yuan", **meta},
        "log": {
            "source": "log.parquet",
            "user": "user",
            "time": "day",
            "action": "coupon",
            "reward": "active",
            "segment": "state",
            "features": {"categorical": ["state"]},
        },
        "budget": BUDGETS[:budgets],
        "train": {"preset": "paper"},
    }
    Campaign.parse(content, Path("campaign.toml"))
    return content


def evaluated(results: RunResults, **changes: Any) -> RunResults:
    """The same results with a changed evaluation."""
    assert results.evaluation is not None
    return replace(results, evaluation=replace(results.evaluation, **changes))


def certified(results: RunResults, **changes: Any) -> RunResults:
    """The same results with a changed certificate."""
    return evaluated(results, certificate=replace(results.evaluated.certificate, **changes))


def _candidates(rng: np.random.Generator, budgets: int) -> tuple[tuple[CandidateRecord, ...], list[int]]:
    kept = [31, 104] if budgets == 1 else [31, 88, 104]
    made = []
    for i in range(150):
        price = 0.11 * (1 - math.exp(-i / 12)) + 0.03 * math.sin(i / 6) * math.exp(-i / 60)
        cost = 2.9 - 8.2 * price + rng.normal(0, 0.10)
        reward = 0.64 - 0.045 * max(0.0, 3.1 - cost) ** 1.5 + rng.normal(0, 0.003)
        if i < 3:
            cost, reward = cost + 2 - i, reward - 0.4 + 0.1 * i  # the first networks know nothing yet
        if i in kept:
            cost = 1.83 if i == 31 else 2.24
            reward = 0.648 - 0.045 * max(0.0, 3.1 - cost) ** 1.5
        measured = (reward, cost, 0.45 + 0.09 * cost / 2 + rng.normal(0, 0.01))[: 1 + budgets]
        made.append(
            CandidateRecord(
                step=100 * (i + 1),
                multiplier=(price, price / 3)[:budgets],
                measured=measured,
                critic=measured,
                loss=0.05 + math.exp(-i / 8) + abs(rng.normal(0, 0.01)),
                kept=min(1 + i, budgets + 2),
                stored_parameters=NETWORK * min(1 + i, budgets + 2),
                original_parameters=NETWORK * (1 + i),
            )
        )
    return tuple(made), [100 * (i + 1) for i in kept]


def _members(candidates: tuple[CandidateRecord, ...], steps: list[int]) -> list[dict[str, Any]]:
    kept = [c for c in candidates if c.step in steps]
    weights = (0.62, 0.38) if len(kept) == 2 else (0.55, 0.3, 0.15)
    shifts = [(0.004 - 0.006 * i, 0.02 - 0.06 * i, 0.001) for i in range(len(kept))]
    return [
        {
            "step": c.step,
            "weight": w,
            "multiplier": c.multiplier,
            "critic": c.critic,
            "fitted": [x + shift for x, shift in zip(c.measured, shifts[i], strict=False)],
        }
        for i, (c, w) in enumerate(zip(kept, weights, strict=True))
    ]


def _evaluation(budgets: int) -> Evaluation:
    names = ("reward", *(str(budget["name"]) for budget in BUDGETS[:budgets]))
    mine = _estimates("mixture", 0.0, names)
    against = [PairedDifference(against=name, **e.as_fields()) for name in ("old", "against") for e in mine]
    return Evaluation(
        grade="certified",
        subject="mixture",
        policies=POLICIES,
        verdict=Verdict(kind=VerdictKind.SERVE, confidence=0.975, old=None, constants=None, broken=(), words=VERDICT),
        confidence=0.95,
        estimates=mine,
        beside=(
            *_observed(names),
            *_estimates("old", -0.2, names),
            *_fitted("constants", -0.1, names),
            *_fitted("member 0", -0.05, names),
            *_fitted("member 1", 0.06, names),
            *_fitted("against", -0.02, names),
        ),
        differences=tuple(against),
        segments=_segments(names),
        certificate=_certificate(budgets),
        diagnostics=_diagnostics(),
        notes={"constants": "3.5 for 62% of users, 4 for 38% of users"},
        daily=_daily(budgets),
        shares=_shares(),
        window=None,
        users="certify",
        first_days=FIRST_DAYS,
        totals=totals(budgets),
    )


def change(now: float, new: float, half: float) -> TotalChange:
    """A total now and with the policy; the change is known to ± half."""
    more = new - now
    return TotalChange(
        now=Total(value=now, low=now - half, high=now + half),
        new=Total(value=new, low=new - half, high=new + half),
        more=Total(value=more, low=more - half, high=more + half),
    )


def totals(limits: int = 1, **changes: Any) -> DecisionTotals:
    """Of the mock's campaign: more active days for less money, with a peak on day one."""
    course = {"old": (447.0, 16.0, 122.5, 5.0), "new": (634.0, -56.0, 133.7, 3.0)}
    given: dict[str, Any] = {
        "users": 200_000,
        "log_users": 200_000,
        "days": 7,
        "confidence": 0.95,
        "sure": 0.975,
        "reward": change(1_000_100.0, 1_027_600.0, 3_700.0),
        "at_least": 23_000.0,
        "at_most": 31_900.0,
        "money": change(3_590_000.0, 3_040_000.0, 10_000.0),
        "first_day": change(447_000.0, 634_000.0, 9_000.0),
        "limit_a_day": 440_000.0,
        "costs": {"reach": change(700_000.0, 760_000.0, 9_000.0)} if limits > 1 else {},
        "by_day": tuple(
            DayTotal(
                policy=policy,
                day=day,
                reward=Total(value=1e3 * (active + more * (day - 1))),
                money=Total(value=1e3 * (money + up * (day - 1)), low=1e3 * money - 4e5, high=1e3 * money + 1e5),
            )
            for policy, (money, up, active, more) in course.items()
            for day in range(1, 8)
        ),
        "segments": (
            SegmentTotals(
                segment="inactive",
                users=102_800,
                given=(3.5, 3.95),
                reward=change(487_000.0, 518_700.0, 3_000.0),
                money=change(1_756_000.0, 1_848_000.0, 9_000.0),
            ),
            SegmentTotals(
                segment="active",
                users=97_200,
                given=(3.5, 2.52),
                reward=change(513_100.0, 508_900.0, 3_000.0),
                money=change(1_834_000.0, 1_192_000.0, 9_000.0),
            ),
            SegmentTotals(segment="new", users=10, given=None, reward=None, money=None),
        ),
        "budgets": tuple(
            BudgetTotals(limit=limit, reward=Total(value=reward), money=Total(value=money), more=reward - 1_000_100.0)
            for limit, reward, money in ((1.65, 990_000.0, 2_280_000.0), (2.75, 1_043_000.0, 3_590_000.0))
        ),
    }
    return DecisionTotals(**{**given, **changes})


FIRST_DAYS = FirstDays(
    money="coupon_cost",
    days=7,
    spend=3.17,
    above_old=0.418,
    above_average=0.44,
    dearer=2,
    beyond_average=3,
)


def _shares() -> tuple[ActionShare, ...]:
    rows = []
    for segment, new in (("inactive", (4.6, 1.0)), ("active", (2.1, 0.8))):
        dense = np.exp(-0.5 * ((np.array(COUPONS) - new[0]) / new[1]) ** 2)
        for action, share in zip(COUPONS, dense / dense.sum(), strict=True):
            rows.append(ActionShare(segment=segment, policy="old", action=action, share=1 / 11))
            rows.append(ActionShare(segment=segment, policy="new", action=action, share=float(share)))
    return tuple(sorted(rows, key=lambda r: (r.segment != "inactive", r.policy != "old")))


def _daily(budgets: int) -> tuple[DayMeans, ...]:
    return tuple(
        DayMeans(
            policy="old",
            day=d + 1,
            reward=0.58 + 0.011 * d - 0.0008 * d * d,
            costs=(2.18 + 0.03 * d, 0.58 + 0.004 * d)[:budgets],
        )
        for d in range(7)
    )


def _certificate(budgets: int) -> Certificate:
    lines = (
        BudgetBound(budget="coupon_cost", value=1.958, bound=1.9757, limit=2.0, floor=False, kept=True),
        BudgetBound(budget="reach", value=0.541, bound=0.533, limit=0.52, floor=True, kept=True),
    )[:budgets]
    return Certificate(
        reason=None,
        budgets=lines,
        confidence=0.975,
        look=1,
        alpha=0.025,
        users=30_000,
        gain=0.0211,
        gain_bound=0.0124,
        gain_most=0.0298,
    )


def _segments(names: tuple[str, ...]) -> tuple[SegmentEstimate, ...]:
    """Inactive users gain, active ones may not; one segment is too small for a number."""
    made = []
    limits = {"coupon_cost": 2.0, "reach": 0.52}
    for segment, users, gain in (("inactive", 12_000, 0.344), ("active", 17_990, -0.047), ("new", 10, None)):
        for target, old in (("reward@7", 4.7), *((name, limits[name]) for name in names[1:])):
            few = Reason(ReasonKind.FEW_IN_SEGMENT, {"count": users, "needed": 30})
            values = {} if gain is None else {"old": old, "mixture": old + gain, "gain": gain}
            for policy in ("old", "mixture", "gain"):
                e = Estimate(policy=policy, estimator="fqe", target=target, value=None, withheld=few)
                if policy in values:
                    e = _estimate(policy, "fqe", target, values[policy], 0.095, recommended=True)
                made.append(SegmentEstimate(segment=segment, users=users, **e.as_fields()))
    return tuple(made)


def _estimates(policy: str, shift: float, names: tuple[str, ...]) -> tuple[Estimate, ...]:
    """Fitted and marginalised agree; the week's doubly robust number is withheld, the clipped ones are biased."""
    made = []
    for name, value in zip(names, (0.727, 2.0, 0.55), strict=False):
        for estimator in ("fqe", "mis"):
            made.append(_estimate(policy, estimator, name, value + shift, 0.02, recommended=True))
        made += [
            _totals(policy, name, days, value * days + shift, estimator)
            for days in (1, 3, 7)
            for estimator in ("fqe", "dr", "mis", "snpdis")
        ]
    return tuple(made)


def _fitted(policy: str, shift: float, names: tuple[str, ...]) -> tuple[Estimate, ...]:
    return tuple(e for e in _estimates(policy, shift, names) if e.estimator == "fqe")


def _observed(names: tuple[str, ...]) -> tuple[Estimate, ...]:
    return tuple(replace(e, estimator="observed") for e in _fitted("old", -0.2, names) if "@" in e.target)


def _totals(policy: str, name: str, days: int, value: float, estimator: str) -> Estimate:
    target = f"{name}@{days}"
    if estimator in ("fqe", "mis"):
        return _estimate(policy, estimator, target, value, 0.006 * days, recommended=True)
    if days == 7:
        return Estimate(policy=policy, estimator=estimator, target=target, value=None, withheld=NO_PATH)
    if days == 3:
        caution = FEW if estimator == "dr" else CLIPPED
        return _estimate(policy, estimator, target, 0.9 * value, 0.3, ess=8.0, caution=caution)
    return _estimate(policy, estimator, target, value, 0.02, ess=967.0, recommended=True)


def _diagnostics() -> Diagnostics:
    """A behaviour model, all checks passed, and a value that the log never gave to active users."""
    actions = tuple(
        behaviour_check.ShareComparison(action=a, among="all", rows=70_000, predicted=0.0909, observed=0.0912, z=0.3)
        for a in COUPONS
    )
    return Diagnostics(
        checks={
            "propensities": of_behaviour(
                behaviour_check.BehaviourCheck(
                    rows=70_000,
                    log_loss=2.39,
                    constant_log_loss=2.4,
                    actions=actions,
                    worst=actions[0],
                    comparisons=11,
                    least_propensity=0.08,
                    least_action=1.0,
                    ok=True,
                    words="The model of the old policy fits 70,000 rows with a choice",
                )
            ),
            "reproduction": of_state(Reproduction(Reason(ReasonKind.REPRODUCED), ("reward@1",))),
            "state": of_state(
                MarkovCheck.of([PastDependence("reward", "action", "last day", 0.004, 0.003)], history=False)
            ),
            "balance": of_balance(
                BalanceCheck.of([PastDependence("action", "reward", "last day", 0.004, 0.003)], logged=False)
            ),
            "agreement": of_agreement(
                agreement.Agreement(
                    Reason(ReasonKind.AGREES, {"count": 10, "less": 4}),
                    (agreement.EstimatorDifference("mis", "reward@1", 0.001, 0.002, 0.008),),
                )
            ),
        },
        days=DayEffects((OutcomeByDay("active", 0.0, 0.0, (1.0, 0.2)),), 7, (1.0,), 7, "the 7 days do not differ"),
        paths=(
            MatchingPaths(days=1, users=30_000, matched=0.153, ess=967.0, clipped=0.0, heaviest=0.0013),
            MatchingPaths(days=3, users=30_000, matched=0.0011, ess=7.9, clipped=0.093, heaviest=0.13),
            MatchingPaths(days=7, users=29_000, matched=0.0, ess=0.0, clipped=0.093, heaviest=None),
        ),
        overlap=(
            SegmentOverlap(
                segment="inactive",
                choices=32_000,
                matched=0.16,
                ess=3654.0,
                mean_ratio=1.001,
                mean_ratio_error=0.016,
                unseen=(),
                unseen_share=0.0,
            ),
            SegmentOverlap(
                segment="active",
                choices=30_000,
                matched=0.18,
                ess=3627.0,
                mean_ratio=1.007,
                mean_ratio_error=None,
                unseen=(5.5, 6.0),
                unseen_share=0.0031,
            ),
        ),
    )


def _estimate(
    policy: str,
    estimator: str,
    target: str,
    value: float,
    half: float,
    *,
    ess: float = 30_000.0,
    recommended: bool = False,
    caution: Reason | None = None,
) -> Estimate:
    return Estimate(
        policy=policy,
        estimator=estimator,
        target=target,
        value=value,
        low=value - half,
        high=value + half,
        std_error=half / 1.96,
        ess=ess,
        recommended=recommended,
        caution=caution,
    )
