"""What the actions of a log go with, beyond what its campaign file says of them.

`logs/drivers.py` finds it in the log, `prepare` puts it into the manifest of DATA, and `estimators/balance.py` lets
nothing be certified while there is any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from outlay.core.actions import Given, named

SHOWN = 3  # drivers in words
Role = Literal["column", "feature", "calendar"]
_WAYS_OUT: Mapping[Role, str] = {
    "column": "list it under [log.features] if it is known before the decision, or under [log] as outcomes = [{name}] "
    "if it follows from the action, or as propensity = {name} if it is the probability of the action",
    "feature": "log the probability that the action had given the feature, or leave log.propensity out, by which it is "
    "fitted to the log",
    "calendar": "log the probability that the action had on its day, or, without log.propensity, make the day a "
    "feature",
}


@dataclass(frozen=True, slots=True)
class Driver:
    """A column or the calendar, with which an action goes beyond the stated propensities, or beyond the features.

    Attributes:
        name: of the column, or the key `log.time`.
        role: what the campaign file says it is: nothing (`column`), a `feature`, or the time of the rows (`calendar`).
        action: the action.
        often: where it came too often, and `more`: by which share of the rows there.
        seldom: where it came too seldom, and `less`: by which share.
        strength: of the dependence: 0 none, 1 a function.
        p_value: chance of as much where there is none.
    """

    name: str
    role: Role
    action: Given
    often: str
    more: float
    seldom: str
    less: float
    strength: float
    p_value: float

    @property
    def words(self) -> str:
        """What was found, without a full stop."""
        what = "the calendar" if self.role == "calendar" else f"{self.role} {self.name!r}"
        return (
            f"the action goes with {what}: action {named(self.action)} came {100 * self.more:.0f} points more often "
            f"where it is {self.often}, and {100 * self.less:.0f} points less often where it is {self.seldom} "
            f"(strength {self.strength:.2f} of 1)"
        )

    @property
    def way_out(self) -> str:
        """What to do, without a full stop."""
        return _WAYS_OUT[self.role].format(name=f'"{self.name}"')


@dataclass(frozen=True, slots=True)
class Assignment:
    """All drivers of a log, the strongest first.

    Attributes:
        stated: whether propensities are stated, so that drivers are those beyond them; else beyond the features.
        tested: how many columns were looked at, the calendar included.
        drivers: what was found.
    """

    stated: bool
    tested: int
    drivers: tuple[Driver, ...]

    @property
    def words(self) -> str:
        """What was found, without a full stop; empty if nothing was."""
        if not self.drivers:
            return ""
        beyond = "the stated propensities" if self.stated else "the features"
        first, more = self.drivers[0], "".join(f"; and with {each.name!r}" for each in self.drivers[1:SHOWN])
        rest = f"; and {len(self.drivers) - SHOWN} more" if len(self.drivers) > SHOWN else ""
        return f"beyond {beyond}, {first.words}{more}{rest}"

    @property
    def way_out(self) -> str:
        """What to do about the strongest, without a full stop."""
        return f"For {self.drivers[0].name!r}: {self.drivers[0].way_out}" if self.drivers else ""

    def to_dict(self) -> dict[str, Any]:
        """For the manifest of DATA."""
        return asdict(self) | {"words": self.words}
