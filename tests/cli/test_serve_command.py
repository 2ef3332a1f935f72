"""`outlay serve` opens a port, answers over it, and ends when it is told to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import outlay
from outlay.bundles.decide import Bundle
from outlay.serve.ledger.sqlite import SqliteLedger
from patience import PATIENCE
from telling import missing

CONFIG = f"""
ledger_seconds = {PATIENCE}
[reserve]
"0" = 0.0
"1.5" = 1.5
"3" = 3.0
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "serve.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(params=[1, 2])
def running(bundle: Bundle, config: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    command: list[str | Path] = [
        Path(sys.executable).with_name("outlay"),
        "serve",
        bundle.folder,
        "--config",
        config,
        "--cap",
        "10",
        "--ledger",
        f"sqlite:///{tmp_path / 'ledger.db'}",
        "--port",
        "0",
        "--workers",
        str(request.param),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        words = process.stderr.readline()
        assert "of campaign coupons on http://127.0.0.1:" in words
        yield process, words.split()[-1]
        process.kill()


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    question = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(question, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


def test_it_answers_keeps_the_cap_and_ends_in_order(running: tuple[Any, str], tmp_path: Path) -> None:
    process, url = running
    assert ask(f"{url}/v2/health/ready")["ready"] is True
    for number in range(20):
        found = ask(
            f"{url}/v1/decisions",
            {
                "request_id": f"r{number}",
                "user_id": number,
                "eligible": [3],
                "features": {"level": 1, "city": "Ulm", "spend": 1},
            },
        )
        assert found["reason"] == ("policy" if number < 3 else "total_cap")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    assert process.stderr.read() == ""
    ledger = SqliteLedger(tmp_path / "ledger.db")
    assert ledger.totals("coupons").total.reserved == 900
    assert ledger.check() == []
    ledger.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere: does not exist."),
        (["{bundle}"], "how much money to reserve"),
        (["{bundle}", "--config", "none.toml"], "none.toml: does not exist."),
        (["{bundle}", "--config", "{wrong}"], "capz: unknown key … 'caps'"),
        (
            ["{bundle}", "--config", "{config}", "--cap", "-1"],
            "--cap: is -1 … 0 or more",
        ),
        (["{bundle}", "--config", "{config}", "--host", "0.0.0.0"], "Set OUTLAY_TOKEN"),
        (["{bundle}", "--config", "{config}", "--ledger", "x"], "--ledger: is 'x' … URL"),
    ],
)
def test_wrong_input_is_one_message_and_code_2(
    bundle: Bundle, config: Path, tmp_path: Path, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTLAY_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[capz]\ntotal = 1\n")
    places = {"bundle": bundle.folder, "config": config, "wrong": wrong}
    found = outlay("serve", *(argument.format(**places) for argument in arguments))
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: ")
    assert not missing(found.err, words)
