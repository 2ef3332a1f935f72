"""A game on a log: set it up, and hand over what it found to measuring, choosing and recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.candidates import CandidatePolicy, RunContext
from outlay.choosing.choose import Selection, choose, margin_of_constants
from outlay.choosing.measure import CHUNK_ROWS, Measure
from outlay.core.campaign import Campaign, Train
from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import CampaignError
from outlay.core.mixture import Mixture
from outlay.core.progress import Progress, within
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.estimators.units import coordinates, needed_days
from outlay.learning import checkpoint
from outlay.learning.acting import Policy
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.fresh import settings_of
from outlay.learning.game import BISECTIONS, Game, GameProgress, frugal, play
from outlay.learning.heads import Coordinates, critic_coordinates, largest_multiplier
from outlay.learning.mixing import RULES
from outlay.learning.mixing.rule import FinalWeights, Rule
from outlay.learning.tabular import counted_model
from outlay.nets.network import arrays
from outlay.ops.tabular import measure
from outlay.training import BISECTION
from outlay.training.limits import check_possible, check_together
from outlay.training.record import CourseRow, Learned, TrainingFigures

WEIGHTS: dict[FinalWeights, str] = {
    "as found": "What the rule found is served as it is: no weight was changed, and no room was left for a "
    "certificate.",
    "one policy": "One policy is served: the rule's, where by the fitted evaluation it keeps the limits.",
    "solved again": "The rule's weights were replaced: they are solved again on the figures of the fitted evaluation, "
    "with room for the certificate (--preset paper serves what the rule found).",
}
SPREAD_ROWS = 1_000_000  # from which spreads are taken
STEEPER = (1.1, 1.25, 1.5, 2.0)  # times λ: prices that leave room for a certificate
MEASURED_USERS = 10_000  # select users that measure a candidate of a game

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class GameFigures(TrainingFigures):
    """What the manifest says of a game.

    Attributes:
        weights: whose weights are served.
    """

    weights: FinalWeights


def learn(
    data: Transitions,
    campaign: Campaign,
    method: str,
    oracle: Any,
    seed: int,
    folder: Path,
    resume: bool,
    report: Progress,
) -> Learned:
    """Play the game, with checkpoints in the folder, and choose among what the rule kept.

    Raises:
        InfeasibleError: if no policy that was found keeps the limits.
    """
    rule = RULES["single-best" if method == BISECTION else method]
    weights: FinalWeights = "as found" if campaign.train.preset == "paper" else rule.FINAL_WEIGHTS
    own = weights == "as found"
    game = set_up(
        data,
        campaign,
        rule,
        oracle,
        seed,
        multipliers=BISECTION if method == BISECTION else "ogd",
        solved_again=not own,
    )
    key = TrainingKey.of(data, campaign, method, oracle, seed)
    if resume:
        checkpoint.refuse_others(folder, key)
    finished, mixture = play_through(game, folder / "checkpoints", key, resume, within(report, 0, 0.95))
    report(0.95, "measuring the kept members")
    context = context_of(game, campaign, seed, folder)
    numbers = list(dict.fromkeys(mixture.members))
    if own:
        chosen = choose(context, offered(game, finished, numbers), weights=own_weights(mixture, numbers))
    else:
        numbers += [n for n in game.spare if n not in numbers]
        chosen = solve_again(game, finished, numbers, context, alone=rule.FINAL_WEIGHTS == "one policy")
    notes = [WEIGHTS[weights]]
    if np.any(finished.candidates[-1].multiplier >= game.bound * game.multiplier_unit * (1 - 1e-6)):
        notes.append("λ reached its bound λ_max: the limit is close to the least that the log's actions can cost.")
    figures = _figures(game, finished, weights)
    return Learned(context, chosen, _course(game, finished, figures.parameters), figures, oracle, notes)


def solve_again(
    game: Game, progress: GameProgress, numbers: list[int], context: RunContext, *, alone: bool = False
) -> Selection:
    """Choose among kept candidates, and the most frugal one where no mixture of them keeps the limits.

    Args:
        game: with `keeps_frugal`.
        progress: after the last block.
        numbers: of the candidates.
        context: what they share.
        alone: serve one policy.

    Raises:
        InfeasibleError: if no policy that was found keeps the limits.
    """
    spare = [n for n in [frugal(progress.counting, game.coords)] if n not in numbers]
    members = [*offered(game, progress, numbers), *_steeper(game, progress, max(numbers))]
    return choose(context, members, offered(game, progress, spare), alone=alone, one_first=True)


def own_weights(mixture: Mixture[int], numbers: Sequence[int]) -> Vector:
    """`[k]` the weights that a rule itself gives to these members."""
    pairs = list(zip(mixture.members, mixture.weights, strict=True))
    return np.array([sum(weight for member, weight in pairs if member == number) for number in numbers])


def set_up(
    data: Transitions,
    campaign: Campaign,
    rule: Rule,
    oracle: Any,
    seed: int,
    *,
    multipliers: Literal["ogd", "bisection"] = "ogd",
    solved_again: bool = False,
) -> Game:
    """A game on a log.

    Args:
        data: the log.
        campaign: limits and settings.
        rule: the mixing rule.
        oracle: of the critic.
        seed: of everything random.
        multipliers: the multiplier player.
        solved_again: whether the weights will be solved again, with room for the certificate. The game is then played
            on limits that are lower by that margin, and keeps a frugal policy aside.

    Raises:
        CampaignError: if there are several limits, which a bisection does not take.
        InfeasibleError: if no policy keeps the limits, which is found here where states can be counted.
    """
    rows = data.rows_of(LEARN)
    sample = spread_rows(rows)
    outcome = data.outcome[sample]
    train = campaign.train
    if multipliers == "bisection":
        train = _in_stages(campaign, len(rows))
    model = counted_model(data, SELECT)
    check_together(data, campaign)
    coords = critic_coordinates(campaign, outcome, steady=data.steady)
    if model is not None:
        check_possible(data, campaign, coords.limits, model)
    if solved_again:
        lowered = campaign.lowered(
            margin_of_constants(critic_context(data, campaign, coords, oracle, seed, data.folder))
        )
        coords = critic_coordinates(lowered, outcome, steady=data.steady)
    by_log = train.measured_by == "auto"
    return Game(
        data=data,
        train=train,
        settings=settings_of(train, oracle, campaign.meta.discount),
        coords=coords,
        bound=_bound(data, sample, campaign, coords),
        rule=rule,
        measure=_measure(data, campaign, coords, model) if by_log else None,
        counted=by_log and model is not None,
        learn_rows=rows,
        seed=seed,
        multipliers=multipliers,
        keeps_frugal=solved_again,
    )


def _bound(data: Transitions, sample: NDArray[np.int64], campaign: Campaign, coords: Coordinates) -> Vector:
    """`[m]` λ_max: the setting, or what the rows of a sample say."""
    train = campaign.train
    if train.multiplier_max is not None:
        return np.full(len(coords.limits), train.multiplier_max)
    scaled = largest_multiplier(data.action[sample], data.outcome[sample], coords, campaign.meta.discount)
    return scaled if train.scaled_multipliers else scaled * coords.reward_scale / coords.scale


def _in_stages(campaign: Campaign, rows: int) -> Train:
    """The schedule with a candidate for each λ of a bisection."""
    if len(campaign.budgets) > 1:
        raise CampaignError(
            f"there are {len(campaign.budgets)} budgets; a bisection looks for one λ.",
            file=campaign.path,
            where="[[budget]]",
            way_out="Keep one budget, or take another --method.",
        )
    train = campaign.train
    steps = max(train.epochs * rows / train.batch, train.min_steps)
    stage = max(1, round(steps / BISECTIONS / train.multiplier_every)) * train.multiplier_every
    return train.model_copy(update={"candidate_every": stage})


def _measure(
    data: Transitions, campaign: Campaign, coords: Coordinates, model: TabularCMDP | None
) -> Callable[[Policy], Vector]:
    """How a candidate is measured on *select* users: by the model where their states are counted, else by a fit."""
    states = data.states
    if model is None:
        return _by_fit(data, campaign)
    assert states is not None
    return lambda policy: coords.of(measure(model, policy.choose(states)))


def _by_fit(data: Transitions, campaign: Campaign) -> Callable[[Policy], Vector]:
    """A fitted evaluation of a candidate on *select* users, on features that no network made."""
    at = Measure(data, SELECT, None, most_users=MEASURED_USERS)
    rows, days, evaluator = at.panel.rows, needed_days(campaign), at.evaluator()

    def fitted(policy: Policy) -> Vector:
        blocks = np.array_split(rows, max(1, len(rows) // CHUNK_ROWS))
        actions = np.concatenate([policy.actions(*data.features(some), data.allowed(some)) for some in blocks])
        return coordinates(evaluator.fit(actions, days=days), campaign)[0]

    return fitted


def spread_rows(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows that spreads are taken from: all, or a sample where they are many."""
    if len(rows) <= SPREAD_ROWS:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, SPREAD_ROWS, replace=False))


def play_through(
    game: Game, folder: Path, key: TrainingKey, resume: bool, report: Progress
) -> tuple[GameProgress, Mixture[int]]:
    """Play to the end, with checkpoints in `folder`. Returns what was played and the rule's mixture."""
    start = checkpoint.load_game(folder, game, key) if resume and folder.exists() else game.begin()
    progress, mixture, saved = start, None, time.monotonic()
    blocks = game.steps // game.train.candidate_every
    for progress, mixture in play(game, start):  # noqa: B007  the last one is wanted
        done = len(progress.candidates)
        report(done / blocks, f"{done * game.train.candidate_every} of {game.steps} steps")
        if time.monotonic() - saved > checkpoint.EVERY_SECONDS:
            checkpoint.save_game(folder, progress, key)
            saved = time.monotonic()
    checkpoint.save_game(folder, progress, key)
    if mixture is None:  # resumed after the last block: the rule's state is replayed
        mixture = game.rule.mixture(game.rule_state(progress.counting))
    return progress, mixture


def context_of(game: Game, campaign: Campaign, seed: int, folder: Path) -> RunContext:
    """What all policies of a game share."""
    return critic_context(game.data, campaign, game.coords, game.settings.oracle, seed, folder)


def critic_context(
    data: Transitions, campaign: Campaign, coords: Coordinates, oracle: str, seed: int, folder: Path
) -> RunContext:
    """What all policies of a vector critic share."""
    heads = ("reward", *(b.name for b in campaign.budgets), *(() if data.steady else ("decisions",)))
    threshold = campaign.train.imitation_threshold if oracle == "bcq" else None
    return RunContext(data, campaign, coords.scale, heads, threshold, seed, folder)


def offered(game: Game, progress: GameProgress, numbers: list[int]) -> list[CandidatePolicy]:
    """The candidates with these numbers, whose networks were kept."""
    coords = game.coords
    return [
        CandidatePolicy(
            name=f"step {c.step}",
            network=arrays(progress.networks[c.number], coords.spread),
            multiplier=c.multiplier,
            head_weights=coords.weights(c.multiplier),
            number=c.number,
            step=c.step,
            learned=coords.shown(c.acting, c.decisions),
        )
        for c in (progress.candidates[n] for n in numbers)
    ]


def _steeper(game: Game, progress: GameProgress, number: int) -> list[CandidatePolicy]:
    """What the network of a candidate answers to higher prices; none where states are counted, which leaves no gap.

    Once λ has settled, candidates spend about what the limit allows. A certificate needs more room than was known when
    the game began, and nothing but the free action would make it.
    """
    (last,) = offered(game, progress, [number])
    if game.counted or not last.multiplier.any():
        return []
    return [
        replace(
            last,
            name=f"{last.name}, λ × {factor:g}",
            multiplier=factor * last.multiplier,
            head_weights=game.coords.weights(factor * last.multiplier),
            learned=None,
        )
        for factor in STEEPER
    ]


def _course(game: Game, progress: GameProgress, size: int) -> list[CourseRow]:
    """A row per candidate; `size` is the parameters of one."""
    return [
        CourseRow(
            step=c.step,
            multiplier=c.multiplier.tolist(),
            critic=game.coords.shown(c.critic, c.decisions).tolist(),
            measured=game.coords.shown(c.measured, c.decisions).tolist(),
            loss=c.loss,
            kept=kept,
            stored_parameters=kept * size,
            original_parameters=(c.number + 1) * size,
        )
        for c, kept in zip(progress.candidates, progress.kept, strict=True)
    ]


def _figures(game: Game, progress: GameProgress, weights: FinalWeights) -> GameFigures:
    """What the manifest says of the game."""
    multipliers = np.array([c.multiplier for c in progress.candidates])
    return GameFigures(
        steps=game.steps,
        seconds=progress.seconds,
        parameters=parameters(game, progress),
        multiplier_max=(game.bound * game.multiplier_unit).tolist(),
        multiplier_mean=multipliers.mean(axis=0).tolist(),
        candidates_measured_by=_measured_by(game),
        weights=weights,
    )


def _measured_by(game: Game) -> str:
    if game.counted:
        return "the counted model of the select users"
    if game.measure is not None:
        return "a fitted evaluation on the select users"
    return "one more network" if game.train.measured_by == "network" else "the critic"


def parameters(game: Game, progress: GameProgress) -> int:
    """Return how many parameters the networks of one candidate have."""
    return arrays(next(iter(progress.networks.values())), game.coords.spread).num_parameters
