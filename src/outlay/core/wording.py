"""Numbers as text for people: the only place that rounds for pages and sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple, Protocol

NONE = "–"
ROUNDING = 1e-5  # of the largest value of a column: an interval so narrow is rounding, and asks for no digits
ADVERBS = {"hour": "hourly", "week": "weekly", "month": "monthly"}  # as daily; of other units there is none
LONGEST = 1e15  # a number from there on is told by its power of ten, as one that six digits would show as 0
LOPSIDED = 0.33  # of half an interval, by which its value may lie off the middle and ± still tells it


class HasInterval(Protocol):
    """A value with the ends of its interval; None where there is no number or no interval."""

    @property
    def value(self) -> float | None:
        """The point estimate."""

    @property
    def low(self) -> float | None:
        """The lower end."""

    @property
    def high(self) -> float | None:
        """The upper end."""


class Interval(NamedTuple):
    """A value with the ends of its interval; None where there is no interval."""

    value: float
    low: float | None = None
    high: float | None = None


def number(value: float | None, digits: int | None = None) -> str:
    """A number with `digits` after the point, by default three significant digits; `–` if there is none."""
    if value is None or not math.isfinite(value):
        return NONE
    if abs(value) >= LONGEST:
        return f"{value:.3g}".replace("-", "−")
    if digits is None:
        digits = 0 if float(value).is_integer() else _digits_for(abs(value) / 10)
        if 0 < abs(value) < 0.5 * 10.0**-digits:
            return f"{value:.3g}".replace("-", "−")
    text = f"{value:,.{digits}f}"
    if float(text.replace(",", "")) == 0:
        text = text.removeprefix("-")  # no "−0.00"
    return text.replace("-", "−")


def plain(value: float) -> str:
    """A value from a file (a limit, an action), as short as it was written."""
    return f"{value:,.12g}".replace("-", "−")


def four(value: float) -> str:
    """A figure beside a limit, which three digits might round onto it: four significant digits, `2.0135` → `2.013`."""
    return plain(float(f"{value:.4g}"))


def decimals(intervals: Iterable[HasInterval | None]) -> int:
    """Digits after the point for a column: as its narrowest interval needs, else three significant digits."""
    known = [i for i in intervals if i is not None and i.value is not None and math.isfinite(i.value)]
    halves = [(i.high - i.low) / 2 for i in known if i.low is not None and i.high is not None and i.high > i.low]
    halves = [half for half in halves if half > ROUNDING * max(abs(i.value or 0) for i in known)]
    if halves:
        half = min(halves)
        leading = half / 10 ** math.floor(math.log10(half))
        return _digits_for(half if leading < 3 else 10 * half)  # two digits of 0.021, one of 0.041
    return _digits_for(max((abs(i.value) / 10 for i in known if i.value), default=1.0))


def _digits_for(size: float) -> int:
    """Digits after the point that show two significant ones of `size`, between 0 and 6."""
    if size <= 0 or not math.isfinite(size):
        return 2
    return min(max(1 - math.floor(math.log10(size)), 0), 6)


def signed(value: float | None, digits: int | None = None) -> str:
    """A difference, with its sign unless it rounds to 0: `0.5` → `+0.500`."""
    text = number(value, digits)
    return f"+{text}" if value is not None and value > 0 and text != NONE and text.strip("0.,") else text


def ends(low: float | None, high: float | None, digits: int | None = None) -> str:
    """An interval: `0.469 to 0.477`; empty if there is none."""
    return "" if low is None or high is None else f"{number(low, digits)} to {number(high, digits)}"


def spread(value: float, low: float | None, high: float | None, digits: int | None = None) -> str:
    """An interval where there is little room: `±0.004`; with its ends where its value lies nearer to one of them."""
    if low is None or high is None:
        return ""
    if abs((low + high) / 2 - value) > LOPSIDED * (high - low) / 2:
        return f"({ends(low, high, digits)})"
    return f"±{number((high - low) / 2, digits)}"


def money(value: float | None) -> str:
    """An amount, without small change if it is large."""
    return number(value, 0 if value is not None and abs(value) >= 100 else 2)


def percent(share: float | None, digits: int | None = None) -> str:
    """`0.3712` → `37%`; small shares keep a digit. Or with `digits` after the point."""
    if share is None:
        return NONE
    return f"{number(100 * share, digits if digits is not None else 0 if share >= 0.095 or share == 0 else 1)}%"


def small(share: float) -> str:
    """`0.1234` → `12.3%`; what would round to 0, in words."""
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"


def change(share: float, digits: int | None = None) -> str:
    """A change, with its sign: `0.032` → `+3.2%`; or with `digits` after the point."""
    if digits is not None:
        return f"{signed(100 * share, digits)}%"
    return f"{'+' if share > 0 else '−' if share < 0 else ''}{size(share)}"


def size(share: float) -> str:
    """How large a change is: `−0.032` → `3.2%`; what would round to 0.0% keeps a digit that says something."""
    percent = abs(100 * share)
    return f"{percent:.1f}%" if percent >= 0.05 else f"{percent:.1g}%"


def exact(share: float, digits: int = 4) -> str:
    """A share from a setting, to four digits: `0.975` → `97.5%`, and what a look gets, `0.991667` → `99.17%`.

    What is less than all never reads 100%: `0.99995` → `99.995%`. With three digits it is for shares that may be tiny.
    """
    texts = (f"{100 * share:.{shown}g}" for shown in range(digits, 17))
    return f"{next((text for text in texts if text != '100'), '100')}%"


def advised(value: float, sign: int = 1, *, digits: int = 4, beyond: bool = True) -> str:
    """A limit to advise: the next number of so many digits above the value, or below it for a floor (sign −1).

    Where not `beyond`, a value of no more digits is advised itself; rounded the other way it could not be kept.
    """
    if value == 0:
        return "0"
    size = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    steps = sign * value / size
    return f"{sign * (math.floor(steps) + 1 if beyond else math.ceil(steps - 1e-6)) * size:.6g}"


def short(count: float) -> str:
    """`4_412_000` → `4.41 million`."""
    for size, word in ((1e9, " billion"), (1e6, " million")):
        if abs(count) >= size:
            return f"{count / size:.3g}{word}"
    return f"{count:,.0f}"


def readable(name: str) -> str:
    """A name from a file as a person writes it: `active_days` and `activeDays` → `active days`; other texts as is."""
    if not re.fullmatch(r"[^\W\d]\w*", name):
        return name
    apart = re.sub(r"(?<=[a-z0-9])[A-Z](?=[a-z])", lambda letter: f" {letter[0].lower()}", name)
    return apart.replace("_", " ").strip() or name


def singular(label: str) -> str:
    """One of what a label says in the plural: `active days` → `active day`; any other label as it is."""
    return label[:-1] if label.endswith("s") and not label.endswith("ss") else label


def counted(count: int, what: str, verb: str = "") -> str:
    """`2 warnings`, `1 warning`; with a verb `2 rows have`, `1 row has`."""
    does = verb if count != 1 else {"are": "is", "have": "has"}.get(verb, f"{verb}s")
    return f"{number(count)} {what}{'s' * (count != 1)}{f' {does}' if verb else ''}"


def days(count: str | int) -> str:
    """`1 day`, `7 days`."""
    return f"{count} day" if str(count) == "1" else f"{count} days"


def weeks(days: int) -> str:
    """How long a test goes on, which is whole weeks whatever a log counts: `a week`, `2 weeks`."""
    return "a week" if days == 7 else f"{days // 7} weeks"


def in_units(text: str, unit: str, names: Iterable[str] = ()) -> str:
    """A sentence that speaks of days, told in another unit of time: `a day, 7-day` → `a week, 7-week`.

    Sentences are written for logs of days, the commonest. What stands in quotes, options, keys and values of a campaign
    file, and the names that are given, are left as they are.

    Args:
        text: one sentence or several.
        unit: what a unit of time is called, in the singular.
        names: of the user's, which may hold such words: `active days`.
    """
    own = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True) if re.search("day|dai", name, re.I))
    kept = r"(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"|`[^`]*`|--[\w-]+|\bdays = \d+" + (f"|{own}" if own else "")

    def told(found: re.Match[str]) -> str:
        if found["word"] is None:
            return found[0]
        article, word = found["article"] or "", found["word"]
        said = {"day": unit, "days": f"{unit}s", "daily": ADVERBS.get(unit, f"per-{unit}")}[word.lower()]
        said = said.capitalize() if word[0].isupper() else said
        return f"{article[:1]}n {said}" if article and said[0] in "aeiouh" and unit == "hour" else f"{article}{said}"

    return re.sub(rf"(?:{kept})|(?<![\w/.])(?P<article>\b[Aa] )?(?P<word>[Dd]ays?|[Dd]aily)(?![\w/])", told, text)
