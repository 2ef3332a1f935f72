"""What can be wrong is found before the port opens, and said in words."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from small_servers import RESERVE

from outlay.bundles.decide import Bundle
from outlay.core.errors import OutlayError
from outlay.serve.application import ServerOptions, is_loopback
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.handlers.state import ServingState
from outlay.serve.http.tokens import Tokens
from outlay.serve.launch import listening, serve
from outlay.serve.ledger.backends import open_ledger
from outlay.serve.ledger.ledger import LedgerError
from outlay.serve.ledger.sqlite import SqliteLedger
from outlay.serve.shared_settings import agree_settings
from telling import missing


@pytest.fixture
def settings(bundle: Bundle, tmp_path: Path) -> ServerOptions:
    config = ServeConfig.parse({"reserve": RESERVE})
    return ServerOptions(bundle.folder, f"sqlite:///{tmp_path / 'ledger.db'}", config, port=0)


def test_a_missing_bundle_is_said(settings: ServerOptions, tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match="nowhere: does not exist"):
        serve(replace(settings, bundle=tmp_path / "nowhere"))
    assert not (tmp_path / "ledger.db").exists()


def test_beyond_loopback_a_token_is_needed(settings: ServerOptions) -> None:
    with pytest.raises(OutlayError, match=r"--host: is 0\.0\.0\.0: .*OUTLAY_TOKEN"):
        serve(replace(settings, host="0.0.0.0"))
    serve_with = replace(settings, host="0.0.0.0", tokens=Tokens(admin="a" * 16))
    with pytest.raises(OutlayError, match=r"--host: is 0\.0\.0\.0: .*OUTLAY_TOKEN"):
        serve(serve_with)
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", "")] == [False] * 5


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (("s", "a" * 16), "OUTLAY_TOKEN: … 1 characters … 16 … openssl rand"),
        (("s" * 16, "a" * 15), "OUTLAY_ADMIN_TOKEN: … 15 characters … 16"),
        (("s" * 16, "s" * 16), "OUTLAY_ADMIN_TOKEN: … same as OUTLAY_TOKEN"),
        (("s" * 16 + "\n", "a" * 16), "OUTLAY_TOKEN: … space … ASCII"),
        (("s" * 16, "ä" * 16), "OUTLAY_ADMIN_TOKEN: … space … ASCII"),
    ],
)
def test_tokens_that_protect_nothing_are_refused(
    settings: ServerOptions, host: str, tokens: tuple[str, str], words: str
) -> None:
    with pytest.raises(OutlayError) as found:
        serve(replace(settings, host=host, tokens=Tokens(*tokens)))
    where, *told = words.split(" … ")
    assert str(found.value).startswith(where)
    assert not missing(str(found.value), *told)
    assert not any(token in str(found.value) for token in tokens if len(token) > 1)
    assert not Path(settings.ledger.removeprefix("sqlite:///")).exists()


def test_a_port_in_use_is_said(settings: ServerOptions) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OutlayError, match=r"--port: .*127\.0\.0\.1:\d+ \(.*in use"),
    ):
        serve(replace(settings, port=taken.getsockname()[1]))


def test_connections_do_not_wait_for_acknowledgements() -> None:
    with (
        listening("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ledger.db", "--ledger: is 'ledger.db'"),
        ("mysql://x", "--ledger: is 'mysql://x'"),
        ("sqlite:///", "--ledger: is 'sqlite:///'"),
        ("sqlite:///{folder}/none/ledger.db", "none, --ledger: the folder does not exist"),
        ("sqlite:///{folder}", "--ledger: is a folder"),
        ("sqlite:///{folder}/notes.txt", "notes.txt: "),
    ],
)
def test_a_ledger_that_cannot_be_is_said(settings: ServerOptions, tmp_path: Path, url: str, words: str) -> None:
    (tmp_path / "notes.txt").write_text("these are notes and no database" * 100)
    with pytest.raises(OutlayError) as found:
        serve(replace(settings, ledger=url.format(folder=tmp_path)))
    assert words in str(found.value)


def test_a_ledger_that_may_not_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda _path, _mode: False)  # permissions do not bind root
    with pytest.raises(OutlayError, match="--ledger: cannot be written"):
        open_ledger(f"sqlite:///{tmp_path}/ledger.db")


def test_a_new_campaign_gets_the_settings_caps_and_a_known_one_keeps_its_own(bundle: Bundle, tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    config = ServeConfig.parse(
        {
            "reserve": RESERVE,
            "caps": {"total": 50.5, "day": 5},
            "random": {"cap": 2},
            "user": {"amount": 3, "decisions": 4},
        }
    )
    loaded = prepare_bundle(bundle.folder, config)
    with pytest.raises(LedgerError):
        ledger.totals("coupons")
    assert agree_settings(ledger, loaded, config) == []
    caps = ledger.totals("coupons").caps
    assert (caps.total, caps.day, dict(caps.arms), caps.user_amount, caps.user_offers) == (
        5050,
        500,
        {"random": 200},
        300,
        4,
    )
    assert agree_settings(ledger, loaded, config) == []
    other = config.with_cap(70).model_copy(update={"user": config.user.model_copy(update={"decisions": 9})})
    with pytest.raises(OutlayError, match=r"user\.decisions: .*ledger has 4, .*server 9; caps\.total: .* 70"):
        agree_settings(ledger, loaded, other)
    caps = ledger.totals("coupons").caps
    assert (caps.total, caps.user_offers) == (5050, 4)
    ledger.set_caps("coupons", msgspec.structs.replace(caps, total=6000))  # by an administrator
    (words,) = agree_settings(ledger, loaded, config)
    assert not missing(words, "keeps", "caps", "total 60 yuan")
    assert len(agree_settings(ledger, loaded, other, change=True)) == 2
    caps = ledger.totals("coupons").caps
    assert (caps.total, caps.user_offers) == (7000, 9)
    ledger.close()


def test_a_server_without_a_total_cap_says_so(bundle: Bundle, tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db")
    config = ServeConfig.parse({"reserve": RESERVE})
    (words,) = agree_settings(ledger, prepare_bundle(bundle.folder, config), config)
    assert "no total cap" in words
    ledger.close()


def test_names_that_the_ledger_cannot_hold_are_refused(bundle: Bundle) -> None:
    with pytest.raises(OutlayError, match="more than 208 characters"):
        prepare_bundle(bundle.folder, ServeConfig.parse({"reserve": RESERVE, "episode": {"name": "x" * 209}}))


def test_episodes_follow_the_plan(bundle: Bundle) -> None:
    def names(**settings: object) -> list[str]:
        config = ServeConfig.parse({"reserve": RESERVE, **settings})
        state = ServingState(prepare_bundle(bundle.folder, config), config)
        return [state.episode(day) for day in (20_760, 20_766, 20_767)]

    assert names() == ["coupons"] * 3
    assert names(episode={"name": "spring"}) == ["spring"] * 3
    plan = {"start": "2026-11-03", "days": 28}  # day 20,760
    assert names(episode={"days": 7}, plan=plan) == ["coupons.0", "coupons.0", "coupons.1"]
