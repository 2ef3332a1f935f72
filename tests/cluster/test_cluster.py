"""Work on a local Ray cluster of two workers: the same results as one process, and workers that are lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import pytest

import outlay
from outlay.cluster.networks import NetworkSpec, share_of, train_networks
from outlay.cluster.ray_cluster import on_cluster
from outlay.core.errors import LogError, LostWorkerError, OutlayError
from outlay.core.files import kind_of
from outlay.core.progress import silent
from outlay.core.transitions import Transitions
from outlay.jobs import score as score_module
from outlay.learning import checkpoint
from outlay.learning.in_steps import train_through
from patience import PATIENCE
from scored_rows import make_bundle, make_rows

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
Test = TypeVar("Test", bound=Callable[..., None])
SMALL = "\n[train]\nlayers = [16]\nembedding = 4\nmin_steps = 300\n"


def on_two_processors(test: Test) -> Test:
    """A slow test that needs a cluster."""
    marked: Test = pytest.mark.slow(pytest.mark.usefixtures("_cluster")(test))
    return marked


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()


@on_two_processors
def test_results_come_in_the_order_of_the_items() -> None:
    def slow_first(item: int) -> int:
        time.sleep(0.3 if item == 0 else 0)
        return item * item

    assert list(on_cluster(slow_first, range(20))) == [item * item for item in range(20)]


@on_two_processors
def test_an_error_of_ours_comes_back_as_it_is() -> None:
    def wrong(item: int) -> int:
        if item == 3:
            raise LogError("has no user.", file="rows.parquet", where="row 3", way_out="Fill it.")
        return item

    with pytest.raises(LogError, match=r"rows\.parquet, row 3: .*user") as caught:
        list(on_cluster(wrong, range(9)))
    assert caught.value.where == "row 3"


@on_two_processors
def test_the_shard_of_a_lost_worker_is_done_again(tmp_path: Path) -> None:
    def dies_once(item: int) -> int:
        if item == 1 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    assert list(on_cluster(dies_once, range(4))) == [0, 1, 2, 3]
    assert (tmp_path / "died").exists()


@on_two_processors
def test_a_shard_that_always_loses_its_worker_is_an_error() -> None:
    def dies(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(LostWorkerError, match="was lost 4 times"):
        list(on_cluster(dies, [0]))


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of rich states, and its DATA."""
    folder = tmp_path_factory.mktemp("city")
    campaign = outlay.simulate("city", folder / "log", users=400)
    with campaign.open("a") as handle:
        handle.write(SMALL)
    outlay.prepare(campaign, folder / "data")
    return folder


@on_two_processors
def test_prepare_makes_the_same_data(city: Path, tmp_path: Path) -> None:
    found = outlay.prepare(city / "log" / "campaign.toml", tmp_path / "data", cluster=True)
    assert found.manifest.data_hash == Transitions.open(city / "data").manifest.data_hash


@on_two_processors
def test_score_makes_the_same_decisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_module, "SHARD_ROWS", 70)
    make_bundle(tmp_path / "bundle")
    pq.write_table(make_rows(300), tmp_path / "rows.parquet")
    for name, cluster in (("one", False), ("cluster", True)):
        outlay.score(tmp_path / "bundle", tmp_path / "rows.parquet", tmp_path / f"{name}.parquet", cluster=cluster)
    assert pq.read_table(tmp_path / "cluster.parquet").equals(pq.read_table(tmp_path / "one.parquet"))


def spec_of(city: Path, folder: Path) -> NetworkSpec:
    campaign = Transitions.open(city / "data").campaign
    return NetworkSpec(city / "data", None, campaign, "orthogonal", 1, 0, 1, "orthogonal", folder)


def losses(folder: Path, spec: NetworkSpec) -> list[float]:
    training, task = spec.open()
    found: list[float] = training.load(folder, task.key).losses
    return found


@on_two_processors
def test_training_goes_on_from_the_last_checkpoint_when_a_worker_is_killed(city: Path, tmp_path: Path) -> None:
    """Two workers make the steps that one process makes."""
    alone, together = spec_of(city, tmp_path / "alone"), spec_of(city, tmp_path / "together")
    training, task = alone.open()
    train_through(training, alone.folder, task.key, resume=False, report=silent)
    # A checkpoint after the first block, as of a run that was cut off.
    with pytest.raises(KeyboardInterrupt):
        _cut_off_after_a_block(together)
    killed: list[int] = []
    killer = Thread(target=_kill_a_worker, args=(killed,))
    killer.start()
    train_networks(together, together.open()[0], 2, resume=True, report=silent)
    killer.join()
    assert len(killed) == 1
    np.testing.assert_allclose(losses(together.folder, together), losses(alone.folder, alone), rtol=2e-3)
    assert kind_of(together.folder) == "checkpoint"


def _cut_off_after_a_block(spec: NetworkSpec) -> None:
    training, task = spec.open()
    every = checkpoint.EVERY_SECONDS
    checkpoint.EVERY_SECONDS = 0.0
    steps: list[float] = []

    def report(share: float, _text: str) -> None:
        steps.append(share)
        if len(steps) == 2:  # the first block is saved by now
            raise KeyboardInterrupt

    try:
        train_through(training, spec.folder, task.key, resume=False, report=report)
    finally:
        checkpoint.EVERY_SECONDS = every


def _kill_a_worker(killed: list[int]) -> None:
    """Kill the first process that trains."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not killed:
        time.sleep(0.05)
        for process in psutil.process_iter(["cmdline"]):
            if "RayTrainWorker" in " ".join(process.info["cmdline"] or []):
                time.sleep(2)  # it is at work
                process.kill()
                killed.append(process.pid)
                break


@on_two_processors
def test_a_run_of_workers_is_a_run(city: Path, tmp_path: Path) -> None:
    run = outlay.train(city / "data", tmp_path / "run", oracle="bcq", folds=1, workers=2)
    alone = outlay.train(city / "data", tmp_path / "alone", oracle="bcq", folds=1)
    assert run.manifest["steps"] == alone.manifest["steps"]
    wanted, found = ([m["fitted"] for m in each.manifest["members"]] for each in (alone, run))
    assert np.allclose(np.mean(found, axis=0), np.mean(wanted, axis=0), rtol=0.2)


@on_two_processors
@pytest.mark.parametrize(
    ("workers", "options", "message"),
    [
        (3, {"oracle": "orthogonal"}, r"\b256 rows .* 3 workers"),
        (4, {"oracle": "orthogonal"}, r"workers: is 4, .*\b2 processors"),
        (2, {"method": "aim-greedy"}, r"workers: is 2, .*aim-greedy"),
        (0, {}, r"workers: is 0; .*\b1 or more"),
    ],
)
def test_wrong_numbers_of_workers(
    city: Path, tmp_path: Path, workers: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OutlayError, match=message):
        outlay.train(city / "data", tmp_path / "run", workers=workers, **options)
    assert not (tmp_path / "run").exists()


def test_workers_share_the_processors_of_machines_equally() -> None:
    assert share_of(2, [2]) == 1
    assert share_of(2, [16, 16]) == 16
    assert share_of(3, [16, 16]) == 8
    assert share_of(2, [16, 8]) == 8
    with pytest.raises(OutlayError):
        share_of(3, [2])
