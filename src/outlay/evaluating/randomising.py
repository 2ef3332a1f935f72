"""What it costs to draw some of the actions at random, so that the next log can certify.

    cost(ε) ≈ ε (V_old − V_even)          V_even: value of the policy that draws evenly among the allowed actions

in the unit of the objective; the same for money, as what it spends more. To first order in ε, as a share ε of decisions
changes the states of the others little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.choosing.estimates import PolicyEstimates, estimate_policy
from outlay.choosing.evaluated_policy import OLD, EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.campaign import Campaign
from outlay.core.wording import exact
from outlay.estimators.units import objective

SHARE = 0.05  # ε


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomisingCost:
    """What drawing some actions at random costs, by the fitted evaluation.

    Attributes:
        share: ε, of the decisions.
        reward: what it brings less, per day as the objective counts it; below 0: more.
        relative: the same relative to the old policy.
        spend: what it spends more, relative to the old policy; None where that spends nothing.
        words: that in a sentence.
    """

    share: float
    reward: float
    relative: float
    spend: float | None
    words: str


def randomising_cost(
    measure: Measure, old: PolicyEstimates, propensity: NDArray[np.float64], campaign: Campaign, *, doubted: bool
) -> RandomisingCost | None:
    """Estimate the cost; None where values are withheld.

    Args:
        measure: the users and their rows.
        old: estimates of the old policy.
        propensity: `[n]` of the logged action in each row.
        campaign: with the objective and the money.
        doubted: whether the fitted values failed a check.
    """
    allowed = measure.data.allowed(measure.panel.rows).astype(np.float64)
    count = allowed.sum(axis=1, keepdims=True)
    even = np.where(count > 0, allowed / np.maximum(count, 1), 1 / allowed.shape[1])
    policy = EvaluatedPolicy("even", "drawn evenly", (even,), OLD.weights, OLD.features, "even")
    drawn = estimate_policy(measure, policy, propensity, estimators=("fqe",))
    money = campaign.budgets[campaign.money].name

    before, after, spent, more = (
        float(each.fitted.value[each.fitted.column(target)])
        for target in (objective(campaign), money)
        for each in (old, drawn)
    )
    if not np.isfinite(before) or not np.isfinite(after) or before == 0:
        return None
    cost, relative = SHARE * (before - after), SHARE * (before - after) / abs(before)
    spend = SHARE * (more - spent) / spent if np.isfinite(more) and spent > 0 else None
    return RandomisingCost(
        share=SHARE,
        reward=cost,
        relative=relative,
        spend=spend,
        words=_words(relative, spend, campaign.told("reward"), campaign.told("budgets", money), doubted=doubted),
    )


def _words(relative: float, spend: float | None, reward: str, money: str, *, doubted: bool) -> str:
    spends = "" if spend is None else f" and {money} by {100 * spend:+.2g}%"
    return (
        f"From now on, draw the action of {exact(SHARE)} of the decisions evenly at random, and log the propensity of "
        f"every action (log.propensity): only such a log can be certified. By this evaluation it changes {reward} by "
        f"about {-100 * relative:+.2g}%{spends}, which is {exact(SHARE)} of the difference between even draws and the "
        f"old policy{' (a rough figure, since a check was not passed)' if doubted else ''}."
    )
