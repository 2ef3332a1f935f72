"""What learners are given, and how several train side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Lock

from outlay.core.campaign import Campaign
from outlay.core.progress import Progress
from outlay.core.transitions import LEARN, Transitions
from outlay.learning import LEARNERS, POOL
from outlay.learning.heads import critic_coordinates, largest_multiplier
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
