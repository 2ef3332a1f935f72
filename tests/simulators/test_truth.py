"""The truth beside a campaign: whose it is, and when it is not told."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import outlay
from conftest import Habit
from outlay.core.files import MANIFEST
from outlay.core.transitions import Transitions
from outlay.simulators.truth import Truth, mixed


def beside(folder: Path, data: Transitions) -> Truth | None:
    return Truth.beside(outlay.Campaign.load(folder / "campaign.toml"), data)


@pytest.fixture
def folder(habit: Habit, tmp_path: Path) -> Path:
    shutil.copytree(habit.folder, tmp_path / "campaign")
    return tmp_path / "campaign"


def test_a_simulated_campaign_has_its_truth_and_its_people_beside_it(habit: Habit, habit_data: Transitions) -> None:
    truth = beside(habit.folder, habit_data)
    assert truth is not None
    assert truth.people is not None
    np.testing.assert_allclose(truth.people.cmdp().transition, truth.model.transition, atol=1e-12)
    assert truth.people.coupons.tolist() == habit_data.actions.tolist()
    codes, numbers = truth.features(np.array([3, 3]))
    assert codes.shape == (2, 2)
    assert numbers.shape == (2, 0)
    assert (codes[0] == truth.codes[3]).all()


def test_only_the_actions_of_the_log_are_told(tmp_path: Path) -> None:
    path = outlay.simulate("habit", tmp_path / "campaign", users=300, held=(1, 3))
    outlay.prepare(path, tmp_path / "data")
    truth = beside(path.parent, Transitions.open(tmp_path / "data"))
    assert truth is not None
    assert truth.people is not None
    assert truth.people.coupons.tolist() == [1, 3]
    assert truth.model.num_actions == 2


def test_people_are_those_of_the_model_or_unknown(folder: Path, habit_data: Transitions) -> None:
    with np.load(folder / "truth.npz") as file:
        arrays = dict(file)
    np.savez(folder / "truth.npz", **{**arrays, "reward": 0.9 * arrays["reward"]})
    changed = beside(folder, habit_data)
    assert changed is not None
    assert changed.people is None
    np.savez(folder / "truth.npz", **arrays)
    assert getattr(beside(folder, habit_data), "people", None) is not None
    (folder / MANIFEST).unlink()
    assert getattr(beside(folder, habit_data), "people", "no truth") is None


def test_without_its_files_there_is_no_truth(folder: Path, habit_data: Transitions) -> None:
    (folder / "states.parquet").unlink()
    assert beside(folder, habit_data) is None


def test_a_mixture_is_worth_the_mean_of_its_members() -> None:
    assert mixed([{"reward": 1.0}, {"reward": 3.0}], np.array([0.25, 0.75])) == {"reward": 2.5}
