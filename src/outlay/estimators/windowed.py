"""Means over a window of the log in place of discounted means, if the log cannot support those.

    discounted    (1−γ) Σ_t γ^t x_t          the days after the log count γ^k of all, and are extrapolated
    over k days   (1/k) Σ_{t<k} x_t          by the recursion over the days left; nothing beyond the log is needed

Both weigh days with weights that sum to 1, so that all that follows — limits per decision, margins, mixtures, bounds —
is the same in either: budgets compare Σ c with limit · Σ decisions, whatever the weights of the days.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from outlay.core.target import Target
from outlay.estimators.joint import Joint
from outlay.estimators.linear.basis import Array

LITTLE = 0.05  # of the discounted weight: what may lie beyond the days that the log shows

J = TypeVar("J", bound=Joint)


def over_window(joint: J, names: Sequence[str], days: int | None) -> J:
    """Return the quantities with means over `days` days under the names of the discounted ones; None: unchanged.

    Args:
        joint: with `name` and `name@days` for each of the names.
        names: `reward`, the budgets, `decisions`.
        days: k. The discounted means follow as `name/discounted`.
    """
    if days is None:
        return joint
    sums = {name: joint.column(str(Target(name, days))) for name in names}
    kept = [(t, sums.get(target, t)) for t, target in enumerate(joint.targets)]
    extra = [(str(Target(name, kind="discounted")), joint.column(name)) for name in names]
    return joint.picked(
        targets=(*joint.targets, *(name for name, _ in extra)),
        columns=[*(source for _, source in kept), *(source for _, source in extra)],
        factor=[*(1.0 if source == t else 1 / days for t, source in kept), *(1.0 for _ in extra)],
    )


def discounted_weights(days: int, discount: float) -> Array:
    """`[k]` weights of the first k days in a discounted mean whose later days are as the later half of these.

    They are (1−γ)γᵗ, and the γᵏ that lies beyond them is spread evenly over that half.
    """
    weights = np.asarray((1 - discount) * discount ** np.arange(days), np.float64)
    late = days // 2
    weights[late:] += discount**days / (days - late)
    return weights


def room(daily: Array, least: Array, most: Array, days: int, discount: float) -> str | None:
    """Return why not to rely on a discounted mean that extrapolates the days shown, and where it must lie; or None.

    None if the discount leaves little weight beyond the window.

    Args:
        daily: `[D, 1+m]` of the first, second, … day per user, D ≥ `days`.
        least: `[1+m]` of a day in the log.
        most: the same.
        days: k.
        discount: γ.
    """
    beyond = discount**days
    if beyond <= LITTLE:
        return None
    shown = (1 - discount) * discount ** np.arange(days) @ daily[:days]
    low, high = shown + beyond * least, shown + beyond * most
    return (
        f"{beyond:.0%} of its weight lies after the first {days} days, which are taken to go on as their later half. "
        f"By what a day can bring it lies between {low[0]:.4g} and {high[0]:.4g} for the reward: take the means over "
        "those days, a longer log or a shorter discount"
    )
