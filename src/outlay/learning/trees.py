"""The orthogonal estimate by boosted trees: the effects of actions, learned separately from the baseline.

    y₀ = (r, c),   y₁ = γ^Δ V(s')                   the day itself; the days after it, under the log's policy
    m_p(s) = E[y_p | s],   b(a|s)                   learned on one half of the users for the rows of the other
    ẽ_j = e_j(a) − Σ_a b(a|s) e_j(a)                functions of the action, less their mean under the log's policy
    τ_p = argmin E ( y_p − m_p(s) − Σ_j τ_p,j(s) ẽ_j )²
    Q(s, a) = (1−γ) Q₀ + Q₁,   Q_p = β_p(s) + Σ_j τ_p,j(s) e_j(a)

The equations are those of `learning/orthogonal.py`; each expectation is an ensemble of small trees
(`learning/trees_usual.py`, `learning/boosting.py`). As there, effects on later days have less noisy targets. The next
row is a smooth function of the day's row, action a and outcomes x, and V is smooth, so least squares find their effect:

    g(s, a, x) = Σ_j α_j(s) ẽ_j + Σ_h (κ_h(s) + Σ_j δ_hj ẽ_j) (x_h − m₀,h)     α and κ linear in traits; y₁ − m₁ by it
    y₁ − m₁  →  g(s, a, E[x | s, a]) + KEPT · (y₁ − m₁ − g(s, a, x))

Say a visit is worth 0.3 later, whatever led to it: then what a coupon adds later is mostly 0.3 for each visit that it
adds today, and that is known far better than what coupons were followed by. Since g may be biased for users who differ
in x, a share of its residual is kept, and the size of all effects is estimated on select users from y₁ itself, less
what g says of the noise of the day, the mean of which is 0.

Each split uses one raw field, so interactions of thresholds and fields with many codes need few rows.

Source: as for `learning/orthogonal.py`; trees in the R-learner, Nie and Wager (2021).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.core.arrays import Dense, NetworkArrays, body_network, read_network, write_network
from outlay.core.bodies import Node, Trees, joined
from outlay.core.progress import Progress
from outlay.learning import checkpoint
from outlay.learning.amounts import action_basis
from outlay.learning.boosting import Boosted, BoostingRows, BoostingSettings, boost, constants, slices
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.held_out import choice_rows
from outlay.learning.learner import BestResponses, Task, TrainingInputs
from outlay.learning.multipliers import LOOK_ROWS, Answers, answered
from outlay.learning.trees_usual import TrainingColumns, parts_of, usual

WITHOUT_LUCK = True

NETWORK = "network.npz"  # of a checkpoint
EFFECT = BoostingSettings(leaves=8, rate=0.1, prior=200.0, rounds=100, patience=10)  # multiples of the average effect
SHAPE = BoostingSettings(leaves=4, rate=0.2, prior=1000.0, rounds=40, patience=4)  # all other effects
LEVEL = BoostingSettings(leaves=16, rate=0.3, prior=20.0, rounds=24, patience=4)
KEPT = 0.5  # share of the residual of g that effects still learn from
RESIZE = (0.0, 4.0)  # range of the factor by which effects are rescaled
RIDGE = 1e-3  # of g, as a share of the mean square of each of its columns
CONSTANT = 1e-6  # a function of the action with a smaller remaining spread is dropped
TINY = 1e-12

Ints = NDArray[np.int64]
Vector = NDArray[np.float64]


class TreesTraining(TrainingInputs):
    """A training of boosted trees ready to begin. Of the schedule it uses the degree of the action's functions."""

    @cached_property
    def learned(self) -> Ints:
        """Indices of the heads whose effects on the day are learned, not derived from another head's."""
        known = self.derived.known
        follows = np.zeros(len(self.coords.spread), np.bool_)
        follows[1 : 1 + len(known)] = known
        return np.flatnonzero(~follows)

    @cached_property
    def functions(self) -> Vector:
        """`[d, K]` functions e of the action: orthonormal under the logged frequencies, smooth ones first."""
        data, rows = self.data, self.learn_rows[~self.data.forced[self.learn_rows]]
        share = np.bincount(np.asarray(data.action[rows]), minlength=data.num_actions) / max(1, len(rows))
        basis = action_basis(data, self.train.action_degree, self.learn_rows)
        values: list[Vector] = []
        for row in np.eye(data.num_actions) if basis is None else np.asarray(basis):
            left = np.where(share > 0, row - row @ share, 0.0)
            for known in values:
                left = left - ((left * known) @ share) * known
            size = float(np.sqrt(left**2 @ share))
            if size > CONSTANT:
                values.append(left / size)
        return np.array(values) if values else np.zeros((1, data.num_actions))


class _Effects(NamedTuple):
    """τ of some heads.

    Attributes:
        trees: the ensembles of the first function and of the others.
        logged: `[N, h]` Σ_j τ_j e_j(a) of the logged action, rescaled.
        size: `[h]` factors that rescale the effects to fit held-out users.
    """

    trees: tuple[Boosted, ...]
    logged: Vector
    size: Vector


def learn(task: Task, report: Progress) -> BestResponses:
    """Learn one Q, which answers every λ, or take what was learned before."""
    training, began = TreesTraining(*task.inputs), time.perf_counter()
    if task.resumes:
        network, before = load(task.folder, task.key)
    else:
        network, before = fit(training, report), 0.0
        save(task.folder, network, time.perf_counter() - began, task.key)
    assert isinstance(network.body, Trees)
    what = f"{len(network.body.root):,} boosted trees answer"
    found = BestResponses.of_one_q(task.learner, answers(training, network), task.coords, what)
    return replace(found, seconds_before=before)


def save(folder: Path, network: NetworkArrays, seconds: float, key: TrainingKey) -> None:
    """Write what was learned; trees are done in seconds, so there is nothing to save on the way."""

    def further(temporary: Path) -> None:
        write_network(temporary / NETWORK, network)

    checkpoint.write(folder, key, {}, {"seconds": seconds}, further)


def load(folder: Path, key: TrainingKey) -> tuple[NetworkArrays, float]:
    """Read what was learned, and the seconds it took.

    Raises:
        FolderError: if there is none, it is damaged, or it belongs to another training.
    """
    with checkpoint.reading(folder, key) as saved:
        return read_network(folder / NETWORK), float(saved.plain["seconds"])


def fit(training: TreesTraining, report: Progress) -> NetworkArrays:
    """Learn one Q, as trees with linear heads.

    Args:
        training: the data and settings.
        report: called with the share done and the current step.
    """
    report(0.0, "trees: binning the columns")
    columns = TrainingColumns.of(training.data, training.learn_rows, training.coords.spread, training.seed)
    halves, own = [], []
    for half in range(2):
        report(0.05 + 0.25 * half, f"trees: baseline, half {half + 1} of 2")
        predictions, left, traits = usual(columns, half)
        halves.append(predictions)
        own.append((left, traits))
    day, policy, value, expected = (columns.crossed(parts) for parts in zip(*halves, strict=True))
    del halves
    report(0.55, "trees: effects on the day")
    today = (columns.outcome - day)[:, training.learned]
    functions, moved = _turned(training.functions, columns, policy, today[:, :1])
    del day, policy
    effects, changed = _effects(columns, functions, today, today, moved, np.ones(len(moved), np.bool_))
    later = None
    if training.discount > 0 and columns.known[columns.held].any() and columns.known[columns.learn].any():
        report(0.65, "trees: model of the days that follow")
        aim, plain = _without_luck(columns, own, value - expected, moved, today, changed)
        del own, expected, today, changed
        report(0.75, "trees: effects on the days that follow")
        later, _ = _effects(columns, functions, aim, plain, moved, columns.known)
    report(0.9, "trees: levels")
    return _network(training, columns, functions, effects, later, value)


def answers(training: TreesTraining, network: NetworkArrays) -> Answers:
    """Return the policies of the learned Q, at the λ where costs change."""
    data = training.data
    rows = choice_rows(data, LOOK_ROWS, training.seed)
    assert isinstance(network.body, Trees)
    values = network.body.sums(*data.features(rows))
    weight, bias = (part[0].astype(np.float64) for part in network.head)
    q = (values @ weight + bias).reshape(len(rows), data.num_actions, network.num_heads)
    return Answers(network, *answered(training.coords, training.bound, training.money, q, data.allowed(rows)))


def _turned(functions: Vector, columns: TrainingColumns, policy: Vector, today: Vector) -> tuple[Vector, Vector]:
    """Rotate the functions of the action so that the first is the average effect `[d, K]`; also return ẽ `[N, d]`.

    Most of the heterogeneity between users is in the coefficient of the average effect.
    """
    moved = functions.T[columns.action] - policy @ functions.T
    learn = columns.learn[columns.chosen[columns.learn]]
    average = constants(BoostingRows(learn, today[learn], moved[learn]))
    # Gram–Schmidt: the first row is along the average, the others are orthogonal to it.
    turn = np.linalg.qr(np.vstack([average, np.eye(len(functions))]).T)[0].T
    return turn @ functions, moved @ turn.T


def _effects(
    columns: TrainingColumns,
    functions: Vector,
    aim: Vector,
    plain: Vector,
    moved: Vector,
    known: NDArray[np.bool_],
) -> tuple[_Effects, Vector]:
    """Fit effects to `aim [N, h]`, rescale them to fit `plain`; also return Σ_j τ_j ẽ_j `[N, h]`.

    Args:
        columns: the rows.
        functions: `[d, K]` e.
        aim: `[N, h]` targets to fit.
        plain: `[N, h]` targets that tell the size of the effects.
        moved: `[N, d]` ẽ.
        known: `[N]` rows in which the targets are known.
    """
    learn = columns.learn[columns.chosen[columns.learn] & known[columns.learn]]
    held = columns.held[known[columns.held]]
    effects, changed, logged = [], np.zeros_like(aim), np.zeros_like(aim)
    for which, settings in ((slice(0, 1), EFFECT), (slice(1, None), SHAPE)):
        by, given = moved[:, which], functions.T[:, which]
        if by.shape[1]:
            train, test = (BoostingRows(rows, aim[rows] - changed[rows], by[rows]) for rows in (learn, held))
            effects.append(boost(columns.table, train, test, settings))
            for part in slices(len(columns.table)):
                slope = effects[-1](columns.table.numbers[part], columns.table.codes[part])
                changed[part] += np.einsum("nhj,nj->nh", slope, by[part])
                logged[part] += np.einsum("nhj,nj->nh", slope, given[columns.action[part]])
    cross, square = (plain[held] * changed[held]).sum(axis=0), np.square(changed[held]).sum(axis=0)
    size = np.clip(cross / np.maximum(square, TINY), *RESIZE)
    return _Effects(tuple(effects), size * logged, size), size * changed


def _without_luck(
    columns: TrainingColumns,
    own: Sequence[tuple[Vector, NDArray[Any]]],
    plain: Vector,
    moved: Vector,
    today: Vector,
    changed: Vector,
) -> tuple[Vector, Vector]:
    """Return `[N, H]` y₁ − m₁ less the noise of the day: partly replaced by g, and without g.

    Args:
        columns: the rows.
        own: by each half of the users, y₁ − m₁ and the traits of all rows, `[N, H]` and `[N, C]`.
        plain: y₁ − m₁ by the other half.
        moved: `[N, d]` ẽ.
        today: `[N, X]` x − m₀.
        changed: `[N, X]` what of it is the effect of the action.
    """

    def terms(at: Ints, traits: NDArray[Any], x: Vector) -> Vector:
        """`[n, (d + X) C + X d]` what g is linear in, where the day's outcomes are x."""
        e = moved[at]
        return np.hstack(
            [*(part[:, None] * traits[at] for part in (*e.T, *x[at].T)), *(part[:, None] * e for part in x[at].T)]
        )

    models = []
    for half, (left, traits) in enumerate(own):
        rows, others = columns.of_half(half), columns.others(half)
        rows = rows[columns.known[rows] & columns.chosen[rows]]
        width = terms(rows[:0], traits, today).shape[1]
        square, right = np.zeros((width, width)), np.zeros((width, left.shape[1]))
        for part in parts_of(rows, width):
            here = terms(part, traits, today)
            square += here.T @ here
            right += here.T @ left[part]
        weights = np.linalg.solve(square + np.diag(RIDGE * np.diag(square) + TINY), right)
        said = [
            np.stack([terms(part, traits, x) @ weights for x in (today, changed)], axis=1)
            for part in parts_of(others, width)
        ]
        models.append(np.concatenate(said))
    g, expected = np.moveaxis(columns.crossed(models), 1, 0)  # [N, H] of the day as it was, and as it was to be
    return expected + KEPT * (plain - g), plain - (g - expected)


def _network(
    training: TreesTraining,
    columns: TrainingColumns,
    functions: Vector,
    day: _Effects,
    later: _Effects | None,
    value: Vector,
) -> NetworkArrays:
    """Return effects and levels as one ensemble of trees with linear heads."""
    learn, heads = columns.learn, np.arange(len(training.coords.spread))
    targets = [
        _target(training, columns, functions, day, columns.outcome[:, training.learned], learn, training.learned)
    ]
    if later is not None:
        targets.append(_target(training, columns, functions, later, value, learn[columns.known[learn]], heads))
    first = np.cumsum([0, *(len(part) - 1 for _, part in targets)])
    trees = [
        (int(start) + output, root) for start, (own, _) in zip(first, targets, strict=False) for output, root in own
    ]
    sizes, numbers, total = training.data.schema.sizes, columns.table.num_numbers, int(first[-1])

    # Coefficients on every output, and a constant in the last row: [T + 1, K, H].
    whole = np.zeros((2, total + 1, training.data.num_actions, len(heads)))
    for target, (start, (_, part)) in enumerate(zip(first, targets, strict=False)):
        whole[target, start : start + len(part) - 1], whole[target, -1] = part[:-1], part[-1]
    spread, derived = training.coords.spread, training.derived
    today, after = whole[0] * spread, whole[1] * spread
    for j in np.flatnonzero(derived.known):
        today[..., 1 + j] = derived.per_reward[j] * today[..., 0]
        today[-1, :, 1 + j] += derived.base[j]
    q = (1 - training.discount) * today + after

    def dense(part: Vector) -> Dense:
        flat = part.reshape(total + 1, -1).astype(np.float32)
        return flat[None, :-1], flat[None, -1]

    head = dense(q)
    outcome = dense(today[..., : 1 + len(derived.known)])
    ensemble = joined(trees, sizes, numbers, total)
    return body_network(ensemble, head, outcome, sizes, training.data.num_actions)


def _target(
    training: TreesTraining,
    columns: TrainingColumns,
    functions: Vector,
    effects: _Effects,
    target: Vector,
    at: Ints,
    which: Ints,
) -> tuple[list[tuple[int, Node]], Vector]:
    """Return the trees of one target with their outputs, and the outputs' coefficients `[outputs + 1, K, H]`; the last
    one is the constant.

    Args:
        training: the data and settings.
        columns: the rows.
        functions: `[d, K]` e.
        effects: the effects on the target.
        target: `[N, h]`.
        at: rows in which the target is known.
        which: `[h]` indices of its heads.
    """
    actions, heads = functions.shape[1], len(training.coords.spread)
    level = columns.fit(at, target - effects.logged, LEVEL)
    trees: list[tuple[int, Node]] = []
    parts: list[Vector] = []
    constant, first = np.zeros((1, actions, heads)), 0
    for ensemble in (*effects.trees, level):
        mine = functions[first : first + ensemble.start.shape[1]] if ensemble is not level else np.ones((1, actions))
        part = np.zeros((len(which), len(mine), actions, heads))
        for i, head in enumerate(which):
            part[i, :, :, head] = mine * (1 if ensemble is level else effects.size[i])
        constant += np.einsum("hj,hjak->ak", ensemble.start, part)
        done = sum(len(each) for each in parts)
        trees += [(done + output, root) for output, root in ensemble.trees]
        parts.append(part.reshape(-1, actions, heads))
        first += len(mine)
    return trees, np.concatenate([*parts, constant])
