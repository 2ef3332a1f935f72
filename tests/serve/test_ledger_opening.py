"""Opening a ledger: what has to be there, who may, and what is written only as a whole. On every backend."""

from __future__ import annotations

import secrets
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.conninfo import make_conninfo
from small_ledgers import CLOCK, EVERY_BACKEND, HOUR, new_url, outcome, proposal, tamper

from outlay.core.errors import OutlayError
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ledger import Ledger, LedgerError, NoLedgerError, Note
from outlay.serve.ledger.postgres import PostgresLedger
from outlay.serve.ledger.tables import TABLES


@pytest.fixture(params=EVERY_BACKEND)
def backend(request: pytest.FixtureRequest) -> str:
    """One after the other, all that are registered."""
    return str(request.param)


@pytest.fixture
def url(backend: str, tmp_path: Path) -> str:
    return new_url(backend, tmp_path)


def given(ledger: Ledger) -> str:
    """The id of a decision whose amount is reserved."""
    [answer] = ledger.record([proposal("r1", 100)])
    assert answer.amount == 100
    return answer.decision_id


def test_tables_and_columns_of_others_in_the_same_place_are_no_matter(url: str) -> None:
    open_ledger(url).close()
    tamper(url, "create table mine (name text)")
    for table in TABLES:
        tamper(url, f"alter table {table.name} add column added_later text")
    ledger = open_ledger(url)
    ledger.set_caps("coupons", Caps(total=1_000, user_offers=5))
    decision = given(ledger)
    assert ledger.outcomes([outcome(decision)])[0].status == "settled"
    assert ledger.check() == []
    ledger.close()


def test_caps_of_a_kind_that_is_unknown_are_not_overlooked(url: str) -> None:
    """A newer version may have set them: decisions without them would cost more than they allow."""
    ledger = open_ledger(url)
    ledger.set_caps("coupons", Caps(total=1_000))
    tamper(url, """update campaign set caps = '{"total":999,"day":null,"by_weather":null}'""")
    assert ledger.totals("coupons").caps == Caps(total=999)
    tamper(url, """update campaign set caps = '{"total":1000,"by_weather":5}'""")
    for ask in (lambda: given(ledger), lambda: ledger.config("coupons"), lambda: ledger.set_caps("coupons", Caps())):
        with pytest.raises(LedgerError, match=r"caps .*not know: .*by_weather"):
            ask()
    ledger.close()


def test_what_is_done_together_is_done_at_once_or_not_at_all(url: str) -> None:
    ledger, other = open_ledger(url), open_ledger(url)
    note = Note(kind="plan", key="one", ts=1, content="{}")

    def begin(*, fail: bool) -> None:
        with ledger.together("coupons"):
            ledger.set_caps("coupons", Caps(total=7))
            ledger.note("coupons", note)
            assert ledger.notes("coupons", "plan") == [note]
            with ledger.together("coupons"):
                ledger.change_caps("coupons", lambda before: replace(before or Caps(), day=3))
            if fail:
                raise OutlayError("refused.")

    with pytest.raises(OutlayError, match="refused"):
        begin(fail=True)
    assert other.campaigns() == []
    begin(fail=False)
    assert (other.totals("coupons").caps.total, other.totals("coupons").caps.day) == (7, 3)
    assert other.notes("coupons", "plan") == [note]
    ledger.close()
    other.close()


def test_a_ledger_that_is_only_looked_for_is_not_created(backend: str, tmp_path: Path) -> None:
    url = new_url(backend, tmp_path)
    for _ in range(2):
        with pytest.raises(NoLedgerError):
            open_ledger(url, create=False)
    assert not list(tmp_path.iterdir())
    open_ledger(url).close()
    open_ledger(url, create=False).close()


@pytest.mark.slow
def test_a_user_who_may_only_change_rows_serves_and_one_who_may_only_read_exports(tmp_path: Path) -> None:
    url = new_url("postgres", tmp_path)
    open_ledger(url).close()
    name, schema = f"user_{secrets.token_hex(4)}", "in schema outlay"
    for sql in (
        f"create role {name} login",
        f"grant usage on schema outlay to {name}",
        f"grant select on all tables {schema} to {name}",
    ):
        tamper(url, sql)
    as_user = make_conninfo(url, user=name)
    reader = PostgresLedger(as_user, create=False)
    assert reader.campaigns() == []
    with pytest.raises(LedgerError, match="permission denied"):
        reader.set_caps("coupons", Caps())
    reader.close()
    tamper(url, f"grant insert, update, delete on all tables {schema} to {name}")
    ledger = PostgresLedger(as_user)
    ledger.set_caps("coupons", Caps(total=1_000, user_offers=1))
    given(ledger)
    ledger.set_caps("coupons", Caps(total=1_000))
    ledger.touch("coupons")
    assert ledger.release("coupons", CLOCK + 48 * HOUR) == 1
    assert ledger.check() == []
    ledger.close()


@pytest.mark.slow
def test_a_user_who_may_create_tables_in_the_schema_needs_no_right_on_the_database(tmp_path: Path) -> None:
    url = new_url("postgres", tmp_path)
    name = f"user_{secrets.token_hex(4)}"
    for sql in ("create schema outlay", f"create role {name} login", f"grant all on schema outlay to {name}"):
        with psycopg.connect(url, autocommit=True) as database:
            database.execute(sql.encode())
    ledger = PostgresLedger(make_conninfo(url, user=name))
    ledger.set_caps("coupons", Caps(total=1_000))
    ledger.close()
