"""What a comparison came to, and the sentence that says so."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outlay.experiments.analyze import analyze
from outlay.experiments.design import Experiment
from outlay.experiments.lift import IntervalEstimate, needed_pairs
from outlay.experiments.log import ExperimentColumns
from outlay.experiments.moments import Metric
from outlay.experiments.results import Analysis, ArmComparison
from outlay.experiments.sums import read_sums
from outlay.experiments.words import NoteKind, certainty, change, ends, guardrail, headline, span, verdict
from small_panels import START, experiment, opened, panel
from telling import missing

COLUMNS = ExperimentColumns('"user"', "arm", "day", None, {"active": "active", "cost": "cost"}, {})
ARMS = [{"name": name, "kind": "constant", "action": 1.0, "share": 0.5, "budget": 9e6} for name in ("old", "new")]


def analysed(log: pa.Table, day: int, design: Experiment | None = None) -> Analysis:
    design = design or experiment()
    metrics = [Metric(name, name) for name in (design.meta.metric, *design.meta.guardrails)]
    sums = read_sums(opened(log), "log", COLUMNS, design, needed_pairs(metrics))
    return analyze(sums, design, metrics, day, money="cost")


def costing(factor: float, days: slice = slice(None), **world: Any) -> pa.Table:
    """Users of `new` cost a multiple, on some days."""
    log = panel(**world)
    dear = (np.array(log["arm"].to_pylist()) == "new") & np.isin(log["day"].to_numpy(), np.arange(14)[days])
    return log.set_column(4, "cost", pa.array(np.where(dear, factor, 1) * log["cost"].to_numpy()))


def only(found: Analysis) -> ArmComparison:
    (comparison,) = found.comparisons
    return comparison


def test_harm_on_a_day_that_was_not_planned_stops_the_test() -> None:
    found = analysed(panel(lift=-0.15), 6)
    assert only(found).outcome == "harm"
    words = verdict(found)
    active, cost = only(found).courses
    now, money = active.points[-1].on_all_days, cost.points[-1].on_all_days
    assert (active.now, cost.now) == (-1, -1)
    assert not missing(headline(found, only(found)), "Stop “new”", change(now, -1), "“old”", change(money, -1))
    assert not missing(certainty(found, only(found)), "95%", "active", ends(now, "and"))
    assert not missing(words, "day 6 of 14", headline(found, only(found)), certainty(found, only(found)))


def test_a_gain_on_a_day_that_was_not_planned_takes_nothing() -> None:
    found = analysed(panel(lift=0.15), 6)
    assert only(found).courses[0].now == 1
    assert only(found).outcome == "open"
    assert not missing(headline(found, only(found)), "Let it run", "“new”", "day 7")
    assert not missing(certainty(found, only(found)), "above 0")
    assert not missing(verdict(found), headline(found, only(found)), certainty(found, only(found)))


def test_after_a_bound_was_crossed_harm_is_a_verdict() -> None:
    assert only(analysed(panel(lift=-0.15), 8)).outcome == "worse"


def test_money_that_runs_away_is_a_reason_to_stop() -> None:
    dear = analysed(costing(1.3), 6)
    (cost,) = only(dear).guardrails
    assert cost.harmful
    assert not missing(
        headline(dear, only(dear)), "Let it run", "unless", "cost", change(cost.points[-1].on_all_days, 1)
    )
    assert not missing(certainty(dear, only(dear)), "To stop", "guardrail")
    assert not missing(verdict(dear), headline(dear, only(dear)), certainty(dear, only(dear)))
    assert "unless" not in (cheap := verdict(analysed(costing(0.7), 6)))
    assert "To stop" not in cheap


def test_an_arm_with_more_money_may_cost_more() -> None:
    design = experiment(arm=[ARMS[0], {**ARMS[1], "budget": 12e6}])
    found = analysed(costing(1.3), 6, design)
    assert only(found).outcome == "open"
    assert not any(course.harmful for course in only(found).guardrails)
    words = verdict(found)
    assert "unless" not in words
    assert "To stop" not in words


def test_what_once_moved_is_told_with_the_days_that_it_is_about() -> None:
    """Dear for three days, cheap after: totals of the first days differ for good, those of all days do not."""
    log = costing(1.6, slice(0, 3))
    cheap = (np.array(log["arm"].to_pylist()) == "new") & (log["day"].to_numpy() >= 3)
    log = log.set_column(4, "cost", pa.array(np.where(cheap, 0.86, 1) * log["cost"].to_numpy()))
    found = analysed(log, 14)
    course = found.comparisons[0].course_of("cost")
    assert course is not None
    assert (course.now, course.moved, course.harmful) == (0, 1, False)
    assert course.seen is not None
    first, last = course.seen
    assert (first, last < 14) == (1, True)
    assert not missing(guardrail(found, course), "cost", "higher", f"{last} days", "14 days")
    assert not missing(verdict(found), guardrail(found, course))
    once = replace(course, points=[p for p in course.points if p.day == 1 or p.day > last])
    one = replace(found.comparisons[0], courses=[found.comparisons[0].courses[0], once])
    assert not missing(guardrail(found, once), "cost", "higher", "first day", "14 days")
    assert not missing(verdict(replace(found, comparisons=[one])), guardrail(found, once))


@pytest.mark.parametrize(
    ("factor", "outcome", "said"), [(0.7, "better", "Take “new”: "), (1.4, "worse", "Keep “old”: under “new”, ")]
)
def test_where_less_is_better_a_fall_is_a_gain(factor: float, outcome: str, said: str) -> None:
    meta = {
        "name": "thrift",
        "campaign": "habit",
        "start": START,
        "days": 14,
        "metric": "cost",
        "guardrails": ["active"],
    }
    design = experiment(experiment=meta)
    assert design.meta.better == "lower"
    found = analysed(costing(factor), 14, design)
    assert only(found).outcome == outcome
    assert re.search(rf"{said}cost is [\d.]+% {'lower than under “old”' if factor < 1 else 'higher'}", verdict(found))


def test_cost_decides_only_where_it_is_lower() -> None:
    cheap, dear = (analysed(costing(factor), 14) for factor in (0.7, 1.4))
    assert [only(found).outcome for found in (cheap, dear)] == ["undecided", "undecided"]
    assert not missing(verdict(cheap), "Keep “old”, unless its cost", "active")
    assert not missing(verdict(dear), "Keep “old”:", "active")
    assert "unless" not in verdict(dear)


def test_of_several_nothing_is_said_to_be_kept_while_one_is_blocked() -> None:
    found = analysed(costing(1.4), 14)
    one = only(found)
    other = replace(one, arm="next")
    both = replace(found, comparisons=[one, other])
    assert "Keep “old”: " in verdict(both)
    both = replace(found, comparisons=[one, replace(other, blocked=[NoteKind.NO_USERS(arm="next")])])
    assert "Keep" not in verdict(both)


def test_without_a_verdict_there_is_no_outcome() -> None:
    found = replace(only(analysed(panel(lift=0.15), 14)), contestant=False)
    assert found.outcome is None


def test_a_relative_interval_that_contradicts_the_decision_is_not_shown() -> None:
    """Bounds are of the absolute difference; on the logarithm a fall looks larger."""
    meta = {"name": "thrift", "campaign": "habit", "start": START, "days": 14, "metric": "cost"}
    design = experiment(experiment=meta)
    inside, beyond = 1.0, 0.3
    for _ in range(12):
        middle = (inside + beyond) / 2
        (decision,) = only(analysed(costing(middle, users=200), 14, design)).decisions
        inside, beyond = (inside, middle) if decision.side else (middle, beyond)
    found = analysed(costing(inside, users=200), 14, design)
    assert only(found).outcome == "undecided"
    assert only(found).decisions[0].relative is None
    (decision,) = only(found).decisions
    assert decision.absolute.low < 0 < decision.absolute.high
    assert not missing(verdict(found), "no difference", "cost", "“new”", "day 14", ends(decision, "and"), "per user")
    assert only(analysed(costing(0.3, users=200), 14, design)).decisions[0].relative is not None


def test_shares_of_a_percent_are_told_where_decisions_are_made() -> None:
    effects = [
        IntervalEstimate(x, x - half, x + half)
        for x, half in ((0.123, 0.04), (-0.0123, 0.004), (0.0061, 0.001), (-0.0001, 0.0009), (0.0, 0.004))
    ]
    assert [span(x.in_percent) for x in effects] == [
        "+12.3% (+8.3% to +16.3%)",
        "−1.2% (−1.6% to −0.8%)",
        "+0.61% (+0.51% to +0.71%)",
        "−0.01% (−0.10% to +0.08%)",
        "0.0% (−0.4% to +0.4%)",
    ]


def test_the_size_is_that_of_the_last_decision() -> None:
    """On the day on which an effect first crosses a bound it is overstated; the last interval is as sound."""
    found = analysed(panel(lift=0.15), 14)
    comparison = only(found)
    assert comparison.reported == comparison.decisions[1]
    words = verdict(found)
    assert f"active is {change(comparison.decisions[1], 1)} than under “old”" in words
    assert change(comparison.decisions[1], 1) != change(comparison.decisions[0], 1)
    assert comparison.decided is not None
    assert comparison.decided.day == 7
    assert not missing(certainty(found, comparison), "active", "day 14", "day 7", ends(comparison.decisions[1], "and"))
    assert not missing(words, certainty(found, comparison))
    faded = replace(comparison, decisions=[comparison.decisions[0], replace(comparison.decisions[1], z=1.0)])
    assert (faded.reported, faded.outcome) == (comparison.decisions[0], "better")
    reported = certainty(replace(found, comparisons=[faded]), faded)
    assert not missing(reported, "active", "day 7", ends(comparison.decisions[0], "and"))
    assert not missing(verdict(replace(found, comparisons=[faded])), reported)
