from __future__ import annotations

from typing import Any

import pytest

from outlay.experiments.analyze import promises
from outlay.experiments.lift import IntervalEstimate
from outlay.experiments.results import ArmComparison, Course, CoursePoint

HAPPENED = IntervalEstimate(0.05, 0.03, 0.07)


def estimate(target: str, value: float | None, half: float, **more: Any) -> dict[str, Any]:
    ends = {"low": None, "high": None} if value is None else {"low": value - half, "high": value + half}
    return {
        "target": target,
        "estimator": "fqe",
        "policy": "mixture",
        "value": value,
        **ends,
        "recommended": True,
        "caution": None,
    } | more


def document(gain: float | None = 0.30, half: float = 0.1) -> dict[str, Any]:
    """A gain of 0.30 on 5 active days in a week is 6%."""
    return {
        "confidence": 0.95,
        "differences": [
            estimate("reward", 0.1, 0.01, against="old"),
            estimate("reward@7", gain, half, against="other"),
            estimate("reward@7", gain, half, against="old"),
            estimate("coupons@7", -0.2, 0.05, against="old"),
        ],
        "beside": [estimate("reward@7", 5.0, 0.1, policy="old"), estimate("coupons@7", 10.0, 0.1, policy="old")],
    }


def compared(*metrics: str) -> ArmComparison:
    point = CoursePoint(HAPPENED, HAPPENED, day=7, always=HAPPENED, always_relative=HAPPENED)
    courses = [Course(metric, 0, [point]) for metric in metrics]
    return ArmComparison("new", True, False, [], [], {}, [], None, courses, [], None, [])


def test_a_promise_stands_beside_what_happened() -> None:
    reward, cost = promises(document(), compared("active", "cost"), "active", "cost", 0.95)
    assert (reward.metric, reward.days, reward.estimator, reward.agrees) == ("active", 7, "fqe", True)
    assert reward.promised.value == pytest.approx(0.06)
    assert (reward.promised.low, reward.promised.high) == pytest.approx((0.04, 0.08))
    assert reward.happened == HAPPENED
    assert cost.metric == "cost"
    assert cost.promised.value == pytest.approx(-0.02)
    assert not cost.agrees


def test_agreement_counts_both_errors() -> None:
    """0.05 ± 0.02 and 0.08 ± 0.02: apart by 0.03, and the error of the difference is 0.0283 at 95%."""
    assert not promises(document(0.40), compared("active"), "active", None, 0.95)[0].agrees
    assert promises(document(0.38), compared("active"), "active", None, 0.95)[0].agrees


def test_what_the_estimate_or_the_test_cannot_tell_is_left_out() -> None:
    assert promises(document(None), compared("active"), "active", None, 0.95) == []
    assert promises(document(), compared("cost"), "active", None, 0.95) == []


def test_a_number_to_rely_on_comes_before_one_that_is_not() -> None:
    told = document()
    told["differences"].insert(0, estimate("reward@7", 9.0, 0.1, against="old", estimator="dr", recommended=False))
    assert promises(told, compared("active"), "active", None, 0.95)[0].estimator == "fqe"
