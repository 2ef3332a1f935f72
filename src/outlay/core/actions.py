"""What actions are called: by a label where the log has names, else by the amount that is given.

    names = ActionNames.of(("none", "10% off", "20% off"), (), "none")
    names.value("10% off")     # 1.0, by which it is known inside
    names.given(1.0)           # "10% off", by which people and files know it

Inside, an action is a number: the amount given, or the place of its label, with 0 for `none`. Whatever is read or shown
goes through these two functions, so the number of a label never leaves the program.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from outlay.core.wording import plain

Given = float | str  # an action as files and people know it: its label, or its amount where it has none
Holds = Literal["texts", "truth values", "whole numbers", "numbers", "amounts"]
TRUTH = (
    ("false", "true"),
    ("no", "yes"),
    ("n", "y"),
    ("f", "t"),
    ("0", "1"),
)  # a reader of CSV makes truth values of all
TRUE = {word: bool(place) for pair in TRUTH for place, word in enumerate(pair)}
_CONTROLS = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069]")  # ends of lines, turns of direction
WORDS: dict[Holds, tuple[str, ...]] = {
    "texts": ("none", "nothing", "nothing given"),
    "whole numbers": ("0", "-1", "-2"),
}  # what is called that nothing was given, where no action is: the first that is no action's name


@dataclass(frozen=True)
class ActionNames:
    """The labels of actions; none where actions are numbers.

    Attributes:
        labels: in the order of the campaign file.
        values: `[labels]` the number of each inside.
        amounts: whether those are amounts, so that more can be done with them than to tell them apart.
        holds: what the column of the log holds for them, which SQL of the campaign file sees: their labels, as texts
            or as what these are texts of; or amounts, of which labels are bins where there are any.
        edges: of those bins, ascending, the last one's upper edge as well; none where actions are no bins.
    """

    labels: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    amounts: bool = True
    holds: Holds = field(default="amounts", compare=False)
    edges: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def of(
        cls, labels: Sequence[str], amounts: Sequence[float], none: Given | None, holds: Holds = "texts"
    ) -> ActionNames:
        """Name actions: by their amounts where there are any, else 0 is `none` and the others count from 1."""
        if not labels:
            return cls()
        if holds != "amounts" and not all(_reads(label, holds) for label in labels):
            holds = "texts"
        if amounts:
            return cls(tuple(labels), tuple(map(float, amounts)), holds=holds)
        others = [label for label in labels if none is None or label != as_text(none)]
        places = {label: float(place) for place, label in enumerate(others, 1)}
        return cls(tuple(labels), tuple(places.get(label, 0.0) for label in labels), False, holds)

    @classmethod
    def of_file(cls, content: Mapping[str, Any]) -> ActionNames:
        """The names of the content of a campaign file, as a log was read."""
        log, meta = content["log"], content["campaign"]
        labels = [each for each in log.get("actions") or () if isinstance(each, str)]
        holds: Holds = "amounts" if log.get("bins") else log.get("holds") or "texts"
        return cls.of(labels, log.get("amounts") or (), meta.get("none"), holds).with_edges(log.get("bins"))

    def with_edges(self, bins: Any) -> ActionNames:
        """The same with the edges of bins, as a log was read."""
        told = isinstance(bins, list | tuple) and self.labels
        return replace(self, edges=tuple(map(float, bins))) if told else self

    def amount(self, value: float) -> float | None:
        """How much an action with a name gives; None where that is not known, or actions are amounts."""
        return value if self.labels and self.amounts else None

    def columns(self, values: Sequence[float]) -> dict[str, list[Any]]:
        """The columns of decisions: `action`, and `amount` where actions have names and amounts."""
        given = {"action": [self.given(value) for value in values]}
        return given | ({"amount": list(map(float, values))} if self.labels and self.amounts else {})

    def degree(self, wanted: int) -> int:
        """The degree of a polynomial in the amount: `wanted`; 0, for each action on its own, where there are none."""
        return wanted if self.amounts else 0

    def numbered(self, table: Mapping[str, float]) -> dict[float, float]:
        """A table by what actions are called as one by their numbers; those that are none are left out."""
        values = ((self.value(label), amount) for label, amount in table.items())
        return {value: amount for value, amount in values if value is not None}

    def twice(self, table: Iterable[Given]) -> str | None:
        """In words which two keys of a table are one action; None if there are none."""
        seen: dict[float, Given] = {}
        for label in table:
            value = self.value(label)
            if value is not None and seen.setdefault(value, label) != label:
                return f"{named(seen[value])} and {named(label)} are one action."
        return None

    @property
    def nothing(self) -> str:
        """What is called that nothing was given: the action that is 0, or a word that is no action's name."""
        if 0.0 in self.values:
            return self.labels[self.values.index(0.0)]
        words = WORDS["texts" if self.holds in ("texts", "truth values") else "whole numbers"]
        return next(word for word in words if word not in self.labels)

    def given(self, value: float) -> Given:
        """What an action is called; a number that no label has is `none` where it is 0, and else itself."""
        if not self.labels:
            return float(value)
        near = next((i for i, own in enumerate(self.values) if math.isclose(own, value, rel_tol=1e-6)), None)
        if near is not None:
            return self.labels[near]
        return self.nothing if value == 0 else float(value)

    def logged(self, value: float, holds: Holds | None = None) -> Any:
        """What the column of the log holds for an action, as text, truth value or number.

        Args:
            value: the number of the action.
            holds: of the column; None: what this log's does.
        """
        holds = holds or self.holds
        return float(value) if holds == "amounts" else read_as(str(self.given(value)), holds)

    def value(self, given: Given) -> float | None:
        """The number of an action by its label, or by its amount where it has one; None if there is no such action.

        Any amount is an action where actions are numbers.
        """
        if not self.labels:
            return _number(given)
        text = as_text(given)
        for each in (text, text.strip()):
            if each in self.labels:
                return self.values[self.labels.index(each)]
        number = _number(given) if self.amounts else None
        return number if number in self.values else None

    def allowed(self, given: Given) -> float | None:
        """As `value`, and any amount of a bin is that bin: what a list of allowed actions means."""
        value, number = self.value(given), _number(given)
        if value is not None or number is None or not self.edges or not self.edges[0] <= number <= self.edges[-1]:
            return value
        return self.values[len(self.values) - len(self.edges) + 1 + bisect_right(self.edges[1:-1], number)]


def as_text(given: Given) -> str:
    """An action as a label would have it: 2 as `2`."""
    return given if isinstance(given, str) else f"{given:g}"


def _reads(label: str, holds: Holds) -> bool:
    try:
        read_as(label, holds)
    except (KeyError, ValueError):
        return False
    return True


def read_as(label: str, holds: Holds) -> Any:
    """A label as a column holds it: `Yes` is true where that has truth values. Raises KeyError, ValueError if none."""
    if holds == "truth values":
        return TRUE[label.lower()]
    return int(label) if holds == "whole numbers" else float(label) if holds == "numbers" else label


def _number(given: Given) -> float | None:
    try:
        return float(given)
    except ValueError:
        return None


def shown(given: Given) -> str:
    r"""An action in a table, on an axis or in a legend: `10% off`, or `1.5`; what would break a line as `\n`."""
    if not isinstance(given, str):
        return plain(given)
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], given)


def named(given: Given) -> str:
    """An action in a sentence: `'10% off'`, or `1.5`."""
    return repr(given) if isinstance(given, str) else f"{given:g}"


def all_named(actions: Sequence[Given], most: int = 12) -> str:
    """Some actions in a sentence, and that there are more."""
    return ", ".join(map(named, actions[:most])) + (" …" if len(actions) > most else "")
