"""A few of the mutated campaign files and logs of `benchmarks/mutated_input.py`: a result or one error."""

from __future__ import annotations

import pytest

from mutated_input import one


@pytest.mark.parametrize("kind", ["file", "log"])
def test_mutated_input_is_answered_or_refused(kind: str) -> None:
    found = [one(kind, number, 1) for number in range(10)]
    assert [words for what, words in found if what == "failed"] == []
    assert {what for what, _ in found} == {"done", "refused"}
    for what, words in found:
        assert what == "done" or ": " in words, words


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("number", [492, 553])
def test_propensities_that_are_next_to_nothing_are_answered_or_refused(number: int) -> None:
    """Their inverses have squares beyond what a float holds."""
    assert one("log", number, 11)[0] != "failed"
