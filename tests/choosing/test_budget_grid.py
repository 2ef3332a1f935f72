"""The grid of budgets against a linear program written longhand, and the room that folds need together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from outlay.choosing.budget_grid import BUDGETS, GridProblem, solve_grid
from outlay.core.errors import InfeasibleError
from outlay.estimators.frontier import Points, pooled
from small_logs import campaign

LIMIT = {"name": "cost", "cost": "cost", "at_most": 1.0}
LARGE = {"name": "large", "cost": "large", "at_most": 0.5}
RNG = np.random.default_rng(0)


def points(policies: int = 6, costs: int = 1, users: int = 900, seed: int = 0, cheapest: float = 0.2) -> Points:
    """Policies that earn less for each unit they spend more, on one draw of normal influences."""
    rng = np.random.default_rng(seed)
    spend = np.linspace(cheapest, 2.0, policies)
    value = np.column_stack([np.sqrt(spend), spend, *([0.3 * spend] * (costs - 1)), np.ones(policies)])
    influence = rng.normal(size=(users, *value.shape)) * np.append(0.5 * value[:, :-1], np.zeros((policies, 1)), axis=1)
    flat = (influence - influence.mean(axis=0)).reshape(users, -1)
    covariance = (flat.T @ flat / (users * (users - 1))).reshape(value.shape * 2)
    return Points(value, covariance, covariance, users, np.zeros((policies, costs, 7)), np.zeros((policies, 3)))


def problem(of: Points, costs: int = 1, users: int = 3000, folds: int = 1) -> GridProblem:
    about = campaign(0.8, [LIMIT, LARGE][:costs])
    return GridProblem(of, of.value[:, 0], about, np.ones(costs), 0.0125, users, folds)


@pytest.mark.parametrize("costs", [1, 2])
@pytest.mark.parametrize("folds", [1, 4])
def test_every_mixture_of_the_grid_is_the_best_under_its_limit_with_its_room(costs: int, folds: int) -> None:
    given = points(costs=costs)
    budgets, (weights,), (room,) = solve_grid([problem(given, costs, folds=folds)])
    assert len(budgets) == BUDGETS
    factor = given.factor(campaign(0.8, [LIMIT, LARGE][:costs]), 0.0125)
    error = np.sqrt(np.einsum("ltlt->lt", given.covariance))[:, 1 : 1 + costs]
    certify = error * np.sqrt(900 / 3000)
    margin = factor * certify + norm.ppf(0.9) * np.hypot(error / np.sqrt(folds), certify)
    for budget, alpha, kept in zip(budgets[1:], weights[1:], room[1:], strict=True):
        limits = np.array([budget, 0.5][:costs])
        cost = given.value[:, 1 : 1 + costs] + margin
        best = linprog(-given.value[:, 0], cost.T, limits, np.ones((1, len(given))), [1.0])
        assert alpha @ given.value[:, 0] == pytest.approx(-best.fun, abs=1e-9)
        assert (alpha @ cost <= limits + 1e-9).all()
        assert kept == pytest.approx(alpha @ margin[:, 0])


def test_folds_need_less_room_together_than_each_would_alone() -> None:
    given = points()
    alone, together = (solve_grid([problem(given, users=n, folds=k)])[2][0] for n, k in ((450, 1), (3000, 4)))
    assert together.mean() < 0.5 * alone.mean()


def test_the_least_is_the_dearest_of_what_the_folds_need_and_the_most_too() -> None:
    folds = [problem(points(seed=k), folds=3) for k in range(3)]
    budgets, weights, _ = solve_grid(folds)
    assert budgets[0] == max(each.least for each in folds) > 0.2
    assert budgets[-1] == max(each.most for each in folds)
    assert all(np.allclose(each.sum(axis=1), 1) for each in weights)
    assert [each[-1].argmax() for each in weights] == [5, 5, 5]


def test_where_the_cheapest_policy_costs_nothing_the_grid_begins_at_0() -> None:
    given = points(cheapest=0.0)
    assert solve_grid([problem(given)])[0][0] == 0
    alone = given.only(np.array([0]))
    assert solve_grid([problem(alone)])[0].tolist() == [0.0]  # it is all there is


def test_other_limits_that_cannot_be_kept_leave_no_grid() -> None:
    of = problem(points(costs=2), 2)
    tight = of.campaign.budgets[1].model_copy(update={"at_most": 0.01})
    strict = of.campaign.model_copy(update={"budgets": (of.campaign.budgets[0], tight)})
    with pytest.raises(InfeasibleError, match="other limits"):
        solve_grid([replace(of, campaign=strict)])


def test_points_of_users_who_have_nobody_in_common_are_those_of_all_of_them() -> None:
    """Of one policy on three parts: moments of the weighted mean, written longhand from influences."""
    rng, sizes = np.random.default_rng(1), (200, 300, 500)
    shares = np.array(sizes) / 1000
    psi = [rng.exponential(size=n) - 1 for n in sizes]
    parts = []
    for each, mean in zip(psi, (0.9, 1.0, 1.2), strict=True):
        each -= each.mean()
        value = np.array([[0.5, mean, 1.0]])
        covariance = np.zeros((1, 3, 1, 3))
        covariance[0, 1, 0, 1] = each @ each / (len(each) * (len(each) - 1))
        tails = np.array([[[(each**3).sum(), 0, 0, 0, 5.0, 0, 0]]])
        parts.append(Points(value, covariance, covariance, len(each), tails, np.zeros((1, 3))))
    whole = pooled(parts, shares)
    together = np.concatenate(psi)
    assert whole.users == 1000
    assert whole.value[0, 1] == pytest.approx(shares @ [0.9, 1.0, 1.2])
    assert whole.covariance[0, 1, 0, 1] == pytest.approx(together @ together / (1000 * 999), rel=0.01)
    assert whole.tails[0, 0, 0] == pytest.approx((together**3).sum())
    assert whole.tails[0, 0, 4] == 5.0
