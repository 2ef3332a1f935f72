from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from outlay.experiments.checks import log_notes, log_reasons
from outlay.experiments.log import ExperimentColumns
from outlay.experiments.sums import DailySums, read_sums
from outlay.experiments.words import NoteKind
from small_panels import experiment, opened, rows
from telling import missing

DESIGN = experiment()


def sums(*, least: float = 0.0) -> DailySums:
    """Six users, 14 days, all rows."""
    columns = ExperimentColumns('"user"', "arm", "day", None, {"active": "active", "cost": "cost"}, {})
    active = np.full((6, 14), 3.0)
    active[1, 5] = least
    log = rows(active, np.array([0, 1, 0, 1, 0, 1]), np.arange(14))
    return read_sums(opened(log), "log", columns, DESIGN, [("active", "active")])


def counted(*rows: int) -> DailySums:
    return replace(sums(), rows=rows + (0,) * (14 - len(rows)))


def test_a_log_with_rows_on_all_days_raises_no_doubt() -> None:
    assert log_reasons(sums(), DESIGN, 14) == []
    assert log_notes(sums(), DESIGN, 14, "cost") == []


def test_days_without_a_row_of_anyone_bar_a_verdict_from_then_on() -> None:
    gap = counted(6, 6, 6, 0, 0, 0, 6, 6, 6, 0, 6, 6, 6, 6)
    assert log_reasons(gap, DESIGN, 3) == []
    (reason,) = log_reasons(gap, DESIGN, 14)
    assert reason == NoteKind.DAYS_WITHOUT_ROWS(days="2026-03-05 to 2026-03-07, 2026-03-11")
    (note,) = log_notes(gap, DESIGN, 7, "cost")
    assert note == NoteKind.UNRECORDED(days="2026-03-05 to 2026-03-07")


def test_a_look_beyond_the_log_has_days_without_rows() -> None:
    (reason,) = log_reasons(counted(6, 6, 6, 6, 6, 6, 6), DESIGN, 8)
    assert reason == NoteKind.DAYS_WITHOUT_ROWS(days="2026-03-09")


def test_many_gaps_are_counted() -> None:
    (reason,) = log_reasons(counted(*(6, 0) * 7), DESIGN, 14)
    told = str(reason.figures["days"])
    assert not missing(told, "2026-03-11", "7")
    assert "2026-03-13" not in told


@pytest.mark.parametrize(("last", "told"), [(299, True), (300, False), (900, False)])
def test_a_last_day_with_less_than_half_the_rows_is_noted(last: int, told: bool) -> None:
    found = log_notes(counted(10, 600, 610, 590, 600, 600, last), DESIGN, 7, "cost")
    assert found == ([NoteKind.THIN_LAST_DAY(date="2026-03-08", rows=299, median=600)] if told else [])


def test_where_a_row_is_a_user_days_are_not_asked_about() -> None:
    users = replace(counted(6), daily=False)
    assert log_reasons(users, DESIGN, 14) == []
    assert log_notes(users, DESIGN, 14, "cost") == []


def test_money_below_zero_is_noted() -> None:
    (note,) = log_notes(sums(least=-2.5), DESIGN, 14, "cost")
    assert note == NoteKind.NEGATIVE_MONEY(money="cost", least=-5.0)
    assert log_notes(sums(least=-2.5), DESIGN, 14, None) == []
