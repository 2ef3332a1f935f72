"""What tests of several rooms share: a small habit campaign, a finished run on it, and a home for compiled programs."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path

import hypothesis
import numpy as np
import pytest

import outlay
from outlay.core.cmdp import TabularCMDP
from outlay.core.transitions import Transitions

pytest_plugins = ("small_bundles",)

# The same examples on every run: a red build must be the change's fault.
# Machines have bad moments, so neither an example nor drawing one has a limit of time.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")

COUNTS = count()
# The same programs, compiled in two thirds of the time and as fast; the version of JAX in constraints.txt knows it.
QUICKLY_COMPILED = "--xla_cpu_use_fusion_emitters=false"
TRAIN = """
[train]
layers = [16, 8]
batch = 256
epochs = 1.0
min_steps = 2000
"""


def pytest_configure(config: pytest.Config) -> None:
    """Programs that JAX has compiled once are kept, so that every further training in these tests takes a second."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(config.rootpath / ".pytest_cache" / "jax")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    if f"jaxlib=={version('jaxlib')}" in (config.rootpath / "constraints.txt").read_text(encoding="utf-8").split():
        os.environ.setdefault("XLA_FLAGS", QUICKLY_COMPILED)
    # Tests run side by side: threads of several boosted trees would wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported here stays: looking through it for garbage, again and again, takes a quarter of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # extensions count what is left at the end
        gc.enable()


def _counting(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTLAY_LOOKS", str(folder / f"{next(COUNTS)}.sqlite"))
        yield


@pytest.fixture(scope="session")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("counts")


# Looks at the certify users are counted by machine: here by test, and never in the home folder. Files and folders that
# tests share are made in a count of their own.
@pytest.fixture(scope="session", autouse=True)
def _counted_by_session(counts: Path) -> Iterator[None]:
    yield from _counting(counts)


@pytest.fixture(scope="module", autouse=True)
def _counted_by_module(counts: Path) -> Iterator[None]:
    yield from _counting(counts)


@pytest.fixture(autouse=True)
def _counted_by_test(counts: Path) -> Iterator[None]:
    yield from _counting(counts)


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """A folder by name, filled by whoever asks first: processes that test side by side share it. So only read it."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    place = tmp_path_factory.getbasetemp() / "once" if alone else tmp_path_factory.getbasetemp().parent / "once"
    place.mkdir(exist_ok=True)

    def folder_of(name: str, fill: Callable[[Path], object]) -> Path:
        folder, full = place / name, place / f"{name}.full"
        with (place / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not full.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                full.touch()
        return folder

    return folder_of


@dataclass(frozen=True)
class Habit:
    """A habit campaign with a small `[train]`.

    Attributes:
        folder: what `outlay simulate` wrote.
        data: a DATA folder made from it; shared, so copy it before an evaluation.
        truth: the model that the log was drawn from.
    """

    folder: Path
    data: Path
    truth: TabularCMDP

    @property
    def campaign(self) -> Path:
        """The campaign file."""
        return self.folder / "campaign.toml"

    def changed(self, folder: Path, *changes: tuple[str, str]) -> Path:
        """A copy of the campaign file in `folder`, with texts replaced; it reads the same log."""
        text = self.campaign.read_text().replace('"log.parquet"', f'"{self.folder / "log.parquet"}"')
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        folder.mkdir(exist_ok=True)
        path = folder / "campaign.toml"
        path.write_text(text)
        return path


def _habit(once: Once, name: str, users: int) -> Habit:
    def fill(folder: Path) -> None:
        path = outlay.simulate("habit", folder / "campaign", users=users, seed=1)
        with path.open("a") as handle:
            handle.write(TRAIN)
        outlay.prepare(path, folder / "data")

    folder = once(name, fill)
    with np.load(folder / "campaign" / "truth.npz") as truth:
        arrays = {name: truth[name] for name in ("transition", "reward", "cost", "start")}
        model = TabularCMDP(**arrays, discount=float(truth["discount"]))
    return Habit(folder / "campaign", folder / "data", model)


@pytest.fixture(scope="session")
def habit(once: Once) -> Habit:
    return _habit(once, "habit", 6000)


@pytest.fixture(scope="session")
def few(once: Once) -> Habit:
    """The same of fewer users, for what is the same of any log."""
    return _habit(once, "few", 1000)


@pytest.fixture(scope="session")
def finished(habit: Habit, once: Once) -> Path:
    """A RUN folder with its DATA inside, trained, not evaluated; shared, so only read it."""
    return once("finished", lambda at: outlay.train(habit.campaign, at / "run", method="aim-greedy")) / "run"


@pytest.fixture(scope="session")
def counted(habit: Habit, once: Once) -> Path:
    """A RUN folder of every budget, from counted states in four folds; shared, so only read it."""
    return once("counted", lambda at: outlay.train(habit.campaign, at / "run")) / "run"


def _evaluated(run: Path, once: Once, name: str) -> Path:
    """A copy of a run, evaluated as the first look, whatever else was shared before."""

    def fill(folder: Path) -> None:
        shutil.copytree(run, folder / "run")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OUTLAY_LOOKS", str(folder / "looks.sqlite"))
            outlay.evaluate(folder / "run")

    return once(name, fill) / "run"


@pytest.fixture(scope="session")
def counted_and_evaluated(counted: Path, once: Once) -> Path:
    """A copy of `counted`, evaluated; shared, so only read it."""
    return _evaluated(counted, once, "counted and evaluated")


@pytest.fixture(scope="module")
def few_budgets() -> Iterator[int]:
    """How many budgets a curve has: fewer than by default, since each costs a certificate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outlay.evaluating.curve.BUDGETS", 11)
        yield 11


@pytest.fixture
def untested_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` leaves out the test of the state, for which it prepares the log: it blocks nothing, and takes longest."""
    monkeypatch.setattr("outlay.jobs.check.MOST_CELLS", 0)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of `finished` to do with as one likes."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def evaluated(finished: Path, once: Once) -> Path:
    """A copy of `finished`, evaluated; shared, so only read it."""
    return _evaluated(finished, once, "evaluated")


@pytest.fixture(scope="session")
def habit_data(habit: Habit) -> Transitions:
    return Transitions.open(habit.data)
