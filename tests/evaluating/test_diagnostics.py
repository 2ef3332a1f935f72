"""What an evaluation rests on, worked by hand on four users and two days."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from outlay.choosing.evaluated_policy import OLD, EvaluatedPolicy
from outlay.choosing.measure import Measure
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.importance import weigh
from outlay.evaluating.diagnostics import (
    LEAST_SHARE,
    DayMeans,
    MatchingPaths,
    daily,
    matching_paths,
    missing_days,
    overlap,
    shares,
)
from small_logs import transitions

ACTION = [0, 1, 1, 0, 0, 0, 0, 0]  # users 0, 1 in segment `few`, 2, 3 in `many`; row 3 is forced
HALF = np.full(8, 0.5)


def log(forced: Any = None) -> Transitions:
    found = transitions(
        user=np.repeat(np.arange(4), 2),
        day=np.tile([0, 1], 4),
        state=np.zeros(8, int),
        action=ACTION,
        outcome=np.column_stack([np.arange(8), np.ones(8)]),
        num_states=1,
        num_actions=2,
        forced=[0, 0, 0, 1, 0, 0, 0, 0] if forced is None else forced,
        split=CERTIFY,
        steady=False,
    )
    found.users["segment"] = [0, 0, 1, 1]
    about = found.campaign.model_copy(update={"meta": found.campaign.meta.model_copy(update={"report_days": (1, 2)})})
    return replace(found, segments=("few", "many"), propensity=HALF.astype(np.float32), campaign=about)


def always(*actions: int, weights: list[float] | None = None) -> EvaluatedPolicy:
    parts = tuple(np.full(8, a) for a in actions)
    return replace(OLD, name="policy", parts=parts, features=(0,) * len(parts), weights=np.array(weights or [1.0]))


@pytest.fixture
def at() -> Measure:
    return Measure(log(), CERTIFY, None)


def test_overlap_is_told_by_segment(at: Measure) -> None:
    few, many = overlap(at, always(1), HALF)
    assert asdict(few) == {
        "segment": "few",
        "choices": 3,
        "matched": pytest.approx(2 / 3),
        "ess": pytest.approx(2.0),
        "mean_ratio": pytest.approx(4 / 3),
        "mean_ratio_error": pytest.approx(np.std([0, 4 / 3, 0, 0], ddof=1) / 2),
        "unseen": (),
        "unseen_share": 0.0,
    }
    assert (many.choices, many.matched, many.ess, many.mean_ratio) == (4, 0.0, 0.0, 0.0)
    assert (many.unseen, many.unseen_share) == ((1.0,), 1.0)


def test_a_drawn_action_is_unseen_in_its_share(at: Measure) -> None:
    drawn = replace(always(1), parts=(np.tile([0.25, 0.75], (8, 1)),))
    few, many = overlap(at, drawn, HALF)
    assert many.matched == few.matched == 1
    assert many.mean_ratio == pytest.approx(0.5)
    assert (many.unseen, many.unseen_share) == ((1.0,), 0.75)
    assert few.mean_ratio == pytest.approx((0.5 + 1.5 + 1.5) / 3)


def test_a_mixture_weighs_its_members(at: Measure) -> None:
    few, many = overlap(at, always(0, 1, weights=[0.75, 0.25]), HALF)
    assert few.mean_ratio == pytest.approx((0.75 * 2 + 0.25 * 2 + 0.25 * 2) / 3)
    assert many.mean_ratio == pytest.approx(0.75 * 2)
    assert (few.matched, many.unseen_share) == (1.0, 0.25)


def test_paths_are_told_for_every_number_of_days(at: Measure) -> None:
    """Of four users, user 1 was given 1 on the first day, and had no choice on the second."""
    one, two = matching_paths(weigh(at.panel, np.ones(8, int), days=(1, 2), propensity=HALF), (1, 2))
    assert one == MatchingPaths(days=1, users=4, matched=0.25, ess=1.0, clipped=0.0, heaviest=1.0)
    assert two.matched == 0.25
    nobody = matching_paths(weigh(at.panel, np.ones(8, int), days=(3,), propensity=HALF), (3,))
    assert nobody == (MatchingPaths(days=3, users=0, matched=0.0, ess=0.0, clipped=0.0, heaviest=None),)


def test_shares_of_both_policies_are_those_of_rows_with_a_choice(at: Measure) -> None:
    drawn = replace(always(1), parts=(np.tile([0.25, 0.75], (8, 1)),))
    found = {(s.policy, s.segment, s.action): s.share for s in shares(at, drawn)}
    assert found == {
        ("old", "few", 0.0): pytest.approx(1 / 3),
        ("old", "few", 1.0): pytest.approx(2 / 3),
        ("old", "many", 0.0): 1.0,
        ("old", "many", 1.0): 0.0,
        ("new", "few", 0.0): 0.25,
        ("new", "few", 1.0): 0.75,
        ("new", "many", 0.0): 0.25,
        ("new", "many", 1.0): 0.75,
    }


def test_a_segment_with_hardly_a_choice_is_left_out_and_none_at_all_is_no_table(at: Measure) -> None:
    without = Measure(log(forced=[0, 0, 0, 1, 1, 1, 1, 1]), CERTIFY, None)
    assert {s.segment for s in shares(without, always(1))} == {"few"}
    assert [line.segment for line in overlap(without, always(1), HALF)] == ["few"]
    nothing = Measure(log(forced=np.ones(8)), CERTIFY, None)
    assert shares(nothing, always(1)) == ()
    assert overlap(nothing, always(1), HALF) == ()
    assert LEAST_SHARE < 3 / 7


def with_rows_on(*days: int) -> Measure:
    found = log()
    kept = transitions(
        user=np.repeat(np.arange(2), len(days)),
        day=np.tile(days, 2),
        state=np.zeros(2 * len(days), int),
        action=np.zeros(2 * len(days), int),
        outcome=np.ones((2 * len(days), 2)),
        num_states=1,
        num_actions=2,
        split=CERTIFY,
        steady=False,
    )
    return Measure(replace(kept, campaign=found.campaign), CERTIFY, None)


def test_days_without_a_row_are_told() -> None:
    found = missing_days(with_rows_on(0, 1, 4, 5).panel)
    assert found is not None
    assert found.share == pytest.approx(4 / 12)
    assert found.many
    assert "33.3% of the days between users' rows" in found.words


@pytest.mark.parametrize("days", [(0, 1, 2), (0, 7, 14), (3,)])
def test_no_day_is_missing_where_rows_are_evenly_spaced(days: tuple[int, ...]) -> None:
    assert missing_days(with_rows_on(*days).panel) is None


def test_everything_is_fit_for_json(at: Measure) -> None:
    fitted = at.evaluator().fit(np.zeros(8, int), days=(1, 2))
    lines: list[Any] = [*overlap(at, always(1), HALF), *shares(at, always(1)), *daily("policy", fitted)]
    json.dumps([asdict(line) for line in lines], allow_nan=False)


def test_days_are_told_up_to_the_first_that_is_withheld(at: Measure) -> None:
    means = np.array([[1.0, 2.0], [0.5, 3.0], [np.nan, np.nan], [0.5, 1.0]])
    fitted = replace(at.evaluator().fit(None, days=(1,)), daily=means)
    assert daily("old", fitted) == (
        DayMeans(policy="old", day=1, reward=1.0, costs=(2.0,)),
        DayMeans(policy="old", day=2, reward=0.5, costs=(3.0,)),
    )
