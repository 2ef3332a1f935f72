"""Trainings in gradient steps: block by block, with checkpoints, here or on several machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from outlay.core.campaign import Train
from outlay.core.progress import Progress
from outlay.learning import checkpoint
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.learner import Learner, Task
from outlay.nets.loop import ALONE, ProcessGroup


class Stepwise(Protocol):
    """A training of networks. Its progress is a value that says `step` and `seconds`.

    Attributes:
        LABEL: what its progress is called by.
        PARTS: how many groups of users a batch has equally many rows of.
    """

    LABEL: ClassVar[str]
    PARTS: ClassVar[int]

    @property
    def train(self) -> Train:
        """The schedule."""
        ...

    @property
    def steps(self) -> int:
        """Gradient steps in all."""
        ...

    def begin(self) -> Any:
        """The progress before the first step."""
        ...

    def blocks(self, progress: Any, group: ProcessGroup = ALONE) -> Iterator[Any]:
        """Train on, and yield the progress after each block; a group of processes trains together."""
        ...

    def save(self, folder: Path, progress: Any, key: TrainingKey) -> None:
        """Write a checkpoint, replacing the last."""
        ...

    def load(self, folder: Path, key: TrainingKey) -> Any:
        """Read a checkpoint of the same training.

        Raises:
            FolderError: if there is none, it is damaged, or it belongs to another training.
        """
        ...


@runtime_checkable
class SteppedLearner(Learner, Protocol):
    """A learner that makes gradient steps, and may make them on other machines."""

    def in_steps(self, task: Task) -> Stepwise:
        """The training of a task, ready to begin."""
        ...


def learn_in_steps(training: Stepwise, task: Task, report: Progress) -> tuple[Any, float]:
    """Train to the end, here or elsewhere; the last progress, and the seconds that an earlier try took."""
    resume = task.resumes
    if task.elsewhere is not None:
        task.elsewhere(task.learner, training, task.folder, report)
        resume = True
    return train_through(training, task.folder, task.key, resume, report)


def train_through(
    training: Stepwise, folder: Path, key: TrainingKey, resume: bool, report: Progress, group: ProcessGroup = ALONE
) -> tuple[Any, float]:
    """Train to the end; the last progress, and the seconds that an earlier try took.

    Args:
        training: what is trained.
        folder: of the checkpoints, which the first process of a group writes.
        key: what a checkpoint must agree with.
        resume: whether to go on from the last one.
        report: told the share of the steps.
        group: of processes that train together.
    """
    start = training.load(folder, key) if resume else training.begin()
    progress, seconds, saved = start, start.seconds, time.monotonic()
    for progress in training.blocks(start, group):
        report(progress.step / training.steps, f"{training.LABEL}{progress.step} of {training.steps} steps")
        if time.monotonic() - saved > checkpoint.EVERY_SECONDS and group.rank == 0:
            training.save(folder, progress, key)
            saved = time.monotonic()
    if group.rank == 0:
        training.save(folder, progress, key)
    return progress, seconds
