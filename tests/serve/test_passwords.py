"""The password of the database: where it may not be read."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from small_ledgers import new_url
from small_processes import CONFIG, RUN, Process, workers
from small_servers import request

from outlay.bundles.decide import Bundle
from outlay.core.errors import OutlayError
from outlay.serve.application import ServerOptions
from outlay.serve.config import ServeConfig
from outlay.serve.http.tokens import Tokens
from outlay.serve.ledger.backends import open_ledger, password_of, without_password
from patience import wait_until
from telling import missing


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("postgresql://ann:s3cr%25t@db:5432/coupons", "s3cr%25t"),
        ("postgres://:s3cret@/coupons?host=/tmp", "s3cret"),
        ("postgresql://ann@db/coupons?connect_timeout=3&password=s3cret", "s3cret"),
        ("postgresql://ann@db:5432/coupons", None),
        ("postgresql://ann:@db/coupons", None),
        ("sqlite:///a:b@c.db", None),
    ],
)
def test_a_password_is_found_and_hidden(url: str, password: str | None) -> None:
    assert password_of(url) == password
    assert without_password(f"cannot reach {url}", url) == f"cannot reach {url.replace(password or '#', '***')}"
    assert without_password("user ann, s3cr%t", "postgresql://ann:s3cr%25t@db") == "user ann, ***"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@127.0.0.1:1/coupons",
        "postgresql://ann:s3cret@127.0.0.1:port/coupons",
        "postgresql://ann:s3cret%zz@127.0.0.1:1/coupons",
        "postgresql://ann:s3cret@more@127.0.0.1:1/coupons",
        "postgresql://ann:s3cret/more@127.0.0.1:1/coupons",
        "postgresql://ann@127.0.0.1:1/coupons?password=s3cret&nonsense=1",
        "postgressql://ann:s3cret@127.0.0.1:1/coupons",
    ],
)
def test_no_error_tells_it(url: str) -> None:
    with pytest.raises(OutlayError) as caught:
        open_ledger(url)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(ServerOptions(Path("b"), url, ServeConfig(), tokens=Tokens("s3cret", "s3cret")))


@pytest.mark.slow
def test_nobody_on_the_machine_reads_it_where_the_environment_names_the_ledger(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_url("postgres", tmp_path).replace("postgres:@", "postgres:s3cret@")
    assert password_of(url) == "s3cret"
    settings = tmp_path / "serve.toml"
    settings.write_text(CONFIG)
    command = [sys.executable, "-c", RUN, "serve", str(bundle.folder), "--config", str(settings), "--port", "0"]
    monkeypatch.setenv("OUTLAY_LEDGER", url)
    process = Process([*command, "--workers", "2"], tmp_path / "said.txt")
    try:
        assert process.decide(request(1))["decision_id"]
        wait_until(lambda: len(workers(process)) == 2)
        family = [psutil.Process(process.popen.pid), *psutil.Process(process.popen.pid).children(recursive=True)]
        assert "s3cret" not in " ".join(word for each in family for word in each.cmdline())
        left = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert any(file.name == "settings" for file in left)
        assert not [file for file in left if b"s3cret" in file.read_bytes()]
    finally:
        process.kill()
    assert "warning" not in process.said()
    monkeypatch.delenv("OUTLAY_LEDGER")
    process = Process([*command, "--ledger", url], tmp_path / "more.txt")
    try:
        assert process.decide(request(1))["decision_id"]
    finally:
        process.kill()
    assert not missing(process.said(), "warning", "password", "--ledger")
    assert "s3cret" not in process.said()
