"""A week in minutes: the clock of a rehearsal, and what may not be mixed with it."""

from __future__ import annotations

import datetime
import itertools
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_processes import CONFIG, outlay_serve
from small_servers import RESERVE, request
from small_trials import trial

from outlay.bundles.decide import Bundle
from outlay.core.errors import OutlayError
from outlay.serve.application import ServerOptions
from outlay.serve.config import ServeConfig
from outlay.serve.launch import serve
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.clock import Machine
from outlay.serve.ledger.ledger import Ledger, LedgerError
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.rehearsal import Rehearsal, check_rehearsal, clock_of, new_rehearsal, note_rehearsal
from patience import wait_until
from telling import missing

NOON = datetime.datetime(2026, 3, 2, 12, tzinfo=datetime.UTC).timestamp()


@pytest.fixture
def now() -> list[float]:
    return [NOON]


@pytest.fixture
def ledger(tmp_path: Path, now: list[float]) -> Iterator[Ledger]:
    machine = Machine("boot", lambda: int(now[0] * 1000), lambda: int(now[0] * 1000))
    ledger = SqliteLedger(tmp_path / "ledger.db", machine)
    ledger.set_caps("coupons", Caps(total=1_000))
    yield ledger
    ledger.close()


def test_it_begins_at_the_next_midnight_and_a_day_lasts_so_long(now: list[float]) -> None:
    rehearsal = new_rehearsal(20.0, "Asia/Tokyo", now[0])  # where it is 21:00
    assert rehearsal.time(now[0]) == datetime.datetime(2026, 3, 2, 15, tzinfo=datetime.UTC).timestamp()
    now[0] += 30
    assert rehearsal.time(now[0]) - rehearsal.begins == pytest.approx(1.5 * 86_400)


@pytest.mark.parametrize("first", [datetime.date(2027, 3, 1), datetime.date(2041, 3, 1), datetime.date(2025, 3, 1)])
def test_a_rehearsal_of_a_test_begins_on_the_day_before_it(now: list[float], first: datetime.date) -> None:
    rehearsal = new_rehearsal(20.0, "Europe/Berlin", now[0], first)
    midnight = datetime.datetime.combine(first, datetime.time(), zoneinfo.ZoneInfo("Europe/Berlin")).timestamp()
    assert rehearsal.time(now[0] + 20.0) == midnight


@pytest.mark.parametrize(
    "start",
    [
        datetime.date(2027, 3, 1),
        pytest.param(datetime.date(2026, 3, 2), marks=pytest.mark.slow),
    ],
)
def test_the_documented_test_takes_users_when_it_is_rehearsed(
    bundle: Bundle, tmp_path: Path, start: datetime.date
) -> None:
    """As docs/ab-tests.md does it, whenever somebody reads that."""
    trial(
        tmp_path, bundle.folder, [{"day": 0, "coverage": 1.0}], start=start, days=364
    )  # a slow machine meets it as well
    options = "--experiment", str(tmp_path / "spring.toml"), "--rehearse", "2", "--cap", "10000"
    with outlay_serve(bundle.folder, f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path, *options) as process:
        users = itertools.count()
        arm = wait_until(lambda: in_test(process.decide(request(next(users)))))
        day = datetime.date.fromisoformat(process.get("/v2/health/ready").json()["day"])
        assert arm in ("old", "new", "even", "nobody")
        assert start <= day < start + datetime.timedelta(days=364)
        process.stop()


def in_test(decision: Any) -> str | None:
    """The arm of the test, if it has begun."""
    return None if decision["arm"] == "policy" else str(decision["arm"])


def test_the_rehearsal_of_a_plan_begins_on_the_day_before_it(bundle: Bundle, tmp_path: Path) -> None:
    plan = "\n[plan]\nstart = 2027-03-01\ndays = 28\n"
    options = "--rehearse", "86400", "--cap", "10000"
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    with outlay_serve(bundle.folder, ledger, tmp_path, *options, config=CONFIG + plan) as process:
        assert process.get("/v2/health/ready").json()["day"] == "2027-02-28"
        process.stop()


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.5, 90_000.0, float("nan"), float("inf")])
def test_a_day_lasts_a_second_at_least(seconds: float) -> None:
    with pytest.raises(OutlayError, match=r"--rehearse: is .*\b1 to 86400"):
        new_rehearsal(seconds, "UTC", NOON)


def test_it_goes_on_in_every_server_of_the_ledger(now: list[float], ledger: Ledger) -> None:
    first = check_rehearsal(ledger, "coupons", new_rehearsal(20.0, "UTC", now[0]))
    assert first is not None
    (words,) = note_rehearsal(ledger, "coupons", first)
    assert words.startswith("REHEARSAL: ")
    assert not missing(words, "20 seconds")
    now[0] += 50
    again = check_rehearsal(ledger, "coupons", new_rehearsal(20.0, "UTC", now[0]))
    assert again == first
    note_rehearsal(ledger, "coupons", first)
    clock = clock_of(ledger, "coupons", "UTC")
    assert clock.day(clock.now()) == 20_514 + 1 + 2  # 2026-03-02 is day 20,514
    with pytest.raises(LedgerError, match="another server has just begun"):
        note_rehearsal(ledger, "coupons", Rehearsal(seconds=20.0, real=now[0], begins=now[0]))


def test_a_rehearsal_and_real_days_do_not_share_a_ledger(now: list[float], ledger: Ledger) -> None:
    assert check_rehearsal(ledger, "coupons", None) is None
    note_rehearsal(ledger, "coupons", new_rehearsal(20.0, "UTC", now[0]))
    with pytest.raises(OutlayError, match=r"--ledger: .*rehearsal.*--rehearse 20\b"):
        check_rehearsal(ledger, "coupons", None)
    with pytest.raises(OutlayError, match=r"--rehearse: is 30, .*\b20 seconds"):
        check_rehearsal(ledger, "coupons", new_rehearsal(30.0, "UTC", now[0]))
    assert check_rehearsal(ledger, "unknown", None) is None


@pytest.mark.slow
def test_a_server_rehearses_and_its_ledger_serves_no_real_day_any_more(bundle: Bundle, tmp_path: Path) -> None:
    path = f"sqlite:///{tmp_path / 'ledger.db'}"
    with outlay_serve(bundle.folder, path, tmp_path, "--rehearse", "1", "--cap", "100") as process:
        assert process.url
        wait_until(lambda: "REHEARSAL" in process.said())
        first = datetime.date.fromisoformat(process.get("/v2/health/ready").json()["day"])
        assert first > datetime.datetime.now(datetime.UTC).date()
        assert process.decide(request())["reason"] == "policy"

        def later() -> bool:
            told = process.get("/v2/health/ready").json()
            assert told["time"].startswith(told["day"])
            return datetime.date.fromisoformat(told["day"]) >= first + datetime.timedelta(days=2)

        wait_until(later)
        process.stop()
    config = ServeConfig.parse({"reserve": RESERVE})
    with pytest.raises(OutlayError, match=r"ledger .*rehearsal"):
        serve(ServerOptions(bundle.folder, path, config, port=0))


def test_a_ledger_with_real_decisions_does_not_rehearse(bundle: Bundle, tmp_path: Path) -> None:
    path = f"sqlite:///{tmp_path / 'ledger.db'}"
    with outlay_serve(bundle.folder, path, tmp_path, "--cap", "100") as process:
        process.decide(request())
        process.stop()
    config = ServeConfig.parse({"reserve": RESERVE})
    with pytest.raises(OutlayError, match=r"--rehearse: .*decisions .*real clock"):
        serve(ServerOptions(bundle.folder, path, config, port=0, rehearse=10.0))
