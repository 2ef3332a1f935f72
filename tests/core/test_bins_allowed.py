"""Lists of allowed actions where actions are bins of amounts: the amount, the bin's name, and what is neither."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from outlay.bundles.rows import eligible_actions
from outlay.core.actions import ActionNames
from outlay.core.errors import LogError

NAMES = ActionNames.of_file(
    {
        "campaign": {"none": 0.0},
        "log": {
            "actions": ["0", "0.1 to 3", "3 to 6", "6 to 10"],
            "amounts": [0, 1.6, 4.4, 8],
            "bins": [0.1, 3, 6, 10],
        },
    }
)
ACTIONS = np.array([0.0, 1.6, 4.4, 8.0])


@pytest.mark.parametrize(
    ("given", "value"),
    [(0.0, 0.0), (0.1, 1.6), (2.9, 1.6), (3.0, 4.4), ("5", 4.4), (6.0, 8.0), (10.0, 8.0), ("3 to 6", 4.4), (1.6, 1.6)],
)
def test_an_amount_is_the_bin_that_it_is_in(given: float | str, value: float) -> None:
    assert NAMES.allowed(given) == value


@pytest.mark.parametrize("given", [-1.0, 0.05, 10.5, "much", ""])
def test_what_no_bin_holds_is_no_action(given: float | str) -> None:
    assert NAMES.allowed(given) is None


def test_names_without_bins_take_no_other_amounts() -> None:
    assert ActionNames.of(["none", "5 off"], [0, 5], "none").allowed(4.0) is None


@pytest.mark.parametrize("lists", [[[0.0, 5.0], None, [9.5]], [["0", "3 to 6"], None, ["6 to 10"]]])
def test_rows_to_score_may_list_amounts_or_names(lists: list[list[float] | list[str] | None]) -> None:
    found = eligible_actions(pa.table({"may": lists}), "may", ACTIONS, NAMES)
    assert found.tolist() == [[True, False, True, False], [True] * 4, [False, False, False, True]]


def test_an_amount_beyond_the_bins_is_told_with_its_row() -> None:
    with pytest.raises(LogError, match=r"row 2.*holds '12.5', which is not one of the actions"):
        eligible_actions(pa.table({"may": [[0.0], [12.5]]}), "may", ACTIONS, NAMES)
