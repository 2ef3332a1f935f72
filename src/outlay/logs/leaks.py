"""Features only known after the decision: the day's own action moves them, or they determine a reward.

*Moved.* If a feature is known before the action is drawn and the propensities are right, then for every value v and
action a, whatever the log's policy looked at and whichever actions it left out,

    E Σ_{i: x_i = v} 1[a_i = a] / p_i  ≤  E number of rows with x_i = v

(`propensities.py` has the same for segments). A feature that the action moves has values in which an action comes more
often. The excess counts if it is too large for chance and large enough to matter. Where the action hangs on the action
before beyond its propensity (drawn once for a user and kept), yesterday's results look moved too: then only the first
rows of users are looked at.

*Determines.* The reward, put in order of size (ranks), is predicted by its mean over the other rows with the same
value. Where hardly anything is left of its variance, nor of its squared change since the user's row before, the feature
has the reward in it. Yesterday's activity predicts as well where habits are strong, but knows nothing of the change.
The same is asked of the reward of the user's next row: `came back` of today is `came` of tomorrow.

Numbers are looked at by their quantiles; of many rows a sample.

Source: the martingale bound as in `propensities.py`; both tests: ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from outlay.core.actions import named
from outlay.core.campaign import Campaign
from outlay.logs.findings import Finding
from outlay.logs.roles import Log
from outlay.logs.sampled import Array, ColumnValues, Index, draw, features_of, numbers
from outlay.ops.intervals import BY_CHANCE

FALSE_ALARM = 1e-5  # chance of one in a log without leaks, over all features, values and actions
MOVED = 0.05  # standard deviations of "has this value" by which an action moves it, at least
DETERMINED = 0.9  # R²
CHANGES = 100  # rows whose reward differs from the one before, at least
TINY = 1e-300


@dataclass(frozen=True)
class _SampledRows:
    """r sampled rows.

    `propensity` is NaN where there was no choice or none can be used; `before` and `prior` are the action and the
    reward of the user's row before, `after` the reward of the next one, NaN where there is none.
    """

    action: Array
    reward: Array
    propensity: Array
    before: Array
    prior: Array
    after: Array

    @cached_property
    def weights(self) -> _Weights | None:
        """Of the rows that have a propensity; None where none has."""
        usable = np.isfinite(self.propensity)
        return _Weights.of(self.action, self.propensity, usable) if usable.any() else None

    @cached_property
    def today(self) -> _Course:
        """The reward after that of the row before."""
        return _Course.of(self.reward, self.prior)

    @cached_property
    def tomorrow(self) -> _Course:
        """The next row's reward after that of this row."""
        return _Course.of(self.after, self.reward)


@dataclass(frozen=True)
class _Course:
    """A reward in the rows that have one, and the one before it.

    Attributes:
        there: `[r]` whether the row has it.
        y: `[n]` of those rows: its rank: the share below, and half of the equal.
        prior: `[n]` that of the one before.
        known: `[n]` whether there is one before.
        changes: in how many rows it differs from the one before.
    """

    there: NDArray[np.bool_]
    y: Array
    prior: Array
    known: NDArray[np.bool_]
    changes: int

    @classmethod
    def of(cls, reward: Array, before: Array) -> _Course:
        """From both in all rows, NaN where there is none."""
        there = np.isfinite(reward)
        reward, before = reward[there], before[there]
        order, known = np.sort(reward), np.isfinite(before)
        y, prior = (
            (np.searchsorted(order, x, side="left") + np.searchsorted(order, x, side="right")) / 2 / max(len(order), 1)
            for x in (reward, before)
        )
        return cls(there, y, prior, known, int((reward != before)[known].sum()))


@dataclass(frozen=True)
class _Weights:
    """What weighs the rows with a propensity: found once, for all features.

    `usable` `[r]` says which rows they are; of each of them, `given` is the place of its action in `actions`, `implied`
    1/p and `variance` that of 1[a_i = a]/p.
    """

    usable: NDArray[np.bool_]
    actions: Array
    given: Index
    implied: Array
    variance: Array

    @classmethod
    def of(cls, action: Array, propensity: Array, usable: NDArray[np.bool_]) -> _Weights:
        """Of the rows that are `usable`."""
        p = propensity[usable]
        actions, given = np.unique(action[usable], return_inverse=True)
        with np.errstate(over="ignore", divide="ignore"):  # of a propensity so small, its square is no float
            return cls(usable, actions, given.ravel(), 1 / p, (1 - p) / p / p)


def leaks(log: Log, *, weighable: bool) -> list[Finding]:
    """Find the features of a linked log (tables `roles`, `users`, `links`) that are only known after the decision.

    Args:
        log: with its tables.
        weighable: whether propensities are stated by which rows can be weighed.
    """
    meant = set(log.campaign.log.features.known_before)
    terms = [term for term in (*log.categorical, *log.numeric) if term.text not in meant]
    rows = _sampled(log, first=False)
    kept = weighable and _kept(rows)
    found: dict[str, Finding] = {}
    for term, cells in zip(terms, features_of(log, terms), strict=True):
        moved = _moved(rows, cells, len(terms), log.campaign) if weighable and not kept else None
        if words := moved or _determines(rows, cells):
            found[term.text] = _leak(term.text, words, len(cells.of))
    if kept:
        rows = _sampled(log, first=True)
        for term, cells in zip(terms, features_of(log, terms), strict=True):
            if words := _moved(rows, cells, len(terms), log.campaign):
                found[term.text] = _leak(term.text, words, len(cells.of))
    return [found[term.text] for term in terms if term.text in found]


def _leak(feature: str, words: str, rows: int) -> Finding:
    """The feature as a finding, with the evidence in words and the rows that it rests on."""
    return Finding(
        "error",
        "log.features",
        f"{words}.",
        "Leave it out, or take its value of the day before. If it is known before the decision all the same, "
        f"say so under [log.features]: known_before = [{json.dumps(feature)}].",
        rows,
        feature,
    )


def _sampled(log: Log, *, first: bool) -> _SampledRows:
    """Draw rows, or users' first rows alone."""
    usable = f"{log.choice_of('r')} AND r.propensity > 0 AND r.propensity <= 1"
    names = ("action", "reward", "propensity", "before", "prior", "after")
    after = "(SELECT a.reward FROM links n JOIN roles a ON a.row = n.next_row WHERE n.row = r.row)"
    columns = ("r.action", "r.reward", f"CASE WHEN {usable} THEN r.propensity END", "b.action", "b.reward", after)
    chosen = ", ".join(f"{sql} AS {name}" for sql, name in zip(columns, names, strict=True))
    table = draw(log, chosen, first=first)
    return _SampledRows(*(numbers(table.column(name)) for name in names))


def _kept(rows: _SampledRows) -> bool:
    """Whether the action hangs on the one before beyond its propensity."""
    later = np.isfinite(rows.before) & np.isfinite(rows.propensity)
    if not later.any():
        return False
    of = np.unique(rows.before[later], return_inverse=True)[1].ravel()
    _, z, _ = _excess(_Weights.of(rows.action, rows.propensity, later), of)
    return bool(z.max() > BY_CHANCE)


def _excess(weights: _Weights, of: Index) -> tuple[Array, Array, Array]:
    """By value and action `[V, K]`: how far Σ 1/p lies above the rows of the value, and Σ 1/p itself.

    Args:
        weights: of the rows that can be weighed.
        of: value of each of these rows.

    Returns:
        the first as a share of all rows, the first in standard errors, the second as a share of all rows.
    """
    V, K, n = int(of.max()) + 1, len(weights.actions), len(of)
    place = of * K + weights.given

    def total(x: Array) -> Array:
        sums: Array = np.bincount(place, x, V * K).astype(np.float64).reshape(V, K)
        return sums

    implied, variance = total(weights.implied), total(weights.variance)
    off = implied - np.bincount(of, minlength=V)[:, None]
    z = np.divide(off, np.sqrt(variance), out=np.zeros_like(off), where=variance > 0)
    return off / n, z, implied / n


def _moved(rows: _SampledRows, cells: ColumnValues, features: int, campaign: Campaign) -> str | None:
    """That the day's own action moves a feature, in words, or None."""
    weights = rows.weights
    if weights is None:
        return None
    of = cells.of[weights.usable]
    off, z, implied = _excess(weights, of)
    share = np.bincount(of, minlength=len(off)) / len(of)
    moved = off / np.sqrt(np.maximum(share * (1 - share), TINY))[:, None]
    limit = -float(ndtri(FALSE_ALARM / features / z.size))
    worst = np.unravel_index(int(np.where(moved > MOVED, z, 0).argmax()), z.shape)
    if not (z[worst] > limit and moved[worst] > MOVED):
        return None
    v, given = int(worst[0]), campaign.given(float(weights.actions[worst[1]]))
    return (
        f"is moved by the day's own action: by the propensities its value would be {cells.names[v]!r} in "
        f"{implied[worst]:.1%} of the rows if all had been given {named(given)}, and is in {share[v]:.1%} "
        f"({z[worst]:.0f} standard errors, {len(of):,} rows). What is known before the decision cannot depend on it"
    )


def _determines(rows: _SampledRows, cells: ColumnValues) -> str | None:
    """That a feature determines the reward of its row or of the next, in words, or None."""
    of_both = (
        (rows.today, "the reward", "the user's row before"),
        (rows.tomorrow, "the reward of the user's next row", "this row"),
    )
    for course, which, before in of_both:
        of, y, known = cells.of[course.there], course.y, course.known
        if len(y) < CHANGES:  # a handful of rows says nothing
            continue
        count = np.bincount(of)[of]
        around = (y.sum() - y) / max(len(y) - 1, 1)
        predicted = np.where(count > 1, (np.bincount(of, y)[of] - y) / np.maximum(count - 1, 1), around)
        left, spread = (y - predicted) ** 2, ((y - y.mean()) ** 2).sum()
        if spread <= 0 or 1 - left.sum() / spread < DETERMINED:
            continue
        explained = f"the mean by its value explains {1 - left.sum() / spread:.1%} of it"
        if known.any():
            change = ((y - course.prior)[known] ** 2).sum()
            if course.changes < CHANGES or 1 - left[known].sum() / change < DETERMINED:
                continue
            explained += f", and {1 - left[known].sum() / change:.1%} of its change since {before}"
        return f"determines {which}: {explained} ({len(y):,} rows). Nothing that is known before the decision does"
    return None
