"""The game: a multiplier player against a best-response player, and a rule that mixes what they find.

    every step        a gradient step of the critic towards the best response to λ, warm-started from the last
    every 10 steps    λ ← clip(λ + (x_c − limit)/√t, 0, λ_max)      x of the policy that acts now
    every 100 steps   that policy is a candidate: measured, and once λ has settled given to the mixing rule

A critic's value of its own policy lags far behind: it learned from every policy that it was on the way, and an early
one values every policy like the log's own. On a log of 20 features it predicted a cost of 0.8 where the truth was 0.05.
So λ does not read it. Where states are counted, λ and the candidates are measured by the counted model; else λ reads
one more network (`learning/acting.py`), which follows the policy that acts. Such a network also measures the
candidates of the paper's preset (`measured_by = "network"`); otherwise a fitted evaluation on *select* users does.
What λ reads must be of the policy that acts now: read of an earlier one, it moves the wrong way whenever the two lie on
different sides of a limit. Where candidates are measured by something else, the mean difference between the two figures
of the same candidates is added. The counted model is exact from the first candidate on. Otherwise λ stays at 0 for
the first `warm_up` of the steps; the paper has no such pause, and its preset none.

Candidates count once λ has settled (`learning/multipliers.py`) and networks have had the steps that they need to forget
how they began, 1/((1−target_decay)(1−γ)); at the latest for the second half of the steps after the warm-up.

λ by bisection (Xiao et al. 2019) is the same game with another multiplier player: λ moves with the candidates, of which
there are few, so that the critic has time to answer each λ.

A network that the rule dropped is freed. Where weights are to be solved again, one more is kept aside, the most frugal
one seen, for the case that a second measurement finds every kept member over a limit; and where states are not counted,
`spare_candidates` more, evenly spread over the second half of the steps, for the last choice (`choosing/choose.py`),
which goes by better figures.

Source: Cai et al. (WSDM 2023), Algorithms 1 to 3; schedule from their section 6. Ten gradient steps are no exact best
response, so the game's regret bound does not apply to networks; it does to the exact game on tabular problems.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.campaign import Train
from outlay.core.mixture import Mixture
from outlay.core.transitions import Transitions
from outlay.learning import critic as critics
from outlay.learning.acting import OTHER_ROWS, ActingValue, Policy, sample_of
from outlay.learning.critic import Critic, CriticSettings, DistinctStates
from outlay.learning.fresh import Starts, fresh_pair, shape_of, table_of
from outlay.learning.heads import Coordinates
from outlay.learning.mixing.rule import Rule, constraints
from outlay.learning.multipliers import bisected, ogd_step, settled
from outlay.nets.batches import Batch, Order, blocks, resident_states, uses_table
from outlay.nets.loop import compiled_block
from outlay.nets.network import QNetwork, Shape

BISECTIONS = 12  # stages of a bisection, each with a λ of its own but those of the warm-up
SPARES = 4  # networks that a rule may keep beside those of its mixture, as they are expensive to store

Vector = NDArray[np.float64]


class Player(NamedTuple):
    """The networks; all arrays."""

    critic: Critic
    extra: Critic | None  # which learns the value of the policy that acts


@dataclass(frozen=True)
class GameCandidate:
    """A policy that was offered to the rule.

    Attributes:
        number: 0, 1, ….
        step: gradient steps made by then.
        multiplier: `[m]` the λ it answers, in reward units per unit of coordinate.
        critic: `[1+m]` reward and coordinates by the critic's own measurement.
        acting: `[1+m]` what λ reads, before `_bias`; the same as `critic` where nothing else measures.
        measured: `[1+m]` what the rule is given; the same as `acting` where no other figure is known.
        loss: mean loss of the steps before it.
        decisions: x_1 by the extra network, or by the critic without one; 1 where every policy decides once a day.
    """

    number: int
    step: int
    multiplier: Vector
    critic: Vector
    acting: Vector
    measured: Vector
    loss: float
    decisions: float


@dataclass
class GameProgress:
    """The state of a game after a block: what a checkpoint must contain and what a user wants to see.

    Attributes:
        player: the networks.
        multiplier: `[m]` λ of the next steps, scaled or raw as the schedule says.
        rounds: λ steps made, those of the warm-up included.
        first: number of the first candidate that counts; None until λ has settled.
        unsettled: λ and the excess `[m]` that it saw, for each λ step until then.
        candidates: all so far.
        networks: of the kept candidates and of the spare ones, by number.
        kept: how many networks were needed after each candidate, the frugal one among them where one is kept.
        seconds: of training so far.
        rule_state: the rule's after the last candidate; a checkpoint has none, as it follows from the candidates.
    """

    player: Player
    multiplier: Vector
    rounds: int = 0
    first: int | None = None
    unsettled: list[tuple[Vector, Vector]] = field(default_factory=list)
    candidates: list[GameCandidate] = field(default_factory=list)
    networks: dict[int, QNetwork] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    seconds: float = 0.0
    rule_state: Any = None

    @property
    def counting(self) -> list[GameCandidate]:
        """The candidates that count: what the rule was given."""
        return [] if self.first is None else self.candidates[self.first :]


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
        measure: `[1+m]` what a candidate is worth on the log, NaN if that is not known; None: the figure that λ
            reads is used.
        counted: whether `measure` is a counted model, which λ reads as well.
        learn_rows: `[n]` rows to learn from.
        seed: of everything random.
        multipliers: the multiplier player; with `bisection` λ moves with the candidates.
        keeps_frugal: whether the most frugal network is kept aside.
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
    multipliers: Literal["ogd", "bisection"] = "ogd"
    keeps_frugal: bool = True

    @property
    def steps(self) -> int:
        """Gradient steps in all: whole blocks."""
        wanted = max(self.train.epochs * len(self.learn_rows) / self.train.batch, self.train.min_steps)
        return max(1, round(wanted / self.train.candidate_every)) * self.train.candidate_every

    @property
    def rounds_each(self) -> int:
        """λ steps from candidate to candidate; a bisection makes the last of them alone."""
        return self.train.candidate_every // self.train.multiplier_every

    @property
    def earliest(self) -> int:
        """The first candidate after the warm-up."""
        blocks = self.steps // self.train.candidate_every
        return 0 if self.counted else int(self.train.warm_up * blocks)

    @property
    def latest(self) -> int:
        """The candidate from which all count, whether λ has settled or not."""
        return (self.earliest + self.steps // self.train.candidate_every) // 2

    @property
    def spare(self) -> list[int]:
        """Candidates that are kept for the last choice, whatever the rule does."""
        if self.counted or self.train.spare_candidates == 0:
            return []
        last = self.steps // self.train.candidate_every - 1
        places = np.linspace(last, min(self.latest, last), self.train.spare_candidates).round()
        return [int(number) for number in np.unique(places)]

    @property
    def follows(self) -> bool:
        """Whether one more network follows the policy that acts, and λ reads that."""
        return not self.counted and self.train.measured_by != "critic"

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

    @property
    def step_unit(self) -> Vector:
        """`[m]` what excesses are divided by where λ is stepped.

        It is no spread: a heavy-tailed cost has one far above its limit, and in units of it λ would hardly move.
        """
        if not self.train.scaled_multipliers:
            return np.ones(len(self.coords.limits))
        return np.where(self.coords.limits == 0, self.coords.scale, np.abs(self.coords.limits))

    def begin(self) -> GameProgress:
        """Fresh players."""
        pair = fresh_pair(self.data, self.shape, self.coords.spread, self.seed)
        extra = None
        if self.follows:
            shape = shape_of(self.data, self.train, self.settings._replace(oracle="ddqn"), len(self.coords.spread), 1)
            extra = critics.init(fresh_pair(self.data, shape, self.coords.spread, self.seed + 1), self.settings)
        return GameProgress(Player(critics.init(pair, self.settings), extra), np.zeros(len(self.coords.limits)))

    def rule_states(self, counting: list[GameCandidate]) -> Iterator[Any]:
        """The rule's state before the first candidate, and after each: a function of what it saw."""
        yield (state := self.rule.init(constraints(self.coords.limits, self.coords.scale, spares=SPARES)))
        for candidate in counting:
            yield (state := self.rule.step(state, candidate.number, candidate.measured))

    def rule_state(self, counting: list[GameCandidate]) -> Any:
        """The last of these states, which a checkpoint therefore need not contain."""
        *_, last = self.rule_states(counting)
        return last

    def policy(self, pair: QNetwork, multiplier: Vector) -> Policy:
        """The greedy policy of a pair of networks at λ (in reward units per unit of coordinate)."""
        return Policy(pair, self.coords.weights(multiplier), self.coords.spread, self.settings.threshold)


def play(game: Game, progress: GameProgress | None = None) -> Iterator[tuple[GameProgress, Mixture[int] | None]]:
    """Play block by block, from the start or from a checkpoint.

    Yields:
        the state of the game and the rule's mixture of candidate numbers, after each candidate; None before the first
        that counts.
    """
    progress = game.begin() if progress is None else progress
    block, about = _compiled(game.settings, game.train.multiplier_every), _about(game)
    state, losses = game.rule_state(progress.counting), list[float]()
    for batches in _batches(game, progress.rounds * game.train.multiplier_every):
        began = time.perf_counter()
        multiplier = progress.multiplier * game.multiplier_unit
        w = jnp.asarray(game.coords.weights(multiplier), jnp.float32)
        (progress.player, *_), (loss, values) = block((progress.player, w, about), batches)
        losses.append(float(loss[0]))
        heads = np.asarray(values[0], np.float64)  # by the critic and, where there is one, by the extra network
        policy = game.policy(progress.player.critic.target, multiplier)
        acting = game.measure(policy) if game.counted and game.measure is not None else game.coords.of(heads[-1])
        progress.rounds += 1
        mixture = None
        if ends := progress.rounds % game.rounds_each == 0:
            fitted = acting if game.counted or game.measure is None else game.measure(policy)
            newest = GameCandidate(
                number=len(progress.candidates),
                step=progress.rounds * game.train.multiplier_every,
                multiplier=multiplier,
                critic=game.coords.of(heads[0]),
                acting=acting,
                measured=fitted if np.isfinite(fitted).all() else acting,
                loss=float(np.mean(losses)),
                decisions=1.0 if game.data.steady else float(heads[-1, -1]),
            )
            progress.candidates.append(newest)
            losses = []
        _move(game, progress, acting[1:] - game.coords.limits)
        if ends:
            if progress.first is None and _counts(game, progress):
                progress.first, progress.unsettled = newest.number, []
            if progress.first is not None:
                progress.rule_state = state = game.rule.step(state, newest.number, newest.measured)
                mixture = game.rule.mixture(state)
            _keep(game, progress, policy.pair)
        progress.seconds += time.perf_counter() - began
        if ends:
            yield progress, mixture


def _batches(game: Game, start: int) -> Iterator[tuple[Batch, Batch | None]]:
    """The rows of each λ step's gradient steps, for the critic and for the extra network."""
    data, train = game.data, game.train
    resident = None if uses_table(data, train.batch) else resident_states(data)
    orders = [
        blocks(
            data,
            game.learn_rows,
            Order(train.batch, train.multiplier_every, game.steps, seed, start),
            resident=resident,
        )
        for seed in (game.seed, OTHER_ROWS + game.seed)
    ]
    return zip(orders[0], orders[1] if game.follows else itertools.repeat(None), strict=False)


def _move(game: Game, progress: GameProgress, excess: Vector) -> None:
    """Move λ, after a round in which the policy that acts was so far above the limits `[m]`."""
    if progress.rounds <= game.earliest * game.rounds_each:
        return
    if game.multipliers == "bisection":
        counting = progress.candidates[game.earliest :]
        over = [bool(c.measured[1] > game.coords.limits[0]) for c in counting]
        progress.multiplier = np.array([bisected(over, float(game.bound[0]))])
        return
    excess = excess + _bias(game, progress)
    if progress.first is None:
        progress.unsettled.append((progress.multiplier, excess))
    progress.multiplier = ogd_step(progress.multiplier, excess / game.step_unit, progress.rounds, game.bound)


def _bias(game: Game, progress: GameProgress) -> Vector:
    """`[m]` by how much candidates are measured above what λ read of them, in the mean since the warm-up.

    Both figures of a candidate are of the same policy at the same time, so this tells how the two ways to measure
    differ, and nothing of how policies change.
    """
    known = progress.candidates[game.earliest :]
    if not known:
        return np.zeros(len(game.coords.limits))
    bias: Vector = np.mean([c.measured[1:] - c.acting[1:] for c in known], axis=0)
    return bias


def _counts(game: Game, progress: GameProgress) -> bool:
    """Whether the newest candidate is the first that counts."""
    number = progress.candidates[-1].number
    if number < game.earliest:
        return False
    if number >= game.latest or game.multipliers == "bisection":
        return True
    if progress.candidates[-1].step < 1 / (1 - game.train.target_decay) / (1 - game.settings.discount):
        return False
    multipliers, excess = (np.array(part) for part in zip(*progress.unsettled, strict=True))
    return settled(multipliers, excess)


def _keep(game: Game, progress: GameProgress, newest: QNetwork) -> None:
    """Keep the newest network if it is needed, and free those that no longer are."""
    keep = set[int]()
    if progress.first is not None:
        keep.update(game.rule.members(progress.rule_state))
        if game.keeps_frugal:
            keep.add(frugal(progress.counting, game.coords))
    progress.networks[progress.candidates[-1].number] = newest
    progress.networks = {n: net for n, net in progress.networks.items() if n in keep or n in game.spare}
    progress.kept.append(len(keep))


def frugal(candidates: list[GameCandidate], coords: Coordinates) -> int:
    """The candidate with the most room under its tightest limit."""
    room = [float(np.max((c.measured[1:] - coords.limits) / coords.scale)) for c in candidates]
    return candidates[int(np.argmin(room))].number


class GameArrays(NamedTuple):
    """Arrays of the log that gradient steps read."""

    table: DistinctStates | None
    starts: Starts
    sample: Batch | None  # rows that tell what the extra network has wrong everywhere
    spread: Array  # [H] units of the heads


def _about(game: Game) -> GameArrays:
    data, batch = game.data, game.train.batch
    sample = sample_of(data, game.learn_rows, batch, game.seed) if game.follows else None
    spread = jnp.asarray(game.coords.spread, jnp.float32)
    return GameArrays(table_of(data, batch), Starts.of(data, batch, game.seed), sample, spread)


Block = Callable[[tuple[Player, Array, GameArrays], tuple[Batch, Batch | None]], Any]


@lru_cache(maxsize=4)
def _compiled(settings: CriticSettings, every: int) -> Block:
    """The gradient steps between two λ steps; what differs from game to game is an argument, so it is compiled once.

    Returns:
        block((player, w `[H]`, about), (the critic's rows, the extra network's)) → the same, (mean loss `[1]`,
        `[1, 1 or 2, H]` the values of the policy that acts now, by the critic and by the extra network).
    """

    def acting(about: GameArrays) -> ActingValue | None:
        if about.sample is None:
            return None
        return ActingValue(about.starts, about.sample, about.table, about.spread, settings)

    def step(carry: tuple[Player, Array, GameArrays], rows: tuple[Batch, Batch | None]) -> tuple[Any, Array]:
        (critic, extra), w, about = carry
        critic, loss = critics.gradient_step(
            critic, rows[0], about.table, (w * about.spread)[None], about.spread, settings
        )
        values = acting(about)
        if values is not None and extra is not None and rows[1] is not None:
            extra = values.step(extra, critic.target, w, rows[1])
        return (Player(critic, extra), w, about), loss

    def after(carry: tuple[Player, Array, GameArrays]) -> tuple[tuple[Player, Array, GameArrays], Array]:
        (critic, extra), w, about = carry
        weights, values = (w * about.spread)[None], acting(about)
        found = [about.starts.measure(critic.target, about.table, weights, about.spread, settings.threshold)[0]]
        if values is not None and extra is not None:
            found.append(values.measure(extra, critic.target, w))
        return carry, jnp.stack(found)

    return compiled_block(step, after, every)
