"""Pacing of servers: whoever comes first notes a state, and all serve what stands."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from outlay.bundles.decide import Bundle
from outlay.bundles.pool import Pool
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import Decider, EncodedRequest, decode_draw
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.ledger.records import Proposal, new_decision_id
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.pacing.budgets import PACE, outside_budget
from outlay.serve.pacing.pacer import Pacer
from outlay.serve.pacing.pacing import PacingState

HOUR = 3_600_000
START = datetime.date(2026, 3, 2)
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
