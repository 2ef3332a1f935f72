"""What every learner of the registry promises: best responses to a grid of λ, and to any λ in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.bundles.reference import forward
from outlay.core.progress import silent
from outlay.core.transitions import LEARN, SELECT
from outlay.learning import COUNTED, LEARNERS, POOL
from outlay.learning.averaged import mean_of
from outlay.learning.heads import critic_coordinates
from outlay.learning.learner import BestResponses, Task
from small_logs import campaign, draw, random_cmdp

TRAIN = {"layers": [8], "batch": 64, "min_steps": 200, "epochs": 0.1, "learning_rate": 1e-2}


def task(learner: str, folder: Path, *, resume: bool = False) -> Task:
    """900 users of a model with 3 states and 3 actions, and one budget."""
    about = campaign(0.8, None, TRAIN)
    data = draw(random_cmdp(25), 900, 6, seed=0, about=about, split=np.repeat([LEARN, SELECT], [600, 300]))
    data = replace(data, manifest=replace(data.manifest, data_hash="d4"))
    coords = critic_coordinates(about, data.outcome, steady=True)
    return Task(learner, data, about, coords, np.full(1, 3.0), data.rows_of(LEARN), 0, folder, resume)


def actions(found: BestResponses, of: Task, multiplier: NDArray[np.float64]) -> NDArray[np.int64]:
    """`[S]` what the best response to λ does in every state."""
    network, policy = found.response(multiplier)
    states = of.data.states
    assert states is not None
    said = forward(network, states.codes, states.numbers)
    q = said.q.reshape(len(states), of.data.num_actions, network.num_policies, -1)
    best: NDArray[np.int64] = (q[:, :, policy] @ of.coords.weights(multiplier)).argmax(axis=1)
    return best


@dataclass(frozen=True)
class Learned:
    """What a learner found, on what, and the shares of the work that it told."""

    given: Task
    found: BestResponses
    shares: list[float]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Learned]:
    @cache
    def by(learner: str) -> Learned:
        given, shares = task(learner, tmp_path_factory.mktemp(learner) / "checkpoints"), list[float]()
        return Learned(given, LEARNERS[learner].learn(given, lambda share, _: shares.append(share)), shares)

    return by


SLOW = "ddqn", "bcq"  # beside edrr, the critics of games that differ in their loss


@pytest.mark.parametrize(
    "learner", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in LEARNERS]
)
def test_every_learner_answers_a_grid_of_prices_and_any_price_between(
    learner: str, learned: Callable[[str], Learned]
) -> None:
    given, found, shares = learned(learner).given, learned(learner).found, learned(learner).shares
    count = len(found.multiplier)
    assert found.learner == learner
    assert found.multiplier.shape == (count, 1)
    assert found.multiplier.min() == 0.0
    assert found.policy.shape == (count,)
    assert found.policy.max() < found.network.num_policies
    assert found.critic is None or found.critic.shape == (count, 2)
    assert found.estimate is None or found.estimate(np.array([0.7])).shape == (2,)
    assert found.notes
    assert shares == sorted(shares)
    assert set(actions(found, given, np.array([0.7]))) <= {0, 1, 2}
    # At the bound no price is worth paying: nothing is dearer there than at a price of 0.
    cost = random_cmdp(25).cost[:, :, 0]
    free, dear = (cost[np.arange(3), actions(found, given, price)].mean() for price in (np.zeros(1), np.full(1, 3.0)))
    assert dear <= free + 1e-9


@pytest.mark.parametrize("learner", [name for name in LEARNERS if name != COUNTED])
def test_a_learner_that_was_done_is_not_trained_again(learner: str, learned: Callable[[str], Learned]) -> None:
    first = learned(learner).found
    again = LEARNERS[learner].learn(replace(learned(learner).given, resume=True), silent)
    np.testing.assert_array_equal(again.multiplier, first.multiplier)
    for one, other in zip(again.network.head, first.network.head, strict=True):
        np.testing.assert_array_equal(one, other)


def test_learners_that_are_pooled_say_what_the_day_brings_and_learn_from_the_same_amounts(
    learned: Callable[[str], Learned],
) -> None:
    assert all(learned(name).found.network.outcome is not None for name in POOL)
    assert all(LEARNERS[name].WITHOUT_LUCK for name in POOL)


def test_the_mean_of_trees_and_networks_is_one_learner(learned: Callable[[str], Learned]) -> None:
    given, (bodied, layered) = learned("trees").given, (learned(name).found for name in POOL)
    mean = mean_of(replace(given, learner="auto"), bodied, layered)
    states = given.data.states
    assert states is not None
    trees, networks, both = (forward(each.network, states.codes, states.numbers).q for each in (bodied, layered, mean))
    np.testing.assert_allclose(both, (trees + networks) / 2, atol=1e-5)
    assert np.abs(trees - networks).max() > 1e-3
    assert mean.steps == layered.steps
