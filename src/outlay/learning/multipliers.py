"""The multiplier player: online gradient descent on λ, kept in a box.

    λ ← clip(λ + (x_c − limit) / √t, 0, λ_max)

Without the bound the regret, and so the duality gap of the averaged play, is unbounded when the limits cannot be met.

Source: Zinkevich (2003); the step 1/√t is Cai et al. (WSDM 2023), section 4.2; the bound is ours.
"""

from __future__ import annotations

from typing import Any


def ogd_step(multiplier: Any, excess: Any, step_number: Any, bound: Any) -> Any:
    """The next λ. Plain arithmetic: it serves NumPy arrays and compiled JAX steps alike.

    Args:
        multiplier: `[m]` λ ≥ 0.
        excess: `[m]` x_c − limit in ≤ form, in the unit that λ is stepped in (scaled costs, or raw in the paper).
        step_number: t = 1, 2, ….
        bound: `[m]` λ_max.

    Returns:
        `[m]` the new λ in [0, bound].
    """
    return (multiplier + excess / step_number**0.5).clip(0, bound)
