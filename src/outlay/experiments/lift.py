"""What an arm does to a metric: the difference of two arms, absolute and relative, with its error.

    mean    Δ = Ȳ_arm − Ȳ_control           ratio   Δ = R_arm − R_control,   R = Ȳ / D̄ (delta method)
    CUPED   Ȳ − θ (C̄_arm − C̄_both)          θ = Cov(Y, C) / Var(C) over both arms, C the same before the start
    relative lift Y_arm / Y_control − 1, its interval made on the logarithm

The unit is the user. All of these are tea-tasting's, from sufficient statistics; ours is only what surrounds them: a
metric that cannot be told is withheld with the reason.

Source: Deng, Xu, Kohavi and Walker 2013 (CUPED); Deng, Knoblich and Lu 2018 (delta method).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from outlay.experiments.moments import BEFORE, Metric, Moments, aggregates, tea_tasting
from outlay.experiments.power import is_constant
from outlay.ops.intervals import quantile

LEAST_USERS = 30  # of an arm: with fewer, a normal interval means little


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Lift:
    """One metric of one arm less the control.

    Attributes:
        metric: its name.
        control, treatment: the two means or ratios; adjusted, where there is a covariate.
        absolute: the difference.
        relative: over the control; None where one of the two is not positive.
        std_error: of the difference.
        log_error: of ln(treatment / control); None as `relative`.
        p_value: two-sided, of no difference, at one look.
        covariate: whether the time before the start was used (CUPED).
    """

    metric: str
    control: float
    treatment: float
    absolute: Interval
    relative: Interval | None
    std_error: float
    log_error: float | None
    p_value: float
    covariate: bool

    @property
    def z(self) -> float:
        """The difference in standard errors."""
        return self.absolute.value / self.std_error

    def widened(self, errors: float) -> tuple[Interval, Interval | None]:
        """Both intervals, `errors` standard errors to either side."""
        value, half = self.absolute.value, errors * self.std_error
        absolute = Interval(value, value - half, value + half)
        if self.relative is None or self.log_error is None:
            return absolute, None
        # An early bound of 8 standard errors may have no upper end that a float can hold.
        ratio, factor = 1 + self.relative.value, math.exp(min(errors * self.log_error, 700.0))
        return absolute, Interval(ratio - 1, ratio / factor - 1, ratio * factor - 1)


@dataclass(frozen=True)
class Withheld:
    """A metric that cannot be told, and why."""

    metric: str
    reason: str


def needed_pairs(metrics: Sequence[Metric]) -> list[tuple[str, str]]:
    """Columns whose products the metrics need; with their covariates, which a log may not have."""
    pairs: set[tuple[str, str]] = set()
    for metric in metrics:
        pairs |= set(combinations_with_replacement((*metric.columns, *(c + BEFORE for c in metric.columns)), 2))
    return sorted(pairs)


def lift(
    metric: Metric, control: Moments, treatment: Moments, confidence: float, *, adjust: bool = True
) -> Lift | Withheld:
    """The difference in one metric.

    Args:
        metric: what is compared.
        control: of the users in the control.
        treatment: of the users in the other arm; the same columns.
        confidence: of the intervals, at one look.
        adjust: use the time before the start, where the moments have it.

    Raises:
        OutlayError: if tea-tasting is not installed.
    """
    reason = _why_not(metric, control, treatment)
    if reason is not None:
        return Withheld(metric.name, reason)
    before = _covariates(metric, control, treatment) if adjust else ()
    columns = [*metric.columns, *before]
    test = tea_tasting().RatioOfMeans(
        metric.numerator, metric.denominator, *_padded(before), confidence_level=confidence, use_t=False,
        alternative="two-sided", equal_var=False,
    )  # fmt: skip
    try:
        found = test.analyze_aggregates(aggregates(control, columns), aggregates(treatment, columns))
    except OverflowError:
        return Withheld(metric.name, "the arms' means are too near to 0 for a ratio of them")
    z = quantile(0.5 + confidence / 2)
    absolute = Interval(found.effect_size, found.effect_size_ci_lower, found.effect_size_ci_upper)
    std_error = (absolute.high - absolute.low) / (2 * z)
    relative, log_error = None, None
    raw = [part.mean[part.place(metric.numerator)] for part in (control, treatment)]
    if min(found.control, found.treatment, *raw) > 0:
        relative = Interval(
            found.rel_effect_size, found.rel_effect_size_ci_lower, found.rel_effect_size_ci_upper
        )  # fmt: skip
        log_error = math.log((1 + relative.high) / (1 + relative.low)) / (2 * z)
    return Lift(
        metric=metric.name,
        control=float(found.control),
        treatment=float(found.treatment),
        absolute=absolute,
        relative=relative,
        std_error=std_error,
        log_error=log_error,
        p_value=found.pvalue,
        covariate=bool(before),
    )


def sample_ratio(control: int, treatment: int, planned: float) -> float:
    """P-value of the two arms' numbers of users, where `planned` in the other arm come to one in the control."""
    tea = tea_tasting()
    counts = {name: tea.aggr.Aggregates(count_=users) for name, users in ((0, control), (1, treatment))}
    return float(tea.SampleRatio(planned).analyze(counts, control=0, treatment=1).pvalue)


def _why_not(metric: Metric, control: Moments, treatment: Moments) -> str | None:
    least = min(control.users, treatment.users)
    if least < LEAST_USERS:
        return f"an arm has {least} users; {LEAST_USERS} are needed"
    if (
        metric.denominator is not None
        and not min(x.mean[x.place(metric.denominator)] for x in (control, treatment)) > 0
    ):
        return f"{metric.denominator} is 0 in an arm"
    if is_constant(control, metric) and is_constant(treatment, metric):
        return (
            f"it does not differ between the users of an arm ({_mean(metric, control):.4g}, "
            f"{_mean(metric, treatment):.4g})"
        )
    return None


def _mean(metric: Metric, part: Moments) -> float:
    below = 1.0 if metric.denominator is None else part.mean[part.place(metric.denominator)]
    return float(part.mean[part.place(metric.numerator)] / below)


def _covariates(metric: Metric, control: Moments, treatment: Moments) -> tuple[str, ...]:
    """The columns of the time before, where they are there and differ between users."""
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
