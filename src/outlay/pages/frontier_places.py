"""Places on the frontier's drawings: plain numbers in, percent of the width and the height out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from outlay.pages import words


class Drawing(NamedTuple):
    """Places in percent from the left and the top, and the words of the ticks.

    Attributes:
        x_ticks: place and number of each; y_ticks: the same, upwards.
        line: the curve; band: its intervals; dots: single policies.
        open: parts of the curve that are not certified; sure: what is certified to be reached at least.
        old: the old policy; old_at: its place; old_bar: its interval.
    """

    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    line: str
    band: str = ""
    open: str = ""
    sure: str = ""
    dots: str = ""
    old: str = ""
    old_at: tuple[float, float] = (0.0, 0.0)
    old_bar: str = ""


class Frame(NamedTuple):
    """What a drawing shows: the ends of both axes."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def around(cls, x: Sequence[float], y: Sequence[float]) -> Frame:
        """All of the points, with a little air."""
        return cls(*aired(x, 0.03), *aired(y, 0.06))

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Percent from the left and from the top."""
        across = (x - self.left) / (self.right - self.left)
        return round(100 * across, 2), round(100 * (self.top - y) / (self.top - self.bottom), 2)

    def line(self, x: Sequence[float], y: Sequence[float]) -> str:
        """A path through the points."""
        return "M" + "L".join("{} {}".format(*self.place(*xy)) for xy in zip(x, y, strict=True))

    def dot(self, x: float, y: float) -> str:
        """A path of no length, which is drawn as its cap."""
        return "M{} {}h0".format(*self.place(x, y))

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies inside."""
        return self.left <= x <= self.right and self.bottom <= y <= self.top

    def ticks(self) -> tuple[list[tuple[float, str]], list[tuple[float, str]]]:
        """(place, number) of each tick across and up."""
        across = [(self.place(t, self.top)[0], text) for t, text in _round_numbers(self.left, self.right)]
        return across, [(self.place(self.left, t)[1], text) for t, text in _round_numbers(self.bottom, self.top)]


def aired(values: Sequence[float], air: float) -> tuple[float, float]:
    """The ends of an axis that holds all values, with a share of air beyond them."""
    low, high = min(values), max(values)
    more = air * (high - low) or abs(high) * 0.1 or 1.0
    return low - more, high + more


def _round_numbers(low: float, high: float) -> list[tuple[float, str]]:
    """Four to ten round numbers of a range, and how they are written."""
    rough = (high - low) / 7
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(times * size for times in (1, 2, 5, 10) if times * size >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    places = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [(i * step, words.number(i * step, digits)) for i in places]
