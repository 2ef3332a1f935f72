"""The rows of a comparison by name, what has to be learned for them, and what each serves after learning.

Several rows may share a planned training:

    RL          an oracle's game, played once; every mixing rule observes the same candidates
    bisection   an oracle's game with another multiplier player: one policy (Xiao et al. 2019)
    frontier    an oracle's best responses to every λ at once, or those of the counted model
    two-stage   a response model of k-day labels, priced

After it each row has a mixture for the campaign's limits (`bundle`). A rule has its own, with the weights that it found
online, and beside it one of the same members with weights solved again, as `train` does; the mixture of the others is
chosen as `train` chooses it. And each has values that the paper's budget control prices (`learned`): Q of the reward,
averaged over members, or the k-day prediction.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.choosing.candidates import RunContext, bundle_spec
from outlay.choosing.choose import Selection, choose
from outlay.comparing.results import RE_SOLVED, MethodRow
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, InfeasibleError, OutlayError
from outlay.core.mixture import Mixture
from outlay.core.progress import Progress, within
from outlay.core.transitions import Transitions
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.game import Game, GameProgress
from outlay.learning.mixing import RULES
from outlay.learning.mixing.rule import Constraints, FinalWeights, Rule
from outlay.response.model import Kind
from outlay.training import BISECTION, every_budget, log_game
from outlay.training.two_stage import FittedPolicies, fit_policies

NETWORK = "+network"  # after an oracle whose game has one more network, which measures the candidates
ORTHOGONAL = "orthogonal"  # an oracle of frontiers alone
COUNTED = "tabular"  # the oracle that counts instead of learning
FRONTIER = "frontier"  # the name of a frontier in the place of a mixing rule
COMPARED_RULES = ("single-best", "aim-mean", "aim-greedy", "lp")
TITLES = {"ddqn": "DDQN", "edrr": "EDRR", "bcq": "BCQ", "deepfm": "DeepFM", "din": "DIN"}


@dataclass(frozen=True)
class PlannedTraining:
    """One training.

    Attributes:
        kind: what is learned.
        learner: the oracle or the response model.
        label_days: of a response model; 0 for others.
        rows: that it is needed for, as they are before learning: under no control, without figures.
    """

    kind: Literal["response", "game", "bisection", "frontier"]
    learner: str
    label_days: int
    rows: tuple[MethodRow, ...]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind}-{self.learner}-{self.label_days}"


def planned(
    oracles: Sequence[str],
    responses: Sequence[str],
    label_days: Sequence[int],
    *,
    counted: bool,
    wanted: Sequence[str] | None,
) -> list[PlannedTraining]:
    """List what has to be learned, in the order of the rows.

    Args:
        oracles: of games and frontiers.
        responses: the response models.
        label_days: days that their labels look ahead.
        counted: whether the log's states can be counted.
        wanted: patterns of names of rows, `*` for any text, whatever the case; None: all.

    Raises:
        OutlayError: if a pattern fits no row.
    """
    games = [oracle for oracle in oracles if oracle != ORTHOGONAL]
    frontiers = [oracle for oracle in oracles if not oracle.endswith(NETWORK)] + [COUNTED] * counted
    every = [
        *(PlannedTraining("response", model, k, (_two_stage(model, k),)) for model in responses for k in label_days),
        *(PlannedTraining("game", oracle, 0, rule_rows(oracle)) for oracle in games),
        *(PlannedTraining("bisection", oracle, 0, (_looking_ahead(oracle, BISECTION),)) for oracle in games),
        *(PlannedTraining("frontier", oracle, 0, (_frontier(oracle),)) for oracle in frontiers),
    ]
    if wanted is None:
        return every
    names = [row.name for training in every for row in training.rows]
    for pattern in wanted:
        if not any(_fits(name, pattern) for name in names):
            raise OutlayError(
                f"is {pattern!r}; no row has that name.", where="rows", way_out=f"Rows: {'; '.join(names)}."
            )
    kept = [replace(one, rows=tuple(r for r in one.rows if any(_fits(r.name, p) for p in wanted))) for one in every]
    return [training for training in kept if training.rows]


def rule_rows(oracle: str) -> tuple[MethodRow, ...]:
    """Return two rows for each rule: with its own weights, and with weights solved again."""
    return tuple(_looking_ahead(oracle, f"{rule}{which}") for rule in COMPARED_RULES for which in ("", RE_SOLVED))


def _looking_ahead(oracle: str, rule: str) -> MethodRow:
    title = TITLES[oracle.removesuffix(NETWORK)] + (" with a cost network" if oracle.endswith(NETWORK) else "")
    return MethodRow(f"{title}, {rule}", "rl", "", oracle=oracle, rule=rule)


def _frontier(oracle: str) -> MethodRow:
    name = f"{FRONTIER}, {'counted' if oracle == COUNTED else oracle}"
    return MethodRow(name, "rl", "", oracle=oracle, rule=FRONTIER)


def _two_stage(model: str, days: int) -> MethodRow:
    return MethodRow(f"{TITLES[model]}, {days}-day label", "two-stage", "", oracle=model, label_days=days)


def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name.lower(), pattern.lower())


@dataclass(frozen=True)
class Contender:
    """A row after learning.

    Attributes:
        row: what is stored in the end (of a rule its spares too, as the last of `course` says), the seconds of
            learning, measuring and choosing, and why there is no bundle; under no control yet.
        bundle: what it serves under the campaign's limits: of a rule its own mixture, whether that keeps them or not;
            None where no mixture that keeps them was found.
        learned: what the paper's budget control prices: the rule's own mixture, the frontier's for the campaign's
            limits, or the response model without a price; None for a rule with weights that were solved again, and for
            a frontier without a mixture that keeps the limits.
        course: (gradient steps, parameters stored), as training went on; for a frontier what it serves, at the first
            step and at the last; empty where there are no steps, or rules to compare.
        original: the same for the original method, which keeps every candidate.
    """

    row: MethodRow
    bundle: Bundle | None = None
    learned: Bundle | None = None
    course: list[tuple[int, int]] = field(default_factory=list)
    original: list[tuple[int, int]] = field(default_factory=list)

    def after(self, began: float, stored: int | None = None, seconds: float = 0.0) -> Contender:
        """The same with what it stores, and the seconds since `began` and before that."""
        stored_parameters = self.row.stored_parameters if stored is None else float(stored)
        seconds += time.perf_counter() - began
        return replace(self, row=replace(self.row, stored_parameters=stored_parameters, seconds=seconds))


class RuleGroup(NamedTuple):
    """Rules that observe the same game, as one mixing rule whose mixture holds the members of all of them."""

    names: tuple[str, ...]
    FINAL_WEIGHTS: FinalWeights = "solved again"

    def init(self, constraints: Constraints) -> dict[str, Any]:
        """Return a state for each rule."""
        return {name: RULES[name].init(constraints) for name in self.names}

    def step(self, state: dict[str, Any], member: Any, measurement: ArrayLike) -> dict[str, Any]:
        """Show the policy to every rule."""
        return {name: RULES[name].step(part, member, measurement) for name, part in state.items()}

    def mixture(self, state: dict[str, Any]) -> Mixture[Any]:
        """The members that any rule holds, in equal parts: the weights have no meaning, only the members are kept."""
        members = self.members(state)
        count = len(members)
        return Mixture(members, np.full(count, 1 / count), np.zeros((count, 1)))

    def members(self, state: dict[str, Any]) -> tuple[Any, ...]:
        """Return the members that any rule may still use."""
        return tuple({number for name, part in state.items() for number in RULES[name].members(part)})


@dataclass(frozen=True)
class Learning:
    """How one seed of a comparison learns.

    Attributes:
        data: the log.
        campaign: limits and settings.
        seed: of everything random.
        folder: where trainings leave their files.
    """

    data: Transitions
    campaign: Campaign
    seed: int
    folder: Path

    def rules(self, training: PlannedTraining, report: Progress) -> Iterator[Contender]:
        """Play one game of an oracle for all rules, and yield a contender for each row."""
        began = time.perf_counter()
        rules = RuleGroup(tuple(dict.fromkeys(row.mixing for row in training.rows)))
        played, progress = self._played(training.learner, rules, "ogd", report)
        context = log_game.context_of(played, self.campaign, self.seed, self.folder)
        size, playing = log_game.parameters(played, progress), time.perf_counter() - began
        for row in training.rows:
            began, rule = time.perf_counter(), RULES[row.mixing]
            _, *states = replace(played, rule=rule).rule_states(progress.counting)
            mixture = rule.mixture(states[-1])
            members = list(mixture.members)
            if row.re_solved:
                again = partial(log_game.solve_again, played, progress, members, context)
                yield self._chosen(row, context, again).after(began, seconds=playing)
                continue
            own = self._loaded(
                "own", bundle_spec(context, log_game.offered(played, progress, members), mixture.weights)
            )
            held = [len(rule.members(state)) * size for state in states]
            course = [(each.step, stored) for each, stored in zip(progress.counting, held, strict=True)]
            original = [(each.step, (each.number + 1) * size) for each in progress.candidates]
            yield Contender(row, own, own, course, original).after(began, held[-1], playing)

    def bisection(self, training: PlannedTraining, report: Progress) -> Contender:
        """Play one game of an oracle whose λ is found by bisection, and take the best policy that it met."""
        began, (row,) = time.perf_counter(), training.rows
        try:
            played, progress = self._played(training.learner, RULES["single-best"], BISECTION, report)
        except CampaignError as error:  # more than one limit
            return Contender(replace(row, refused=error.found)).after(began)
        mixture = played.rule.mixture(progress.rule_state)
        context = log_game.context_of(played, self.campaign, self.seed, self.folder)
        members = log_game.offered(played, progress, list(mixture.members))
        own = self._loaded("own", bundle_spec(context, members, mixture.weights))
        size = log_game.parameters(played, progress)
        return Contender(row, own, own, [(0, size), (played.steps, size)]).after(began, size)

    def frontier(self, training: PlannedTraining, report: Progress) -> Contender:
        """Train one frontier and choose its mixture for the campaign's limits; `tabular` counts instead."""
        began, (row,) = time.perf_counter(), training.rows
        once = self.campaign.with_train(folds=1)  # all methods learn from the same users
        told = within(report, 0, 1, f"{row.name}: ")
        try:
            learned = every_budget.learn(self.data, once, training.learner, self.seed, self.folder, False, told)
        except (CampaignError, InfeasibleError) as error:  # too many limits for one network, or none that can be kept
            return Contender(replace(row, refused=error.found)).after(began)
        contender = self._chosen(row, learned.context, lambda: learned.chosen)
        steps, stored = int(learned.figures.steps), int(contender.row.stored_parameters or 0)
        course = [(0, stored), (steps, stored)] if steps else []
        return replace(contender, learned=contender.bundle, course=course).after(began)

    def response(self, kind: Kind, label_days: int, report: Progress) -> FittedPolicies:
        """Train a response model of k-day labels."""
        return fit_policies(self.data, self.campaign, kind, label_days, self.seed, self.folder, report)

    def priced(self, training: PlannedTraining, fitted: FittedPolicies) -> Contender:
        """Price a response model in every state, and choose its mixture for the campaign's limits."""
        began, (row,) = time.perf_counter(), training.rows
        contender = self._chosen(row, fitted.context, lambda: choose(fitted.context, fitted.policies))
        learned = self._loaded("values", values_of(fitted))
        return replace(contender, learned=learned).after(began, fitted.model.num_parameters, fitted.seconds)

    def _played(
        self, oracle: str, rule: Rule, multipliers: Literal["ogd", "bisection"], report: Progress
    ) -> tuple[Game, GameProgress]:
        """A game on the campaign's limits, after it was played."""
        by_network = self.campaign.with_train(measured_by="network") if oracle.endswith(NETWORK) else self.campaign
        learner = oracle.removesuffix(NETWORK)
        ready = log_game.set_up(self.data, by_network, rule, learner, self.seed, multipliers=multipliers)
        ready = replace(ready, keeps_frugal=True)
        key = TrainingKey.of(self.data, by_network, multipliers, learner, self.seed)
        told = within(report, 0, 1, f"{oracle}: ")
        progress, _ = log_game.play_through(ready, self.folder / "checkpoints", key, False, told)
        return ready, progress

    def _chosen(self, row: MethodRow, context: RunContext, choosing: Callable[[], Selection]) -> Contender:
        """The contender that serves what is chosen, or why nothing is."""
        try:
            chosen = choosing()
        except InfeasibleError as error:
            return Contender(replace(row, refused=error.found))
        spec = bundle_spec(context, chosen.members, chosen.weights)
        stored = float(sum(network.num_parameters for network in spec.networks))
        return Contender(replace(row, stored_parameters=stored), self._loaded("served", spec))

    def _loaded(self, name: str, spec: BundleSpec) -> Bundle:
        write_bundle(self.folder / name, spec)
        return load_bundle(self.folder / name)


def values_of(fitted: FittedPolicies) -> BundleSpec:
    """Return a bundle whose Q values are what a response model predicts."""
    return bundle_spec(fitted.context, fitted.policies[:1], np.ones(1))
