"""A game on a log of many features: what its candidates are measured by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import outlay
from outlay.core.transitions import SELECT, Transitions
from outlay.learning.mixing import RULES
from outlay.training import game as play


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Transitions:
    folder = tmp_path_factory.mktemp("city")
    outlay.prepare(outlay.simulate("city", folder / "log", users=1500, seed=1), folder / "data")
    return Transitions.open(folder / "data")


class Always:
    """A policy that gives one action."""

    def __init__(self, action: int) -> None:
        self.action = action
        self.rows = 0

    def actions(self, codes: NDArray[Any], _numbers: NDArray[Any], _allowed: NDArray[Any]) -> NDArray[np.int64]:
        """The same in every row."""
        self.rows += len(codes)
        return np.full(len(codes), self.action)


@pytest.mark.parametrize("most", [play.MEASURED_USERS, 150])
def test_candidates_are_measured_on_the_log_by_a_sample_of_its_users(
    most: int, city: Transitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No coupon costs nothing; the largest costs what it costs those who got it."""
    monkeypatch.setattr(play, "MEASURED_USERS", most)
    game = play.set_up(city, city.campaign, RULES["lp"], "ddqn", 0)
    assert not game.counted
    assert game.measure is not None
    assert game.first > 0, "after a warm-up"
    nothing, largest = Always(0), Always(4)
    free, dear = (game.measure(policy) for policy in (nothing, largest))  # type: ignore[arg-type]
    assert nothing.rows == 7 * min(most, len(city.users_of(SELECT)))
    assert free[1] == pytest.approx(0, abs=1e-6)
    rows = city.rows_of(SELECT)
    given = rows[city.action[rows] == 4]
    assert dear[1] == pytest.approx(float(city.outcome[given, 1].mean()), rel=0.35)
    assert dear[0] > free[0]


@pytest.mark.parametrize(("by", "measured"), [("critic", False), ("network", False), ("auto", True)])
def test_who_measures_is_a_setting(by: str, measured: bool, city: Transitions) -> None:
    game = play.set_up(city, city.campaign.with_train(measured_by=by), RULES["lp"], "ddqn", 0)
    assert (game.measure is not None) == measured
    assert (game.begin().player.extra is not None) == (by == "network")
