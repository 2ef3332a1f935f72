import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("gymnasium")

import gymnasium
from gymnasium.utils.env_checker import check_env

from outlay.core.errors import OutlayError
from outlay.gym import NAMES
from outlay.ops.tabular import totals
from outlay.simulators import CAMPAIGNS, find
from outlay.simulators.environment import CampaignEnvironment, environment
from outlay.simulators.simulator import Simulator


def few_states(campaign: str) -> Simulator:
    simulator = find(campaign)
    assert isinstance(simulator, Simulator)
    return simulator


@pytest.mark.parametrize("campaign", list(CAMPAIGNS))
def test_gymnasium_accepts_it(campaign: str) -> None:
    check_env(environment(campaign), skip_render_check=True)


@pytest.mark.parametrize("campaign", list(CAMPAIGNS))
def test_it_has_a_name_that_gymnasium_knows(campaign: str) -> None:
    env = gymnasium.make(NAMES[campaign], days=3)
    check_env(env.unwrapped)
    env.reset(seed=1)
    ends = [env.step(np.int64(0))[3] for _ in range(3)]
    assert ends == [False, False, True]


def test_the_name_suffices() -> None:
    code = "import gymnasium; print(gymnasium.make('outlay.gym:outlay/Habit-v0').spec.id)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "outlay/Habit-v0\n"


@pytest.mark.parametrize("campaign", [name for name in CAMPAIGNS if isinstance(find(name), Simulator)])
def test_an_episode_is_one_user_for_the_days_of_the_log(campaign: str) -> None:
    env, simulator = environment(campaign), few_states(campaign)
    first, info = env.reset(seed=4)
    assert env.observation_space.contains(first)
    for day in range(simulator.log_days):
        state, action = info["state"], np.int64(day % len(env.coupons))
        observation, reward, terminated, truncated, info = env.step(action)
        assert reward in (0.0, 1.0)
        np.testing.assert_array_equal(info["cost"], [env.coupons[action] * reward])
        assert simulator.model.cmdp().transition[state, action, info["state"]] > 0
        assert env.observation_space.contains(observation)
        assert (terminated, truncated) == (False, day == simulator.log_days - 1)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))


def test_the_observation_is_the_row_of_the_state() -> None:
    for campaign in ("habit", "thirty-day"):
        env, codes = environment(campaign), few_states(campaign).codes
        for seed in range(20):
            observation, info = env.reset(seed=seed)
            np.testing.assert_array_equal(observation, codes[:, info["state"]])


def test_a_wide_user_keeps_some_fields_and_another_user_has_others() -> None:
    env = environment("wide", fields=30, values=3000)
    rows = np.array([env.reset(seed=0)[0], *(env.step(np.int64(0))[0] for _ in range(6))])
    kept = (rows == rows[0]).all(axis=0)
    assert 8 <= kept.sum() <= 22
    assert (env.reset(seed=1)[0][kept] != rows[0][kept]).any()


def mean_totals(env: CampaignEnvironment, action: Callable[[], int], episodes: int) -> np.ndarray:
    """`[2]` mean active days and spend of an episode, then `[2]` their standard errors."""
    found = np.zeros((episodes, 2))
    for episode in range(episodes):
        env.reset(seed=episode)
        over = False
        while not over:
            _, reward, _, over, info = env.step(np.int64(action()))
            found[episode] += reward, info["cost"][0]
    return np.array([found.mean(axis=0), found.std(axis=0) / np.sqrt(episodes)])


@pytest.mark.parametrize("campaign", ["habit", "thirty-day"])
def test_outcomes_follow_the_truth(campaign: str) -> None:
    cmdp = few_states(campaign).model.cmdp()
    env = environment(campaign, days=5)
    assert isinstance(env, CampaignEnvironment)
    mean, error = mean_totals(env, lambda: 5, 1500)
    expected = totals(cmdp, np.full(cmdp.num_states, 5), 5)[-1]
    assert (np.abs(mean - expected) < 4 * error).all()


def test_actions_that_are_none_are_refused() -> None:
    env = environment("habit")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))
    env.reset(seed=0)
    for wrong in (-1, 11):
        with pytest.raises(gymnasium.error.InvalidAction, match="expected 0 to 10"):
            env.step(np.int64(wrong))


def test_wrong_names_and_numbers_are_told() -> None:
    with pytest.raises(OutlayError, match="campaign: is 'habits'"):
        environment("habits")
    with pytest.raises(OutlayError, match="days: is 0"):
        environment("habit", days=0)
    with pytest.raises(OutlayError, match=r"fields: habit .*no such option"):
        environment("habit", fields=3)
    with pytest.raises(OutlayError, match=r"colour: wide .*no such option"):
        environment("wide", colour=3)


def test_without_gymnasium_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "outlay.simulators.environment")
    with pytest.raises(OutlayError, match=r"pip install 'outlay\[gym\]'"):
        __import__("outlay.simulators.environment")
