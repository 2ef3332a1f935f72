"""The estimators that an evaluation runs, one row each: how each is called, what it rests on, and what it is used for.

    fqe     fitted Q evaluation                   assumes a sufficient state, stationary days, Q in its basis
    fqe2    the same on another basis             assumes the same of its basis; where states are not counted
    dr      doubly robust, per decision           assumes neither within the log's days
    mis     marginalised importance sampling      assumes a sufficient state, V in the basis of fqe
    snpdis, pdis   clipped importance sampling    neither; shown for comparison

All but the fitted ones need the log's propensities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.estimators import importance
from outlay.estimators.joint import Joint, combine


class Question(NamedTuple):
    """What an estimator is asked.

    Attributes:
        measure: the users, their rows (`measure.panel`) and what is fitted on them.
        policy: a sticky mixture of parts, each as `Panel.follow` takes it.
        propensity: `[n]` of the logged action in each row.
        among: `[U]` users whose value it is; None: all.
    """

    measure: Measure
    policy: EvaluatedPolicy
    propensity: NDArray[np.float64]
    among: NDArray[np.bool_] | None

    @property
    def days(self) -> tuple[int, ...]:
        """Horizons of the totals that tables show."""
        return self.measure.data.campaign.meta.report_days

    def each_part(self, estimate: Callable[[NDArray[Any] | None], Joint]) -> Joint:
        """Return the estimate of the mixture from that of each part, made on the same users."""
        return combine([estimate(part) for part in self.policy.parts], self.policy.weights)


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """A row of the registry.

    Attributes:
        title: its name in words.
        note: what it does, in one line of the terminal.
        assumes: what it rests on, for the report.
        estimate: answers a question; None where it does not apply to these users.
        needs_propensities: whether it reweights what was logged.
        needs_state: whether it assumes that the state says enough, as the fitted evaluation does.
        checks: whether it is compared with the fitted evaluation, which is believed only if it agrees.
        assumes_less: whether it assumes less than the fitted evaluation does.
        totals_only: whether it gives totals of days alone, and no means in the units of the budgets.
    """

    title: str
    note: str
    assumes: str
    estimate: Callable[[Question], Joint | None]
    needs_propensities: bool = True
    needs_state: bool = False
    checks: bool = False
    assumes_less: bool = False
    totals_only: bool = False

    @property
    def fitted(self) -> bool:
        """Whether it is a fitted evaluation, which is not recommended where a check fails."""
        return not self.needs_propensities and self.needs_state


def _fitted(question: Question) -> Joint:
    measure, policy = question.measure, question.policy
    fits = [measure.fit(part, f, question.among) for part, f in zip(policy.parts, policy.features, strict=True)]
    return combine(fits, policy.weights)


def _second(question: Question) -> Joint | None:
    fits = [question.measure.fit_second(part, question.among) for part in question.policy.parts]
    made = [fit for fit in fits if fit is not None]
    return combine(made, question.policy.weights) if made else None


def _doubly_robust(question: Question) -> Joint:
    measure, policy, propensity, among = question
    parts = zip(policy.parts, policy.features, strict=True)
    return combine([measure.doubly_robust(part, f, propensity, among) for part, f in parts], policy.weights)


def _marginalised(question: Question) -> Joint | None:
    measure, policy, propensity, among = question
    if measure.sequential:  # the fitted evaluation is this estimator, and uses the days before as well
        return None
    parts = zip(policy.parts, policy.features, strict=True)
    return combine([measure.marginal(part, f, propensity, among) for part, f in parts], policy.weights)


def _weighted_paths(kind: importance.Kind) -> Callable[[Question], Joint]:
    def estimate(question: Question) -> Joint:
        panel, days, propensity = question.measure.panel, question.days, question.propensity
        return question.each_part(
            lambda part: importance.weigh(panel, part, days=days, kind=kind, propensity=propensity)
        )

    return estimate


ESTIMATORS: dict[str, Estimator] = {
    "fqe": Estimator(
        title="fitted Q evaluation",
        note="fitted values; where states are not counted, by day and with propensities. The certificate rests on it",
        assumes="where states are counted: the state is sufficient, and outcomes and moves depend on state and action "
        "alone, in the same way on every day. Elsewhere: propensities, and values that are nearly linear in the "
        "features and the days before",
        estimate=_fitted,
        needs_propensities=False,
        needs_state=True,
    ),
    "fqe2": Estimator(
        title="fitted Q evaluation on another basis",
        note="the same on another basis, which no network made",
        assumes="the same, with features that no network made; if the two differ, neither is believed",
        estimate=_second,
        needs_propensities=False,
        needs_state=True,
        checks=True,
    ),
    "dr": Estimator(
        title="doubly robust",
        note="fitted values, corrected by the users whose logged paths match the policy",
        assumes="propensities alone inside the days of the log; where states are counted, a fitted value completes "
        "discounted means. It needs users whose logged paths match the policy",
        estimate=_doubly_robust,
        checks=True,
        assumes_less=True,
    ),
    "mis": Estimator(
        title="marginalised importance sampling",
        note="logged rows, reweighted by state and action",
        assumes="propensities and a sufficient state; for discounted means, stationary days too",
        estimate=_marginalised,
        needs_state=True,
        checks=True,
    ),
    "snpdis": Estimator(
        title="importance sampling, clipped and self-normalised",
        note="logged paths, with weights clipped at 20 and divided by their mean; for comparison",
        assumes="propensities alone inside the days of the log; biased where the clip binds",
        estimate=_weighted_paths("self-normalised"),
        totals_only=True,
    ),
    "pdis": Estimator(
        title="importance sampling, clipped",
        note="the same, not divided by the mean",
        assumes="propensities alone inside the days of the log; biased where the clip binds",
        estimate=_weighted_paths("plain"),
        totals_only=True,
    ),
}
