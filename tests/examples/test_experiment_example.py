"""`examples/experiment.py` in small: a test behind a real server, whose interval covers the truth."""

from __future__ import annotations

import datetime
import importlib.util
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Habit
from outlay.core.cmdp import TabularCMDP
from outlay.experiments.design import Experiment
from outlay.experiments.results import Analysis, ArmComparison
from outlay.experiments.split import entries
from outlay.jobs.analyze_experiment import analyze_experiment
from outlay.jobs.plan_experiment import plan_experiment
from outlay.ops.tabular import totals
from outlay.serve.export.export import export_log

ROOT = Path(__file__).parents[2]
USERS, DAYS = 1_200, 3
LENGTHS = (4.0, 20.0, 100.0, 500.0)  # seconds of a rehearsed day: each is tried where all before it were too short
SURE = 0.999  # confidence: other machines train other bundles


def example() -> Any:
    """The script as a module; examples/ is no package."""
    spec = importlib.util.spec_from_file_location("experiment_example", ROOT / "examples" / "experiment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = example()


@dataclass(frozen=True)
class Rehearsal:
    """What a short test leaves: who was where on each day, and what the analysis and the model say."""

    experiment: Experiment
    arms: list[list[str]]
    result: Analysis
    truth: dict[str, Any]
    said: str

    def against(self, arm: str) -> ArmComparison:
        """An arm against the control."""
        return next(comparison for comparison in self.result.comparisons if comparison.arm == arm)


@pytest.fixture(scope="module")
def rehearsal(habit: Habit, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    folder = tmp_path_factory.mktemp("rehearsal")
    start = datetime.datetime.now(datetime.UTC).date()
    design = {
        "experiment": {"name": "small", "start": start, "days": 7, "confidence": SURE},
        "ramp": [{"day": 0, "coverage": 0.3}, {"day": 1, "coverage": 1.0}],
        "arm": [
            {"name": "least", "kind": "constant", "action": 1.0, "share": 0.4, "budget": 20_000},
            {"name": "new", "kind": "bundle", "bundle": str(finished / "bundle"), "share": 0.4, "budget": 20_000},
            {"name": "even", "kind": "random", "share": 0.1, "budget": 20_000},
        ],
    }
    plan_experiment(design, habit.campaign, folder / "experiment.toml", users=USERS)
    experiment = Experiment.load(folder / "experiment.toml")
    for seconds in LENGTHS:
        ledger = f"sqlite:///{folder / f'{seconds:g}.db'}"
        people, arms, said = script.People(USERS, seed=1), [], folder / f"{seconds:g}.txt"
        command = [
            sys.executable,
            "-c",
            "from outlay.cli.main import run; run()",
            "serve",
            finished / "bundle",
            "--experiment",
            folder / "experiment.toml",
            "--rehearse",
            str(seconds),
            "--ledger",
            ledger,
            "--cap",
            "100000",
            "--port",
            "0",
        ]
        try:
            with script.serving(command, said) as http:
                for _ in script.rehearse(http, people, start, DAYS):
                    arms.append(people.arms.tolist())
        except RuntimeError:  # a day was too short for this machine
            if seconds == LENGTHS[-1]:
                raise
        else:
            break
    export_log(ledger, folder / "closed", all_days=True)
    result = analyze_experiment(folder / "closed", experiment, day=DAYS)
    truth = script.truths(experiment, finished / "bundle", habit.folder / "states.parquet", days=DAYS)
    return Rehearsal(experiment, arms, result, truth, said.read_text())


@pytest.mark.slow
def test_users_land_where_assign_says(rehearsal: Rehearsal) -> None:
    users, names = [f"fresh-{i}" for i in range(USERS)], [arm.name for arm in rehearsal.experiment.arms]
    drawn = list(zip(*(part.tolist() for part in entries(rehearsal.experiment, users)), strict=True))
    for day, served in enumerate(rehearsal.arms):
        wanted = [names[arm] if 0 <= since <= day else "policy" for arm, since in drawn]
        assert served == wanted
    assert {*rehearsal.arms[0]} == {"policy", *names}


@pytest.mark.slow
def test_the_analysis_counts_the_users_of_the_test_only(rehearsal: Rehearsal) -> None:
    served = Counter(rehearsal.arms[-1])
    assert {arm.name: arm.users for arm in rehearsal.result.arms} == {
        arm.name: served[arm.name] for arm in rehearsal.experiment.arms
    }
    assert not rehearsal.against("new").blocked


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["new", "even"])
@pytest.mark.parametrize(("place", "metric"), [(0, "active"), (1, "cost")])
def test_the_interval_covers_the_truth_and_says_something(
    rehearsal: Rehearsal, arm: str, place: int, metric: str
) -> None:
    lift = rehearsal.against(arm).lift(metric)
    assert lift is not None
    truth = rehearsal.truth[arm][place] - rehearsal.truth["least"][place]
    assert lift.absolute.low <= truth <= lift.absolute.high
    assert lift.absolute.low > 0  # both give more than 1 yuan, and win by it


@pytest.mark.slow
def test_the_rehearsal_is_announced(rehearsal: Rehearsal) -> None:
    assert "rehears" in rehearsal.said.lower()
    assert "Traceback" not in rehearsal.said


@pytest.mark.slow
def test_the_truth_is_that_of_many_people_on_a_ramp(rehearsal: Rehearsal, finished: Path, habit: Habit) -> None:
    """Drawn longhand: who comes late was in the hands of the bundle outside, and keeps its member in its own arm."""
    rng, people = np.random.default_rng(0), script.habit.model()
    members = script.members(finished / "bundle", habit.folder / "states.parquet")
    policies = np.stack([policy.argmax(axis=1) for _, policy in members])
    shares = [share for share, _ in members]
    n = 200_000
    state, since = people.newcomers(rng, n), np.where(rng.random(n) < 0.3, 0, 1)
    member = rng.choice(len(shares), n, p=shares)
    for arm in ("new", "least"):
        at, found = state, np.zeros((n, 2))
        for day in range(DAYS):
            mine = policies[member, at]
            action = np.where((since <= day) & (arm == "least"), 0, mine)
            active, at = people.day(rng, at, action)
            found += ((since <= day) * active)[:, None] * np.stack([np.ones(n), script.habit.COUPONS[action]], axis=1)
        error = found.std(axis=0) / np.sqrt(n)
        assert np.abs(found.mean(axis=0) - rehearsal.truth[arm]) / error == pytest.approx(0, abs=4)


@pytest.mark.slow
def test_people_are_the_model(habit: Habit) -> None:
    truth: TabularCMDP = script.habit.model().cmdp()
    assert totals(truth, np.zeros(10, np.intp), DAYS) == pytest.approx(totals(habit.truth, np.zeros(10, np.intp), DAYS))
