"""The ledger holds numbers of named actions: a bundle that gives them other names is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from outlay.core.actions import ActionNames
from outlay.core.errors import OutlayError
from outlay.serve.deciding.loaded_bundle import _check_names


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
