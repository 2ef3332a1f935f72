"""The control: what a plan's spend becomes where traffic, redemption and the budget are not what was expected.

And of servers: whoever comes first notes a state, and all serve what stands.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from small_markets import COST, POLICIES, START, Market

from outlay.bundles.decide import Bundle
from outlay.bundles.pool import Pool
from outlay.serve.clock import Moment
from outlay.serve.config import Plan, ServeConfig
from outlay.serve.deciding.decider import Decider, EncodedRequest, decode_draw
from outlay.serve.ledger.caps import Caps, Tally, Totals
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.ledger.records import Proposal, new_decision_id
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.pacing.budgets import PACE, BudgetState, Schedule, outside_budget
from outlay.serve.pacing.forecast import PacingSetup
from outlay.serve.pacing.pacing import Pacer, PacingState, begin, correct

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


HOUR = 3_600_000
BEGIN = int(datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC).timestamp() * 1000)
CONFIG = ServeConfig.parse(
    {"plan": {"start": START, "days": 4, "correct_minutes": 60}, "episode": {"days": 1}, "expiry_hours": 24}
)
assert CONFIG.plan is not None
ALL = outside_budget(CONFIG.plan, None)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.set_caps("coupons", Caps(total=100_000))
    yield ledger
    ledger.close()


@pytest.fixture
def base(frontier_bundle: Bundle) -> Decider:
    return decider_of(frontier_bundle)


def decider_of(bundle: Bundle) -> Decider:
    pool = Pool(bundle)
    return Decider(pool, pool.weights, none=0.0, fallback=0.0)


def states(ledger: Ledger) -> list[tuple[str, PacingState]]:
    return [(note.key, msgspec.json.decode(note.content, type=PacingState)) for note in ledger.notes("coupons", PACE)]


def spend(ledger: Ledger, ts: int, count: int, amount: int = 100) -> None:
    ledger.record([proposal(ts, f"{ts}-{i}", amount) for i in range(count)])


def proposal(ts: int, request: str, amount: int) -> Proposal:
    return Proposal(
        campaign="coupons",
        request_id=request,
        body="b",
        decision_id=new_decision_id(ts),
        ts=ts,
        day=ts // 86_400_000,
        arm="policy",
        user=request,
        episode="e",
        bundle="b",
        member=0,
        action=1.0,
        action_index=1,
        amount=amount,
        probability=1.0,
        members="{}",
        features="{}",
        reason="policy",
        expires=ts + 86_400_000,
        forced=False,
        none_action=0.0,
        none_index=0,
    )


def test_an_episode_begins_with_the_bundle_as_it_is_and_is_noted(ledger: Ledger, base: Decider) -> None:
    paced = Pacer(ledger, CONFIG, ALL).decider(base, "e.0", BEGIN)
    assert (paced.weights.tolist(), paced.price) == (base.weights.tolist(), 1.0)
    [(key, state)] = states(ledger)
    assert key == f"e.0/{base.pool.bundle.id}/000000"
    assert (state.members, state.weights) == ([1, 3], [0.6, 0.4])


def test_the_price_is_corrected_when_it_is_time_and_not_before(ledger: Ledger, base: Decider) -> None:
    pacer = Pacer(ledger, CONFIG, ALL)
    assert pacer.decider(base, "e.0", BEGIN).price == 1
    spend(ledger, BEGIN, 900)  # nearly all money on the first day
    pacer.tend(base, "e.0", BEGIN + HOUR - 1)
    assert pacer.decider(base, "e.0", BEGIN + HOUR - 1).price == 1
    pacer.tend(base, "e.0", BEGIN + HOUR)
    assert pacer.decider(base, "e.0", BEGIN + HOUR).price == pytest.approx(1.1)
    assert [key.split("/")[-1] for key, _ in states(ledger)] == ["000000", "000001"]
    [choice] = pacer.decider(base, "e.0", BEGIN + HOUR).decide([case(base)], "e.0")
    draw = decode_draw(choice.members)
    assert draw.price == pytest.approx(1.1)
    assert draw.members == [1, 3]


def case(base: Decider) -> EncodedRequest:
    return EncodedRequest("r", "u", base.encoder.encode({"level": 1, "city": "Ulm", "spend": 3}))


def test_the_first_state_that_is_noted_stands_for_all_servers(ledger: Ledger, base: Decider) -> None:
    one, two = Pacer(ledger, CONFIG, ALL), Pacer(ledger, CONFIG, ALL)
    for pacer in (one, two):
        pacer.decider(base, "e.0", BEGIN)
    spend(ledger, BEGIN, 900)
    first = one.tend(base, "e.0", BEGIN + HOUR)
    ledger.set_caps("coupons", Caps(total=10_000_000))  # what the other one sees asks for another price
    assert two.tend(base, "e.0", BEGIN + HOUR + 5) == first
    assert two.decider(base, "e.0", BEGIN + HOUR + 5).price == pytest.approx(1.1)
    assert len(states(ledger)) == 2


def test_a_server_that_was_away_takes_over_what_stands(ledger: Ledger, base: Decider) -> None:
    one, two = Pacer(ledger, CONFIG, ALL), Pacer(ledger, CONFIG, ALL)
    two.decider(base, "e.0", BEGIN)
    for hour in range(5):
        spend(ledger, BEGIN + hour * HOUR, 50)
        one.tend(base, "e.0", BEGIN + hour * HOUR)
    stands = one.tend(base, "e.0", BEGIN + 4 * HOUR)
    assert two.tend(base, "e.0", BEGIN + 4 * HOUR + 9) == stands
    assert Pacer(ledger, CONFIG, ALL).decider(base, "e.0", BEGIN + 4 * HOUR + 9).price == stands.price  # type: ignore[union-attr]


def test_a_new_episode_has_weights_for_its_money(ledger: Ledger, base: Decider) -> None:
    pacer = Pacer(ledger, CONFIG, ALL)
    for hour in range(24):
        pacer.tend(base, "e.0", BEGIN + hour * HOUR)
        spend(ledger, BEGIN + hour * HOUR, 100, amount=20)  # 2,400 for 20 each: 33,000 left a day
    paced = pacer.decider(base, "e.1", BEGIN + 24 * HOUR)
    key, state = states(ledger)[-1]
    assert key.startswith("e.1/")
    assert state.snapshot.forecast == pytest.approx(2_400, rel=0.05)
    assert state.limit == pytest.approx(52_000 / 3 / 2_400, rel=0.2)
    assert np.flatnonzero(paced.weights).tolist() == state.members == [4]


def test_another_bundle_has_states_of_its_own(ledger: Ledger, base: Decider, bundle: Bundle) -> None:
    pacer = Pacer(ledger, CONFIG, ALL)
    for hour in range(3):
        pacer.tend(base, "e.0", BEGIN + hour * HOUR)
        spend(ledger, BEGIN + hour * HOUR, 10)
    other = decider_of(bundle)
    assert len(pacer.decider(other, "e.0", BEGIN + 3 * HOUR).weights) == 2
    key, state = states(ledger)[-1]
    assert key == f"e.0/{bundle.id}/000000"
    assert state.traffic.seen[START.toordinal() - datetime.date(1970, 1, 1).toordinal()].decisions == 30
    assert len(pacer.decider(base, "e.0", BEGIN + 3 * HOUR).weights) == 5
    assert len(states(ledger)) == 4


def test_within_an_episode_the_ledger_is_not_asked(ledger: Ledger, base: Decider) -> None:
    pacer = Pacer(ledger, CONFIG, ALL)
    first = pacer.decider(base, "e.0", BEGIN)
    ledger.close()
    assert pacer.decider(base, "e.0", BEGIN + HOUR) is first
    with pytest.raises(LedgerError):
        pacer.decider(base, "e.1", BEGIN + 24 * HOUR)
    with pytest.raises(LedgerError):
        pacer.tend(base, "e.0", BEGIN + HOUR)
    assert pacer.decider(base, "e.0", BEGIN + HOUR) is first


def test_in_a_pause_nothing_is_corrected_and_afterwards_the_path_begins_anew(ledger: Ledger, base: Decider) -> None:
    pacer = Pacer(ledger, CONFIG, ALL)
    before = pacer.tend(base, "e.0", BEGIN)
    ledger.pause("coupons")
    for hour in range(1, 12):
        assert pacer.tend(base, "e.0", BEGIN + hour * HOUR) == before
    ledger.resume("coupons")
    after = pacer.tend(base, "e.0", BEGIN + 12 * HOUR)
    assert after is not None
    assert [after.price, after.anchor.progress, after.snapshot.planned] == pytest.approx([1, 0.5, 0])


def test_without_a_total_cap_the_bundle_serves_as_it_is_until_there_is_one(ledger: Ledger, base: Decider) -> None:
    ledger.set_caps("coupons", Caps())
    pacer = Pacer(ledger, CONFIG, ALL)
    assert pacer.decider(base, "e.0", BEGIN) is base
    assert pacer.tend(base, "e.0", BEGIN) is None
    ledger.set_caps("coupons", Caps(total=100))
    state = pacer.tend(base, "e.0", BEGIN + 1)
    assert state is not None
    ledger.set_caps("coupons", Caps())
    assert pacer.tend(base, "e.0", BEGIN + HOUR) == state


def test_what_came_between_is_seen_although_another_server_counted_before(ledger: Ledger, base: Decider) -> None:
    """The state is the ledger's: a server that has just begun knows the days that others have counted."""
    for hour in range(24):
        Pacer(ledger, CONFIG, ALL).tend(base, "e.0", BEGIN + hour * HOUR)
        spend(ledger, BEGIN + hour * HOUR, 5)
    _, state = states(ledger)[-1]
    assert state.step == 23
    assert [seen.decisions for seen in state.traffic.seen.values()] == [115]
    assert replace(state, step=0) != state


def test_states_can_be_read_by_people(ledger: Ledger, base: Decider) -> None:
    Pacer(ledger, CONFIG, ALL).tend(base, "e.0", BEGIN)
    [note] = ledger.notes("coupons", PACE)
    content: dict[str, Any] = msgspec.json.decode(note.content)
    assert content["price"] == 1.0
    assert content["snapshot"]["day_money"] == pytest.approx(25_000, rel=0.1)
