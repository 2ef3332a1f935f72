"""The paper's critics as learners of every λ: one network that holds the best response to every λ of a grid.

    Q_l(s, a) ∈ R^H for each λ_l: heads of its own on one trunk, all learned from every row
    pilot      λ far apart, up to a bound that no price can exceed; then the grid is refined, twice:
               from 0 to λ_max, where the cost stops falling, closer together where the cost falls faster, and
               the bound itself, for the cheapest policy there is
    heads at a new λ begin between those of its neighbours, since Q is smooth in λ

For m = 1 the grid is a line. For m limits the pilot runs along each axis and the grid is the product of the axes; when
refined, it is drawn around the λ that column generation would use, the duals of the best mixture for the campaign's
limits (the money budget's axis, along which the curve runs, stays wide).

The critic's values of its own policies only place the grid and draw the learning curve: the choice waits for a fitted
evaluation of the fixed policies (`choosing/choose.py`).

Source: λ as an input: BCORLE(λ) (Zhang et al., NeurIPS 2021); a head per λ, and where to put them: ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.progress import Progress
from outlay.learning import checkpoint
from outlay.learning import critic as critics
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.critic import Critic, CriticSettings, DistinctStates, Oracle
from outlay.learning.fresh import Starts, fresh_pair, settings_of, shape_of, table_of, whole_blocks
from outlay.learning.in_steps import learn_in_steps
from outlay.learning.learner import BestResponses, Task, TrainingInputs
from outlay.learning.multipliers import pilot_grid, refined
from outlay.nets.batches import Batch, Order, blocks, resident_states, uses_table
from outlay.nets.loop import ALONE, ProcessGroup, compiled_block
from outlay.nets.network import Linear, QNetwork, Shape, arrays
from outlay.ops.mixture_lp import solve_mixture

WITHOUT_LUCK = False

REFINED_AT = (0.15, 0.40, 0.60)  # of all gradient steps; the last for several limits only
BLOCK = 100  # gradient steps that are compiled as one call

Vector = NDArray[np.float64]


class FrontierLearner(NamedTuple):
    """The state that the next block needs; all arrays."""

    critic: Critic
    weights: Array  # [L, H] w of each policy, in units of the heads


class GridArrays(NamedTuple):
    """Arrays of the log that gradient steps read."""

    table: DistinctStates | None
    spread: Array  # [H] units of the heads


@dataclass
class FrontierProgress:
    """The state of a training after a block.

    Attributes:
        learner: the critic and the weights it answers.
        multipliers: `[L, m]` λ, in reward units per unit of coordinate.
        own: `[L, 1+m]` the critic's values of its policies, reward and coordinates, when the grid was last refined
            (of the policies before), and at the end; 0 until then.
        step: gradient steps made.
        losses: mean loss of each block.
        seconds: of training so far.
    """

    learner: FrontierLearner
    multipliers: Vector
    own: Vector
    step: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class FrontierTraining(TrainingInputs):
    """A training of one critic ready to begin; `learning/in_steps.py` trains it.

    Attributes:
        settings: of the critic.
    """

    LABEL: ClassVar[str] = ""
    PARTS: ClassVar[int] = 1

    settings: CriticSettings

    @property
    def steps(self) -> int:
        """Gradient steps in all: whole blocks."""
        return whole_blocks(self.train, len(self.learn_rows), BLOCK)

    @property
    def shape(self) -> Shape:
        """The shape of the networks."""
        return shape_of(self.data, self.train, self.settings, len(self.coords.spread), len(pilot_grid(self.bound)))

    def begin(self) -> FrontierProgress:
        """A fresh critic on the pilot's grid."""
        pair = fresh_pair(self.data, self.shape, self.coords.spread, self.seed)
        grid = pilot_grid(self.bound)
        own = np.zeros((len(grid), 1 + len(self.bound)))
        return FrontierProgress(FrontierLearner(critics.init(pair, self._settings), self.weights(grid)), grid, own)

    def weights(self, multipliers: Vector) -> Array:
        """`[L, H]` w of each λ, in units of the heads."""
        raw = np.array([self.coords.weights(multiplier) for multiplier in multipliers])
        return jnp.asarray(raw * self.coords.spread, jnp.float32)

    def blocks(self, progress: FrontierProgress, group: ProcessGroup = ALONE) -> Iterator[FrontierProgress]:
        """Train block by block, from the start or from a checkpoint; yield the state after each block."""
        return _blocks(self, progress, group)

    def save(self, folder: Path, progress: FrontierProgress, key: TrainingKey) -> None:
        """Write a checkpoint, replacing the last."""
        trees = {"learner": (progress.learner, progress.multipliers, progress.own)}
        plain = {"step": progress.step, "losses": progress.losses, "seconds": progress.seconds}
        checkpoint.write(folder, key, trees, plain)

    def load(self, folder: Path, key: TrainingKey) -> FrontierProgress:
        """Read a checkpoint of the same training.

        Raises:
            FolderError: if there is none, it is damaged, or it belongs to another training.
        """
        fresh = self.begin()
        with checkpoint.reading(folder, key) as saved:
            learner, multipliers, own = saved.tree("learner", (fresh.learner, fresh.multipliers, fresh.own))
            plain = saved.plain
            return FrontierProgress(learner, multipliers, own, plain["step"], plain["losses"], plain["seconds"])

    @property
    def _settings(self) -> CriticSettings:
        return self.settings._replace(decay_steps=self.steps)


def in_steps(task: Task) -> FrontierTraining:
    """The training of a task, whose learner names the critic."""
    oracle: Oracle = task.learner  # type: ignore[assignment]  # as the registry has them
    return FrontierTraining(*task.inputs, settings_of(task.campaign.train, oracle, task.campaign.meta.discount))


def learn(task: Task, report: Progress) -> BestResponses:
    """Train one critic with heads for a grid of λ."""
    training = in_steps(task)
    progress, before = learn_in_steps(training, task, report)
    own = np.array([task.coords.shown(x, 1.0) for x in progress.own])
    # The last λ along each axis is the bound, for the cheapest policy.
    top = " and ".join(f"{np.unique(column)[-2]:.3g}" for column in progress.multipliers.T)

    def estimate(multiplier: Vector) -> Vector:
        # Q is smooth in λ, and so is what it is worth.
        found: Vector = (between(progress.multipliers, multiplier[None]) @ own)[0]
        return found

    return BestResponses(
        task.learner,
        arrays(progress.learner.critic.target, task.coords.spread),
        policy=np.arange(len(own)),
        multiplier=progress.multipliers,
        description="this critic (the Q of the nearest λ, priced at theirs)",
        notes=[f"One network answers {len(own)} λ, from 0 to {top}, where the cost stops falling."],
        critic=own,
        steps=training.steps,
        seconds_before=before,
        estimate=estimate,
    )


@lru_cache(maxsize=4)
def _compiled(settings: CriticSettings, group: ProcessGroup) -> tuple[Callable[..., Any], Callable[..., Array]]:
    """A block of gradient steps, and the critic's values: all that differs from fold to fold is an argument.

    So they are compiled once for all.
    """

    def step(
        carry: tuple[FrontierLearner, GridArrays], batch: Batch
    ) -> tuple[tuple[FrontierLearner, GridArrays], Array]:
        learner, about = carry
        critic, loss = critics.gradient_step(
            learner.critic, batch, about.table, learner.weights, about.spread, settings, group=group
        )
        return (learner._replace(critic=critic), about), loss

    @eqx.filter_jit
    def look(learner: FrontierLearner, about: GridArrays, starts: Starts) -> Array:
        return starts.measure(learner.critic.target, about.table, learner.weights, about.spread, settings.threshold)

    return compiled_block(step, lambda carry: (carry, None), BLOCK, group), look


def _blocks(frontier: FrontierTraining, progress: FrontierProgress, group: ProcessGroup) -> Iterator[FrontierProgress]:
    """What `FrontierTraining.blocks` does."""
    data, coords = frontier.data, frontier.coords
    block, look = _compiled(frontier._settings, group)
    spread = jnp.asarray(coords.spread, jnp.float32)
    about = GridArrays(table_of(data, frontier.train.batch), spread)
    starts = Starts.of(data, frontier.train.batch, frontier.seed)
    count = len(frontier.bound)
    again = [int(share * frontier.steps) // BLOCK * BLOCK for share in REFINED_AT[: 2 if count == 1 else 3]]
    alone = group.size == 1 and not uses_table(data, frontier.train.batch)
    batches = blocks(
        data,
        frontier.learn_rows,
        Order(frontier.train.batch, BLOCK, frontier.steps, frontier.seed, progress.step),
        share=group.share(frontier.train.batch),
        resident=resident_states(data) if alone else None,
    )
    for batch in batches:
        began = time.perf_counter()
        (learner, _), (losses, _) = block(group.everywhere((progress.learner, about)), group.place(batch))
        progress.learner = group.here(learner)
        progress.losses.append(float(group.here(losses).mean()))
        progress.step += BLOCK
        if progress.step in again or progress.step == frontier.steps:
            progress.own = np.array(
                [coords.of(heads) for heads in np.asarray(look(progress.learner, about, starts), np.float64)]
            )
        if progress.step in again and progress.step < frontier.steps:
            focus = None
            if count > 1 and progress.step > again[0]:
                target_multipliers = solve_mixture(progress.own, coords.limits, coords.scale).duals
                focus = np.where(np.arange(count) == frontier.money, 0, target_multipliers)
            grid = refined(progress.multipliers, progress.own[:, 1:], focus)
            mixing = between(progress.multipliers, grid)
            progress.learner = FrontierLearner(_moved(progress.learner.critic, mixing), frontier.weights(grid))
            progress.multipliers = grid
        progress.seconds += time.perf_counter() - began
        yield progress


def between(old: Vector, new: Vector) -> Vector:
    """`[L', L]` how much of each old λ's heads goes into those of each new λ; rows add up to 1.

    Along one axis it is linear interpolation. Of a product of axes the parts multiply; of a pilot, which ran along the
    axes only, they add up: Q(λ₁, λ₂) ≈ Q(λ₁, 0) + Q(0, λ₂) − Q(0, 0).
    """
    count = old.shape[1]
    axes = [np.unique(old[:, j]) for j in range(count)]
    shares = [_hats(axis, new[:, j]) for j, axis in enumerate(axes)]
    places = np.array([np.searchsorted(axis, old[:, j]) for j, axis in enumerate(axes)])
    if len(old) == np.prod([len(axis) for axis in axes]):
        whole = np.ones((len(new), len(old)))
        for share, place in zip(shares, places, strict=True):
            whole *= share[:, place]
        return whole
    total = np.zeros((len(new), len(old)))
    for j, (share, place) in enumerate(zip(shares, places, strict=True)):
        on_axis = (np.delete(old, j, axis=1) == 0).all(axis=1)
        total += np.where(on_axis, share[:, place], 0)
    total[:, (old == 0).all(axis=1)] -= count - 1
    return total


def _hats(knots: Vector, at: Vector) -> Vector:
    """`[n, knots]` linear interpolation as weights."""
    return np.stack([np.interp(at, knots, column) for column in np.eye(len(knots))], axis=1)


def _moved(critic: Critic, mixing: Vector) -> Critic:
    """Return the critic with the heads of the new grid on the same trunk; Adam's second moments stay positive."""
    mean, size = jnp.asarray(mixing, jnp.float32), jnp.asarray(np.abs(mixing), jnp.float32)
    size /= size.sum(axis=1, keepdims=True)

    def heads(pair: QNetwork, by: Array) -> QNetwork:
        shape = pair.shape

        def move(part: Array) -> Array:
            split = part.reshape(*part.shape[:-1], shape.rank, shape.num_policies, shape.num_heads)
            return jnp.einsum("...lh,nl->...nh", split, by).reshape(part.shape)

        head = Linear(move(pair.head.weight), move(pair.head.bias))
        moved: QNetwork = eqx.tree_at(lambda net: net.head, pair, head)
        return moved

    adam = critic.optimiser[0]
    adam = adam._replace(mu=heads(adam.mu, mean), nu=heads(adam.nu, size))
    return Critic(heads(critic.online, mean), heads(critic.target, mean), (adam, *critic.optimiser[1:]))
