"""Progress of a part is progress of the whole."""

from __future__ import annotations

import pytest

from outlay.core.progress import counted, within


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
