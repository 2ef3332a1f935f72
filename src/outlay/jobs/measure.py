"""Measuring policies on the users of one split: bundle members as they will be served, constants, the old policy.

The one place where bundles, transitions and estimators meet; training chooses with it, evaluation certifies with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.core.transitions import LEARN, Transitions
from outlay.estimators.basis import Basis, Counted, Features
from outlay.estimators.fitted import Fitted, fit
from outlay.estimators.panel import Panel
from outlay.estimators.units import horizons

CHUNK_ROWS = 65_536
MOST_FEATURES = 32  # directions of the last hidden layer that a fitted evaluation uses


@dataclass(frozen=True)
class Measure:
    """Fitted evaluation on one split.

    Attributes:
        data: the transitions.
        split: SELECT or CERTIFY.
        bundle: its members give actions, and features of states where those are too many to count.
    """

    data: Transitions
    split: int
    bundle: Bundle

    @cached_property
    def panel(self) -> Panel:
        """The rows of the split."""
        return Panel.of(self.data, self.split)

    @cached_property
    def days(self) -> tuple[int, ...]:
        """Horizons of the totals: every day up to the last one wanted, for the spend day by day."""
        return tuple(range(1, max(horizons(self.data.campaign)) + 1))

    def members(self) -> list[Fitted]:
        """Every member of the bundle."""
        return [
            fit(self.panel, self._basis(i), self.actions(i), days=self.days) for i in range(len(self.bundle.members))
        ]

    def old(self) -> Fitted:
        """The log's own policy."""
        return fit(self.panel, self._basis(0), None, days=self.days)

    def constants(self, actions: Sequence[int], days: Sequence[int]) -> list[Fitted]:
        """Always the same action, for each of `actions`, with totals of `days` days."""
        basis = self._basis(0)
        return [fit(self.panel, basis, np.full(len(self.panel), a), days=days) for a in actions]

    def actions(self, member: int) -> NDArray[np.int64]:
        """`[n]` action index of a member in every row of the panel, forced rows not yet regarded."""
        states = self.data.states
        if states is not None and self.panel.state is not None:
            return self.bundle.member_actions(member, states.codes, states.numbers, states.allowed)[self.panel.state]
        parts = []
        for rows in self._chunks():
            codes, numbers = self.data.features(rows)
            parts.append(self.bundle.member_actions(member, codes, numbers, self.data.allowed(rows)))
        return np.concatenate(parts)

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

    def _basis(self, member: int) -> Basis:
        if self.data.states is not None and self.panel.state is not None:
            return Counted(self.panel.state, len(self.data.states), self.data.num_actions)
        # A constant action has no hidden layer to speak of; the widest member then lends its own.
        wide = [m.shapes["features"][0] for m in self.bundle.members]
        source = member if wide[member] == max(wide) else int(np.argmax(wide))
        hidden = np.concatenate([self.bundle.features(source, *self.data.features(rows)) for rows in self._chunks()])
        return Features(principal(hidden), self.data.num_actions)

    def _chunks(self) -> list[NDArray[np.int64]]:
        rows = self.panel.rows
        return [rows[i : i + CHUNK_ROWS] for i in range(0, len(rows), CHUNK_ROWS)]


def principal(hidden: NDArray[np.float32]) -> NDArray[np.float32]:
    """The directions `[n, ≤ MOST_FEATURES]` in which hidden layers `[n, d]` vary most, each with spread 1.

    Hidden units are many and nearly collinear; the work of a fitted evaluation grows with the square of their number.
    """
    centred = hidden - hidden.mean(axis=0)
    variance, direction = np.linalg.eigh(centred.T @ centred / len(hidden))
    kept = np.flatnonzero(variance > 1e-6 * max(variance[-1], 1e-12))[-MOST_FEATURES:]
    projected: NDArray[np.float32] = centred @ (direction[:, kept] / np.sqrt(variance[kept])).astype(np.float32)
    return projected
