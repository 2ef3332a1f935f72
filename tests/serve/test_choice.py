"""What the ledger stores of a draw, and the guard that needs only the settings; other guards are the ledger's."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import DecodeError

from outlay.serve.config import ValueLimits
from outlay.serve.deciding.choice import VALUE_LIMIT, DrawRecord, decode_draw, encode_draw, value_refusal


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


@pytest.mark.parametrize("action", [0.1 + 0.2, 0.30000001192092896, 0.29999998])
@pytest.mark.parametrize("limits", [{"at_most": 0.3}, {"at_least": 0.3}, {"allowed": (0.3,)}])
def test_a_bound_is_the_amount_that_it_says(limits: dict[str, Any], action: float) -> None:
    """0.1 + 0.2, or 0.3 in single precision, is 0.3."""
    assert value_refusal(ValueLimits(**limits), action, none=0.0) is None


def test_none_may_always_be_given() -> None:
    assert value_refusal(ValueLimits(at_least=1.0, allowed=(3.0,)), 0.0, none=0.0) is None


def test_a_draw_comes_back_as_it_was() -> None:
    draw = DrawRecord([3, 17], [0, 2], [0.25, 0.75], 1.1, 0.02, [0, 2])
    assert decode_draw(encode_draw(draw)) == draw
    assert encode_draw(DrawRecord([0], [1], [1.0])) == '{"members":[0],"actions":[1],"weights":[1.0]}'


def test_a_row_without_a_draw_reads_as_an_empty_one() -> None:
    assert decode_draw("{}") == DrawRecord()
    with pytest.raises(DecodeError):
        decode_draw("")
