"""Progress of a part is progress of the whole."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from outlay.core import progress
from outlay.core.progress import counted, silent, telling, within


def test_a_part_of_a_part_lies_within_both() -> None:
    told: list[tuple[float, str]] = []
    half = within(lambda share, text: told.append((share, text)), 0.5, 1, "fold 2: ")
    inner = within(half, 0.2, 0.6, "networks, ")
    inner(0, "begun")
    inner(1, "done")
    assert [share for share, _ in told] == pytest.approx([0.6, 0.8])
    assert [text for _, text in told] == ["fold 2: networks, begun", "fold 2: networks, done"]


@pytest.mark.parametrize(("total", "steps", "shares"), [(4, [1, 2], [0.25, 0.75]), (2, [3], [1.0]), (0, [0], [0.0])])
def test_a_counter_reports_the_share_done_and_never_more_than_all(
    total: int, steps: list[int], shares: list[float]
) -> None:
    told: list[float] = []
    tell = counted(lambda share, _text: told.append(share), total, "rows")
    for count in steps:
        tell(count)
    assert told == shares


class ZMQInteractiveShell:
    """As IPython calls the shell behind a notebook."""


@pytest.mark.parametrize("shell", [ZMQInteractiveShell(), SimpleNamespace()])
def test_in_a_notebook_a_job_tells_one_line_that_is_updated(monkeypatch: pytest.MonkeyPatch, shell: object) -> None:
    shown: list[tuple[str, str]] = []

    def display(line: dict[str, str], **_: Any) -> SimpleNamespace:
        shown.append(("new", line["text/plain"]))
        return SimpleNamespace(update=lambda line, **_: shown.append(("same", line["text/plain"])))

    ipython = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    now = iter([0.0, 0.1, 2.0, 2.1, 4.0, 4.1])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(now)))
    report = telling(None)
    if not isinstance(shell, ZMQInteractiveShell):
        assert report is silent, "a console has no such line"
        return
    for share, text in ((0.0, "begun"), (0.4, "policy 3 of 8"), (0.41, "too soon"), (0.8, "policy 6"), (1.0, "done")):
        report(share, text)
    assert shown == [("new", "40%: policy 3 of 8 (2 s)"), ("same", "80%: policy 6 (4 s)"), ("same", "100%: done (4 s)")]
