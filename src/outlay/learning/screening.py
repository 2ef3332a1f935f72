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

A field may tell nothing alone and yet change the effect of the action together with another. So each field that is left
out is looked at again beside each of the `BESIDE` kept ones that tell most, whose values are put into `CLASSES` by
their mean of the y that they tell most of: now v is a value and a class, and y, the product of action and reward, is
centred in each group and class, so that what the kept field tells by itself is no evidence. `EXPECTED_PAIRS` fields of
noise pass.

A field that tells something only together with two others, or with one that tells little, is not found.

Source: cluster-robust tests of many means, Satterthwaite (1946); sure independence screening, Fan and Lv (2008); the
choice of y is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from outlay.core.campaign import Campaign
from outlay.core.progress import Progress, silent, within
from outlay.core.transitions import LEARN, Transitions
from outlay.ops.action_basis import smooth_basis

SCREENED_FROM = 40  # categorical fields: a log with more is wide
SHOWN = 20  # fields that words name
SEED = 0  # of the groups of users
GROUPS = 20
MOST_ROWS = 500_000
SHRINKAGE = 20.0  # rows without effect that a value starts with
EXPECTED = 2.0  # fields of noise that pass by themselves
EXPECTED_PAIRS = 0.5  # and beside another field
CLASSES = 8  # of the values of a kept field
BESIDE = 16  # kept fields, those that tell most, beside which the others are looked at again
PAIR_CODES = 4096  # codes told apart beside another field, the most frequent ones; all others are one
LEAST = 5  # fields that are kept in any case, the best ones
TINY = 1e-30
EFFECT = 3  # place of the product of action and reward among the targets
FIELDS = 32  # whose codes are in memory at a time

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Screening:
    """What a screening found.

    Attributes:
        kept: positions of the categorical fields that count, ascending.
        score: `[F]` −log₁₀ of the least p-value of each field by itself.
        threshold: of `score`, above which a field is kept.
        together: those of `kept` that tell something only beside another field.
    """

    kept: tuple[int, ...]
    score: Matrix
    threshold: float
    together: tuple[int, ...] = ()


def wide(data: Transitions, campaign: Campaign) -> bool:
    """Whether fields are screened: there are many, and the campaign does not ask to learn from all or in folds."""
    train = campaign.train
    return train.screening and train.folds in (None, 1) and len(data.schema.categorical) > SCREENED_FROM


def screened_words(found: Screening, names: Sequence[str]) -> str:
    """What was kept, in words."""
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return (
        f"Screening: policies read {len(names)} of {len(found.score):,} categorical fields, {shown}; neither alone nor "
        "beside one of these do the others tell more about rewards, actions or effects of actions than noise does. "
        "[train] screening = false learns from all."
    )


def screen(data: Transitions, report: Progress = silent) -> Screening:
    """Find the categorical fields that tell anything, from *learn* users alone; the same data give the same fields.

    Args:
        data: the transitions.
        report: called with the share done and what is being done.
    """
    rows, group = _grouped(data)
    told = targets(data, rows)
    y, sizes = centred(told, group), data.schema.sizes
    threshold = float(-np.log10(min(1.0, EXPECTED / (len(sizes) * y.shape[1]))))
    score = np.zeros((len(sizes), y.shape[1]))
    for field, codes in _each(data, rows, range(len(sizes)), within(report, 0, 0.5)):
        score[field] = evidence(codes, sizes[field], group, y)
    best = score.max(axis=1)
    kept = np.flatnonzero(best > threshold)
    if len(kept) < LEAST:
        kept = np.sort(np.argsort(-best, kind="stable")[:LEAST])
    left_out = np.setdiff1d(np.arange(len(sizes)), kept)
    strongest = kept[np.argsort(-best[kept], kind="stable")[:BESIDE]]
    classes = [
        classes_of(codes, sizes[field], y[:, score[field].argmax()])
        for field, codes in _each(data, rows, strongest, silent)
    ]
    together = _beside(data, rows, group, told[:, EFFECT], left_out, classes, within(report, 0.5, 1))
    everything = np.union1d(kept, together).astype(int).tolist()
    return Screening(tuple(everything), best, threshold, tuple(together))


def _beside(
    data: Transitions,
    rows: NDArray[np.int64],
    group: NDArray[np.intp],
    y: Matrix,
    fields: NDArray[np.intp],
    classes: Sequence[NDArray[np.intp]],
    report: Progress,
) -> list[int]:
    """Those of `fields` that tell something about y beside the classes `[n]` of one of several other fields."""
    threshold = -np.log10(min(1.0, EXPECTED_PAIRS / max(1, len(fields) * len(classes))))
    left = [centred(y[:, None], group * CLASSES + beside, GROUPS * CLASSES) for beside in classes]
    found = []
    for field, codes in _each(data, rows, fields, report):
        size = min(data.schema.sizes[field], PAIR_CODES + 1) * CLASSES
        cells = np.minimum(codes.astype(np.intp), PAIR_CODES) * CLASSES
        pairs = zip(classes, left, strict=True)
        if any(evidence(cells + beside, size, group, own)[0] > threshold for beside, own in pairs):
            found.append(field)
    return found


def classes_of(codes: NDArray[np.integer], size: int, y: Matrix) -> NDArray[np.intp]:
    """`[n]` the class of each row's value: CLASSES of about as many rows, by the mean of y.

    Args:
        codes: `[n]` below `size`.
        size: number of codes.
        y: `[n]` with mean 0.
    """
    count = np.bincount(codes, minlength=size)
    order = np.argsort(np.bincount(codes, y, minlength=size) / (count + SHRINKAGE), kind="stable")
    below = np.cumsum(count[order]) - count[order] / 2
    of_code = np.empty(size, np.intp)
    of_code[order] = np.minimum(CLASSES * below / max(len(codes), 1), CLASSES - 1)
    classes: NDArray[np.intp] = of_code[codes]
    return classes


def targets(data: Transitions, rows: NDArray[np.int64]) -> Matrix:
    """`[n, 5]` what fields may tell, each with mean 0 and variance 1: reward, next reward, action, and two products."""
    basis = smooth_basis(
        data.actions, data.campaign.names.degree(data.campaign.train.action_degree), data.campaign.none
    )
    wide = np.arange(data.num_actions, dtype=np.float64)[None] if basis is None else np.asarray(basis)
    following = np.asarray(data.next_row[rows]).astype(np.int64)
    linked = following >= 0
    reward = _standard(np.asarray(data.outcome[rows, 0], np.float64))
    after = np.zeros(len(rows))
    after[linked] = _standard(np.asarray(data.outcome[following[linked], 0], np.float64))
    action = _standard(wide[0][np.asarray(data.action[rows])] * ~data.forced[rows])
    return np.column_stack([reward, after, action, _standard(action * reward), _standard(action * after)])


def centred(y: Matrix, group: NDArray[np.intp], groups: int = GROUPS) -> Matrix:
    """`[n, T]` less the mean of each group."""
    count = np.maximum(np.bincount(group, minlength=groups), 1)
    return np.column_stack([one - (np.bincount(group, one, minlength=groups) / count)[group] for one in y.T])


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
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log10(fdtrc(freedom, freedom * (GROUPS - 1), between / within)))


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


def _each(
    data: Transitions, rows: NDArray[np.int64], fields: Sequence[int] | NDArray[np.intp], report: Progress
) -> Iterator[tuple[int, NDArray[np.integer]]]:
    """Fields with the codes of the rows `[n]`, in the order of `fields`; a few of them are in memory at a time."""
    for start in range(0, len(fields), FIELDS):
        report(start / len(fields), "screening fields")
        yield from sorted(_codes(data, rows, set(map(int, fields[start : start + FIELDS]))), key=lambda each: each[0])


def _codes(data: Transitions, rows: NDArray[np.int64], fields: set[int]) -> list[tuple[int, NDArray[np.integer]]]:
    found = []
    for positions, columns in data.code_columns:
        places = [place for place, field in enumerate(positions) if field in fields]
        if places:
            part = np.ascontiguousarray(columns[rows][:, places].T)
            found += [(positions[place], part[i]) for i, place in enumerate(places)]
    return found


def _standard(values: Matrix) -> Matrix:
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-12))
