"""Learners that are pooled: how they train side by side, which was taken, by how much, and whose policies are served.

Learners are ordered by how well they tell what actions do (`learning/held_out.py`). Where the first is ahead by
more than a standard error, its own mixture is taken first; else nothing tells them apart, and the mixture of all their
policies is. Another mixture is taken where it is measured to be better by more than a standard error
(`choosing/choose.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import NamedTuple

import numpy as np

from outlay.bundles.reference import forward
from outlay.choosing.choose import NOISE, TOGETHER, LearnerResult, Selection
from outlay.core.arrays import NetworkArrays
from outlay.core.campaign import Campaign
from outlay.core.progress import Progress
from outlay.core.transitions import LEARN, Transitions
from outlay.learning import LEARNERS, POOL
from outlay.learning.heads import critic_coordinates, largest_multiplier
from outlay.learning.held_out import EffectScore
from outlay.learning.learner import BestResponses, Task
from outlay.learning.outcomes import without_amount_luck
from outlay.training import AUTO
from outlay.training.log_game import spread_rows


def task_of(
    data: Transitions, campaign: Campaign, learners: Sequence[str], seed: int, folder: Path, *, resume: bool
) -> Task:
    """What the learners of a fold are given.

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
    taught = without_amount_luck(data, seed) if all(LEARNERS[name].WITHOUT_LUCK for name in learners) else data
    coords = critic_coordinates(campaign, taught.outcome[sample], steady=data.steady)
    scaled = largest_multiplier(data.action[sample], taught.outcome[sample], coords, campaign.meta.discount)
    bound = scaled * coords.reward_scale / coords.scale
    return Task(learners[0], taught, campaign, coords, bound, rows, seed, folder, resume)


def learners_of(oracle: str) -> tuple[str, ...]:
    """The learners that an oracle of `train` names."""
    return POOL if oracle == AUTO else (oracle,)


def learn_all(learners: Sequence[str], task: Task, report: Progress) -> list[BestResponses]:
    """What each learner makes of a task, in this order; several learn side by side, each in a thread of its own.

    Most of their time is spent in compiled code that runs on one processor. `report` is told the share of all that is
    done.

    Raises:
        CampaignError: if a setting does not suit a learner.
    """
    if len(learners) == 1:
        return [_learn(learners[0], task, task.folder, report)]
    task.folder.mkdir(exist_ok=True)
    shares, stopped, lock = dict.fromkeys(learners, 0.0), Event(), Lock()

    def told(learner: str, share: float, text: str) -> None:
        if stopped.is_set():
            raise _StoppedError
        with lock:
            shares[learner] = share
            report(sum(shares.values()) / len(shares), text)

    def learn(learner: str) -> BestResponses:
        try:
            return _learn(learner, task, task.folder / learner, partial(told, learner))
        except BaseException:
            stopped.set()  # the others end at their next report
            raise

    with ThreadPoolExecutor(len(learners)) as pool:
        running = [pool.submit(learn, learner) for learner in learners]
        try:
            found = [each.result() for each in running]
        except BaseException as error:
            stopped.set()
            if not isinstance(error, _StoppedError):
                raise
            reasons = [each.exception() for each in running]
            raise next(reason for reason in reasons if not isinstance(reason, _StoppedError | None)) from None
    return found


class _StoppedError(Exception):
    """Another learner failed, or the user has stopped the training."""


def _learn(learner: str, task: Task, folder: Path, report: Progress) -> BestResponses:
    """One learner, with checkpoints in the folder."""
    return LEARNERS[learner].learn(replace(task, learner=learner, folder=folder), report)


class Effects(NamedTuple):
    """What the effects of learners on the day's reward explain for select users.

    Attributes:
        explained: of each learner, the best first; empty where there is one learner, or nothing to compare them on.
        ahead: by how much the first is ahead of the second.
        std_error: of this difference.
    """

    explained: dict[str, float]
    ahead: float = 0.0
    std_error: float = 0.0

    @property
    def tie(self) -> bool:
        """Whether the first is ahead by no more than noise."""
        return bool(self.explained) and self.ahead <= NOISE * self.std_error


def effects_of(networks: dict[str, NetworkArrays], judge: EffectScore, data: Transitions) -> Effects:
    """Compare the effects of learners on rows that taught none of them."""
    codes, numbers = data.features(judge.rows)
    unit = data.user[judge.rows] if data.cluster is None else data.cluster[data.user[judge.rows]]
    _, unit = np.unique(unit, return_inverse=True)
    explained, influence = {}, {}
    for name, network in networks.items():
        outcome = forward(network, codes, numbers).outcome
        assert outcome is not None  # learners that are pooled all say what the day brings
        explained[name] = judge.explained(outcome[:, :, 0])
        influence[name] = judge.influence(outcome[:, :, 0], unit)
    first, second, *_ = order = sorted(explained, key=lambda name: -explained[name])
    error = float(np.sqrt(((influence[first] - influence[second]) ** 2).sum()))
    return Effects({name: explained[name] for name in order}, explained[first] - explained[second], error)


def by_learner(chosen: Selection) -> dict[str, float]:
    """The share of the users that policies of each learner have; constants have their own."""
    share: dict[str, float] = {}
    for kept, weight in zip(chosen.members, chosen.weights, strict=True):
        name = kept.policy.learner or "constants"
        share[name] = share.get(name, 0.0) + float(weight)
    return share


def won(standings: Sequence[Sequence[LearnerResult]], compared: Sequence[Effects], shares: dict[str, float]) -> str:
    """Which learner was taken in each fold, on which figures, and whose policies are served, in words."""
    told = []
    for number, (fold, effects) in enumerate(zip(standings, compared, strict=True)):
        where = f"fold {number + 1}: " if len(standings) > 1 else ""
        if not fold:
            told.append(f"{where}no learner keeps the limits by itself")
            continue
        first, *others = fold
        rest = ", ".join(f"{each.behind:+.2g} ±{1.96 * each.std_error:.1g} against {each.learner}" for each in others)
        told.append(
            f"{where}{first.learner} is taken{f', {rest}' if rest else '; no other keeps the limits'}"
            f"{_because(first.learner, effects)}"
        )
    served = ", ".join(f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=lambda pair: -pair[1]))
    return (
        f"Learners, each with its own best mixture on select users: {'. '.join(told)}. Users are served by: {served}."
    )


def _because(taken: str, effects: Effects) -> str:
    """On which figures a mixture was taken: those of effects, or the values that were measured."""
    if len(effects.explained) < 2:
        return ""
    best = next(iter(effects.explained))
    shares = ", ".join(f"{name} {share:.2%}" for name, share in effects.explained.items())
    apart = f"effects explain of the reward: {shares}; difference {effects.ahead:.2%} ±{1.96 * effects.std_error:.2%}"
    if taken == (TOGETHER if effects.tie else best):
        why = "which does not tell the learners apart" if effects.tie else f"so {best} comes first"
        return f" ({apart}, {why})"
    first = TOGETHER if effects.tie else best
    return f" (measured to be better than {first} by more than a standard error, although {first} comes first: {apart})"
