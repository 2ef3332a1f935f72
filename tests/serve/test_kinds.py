from __future__ import annotations

from typing import Any

import pytest

from outlay.core.errors import OutlayError
from outlay.serve.config import ServeConfig
from outlay.serve.user_days.campaign_history import campaign_outcome_kinds

FEATURES = {"categorical": ["level"], "numeric": ["ln(spend)"]}
LOG = {"user": "who", "time": "day", "action": "coupon", "features": FEATURES}
MONEY = {"name": "money", "cost": "coupon * redeemed", "at_most": 1.0}


@pytest.mark.parametrize(
    ("reward", "costs", "kinds"),
    [
        ("active", [], ["active"]),
        ("active + 0.1 * Orders - ACTIVE", [], ["active", "Orders"]),
        ('CASE WHEN "my visits" > level THEN 1 ELSE spend / coupon END', [], ["my visits"]),
        ("active", ["complaints * 2", "coalesce(calls, 0)"], ["active", "complaints", "calls"]),
        ("active; drop", [], []),
    ],
)
def test_a_campaign_is_made_of_the_columns_that_have_no_other_role(
    reward: str, costs: list[str], kinds: list[str]
) -> None:
    budgets = [MONEY, *({"name": cost, "cost": cost, "at_most": 1.0} for cost in costs)]
    campaign: dict[str, Any] = {"log": LOG | {"reward": reward}, "budget": budgets}
    assert campaign_outcome_kinds(campaign) == kinds


def test_the_cost_of_money_is_what_the_ledger_pays() -> None:
    budgets = [{"name": "calls", "cost": "calls", "at_most": 1.0}, MONEY | {"money": True}]
    assert campaign_outcome_kinds({"log": LOG | {"reward": "active"}, "budget": budgets}) == ["active", "calls"]


@pytest.mark.parametrize(
    ("kinds", "one", "two"), [(["order", "Order"], "Order", "order"), (["REFUND"], "REFUND", "refund")]
)
def test_kinds_that_differ_only_by_case_cannot_be_declared(kinds: list[str], one: str, two: str) -> None:
    with pytest.raises(OutlayError, match=f"outcomes has both '{one}' and '{two}'"):
        ServeConfig.parse({"outcomes": kinds})
    assert ServeConfig.parse({"outcomes": ["order", "refund", "order"]}).outcomes
