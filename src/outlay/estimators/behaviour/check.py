"""Does a behaviour model fit the rows it will weigh? Its predictions against the actions that were logged there.

For every action, over all rows, in every segment, and in every tenth of the rows by the probability predicted for it,
the rows in which it was given are compared with the sum of the predictions. A difference counts if it is too large for
chance,

    2·P(Binomial(n, p̄) at least as far out) < LEVEL / number of comparisons

and large enough to matter: a share wrong by a factor 1 + ε makes importance weights wrong by as much on every day, so
ε > MATTERS. Sums of different probabilities spread no more than the binomial, which keeps the level. Two things make a
right model look farther off than that, and both are allowed for: actions that are drawn once for a user and kept, by
the factor by which their rows' moving together widens a standard error; and errors of the shares, if they were learned
from n' rows themselves, by √(1 + n/n'). What the check cannot see is a policy that looks at something which is neither
in the state nor in the segments.

Source: Hosmer & Lemeshow (1980) for the bins; Hoeffding (1956) for the bound; Kish (1965) for the first factor, the
design effect of clusters.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, ndtri

from outlay.core.actions import Given, named
from outlay.core.errors import LogError
from outlay.core.transitions import Transitions
from outlay.estimators.behaviour.logistic import sample
from outlay.estimators.behaviour.model import shares
from outlay.ops.importance import MATTERS
from outlay.ops.intervals import FARTHEST

Array = NDArray[np.float64]

LEVEL = 1e-3  # chance of a false alarm about a right model
BINS = 10  # of each action
MOST_CELLS = 20_000_000  # rows × actions that are looked at: 160 MB


@dataclass(frozen=True, slots=True)
class ShareComparison:
    """Rows in which an action could be given, and how often it was.

    Attributes:
        action: its value.
        among: which rows, in words.
        rows: how many there are.
        predicted: mean of the predictions.
        observed: share in which it was given.
        z: the difference in standard errors: where a normal has the tail that the binomial has; at most FARTHEST.
    """

    action: Given
    among: str
    rows: int
    predicted: float
    observed: float
    z: float

    @property
    def matters(self) -> bool:
        """Return whether weights would be off by more than MATTERS."""
        return abs(self.observed - self.predicted) > MATTERS * self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourCheck:
    """How well probabilities fit the actions of some rows.

    Attributes:
        rows: rows with a choice that were looked at.
        log_loss: −ln p of the logged action, mean per row.
        constant_log_loss: the same with the constant shares of these rows: what the state says is the difference.
        actions: every action over all rows.
        worst: the bin or segment farthest off; among those that count, if any does.
        comparisons: how many there were.
        least_propensity: the least probability predicted for an action that was given.
        least_action: that action.
        ok: no difference counts.
        words: what was found, without the last full stop.
    """

    rows: int
    log_loss: float
    constant_log_loss: float
    actions: tuple[ShareComparison, ...]
    worst: ShareComparison
    comparisons: int
    least_propensity: float
    least_action: Given
    ok: bool
    words: str

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


class Model(Protocol):
    """Anything that gives `[n, K]` probabilities of rows."""

    def probability(self, rows: NDArray[np.int64], /) -> Array:
        """Probability of each action in some rows."""


def diagnose(
    model: Model | Array, data: Transitions, rows: NDArray[np.int64], *, learned: int | None = None
) -> BehaviourCheck:
    """Check a model on rows that it was not fitted on; forced rows are left out.

    Args:
        model: or probabilities `[n, K]`.
        data: the transitions.
        rows: `[n]`; of many, a random sample, the same every time (MOST_CELLS).
        learned: rows that it was fitted on; None: it is no fit.

    Raises:
        LogError: if there was no choice in any of the rows.
    """
    place = np.flatnonzero(~data.forced[rows])
    if not len(place):
        raise LogError(
            "every row is forced: there is no choice to compare a model of the old policy with.",
            where="log.forced",
            way_out="Take rows with a choice.",
        )
    place = sample(place, max(1, MOST_CELLS // data.num_actions))
    rows = rows[place]
    probability = model[place] if isinstance(model, np.ndarray) else model.probability(rows)
    action = np.asarray(data.action[rows], np.intp)
    segment = data.users["segment"][data.user[rows]].astype(np.intp)
    unit = np.asarray(data.user[rows] if data.cluster is None else data.cluster[data.user[rows]], np.intp)
    error = 1.0 if learned is None else float(np.sqrt(1 + len(rows) / learned))
    totals: list[ShareComparison] = []
    parts: list[ShareComparison] = []
    for a in range(data.num_actions):
        given = action == a
        possible = (probability[:, a] > 0) | given
        if possible.any():
            p, taken = probability[possible, a], given[possible]
            compare = partial(_compare, data.given(a), p, taken, unit[possible], error)
            totals += compare(np.zeros(len(p), np.intp), ["all"])
            if len(data.segments) > 1:
                parts += compare(segment[possible], [f"segment {s}" for s in data.segments])
            edges = np.unique(np.quantile(p, np.arange(1, BINS) / BINS))
            ends = [f"{edge:.3g}" for edge in (p.min(), *edges, p.max())]
            bins = [f"predictions from {low} to {high}" for low, high in pairwise(ends)]
            parts += compare(np.searchsorted(edges, p, side="right"), bins)
    return _check(data, rows, action, probability, totals, parts)


def _check(
    data: Transitions,
    rows: NDArray[np.int64],
    action: NDArray[np.intp],
    probability: Array,
    totals: list[ShareComparison],
    parts: list[ShareComparison],
) -> BehaviourCheck:
    every = totals + parts
    limit = -float(ndtri(LEVEL / (2 * len(every))))
    wrong = [c for c in every if abs(c.z) > limit and c.matters]
    worst = max([c for c in parts if c in wrong] or parts, key=lambda c: abs(c.z))
    chosen = probability[np.arange(len(rows)), action]
    log_loss = -float(np.log(np.maximum(chosen, np.finfo(float).tiny)).mean())
    constant = data.allowed(rows) * shares(data, rows)
    constant_loss = -float(np.log(constant[np.arange(len(rows)), action] / constant.sum(1)).mean())
    least = int(chosen.argmin())
    if wrong:
        far = max(wrong, key=lambda c: abs(c.z))
        words = (
            f"The model of the old policy does not fit: {_told(far)}; {len(wrong)} of {len(every)} comparisons are too "
            "far off, and weights that rest on it cannot be trusted."
        )
    else:
        words = (
            f"The model of the old policy fits {len(rows):,} rows with a choice: the worst of {len(every)} comparisons "
            f"is that {_told(worst)}."
        )
    words += (
        f" The state explains {constant_loss - log_loss:.3f} of {constant_loss:.3f} nats a row; the least probability "
        f"of what was given is {chosen[least]:.2g} (action {named(data.given(action[least]))})"
    )
    return BehaviourCheck(
        rows=len(rows),
        log_loss=log_loss,
        constant_log_loss=constant_loss,
        actions=tuple(totals),
        worst=worst,
        comparisons=len(every),
        least_propensity=float(chosen[least]),
        least_action=data.given(action[least]),
        ok=not wrong,
        words=words,
    )


def _compare(
    value: Given,
    p: Array,
    given: NDArray[np.bool_],
    unit: NDArray[np.intp],
    error: float,
    group: NDArray[np.intp],
    names: list[str],
) -> list[ShareComparison]:
    """One comparison for each group that has rows.

    Args:
        value: of the action.
        p: `[n]` predictions.
        given: `[n]` whether it was given.
        unit: `[n]` user or cluster of each row.
        error: of the shares, relative to that of shares that are known.
        group: `[n]` of each row.
        names: of the groups.
    """
    rows, predicted, given_rows = (np.bincount(group, w, len(names)) for w in (None, p, given))
    used = np.flatnonzero(rows)
    n, k = rows[used].astype(np.int64), given_rows[used]
    mean = np.minimum(predicted[used] / n, 1.0)
    # bdtr: k or fewer; bdtrc: more than its k.
    above = np.where(k == 0, 1.0, bdtrc(np.maximum(k - 1, 0), n, mean))
    tail = np.maximum(np.minimum(above, bdtr(k, n, mean)), np.finfo(float).tiny)
    far = np.clip(-ndtri(tail), 0.0, FARTHEST)
    off = given - p - ((given_rows - predicted) / np.maximum(rows, 1))[group]
    units = int(unit.max()) + 1
    pair, place = np.unique(group * units + unit, return_inverse=True)
    alone = np.bincount(group, off**2, len(names))
    together = np.bincount(pair // units, np.bincount(place, off) ** 2, len(names))
    alike = np.sqrt(np.maximum(1.0, np.divide(together, alone, out=np.ones_like(alone), where=alone > 0)))[used]
    z = np.where(k >= n * mean, 1.0, -1.0) * far / (alike * error)
    return [
        ShareComparison(value, names[g], int(n[i]), float(mean[i]), float(k[i] / n[i]), float(z[i]))
        for i, g in enumerate(used)
    ]


def _told(comparison: ShareComparison) -> str:
    size = abs(comparison.z)
    errors = f"{size:.1f} standard errors" if size < FARTHEST else f"{FARTHEST:.0f} standard errors or more"
    return (
        f"action {named(comparison.action)} was given in {comparison.observed:.2%} of {comparison.rows:,} rows "
        f"({comparison.among}) where {comparison.predicted:.2%} are expected ({errors})"
    )
