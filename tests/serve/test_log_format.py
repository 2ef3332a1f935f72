"""Lines with their time and level, and one a second for what is always the same."""

from __future__ import annotations

import datetime
import logging
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from small_processes import outlay_serve
from small_servers import request

from outlay.bundles.decide import Bundle
from outlay.serve.log_format import KEPT, RepeatFilter
from patience import PATIENCE


def line(words: str, when: float, error: Exception | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, None)
    record = logging.LogRecord("outlay.serve", logging.ERROR, "", 1, "it failed: %s", (words,), info)
    record.created = when
    return record


def test_the_same_line_passes_once_a_second_and_others_at_once() -> None:
    lines = RepeatFilter()
    assert lines.filter(line("disk", 10.0))
    assert not lines.filter(line("disk", 10.9))
    assert lines.filter(line("model", 10.9))
    assert lines.filter(line("disk", 10.9, KeyError("a")))
    assert lines.filter(line("disk", 10.9, KeyError("b")))
    assert lines.filter(line("disk", 11.0))
    assert lines.filter(line("disk", 5.0))  # the clock was put back


def test_lines_that_differ_are_not_kept_for_ever() -> None:
    lines = RepeatFilter()
    for number in range(1_000):
        assert lines.filter(line(str(number), number / 10))
    assert len(lines._recent) <= 11


def test_lines_that_differ_only_in_an_address_are_the_same() -> None:
    lines = RepeatFilter()
    for number in range(100):
        error = RuntimeError(f"unable to perform operation on <TCPTransport 0x{number:x}f>")
        assert lines.filter(line(f"of <object at 0x7f{number:x}>", 10.0, error)) == (number == 0)


def test_of_many_lines_in_a_second_the_last_are_kept() -> None:
    """Every record looks at what is kept: were it all of them, a flood would cost its square."""
    lines = RepeatFilter()
    for number in range(5 * KEPT):
        assert lines.filter(line(str(number), 10.0))
    assert not lines.filter(line(str(number), 10.0))
    assert len(lines._recent) <= KEPT


@pytest.mark.slow
def test_every_line_of_a_server_has_its_time_and_level(bundle: Bundle, tmp_path: Path) -> None:
    """Ours, and uvicorn's, of which a client that sends the same nonsense makes one a second."""
    with outlay_serve(bundle.folder, f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path, "--workers", "2") as process:
        parts = urlsplit(process.url)
        for _ in range(100):
            with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=PATIENCE) as client:
                client.sendall(b"nonsense\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 400 ")
        assert process.decide(request())["decision_id"]
        assert process.post("/v1/admin/bundle", {"path": str(tmp_path / "nowhere")}).status_code == 422
        process.stop()
        lines = process.said().splitlines()
    stamp = (
        r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ (INFO|WARNING|ERROR) (outlay\.start|outlay\.serve|uvicorn\.error): ."
    )
    assert [line for line in lines if not re.match(stamp, line)] == []
    said = "\n".join(lines)
    assert "INFO outlay.start: bundle" in said
    assert re.search(r"WARNING outlay\.start: .*\bno total cap\b", said)
    assert "ERROR outlay.serve: bundle " in said
    told = [line for line in lines if line.endswith("WARNING uvicorn.error: Invalid HTTP request received.")]
    times = [datetime.datetime.fromisoformat(line.split()[0]) for line in told]
    assert times
    assert all(later - time >= datetime.timedelta(seconds=1) for time, later in zip(times, times[2:], strict=False))
