"""One line a second for what is always the same."""

from __future__ import annotations

import logging

from outlay.serve.handlers.service import RepeatFilter


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
