"""The game: a multiplier player against a best-response player, and a rule that mixes what they find.

    every step        a gradient step of the critic towards the best response to λ, warm-started from the last
    every 10 steps    λ ← clip(λ + (x_c − limit)/√t, 0, λ_max)      x measured by the critic on *select* users
    every 100 steps   the current policy is a candidate: measured, and given to the mixing rule

A critic's value of its own policy lags far behind: it learned from every policy that it was on the way, and an early
one values every policy like the log's own. On a log of 20 features it predicted a cost of 0.8 where the truth was 0.05.
So candidates are measured on the log (`measure`), by the counted model or by a fitted evaluation; or, as in the paper,
by one more network (`measured_by = "network"`), which learns the value of each candidate, held fixed, from the rows of
the last block, beginning where it stood before. The counted model is exact from the first candidate on. Otherwise λ
sees the critic's figure moved by what the last candidate was measured at, and for the first `warm_up` of the steps λ
stays at 0 and no candidate counts. The paper has no such pause, and its preset none.

A network that the rule dropped is freed. One more is kept aside, the most frugal one seen, for the case that a second
measurement finds every kept member over a limit; and where states are not counted, `spare_candidates` more, evenly
spread over the steps, for the last choice (`choosing/choose.py`), which goes by better figures.

Source: Cai et al. (WSDM 2023), Algorithms 1 to 3; schedule from their section 6. Ten gradient steps are no exact best
response, so the game's regret bound does not apply to networks; it does to the exact game on tabular problems.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.campaign import Train
from outlay.core.mixture import Mixture
from outlay.core.transitions import Transitions
from outlay.learning import critic as critics
from outlay.learning.critic import Critic, CriticSettings, Oracle
from outlay.learning.fresh import Starts, fresh_pair, shape_of, table_of
from outlay.learning.heads import Coordinates
from outlay.learning.mixing.rule import Rule, constraints
from outlay.learning.multipliers import ogd_step
from outlay.learning.policy import Policy
from outlay.nets.batches import Batch, blocks, uses_table
from outlay.nets.loop import compiled_block
from outlay.nets.network import QNetwork, Shape
from outlay.nets.resident import resident_states

HELD_DECAY = 0.9  # of the weight averages of the extra network, whose policy changes from candidate to candidate
SPARES = 4  # networks that a rule may keep beside those of its mixture, as they are expensive to store

Vector = NDArray[np.float64]


class Player(NamedTuple):
    """The state that the next block needs; all arrays."""

    critic: Critic
    multiplier: Array  # [m] λ, scaled or raw as the schedule says
    rounds: Array  # λ steps made
    offset: Array  # [m] the last candidate's measured value less the critic's, if λ sees that
    extra: Critic | None  # one more network, which learns the value of candidates


@dataclass(frozen=True)
class GameCandidate:
    """A policy that was offered to the rule.

    Attributes:
        number: 0, 1, ….
        step: gradient steps made by then.
        multiplier: `[m]` λ in reward units per unit of coordinate.
        critic: `[1+m]` reward and coordinates by the critic's own measurement.
        measured: `[1+m]` what the rule was given; the same as `critic` where nothing else measures.
        loss: mean loss of the block before it.
        decisions: x_1 by the critic; 1 where every policy decides once a day.
    """

    number: int
    step: int
    multiplier: Vector
    critic: Vector
    measured: Vector
    loss: float
    decisions: float


@dataclass
class GameProgress:
    """The state of a game after a block: what a checkpoint must contain and what a user wants to see.

    Attributes:
        player: the two players.
        candidates: all so far.
        networks: of the kept candidates and of the spare ones, by number.
        kept: how many networks the rule needed after each candidate, the frugal one among them.
        seconds: of training so far.
        rule_state: the rule's after the last candidate; a checkpoint has none, as it follows from the candidates.
    """

    player: Player
    candidates: list[GameCandidate] = field(default_factory=list)
    networks: dict[int, QNetwork] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    seconds: float = 0.0
    rule_state: Any = None


@dataclass(frozen=True)
class Game:
    """A game ready to be played on one log.

    Attributes:
        data: the transitions.
        train: the schedule.
        settings: of the critic.
        coords: from heads to the coordinates of the limits.
        bound: `[m]` λ_max.
        rule: the mixing rule.
        measure: `[1+m]` what a candidate is worth on the log, NaN if that is not known; None: the critic's own
            figure is used, or that of one more network.
        counted: whether `measure` is a counted model.
        learn_rows: `[n]` rows to learn from.
        seed: of everything random.
    """

    data: Transitions
    train: Train
    settings: CriticSettings
    coords: Coordinates
    bound: Vector
    rule: Rule
    measure: Callable[[Policy], Vector] | None
    counted: bool
    learn_rows: NDArray[np.int64]
    seed: int

    @property
    def steps(self) -> int:
        """Gradient steps in all: whole blocks."""
        wanted = max(self.train.epochs * len(self.learn_rows) / self.train.batch, self.train.min_steps)
        return max(1, round(wanted / self.train.candidate_every)) * self.train.candidate_every

    @property
    def first(self) -> int:
        """The first candidate that counts."""
        blocks = self.steps // self.train.candidate_every
        return 0 if self.counted else int(self.train.warm_up * blocks)

    @property
    def spare(self) -> list[int]:
        """Candidates that are kept for the last choice, whatever the rule does."""
        if self.counted or self.train.spare_candidates == 0:
            return []
        last = self.steps // self.train.candidate_every - 1
        places = np.linspace(last, self.first, self.train.spare_candidates).round()
        return [int(number) for number in np.unique(places)]

    @property
    def shape(self) -> Shape:
        """The shape of the networks."""
        return shape_of(self.data, self.train, self.settings, len(self.coords.spread), 1)

    @property
    def multiplier_unit(self) -> Vector:
        """`[m]` what one unit of the player's λ is, in reward units per unit of coordinate."""
        if self.train.scaled_multipliers:
            return self.coords.reward_scale / self.coords.scale
        return np.ones(len(self.coords.limits))

    def begin(self) -> GameProgress:
        """Fresh players."""
        pair = fresh_pair(self.data, self.shape, self.coords.spread, self.seed)
        none, rounds = jnp.zeros(len(self.coords.limits)), jnp.zeros((), jnp.int32)
        extra = None
        if self.train.measured_by == "network":
            shape = shape_of(self.data, self.train, self.settings._replace(oracle="ddqn"), len(self.coords.spread), 1)
            extra = critics.init(fresh_pair(self.data, shape, self.coords.spread, self.seed + 1), self.settings)
        return GameProgress(Player(critics.init(pair, self.settings), none, rounds, none, extra))

    def rule_state(self, candidates: list[GameCandidate]) -> Any:
        """The rule's state: a function of what it saw, so a checkpoint need not contain it."""
        state = self.rule.init(constraints(self.coords.limits, self.coords.scale, spares=SPARES))
        for candidate in candidates[self.first :]:
            state = self.rule.step(state, candidate.number, candidate.measured)
        return state

    def policy(self, pair: QNetwork, multiplier: Vector) -> Policy:
        """The greedy policy of a pair of networks at λ (in reward units per unit of coordinate)."""
        return Policy(pair, self.coords.weights(multiplier), self.coords.spread, self.settings.threshold)


def settings_of(train: Train, oracle: Oracle, discount: float) -> CriticSettings:
    """The critic's settings from the campaign's."""
    return CriticSettings(
        oracle=oracle,
        discount=discount,
        learning_rate=train.learning_rate,
        target_decay=train.target_decay,
        small_q_weight=train.small_q_weight,
        supervised_weight=train.supervised_weight,
        imitation_weight=train.imitation_weight,
        imitation_threshold=train.imitation_threshold,
    )


def play(game: Game, progress: GameProgress | None = None) -> Iterator[tuple[GameProgress, Mixture[int] | None]]:
    """Play block by block, from the start or from a checkpoint.

    Yields:
        the state of the game and the rule's mixture of candidate numbers, after each candidate; None before the first
        that counts.
    """
    progress = game.begin() if progress is None else progress
    train = game.train
    block, look, evaluate = _compile(game)
    state, spare = game.rule_state(progress.candidates), game.spare
    batches = blocks(
        game.data, game.learn_rows, batch=train.batch, steps=train.candidate_every, total=game.steps, seed=game.seed,
        start=len(progress.candidates) * train.candidate_every,
        resident=None if uses_table(game.data, train.batch) else resident_states(game.data),
    )  # fmt: skip
    for batch in batches:
        began = time.perf_counter()
        progress.player, losses = block(progress.player, batch)
        pair = progress.player.critic.target
        multiplier = np.asarray(progress.player.multiplier, np.float64) * game.multiplier_unit
        w = jnp.asarray(game.coords.weights(multiplier), jnp.float32)
        number = len(progress.candidates)
        heads = np.asarray(look(pair, w, None), np.float64)
        own = fitted = game.coords.of(heads)
        if game.measure is not None:
            measured = game.measure(game.policy(pair, multiplier))
            fitted = measured if np.isfinite(measured).all() else own
        elif progress.player.extra is not None:
            extra = evaluate(progress.player.extra, pair, w, batch)
            progress.player = progress.player._replace(extra=extra)
            fitted = game.coords.of(np.asarray(look(pair, w, extra.target), np.float64))
        if not game.counted:
            progress.player = progress.player._replace(offset=jnp.asarray((fitted - own)[1:], jnp.float32))
        step = (number + 1) * train.candidate_every
        decisions = 1.0 if game.data.steady else float(heads[-1])
        progress.candidates.append(
            GameCandidate(number, step, multiplier, own, fitted, float(losses.mean()), decisions)
        )
        mixture, keep = None, set[int]()
        if number >= game.first:
            progress.rule_state = state = game.rule.step(state, number, fitted)
            mixture = game.rule.mixture(state)
            keep = {*game.rule.members(state), frugal(progress.candidates[game.first :], game.coords)}
        progress.networks[number] = pair
        progress.networks = {n: net for n, net in progress.networks.items() if n in keep or n in spare}
        progress.kept.append(len(keep))
        progress.seconds += time.perf_counter() - began
        yield progress, mixture


def frugal(candidates: list[GameCandidate], coords: Coordinates) -> int:
    """The candidate with the most room under its tightest limit."""
    room = [float(np.max((c.measured[1:] - coords.limits) / coords.scale)) for c in candidates]
    return candidates[int(np.argmin(room))].number


class _Held(NamedTuple):
    """A network that learns the value of a policy which is held fixed."""

    extra: Critic
    acting: QNetwork
    weights: Array  # [1, H] w of the policy, in units of the heads


def _compile(
    game: Game,
) -> tuple[
    Callable[[Player, Batch], tuple[Player, Array]],
    Callable[[QNetwork, Array, QNetwork | None], Array],
    Callable[[Critic, QNetwork, Array, Batch], Critic],
]:
    """The compiled block; `[H]` networks' values of the critic's policy at w; a block of the extra network's training.

    The second takes the critic's own networks, w, and the networks that are asked (None: the critic's own).
    """
    data, settings, coords = game.data, game.settings, game.coords
    table, starts = table_of(data, game.train.batch), Starts.of(data, game.train.batch, game.seed)
    spread = jnp.asarray(coords.spread, jnp.float32)
    matrix, constant = jnp.asarray(coords.matrix, jnp.float32), jnp.asarray(coords.constant, jnp.float32)
    limits, unit = jnp.asarray(coords.limits, jnp.float32), jnp.asarray(game.multiplier_unit, jnp.float32)
    # A heavy-tailed cost has a spread far above its limit; stepping in units of it λ would hardly move.
    size = np.where(coords.limits == 0, coords.scale, np.abs(coords.limits))
    step_unit = jnp.asarray(size if game.train.scaled_multipliers else np.ones_like(size), jnp.float32)
    bound = jnp.asarray(game.bound, jnp.float32)
    still = game.first * game.train.candidate_every // game.train.multiplier_every  # λ steps of the warm-up

    def weights(multiplier: Array) -> Array:
        return jnp.eye(matrix.shape[1])[0] - (multiplier * unit) @ matrix

    @eqx.filter_jit
    def measure(pair: QNetwork, w: Array, values: QNetwork | None) -> Array:
        return starts.measure(pair, table, (w * spread)[None], spread, settings.threshold, values)[0]

    def step(player: Player, batch: Batch) -> tuple[Player, Array]:
        w = (weights(player.multiplier) * spread)[None]
        critic, loss = critics.gradient_step(player.critic, batch, table, w, spread, settings)
        return player._replace(critic=critic), loss

    def after(player: Player) -> tuple[Player, None]:
        heads = measure(player.critic.target, weights(player.multiplier), None)
        excess = (matrix @ heads + constant + player.offset - limits) / step_unit
        rounds = player.rounds + 1
        moved = ogd_step(player.multiplier, excess, rounds, bound)
        multiplier = jnp.where(rounds > still, moved, player.multiplier)
        return player._replace(multiplier=multiplier, rounds=rounds), None

    compiled = compiled_block(step, after, game.train.multiplier_every)

    def block(player: Player, batch: Batch) -> tuple[Player, Array]:
        player, (losses, _) = compiled(player, batch)
        return player, losses

    quick = settings._replace(target_decay=HELD_DECAY)

    def follow(held: _Held, batch: Batch) -> tuple[_Held, Array]:
        extra, loss = critics.gradient_step(held.extra, batch, table, held.weights, spread, quick, held.acting)
        return held._replace(extra=extra), loss

    following = compiled_block(follow, lambda held: (held, None), game.train.candidate_every)

    def evaluate(extra: Critic, acting: QNetwork, w: Array, batch: Batch) -> Critic:
        held, _ = following(_Held(extra, acting, (w * spread)[None]), batch)
        return held.extra

    return block, measure, evaluate
