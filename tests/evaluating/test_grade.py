from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from outlay.core.campaign import Campaign
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.certificate import Bounds, BudgetBound, Certificate, issue
from outlay.evaluating.checks import CHECKS
from outlay.evaluating.constants import AgainstConstants
from outlay.evaluating.grade import Grade, grade

LINE = BudgetBound(budget="cost", value=1.0, bound=1.05, limit=1.1, floor=False, kept=True)
SURE = Certificate(
    reason=None,
    confidence=0.975,
    users=1000,
    budgets=(LINE,),
    gain=0.2,
    gain_bound=0.1,
    gain_most=0.3,
    gain_likely=0.15,
)
BROKEN = Reason(ReasonKind.LIMIT)
REFUSED = Reason(ReasonKind.REPRODUCTION, {"target": "reward@7", "fitted": 1.0, "observed": 2.0})


@pytest.mark.parametrize(
    ("certificate", "expected"),
    [
        (SURE, "certified"),
        (replace(SURE, gain_bound=-0.1), "promising"),
        (replace(SURE, gain_bound=-0.1, gain_likely=-0.02), "not supported"),
        (replace(SURE, gain_bound=None, gain_likely=None), "not supported"),
        (replace(SURE, reason=BROKEN), "promising"),
        (replace(SURE, reason=BROKEN, budgets=(replace(LINE, value=1.2, kept=False),)), "not supported"),
        (replace(SURE, reason=BROKEN, budgets=(replace(LINE, floor=True, kept=False),)), "not supported"),
        (replace(SURE, gain=-0.1, gain_bound=-0.2, gain_likely=-0.15), "not supported"),
        (replace(SURE, gain=None, reason=REFUSED), "not supported"),
    ],
)
def test_grades(certificate: Certificate, expected: Grade) -> None:
    assert grade(certificate) == expected


def test_where_the_limits_rule_the_old_policy_out_the_gain_over_constants_counts() -> None:
    loss = replace(SURE, gain=-0.1, gain_bound=-0.2, gain_most=-0.05, gain_likely=-0.15)
    assert grade(loss) == "not supported"
    for least, likely, keep, expected in (
        (0.01, 0.02, True, "certified"),
        (-0.01, 0.02, True, "promising"),
        (-0.01, -0.005, True, "not supported"),
        (-0.01, -0.005, False, "certified"),
    ):
        beside = AgainstConstants("2 for 100% of users", 0.03, least, likely, value=0.5, spend=0.9, keep=keep)
        assert grade(loss, beside, ruled_out=True) == expected
    assert grade(replace(loss, reason=REFUSED), beside, ruled_out=True) == "not supported"
    assert grade(SURE, replace(beside, keep=True), ruled_out=True) == "certified"
    unknown = replace(SURE, gain=None, gain_bound=None, gain_most=None, gain_likely=None)
    assert grade(unknown, None, ruled_out=True) == "not supported", "nothing was measured that it could be held against"


def with_reason(certificate: Certificate, reason: Reason) -> Certificate:
    """What stands against a certificate besides."""
    c = certificate
    bounds = Bounds(c.budgets, c.gain, c.gain_bound, c.gain_most, c.confidence, c.window, c.reason)
    return issue(bounds, [reason], users=c.users, likely=c.gain_likely)


def against(about: Campaign) -> list[Reason]:
    """What the campaign file alone has against a certificate."""
    judged: Any = SimpleNamespace(measure=SimpleNamespace(data=SimpleNamespace(campaign=about)))
    found = (CHECKS[name].find(judged) for name in ("assignment", "sharing"))
    return [each.reason for each in found if each is not None and each.reason is not None]


def campaign(**log: object) -> Campaign:
    return Campaign.parse(
        {
            "campaign": {"name": "test"},
            "log": {
                "source": "x.parquet",
                "user": "u",
                "time": "t",
                "action": "a",
                "reward": "r",
                "features": {"categorical": ["s"]},
                **log,
            },
            "budget": [{"name": "cost", "cost": "c", "at_most": 1.1}],
        }
    )


def test_nothing_is_certified_where_it_is_not_known_how_actions_were_drawn() -> None:
    (reason,) = against(campaign())
    told = with_reason(SURE, reason)
    assert (told.certified, told.words) == (False, f"not certified: {Reason(ReasonKind.UNASSIGNED).words}")
    assert (told.budgets, told.gain_bound) == (SURE.budgets, SURE.gain_bound)
    assert grade(told) == "promising"
    assert against(campaign(propensity="p")) == against(campaign(randomised=True)) == []


def test_a_policy_that_reads_more_of_the_past_than_the_state_is_not_certified() -> None:
    told = with_reason(SURE, Reason(ReasonKind.APPROXIMATE))
    assert (told.certified, told.words) == (False, f"not certified: {Reason(ReasonKind.APPROXIMATE).words}")
    assert (told.budgets, told.gain_bound, grade(told)) == (SURE.budgets, SURE.gain_bound, "promising")
    refused = replace(SURE, reason=BROKEN)
    assert with_reason(refused, Reason(ReasonKind.APPROXIMATE)) == refused
