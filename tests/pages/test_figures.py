"""What the figures share."""

from __future__ import annotations

import math

from outlay.pages.page import MAX_POINTS, inline, middle, scale_around, thinned


def test_the_first_wild_networks_do_not_stretch_the_axis() -> None:
    low, high = middle([0.60, 0.61, 0.62, 0.59, 0.605, 0.615, -4.0, 9.0, math.nan])
    assert (low, high) == (0.59, 0.62)


def test_equal_values_stay_inside_the_axis() -> None:
    assert middle([2.0, 2.0, 2.0]) == [2.0, 2.0]
    low, high = scale_around([2.0])["domain"]
    assert low < 2.0 < high
    low, high = scale_around([0.0])["domain"]
    assert low < 0.0 < high


def test_a_long_course_is_thinned_and_keeps_both_ends() -> None:
    kept = thinned(list(range(10_000)))
    assert len(kept) == MAX_POINTS
    assert (kept[0], kept[-1]) == (0, 9_999)
    assert thinned([1, 2, 3]) == [1, 2, 3]


def test_what_is_not_finite_becomes_null() -> None:
    assert inline([{"a": math.nan, "b": 1 / 3, "c": "x"}]) == {"values": ({"a": None, "b": 0.333333, "c": "x"},)}
