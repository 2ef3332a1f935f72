"""Report contents as a run would fill them: 150 candidates, one or two budgets, a training that settles."""

from __future__ import annotations

import math

import numpy as np

from outlay.core.estimate import Estimate
from outlay.pages.content import BudgetLine, DailyRow, Interval, PolicyRow, ReportContent, ShareRow
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
from outlay.pages.learned_content import Candidate, Measured, MemberPoint, Point, TrainingPoint

COUPONS = [1 + i / 2 for i in range(11)]
VERDICT = "Serve the mixture: it wins 0.21 active days a week per user over the old policy and spends 0.35 yuan less."
NO_PATH = "no user's logged path is the policy's for 7 days"
FEW = "it rests on the weights of 8 effective users; 100 are needed"
CLIPPED = "the clip binds for 9.26% of the weights, which biases it"
NETWORK = 29_419  # parameters of one policy


def example(budgets: int = 1) -> ReportContent:
    """A finished and evaluated report; with two budgets the second is a floor."""
    rng = np.random.default_rng(0)
    lines = (
        BudgetLine(name="coupon_cost", limit=2.0, unit="yuan"),
        BudgetLine(name="reach", limit=0.52, sign=-1),
    )[:budgets]
    candidates = _candidates(rng, budgets)
    kept = [c for c in candidates if c.kept]
    weights = (0.62, 0.38) if budgets == 1 else (0.55, 0.3, 0.15)
    members = tuple(
        MemberPoint(
            name=f"member {i}", weight=w, multiplier=c.multiplier,
            measured=Measured(critic=c.measured, fitted=_shift(c.measured, 0.004 - 0.006 * i, 0.02 - 0.06 * i)),
        )
        for i, (c, w) in enumerate(zip(kept, weights, strict=True))
    )  # fmt: skip
    return ReportContent(
        title="habit", unit="yuan", reward_label="active days", action_label="coupon (yuan)",
        verdict=VERDICT,
        certified=True, confidence=0.95, method="aim-greedy", budgets=lines,
        notes=("λ never reached its upper end.", "The log's propensities were used as they stand."),
        policies=_policies(budgets), candidates=candidates, members=members,
        mixture=Measured(critic=_mean(members, "critic"), fitted=_mean(members, "fitted")),
        old=Point(0.572, (2.31, 0.60)[:budgets]),
        training=_training(rng, budgets), shares=_shares(), daily=_daily(budgets), certificate=_certificate(budgets),
        segments=_segments(lines), estimates=_estimates(lines), against=_against(lines), evidence=_evidence(),
        settings={
            "Provenance": {"data hash": "blake2b:9f86d081884c7d659a2feaa0c55ad015", "rows": 1_400_000, "users": 200_000,
                           "seed": 0, "outlay": "0.1.0", "jax": "0.6.2"},
            "Schedule": {"preset": "paper", "discount": 0.8, "batch": 512, "epochs": 2.0, "layers": [128, 64],
                         "learning_rate": 0.001, "shares": [0.9, 0.05, 0.05], "multiplier_max": None},
        },
    )  # fmt: skip


def _shift(point: Point, reward: float, cost: float) -> Point:
    return Point(point.reward + reward, tuple(c + (cost if j == 0 else -cost / 20) for j, c in enumerate(point.costs)))


def _mean(members: tuple[MemberPoint, ...], figure: str) -> Point:
    points = [getattr(m.measured, figure) for m in members]
    weights = [m.weight for m in members]
    costs = tuple(
        sum(w * p.costs[j] for w, p in zip(weights, points, strict=True)) for j in range(len(points[0].costs))
    )
    return Point(sum(w * p.reward for w, p in zip(weights, points, strict=True)), costs)


def _candidates(rng: np.random.Generator, budgets: int) -> tuple[Candidate, ...]:
    kept = (31, 104) if budgets == 1 else (31, 88, 104)
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
        second = 0.45 + 0.09 * cost / 2 + rng.normal(0, 0.01)
        made.append(
            Candidate(step=100 * (i + 1), multiplier=(price, price / 3)[:budgets],
                      measured=Point(reward, (cost, second)[:budgets]), kept=i in kept)
        )  # fmt: skip
    return tuple(made)


def _training(rng: np.random.Generator, budgets: int) -> tuple[TrainingPoint, ...]:
    points = []
    for i in range(1500):
        price = 0.11 * (1 - math.exp(-i / 120)) + 0.03 * math.sin(i / 60) * math.exp(-i / 600)
        cost = 2.9 - 8.2 * price + rng.normal(0, 0.08)
        points.append(
            TrainingPoint(
                step=10 * i, multiplier=(price, price / 3 + 0.01)[:budgets],
                measured=Point(0.6, (cost, 0.5 + 0.02 * cost)[:budgets]),
                stored_parameters=NETWORK * min(1 + i // 10, budgets + 2), original_parameters=NETWORK * (1 + i // 10),
                loss=0.05 + math.exp(-i / 80) + abs(rng.normal(0, 0.01)),
            )
        )  # fmt: skip
    return tuple(points)


def _policies(budgets: int) -> tuple[PolicyRow, ...]:
    def row(name: str, kind: str, seven: float, cost: float, certified: bool | None, note: str = "") -> PolicyRow:
        totals = {
            d: Interval(seven * f, seven * f - w, seven * f + w)
            for d, f, w in ((1, 0.13, 0.006), (3, 0.41, 0.018), (7, 1.0, 0.041))
        }
        costs = {"coupon_cost": Interval(cost, cost - 0.021, cost + 0.021)}
        if budgets == 2:
            costs["reach"] = Interval(0.5 + cost / 60, 0.49 + cost / 60, 0.51 + cost / 60)
        return PolicyRow(name=name, kind=kind, note=note, totals=totals, costs=costs, certified=certified)  # type: ignore[arg-type]

    return (
        row("old policy", "old", 4.41, 2.31, None, "what the log shows"),
        row("best constant mixture", "constant", 4.47, 1.97, True, "3.5 yuan for 62 %, 4 yuan for 38 %"),
        row("aim-greedy, as served", "chosen", 4.62, 1.958, True, "2 members"),
        row("member 0", "member", 4.51, 1.80, None, "62 % of users"),
        row("member 1", "member", 4.81, 2.25, None, "38 % of users"),
        row("single-best", "method", 4.52, 1.88, True),
        row("uniform", "method", 4.66, 2.12, False, "the original method"),
    )


def _shares() -> tuple[ShareRow, ...]:
    rows = []
    for segment, new in (("inactive", (4.6, 1.0)), ("active", (2.1, 0.8))):
        dense = np.exp(-0.5 * ((np.array(COUPONS) - new[0]) / new[1]) ** 2)
        for action, share in zip(COUPONS, dense / dense.sum(), strict=True):
            rows.append(ShareRow(segment=segment, policy="old", action=action, share=1 / 11))
            rows.append(ShareRow(segment=segment, policy="new", action=action, share=float(share)))
    return tuple(sorted(rows, key=lambda r: (r.segment != "inactive", r.policy != "old")))


def _daily(budgets: int) -> tuple[DailyRow, ...]:
    return tuple(
        DailyRow(
            policy="old",
            day=d + 1,
            reward=0.58 + 0.011 * d - 0.0008 * d * d,
            costs=(2.18 + 0.03 * d, 0.58 + 0.004 * d)[:budgets],
        )
        for d in range(7)
    )


def _certificate(budgets: int) -> Certificate:
    bounds = (
        Bound(budget="coupon_cost", value=1.958, bound=1.9757, margin=0.031, kept=True),
        Bound(budget="reach", value=0.541, bound=0.533, margin=0.008, kept=True),
    )[:budgets]
    return Certificate(
        bounds=bounds, confidence=0.975, look=1, level=0.025, users=30_000,
        gain=Gain(target="reward", value=0.0211, bound=0.0124),
        rests_on=("The logged propensities are right.", "Users behave next month as they did in the log."),
    )  # fmt: skip


def _segments(lines: tuple[BudgetLine, ...]) -> tuple[SegmentLine, ...]:
    """Inactive users gain, active ones may not; one segment is too small for a number."""
    made = []
    for segment, users, gain in (("inactive", 12_000, 0.344), ("active", 17_990, -0.047), ("new", 10, None)):
        for target, old in (("reward@7", 4.7), *((line.name, line.limit) for line in lines)):
            few = f"{users} users are in it"
            values = {} if gain is None else {"old": old, "mixture": old + gain, "gain": gain}
            estimates = [
                _estimate(policy, "fqe", target, values[policy], 0.095, recommended=True)
                if policy in values
                else Estimate(policy=policy, estimator="fqe", target=target, value=None, withheld=few)
                for policy in ("old", "mixture", "gain")
            ]
            made.append(SegmentLine(segment=segment, users=users, target=target, old=estimates[0], new=estimates[1],
                                    gain=estimates[2]))  # fmt: skip
    return tuple(made)


def _estimates(lines: tuple[BudgetLine, ...]) -> tuple[Estimate, ...]:
    """Fitted and marginalised agree; the week's doubly robust number is withheld, the clipped ones are biased."""
    made = []
    names = ("reward", *(line.name for line in lines))
    for policy, shift in (("mixture", 0.0), ("old", -0.2)):
        for name, value in zip(names, (0.727, 2.0, 0.55), strict=False):
            for estimator in ("fqe", "mis"):
                made.append(_estimate(policy, estimator, name, value + shift, 0.02, recommended=True))
            made += [
                _totals(policy, name, days, value * days + shift, estimator)
                for days in (1, 3, 7)
                for estimator in ("fqe", "dr", "mis", "snpdis")
            ]
    return tuple(made)


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


def _against(lines: tuple[BudgetLine, ...]) -> tuple[Against, ...]:
    return tuple(
        Against(title=title, estimates=tuple(e for e in _estimates(lines) if e.policy == "mixture"))
        for title in ("the old policy", "second (lp)")
    )


def _evidence() -> Evidence:
    """A behaviour model, all checks passed, and a value that the log never gave to active users."""
    return Evidence(
        checks=(
            Check(name="propensities", ok=True, words="The model of the old policy fits 70,000 rows with a choice."),
            Check(name="reproduction", ok=True, words="the estimator gives the old policy's observed totals back"),
            Check(name="agreement", ok=True, words="all 10 other estimates that can be relied on agree with it"),
        ),
        paths=(
            PathLine(days=1, users=30_000, matched=0.153, ess=967.0, clipped=0.0, heaviest=0.0013),
            PathLine(days=3, users=30_000, matched=0.0011, ess=7.9, clipped=0.093, heaviest=0.13),
            PathLine(days=7, users=29_000, matched=0.0, ess=0.0, clipped=0.093, heaviest=None),
        ),
        overlap=(
            OverlapLine(segment="inactive", choices=32_000, matched=0.16, ess=3654.0, mean_ratio=1.001, error=0.016,
                        unseen=(), unseen_share=0.0),
            OverlapLine(segment="active", choices=30_000, matched=0.18, ess=3627.0, mean_ratio=1.007, error=None,
                        unseen=(5.5, 6.0), unseen_share=0.0031),
        ),
        model=tuple(FitLine(action=a, rows=70_000, predicted=0.0909, observed=0.0912) for a in COUPONS),
    )  # fmt: skip


def _estimate(
    policy: str,
    estimator: str,
    target: str,
    value: float,
    half: float,
    *,
    ess: float = 30_000.0,
    recommended: bool = False,
    caution: str | None = None,
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
