"""Functions of Python that are called with what they do not take: one error that says what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import outlay
from outlay.core.errors import OutlayError
from outlay.core.transitions import Transitions

WRONG: tuple[Any, ...] = (None, 7, [1], {}, "", object())
TAKEN: dict[str, Any] = {
    "evaluate": (outlay.evaluate, "RUN or DATA folder"),
    "frontier": (outlay.frontier, "RUN folder"),
    "report": (outlay.report, "RUN folder"),
    "load_bundle": (outlay.load_bundle, "bundle"),
    "Transitions.open": (Transitions.open, "DATA folder"),
    "simulate": (lambda value: outlay.simulate(value, "campaign"), "Known campaigns"),
}


@pytest.mark.parametrize("value", WRONG, ids=lambda value: type(value).__name__ + str(value)[:1])
@pytest.mark.parametrize("name", TAKEN)
def test_what_is_no_path_is_refused_with_what_is_taken(name: str, value: Any) -> None:
    call, taken = TAKEN[name]
    with pytest.raises(OutlayError) as caught:
        call(value)
    assert taken in str(caught.value)
    assert caught.value.where
    assert caught.value.way_out


@pytest.mark.parametrize("value", [None, 7, [1], [], ["a.csv", None], {}, ""], ids=repr)
def test_init_takes_files_lists_of_them_and_tables(tmp_path: Path, value: Any) -> None:
    with pytest.raises(OutlayError, match=r"log: .*the path of a file, a list of them, or a table"):
        outlay.init(value, tmp_path / "campaign.toml")


@pytest.mark.parametrize("value", [None, 7, ""], ids=repr)
def test_what_is_written_needs_a_path(tmp_path: Path, value: Any) -> None:
    for call in (
        lambda: outlay.init(tmp_path / "log.csv", value),
        lambda: outlay.simulate("habit", value),
        lambda: outlay.train(tmp_path / "campaign.toml", value),
        lambda: outlay.score(tmp_path, tmp_path / "rows.parquet", value),
    ):
        with pytest.raises(OutlayError, match=r"out: .* is expected"):
            call()
