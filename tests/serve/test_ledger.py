"""One suite for all registered ledgers: in a file, in memory, and in a real PostgreSQL."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from small_ledgers import CLOCK, DAY, EVERY_BACKEND, HOUR, PLACES, new_url, outcome, proposal, tamper

from outlay.serve.ledger import sql_ledger
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps, Tally
from outlay.serve.ledger.ledger import Ledger, LedgerError, Note, UndecidedError
from outlay.serve.ledger.records import OutcomeResult, Proposal, new_decision_id
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.ledger.tables import FORMAT, create_statements
from telling import missing


@pytest.fixture(params=EVERY_BACKEND)
def backend(request: pytest.FixtureRequest) -> str:
    """One after the other, all that are registered."""
    return str(request.param)


@pytest.fixture
def url(backend: str, tmp_path: Path) -> str:
    return new_url(backend, tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """A ledger with a campaign of 1,000; after every test its counters must be the sums of its rows."""
    ledger = open_ledger(url)
    ledger.set_caps("coupons", Caps(total=1000))
    yield ledger
    assert ledger.check() == []
    ledger.close()


def given(ledger: Ledger, request_id: str = "r1", amount: int = 100, **changed: Any) -> str:
    """The id of a decision whose amount is reserved."""
    [answer] = ledger.record([proposal(request_id, amount, **changed)])
    assert answer.amount == amount
    return answer.decision_id


def total(ledger: Ledger) -> tuple[int, int]:
    tally = ledger.totals("coupons").total
    return tally.reserved, tally.settled


def status(ledger: Ledger, *args: str, **changed: Any) -> str:
    [answer] = ledger.outcomes([outcome(*args, **changed)])
    return answer.status


# Reserving


def test_a_decision_is_its_reservation(ledger: Ledger) -> None:
    asked = proposal("r1", 100, time="2026-01-01")
    [answer] = ledger.record([asked])
    assert answer.status == "new"
    assert (answer.amount, answer.action, answer.action_index, answer.member) == (100, 1.0, 2, 1)
    assert (answer.probability, answer.bundle, answer.reason, answer.arm) == (0.7, "b1", "policy", "main")
    [row] = ledger.rows("coupons", CLOCK, CLOCK + 1)
    for name in set(Proposal.__struct_fields__) - {"body", "none_action", "none_index", "refused"}:
        assert getattr(row, name) == getattr(asked, name), name
    assert (row.state, row.held, row.paid, row.outcomes) == ("reserved", 100, 0, ())
    assert total(ledger) == (100, 0)


def test_the_last_unit_can_be_spent_and_not_one_more(ledger: Ledger) -> None:
    answers = ledger.record([proposal(f"r{i}", 300) for i in range(5)])
    assert [answer.amount for answer in answers] == [300, 300, 300, 0, 0]
    assert answers[3].reason == "total_cap"
    assert (answers[3].action, answers[3].action_index, answers[3].probability) == (0.0, 0, 1.0)
    assert answers[3].forced
    [small, one_more] = ledger.record([proposal("small", 100), proposal("one more", 1)])
    assert (small.amount, one_more.amount) == (100, 0)
    assert total(ledger) == (1000, 0)


@pytest.mark.parametrize(
    ("caps", "reason"),
    [
        (Caps(user_day_offers=0, day=0, arms={"main": 0}, total=0), "user_limit"),
        (Caps(user_offers=0, day=0, arms={"main": 0}, total=0), "user_limit"),
        (Caps(user_day_amount=99, day=0, arms={"main": 0}, total=0), "user_limit"),
        (Caps(user_amount=99, day=0, arms={"main": 0}, total=0), "user_limit"),
        (Caps(user_amount=100, day=99, arms={"main": 0}, total=0), "day_cap"),
        (Caps(user_amount=100, day=100, arms={"main": 99}, total=0), "arm_cap"),
        (Caps(user_amount=100, day=100, arms={"main": 100}, total=99), "total_cap"),
        (Caps(user_amount=100, user_offers=1, day=100, arms={"main": 100}, total=100), "policy"),
        (Caps(), "policy"),
    ],
)
def test_the_first_guard_that_says_no_gives_the_reason(ledger: Ledger, caps: Caps, reason: str) -> None:
    ledger.set_caps("coupons", caps)
    [answer] = ledger.record([proposal("r1", 100)])
    assert answer.reason == reason
    assert answer.forced == (reason != "policy")


def test_limits_are_those_of_the_own_day_arm_and_user(ledger: Ledger) -> None:
    ledger.set_caps("coupons", Caps(day=300, arms={"random": 100}, user_day_offers=1, user_offers=2))
    asked = [
        proposal("ann 1", user="ann"),
        proposal("ann 2", user="ann"),
        proposal("bob", user="bob", arm="random"),
        proposal("cat", user="cat", arm="random"),
        proposal("dan", user="dan"),
        proposal("eve", user="eve"),
        proposal("ann, next day", user="ann", day=DAY + 1),
        proposal("ann, day after", user="ann", day=DAY + 2),
    ]
    reasons = ["policy", "user_limit", "policy", "arm_cap", "policy", "day_cap", "policy", "user_limit"]
    assert [answer.reason for answer in ledger.record(asked)] == reasons
    totals = ledger.totals("coupons")
    assert totals.days == {
        DAY: Tally(cap=300, reserved=300, settled=0, offers=3, decisions=6, granted=300),
        DAY + 1: Tally(cap=300, reserved=100, settled=0, offers=1, decisions=1, granted=100),
        DAY + 2: Tally(cap=300, reserved=0, settled=0, offers=0, decisions=1, granted=0),
    }
    assert totals.arms["random"] == Tally(cap=100, reserved=100, settled=0, offers=1, decisions=2, granted=100)
    assert totals.arm_days == {
        ("main", DAY): Tally(cap=None, reserved=200, settled=0, offers=2, decisions=4, granted=200),
        ("main", DAY + 1): Tally(cap=None, reserved=100, settled=0, offers=1, decisions=1, granted=100),
        ("main", DAY + 2): Tally(cap=None, reserved=0, settled=0, offers=0, decisions=1, granted=0),
        ("random", DAY): Tally(cap=None, reserved=100, settled=0, offers=1, decisions=2, granted=100),
    }


@pytest.mark.parametrize(
    ("caps", "amount", "reason"),
    [
        (Caps(user_offers=0, day=0), 100, "user_limit"),
        (Caps(user_day_amount=99, total=0), 100, "user_limit"),
        (Caps(day=0, arms={"main": 0}, total=0), 100, "value_limit"),
        (Caps(), 100, "value_limit"),
        (Caps(user_offers=0), 0, "user_limit"),
    ],
)
def test_the_servers_own_reason_comes_after_the_limits_of_the_user(
    ledger: Ledger, caps: Caps, amount: int, reason: str
) -> None:
    ledger.set_caps("coupons", caps)
    [answer] = ledger.record([proposal("r1", amount, action=1.0, refused="value_limit")])
    assert (answer.reason, answer.amount, answer.action, answer.forced) == (reason, 0, 0.0, True)
    tally = ledger.totals("coupons").total
    assert (tally.reserved, tally.offers, tally.decisions) == (0, 0, 1)


def test_a_decision_says_how_much_room_the_limits_had(ledger: Ledger) -> None:
    def room(name: str, amount: int = 0, **changed: Any) -> int | None:
        ledger.record([proposal(name, amount, **changed)])
        return next(row.room for row in ledger.rows("coupons", CLOCK, CLOCK + 1) if row.request_id == name)

    assert room("r1", 100) == 1000
    assert room("r2") == 900
    assert room("r3", refused="value_limit") == 900
    assert room("r4", 901) == 900
    ledger.set_caps("coupons", Caps(day=150, arms={"main": 130, "other": 40}, user_amount=120, user_offers=2))
    assert room("r5") == 20
    assert room("r6", user="bob") == 30
    assert room("r7", user="bob", arm="other") == 40
    assert room("r8", 10) == 20
    assert room("r9") == -1  # no third offer, not even a free one
    ledger.set_caps("coupons", Caps(total=10))
    assert room("r10", 1) == 10 - 110
    ledger.pause("coupons")
    assert room("r11") is None
    ledger.resume("coupons")
    ledger.set_caps("coupons", Caps())
    assert room("r12", 5) is None


def test_what_was_granted_stays_granted(ledger: Ledger) -> None:
    status(ledger, given(ledger, "r1", 100), amount=60)
    given(ledger, "r2", 50)
    ledger.release("coupons", CLOCK + 24 * HOUR)
    totals = ledger.totals("coupons")
    for tally in (totals.total, totals.days[DAY], totals.arms["main"], totals.arm_days["main", DAY]):
        assert (tally.reserved, tally.settled, tally.granted) == (0, 60, 150)


def test_no_incentive_needs_no_money(ledger: Ledger) -> None:
    ledger.set_caps("coupons", Caps(total=0, user_offers=0))
    [answer] = ledger.record([proposal("r1", 0, reason="ineligible", forced=True)])
    assert (answer.reason, answer.amount) == ("ineligible", 0)
    assert status(ledger, answer.decision_id) == "kept"
    assert total(ledger) == (0, 0)


@pytest.mark.parametrize(
    ("caps", "reasons"),
    [
        (Caps(user_day_offers=1), ["policy", "user_limit"]),
        (Caps(user_offers=1), ["policy", "user_limit"]),
        (Caps(user_offers=0, total=0), ["user_limit", "user_limit"]),
        (Caps(total=0, day=0, arms={"main": 0}, user_amount=0, user_day_amount=0), ["policy", "policy"]),
    ],
)
def test_an_offer_that_reserves_nothing_is_an_offer(ledger: Ledger, caps: Caps, reasons: list[str]) -> None:
    """A message that is free: it needs no money, but limits on offers count it, and a pause stops it."""
    ledger.set_caps("coupons", caps)
    answers = ledger.record([proposal(f"r{i}", 0, action=1.0) for i in range(2)])
    assert [answer.reason for answer in answers] == reasons
    tally = ledger.totals("coupons").total
    assert (tally.reserved, tally.offers, tally.decisions) == (0, reasons.count("policy"), 2)
    assert [row.offer for row in ledger.rows("coupons", CLOCK, CLOCK + 1)].count(True) == tally.offers
    ledger.pause("coupons")
    assert ledger.record([proposal("r3", 0, action=1.0)])[0].reason == "paused"


def test_where_a_cap_is_exceeded_nothing_is_offered_not_even_what_is_free(ledger: Ledger) -> None:
    assert status(ledger, given(ledger, "r1", 1000), amount=1001) == "overrun"
    [free, none] = ledger.record([proposal("r2", 0, action=1.0), proposal("r3", 0)])
    assert (free.reason, none.reason) == ("total_cap", "policy")


def test_a_free_offer_is_redeemed_once_and_what_it_cost_all_the_same_is_excess(ledger: Ledger) -> None:
    one, two, three = (
        answer.decision_id for answer in ledger.record([proposal(f"r{i}", 0, action=1.0) for i in range(3)])
    )
    assert [status(ledger, one), status(ledger, one, event_id="e2")] == ["settled", "refused"]
    assert status(ledger, two, amount=70) == "overrun"
    assert ledger.release("coupons", CLOCK + 24 * HOUR) == 1
    assert status(ledger, three) == "late"
    tally = ledger.totals("coupons").total
    assert (tally.reserved, tally.settled, tally.excess, tally.offers) == (0, 70, 70, 3)


def test_campaigns_do_not_share_money_or_request_ids(ledger: Ledger) -> None:
    ledger.set_caps("other", Caps(total=100))
    answers = ledger.record([proposal("r1", 1000), proposal("r1", 100, campaign="other"), proposal("r2", 1)])
    assert [answer.amount for answer in answers] == [1000, 100, 0]


def test_an_empty_group_is_no_transaction(ledger: Ledger) -> None:
    assert ledger.record([]) == []
    assert ledger.outcomes([]) == []


def test_users_are_counted_only_while_something_limits_them(ledger: Ledger, url: str) -> None:
    def counted() -> list[tuple[str, str]]:
        with ledger._reading() as sql_ledger:  # type: ignore[attr-defined]
            return sorted(sql_ledger.read("select key, day from counter where scope = 'user'"))

    def ask(name: str, **changed: Any) -> str:
        return ledger.record([proposal(name, 100, **changed)])[0].reason

    settled, released = given(ledger, "r1"), given(ledger, "r2", expires=CLOCK)
    given(ledger, "r3", user="bob")
    ledger.record([proposal("free", 0, user="cat")])
    assert counted() == []
    assert status(ledger, settled, amount=60) == "settled"
    ledger.release("coupons", CLOCK)
    assert ledger.check() == []

    ledger.set_caps("coupons", Caps(user_offers=3, user_amount=160))  # two offers and 60 were ann's before
    assert counted() == [("ann", ""), ("bob", "")]
    assert ledger.check() == []
    assert [ask("r4"), ask("r5"), ask("r6", user="bob")] == ["policy", "user_limit", "user_limit"]
    ledger.set_caps("coupons", Caps(user_day_offers=3))
    assert counted() == [("ann", str(DAY)), ("bob", str(DAY))]
    assert [ask("r7"), ask("r8", day=DAY + 1), ask("r9", user="bob")] == ["user_limit", "policy", "policy"]
    assert status(ledger, released) == "late"
    assert ledger.check() == []

    tamper(url, "update counter set settled = 1 where scope = 'user' and key = 'bob'")
    assert any(not missing(line, "not the sum", "coupons, user, bob") for line in ledger.check())
    ledger.set_caps("coupons", Caps(total=1000))
    assert counted() == []
    assert ask("r10") == "policy"


# Retries


def test_a_retry_gets_the_stored_answer_and_spends_nothing(ledger: Ledger, url: str) -> None:
    [first] = ledger.record([proposal("r1", 100, action=1.1, probability=0.1234567890123456)])
    ledger.set_caps("coupons", Caps(total=0))
    again = open_ledger(url)  # another server
    [second] = again.record([proposal("r1", 700, bundle="b2")])
    again.close()
    assert second.status == "replay"
    for name in set(first.__struct_fields__) - {"status"}:
        assert getattr(second, name) == getattr(first, name), name
    assert total(ledger) == (100, 0)


@pytest.mark.parametrize("swept", [False, True])
def test_a_retry_after_the_expiry_gets_nothing(ledger: Ledger, swept: bool) -> None:
    """Whether or not the money has been released yet; the row stays what was decided."""
    first = ledger.record([proposal("r1", 100)])[0]
    assert (first.state, first.expires) == ("reserved", CLOCK + 24 * HOUR)
    just = CLOCK + 24 * HOUR - 1
    assert ledger.record([proposal("r1", 100, ts=just)])[0].action == 1.0
    if swept:
        ledger.release("coupons", just + 1)
    again, twin, other = ledger.record(
        [proposal("r1", ts=just + 1), proposal("r1", ts=just + 1), proposal("r1", ts=just + 1, body="other")]
    )
    assert again == twin
    assert (again.status, other.status) == ("replay", "conflict")
    assert (again.decision_id, again.state, again.reason) == (first.decision_id, "released", "expired")
    assert (again.action, again.action_index, again.amount, again.probability, again.forced) == (0.0, 0, 0, 1.0, True)
    [row] = ledger.rows("coupons", CLOCK, CLOCK + 1)
    assert (row.action, row.reason, row.forced, row.state) == (
        1.0,
        "policy",
        False,
        "released" if swept else "reserved",
    )
    assert total(ledger) == (0 if swept else 100, 0)


@pytest.mark.parametrize("late", [False, True])
def test_a_retry_after_the_redemption_says_so(ledger: Ledger, late: bool) -> None:
    decision = given(ledger)
    if late:
        ledger.release("coupons", CLOCK + 24 * HOUR)
    assert status(ledger, decision) == ("late" if late else "settled")
    [again] = ledger.record([proposal("r1", ts=CLOCK + 48 * HOUR)])
    assert (again.status, again.action, again.amount, again.state) == ("replay", 1.0, 100, "settled")


def test_no_incentive_never_expires(ledger: Ledger) -> None:
    ledger.record([proposal("r1", 0), proposal("r2", 2000)])
    assert ledger.release("coupons", CLOCK + 24 * HOUR) == 0
    answers = ledger.record([proposal("r1", 0, ts=CLOCK + 24 * HOUR), proposal("r2", 2000, ts=CLOCK + 24 * HOUR)])
    assert [(each.reason, each.state) for each in answers] == [("policy", "free"), ("total_cap", "free")]


def test_what_was_made_and_has_expired_within_a_group_is_gone(ledger: Ledger) -> None:
    answers = ledger.record([proposal("r1", expires=CLOCK), proposal("r1", expires=CLOCK)])
    assert [answer.state for answer in answers] == ["reserved", "released"]


def test_a_refusal_is_an_answer_too(ledger: Ledger) -> None:
    ledger.set_caps("coupons", Caps(total=0))
    ledger.record([proposal("r1", 100)])
    ledger.set_caps("coupons", Caps(total=1000))
    [again] = ledger.record([proposal("r1", 100)])
    assert (again.status, again.reason, again.amount) == ("replay", "total_cap", 0)


def test_another_request_under_the_same_id_is_a_conflict(ledger: Ledger) -> None:
    answers = ledger.record([proposal("r1"), proposal("r1", body="other"), proposal("r1")])
    assert [answer.status for answer in answers] == ["new", "conflict", "replay"]
    [later] = ledger.record([proposal("r1", body="other")])
    assert later.status == "conflict"
    assert total(ledger) == (100, 0)


# Outcomes


def test_a_redemption_settles_and_frees_the_rest(ledger: Ledger) -> None:
    decision = given(ledger)
    assert status(ledger, decision, amount=60) == "settled"
    assert total(ledger) == (0, 60)
    [row] = ledger.rows("coupons", CLOCK, CLOCK + 1)
    assert (row.state, row.held, row.paid) == ("settled", 0, 60)


def test_without_an_amount_all_of_it_is_settled_and_refunded(ledger: Ledger) -> None:
    decision = given(ledger)
    assert status(ledger, decision) == "settled"
    assert total(ledger) == (0, 100)
    assert status(ledger, decision, "refund") == "refunded"
    assert total(ledger) == (0, 0)


def test_settled_money_counts_for_ever(ledger: Ledger) -> None:
    decision = given(ledger, amount=1000)
    status(ledger, decision)
    ledger.release("coupons", CLOCK + 1000 * HOUR)
    [answer] = ledger.record([proposal("r2", 1)])
    assert answer.reason == "total_cap"


def test_what_was_paid_above_the_reservation_is_spent_and_less_is_granted(ledger: Ledger) -> None:
    """A coupon of 6.00 that costs 6.01, under a cap of 30: nothing vanishes, round after round."""
    ledger.set_caps("coupons", Caps(total=3000))
    paid, granted = 0, 0
    for number in range(5):
        answers = ledger.record([proposal(f"r{number}.{i}", 600) for i in range(5)])
        granted = sum(answer.amount > 0 for answer in answers)
        assert granted == (5 if number == 0 else 0)
        told = ledger.outcomes([outcome(answer.decision_id, amount=601) for answer in answers if answer.amount])
        assert [(answer.status, answer.amount, answer.excess) for answer in told] == [("overrun", 601, 1)] * granted
        paid += 601 * granted
        tally = ledger.totals("coupons").total
        assert (tally.reserved, tally.settled, tally.excess, tally.overrun) == (0, paid, 5, 5)
    assert paid == 3005
    rows = [row for row in ledger.rows("coupons", CLOCK, CLOCK + 1) if row.amount]
    assert {(row.state, row.held, row.paid, row.excess) for row in rows} == {("settled", 0, 601, 1)}


@pytest.mark.parametrize(
    ("caps", "reason"),
    [
        (Caps(total=300), "total_cap"),
        (Caps(day=300), "day_cap"),
        (Caps(arms={"main": 300}), "arm_cap"),
        (Caps(user_amount=300), "user_limit"),
        (Caps(user_day_amount=300), "user_limit"),
    ],
)
def test_excess_leaves_less_to_grant_under_every_cap(ledger: Ledger, url: str, caps: Caps, reason: str) -> None:
    ledger.set_caps("coupons", caps)
    first, second = given(ledger, "r1", 100), given(ledger, "r2", 100)
    event = outcome(first, amount=150)
    assert [answer.status for answer in ledger.outcomes([event, event])] == ["overrun", "overrun"]
    again = open_ledger(url)  # another server is told the same
    assert again.outcomes([event])[0].excess == 50
    again.close()
    assert total(ledger) == (100, 150)
    assert [answer.reason for answer in ledger.record([proposal("r3", 51), proposal("r4", 50)])] == [reason, "policy"]
    assert ledger.record([proposal("r5", 1)])[0].reason == reason
    assert (
        status(ledger, second, amount=500) == "overrun"
    )  # far over every cap, and what was reserved before still holds
    assert ledger.record([proposal("r6", 1)])[0].reason == reason
    tally = ledger.totals("coupons").total
    assert (tally.reserved, tally.settled, tally.excess) == (50, 650, 450)
    tamper(url, "update counter set excess = excess - 1 where scope = 'total'")
    assert any("is not the sum" in line for line in ledger.check())
    tamper(url, "update counter set excess = excess + 1 where scope = 'total'")


def test_the_guard_below_still_refuses_a_grant_where_excess_was_paid(ledger: Ledger, url: str) -> None:
    """Excess opens the database's own check for itself and for nothing else."""
    assert status(ledger, given(ledger, "r1", 900), amount=1300) == "overrun"
    with pytest.raises(Exception, match=r"(?i)check constraint"):
        tamper(url, "update counter set reserved = 1 where scope = 'total'")
    ledger.set_caps("coupons", Caps(total=2000))
    given(ledger, "r2", 700)
    with pytest.raises(Exception, match=r"(?i)check constraint"):
        tamper(url, "update counter set reserved = 701 where scope = 'total'")


def test_a_redemption_of_what_reserved_nothing_is_excess(ledger: Ledger, url: str) -> None:
    ledger.set_caps("coupons", Caps(total=1000, user_amount=1000))
    [answer] = ledger.record([proposal("r1", 0)])
    assert status(ledger, answer.decision_id) == "kept"
    assert status(ledger, answer.decision_id, event_id="e2", amount=70) == "overrun"
    assert status(ledger, answer.decision_id, event_id="e3", amount=70) == "refused"  # it may be e2 reported twice
    assert total(ledger) == (0, 70)
    assert status(ledger, answer.decision_id, "refund", "e4") == "refunded"
    assert ledger.check() == []
    assert status(ledger, given(ledger, "r2", 1000), amount=1000) == "settled"
    tally = ledger.totals("coupons").total
    assert (tally.settled, tally.excess, tally.offers) == (1000, 0, 1)


def test_a_refund_gives_back_the_excess_first(ledger: Ledger) -> None:
    decision = given(ledger)
    status(ledger, decision, amount=140)
    [answer] = ledger.outcomes([outcome(decision, "refund", "e2", amount=60)])
    assert (answer.status, answer.amount, answer.excess) == ("refunded", 60, 40)
    tally = ledger.totals("coupons").total
    assert (tally.settled, tally.excess) == (80, 0)
    assert status(ledger, decision, "refund", "e3", amount=81) == "refused"


def test_a_decision_settles_once(ledger: Ledger) -> None:
    decision = given(ledger)
    events = [outcome(decision, event_id=name, amount=30) for name in ("e1", "e2")]
    assert [answer.status for answer in ledger.outcomes(events)] == ["settled", "refused"]
    assert total(ledger) == (0, 30)


def test_no_more_is_refunded_than_was_settled(ledger: Ledger) -> None:
    decision = given(ledger)
    assert status(ledger, decision, "refund", amount=1) == "refused"
    status(ledger, decision, amount=60)
    assert status(ledger, decision, "refund", "e2", amount=40) == "refunded"
    assert status(ledger, decision, "refund", "e3", amount=21) == "refused"
    assert status(ledger, decision, "refund", "e4", amount=20) == "refunded"
    assert total(ledger) == (0, 0)
    assert status(ledger, decision, event_id="e5", amount=1) == "refused"


def test_an_event_twice_moves_money_once(ledger: Ledger) -> None:
    decision = given(ledger)
    event = outcome(decision, amount=60, value=0.6)
    first, twin = ledger.outcomes([event, event])
    [later] = ledger.outcomes([event])
    assert first == OutcomeResult(
        decision_id=decision, kind="redeemed", event_id="e1", status="settled", amount=60, excess=0, replayed=False
    )
    assert twin == later
    assert (later.status, later.amount, later.replayed) == ("settled", 60, True)
    assert total(ledger) == (0, 60)


def test_another_amount_under_the_same_event_is_a_conflict(ledger: Ledger) -> None:
    decision = given(ledger)
    status(ledger, decision, amount=60)
    assert status(ledger, decision, amount=61) == "conflict"
    assert status(ledger, decision, amount=60, value=1.0) == "conflict"
    assert total(ledger) == (0, 60)


def test_other_kinds_are_kept_and_move_nothing(ledger: Ledger) -> None:
    decision = given(ledger)
    kept = [outcome(decision, "active", value=1.0), outcome(decision, "order", value=0.1 + 0.2, amount=5)]
    assert [answer.status for answer in ledger.outcomes(kept)] == ["kept", "kept"]
    [row] = ledger.rows("coupons", CLOCK, CLOCK + 1)
    assert [event for event, _ in row.outcomes] == kept
    assert total(ledger) == (100, 0)


def test_an_unknown_decision_is_an_answer_and_the_others_are_kept(ledger: Ledger) -> None:
    decision = given(ledger)
    answers = ledger.outcomes([outcome(new_decision_id(CLOCK)), outcome(decision)])
    assert [answer.status for answer in answers] == ["unknown", "settled"]


def test_an_outcome_for_another_campaign_finds_no_decision(ledger: Ledger) -> None:
    decision = given(ledger)
    assert status(ledger, decision, campaign="other") == "unknown"
    assert status(ledger, decision, campaign="coupons") == "settled"


# Expiry


def test_a_reservation_is_released_at_its_expiry_and_not_before(ledger: Ledger) -> None:
    given(ledger)
    assert ledger.release("coupons", CLOCK + 24 * HOUR - 1) == 0
    assert total(ledger) == (100, 0)
    assert ledger.release("coupons", CLOCK + 24 * HOUR) == 1
    assert total(ledger) == (0, 0)
    assert ledger.release("coupons", CLOCK + 24 * HOUR) == 0
    [row] = ledger.rows("coupons", CLOCK, CLOCK + 1)
    assert (row.state, row.held) == ("released", 0)


def test_what_is_settled_is_not_released(ledger: Ledger) -> None:
    status(ledger, given(ledger))
    assert ledger.release("coupons", CLOCK + 24 * HOUR) == 0
    assert total(ledger) == (0, 100)


def test_many_are_released_in_batches(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_ledger, "BATCH", 3)
    ledger.record([proposal(f"r{i}") for i in range(10)])
    assert ledger.release("coupons", CLOCK + 24 * HOUR) == 10
    assert total(ledger) == (0, 0)


def test_a_released_offer_was_still_made(ledger: Ledger) -> None:
    ledger.set_caps("coupons", Caps(user_offers=1))
    given(ledger)
    ledger.release("coupons", CLOCK + 24 * HOUR)
    [answer] = ledger.record([proposal("r2")])
    assert answer.reason == "user_limit"


def test_a_late_redemption_is_funded_if_the_caps_allow_it(ledger: Ledger) -> None:
    decision = given(ledger)
    ledger.release("coupons", CLOCK + 24 * HOUR)
    assert status(ledger, decision, amount=80) == "late"
    assert total(ledger) == (0, 80)
    assert status(ledger, decision, event_id="e2", amount=1) == "refused"
    assert status(ledger, decision, "refund", amount=80) == "refunded"


@pytest.mark.parametrize(
    "caps",
    [
        Caps(total=199),
        Caps(day=199),
        Caps(arms={"main": 199}),
        Caps(user_amount=199),
        Caps(user_day_amount=199),
    ],
)
def test_a_late_redemption_without_room_was_paid_all_the_same(ledger: Ledger, caps: Caps) -> None:
    ledger.set_caps("coupons", caps)
    late, later = given(ledger, "r1", 60), given(ledger, "r2", 60)
    ledger.release("coupons", CLOCK + 24 * HOUR)
    given(ledger, "r3", 100)
    event = outcome(late)
    [answer] = ledger.outcomes([event])
    assert (answer.status, answer.amount) == ("late", 60)
    [answer] = ledger.outcomes([outcome(later)])
    assert (answer.status, answer.amount, answer.excess) == ("overrun", 60, 60)
    tally = ledger.totals("coupons").total
    assert (tally.reserved, tally.settled, tally.excess) == (100, 120, 60)
    assert ledger.record([proposal("r4", 1)])[0].amount == 0
    assert ledger.outcomes([event])[0] == msgspec.structs.replace(
        answer, decision_id=late, status="late", excess=0, replayed=True
    )


# Switches


def test_a_pause_holds_on_every_server_and_after_a_restart(ledger: Ledger, url: str) -> None:
    ledger.pause("coupons")
    ledger.set_caps("coupons", Caps(total=500))
    again = open_ledger(url)
    assert again.totals("coupons").paused
    asked = [proposal("r1"), proposal("r2", 0, action=1.0), proposal("r3", 0, reason="not_eligible", forced=True)]
    for answer in again.record([*asked, proposal("r4", refused="value_limit")]):
        assert (answer.reason, answer.amount, answer.forced) == ("paused", 0, True)
        assert (answer.action, answer.action_index, answer.probability) == (0.0, 0, 1.0)
    again.resume("coupons")
    again.close()
    assert ledger.totals("coupons").caps == Caps(total=500)
    given(ledger, "r5")


def test_a_pause_does_not_hold_back_a_redemption(ledger: Ledger) -> None:
    decision = given(ledger)
    ledger.pause("coupons")
    assert status(ledger, decision) == "settled"


def test_a_lowered_cap_takes_nothing_back_and_gives_nothing_more(ledger: Ledger) -> None:
    kept = [given(ledger, f"r{i}", 200) for i in range(3)]
    ledger.set_caps("coupons", Caps(total=300))
    [answer] = ledger.record([proposal("r4", 1)])
    assert answer.reason == "total_cap"
    assert ledger.totals("coupons").total == Tally(cap=300, reserved=600, settled=0, offers=3, decisions=4, granted=600)
    for decision in kept:
        assert status(ledger, decision, amount=50) == "settled"
    given(ledger, "r5", 150)
    assert total(ledger) == (150, 150)


# Notes


def noted(key: str, ts: int = CLOCK, content: str = "{}", kind: str = "pace") -> Note:
    return Note(kind=kind, key=key, ts=ts, content=content)


def test_the_first_note_under_a_key_stands(ledger: Ledger, url: str) -> None:
    first = noted("e/1", content='{"price": 1.5}')
    assert ledger.note("coupons", first) == first
    other = open_ledger(url)
    assert other.note("coupons", noted("e/1", CLOCK + 9, '{"price": 2}')) == first
    assert other.note("coupons", noted("e/1", kind="bundle")) == noted("e/1", kind="bundle")
    other.set_caps("other", Caps())
    assert other.note("other", noted("e/1")) == noted("e/1")
    assert other.notes("coupons", "pace") == [first]
    other.close()


def test_servers_that_race_for_a_key_agree_on_one_note(ledger: Ledger, url: str) -> None:
    other = open_ledger(url)
    together = threading.Barrier(2)

    def work(server: Ledger) -> list[Note]:
        found = []
        for step in range(20):
            together.wait()
            found.append(server.note("coupons", noted(f"{step:02d}", content=f'"{id(server)}"')))
        return found

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(work, (ledger, other))
    other.close()
    assert one == two == ledger.notes("coupons", "pace")


def test_notes_come_by_time_and_then_by_key(ledger: Ledger) -> None:
    for key, ts in (("b", 2), ("B", 1), ("a", 1), ("ä", 1), ("c", 0)):
        ledger.note("coupons", noted(key, ts))
    assert [note.key for note in ledger.notes("coupons", "pace")] == ["c", "B", "a", "ä", "b"]


def test_caps_and_pauses_leave_a_trail(ledger: Ledger) -> None:
    set_one_after_another = [Caps(total=500 + i, arms={"random": 50}) for i in range(10)]  # several a millisecond
    for caps in set_one_after_another:
        ledger.set_caps("coupons", caps)
    ledger.pause("coupons")
    ledger.resume("coupons")
    trail = [msgspec.json.decode(note.content, type=Caps) for note in ledger.notes("coupons", "caps")]
    assert trail == [Caps(total=1000), *set_one_after_another]
    pauses = ledger.notes("coupons", "pause")
    assert sorted(note.content for note in pauses) == ["false", "true"]
    assert all(note.key.startswith(f"{note.ts:012x}") for note in pauses)


@pytest.mark.parametrize("changed", [{"key": ""}, {"kind": "a" * 257}, {"ts": 2**60}, {"content": "\0"}])
def test_what_no_ledger_can_hold_is_no_note(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Note(**{"kind": "pace", "key": "k", "ts": CLOCK, "content": "{}", **changed})


def test_caps_are_changed_in_one_transaction(ledger: Ledger, url: str) -> None:
    assert ledger.change_caps("new", lambda before: Caps(total=1) if before is None else before) == Caps(total=1)
    other = open_ledger(url)
    together = threading.Barrier(2)

    def raise_by_one(before: Caps | None) -> Caps:
        return Caps(total=(before or Caps()).total + 1)  # type: ignore[operator]

    def work(server: Ledger) -> None:
        together.wait()
        for _ in range(20):
            server.change_caps("new", raise_by_one)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (ledger, other)))
    other.close()
    assert ledger.totals("new").caps == Caps(total=41)


def test_a_change_of_caps_that_fails_changes_nothing(ledger: Ledger) -> None:
    def fail(before: Caps | None) -> Caps:
        raise ValueError(before)

    for campaign in ("coupons", "new"):
        with pytest.raises(ValueError):
            ledger.change_caps(campaign, fail)
    assert ledger.campaigns() == ["coupons"]
    assert ledger.totals("coupons").caps == Caps(total=1000)


# Reading


def test_campaigns_are_named(ledger: Ledger) -> None:
    ledger.set_caps("apples", Caps())
    assert ledger.campaigns() == ["apples", "coupons"]


def test_outcomes_come_with_their_rows_in_the_order_of_their_arrival(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_ledger, "PAGE", 2)
    decisions = [given(ledger, f"r{i}", 1, ts=CLOCK + i) for i in range(5)]
    for decision in decisions[1:]:
        for kind, event, received in (("order", "b", 3), ("order", "a", 3), ("active", "z", 3), ("redeemed", "y", 1)):
            status(ledger, decision, kind, event, received=CLOCK + received)
    found = [[event.event_id for event, _ in row.outcomes] for row in ledger.rows("coupons", 0, CLOCK * 2)]
    assert found == [[], *[["y", "z", "a", "b"]] * 4]


def test_rows_come_by_id_within_the_times_asked_for(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_ledger, "PAGE", 4)
    ledger.set_caps("other", Caps())
    for shift in (30, 10, 20, 0):
        ledger.record([proposal(f"{shift} {i}", 1, ts=CLOCK + shift) for i in range(3)])
    ledger.record([proposal("other", 1, campaign="other", ts=CLOCK + 15)])
    found = list(ledger.rows("coupons", CLOCK + 10, CLOCK + 30))
    assert [row.ts - CLOCK for row in found] == [10, 10, 10, 20, 20, 20]
    assert [row.decision_id for row in found] == sorted(row.decision_id for row in found)
    assert len(list(ledger.rows("coupons", 0, CLOCK * 2))) == 12


def test_check_finds_what_was_changed_behind_its_back(url: str) -> None:
    ledger = open_ledger(url)
    ledger.set_caps("coupons", Caps(total=1000))
    status(ledger, given(ledger), amount=60)
    assert ledger.check() == []
    tamper(url, "update counter set settled = 61 where scope = 'total'")
    assert any(not missing(line, "not the sum", "coupons, total") for line in ledger.check())
    tamper(url, "delete from counter where scope = 'total'")
    assert any(not missing(line, "no such counter", "coupons, total") for line in ledger.check())
    tamper(url, "update decision set paid = 59")
    assert any("the sums of the entries" in line for line in ledger.check())
    tamper(url, "delete from outcome")
    assert any("the entry has no outcome" in line for line in ledger.check())
    ledger.close()


def test_the_tables_themselves_refuse_more_than_the_cap(ledger: Ledger, url: str) -> None:
    given(ledger)
    for sql in (
        "update counter set reserved = 1001 where scope = 'total'",
        "update counter set reserved = -1 where scope = 'day'",
        "update decision set held = 101",
        "update decision set paid = 1",
        "insert into decision select * from decision",
    ):
        with pytest.raises(Exception, match=r"(?i)constraint"):
            tamper(url, sql)


# Concurrency


def test_threads_and_servers_that_race_for_the_last_money_spend_it_exactly(ledger: Ledger, url: str) -> None:
    """Four threads on two servers send every request twice; they ask for 160 · 7 units, and 1,000 are there."""
    other = open_ledger(url)
    together = threading.Barrier(4)

    def work(number: int) -> list[tuple[str, str, int]]:
        together.wait()
        answers = []
        for group in range(10):
            # Threads 0 and 1 send the same requests, through different servers, and so do 2 and 3.
            names = [f"{number // 2} {group} {i}" for i in range(8)]
            server = (ledger, other)[number % 2]
            answers += server.record([proposal(name, 7, user=name) for name in names])
        return [(answer.request_id, answer.decision_id, answer.amount) for answer in answers]

    with ThreadPoolExecutor(4) as pool:
        answers = [answer for answers in pool.map(work, range(4)) for answer in answers]
    other.close()
    assert len(answers) == 320
    assert len(set(answers)) == 160  # both servers gave the same answer to the same request
    assert sum(amount for _, _, amount in set(answers)) == 142 * 7
    assert total(ledger) == (994, 0)


def test_redemption_and_release_that_race_move_the_money_once(ledger: Ledger, url: str) -> None:
    decisions = [given(ledger, f"r{i}", 10, user=f"u{i}") for i in range(60)]
    other = open_ledger(url)
    with ThreadPoolExecutor(3) as pool:
        events = [outcome(decision) for decision in decisions]
        one = pool.submit(lambda: [answer for event in events for answer in ledger.outcomes([event])])
        two = pool.submit(lambda: [answer for event in reversed(events) for answer in other.outcomes([event])])
        three = pool.submit(other.release, "coupons", CLOCK + 24 * HOUR)
        answers = one.result() + two.result()
        three.result()
    other.close()
    assert {answer.status for answer in answers} <= {"settled", "late"}
    assert sum(answer.replayed for answer in answers) == 60
    assert total(ledger) == (0, 600)


# What can go wrong


def test_a_campaign_without_caps_spends_nothing(ledger: Ledger) -> None:
    for ask in (
        lambda: ledger.record([proposal("r1", campaign="unknown")]),
        lambda: ledger.totals("unknown"),
        lambda: ledger.pause("unknown"),
        lambda: ledger.note("unknown", noted("k")),
        lambda: ledger.notes("unknown", "pace"),
    ):
        with pytest.raises(LedgerError, match="no campaign 'unknown'"):
            ask()


@pytest.mark.parametrize(
    "changed",
    [
        {"request_id": ""},
        {"request_id": "a" * 257},
        {"user": "a\0b"},
        {"amount": -1},
        {"amount": 2**60},
        {"action": float("nan")},
        {"probability": 1.1},
        {"decision_id": "7"},
        {"time": "1" * 65},
        {"time": "\0"},
    ],
)
def test_what_no_ledger_can_hold_is_no_proposal(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        proposal(**{"request_id": "r1", **changed})


def test_what_no_ledger_can_hold_is_no_outcome_and_no_cap() -> None:
    outcomes: list[dict[str, Any]] = [
        {"kind": ""},
        {"event_id": "a\0"},
        {"amount": -1},
        {"value": float("inf")},
        {"ts": 2**70},
    ]
    for changed in outcomes:
        with pytest.raises(ValueError):
            outcome("d1", **changed)
    caps: list[dict[str, Any]] = [{"total": -1}, {"arms": {"": 1}}, {"arms": {"main": -1}}, {"user_offers": 2**60}]
    for wrong in caps:
        with pytest.raises(ValueError):
            Caps(**wrong)


def test_any_text_of_any_script_can_be_an_id(ledger: Ledger) -> None:
    names = ["ann'; drop table decision", '"', "安", "\n", "%s ? {}", "\\0", "a" * 256, "🦉" * 256]
    ledger.record([proposal(name, 1, user=name, arm=name) for name in names])
    again = ledger.record([proposal(name, 1, user=name) for name in names])
    assert [answer.status for answer in again] == ["replay"] * len(names)
    assert {row.user for row in ledger.rows("coupons", CLOCK, CLOCK + 1)} == set(names)


def test_a_closed_ledger_says_so(url: str) -> None:
    ledger = open_ledger(url)
    ledger.set_caps("coupons", Caps())
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.record([proposal("r1")])


def test_a_ledger_of_another_version_is_refused(url: str) -> None:
    open_ledger(url).close()
    tamper(url, "update ledger_format set version = 99")
    with pytest.raises(LedgerError, match=r"format 99; .*version .*newer one"):
        open_ledger(url)
    tamper(url, "update ledger_format set version = 0")
    with pytest.raises(LedgerError, match=r"format 0, .*older version .*export the log"):
        open_ledger(url)


@pytest.mark.parametrize("change", ["drop column room", "rename column room to left_over"])
def test_a_ledger_whose_tables_are_others_is_refused_whatever_version_it_says(url: str, change: str) -> None:
    open_ledger(url).close()
    tamper(url, f"alter table decision {change}")
    with pytest.raises(LedgerError, match=r"other columns in 'decision', .*older version"):
        open_ledger(url)


def test_the_number_of_the_format_changes_with_the_tables() -> None:
    """Where this fails, raise FORMAT and write the new digest here: an older ledger must not be taken for this one."""
    digest = hashlib.sha256("\n".join(create_statements()).replace(f"values ({FORMAT})", "").encode()).hexdigest()[:16]
    assert (FORMAT, digest) == (6, "b4c2f1fec6fdd6d6")


def session(ledger: Any, query: str) -> Any:
    """What the writer's own session says."""
    return ledger._writer.execute(query.encode()).fetchall()


@pytest.mark.slow
def test_nothing_in_postgres_outlives_a_transaction(tmp_path: Path) -> None:
    """A pooler gives every transaction another session, and ours to others."""
    ledger: Any = open_ledger(new_url("postgres", tmp_path))
    ledger.set_caps("coupons", Caps(total=1000, user_offers=1))
    with psycopg.connect(ledger._url) as stranger:
        settings = "select name, setting from pg_settings where name <> 'application_name' order by 1"
        before = stranger.execute(settings).fetchall()
    for i in range(8):  # psycopg prepares what it has sent five times
        given(ledger, f"r{i}", user=f"u{i}")
    ledger.release("coupons", CLOCK)
    assert session(ledger, "select name from pg_prepared_statements") == []
    assert session(ledger, settings) == before
    assert session(ledger, "select * from pg_locks where locktype = 'advisory'") == []
    assert ledger.check() == []
    ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["before", "after"])
def test_a_postgres_that_was_read_only_for_a_while_is_written_again(begun: str, tmp_path: Path) -> None:
    url = new_url("postgres", tmp_path)
    name = conninfo_to_dict(url)["dbname"]
    ledger: Any = open_ledger(url)
    ledger.set_caps("coupons", Caps(total=1000))
    given(ledger)
    tamper(url, f"alter database {name} set default_transaction_read_only = on")
    if begun == "before":  # a connection that is opened now stays read-only
        ledger._writer.close()
    else:
        ledger._writer.execute(b"set default_transaction_read_only = on")
    for write in (lambda: ledger.touch("coupons"), lambda: given(ledger, "r2")):
        with pytest.raises(LedgerError, match="read-only") as caught:
            write()
        assert not isinstance(caught.value, UndecidedError)
    assert total(ledger) == (100, 0)
    with psycopg.connect(url, autocommit=True, options="-c default_transaction_read_only=off") as database:
        database.execute(f"alter database {name} reset default_transaction_read_only".encode())
    ledger.touch("coupons")
    given(ledger, "r2")
    assert ledger.check() == []
    ledger.close()


class Unconfirmed:
    """A connection that commits, and then fails as if it had not heard of it."""

    def __init__(self, connection: Any, error: Exception) -> None:
        self._connection = connection
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: Any, *values: Any) -> Any:
        """As usual, and once not."""
        found = self._connection.execute(sql, *values)
        if sql == "commit":
            raise self._error
        return found


def test_a_commit_without_an_answer_is_called_undecided_and_a_repetition_tells(ledger: Ledger, backend: str) -> None:
    sql_ledger: Any = ledger
    usual, asked = sql_ledger._writer, proposal("r1")
    sql_ledger._writer = Unconfirmed(usual, PLACES[backend].lost)
    with pytest.raises(UndecidedError):
        ledger.record([asked])
    sql_ledger._writer = usual
    [answer] = ledger.record([asked])
    assert (answer.status, answer.decision_id) == ("replay", asked.decision_id)


def test_touching_changes_nothing(ledger: Ledger) -> None:
    given(ledger)
    before = ledger.totals("coupons")
    ledger.touch("coupons")
    assert ledger.totals("coupons") == before


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        SqliteLedger(tmp_path / "notes.txt")
    tamper(f"sqlite:///{tmp_path / 'other.db'}", "create table accounts (name text)")
    with pytest.raises(LedgerError, match="not an outlay ledger"):
        SqliteLedger(tmp_path / "other.db")


def test_a_full_disk_loses_nothing_and_spends_nothing(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.set_caps("coupons", Caps(total=1000))
    given(ledger)
    pages = ledger._writer.execute("pragma page_count").fetchone()[0]
    ledger._writer.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(LedgerError, match="full") as caught:
        ledger.record([proposal(f"big {i}", 1, features="x" * 5000) for i in range(10)])
    assert not isinstance(caught.value, UndecidedError)
    assert total(ledger) == (100, 0)
    ledger._writer.execute("pragma max_page_count = 100000")
    given(ledger, "r2")
    assert ledger.check() == []
    ledger.close()


@pytest.mark.parametrize("instead", [False, True])
def test_a_file_that_was_moved_gives_no_more_money(tmp_path: Path, instead: bool) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.set_caps("coupons", Caps(total=1000))
    given(ledger)
    (tmp_path / "ledger.db").rename(tmp_path / "moved.db")
    if instead:
        SqliteLedger(tmp_path / "ledger.db").close()
    with pytest.raises(LedgerError, match="moved or replaced"):
        ledger.record([proposal("r2")])
    if not instead:
        with pytest.raises(LedgerError):
            ledger.totals("coupons")
        assert not (tmp_path / "ledger.db").exists()
    ledger.close()


@pytest.mark.slow
def test_postgres_that_comes_back_is_used_again(tmp_path: Path) -> None:
    url = new_url("postgres", tmp_path)
    ledger = open_ledger(url)
    ledger.set_caps("coupons", Caps(total=1000))
    given(ledger)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
    with pytest.raises(LedgerError):
        ledger.record([proposal("r2")])
    given(ledger, "r2")
    assert total(ledger) == (200, 0)
    ledger.close()


def test_postgres_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="PostgreSQL"):
        open_ledger(f"postgresql://nobody@/none?host={tmp_path}")


@pytest.mark.slow
def test_postgres_does_not_depend_on_its_default_isolation(tmp_path: Path) -> None:
    url = new_url("postgres", tmp_path)
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    tamper(url, f"alter database {name} set default_transaction_isolation = 'serializable'")
    servers = [open_ledger(url) for _ in range(3)]
    servers[0].set_caps("coupons", Caps(total=100))

    def work(number: int) -> int:
        return sum(servers[number].record([proposal(f"{number} {i}", 3)])[0].amount for i in range(30))

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(work, range(3))) == 99
    assert servers[0].check() == []
    for server in servers:
        server.close()
