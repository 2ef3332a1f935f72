"""The control: what a plan's spend becomes where traffic, redemption and the budget are not what was expected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from small_markets import COST, POLICIES, START, Market

from outlay.serve.clock import Moment
from outlay.serve.config import Plan
from outlay.serve.ledger.caps import Caps, Tally, Totals
from outlay.serve.pacing.budgets import BudgetState, Schedule
from outlay.serve.pacing.pacing import PacingSetup, PacingState, begin, correct

PLAN = Plan(start=START, days=4, correct_minutes=60)
SETTING = PacingSetup(Schedule(PLAN), POLICIES, 1.0, 1)
TOTAL = 400_000  # 1,000 decisions a day at 100
RANDOM = np.random.default_rng(3).uniform(0.5, 1.5, 40)


def money(*days: tuple[int, int, int, int], total: int = TOTAL) -> BudgetState:
    """Days from the first on: granted, settled, reserved, decisions."""
    return BudgetState(
        total,
        math.inf,
        {
            PLAN.first + i: Tally(cap=None, granted=g, settled=s, reserved=r, offers=n, decisions=n)
            for i, (g, s, r, n) in enumerate(days)
        },
        total,
    )


def at(moment: float) -> Moment:
    day = PLAN.first + int(moment // 1)
    return Moment(round((PLAN.first + moment) * 86_400_000), day, moment % 1)


TRAFFIC: dict[str, Callable[[float], float]] = {
    "steady": lambda _moment: 1.0,
    "weekly": lambda moment: 1 + 0.5 * math.sin(2 * math.pi * moment / 7),
    "growing": lambda moment: 0.5 + moment / 28,
    "shrinking": lambda moment: 1.5 - moment / 28,
    "random": lambda moment: float(RANDOM[int(moment)]),
    "busy": lambda _moment: 1.5,
    "quiet": lambda _moment: 0.5,
    "by day": lambda moment: RANDOM[int(moment)] * max(0.05, 1 + 1.2 * math.sin(2 * math.pi * moment)),
}


@pytest.mark.parametrize("shape", TRAFFIC)
def test_the_budget_is_spent_and_never_more(shape: str) -> None:
    """Redemption is 30% above what was believed, traffic up to half more or less."""
    ended = Market(TRAFFIC[shape]).play()
    assert 0.97 <= ended.spend <= 1
    assert ended.highest <= 1
    assert ended.refused < 0.03
    unpaced = Market(TRAFFIC[shape]).play(paced=False)
    assert unpaced.refused > 0.15 or unpaced.spend < 0.7


@pytest.mark.parametrize(
    "changes",
    [
        {"redeemed": 0.49},
        {"expiry_days": 3.0},
        {"expiry_days": 1 / 12},
        {"episode_days": 1},
        {"first": 0.6},
        {"first": 5.6},
        {"stops": ((10.2, 11.5),)},
        {"budgets": {14.4: 1.5}},
        {"days": 7, "episode_days": 1},
        {"decisions": 240},
        {"elasticity": 0.4},
        {"elasticity": 3.0},
        {"shares": (1, 1, 1, 1, 1, 2, 2) * 4},
    ],
    ids=str,
)
def test_so_it_is_when_something_happens(changes: dict[str, Any]) -> None:
    ended = changed(Market(TRAFFIC["by day"]), **changes).play()
    assert 0.97 <= ended.spend <= 1
    assert ended.highest <= 1
    assert ended.refused < 0.06


def test_where_little_is_redeemed_what_is_held_leaves_no_room_at_the_end() -> None:
    """The cap refuses some of the last days' decisions: three times as much is held as is spent."""
    ended = Market(TRAFFIC["by day"], believed=0.3, redeemed=0.39).play()
    assert 0.97 <= ended.spend <= 1
    assert ended.highest <= 1
    assert ended.refused < 0.1


def test_spend_follows_the_shares_of_the_plan() -> None:
    ended = Market(TRAFFIC["weekly"], shares=(1, 1, 1, 1, 1, 2, 2) * 4).play()
    wanted = np.tile([1, 1, 1, 1, 1, 2, 2], 4) / 36
    off = np.abs(np.array(ended.daily) / wanted - 1)
    assert off[3:27].mean() < 0.15  # traffic is off by 30% on average


def test_more_traffic_than_any_policy_can_serve_spends_it_all_and_less_spends_what_it_can() -> None:
    assert 0.97 <= Market(lambda _moment: 8.0).play().spend <= 1
    few = Market(lambda _moment: 0.1).play()
    assert few.states[-1].members == [len(COST) - 1]
    assert few.states[-1].price == pytest.approx(0.25)
    assert few.spend == pytest.approx(0.1 * 1.3 * COST[-1] / COST[13], rel=0.15)


def test_a_price_without_effect_is_bounded() -> None:
    states = Market(TRAFFIC["by day"], elasticity=0.0).play().states
    assert all(0.2499 <= state.price <= 4.001 for state in states)


def test_the_first_episode_serves_the_bundle_as_it_is() -> None:
    state = begin(SETTING, money(), at(0.0), None)
    assert (state.members, state.weights, state.price, state.limit) == ([13], [1.0], 1.0, None)
    assert state.snapshot.day_money == pytest.approx(100_000)


def test_weights_of_an_episode_are_for_its_money_and_decisions() -> None:
    """900 decisions came where 1,000 were expected, and cost what was promised; all is redeemed."""
    spent = round(900 * COST[13])
    state = second_day(spent, 900)
    assert state.snapshot.factor == pytest.approx(1, abs=1e-3)
    assert state.snapshot.forecast == pytest.approx(900)
    assert state.limit == pytest.approx((TOTAL - spent) / 3 / 900)
    assert np.array(state.weights) @ COST[state.members] == pytest.approx(state.limit, rel=1e-3)


def test_where_decisions_cost_more_than_promised_weights_are_cheaper() -> None:
    state = second_day(round(1_300 * COST[13]), 1_000)
    assert state.snapshot.factor == pytest.approx(1.3 ** (400 / 500), rel=1e-3)
    assert np.array(state.weights) @ COST[state.members] * state.snapshot.factor == pytest.approx(state.limit, rel=1e-3)


def second_day(spent: int, decisions: int) -> PacingState:
    """The first state of the second day; the first one was counted at its beginning and its end, at price 1."""
    setting = replan(Plan(start=START, days=4, correct_minutes=1440))
    state = begin(setting, money(), at(0.0), None)
    return begin(setting, money((spent, spent, 0, decisions)), at(1.0), state)


def noon(spent: float, before: PacingState) -> PacingState:
    """A correction at noon of the first day, half an hour after the last one."""
    earlier = replace(before, traffic=replace(before.traffic, ts=at(0.5).ts - 1_800_000))
    return correct(SETTING, money((round(spent), round(spent), 0, 0)), at(0.5), earlier)


def test_the_price_rises_where_too_much_is_spent_and_falls_where_too_little_is() -> None:
    """In small steps, and not for an error within 2% of the day's money."""
    state = begin(SETTING, money(), at(0.0), None)
    day = state.snapshot.day_money
    prices = [noon((0.5 + error) * day, state).price for error in (-0.5, -0.019, 0, 0.019, 0.5)]
    assert prices == pytest.approx([1 / 1.1, 1, 1, 1, 1.1])
    assert noon(0.51 * day, replace(state, price=1.05)).price == pytest.approx(1)


def test_a_small_error_moves_it_in_proportion_and_lasts_in_the_integral() -> None:
    """Three hundredths beyond the band: the spend is to fall by 12%, the price moves by that over its elasticity."""
    state = begin(SETTING, money(), at(0.0), None)
    small = noon(0.55 * state.snapshot.day_money, state)
    elasticity = POLICIES.elasticity(POLICIES.own)
    assert 1.5 < elasticity < 2.1
    assert small.integral == pytest.approx(2 * 0.03 / 48, rel=0.01)
    assert math.log(small.price) == pytest.approx((4 * 0.03 + small.integral) / elasticity, rel=0.01)


def test_what_a_stop_missed_is_not_made_up_for_in_haste() -> None:
    state = begin(SETTING, money(), at(0.0), None)
    back = correct(SETTING, money(), at(0.75), state)
    assert back.price == 1
    assert [back.anchor.progress, back.snapshot.planned] == pytest.approx([0.75, 0])
    assert back.snapshot.day_money == pytest.approx(TOTAL / 3.25, rel=0.01)


def test_a_new_cap_begins_a_new_path() -> None:
    state = begin(SETTING, money(), at(0.0), None)
    half = correct(SETTING, money((50_000, 50_000, 0, 500), total=TOTAL // 2), at(0.01), replace(state, price=1.0))
    assert half.price == 1
    assert half.anchor.total == TOTAL // 2
    assert half.snapshot.day_money == pytest.approx(150_000 / 3.99, rel=0.02)


@pytest.mark.parametrize("moment", [-1.5, 4.0, 400.0])
def test_outside_of_the_plan_the_cheapest_serves_at_the_highest_price(moment: float) -> None:
    state = begin(SETTING, money(), at(moment), None)
    assert (state.members, round(state.price, 9)) == ([0], 4)
    assert correct(SETTING, money(), at(moment + 0.01), state).price == pytest.approx(4)


def test_a_day_without_money_is_the_same() -> None:
    setting = replan(Plan(start=START, days=4, shares=(0, 1, 1, 1)))
    assert begin(setting, money(), at(0.2), None).members == [0]
    assert begin(setting, money(), at(1.2), None).members == [13]


def replan(plan: Plan) -> PacingSetup:
    return changed(SETTING, schedule=Schedule(plan))


def test_when_all_money_is_spent_nothing_is_divided_by_zero() -> None:
    state = begin(SETTING, money((TOTAL, TOTAL, 0, 9)), at(0.5), None)
    assert (state.members, round(state.price, 9)) == ([0], 4)
    state = begin(SETTING, money(total=0), at(0.5), None)
    assert correct(SETTING, money(total=0), at(0.51), state).price == pytest.approx(4)


def test_after_a_day_without_anybody_the_bundle_serves_as_it_is() -> None:
    """The server ran, and nobody asked: an episode that begins then must not fail, and knows no traffic."""
    setting = replan(Plan(start=START, days=4, correct_minutes=1440))
    state = begin(setting, money((0, 0, 0, 0)), at(1.0), begin(setting, money(), at(0.0), None))
    assert state.traffic.seen[PLAN.first].progress == pytest.approx(1)
    assert (state.snapshot.forecast, state.limit, state.members, state.weights) == (None, None, [13], [1.0])


def test_a_state_is_whole_in_json() -> None:
    states = Market(TRAFFIC["by day"], days=3, episode_days=1).play().states
    for state in states:
        assert msgspec.json.decode(msgspec.json.encode(state), type=PacingState) == state


def test_a_campaign_without_a_total_cap_has_no_budget() -> None:
    tally = Tally(cap=None, granted=0, settled=0, reserved=0, offers=0, decisions=0)
    totals = Totals(campaign="c", caps=Caps(day=5), paused=False, total=tally, days={}, arms={}, arm_days={})
    assert BudgetState.of(totals) is None
    assert BudgetState.of(msgspec.structs.replace(totals, caps=Caps(total=9, day=5))) == BudgetState(9, 5, {}, 9)
