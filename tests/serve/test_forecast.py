"""What pacing knows of days, traffic and redemption."""

from __future__ import annotations

import datetime
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from outlay.serve.clock import EPOCH, Moment
from outlay.serve.ledger.caps import Tally
from outlay.serve.pacing.forecast import (
    DayCount,
    TrafficHistory,
    cost_factor,
    progress,
    redemption,
    spend,
    traffic_rate,
)

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
EVEN = (1 / 24,) * 24


def at(text: str, zone: zoneinfo.ZoneInfo = BERLIN) -> Moment:
    return Moment.of(int(datetime.datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000), zone)


def tally(granted: int = 0, settled: int = 0, reserved: int = 0, *, decisions: int = 0) -> Tally:
    return Tally(cap=None, reserved=reserved, settled=settled, offers=decisions, decisions=decisions, granted=granted)


def moment(day: int, part: float) -> Moment:
    return Moment(int((day + part) * 86_400_000), day, part)


def test_a_day_begins_at_midnight_of_the_zone_and_is_one_day_when_the_clock_is_changed() -> None:
    assert at("2026-03-02 00:00").part == 0
    assert at("2026-03-02 18:00").part == pytest.approx(0.75)
    assert at("2026-03-02 00:30").day == (datetime.date(2026, 3, 2) - EPOCH).days
    # 29 March 2026 has 23 hours: noon is 11 hours after its beginning.
    assert at("2026-03-29 12:00").part == pytest.approx(11 / 23)
    assert at("2026-03-29 23:59:59").part == pytest.approx(1, abs=1e-4)
    assert at("2026-03-30 00:00")[1:] == (at("2026-03-29 12:00").day + 1, 0)


def test_progress_follows_the_course_of_a_day() -> None:
    course = (0.0,) * 12 + (0.5, 0.5) + (0.0,) * 10
    assert [progress(course, part) for part in (0, 0.5, 12.5 / 24, 13 / 24, 0.9, 1)] == pytest.approx(
        [0, 0, 0.25, 0.5, 1, 1]
    )
    assert [progress(EVEN, part) for part in (0, 0.3, 1)] == pytest.approx([0, 0.3, 1])


def test_what_came_is_counted_by_day_with_what_it_was_promised_to_cost() -> None:
    traffic = TrafficHistory.opened({5: tally(decisions=10)}, moment(5, 0.25))
    traffic = traffic.continued({5: tally(decisions=40)}, moment(5, 0.5), 2.0, 1.5, stopped=False)
    assert traffic.seen == {5: DayCount(30, 0.25, 60.0, 45.0)}
    assert traffic.hours[6:12] == pytest.approx([5.0] * 6)
    assert sum(traffic.hours) == pytest.approx(30)
    traffic = traffic.continued(
        {5: tally(decisions=60), 6: tally(decisions=8)}, moment(6, 0.125), 1.0, 1.0, stopped=False
    )
    assert sorted(traffic.seen) == [5, 6]
    assert astuple(traffic.seen[5]) == pytest.approx((50, 0.75, 80, 65))
    assert astuple(traffic.seen[6]) == pytest.approx((8, 0.125, 8, 8))
    assert [traffic.counted, sum(traffic.hours)] == pytest.approx([8, 8])


def test_what_came_while_nobody_counted_is_left_out() -> None:
    traffic = TrafficHistory.opened({}, moment(5, 0.0)).continued(
        {5: tally(decisions=9)}, moment(5, 0.5), 1.0, 1.0, stopped=True
    )
    assert (traffic.seen, traffic.counted) == ({}, 9)
    traffic = traffic.continued({5: tally(decisions=12)}, moment(5, 0.75), 1.0, 1.0, stopped=False)
    assert astuple(traffic.seen[5]) == pytest.approx((3, 0.25, 3, 3))


def test_the_first_whole_day_is_the_course_and_later_ones_move_it() -> None:
    traffic = TrafficHistory.opened({}, moment(5, 0.0))
    traffic = traffic.continued({5: tally(decisions=2_400)}, moment(5, 0.5), 1.0, 1.0, stopped=False)
    traffic = traffic.continued({5: tally(decisions=2_400)}, moment(6, 0.01), 1.0, 1.0, stopped=False)
    assert traffic.learned == 1
    assert sum(traffic.course) == pytest.approx(1)
    assert traffic.course[3] == pytest.approx((200 + 100 / 24) / 2_500)
    assert traffic.course[20] == pytest.approx((100 / 24) / 2_500)
    later = traffic.continued({6: tally(decisions=2_400)}, moment(7, 0.01), 1.0, 1.0, stopped=False)
    assert later.learned == 2
    assert later.course[20] == pytest.approx(traffic.course[20] + 0.25 * (1 / 24 - traffic.course[20]), rel=0.01)


def test_a_day_that_was_counted_in_part_teaches_no_course() -> None:
    traffic = TrafficHistory.opened({}, moment(5, 0.5)).continued(
        {5: tally(decisions=9)}, moment(6, 0.1), 1.0, 1.0, stopped=False
    )
    assert (traffic.learned, traffic.course) == (0, EVEN)


def test_traffic_is_per_share_and_per_part_of_a_day() -> None:
    shares = {1: 1.0, 2: 2.0, 3: 1.0}
    seen = {1: DayCount(50, 0.5), 2: DayCount(200, 1.0), 9: DayCount(999, 1.0)}
    assert traffic_rate(seen, shares) == pytest.approx(250 / (0.5 + 2))
    assert traffic_rate({1: DayCount(50, 0.4)}, shares) is None
    assert traffic_rate({}, shares) is None


@pytest.mark.parametrize("decisions", [0, 99])
def test_a_day_on_which_hardly_anyone_came_is_no_forecast(decisions: int) -> None:
    """Some requests to try it out would give all the money to the next few."""
    assert traffic_rate({1: DayCount(decisions, 1.0)}, {1: 1.0}) is None
    assert traffic_rate({1: DayCount(100, 1.0)}, {1: 1.0}) == 100


def test_redemption_is_told_by_days_that_have_expired() -> None:
    open_days = {9: tally(1_000, 50, 950, decisions=100)}
    assert redemption(open_days, 10, 1.0, 0.6) == pytest.approx(0.6)  # yesterday says: at least 0.05
    days = {5: tally(10_000, 9_000, decisions=1_000), **open_days}
    assert redemption(days, 10, 1.0, 0.6) == pytest.approx((9_000 + 1_000 * 0.6) / 11_000)
    assert redemption(days, 10, 6.0, 0.6) == pytest.approx(0.6)


def test_free_offers_say_nothing_of_redemption() -> None:
    assert redemption({5: tally(0, 0, decisions=100)}, 10, 1.0, 0.6) == 0.6


def test_what_yesterday_has_settled_already_is_the_least() -> None:
    days = {9: tally(10_000, 9_500, 500, decisions=1_000)}
    assert redemption(days, 10, 1.0, 0.6) == pytest.approx((9_500 + 1_000 * 0.6) / 11_000)


@given(st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 1_000), st.floats(0, 1))
def test_a_day_costs_at_least_what_is_settled_and_at_most_what_is_held_too(
    settled: int, reserved: int, released: int, redeemed: float
) -> None:
    found = spend(tally(settled + reserved + released, settled, reserved), redeemed)
    assert settled <= found <= settled + reserved
    assert spend(tally(100, 0, 100), redeemed) == pytest.approx(100 * redeemed)


def market(factor: float, response: float, prices: list[float]) -> tuple[dict[int, DayCount], dict[int, float]]:
    """Days of 1,000 decisions that cost κ · promised · (priced / promised)^β."""
    seen = {day: DayCount(1_000, 1.0, 2_000.0, 2_000.0 * price) for day, price in enumerate(prices)}
    return seen, {day: 2_000 * factor * price**response for day, price in enumerate(prices)}


@pytest.mark.parametrize(("factor", "response"), [(1.3, 1.0), (1.3, 0.3), (0.8, 2.0), (1.0, 0.0)])
def test_what_decisions_cost_and_what_a_price_does_are_told_apart(factor: float, response: float) -> None:
    seen, costs = market(factor, response, [1.0, 0.6, 1.5, 0.8, 1.2, 0.5, 1.0])
    days = {day: tally(decisions=1_000) for day in seen}
    assert cost_factor(seen, days, costs) == pytest.approx((factor, response), rel=0.05, abs=0.03)


def test_with_little_known_what_was_measured_is_believed() -> None:
    assert cost_factor({}, {}, {}) == (1, 1)
    seen, costs = market(1.5, 0.2, [1.0])
    few = {0: DayCount(10, 0.1, 20.0, 20.0)}
    assert cost_factor(few, {0: tally(decisions=1_000)}, costs)[0] == pytest.approx(1.5 ** (10 / 110))
    assert cost_factor(seen, {0: tally(decisions=1_000)}, costs) == pytest.approx((1.5 ** (400 / 500), 1.0))
