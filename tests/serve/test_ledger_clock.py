"""One clock for all servers of a ledger, whatever their own clocks say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_ledgers import HOUR, POSTGRES, new_url, proposal, tamper
from small_processes import outlay_serve
from small_servers import request, server

from outlay.bundles.decide import Bundle
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.clock import KEEP, TOLERANCE, LedgerClock, Machine
from outlay.serve.ledger.ledger import ClockJumpedError
from outlay.serve.ledger.postgres import PostgresLedger
from outlay.serve.ledger.sqlite import SqliteLedger
from patience import wait_until
from telling import missing

NOON = 1_795_262_400_000  # 2026-11-21T12:00Z
MINUTE = 60_000


class Hands:
    """A machine whose clock is set by hand."""

    def __init__(self, boot: str = "first") -> None:
        self.boot, self.passed, self.wrong = boot, 0, 0

    @property
    def machine(self) -> Machine:
        """As a ledger asks it."""
        return Machine(self.boot, lambda: 1_000_000 + self.passed, lambda: NOON + self.passed + self.wrong)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[Hands], SqliteLedger]]:
    ledgers: list[SqliteLedger] = []

    def ledger(hands: Hands) -> SqliteLedger:
        ledgers.append(SqliteLedger(tmp_path / "ledger.db", hands.machine))
        ledgers[-1].set_caps("coupons", Caps())
        return ledgers[-1]

    yield ledger
    for each in ledgers:
        each.close()


def test_a_machine_whose_clock_jumps_stays_where_the_ledger_is(hands: Hands, opened: Any) -> None:
    ledger = opened(hands)
    assert ledger.clock.now() == NOON
    for wrong in (30 * 24 * HOUR, -30 * 24 * HOUR, 25 * HOUR, 0):
        hands.wrong, hands.passed = wrong, hands.passed + 2 * MINUTE
        ledger.release("coupons", 0)  # as a server does every second
        assert ledger.clock.now() == opened(hands).clock.now() == NOON + hands.passed
        assert ledger.clock.ahead() == wrong
    assert ledger.clock.jumps == 0


def test_a_server_that_starts_with_a_wrong_clock_has_the_ledgers(hands: Hands, opened: Any) -> None:
    opened(hands)
    other = Hands()
    other.wrong = 25 * HOUR
    assert opened(other).clock.now() == NOON


def test_small_corrections_are_followed_and_time_does_not_go_back(hands: Hands, opened: Any) -> None:
    ledger, seen = opened(hands), [NOON]
    for _ in range(10):  # a clock that goes wrong slowly, and is the only one there is
        hands.passed += KEEP
        hands.wrong -= TOLERANCE // 2
        ledger.release("coupons", 0)  # as a server does every second
        seen.append(ledger.clock.now())
    assert seen == sorted(seen)
    assert abs(ledger.clock.ahead()) <= TOLERANCE


def test_after_a_restart_of_the_machine_its_clock_is_believed_but_not_before_what_was(
    hands: Hands, opened: Any
) -> None:
    opened(hands)
    later, earlier = Hands("second"), Hands("third")
    later.wrong, earlier.wrong = 10 * HOUR, 5 * HOUR
    assert opened(later).clock.now() == NOON + 10 * HOUR
    assert opened(earlier).clock.now() == NOON + 10 * HOUR


def test_a_machine_that_starts_with_a_clock_far_ahead_does_not_move_the_ledgers(hands: Hands, opened: Any) -> None:
    """What is reserved and the caps of days would be gone for good. An operator may say that the clock is right."""
    opened(hands)
    for number, hours in enumerate((25, 100_000)):
        wrong = Hands(f"{hours} hours ahead")
        wrong.wrong = hours * HOUR
        other = opened(wrong)
        assert other.clock.now() == NOON + number * 2 * MINUTE
        wrong.passed = 2 * MINUTE
        other.release("coupons", 0)  # as a server does every second; it is the last to have written
        assert other.clock.now() == NOON + (number + 1) * 2 * MINUTE
        assert other.clock.ahead() > 24 * HOUR
    again = Hands("after its clock was corrected")
    again.passed = 5 * MINUTE
    assert opened(again).clock.now() == NOON + 5 * MINUTE
    other.forget_clock()
    assert opened(wrong).clock.ahead() == 0


@pytest.mark.slow
def test_postgres_has_one_clock_for_all(tmp_path: Path) -> None:
    url, hands = new_url("postgres", tmp_path), Hands()
    one, two = PostgresLedger(url), PostgresLedger(url, hands.machine)
    assert abs(two.clock.now() - one.clock.now()) < TOLERANCE
    assert abs(one.clock.ahead()) < TOLERANCE < abs(two.clock.ahead())
    one.close()
    two.close()


@pytest.mark.parametrize("backend", ["sqlite", POSTGRES])
def test_what_was_timed_by_a_clock_that_has_jumped_is_not_written(backend: str, tmp_path: Path) -> None:
    """As after a pause of a virtual machine, in which its time stood still; or where the ledger's own clock was set."""
    url, hands = new_url(backend, tmp_path), Hands()
    ledger = (
        SqliteLedger(url.removeprefix("sqlite:///"), hands.machine)
        if backend == "sqlite"
        else PostgresLedger(url, hands.machine)
    )
    ledger.set_caps("coupons", Caps())
    ledger.record([proposal("r1", expires=1)])
    if backend == "sqlite":
        tamper(url, f"update clock set ts = ts + {10 * TOLERANCE}")
    else:
        hands.passed -= 10 * TOLERANCE
    with pytest.raises(ClockJumpedError):
        ledger.record([proposal("r2")])
    if backend == "sqlite":
        tamper(url, f"update clock set ts = ts - {10 * TOLERANCE}")
    else:
        hands.passed += 10 * TOLERANCE
    with pytest.raises(ClockJumpedError):
        ledger.release("coupons", 2)
    assert ledger.totals("coupons").total.reserved == 100
    assert ledger.record([proposal("r2")])[0].status == "new"
    assert ledger.release("coupons", 2) == 1
    ledger.close()


def test_readings_that_take_long_move_no_clock() -> None:
    ticks = [0]
    clock = LedgerClock(Machine("boot", lambda: ticks[0], lambda: 0))
    clock.take(NOON, 0)
    ticks[0] = 4_000
    for told in (NOON, NOON + 4_000):  # read at the beginning of four seconds, or at their end
        clock.take(told, 0)
        assert clock.now() == NOON + 4_000
    clock.take(NOON + 5_000, 3_990)
    assert NOON + 4_990 <= clock.now() <= NOON + 5_000
    assert clock.jumps == 0


def test_a_campaign_releases_its_own_reservations(tmp_path: Path) -> None:
    """Another campaign of the same ledger may be rehearsed, where a day lasts seconds."""
    ledger = SqliteLedger(tmp_path / "ledger.db")
    for campaign in ("coupons", "other"):
        ledger.set_caps(campaign, Caps())
        ledger.record([proposal("r", campaign=campaign)])
    assert ledger.release("other", 2**50) == 1
    assert ledger.totals("coupons").total.reserved == 100
    ledger.close()


def test_a_server_with_a_wrong_clock_is_not_ready_and_comes_back(bundle: Bundle, tmp_path: Path, hands: Hands) -> None:
    with server(bundle, tmp_path / "ledger.db", machine=hands.machine, caps={"day": 3}, expiry_hours=1) as client:
        ledger = client.service.ledger

        def ask(number: int) -> Any:
            return client.post("/v1/decisions", json=request(number, eligible=[3])).json()["reason"]

        def tended() -> tuple[int, int]:
            client.service.maintain()
            return client.get("/v2/health/ready").status_code, ledger.totals("coupons").total.reserved

        assert ask(1) == "policy"
        day = client.get("/v2/health/ready").json()["day"]
        hands.wrong = 30 * 24 * HOUR
        assert tended() == (503, 300)
        told = client.get("/v2/health/ready").json()
        assert (told["ready"], told["day"]) == (False, day)
        assert not missing(told["troubles"][0], "clock", "2,592,000 seconds", "ahead", "5")
        assert "outlay_clock_ahead_seconds 2.592e+06" in client.get("/metrics").text
        assert ask(2) == "day_cap"  # no other day's cap is open
        hands.wrong = 0
        assert tended() == (200, 300)
        assert (client.get("/v2/health/ready").json()["day"], ask(3)) == (day, "day_cap")
        hands.passed += HOUR
        assert tended() == (200, 0)


@pytest.mark.slow
def test_two_servers_25_hours_apart_free_nothing_that_is_not_due(bundle: Bundle, tmp_path: Path) -> None:
    """On one PostgreSQL: what one server has reserved, the other does not release."""
    url = new_url("postgres", tmp_path)
    with (
        outlay_serve(bundle.folder, url, tmp_path, "--cap", "30") as right,
        outlay_serve(bundle.folder, url, tmp_path, "--cap", "30", ahead=25 * 3600) as wrong,
    ):
        for number in range(11):
            reason = right.decide(request(number, eligible=[3]))["reason"]
            assert reason == ("policy" if number < 10 else "total_cap")
        assert wrong.get("/v2/health/ready").status_code == 503
        assert "90,000 seconds ahead of" in wrong.get("/v2/health/ready").text
        assert right.get("/v2/health/ready").json()["day"] == wrong.get("/v2/health/ready").json()["day"]

        def ahead() -> float:
            lines = wrong.get("/metrics").text.splitlines()
            (line,) = (each for each in lines if each.startswith("outlay_clock_ahead"))
            return float(line.split()[1])

        wait_until(ahead)  # it has looked after itself
        assert ahead() == pytest.approx(90_000, abs=5)
        assert wrong.decide(request(20, eligible=[3]))["reason"] == "total_cap"
        ledger = open_ledger(url)
        total = ledger.totals("coupons")
        assert (total.total.reserved, len(total.days)) == (3000, 1)
        ledger.close()
