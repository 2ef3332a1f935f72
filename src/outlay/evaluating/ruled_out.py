"""Whether the limits of a campaign rule out the log's own policy: then it is no alternative, however much it brings.

A policy is held against what may be served instead of it. That is the old policy, as long as it keeps the limits; where
it surely breaks one, it is the best constant actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate


@dataclass(frozen=True, slots=True)
class BrokenLimit:
    """A limit that the old policy breaks.

    Attributes:
        budget: its name.
        value: what the old policy costs or brings of it, in its unit.
        limit: the limit in words, `at most 1 per decision`.
    """

    budget: str
    value: float
    limit: str


def ruled_out(estimates: Sequence[Estimate], campaign: Campaign) -> tuple[BrokenLimit, ...]:
    """Return the limits that the old policy breaks by more than its interval; empty where it may be served.

    Args:
        estimates: of the old policy, among others.
        campaign: its limits.
    """
    broken = []
    for budget in campaign.budgets:
        of = (e for e in estimates if (e.policy, e.estimator, e.target) == ("old", "fqe", budget.name))
        if (e := next(of, None)) is None or e.value is None:
            continue
        nearest = e.low if budget.sign > 0 else e.high
        if budget.sign * ((e.value if nearest is None else nearest) - budget.limit) > 0:
            broken.append(BrokenLimit(budget.name, e.value, budget.words))
    return tuple(broken)
