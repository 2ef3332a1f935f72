"""A game on a log of many features: what its candidates are measured by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import outlay
from outlay.choosing import choose as choosing
from outlay.choosing.candidates import CandidatePolicy, RunContext
from outlay.choosing.choose import Selection
from outlay.core.errors import CampaignError
from outlay.core.transitions import SELECT, Transitions
from outlay.learning.game import BISECTIONS
from outlay.learning.mixing import RULES
from outlay.training import log_game as play


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
    assert game.earliest > 0, "after a warm-up"
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
    """λ reads one more network, unless all is the critic's own."""
    game = play.set_up(city, city.campaign.with_train(measured_by=by), RULES["lp"], "ddqn", 0)
    assert (game.measure is not None) == measured
    assert (game.begin().player.extra is not None) == (by != "critic")


def test_a_game_whose_weights_are_solved_again_leaves_the_room_for_the_certificate(city: Transitions) -> None:
    """The room of the best mixture of constants; what the rule itself finds is to spend all."""
    plain, again = (
        play.set_up(city, city.campaign, RULES["lp"], "ddqn", 0, solved_again=solved) for solved in (False, True)
    )
    limit = city.campaign.budgets[0].limit
    assert plain.coords.limits.tolist() == [limit]
    assert 0.3 * limit < again.coords.limits[0] < 0.98 * limit
    assert (plain.keeps_frugal, again.keeps_frugal) == (False, True)


def test_a_bisection_has_a_candidate_for_each_of_its_prices(city: Transitions) -> None:
    game = play.set_up(city, city.campaign, RULES["single-best"], "ddqn", 0, multipliers="bisection")
    assert game.steps // game.train.candidate_every == pytest.approx(BISECTIONS, abs=1)
    two = city.campaign.model_copy(update={"budgets": city.campaign.budgets * 2})
    with pytest.raises(CampaignError, match="2 budgets; a bisection"):
        play.set_up(city, two, RULES["single-best"], "ddqn", 0, multipliers="bisection")


@pytest.mark.slow
def test_what_the_last_network_answers_to_higher_prices_may_be_served_too(
    city: Transitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once λ has settled all candidates spend what the limit allows, and a certificate needs more room than that."""
    measured: list[CandidatePolicy] = []

    def choose(context: RunContext, candidates: Sequence[CandidatePolicy], *rest: Any, **how: Any) -> Selection:
        measured.extend(candidates)
        assert how["one_first"]
        return choosing.choose(context, candidates, *rest, **how)

    monkeypatch.setattr(play, "choose", choose)
    monkeypatch.setattr(play, "STEEPER", play.STEEPER[::3])
    campaign = city.campaign.with_train(min_steps=300, epochs=1, layers=(16, 8), spare_candidates=1)
    play.learn(city, campaign, "aim-greedy", "bcq", 0, tmp_path, False, lambda *_: None)
    steeper = [policy for policy in measured if "×" in policy.name]
    last = max((policy for policy in measured if policy not in steeper), key=lambda policy: policy.number or 0)
    assert [policy.multiplier for policy in steeper] == [factor * last.multiplier for factor in play.STEEPER]
    assert {(policy.number, policy.step) for policy in steeper} == {(last.number, last.step)}
    assert all(policy.head_weights[1] < last.head_weights[1] < 0 for policy in steeper)
