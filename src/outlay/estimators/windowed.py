"""Means over a window of the log in the place of discounted means, where the log cannot carry those.

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

from outlay.estimators.basis import Array
from outlay.estimators.joint import Joint
from outlay.ops.intervals import std_error

LITTLE = 0.05  # of the discounted weight: what may lie beyond the days that the log shows
BY_CHANCE = 2.0  # standard errors by which two figures of a discounted mean may differ
TRIFLE = 0.01  # of the value, beside

BEYOND = "/discounted"  # `reward/discounted`: the discounted mean of a policy whose `reward` is a mean over a window

J = TypeVar("J", bound=Joint)


def over_window(joint: J, names: Sequence[str], days: int | None) -> J:
    """The same quantities with the means over so many days under the names of the discounted ones; None: as it is.

    Args:
        joint: with `name` and `name@days` for each of the names.
        names: `reward`, the budgets, `decisions`.
        days: k. The discounted means follow as `name/discounted`.
    """
    if days is None:
        return joint
    sums = {name: joint.column(f"{name}@{days}") for name in names}
    kept = [(t, sums.get(target, t)) for t, target in enumerate(joint.targets)]
    extra = [(f"{name}{BEYOND}", joint.column(name)) for name in names]
    return joint.picked(
        targets=(*joint.targets, *(name for name, _ in extra)),
        columns=[*(source for _, source in kept), *(source for _, source in extra)],
        factor=[*(1.0 if source == t else 1 / days for t, source in kept), *(1.0 for _ in extra)],
    )


def extrapolated(joint: Joint, daily: Array, other: Joint | None, days: int, discount: float) -> str | None:
    """Why the discounted means beside means over a window are not to be relied on, or None.

    They are where the discount leaves little beyond the window, where the day that they imply for the time after it
    lies within what the later half of the window shows, and where a fit on another basis agrees.

    Args:
        joint: of `over_window`.
        daily: `[D, 1+m]` of the first, second, … day per user, D ≥ `days`.
        other: the same policy on another basis; None: there is none.
        days: k.
        discount: γ.
    """
    beyond = discount**days
    if beyond > LITTLE:
        return (
            f"{beyond:.0%} of its weight lies after the first {days} days, where it is extrapolated: take the means "
            "over those days, a longer log or a shorter discount"
        )
    if not np.isfinite(daily[:days]).all():
        return f"the days of the first {days} could not be measured one by one"
    today = daily[:days]
    shown = (1 - discount) * discount ** np.arange(days) @ today
    names = [target for target in joint.targets if target.endswith(BEYOND) and not target.startswith("decisions")]
    places = [joint.column(target) for target in names]
    value, error = joint.value[places], joint.std_error[places]
    later = today[days // 2 :]
    implied, slack = (value - shown) / beyond, BY_CHANCE * error / beyond
    for j, target in enumerate(names):
        if not later[:, j].min() - slack[j] <= implied[j] <= later[:, j].max() + slack[j]:
            name, low, high = target.removesuffix(BEYOND), later[:, j].min(), later[:, j].max()
            return (
                f"it implies {name} {implied[j]:.4g} a day after the first {days} days, where their later half shows "
                f"{low:.4g} to {high:.4g}"
            )
    if other is None:
        return None
    for target, place in zip(names, places, strict=True):
        there = other.column(target)
        off = abs(float(joint.value[place] - other.value[there]))
        chance = float(std_error(joint.influence[:, place] - other.influence[:, there]))
        if not off <= BY_CHANCE * chance + TRIFLE * abs(float(joint.value[place])):
            return f"a fit on another basis gives {other.value[there]:.4g} for {target.removesuffix(BEYOND)}"
    return None
