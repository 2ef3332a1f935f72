"""What a learner takes and gives: a task in, best responses to every λ out.

    found = LEARNERS["trees"].learn(task, report)          # BestResponses

A learner is a module with a constant and a function, and a row in `learning/__init__.py`. One that makes gradient steps
builds on `learning/in_steps.py`, which keeps its checkpoints and lets several machines train it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from outlay.core.arrays import NetworkArrays
from outlay.core.campaign import Campaign, Train
from outlay.core.progress import Progress
from outlay.core.transitions import Transitions
from outlay.learning.checkpoint import TrainingKey
from outlay.learning.heads import Coordinates
from outlay.learning.multipliers import Answers
from outlay.learning.outcomes import Determined, determined_costs

if TYPE_CHECKING:
    from outlay.learning.in_steps import Stepwise

Vector = NDArray[np.float64]
Elsewhere = Callable[[str, "Stepwise", Path, Progress], None]  # learner, its training, folder of its checkpoints


@dataclass(frozen=True)
class BestResponses:
    """The best responses of one learner to L values of λ.

    Attributes:
        learner: its name.
        network: holds the policies.
        policy: `[L]` which of the network's policies answers each λ; several λ may share one Q.
        multiplier: `[L, m]` λ, in reward units per unit of coordinate.
        description: whose best responses they are, in words.
        notes: what to tell the user.
        critic: `[L, 1+m]` the learner's own estimates of them, as tables show them; None where it has none.
        steps: gradient steps.
        seconds_before: seconds of training before it was resumed.
        exact: the best response to any λ `[m]`, as a network of one policy that has the hidden layers of `network`;
            None where the Q of the nearest λ has to answer.
        estimate: `[1+m]` the learner's estimate of the best response to any λ `[m]`, as tables show it; None where it
            has none.
    """

    learner: str
    network: NetworkArrays
    policy: NDArray[np.int64]
    multiplier: Vector
    description: str
    notes: list[str] = field(default_factory=list)
    critic: Vector | None = None
    steps: int = 0
    seconds_before: float = 0.0
    exact: Callable[[Vector], NetworkArrays] | None = None
    estimate: Callable[[Vector], Vector] | None = None

    @classmethod
    def of_one_q(cls, learner: str, found: Answers, coords: Coordinates, what: str) -> BestResponses:
        """The best responses of one Q, which answers all λ; `what` it is, in words."""

        def estimate(multiplier: Vector) -> Vector:
            return coords.shown(found.estimate_at(multiplier[None])[0], 1.0)

        return cls(
            learner,
            found.network,
            policy=np.zeros(len(found.multiplier), np.int64),
            multiplier=found.multiplier,
            description="this critic",
            notes=[f"{what} {len(found.multiplier)} λ."],
            critic=np.array([coords.shown(x, 1.0) for x in found.estimate]),
            estimate=estimate,
        )

    def response(self, multiplier: Vector) -> tuple[NetworkArrays, int]:
        """A network, and the index of its policy that answers any λ `[m]`."""
        if self.exact is not None:
            return self.exact(multiplier), 0
        unit = np.maximum(self.multiplier.max(axis=0), np.finfo(np.float64).tiny)
        nearest = np.linalg.norm((self.multiplier - multiplier) / unit, axis=1).argmin()
        return self.network, int(self.policy[nearest])


@dataclass(frozen=True)
class TrainingInputs:
    """What a training begins with.

    Attributes:
        data: the transitions.
        train: the schedule.
        coords: from heads to the coordinates of the limits.
        bound: `[m]` above which no λ is looked for.
        money: the limit along whose axis the curve runs.
        learn_rows: `[n]` rows to learn from.
        seed: of everything random.
    """

    data: Transitions
    train: Train
    coords: Coordinates
    bound: Vector
    money: int
    learn_rows: NDArray[np.int64]
    seed: int

    @property
    def discount(self) -> float:
        """γ."""
        return self.data.campaign.meta.discount

    @cached_property
    def derived(self) -> Determined:
        """Costs that follow from action and reward."""
        return determined_costs(self.data, self.learn_rows, self.coords.spread)


@dataclass(frozen=True)
class Task:
    """What a learner is given.

    Attributes:
        learner: the name by which it was chosen.
        data: the transitions.
        campaign: limits and settings as used.
        coords: from heads to the coordinates of the limits.
        bound: `[m]` above which no λ is looked for.
        rows: `[n]` rows to learn from.
        seed: of everything random.
        folder: of the checkpoints.
        resume: whether to go on from them.
        elsewhere: trains the networks of a learner to the end on other machines, which leave its last checkpoint in a
            folder; None: they are trained here.
    """

    learner: str
    data: Transitions
    campaign: Campaign
    coords: Coordinates
    bound: Vector
    rows: NDArray[np.int64]
    seed: int
    folder: Path
    resume: bool
    elsewhere: Elsewhere | None = None

    @property
    def inputs(self) -> tuple[Transitions, Train, Coordinates, Vector, int, NDArray[np.int64], int]:
        """The fields of `TrainingInputs`."""
        return self.data, self.campaign.train, self.coords, self.bound, self.campaign.money, self.rows, self.seed

    @property
    def resumes(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return self.resume and self.folder.exists()

    @property
    def key(self) -> TrainingKey:
        """What a checkpoint must agree with."""
        return TrainingKey.of(self.data, self.campaign, "frontier", self.learner, self.seed)


class Learner(Protocol):
    """A way to learn best responses.

    Attributes:
        WITHOUT_LUCK: whether it learns from amounts with their luck taken out (`learning/outcomes.py`).
    """

    WITHOUT_LUCK: bool

    def learn(self, task: Task, report: Progress) -> BestResponses:
        """Learn from the task's rows; `report` is told the share done and what is being done.

        Raises:
            OutlayError: if the data or a setting do not suit it.
        """
        ...
