"""The bias of fitted means, as paths of the log tell it: none where states are enough, the true one where they are not.

World: P(active) = 0.3 + 0.3·coupon − 0.25·fatigue. Fatigue is 1 after a coupon on the day before. The log gives the
coupon to half the users by chance. Where fatigue is in the state, the state is enough.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outlay
from outlay.choosing.measure import Measure
from outlay.core.transitions import EVERYONE, Transitions
from outlay.estimators import path_bias
from outlay.estimators.certificate import BudgetBound, Certificate
from outlay.estimators.path_bias import OutcomeBias, PathBias

CAMPAIGN = """[campaign]
name = "tired"
unit = "yuan"
discount = 0.8
none = 0.0
[log]
source = "log.parquet"
user = "user_id"
time = "day"
action = "coupon"
actions = [0.0, 1.0]
reward = "active"
propensity = "p"
[log.features]
categorical = ["mood"]
[[budget]]
name = "cost"
cost = "cost"
at_most = 0.9
per = "decision"
"""


def log(folder: Path, *, told: bool, users: int, seed: int, days: int = 12) -> Transitions:
    """A prepared log; `told` puts fatigue into the state."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    tired, parts = np.zeros(users), []
    for day in range(days):
        coupon = rng.integers(2, size=users)
        active = (rng.random(users) < 0.3 + 0.3 * coupon - 0.25 * tired).astype(float)
        mood = tired.astype(int) if told else rng.integers(2, size=users)
        columns = {"mood": mood, "coupon": coupon.astype(float), "active": active, "cost": coupon * active}
        own = {"user_id": np.arange(users), "day": np.full(users, day), "p": np.full(users, 0.5)}
        parts.append(pa.table(own | columns))
        tired = coupon.astype(float)
    pq.write_table(pa.concat_tables(parts), folder / "log.parquet")
    (folder / "campaign.toml").write_text(CAMPAIGN)
    return outlay.prepare(folder / "campaign.toml", folder / "data")


def always_coupon(data: Transitions) -> tuple[PathBias, Any]:
    """The bias of "always the coupon", and its fitted means."""
    measure = Measure(data, EVERYONE, None)
    policy = np.ones(len(measure.panel), np.int64)
    fitted = measure.fit(policy)
    return PathBias.of(path_bias.estimate(measure.panel, policy, measure.propensity()), fitted), fitted


def test_a_state_that_leaves_fatigue_out_is_told_by_the_true_bias(tmp_path: Path) -> None:
    """Always the coupon: 0.35 a day after the first; a model that knows no fatigue says 0.485."""
    bias, fitted = always_coupon(log(tmp_path, told=False, users=20_000, seed=1))
    truth = 0.2 * 0.6 + 0.8 * 0.35  # discounted
    for outcome in bias.outcomes:
        value = float(fitted.value[fitted.column(outcome.name)])
        true = truth / value - 1
        assert true == pytest.approx(-0.18, abs=0.02)
        assert abs(outcome.value - true) < 4 * outcome.std_error + 0.02
        assert outcome.allowance < -0.05
    assert "assume less contradict the fitted means beyond chance" in bias.words


def test_where_the_state_is_enough_errors_are_those_of_chance(tmp_path: Path) -> None:
    """In 40 logs, z has mean 0 and spread 1, and most have no allowance."""
    found = [always_coupon(log(tmp_path / str(s), told=True, users=400, seed=s))[0].outcomes[0] for s in range(40)]
    z = np.array([each.value / each.std_error for each in found])
    assert abs(z.mean()) < 3 / np.sqrt(len(z))
    assert 0.7 < z.std() < 1.4
    assert np.mean([each.allowance == 0 for each in found]) > 0.85


def test_only_what_is_beyond_chance_is_allowed_for() -> None:
    """Three standard errors are chance; the sign stays."""
    assert OutcomeBias("reward", 0.05, 0.02).allowance == 0
    assert OutcomeBias("reward", -0.07, 0.02).allowance == pytest.approx(-0.01)
    assert OutcomeBias("cost", 0.07, 0.02).allowance == pytest.approx(0.01)


def test_bounds_move_to_the_side_that_is_worse() -> None:
    """A cost that is 5% higher than fitted breaks its limit; a reward that is lower lowers the least gain."""
    line = BudgetBound(budget="cost", value=1.0, bound=1.06, limit=1.1, floor=False, kept=True)
    issued = Certificate(reason=None, confidence=0.975, users=1000, budgets=(line,), gain=0.2,
                         gain_bound=0.1, gain_most=0.3)  # fmt: skip
    bias = PathBias((OutcomeBias("reward", -0.04, 0.01), OutcomeBias("cost", 0.08, 0.01)), "paths disagree")
    moved = bias.widened_certificate(issued, objective=2.0)
    assert moved.budgets[0].bound == pytest.approx(1.11)
    assert not moved.certified
    assert not moved.budgets[0].kept
    assert [moved.gain_bound, moved.gain_most] == pytest.approx([0.08, 0.3])
    assert "paths disagree" in moved.words
    cheaper = PathBias((OutcomeBias("reward", 0.04, 0.01), OutcomeBias("cost", -0.08, 0.01)), "paths disagree")
    moved = cheaper.widened_certificate(issued, objective=2.0)
    assert moved.certified
    assert moved.budgets == (line,)
    assert [moved.gain_bound, moved.gain_most] == pytest.approx([0.1, 0.32])
