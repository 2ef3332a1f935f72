"""The log's last days, predicted from its first: within the intervals where days are alike, widened where not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import World, transitions
from numpy.typing import NDArray

from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.backtest import FEWEST_DAYS, Backtest, backtest
from outlay.estimators.clusters import Clusters
from outlay.estimators.day_effects import DayEffects, day_effects
from outlay.estimators.panel import Panel
from outlay.estimators.state_model import StateModel

ALIKE = DayEffects((), 0, (), 7, "")


def predicted(data: Transitions, effects: DayEffects | None = None) -> Backtest:
    panel = Panel.of(data, CERTIFY)
    found = day_effects(panel, panel.day, None, 7) if effects is None else effects
    return backtest(panel, panel.day, None, found, 0.95)


def moved(rates: NDArray[np.floating], seed: int, users: int = 2000) -> Transitions:
    """Users with two states, who act with the state's chance times the rate of the day `[D]`."""
    rng, days = np.random.default_rng(seed), len(rates)
    state = rng.integers(2, size=(users, days))
    reward = (rng.random((users, days)) < (0.3 + 0.3 * state) * rates).astype(float).ravel()
    return transitions(
        user=np.repeat(np.arange(users), days), day=np.tile(np.arange(days), users), state=state.ravel(),
        action=rng.integers(2, size=users * days), outcome=np.column_stack([reward, 2 * reward]), num_states=2,
        num_actions=2,
    )  # fmt: skip


def share_inside(found: list[Backtest]) -> float:
    return float(np.mean([line.inside for each in found for line in each.days]))


def test_days_that_are_alike_lie_within_their_intervals() -> None:
    """40 logs of a Markov chain, 4 days and 2 outcomes each; days of a log depend on one another."""
    logs = [World.drawn(seed).log(600, 12, np.random.default_rng(seed)) for seed in range(40)]
    assert 0.91 < share_inside([predicted(log, ALIKE) for log in logs]) < 0.985
    first = predicted(logs[0])
    assert (first.learned, first.users, len(first.days)) == (8, 600, 8)
    assert [line.day for line in first.days[:4]] == [9, 10, 11, 12]
    inside = sum(line.inside for line in first.days)
    assert first.words.startswith("learned on days 1 to 8, the model predicts for days 9 to 12 reward ")
    assert first.words.endswith(f"({inside} of 8 daily means within their 95% intervals)")


def test_the_prediction_starts_from_users_as_they_stood() -> None:
    """A mean of the first days would miss a population that has moved since; its states tell."""
    rng, users, days = np.random.default_rng(0), 3000, 9
    late = np.tile(np.arange(days) >= 6, (users, 1))
    state = (rng.random((users, 1)) < np.where(late, 0.9, 0.2)).astype(int)
    reward = (rng.random((users, days)) < 0.2 + 0.6 * state).astype(float).ravel()
    data = transitions(
        user=np.repeat(np.arange(users), days), day=np.tile(np.arange(days), users), state=state.ravel(),
        action=np.zeros(users * days), outcome=np.column_stack([reward, reward]), num_states=2, num_actions=1,
    )  # fmt: skip
    line = predicted(data, ALIKE).days[0]
    assert line.predicted == pytest.approx(0.74, abs=0.02)
    assert line.inside


def test_a_trend_leaves_the_intervals_and_widens_them() -> None:
    logs = [moved(1 + 0.03 * np.arange(12), seed) for seed in range(5)]
    assert share_inside([predicted(log, ALIKE) for log in logs]) < 0.1
    widened = [predicted(log) for log in logs]
    assert share_inside(widened) > 0.9
    line = widened[0].days[0]
    assert line.high - line.predicted > 3 * (line.predicted - line.low)  # on the side to which it goes


def test_shocks_of_days_widen_the_intervals() -> None:
    rng = np.random.default_rng(1)
    logs = [moved(np.exp(0.15 * rng.normal(size=14)), seed) for seed in range(20)]
    assert share_inside([predicted(log, ALIKE) for log in logs]) < 0.5
    assert share_inside([predicted(log) for log in logs]) > 0.9


def test_columns_tell_what_states_tell() -> None:
    data = moved(np.ones(12), 3)
    panel = Panel.of(data, CERTIFY)
    assert panel.state is not None
    column = panel.state[:, None].astype(np.float32)
    model = StateModel(panel, 7, [column])
    counted, linear = predicted(data, ALIKE), backtest(panel, panel.day, model.columns, ALIKE, 0.95)
    for mine, other in zip(counted.days, linear.days, strict=True):
        assert (mine.predicted, mine.low) == pytest.approx((other.predicted, other.low), rel=1e-6)


def test_a_weekday_that_no_learned_row_has_takes_nothing_from_the_prediction() -> None:
    data = moved(np.ones(9), 4)
    panel = Panel.of(data, CERTIFY)
    assert panel.state is not None
    columns = np.column_stack([panel.state, *(panel.day % 7 == d for d in range(7))]).astype(np.float32)
    found = backtest(panel, panel.day, [columns], ALIKE, 0.95)
    assert found.learned == 6  # the seventh weekday was in none of their rows
    for line in found.days:
        assert line.predicted == pytest.approx(line.observed, rel=0.1)
        assert line.high - line.low < 0.3 * line.predicted


def test_clusters_of_copies_change_nothing_but_what_copies_hid() -> None:
    """Every user four times, the copies one cluster: the interval of the users alone."""
    rng = np.random.default_rng(0)
    alone = World.drawn(1).log(500, 9, rng)
    rows = np.arange(len(alone)).reshape(500, 9)
    copied = np.repeat(rows, 4, axis=0).ravel()
    many = transitions(
        user=np.repeat(np.arange(2000), 9), day=np.tile(np.arange(9), 2000), state=np.asarray(alone.state)[copied],
        action=alone.action[copied], outcome=alone.outcome[copied], num_states=3, num_actions=2,
    )  # fmt: skip
    panel = Panel.of(many, CERTIFY)
    panel = replace(panel, clusters=Clusters.among(np.arange(2000) // 4, np.arange(2000)))
    grouped, single = backtest(panel, panel.day, None, ALIKE, 0.95), predicted(alone, ALIKE)
    for mine, other in zip(grouped.days, single.days, strict=True):
        assert (mine.low, mine.high) == pytest.approx((other.low, other.high), rel=1e-3)


def test_few_days_or_users_are_said_to_be_too_few() -> None:
    short = predicted(moved(np.ones(FEWEST_DAYS - 1), 0), ALIKE)
    assert (short.learned, short.days) == (0, ())
    assert short.words == f"not made: the log has {FEWEST_DAYS - 1} days, and {FEWEST_DAYS} are needed"
    small = predicted(moved(np.ones(8), 0, users=60), ALIKE)
    assert small.words == "not made: 60 of these users have a row on day 6, and 100 are needed"


def test_a_column_that_moves_with_the_days_is_not_carried_on_beyond_what_the_first_days_showed() -> None:
    """Days since the log began, and their square: least squares went to −0.11 of a 0/1 outcome and below."""
    rng, users, days = np.random.default_rng(3), 400, 18
    day = np.tile(np.arange(days), users)
    reward = (rng.random(users * days) < 0.5 - 0.02 * day).astype(float)
    data = transitions(
        user=np.repeat(np.arange(users), days), day=day, state=np.zeros(users * days), action=np.zeros(users * days),
        outcome=np.column_stack([reward, reward]), num_states=1, num_actions=1,
    )  # fmt: skip
    panel = Panel.of(data, CERTIFY)
    columns = [np.column_stack([day, day**2, rng.normal(size=(len(day), 3))]).astype(np.float32)]
    found = backtest(panel, panel.day, columns, ALIKE, 0.95)
    assert all(0 <= line.low <= line.predicted <= line.high <= 1 for line in found.days)
    assert all(line.predicted > 0.2 for line in found.days)


def test_intervals_that_hold_all_that_can_be_confirm_nothing() -> None:
    rng, users, days = np.random.default_rng(5), 120, 9
    reward = (rng.random(users * days) < 0.01).astype(float)
    data = transitions(
        user=np.repeat(np.arange(users), days), day=np.tile(np.arange(days), users), state=np.zeros(users * days),
        action=np.zeros(users * days), outcome=np.column_stack([reward, reward]), num_states=1, num_actions=1,
    )  # fmt: skip
    found = predicted(data, ALIKE)
    vague = [line for line in found.days if line.vague]
    assert vague
    assert all(line.low == 0 for line in vague)
    assert f"{len(vague)} intervals are too wide to say anything" in found.words
    assert f"of {len(found.days)} daily means" not in found.words
