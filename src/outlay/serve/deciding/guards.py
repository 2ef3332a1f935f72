"""Who may say no, in which order.

    paused → not_eligible → user_limit → value_limit → day_cap → arm_cap → total_cap

A guard that says no turns the answer into none: the campaign's no-incentive value, free of charge, a forced row of the
log. Counters and the pause live in the ledger and are asked inside its transaction (`ledger/ledger.py`), so that no two
servers can both take the last unit. The two guards here need nothing but the request and the settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.serve.config import ValueLimits
from outlay.serve.ledger.records import ARM_CAP, DAY_CAP, PAUSED, TOTAL_CAP, USER_LIMIT

NOT_ELIGIBLE = "not_eligible"
VALUE_LIMIT = "value_limit"
ORDER = (PAUSED, NOT_ELIGIBLE, USER_LIMIT, VALUE_LIMIT, DAY_CAP, ARM_CAP, TOTAL_CAP)


@dataclass(frozen=True, slots=True)
class ChosenAction:
    """What is proposed to the ledger.

    Attributes:
        arm: policy, random, or the arm of a test.
        member: position of the member that was drawn; None where none decided.
        index: position of the action; −1 where it is none of the bundle's.
        action: its value.
        probability: of the action: the weights of the members that agree, or evenly in the random slice.
        members: JSON: the action (index) of each member, and its weight.
        reason: why it is this action.
        forced: there was no choice.
    """

    arm: str
    member: int | None
    index: int
    action: float
    probability: float
    members: str
    reason: str
    forced: bool


def allows_nothing(eligible: NDArray[np.bool_] | None) -> bool:
    """Whether the request's own list `[K]` leaves no action; None allows all."""
    return eligible is not None and not eligible.any()


def value_refusal(limits: ValueLimits, action: float, none: float) -> str | None:
    """Why the value may not be given, or None. None itself may always be given."""
    refused = (
        (limits.at_least is not None and action < limits.at_least)
        or (limits.at_most is not None and action > limits.at_most)
        or (limits.allowed is not None and action not in limits.allowed)
    )
    return VALUE_LIMIT if refused and action != none else None
