"""The behaviour model: P(a | state) under the log's own policy, for logs that state no propensities.

    model = Behaviour.fit(data)                  # LEARN users' rows with a choice, tuned on SELECT users
    given = model.propensity(panel.rows)         # of the logged action, for other users: CERTIFY

No certify user's propensity rests on that user's own rows: that is the cross-fitting by user. Where states are counted,
shares by state are shrunk towards the constant shares,

    p(a | s) ∝ n(s, a) + κ·w(a)   over the allowed a        κ: the likeliest for SELECT users

which is their calibration: κ decides how far a count is believed. Elsewhere it is a ridge regression
(`logistic.py`). `check.py` tests whether a model fits.

Source: Good (1965) for the shrinkage; Luce (1959) for constant shares under masks, by the MM steps of Hunter (2004).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.core.transitions import LEARN, SELECT, SPLITS, States, Transitions
from outlay.estimators.behaviour.logistic import Logistic

Array = NDArray[np.float64]

STRENGTHS = 10.0 ** np.arange(8, -0.5, -0.5)  # κ, in rows, strongest first
PSEUDO_ROWS = 0.5  # of each action in the constant shares: one that was never given stays possible (Jeffreys)
CHUNK_VALUES = 4_000_000  # probabilities computed at a time: 32 MB
SHARE_STEPS, SHARE_CHANGE = 1000, 1e-10  # of the MM iteration


@dataclass(frozen=True)
class CountedShares:
    """Shares by state, `[S, K]`, actions that are not allowed not yet taken out; κ is `strength`."""

    share: Array
    strength: float

    @classmethod
    def fit(cls, states: States, learn: Array, select: Array) -> CountedShares:
        """Fit to counts `[S, K]` of LEARN and SELECT users."""
        base = constant_shares(learn.sum(0), states.allowed, learn.sum(1))
        best, model = -np.inf, cls(base[None], np.inf)
        for strength in STRENGTHS:
            share = (learn + strength * base) / (learn.sum(1, keepdims=True) + strength)
            among = np.maximum((share * states.allowed).sum(1, keepdims=True), np.finfo(float).tiny)
            likelihood = float((select * np.log(share / among)).sum())
            if likelihood > best:
                best, model = likelihood, cls(share, float(strength))
        return model

    def probability(self, data: Transitions, rows: NDArray[np.int64]) -> Array:
        """`[n, K]`."""
        assert data.state is not None
        share: Array = self.share[data.state[rows]]
        if data.eligible is not None:
            share *= data.allowed(rows)
            share /= share.sum(1, keepdims=True)
        return share


@dataclass(frozen=True)
class Behaviour:
    """Probabilities of actions under the log's policy.

    Attributes:
        data: the transitions that it was fitted on and describes.
        model: what gives the probabilities.
        rows: how many rows of LEARN users with a choice the log has.
    """

    data: Transitions
    model: CountedShares | Logistic
    rows: int

    @classmethod
    def fit(cls, data: Transitions) -> Behaviour:
        """Fit on the LEARN users' rows with a choice, tune on those of the SELECT users; deterministic.

        Memory beside the log: 24 bytes a row of these users where states are counted, else as in `Logistic.fit`.

        Raises:
            LogError: if either group of users has no row with a choice.
        """
        learn, select = (choices(data, data.rows_of(split)) for split in (LEARN, SELECT))
        for rows, split in ((learn, LEARN), (select, SELECT)):
            if not len(rows):
                raise LogError(
                    f"every row of the users in {SPLITS[split]!r} is forced: no probability of an action can be "
                    "learned where there was no choice."
                    if len(data.rows_of(split))
                    else f"no user fell into the split {SPLITS[split]!r}, which the model of the old policy needs.",
                    where="log.propensity",
                    way_out="State the propensities of the log's policy, or take a log with more rows with a choice.",
                )
        model: CountedShares | Logistic
        if data.states is not None and data.state is not None:
            size = (len(data.states), data.num_actions)
            tables = [_counts(data.state[rows], data.action[rows], size) for rows in (learn, select)]
            model = CountedShares.fit(data.states, *tables)
        else:
            model = Logistic.fit(data, learn, select, np.log(shares(data, learn)))
        return cls(data, model, len(learn))

    def probability(self, rows: NDArray[np.int64]) -> Array:
        """Return `[n, K]`: each row sums to 1 and is 0 where an action is not allowed. Forced rows have no meaning."""
        probability = np.empty((len(rows), self.data.num_actions))
        for place, part in _chunks(rows, self.data.num_actions):
            probability[place] = self.model.probability(self.data, part)
        return probability

    def propensity(self, rows: NDArray[np.int64]) -> Array:
        """Return `[n]` of the logged action; 1 in forced rows.

        It is at least 1/`self.rows`: a logged action must have been possible, but for a choice that no LEARN user had
        the model knows only its prior, so the smallest share that a count could show is used.
        """
        given = np.empty(len(rows))
        for place, part in _chunks(rows, self.data.num_actions):
            given[place] = self.model.probability(self.data, part)[np.arange(len(part)), self.data.action[part]]
        return np.where(self.data.forced[rows], 1.0, np.clip(given, 1 / self.rows, 1.0))


def choices(data: Transitions, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the `rows` in which there was a choice."""
    return rows[~data.forced[rows]]


def constant_shares(given: Array, allowed: NDArray[np.bool_], rows: Array) -> Array:
    """Weights `[K]` of a policy that looks at nothing: p(a) = w(a) / Σ w over the allowed, Σ w = 1, all w > 0.

    Args:
        given: `[K]` rows in which each action was given.
        allowed: `[M, K]` sets of actions.
        rows: `[M]` rows with that set.
    """
    K = len(given)
    # The pseudo-rows are of a set of all actions, so that sets without a common action are still compared.
    masks = np.concatenate([allowed, np.ones((1, K), np.bool_)]).astype(np.float64)
    count = np.append(rows, PSEUDO_ROWS * K)
    weight: Array = (given + PSEUDO_ROWS) / (given + PSEUDO_ROWS).sum()
    if allowed.all():
        return weight
    for _ in range(SHARE_STEPS):
        reached = masks @ weight
        exposure = np.divide(count, reached, out=np.zeros_like(count), where=count > 0) @ masks
        new = (given + PSEUDO_ROWS) / exposure
        new /= new.sum()
        change = np.abs(new / weight - 1).max()
        weight = new
        if change < SHARE_CHANGE:
            break
    return weight


def shares(data: Transitions, rows: NDArray[np.int64]) -> Array:
    """Constant shares `[K]` of the rows of a log."""
    given = np.bincount(data.action[rows], minlength=data.num_actions).astype(np.float64)
    if data.eligible is None:
        return constant_shares(given, np.ones((1, data.num_actions), np.bool_), given.sum(keepdims=True))
    packed, count = np.unique(data.eligible[rows], axis=0, return_counts=True)
    allowed = np.unpackbits(packed, axis=1, count=data.num_actions).astype(np.bool_)
    return constant_shares(given, allowed, count.astype(np.float64))


def _counts(state: NDArray[np.integer], action: NDArray[np.integer], size: tuple[int, int]) -> Array:
    pair = state.astype(np.int64) * size[1] + action
    return np.bincount(pair, minlength=size[0] * size[1]).reshape(size).astype(np.float64)


def _chunks(rows: NDArray[np.int64], width: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    step = max(1, CHUNK_VALUES // width)
    for begin in range(0, len(rows), step):
        yield slice(begin, begin + step), rows[begin : begin + step]
