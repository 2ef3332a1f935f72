"""Weights for so much money per decision, and what a price does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outlay.bundles.decide import Bundle
from outlay.bundles.pool import Pool
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.serve.pacing.mixing import PolicyPool
from patience import PATIENCE

COST = np.array([[1.0], [2.0], [3.0], [4.0]])
FOUR = PolicyPool(np.array([1.0, 3.0, 4.0, 4.5]), COST, np.array([2.5]), 0, np.array([0.0, 0.5, 0.5, 0.0]))


def test_a_bundles_policies_in_minor_units(frontier_bundle: Bundle) -> None:
    policies = PolicyPool.of(Pool(frontier_bundle), 100)
    assert policies.cost[:, 0] == pytest.approx([160, 125, 90, 55, 20])
    assert policies.reward == pytest.approx([1 - 0.1 * i - 0.02 * i * i for i in range(5)])
    assert (policies.limits.tolist(), policies.money, policies.own.tolist()) == ([120], 0, [0, 0.6, 0, 0.4, 0])


def test_a_budget_per_user_is_spread_over_the_horizon(tmp_path: Path, make_spec: Callable[..., BundleSpec]) -> None:
    spec = make_spec()
    budget = spec.campaign.budgets[0].model_copy(update={"per": "user"})
    write_bundle(tmp_path / "bundle", replace(spec, campaign=spec.campaign.model_copy(update={"budgets": (budget,)})))
    assert PolicyPool.of(Pool(load_bundle(tmp_path / "bundle")), 100).cost[:, 0] == pytest.approx([100 / 7, 100 / 7])


@pytest.mark.parametrize(
    ("limit", "factor", "wanted"),
    [
        (2.5, 1.0, [0, 0.5, 0.5, 0]),
        (3.0, 1.0, [0, 0, 1, 0]),
        (3.0, 1.5, [0, 1, 0, 0]),
        (0.5, 1.0, [1, 0, 0, 0]),
        (0.0, 2.0, [1, 0, 0, 0]),
        (99.0, 1.0, [0, 0, 0, 1]),
    ],
)
def test_weights_fit_the_money(limit: float, factor: float, wanted: list[float]) -> None:
    assert FOUR.mixture(limit, factor).tolist() == pytest.approx(wanted)


def test_other_limits_are_kept() -> None:
    """A floor of 3.5 on the reward's twin, as −x ≤ −3.5: two parts of the third, one of the second at most."""
    both = PolicyPool(FOUR.reward, np.column_stack([COST, -FOUR.reward]), np.array([2.5, -3.5]), 0, FOUR.own)
    assert both.mixture(2.5, 1.0).tolist() == pytest.approx([0, 0.5, 0.5, 0])
    # Less money than the floor costs: neither is kept alone, and nobody is given the cheapest.
    assert 1.0 < float(both.mixture(2.0, 1.0) @ COST[:, 0]) < 2.5


def test_a_price_moves_along_the_frontier() -> None:
    """Edges have the slopes 2, 1 and 1/2 at costs 1.5, 2.5 and 3.5: twice the price is one edge down."""
    weights = np.array([0, 0.5, 0.5, 0])
    assert [FOUR.spend(weights, price) for price in (1.0, 2.0, 0.5)] == pytest.approx([2.5, 1.5, 3.5])
    assert [FOUR.spend(weights, price) for price in (4.0, 0.25)] == pytest.approx([1.5, 3.5])
    assert FOUR.spend(weights, 2**0.5) == pytest.approx(2.0)
    assert FOUR.spend(np.array([1.0, 0, 0, 0]), 2.0) == pytest.approx(1.0)


def test_the_elasticity_is_that_of_the_frontier() -> None:
    assert FOUR.elasticity(np.array([0, 0.5, 0.5, 0])) == pytest.approx(np.log(3.5 / 1.5) / np.log(4))
    for cost in (1.0, 0.0):
        assert PolicyPool(np.ones(1), np.full((1, 1), cost), np.ones(1), 0, np.ones(1)).elasticity(np.ones(1)) == 1
    free = PolicyPool(FOUR.reward, COST - 1, FOUR.limits, 0, FOUR.own)
    assert free.elasticity(np.array([1.0, 0, 0, 0])) == 1
    assert free.spend(np.array([1.0, 0, 0, 0]), 2.0) == 0


def test_policies_off_the_frontier_do_not_count_and_one_policy_has_no_price() -> None:
    bent = PolicyPool(
        np.append(FOUR.reward, [2.0, 3.0]), np.append(COST, [[2.0], [3.5]], axis=0), np.array([2.5]), 0, np.ones(6) / 6
    )
    assert bent.spend(np.array([0, 0.5, 0.5, 0, 0, 0]), 2.0) == pytest.approx(1.5)
    alone = PolicyPool(np.ones(1), np.ones((1, 1)), np.ones(1), 0, np.ones(1))
    assert alone.spend(np.ones(1), 3.0) == 1.0


def test_a_server_without_a_plan_does_not_wait_for_scipy_to_load() -> None:
    """It would take half a second of every process that starts."""
    code = "import sys, outlay.serve.launch, outlay.serve.handlers.service; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE).returncode == 0


def test_policies_of_folds_are_mixed_fold_by_fold() -> None:
    """Half of the users go by each fold; a constant action is anybody's."""
    cost = np.array([1.0, 2.0, 4.0, 1.0, 3.0, 0.0])[:, None]
    reward = np.array([1.0, 3.0, 4.0, 1.5, 3.5, 0.0])
    fold = np.array([0, 0, 0, 1, 1, -1])
    policies = PolicyPool(reward, cost, np.array([2.5]), 0, np.full(6, 1 / 6), fold)
    for limit in (0.5, 1.5, 2.5):
        weights = policies.mixture(limit, 1.0)
        alone = [
            PolicyPool(reward[of], cost[of], np.array([2.5]), 0, np.ones(1)).mixture(limit, 1.0)
            for of in ([0, 1, 2, 5], [3, 4, 5])
        ]
        assert weights[:3] == pytest.approx(alone[0][:3] / 2)
        assert weights[3:5] == pytest.approx(alone[1][:2] / 2)
        assert weights[5] == pytest.approx((alone[0][3] + alone[1][2]) / 2)
        assert weights @ cost[:, 0] <= limit + 1e-9
