"""What decides over money is the ledger's: a server that was started otherwise changes nothing unless it says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from small_ledgers import POSTGRES, new_url
from small_processes import CONFIG, outlay_serve
from small_servers import ADMIN, RESERVE, request, server

from outlay.bundles.decide import Bundle
from outlay.bundles.write import BundleSpec, write_bundle
from outlay.core.errors import OutlayError
from outlay.serve.application import ServerOptions
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import LoadedBundle, prepare_bundle
from outlay.serve.launch import serve
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.clock import Machine
from outlay.serve.ledger.ledger import Ledger
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.shared_settings import agree_settings
from patience import wait_until
from telling import missing

FIRST: dict[str, Any] = {
    "reserve": RESERVE,
    "caps": {"total": 100, "day": 12},
    "user": {"decisions_per_day": 1, "amount": 9},
    "timezone": "Europe/Berlin",
}


@pytest.fixture
def other(tmp_path: Path, make_spec: Callable[..., BundleSpec]) -> Path:
    write_bundle(tmp_path / "other", make_spec(weights=(0.1, 0.9)))
    return tmp_path / "other"


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request.param, tmp_path)


def config(**changed: Any) -> ServeConfig:
    given = {**FIRST, **changed}
    return ServeConfig.parse({key: value for key, value in given.items() if value is not None})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"user": None}, r"user\.amount: .*ledger has 9\.0, .*server none; user\.decisions_per_day: .* 1,"),
        ({"timezone": "Asia/Tokyo"}, r'timezone: .*ledger has "Europe/Berlin", .*server "Asia/Tokyo"'),
        ({"expiry_hours": 1}, r"expiry_hours: .*ledger has 24\.0, .*server 1\.0"),
        ({"reserve": {"0": 0, "1.5": 0.5, "3": 3}}, "reserve: the ledger has"),
        ({"fallback": 3}, r"fallback: .*ledger has none, .*server 3\.0"),
        ({"values": {"at_most": 2}}, r"values\.at_most: .*ledger has none, .*server 2\.0"),
        ({"random": {"share": 0.5}}, r"random\.share: .*ledger has 0\.0, .*server 0\.5"),
        ({"caps": {"day": 24}}, r"caps\.day: .*server .*24"),
    ],
)
def test_a_start_that_differs_is_refused_and_changes_nothing(
    bundle: Bundle, url: str, changed: dict[str, Any], words: str
) -> None:
    ledger = open_ledger(url)
    agree_settings(ledger, prepare_bundle(bundle.folder, config()), config())
    before = ledger.config("coupons")
    other = config(**changed)
    with pytest.raises(OutlayError, match=words) as found:
        agree_settings(ledger, prepare_bundle(bundle.folder, other), other)
    assert "--change-settings" in str(found.value)
    assert ledger.config("coupons") == before
    assert agree_settings(ledger, prepare_bundle(bundle.folder, other), other, change=True)
    after = ledger.config("coupons")
    assert after is not None
    assert after != before
    own = config(ledger_seconds=3, limits={"batch": 7}, caps=None, **{k: v for k, v in changed.items() if k != "caps"})
    agree_settings(
        ledger, prepare_bundle(bundle.folder, own), own
    )  # what is a server's own may differ, and caps need not be given
    assert ledger.config("coupons") == after
    ledger.close()


def test_servers_that_start_together_agree_or_fail(bundle: Bundle, url: str) -> None:
    """None of them writes its limits over another's."""
    settings = [config(user={"amount": amount}) for amount in (1, 2, 3, 4)]
    readies = [prepare_bundle(bundle.folder, each) for each in settings]
    ledgers = [open_ledger(url) for _ in settings]
    together = threading.Barrier(len(settings))

    def start(ledger: Ledger, loaded: LoadedBundle, own: ServeConfig) -> bool:
        together.wait()
        try:
            agree_settings(ledger, loaded, own)
        except OutlayError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        started = list(pool.map(start, ledgers, readies, settings))
    assert started.count(True) == 1
    assert ledgers[0].totals("coupons").caps.user_amount == 100 * (1 + started.index(True))
    for ledger in ledgers:
        ledger.close()


def test_a_server_whose_settings_were_changed_by_another_gives_nothing_more(bundle: Bundle, tmp_path: Path) -> None:
    with server(bundle, tmp_path / "ledger.db", caps={"total": 100}, timezone="UTC") as old:
        assert old.post("/v1/decisions", json=request(1, eligible=[3])).json()["reason"] == "policy"
        with server(bundle, tmp_path / "ledger.db", caps={"total": 100}, timezone="Asia/Tokyo") as new:
            old.service.maintain()
            assert old.get("/v2/health/ready").status_code == 503
            assert 'timezone: the ledger has "Asia/Tokyo"' in old.get("/v2/health/ready").json()["troubles"][0]
            assert old.post("/v1/decisions", json=request(2, eligible=[3])).json()["decision_id"] is None
            assert old.post("/v1/admin/bundle", json={"path": str(bundle.folder)}, headers=ADMIN).status_code == 422
            assert new.get("/v2/health/ready").status_code == 200
            assert new.post("/v1/decisions", json=request(2, eligible=[3])).json()["reason"] == "policy"


@pytest.mark.slow
def test_a_swap_reaches_another_server_and_lasts_over_a_restart(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    url = new_url("postgres", tmp_path)
    with (
        outlay_serve(bundle.folder, url, tmp_path, "--cap", "100") as one,
        outlay_serve(bundle.folder, url, tmp_path, "--cap", "100") as two,
    ):
        assert two.decide(request(1))["bundle"] == bundle.id
        new = one.post("/v1/admin/bundle", {"path": str(other)}).json()["bundle"]
        wait_until(lambda: two.get("/v2/health/ready").json()["bundle"] == new)
        one.kill()
        with outlay_serve(bundle.folder, url, tmp_path, "--cap", "100") as again:
            assert again.decide(request(2))["bundle"] == new
            assert f"the ledger's servers serve bundle {new}" in again.said()
        with outlay_serve(bundle.folder, url, tmp_path, config=CONFIG + "[user]\namount = 1.0\n") as refused:
            wait_until(lambda: refused.popen.poll() is not None)
            assert not missing(refused.said(), "user.amount", "ledger has none", "this server 1.0")
            assert "--change-settings" in refused.said()
        with outlay_serve(bundle.folder, url, tmp_path, "--cap", "100", "--change-settings") as back:
            assert back.decide(request(3))["bundle"] == bundle.id
            wait_until(lambda: two.get("/v2/health/ready").json()["bundle"] == bundle.id)


def test_a_start_that_cannot_load_the_ledgers_bundle_is_refused(bundle: Bundle, other: Path, tmp_path: Path) -> None:
    url, settings = f"sqlite:///{tmp_path / 'ledger.db'}", config()
    ledger = open_ledger(url)
    loaded = prepare_bundle(other, settings)
    agree_settings(ledger, loaded, settings)
    ledger.close()
    other.rename(tmp_path / "away")
    with pytest.raises(OutlayError, match=rf"BUNDLE: is {bundle.id}; the ledger's servers serve {loaded.bundle.id}"):
        serve(ServerOptions(bundle.folder, url, settings, port=0))


def test_caps_that_an_administrator_set_outlast_a_restart(bundle: Bundle, url: str) -> None:
    ledger, settings = open_ledger(url), config()
    loaded = prepare_bundle(bundle.folder, settings)
    agree_settings(ledger, loaded, settings)
    ledger.set_caps("coupons", Caps(total=50_000, day=100, user_day_offers=1, user_amount=900))
    (words,) = agree_settings(ledger, loaded, settings)
    assert not missing(words, "keeps", "caps", "total 500 yuan")
    assert ledger.totals("coupons").caps.total == 50_000
    ledger.close()


def test_the_ledgers_clock_is_set_by_the_machines_where_that_is_said(bundle: Bundle, tmp_path: Path) -> None:
    """For a machine whose clock was wrong when the ledger began."""
    wrong = [10**9]
    machine = Machine("boot", lambda: 1_000, lambda: 1_795_262_400_000 + wrong[0])
    ledger = SqliteLedger(tmp_path / "ledger.db", machine)
    wrong[0] = 0
    assert ledger.clock.ahead() == -(10**9)
    ledger.forget_clock()
    assert ledger.clock.ahead() == 0
    ledger.close()
