"""Several seeds of one training: the runs that `train` makes one by one, from one DATA folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import outlay
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import kind_of
from outlay.jobs import train_seeds as module

Seeds = tuple[Path, list[Run], list[tuple[float, str]]]
OPTIONS: dict[str, Any] = {"oracle": "trees", "folds": 1}  # the quickest


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("city")
    return outlay.simulate("city", folder / "log", users=150)


def fitted(run: Run) -> list[list[float]]:
    """The values of all policies of a run, since its mixture may hold a constant action alone."""
    found: list[list[float]] = StoredFrontier.read(run.folder / "frontier").points.value.tolist()
    return found


@pytest.fixture(scope="module")
def seeds(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> Seeds:
    """A folder of seeds 4 and 5, the runs as they were returned, and what was told meanwhile; shared: only read it."""
    folder, told = tmp_path_factory.mktemp("seeds") / "runs", list[tuple[float, str]]()
    runs = outlay.train_seeds(
        campaign, folder, seeds=2, seed=4, progress=lambda *report: told.append(report), **OPTIONS
    )
    return folder, runs, told


@pytest.mark.slow
def test_the_runs_are_those_of_train(seeds: Seeds, tmp_path: Path) -> None:
    folder, runs, told = seeds
    assert [run.folder.name for run in runs] == ["seed-4", "seed-5"]
    assert {run.manifest["data"] for run in runs} == {str(folder / "data")}
    alone = outlay.train(folder / "data", tmp_path / "alone", seed=5, **OPTIONS)
    assert fitted(runs[1]) == fitted(alone)
    assert [run.manifest["seed"] for run in (*runs, alone)] == [4, 5, 5]  # boosted trees are alike with any seed
    assert told[-1][0] == pytest.approx(1.0)


@pytest.mark.slow
def test_it_goes_on_with_the_seeds_that_are_left(
    seeds: Seeds, campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 4 is there: seed 5 is cut off, and made by the same call again."""
    runs = Path(shutil.copytree(seeds[0], tmp_path / "runs"))
    shutil.rmtree(runs / "seed-5")
    monkeypatch.setattr(module, "_room", lambda _: 1)
    train_one, trained = module._train_one, list[int]()

    def until_cut_off(data: Path, out: Path, options: dict[str, Any], number: int, report: Any = None) -> int:
        trained.append(number)
        if len(trained) == 1:
            raise KeyboardInterrupt
        return train_one(data, out, options, number, report)

    monkeypatch.setattr(module, "_train_one", until_cut_off)
    with pytest.raises(KeyboardInterrupt):
        outlay.train_seeds(campaign, runs, seeds=2, seed=4, **OPTIONS)
    made = outlay.train_seeds(campaign, runs, seeds=2, seed=4, **OPTIONS)
    assert trained == [5, 5]
    assert [kind_of(run.folder) for run in made] == ["run", "run"]


@pytest.mark.slow
def test_seeds_of_another_training_are_not_mixed_in(seeds: Seeds, campaign: Path, tmp_path: Path) -> None:
    shutil.copytree(seeds[0], tmp_path / "runs")
    with pytest.raises(FolderError, match=r"seeds .*trained otherwise"):
        outlay.train_seeds(campaign, tmp_path / "runs", seeds=3, seed=4, oracle="orthogonal", folds=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("notes")
    with pytest.raises(FolderError, match="outlay did not write it"):
        outlay.train_seeds(campaign, tmp_path / "mine", seeds=2, **OPTIONS)
    with pytest.raises(OutlayError, match="seeds: is 0"):
        outlay.train_seeds(campaign, tmp_path / "none", seeds=0, **OPTIONS)


def test_as_many_are_trained_at_once_as_there_is_memory_for(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = outlay.prepare(campaign, tmp_path / "data")
    for free, at_once in ((1e9, 1), (3.5e9, 2), (16e9, 10)):
        monkeypatch.setattr(module, "_free_memory", lambda free=free: free)
        assert module._room(data) == at_once
