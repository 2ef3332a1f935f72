"""The regression behind a fitted value: which rows may speak, which pairs they say too little about.

Leverage φᵀG⁻¹φ is one over the number of rows that speak for a pair: 1/count where states are counted, and the same
idea between features. Above 1/`least_rows` a pair is thin and takes the state-free mean of its action.

Source: Hoaglin & Welsch (1978) for leverage; the rule for thin pairs: ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.estimators.basis import Array, Basis, Matrix, Pairs, Solver
from outlay.estimators.panel import Panel


@dataclass(frozen=True)
class Regression:
    """What is the same for every outcome regressed on φ over the usable rows.

    Attributes:
        rows: `[b]` the usable rows of the panel.
        logged: `[b]` their pairs.
        taken: `[n]` what the policy does in every row of the panel; thin pairs are state-free.
        gram: `[P, P]` Σ φφᵀ, and below it the equations of the state-free coordinates.
        inflation: `[b]` 1/√(1 − leverage), the leverage of a row counted as one half at most.
        seen: `[K]` actions that some usable row took.
    """

    rows: NDArray[np.intp]
    logged: Pairs
    taken: Pairs
    gram: Matrix
    inflation: Array
    seen: NDArray[np.bool_]

    @cached_property
    def solver(self) -> Solver:
        """Of the Gram matrix, factorised at first use."""
        return Solver(self.gram)

    @property
    def thin(self) -> NDArray[np.bool_]:
        """`[n]` rows in which too little is known about what the policy does."""
        return self.taken.rows < 0


def regress(
    panel: Panel, basis: Basis, policy: NDArray[np.intp], usable: NDArray[np.bool_], least_rows: int
) -> Regression:
    """The regression over the `usable` `[n]` rows, for a policy that takes `policy` `[n]`."""
    rows = np.flatnonzero(usable)
    logged = Pairs(rows, panel.action[rows])
    one = np.ones(len(rows))
    # The last K equations: a state-free coordinate is the mean of φᵀθ over the rows that took the action.
    gram = basis.regular(
        basis.moment(logged, logged, one)
        + basis.moment(logged.state_free, logged.state_free, one)
        - basis.moment(logged.state_free, logged, one)
    )
    every = np.arange(len(panel))
    thin = basis.leverage(Pairs(every, policy), gram) > (1 + 1e-6) / least_rows
    leverage = np.minimum(basis.leverage(logged, gram), 0.5)
    return Regression(
        rows=rows,
        logged=logged,
        taken=Pairs(np.where(thin, -1, every), policy),
        gram=gram,
        inflation=1 / np.sqrt(1 - leverage),
        seen=np.bincount(logged.actions, minlength=panel.data.num_actions) > 0,
    )


class Need:
    """How many of a policy's paths meet a thin pair, by action; a path met later counts γ^t.

    A path that meets one is worth the state-free mean from there on, so the share bounds the part of the value that the
    log does not carry: the visits after the meeting are no separate need.
    """

    def __init__(self, actions: Array) -> None:
        self._values = actions
        self._paths = np.zeros(len(actions))
        self._never = np.zeros(len(actions), np.bool_)

    def add(self, reg: Regression, rows: NDArray[np.intp], mass: Array) -> None:
        """Visits with `mass` `[…]` arrive at `rows` `[…]`, where the policy acts."""
        thin = reg.thin[rows]
        paths = np.bincount(reg.taken.actions[rows[thin]], mass[thin], len(self._paths))
        self._paths += paths
        self._never |= (paths > 0) & ~reg.seen

    @property
    def share(self) -> float:
        """Share of the policy's paths, at most 1."""
        return min(1.0, float(self._paths.sum()))

    def reason(self, support: float) -> str | None:
        """Why no number can be given, or None."""
        if self._never.any():
            action = self._values[int(np.argmax(self._paths * self._never))]
            return f"the policy gives {action:g}, which these users were never given in a row that can be used"
        if self.share <= support:
            return None
        action = self._values[int(np.argmax(self._paths))]
        return (
            f"{self.share:.1%} of the policy's paths meet states in which these users were hardly ever given what it "
            f"gives (most often {action:g}); at most {support:.1%} may"
        )
