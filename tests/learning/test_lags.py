"""Networks that read lags, as numbers like any other, find what only the order of past days tells."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.bundles.reference import forward
from outlay.core.arrays import NetworkArrays
from outlay.core.campaign import Campaign
from outlay.core.schema import FIRST
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.learning.critic_grid import FrontierTraining
from outlay.learning.fresh import settings_of
from outlay.learning.heads import critic_coordinates
from outlay.learning.orthogonal import PASSES, Orthogonal, answers
from outlay.nets.network import arrays
from small_logs import transitions

DAYS, LENGTH = 4, 10
TRAIN: dict[str, Any] = {
    "layers": [16],
    "embedding": 2,
    "batch": 256,
    "learning_rate": 4e-3,
}


def about() -> Campaign:
    content = {
        "campaign": {"name": "test", "discount": 0.0},
        "log": {
            "source": "x.parquet",
            "user": "u",
            "time": "t",
            "action": "a",
            "reward": "r",
            "features": {"categorical": ["s"]},
        },
        "budget": [{"name": "cost", "cost": "cost", "at_most": 1.0}],
        "train": TRAIN,
    }
    return Campaign.parse(content, Path("campaign.toml"))


def log(users: int = 4000) -> Transitions:
    """A coupon works if the user was active exactly three days ago, and else does nothing; half are active anyway."""
    rng = np.random.default_rng(0)
    action, luck = rng.integers(2, size=(users, LENGTH)), rng.random((users, LENGTH))
    active = np.zeros((users, LENGTH))
    for day in range(LENGTH):
        works = active[:, day - 3] if day >= 3 else np.zeros(users)
        active[:, day] = luck[:, day] < 0.4 + 0.4 * action[:, day] * works
    lags = np.zeros((users, LENGTH, DAYS, 2), np.float32)
    for lag in range(1, DAYS + 1):
        lags[:, lag:, lag - 1, 0] = 2 * active[:, :-lag] - 1
        lags[:, :lag, lag - 1, 1] = 1
    data = transitions(
        user=np.repeat(np.arange(users), LENGTH),
        day=np.tile(np.arange(LENGTH), users),
        state=np.zeros(users * LENGTH),
        action=action.ravel(),
        outcome=np.column_stack([active.ravel(), action.ravel()]),
        num_states=1,
        num_actions=2,
        about=about(),
        split=np.where(np.arange(users) < 0.9 * users, LEARN, SELECT),
        counted=False,
    )
    return replace(data, number_columns=lags.reshape(len(data), 2 * DAYS))


PASTS = np.array(list(itertools.product((-1, 1), repeat=DAYS)), np.float32)  # every past, of yesterday first


def effect_of(network: NetworkArrays) -> NDArray[np.float64]:
    """`[16]` what the coupon adds to the reward, for every past."""
    codes = np.full((len(PASTS), 1), FIRST, np.int32)
    numbers = np.stack([PASTS, np.zeros_like(PASTS)], axis=2).reshape(len(PASTS), -1)
    outcome = forward(network, codes, numbers).outcome
    assert outcome is not None
    return np.asarray(outcome[:, 1, 0] - outcome[:, 0, 0])


def orthogonal(data: Transitions, steps: int) -> Orthogonal:
    rows, coords = data.rows_of(LEARN), critic_coordinates(data.campaign, np.asarray(data.outcome), steady=True)
    train = data.campaign.train.model_copy(update={"epochs": steps * 256 / PASSES / len(rows)})
    return Orthogonal(data, train, coords, np.full(1, 3.0), 0, rows, 0)


def test_the_orthogonal_critic_finds_what_only_the_order_of_days_tells() -> None:
    problem = orthogonal(log(), 300)
    *_, progress = problem.blocks(problem.begin())
    effect, works = effect_of(answers(problem, progress).network), PASTS[:, 2] > 0
    assert effect[works].min() > effect[~works].max() + 0.1  # of every past: 0.4 and 0 in truth
    assert effect[works].mean() - effect[~works].mean() > 0.2


@pytest.mark.slow
def test_so_does_a_critic_of_a_game() -> None:
    data = log()
    rows, coords = data.rows_of(LEARN), critic_coordinates(data.campaign, np.asarray(data.outcome), steady=True)
    train = data.campaign.train.model_copy(update={"epochs": 0.1, "min_steps": 400})
    problem = FrontierTraining(data, train, coords, np.full(1, 3.0), 0, rows, 0, settings_of(train, "edrr", 0.0))
    *_, progress = problem.blocks(problem.begin())
    effect, works = effect_of(arrays(progress.learner.critic.target, coords.spread)), PASTS[:, 2] > 0
    assert effect[works].min() > effect[~works].max() + 0.1
    assert effect[works].mean() - effect[~works].mean() > 0.2
