"""What the state says of rows: whether it is enough, whether actions depend on more, and whether days differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.cached import cached_property
from outlay.estimators.balance import BalanceCheck, balance_check
from outlay.estimators.day_effects import DayEffects, day_effects
from outlay.estimators.markov import MarkovCheck, markov_check
from outlay.estimators.panel import Panel
from outlay.estimators.row_features import WITHIN, Block, Products, hinges
from outlay.estimators.state_residuals import ROWS, off_state


@dataclass(frozen=True)
class StateModel:
    """The state of the rows of a panel, as columns that are linear in what follows.

    Attributes:
        panel: the rows.
        window: days that means are over; None: discounted.
        columns: in blocks of `[n, d]`; None where states are counted.
    """

    panel: Panel
    window: int | None
    columns: Sequence[Block] | None

    @classmethod
    def of(
        cls, panel: Panel, window: int | None, plain: NDArray[np.float32], numbers: NDArray[np.float32]
    ) -> StateModel:
        """Columns for states that are too many to count.

        Args:
            panel: the rows.
            window: days that means are over.
            plain: `[n, d]` plain features (`row_features.py`).
            numbers: `[n, F']` the numeric fields.
        """
        square, bent = np.clip(plain, -WITHIN, WITHIN) ** 2, hinges(numbers, panel.first[panel.user])
        return cls(panel, window, [plain, square, bent, Products.of(plain, len(panel) // ROWS - 3 * plain.shape[1])])

    @cached_property
    def markov_check(self) -> MarkovCheck:
        """Whether the state is enough: whether the days before say no more, given state and action."""
        return markov_check(self.panel, self._time, self.columns)

    @cached_property
    def day_effects(self) -> DayEffects:
        """How days differ, given state and action, and what that adds to errors."""
        return day_effects(self.panel, self._time, self.columns, self.window)

    def balance(self, propensity: NDArray[np.float64]) -> BalanceCheck:
        """Whether actions, weighted by `[n]` propensities of the logged ones, are unrelated to the days before."""
        return balance_check(self.panel, self._time, self.columns, propensity)

    def residuals(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """`[r, 1+m]` what state and action leave of reward and costs in some rows of the panel."""
        return off_state(self.panel, rows, self.columns, self.panel.outcome[rows])

    @property
    def _time(self) -> NDArray[np.int64]:
        """`[n]` calendar day of each row."""
        data, panel = self.panel.data, self.panel
        return data.first_times()[data.user[panel.rows]] + panel.day
