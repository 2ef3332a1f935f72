"""What a test can detect: power, the smallest detectable effect and the users needed, from a past log.

    t = (x̄_arm − x̄_control) / √(σ²/n_arm + σ²/n_control)        σ² of the past log, the same in both arms
    power = Φ(δ − z) + Φ(−δ − z),  δ: the effect in standard errors,  z = z_{1−α/2}         `reach`: the δ of a power
    n = reach² · σ² · (1/s + 1/(1 − s)) / effect²               units of both arms; s: the share of one arm
    CUPED: x − θ (y − ȳ),  θ = cov(x, y) / var(y),  leaves the part 1 − ρ² of σ²        y: x in the days before
    D = variance with clusters drawn / variance with users drawn = 1 + (m − 1)·ρ             the design effect
    m = Σ N_g² / Σ N_g, the size of the cluster that a user is in on average;  ρ: the intra-cluster correlation

A ratio of means is linearised (`moments.py`). A relative effect also increases the variance of the arm: of lifts of 5
to 7% that were planned for with a power of 80%, simulated tests detected 77%.

Source: Deng, Xu, Kohavi and Walker 2013 (CUPED); Deng, Knoblich and Lu 2018 (delta method); Kish 1965 (design effect).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment
from outlay.experiments.moments import USERS, Metric, UserMoments
from outlay.experiments.sequential import obrien_fleming, sequence_half_width, spending_bounds, tuned_rho
from outlay.ops.intervals import quantile

ROUNDING = 1e-12  # of a variance: if CUPED leaves less of it, the rest is rounding
ENOUGH = 100  # users or clusters of an arm: with fewer, means are not yet normal, and no formula of power holds
FARTHEST = 40.0  # standard errors: beyond them, the power is 1


@dataclass(frozen=True)
class Power:
    """What a comparison of one arm with the control can detect in one metric.

    Attributes:
        metric: its name.
        arm: the arm that is compared with the control.
        cuped: whether the days before are used.
        mean: of the metric in the past log, per user (or the ratio).
        left: share of the variance that is left: 1 − ρ² with CUPED, 1 without.
        users: in both arms together.
        power: probability of detecting an effect of the size of `absolute`.
        absolute: smallest detectable effect, in units of the metric.
        relative: the same as a share of the mean; None if that is 0.
        lift: a relative effect of interest, or None.
        lift_power: probability of detecting it.
        lift_users: users in both arms that are needed to detect it with `power`.
    """

    metric: str
    arm: str
    cuped: bool
    mean: float
    left: float
    users: int
    power: float
    absolute: float
    relative: float | None
    lift: float | None = None
    lift_power: float | None = None
    lift_users: int | None = None


@dataclass(frozen=True)
class Asked:
    """What is asked of one comparison.

    Attributes:
        arm: name of the arm.
        users: of the control and of the arm.
        alpha: two-sided error of the decision (`last_alpha`) or of a guardrail (`guardrail_alpha`).
        power: wanted probability of detecting the smallest detectable effect.
        lift: a relative effect of interest, e.g. 0.006.
    """

    arm: str
    users: tuple[int, int]
    alpha: float
    power: float
    lift: float | None = None


@dataclass(frozen=True)
class DesignEffect:
    """What drawing clusters instead of users costs.

    Attributes:
        clusters: G of the past log.
        size: m, of the cluster that a user is in on average.
        effect: D, by which the variance of an arm's mean grows.
        correlation: ρ of two users of one cluster.
    """

    clusters: int
    size: float
    effect: float
    correlation: float


def last_alpha(experiment: Experiment) -> float:
    """The two-sided error that the last planned decision on one arm may still make, if information grows with the days.

    The contestants share the verdict's error, and each spends its part over the decisions. Planning with it errs on the
    safe side: an effect that an earlier decision detects is not counted.
    """
    days = np.asarray(experiment.meta.decisions, np.float64)
    bounds = spending_bounds(days, obrien_fleming(days / days[-1], experiment.alpha))
    return float(2 * ndtr(-bounds[-1]))


def guardrail_alpha(experiment: Experiment) -> float:
    """The two-sided error that a guardrail's confidence sequence makes on the last day alone.

    It is less than that of a decision, since the sequence holds on every day; guardrails and arms do not share it.
    """
    alpha, days = 1 - experiment.meta.confidence, experiment.meta.days
    return float(2 * ndtr(-sequence_half_width(1.0, days, tuned_rho(days, alpha), alpha)))


def detected(effect: float, alpha: float) -> float:
    """The power of a two-sided test: how often it detects an effect of so many standard errors."""
    z = quantile(1 - alpha / 2)
    return float(ndtr(abs(effect) - z) + ndtr(-abs(effect) - z))


def reach(alpha: float, power: float) -> float:
    """The effect, in standard errors, that a two-sided test detects with a probability of `power` > α."""
    return float(brentq(lambda effect: detected(effect, alpha) - power, 0.0, FARTHEST, xtol=1e-14))


def units_needed(variance: float, effect: float, *, alpha: float, power: float, share: float = 0.5) -> int:
    """Users, or clusters, of both arms that detect an effect.

    Args:
        variance: of the metric between units, the same in both arms.
        effect: difference of the means, not 0, in the unit of the metric.
        alpha: two-sided error.
        power: probability of detecting the effect.
        share: of one of the arms.
    """
    return ceil(reach(alpha, power) ** 2 * variance * (1 / share + 1 / (1 - share)) / effect**2)


def solve(moments: UserMoments, metric: Metric, asked: Asked, *, cuped: bool) -> Power:
    """The power of a two-sided test of one arm against the control.

    Args:
        moments: of the past log, over as many days as the test; with CUPED also of the days before.
        metric: what is compared.
        asked: arm, users, errors.
        cuped: whether to use the days before.

    Raises:
        OutlayError: if the metric is constant, the days before predict it exactly, or an arm has fewer than two users.
    """
    where = f"metric {metric.name!r}"
    if moments.is_constant(metric):
        found = "is the same for all users of the past log, so it cannot be planned for."
        raise OutlayError(found, where=where, way_out="Take another metric.")
    control, treated = asked.users
    if min(control, treated) < 2:
        found = f"the arms have {control} and {treated} users; each must have at least 2."
        raise OutlayError(found, where=asked.arm, way_out="Give more users, a larger share or more coverage.")
    left = _variance_left(moments, metric) if cuped else 1.0
    if left <= ROUNDING:
        way_out = "Check that it is an outcome, not a fixed property of the user."
        raise OutlayError("is predicted exactly by the days before.", where=where, way_out=way_out)
    variance, mean = left * moments.variance(metric), moments.value(metric)
    error = sqrt(variance * (1 / control + 1 / treated))
    smallest = reach(asked.alpha, asked.power) * error
    lift_power = lift_users = None
    if asked.lift is not None and mean != 0:
        effect, share = asked.lift * mean, treated / (control + treated)
        lift_power = detected(effect / error, asked.alpha)
        lift_users = units_needed(variance, effect, alpha=asked.alpha, power=asked.power, share=share)
    return Power(
        metric=metric.name,
        arm=asked.arm,
        cuped=cuped,
        mean=mean,
        left=left,
        users=control + treated,
        power=asked.power,
        absolute=smallest,
        relative=smallest / abs(mean) if mean else None,
        lift=asked.lift,
        lift_power=lift_power,
        lift_users=lift_users,
    )


def design_effect(metric: Metric, users: UserMoments, clusters: UserMoments) -> DesignEffect:
    """What drawing clusters costs in the variance of an arm's mean.

    Args:
        metric: a mean per user, or a ratio.
        users: of the past log, by user.
        clusters: the same by cluster, with the column `USERS`.
    """
    by_user = users.variance(metric) / users.users
    by_cluster = clusters.variance(metric.per_user) / clusters.users
    place = clusters.place(USERS)
    mean = clusters.average(USERS)
    size = mean + float(clusters.covariance[place, place]) * (1 - 1 / clusters.users) / mean
    effect = by_cluster / by_user
    return DesignEffect(clusters.users, size, effect, (effect - 1) / (size - 1) if size > 1 else 0.0)


def _variance_left(moments: UserMoments, metric: Metric) -> float:
    """1 − ρ² of a metric and the same of the days before; 1 if users do not differ in these."""
    if moments.is_constant(metric.before):
        return 1.0
    x, y = (moments.weights(each) for each in (metric, metric.before))
    return 1 - moments.product(x, y) ** 2 / (moments.product(x, x) * moments.product(y, y))
