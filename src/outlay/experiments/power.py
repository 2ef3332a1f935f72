"""What a test can detect: power, the smallest detectable effect and the users needed, from a past log.

    t = (x̄_arm − x̄_control) / √(σ²/n_arm + σ²/n_control)        σ² of the past log, the same in both arms
    CUPED: x − θ (y − ȳ),  θ = cov(x, y) / var(y),  leaves the part 1 − ρ² of σ²        y: x in the days before

A ratio of means is linearised (delta method). The numbers are tea-tasting's. A relative effect also increases the
variance of the arm: of lifts of 5 to 7% that were planned for with a power of 80%, simulated tests detected 77%.

Source: Deng, Xu, Kohavi and Walker 2013 (CUPED); Deng, Knoblich and Lu 2018 (delta method).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment
from outlay.experiments.moments import BEFORE, Metric, UserMoments, aggregates, tea_tasting
from outlay.experiments.sequential import obrien_fleming, sequence_half_width, spending_bounds, tuned_rho

ROUNDING = 1e-12  # of a sum of squares: a variance below it is that of a constant


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


def last_alpha(experiment: Experiment) -> float:
    """The two-sided error that the last planned decision on one arm may still make, if information grows with the days.

    The contestants share the verdict's error, and each spends its part over the decisions. Planning with it errs on the
    safe side: an effect that an earlier decision detects is not counted.
    """
    alpha = (1 - experiment.meta.confidence) / len(experiment.contestants)
    days = np.asarray(experiment.meta.decisions, np.float64)
    bounds = spending_bounds(days, obrien_fleming(days / days[-1], alpha))
    return float(2 * ndtr(-bounds[-1]))


def guardrail_alpha(experiment: Experiment) -> float:
    """The two-sided error that a guardrail's confidence sequence makes on the last day alone.

    It is less than that of a decision, since the sequence holds on every day; guardrails and arms do not share it.
    """
    alpha, days = 1 - experiment.meta.confidence, experiment.meta.days
    return float(2 * ndtr(-sequence_half_width(1.0, days, tuned_rho(days, alpha), alpha)))


def is_constant(moments: UserMoments, metric: Metric) -> bool:
    """Whether no user of the past log differs from another in this metric, or its denominator is 0."""
    names = metric.columns
    place = [moments.place(name) for name in names]
    mean, covariance = moments.mean[place], moments.covariance[np.ix_(place, place)]
    if len(names) == 1:
        slope = np.ones(1)
    elif mean[1] == 0:
        return True
    else:
        slope = np.array([1.0, -mean[0] / mean[1]])  # of the ratio, times the denominator
    squares = covariance[0, 0] + mean[0] ** 2
    return bool(slope @ covariance @ slope <= ROUNDING * squares)


def solve(
    moments: UserMoments,
    metric: Metric,
    *,
    arm: str,
    users: Sequence[int],
    alpha: float,
    power: float,
    cuped: bool,
    lift: float | None = None,
) -> Power:
    """The power of a two-sided test of one arm against the control.

    Args:
        moments: of the past log, over as many days as the test; with CUPED also of the days before.
        metric: what is compared.
        arm: name of the arm.
        users: of the control and of the arm.
        alpha: two-sided error of the decision (`last_alpha`) or of a guardrail (`guardrail_alpha`).
        power: wanted probability of detecting the smallest detectable effect.
        cuped: whether to use the days before.
        lift: a relative effect of interest, e.g. 0.006.

    Raises:
        OutlayError: if tea-tasting is not installed, the metric is constant, the days before predict it exactly, or
            an arm has fewer than two users.
    """
    if is_constant(moments, metric):
        raise OutlayError("is the same for all users of the past log, so it cannot be planned for.",
                          where=f"metric {metric.name!r}", way_out="Take another metric.")  # fmt: skip
    control, treated = users
    if min(control, treated) < 2:
        raise OutlayError(f"the arms have {control} and {treated} users; each must have at least 2.", where=arm,
                          way_out="Give more users, a larger share or more coverage.")  # fmt: skip
    past = Metric(metric.name, *(name + BEFORE for name in metric.columns))
    used = [metric, past] if cuped and not is_constant(moments, past) else [metric]
    columns = [name for part in used for name in (part.numerator, part.denominator)]
    known = aggregates(moments, [name for part in used for name in part.columns])
    left = _variance_left(known, columns)
    if left <= ROUNDING:
        raise OutlayError("is predicted exactly by the days before.", where=f"metric {metric.name!r}",
                          way_out="Check that it is an outcome, not a fixed property of the user.")  # fmt: skip
    # Normal, not t: SciPy's noncentral t is NaN far out, and from a hundred users on they agree.
    settings = {"use_t": False, "alpha": alpha, "ratio": treated / control, "power": power, "n_obs": control + treated}
    tested = tea_tasting().RatioOfMeans
    (smallest,) = tested(*columns, **settings).solve_power_from_aggregates(known, "effect_size")
    mean = float(known.mean(metric.numerator) / known.mean(metric.denominator))
    lift_power = lift_users = None
    if lift is not None and mean != 0:
        asked = tested(*columns, **settings, rel_effect_size=lift)
        lift_power = float(asked.solve_power_from_aggregates(known, "power")[0].power)
        lift_users = int(asked.solve_power_from_aggregates(known, "n_obs")[0].n_obs)
    return Power(
        metric=metric.name, arm=arm, cuped=cuped, mean=mean, left=left, users=control + treated, power=power,
        absolute=float(smallest.effect_size), relative=float(smallest.effect_size) / abs(mean) if mean else None,
        lift=lift, lift_power=lift_power, lift_users=lift_users,
    )  # fmt: skip


def _variance_left(known: Any, columns: Sequence[str | None]) -> float:
    """1 − ρ² of a metric and its covariate, each a numerator and a denominator; 1 without a covariate."""
    if len(columns) == 2:
        return 1.0
    metric, past = columns[:2], columns[2:]
    together = known.ratio_cov(*metric, *past) ** 2
    return float(1 - together / (known.ratio_var(*metric) * known.ratio_var(*past)))
