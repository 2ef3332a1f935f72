"""Which fields of a wide log tell anything about what happens: those of noise are left out before training.

For each field, users are split into G groups, with sums over the rows of each value v and group g:

    S_gv = Σ y,   Q = Σ_v (Σ_g S_gv)² / (n_v + SHRINKAGE),   M = Σ_v Σ_g S_gv² / (n_v + SHRINKAGE)

Where a value says nothing about y, sums of different groups are independent with mean 0, so Q and M have the same
mean, whatever the dependence among the rows of a user, who is in one group: a value that a user keeps is no evidence by
itself. Q / M is then close to F with ν and ν (G − 1) degrees of freedom, ν = (Σ_v m_v)² / Σ_v m_v² for the terms m_v of
M (Satterthwaite). A field is kept where it is so far above 1 that `EXPECTED` fields of noise pass in the whole log.

The y are: the reward, the next row's reward, the action, and the products of action and either reward, whose means
differ over values where the effect of the action does. Each is standardised, and centred in each group, so that what
users of a group have in common is no noise.

A field that tells something only together with others, and nothing alone, is not found.

Source: cluster-robust tests of many means, Satterthwaite (1946); sure independence screening, Fan and Lv (2008); the
choice of y is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from outlay.core.campaign import Campaign
from outlay.core.progress import Progress, silent
from outlay.core.transitions import LEARN, Transitions
from outlay.ops.action_basis import smooth_basis

SCREENED_FROM = 40  # categorical fields: a log with more is wide
SHOWN = 20  # fields that words name
SEED = 0  # of the groups of users
GROUPS = 20
MOST_ROWS = 500_000
SHRINKAGE = 20.0  # rows without effect that a value starts with
EXPECTED = 2.0  # fields of noise that pass
LEAST = 5  # fields that are kept in any case, the best ones
TINY = 1e-30
FIELDS = 32  # whose codes are in memory at a time

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Screening:
    """What a screening found.

    Attributes:
        kept: positions of the categorical fields that count, ascending.
        score: `[F]` −log₁₀ of the least p-value of each field.
        threshold: above which a field is kept.
    """

    kept: tuple[int, ...]
    score: Matrix
    threshold: float


def wide(data: Transitions, campaign: Campaign) -> bool:
    """Whether fields are screened: there are many, and the campaign does not ask to learn from all or in folds."""
    train = campaign.train
    return train.screening and train.folds in (None, 1) and len(data.schema.categorical) > SCREENED_FROM


def screened_words(found: Screening, names: Sequence[str]) -> str:
    """What was kept, in words."""
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return (
        f"Screening: policies read {len(names)} of {len(found.score):,} categorical fields, {shown}; the others tell "
        "nothing by themselves about rewards, actions or effects of actions that noise does not. [train] screening = "
        "false learns from all."
    )


def screen(data: Transitions, report: Progress = silent) -> Screening:
    """Find the categorical fields that tell anything, from *learn* users alone; the same data give the same fields.

    Args:
        data: the transitions.
        report: called with the share done and what is being done.
    """
    rows, group = _grouped(data)
    y = centred(targets(data, rows), group)
    sizes = np.array(data.schema.sizes)
    count = len(sizes)
    threshold = float(-np.log10(min(1.0, EXPECTED / (count * y.shape[1]))))
    score = np.zeros(count)
    for start in range(0, count, FIELDS):
        report(start / count, "screening fields")
        for field, codes in _codes(data, rows, range(start, min(start + FIELDS, count))):
            score[field] = evidence(codes, int(sizes[field]), group, y).max()
    kept = np.flatnonzero(score > threshold)
    if len(kept) < LEAST:
        kept = np.sort(np.argsort(-score, kind="stable")[:LEAST])
    return Screening(tuple(kept.tolist()), score, threshold)


def targets(data: Transitions, rows: NDArray[np.int64]) -> Matrix:
    """`[n, 5]` what fields may tell, each with mean 0 and variance 1: reward, next reward, action, and two products."""
    basis = smooth_basis(data.actions, data.campaign.train.action_degree, data.campaign.meta.none)
    wide = np.arange(data.num_actions, dtype=np.float64)[None] if basis is None else np.asarray(basis)
    following = np.asarray(data.next_row[rows]).astype(np.int64)
    linked = following >= 0
    reward = _standard(np.asarray(data.outcome[rows, 0], np.float64))
    after = np.zeros(len(rows))
    after[linked] = _standard(np.asarray(data.outcome[following[linked], 0], np.float64))
    action = _standard(wide[0][np.asarray(data.action[rows])] * ~data.forced[rows])
    return np.column_stack([reward, after, action, _standard(action * reward), _standard(action * after)])


def centred(y: Matrix, group: NDArray[np.intp]) -> Matrix:
    """`[n, T]` less the mean of each group."""
    count = np.maximum(np.bincount(group, minlength=GROUPS), 1)
    return np.column_stack([one - (np.bincount(group, one, minlength=GROUPS) / count)[group] for one in y.T])


def evidence(codes: NDArray[np.integer], size: int, group: NDArray[np.intp], y: Matrix) -> Matrix:
    """`[T]` −log₁₀ of the p-value that a field's values tell nothing about each y.

    Args:
        codes: `[n]` below `size`.
        size: number of codes.
        group: `[n]` of the user, below GROUPS.
        y: `[n, T]` from `centred`.
    """
    cell = group * size + codes
    cells = GROUPS * size
    weight = 1 / (np.bincount(codes, minlength=size) + SHRINKAGE)
    sums = np.stack([np.bincount(cell, one, minlength=cells).reshape(GROUPS, size) for one in y.T])
    between = (weight * sums.sum(axis=1) ** 2).sum(axis=1)
    terms = weight * (sums**2).sum(axis=1)
    within = np.maximum(terms.sum(axis=1), TINY)
    freedom = np.maximum(within**2 / np.maximum((terms**2).sum(axis=1), TINY), 1)
    return np.asarray(-f_distribution.logsf(between / within, freedom, freedom * (GROUPS - 1)) / np.log(10))


def _grouped(data: Transitions) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Rows of learn users, at most MOST_ROWS, and the group of each one's user, or cluster."""
    rng = np.random.default_rng(SEED)
    unit = np.arange(len(data.users)) if data.cluster is None else data.cluster
    draw = rng.random(int(unit.max()) + 1)
    rows = data.rows_of(LEARN)
    lot = draw[unit[data.user[rows]]]
    share = min(1.0, MOST_ROWS / max(len(rows), 1))
    chosen = lot < share
    return rows[chosen], np.minimum((lot[chosen] / share * GROUPS).astype(np.intp), GROUPS - 1)


def _codes(data: Transitions, rows: NDArray[np.int64], fields: range) -> list[tuple[int, NDArray[np.integer]]]:
    found = []
    for positions, columns in data.code_columns:
        places = [place for place, field in enumerate(positions) if field in fields]
        if places:
            part = np.ascontiguousarray(columns[rows][:, places].T)
            found += [(positions[place], part[i]) for i, place in enumerate(places)]
    return found


def _standard(values: Matrix) -> Matrix:
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-12))
