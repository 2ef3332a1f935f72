"""Money to set aside for each action, beside what a log has shown: which amounts would let a cap be passed.

    unpriced    0, only because no row of the log cost anything with the action: what it costs is not known
    too low     less than a row of the log has cost

"No incentive" is neither, as nothing is set aside for it. Said of a log (`outlay check`), of a training, of a list to
allocate, and of a bundle that is to be served.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from outlay.core.actions import ActionNames, Given, named

ROUNDING = 1e-6  # of a stated amount: less is what 32 bits leave
WAY_OUT = (
    "State the most that each action can cost: reserve of the budget in the campaign file, or [reserve] in serve.toml; "
    "0 for what is free."
)
TOO_LOW = "State the most that each action can cost."


class TooLow(NamedTuple):
    """An action for which less is set aside than a row of the log has cost, in money."""

    action: Given
    amount: float
    seen: float

    @property
    def words(self) -> str:
        """What was found, with the amount that is set aside as its subject."""
        return (
            f"is {self.amount:g} for the action {named(self.action)}, and a row of the log cost {self.seen:g} with it."
        )


def unpriced(actions: Iterable[float], largest: Iterable[float], none: float) -> list[float]:
    """Return the actions other than `none` whose largest cost `[K]` in the log is 0."""
    return [action for action, seen in zip(actions, largest, strict=True) if action != none and not seen > 0]


def unpriced_words(actions: Iterable[Given]) -> str:
    """What is wrong with actions that are not priced."""
    *others, last = map(named, actions)
    those = f"the actions {', '.join(others)} and {last}" if others else f"the action {last}"
    return (
        f"no row of the log cost anything with {those}, and nothing states what {'they' if others else 'it'} can cost: "
        f"no money would be set aside for {'them' if others else 'it'}, and no cap would hold."
    )


def too_low(
    actions: Iterable[float], amounts: Iterable[float], largest: Iterable[float], none: float, names: ActionNames
) -> TooLow | None:
    """Return the first action other than `none` for which `amounts` `[K]` sets less aside than the `largest` cost."""
    for action, amount, seen in zip(actions, amounts, largest, strict=True):
        if action != none and seen > amount + ROUNDING * abs(amount):
            return TooLow(names.given(action), amount, seen)
    return None
