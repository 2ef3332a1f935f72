"""A constrained Markov decision process small enough to write down: the truth behind a simulated campaign, or a count.

    max over policies π of  J_r(π)   subject to   J_c(π) ≤ limits,      J(π) = E Σ_t γ^t x(s_t, a_t)

Arrays, with S states, A actions and m costs; `reward` and `cost` are expectations given state and action. A story that
ends is a state that leads only to itself and brings and costs nothing.

Source: Altman (1999), Constrained Markov Decision Processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.core.errors import OutlayError

SUM_TOLERANCE = 1e-8  # how far probabilities may add up from 1: rounding of a few thousand terms, not a missing state


class ModelError(OutlayError, ValueError):
    """An array of a tabular model has the wrong shape or an impossible value."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TabularCMDP:
    """States, actions, what they bring and cost, and where they lead. Arrays are read-only copies in float64.

    Attributes:
        transition: `[S, A, S]` P(s' | s, a).
        reward: `[S, A]` E[r | s, a].
        cost: `[S, A, m]` E[c | s, a], one column a budget; m may be 0.
        start: `[S]` distribution of the first state.
        discount: γ in [0, 1), per step.

    Raises:
        ModelError: naming the array, the place, what is expected there and what was found.
    """

    transition: NDArray[np.float64]
    reward: NDArray[np.float64]
    cost: NDArray[np.float64]
    start: NDArray[np.float64]
    discount: float

    def __post_init__(self) -> None:
        for name in ("transition", "reward", "cost", "start"):
            object.__setattr__(self, name, _read_only(name, getattr(self, name)))
        if self.transition.ndim != 3 or self.transition.shape[0] != self.transition.shape[2]:
            raise ModelError(f"shape is {self.transition.shape}; expected [S, A, S].", where="transition")
        S, A, _ = self.transition.shape
        if S == 0 or A == 0:
            raise ModelError(f"shape is {self.transition.shape}; expected a state and an action.", where="transition")
        _check_shape("reward", self.reward, (S, A))
        if self.cost.ndim != 3 or self.cost.shape[:2] != (S, A):
            raise ModelError(f"shape is {self.cost.shape}; expected ({S}, {A}, m), m the budgets.", where="cost")
        _check_shape("start", self.start, (S,))
        _check_distribution("transition", self.transition)
        _check_distribution("start", self.start)
        if not 0 <= self.discount < 1:
            raise ModelError(f"is {self.discount}; expected 0 <= discount < 1.", where="discount")

    @property
    def num_states(self) -> int:
        """S, the states."""
        return int(self.reward.shape[0])

    @property
    def num_actions(self) -> int:
        """A, the actions."""
        return int(self.reward.shape[1])

    @property
    def num_costs(self) -> int:
        """The budgets, m of them."""
        return int(self.cost.shape[2])

    @property
    def outcome(self) -> NDArray[np.float64]:
        """`[S, A, 1+m]` reward first, then the costs."""
        return np.concatenate([self.reward[:, :, None], self.cost], axis=2)


def _read_only(name: str, value: object) -> NDArray[np.float64]:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelError("is not an array of numbers.", where=name) from None
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        raise ModelError(f"holds {array[place]}; expected finite numbers.", where=_cell(name, place))
    array.flags.writeable = False
    return array


def _check_shape(name: str, array: NDArray[np.float64], expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise ModelError(f"shape is {array.shape}; expected {expected}.", where=name)


def _check_distribution(name: str, array: NDArray[np.float64]) -> None:
    """Refuse negative entries, and rows (along the last axis) that do not add up to 1."""
    negative = np.argwhere(array < 0)
    if len(negative):
        place = tuple(int(i) for i in negative[0])
        raise ModelError(f"holds {array[place]}; expected probabilities, 0 or more.", where=_cell(name, place))
    total = array.sum(axis=-1)
    off = np.argwhere(np.abs(total - 1) > SUM_TOLERANCE)
    if len(off):
        place = tuple(int(i) for i in off[0])
        raise ModelError(f"adds up to {total[place]:.9g}; expected 1.", where=_cell(name, place))


def _cell(name: str, place: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, place))}]" if place else name
