"""Guesses of roles, on drawn logs with names of five languages or none: mostly right, and hardly ever surely wrong.

`benchmarks/init_roles.py` says how often, over hundreds of logs and on public files.
"""

from __future__ import annotations

import numpy as np
import pytest

from init_logs import draw
from init_roles import Score, judge
from outlay.logs.clues import SURE, Clues, chance, rank
from outlay.logs.weights import WEIGHTS


def test_a_column_is_as_likely_as_its_clues_and_none_is_an_answer() -> None:
    found: dict[str, Clues] = {"offer": {"offered": (1, "named"), "tied": (0.5, "")}, "age": {"tied": (1, "")}}
    ranked = rank("action", found)
    weights = WEIGHTS["action"]
    e = np.exp([weights["offered"] + weights["tied"] / 2, weights["tied"], weights["none"]])
    assert [ranked.of["offer"], ranked.of["age"], ranked.none] == pytest.approx(e / e.sum())
    assert ranked.best == "offer"
    assert ranked.words["offer"] == "named"
    assert rank("action", {"age": {"tied": (1, "")}}).best is None
    assert chance("outcome", {}) == pytest.approx(1 / (1 + np.exp(-WEIGHTS["outcome"]["none"])))


def test_what_is_sure_is_right_and_most_of_the_rest_too() -> None:
    scores: dict[str, dict[str, Score]] = {}
    logs = 8
    for number in range(logs):
        judge(draw(np.random.default_rng([77, number]), 500), scores, f"drawn {number}")
    for role, least in (("user", 0.8), ("action", 0.6), ("reward", 0.6)):
        found = [score for kind, score in scores[role].items() if kind in ("path", "one step")]
        right, all_ = sum(s.right for s in found), sum(s.right + s.asked + s.wrong for s in found)
        assert sum(s.wrong for s in found) <= (1 - SURE) * logs, role
        assert right >= least * all_, role
