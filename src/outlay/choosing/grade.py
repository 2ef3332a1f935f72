"""The grade of an evaluation, and what an unlogged cause of the log's actions would have to weigh to undo it.

    certified       every limit is certified and a gain is certain
    promising       the limits are kept and there is a gain by the estimates: test it first
    not supported   anything else: a check was not passed, a limit is broken, or there is no gain

Where propensities were estimated nothing is certified (`certificate.unless_unassigned`): whatever else drove the log's
actions biases all numbers, and no check can see that. `log.randomised = true` declares that nothing did.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from outlay.choosing.evaluated_policy import EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.campaign import Campaign
from outlay.core.target import Target
from outlay.estimators.certificate import Certificate
from outlay.estimators.sensitivity import Sensitivity, WorstCase
from outlay.estimators.units import days_counted

Grade = Literal["certified", "promising", "not supported"]


def grade(certificate: Certificate) -> Grade:
    """Grade an evaluation by its certificate."""
    gain, least = certificate.gain, certificate.gain_bound
    if certificate.withheld is not None or gain is None or gain <= 0:
        return "not supported"
    if certificate.certified and least is not None and least > 0:
        return "certified"
    kept = (line.value is not None and (line.value >= line.limit if line.floor else line.value <= line.limit)
            for line in certificate.budgets)  # fmt: skip
    return "promising" if all(kept) else "not supported"


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
        line.budget: stands(line.budget, abs(line.limit - line.bound), campaign.meta.horizon_days
                            if budget.per == "user" else 1, -1 if line.floor else 1)
        for line, budget in zip(certificate.budgets, campaign.budgets, strict=True)
        if line.kept and line.bound is not None
    }  # fmt: skip
    return Sensitivity(gain, limits)
