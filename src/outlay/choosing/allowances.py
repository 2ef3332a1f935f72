"""The registry of allowances (`estimators/allowances.py`): what is measured, and kept, of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from outlay.choosing.measure import Measure
from outlay.estimators.allowances import Allowance, Allowances
from outlay.estimators.day_effects import DayEffects


@dataclass(frozen=True)
class Kind:
    """A row of the registry.

    Attributes:
        form: dataclass of what was measured, which files keep.
        measure: measures it on some users.
    """

    form: type[Any]
    measure: Callable[[Measure], Allowance]


ALLOWANCES: dict[str, Kind] = {
    "days": Kind(DayEffects, lambda at: at.state.day_effects),
}


def allowances_of(measure: Measure) -> Allowances:
    """Return every allowance, measured on these users."""
    return {name: kind.measure(measure) for name, kind in ALLOWANCES.items()}


def written(allowances: Allowances) -> dict[str, Any]:
    """Return allowances as JSON has them."""
    return {name: asdict(allowance) for name, allowance in allowances.items()}  # type: ignore[call-overload]


def read(stored: Mapping[str, Any]) -> Allowances:
    """Return allowances from what `written` made of them.

    Raises:
        KeyError, ValueError: if one is missing or damaged.
    """
    return {name: TypeAdapter(kind.form).validate_python(stored[name]) for name, kind in ALLOWANCES.items()}
