"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the source: one file and one row each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from telling import missing

SOURCE = Path(__file__).parents[1] / "src" / "outlay"

RULE = '''"""Latest: the policy that was learned last."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from outlay.core.mixture import Mixture
from outlay.learning.mixing import rule

FINAL_WEIGHTS: rule.FinalWeights = "one policy"


class LatestState(NamedTuple):
    """The latest policy."""

    constraints: rule.Constraints
    member: Any
    measurement: rule.Floats | None


def init(constraints: rule.Constraints) -> LatestState:
    """Return the state before the first policy."""
    return LatestState(constraints, None, None)


def step(state: LatestState, member: Any, measurement: ArrayLike) -> LatestState:
    """Keep the new policy."""
    return LatestState(state.constraints, member, rule.checked(state.constraints, measurement))


def mixture(state: LatestState) -> Mixture[Any]:
    """Return the latest policy, with weight 1."""
    if state.measurement is None:
        raise rule.no_policy_yet()
    return Mixture((state.member,), np.ones(1), state.measurement[None])


def members(state: LatestState) -> tuple[Any, ...]:
    """Return the latest policy."""
    return () if state.measurement is None else (state.member,)
'''

CAMPAIGN = '''"""The toy campaign: the people of *habit* and another limit."""

from __future__ import annotations

from dataclasses import replace

from outlay.simulators import habit
from outlay.simulators.simulator import Simulator


def simulator() -> Simulator:
    """Return the campaign."""
    return replace(habit.simulator(), name="toy", at_most=2.5)
'''

ESTIMATOR = '''"""Toy: what is logged per user on the first day, whatever the policy does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.estimate import Target
from outlay.estimators.joint import Joint
from outlay.estimators.panel import Panel


def estimate(panel: Panel, policy: NDArray[Any] | None) -> Joint:
    """Return `reward@1` and the costs; `policy` is as `Panel.follow` takes it."""
    panel.follow(policy)
    first = panel.outcome[panel.first]
    value, mass = first.mean(axis=0), np.ones_like(first)
    targets = tuple(str(Target(name, 1)) for name in panel.names)
    return Joint(targets, value, first - value, mass, (None,) * len(targets))
'''

CHECK = '''"""Toy: is the log long enough? One of a week at least is wanted."""

from __future__ import annotations

from outlay.core.reasons import Reason, ReasonKind
from outlay.evaluating.check_result import Against, CheckResult, Judged


def find(judged: Judged) -> CheckResult | None:
    """Return whether users are seen on enough days."""
    days = int(judged.measure.panel.day.max()) + 1
    words = f"users are seen on {days} days, and 99 are wanted"
    if days >= 99:
        return CheckResult(ok=True, words=words)
    reason = Reason(ReasonKind.DOUBTED, {"found": words})
    return CheckResult(ok=False, words=words, reason=reason, against=(Against.CERTIFICATE, Against.FITTED))
'''

ALLOWANCE = '''"""Toy: every figure may be off by a tenth of itself, and more where users are few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outlay.core.reasons import Reason, ReasonKind
from outlay.core.estimate import Target
from outlay.estimators.panel import Panel


@dataclass(frozen=True)
class Tenth:
    """The share of a figure that it may be off by."""

    share: float

    def error(self, target: Target, value: float) -> float:
        """Return what it adds to a standard error."""
        return self.share * abs(value)

    def ends(
        self, target: Target, interval: tuple[float, float, float], confidence: float, *, gain: bool
    ) -> tuple[float, float]:
        """Return the interval, wider on both sides."""
        value, low, high = interval
        return float(low - self.error(target, value)), float(high + self.error(target, value))

    @property
    def reason(self) -> Reason:
        """Return why a limit is not kept."""
        return Reason(ReasonKind.DOUBTED, {"found": "a tenth may be missing"})


def measured(panel: Panel) -> Tenth:
    """Return the allowance of these users."""
    return Tenth(0.1 + 1 / np.sqrt(panel.num_users))
'''

LEARNER = '''"""Means: what each action has brought on its day, whoever got it. Q(s, a) = E[x | a]."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from outlay.core.arrays import preferring_network
from outlay.core.progress import Progress
from outlay.learning.learner import BestResponses, Task
from outlay.learning.multipliers import Answers, answered
from outlay.learning.outcomes import outcomes

WITHOUT_LUCK = True


def learn(task: Task, report: Progress) -> BestResponses:
    """Return the best responses to means."""
    report(0.0, "means")
    data, actions = task.data, np.arange(task.data.num_actions)
    given, outcome = data.action[task.rows], outcomes(data, task.rows)
    q = np.array([outcome[given == action].mean(axis=0) for action in actions])
    empty = preferring_network(actions, data.schema.sizes, data.number_columns.shape[1], q.shape[1])
    network = replace(empty, head=(empty.head[0], q.reshape(1, -1).astype(np.float32)))
    grid = answered(task.coords, task.bound, task.campaign.money, q[None], np.ones((1, len(q)), np.bool_))
    return BestResponses.of_one_q(task.learner, Answers(network, *grid), task.coords, "Means answer")
'''

ADDED = {
    "learning/mixing/toy.py": RULE,
    "learning/means.py": LEARNER,
    "simulators/toy.py": CAMPAIGN,
    "estimators/toy.py": ESTIMATOR,
    "evaluating/long_enough.py": CHECK,
    "estimators/tenth.py": ALLOWANCE,
}
ROWS = {
    "learning/mixing/__init__.py": (
        '    "lp": "outlay.learning.mixing.lp",\n',
        '    "toy": "outlay.learning.mixing.toy",\n',
    ),
    "learning/__init__.py": (
        '        "trees": "outlay.learning.trees",\n',
        '        "means": "outlay.learning.means",\n',
    ),
    "simulators/__init__.py": (
        '    "habit": "outlay.simulators.habit:simulator",\n',
        '    "toy": "outlay.simulators.toy:simulator",\n',
    ),
    "choosing/estimators.py": (
        "ESTIMATORS: dict[str, Estimator] = {\n",
        """    "toy": Estimator(
        title="toy",
        note="the first day as it is logged",
        assumes="that policies change nothing",
        estimate=lambda question: question.each_part(
            lambda part: toy.estimate(question.measure.panel, part)
        ),
        needs_propensities=False,
        totals_only=True,
    ),
""",
    ),
    "evaluating/checks.py": (
        "CHECKS: dict[str, Check] = {\n",
        """    "length": Check(
        question="Is the log long enough?",
        consequence="so nothing is certified",
        find=long_enough.find,
    ),
""",
    ),
    "choosing/allowances.py": (
        "ALLOWANCES: dict[str, Kind] = {\n",
        """    "tenth": Kind(tenth.Tenth, lambda at: tenth.measured(at.panel)),
""",
    ),
}
IMPORTS = {
    "choosing/estimators.py": "from outlay.estimators import toy\n",
    "evaluating/checks.py": "from outlay.evaluating import long_enough\n",
    "choosing/allowances.py": "from outlay.estimators import tenth\n",
}

USE = """
import json, sys
from pathlib import Path
import outlay
from outlay.core.errors import OutlayError
from outlay.learning.mixing import RULES, rule

path = outlay.simulate("toy", "campaign", users=3000, seed=1)
path.write_text(path.read_text() + '''
[train]
layers = [16, 8]
batch = 256
epochs = 1.0
min_steps = 500
''')
data = outlay.prepare(path, "data")
run = outlay.train("data", "run", method="toy")
learned = outlay.train("data", "learned", oracle="means", folds=1)
try:
    outlay.train("data", "other", method="unknown")
except OutlayError as error:
    refused = str(error)
evaluation = outlay.evaluate("run").to_dict()
report = outlay.report("run").read_text()
print(json.dumps({
    "text": path.read_text(),
    "contract": isinstance(RULES["toy"], rule.Rule),
    "method": run.manifest["method"],
    "members": len(run.manifest["members"]),
    "learner": learned.manifest["oracle"],
    "learned": learned.manifest["members"],
    "notes": learned.manifest["notes"],
    "spent": outlay.evaluate("learned").to_dict()["certificate"] is not None,
    "refused": refused,
    "estimates": [e for e in evaluation["estimates"] if e["estimator"] == "toy"],
    "title": "that policies change nothing" in report,
    "checks": evaluation["diagnostics"]["checks"],
    "kind": evaluation["verdict"]["kind"],
    "asked": "Is the log long enough?" in report,
    "wide": [e for e in evaluation["estimates"] if e["estimator"] == "fqe"],
    "bounds": [(line["value"], line["bound"]) for line in evaluation["certificate"]["budgets"]],
}))
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with the toys."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(SOURCE, folder / "outlay", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in ADDED.items():
        (folder / "outlay" / name).write_text(text, encoding="utf-8")
    for name, (above, row) in ROWS.items():
        file = folder / "outlay" / name
        text = file.read_text(encoding="utf-8")
        assert text.count(above) == 1
        file.write_text(text.replace(above, above + row), encoding="utf-8")
    for name, line in IMPORTS.items():
        file = folder / "outlay" / name
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("\nfrom outlay.", f"\n{line}from outlay.", 1), encoding="utf-8")
    return folder


def python(extended: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(extended)}
    found = subprocess.run(
        [sys.executable, *arguments], cwd=extended, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def used(extended: Path) -> Any:
    """What a user gets who simulates the toy campaign, and trains and evaluates with the other toys."""
    return json.loads(python(extended, "-c", USE))


@pytest.mark.slow
def test_a_campaign_is_simulated_and_prepared(used: Any) -> None:
    assert "Made by: outlay simulate toy" in used["text"]
    assert "at_most = 2.5" in used["text"]


@pytest.mark.slow
def test_a_mixing_rule_trains(used: Any) -> None:
    assert used["contract"]
    assert (used["method"], used["members"]) == ("toy", 1)
    assert {"frontier", "aim-greedy", "toy", "two-stage"} <= set(
        used["refused"].split("Known: ")[1].split(".")[0].split(", ")
    )


@pytest.mark.slow
def test_a_learner_trains_for_every_budget_and_is_evaluated(used: Any) -> None:
    """What it serves is mixed from its policies: answers to prices, each with its own estimate and a measured value."""
    assert used["learner"] == "means"
    assert any(note.startswith("Means answer") for note in used["notes"])
    answers = [member for member in used["learned"] if member["number"] is not None]
    assert answers
    assert all(len(member["critic"]) == len(member["fitted"]) == 2 for member in answers)
    assert used["spent"]


@pytest.mark.slow
def test_an_estimator_stands_in_the_evaluation_and_in_the_report(used: Any) -> None:
    assert {e["target"] for e in used["estimates"]} == {"reward@1", "coupon_cost@1"}
    assert all(e["low"] < e["value"] < e["high"] for e in used["estimates"])
    assert used["title"]


@pytest.mark.slow
def test_a_check_that_was_not_passed_keeps_the_certificate_back_and_stands_in_the_report(used: Any) -> None:
    found = used["checks"]["length"]
    assert (found["ok"], found["reason"]["kind"]) == (False, "doubted")
    assert used["kind"] == "refused"
    assert used["asked"]
    (told,) = {e["caution"]["words"] for e in used["wide"]}
    assert not missing(told, "7 days", "99")
    assert used["bounds"] == [[None, None]]


@pytest.mark.slow
def test_an_allowance_widens_every_interval(used: Any) -> None:
    assert all(e["high"] - e["low"] > 0.2 * abs(e["value"]) for e in used["wide"])


@pytest.mark.parametrize(("command", "name"), [("simulate", "toy"), ("train", "toy"), ("train", "means")])
def test_the_command_line_offers_them(command: str, name: str, extended: Path) -> None:
    assert name in python(extended, "-c", "from outlay.cli.main import run; run()", command, "--help")
