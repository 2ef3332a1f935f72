"""The methods that are compared. Each learns from one log; it has a mixture to serve and values that it learned.

    RL          an oracle's game, played once; every mixing rule observes the same candidates
    bisection   an oracle's game with another multiplier player: one policy (Xiao et al. 2019)
    frontier    an oracle's best responses to every λ at once, or those of the counted model
    two-stage   a response model of k-day labels, priced

Each has a mixture for the campaign's limits (`bundle`). A rule has its own, with the weights that it found online, and
beside it one of the same members with weights solved again, as `train` does; the mixture of the others is chosen as
`train` chooses it. And each has values that the paper's budget control prices (`learned`): Q of the reward, averaged
over members, or the k-day prediction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.choosing.candidates import CandidatePolicy, RunContext, bundle_spec
from outlay.choosing.choose import choose
from outlay.comparing.results import RE_SOLVED
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, InfeasibleError
from outlay.core.mixture import Mixture
from outlay.core.progress import Progress, within
from outlay.core.transitions import Transitions
from outlay.learning.game import Game, GameProgress, frugal
from outlay.learning.game import play as played
from outlay.learning.mixing import RULES
from outlay.learning.mixing.rule import Constraints, FinalWeights
from outlay.training import BISECTION, two_stage
from outlay.training import frontier as train_frontier
from outlay.training import game as play
from outlay.twostage.answers import Response
from outlay.twostage.response import Kind

NETWORK = "+network"  # after an oracle whose game has one more network, which measures the candidates
TITLES = {"ddqn": "DDQN", "edrr": "EDRR", "bcq": "BCQ", "deepfm": "DeepFM", "din": "DIN"}
COMPARED_RULES = ("single-best", "aim-mean", "aim-greedy", "lp")
FRONTIER = "frontier"  # the name of a frontier in the place of a mixing rule
COUNTED = "tabular"  # the oracle that counts instead of learning


@dataclass(frozen=True)
class Contender:
    """A method after learning.

    Attributes:
        name: `BCQ, aim-greedy`, `frontier, bcq`, `DeepFM, 3-day label`.
        oracle: `bcq`, `bcq+network`, …, `tabular`, or the response model.
        rule: the mixing rule, `bisection` or `frontier`; None for a response model.
        label_days: of a response model; None for RL.
        bundle: what it serves under the campaign's limits: of a rule its own mixture, whether that keeps them or not;
            None where no mixture that keeps them was found.
        learned: what the paper's budget control prices: the rule's own mixture, the frontier's for the campaign's
            limits, or the response model without a price; None for a rule with weights that were solved again, and for
            a frontier without a mixture that keeps the limits.
        refused: why there is no bundle.
        stored_parameters: what is stored in the end: of a rule its spares too, as the last of `course` says.
        seconds: of learning, measuring and choosing, without preparing the log.
        course: (gradient steps, parameters stored), as training went on; for a frontier what it serves, at the first
            step and at the last; empty where there are no steps, or rules to compare.
        original: the same for the original method, which keeps every candidate.
    """

    name: str
    oracle: str
    rule: str | None
    label_days: int | None
    bundle: Bundle | None
    learned: Bundle | None
    refused: str | None
    stored_parameters: int
    seconds: float
    course: list[tuple[int, int]] = field(default_factory=list)
    original: list[tuple[int, int]] = field(default_factory=list)


class FittedResponse(NamedTuple):
    """A response model (`kind`, of `label_days`-day labels) after `seconds` of training."""

    kind: Kind
    label_days: int
    model: Response
    seconds: float


def rows_of(oracle: str, rule: str) -> tuple[str, str]:
    """Return the names of a rule's rows: with its own weights, and with weights solved again."""
    title = TITLES[oracle.removesuffix(NETWORK)] + (" with a cost network" if oracle.endswith(NETWORK) else "")
    return f"{title}, {rule}", f"{title}, {rule}{RE_SOLVED}"


def bisection_row(oracle: str) -> str:
    """Return the name of the row of a bisection."""
    return rows_of(oracle, BISECTION)[0]


def frontier_row(oracle: str) -> str:
    """Return the name of a frontier's row."""
    return f"{FRONTIER}, {'counted' if oracle == COUNTED else oracle}"


def response_row(kind: str, label_days: int) -> str:
    """Return the name of a response model's row."""
    return f"{TITLES[kind]}, {label_days}-day label"


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


def play_rules(
    data: Transitions, campaign: Campaign, oracle: str, seed: int, folder: Path, wanted: Sequence[str], report: Progress
) -> Iterator[Contender]:
    """Play one game of an oracle, and yield a contender for each of its rows that is wanted."""
    began = time.perf_counter()
    rules = RuleGroup(tuple(rule for rule in COMPARED_RULES if set(rows_of(oracle, rule)) & set(wanted)))
    game, progress, stored = _played(data, campaign, oracle, seed, rules, "ogd", report)
    size = play.parameters(game, progress)
    context = play.context_of(game, campaign, seed, folder)
    playing = time.perf_counter() - began
    for name, state in progress.rule_state.items():
        mixture = RULES[name].mixture(state)
        offered = play.offered(game, progress, list(mixture.members))
        own_row, re_solved_row = rows_of(oracle, name)
        if own_row in wanted:
            own = _loaded(folder / "own", bundle_spec(context, offered, mixture.weights))
            counted = progress.counting
            course = [(c.step, n * size) for c, n in zip(counted, stored[name], strict=True)]
            yield Contender(
                name=own_row,
                oracle=oracle,
                rule=name,
                label_days=None,
                bundle=own,
                learned=own,
                refused=None,
                stored_parameters=course[-1][1],
                seconds=playing,
                course=course,
                original=[(c.step, (c.number + 1) * size) for c in progress.candidates],
            )
        if re_solved_row in wanted:
            began = time.perf_counter()
            spare = frugal(progress.counting, game.coords)
            reserve = play.offered(game, progress, [] if spare in mixture.members else [spare])
            served, refused, parameters = _served(context, offered, reserve)
            yield Contender(
                name=re_solved_row,
                oracle=oracle,
                rule=f"{name}{RE_SOLVED}",
                label_days=None,
                bundle=served,
                learned=None,
                refused=refused,
                stored_parameters=parameters,
                seconds=playing + time.perf_counter() - began,
            )


def play_bisection(
    data: Transitions, campaign: Campaign, oracle: str, seed: int, folder: Path, report: Progress
) -> Contender:
    """Play one game of an oracle whose λ is found by bisection, and take the best policy that it met."""
    began = time.perf_counter()
    name, rules = bisection_row(oracle), RuleGroup(("single-best",))
    try:
        game, progress, _ = _played(data, campaign, oracle, seed, rules, BISECTION, report)
    except CampaignError as error:  # more than one limit
        return Contender(name, oracle, BISECTION, None, None, None, error.found, 0, time.perf_counter() - began)
    mixture = RULES["single-best"].mixture(progress.rule_state["single-best"])
    offered = play.offered(game, progress, list(mixture.members))
    context = play.context_of(game, campaign, seed, folder)
    own, size = _loaded(folder / "own", bundle_spec(context, offered, mixture.weights)), play.parameters(game, progress)
    return Contender(
        name=name,
        oracle=oracle,
        rule=BISECTION,
        label_days=None,
        bundle=own,
        learned=own,
        refused=None,
        stored_parameters=size,
        seconds=time.perf_counter() - began,
        course=[(0, size), (game.steps, size)],
    )


def _played(
    data: Transitions,
    campaign: Campaign,
    oracle: str,
    seed: int,
    rules: RuleGroup,
    multipliers: Literal["ogd", "bisection"],
    report: Progress,
) -> tuple[Game, GameProgress, dict[str, list[int]]]:
    """A game after it was played, and how many networks each rule held after each candidate that counts."""
    by_network = campaign.with_train(measured_by="network") if oracle.endswith(NETWORK) else campaign
    game = play.set_up(data, by_network, rules, oracle.removesuffix(NETWORK), seed, multipliers=multipliers)
    blocks = game.steps // game.train.candidate_every
    stored: dict[str, list[int]] = {name: [] for name in rules.names}
    progress = game.begin()
    for _ in played(game, progress):  # which moves `progress` on
        for name, state in (progress.rule_state or {}).items():  # None until candidates count
            stored[name].append(len(RULES[name].members(state)))
        done = len(progress.candidates)
        report(done / blocks, f"{oracle}: {done * 100 // blocks}%")
    return game, progress, stored


def learn_frontier(
    data: Transitions, campaign: Campaign, oracle: str, seed: int, folder: Path, report: Progress
) -> Contender:
    """Train one frontier and choose its mixture for the campaign's limits; `tabular` counts instead."""
    began = time.perf_counter()
    name = frontier_row(oracle)
    try:
        learned = train_frontier.learn(
            data,
            campaign.with_train(folds=1),  # all methods learn from the same users
            oracle,
            seed,
            folder=folder,
            resume=False,
            report=within(report, 0, 1, f"{name}: "),
        )
    except (CampaignError, InfeasibleError) as error:  # too many limits for one network, or none that can be kept
        return Contender(name, oracle, FRONTIER, None, None, None, error.found, 0, time.perf_counter() - began)
    spec = bundle_spec(learned.context, learned.chosen.members, learned.chosen.weights)
    bundle = _loaded(folder / "served", spec)
    stored, steps = sum(network.num_parameters for network in spec.networks), int(learned.found["steps"])
    return Contender(
        name=name,
        oracle=oracle,
        rule=FRONTIER,
        label_days=None,
        bundle=bundle,
        learned=bundle,
        refused=None,
        stored_parameters=stored,
        seconds=time.perf_counter() - began,
        course=[(0, stored), (steps, stored)] if steps else [],
    )


def fit_response(
    data: Transitions, campaign: Campaign, kind: Kind, label_days: int, seed: int, report: Progress
) -> FittedResponse:
    """Train a response model of k-day labels, not yet priced."""
    began = time.perf_counter()
    model, _ = two_stage.fitted(two_stage.seen_by(kind, data), campaign, kind, label_days, seed, report)
    return FittedResponse(kind, label_days, model, time.perf_counter() - began)


def write_values(data: Transitions, campaign: Campaign, fitting: FittedResponse, seed: int, folder: Path) -> None:
    """Write a bundle whose Q values are what a response model predicts."""
    context = two_stage.context_of(data, campaign, seed, folder, two_stage.seen_by(fitting.kind, data))
    write_bundle(folder, bundle_spec(context, two_stage.policies(context, fitting.model)[:1], np.ones(1)))


def price_response(
    data: Transitions, campaign: Campaign, fitting: FittedResponse, seed: int, folder: Path
) -> Contender:
    """Price a response model in every state, and choose its mixture for the campaign's limits."""
    began = time.perf_counter()
    context = two_stage.context_of(data, campaign, seed, folder, two_stage.seen_by(fitting.kind, data))
    offered = two_stage.policies(context, fitting.model)
    served, refused, _ = _served(context, offered, [])
    return Contender(
        name=response_row(fitting.kind, fitting.label_days),
        oracle=fitting.kind,
        rule=None,
        label_days=fitting.label_days,
        bundle=served,
        learned=_loaded(folder / "values", bundle_spec(context, offered[:1], np.ones(1))),
        refused=refused,
        stored_parameters=fitting.model.num_parameters,
        seconds=fitting.seconds + time.perf_counter() - began,
    )


def _served(
    context: RunContext, offered: list[CandidatePolicy], reserve: list[CandidatePolicy]
) -> tuple[Bundle | None, str | None, int]:
    """The mixture that keeps the limits, or why none does, and how many parameters are stored for it."""
    try:
        chosen = choose(context, offered, reserve)
    except InfeasibleError as error:
        return None, error.found, 0
    spec = bundle_spec(context, chosen.members, chosen.weights)
    return _loaded(context.folder / "served", spec), None, sum(network.num_parameters for network in spec.networks)


def _loaded(folder: Path, spec: BundleSpec) -> Bundle:
    write_bundle(folder, spec)
    return load_bundle(folder)
