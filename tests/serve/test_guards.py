"""The guards that need nothing but the request and the settings; the others are the ledger's."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.serve.config import ValueLimits
from outlay.serve.deciding.guards import ORDER, VALUE_LIMIT, allows_nothing, value_refusal


def test_the_order_is_fixed() -> None:
    assert ORDER == ("paused", "not_eligible", "user_limit", "value_limit", "day_cap", "arm_cap", "total_cap")


@pytest.mark.parametrize(
    ("limits", "passes"),
    [
        (ValueLimits(), True),
        (ValueLimits(at_most=3.0), True),
        (ValueLimits(at_most=2.9), False),
        (ValueLimits(at_least=3.0), True),
        (ValueLimits(at_least=3.1), False),
        (ValueLimits(allowed=(1.5, 3.0)), True),
        (ValueLimits(allowed=(1.5,)), False),
        (ValueLimits(allowed=()), False),
    ],
)
def test_a_value_out_of_bounds_is_refused(limits: ValueLimits, passes: bool) -> None:
    assert value_refusal(limits, 3.0, none=0.0) == (None if passes else VALUE_LIMIT)


def test_none_may_always_be_given() -> None:
    assert value_refusal(ValueLimits(at_least=1.0, allowed=(3.0,)), 0.0, none=0.0) is None


def test_only_an_empty_list_of_actions_allows_nothing() -> None:
    assert not allows_nothing(None)
    assert not allows_nothing(np.array([False, True]))
    assert allows_nothing(np.array([False, False]))
