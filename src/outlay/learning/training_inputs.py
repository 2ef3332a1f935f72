"""What every training for a whole curve of limits begins with, whichever learner answers the multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Train
from outlay.core.transitions import Transitions
from outlay.learning.derived_costs import Determined, determined_costs
from outlay.learning.heads import Coordinates


@dataclass(frozen=True)
class TrainingInputs:
    """A training ready to begin.

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
    bound: NDArray[np.float64]
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
