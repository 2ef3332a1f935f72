"""The A/B test that an evaluation plans: with the users that `outlay experiment plan` finds."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command_line import outlay
from conftest import Habit
from outlay.core.campaign import Campaign
from outlay.core.transitions import Transitions
from outlay.evaluating.next_test import PlannedTest, plan_test


def planned(data: Transitions, gain: float, campaign: Campaign | None = None) -> PlannedTest:
    found = plan_test(data, campaign or data.campaign, gain, 1.1, Path("run/bundle"))
    assert found is not None
    return found


def test_half_of_the_gain_where_the_users_are_enough_and_all_of_it_where_not(habit_data: Transitions) -> None:
    users = len(habit_data.users)
    easy, hard, hopeless = (planned(habit_data, gain) for gain in (0.3, 0.03, 0.001))
    assert (easy.part, easy.lift, easy.enough) == (0.5, 0.15, True)
    assert easy.words.endswith(f"the log has {users:,} users.")
    assert (hard.part, hard.lift, hard.enough) == (1.0, 0.03, True)
    assert (hopeless.part, hopeless.enough) == (1.0, False)
    assert f"the log has {users:,} users, and {2 * hopeless.users_per_arm:,} would be needed" in hopeless.words
    assert hopeless.users_per_arm == pytest.approx(900 * hard.users_per_arm, rel=1e-2)


@pytest.mark.parametrize("gain", [0.06, 0.02, 0.01])
def test_the_command_plans_that_very_test(habit: Habit, habit_data: Transitions, gain: float, tmp_path: Path) -> None:
    test = planned(habit_data, gain)
    assert "old,random" in test.command  # the log drew evenly
    command = test.command.replace("START", "2027-03-01").replace("bundle=run/bundle", "action=2")
    found = outlay(*shlex.split(command)[1:], "--out", tmp_path / "experiment.toml", "--json")
    assert found.code == 0
    told = json.loads(found.out)
    power = next(p for p in told["power"] if p["metric"] == "active" and not p["cuped"])
    assert power["lift_users"] == pytest.approx(2 * test.users_per_arm, rel=2e-3)
    assert power["lift_power"] == pytest.approx(0.8, abs=0.01)
    assert told["experiment"]["days"] == test.days


def test_users_who_share_a_cluster_count_less(habit_data: Transitions) -> None:
    """All users of a cluster of 20 alike would be 20 times as many; clusters drawn at random change little."""
    user = np.asarray(habit_data.user)
    total = np.bincount(user, habit_data.outcome[:, 0])
    drawn = np.arange(len(total)) // 20
    alike = np.empty(len(total), np.int64)
    alike[np.argsort(total, kind="stable")] = drawn
    alone, mixed, grouped = (planned(replace(habit_data, cluster=c), 0.001) for c in (None, drawn, alike))
    assert mixed.users_per_arm == pytest.approx(alone.users_per_arm, rel=0.3)
    assert grouped.users_per_arm > 15 * alone.users_per_arm
    assert grouped.clusters_per_arm == pytest.approx(grouped.users_per_arm / 20, rel=1e-3)
    assert "clusters) an arm" in grouped.words


def test_no_test_is_planned_for_no_gain(habit_data: Transitions) -> None:
    for gain in (None, 0.0, -0.1, float("nan")):
        assert plan_test(habit_data, habit_data.campaign, gain, 1.0, None) is None


def test_an_old_policy_that_no_arm_stands_for_has_a_placeholder(habit_data: Transitions) -> None:
    unknown = replace(habit_data, propensity=None)
    test = plan_test(unknown, unknown.campaign, 0.06, 1.0, None)
    assert test is not None
    assert "old,bundle=OLD/bundle" in test.command
    assert re.search(r"\bOLD/bundle [^,.]*\bold policy\b", test.placeholders)
    assert re.search(r"\bNEW/bundle [^,.]*\bpolicy\b", test.placeholders)
    mostly = np.zeros_like(np.asarray(habit_data.action))
    constant = plan_test(replace(unknown, action=mostly), unknown.campaign, 0.06, 1.0, None)
    assert constant is not None
    assert f"old,action={habit_data.actions[0]:g}," in constant.command
