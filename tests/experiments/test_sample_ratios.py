"""Sample ratios in all, by the day of entry and by segment; worlds in which somebody loses users."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from outlay.experiments.analyze import analyze
from outlay.experiments.checks import ratio_reasons, sample_ratios
from outlay.experiments.lift import needed_pairs, sample_ratio
from outlay.experiments.log import ExperimentColumns
from outlay.experiments.moments import Metric
from outlay.experiments.sums import DailySums, read_sums
from outlay.experiments.words import NoteKind
from small_panels import experiment, opened, panel

ACTIVE = (Metric("active", "active"),)
SEGMENT = "CASE WHEN \"user\" < 'u5' THEN 'first' ELSE 'second' END"
LOG = panel(users=6000, days=7)
USER = np.array([int(user[1:]) for user in LOG["user"].to_pylist()])
ENTRY = USER % 7  # the day on which the ramp lets a user in
NEW = np.array(LOG["arm"].to_pylist()) == "new"
CAME = LOG["day"].to_numpy() >= ENTRY


def summed(kept: NDArray[np.bool_], segment: str | None = None) -> DailySums:
    columns = ExperimentColumns('"user"', "arm", "day", segment, {"active": "active"}, {})
    log = LOG.filter(pa.array(kept & CAME))
    return read_sums(opened(log), "log", columns, experiment(), needed_pairs(ACTIVE))


def test_where_all_is_well_there_is_one_check_of_an_arm() -> None:
    (check,) = sample_ratios(summed(CAME, SEGMENT), experiment(), 7)
    assert (check.arm, check.of, check.part, check.passed) == ("new", "in the log", "", True)
    assert ratio_reasons([check], experiment(), 1) == []


def test_a_day_that_lost_users_is_named_though_all_days_together_agree() -> None:
    """One arm loses half of those who come on a day, the other as many two days later."""
    half = USER // 7 % 2 == 0
    sums = summed(~(half & ((NEW & (ENTRY == 3)) | (~NEW & (ENTRY == 5)))))
    whole, *days = sample_ratios(sums, experiment(), 7)
    assert whole.passed
    assert sorted(day.part for day in days) == ["who came on 2026-03-05", "who came on 2026-03-07"]
    third = next(day for day in days if day.part == "who came on 2026-03-05")
    assert (third.control, third.treatment) == tuple(sums.users[3].sum(axis=1))
    assert third.p_value == pytest.approx(7 * sample_ratio(third.control, third.treatment, 1.0))
    (reason,) = ratio_reasons([whole, *days], experiment(), 1)
    assert reason.kind is NoteKind.RATIO_OF_PARTS
    assert str(reason.figures["parts"]).startswith("who came on 2026-")
    blocked = analyze(sums, experiment(), ACTIVE, 7, money=None).comparisons[0]
    assert (blocked.outcome, blocked.blocked) == ("blocked", [reason])


def test_a_day_after_the_look_says_nothing() -> None:
    sums = summed(~(NEW & (ENTRY == 5)))
    assert [check.passed for check in sample_ratios(sums, experiment(), 5)] == [True]
    assert [check.passed for check in sample_ratios(sums, experiment(), 6)] == [False, False]


def test_a_segment_that_lost_users_is_named() -> None:
    second = np.array(LOG["user"].to_pylist()) >= "u5"
    sums = summed(~(NEW & second & (USER % 2 == 0)), SEGMENT)
    whole, *parts = sample_ratios(sums, experiment(), 7)
    assert not whole.passed
    assert "in the segment 'second'" in [part.part for part in parts]
    (reason,) = ratio_reasons([whole, *parts], experiment(), 1)
    assert reason.kind is NoteKind.SAMPLE_RATIO
    assert "in the segment 'second' (" in str(reason.figures["parts"])


def test_only_the_three_worst_days_are_told() -> None:
    sums = summed(~(NEW & (USER // 7 % 2 == 0)))
    _, *days = sample_ratios(sums, experiment(), 7)
    assert len(days) == 3
    assert [day.p_value for day in days] == sorted(day.p_value for day in days)


def test_users_who_were_assigned_are_counted_by_the_day_of_that() -> None:
    """When somebody first leaves a row may depend on the arm; when they were assigned may not."""
    given = 'CAST(substr("user", 2) AS BIGINT) % 6'
    run = opened(LOG)
    run(f'CREATE TABLE assigned AS SELECT DISTINCT "user", arm, {given} AS day FROM log')
    late = f"(SELECT * FROM log WHERE day >= {given} + CAST(arm = 'new' AS BIGINT))"  # `new` comes a day later
    columns = ExperimentColumns('"user"', "arm", "day", None, {"active": "active"}, {})
    sums = read_sums(run, late, columns, experiment(), needed_pairs(ACTIVE), assigned="assigned")
    assert sums.seen[0, 1].sum() == 0 < sums.users[0, 1].sum()
    assert [(check.part, check.passed) for check in sample_ratios(sums, experiment(), 7)] == [("", True)]
    found = sample_ratios(sums, experiment(), 4)
    assert [(check.of, check.passed) for check in found] == [("assigned", True), ("in the log", False)]
