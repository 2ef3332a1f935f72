"""Small charts of a few days as SVG that needs no script: lines with their bands, ends labelled, one dashed limit.

Colours come from the page's style, so the charts follow its light and dark mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from outlay.core.wording import number
from outlay.evaluating.totals import Total

WIDTH, HEIGHT = 430, 190
LEFT, RIGHT, TOP, BOTTOM = 54, 78, 14, 26
APART = 14  # of two labels
MOST_TICKS = 7


@dataclass(frozen=True)
class Line:
    """The days of one policy.

    Attributes:
        name: `now` or `new`.
        look: class of the style.
        days: from day 1.
    """

    name: str
    look: str
    days: Sequence[Total]


@dataclass(frozen=True)
class Lines:
    """One chart.

    Attributes:
        title: what it shows, with the unit.
        lines: the policies.
        rule: a level with its words, or None.
    """

    title: str
    lines: Sequence[Line]
    rule: tuple[float, str] | None = None

    @property
    def words(self) -> str:
        """What a screen reader says."""
        parts = [
            f"{line.name}: {_short(line.days[0].value)} on day 1, {_short(line.days[-1].value)} on day {len(line.days)}"
            for line in self.lines
        ]
        rule = [] if self.rule is None else [f"{self.rule[1]}: {_short(self.rule[0])}"]
        return f"{self.title}. {'; '.join([*parts, *rule])}."

    @property
    def svg(self) -> Markup:
        """The chart."""
        count = max(len(line.days) for line in self.lines)
        ends = [x for line in self.lines for day in line.days for x in (day.value, day.low, day.high) if x is not None]
        ends += [] if self.rule is None else [self.rule[0]]
        low, high = min(ends), max(ends)
        air = 0.08 * (high - low) or abs(high) * 0.1 or 1.0
        low, high = low - air, high + air

        def x(day: int) -> float:
            return round(LEFT + (WIDTH - LEFT - RIGHT) * (day - 1) / max(1, count - 1), 1)

        def y(value: float) -> float:
            return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)

        drawn = [f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>']
        step = -(-count // MOST_TICKS) if count > MOST_TICKS else 1
        for day in sorted({1, *range(step, count + 1, step)} - ({step} if step == 2 else set())):
            drawn.append(f'<text class="tick" x="{x(day)}" y="{HEIGHT - 8}" text-anchor="middle">{day}</text>')
        if self.rule is not None:
            at = y(self.rule[0])
            drawn.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
            words = escape(f"{self.rule[1]}: {_short(self.rule[0])}")
            drawn.append(f'<text class="rule" x="{WIDTH - RIGHT}" y="{at - 5}" text-anchor="end">{words}</text>')
        for line in self.lines:
            points = [(x(day), y(each.value)) for day, each in enumerate(line.days, start=1)]
            lows = [(x(day), y(each.low)) for day, each in enumerate(line.days, start=1) if each.low is not None]
            highs = [(x(day), y(each.high)) for day, each in enumerate(line.days, start=1) if each.high is not None]
            if lows and highs:
                drawn.append(f'<polygon class="band {line.look}" points="{_points([*lows, *reversed(highs)])}"/>')
            drawn.append(f'<polyline class="{line.look}" points="{_points(points)}"/>')
            if count <= 2 * MOST_TICKS:
                drawn += [f'<circle class="{line.look}" cx="{a}" cy="{b}" r="3"/>' for a, b in points]
        for place, at, anchor in ((0, LEFT - 8, "end"), (-1, WIDTH - RIGHT + 8, "start")):
            levels = _apart([y(line.days[place].value) for line in self.lines])
            for line, level in zip(self.lines, levels, strict=True):
                name = f"{line.name} " if place else ""
                text = escape(f"{name}{_short(line.days[place].value)}")
                drawn.append(f'<text class="{line.look}" x="{at}" y="{level + 4}" text-anchor="{anchor}">{text}</text>')
        body = "".join(drawn)
        label = escape(self.words)
        return Markup(f'<svg class="days" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{body}</svg>')


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a:g},{b:g}" for a, b in points)


def _apart(levels: Sequence[float]) -> list[float]:
    """Heights of labels that do not overlap, as near to `levels` as may be."""
    order = sorted(range(len(levels)), key=lambda i: levels[i])
    placed = list(levels)
    for one, other in pairwise(order):
        if (gap := placed[other] - placed[one]) < APART:
            placed[one] -= (APART - gap) / 2
            placed[other] += (APART - gap) / 2
    return placed


def _short(value: float) -> str:
    """`57,925` → `57.9k`, `1,258,158` → `1.26M`."""
    for size, letter in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{number(value / (1e3 if letter == 'k' else 1e6))}{letter}"
    return number(value)
