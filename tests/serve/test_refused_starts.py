"""A start, a swap or a test that is refused has changed nothing: not a row, and no ledger that was not there before."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from small_ledgers import POSTGRES, new_url, proposal, tamper
from small_servers import ADMIN, RESERVE, server
from small_trials import trial

from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.core.errors import OutlayError
from outlay.serve.application import ServerOptions
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.launch import serve
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.ledger import LedgerError, NoLedgerError
from outlay.serve.shared_settings import agree_settings, differences
from small_bundles import spec
from telling import missing

FIRST: dict[str, Any] = {"reserve": RESERVE, "caps": {"total": 100}}
PLAN = {"start": "2027-03-01", "days": 28}


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request.param, tmp_path)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


def config(**changed: Any) -> ServeConfig:
    return ServeConfig.parse({**FIRST, **changed})


def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of a ledger."""
    tables = ("ledger_format", "clock", "campaign", "note", "decision", "entry", "outcome", "counter")
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return {table: sorted(file.execute(f"select * from {table}").fetchall()) for table in tables}
    with psycopg.connect(url, options="-c search_path=outlay") as database:
        return {
            table: sorted(database.execute(f"select * from {table}".encode()).fetchall(), key=str) for table in tables
        }


def spend(bundle: Bundle, url: str) -> None:
    """A ledger of a campaign with 100 yuan, of which one is given."""
    with closing(open_ledger(url)) as ledger:
        agree_settings(ledger, prepare_bundle(bundle.folder, config()), config())
        ledger.record([proposal("r1", 100)])


def held(folder: Path) -> Path:
    """A bundle that keeps no margin below its budget."""
    of = spec()
    write_bundle(folder / "held", replace(of, campaign=of.campaign.with_train(hold="serving")))
    return folder / "held"


def test_a_bundle_that_is_held_while_serving_is_served_behind_any_cap_of_all_that_it_spends(tmp_path: Path) -> None:
    for number, caps in enumerate(({"total": 50}, {"day": 5}, {"policy": 50})):
        with closing(open_ledger(f"sqlite:///{tmp_path}/{number}.db")) as ledger:
            settings = config(caps=caps)
            agree_settings(ledger, prepare_bundle(held(tmp_path), settings), settings)
    with closing(open_ledger(f"sqlite:///{tmp_path}/none.db")) as ledger:
        settings = config(caps={}, user={"amount": 5.0})
        with pytest.raises(OutlayError, match="there is no cap"):
            agree_settings(ledger, prepare_bundle(held(tmp_path), settings), settings)


def test_its_last_cap_is_not_taken_away(tmp_path: Path) -> None:
    with server(load_bundle(held(tmp_path)), tmp_path / "ledger.db", caps={"total": 1000}) as client:

        def change(**caps: Any) -> Any:
            return client.post("/v1/admin/caps", json=caps, headers=ADMIN)

        refused = change(total=None)
        assert refused.status_code == 422
        assert not missing(refused.json()["error"], "there is no cap")
        assert change(day=50).json()["total"] == 1000
        assert change(total=None).json() == {"total": None, "day": 50, "arms": {}}


def test_a_start_that_is_refused_changes_nothing(bundle: Bundle, url: str, tmp_path: Path, taken: int) -> None:
    """Also where it says that it changes the settings: 100 yuan stay 100."""
    spend(bundle, url)
    before = contents(url)
    start = ServerOptions(bundle.folder, url, config(), port=0, change=True)
    dear = trial(tmp_path, bundle.folder)  # its arms may spend 3,000
    for refused, words in (
        (replace(start, config=config(minor=1000, caps={"total": 1100})), "minor: is 1000, and the ledger counts 100"),
        (replace(start, config=config(minor=1000), change=False), "minor: is 1000, and the ledger counts 100"),
        (replace(start, config=config(expiry_hours=1), port=taken), "cannot listen"),
        (replace(start, config=config(expiry_hours=1), rehearse=60), "decisions that were made with the real clock"),
        (replace(start, config=config(expiry_hours=1), experiment=dear), "the arms of the new test may spend"),
        (replace(start, config=config(expiry_hours=1), change=False), "expiry_hours: the ledger has 24.0"),
    ):
        with pytest.raises(OutlayError, match=words):
            serve(refused)
        assert contents(url) == before, words


@pytest.mark.parametrize("backend", ["sqlite", POSTGRES])
def test_a_start_that_is_refused_creates_no_ledger(bundle: Bundle, backend: str, tmp_path: Path, taken: int) -> None:
    (tmp_path / "ledgers").mkdir()
    url = new_url(backend, tmp_path / "ledgers")
    start = ServerOptions(bundle.folder, url, config(), port=0)
    for refused, words in (
        (replace(start, config=config(plan=PLAN, caps={})), "there is no total cap"),
        (replace(start, bundle=held(tmp_path), config=config(caps={})), "trained to be held by one"),
        (replace(start, port=taken), "cannot listen"),
        (replace(start, rehearse=0.1), "--rehearse: is 0.1"),
        (replace(start, experiment=trial(tmp_path, bundle.folder)), "the arms of the new test may spend"),
        (replace(start, history=tmp_path), "history"),
    ):
        with pytest.raises(OutlayError, match=words):
            serve(refused)
        assert not list((tmp_path / "ledgers").iterdir()), words
        with pytest.raises(NoLedgerError):
            open_ledger(url, create=False)


def test_a_start_whose_last_note_fails_has_changed_nothing(
    bundle: Bundle, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another server begins a rehearsal, or the disk is full."""
    spend(bundle, url)
    before = contents(url)

    def full(*_values: Any) -> None:
        raise LedgerError("the disk is full.")

    monkeypatch.setattr("outlay.serve.shared_settings.other_live_experiments", full)
    other = config(expiry_hours=1, caps={"total": 500})
    with closing(open_ledger(url)) as ledger, pytest.raises(LedgerError, match="full"):
        agree_settings(ledger, prepare_bundle(bundle.folder, other), other, change=True)
    assert contents(url) == before


def test_a_swap_that_is_refused_leaves_no_note(
    bundle: Bundle, tmp_path: Path, make_spec: Callable[..., BundleSpec]
) -> None:
    """A bundle that counts money in something else; and a server whose settings are no longer the ledger's."""
    write_bundle(tmp_path / "more", make_spec(weights=(0.1, 0.9)))
    spec = make_spec(weights=(0.2, 0.8))
    meta = spec.campaign.meta.model_copy(update={"unit": "fen"})
    write_bundle(tmp_path / "fen", replace(spec, campaign=spec.campaign.model_copy(update={"meta": meta})))
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with server(bundle, tmp_path / "ledger.db") as client:

        def swap(name: str) -> Any:
            return client.post("/v1/admin/bundle", json={"path": str(tmp_path / name)}, headers=ADMIN)

        before = contents(url)
        assert (refused := swap("fen")).status_code == 422
        assert not missing(refused.json()["error"], "fen", "ledger", "yuan")
        assert contents(url) == before
        with server(bundle, tmp_path / "ledger.db", timezone="Asia/Tokyo"):
            before = contents(url)  # the first server has not looked at the ledger since
            assert (refused := swap("more")).status_code == 422
            assert not missing(refused.json()["error"], "settings", "ledger", "changed")
        assert contents(url) == before


def test_a_setting_that_only_a_newer_version_knows_stops_an_old_server(bundle: Bundle, tmp_path: Path) -> None:
    """It must not decide by part of the settings; and as long as the key is at "none" it makes no difference."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with server(bundle, tmp_path / "ledger.db") as client:

        def ready(**newer: Any) -> Any:
            kept = client.service.ledger.config("coupons")
            assert kept is not None
            settings = json.dumps({**json.loads(kept.settings), **newer})
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
                file.execute("update campaign set settings = ?", [settings])
            client.service.maintain()
            return client.get("/v2/health/ready").json()

        assert ready(weather=None)["ready"]
        told = ready(weather={"storms": 5})
        assert not told["ready"]
        assert not missing(told["troubles"][0], "weather.storms", "ledger has 5", "this version")
        assert ready(weather=None)["ready"]
        told = ready(expiry_hours="two days")  # a form that it does not read
        assert not missing(told["troubles"][0], "expiry_hours", 'ledger has "two days"', "this server 24.0")


def test_a_start_that_changes_nothing_leaves_the_settings_as_an_older_version_wrote_them(
    bundle: Bundle, url: str
) -> None:
    """Or the older servers, which still run, would find keys that they do not know."""
    spend(bundle, url)
    with closing(open_ledger(url)) as ledger:
        kept = ledger.config("coupons")
        assert kept is not None
        older = {key: value for key, value in json.loads(kept.settings).items() if key != "wait_days"}
        tamper(url, f"update campaign set settings = '{json.dumps(older)}'")
        agree_settings(ledger, prepare_bundle(bundle.folder, config()), config())
        after = ledger.config("coupons")
        assert after is not None
        assert json.loads(after.settings) == older
        assert differences(after.settings, config()) == []
        more = config(wait_days=9)
        agree_settings(ledger, prepare_bundle(bundle.folder, more), more, change=True)
        after = ledger.config("coupons")
        assert after is not None
        assert json.loads(after.settings)["wait_days"] == 9


def test_a_test_that_only_a_newer_version_can_read_stops_an_old_server(bundle: Bundle, tmp_path: Path) -> None:
    """It cannot know who is in the test; once it can, it is ready again."""
    with server(bundle, tmp_path / "ledger.db", experiment=trial(tmp_path, bundle.folder)) as client:
        [note] = client.service.ledger.notes("coupons", "experiment")
        newer = json.dumps({**json.loads(note.content), "weather": 1})
        for content, ready in ((newer, False), (note.content, True)):
            with closing(sqlite3.connect(tmp_path / "ledger.db")) as file, file:
                file.execute("update note set content = ? where kind = 'experiment'", [content])
            client.service.maintain()
            told = client.get("/v2/health/ready").json()
            assert told["ready"] is ready
            assert ready or "weather: unknown key" in told["troubles"][0]
