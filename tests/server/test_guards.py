"""A guard that says no gives none, free of charge and forced."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.server.config import ValueLimits
from outlay.server.guards import ORDER, Choice, allows_nothing, paused, within

CHOICE = Choice("policy", 1, 2, 3.0, 0.4, '{"actions":[1,2]}', "policy", False)


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
def test_a_value_out_of_bounds_becomes_none(limits: ValueLimits, passes: bool) -> None:
    found = within(limits, CHOICE, 0.0, 0)
    if passes:
        assert found == CHOICE
    else:
        assert found == Choice("policy", 1, 0, 0.0, 1.0, CHOICE.members, "value_limit", True)


def test_none_may_always_be_given() -> None:
    none = Choice("policy", 0, 0, 0.0, 0.6, "", "policy", False)
    assert within(ValueLimits(at_least=1.0, allowed=(3.0,)), none, 0.0, 0) == none


def test_a_pause_answers_none_whatever_was_chosen() -> None:
    assert paused(CHOICE, 0.0, -1) == Choice("policy", 1, -1, 0.0, 1.0, CHOICE.members, "paused", True)


def test_only_an_empty_list_of_actions_allows_nothing() -> None:
    assert not allows_nothing(None)
    assert not allows_nothing(np.array([False, True]))
    assert allows_nothing(np.array([False, False]))
