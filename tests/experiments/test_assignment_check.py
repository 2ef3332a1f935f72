from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from small_experiments import content

from outlay.core.errors import LogError
from outlay.experiments.checks import check_assignment
from outlay.experiments.design import Experiment
from outlay.experiments.split import OUTSIDE, entries
from outlay.experiments.words import ExperimentNote, NoteKind
from small_panels import START, opened
from telling import missing

USERS = [f"u{i}" for i in range(3000)]


def rows(experiment: Experiment, *, from_day: int | None = None, shift: int = 0) -> pa.Table:
    """The first row of every user in the arm that is drawn: on the day of entry and `shift` more, or on `from_day`."""
    arm, since = entries(experiment, USERS)
    kept = arm != OUTSIDE
    names = np.array([each.name for each in experiment.arms])
    days = since[kept] + shift if from_day is None else np.full(kept.sum(), from_day)
    marker = np.zeros(len(days), np.bool_)
    return pa.table({"user": np.array(USERS)[kept], "arm": names[arm[kept]], "day": days, "marker": marker})


def checked(experiment: Experiment, log: pa.Table) -> list[ExperimentNote]:
    run = opened(log)
    run("CREATE VIEW test_rows AS SELECT * FROM log")
    return check_assignment(run, experiment)


def test_arms_of_the_file_are_recognised_and_nothing_is_said() -> None:
    spring = Experiment.parse(content(start=START))
    assert checked(spring, rows(spring)) == []


def test_rows_from_before_the_ramp_let_a_user_in_are_refused() -> None:
    spring = Experiment.parse(content(start=START))
    with pytest.raises(LogError) as caught:
        checked(spring, rows(spring, from_day=0))
    assert re.search(r"user 'u\d+' on day 0\b", str(caught.value))
    assert not missing(str(caught.value), "ramp", "Leave the arm empty")


@pytest.mark.parametrize(("shift", "cure"), [(1, "day - 1"), (-1, "day + 1")])
def test_days_that_are_off_by_one_are_asked_about(shift: int, cure: str) -> None:
    """A day late, everybody comes after the ramp's steps; a day early, all but the first step's come before theirs."""
    spring = Experiment.parse(content(start=START))
    with pytest.raises(LogError) as caught:
        checked(spring, rows(spring, shift=shift))
    assert not missing(str(caught.value), "counted from 1", "time zone")
    assert f'--column "day={cure}"' in str(caught.value)
    assert "Leave the arm empty" not in str(caught.value)


def test_users_who_come_when_they_like_are_not_late() -> None:
    """A log of active days alone: a third of the users are there on their first day. And a few users show nothing."""
    spring = Experiment.parse(content(start=START))
    log = rows(spring)
    late = np.random.default_rng(0).geometric(1 / 3, log.num_rows) - 1
    assert checked(spring, log.set_column(2, "day", pa.array(log["day"].to_numpy() + late))) == []
    assert checked(spring, rows(spring, shift=1).slice(0, 20)) == []


def test_a_list_of_the_assigned_does_not_hide_that_days_are_off_by_one() -> None:
    spring = Experiment.parse(content(start=START))
    markers = rows(spring)
    markers = markers.set_column(3, "marker", pa.array(np.ones(markers.num_rows, np.bool_)))
    with pytest.raises(LogError, match=r"none of .*the ramp lets"):
        checked(spring, pa.concat_tables([markers, rows(spring, shift=1)]))
    assert checked(spring, pa.concat_tables([markers, rows(spring)])) == []


def test_arms_that_another_system_gave_are_said() -> None:
    spring, other = (Experiment.parse(content(start=START, salt=salt)) for salt in ("spring", "autumn"))
    (note,) = checked(spring, rows(other, from_day=0))
    assert note.kind is NoteKind.OTHER_SYSTEM


def test_a_few_users_in_another_arm_are_said() -> None:
    spring = Experiment.parse(content(start=START))
    log = rows(spring)
    arms = log["arm"].to_pylist()
    moved = [k for k, arm in enumerate(arms) if arm == "old"][:5]
    for k in moved:
        arms[k] = "none"
    (note,) = checked(spring, log.set_column(1, "arm", pa.array(arms)))
    assert note.kind is NoteKind.FEW_MOVED
    assert (note.figures["count"], note.figures["sample"]) == (5, len(arms))
