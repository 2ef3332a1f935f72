"""What the first days say that totals do not: a peak of spend."""

from __future__ import annotations

import pytest

from outlay.evaluating.diagnostics import DayMeans
from outlay.evaluating.first_days import FirstDays
from small_logs import campaign
from telling import missing

OLD = ((0.5, 1.0), (0.5, 1.0), *((0.5, 1.1),) * 5)
FADING = ((0.55, 1.44), (0.54, 1.2), (0.52, 1.02), (0.51, 0.9), (0.505, 0.8), (0.498, 0.8), (0.494, 0.8))


def days(new: tuple[tuple[float, float], ...], old: tuple[tuple[float, float], ...] = OLD) -> list[DayMeans]:
    return [
        DayMeans(policy=name, day=day, reward=reward, costs=(cost,))
        for name, course in (("old", old), ("mixture", new))
        for day, (reward, cost) in enumerate(course, start=1)
    ]


def test_a_peak_is_told_with_its_figures() -> None:
    found = FirstDays.of(days(FADING), "mixture", campaign(), steady=True)
    assert found is not None
    assert (found.spend, found.dearer, found.beyond_average, found.days) == (1.44, 2, 3, 7)
    assert found.above_old == pytest.approx(0.44)
    assert found.above_average == pytest.approx(0.44)
    day_one, dearer, beyond = found.words.split("; ")
    assert not missing(day_one, "cost is 1.44 a user", "44% above the old policy's", "44% above the limit's")
    assert not missing(dearer, "first 2 days", "old policy's")
    assert not missing(beyond, "first 3 days", "limit's average")


def test_what_a_limit_allows_on_a_day_is_known_where_users_decide_every_day() -> None:
    found = FirstDays.of(days(FADING), "mixture", campaign(), steady=False)
    assert found is not None
    assert found.above_average is None
    total = campaign(budgets=[{"name": "cost", "cost": "c", "at_most": 7.0, "per": "user"}], horizon_days=7)
    found = FirstDays.of(days(FADING), "mixture", total, steady=False)
    assert found is not None
    assert found.above_average == pytest.approx(0.44)


def test_nothing_is_said_of_days_that_are_alike() -> None:
    even = FirstDays.of(days(((0.55, 0.98),) * 7), "mixture", campaign(), steady=True)
    assert even is not None
    assert (even.words, even.dearer) == ("", 0)


def test_without_days_there_is_nothing_to_compare() -> None:
    assert FirstDays.of(days(FADING[:1]), "mixture", campaign(), steady=True) is None
    assert FirstDays.of([], "mixture", campaign(), steady=True) is None
