"""Measuring policies on the users of one split: bundle members as they will be served, constants, the old policy.

The one place where bundles, transitions and estimators meet; training chooses with it, evaluation certifies with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.core.response import Past
from outlay.core.transitions import LEARN, Transitions
from outlay.estimators.basis import Basis, Counted, Features, Smooth
from outlay.estimators.fitted import Evaluator, Fitted
from outlay.estimators.panel import Panel
from outlay.estimators.units import horizons
from outlay.ops.action_basis import ActionBasis, smooth_basis

CHUNK_ROWS = 65_536  # rows, past days counted as such, that are decoded at a time
MOST_FEATURES = 32  # directions of the last hidden layer that a fitted evaluation uses


@dataclass(frozen=True)
class Measure:
    """Fitted evaluation on one split.

    A member that looks at past days (DIN) decides every row of the log from the days before it in the log, and the
    fitted evaluation knows the row by its state alone. So its value is an approximation: had the member decided from
    the first day, other days would lie behind each state, and it might decide there otherwise.

    Attributes:
        data: the transitions.
        split: SELECT or CERTIFY.
        bundle: its members give actions, and features of states where those are too many to count.
        smooth: whether amounts that are alike speak for each other, where states are counted. Errors are smaller where
            outcomes are smooth in the amount, and values wrong where they are not: to choose by, not to certify.
    """

    data: Transitions
    split: int
    bundle: Bundle
    smooth: bool = False

    @cached_property
    def panel(self) -> Panel:
        """The rows of the split."""
        return Panel.of(self.data, self.split)

    @cached_property
    def days(self) -> tuple[int, ...]:
        """Horizons of the totals: day one, those of the tables, and the horizon of budgets per user."""
        return tuple(sorted({1, *horizons(self.data.campaign)}))

    def members(self, days: Sequence[int] | None = None) -> list[Fitted]:
        """Every member of the bundle, with totals of `days` days (default: those of `self.days`).

        Each takes 16 bytes for each user and target beside what they share (`estimators/fitted.py`).
        """
        spans = self.days if days is None else days
        return [
            self._evaluator(self._source(i)).fit(self.actions(i), days=spans) for i in range(len(self.bundle.members))
        ]

    def old(self) -> Fitted:
        """The log's own policy."""
        return self._evaluator(self._source(0)).fit(days=self.days)

    def policy(self, actions: NDArray[np.integer]) -> Fitted:
        """A policy from elsewhere, by its action index `[n]` in every row of the panel."""
        return self._evaluator(self._source(0)).fit(actions, days=self.days)

    def constants(self, actions: Sequence[int], days: Sequence[int]) -> list[Fitted]:
        """Always the same action, for each of `actions`, with totals of `days` days."""
        evaluator = self._evaluator(self._source(0))
        return [evaluator.fit(np.full(len(self.panel), a), days=days) for a in actions]

    def actions(self, member: int) -> NDArray[np.int64]:
        """`[n]` action index of a member in every row of the panel, forced rows not yet regarded."""
        states = self.data.states
        if self.panel.state is None or states is None or self.bundle.past_days:
            return np.asarray(self._row_actions[member], np.int64)
        return self.bundle.member_actions(member, states.codes, states.numbers, states.allowed)[self.panel.state]

    def propensity(self) -> NDArray[np.float64] | None:
        """`[n]` of the logged action: as logged, else counted or imitated on *learn* users; None where neither is."""
        if self.panel.propensity is not None:
            return self.panel.propensity
        if self.data.states is not None and self.data.state is not None and self.panel.state is not None:
            rows = self.data.rows_of(LEARN)
            rows = rows[~self.data.forced[rows]]
            pair = self.data.state[rows].astype(np.int64) * self.data.num_actions + self.data.action[rows]
            size = (len(self.data.states), self.data.num_actions)
            counts = np.bincount(pair, minlength=size[0] * size[1]).reshape(size).astype(np.float64)
            counts /= np.maximum(counts.sum(1, keepdims=True), 1)
            given = counts[self.panel.state, self.panel.action]
            # A choice that no learn user met has no estimate; the smallest that a count could show stands for it.
            return np.maximum(given, 1 / max(len(rows), 1))
        parts = []
        for rows in self._chunks():
            log_prob = self.bundle.imitation(0, *self.data.features(rows))
            if log_prob is None:
                return None
            parts.append(np.exp(log_prob[np.arange(len(rows)), self.data.action[rows]], dtype=np.float64))
        return np.concatenate(parts)

    @cached_property
    def _row_actions(self) -> NDArray[Any]:
        """`[k, n]` action index of every member in every row, each row decided from its own features and past."""
        chosen = np.empty((len(self.bundle.members), len(self.panel)), np.min_scalar_type(self.data.num_actions))
        done = 0
        for rows in self._chunks():
            place = slice(done, done := done + len(rows))
            decided = self.bundle.choices(*self.data.features(rows), self.data.allowed(rows), self.past(rows))
            for member, (actions, _) in enumerate(decided):
                chosen[member, place] = actions
        return chosen

    def _source(self, member: int) -> int:
        """The first of the members with the network whose features make the basis of this one.

        All have one basis where states are counted.
        """
        if self.data.states is not None and self.panel.state is not None:
            return 0
        # A constant action has no hidden layer to speak of; the widest member then lends its own.
        wide = [m.shapes["features"][0] for m in self.bundle.members]
        source = member if wide[member] == max(wide) else int(np.argmax(wide))
        sessions = [m.session for m in self.bundle.members]
        return sessions.index(sessions[source])

    @cached_property
    def action_basis(self) -> ActionBasis | None:
        """In which amounts can speak for each other; None where they cannot, or states are not counted."""
        if self.data.states is None or self.panel.state is None:
            return None
        campaign = self.data.campaign
        return smooth_basis(self.data.actions, campaign.train.action_degree, campaign.meta.none)

    @cached_property
    def _evaluator(self) -> Callable[[int], Evaluator]:
        """By source; the latest is kept, as the features of every row are large."""
        return lru_cache(maxsize=1)(lambda source: Evaluator(self.panel, self._basis(source)))

    def _basis(self, source: int) -> Basis:
        if self.data.states is not None and self.panel.state is not None:
            counted = Counted(self.panel.state, len(self.data.states), self.data.num_actions)
            return Smooth(counted, np.array(self.action_basis)) if self.smooth and self.action_basis else counted
        hidden = [self.bundle.features(source, *self.data.features(rows), self.past(rows)) for rows in self._chunks()]
        return Features(principal(np.concatenate(hidden)), self.data.num_actions)

    def past(self, rows: NDArray[np.int64]) -> Past | None:
        """The days before some rows, where the bundle looks at them."""
        if self._history is None:
            return None
        past = self._history.gather(self.data, rows)
        return Past(past.codes, past.numbers, past.action, past.outcome, np.where(past.present, past.age, -1))

    @cached_property
    def _history(self) -> Any:
        if self.bundle.past_days == 0:
            return None
        # It brings JAX with it, which no other evaluation needs.
        from outlay.twostage.history import History

        return History.of(self.data, self.bundle.past_days, np.ones(self.data.outcome.shape[1]))

    def _chunks(self) -> list[NDArray[np.int64]]:
        rows, size = self.panel.rows, max(1, CHUNK_ROWS // (1 + self.bundle.past_days))
        return [rows[i : i + size] for i in range(0, len(rows), size)]


def principal(hidden: NDArray[np.float32]) -> NDArray[np.float32]:
    """The directions `[n, ≤ MOST_FEATURES]` in which hidden layers `[n, d]` vary most, each with spread 1.

    Hidden units are many and nearly collinear; the work of a fitted evaluation grows with the square of their number.
    """
    centred = hidden - hidden.mean(axis=0)
    variance, direction = np.linalg.eigh(centred.T @ centred / len(hidden))
    kept = np.flatnonzero(variance > 1e-6 * max(variance[-1], 1e-12))[-MOST_FEATURES:]
    projected: NDArray[np.float32] = centred @ (direction[:, kept] / np.sqrt(variance[kept])).astype(np.float32)
    return projected
