"""The experiment that needs no state: as many users as the stated precision takes, and a command that plans it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import outlay
from conftest import Habit
from outlay.core.transitions import Transitions
from outlay.evaluating.next_test import SettlingTest, plan_settling
from outlay.experiments.design import Experiment


def planned(data: Transitions, bundle: Path | None = None) -> SettlingTest:
    found = plan_settling(data, data.campaign, bundle)
    assert found is not None
    return found


def weekly(data: Transitions) -> Any:
    """The total of the reward of every user with a row in the log's last 7 days."""
    time = data.first_times()[data.user] + np.asarray(data.day)
    last = time > time.max() - 7
    user = np.asarray(data.user)[last]
    return np.bincount(user, data.outcome[last, 0])[np.unique(user)]


def test_so_many_users_know_their_total_as_well_as_is_said(habit_data: Transitions) -> None:
    """Arms drawn from the log's users: 95% of their means lie within the stated precision."""
    test, total, rng = planned(habit_data), weekly(habit_data), np.random.default_rng(0)
    arms = [rng.choice(total, test.users_per_arm).mean() for _ in range(2_000)]
    within = np.abs(np.array(arms) / total.mean() - 1) <= test.precision
    assert within.mean() == pytest.approx(0.95, abs=0.02)
    assert test.log_users == len(total)
    assert test.share == pytest.approx(6 * test.users_per_arm / len(total))


def test_the_finest_precision_that_takes_few_users(habit_data: Transitions) -> None:
    """The same users many times over allow more, in a small share."""
    small, large = planned(habit_data), planned(repeated(habit_data, 40))
    assert large.precision < small.precision
    assert large.share <= 0.1
    assert large.users_per_arm > small.users_per_arm


def repeated(data: Transitions, times: int) -> Transitions:
    rows, users = len(data), len(data.users)
    tiled: dict[str, Any] = {
        name: np.tile(np.asarray(getattr(data, name)), times) for name in ("action", "day", "users", "forced")
    }
    tiled["user"] = np.tile(np.asarray(data.user), times) + np.repeat(np.arange(times), rows) * users
    first = np.tile(data.first_times(), times)
    found = replace(data, **tiled, outcome=np.tile(data.outcome, (times, 1)))
    object.__setattr__(found, "first_times", lambda: first)
    return found


def test_the_command_plans_that_very_test(habit: Habit, habit_data: Transitions, tmp_path: Path) -> None:
    test = planned(habit_data)
    assert test.actions == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)  # of 11
    assert "of all actions" in test.words
    command = test.command.replace("START", "2027-03-01")
    found = outlay(*shlex.split(command)[1:], "--out", tmp_path / "experiment.toml", "--json")
    assert found.code == 0, found.err
    plan = Experiment.load(tmp_path / "experiment.toml")
    assert plan.meta.days == test.days == 7
    assert [arm.action for arm in plan.arms] == list(test.actions)
    for arm in plan.arms:
        assert arm.share * json.loads(found.out)["users"] == pytest.approx(test.users_per_arm, rel=0.02)


def test_a_policy_has_an_arm_of_its_own(habit_data: Transitions) -> None:
    test = planned(habit_data, Path("run/bundle"))
    assert "--arm policy,bundle=run/bundle," in test.command
    assert "or the policy" in test.words


def test_too_few_users_are_said(habit_data: Transitions) -> None:
    few = np.asarray(habit_data.user) < 300
    kept: dict[str, Any] = {
        name: np.asarray(getattr(habit_data, name))[few] for name in ("user", "day", "action", "outcome")
    }
    test = planned(replace(habit_data, **kept))
    assert (test.enough, test.users_per_arm) == (False, 100)
    assert test.precision < 0.1
    assert (test.log_users, len(test.actions)) == (300, 6)
    assert "too few" in test.words
    assert f"--users {6 * test.users_per_arm}" in test.command


def test_users_who_share_a_cluster_count_less(habit_data: Transitions) -> None:
    total = np.bincount(habit_data.user, habit_data.outcome[:, 0])
    alike = np.empty(len(total), np.int64)
    alike[np.argsort(total, kind="stable")] = np.arange(len(total)) // 20
    alone, grouped = (planned(replace(habit_data, cluster=each)) for each in (None, alike))
    assert grouped.clusters_per_arm is not None
    assert grouped.users_per_arm * grouped.precision**2 > 10 * alone.users_per_arm * alone.precision**2


def test_users_who_are_all_alike_need_no_test(habit_data: Transitions) -> None:
    flat = replace(habit_data, outcome=np.zeros_like(habit_data.outcome))
    assert plan_settling(flat, flat.campaign) is None
