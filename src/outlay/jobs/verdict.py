"""One sentence that says what to do."""

from __future__ import annotations

from collections.abc import Sequence

from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.estimators.certificate import Certificate
from outlay.estimators.units import objective

CLEARLY_WORSE = -0.01  # of the old policy's value: an estimate below it is no reason for a test
THIN = "A longer or larger log, or fewer actions, may carry an answer."
BEYOND = "Its estimate itself is beyond the limit: take a policy that keeps it with room to spare."
DOUBTED = (
    "Outcomes depend on something that the features do not tell, or days differ: add it to log.features, or test the "
    "policy on some users."
)


def verdict(
    estimates: Sequence[Estimate],
    certificate: Certificate,
    campaign: Campaign,
    policy: str = "mixture",
    *,
    doubt: str | None = None,
) -> str:
    """Serve `policy`, do not serve it, or test first: with the figures behind it.

    Args:
        estimates: of it and of the old policy.
        certificate: of it.
        campaign: budgets, and what the reward is called.
        policy: its name in the estimates.
        doubt: why fitted values are not believed, or None.
    """
    old = _find(estimates, "old", "fqe", objective(campaign))
    sure = f"{100 * certificate.confidence:.4g} % sure"
    limits = " and ".join(f"{b.name} {b.words}" for b in campaign.budgets)
    if certificate.withheld is not None:
        way_out = DOUBTED if certificate.withheld == doubt else THIN
        return f"Do not serve it: {certificate.words}. {way_out}"
    if not certificate.certified:
        if any(line.value is not None and (line.value < line.limit) == line.floor for line in certificate.budgets):
            return f"Do not serve it: {certificate.words}. {BEYOND}"
        return f"Do not serve it yet: {certificate.words}. More users, or a lower limit in training, would certify it."
    if certificate.gain is None or certificate.gain_bound is None or old is None or not old.value:
        return f"The limit is certified ({limits}, {sure}), but the gain over the old policy could not be measured."
    gain, least = (value / abs(old.value) for value in (certificate.gain, certificate.gain_bound))
    change = f"{100 * gain:+.1f} % {campaign.reward_label}"
    floor = f"{sure} of {100 * least:+.1f} % at least"
    spend = _spend(estimates, campaign, policy)
    if least > 0:
        return f"Serve it: {change} against the old policy ({floor}){spend}, and {limits} is certified."
    claim = f"No gain over the old policy can be claimed ({change}, {floor}){spend}, though {limits} is certified"
    if gain < CLEARLY_WORSE:
        return f"{claim}: keep the old policy, unless saving is the aim."
    return f"{claim}: test it against the old policy before it is served to all (outlay experiment plan)."


def _find(estimates: Sequence[Estimate], policy: str, estimator: str, target: str) -> Estimate | None:
    for e in estimates:
        if (e.policy, e.estimator, e.target) == (policy, estimator, target) and e.value is not None:
            return e
    return None


def _spend(estimates: Sequence[Estimate], campaign: Campaign, policy: str) -> str:
    """` at 14 % less coupon_cost`, against the old policy's money budget."""
    budget = campaign.budgets[campaign.money]
    new, old = (_find(estimates, name, "fqe", budget.name) for name in (policy, "old"))
    if new is None or old is None or not old.value or new.value is None:
        return ""
    change = 100 * (new.value / old.value - 1)
    if abs(change) < 0.5:
        return f" at the same {budget.name}"
    return f" at {abs(change):.0f} % {'less' if change < 0 else 'more'} {budget.name}"
