from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from myopic import constant_points, one_day_points
from outlay.core.campaign import Campaign
from outlay.jobs.simulate import simulate
from outlay.ops.mixture_lp import value_at
from outlay.ops.tabular import constrained_optimum, measure
from outlay.simulators import thirty_day
from outlay.simulators.thirty_day import LEVELS, TYPES, ThirtyDay

CMDP = thirty_day.model().cmdp()


@pytest.mark.parametrize("budget", [0.2, 0.4, 0.6])
def test_looking_ahead_pays(budget: float) -> None:
    """At equal discounted spend, a share of what the dearest constant coupon spends."""
    constants, one_day = constant_points(CMDP), one_day_points(CMDP).measurements
    spend = budget * constants[:, 1].max()
    optimum, today, constant = (
        constrained_optimum(CMDP, [spend]).value,
        value_at(one_day, spend),
        value_at(constants, spend),
    )
    assert optimum >= 1.03 * today
    assert (today - constant) / (optimum - constant) <= 0.65


def test_bargain_hunters_bring_most_today_and_the_others_more_in_the_end() -> None:
    """What a coupon of 1 yuan in the first row adds, per yuan: today, and over time."""
    kind, level = thirty_day.states()
    unpaid = CMDP.transition[:, 0]
    value = np.linalg.solve(np.eye(CMDP.num_states) - CMDP.discount * unpaid, CMDP.reward[:, 0])
    today = (CMDP.reward[:, 10] - CMDP.reward[:, 0]) / CMDP.cost[:, 10, 0]
    later = CMDP.discount * (CMDP.transition[:, 10] - unpaid) @ value / CMDP.cost[:, 10, 0]
    first = level == 1
    assert TYPES[kind[first][today[first].argmax()]] == "bargain"
    assert TYPES[kind[first][(today + later)[first].argmax()]] == "wavering"
    np.testing.assert_allclose(later[kind == TYPES.index("bargain")], 0, atol=1e-12)


def test_the_limit_binds_and_activity_is_at_a_plausible_level() -> None:
    old = measure(CMDP, np.full(CMDP.reward.shape, 1 / 22))
    unpaid, dearest = constant_points(CMDP)[[0, -1]]
    assert unpaid[1] == 0
    assert 0.1 < unpaid[0] < 0.2 < old[0] < dearest[0] < 0.7
    assert thirty_day.AT_MOST < old[1] < dearest[1]
    assert sum(getattr(ThirtyDay(), name).share for name in TYPES) == pytest.approx(1)


def test_types_do_not_change() -> None:
    kind, _ = thirty_day.states()
    for state, row in enumerate(CMDP.transition):
        assert row[:, kind != kind[state]].sum() == 0


def test_the_log_follows_the_truth() -> None:
    """Every frequency of an active day and of a move with an expectation of 50 or more, within 4.5 standard errors."""
    chunks = list(thirty_day.simulator().generate(8000, 30, seed=1))
    log = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    kind = np.argmax(log["type"][:, None] == np.array(TYPES), axis=1)
    state = kind * LEVELS + log["level"].astype(int)
    action = np.searchsorted(thirty_day.COUPONS, log["coupon"].astype(float))
    np.testing.assert_array_equal(log["cost"], log["coupon"].astype(float) * log["active"].astype(float))
    visits, active = (np.zeros(CMDP.reward.shape) for _ in range(2))
    np.add.at(visits, (state, action), 1)
    np.add.at(active, (state, action), log["active"].astype(float))
    moves = np.zeros(CMDP.transition.shape)
    stays = log["day"] < np.int32(29)
    np.add.at(moves, (state[stays], action[stays], state[np.flatnonzero(stays) + 1]), 1)
    tries = moves.sum(axis=2, keepdims=True)
    for count, trials, prob in ((active, visits, CMDP.reward), (moves, tries, CMDP.transition)):
        expected, error = trials * prob, np.sqrt(trials * prob * (1 - prob))
        checked = expected >= 50
        assert checked.sum() > 100
        assert (np.abs(count - expected) <= 4.5 * error)[checked].all()
        assert (count[expected == 0] == 0).all()
    np.testing.assert_allclose(np.bincount(action, minlength=22) / len(action), 1 / 22, atol=4 / np.sqrt(22 * 240_000))


def test_the_folder_and_its_campaign_file(tmp_path: Path) -> None:
    path = simulate("thirty-day", tmp_path / "c", users=40)
    campaign = Campaign.load(path)
    assert campaign.log.actions == tuple(np.arange(22) / 10)
    assert (campaign.meta.none, campaign.meta.discount) == (0.0, 0.95)
    assert (campaign.meta.horizon_days, campaign.meta.report_days) == (30, (1, 7, 30))
    assert campaign.log.features.names == ("type", "level")
    assert campaign.budgets[0].limit == thirty_day.AT_MOST
    log, states = pq.read_table(path.parent / "log.parquet"), pq.read_table(path.parent / "states.parquet")
    assert log.column_names == ["user_id", "day", "type", "level", "coupon", "active", "cost", "propensity"]
    assert log.num_rows == 40 * 30
    assert states.schema == log.select(["type", "level"]).schema
    assert states.to_pylist()[7] == {"type": "wavering", "level": 2}
    truth = np.load(path.parent / "truth.npz")
    assert (truth["transition"].shape, truth["cost"].shape) == ((15, 22, 15), (15, 22, 1))
    np.testing.assert_array_equal(truth["actions"], campaign.log.actions)


def test_a_short_or_held_campaign_says_so_in_its_file(tmp_path: Path) -> None:
    meta = Campaign.load(simulate("thirty-day", tmp_path / "short", users=20, days=10)).meta
    assert (meta.horizon_days, meta.report_days) == (10, (1, 7))
    held = Campaign.load(simulate("thirty-day", tmp_path / "held", users=20, held=(1.0, 2.0)))
    assert held.log.actions == held.log.contrast == (1.0, 2.0)
    assert held.meta.none is None
    one, two = constant_points(CMDP)[[10, 20], 1]
    assert one < held.budgets[0].limit < two


def test_other_parameters_make_another_truth() -> None:
    lasting = thirty_day.model(replace(ThirtyDay(), slide_prob=0.1)).cmdp()
    assert constant_points(lasting)[0, 0] > 1.2 * constant_points(CMDP)[0, 0]
