"""Days differ: shocks that all users share, and a trend, and what they add to the error of every number.

Users are many and days are few. A holiday, a storm or a campaign of a rival moves all users of a day together, and no
number of users averages that out. If the question is what other days will bring, an error by user alone is too small.

    r_d   = mean residual of an outcome on calendar day d, given state and action      (D days, n_d rows)
    τ²    = max(0, Σ_d (r_d − r̄)² / (D − 1) − mean se_d²)     variance of a day's shock
    ψ_l   = how much of a surprise in the outcome is still there l days later          (local projections, by row)
    W_e   = Σ_{l < k−e} ψ_l                         what a shock on a user's day e adds to a total of k days
    ℓ²    = Σ_c (Σ_e share of users who began on day c − e · W_e)² / k²
    error = |value| · τ/|mean| · ℓ · t_{D−1} / z    added to the standard error by user, in quadrature; t and z at the
                                                    probability of the bound

τ is always estimated and always added: a test of whether days differ would say "no" of shocks that are as large as the
error by user, and few days are no reason to take them for none. Where it comes out as 0, nothing is added: the
intervals of such logs are too narrow where there are shocks, those of the others wider than they need be, and over all
logs they hold the truth about as often as they say. A shock is taken to multiply: it moves a policy that brings twice
as much twice as far, so that of a difference between policies it moves only the difference.

A straight line through the r_d that is beyond chance (by a normal test, as the scatter around it is never taken to be
less than the known noise of means) is a trend: the days to come will differ from the log's by slope · A · mean W if it
goes on. That is added on the side to which it goes, and A · mean W times the error of the slope to the standard error,
in quadrature. A is D, or where means are discounted how far their mean day lies behind that of the log,
(D+1)/2 + γ/(1−γ), if that is more. A gain may move twice as far, relative, and to both sides: it is how many users are
in a state times what the policy adds there, and a trend may move both. Where no line is found, days to come are taken
to be like the log's, as every certificate says: the error of a slope that nobody saw would make any interval
√(1 + 12) times as wide. Effects of days that the features tell are not shocks. In a log of one week, a weekday feature
tells them all.

Source: Jordà (2005) for local projections; Cameron and Miller (2015) for few clusters; the rest: ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr, stdtrit

from outlay.core.estimate import Target
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.panel import Panel
from outlay.estimators.row_features import Block
from outlay.estimators.state_residuals import off_state
from outlay.ops.intervals import quantile

Array = NDArray[np.float64]
BY_CHANCE = 1e-3  # chance that days are said to differ where they do not; no interval depends on it
SLOPE_BY_CHANCE = 0.05  # chance that they are taken to have a trend where they have none
LEVEL = 0.975  # of a standard error that is told by itself: that of a two-sided interval of 95%
FEWEST_DAYS, FEWEST_ROWS = 4, 100  # with which a day counts, and days that are looked at
MODERATE = 0.25  # of the mean outcome: the largest shock that a model of days that are alike is allowed to miss
MOST_ROWS = 300_000  # looked at
MOST_RESPONSE = 14  # days over which a surprise is followed
LEAST_SPREAD = 1e-6  # of the widest day's: on a day without coupons, what they cost is known exactly


@dataclass(frozen=True, slots=True)
class OutcomeByDay:
    """How one outcome differs between days, relative to its mean.

    Attributes:
        name: `reward` or a budget.
        shock: standard deviation of a day's shock, τ/|mean|.
        trend: change a day that state and action do not explain, relative; 0 if there is none beyond chance.
        response: `[L]` ψ_0 = 1, ψ_1, …: what is left of a surprise after 0, 1, … days.
        trend_error: standard error of the trend; 0 if there is none.
        beyond_chance: whether the shocks are: so much that others should be told.
    """

    name: str
    shock: float
    trend: float
    response: tuple[float, ...]
    trend_error: float = 0.0
    beyond_chance: bool = False


@dataclass(frozen=True, slots=True)
class DayEffects:
    """What days add to errors.

    Attributes:
        outcomes: reward and costs, in the order of the log.
        days: D, calendar days that were looked at; 0 if they were too few.
        begin: `[S]` share of the users who began on each of the log's days.
        window: days of a user that numbers without days of their own are about.
        words: a sentence without its full stop.
        ahead_days: A, of numbers without days of their own.
    """

    outcomes: tuple[OutcomeByDay, ...]
    days: int
    begin: tuple[float, ...]
    window: int
    words: str
    ahead_days: float = 0.0

    @property
    def differ(self) -> bool:
        """Whether any outcome has shocks beyond chance, or a trend."""
        return any(outcome.beyond_chance or outcome.trend != 0 for outcome in self.outcomes)

    @property
    def moderate(self) -> bool:
        """Whether shocks are small enough that what is alike on all days still says something of each of them."""
        return all(outcome.shock <= MODERATE or not outcome.beyond_chance for outcome in self.outcomes)

    def error(self, target: Target, value: float, *, twice: bool = False, level: float = LEVEL) -> float:
        """The standard error that shocks, and the error of a trend, add to a number, in its unit.

        Args:
            target: what the number is about.
            value: the number.
            twice: whether it is a gain, which a trend may move twice as far.
            level: one-sided probability of the bound in which the error is multiplied by a normal quantile.
        """
        outcome = self._outcome(target.name)
        if outcome is None:
            return 0.0
        sums = self._sums(outcome, target)
        loads = np.convolve(self.begin, sums) / len(sums)
        shocks = outcome.shock * self._few(level) * float(np.sqrt((loads**2).sum()))
        slope = (1 + twice) * outcome.trend_error * self._reach(target) * float(sums.mean())
        return abs(value) * float(np.hypot(shocks, slope))

    def lasting(self, target: Target) -> float:
        """How much more a lasting change of a day's outcome changes a mean over days, as surprises last: 1 or more."""
        outcome = self._outcome(target.name)
        return 1.0 if outcome is None else max(1.0, float(self._sums(outcome, target).mean()))

    def drift(self, target: Target, value: float) -> float:
        """By how much later days will differ from the log's if the trend goes on, in the number's unit; may be < 0."""
        outcome = self._outcome(target.name)
        if outcome is None or outcome.trend == 0:
            return 0.0
        return abs(value) * outcome.trend * self._reach(target) * float(self._sums(outcome, target).mean())

    def _outcome(self, name: str) -> OutcomeByDay | None:
        return next((each for each in self.outcomes if each.name == name), None)

    def _few(self, level: float = LEVEL) -> float:
        """t_{D−1} / z at a one-sided probability: few days leave the more open the surer a bound is to be."""
        return float(stdtrit(self.days - 1, level)) / quantile(level)

    def _reach(self, target: Target) -> float:
        """A."""
        return self.days if target.days else max(self.days, self.ahead_days)

    def _sums(self, outcome: OutcomeByDay, target: Target) -> Array:
        """`[k]` W_e."""
        response = np.zeros(target.days or self.window)
        told = outcome.response[: len(response)]
        response[: len(told)] = told
        return np.asarray(np.cumsum(response)[::-1])

    def ends(
        self, target: Target, interval: tuple[float, float, float], confidence: float, *, gain: bool = False
    ) -> tuple[float, float]:
        """Both ends of an interval with what days add to it.

        Args:
            target: what it is about.
            interval: value, low, high.
            confidence: two-sided.
            gain: whether it is a gain, which a trend may move twice as far, and to both sides.
        """
        (value, low, high), level = interval, 0.5 + confidence / 2
        reach = quantile(level) * self.error(target, value, twice=gain, level=level)
        drift = self.drift(target, value)
        down, up = (2 * abs(drift),) * 2 if gain else (max(-drift, 0.0), max(drift, 0.0))
        return value - float(np.hypot(value - low, reach)) - down, value + float(np.hypot(high - value, reach)) + up

    @property
    def reason(self) -> Reason:
        """Why a limit is not kept that would be if days were alike."""
        return Reason(ReasonKind.DAYS, {"found": self.words})


def day_effects(
    panel: Panel, time: NDArray[np.int64], columns: Sequence[Block] | None, window: int | None
) -> DayEffects:
    """Measure how days differ.

    Args:
        panel: the rows.
        time: `[n]` calendar day of each row.
        columns: as for `state_residuals.off_state`.
        window: days that means are over; None: those of the log.
    """
    rows = np.flatnonzero(~panel.forced)
    rows = rows[panel.user[rows] % max(1, -(-len(rows) // MOST_ROWS)) == 0]  # of as many users as there is time for
    first = int(time.min())
    length = int(time.max()) - first + 1
    began = np.bincount(time[panel.first] - first, minlength=length) / panel.num_users
    day, counts = np.unique(time[rows], return_counts=True)
    day = day[counts >= FEWEST_ROWS]
    span = min(window or length, length)
    if len(day) < FEWEST_DAYS:
        words = f"not tested: {FEWEST_DAYS} days with {FEWEST_ROWS} rows each are needed"
        return DayEffects((), 0, tuple(began), span, words)
    rows = rows[np.isin(time[rows], day)]
    at = np.searchsorted(day, time[rows])
    residual = off_state(panel, rows, columns, panel.outcome[rows])
    found = []
    for j, name in enumerate(panel.names):
        mean = abs(float(panel.outcome[rows, j].mean())) or np.inf
        shock, trend, error, beyond = _between(residual[:, j], at, day)
        own = (
            residual[:, j] - (np.bincount(at, residual[:, j]) / np.bincount(at))[at]
        )  # a user's surprise, not the day's
        response = _response(panel, rows, own, panel.outcome[:, j], min(span, MOST_RESPONSE))
        found.append(OutcomeByDay(name, shock / mean, trend / mean, response, error / mean, beyond))
    names = panel.data.campaign.told_outcomes
    ahead = 0.0 if window else (len(day) + 1) / 2 + panel.discount / (1 - panel.discount)
    return DayEffects(tuple(found), len(day), tuple(began.tolist()), span, _words(found, len(day), names), ahead)


def _between(residual: Array, at: NDArray[np.intp], day: NDArray[np.int64]) -> tuple[float, float, float, bool]:
    """Shock and trend of an outcome, in the unit of its residual `[r]`.

    Returns:
        Standard deviation of a day's shock; slope a day and its error, both 0 where chance would do; whether the shocks
        are beyond chance.
    """
    count = np.bincount(at)
    mean = np.bincount(at, residual) / count
    spread = np.bincount(at, residual**2) / count - mean**2
    if not spread.max() > 0:
        return 0.0, 0.0, 0.0, False
    noise = np.maximum(spread, LEAST_SPREAD * spread.max()) / count
    x = day - np.average(day, weights=1 / noise)
    slope = float((x / noise) @ mean / ((x / noise) @ x))
    rest = mean - slope * x
    rest -= np.average(rest, weights=1 / noise)
    scatter = max(float((rest**2 / noise).sum()) / (len(day) - 2), 1.0)
    error = float(np.sqrt(scatter / (x**2 / noise).sum()))
    if 2 * ndtr(-abs(slope) / error) > SLOPE_BY_CHANCE:
        slope, error, rest = 0.0, 0.0, mean - np.average(mean, weights=1 / noise)
    degrees = len(day) - 1 - (slope != 0)
    beyond = bool(chdtrc(degrees, (rest**2 / noise).sum()) <= BY_CHANCE)
    return float(np.sqrt(max((rest**2).sum() / degrees - noise.mean(), 0.0))), slope, error, beyond


def _response(panel: Panel, rows: NDArray[np.intp], residual: Array, outcome: Array, length: int) -> tuple[float, ...]:
    """`[≤ length]` what is left of a surprise in an outcome after 0, 1, … time units, by the rows that have one."""
    told, at, size = [1.0], rows, residual
    for _ in range(1, length):
        goes_on = (panel.following[at] >= 0) & (panel.gap[at] == 1)
        at, size = panel.following[at[goes_on]], size[goes_on]
        if len(at) < FEWEST_ROWS or not (square := float((size**2).sum())):
            break
        later = outcome[at] - outcome[at].mean()
        effect = float(size @ later) / square
        error = float(np.sqrt((size**2 * later**2).sum())) / square
        told.append(effect if abs(effect) > 2 * error else 0.0)
    return tuple(told)


def _words(outcomes: Sequence[OutcomeByDay], days: int, names: Mapping[str, str]) -> str:
    parts = []
    for each in outcomes:
        if each.beyond_chance:
            parts.append(f"{names[each.name]} by {100 * each.shock:.2g}% from day to day")
        if each.trend:
            goes = "rises" if each.trend > 0 else "falls"
            parts.append(f"{names[each.name]} {goes} by {100 * abs(each.trend):.2g}% a day")
    if not parts:
        return f"the {days} days differ no more than chance and the state explain"
    return f"days differ in ways that the state does not tell: {', '.join(parts)} (of {days} days)"
