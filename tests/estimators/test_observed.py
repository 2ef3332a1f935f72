from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from logs_in_memory import World, fit, ragged, transitions

from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY
from outlay.estimators.basis import CountedBasis
from outlay.estimators.day_effects import day_effects
from outlay.estimators.observed import observe, reproduces
from outlay.estimators.panel import Panel


def test_totals_and_the_cost_per_decision_by_hand() -> None:
    """User 0: rewards 1, 2, 3 on days 0, 1, 3. User 1: reward 5 on day 0. 2 days: mean(3, 5); 4 days: mean(6, 5).

    Costs are 1 in each of the 4 rows; the row on day 1 is forced: 4 / 3 per decision.
    """
    data = transitions(
        user=[0, 0, 0, 1],
        day=[0, 1, 3, 0],
        state=[0] * 4,
        action=[0] * 4,
        num_states=1,
        num_actions=2,
        outcome=[[1, 1], [2, 1], [3, 1], [5, 1]],
        steady=False,
        forced=[False, True, False, False],
    )
    panel = Panel.of(data, CERTIFY)
    seen = observe(panel, days=(2, 4, 9))
    values = dict(zip(seen.targets, seen.value, strict=True))
    assert (values["reward@2"], values["reward@4"], values["cost@4"]) == (4.0, 5.5, 2.0)
    assert values["cost/decision"] == pytest.approx(4 / 3)
    assert seen.withheld[seen.column("reward@9")] == Reason(ReasonKind.NOT_SHOWN, {"days": 9})


def test_users_whose_window_is_too_short_do_not_count() -> None:
    data = transitions(
        user=[0, 0, 1],
        day=[0, 1, 0],
        state=[0] * 3,
        action=[0] * 3,
        num_states=1,
        num_actions=2,
        outcome=[[1, 0], [1, 0], [9, 0]],
    )
    data.users["window"] = [2, 1]
    panel = Panel.of(data, CERTIFY)
    assert observe(panel, days=(1, 2)).value[[0, 2]].tolist() == [5.0, 2.0]


def test_a_fit_that_is_off_does_not_reproduce_the_observed_totals_and_says_which() -> None:
    world = World.drawn(1)
    panel = Panel.of(world.log(1000, 4, np.random.default_rng(2)), CERTIFY)
    assert panel.state is not None
    old, seen = fit(panel, CountedBasis(panel.state, 3, 2), days=(1, 4)), observe(panel, days=(1, 4))
    assert reproduces(seen, old).ok
    value = old.value.copy()
    value[old.column("cost@4")] *= 1.3
    check = reproduces(seen, dataclasses.replace(old, value=value))
    assert not check.ok
    at, wrong = seen.column("cost@4"), value[old.column("cost@4")]
    figures = {"target": "cost@4", "fitted": wrong, "observed": seen.value[at]}
    assert check.refused == check.finding == Reason(ReasonKind.REPRODUCTION, figures)


def test_hardly_any_sound_log_is_doubted() -> None:
    """2 of 1,200 logs of 300 to 20,000 users; 41 with two errors instead of three, 15 without the 1%."""
    doubted = 0
    for seed in range(200):
        panel = Panel.of(World.drawn(seed).log(300, 7, np.random.default_rng(seed)), CERTIFY)
        assert panel.state is not None
        old = fit(panel, CountedBasis(panel.state, 3, 2), days=(1, 3, 7))
        doubted += not reproduces(observe(panel, days=(1, 3, 7)), old).ok
    assert doubted <= 2


def test_the_check_catches_a_log_whose_days_differ() -> None:
    """Rewards double from day to day: stationarity is false, and the fitted total of 1 day is not the observed one."""
    U = 500
    day = np.tile(np.arange(4), U)
    reward = 2.0**day * np.random.default_rng(0).uniform(0.9, 1.1, size=4 * U)
    data = transitions(
        user=np.repeat(np.arange(U), 4),
        day=day,
        state=np.zeros(4 * U),
        action=np.arange(4 * U) % 2,
        outcome=np.column_stack([reward, reward]),
        num_states=1,
        num_actions=2,
    )
    panel = Panel.of(data, CERTIFY)
    assert panel.state is not None
    assert not reproduces(observe(panel, days=(1,)), fit(panel, CountedBasis(panel.state, 1, 2), days=(1,))).ok


def test_nothing_to_compare_is_not_a_pass() -> None:
    panel = Panel.of(ragged(1), CERTIFY)
    assert panel.state is not None
    assert not reproduces(observe(panel, days=(2,)), fit(panel, CountedBasis(panel.state, 3, 2))).ok


def test_where_every_total_is_withheld_the_reason_is_theirs() -> None:
    panel = Panel.of(World.drawn(1).log(300, 3, np.random.default_rng(2)), CERTIFY)
    assert panel.state is not None
    old, seen = fit(panel, CountedBasis(panel.state, 3, 2), days=(1, 3)), observe(panel, days=(1, 3))
    thin = Reason(ReasonKind.HARDLY_ANY, {"needed": 100})
    check = reproduces(seen, dataclasses.replace(old, withheld=(thin,) * len(old.targets)))
    assert check.finding == Reason(ReasonKind.UNSUPPORTED, {"found": thin})


def test_days_that_differ_are_not_the_estimators_fault() -> None:
    """Shocks of 20% a day that all users share: a stationary fit misses the first day, and the tolerance knows why."""
    rng = np.random.default_rng(4)
    U, days = 2000, 8
    chance = 0.5 + rng.normal(0, 0.1, days)
    reward = (rng.random((U, days)) < chance).ravel().astype(float)
    data = transitions(
        user=np.repeat(np.arange(U), days),
        day=np.tile(np.arange(days), U),
        state=np.zeros(U * days),
        action=rng.integers(2, size=U * days),
        outcome=np.column_stack([reward, reward]),
        num_states=1,
        num_actions=2,
    )
    panel = Panel.of(data, CERTIFY)
    assert panel.state is not None
    seen, old = observe(panel, days=(1, 7)), fit(panel, CountedBasis(panel.state, 1, 2), days=(1, 7))
    assert not reproduces(seen, old).ok
    assert reproduces(seen, old, day_effects(panel, panel.day, None, 7)).ok
