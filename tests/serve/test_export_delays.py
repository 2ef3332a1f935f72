"""Exports of campaigns that declare delays: outcomes count for as long as declared, and the log says until when."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

import outlay
from outlay.core.errors import OutlayError
from small_exports import CAMPAIGN, DAY, FIRST, WAIT, Ledger, export, rows_of
from telling import missing

LATE = 5  # days; longer than the server's wait_days
DELAYED: dict[str, Any] = CAMPAIGN | {"log": CAMPAIGN["log"] | {"delays": {"coupon_cost": LATE, "reward": 3}}}  # type: ignore[operator]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db", DELAYED)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "next"


def end_of(day: int) -> int:
    """The first epoch ms after a day of the test."""
    return (FIRST + day + 1) * DAY


def test_outcomes_count_to_the_end_of_the_longest_delay(ledger: Ledger, out: Path) -> None:
    """An outcome on the last day of the window counts, the next does not and is told; both wherever wait_days ends."""
    assert WAIT < LATE
    for user, received in {"a": end_of(LATE) - 1, "b": end_of(LATE)}.items():
        ledger.came(ledger.decide(user, 0), "active", received=received)
    found = export(ledger, out)
    assert [row["active"] for row in rows_of(out)] == [1, 0]
    assert found.days[FIRST].late == 1


def test_the_exported_log_prepares_as_it_stands(ledger: Ledger, out: Path, tmp_path: Path) -> None:
    """Every closed day is ripe; of `--all-days`, those that are not are left out."""
    for user in range(60):
        for day in range(9):
            features = {"level": (user + day) % 3, "city": "Ulm", "spend": day * user % 7}
            decision = ledger.decide(f"u{user}", day, member=user % 2, random=0.1, features=features)
            if (user * 7 + day * 3) % 5 < 3:
                ledger.came(decision, "active")
                ledger.came(decision, "redeemed", 0.5)
    with pytest.raises(OutlayError, match=r"may still arrive.*in 1 days"):
        export(ledger, out, today=LATE, all_days=False)
    assert list(export(ledger, out, today=LATE + 1 + 3).days) == [FIRST + day for day in range(4)]
    data = outlay.prepare(out / "campaign.toml", tmp_path / "data")
    assert (len(data), data.manifest.last_time, data.manifest.ripeness["left_out"]) == (240, "2026-01-04", 0)
    export(ledger, out, today=LATE + 1 + 3, all_days=True)
    data = outlay.prepare(out / "campaign.toml", tmp_path / "data")
    assert (len(data), data.manifest.last_time, data.manifest.ripeness["left_out"]) == (240, "2026-01-04", 300)


def test_an_edited_campaign_file_is_kept_and_its_as_of_told(ledger: Ledger, out: Path) -> None:
    ledger.came(ledger.decide("a", 0), "active")
    export(ledger, out, today=10)
    file = out / "campaign.toml"
    assert 'as_of = "2026-01-10"' in file.read_text()
    file.write_text(file.read_text() + "# mine\n")
    assert not any("as_of" in words for words in export(ledger, out, today=10).warnings())
    [words] = [words for words in export(ledger, out, today=12).warnings() if "as_of" in words]
    assert not missing(words, "as_of", "2026-01-10", "campaign.toml", 'set as_of = "2026-01-12"')
    file.unlink()
    export(ledger, out, today=12)
    assert outlay.Campaign.load(file).log.as_of == datetime.date(2026, 1, 12)


def test_outcomes_of_a_table_of_events_are_for_the_user_to_name(tmp_path: Path, out: Path) -> None:
    events = {"source": "unknown", "user": "u", "time": "t", "outcomes": {"reward": "bought", "coupon_cost": "paid"}}
    content = DELAYED | {"log": DELAYED["log"] | {"events": events}}
    ledger = Ledger(tmp_path / "events.db", content)
    ledger.came(ledger.decide("a", 0), "active")
    [words] = [words for words in export(ledger, out).warnings() if "log.events" in words]
    assert not missing(words, "reward", "log.events")
    assert "coupon_cost" not in words  # what was paid is known
    assert outlay.Campaign.load(out / "campaign.toml").log.events is None


def test_without_delays_nothing_is_declared(tmp_path: Path, out: Path) -> None:
    ledger = Ledger(tmp_path / "plain.db", CAMPAIGN)
    ledger.came(ledger.decide("a", 0), "active")
    export(ledger, out)
    log = outlay.Campaign.load(out / "campaign.toml").log
    assert (log.as_of, log.delays) == (None, {})
