"""What actions are called: by a label where the log has names, else by the amount that is given.

    names = ActionNames.of(("none", "10% off", "20% off"), (), "none")
    names.value("10% off")     # 1.0, by which it is known inside
    names.given(1.0)           # "10% off", by which people and files know it

Inside, an action is a number: the amount given, or the place of its label, with 0 for `none`. Whatever is read or shown
goes through these two functions, so the number of a label never leaves the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlay.core.wording import plain

Given = float | str  # an action as files and people know it: its label, or its amount where it has none


@dataclass(frozen=True)
class ActionNames:
    """The labels of actions; none where actions are numbers.

    Attributes:
        labels: in the order of the campaign file.
        values: `[labels]` the number of each inside.
        amounts: whether those are amounts, so that more can be done with them than to tell them apart.
    """

    labels: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    amounts: bool = True

    @classmethod
    def of(cls, labels: Sequence[str], amounts: Sequence[float], none: Given | None) -> ActionNames:
        """Name actions: by their amounts where there are any, else 0 is `none` and the others count from 1."""
        if amounts:
            return cls(tuple(labels), tuple(map(float, amounts)))
        others = [label for label in labels if label != none]
        places = {label: float(place) for place, label in enumerate(others, 1)}
        return cls(tuple(labels), tuple(places.get(label, 0.0) for label in labels), not labels)

    @classmethod
    def of_file(cls, content: Mapping[str, Any]) -> ActionNames:
        """The names of the content of a campaign file, as a log was read."""
        log, meta = content["log"], content["campaign"]
        labels = [each for each in log.get("actions") or () if isinstance(each, str)]
        return cls.of(labels, log.get("amounts") or (), meta.get("none"))

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

    def given(self, value: float) -> Given:
        """What an action is called; a number that no label has is `none` where it is 0, and else itself."""
        if not self.labels:
            return float(value)
        near = next((i for i, own in enumerate(self.values) if math.isclose(own, value, rel_tol=1e-6)), None)
        if near is not None:
            return self.labels[near]
        return "none" if value == 0 else float(value)

    def value(self, given: Given) -> float | None:
        """The number of an action by its label, or by its amount where it has one; None if there is no such action.

        Any amount is an action where actions are numbers.
        """
        if not self.labels:
            return _number(given)
        text = given if isinstance(given, str) else f"{given:g}"
        for each in (text, text.strip()):
            if each in self.labels:
                return self.values[self.labels.index(each)]
        number = _number(given) if self.amounts else None
        return number if number in self.values else None


def _number(given: Given) -> float | None:
    try:
        return float(given)
    except ValueError:
        return None


def shown(given: Given) -> str:
    """An action in a table, on an axis or in a legend: `10% off`, or `1.5`."""
    return given if isinstance(given, str) else plain(given)


def named(given: Given) -> str:
    """An action in a sentence: `'10% off'`, or `1.5`."""
    return repr(given) if isinstance(given, str) else f"{given:g}"


def all_named(actions: Sequence[Given], most: int = 12) -> str:
    """Some actions in a sentence, and that there are more."""
    return ", ".join(map(named, actions[:most])) + (" …" if len(actions) > most else "")
