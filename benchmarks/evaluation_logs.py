"""Logs drawn in memory from campaigns whose truth is known, for the benchmarks of evaluation.

    habit        10 states, 11 coupons, drawn uniformly; 7 days, discount 0.8
    thirty-day   habit levels of three user types, 22 values (none included), drawn uniformly; 30 days, discount 0.95
    random       50 states, 4 actions (`random_games_instances.py`), 0/1 outcomes whose chances are drawn into 5 to 95%
                 (an outcome that never came has no spread, and so no interval); the log's policy differs by state and
                 gives every action with probability 0.05 at least; 7 days, discount 0.8

Whole users are drawn, a row a day; a log of 20,000 users takes tenths of a second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.schema import Schema
from outlay.core.transitions import CERTIFY, LEARN, SELECT, USERS, DataManifest, States, Transitions
from outlay.ops.tabular import policy_iteration
from outlay.simulators import find
from outlay.simulators.simulator import Participation, Simulator
from random_games_instances import Spec
from random_games_instances import draw as draw_game

Floats = NDArray[np.float64]
Policy = NDArray[np.intp] | Floats  # `[S]` actions, or `[S, A]` probabilities

LEAST_CHANCE = 0.05  # of any action under the log's policy of a random model, and of any outcome


@dataclass(frozen=True)
class World:
    """Where logs come from.

    Attributes:
        name: habit, thirty-day or random.
        model: the truth.
        behaviour: `[S, A]` the log's policy.
        campaign: what a log of it is said to be.
        days: of a log.
        participation: draws habit and thirty-day; None: outcomes are 0/1 with the model's means.
    """

    name: str
    model: TabularCMDP
    behaviour: Floats
    campaign: Campaign
    days: int
    participation: Participation | None = None

    @classmethod
    def simulated(cls, name: str, at_most: float | None = None) -> World:
        """The campaign *habit* or *thirty-day*, with the limit of its campaign file or another one."""
        simulator = find(name)
        assert isinstance(simulator, Simulator)
        model = simulator.model.cmdp()
        shape = model.reward.shape
        limit = simulator.at_most if at_most is None else at_most
        about = _campaign(name, model.discount, simulator.report_days, limit)
        return cls(name, model, np.full(shape, 1 / shape[1]), about, simulator.log_days, simulator.model)

    @classmethod
    def random(cls, seed: int) -> World:
        """A random model, and a random policy that logged it."""
        game = draw_game(Spec(1, 0.8, seed))
        states, actions = game.cmdp.reward.shape
        drawn = np.random.default_rng([seed, 7]).dirichlet(np.ones(actions), size=states)
        behaviour = LEAST_CHANCE + (1 - actions * LEAST_CHANCE) * drawn
        about = _campaign("random", game.cmdp.discount, (1, 3, 7), float(game.constraints.limits[0]))
        reward, cost = (LEAST_CHANCE + (1 - 2 * LEAST_CHANCE) * part for part in (game.cmdp.reward, game.cmdp.cost))
        model = replace(game.cmdp, reward=reward, cost=cost)
        return cls("random", model, behaviour, about, 7)

    def best_response(self, multiplier: float) -> NDArray[np.intp]:
        """`[S]` to a price of the cost."""
        return policy_iteration(self.model, np.array([1.0, -multiplier]))

    def softened(self, policy: NDArray[np.intp], share: float = 0.5) -> Floats:
        """`[S, A]`: with probability 1 − `share` the policy, else any action."""
        actions = self.behaviour.shape[1]
        soft: Floats = (1 - share) * np.eye(actions)[policy] + share / actions
        return soft

    def log(self, users: int, seed: int, shares: tuple[float, float, float] = (0.0, 0.0, 1.0)) -> Transitions:
        """A log of so many users, with logged propensities; by default all of them certify."""
        rng = np.random.default_rng([seed, users])
        states, actions = self.behaviour.shape
        state, action = np.empty((users, self.days), np.int64), np.empty((users, self.days), np.int64)
        outcome = np.empty((users, self.days, 2), np.float32)
        now = rng.choice(states, size=users, p=self.model.start)
        for day in range(self.days):
            state[:, day], action[:, day] = now, _draw(self.behaviour[now], rng)
            outcome[:, day], now = self._day(now, action[:, day], rng)
        flat = (state.ravel(), action.ravel())
        who = np.zeros(users, USERS)
        who["first_row"] = who["start_row"] = np.arange(users) * self.days
        who["window"] = self.days
        who["split"] = rng.choice((LEARN, SELECT, CERTIFY), size=users, p=shares)
        rows = np.arange(users * self.days)
        last = rows % self.days == self.days - 1
        return Transitions(
            folder=Path("memory"),
            manifest=DataManifest(steady=True),
            campaign=self.campaign,
            schema=Schema((), ()),
            actions=np.arange(actions, dtype=np.float64),
            segments=("all",),
            action=flat[1].astype(np.uint8),
            outcome=outcome.reshape(-1, 2),
            next_row=np.where(last, -1, rows + 1),
            gap=np.where(last, 0, 1).astype(np.int32),
            day=(rows % self.days).astype(np.int32),
            user=(rows // self.days).astype(np.uint32),
            users=who,
            forced=np.zeros(len(rows), np.bool_),
            terminal=np.zeros(len(rows), np.bool_),
            propensity=self.behaviour[flat].astype(np.float32),
            state=flat[0].astype(np.uint16),
            states=States(
                np.arange(states, dtype=np.int32)[:, None],
                np.zeros((states, 0), np.float32),
                np.ones((states, actions), np.bool_),
            ),
            code_columns=(),
            number_columns=np.zeros((len(rows), 0), np.float32),
            eligible=None,
        )

    def _day(
        self, state: NDArray[np.int64], action: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Reward and cost `[n, 2]`, and the next state `[n]`."""
        if self.participation is not None:
            active, after = self.participation.day(rng, state, action)
            return np.column_stack([active, active * self.participation.coupons[action]]), after
        means = self.model.outcome[state, action]
        outcome = (rng.random(means.shape) < means).astype(np.float64)
        return outcome, _draw(self.model.transition[state, action], rng)


def rows_of(policy: Policy, state: NDArray[np.intp]) -> Policy:
    """What a policy of states does in rows."""
    done: Policy = policy[state]
    return done


def _campaign(name: str, discount: float, report_days: tuple[int, ...], at_most: float) -> Campaign:
    content = {
        "campaign": {
            "name": name,
            "discount": discount,
            "report_days": list(report_days),
            "horizon_days": max(report_days),
        },
        "log": {
            "source": "memory.parquet",
            "user": "u",
            "time": "t",
            "action": "a",
            "reward": "r",
            "features": {"categorical": ["s"]},
        },
        "budget": [{"name": "cost", "cost": "cost", "at_most": at_most}],
    }
    return Campaign.parse(content, Path("campaign.toml"))


def _draw(chance: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """One draw from each row of `[n, k]`."""
    place: NDArray[np.int64] = (chance.cumsum(axis=1) < rng.random((len(chance), 1))).sum(axis=1)
    last: NDArray[np.int64] = np.minimum(place, chance.shape[1] - 1)
    return last
