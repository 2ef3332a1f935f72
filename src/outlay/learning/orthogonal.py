"""The orthogonal critic: the effects of actions, learned separately from the baseline.

    y₀ = (r, c)                                     the day itself
    y₁ = γ^Δ V(s')                                  the days after it, under the log's policy
    m_p(s) = E[y_p | s],   b(a|s)                   learned on one half of the users for the rows of the other
    ẽ_j = e_j(a) − Σ_a b(a|s) e_j(a)                functions of the action, less their mean under the log's policy
    τ_p = argmin E ( y_p − m_p(s) − Σ_j τ_p,j(s) ẽ_j )²
    Q(s, a) = (1−γ) Q₀ + Q₁,   Q_p = β_p(s) + Σ_j τ_p,j(s) e_j(a)

V is fitted several times during training, on the features that the networks of a half have learned.

For y₁ there is a second model, which is also given the outcomes of the day; effects learn from it:

    g(s, a, x) = u(s) + Σ_j δ_j(s) ẽ_j + κ(s, a) x     expected y₁ if the day's outcomes were x
    y₁  →  g(s, a, E[x | s, a]) + ½ (y₁ − g(s, a, x))

Whether a user is active today is mostly chance, but it affects later days more than any action does. Given x, the
effects on later days can be estimated from hundreds of times less data. Since g may be biased for users who differ in
x, half of its residual is kept, and the size of all effects is estimated on select users from y₁ itself, less the noise
of the day: y₁ − κ(s, a) (x − E[x | s, a]), whose mean is the same for any κ.

Most of the variance of y is between users who are active in any case and those who are not; the effect of an action is
a small difference, which a plain regression of Q loses first. Errors of m and b do not bias τ to first order, and only
τ determines the action. Values are vectors, reward and costs, so one training answers every λ: the policy of λ is the
argmax of (1, −λ)ᵀQ. Because later days are under the log's policy, this is one step of policy improvement.

Weight decay and the penalty on V are priors, so they weigh less the more rows there are.

Training runs to the end of its schedule, since effects on later days need its last, small steps: the held-out loss of
the day levels off within a thousand steps, that of later days much later. Earlier networks are used only if they
explain clearly more of the day for *select* users. Then effects are rescaled, and λ are laid where costs change.

Where a cost is determined by action and reward (`coupon * active`), the day's Q of the cost follows from that of the
reward and is not learned again.

Source: Robinson (1988); A-learning and blip functions, Murphy (2003), Robins (2004); the R-learner, Nie and Wager
(2021), with cross-fitting by user, Chernozhukov et al. (2018); mediators, VanderWeele (2015); V, Bradtke and Barto
(1996); for vectors and values: ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from outlay.core.campaign import Train
from outlay.core.errors import CampaignError
from outlay.core.progress import Progress
from outlay.core.transitions import Transitions
from outlay.learning import checkpoint
from outlay.learning.amounts import action_basis
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.held_out import HeldOut, choice_rows
from outlay.learning.in_steps import learn_in_steps
from outlay.learning.learner import BestResponses, Task, TrainingInputs
from outlay.learning.multipliers import LOOK_ROWS, Answers, answered
from outlay.learning.orthogonal_loss import Loss, OrthogonalState, fitted_values, halves_of
from outlay.learning.outcomes import outcomes
from outlay.nets.batches import Batch, Order, blocks, padded, resident_states, steps_in_memory
from outlay.nets.loop import ALONE, ProcessGroup, compiled_block
from outlay.nets.network import PAIR, Linear
from outlay.nets.orthogonal import (
    TARGETS,
    EffectShape,
    OrthogonalNetwork,
    arrays_of,
    init_orthogonal,
    value_heads,
)

WITHOUT_LUCK = True

BLOCK = 100  # gradient steps that are compiled as one call; fewer where a log is so wide that their rows are large
DECAY_ROWS = 250_000  # rows to learn from at which weight decay, as in AdamW, is 1
MOST_DECAY = 3.0
FINAL_RATE = 0.02  # final share of the learning rate, at the end of a cosine schedule
RATE, PASSES = 2.0, 2.0  # multiples of [train] learning_rate and epochs: each mean is fitted to half of the users
MIN_BLOCKS = 3  # minimum number of blocks; a small log is soon overfitted
LOOKS = 10  # evaluations on select users, evenly over the training, at most one a block
WORSE = 0.002  # by how much more of the day an earlier network has to explain to be used instead of the last
REFITS = 6  # number of times that V is fitted, evenly over the training
CONSTANT, LARGEST = 1e-9, 4.0  # least spread of a function of the action, and its largest absolute value
Vector = NDArray[np.float64]
RESIZE = (0.0, 4.0)  # range of the factor by which effects are rescaled


class Best(NamedTuple):
    """The networks that have explained most for select users so far."""

    learner: OrthogonalState
    step: int
    explained: float


@dataclass
class OrthogonalProgress:
    """The state of a training after a block.

    Attributes:
        learner: the networks.
        best: the best networks for select users so far.
        step: number of gradient steps.
        losses: mean loss of each block.
        seconds: training time so far.
    """

    learner: OrthogonalState
    best: Best
    step: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


class Pace(NamedTuple):
    """What the optimiser is told, as arrays of one number: so a program of one fold is that of the next."""

    rate: Array
    decay: Array
    keep: Array  # of the averaged weights, a step
    steps: Array  # of the whole training


class Carry(NamedTuple):
    """What a block of steps is given, of which it changes the learner alone."""

    learner: OrthogonalState
    loss: Loss
    pace: Pace


class Orthogonal(TrainingInputs):
    """A training of networks ready to begin; `learning/in_steps.py` trains it."""

    LABEL: ClassVar[str] = "networks: "
    PARTS: ClassVar[int] = PAIR

    @property
    def steps(self) -> int:
        """Total number of gradient steps, a multiple of BLOCK."""
        wanted = PASSES * self.train.epochs * len(self.learn_rows) / self.train.batch
        return max(MIN_BLOCKS, round(wanted / BLOCK)) * BLOCK

    @cached_property
    def shape(self) -> EffectShape:
        """Sizes of the networks."""
        return EffectShape(
            sizes=self.data.schema.sizes,
            num_numbers=self.data.number_columns.shape[1],
            num_actions=self.data.num_actions,
            num_heads=len(self.coords.spread),
            layers=self.train.layers,
            embedding=self.train.embedding,
            num_functions=len(self.functions),
        )

    @cached_property
    def functions(self) -> Vector:
        """`[d, K]` the functions e of the action that effects are made of."""
        return _functions(self.data, self.train, self.learn_rows)

    @property
    def units(self) -> Vector:
        """`[TARGETS]` units of the effects, relative to those of the levels: later days are in units of a day."""
        return np.array([1.0, 1 - self.discount])

    @cached_property
    def loss(self) -> Loss:
        """The loss of a gradient step."""
        known = self.derived.known
        learned = np.ones((TARGETS, len(self.coords.spread)))
        learned[0, 1 : 1 + len(known)] = ~known
        arrays = (self.coords.spread, self.functions, self.units, learned)
        return Loss(*(jnp.asarray(part, jnp.float32) for part in arrays))

    def begin(self) -> OrthogonalProgress:
        """Initialise the networks so that they predict the logged means."""
        mean = outcomes(self.data, self.learn_rows).mean(axis=0) / self.coords.spread
        pair = init_orthogonal(self.shape, self.seed, np.stack([mean, self.discount * mean]))
        value = jnp.broadcast_to(jnp.asarray(mean, jnp.float32), (PAIR, len(self.data), len(mean)))
        learner = OrthogonalState(pair, pair, value, _adam(self.pace).init(eqx.filter(pair, eqx.is_array)))
        return OrthogonalProgress(learner, Best(learner, 0, -np.inf))

    def blocks(self, progress: OrthogonalProgress, group: ProcessGroup = ALONE) -> Iterator[OrthogonalProgress]:
        """Train block by block, from the start or from a checkpoint; yield the progress after each block.

        The result is the last network, unless an earlier one explained clearly more of the day for select users.
        """
        return _blocks(self, progress, group)

    def save(self, folder: Path, progress: OrthogonalProgress, key: TrainingKey) -> None:
        """Write a checkpoint, replacing the last."""
        plain = {
            "step": progress.step,
            "losses": progress.losses,
            "seconds": progress.seconds,
            "best_step": progress.best.step,
            "explained": progress.best.explained,
        }
        checkpoint.write(folder, key, {"learner": progress.learner, "best": progress.best.learner}, plain)

    def load(self, folder: Path, key: TrainingKey) -> OrthogonalProgress:
        """Read a checkpoint of the same training.

        Raises:
            FolderError: if there is none, it is damaged, or it belongs to another training.
        """
        with checkpoint.reading(folder, key) as saved:
            fresh, plain = self.begin().learner, saved.plain
            best = Best(saved.tree("best", fresh), plain["best_step"], plain["explained"])
            learner = saved.tree("learner", fresh)
            return OrthogonalProgress(learner, best, plain["step"], plain["losses"], plain["seconds"])

    @cached_property
    def held_out(self) -> HeldOut:
        """The users held out of the effects' training."""
        return HeldOut(self.data, self.loss, self.train.embedding, self.seed)

    def explained(self, learner: OrthogonalState) -> float:
        """Return the share of the day's held-out variance that is explained, averaged over the learned outcomes."""
        learned = np.asarray(self.loss.learned)[0]
        return float(self.held_out.moments(learner).explained @ learned / learned.sum())

    def values(self, pair: OrthogonalNetwork) -> Array:
        """Fit V on the features of a pair, for the rows that are learned from or held out."""
        return fitted_values(self.data, pair, self.coords.spread, self.learn_rows, self.held_out.rows, self.seed)

    @property
    def pace(self) -> Pace:
        """What the optimiser is told."""
        decay = min(MOST_DECAY, DECAY_ROWS / len(self.learn_rows))
        figures = (RATE * self.train.learning_rate, decay, self.train.target_decay, self.steps)
        return Pace(*(jnp.asarray(each, jnp.float32) for each in figures))


def _adam(pace: Pace) -> optax.GradientTransformation:
    """Adam with decoupled weight decay, on a cosine."""

    def weights(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim == 3, tree)  # the pair, in, out: not biases

    def rate(step: Array) -> Array:
        falling = 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(step, pace.steps) / pace.steps))
        return pace.rate * ((1 - FINAL_RATE) * falling + FINAL_RATE)

    return optax.chain(
        optax.scale_by_adam(),
        optax.add_decayed_weights(pace.decay, weights),
        optax.scale_by_learning_rate(rate),
    )


@lru_cache(maxsize=4)
def _compiled(half: int, every: int, group: ProcessGroup) -> Callable[[Carry, Any], tuple[Carry, tuple[Array, Any]]]:
    """A block of gradient steps; all that differs from fold to fold is an argument, so it is compiled once for all."""
    fold = jnp.repeat(jnp.arange(PAIR), half // group.size)

    def step(carry: Carry, halves: tuple[Batch, Batch]) -> tuple[Carry, Array]:
        learner, loss, pace = carry
        batch = jax.tree.map(_joined, *halves)
        targets = loss.targets(learner, batch, fold)
        value, gradient = group.mean(eqx.filter_value_and_grad(loss)(learner.online, batch, targets, fold))
        updates, state = _adam(pace).update(gradient, learner.optimiser, learner.online)
        online = eqx.apply_updates(learner.online, updates)
        keep = pace.keep
        averaged = jax.tree.map(lambda old, new: keep * old + (1 - keep) * new, learner.averaged, online)
        return Carry(OrthogonalState(online, averaged, learner.value, state), loss, pace), value

    return compiled_block(step, lambda carry: (carry, None), every, group)


def _blocks(training: Orthogonal, progress: OrthogonalProgress, group: ProcessGroup) -> Iterator[OrthogonalProgress]:
    """What `Orthogonal.blocks` does."""
    data = training.data
    half = max(2, training.train.batch // PAIR)  # a batch of one row would look like arrays shared by all rows
    share = group.share(half)
    size = steps_in_memory(data, PAIR * half, BLOCK)
    block = _compiled(half, size, group)
    resident = resident_states(data) if group.size == 1 else None  # a group places batches from the host
    streams = [
        blocks(
            data,
            rows,
            Order(half, size, training.steps, training.seed + part, progress.step),
            table=False,
            next_states=False,
            share=share,
            resident=resident,
        )
        for part, rows in enumerate(halves_of(data, training.learn_rows))
    ]
    looks = {round(training.steps / BLOCK * part / LOOKS) * BLOCK for part in range(1, LOOKS + 1)}
    refits = {round(training.steps / BLOCK * part / (REFITS + 1)) * BLOCK for part in range(1, REFITS + 1)} - {0}
    for halves in zip(*streams, strict=True):
        began = time.perf_counter()
        if progress.step in refits and training.discount > 0:
            value = training.values(progress.learner.averaged)
            progress.learner = progress.learner._replace(value=value)
        carry = Carry(progress.learner, training.loss, training.pace)
        carry, (losses, _) = block(group.everywhere(carry), group.place(halves))
        progress.learner = group.here(carry.learner)
        progress.losses.append(float(group.here(losses).mean()))
        progress.step += size
        if progress.step in looks:
            explained, last = training.explained(progress.learner), progress.step == training.steps
            if explained >= progress.best.explained - (WORSE if last else 0):
                progress.best = Best(progress.learner, progress.step, explained)
        progress.seconds += time.perf_counter() - began
        yield progress


def _joined(one: Array, other: Array) -> Array:
    """Concatenate two halves of a batch; an array shared by all rows is kept once."""
    return one if one.shape[0] == 1 and other.shape[0] == 1 else jnp.concatenate([one, other])


def _functions(data: Transitions, train: Train, rows: NDArray[np.int64]) -> Vector:
    """Return the functions e `[d, K]`, standardised under the logged frequencies, so that decay shrinks all equally.

    Values that are large because an action is rare are bounded, so that its effect is shrunk more.
    """
    basis = action_basis(data, train.action_degree, rows)
    wide = np.eye(data.num_actions) if basis is None else np.asarray(basis)
    share = np.bincount(np.asarray(data.action[rows]), minlength=data.num_actions) / len(rows)
    # The constant part belongs to the level.
    centred = np.where(share > 0, wide - (wide @ share)[:, None], 0.0)
    size = np.sqrt(centred**2 @ share)
    kept = centred[size > CONSTANT] / size[size > CONSTANT][:, None]
    kept /= np.maximum(1, np.abs(kept).max(axis=1, initial=0.0) / LARGEST)[:, None]
    return kept if len(kept) else np.zeros((1, data.num_actions))


def in_steps(task: Task) -> Orthogonal:
    """The training of a task.

    Raises:
        CampaignError: if there is no hidden layer.
    """
    if not task.campaign.train.layers:
        raise CampaignError(
            "is empty; the orthogonal critic needs a hidden layer.",
            file=task.campaign.path,
            where="[train] layers",
            way_out="Write layers = [128, 64].",
        )
    return Orthogonal(*task.inputs)


def learn(task: Task, report: Progress) -> BestResponses:
    """Train one Q, which answers every λ.

    Raises:
        CampaignError: if there is no hidden layer.
    """
    training = in_steps(task)
    progress, before = learn_in_steps(training, task, report)
    found = BestResponses.of_one_q(task.learner, answers(training, progress), task.coords, "One network answers")
    return replace(found, steps=progress.best.step, seconds_before=before)


def answers(training: Orthogonal, progress: OrthogonalProgress) -> Answers:
    """Return the policies of a finished training, at the λ where costs change, with rescaled effects."""
    pair = _resized(training, progress.best.learner)
    heads, outcome = _raw_heads(training, pair)
    grid = answered(training.coords, training.bound, training.money, *_values(training, pair, heads))
    return Answers(arrays_of(pair, heads, outcome), *grid)


def _resized(training: Orthogonal, learner: OrthogonalState) -> OrthogonalNetwork:
    """Rescale the effects of each target and head by a regression on rows of select users.

    Weight decay strong enough to rank users by response shrinks all effects, most of all those on later days.
    """
    pair = learner.averaged
    factor = np.clip(training.held_out.moments(learner).size, *RESIZE)
    by_output = jnp.asarray(np.repeat(factor.ravel(), pair.shape.num_functions), jnp.float32)
    slope = Linear(pair.slope.weight * by_output, pair.slope.bias * by_output)
    resized: OrthogonalNetwork = eqx.tree_at(lambda net: net.slope, pair, slope)
    return resized


def _raw_heads(training: Orthogonal, pair: OrthogonalNetwork) -> tuple[tuple[Vector, Vector], tuple[Vector, Vector]]:
    """Return weights and biases, in raw units, of Q `[..., K, 1, H]` and of the day's outcomes `[..., K, 1+m]`."""
    weight, bias = value_heads(pair, training.functions, training.units)
    derived, spread = training.derived, training.coords.spread
    count = len(derived.known)

    def raw(part: Vector, constant: float) -> tuple[Vector, Vector]:
        day, after = part[..., 0, :] * spread, part[..., 1, :] * spread  # [..., K, H]
        for j in np.flatnonzero(derived.known):
            day[..., 1 + j] = derived.per_reward[j] * day[..., 0] + constant * derived.base[j]
        # With γ = 0, later days do not count, and what was learned about them is noise.
        q = day if training.discount == 0 else (1 - training.discount) * day + after
        return q[..., None, :], day[..., : 1 + count]

    (head_weight, day_weight), (head_bias, day_bias) = raw(weight, 0.0), raw(bias, 1.0)
    return (head_weight, head_bias), (day_weight, day_bias)


@eqx.filter_jit
def _hidden(pair: OrthogonalNetwork, codes: Array, numbers: Array) -> Array:
    """`[2, B, 2·width]` the last hidden layers; compiled once for all folds."""

    def of(net: OrthogonalNetwork) -> Array:
        return jnp.concatenate(net.hidden(codes, numbers), axis=1)

    both: Array = eqx.filter_vmap(of)(pair)
    return both


def _values(
    training: Orthogonal, pair: OrthogonalNetwork, heads: tuple[Vector, Vector]
) -> tuple[Vector, NDArray[np.bool_]]:
    """Return Q `[N, K, H]`, in raw units, of select users' rows with a choice, and the allowed actions `[N, K]`."""
    data = training.data
    rows = choice_rows(data, LOOK_ROWS, training.seed)
    ((_, whole),) = padded([rows])
    codes, numbers = jnp.asarray(data.codes(whole, data.code_type)), jnp.asarray(data.numbers(whole))
    weight, bias = heads
    features = np.asarray(_hidden(pair, codes, numbers), np.float64)[:, : len(rows)]
    q = np.einsum("enw,ewkh->nkh", features, weight[..., 0, :]) / PAIR + bias[..., 0, :].mean(axis=0)
    return q, data.allowed(rows)
