"""The weaker of two bounds: the fitted evaluation's own, and that of an estimate that assumes less.

    U₁ = x₁ + above                                    right where the fitted evaluation is
    U₂ = x₂ + √(above² + k²·max(se₂² − se₁², 0))       right where the estimate that assumes less is
    U  = max(U₁, U₂)                                   P(truth > U) ≤ P(truth > U₂) ≤ α, whatever the bias of x₁

x₁ is the precise estimate, x₂ the one that assumes less (`path_bias.py`, or `fqe2`). U₂ keeps what rare events add to
the error of x₁, and takes what x₂ errs beyond that as normal.

Nothing narrower holds at every bias. A bound that trusts x₁ until a test of x₂ − x₁ refutes it, or that adds only what
of the difference is beyond c standard errors of it, misses by up to 100% between "no bias" and "a bias that the test
surely finds": the less precise x₂ is, the wider that gap. So no test is made, and no constant is chosen. The price is
the width of x₂ where x₁ is right; training leaves room for it (`certificate.margins`).

Source: Leeb and Pötscher (2005) for why no test of the bias may choose between the two; the bound: ours.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.ops.intervals import Spread, degrees, student

Array = NDArray[np.float64]


def further_error(error: ArrayLike, second_error: ArrayLike) -> Array:
    """`[…]` what the second estimate errs beyond the first: √(se₂² − se₁²), 0 where it errs less."""
    beyond: Array = np.square(np.asarray(second_error, np.float64)) - np.square(np.asarray(error, np.float64))
    return np.sqrt(np.maximum(beyond, 0.0))


def above_second(spread: Spread, second_error: ArrayLike, factor: float) -> Array:
    """`[…]` by how much U₂ lies above x₂, at the probability at which a normal's is `factor` = z.

    Args:
        spread: `[…]` how the first estimate errs.
        second_error: `[…]` standard error of the second.
        factor: z, or the k of many bounds together.
    """
    k = student(factor, degrees(spread.users)) if spread.clustered else factor
    reach: Array = np.hypot(spread.above(factor), k * further_error(spread.error, second_error))
    return reach


def hull(estimate: Estimate, second: Estimate) -> Estimate:
    """An estimate with the interval that holds its own and the second's; relied on only if the second is known."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    if second.value is None or second.low is None or second.high is None:
        why = second.withheld or second.caution
        assert why is not None
        caution = estimate.caution or Reason(ReasonKind.NO_SECOND, {"found": why})
        return replace(estimate, recommended=False, caution=caution)
    return replace(estimate, low=min(estimate.low, second.low), high=max(estimate.high, second.high))
