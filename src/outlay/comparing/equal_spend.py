"""Methods measured at equal spend: every policy by the same fitted evaluation, on users who had no part in learning.

    immediate   argmax_a value(s, a) − λ ĉ(s, a), λ such that Σ over start rows of *select* users ĉ = immediate
    total       the mixture that a method serves under the campaign's limits

Where the truth is known its value stands beside the estimate (`true_values.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.choosing.measure import CHUNK_ROWS, Measure
from outlay.comparing.true_values import Acts, TrueValues
from outlay.core.campaign import Campaign
from outlay.core.estimate import Target
from outlay.core.looking_back import LagFields
from outlay.core.transitions import CERTIFY, SELECT, Transitions
from outlay.estimators.fitted import Fitted
from outlay.estimators.joint import combine
from outlay.estimators.observed import observe
from outlay.estimators.windowed import window_of
from outlay.evaluating.constants import constants_of

BISECTIONS = 60  # of the interval of λ

Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.int64]
Codes = NDArray[np.int32]
Numbers = NDArray[np.float32]
Score = Callable[[Codes, Numbers], Floats]  # [n, F], [n, 2·F'] → [n, K]


class MethodValues(NamedTuple):
    """A policy or mixture under one control: its estimates, and its true values where those are known."""

    fitted: Fitted
    truth: dict[str, float] | None


@dataclass(frozen=True)
class MethodEvaluator:
    """Measures all methods of one comparison alike.

    Attributes:
        data: the transitions.
        campaign: the campaign.
        known: true values of policies; None where they are not known.
    """

    data: Transitions
    campaign: Campaign
    known: TrueValues | None

    @cached_property
    def window(self) -> int | None:
        """Days whose means stand in the place of discounted ones, in the truth as in the estimates."""
        return window_of(self.data)

    @cached_property
    def days(self) -> tuple[int, ...]:
        """Spans of totals: the first day, those of the tables, the horizon."""
        meta = self.campaign.meta
        return tuple(sorted({1, *meta.report_days, meta.horizon_days, self.window or 1}))

    def immediate_of_log(self, measure: Measure) -> float:
        """Return what day one costs per user under the log's policy, as observed on *certify* users."""
        seen = observe(measure.panel, days=(1,))
        return float(seen.value[seen.column(str(Target(self.campaign.budgets[self.campaign.money].name, 1)))])

    def old(self, measure: Measure) -> MethodValues:
        """Return the values of the log's policy."""
        return MethodValues(measure.old(), self._windowed(None if self.known is None else self.known.old(self.days)))

    def constants(self, measure: Measure) -> tuple[MethodValues, str] | None:
        """Return the values of the best mixture of constants under the campaign's limits, and its actions in words."""
        if (found := constants_of(measure, self.campaign)) is None:
            return None
        best, fitted = found
        truth = self._true([partial(_always, action) for action in best.actions], best.weights, None)
        return MethodValues(fitted, truth), best.words(self.data)

    def served(self, measure: Measure) -> MethodValues:
        """Return the values of the mixture that a bundle serves, measured on *certify* users."""
        bundle = measure.served
        members = [partial(bundle.member_actions, number) for number in range(len(bundle.members))]
        truth = self._true(members, bundle.weights, measure.lags)
        return MethodValues(combine(measure.members(), bundle.weights), truth)

    def immediate(self, measure: Measure, learned: Bundle, costs: Score, most: float) -> MethodValues | None:
        """Return the values of a method under the paper's budget control.

        Args:
            measure: on *certify* users.
            learned: its Q of the reward, averaged over the members, is maximised.
            costs: expected cost of the day, from the log's own features.
            most: what day one may cost per user.

        Returns:
            None where even the cheapest actions cost more.
        """
        reads = Measure(self.data, CERTIFY, learned)
        values, spent = _by_rows(reads.seen, partial(_rewards, learned)), _by_rows(self.data, costs)
        starts = self.data.users["start_row"][self.data.users_of(SELECT)].astype(np.int64)
        priced = _priced(values(starts), spent(starts), self.data.allowed(starts), most)
        if priced is None:
            return None
        prices, weights = priced
        truth = self._true([partial(_at_price, learned, costs, price) for price in prices], weights, reads.lags)

        def chosen(rows: Rows) -> list[Rows]:
            value, cost, allowed = values(rows), spent(rows), self.data.allowed(rows)
            return [_greedy(value, cost, price, allowed) for price in prices]

        actions = np.concatenate([chosen(rows) for rows in _blocks(measure.panel.rows)], axis=1)
        return MethodValues(combine([measure.policy(each) for each in actions], weights), truth)

    def _true(
        self, policies: Sequence[Acts], weights: NDArray[np.float64], lags: LagFields | None
    ) -> dict[str, float] | None:
        """True values of a mixture of policies that read these past days; None where they are not known."""
        if self.known is None:
            return None
        return self._windowed(self.known.mixture(policies, weights, lags=lags, days=self.days))

    def _windowed(self, truth: dict[str, float] | None) -> dict[str, float] | None:
        """The truth with means over the window in the place of discounted ones."""
        if self.window is None or truth is None:
            return truth
        names = ("reward", *(budget.name for budget in self.campaign.budgets))
        return truth | {name: truth[str(Target(name, self.window))] / self.window for name in names}


def day_costs(model: Bundle, money: int) -> Score:
    """What each action is expected to cost on its day, by a response model of 1-day labels.

    Args:
        model: its bundle.
        money: place of the budget among all.
    """

    def costs(codes: Codes, numbers: Numbers) -> Floats:
        own = numbers[:, : 2 * len(model.schema.numeric)]  # a policy may read past days too
        (q,) = model.members[0].run(["q"], codes, own)
        return np.maximum(q[:, :, 1 + money], 0)

    return costs


def _by_rows(data: Transitions, score: Score) -> Callable[[Rows], Floats]:
    """A score by rows of the log; evaluated once for each distinct state where those are few."""
    if data.states is not None and data.state is not None:
        state, of_state = data.state, score(data.states.codes, data.states.numbers)
        return lambda rows: of_state[state[rows]]
    return lambda rows: np.concatenate([score(*data.features(block)) for block in _blocks(rows)])


def _always(action: int, codes: Codes, _numbers: Numbers) -> Rows:
    return np.full(len(codes), action, np.int64)


def _at_price(learned: Bundle, costs: Score, price: float, codes: Codes, numbers: Numbers) -> Rows:
    return _greedy(_rewards(learned, codes, numbers), costs(codes, numbers), price)


def _rewards(learned: Bundle, codes: Codes, numbers: Numbers) -> Floats:
    """`[n, K]` Q of the reward, averaged over the members; a network that neighbours share is run once."""
    parts = []
    for _, alike in groupby(learned.members, key=attrgetter("session")):
        first, *others = alike
        (q,) = first.run(["q"], codes, numbers)
        parts += [member.weight * member.own(q)[:, :, 0] for member in (first, *others)]
    return np.asarray(np.sum(parts, axis=0))


def _greedy(value: Floats, cost: Floats, price: float, allowed: NDArray[np.bool_] | bool = True) -> NDArray[np.int64]:
    action: NDArray[np.int64] = np.where(allowed, value - price * cost, -np.inf).argmax(axis=1)
    return action


def _priced(
    value: Floats, cost: Floats, allowed: NDArray[np.bool_], most: float
) -> tuple[list[float], NDArray[np.float64]] | None:
    """Find λ by bisection, as spend falls when λ rises: `[k]` prices and weights with which day one costs `most`.

    One price where nothing has to be saved, else two that are neighbours; None where even the cheapest actions cost
    more.
    """

    def spend(price: float) -> float:
        action = _greedy(value, cost, price, allowed)
        return float(np.take_along_axis(cost, action[:, None], axis=1).mean(dtype=np.float64))

    if spend(0.0) <= most:
        return [0.0], np.ones(1)
    if np.where(allowed, cost, np.inf).min(axis=1).mean(dtype=np.float64) > most:
        return None
    low, high = 0.0, 1.0
    while spend(high) > most and high < 1e12:
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if spend(middle) > most else (low, middle)
    over, within = spend(low), spend(high)
    share = (most - within) / (over - within) if over > within else 0.0
    return [low, high], np.array([share, 1 - share])


def _blocks(rows: Rows) -> list[Rows]:
    return [rows[begin : begin + CHUNK_ROWS] for begin in range(0, len(rows), CHUNK_ROWS)]
