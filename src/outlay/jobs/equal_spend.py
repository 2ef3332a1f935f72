"""Judging methods at equal spend: every policy by the same fitted evaluation, on users who had no part in learning.

    immediate   argmax_a value(s, a) − λ ĉ(s, a), λ such that Σ over start rows of *select* users ĉ = immediate
    total       the mixture that a method serves under the campaign's limits

Where the truth is known, and a policy looks at the state alone, its exact value stands beside the estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.core.campaign import Campaign
from outlay.core.transitions import CERTIFY, SELECT, Transitions
from outlay.estimators.fitted import Fitted, combine
from outlay.estimators.observed import observe
from outlay.jobs.constants import best_constants, in_words
from outlay.jobs.measure import CHUNK_ROWS, Measure
from outlay.jobs.truth import Truth

HALVINGS = 60  # of the interval of λ

Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.int64]
Scorer = Callable[[Rows], Floats]  # rows → [n, K]


class Judged(NamedTuple):
    """A policy or mixture under one control: estimated and, where it can be, exact."""

    fitted: Fitted
    truth: dict[str, float] | None


class Priced(NamedTuple):
    """Two neighbouring λ-policies, mixed so that day one costs what it may."""

    prices: tuple[float, float]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class Judge:
    """What all methods of one comparison are judged by.

    Attributes:
        data: the transitions.
        campaign: the campaign.
        truth: the model behind the log, if it is known.
    """

    data: Transitions
    campaign: Campaign
    truth: Truth | None

    @cached_property
    def days(self) -> tuple[int, ...]:
        """Spans of totals: the first day, those of the tables, the horizon."""
        meta = self.campaign.meta
        return tuple(sorted({1, *meta.report_days, meta.horizon_days}))

    def immediate_of_log(self, at: Measure) -> float:
        """What day one costs per user under the log's policy, on *certify* users as observed."""
        seen = observe(at.panel, days=(1,))
        name = self.campaign.budgets[self.campaign.money].name
        return float(seen.value[seen.column(f"{name}@1")])

    def old(self, at: Measure) -> Judged:
        """The log's policy. Its truth is taken for uniform draws if the log's propensities are all alike."""
        truth, propensity = None, self.data.propensity
        if self.truth is not None and propensity is not None and not np.asarray(self.data.forced).any():
            share = 1 / self.data.num_actions
            if np.allclose(propensity[:100_000], share):
                truth = self.truth.values(np.full(self.truth.model.reward.shape, share), self.days)
        return Judged(at.old(), truth)

    def constants(self, at: Measure) -> tuple[Judged, str] | None:
        """The best mixture of constant actions under the campaign's limits, and it in words."""
        found = best_constants(at, self.campaign)
        if found is None:
            return None
        chosen, weights = found
        truth = None
        if self.truth is not None:
            states = self.truth.model.num_states
            truth = self.truth.mixed([np.full(states, a) for a in chosen], weights, self.days)
        return Judged(combine(at.constants(chosen, at.days), weights), truth), in_words(at, chosen, weights)

    def served(self, bundle: Bundle) -> Judged:
        """The mixture that a bundle serves."""
        at = Measure(self.data, CERTIFY, bundle)
        weights = np.array([member.weight for member in bundle.members])
        truth = None
        if self.truth is not None and not bundle.manifest.get("past_days"):
            known = self.truth
            policies = [bundle.member_actions(i, known.codes, known.numbers) for i in range(len(weights))]
            truth = known.mixed(policies, weights, self.days)
        return Judged(combine(at.members(), weights), truth)

    def immediate(self, at: Measure, values: Scorer, costs: Scorer, most: float, *, of_state: bool) -> Judged | None:
        """The paper's budget control.

        Args:
            at: measures on *certify* users.
            values: what is maximised.
            costs: expected cost of the day.
            most: what day one may cost per user.
            of_state: whether `values` looks at the state alone, so that a truth can be told.

        Returns:
            None where even the cheapest actions cost more.
        """
        starts = self.data.users["start_row"][self.data.users_of(SELECT)].astype(np.int64)
        priced = self._priced(values(starts), costs(starts), self.data.allowed(starts), most)
        if priced is None:
            return None
        parts = [at.policy(self._actions(at.panel.rows, values, costs, price)) for price in priced.prices]
        truth = None
        if of_state and self.truth is not None and (rows := self._row_of_state) is not None:
            policies = [self._actions(rows, values, costs, price) for price in priced.prices]
            truth = self.truth.mixed(policies, priced.weights, self.days)
        return Judged(combine(parts, priced.weights), truth)

    def _priced(self, value: Floats, cost: Floats, allowed: NDArray[np.bool_], most: float) -> Priced | None:
        """λ by halving: spend falls as λ rises."""

        def spend(price: float) -> float:
            action = np.where(allowed, value - price * cost, -np.inf).argmax(axis=1)
            return float(np.take_along_axis(cost, action[:, None], axis=1).mean(dtype=np.float64))

        if spend(0.0) <= most:
            return Priced((0.0, 0.0), np.array([0.5, 0.5]))
        if np.where(allowed, cost, np.inf).min(axis=1).mean(dtype=np.float64) > most:
            return None
        low, high = 0.0, 1.0
        while spend(high) > most and high < 1e12:
            low, high = high, 2 * high
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if spend(middle) > most else (low, middle)
        over, within = spend(low), spend(high)
        share = (most - within) / (over - within) if over > within else 0.0
        return Priced((low, high), np.array([share, 1 - share]))

    def _actions(self, rows: Rows, values: Scorer, costs: Scorer, price: float) -> NDArray[np.int64]:
        parts = []
        for begin in range(0, len(rows), CHUNK_ROWS):
            block = rows[begin : begin + CHUNK_ROWS]
            scores = values(block) - price * costs(block)
            parts.append(np.where(self.data.allowed(block), scores, -np.inf).argmax(axis=1))
        return np.concatenate(parts)

    @cached_property
    def _row_of_state(self) -> Rows | None:
        """`[S]` a row of the log that shows each state of the true model; None where one never shows."""
        data, truth = self.data, self.truth
        if truth is None or data.states is None or data.state is None:
            return None
        seen = {self._key(c, n): i for i, (c, n) in enumerate(zip(data.states.codes, data.states.numbers, strict=True))}
        at = [seen.get(self._key(c, n)) for c, n in zip(truth.codes, truth.numbers, strict=True)]
        first = np.full(len(data.states), -1, np.int64)
        state = np.asarray(data.state)
        kinds, places = np.unique(state, return_index=True)
        first[kinds] = places
        rows = np.array([-1 if i is None else first[i] for i in at])
        return None if (rows < 0).any() else rows

    @staticmethod
    def _key(codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> bytes:
        return np.asarray(codes, np.int32).tobytes() + np.asarray(numbers, np.float32).tobytes()
