"""The ledger holds numbers of named actions: a bundle that gives them other names is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from outlay.core.actions import ActionNames
from outlay.core.errors import OutlayError
from outlay.core.history import History
from outlay.core.schema import Schema
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.features import PastDay, PastError, Summaries, check_past
from outlay.serve.deciding.loaded_bundle import _check_names, _check_values, _stated


def check(before: list[Any], now: list[Any]) -> None:
    names = ActionNames.of_file({"campaign": {"none": "none"}, "log": {"actions": now}})
    bundle = SimpleNamespace(names=names, actions=np.array(names.values or now, np.float64))
    earlier = SimpleNamespace(id="old", campaign={"campaign": {"none": "none"}, "log": {"actions": before}})
    _check_names(SimpleNamespace(bundle=bundle, path=Path("new")), earlier)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (["none", "x", "y"], ["none", "y", "x"], "'x', 'y' would be read as other actions"),
        (["none", "x"], ["none", "z"], "'x' would be read"),
        ([0.0, 1.0], ["none", "x"], "one has names, and the other amounts"),
    ],
)
def test_other_names_of_the_same_numbers_are_refused(before: list[Any], now: list[Any], told: str) -> None:
    with pytest.raises(OutlayError, match=told):
        check(before, now)


def test_new_names_last_and_other_amounts_are_taken() -> None:
    check(["none", "x"], ["none", "x", "y"])
    check([0.0, 1.0], [0.0, 2.0])


def small(names: ActionNames) -> Any:
    return SimpleNamespace(names=names, actions=np.array(names.values, np.float64))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"at_most": 1.5}, r"values\.at_most: is 1\.5, and the actions have names without amounts.*allowed = "),
        (
            {"allowed": ["x", "zz"]},
            r"values\.allowed: lists 'zz', which is no action of the bundle\. Actions: none, x, y",
        ),
        ({"allowed": ["none", "X"]}, r"values\.allowed: lists 'X'.*Did you mean 'x'\?|values\.allowed: lists 'X'"),
    ],
)
def test_values_that_names_do_not_have_are_refused(values: dict[str, Any], told: str) -> None:
    bundle = small(ActionNames.of(("none", "x", "y"), (), "none"))
    with pytest.raises(OutlayError, match=told):
        _check_values(bundle, ServeConfig.parse({"values": values}))
    _check_values(
        small(ActionNames.of(("none", "5 off"), (0, 5), "none")), ServeConfig.parse({"values": {"at_most": 4}})
    )


def test_two_spellings_of_one_action_are_refused() -> None:
    names = ActionNames.of(("none", "10 off"), (0, 10), "none")
    with pytest.raises(OutlayError, match=r"reserve: '10 off' and '10' are one action\. Keep one of them"):
        _stated([0.0, 10.0], names, {"none": 0, "10 off": 5, "10": 0.5}, None)


def test_bins_may_change_and_names_may_not() -> None:
    def earlier(log: dict[str, Any]) -> Any:
        return SimpleNamespace(id="old", campaign={"campaign": {"none": 0.0}, "log": log})

    bins = {"actions": ["0 to 5", "5 to 10"], "amounts": [2.0, 7.0], "bins": [0, 5, 10]}
    other = ActionNames.of(("0 to 4", "4 to 10"), (1.5, 7.0), 0.0, "amounts")
    loaded: Any = SimpleNamespace(bundle=small(other), path=Path("new"))
    _check_names(loaded, earlier(bins))
    with pytest.raises(OutlayError, match="one has names, and the other amounts"):
        _check_names(loaded, earlier({"actions": ["none", "x"]}))


def test_a_past_names_actions() -> None:
    names = ActionNames.of(("none", "10 off"), (0, 10), "none")
    history = History(days=3, columns=("action", "reward"), summaries=("last",), none=0.0, complete=False)
    row: dict[str, Any] = {"days_ago": 1, "action": "10 off", "reward": 1}
    check_past([row], [history], names)
    [day] = Summaries(history, Schema((), ())).given([row], 7, names)
    assert day == PastDay(6, [10.0, 1.0])
    for wrong, told in (
        ({"action": "20 off"}, "is '20 off'; expected: 'none', '10 off'"),
        ({"reward": "x"}, "expected: a number"),
    ):
        with pytest.raises(PastError, match=told):
            check_past([row | wrong], [history], names)
