"""Effects that fade, grow or turn round: they are told, and an arm that has lost is never recommended."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from outlay.experiments.analyze import analyze
from outlay.experiments.checks import contradictions
from outlay.experiments.lift import needed_pairs
from outlay.experiments.log import ExperimentColumns
from outlay.experiments.moments import Metric
from outlay.experiments.results import Analysis, ArmComparison, Change
from outlay.experiments.sums import DailySums, read_sums
from outlay.experiments.words import NoteKind, size, verdict
from small_panels import experiment, opened, panel
from telling import missing

METRICS = (Metric("active", "active"), Metric("cost", "cost"))
COLUMNS = ExperimentColumns('"user"', "arm", "day", None, {"active": "active", "cost": "cost"}, {})


def summed(log: pa.Table, days: int = 14) -> DailySums:
    design = experiment(days=days, decisions=tuple(range(7, days + 1, 7)))
    return read_sums(opened(log), "log", COLUMNS, design, needed_pairs(METRICS))


@cache
def by_week(*lifts: float, seed: int = 0, users: int = 8000) -> Analysis:
    days = 7 * len(lifts)
    log = panel(users, days, lift=np.repeat(lifts, 7), seed=seed)
    design = experiment(days=days, decisions=tuple(range(7, days + 1, 7)))
    return analyze(summed(log, days), design, METRICS, days, money="cost")


def only(found: Analysis) -> ArmComparison:
    (comparison,) = found.comparisons
    return comparison


def changed(found: Analysis) -> Change:
    change = only(found).change
    assert change is not None
    return change


@pytest.mark.parametrize(
    ("late", "seed", "sides", "kind"),
    [
        (-0.25, 0, [1, -1], NoteKind.OPPOSITE),
        (-0.08, 0, [1, 0], NoteKind.FADED),
        (-0.08, 2, [1, 0], NoteKind.TURNED),
    ],
)
def test_an_arm_that_won_early_and_lost_late_is_not_recommended(
    late: float, seed: int, sides: list[int], kind: NoteKind
) -> None:
    found = by_week(0.10, late, seed=seed)
    assert [d.side for d in only(found).decisions] == sides
    assert (only(found).outcome, changed(found).trend) == ("blocked", "reversed")
    words = verdict(found)
    (reason,) = only(found).blocked
    first = only(found).decisions[0]
    assert (reason.kind, first.day) == (kind, 7)
    assert not missing(reason.words, "active", size(first), "day 7")
    assert not missing(words, "No verdict on “new”.", reason.words)
    assert "Take" not in words
    assert " in week 1, −" in words


def test_an_arm_that_lost_early_and_won_late_is_not_refused() -> None:
    found = by_week(-0.10, 0.25)
    assert [d.side for d in only(found).decisions] == [-1, 1]
    assert only(found).outcome == "blocked"
    assert "Keep" not in verdict(found)


def test_a_last_decision_on_the_other_side_blocks_although_it_crosses_nothing() -> None:
    one = only(by_week(0.10, 0.10))
    first, last = one.decisions
    assert contradictions("active", [first, replace(last, z=1.0)], None) == []
    (reason,) = contradictions("active", [first, replace(last, z=-1.0)], None)
    assert (reason.kind, reason.figures["later"]) == (NoteKind.TURNED, 14)
    assert contradictions("active", [replace(first, z=1.0), replace(last, z=-1.0)], None) == [], "no bound was crossed"


def test_an_effect_that_ends_is_not_taken_and_one_that_halves_is_told() -> None:
    gone, half = by_week(0.15, 0.0), by_week(0.20, 0.10)
    assert (only(gone).outcome, changed(gone).trend) == ("blocked", "fading")
    assert [reason.kind for reason in only(gone).blocked] == [NoteKind.FADED]
    assert "The effect is fading" not in verdict(gone), "the reason says it"
    assert (only(half).outcome, changed(half).trend) == ("better", "fading")
    assert "Take “new”" in verdict(half)
    assert " The effect is fading: +" in verdict(half)


def test_an_effect_that_grows_is_told() -> None:
    found = by_week(0.0, 0.15)
    assert (only(found).outcome, changed(found).trend) == ("better", "growing")
    assert " The effect is growing: " in verdict(found)


def test_a_steady_effect_is_taken_and_no_change_is_told() -> None:
    found = by_week(0.10, 0.10)
    assert (only(found).outcome, changed(found).trend) == ("better", "steady")
    assert "The effect" not in verdict(found)


def test_weeks_after_the_first_are_taken_together_and_a_broken_week_is_left_out() -> None:
    found = by_week(0.15, 0.0, -0.1, users=4000)
    assert changed(found).weeks == "weeks 2 to 3"
    log = panel(4000, 21, lift=np.repeat([0.15, 0.0, -0.1], 7))
    design = experiment(days=21, decisions=(7, 14, 21))
    (late,) = analyze(summed(log, 21), design, METRICS, 17, money="cost").comparisons
    assert late.change is not None
    assert (late.change.day, late.change.weeks) == (14, "week 2")
    (early,) = analyze(summed(log, 21), design, METRICS, 13, money="cost").comparisons
    assert early.change is None


def means(log: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Arm, mean per day in the test in week 1, mean per day in week 2, of users who came in week 1."""
    weeks: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for row in log.to_pylist():
        weeks.setdefault((row["user"], row["arm"]), ([], []))[row["day"] >= 7].append(row["active"])
    here = [(arm == "new", np.mean(early), np.mean(later)) for (_, arm), (early, later) in weeks.items() if early]
    arm, early, later = (np.array(each) for each in zip(*here, strict=True))
    return arm.astype(int), early, later


def test_the_change_is_the_difference_of_what_changed_within_users() -> None:
    """After a ramp: a user's first week has as many days as the user was in the test."""
    log = panel(600, lift=np.repeat([0.3, 0.1], 7))
    came = np.array([int(user[1:]) % 9 for user in log["user"].to_pylist()])  # some come after the first week
    log = log.filter(pa.array(log["day"].to_numpy() >= came))
    (found,) = analyze(summed(log), experiment(), METRICS, 14, money="cost").comparisons
    arm, early, later = means(log)
    change = found.change
    assert change is not None
    assert change.users == len(arm) < 600
    e, late = ([x[arm == a].mean() for a in (0, 1)] for x in (early, later))
    assert change.first.absolute.value == pytest.approx(e[1] - e[0])
    assert change.since.absolute.value == pytest.approx(late[1] - late[0])

    def z(*within: NDArray[np.float64], value: float) -> float:
        return float(value / np.sqrt(sum(w.var(ddof=1) / len(w) for w in within)))

    absolute = z(*((later - early)[arm == a] for a in (0, 1)), value=late[1] - late[0] - e[1] + e[0])
    relative = z(
        *((later / late[a] - early / e[a])[arm == a] for a in (0, 1)),
        value=np.log(late[1] / late[0]) - np.log(e[1] / e[0]),
    )
    assert change.z == pytest.approx(max(absolute, relative)), "both are below 0: the smaller change"


def test_a_lasting_effect_on_a_metric_that_falls_for_everybody_has_not_changed() -> None:
    """The difference in days falls by half, the ratio does not."""
    users, rng = 8000, np.random.default_rng(1)
    log = panel(users, lift=np.full(14, 0.2))
    kept = rng.random(log.num_rows) < np.where(log["day"].to_numpy() < 7, 1.0, 0.5)
    active = pa.array(log["active"].to_numpy() * kept)
    (found,) = analyze(summed(log.set_column(3, "active", active)), experiment(), METRICS, 14, money="cost").comparisons
    assert found.change is not None
    assert found.change.since.absolute.high < found.change.first.absolute.low
    assert (found.change.trend, found.outcome) == ("steady", "better")


def test_a_log_of_active_days_only_asks_who_was_assigned() -> None:
    """Users without an outcome are missing, and the others count from their first one: lifts shrink."""
    log = panel(8000, lift=0.10)
    full = analyze(summed(log), experiment(), METRICS, 14, money="cost")
    days = log.filter(pc.field("active") > 0)
    found = analyze(summed(days), experiment(), METRICS, 14, money="cost")
    (reason,) = only(found).blocked
    assert (reason.kind, reason.figures["metric"]) == (NoteKind.ONLY_OUTCOMES, "active")
    assert str(reason.figures["share"]).startswith("5")
    assert only(found).outcome == "blocked"
    assert only(full).outcome == "better"
    run = opened(days)
    run('CREATE TABLE given AS SELECT DISTINCT "user", arm, 0 AS day FROM log')
    listed = read_sums(run, "log", COLUMNS, experiment(), needed_pairs(METRICS), assigned="given")
    assert only(analyze(listed, experiment(), METRICS, 14, money="cost")).outcome == "better"


def test_rows_that_are_all_there_may_all_have_an_outcome() -> None:
    log = panel(2000, lift=0.2)
    log = log.set_column(3, "active", pa.array(log["active"].to_numpy() + 1))
    assert only(analyze(summed(log), experiment(), METRICS, 14, money="cost")).blocked == []
