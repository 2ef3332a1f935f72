"""The multiplier player: the λ of the next best response.

    ogd     λ ← clip(λ + (x_c − limit) / √t, 0, λ_max)                                          λ₁ = 0
    eg      λ_j = λ_max,j · z_j,   z ∝ exp(η_t Σ λ_max,j (x_c,j − limit_j)),  with one z more, for "no price"
    bisect  λ = the middle of what is left of [0, λ_max]; the half that is left is told by whether the limit was kept
    duals   λ = (1 − s) · dual of the linear program over the policies so far + s · λ of the least upper bound

Without a bound on λ the regret, and so the duality gap of the averaged play, is unbounded where the limits cannot be
met. With it, after T rounds against exact best responses, for the mean policy μ̄ and the mean multiplier λ̄,

    max_π L(π, λ̄) − min_λ L(μ̄, λ) ≤ regret(T) / T,         L(π, λ) = r(π) − λᵀ(c(π) − limit)

Source: Zinkevich (2003) for ogd, its step 1/√t from Cai et al. (WSDM 2023), section 4.2, the bound is ours; Le,
Voloshin & Yue (2019) for eg, here with a step that needs no horizon; Xiao et al. (2019) for bisection; Wentges (1997)
for the smoothing of duals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def ogd_step(multiplier: Floats, excess: Floats, step_number: int, bound: Floats | float) -> Floats:
    """The next λ.

    Args:
        multiplier: `[m]` λ ≥ 0.
        excess: `[m]` x_c − limit in ≤ form, in the unit that λ is stepped in (scaled costs, or raw in the paper).
        step_number: t = 1, 2, ….
        bound: `[m]` λ_max.

    Returns:
        `[m]` the new λ in [0, bound].
    """
    moved: Floats = (multiplier + excess / step_number**0.5).clip(0, bound)
    return moved


def eg_multiplier(total: Floats, step_number: int, bound: Floats, largest: Floats) -> Floats:
    """λ of round t by exponentiated gradient: `[m]`, in the simplex Σ λ_j / bound_j ≤ 1.

    Args:
        total: `[m]` Σ excess of the rounds before.
        step_number: t = 1, 2, ….
        bound: `[m]` λ_max.
        largest: `[m]` bound on |excess|.
    """
    gains = np.append(bound * total, 0.0)
    exponents = gains * (np.log(len(gains)) / step_number) ** 0.5 / max(float((bound * largest).max()), 1e-300)
    weights = np.exp(exponents - exponents.max())
    shares: Floats = bound * (weights[:-1] / weights.sum())
    return shares


def bisected(over: Sequence[bool], bound: float) -> float:
    """λ of the next round of a bisection, for one limit: 0 first, and for good where the limit is kept there.

    Args:
        over: `[t]` whether the limit was broken in each round before.
        bound: λ_max.
    """
    if not over or not over[0]:
        return 0.0
    low, high = 0.0, bound
    for broken in over[1:]:
        middle = (low + high) / 2
        low, high = (middle, high) if broken else (low, middle)
    return (low + high) / 2


def smoothed(dual: Floats, best: Floats, share: float) -> Floats:
    """`[m]` a λ between the dual of the master program and the λ that has proved the least upper bound.

    The duals of early masters jump from end to end; asking near the best known λ needs fewer best responses.
    """
    between: Floats = share * best + (1 - share) * dual
    return between
