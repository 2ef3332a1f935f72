"""`outlay export-log` tells what it wrote and what is next; wrong input is one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import outlay
from small_exports import CAMPAIGN, Ledger
from telling import missing


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Decisions of January 2026, long closed."""
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(tmp_path / "ledger.db", CAMPAIGN)
    for user in range(30):
        for day in range(2):
            ledger.came(ledger.decide(f"u{user}", day, member=user % 2), "active" if user % 3 else "visit")
    return ledger


def test_it_tells_what_it_wrote_and_what_is_next(ledger: Ledger) -> None:
    found = outlay("export-log", "sqlite:///ledger.db", "--out", "next", "--until", "2026-01-01")
    assert (found.code, found.err) == (0, "")
    figures = [row.split() for row in found.out.splitlines() if row.split()[:1] == ["2026-01-01"]]
    assert figures == [["2026-01-01", "30", "30", "30", "0", "0", "0"]]
    assert not missing(found.out, "1 day", "Next: outlay check next/campaign.toml")
    assert outlay("check", "next/campaign.toml").code == 0
    again = outlay("export-log", "sqlite:///ledger.db", "--out", "next", "--json")
    told = json.loads(again.out)
    assert (told["campaign"], told["days"], told["unit"]) == ("coupons", 2, "yuan")
    assert [day["day"] for day in told["written"]] == ["2026-01-02"]
    nothing = outlay("export-log", "sqlite:///ledger.db", "--out", "next")
    assert "Nothing new" in nothing.out
    assert outlay("export-log", "sqlite:///ledger.db", "--out", "next", "--quiet").out == ""


def test_help_has_an_example() -> None:
    found = outlay("export-log", "--help")
    assert not missing(found.out, "Example: outlay export-log", "sqlite:///coupons.db", "--out next")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sqlite:///none.db", "--out", "next"], "none.db, LEDGER: … no such ledger"),
        (["ledger.db", "--out", "next"], "is 'ledger.db' … sqlite:///ledger.db"),
        (["sqlite:///ledger.db", "--out", "ledger.db"], "ledger.db: … a file … a folder"),
        (["sqlite:///ledger.db", "--out", "."], "outlay did not write it"),
        (
            ["sqlite:///ledger.db", "--out", "next", "--campaign", "x"],
            "no campaign 'x' … 'coupons'",
        ),
        (["sqlite:///ledger.db", "--out", "next", "--until", "2025-01-01"], "no decisions until 2025-01-01"),
    ],
)
def test_wrong_input_is_one_message_and_code_2(ledger: Ledger, arguments: list[str], words: str) -> None:
    found = outlay("export-log", *arguments)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: ")
    assert not missing(found.err, words)
    assert not Path("none.db").exists()


def test_what_cannot_be_taken_at_its_word_is_a_warning(ledger: Ledger) -> None:
    ledger.decide("torn", 0, member=0)
    ledger.decide("torn", 1, member=1)
    found = outlay("export-log", "sqlite:///ledger.db", "--out", "next", "--json")
    assert found.code == 0
    (warning,) = json.loads(found.out)["warnings"]
    assert not missing(warning, "1 decisions", "contradict")
    assert f"warning: {warning}" in " ".join(found.err.split())
