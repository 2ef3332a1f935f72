"""Who is compared: methods that learn from one log, each with what it serves and what it values.

    RL          an oracle's game, played once; every mixing rule is shown the same candidates
    two-stage   a response model of k-day labels, priced

Each gives a mixture for the campaign's limits (`served`), chosen as `train` chooses it, and the values that the paper's
budget control prices (`values`): Q of the reward, averaged over the mixture's members, or the k-day prediction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.core.campaign import Campaign
from outlay.core.errors import InfeasibleError
from outlay.core.mixture import Mixture
from outlay.core.transitions import LEARN, Transitions
from outlay.jobs import play, two_stage
from outlay.jobs.choose import Chosen, Frame, Offered, bundle_spec, choose
from outlay.learning.game import SPARES, frugal
from outlay.learning.game import play as played
from outlay.learning.mixing import RULES, lp
from outlay.twostage.answers import Response
from outlay.twostage.labels import k_day_labels
from outlay.twostage.response import fit

Floats = NDArray[np.floating[Any]]
Report = Callable[[float, str], None]

TITLES = {"ddqn": "DDQN", "edrr": "EDRR", "bcq": "BCQ", "deepfm": "DeepFM", "din": "DIN"}
COMPARED_RULES = ("single-best", "aim-mean", "aim-greedy", "lp")


@dataclass(frozen=True)
class Contender:
    """A method after learning.

    Attributes:
        name: `bcq, aim-greedy`, `DeepFM, 3-day label`.
        oracle: `bcq`, …, or the response model.
        rule: the mixing rule; None for a response model.
        label_days: of a response model; None for RL.
        bundle: what it serves under the campaign's limits; None where it found nothing that keeps them.
        learned: its policies as learned, whose networks can be asked for features.
        refused: why there is no bundle.
        values: rows → `[n, K]` the values that budget control prices.
        stored_parameters: of what it serves.
        seconds: of learning, without preparing the log.
        course: (gradient steps, parameters stored), as training went on; empty for a response model.
        original: the same for the original method, which keeps every candidate.
    """

    name: str
    oracle: str
    rule: str | None
    label_days: int | None
    bundle: Bundle | None
    learned: Bundle
    refused: str | None
    values: Callable[[NDArray[np.int64]], Floats]
    stored_parameters: int
    seconds: float
    course: list[tuple[int, int]] = field(default_factory=list)
    original: list[tuple[int, int]] = field(default_factory=list)


class Several(NamedTuple):
    """Rules that look on at the same game: a mixing rule whose mixture holds the members of all of them."""

    names: tuple[str, ...]

    def init(self, limits: ArrayLike, scale: ArrayLike | None = None) -> dict[str, Any]:
        """A state for each rule."""
        return {
            name: lp.init(limits, scale, spares=SPARES) if RULES[name] is lp else RULES[name].init(limits, scale)
            for name in self.names
        }

    def step(self, state: dict[str, Any], member: Any, measurement: ArrayLike) -> dict[str, Any]:
        """Every rule sees the policy."""
        return {name: RULES[name].step(part, member, measurement) for name, part in state.items()}

    def mixture(self, state: dict[str, Any]) -> Mixture[Any]:
        """The members that any rule holds, in equal parts: it only says what to keep."""
        held = {number for part in state.values() for number in _held(part)}
        count = len(held)
        return Mixture(tuple(held), np.full(count, 1 / count), np.zeros((count, 1)))


def _held(state: Any) -> tuple[int, ...]:
    """Members that a rule's state has in store."""
    if isinstance(state, lp.State):
        return tuple(state.members)
    return (state.member,) if hasattr(state, "member") else tuple(state.members)


def reinforcement(
    data: Transitions, campaign: Campaign, oracle: Any, seed: int, folder: Path, report: Report
) -> Iterator[Contender]:
    """One game of an oracle, and a contender for each rule."""
    game = play.set_up(data, campaign, Several(COMPARED_RULES), oracle, seed)
    blocks = game.steps // game.train.candidate_every
    progress = None
    for progress, _ in played(game):
        report(len(progress.candidates) / blocks, f"{oracle}: {len(progress.candidates) * 100 // blocks} %")
    assert progress is not None
    size = play.parameters(game, progress)
    frame = play.frame_of(game, campaign, seed, folder)
    spare = frugal(progress.candidates, game.coords)
    for name in COMPARED_RULES:
        state: Any = RULES[name].init(game.coords.limits, game.coords.scale)
        if RULES[name] is lp:
            state = lp.init(game.coords.limits, game.coords.scale, spares=SPARES)
        course = []
        for candidate in progress.candidates:
            state = RULES[name].step(state, candidate.number, candidate.measured)
            course.append((candidate.step, len(_held(state)) * size))
        mixture = RULES[name].mixture(state)
        reserve = [] if spare in mixture.members else [spare]
        numbers = list(dict.fromkeys(mixture.members))
        offered = play.offered(game, progress, numbers)
        chosen, refused = _try(frame, offered, play.offered(game, progress, reserve))
        # What budget control prices is the rule's own mixture, as it was learned.
        shares = [float(mixture.weights[[m == n for m in mixture.members]].sum()) for n in numbers]
        learned = _loaded(folder / "values", bundle_spec(frame, offered, np.array(shares)))
        yield Contender(
            name=f"{TITLES[oracle]}, {name}",
            oracle=oracle,
            rule=name,
            label_days=None,
            bundle=None
            if chosen is None
            else _loaded(frame.folder / "served", bundle_spec(frame, chosen.members, chosen.weights)),
            refused=refused,
            values=_q_values(data, learned),
            learned=learned,
            stored_parameters=size * (len(numbers) if chosen is None else len(chosen.members)),
            seconds=progress.seconds,
            course=course,
            original=[(c.step, (c.number + 1) * size) for c in progress.candidates],
        )


def response_model(
    data: Transitions, campaign: Campaign, kind: Any, label_days: int, seed: int, folder: Path, report: Report
) -> tuple[Contender, Response]:
    """A response model of k-day labels, priced in every state; and the model itself."""
    began = time.perf_counter()
    rows, label = k_day_labels(data, label_days, data.rows_of(LEARN))
    model = fit(data, rows, label, response=kind, train=campaign.train, seed=seed, progress=report)
    frame = two_stage.frame_of(data, campaign, seed, folder)
    offered = two_stage.policies(frame, model)
    chosen, refused = _try(frame, offered, [])
    contender = Contender(
        name=f"{TITLES[kind]}, {label_days}-day label",
        oracle=kind,
        rule=None,
        label_days=label_days,
        bundle=None
        if chosen is None
        else _loaded(frame.folder / "served", bundle_spec(frame, chosen.members, chosen.weights)),
        learned=_loaded(folder / "values", bundle_spec(frame, offered[:1], np.ones(1))),
        refused=refused,
        values=lambda wanted: model.predict(data, wanted)[:, :, 0],
        stored_parameters=model.num_parameters,
        seconds=time.perf_counter() - began,
    )
    return contender, model


def _try(frame: Frame, offered: list[Offered], reserve: list[Offered]) -> tuple[Chosen | None, str | None]:
    try:
        return choose(frame, offered, reserve), None
    except InfeasibleError as error:
        return None, error.found


def _loaded(folder: Path, spec: BundleSpec) -> Bundle:
    write_bundle(folder, spec)
    return load_bundle(folder)


def _q_values(data: Transitions, bundle: Bundle) -> Callable[[NDArray[np.int64]], Floats]:
    """Q of the reward, averaged over the members; once for each distinct state where those are few."""

    def of(codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> Floats:
        parts = [member.weight * member.run(["q"], codes, numbers)[0][:, :, 0] for member in bundle.members]
        return np.asarray(np.sum(parts, axis=0))

    def values(rows: NDArray[np.int64]) -> Floats:
        if data.states is not None and data.state is not None:
            answers: Floats = of(data.states.codes, data.states.numbers)[data.state[rows]]
            return answers
        return of(*data.features(rows))

    return values
