"""Training for every budget at once: one Q, or the mean of several learners', whose policies answer every λ.

    learned = learn(data, campaign, "auto", seed, folder, resume=False, report=report)     # Learned

All policies are measured on the *select* users by a fitted evaluation of the fixed policies, which knows nothing of the
argmax that made them; the mixture for the campaign's limits is chosen from that. What any other budget needs, the
networks and the measurements, stays in RUN/frontier: `outlay frontier` reads it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.candidates import CandidatePolicy, MeasuredPolicy, WeightedPolicies, measure
from outlay.choosing.choose import Selection, choose_among, measured_constants
from outlay.choosing.folds import fold_shares, seed_of, views
from outlay.choosing.stored import FoldPolicies, StoredFrontier, write_frontier
from outlay.core.arrays import NetworkArrays
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError
from outlay.core.progress import Progress, within
from outlay.core.transitions import CERTIFY, LEARN, SELECT, SPLITS, Transitions
from outlay.estimators.certificate import OWN
from outlay.learning import COUNTED, checkpoint
from outlay.learning.averaged import mean_of
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.heads import Coordinates, critic_coordinates
from outlay.learning.in_steps import Stepwise
from outlay.learning.learner import BestResponses, Task
from outlay.learning.multipliers import POINTS
from outlay.learning.tabular import countable, well_counted
from outlay.training import AUTO
from outlay.training.column_generation import (
    CostsFall,
    Gap,
    falls,
    gap_words,
    generate,
    pooled,
    worst_of,
)
from outlay.training.limits import check_possible, check_together
from outlay.training.log_game import critic_context, spread_rows
from outlay.training.pool import learn_all, learners_of, task_of
from outlay.training.record import Learned, TrainingFigures, course_of

FOLDS = 4  # where the campaign says nothing, and a training for each takes little time:
MOST_FOLDED = 30_000  # of logs with at most so many users, or where counting learns; else
LEAST_FOLDS = 2  # which take the time of one training on one split: each learns from half as many users
MOST_ROWS = 1_000_000  # measured so by default: with features, the evaluation of all users takes 10 kB of memory a row

Vector = NDArray[np.float64]
FoldElsewhere = Callable[[int, int, str, Stepwise, Path, Progress], None]


@dataclass(frozen=True)
class FoldAnswers:
    """What one fold learned and chose.

    Attributes:
        answers: to every λ.
        chosen: the fold's mixture.
        fold: what it measured.
        check: whether costs fall as λ grows.
        gap: what its best responses would still add; None where that cannot be told, and `unknown` says why.
    """

    answers: BestResponses
    chosen: Selection
    fold: FoldPolicies
    check: CostsFall
    gap: Gap | None
    unknown: str | None


@dataclass(frozen=True, kw_only=True)
class FrontierFigures(TrainingFigures):
    """What the manifest says of a training for every budget.

    Attributes:
        folds: how many.
        policies: that were measured.
        cost_falls: the check of costs, in words.
        gap: what best responses would still add; None where that cannot be told.
    """

    folds: int
    policies: int
    cost_falls: str
    gap: Gap | None


def learn(
    data: Transitions,
    campaign: Campaign,
    oracle: str,
    seed: int,
    folder: Path,
    resume: bool,
    report: Progress,
    elsewhere: FoldElsewhere | None = None,
) -> Learned:
    """Learn every λ's answer in every fold, with checkpoints in the folder, measure them all, choose for the limits.

    Networks are trained by `elsewhere`, where it is given: it takes the number of the fold and of all folds, and then
    what `Task.elsewhere` takes.

    Raises:
        CampaignError: for more budgets than λ are laid for.
        InfeasibleError: if no mixture of the policies keeps the limits.
        LogError: if there are too few users for the folds.
        OutlayError: if the counted model does not apply.
    """
    began = time.perf_counter()
    _check_budgets(campaign)
    folds = views(data, _num_folds(data, campaign, oracle))
    _check_users(folds, campaign)
    if resume:
        key = TrainingKey.of(data, campaign, "frontier", oracle, seed)
        checkpoint.refuse_others(folder, replace(key, folds=len(folds)))
    for view in folds:
        check_together(view, campaign)
    if oracle == AUTO and all(well_counted(view) for view in folds):
        oracle = COUNTED
    found = []
    for k, view in enumerate(folds):
        part = folder if len(folds) == 1 else folder / f"fold-{k + 1}"
        part.mkdir(exist_ok=True)
        which = "" if len(folds) == 1 else f"fold {k + 1} of {len(folds)}: "
        told = within(report, k / len(folds), (k + 1) / len(folds), which)
        task = task_of(view, campaign, learners_of(oracle), seed_of(seed, k), part / "checkpoints", resume=resume)
        trained = None if elsewhere is None else partial(elsewhere, k, len(folds))
        found.append(_learn_fold(view, replace(task, elsewhere=trained), oracle, part, told))
        if len(folds) > 1:
            shutil.rmtree(part / "bundle", ignore_errors=True)  # it was measured
    return _served(data, campaign, oracle, folder, folds, found, began)


def _served(
    data: Transitions,
    campaign: Campaign,
    oracle: str,
    folder: Path,
    folds: Sequence[Transitions],
    found: Sequence[FoldAnswers],
    began: float,
) -> Learned:
    """Write the frontier of what every fold found, and return the mixture for the limits with what is told of it."""
    # The note is about a fold whose costs rise with λ, if there is one.
    check, shares = worst_of([each.check for each in found]), fold_shares(folds)
    write_frontier(folder / "frontier", [each.fold for each in found], check.words)
    chosen = _together([each.chosen for each in found], shares)
    gap, told_gap = _gap(found, shares, campaign)
    figures = _figures(found, check, gap, time.perf_counter() - began)
    notes = [*found[0].answers.notes, _who_certifies(folds, campaign), *_left_out(chosen), check.words, told_gap]
    if not data.steady and any(budget.per == "decision" for budget in campaign.budgets):
        notes.append(
            "Some policies let users decide more often than others, so the best policy depends on the limit too. These "
            "were trained for the campaign's limit; a training for another budget may find better ones for it."
        )
    context = replace(found[0].fold.context, folder=folder)
    teacher = " and ".join(learners_of(oracle))
    capped = _behind_cap(StoredFrontier.read(folder / "frontier"), found, campaign)
    return Learned(context, chosen, course_of(chosen, campaign, figures.parameters), figures, teacher, notes, capped)


def _behind_cap(stored: StoredFrontier, found: Sequence[FoldAnswers], campaign: Campaign) -> WeightedPolicies | None:
    """The mixture of the folds' policies that spends the money limit; None where the campaign asks for one alone."""
    weights = stored.capped(campaign)
    if weights is None:
        return None
    parts = []
    for k, each in enumerate(found):
        own = weights[stored.fold == k]
        members = tuple(kept for kept, weight in zip(each.fold.measured, own, strict=True) if weight > 0)
        parts.append(replace(each.chosen, members=members, weights=own[own > 0] / own.sum()))
    mixture = _together(parts, stored.shares)
    return mixture.members, mixture.weights


def _figures(found: Sequence[FoldAnswers], check: CostsFall, gap: Gap | None, seconds: float) -> FrontierFigures:
    """What the manifest says; `seconds` of this try."""
    answers = [each.answers for each in found]
    multiplier = np.concatenate([each.multiplier for each in answers])
    return FrontierFigures(
        steps=sum(each.steps for each in answers),
        seconds=sum(each.seconds_before for each in answers) + seconds,
        parameters=sum(each.network.num_parameters for each in answers),
        multiplier_max=multiplier.max(axis=0).tolist(),
        multiplier_mean=multiplier.mean(axis=0).tolist(),
        candidates_measured_by="a fitted evaluation on the select users",
        folds=len(found),
        policies=sum(len(each.fold.measured) for each in found),
        cost_falls=check.words,
        gap=gap,
    )


def _learn_fold(data: Transitions, task: Task, oracle: str, folder: Path, report: Progress) -> FoldAnswers:
    """Learn from the users who teach in this fold, measure on those who select, choose for the limits."""
    campaign = task.campaign
    coords = critic_coordinates(campaign, data.outcome[spread_rows(task.rows)], steady=data.steady)
    if (model := countable(data)) is not None:
        check_possible(data, campaign, coords.limits, model)
    answers, *others = learn_all(learners_of(oracle), task, within(report, 0, 0.8))
    if others:  # the mean of both errs less than either
        answers = mean_of(replace(task, learner=oracle), answers, *others)
    context = replace(critic_context(data, campaign, coords, oracle, task.seed, folder), own_share=OWN)
    report(0.8, f"measuring {len(answers.multiplier)} policies")
    offers = Offers(coords, answers)
    kept, at = measure(context, offers.every())
    found = generate(context, kept, at, offers.respond)
    kept, network = _in_one(found.kept, answers.network)
    constants = measured_constants(context, found.at)
    chosen = choose_among(context, kept, found.at, len(kept), constants=constants)
    spending = None
    if campaign.budgets[campaign.money].sign > 0 and not any(campaign.held):
        held = replace(context, campaign=campaign.held_while_serving())
        spending = choose_among(held, kept, found.at, len(kept), constants=constants)
    measured = [kept for kept in chosen.measured if kept.withheld is None]
    policies = FoldPolicies(context, _and_constants(measured, chosen, spending), chosen.measure.old(), chosen, spending)
    answers = replace(answers, network=network)
    return FoldAnswers(answers, chosen, policies, falls(measured), found.gap, found.unknown)


@dataclass(frozen=True)
class Offers:
    """Best responses as candidates, numbered as they are offered.

    Attributes:
        coords: from heads to the coordinates of the limits.
        of: the best responses.
        numbers: the next one.
    """

    coords: Coordinates
    of: BestResponses
    numbers: Iterator[int] = field(default_factory=count)

    def every(self) -> list[CandidatePolicy]:
        """All of them."""
        of = self.of
        learned: Sequence[Vector | None] = [None] * len(of.multiplier) if of.critic is None else list(of.critic)
        return [
            self._one(multiplier, of.network, int(policy), own)
            for multiplier, policy, own in zip(of.multiplier, of.policy, learned, strict=True)
        ]

    def respond(self, multiplier: Vector) -> list[CandidatePolicy]:
        """The best response to a further λ, as column generation asks for it."""
        learned = None if self.of.estimate is None else self.of.estimate(multiplier)
        return [self._one(multiplier, *self.of.response(multiplier), learned)]

    def _one(self, multiplier: Vector, network: NetworkArrays, policy: int, learned: Vector | None) -> CandidatePolicy:
        return CandidatePolicy(
            name=f"λ {', '.join(f'{price:.3g}' for price in multiplier)}",
            network=network,
            multiplier=multiplier,
            head_weights=self.coords.weights(multiplier),
            number=next(self.numbers),
            step=self.of.steps,
            learned=learned,
            policy=policy,
            answers=True,
        )


def _and_constants(measured: list[MeasuredPolicy], *chosen: Selection | None) -> list[MeasuredPolicy]:
    """What budgets are mixed from: what learners found, and constant actions that are served."""
    served = {id(kept): kept for each in chosen if each is not None for kept in each.members}
    return [*measured, *(kept for kept in served.values() if kept.policy.number is None)]


def _in_one(kept: list[MeasuredPolicy], network: NetworkArrays) -> tuple[list[MeasuredPolicy], NetworkArrays]:
    """The same policies with those of tables of their own as further ones of the network, which has their states."""
    apart = [k.policy.network for k in kept if k.policy.network is not network]
    whole = network.beside([each for each in apart if isinstance(each, NetworkArrays)])
    places = count(network.num_policies)

    def moved(policy: CandidatePolicy) -> CandidatePolicy:
        return replace(policy, network=whole, policy=policy.policy if policy.network is network else next(places))

    return [replace(k, policy=moved(k.policy)) for k in kept], whole


def _gap(found: Sequence[FoldAnswers], shares: Vector, campaign: Campaign) -> tuple[Gap | None, str]:
    """The gap of the mixture of all folds, and the same in words."""
    gaps = [each.gap for each in found if each.gap is not None]
    of = found[0].answers.description
    if len(gaps) < len(found):
        unknown = next(each.unknown for each in found if each.gap is None)
        return None, f"Gap: how much other policies of {of} would add is not known: {unknown}."
    gap = pooled(gaps, shares)
    return gap, gap_words(gap, campaign, of)


def _who_certifies(folds: Sequence[Transitions], campaign: Campaign) -> str:
    """Who certifies what was learned, and what a longer training would change."""
    users, count = len(folds[0].users), len(folds)
    certify, learn = (len(folds[0].users_of(split)) / users for split in (CERTIFY, LEARN))
    if count == 1:
        return (
            f"{certify:.0%} of the {users:,} users certify. With --folds {LEAST_FOLDS} all of them would: intervals "
            f"are {certify**-0.5:.1f} times narrower, and an evaluation takes {certify**-1:.1f} times the time and "
            "memory. No fields are screened then."
        )
    words = (
        f"Trained {count} times, each time without one of {count} groups of users, who then certify the result. So all "
        f"{users:,} users certify, and the {count} mixtures are served as one."
    )
    if campaign.train.folds is not None or count >= FOLDS:
        return words
    then = 1 - 1 / FOLDS - campaign.train.shares[SELECT]
    return (
        f"{words} Each time {learn:.0%} of the users taught; with --folds {FOLDS} it would be {then:.0%}, in about "
        f"{FOLDS * then / (count * learn):.1f} times the time."
    )


def _num_folds(data: Transitions, campaign: Campaign, oracle: str) -> int:
    """The number of folds: that of the campaign or, by default, FOLDS where training so many times is quick, else 2.

    So every user certifies, unless measuring all would take too much memory.
    """
    if campaign.train.folds is not None:
        return campaign.train.folds
    counts = oracle == COUNTED or (oracle == AUTO and well_counted(data))
    if counts or len(data.users) <= MOST_FOLDED:
        return FOLDS
    return LEAST_FOLDS if len(data) <= MOST_ROWS else 1


def _check_budgets(campaign: Campaign) -> None:
    if len(campaign.budgets) > max(POINTS):
        raise CampaignError(
            f"has {len(campaign.budgets)} budgets; one training for every λ is made for at most {max(POINTS)}.",
            file=campaign.path,
            where="[[budget]]",
            way_out="Train with --method aim-greedy, or join budgets.",
        )


def _check_users(folds: Sequence[Transitions], campaign: Campaign) -> None:
    """Whether every fold has users who teach, who select and who certify."""
    for view in folds:
        for split, name in enumerate(SPLITS):
            if len(view.users_of(split)) == 0:
                raise LogError(
                    f"no user fell into the split {name!r} of one of {len(folds)} folds.",
                    file=campaign.path,
                    where="[train] folds",
                    way_out="Take a log with more users, or fewer folds.",
                )


def _together(chosen: Sequence[Selection], shares: Vector) -> Selection:
    """The mixture of the folds' mixtures, and all that was measured."""

    def numbered(kept: MeasuredPolicy, fold: int) -> MeasuredPolicy:
        return replace(kept, policy=replace(kept.policy, fold=fold))

    members: list[MeasuredPolicy] = []
    place: dict[tuple[object, ...], int] = {}
    weights = np.zeros((len(chosen), sum(len(each.members) for each in chosen)))
    for k, each in enumerate(chosen):
        for kept, weight in zip(each.members, each.weights, strict=True):
            of = kept.policy
            key: tuple[object, ...] = (k, of.name, of.number)
            if of.number is None and isinstance(of.network, NetworkArrays):
                key = of.name, of.network.head[1].tobytes()  # constant actions that several folds take are one member
            if key not in place:
                place[key] = len(members)
                members.append(numbered(kept, k))
            weights[k, place[key]] += weight
    fold_weights = weights[:, : len(members)]
    return Selection(
        members=tuple(members),
        weights=shares @ fold_weights,
        margin=np.asarray(sum(share * each.margin for share, each in zip(shares, chosen, strict=True))),
        measured=tuple(numbered(kept, k) for k, each in enumerate(chosen) for kept in each.measured),
        measure=chosen[0].measure,
        fold_weights=fold_weights,
        rare=all(each.rare for each in chosen),
    )


def _left_out(chosen: Selection) -> list[str]:
    absent = [kept for kept in chosen.measured if kept.withheld is not None]
    if not absent:
        return []
    return [
        f"{len(absent)} of {len(chosen.measured)} policies could not be measured and are left out: "
        f"{absent[0].withheld}."
    ]
