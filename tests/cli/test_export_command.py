"""`outlay export-log` tells what it wrote and what is next; wrong input is one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import outlay
from small_exports import CAMPAIGN, Ledger


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
    assert "2026-01-01     30          30                  30             0        0               0" in found.out
    assert "next holds 1 day. Next: outlay check next/campaign.toml" in found.out
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
    assert "Example: outlay export-log sqlite:///coupons.db --out next" in found.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sqlite:///none.db", "--out", "next"], "none.db, LEDGER: there is no such ledger."),
        (["ledger.db", "--out", "next"], "is 'ledger.db', which is not the URL of a ledger. Give sqlite:///ledger.db"),
        (["sqlite:///ledger.db", "--out", "ledger.db"], "ledger.db: a file stands where a folder is to be written."),
        (["sqlite:///ledger.db", "--out", "."], "outlay did not write it"),
        (
            ["sqlite:///ledger.db", "--out", "next", "--campaign", "x"],
            "the ledger has no campaign 'x'. It has: 'coupons'.",
        ),
        (["sqlite:///ledger.db", "--out", "next", "--until", "2025-01-01"], "there are no decisions until 2025-01-01."),
    ],
)
def test_wrong_input_is_one_message_and_code_2(ledger: Ledger, arguments: list[str], words: str) -> None:
    found = outlay("export-log", *arguments)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: ")
    assert words in found.err
    assert not Path("none.db").exists()


def test_what_cannot_be_taken_at_its_word_is_a_warning(ledger: Ledger) -> None:
    ledger.decide("torn", 0, member=0)
    ledger.decide("torn", 1, member=1)
    found = outlay("export-log", "sqlite:///ledger.db", "--out", "next", "--json")
    assert found.code == 0
    assert "warning: 1 decisions contradict their users' earlier decisions" in found.err
    assert json.loads(found.out)["warnings"]
