"""A mixed policy: draw one member per user and episode, keep it for the whole episode.

Drawing anew at every step is another policy with other costs (`docs/notation.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Member = TypeVar("Member")


@dataclass(frozen=True, slots=True)
class Mixture(Generic[Member]):
    """Members with weights; everything about it is linear: x(μ) = Σ αᵢ x(πᵢ).

    Attributes:
        members: k policies, or handles of policies; anything.
        weights: `[k]` α, a distribution.
        measurements: `[k, 1+m]` x(πᵢ): reward first, then the costs, in (1−γ)·J unless said otherwise.
    """

    members: tuple[Member, ...]
    weights: NDArray[np.float64]
    measurements: NDArray[np.float64]

    @property
    def measurement(self) -> NDArray[np.float64]:
        """`[1+m]` x(μ)."""
        return self.weights @ self.measurements
