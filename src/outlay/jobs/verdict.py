"""One sentence that says what to do."""

from __future__ import annotations

from collections.abc import Sequence

from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.estimators.certificate import Certificate
from outlay.estimators.units import objective


def verdict(estimates: Sequence[Estimate], certificate: Certificate, campaign: Campaign) -> str:
    """Serve, do not serve, or test first: with the figures behind it."""
    goal = objective(campaign)
    old = _find(estimates, "old", "fqe", goal)
    sure = f"{certificate.confidence:.1%} sure".replace(".0%", "%")
    limits = " and ".join(f"{b.name} {b.words}" for b in campaign.budgets)
    spend = _spend(estimates, campaign)
    if not certificate.certified:
        return f"Do not serve it yet: {certificate.words}. Take more users or a lower limit in training."
    if certificate.gain is None or certificate.gain_bound is None or old is None or not old.value:
        return f"The budget is certified ({limits}, {sure}), but the gain over the old policy could not be measured."
    gain, least = (100 * value / abs(old.value) for value in (certificate.gain, certificate.gain_bound))
    if certificate.gain_bound > 0:
        return (
            f"Serve it: {gain:+.1f} % reward against the old policy ({sure} of {least:+.1f} % at least){spend}, "
            f"and {limits} is certified."
        )
    return (
        f"No gain over the old policy can be claimed ({gain:+.1f} %, at least {least:+.1f} %){spend}; {limits} is "
        "certified, so test it against the old policy before it is served to all."
    )


def _find(estimates: Sequence[Estimate], policy: str, estimator: str, target: str) -> Estimate | None:
    for e in estimates:
        if (e.policy, e.estimator, e.target) == (policy, estimator, target) and e.value is not None:
            return e
    return None


def _spend(estimates: Sequence[Estimate], campaign: Campaign) -> str:
    """`, at 14 % less coupon_cost`, against the old policy's money budget."""
    budget = campaign.budgets[campaign.money]
    new, old = (_find(estimates, policy, "fqe", budget.name) for policy in ("mixture", "old"))
    if new is None or old is None or not old.value or new.value is None:
        return ""
    change = 100 * (new.value / old.value - 1)
    if abs(change) < 0.5:
        return f" at the same {budget.name}"
    return f" at {abs(change):.0f} % {'less' if change < 0 else 'more'} {budget.name}"
