from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from logs_in_memory import campaign, fit, ragged

from outlay.core.campaign import Campaign
from outlay.core.transitions import CERTIFY
from outlay.estimators.basis import CountedBasis
from outlay.estimators.fitted import Fitted
from outlay.estimators.joint import combine
from outlay.estimators.panel import Panel
from outlay.estimators.units import coordinates, days_counted, displayed, estimates, horizons, objective

CEILING = {"name": "cost", "cost": "c", "at_most": 0.6}
FLOOR = {"name": "cost", "cost": "c", "at_least": 0.4}


def about(*budgets: dict[str, Any]) -> Campaign:
    return campaign(0.8, list(budgets), horizon_days=3, report_days=(1,))


def fitted(action: int, days: tuple[int, ...] = (1, 3)) -> Fitted:
    """On a log where decisions end, pause and are forced, so that x_1 differs between policies."""
    panel = Panel.of(ragged(3, users=300), CERTIFY)
    assert panel.state is not None
    return fit(panel, CountedBasis(panel.state, 3, 2), np.full(len(panel), action), days=days)


def test_a_budget_per_decision_is_compared_by_its_linear_coordinate_and_shown_as_a_ratio() -> None:
    """x_c / x_1 ≤ limit exactly where x_c − limit·(x_1 − 1) ≤ limit, for ceilings and floors."""
    joint = fitted(1)
    cost, ones = joint.value[joint.column("cost")], joint.value[joint.column("decisions")]
    assert ones < 0.7
    shown = displayed(joint, about(CEILING))
    assert shown.value[shown.column("cost")] == pytest.approx(cost / ones)
    assert "decisions" not in shown.targets
    for limit in (cost / ones - 1e-6, cost / ones + 1e-6):
        x, _, limits = coordinates(joint, about({**CEILING, "at_most": limit}))
        assert x[1] == pytest.approx(cost - limit * (ones - 1))
        assert limits.tolist() == [limit]
        assert (x[1] <= limits[0]) == (cost / ones <= limit)
        x, _, limits = coordinates(joint, about({"name": "cost", "cost": "c", "at_least": limit}))
        assert (x[1] <= limits[0]) == (cost / ones >= limit)


def test_coordinates_of_a_mixture_are_the_mixture_of_the_coordinates() -> None:
    parts, weights = [fitted(0), fitted(1)], np.array([0.25, 0.75])
    for plan in (about(CEILING), about(FLOOR), about({**CEILING, "per": "user"})):
        x, psi, _ = coordinates(combine(parts, weights), plan)
        each = [coordinates(part, plan) for part in parts]
        assert x == pytest.approx(0.25 * each[0][0] + 0.75 * each[1][0])
        assert psi == pytest.approx(0.25 * each[0][1] + 0.75 * each[1][1])


def test_a_budget_per_user_takes_totals_over_the_horizon_for_objective_and_cost() -> None:
    plan = about({**CEILING, "per": "user"})
    assert horizons(plan) == (1, 3)
    assert horizons(about(CEILING)) == (1,)
    assert objective(plan) == "reward@3"
    assert days_counted(plan) == 3
    joint = fitted(0)
    x, psi, limits = coordinates(joint, plan)
    at = [joint.column("reward@3"), joint.column("cost@3")]
    assert x == pytest.approx(joint.value[at])
    assert psi == pytest.approx(joint.influence[:, at])
    assert limits.tolist() == [0.6]
    shown = displayed(joint, plan)
    assert shown.value[shown.column("cost")] == pytest.approx(joint.value[at[1]])


def test_a_floor_has_coordinate_and_limit_negated() -> None:
    joint = fitted(0)
    up, psi_up, limit_up = coordinates(joint, about({**CEILING, "at_most": 0.4}))
    down, psi_down, limit_down = coordinates(joint, about(FLOOR))
    assert (down[1], limit_down[0]) == (-up[1], -limit_up[0])
    assert psi_down[:, 1] == pytest.approx(-psi_up[:, 1])


def test_estimates_carry_interval_size_and_a_withheld_number_its_reason() -> None:
    joint = fitted(0)
    rows = {e.target: e for e in estimates(joint, about(CEILING), "member 0", "fitted", confidence=0.95)}
    assert set(rows) == {"reward", "cost", "reward@1", "cost@1", "reward@3", "cost@3"}
    reward = rows["reward"]
    assert (reward.low or np.inf) < (reward.value or 0) < (reward.high or -np.inf)
    assert reward.recommended
    assert 1 < (reward.ess or 0) <= 300
    panel = Panel.of(ragged(3, users=300), CERTIFY)
    assert panel.state is not None
    none = fit(panel, CountedBasis(panel.state, 3, 2), np.zeros(len(panel), np.intp), least_rows=10_000)
    for row in estimates(none, about(CEILING), "member 0", "fitted", confidence=0.95):
        assert (row.value, row.low, row.recommended) == (None, None, False)
        assert row.withheld is not None
    assert np.isnan(coordinates(none, about(CEILING))[0]).all()
