"""Learners that train in parallel: results come back in the given order, and a failure of one stops the others."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outlay.core.errors import CampaignError
from outlay.core.progress import silent
from outlay.training import best_responses
from outlay.training.best_responses import learn_all
from patience import PATIENCE


def _training(folder: Path) -> Any:
    return SimpleNamespace(folder=folder)


def test_learners_come_back_in_order_and_the_share_done_never_falls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(learner: str, _training: Any, _folder: Path, report: Any) -> str:
        for step in range(5):
            time.sleep(0.02 if learner == "slow" else 0.001)
            report((step + 1) / 5, learner)
        return learner

    monkeypatch.setattr(best_responses, "_learn", learn)
    shares: list[float] = []
    found: list[Any] = [*learn_all(("slow", "quick"), _training(tmp_path / "c"), lambda share, _: shares.append(share))]
    assert found == ["slow", "quick"]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("order", [("broken", "patient"), ("patient", "broken")])
def test_an_error_of_one_learner_ends_the_others_and_is_the_one_that_is_raised(
    order: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, finished = list[str](), list[str]()

    def learn(learner: str, _training: Any, _folder: Path, report: Any) -> str:
        if learner == "broken":
            raise CampaignError("is empty.", where="[train] layers")
        began = time.monotonic()
        try:
            while time.monotonic() - began < PATIENCE:
                report(0.5, "still learning")
                time.sleep(0.005)
            finished.append(learner)
        finally:
            ended.append(learner)
        return learner

    monkeypatch.setattr(best_responses, "_learn", learn)
    with pytest.raises(CampaignError, match="is empty"):
        learn_all(order, _training(tmp_path / "c"), silent)
    assert ended == ["patient"]
    assert not finished


def test_what_stops_the_report_stops_every_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(learner: str, _training: Any, _folder: Path, report: Any) -> str:
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE:
            report(0.5, learner)
            time.sleep(0.005)
        finished.append(learner)
        return learner

    def interrupted(_share: float, _text: str) -> None:
        raise KeyboardInterrupt

    finished: list[str] = []
    monkeypatch.setattr(best_responses, "_learn", learn)
    with pytest.raises(KeyboardInterrupt):
        learn_all(("one", "other"), _training(tmp_path / "c"), interrupted)
    assert not finished
