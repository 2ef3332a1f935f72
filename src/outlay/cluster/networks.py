"""Networks that are trained by several processes of a cluster, in one JAX process group.

    train_networks(spec, training, workers=4, resume=False, report=report)       # the last checkpoint: spec.folder

Every worker opens the same DATA folder and makes the same gradient steps, each on its share of every batch
(`nets/loop.py`). The first of them writes checkpoints. Where a worker is lost, all begin again from the last one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outlay.choosing.folds import seed_of, views
from outlay.cluster.ray_cluster import connected
from outlay.core.campaign import Campaign
from outlay.core.errors import LostWorkerError, OutlayError
from outlay.core.files import kind_of
from outlay.core.progress import Progress, silent
from outlay.core.transitions import Transitions
from outlay.learning import LEARNERS
from outlay.learning.checkpoint import PROGRESS
from outlay.learning.in_steps import SteppedLearner, Stepwise, train_through
from outlay.learning.learner import Task
from outlay.nets.loop import ProcessGroup
from outlay.training.pool import learners_of, task_of

FAILURES = 3  # times that all begin again from the last checkpoint when a worker is lost
EVERY_SECONDS = 2.0  # between two looks at how far they are
LOST = (
    "ActorDiedError",
    "RayActorError",
    "NodeDiedError",
    "OutOfMemoryError",
    "WorkerHealthCheckTimeoutError",
    "WorkerHealthCheckFailedError",
    "WorkerGroupStartupFailedError",
    "WorkerGroupStartupTimeoutError",
)


@dataclass(frozen=True)
class NetworkSpec:
    """What is trained; every worker can make it from this.

    Attributes:
        data: the DATA folder, which all machines see under this path.
        fields: the categorical fields that are learned from; None: all.
        campaign: limits and settings as used.
        oracle: as `train` takes it.
        seed: of the run.
        fold: its number.
        folds: how many there are.
        learner: which of the oracle's learners.
        folder: of the checkpoints, which all machines see under this path.
    """

    data: Path
    fields: tuple[str, ...] | None
    campaign: Campaign
    oracle: str
    seed: int
    fold: int
    folds: int
    learner: str
    folder: Path

    def open(self) -> tuple[Stepwise, Task]:
        """The training, ready to begin, and its task."""
        data = Transitions.open(self.data)
        if self.fields is not None:
            data = data.with_fields(list(self.fields))
        view, seed = views(data, self.folds)[self.fold], seed_of(self.seed, self.fold)
        task = task_of(view, self.campaign, learners_of(self.oracle), seed, self.folder, resume=False)
        task, learner = replace(task, learner=self.learner), LEARNERS[self.learner]
        assert isinstance(learner, SteppedLearner)  # no other trains elsewhere
        return learner.in_steps(task), task


def train_networks(spec: NetworkSpec, training: Stepwise, workers: int, resume: bool, report: Progress) -> None:
    """Train to the end; the last checkpoint is in the folder.

    Args:
        spec: what is trained.
        training: what `spec.open` makes of it.
        workers: processes, which share the processors of the cluster; each has a GPU where there are enough of them.
        resume: whether to go on from the checkpoint in the folder.
        report: told the share of the steps.

    Raises:
        OutlayError: if Ray is not installed or does not answer, there are more workers than processors, or a batch
            cannot be shared.
        LostWorkerError: if workers were lost again and again; the last checkpoint stays.
    """
    ProcessGroup(workers).share(training.train.batch // training.PARTS)
    steps = training.steps
    if not resume:
        shutil.rmtree(spec.folder, ignore_errors=True)
    with connected() as ray, tempfile.TemporaryDirectory(prefix="outlay-") as notes:
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cores = share_of(workers, [int(has.get("CPU", 0)) for has in machines])
        gpu = sum(has.get("GPU", 0) for has in machines) >= workers
        trainer = _trainer(spec, workers, cores, gpu=gpu, notes=notes)
        failed: list[BaseException] = []

        def fit() -> None:
            try:
                trainer.fit()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=fit, daemon=True)
        thread.start()
        report(0.0, f"networks: starting {workers} workers")
        while thread.is_alive():
            thread.join(EVERY_SECONDS)
            step = _step(spec.folder)
            report(step / steps, f"networks: {step} of {steps} steps, {workers} workers")
        if failed:
            raise _in_words(failed[0])


def share_of(workers: int, machines: list[int]) -> int:
    """The most processors that each worker can have, on machines with so many.

    Raises:
        OutlayError: if there are fewer processors than workers.
    """
    total = sum(machines)
    if total < workers:
        raise OutlayError(
            f"is {workers}, and the cluster has {total} processors.",
            where="workers",
            way_out="Give fewer workers, or add machines.",
        )
    return next(n for n in range(total // workers, 0, -1) if sum(has // n for has in machines) >= workers)


def _trainer(spec: NetworkSpec, workers: int, cores: int, *, gpu: bool, notes: str) -> Any:
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
        from ray.train.v2.jax import JaxConfig, JaxTrainer
    platform = {} if gpu else {"JAX_PLATFORMS": "cpu"}
    return JaxTrainer(
        _train,
        train_loop_config={"spec": spec, "cores": cores},
        jax_config=JaxConfig(use_gpu=True),  # with JAX_PLATFORMS it makes a group of processors as well
        scaling_config=ScalingConfig(
            num_workers=workers, use_gpu=gpu, resources_per_worker={"CPU": cores, **({"GPU": 1} if gpu else {})}
        ),
        run_config=RunConfig(
            storage_path=notes,
            failure_config=FailureConfig(max_failures=FAILURES),
            worker_runtime_env={"env_vars": platform},
        ),
    )


def _train(config: dict[str, Any]) -> None:
    """What every worker runs."""
    import jax
    from ray.train import get_context

    _keep_to(config["cores"], get_context().get_local_rank())
    spec: NetworkSpec = config["spec"]
    group = ProcessGroup(jax.process_count(), jax.process_index())
    resume = kind_of(spec.folder) == "checkpoint"
    training, task = spec.open()
    train_through(training, spec.folder, task.key, resume, silent, group)


def _keep_to(cores: int, place: int) -> None:
    """Use processors of its own: JAX takes all that a process may use."""
    if hasattr(os, "sched_setaffinity"):
        every = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, every[place * cores : (place + 1) * cores] or every)


def _step(folder: Path) -> int:
    try:
        return int(json.loads((folder / PROGRESS).read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError):
        return 0


def _in_words(error: BaseException) -> BaseException:
    """An error of a worker as ours."""
    for one in _causes(error):
        if isinstance(one, OutlayError):
            return one
    if any(type(one).__name__ in LOST for one in _causes(error)):
        return LostWorkerError(
            f"a worker of the cluster was lost {FAILURES + 1} times.",
            where="workers",
            way_out="Look at the cluster (ray status); then train again with --resume.",
        )
    return error


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it came of."""
    found: list[BaseException] = [error]
    for one in found:
        further = [getattr(one, name, None) for name in ("cause", "__cause__", "controller_failure")]
        further += list((getattr(one, "worker_failures", None) or {}).values())
        found += [each for each in further if isinstance(each, BaseException) and each not in found]
    return found


def elsewhere(
    data: Path, fields: list[str] | None, campaign: Campaign, oracle: str, seed: int, workers: int, resume: bool
) -> Callable[[int, int, str, Stepwise, Path, Progress], None]:
    """What `every_budget.learn` takes to train its networks on a cluster; arguments as those of `NetworkSpec`."""

    def train(fold: int, folds: int, learner: str, training: Stepwise, folder: Path, report: Progress) -> None:
        spec = NetworkSpec(
            data.absolute(),
            None if fields is None else tuple(fields),
            campaign,
            oracle,
            seed,
            fold,
            folds,
            learner,
            folder.absolute(),
        )
        train_networks(spec, training, workers, resume, report)

    return train
