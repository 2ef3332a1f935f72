"""The orthogonal critic: what an action changes, learned apart from what happens anyway.

    y₀ = (r, c)                                     the day itself
    y₁ = γ^Δ V(s'),   V = (1−γ) m₀ + m₁             what comes after it, where the log's policy goes on
    m_p(s) = E[y_p | s],   b(a|s)                   learned on one half of the users for the rows of the other
    ẽ_j = e_j(a) − Σ_a b(a|s) e_j(a)                functions of the action, less their mean under the log's policy
    τ_p = argmin E ( y_p − m_p(s) − Σ_j τ_p,j(s) ẽ_j )²
    Q(s, a) = (1−γ) Q₀ + Q₁,   Q_p = β_p(s) + Σ_j τ_p,j(s) e_j(a)

Most of what varies in y is who is active anyway; what an action changes is a small difference on top, which a plain
regression of Q gives up first. Errors of m and b do not bias τ to first order, and only τ decides the action. Values
are vectors, reward and costs, so one training answers every λ: the policy of λ is the argmax of (1, −λ)ᵀQ. Two families
of policies come of it, which a mixture may use side by side: those that look ahead, and those that look at the day
alone. A look ahead of one step of policy improvement is the log's policy going on afterwards.

Where a cost is determined by action and reward (`coupon * active`), the day's Q of the cost follows from that of the
reward and is not learned again.

Source: Robinson (1988); A-learning and blip functions, Murphy (2003), Robins (2004); the R-learner, Nie and Wager
(2021), with cross-fitting by user, Chernozhukov et al. (2018); for vectors and fitted Q: ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from outlay.core.campaign import Train
from outlay.core.network import NetworkArrays
from outlay.core.transitions import SELECT, Transitions
from outlay.learning.fresh import outcomes, whole_blocks
from outlay.learning.heads import Coordinates
from outlay.learning.multiplier_grid import laid_again, pilot_grid
from outlay.nets.batches import Batch, blocks, gather
from outlay.nets.loop import compiled_block
from outlay.nets.network import PAIR, Linear
from outlay.nets.orthogonal import (
    TARGETS,
    EffectShape,
    OrthogonalNetwork,
    Told,
    arrays_of,
    init_orthogonal,
    tell,
    value_heads,
)
from outlay.ops.action_basis import smooth_basis
from outlay.ops.mixture_lp import solve_mixture

FAMILIES = ("ahead", "day")  # policies that look ahead, and those that look at the day alone
BLOCK = 100  # gradient steps that are compiled as one call
USUAL_DECAY, EFFECT_DECAY = 1.0, 1.0  # weight decay of what happens anyway and of effects, as in AdamW
FINAL_RATE = 0.02  # of the learning rate, at the end of a cosine
LOOK_ROWS = 4096  # of select users, on which the grid of λ is laid
RESIZE_ROWS = 100_000  # of select users, on which the size of effects is told
RESIZE = (0.0, 4.0)  # the least and the most that effects are multiplied by
CONSTANT, LARGEST = 1e-9, 4.0  # a function of the action with less spread is none; none is larger anywhere
NEVER = -1e9  # log probability of what was not allowed: finite, for it is multiplied by 0 in rows without a choice
DETERMINED = 1e-5  # of a cost's spread: the most by which one that follows from action and reward may be off

Vector = NDArray[np.float64]


class Learner(NamedTuple):
    """What the next block needs; all arrays."""

    online: OrthogonalNetwork
    averaged: OrthogonalNetwork  # exponential averages of `online`
    optimiser: optax.OptState


@dataclass
class Progress:
    """Where a training stands after a block.

    Attributes:
        learner: the networks.
        step: gradient steps made.
        losses: mean loss of each block.
        seconds: of training so far.
    """

    learner: Learner
    step: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


class Answers(NamedTuple):
    """The policies of a finished training.

    Attributes:
        network: a policy for each family of Q.
        policy: `[L]` the family by whose Q each λ is answered: first those that look ahead, then the day alone.
        multiplier: `[L, m]` λ, in reward units per unit of coordinate.
        said: `[G, 1+m]` what the critic says of the G that look ahead: reward and coordinates, the log's policy going
            on after the first day.
    """

    network: NetworkArrays
    policy: NDArray[np.int64]
    multiplier: Vector
    said: Vector


@dataclass(frozen=True)
class Orthogonal:
    """A training ready to begin.

    Attributes:
        data: the transitions.
        train: the schedule.
        coords: from heads to the coordinates of the limits.
        bound: `[m]` above which no λ is looked for.
        money: the limit along whose axis the curve is told.
        learn_rows: `[n]` rows to learn from.
        seed: of everything random.
    """

    data: Transitions
    train: Train
    coords: Coordinates
    bound: Vector
    money: int
    learn_rows: NDArray[np.int64]
    seed: int

    @property
    def discount(self) -> float:
        """γ."""
        return self.data.campaign.meta.discount

    @property
    def steps(self) -> int:
        """Gradient steps in all: whole blocks."""
        return whole_blocks(self.train, len(self.learn_rows), BLOCK)

    @cached_property
    def derived(self) -> Determined:
        """Costs that follow from action and reward."""
        return determined_costs(self.data, self.learn_rows, self.coords.spread)

    @cached_property
    def shape(self) -> EffectShape:
        """What the networks must be able to hold."""
        return EffectShape(
            sizes=self.data.schema.sizes,
            num_numbers=self.data.number_columns.shape[1],
            num_actions=self.data.num_actions,
            num_heads=len(self.coords.spread),
            layers=self.train.layers,
            embedding=self.train.embedding,
            functions=_functions(self.data, self.train, self.learn_rows),
        )

    @property
    def units(self) -> Vector:
        """`[TARGETS]` of the effects, in units of the levels: what comes later is told in days, as the day is."""
        return np.array([1.0, 1 - self.discount])

    def begin(self) -> Progress:
        """Fresh networks, which say the logged means."""
        mean = outcomes(self.data, self.learn_rows).mean(axis=0) / self.coords.spread
        pair = init_orthogonal(self.shape, self.seed, np.stack([mean, self.discount * mean]))
        return Progress(Learner(pair, pair, self.optimiser.init(eqx.filter(pair, eqx.is_array))))

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam with decoupled weight decay, on a cosine."""

        def decay(share: float, *parts: str) -> optax.GradientTransformation:
            def mask(tree: Any) -> Any:
                def within(path: Any, leaf: Any) -> bool:
                    return leaf.ndim == 3 and path[0].name in parts  # the pair, in, out: not biases

                return jax.tree_util.tree_map_with_path(within, tree)

            return optax.masked(optax.add_decayed_weights(share), mask)

        return optax.chain(
            optax.scale_by_adam(),
            decay(USUAL_DECAY, "usual", "mean", "logits", "level"),
            decay(EFFECT_DECAY, "effect", "slope"),
            optax.scale_by_learning_rate(optax.cosine_decay_schedule(self.train.learning_rate, self.steps, FINAL_RATE)),
        )


def learn(training: Orthogonal, progress: Progress | None = None) -> Iterator[Progress]:
    """Train on, block by block, from the start or from a checkpoint; yields where it stands after each block."""
    progress = training.begin() if progress is None else progress
    data, optimiser, keep = training.data, training.optimiser, training.train.target_decay
    half = max(2, training.train.batch // PAIR)  # of one row, a batch could not be told from what stands for all rows
    fold = jnp.repeat(jnp.arange(PAIR), half)
    terms = _Terms.of(training)

    def step(learner: Learner, halves: tuple[Batch, Batch]) -> tuple[Learner, Array]:
        batch = jax.tree.map(_joined, *halves)
        aims = terms.aims(learner.averaged, batch, fold)
        value, gradient = eqx.filter_value_and_grad(terms.loss)(learner.online, batch, aims, fold)
        updates, state = optimiser.update(gradient, learner.optimiser, learner.online)
        online = eqx.apply_updates(learner.online, updates)
        averaged = jax.tree.map(lambda old, new: keep * old + (1 - keep) * new, learner.averaged, online)
        return Learner(online, averaged, state), value

    block = compiled_block(step, lambda learner: (learner, None), BLOCK)
    streams = [
        blocks(data, rows, batch=half, steps=BLOCK, total=training.steps, seed=training.seed + part,
               start=progress.step, table=False)
        for part, rows in enumerate(_halves(data, training.learn_rows))
    ]  # fmt: skip
    for halves in zip(*streams, strict=True):
        began = time.perf_counter()
        progress.learner, (losses, _) = block(progress.learner, halves)
        progress.losses.append(float(losses.mean()))
        progress.step += BLOCK
        progress.seconds += time.perf_counter() - began
        yield progress


class _Aims(NamedTuple):
    """What the networks of a step are trained towards; no gradient flows through it."""

    own: Array  # [B, TARGETS, H] y by the network of the row's own half
    other: Array  # [B, TARGETS, H] y by that of the other half
    usual: Array  # [B, TARGETS, H] m of the other half's network
    moved: Array  # [B, d] ẽ
    functions: Array  # [B, d] e(a)


@dataclass(frozen=True)
class _Terms:
    """The loss of a step."""

    discount: float
    spread: Array  # [H]
    functions: Array  # [d, K]
    units: Array  # [TARGETS]
    learned: Array  # [TARGETS, H] 0 where the effect follows from another

    @classmethod
    def of(cls, training: Orthogonal) -> _Terms:
        known = training.derived.known
        learned = np.ones((TARGETS, len(training.coords.spread)))
        learned[0, 1 : 1 + len(known)] = ~known
        return cls(training.discount, jnp.asarray(training.coords.spread, jnp.float32),
                   jnp.asarray(training.shape.functions, jnp.float32), jnp.asarray(training.units, jnp.float32),
                   jnp.asarray(learned, jnp.float32))  # fmt: skip

    def aims(self, averaged: OrthogonalNetwork, batch: Batch, fold: Array) -> _Aims:
        here = tell(averaged, batch.state.codes, batch.state.numbers)
        after = tell(averaged, batch.next_state.codes, batch.next_state.numbers).mean
        value = batch.discount[:, None] * ((1 - self.discount) * after[:, :, 0] + after[:, :, 1])  # [2, B, H]
        row, day = jnp.arange(len(fold)), batch.outcome / self.spread
        log_prob = jnp.where(batch.allowed, here.logits[1 - fold, row], NEVER)
        usual_function = jax.nn.softmax(log_prob) @ self.functions.T
        functions = self.functions.T[batch.action]
        return jax.lax.stop_gradient(_Aims(
            own=jnp.stack([day, value[fold, row]], axis=1),
            other=jnp.stack([day, value[1 - fold, row]], axis=1),
            usual=here.mean[1 - fold, row],
            moved=functions - usual_function,
            functions=functions,
        ))  # fmt: skip

    def left(self, aims: _Aims) -> Array:
        """`[B, TARGETS, H]` what the means of the other half leave for effects to explain."""
        return (aims.other - aims.usual) / self.units[:, None]

    def loss(self, online: OrthogonalNetwork, batch: Batch, aims: _Aims, fold: Array) -> Array:
        said: Told = tell(online, batch.state.codes, batch.state.numbers)
        row = jnp.arange(len(fold))
        known = _known(batch)
        usual = known * jnp.square(said.mean[fold, row] - aims.own)
        log_prob = jax.nn.log_softmax(jnp.where(batch.allowed, said.logits[fold, row], NEVER))
        imitation = -batch.chosen * log_prob[row, batch.action]
        effect = jnp.square(self.left(aims) - jnp.einsum("ebphd,bd->ebph", said.slope, aims.moved))
        effect *= self.learned * known * batch.chosen[:, None, None]
        slope = jax.lax.stop_gradient(jnp.einsum("ebphd,bd->ebph", said.slope, aims.functions))
        level = known * jnp.square(said.level + self.units[:, None] * slope - aims.other)
        total: Array = usual.sum((1, 2)).mean() + imitation.mean() + (effect + level).sum((0, 2, 3)).mean()
        return total


def _known(batch: Batch) -> Array:
    """`[B, TARGETS, 1]` 1 where a target is known: the day always, what comes after it where the log or story tells."""
    return jnp.stack([jnp.ones_like(batch.has_target), batch.has_target], axis=1)[..., None]


def _joined(one: Array, other: Array) -> Array:
    """Two halves of a batch; what stands for every row stands once."""
    return one if one.shape[0] == 1 and other.shape[0] == 1 else jnp.concatenate([one, other])


class Determined(NamedTuple):
    """Costs that follow from action and reward: cost = base + per_reward · reward for each action."""

    known: NDArray[np.bool_]  # [m]
    base: Vector  # [m, K]
    per_reward: Vector  # [m, K]


def determined_costs(data: Transitions, rows: NDArray[np.int64], spread: Vector) -> Determined:
    """Which costs are a straight line in the reward, given the action: all of a reward of 0 or 1 that look at no more.

    Args:
        data: the log.
        rows: `[n]` that have to agree.
        spread: `[H]` of the heads.
    """
    action = np.asarray(data.action[rows])
    outcome = np.asarray(data.outcome[rows], np.float64)
    count = outcome.shape[1] - 1
    known, base, per_reward = (
        np.ones(count, np.bool_),
        np.zeros((count, data.num_actions)),
        np.zeros((count, data.num_actions)),
    )
    for a in np.unique(action):
        reward, costs = outcome[action == a, 0], outcome[action == a, 1:]
        off = reward - reward.mean()
        variance = float(off @ off)
        slope = off @ costs / variance if variance > 0 else np.zeros(count)
        start = costs.mean(axis=0) - slope * reward.mean()
        error = np.abs(costs - start - np.outer(reward, slope)).max(axis=0)
        known &= error <= DETERMINED * spread[1 : 1 + count]
        base[:, a], per_reward[:, a] = start, slope
    return Determined(known, base, per_reward)


def answers(training: Orthogonal, progress: Progress) -> Answers:
    """The policies of a finished training, at λ laid where costs fall, with effects of the size that users show who
    taught none.
    """  # fmt: skip
    pair = _resized(training, progress.learner.averaged)
    heads, outcome = _raw_heads(training, pair)
    values = _values(training, pair, heads)
    grids, said = [], []
    for family in range(len(FAMILIES)):
        grid, told = _grid(training, *values, family)
        grids.append(grid)
        said.append(told)
    if training.discount == 0:
        grids, said = grids[1:], said[1:]
        heads = tuple(part[..., 1:, :] for part in heads)  # type: ignore[assignment]  # a pair
    network = arrays_of(pair, heads, outcome)
    families = np.repeat(np.arange(len(grids)), [len(grid) for grid in grids])
    return Answers(network, families, np.concatenate(grids), said[0])


def _resized(training: Orthogonal, pair: OrthogonalNetwork) -> OrthogonalNetwork:
    """Effects times what a regression on them gives, by target and head, in rows of select users.

    Decay that is strong enough to tell well who responds more shrinks all effects, and those of what comes after the
    day more than those of the day.
    """
    data, terms, shape = training.data, _Terms.of(training), pair.shape

    @eqx.filter_jit
    def sums(pair: OrthogonalNetwork, batch: Batch) -> tuple[Array, Array]:
        # Neither half was taught by these users, so the means of one are as good as those of the other.
        aims = terms.aims(pair, batch, jnp.zeros(len(batch.action), jnp.int32))
        slope = tell(pair, batch.state.codes, batch.state.numbers).slope.mean(0)
        effect = jnp.einsum("bphd,bd->bph", slope, aims.moved)
        weight = batch.chosen[:, None, None] * _known(batch)
        return (weight * terms.left(aims) * effect).sum(0), (weight * effect**2).sum(0)

    rows = _sampled(data, RESIZE_ROWS, training.seed)
    cross, square = np.zeros((2, TARGETS, shape.num_heads))
    for part in np.array_split(rows, max(1, len(rows) // LOOK_ROWS)):
        batch = jax.tree.map(jnp.asarray, gather(data, part, table=False))
        found = sums(pair, batch)
        cross += np.asarray(found[0], np.float64)
        square += np.asarray(found[1], np.float64)
    factor = np.clip(cross / np.maximum(square, 1e-12), *RESIZE)
    by_output = jnp.asarray(np.repeat(factor.ravel(), len(shape.functions)), jnp.float32)
    slope = Linear(pair.slope.weight * by_output, pair.slope.bias * by_output)
    resized: OrthogonalNetwork = eqx.tree_at(lambda net: net.slope, pair, slope)
    return resized


def _sampled(data: Transitions, most: int, seed: int) -> NDArray[np.int64]:
    """Rows of select users in which there was a choice, at most so many of them."""
    rows = data.rows_of(SELECT)
    rows = rows[~data.forced[rows]]
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
    return rows


def _raw_heads(training: Orthogonal, pair: OrthogonalNetwork) -> tuple[tuple[Vector, Vector], tuple[Vector, Vector]]:
    """Q of the families `[..., K, FAMILIES, H]` and of the day's outcomes `[..., K, 1+m]`, raw: weights and biases."""
    weight, bias = value_heads(pair, training.units)
    derived, spread = training.derived, training.coords.spread
    count = len(derived.known)

    def raw(part: Vector, constant: float) -> tuple[Vector, Vector]:
        day, after = part[..., 0, :] * spread, part[..., 1, :] * spread  # [..., K, H]
        for j in np.flatnonzero(derived.known):
            day[..., 1 + j] = derived.per_reward[j] * day[..., 0] + constant * derived.base[j]
        return np.stack([(1 - training.discount) * day + after, day], axis=-2), day[..., : 1 + count]

    (head_weight, day_weight), (head_bias, day_bias) = raw(weight, 0.0), raw(bias, 1.0)
    return (head_weight, head_bias), (day_weight, day_bias)


def _values(
    training: Orthogonal, pair: OrthogonalNetwork, heads: tuple[Vector, Vector]
) -> tuple[Vector, NDArray[np.bool_]]:
    """`[N, K, FAMILIES, H]` Q of rows of select users that had a choice, raw, and `[N, K]` what was allowed there."""
    data = training.data
    rows = _sampled(data, LOOK_ROWS, training.seed)
    batch = gather(data, rows, table=False)

    @eqx.filter_jit
    def hidden(pair: OrthogonalNetwork) -> Array:
        def of(net: OrthogonalNetwork) -> Array:
            parts = [trunk(batch.state.codes, batch.state.numbers) for trunk in (net.usual, net.effect)]
            return jnp.concatenate(parts, axis=1)

        both: Array = eqx.filter_vmap(of)(pair)
        return both

    weight, bias = heads
    features = np.asarray(hidden(pair), np.float64)
    q = np.einsum("enw,ewkfh->nkfh", features, weight) / PAIR + bias.mean(axis=0)
    return q, data.allowed(rows)


def _grid(training: Orthogonal, q: Vector, allowed: NDArray[np.bool_], family: int) -> tuple[Vector, Vector]:
    """λ of a family `[G, m]`, and what the critic says of its policies `[G, 1+m]`."""
    coords, count = training.coords, len(training.bound)

    def said(multipliers: Vector) -> Vector:
        out = []
        for multiplier in multipliers:
            score = np.where(allowed, q[:, :, family] @ coords.weights(multiplier), -np.inf)
            best = score.argmax(axis=1)
            out.append(coords.of(q[np.arange(len(q)), best, family].mean(axis=0)))
        return np.array(out)

    grid = pilot_grid(training.bound)
    grid = laid_again(grid, said(grid)[:, 1:])
    if count > 1:
        asked_for = solve_mixture(said(grid), coords.limits, coords.scale).duals
        grid = laid_again(grid, said(grid)[:, 1:], np.where(np.arange(count) == training.money, 0, asked_for))
    return grid, said(grid)


def _halves(data: Transitions, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of every other user, and of the rest: neighbours in the log are strangers. One user alone is in both."""
    _, place = np.unique(data.user[rows], return_inverse=True)
    even = place % PAIR == 0
    return rows[even], rows if even.all() else rows[~even]


def _functions(data: Transitions, train: Train, rows: NDArray[np.int64]) -> tuple[tuple[float, ...], ...]:
    """e: d rows of K, centred and of unit variance under the logged frequencies, so that decay shrinks all alike.

    What is large for an action that was hardly ever given is cut, so that its effect is shrunk the more.
    """
    basis = smooth_basis(data.actions, train.action_degree, data.campaign.meta.none)
    wide = np.eye(data.num_actions) if basis is None else np.asarray(basis)
    share = np.bincount(np.asarray(data.action[rows]), minlength=data.num_actions) / len(rows)
    # What is constant under the log's frequencies is the level's: only what is left of it has an effect.
    centred = np.where(share > 0, wide - (wide @ share)[:, None], 0.0)
    size = np.sqrt(centred**2 @ share)
    kept = centred[size > CONSTANT] / size[size > CONSTANT][:, None]
    kept /= np.maximum(1, np.abs(kept).max(axis=1, initial=0.0) / LARGEST)[:, None]
    return tuple(map(tuple, (kept if len(kept) else np.zeros((1, data.num_actions))).tolist()))
