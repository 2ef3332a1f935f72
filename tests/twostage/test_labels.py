"""k-day labels against a count by hand and a longhand one on logs with gaps, ends and forced rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from outlay.core.errors import LogError, OutlayError
from outlay.core.transitions import Transitions
from outlay.twostage import labels
from outlay.twostage.labels import heads, k_day_labels
from small_logs import transitions


def by_hand(**changes: Any) -> Transitions:
    """A log of 6 days. User 0: every day; user 1: a gap, leaves on day 4; user 2: nothing on the last two days."""
    user = [0] * 6 + [1] * 3 + [2] * 4
    day = [0, 1, 2, 3, 4, 5, 0, 3, 4, 0, 1, 2, 3]
    number = np.arange(13)
    columns: dict[str, Any] = {
        "user": user,
        "day": day,
        "state": number % 2,
        "action": number % 3,
        "num_states": 2,
        "num_actions": 3,
        "outcome": np.column_stack([2.0**number, 10.0 * number]),
        "terminal": number == 8,
        "forced": number == 3,
    } | changes
    return transitions(**columns)


def test_three_days_by_hand() -> None:
    """User 0: days 0 to 3, less the forced day 3. User 1: all, as its story ended. User 2: days 0 to 3."""
    rows, label = k_day_labels(by_hand(), 3)
    assert rows.tolist() == [0, 1, 2, 6, 7, 8, 9, 10, 11, 12]
    wanted = {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),  # the forced row 3 counts in the totals of earlier rows
        6: (6,),
        7: (7, 8),
        8: (8,),  # day 0 to 2: the next row is on day 3
        9: (9, 10, 11),
        10: (10, 11, 12),
        11: (11, 12),
        12: (12,),
    }
    for row, found in zip(rows.tolist(), label, strict=True):
        days = wanted[row]
        assert found.tolist() == [sum(2.0**i for i in days), sum(10.0 * i for i in days), 10.0 * row]


def test_one_day_is_the_outcome_itself() -> None:
    data = by_hand()
    rows, label = k_day_labels(data, 1)
    assert rows.tolist() == [i for i in range(13) if i != 3]
    np.testing.assert_array_equal(label, data.outcome[rows])


def test_the_columns_are_named() -> None:
    assert tuple(heads(1, 2)) == (0, slice(1, 3), slice(1, 3), 3)
    several = heads(7, 2)
    assert tuple(several) == (0, slice(1, 3), slice(3, 5), 5)
    data = by_hand(outcome=np.arange(39.0).reshape(13, 3))
    rows, label = k_day_labels(data, 2)
    assert label.shape[1] == several.width
    np.testing.assert_array_equal(label[:, several.immediate], data.outcome[rows, 1:])
    assert label[0, several.costs].tolist() == [1 + 4, 2 + 5]


@pytest.mark.parametrize("block", [7, 1 << 18])
@pytest.mark.parametrize("days", [1, 2, 5, 9])
def test_labels_are_those_of_a_loop_over_rows(days: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "BLOCK_ROWS", block)
    rng = np.random.default_rng(days)
    users, span = 40, 9
    there = rng.random((users, span)) < 0.7
    there[:, 0] = True
    user, day = np.nonzero(there)
    last = np.append(user[1:] != user[:-1], True)
    n = len(user)
    data = by_hand(
        user=user,
        day=day,
        state=np.zeros(n),
        action=np.zeros(n),
        outcome=rng.normal(size=(n, 2)),
        terminal=last & (rng.random(n) < 0.4),
        forced=rng.random(n) < 0.2,
    )
    wanted_rows, wanted = [], []
    for row in range(n):
        inside = np.flatnonzero((user == user[row]) & (day >= day[row]) & (day < day[row] + days))
        if not data.forced[row] and (day[row] + days <= data.users["window"][0] or data.terminal[inside].any()):
            total = data.outcome[inside].sum(0)
            wanted_rows.append(row)
            wanted.append(total if days == 1 else [*total, data.outcome[row, 1]])
    rows, label = k_day_labels(data, days)
    assert rows.tolist() == wanted_rows
    np.testing.assert_allclose(label, wanted, rtol=1e-5, atol=1e-6)
    some = rng.permutation(n)[: n // 2]
    rows, _ = k_day_labels(data, days, some)
    assert rows.tolist() == [row for row in some.tolist() if row in set(wanted_rows)]


def test_a_log_that_is_too_short_says_how_long_it_is() -> None:
    with pytest.raises(LogError, match=r"no row has 7 days of log, itself included; the most is 6\. .*at most 6 days"):
        k_day_labels(by_hand(terminal=np.zeros(13, bool)), 7)
    rows, _ = k_day_labels(by_hand(), 7)  # the one whose story ended has all the same
    assert rows.tolist() == [6, 7, 8]


def test_without_a_choice_there_is_nothing_to_learn() -> None:
    with pytest.raises(LogError, match="no row has a choice"):
        k_day_labels(by_hand(forced=np.ones(13, bool)), 1)


def test_no_days_is_an_error() -> None:
    with pytest.raises(OutlayError, match="label days: is 0"):
        k_day_labels(by_hand(), 0)
