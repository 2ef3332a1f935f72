"""How much of a measured objective is luck, and what is left without it.

Policies of a family have much in common: a line of another estimate of theirs, a curve that bends down as they cost
more. What one of them is measured at beyond that is kept as far as it is more than noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from outlay.ops.concave import concave_fit
from outlay.ops.intervals import std_error

TINY = 1e-12
LEAST_NOISE = 1e-6  # of the largest: policies that give nothing have none
BY_LUCK = 0.05  # chance at which what is off a curve is taken for no luck
BEND = 1e-3  # of the range of a family's objectives
ROUNDS = 10  # in which the spread about a line settles

Vector = NDArray[np.float64]


def shrunk(steady: Vector, steady_influence: Vector, free: Vector, free_influence: Vector) -> tuple[Vector, Vector]:
    """Return a line of `steady` through `free`, and of what is off it as much as is no noise, `[L]`; and influences.

        free_l  =  a + b · steady_l + δ_l               over the policies l of a family
        value_l =  a + b · steady_l + c δ_l             c = (1 − Σ se(δ_l)² / Σ δ_l²)⁺

    The best mixture of measured policies is a mixture of lucky ones, the more so the noisier they are measured. What
    days in a row do to each other has much in common for the policies of a family, and `free` is too noisy to tell more
    of it than that in a small log.

    A policy that seldom gives anything is measured well, and should stay where it is, so the line is fitted with
    weights 1 / (se² + s²), by the noise of each and the spread s² of all about it. In a small log b may be anything. If
    it is not above 0, the policy that does nothing would look best; then it is shrunk towards 1, a prior of 1 ± 1.

    Args:
        steady: `[L]` estimates with little noise of the same policies, which may be off in level and size.
        steady_influence: `[G, L]`.
        free: `[L]` estimates of the policies themselves.
        free_influence: `[G, L]`.

    Source: James and Stein (1961), the positive part, towards a line (Efron and Morris 1973); the weights and s² by
    moments as in Fay and Herriot (1979).
    """
    gap, of_gap = free - steady, free_influence - steady_influence
    noise = std_error(of_gap) ** 2
    noise = noise + (LEAST_NOISE * float(noise.max()) or 1.0)
    spread = 0.0
    for _ in range(ROUNDS):
        weight = 1 / (noise + spread)
        level = weight / weight.sum()
        about = steady - level @ steady
        slope = weight * about / max(float(weight @ about**2), TINY)
        held = 1.0 if slope @ gap > -1 else 1 / (1 + float(std_error(of_gap @ slope)) ** 2)
        onto = level + held * np.outer(about, slope)
        off, of_off = gap - onto @ gap, of_gap - of_gap @ onto.T
        luck = std_error(of_off) ** 2
        freedom = float(weight @ (1 - np.diag(onto)))
        spread = max(0.0, float(weight @ (off**2 - luck)) / max(freedom, TINY))
    return _beyond_noise(free, free_influence, off, of_off)


def concave(values: Vector, influence: Vector, cost: Vector) -> tuple[Vector, Vector]:
    """Return a concave function of cost through `values`, and of what is off it as much as chance does not do.

    Each further unit of money brings best responses less. As measured it does not: luck bends their curve back and
    forth, and the best mixture of points on it would be of distant ones, which bring less than one policy between them.
    Where the fit is straight, `BEND` of its range makes the nearest ones the best.

    Policies that answer nearly the same price err together, so what luck alone puts off the curve varies widely. So of
    what is off it, more is taken for luck than James and Stein do: what luck exceeds in one family of twenty.

        value_l = f(cost_l) + c δ_l         c = (1 − q Σ se(δ_l)² / Σ δ_l²)⁺,    q = χ²_{d, 95%} / d
        d = (tr S)² / tr S²                 S: covariance of the δ_l (Satterthwaite)

    Args:
        values: `[L]`.
        influence: `[G, L]`.
        cost: `[L]`.
    """
    noise = std_error(influence) ** 2
    onto = concave_fit(cost, values, 1 / (noise + (LEAST_NOISE * float(noise.max()) or 1.0)))
    off, of_off = values - onto @ values, influence - influence @ onto.T
    fitted, of_fitted = _beyond_noise(values, influence, off, of_off, by_luck(of_off))
    away = (cost - cost.mean()) / max(float(np.ptp(cost)), TINY)
    return fitted - BEND * np.ptp(fitted) * away**2, of_fitted


def by_luck(influence: Vector) -> float:
    """Return how much more than its mean the sum of squares of errors with these influences `[G, L]` may be by luck."""
    together = influence.T @ influence
    trace, square = float(np.trace(together)), float((together**2).sum())
    freedom = trace**2 / square if square > 0 else 1.0
    return float(chdtri(freedom, BY_LUCK)) / freedom


def _beyond_noise(
    values: Vector, influence: Vector, off: Vector, of_off: Vector, times: float = 1.0
) -> tuple[Vector, Vector]:
    """Values `[L]` less the share of `off` `[L]`, what they are off a curve, that `times` its noise may be."""
    luck, square = times * float((std_error(of_off) ** 2).sum()), float(off @ off)
    noise = min(1.0, luck / square) if square > 0 else 1.0
    return values - noise * off, influence - noise * of_off
