"""Bounds for looking at a test more than once: spending bounds and confidence sequences.

**Planned decisions** spend the error α gradually. After a fraction t of the test, α*(t) may have been spent, half of it
on either side; the bound c_k of decision k is the solution of

    P(|Z_1| < c_1, …, |Z_{k−1}| < c_{k−1}, |Z_k| ≥ c_k) = α*(t_k) − α*(t_{k−1})       under no effect
    α*(t) = 4·(1 − Φ(z_{1−α/4} / √t))                                                  like O'Brien and Fleming

where Z_k √I_k is a Brownian motion at the information I_k = 1/se_k², and se_k is the error of a daily effect. The
fractions t are of the calendar, which is known; the correlations come from the observed information. So no forecast of
the final variance is needed, and all of α is spent by the end, whatever the information then is. If information falls
from one decision to the next, as when spending explodes, the looks are treated as if it had grown by that factor.

Users come back every day, so days are not independent, and a ramp adds users. For decisions a week or more apart this
hardly matters; for daily ones it would (`benchmarks/experiment_dependence.py`).

**Guardrails** may be looked at on any day, planned or not: θ̂_t ± h_t holds the truth on *all* days at once,

    h_t = se_t · √( 2 (tρ² + 1) / (tρ²) · ln(√(tρ² + 1) / α) )

where t is the number of days so far and ρ is tuned so that the sequence is narrowest at the planned end. The theorem
assumes that days bring equal and independent information, which they do not. But Σ_t 2·(1 − Φ(h_t / se_t)), an upper
bound on the error under any dependence, is 0.025 over 14 days and 0.048 over 28 (α = 0.05). So up to four weeks, the
guarantee needs no assumption about days, ramps or users; for longer tests, it rests on the same benchmark. Every day
has its own true effect, since totals grow and effects build up. The intervals cover all of them; their intersection
need not cover any.

Source: Lan and DeMets 1983, 1989 (calendar time); Armitage, McPherson and Rowe 1969 for the recursion, on
Gauss–Legendre nodes; Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024 (Annals of Statistics 52), Theorem 2.2.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import lambertw, ndtr, ndtri

Array = NDArray[np.float64]

WIDEST = 8.0  # in standard errors: a bound beyond it would spend less than 1e-15
SLOWEST = 1e-3  # least relative growth of information between decisions; less counts as this
NODES_PER_STEP = 2  # integration nodes per standard deviation of a step


class _Going(NamedTuple):
    """The tests that have crossed no bound yet: the score Z√I, its density times the weights, and I."""

    score: Array
    mass: Array
    information: float


def obrien_fleming(fraction: ArrayLike, alpha: float) -> Array:
    """The two-sided error that may have been spent after each fraction of a test: 0 at 0, `alpha` at 1.

    Args:
        fraction: `[K]` of the planned length, in [0, 1].
        alpha: of the whole test, in (0, 1).
    """
    t = np.asarray(fraction, np.float64)
    with np.errstate(divide="ignore"):
        spent: Array = 4 * ndtr(ndtri(alpha / 4) / np.sqrt(t))
    return spent


def spending_bounds(information: ArrayLike, spent: ArrayLike) -> Array:
    """The bounds on |Z| at each decision so far.

    Args:
        information: `[K]` 1/se² at each decision, of an effect that does not itself grow; only ratios matter, and a
            fall counts as a rise.
        spent: `[K]` error that may have been spent by then, increasing.

    Returns:
        `[K]` bounds, at most `WIDEST`.

    Raises:
        ValueError: if the lengths differ, or the information is not positive and finite.
    """
    added = np.diff(np.asarray(spent, np.float64), prepend=0.0)
    info = _growing(information, len(added))
    bounds = np.zeros(len(added))
    going: _Going | None = None
    for k, budget in enumerate(added):
        bounds[k] = _solve(going, info[k], float(budget))
        going = _go_on(going, info[k : k + 2], bounds[k])
    return bounds


def tuned_rho(end: float, alpha: float) -> float:
    """The ρ with which a confidence sequence is narrowest at time `end`.

    Source: the root of the derivative of h in tρ²: tρ² = −W₋₁(−α²/e) − 1.
    """
    return math.sqrt((-float(lambertw(-(alpha**2) / math.e, k=-1).real) - 1) / end)


def sequence_half_width(std_error: ArrayLike, time: ArrayLike, rho: float, alpha: float) -> Array:
    """Half widths of a confidence sequence: with probability 1 − α, none of its intervals misses the truth.

    Args:
        std_error: of the estimate at each time.
        time: > 0, in the unit in which `rho` was tuned.
        rho: > 0, fixed before the first look (`tuned_rho`).
        alpha: in (0, 1).
    """
    s = np.asarray(time, np.float64) * rho**2
    wide: Array = np.asarray(std_error, np.float64) * np.sqrt(2 * (s + 1) / s * np.log(np.sqrt(s + 1) / alpha))
    return wide


def _growing(information: ArrayLike, decisions: int) -> Array:
    """The information, made increasing: a fall counts as a rise, and each step is at least `SLOWEST`."""
    seen = np.array(information, np.float64)
    if seen.shape != (decisions,) or not np.all((seen > 0) & np.isfinite(seen)):
        raise ValueError(f"information is {seen.tolist()} for {decisions} decisions; must be positive, one for each")
    steps = np.maximum(np.abs(np.diff(np.log(seen))), math.log1p(SLOWEST))
    grown: Array = np.exp(np.concatenate([[0.0], np.cumsum(steps)]))
    return grown


def _crossing(going: _Going | None, information: float, bound: float) -> float:
    """P(|Z| ≥ bound now, and no bound crossed before)."""
    if going is None:
        return float(2 * ndtr(-bound))
    edge, step = bound * math.sqrt(information), math.sqrt(information - going.information)
    beyond = ndtr((going.score - edge) / step) + ndtr((-going.score - edge) / step)
    return float(going.mass @ beyond)


def _solve(going: _Going | None, information: float, budget: float) -> float:
    if budget <= _crossing(going, information, WIDEST):
        return WIDEST
    return float(brentq(lambda c: _crossing(going, information, c) - budget, 0.0, WIDEST, xtol=1e-12))


def _go_on(going: _Going | None, information: Array, bound: float) -> _Going | None:
    """The tests that stay inside the bound; `information` is that of this decision and, if there is one, the next."""
    if len(information) < 2:
        return None
    edge = bound * math.sqrt(information[0])
    step = math.sqrt(information[0] - (going.information if going else 0.0))
    shortest = min(step, math.sqrt(information[1] - information[0]))  # what the nodes must resolve
    nodes, weights = _gauss(max(1, math.ceil(2 * NODES_PER_STEP * edge / shortest / 64)))
    score, weights = edge * nodes, edge * weights
    if going is None:
        density = _normal(score / step) / step
    else:
        density = _normal((score[:, None] - going.score) / step) @ going.mass / step
    return _Going(score, weights * density, float(information[0]))


@lru_cache(maxsize=64)
def _gauss(blocks: int) -> tuple[Array, Array]:
    """Nodes and weights on [−1, 1], 64 a block."""
    nodes, weights = np.polynomial.legendre.leggauss(64 * blocks)
    return nodes, weights


def _normal(x: Array) -> Array:
    density: Array = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
    return density
