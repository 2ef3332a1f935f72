"""What an arm does to a metric: the difference of two arms, absolute and relative, with its error.

    mean      Δ = Ȳ_arm − Ȳ_control           ratio   Δ = R_arm − R_control,   R = Ȳ / D̄ (delta method)
    CUPED     Δ − θ (C̄_arm − C̄_control)       θ = Cov(Y, C) / Var(C) over both arms, C the same before the start
    relative  Δ / Ȳ_control, its interval made on the logarithm of A / Ȳ_control, A = Ȳ_control + Δ, which moves as
              (Ȳ_arm − θ C̄_arm) / A − (Ȳ_control / Ȳ_control − θ C̄_control / A)

The unit is the user, or the cluster of users by which arms were drawn (`moments.py`); then quantiles are those of
Student's t, with the degrees of freedom of Welch. If users came on different days, both arms hold the same mixture of
them, and the lift is that of the mixture. The two means are not adjusted: CUPED adjusts only the difference, which is
therefore not simply one mean less the other.

The difference and its error are those of tea-tasting (`RatioOfMeans`), which the tests compare; the package itself is
not used, since its relative interval is not over the control's own mean, it has neither Student's t for clusters nor
the pooled variance below, and without these, two formulas of it would be left.

If a metric cannot be compared, no number is given but the reason. If one arm is small and a few users account for most
of the metric, the difference is skewed, and the small arm's own variance is near 0 as long as it has none of those
users. Both arms are then given the pooled variance, if that makes the error larger.

Source: Deng, Xu, Kohavi and Walker 2013 (CUPED); Deng, Knoblich and Lu 2018 (delta method); Kohavi, Deng, Longbotham
and Xu 2014 (the users that a skewed metric needs); Fabijan et al. 2019 (sample ratio).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from scipy.special import ndtr, ndtri, stdtr

from outlay.experiments.moments import Metric, UserMoments, pooled
from outlay.experiments.words import ExperimentNote, NoteKind
from outlay.ops.intervals import LEAST_USERS, quantile, student

LEAST_CLUSTERS = 10  # of an arm whose unit is the cluster: with fewer, an interval of Student's t is not reliable
MOST_SKEWED = 0.25  # skewness of a difference up to which each arm has its own variance
ROUNDING = 1e-9  # of a variance: if CUPED leaves less of it, the rest is rounding
LONGEST = 700.0  # half width of an interval of logarithms: beyond it, exp overflows
EXACT = 1000  # users of two arms: with fewer, the sample ratio's p-value is that of the binomial


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

    @property
    def in_percent(self) -> ArmDifference:
        """A relative change of which no more is known, to be shown in percent."""
        return ArmDifference(self, self)


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
    reason: ExperimentNote


@dataclass(frozen=True)
class _Pair:
    """Two arms in one metric, adjusted with the slope θ on the days before (0: not adjusted)."""

    metric: Metric
    control: UserMoments
    treatment: UserMoments
    slope: float

    @property
    def difference(self) -> float:
        old, new = (x.value(self.metric) for x in (self.control, self.treatment))
        if not self.slope:
            return new - old
        before, after = (x.value(self.metric.before) for x in (self.control, self.treatment))
        return new - old - self.slope * (after - before)

    def variance(self, part: UserMoments, slope: float | None = None) -> float:
        """Variance of a unit's Y − θ·C, linearised if these are ratios."""
        slope = self.slope if slope is None else slope
        w = part.weights(self.metric)
        if slope:
            w = w - slope * part.weights(self.metric.before)
        return max(part.product(w, w), 0.0)

    def error(self) -> float:
        """Standard error of the difference."""
        return math.sqrt(sum(self.variance(part) / part.users for part in (self.control, self.treatment)))

    def pooled_error(self) -> float:
        """The same if both arms have the variance of their users together."""
        sizes = 1 / self.control.users + 1 / self.treatment.users
        return math.sqrt(self.variance(pooled(self.control, self.treatment)) * sizes)

    def log_error(self) -> float:
        """Standard error of ln((control + difference) / control): the control's mean, the adjusted difference."""
        mean = self.control.value(self.metric)
        above = mean + self.difference
        arm = self.variance(self.treatment) / above**2 / self.treatment.users
        control = self.variance(self.control, self.slope * mean / above) / mean**2 / self.control.users
        return math.sqrt(arm + control)

    def freedom(self) -> float:
        """Degrees of freedom of two means with variances of their own (Welch and Satterthwaite); +∞ for users."""
        if not self.control.clustered:
            return math.inf
        parts = [(self.variance(part) / part.users, part.users - 1) for part in (self.control, self.treatment)]
        return float(sum(v for v, _ in parts) ** 2 / sum(v**2 / n for v, n in parts))


def needed_pairs(metrics: Sequence[Metric]) -> list[tuple[str, str]]:
    """The pairs of columns whose products the metrics need, with their covariates, which a log may not have."""
    pairs: set[tuple[str, str]] = set()
    for metric in metrics:
        pairs |= set(combinations_with_replacement((*metric.columns, *metric.before.columns), 2))
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
    """
    reason = _why_not(metric, control, treatment)
    if reason is not None:
        return Withheld(metric.name, reason)
    plain = _Pair(metric, control, treatment, 0.0)
    pair = _adjusted(plain) if adjust and _has_covariate(metric, control, treatment) else plain
    if pair is None:
        return Withheld(metric.name, NoteKind.PREDICTED())
    own, common = pair.error(), pair.pooled_error()
    sizes = control.users, treatment.users
    cautious = common > own and skewness(metric, pooled(control, treatment), sizes) > MOST_SKEWED
    error, freedom, difference = common if cautious else own, pair.freedom(), pair.difference
    width = student(quantile(0.5 + confidence / 2), freedom)
    means = control.value(metric), treatment.value(metric)
    relative, log_error = None, None
    if min(*means, means[0] + difference) > 0:
        log_error = pair.log_error() * error / own
        relative = _times(difference / means[0], width * log_error)
    return Lift(
        metric=metric.name,
        control=means[0],
        treatment=means[1],
        absolute=_plus(difference, width * error),
        relative=relative,
        std_error=error,
        log_error=log_error,
        p_value=_p_value(difference / error, freedom),
        covariate=pair is not plain,
        cautious=cautious,
        freedom=freedom,
    )


def skewness(metric: Metric, both: UserMoments, users: tuple[int, int]) -> float:
    """Absolute skewness of the difference between two arms' means, if the arms do not differ.

    Args:
        metric: for a ratio, its more skewed part counts.
        both: moments of users who say how skewed the totals are.
        users: number of users in the two arms.
    """
    uneven = abs(users[0] - users[1]) / math.sqrt(users[0] * users[1] * sum(users))
    return uneven * max(abs(both.skewness(name)) for name in metric.columns)


def sample_ratio(control: int, treatment: int, planned: float) -> float:
    """P-value of the two arms' numbers of users, if `planned` users were planned for each one in the control."""
    n, share = control + treatment, planned / (1 + planned)
    if n < EXACT:
        from scipy.stats import binomtest  # importing it takes half a second

        return float(binomtest(treatment, n, share).pvalue)
    apart = max(abs(treatment - n * share) - 0.5, 0.0)  # the correction for continuity
    return float(2 * ndtr(-apart / math.sqrt(n * share * (1 - share))))


def _why_not(metric: Metric, control: UserMoments, treatment: UserMoments) -> ExperimentNote | None:
    arms = control, treatment
    least = min(control.users, treatment.users)
    needed, units = (LEAST_CLUSTERS, "clusters") if control.clustered else (LEAST_USERS, "users")
    if least < needed:
        return NoteKind.FEW_UNITS(count=least, units=units, needed=needed)
    if metric.denominator is not None and not min(x.average(metric.denominator) for x in arms) > 0:
        return NoteKind.NO_DENOMINATOR(column=metric.denominator)
    if all(x.is_constant(metric) for x in arms):
        return NoteKind.CONSTANT(treatment=treatment.value(metric), control=control.value(metric))
    if all(name in x.alike for name in metric.columns for x in arms):
        return NoteKind.ALIKE()
    return None


def _has_covariate(metric: Metric, control: UserMoments, treatment: UserMoments) -> bool:
    """Whether the days before the start exist, and users differ in them."""
    past, arms = metric.before, (control, treatment)
    if any(name not in control.columns for name in past.columns):
        return False
    place = control.place(past.numerator)
    if not all(x.covariance[place, place] > 0 for x in arms):
        return False
    return past.denominator is None or min(x.average(past.denominator) for x in arms) > 0


def _adjusted(plain: _Pair) -> _Pair | None:
    """With CUPED, if that makes the error smaller; None if the days before predict the metric exactly in both arms.

    One θ fits badly if an arm breaks with its users' past, as a holdout does with its cost. Which of the two errors is
    smaller is nearly certain at these sizes, and if they are close, the choice matters little.
    """
    arms = plain.control, plain.treatment
    both = pooled(*arms)
    y, c = (both.weights(x) for x in (plain.metric, plain.metric.before))
    spread = both.product(c, c)
    pair = _Pair(plain.metric, *arms, both.product(y, c) / spread if spread > 0 else 0.0)
    exact = [pair.variance(x) <= ROUNDING * plain.variance(x) for x in arms]
    if all(exact):
        return None
    return pair if pair.error() < plain.error() and not any(exact) else plain


def _p_value(t: float, freedom: float) -> float:
    return float(2 * (ndtr(-abs(t)) if math.isinf(freedom) else stdtr(freedom, -abs(t))))


def _plus(value: float, half: float) -> IntervalEstimate:
    return IntervalEstimate(value, value - half, value + half)


def _times(relative: float, half: float) -> IntervalEstimate:
    ratio, factor = 1 + relative, math.exp(min(half, LONGEST))
    return IntervalEstimate(relative, ratio / factor - 1, ratio * factor - 1)
