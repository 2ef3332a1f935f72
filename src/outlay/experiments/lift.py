"""What an arm does to a metric: the difference of two arms, absolute and relative, with its error.

    mean      Δ = Ȳ_arm − Ȳ_control           ratio   Δ = R_arm − R_control,   R = Ȳ / D̄ (delta method)
    CUPED     Δ − θ (C̄_arm − C̄_control)       θ = Cov(Y, C) / Var(C) over both arms, C the same before the start
    relative  Δ / Ȳ_control, its interval made on the logarithm of A / Ȳ_control, A = Ȳ_control + Δ, which moves as
              (Ȳ_arm − θ C̄_arm) / A − (Ȳ_control / Ȳ_control − θ C̄_control / A)

The unit is the user, or the cluster of users by which arms were drawn (`by_cluster.py`); then quantiles are those of
Student's t, with the degrees of freedom of Welch. If users came on different days, both arms hold the same mixture of
them, and the lift is that of the mixture. The difference and its error are tea-tasting's, from sufficient statistics.
The two means are not adjusted: CUPED adjusts only the difference, which is therefore not simply one mean less the
other. The error on the logarithm is ours, since the relative lift is over the control's own mean.

If a metric cannot be compared, no number is given but the reason. If one arm is small and a few users account for most
of the metric, the difference is skewed, and the small arm's own variance is near 0 as long as it has none of those
users. Both arms are then given the pooled variance, if that makes the error larger.

Source: Deng, Xu, Kohavi and Walker 2013 (CUPED); Deng, Knoblich and Lu 2018 (delta method); Kohavi, Deng, Longbotham
and Xu 2014 (the users that a skewed metric needs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

from scipy.special import ndtr, ndtri, stdtr

from outlay.experiments.moments import BEFORE, Metric, UserMoments, aggregates, pooled_skewness, tea_tasting
from outlay.experiments.power import is_constant
from outlay.ops.intervals import quantile, student

LEAST_USERS = 30  # of an arm: with fewer, a normal interval is not reliable
LEAST_CLUSTERS = 10  # of an arm whose unit is the cluster: with fewer, an interval of Student's t is not reliable
MOST_SKEWED = 0.25  # skewness of a difference up to which each arm has its own variance
ROUNDING = 1e-9  # of a variance: if CUPED leaves less of it, the rest is rounding
LONGEST = 700.0  # half width of an interval of logarithms: beyond it, exp overflows

Names = tuple[str | None, str | None, str | None, str | None]  # numerator, denominator, and the same before the start


@dataclass(frozen=True)
class IntervalEstimate:
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def side(self) -> int:
        """+1 or −1 if the interval lies above or below 0, else 0."""
        return int(self.low > 0) - int(self.high < 0)


@dataclass(frozen=True)
class ArmDifference:
    """An arm less the control.

    Attributes:
        absolute: in the metric's unit per user.
        relative: over the control; None if there is no positive value to compare with.
    """

    absolute: IntervalEstimate
    relative: IntervalEstimate | None

    def consistent(self) -> ArmDifference:
        """Without the relative interval, which is made on the logarithm, if only one of the two contains 0."""
        x, y = self.absolute, self.relative
        if y is None or (x.low > 0) != (y.low > 0) or (x.high > 0) != (y.high > 0):
            return ArmDifference(x, None)
        return ArmDifference(x, y)


@dataclass(frozen=True, kw_only=True)
class Lift(ArmDifference):
    """The difference in one metric, at a single look.

    With a covariate, `absolute` is less what the users' past explains of it. `relative` is None if the mean of an arm,
    or the control's plus the difference, is not positive.

    Attributes:
        metric: its name.
        control, treatment: the two means or ratios, not adjusted.
        std_error: of the difference.
        log_error: of ln(1 + relative); None like `relative`.
        p_value: two-sided, under no difference.
        covariate: whether the days before the start were used (CUPED); they are not if that would widen the interval.
        cautious: whether both arms were given the pooled variance, since one is too small to know its own.
        freedom: degrees of freedom of Student's t, where the units are clusters; +∞: normal.
    """

    metric: str
    control: float
    treatment: float
    std_error: float
    log_error: float | None
    p_value: float
    covariate: bool
    cautious: bool
    freedom: float = math.inf

    @property
    def z(self) -> float:
        """The difference in standard errors; with few degrees of freedom, the normal point that is as rare."""
        t = self.absolute.value / self.std_error
        return t if math.isinf(self.freedom) else -math.copysign(1, t) * float(ndtri(stdtr(self.freedom, -abs(t))))

    def widened(self, errors: float) -> ArmDifference:
        """The same difference with intervals of `errors` standard errors to either side, or as rare by Student's t."""
        errors = student(errors, self.freedom)
        absolute = _plus(self.absolute.value, errors * self.std_error)
        if self.relative is None or self.log_error is None:
            return ArmDifference(absolute, None)
        return ArmDifference(absolute, _times(self.relative.value, errors * self.log_error))


@dataclass(frozen=True)
class Withheld:
    """A metric that cannot be compared, and why."""

    metric: str
    reason: str


def needed_pairs(metrics: Sequence[Metric]) -> list[tuple[str, str]]:
    """The pairs of columns whose products the metrics need, with their covariates, which a log may not have."""
    pairs: set[tuple[str, str]] = set()
    for metric in metrics:
        pairs |= set(combinations_with_replacement((*metric.columns, *(c + BEFORE for c in metric.columns)), 2))
    return sorted(pairs)


def lift(
    metric: Metric, control: UserMoments, treatment: UserMoments, confidence: float, *, adjust: bool = True
) -> Lift | Withheld:
    """Compare two arms in one metric.

    Args:
        metric: what is compared.
        control: of the users in the control.
        treatment: of the users in the other arm; the same columns.
        confidence: of the intervals, at a single look.
        adjust: use the days before the start (CUPED), if the moments have them.

    Raises:
        OutlayError: if tea-tasting is not installed.
    """
    reason = _why_not(metric, control, treatment)
    if reason is not None:
        return Withheld(metric.name, reason)
    before = _covariates(metric, control, treatment) if adjust else ()
    columns = [*metric.columns, *before]
    old, new = aggregates(control, columns), aggregates(treatment, columns)
    both = old + new
    names: Names = (metric.numerator, metric.denominator, None, None)
    slope = 0.0
    if before:
        adjusted: Names = (metric.numerator, metric.denominator, *_padded(before))
        theta = _slope(both, adjusted)
        exact = [_variance(x, adjusted, theta) <= ROUNDING * _variance(x, names, 0.0) for x in (old, new)]
        if all(exact):
            return Withheld(metric.name, "the days before the start predict it exactly")
        # One θ fits badly if an arm breaks with its users' past, as a holdout does with its cost. Which of the two
        # errors is smaller is nearly certain at these sizes, and if they are close, the choice matters little.
        fits = _difference_error(old, new, adjusted, theta) < _difference_error(old, new, names, 0.0)
        if fits and not any(exact):
            names, slope = adjusted, theta
    test = tea_tasting().RatioOfMeans(
        *names, confidence_level=confidence, use_t=False, alternative="two-sided", equal_var=False
    )
    try:
        found = test.analyze_aggregates(old, new)
    except OverflowError:
        return Withheld(metric.name, "the arms' means are too close to 0 for a ratio")
    z = quantile(0.5 + confidence / 2)
    own = (found.effect_size_ci_upper - found.effect_size_ci_lower) / (2 * z)
    common = math.sqrt(_variance(both, names, slope) * (1 / control.users + 1 / treatment.users))
    sizes = control.users, treatment.users
    cautious = common > own and skewness(metric, (control, treatment), sizes) > MOST_SKEWED
    std_error = common if cautious else own
    freedom = _freedom(old, new, names, slope) if control.clustered else math.inf
    width = student(z, freedom)
    means = _mean(metric, control), _mean(metric, treatment)
    relative, log_error = None, None
    if min(*means, means[0] + found.effect_size) > 0:
        log_error = _log_error(old, new, names, slope, means[0], found.effect_size) * std_error / own
        relative = _times(found.effect_size / means[0], width * log_error)
    return Lift(
        metric=metric.name,
        control=means[0],
        treatment=means[1],
        absolute=_plus(float(found.effect_size), width * std_error),
        relative=relative,
        std_error=std_error,
        log_error=log_error,
        p_value=_p_value(float(found.effect_size) / std_error, freedom),
        covariate=names[2] is not None,
        cautious=cautious,
        freedom=freedom,
    )


def skewness(metric: Metric, parts: Sequence[UserMoments], users: tuple[int, int]) -> float:
    """Absolute skewness of the difference between two arms' means, if the arms do not differ.

    Args:
        metric: for a ratio, its more skewed part counts.
        parts: moments whose users, pooled, say how skewed the totals are.
        users: number of users in the two arms.
    """
    uneven = abs(users[0] - users[1]) / math.sqrt(users[0] * users[1] * sum(users))
    return uneven * max(abs(pooled_skewness(parts, name)) for name in metric.columns)


def sample_ratio(control: int, treatment: int, planned: float) -> float:
    """P-value of the two arms' numbers of users, if `planned` users were planned for each one in the control."""
    tea = tea_tasting()
    counts = {name: tea.aggr.Aggregates(count_=users) for name, users in ((0, control), (1, treatment))}
    return float(tea.SampleRatio(planned).analyze(counts, control=0, treatment=1).pvalue)


def _why_not(metric: Metric, control: UserMoments, treatment: UserMoments) -> str | None:
    least = min(control.users, treatment.users)
    needed, what = (LEAST_CLUSTERS, "clusters") if control.clustered else (LEAST_USERS, "users")
    if least < needed:
        return f"an arm has {least} {what}; {needed} are needed"
    if (
        metric.denominator is not None
        and not min(x.mean[x.place(metric.denominator)] for x in (control, treatment)) > 0
    ):
        return f"{metric.denominator} is 0 in an arm"
    if is_constant(control, metric) and is_constant(treatment, metric):
        return (
            f"{_mean(metric, treatment):.4g} against {_mean(metric, control):.4g} in the control, the same for every "
            "user of an arm, so it has no error"
        )
    if all(name in part.alike for name in metric.columns for part in (control, treatment)):
        return "the users of an arm differ in it only by the day on which they came, so it has no error"
    return None


def _mean(metric: Metric, part: UserMoments) -> float:
    below = 1.0 if metric.denominator is None else part.mean[part.place(metric.denominator)]
    return float(part.mean[part.place(metric.numerator)] / below)


def _covariates(metric: Metric, control: UserMoments, treatment: UserMoments) -> tuple[str, ...]:
    """The columns of the days before, if they exist and differ between users."""
    before = tuple(name + BEFORE for name in metric.columns)
    if any(name not in control.columns for name in before):
        return ()
    places = [control.place(name) for name in before]
    if not all(part.covariance[places[0], places[0]] > 0 for part in (control, treatment)):
        return ()
    if metric.denominator is not None and not min(part.mean[places[1]] for part in (control, treatment)) > 0:
        return ()
    return before


def _padded(before: tuple[str, ...]) -> tuple[str | None, str | None]:
    return (before[0] if before else None, before[1] if len(before) > 1 else None)


def _slope(both: Any, names: Names) -> float:
    """θ, the slope of the metric on its covariate; 0 without one."""
    spread = both.ratio_var(*names[2:])
    return float(both.ratio_cov(*names) / spread) if spread > 0 else 0.0


def _variance(part: Any, names: Names, slope: float) -> float:
    """Variance of a user's Y − slope·C, linearised if these are ratios."""
    left = part.ratio_var(*names[:2]) - 2 * slope * part.ratio_cov(*names) + slope**2 * part.ratio_var(*names[2:])
    return max(float(left), 0.0)


def _difference_error(old: Any, new: Any, names: Names, slope: float) -> float:
    """Standard error of the difference of the two means."""
    return math.sqrt(sum(_variance(part, names, slope) / part.count() for part in (old, new)))


def _freedom(old: Any, new: Any, names: Names, slope: float) -> float:
    """Degrees of freedom of the difference of two means with variances of their own (Welch and Satterthwaite)."""
    parts = [(_variance(part, names, slope) / part.count(), part.count() - 1) for part in (old, new)]
    return float(sum(v for v, _ in parts) ** 2 / sum(v**2 / n for v, n in parts))


def _p_value(t: float, freedom: float) -> float:
    return float(2 * (ndtr(-abs(t)) if math.isinf(freedom) else stdtr(freedom, -abs(t))))


def _log_error(old: Any, new: Any, names: Names, slope: float, mean: float, difference: float) -> float:
    """Standard error of ln((mean + difference) / mean): the control's mean, the adjusted difference."""
    above = mean + difference
    arm = _variance(new, names, slope) / above**2 / new.count()
    control = _variance(old, names, slope * mean / above) / mean**2 / old.count()
    return math.sqrt(arm + control)


def _plus(value: float, half: float) -> IntervalEstimate:
    return IntervalEstimate(value, value - half, value + half)


def _times(relative: float, half: float) -> IntervalEstimate:
    ratio, factor = 1 + relative, math.exp(min(half, LONGEST))
    return IntervalEstimate(relative, ratio / factor - 1, ratio * factor - 1)
