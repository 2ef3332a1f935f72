"""The grade of an evaluation, and what an unlogged cause of the log's actions would have to weigh to undo it.

    certified       every limit is certified and a gain is certain
    held            the same, but that a cap holds the money budget while serving, and no proof of it was asked for
    promising       the limits are kept by the estimates, and a gain is likely: test it first
    not supported   anything else: a check was not passed, a limit is broken, or no gain is likely

A gain is certain where its bound at the certificate's confidence is above 0, and likely where its bound at the
one-sided confidence `LIKELY` is: of policies that gain nothing, one in ten is called promising at most. It is the gain
over the old policy; where the limits rule that one out and no gain over it is certain, over the best constant actions.

Where propensities were estimated nothing is certified (`certificate.unless_unassigned`): whatever else drove the log's
actions biases all numbers, and no check can see that. `log.randomised = true` declares that nothing did.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.campaign import Campaign
from outlay.core.estimate import Target
from outlay.estimators.certificate import Certificate
from outlay.estimators.sensitivity import Sensitivity, WorstCase
from outlay.estimators.units import days_counted
from outlay.evaluating.constants import AgainstConstants

Grade = Literal["certified", "held", "promising", "not supported"]


def grade(certificate: Certificate, constants: AgainstConstants | None = None, *, ruled_out: bool = False) -> Grade:
    """Grade an evaluation by its certificate.

    Args:
        certificate: of the policy.
        constants: it beside the best constant actions at its spend; needed where the old policy is ruled out.
        ruled_out: whether the limits rule the old policy out (`ruled_out.py`).
    """
    if certificate.withheld is not None or certificate.gain is None:
        return "not supported"
    sure, likely = certificate.gain_bound, certificate.gain_likely
    if ruled_out and not (sure is not None and sure > 0):
        if constants is None or not constants.keep:  # nothing else that was measured keeps the limits
            sure = likely = np.inf
        else:
            sure, likely = constants.gain_bound, constants.gain_likely
    if (certificate.certified or certificate.held) and sure is not None and sure > 0:
        return "certified" if certificate.certified else "held"
    kept = (
        line.value is not None and line.keeps(line.value)
        for line in certificate.budgets
        if line.budget != certificate.held
    )
    return "promising" if likely is not None and likely > 0 and all(kept) else "not supported"


def sensitivity(
    measure: Measure, policy: EvaluatedPolicy, certificate: Certificate, campaign: Campaign
) -> Sensitivity | None:
    """How far the claims of a certificate stand; None where the assignment is known, or every row is forced."""
    panel = measure.panel
    free = np.flatnonzero(~panel.forced)
    if campaign.log.known_assignment or not len(free) or certificate.withheld is not None:
        return None
    given = np.zeros((len(free), measure.data.num_actions))
    for part, weight in zip(policy.parts, policy.weights, strict=True):
        target = panel.follow(part)
        given += weight * target.table[target.kind[free]]
    worst = WorstCase.of(given, measure.action_probability(free), panel.action[free], measure.state.residuals(free))
    days, effects = days_counted(campaign), measure.state.day_effects

    def stands(name: str, margin: float, span: int, side: int) -> float:
        lasting = effects.lasting(Target(name, span if span > 1 else certificate.window))
        return worst.stands(panel.names.index(name), margin / (span * lasting), side)

    bound = certificate.gain_bound
    gain = None if bound is None or bound <= 0 else stands("reward", bound, days, -1)
    limits = {
        line.budget: stands(
            line.budget,
            abs(line.limit - line.bound),
            campaign.meta.horizon_days if budget.per == "user" else 1,
            -1 if line.floor else 1,
        )
        for line, budget in zip(certificate.budgets, campaign.budgets, strict=True)
        if line.kept and line.bound is not None
    }
    return Sensitivity(gain, limits)
