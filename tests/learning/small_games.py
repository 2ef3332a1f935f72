"""A game of a second: 300 users, 3 states, 3 actions, two budgets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.transitions import LEARN, SELECT
from outlay.learning.acting import Policy
from outlay.learning.critic import Oracle
from outlay.learning.fresh import settings_of
from outlay.learning.game import Game
from outlay.learning.heads import critic_coordinates
from outlay.learning.mixing import RULES
from small_logs import campaign, draw, random_cmdp

TRAIN = {"layers": [8], "batch": 32, "min_steps": 600, "epochs": 0.1, "candidate_every": 20, "learning_rate": 3e-3}
BUDGETS = [{"name": "a", "cost": "a", "at_most": 0.8}, {"name": "b", "cost": "b", "at_least": 0.4}]


def game(
    *,
    rule: str = "aim-greedy",
    oracle: Oracle = "ddqn",
    seed: int = 0,
    bound: float = 5.0,
    steady: bool = True,
    measured: bool = False,
    budgets: list[dict[str, Any]] | None = None,
    **train: Any,
) -> Game:
    """300 users, 6 days, the last 100 users to choose on; two budgets, one of them a floor."""
    about = campaign(0.8, BUDGETS if budgets is None else budgets, {**TRAIN, **train})
    model = random_cmdp(3, costs=len(about.budgets))
    split = np.repeat([LEARN, SELECT], [200, 100])
    data = draw(model, 300, 6, seed=0, about=about, split=split, steady=steady)
    coords = critic_coordinates(about, data.outcome, steady=steady)

    def measure(policy: Policy) -> NDArray[np.float64]:
        assert data.states is not None
        dear = float(policy.choose(data.states).mean())
        return np.array([dear, dear, -dear])

    return Game(
        data=data,
        train=about.train,
        settings=settings_of(about.train, oracle, 0.8),
        coords=coords,
        bound=np.full(len(about.budgets), bound),
        rule=RULES[rule],
        measure=measure if measured else None,
        counted=measured,
        learn_rows=data.rows_of(LEARN),
        seed=seed,
    )
