"""Training for every budget at once: one network, or a counted model, that answers every λ.

    learned = learn(data, campaign, "auto", seed, folder, report)     # Learned, as of every way of learning

All its policies are measured on the *select* users by a fitted evaluation of the fixed policies, which knows nothing of
the argmax that made them; the mixture for the campaign's limits is chosen from that. What any other budget needs, the
network and the measurements, stays in RUN/frontier: `outlay frontier` reads it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.candidates import CandidatePolicy, MeasuredPolicy, measure
from outlay.choosing.choose import TOGETHER, Selection, choose_among
from outlay.choosing.folds import fold_shares, seed_of, views
from outlay.choosing.stored import FoldPolicies, write_frontier
from outlay.core.arrays import NetworkArrays
from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import CampaignError, LogError, OutlayError
from outlay.core.progress import Progress, within
from outlay.core.transitions import CERTIFY, LEARN, SELECT, SPLITS, Transitions
from outlay.estimators.certificate import OWN
from outlay.learning import checkpoint
from outlay.learning.heads import coordinates, largest_multiplier
from outlay.learning.multiplier_grid import POINTS
from outlay.learning.tabular import counted_model
from outlay.learning.two_part import without_amount_luck
from outlay.ops.intervals import quantile
from outlay.training.best_responses import BestResponses, Elsewhere, NetworkTraining, Training, counted, learn_all
from outlay.training.column_generation import Gap, generate, pooled, words
from outlay.training.game import Learned, check_possible, critic_context, spread_rows
from outlay.training.joint_limits import check_together
from outlay.training.portfolio import Effects, by_learner, effects_of, won
from outlay.training.record import course_of

ROWS_A_PAIR = 30  # learn rows for each state and action, on average, with which `auto` takes the counted model
POOL = ("trees", "orthogonal")  # the learners that `auto` pools where states are not counted
FOLDS = 4  # where the campaign says nothing, and a training for each takes little time:
MOST_FOLDED = 30_000  # of logs with at most so many users, or where counting learns; else
LEAST_FOLDS = 2  # which take the time of one training on one split: each learns from half as many users
MOST_ROWS = 1_000_000  # measured so by default: with features, the evaluation of all users takes 10 kB of memory a row
LEVEL = 0.05  # chance that the check finds fault where there is none

Vector = NDArray[np.float64]
FoldElsewhere = Callable[[int, int, str, NetworkTraining, Path, Progress], None]


class CostsFall(NamedTuple):
    """Whether costs fall as λ grows.

    Attributes:
        pairs: of policies that were compared.
        rising: those in which costs rise by more than noise explains.
        first: the λ of the first of these, in words; empty where there is none.
    """

    pairs: int
    rising: int
    first: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What was found, a sentence or two."""
        if not self.pairs:
            return "Check: there is one policy alone, so it cannot be checked whether costs fall as λ grows."
        if not self.rising:
            return (
                f"Check: costs fall as λ grows, in all {self.pairs:,} pairs of policies, as far as noise lets one tell."
            )
        return (
            f"Check: costs rise with λ in {self.rising:,} of {self.pairs:,} pairs of policies, by more than noise "
            f"explains, first from λ = {self.first[0]} to {self.first[1]}. Those answers are not exact; mixtures go by "
            "measured values."
        )


@dataclass(frozen=True)
class FoldAnswers:
    """What one fold learned and chose.

    Attributes:
        answers: to every λ, of each learner.
        chosen: the fold's mixture.
        fold: what it measured.
        check: whether costs fall as λ grows.
        gap: what its best responses would still add; None where that cannot be told, and `unknown` says why.
        effects: of the learners, compared.
    """

    answers: list[BestResponses]
    chosen: Selection
    fold: FoldPolicies
    check: CostsFall
    gap: Gap | None
    unknown: str | None
    effects: Effects


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
    what `Training.elsewhere` takes.

    Raises:
        CampaignError: for more budgets than λ are laid for.
        InfeasibleError: if no mixture of the policies keeps the limits.
        LogError: if there are too few users for the folds.
        OutlayError: if the counted model does not apply.
    """
    began = time.perf_counter()
    if len(campaign.budgets) > max(POINTS):
        raise CampaignError(
            f"has {len(campaign.budgets)} budgets; one training for every λ is made for at most {max(POINTS)}.",
            file=campaign.path,
            where="[[budget]]",
            way_out="Train with --method aim-greedy, or join budgets.",
        )
    folds = views(data, _num_folds(data, campaign, oracle))
    _check_users(folds, campaign)
    if resume:
        checkpoint.refuse_others(folder, len(folds), checkpoint.key_of(data, campaign, "frontier", oracle, seed))
    for view in folds:
        check_together(view, campaign)
    if oracle == "auto" and all(countable(view) is not None and _well_counted(view) for view in folds):
        oracle = "tabular"
    found = []
    for k, view in enumerate(folds):
        part = folder if len(folds) == 1 else folder / f"fold-{k + 1}"
        part.mkdir(exist_ok=True)
        which = "" if len(folds) == 1 else f"fold {k + 1} of {len(folds)}: "
        told = within(report, k / len(folds), (k + 1) / len(folds), which)
        trained = None if elsewhere is None else partial(elsewhere, k, len(folds))
        found.append(_learn_fold(view, campaign, oracle, seed_of(seed, k), part, resume, told, trained))
        if len(folds) > 1:
            shutil.rmtree(part / "bundle", ignore_errors=True)  # it was measured
    # The note is about a fold whose costs rise with λ, if there is one.
    check = worst_of([each.check for each in found])
    write_frontier(folder / "frontier", [each.fold for each in found], check.words)
    chosen = _together([each.chosen for each in found], fold_shares(folds))
    context = replace(found[0].fold.context, folder=folder)
    answers = [part for each in found for part in each.answers]
    multiplier = np.concatenate([each.multiplier for each in answers])
    parameters = sum(each.network.num_parameters for each in answers)
    before = sum(each.seconds_before for each in answers)
    gap, told_gap = _gap(found, fold_shares(folds), campaign)
    record = {
        "oracle": " and ".join(POOL) if oracle == "auto" else oracle,
        "folds": len(folds),
        "steps": sum(each.steps for each in answers),
        "seconds": before + time.perf_counter() - began,
        "parameters": parameters,
        "multiplier_max": multiplier.max(axis=0).tolist(),
        "multiplier_mean": multiplier.mean(axis=0).tolist(),
        "candidates_measured_by": "a fitted evaluation on the select users",
        "policies": sum(len(each.fold.measured) for each in found),
        "cost_falls": check.words,
        "gap": None if gap is None else gap.to_dict(),
    }
    course = course_of(chosen, campaign, parameters)
    notes = [note for each in found[0].answers for note in each.notes]
    if oracle == "auto":
        standings = [each.chosen.learner_results for each in found]
        record["learners"] = [[asdict(each) for each in fold] for fold in standings]
        record["weights_by_learner"] = by_learner(chosen)
        record["effects_explained"] = [each.effects.explained for each in found]
        notes.append(won(standings, [each.effects for each in found], by_learner(chosen)))
    notes.append(_who_certifies(folds, campaign))
    notes += [*_left_out(chosen), check.words, told_gap]
    if not data.steady and any(budget.per == "decision" for budget in campaign.budgets):
        notes.append(
            "Policies differ in how often they decide, so the answer to a λ depends on the limit too: these are for "
            "the campaign's. At other budgets of the curve a training of their own may find more."
        )
    return Learned(context, chosen, course, record, notes)


def _learn_fold(
    data: Transitions,
    campaign: Campaign,
    oracle: str,
    seed: int,
    folder: Path,
    resume: bool,
    report: Progress,
    elsewhere: Elsewhere | None = None,
) -> FoldAnswers:
    """Learn from the users who teach in this fold, measure on those who select, choose for the limits."""
    rows = data.rows_of(LEARN)
    sample = spread_rows(rows)
    coords = coordinates(campaign, data.outcome[sample], steady=data.steady)
    model = countable(data)
    if model is not None:
        check_possible(data, campaign, coords.limits, model)
    elif oracle == "tabular":
        raise OutlayError(
            "needs few distinct states, each known by its features, and a decision every day; this log lacks that.",
            where="oracle tabular",
            way_out="Take --oracle orthogonal, trees, or auto.",
        )
    if oracle == "tabular" and model is not None:
        answers = [counted(data, campaign, coords, model)]
    else:
        learners = learners_of(oracle)
        training = training_of(data, campaign, learners, seed, folder / "checkpoints", resume)
        answers = learn_all(learners, replace(training, elsewhere=elsewhere), within(report, 0, 0.8))
    effects = Effects({})
    judge = next((each.judge for each in answers if each.judge is not None), None)
    if len(answers) > 1 and judge is not None and len(judge.rows):
        effects = effects_of({each.learner: each.network for each in answers}, judge, data)
        answers.sort(key=lambda each: -effects.explained[each.learner])
    context = replace(critic_context(data, campaign, coords, oracle, seed, folder), own_share=OWN)
    every = sum(len(each.multiplier) for each in answers)
    report(0.8, f"measuring {every} policies")

    def offer(
        of: BestResponses, multiplier: Vector, number: int, network: NetworkArrays, policy: int, learned: Vector | None
    ) -> CandidatePolicy:
        price = ", ".join(f"{price:.3g}" for price in multiplier)
        return CandidatePolicy(
            name=f"{of.learner}, λ {price}" if len(answers) > 1 else f"λ {price}",
            network=network,
            multiplier=multiplier,
            head_weights=coords.weights(multiplier),
            number=number,
            step=of.steps,
            learned=learned,
            policy=policy,
            learner=of.learner,
        )

    numbers = count()
    offered = [
        offer(
            of,
            multiplier,
            next(numbers),
            of.network,
            int(of.policy[place]),
            None if of.critic is None else of.critic[place],
        )
        for of in answers
        for place, multiplier in enumerate(of.multiplier)
    ]

    kept, at = measure(context, offered)
    gaps: dict[str, tuple[Gap | None, str | None]] = {}
    for of in answers:

        def respond_to(multiplier: Vector, of: BestResponses = of) -> list[CandidatePolicy]:
            learned = None if of.estimate is None else of.estimate(multiplier)
            return [offer(of, multiplier, next(numbers), *of.response(multiplier), learned)]

        generated = generate(context, kept, at, respond_to, of.learner)
        kept, at = generated.kept, generated.at
        gaps[of.learner] = generated.gap, generated.unknown
    if len(answers) == 1:
        kept, network = _in_one(kept, answers[0].network)
        answers = [replace(answers[0], network=network)]
    chosen = choose_among(context, kept, at, len(kept), together=effects.tie)
    measured = [kept for kept in chosen.measured if kept.withheld is None]
    check = worst_of(
        [
            falls([kept for kept in measured if kept.policy.learner == name])
            for name in dict.fromkeys(policy.learner for policy in offered)
        ]
    )
    taken = _taken(answers, chosen)
    gap, unknown = gaps.get(taken, (None, "policies of several of them are mixed"))
    fold = FoldPolicies(context, _of_taken(measured, chosen, taken), chosen.measure.old(), chosen)
    return FoldAnswers(answers, chosen, fold, check, gap, unknown, effects)


def training_of(
    data: Transitions, campaign: Campaign, learners: Sequence[str], seed: int, folder: Path, resume: bool
) -> Training:
    """What the learners of a fold share.

    Args:
        data: the log as the fold sees it.
        campaign: limits and settings as used.
        learners: their names.
        seed: of the fold.
        folder: of the checkpoints.
        resume: whether to go on from them.
    """
    rows = data.rows_of(LEARN)
    sample = spread_rows(rows)
    taught = without_amount_luck(data, seed) if set(learners) <= set(POOL) else data
    coords = coordinates(campaign, taught.outcome[sample], steady=data.steady)
    scaled = largest_multiplier(data.action[sample], taught.outcome[sample], coords, campaign.meta.discount)
    bound = scaled * coords.reward_scale / coords.scale
    return Training(taught, campaign, coords, bound, rows, seed, folder, resume)


def learners_of(oracle: str) -> tuple[str, ...]:
    """The learners that an oracle of `train` names."""
    return POOL if oracle == "auto" else (oracle,)


def _taken(answers: Sequence[BestResponses], chosen: Selection) -> str:
    """The learner whose mixture is served, or `TOGETHER`."""
    if len(answers) == 1:
        return answers[0].learner
    return chosen.learner_results[0].learner if chosen.learner_results else TOGETHER


def _of_taken(measured: list[MeasuredPolicy], chosen: Selection, taken: str) -> list[MeasuredPolicy]:
    """What budgets are mixed from: the policies of the learner that was taken, and those that are served."""
    own = [kept for kept in measured if taken in (TOGETHER, kept.policy.learner)]
    place = {id(kept) for kept in own}
    return [*own, *(kept for kept in chosen.members if id(kept) not in place)]


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
    of = found[0].answers[0].description if len(found[0].answers) == 1 else "the learners that were taken"
    if len(gaps) < len(found):
        unknown = next(each.unknown for each in found if each.gap is None)
        return None, f"Gap: it is not known what the policies of {of} would still add, as {unknown}."
    gap = pooled(gaps, shares)
    return gap, words(gap, campaign, of)


def _who_certifies(folds: Sequence[Transitions], campaign: Campaign) -> str:
    """Who certifies what was learned, and what a longer training would change."""
    users, count = len(folds[0].users), len(folds)
    certify, learn = (len(folds[0].users_of(split)) / users for split in (CERTIFY, LEARN))
    if count == 1:
        return (
            f"{certify:.0%} of the {users:,} users certify. With --folds {LEAST_FOLDS}, for which no fields are "
            f"screened, all of them would, with intervals {certify**-0.5:.1f} times narrower; evaluating takes "
            f"{certify**-1:.1f} times the time and memory."
        )
    words = (
        f"Learned {count} times, each time without the users of one fold, who certify what was learned then: so all "
        f"{users:,} users certify, and the mixture of the {count} mixtures is served."
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
    counts = oracle == "tabular" or (oracle == "auto" and countable(data) is not None and _well_counted(data))
    if counts or len(data.users) <= MOST_FOLDED:
        return FOLDS
    return LEAST_FOLDS if len(data) <= MOST_ROWS else 1


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
    place: dict[Any, int] = {}
    weights = np.zeros((len(chosen), sum(len(each.members) for each in chosen)))
    for k, each in enumerate(chosen):
        for kept, weight in zip(each.members, each.weights, strict=True):
            of = kept.policy
            # Constant actions that several folds take are one member.
            alike = of.number is None and isinstance(of.network, NetworkArrays)
            key = (of.name, of.network.head[1].tobytes()) if alike else (k, id(of))  # type: ignore[union-attr]
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
    )


def countable(data: Transitions) -> TabularCMDP | None:
    """The counted model of the learn users, where features tell its states apart; else None."""
    model = counted_model(data, LEARN)
    if model is None or data.states is None:
        return None
    seen = np.concatenate([data.states.codes, np.ascontiguousarray(data.states.numbers).view(np.int32)], axis=1)
    return model if len(np.unique(seen, axis=0)) == len(seen) else None


def worst_of(checks: Sequence[CostsFall]) -> CostsFall:
    """The first check in which costs rise, or else the first."""
    return next((check for check in checks if check.rising), checks[0])


def falls(measured: list[MeasuredPolicy]) -> CostsFall:
    """Whether costs fall as λ grows: (λ − λ')ᵀ(c − c') ≤ 0 for every two exact best responses."""
    if len(measured) < 2:
        return CostsFall(0, 0)
    multiplier = np.array([kept.policy.multiplier for kept in measured])
    cost = np.array([kept.coordinates[1:] for kept in measured])
    error = np.array([kept.std_error[1:] for kept in measured])
    one, other = np.triu_indices(len(measured), 1)
    step = multiplier[other] - multiplier[one]
    rise = (step * (cost[other] - cost[one])).sum(axis=1)
    noise = np.sqrt((step**2 * (error[other] ** 2 + error[one] ** 2)).sum(axis=1))
    # So many pairs are compared that some would rise by chance: all together keep the level.
    wrong = np.flatnonzero(rise > quantile(1 - LEVEL / len(one)) * noise)
    if not len(wrong):
        return CostsFall(len(one), 0)
    ends = (", ".join(f"{price:.3g}" for price in multiplier[pair[wrong[0]]]) for pair in (one, other))
    return CostsFall(len(one), len(wrong), tuple(ends))


def _well_counted(data: Transitions) -> bool:
    assert data.states is not None
    return len(data.rows_of(LEARN)) >= ROWS_A_PAIR * len(data.states) * data.num_actions


def _left_out(chosen: Selection) -> list[str]:
    absent = [kept for kept in chosen.measured if kept.withheld is not None]
    if not absent:
        return []
    return [
        f"{len(absent)} of {len(chosen.measured)} policies could not be measured and are left out: "
        f"{absent[0].withheld}."
    ]
