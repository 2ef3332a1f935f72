from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from small_experiments import content

from outlay.core.errors import LogError
from outlay.experiments.agreement import check_agreement
from outlay.experiments.design import Experiment
from outlay.experiments.split import OUTSIDE, entries
from small_panels import START, opened

USERS = [f"u{i}" for i in range(3000)]


def rows(experiment: Experiment, *, from_day: int | None) -> pa.Table:
    """The first row of every user in the arm that is drawn, on the day of entry or on `from_day`."""
    arm, since = entries(experiment, USERS)
    kept = arm != OUTSIDE
    names = np.array([each.name for each in experiment.arms])
    days = since[kept] if from_day is None else np.full(kept.sum(), from_day)
    return pa.table({"user": np.array(USERS)[kept], "arm": names[arm[kept]], "day": days})


def checked(experiment: Experiment, log: pa.Table) -> list[str]:
    run = opened(log)
    run("CREATE VIEW test_rows AS SELECT * FROM log")
    return check_agreement(run, experiment)


def test_arms_of_the_file_are_recognised_and_nothing_is_said() -> None:
    spring = Experiment.parse(content(start=START))
    assert checked(spring, rows(spring, from_day=None)) == []


def test_rows_from_before_the_ramp_let_a_user_in_are_refused() -> None:
    spring = Experiment.parse(content(start=START))
    with pytest.raises(LogError, match=r"before they were assigned, as user 'u\d+' on day 0, whom the ramp lets in on"):
        checked(spring, rows(spring, from_day=0))


def test_arms_that_another_system_gave_are_said() -> None:
    spring, other = (Experiment.parse(content(start=START, salt=salt)) for salt in ("spring", "autumn"))
    (note,) = checked(spring, rows(other, from_day=0))
    assert "another system has assigned them" in note
