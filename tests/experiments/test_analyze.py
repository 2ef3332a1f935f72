from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outlay.experiments.analyze import analyze
from outlay.experiments.design import Experiment
from outlay.experiments.lift import Lift, Withheld, needed_pairs
from outlay.experiments.log import ExperimentColumns
from outlay.experiments.moments import Metric
from outlay.experiments.results import Analysis, ArmComparison
from outlay.experiments.sequential import obrien_fleming, sequence_half_width, spending_bounds, tuned_rho
from outlay.experiments.sums import DailySums, read_sums
from outlay.experiments.words import NoteKind, between_winners, certainty, change, headline, verdict
from small_panels import experiment, opened, panel
from telling import missing

METRICS = (Metric("active", "active"), Metric("cost", "cost"), Metric("cost_per_active", "cost", "active"))
COLUMNS = ExperimentColumns('"user"', "arm", "day", None, {"active": "active", "cost": "cost"}, {})


def summed(log: pa.Table, design: Experiment, columns: ExperimentColumns = COLUMNS) -> DailySums:
    return read_sums(opened(log), "log", columns, design, needed_pairs(METRICS))


def analysed(
    day: int = 14, design: Experiment | None = None, columns: ExperimentColumns = COLUMNS, **world: Any
) -> Analysis:
    design = design or experiment()
    return analyze(summed(panel(**world), design, columns), design, METRICS, day, money="cost")


def only(found: Analysis) -> ArmComparison:
    (comparison,) = found.comparisons
    return comparison


def test_a_real_lift_is_found_and_an_early_decision_stands() -> None:
    found = only(analysed(lift=0.15))
    assert found.decided is not None
    assert (found.decided.day, found.decided.side) == (7, 1)
    assert [d.day for d in found.decisions] == [7, 14]
    assert (found.blocked, found.outcome) == ([], "better")
    analysis = analysed(lift=0.15)
    assert found.reported is not None
    assert not missing(headline(analysis, found), "Take “new”", "active", change(found.reported, 1), "“old”")
    (cost,) = found.guardrails
    assert cost.now == 1
    assert not missing(headline(analysis, found), "cost", change(cost.points[-1].on_all_days, 1))
    assert not missing(certainty(analysis, found), "day 7")
    assert not missing(verdict(analysis), "day 14 of 14", headline(analysis, found), certainty(analysis, found))


def test_a_harm_is_found_too() -> None:
    analysis = analysed(lift=-0.15)
    found = only(analysis)
    assert found.outcome == "worse"
    assert found.reported is not None
    assert not missing(verdict(analysis), "Keep “old”", "“new”", "active", change(found.reported, -1))


def test_without_a_difference_the_end_says_so() -> None:
    found = analysed()
    assert (only(found).decided, only(found).outcome) == (None, "undecided")
    assert [(course.metric, course.moved) for course in only(found).guardrails] == [("cost", 0)]
    assert not missing(verdict(found), "Keep “old”", "active", "“new”", "cost")


def test_several_contestants_get_one_advice() -> None:
    won, lost, level = (only(analysed(lift=lift)) for lift in (0.15, -0.15, 0.0))

    def beside(*found: ArmComparison) -> Analysis:
        named = [replace(one, arm=name) for one, name in zip(found, "abc", strict=False)]
        return replace(analysed(), comparisons=named)

    def told(*found: ArmComparison) -> list[str]:
        analysis = beside(*found)
        each = [headline(analysis, arm) for arm in analysis.contestants]
        assert not missing(verdict(analysis), *each)
        return each

    assert not missing(told(won, level)[0], "Take “a”", "active")
    assert "Keep" not in " ".join(told(won, level))
    assert not missing(told(won, level)[1], "No difference", "active", "“b”")
    assert not missing(between_winners(beside(won, won)), "“a”", "“b”", "“old”")
    assert between_winners(beside(won, won)) in verdict(beside(won, won))
    assert between_winners(beside(won, level)) == ""
    assert not missing(told(won, won)[0], "“a” beats “old”", "active")
    assert "Take" not in " ".join(told(won, won))
    assert not missing(told(lost, level)[0], "Keep “old”", "“a”", "active")
    assert not missing(told(lost, won)[0], "Do not take “a”", "active")


@pytest.mark.parametrize(("day", "due"), [(3, 7), (10, 14)])
def test_between_planned_decisions_there_is_no_verdict(day: int, due: int) -> None:
    found = analysed(day)
    assert only(found).outcome == "open"
    assert [decision.day for decision in only(found).decisions] == ([7] if day == 10 else [])
    assert not missing(headline(found, only(found)), "Let it run", "“new”", f"day {due}")
    assert missing(certainty(found, only(found)), "day 7") == ([] if day == 10 else ["day 7"])
    assert not missing(verdict(found), headline(found, only(found)), certainty(found, only(found)))


def test_bounds_use_the_error_of_a_daily_effect() -> None:
    """Users differ, so two weeks hold less than twice the information of one, and the last bound comes near 1.96."""
    design = experiment()
    sums = summed(panel(), design)
    found = only(analyze(sums, design, METRICS, 14, money="cost"))
    course = found.course_of("active")
    assert course is not None
    errors = [(p.absolute.high - p.absolute.low) / (2 * 1.959964) for p in course.points if p.day in (7, 14)]
    information = [(7 / errors[0]) ** 2, (14 / errors[1]) ** 2]
    assert 1 < information[1] / information[0] < 1.7
    expected = spending_bounds(information, obrien_fleming([0.5, 1.0], 0.05))
    assert [d.bound for d in found.decisions] == pytest.approx(expected.tolist(), rel=1e-5)
    assert found.decisions[0].z == pytest.approx(
        next(p.absolute.value for p in course.points if p.day == 7) / errors[0], rel=1e-5
    )


def test_the_interval_of_a_decision_is_as_wide_as_its_bound() -> None:
    for decision in only(analysed()).decisions:
        half = (decision.absolute.high - decision.absolute.low) / 2
        assert half == pytest.approx(decision.bound * abs(decision.absolute.value / decision.z))


def test_the_course_is_the_confidence_sequence_day_by_day() -> None:
    found = only(analysed())
    course = found.course_of("cost")
    assert course is not None
    assert [p.day for p in course.points] == list(range(1, 15))
    for point in course.points:
        error = (point.absolute.high - point.absolute.low) / (2 * 1.959964)
        half = sequence_half_width(error, point.day, tuned_rho(14, 0.05), 0.05)
        assert (point.always.high - point.always.low) / 2 == pytest.approx(float(half), rel=1e-5)
    assert found.course_of("cost_per_active") is None  # no guardrail


def test_the_time_before_saves_most_of_the_variance_of_lasting_users() -> None:
    found = only(analysed(before=14))
    assert 0.4 < found.saved["active"] < 0.8
    assert only(analysed()).saved == {}


def test_a_constant_ratio_is_withheld_and_the_rest_is_told() -> None:
    kinds = [type(x) for x in only(analysed()).lifts]
    assert kinds == [Lift, Lift, Withheld]


def test_users_without_a_row_are_left_out_of_a_second_view() -> None:
    """A third of the users never come: the difference grows by 3/2, the relative one stays, and so does the verdict."""
    log = panel(lift=0.2)
    run = opened(log)
    run('CREATE TABLE assigned AS SELECT DISTINCT "user", arm, 0 AS day FROM log')
    there = '(SELECT * FROM log WHERE CAST(substr("user", 2) AS BIGINT) % 3 > 0)'
    sums = read_sums(run, there, COLUMNS, experiment(), needed_pairs(METRICS), assigned="assigned")
    found = only(analyze(sums, experiment(), METRICS, 14, money="cost"))
    (whole, *_), (some, *_) = found.lifts, found.exposed
    assert isinstance(whole, Lift)
    assert isinstance(some, Lift)
    shares = sums.seen.sum(axis=(0, 2)) / sums.users.sum(axis=(0, 2))
    assert some.control == pytest.approx(whole.control / shares[0])
    assert some.treatment == pytest.approx(whole.treatment / shares[1])
    came = log.filter(pa.array([int(user[1:]) % 3 > 0 for user in log["user"].to_pylist()]))
    alone = only(analyze(summed(came, experiment()), experiment(), METRICS, 14, money="cost"))
    assert some == alone.lifts[0]
    assert alone.exposed == []


def test_arms_say_users_and_money() -> None:
    found = analysed()
    assert [arm.name for arm in found.arms] == ["old", "new"]
    assert sum(arm.users for arm in found.arms) == 4000
    assert sum(arm.share for arm in found.arms) == pytest.approx(1)
    for arm in found.arms:
        assert len(arm.spent_by_day) == 14
        assert arm.spent == arm.spent_by_day[-1]
    assert sum(arm.spent or 0 for arm in found.arms) == sum(panel()["cost"].to_pylist())


def test_too_few_users_in_an_arm_block_the_verdict() -> None:
    log = panel(users=3000)
    kept = log.filter(pa.compute.field("arm") == "old")
    few = log.filter((pa.compute.field("arm") == "new") & (pa.compute.field("user") < "u23"))
    design = experiment()
    found = analyze(summed(pa.concat_tables([kept, few]), design), design, METRICS, 14, money="cost")
    assert not found.ratios[0].passed
    assert only(found).blocked[0].kind is NoteKind.SAMPLE_RATIO
    assert found.doubted("new")
    assert not missing(verdict(found), "No verdict on “new”", only(found).blocked[0].words)


def test_an_arm_without_users_blocks_the_verdict() -> None:
    design = experiment()
    found = analyze(summed(panel().filter(pa.compute.field("arm") == "old"), design), design, METRICS, 14, money=None)
    assert only(found).blocked == [NoteKind.NO_USERS(arm="new")]


def test_a_constant_metric_blocks_the_verdict() -> None:
    log = panel()
    log = log.set_column(3, "active", pa.array(np.ones(log.num_rows)))
    design = experiment()
    found = analyze(summed(log, design), design, METRICS, 14, money="cost")
    (reason,) = only(found).blocked
    assert reason == NoteKind.NOT_COMPARED(metric="active", reason=NoteKind.CONSTANT(treatment=14, control=14).words)
    assert not found.doubted("new")
    assert not missing(verdict(found), "No verdict on “new”.", reason.words)


def test_two_contestants_share_the_error_and_a_holdout_gets_no_verdict() -> None:
    arms = [{"name": n, "kind": "constant", "action": 1.0, "share": 0.3, "budget": 1.0} for n in ("old", "new", "more")]
    design = experiment(arm=[*arms, {"name": "none", "kind": "holdout", "share": 0.1}])
    found = analyze(summed(panel(), design), design, METRICS, 14, money="cost")
    assert found.alpha == pytest.approx(0.025)
    assert [c.contestant for c in found.comparisons] == [True, True, False]
    assert not missing(verdict(found), "97.5%", "2")


def test_segments_stand_beside_the_whole() -> None:
    columns = ExperimentColumns(
        '"user"', "arm", "day", "CASE WHEN \"user\" < 'u2' THEN 'a' ELSE 'b' END", COLUMNS.values, {}
    )
    found = only(analysed(columns=columns))
    assert [s.name for s in found.segments] == ["a", "b"]
    assert sum(s.users for s in found.segments) == 4000
    assert isinstance(found.segments[0].lifts[0], Lift)


def test_a_log_of_users_has_one_look_and_the_bound_of_the_calendar() -> None:
    design = experiment()
    columns = ExperimentColumns('"user"', "arm", None, None, COLUMNS.values, {})
    found = only(analyze(summed(panel(days=1), design, columns), design, METRICS, 14, money="cost"))
    (decision,) = found.decisions
    assert decision.bound == pytest.approx(spending_bounds([7, 14], obrien_fleming([0.5, 1.0], 0.05))[1])
    course = found.course_of("active")
    assert course is not None
    assert [p.day for p in course.points] == [14]


def test_the_detectable_lift_has_the_planned_power() -> None:
    """(bound of the last decision + z_0.8) standard errors over the control: 1.9686 + 0.8416 of them."""
    found = only(analysed())
    lift = found.lift("active")
    assert lift is not None
    assert found.detectable == pytest.approx(2.810213 * lift.std_error / lift.control, rel=1e-5)
