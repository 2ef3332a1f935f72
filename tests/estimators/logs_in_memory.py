"""Transitions built in memory, and a small world to draw logs from: for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.schema import Schema
from outlay.core.transitions import CERTIFY, USERS, DataManifest, States, Transitions
from outlay.estimators.basis import Basis
from outlay.estimators.doubly_robust import FOLDS, DoublyRobust, Robust
from outlay.estimators.fitted import Evaluator, Fitted
from outlay.estimators.marginalised import Marginal, Marginalised
from outlay.estimators.panel import Panel

Array = NDArray[np.float64]
BUDGET = {"name": "cost", "cost": "cost", "at_most": 1.0}


def campaign(discount: float = 0.8, budgets: list[dict[str, Any]] | None = None, **meta: Any) -> Campaign:
    content = {
        "campaign": {"name": "test", "discount": discount, **meta},
        "log": {
            "source": "x.parquet",
            "user": "u",
            "time": "t",
            "action": "a",
            "reward": "r",
            "propensity": "p",
            "features": {"categorical": ["s"]},
        },
        "budget": [BUDGET] if budgets is None else budgets,
    }
    return Campaign.parse(content, Path("campaign.toml"))


def transitions(
    *,
    user: ArrayLike,
    day: ArrayLike,
    state: ArrayLike,
    action: ArrayLike,
    outcome: ArrayLike,
    num_states: int,
    num_actions: int,
    about: Campaign | None = None,
    window: ArrayLike | None = None,
    terminal: ArrayLike | None = None,
    forced: ArrayLike | None = None,
    propensity: ArrayLike | None = None,
    eligible: ArrayLike | None = None,
    steady: bool = True,
    split: ArrayLike = CERTIFY,
) -> Transitions:
    """Rows must be sorted by user and day; `day` counts from the first row; `window` defaults to the last day."""
    user, day, action = np.asarray(user, np.uint32), np.asarray(day, np.int32), np.asarray(action, np.uint8)
    n, U = len(user), int(user.max()) + 1
    same = np.append(user[1:] == user[:-1], False)
    ends = np.zeros(n, np.bool_) if terminal is None else np.asarray(terminal, np.bool_)
    users = np.zeros(U, USERS)
    users["first_row"] = users["start_row"] = np.searchsorted(user, np.arange(U))
    users["window"] = day.max() + 1 if window is None else window
    users["split"] = split
    codes = np.arange(num_states, dtype=np.int32)[:, None]
    return Transitions(
        folder=Path("memory"),
        manifest=DataManifest(steady=steady),
        campaign=campaign() if about is None else about,
        schema=Schema((), ()),
        actions=np.arange(num_actions, dtype=np.float64),
        segments=("all",),
        action=action,
        outcome=np.asarray(outcome, np.float32),
        next_row=np.where(same, np.arange(1, n + 1), -1),
        gap=np.where(same, np.append(np.diff(day), 0), 0).astype(np.int32),
        day=day,
        user=user,
        users=users,
        forced=np.zeros(n, np.bool_) if forced is None else np.asarray(forced, np.bool_),
        terminal=ends,
        propensity=None if propensity is None else np.asarray(propensity, np.float32),
        state=np.asarray(state, np.uint16),
        states=States(codes, np.zeros((num_states, 0), np.float32), np.ones((num_states, num_actions), np.bool_)),
        code_columns=(),
        number_columns=np.zeros((n, 0), np.float32),
        eligible=None if eligible is None else np.packbits(np.asarray(eligible, np.bool_), axis=1),
    )


@dataclass(frozen=True)
class World:
    """A CMDP with 0/1 reward (P = cmdp.reward) and cost paid with the reward; logged by `behaviour` `[S, A]`."""

    cmdp: TabularCMDP
    price: Array  # [S, A] cost when the reward is 1
    behaviour: Array

    @classmethod
    def drawn(cls, seed: int, states: int = 3, actions: int = 2, discount: float = 0.8) -> World:
        """Random probabilities; every action is logged in every state."""
        rng = np.random.default_rng(seed)
        reward = rng.uniform(0.1, 0.9, (states, actions))
        price = rng.uniform(0.5, 3, (states, actions))
        behaviour = rng.dirichlet(np.full(actions, 5.0), size=states)
        model = TabularCMDP(
            transition=rng.dirichlet(np.ones(states), size=(states, actions)),
            reward=reward,
            cost=(reward * price)[:, :, None],
            start=rng.dirichlet(np.ones(states)),
            discount=discount,
        )
        return cls(model, price, behaviour)

    def log(self, users: int, days: int, rng: np.random.Generator) -> Transitions:
        """A row a day for every user, propensities logged."""
        S, A = self.cmdp.num_states, self.cmdp.reward.shape[1]
        state, action, reward = (np.empty((users, days), np.int64) for _ in range(3))
        now = rng.choice(S, size=users, p=self.cmdp.start)
        for t in range(days):
            state[:, t] = now
            action[:, t] = _draw(self.behaviour[now], rng)
            reward[:, t] = rng.random(users) < self.cmdp.reward[now, action[:, t]]
            now = _draw(self.cmdp.transition[now, action[:, t]], rng)
        flat = (state.ravel(), action.ravel())
        return transitions(
            user=np.repeat(np.arange(users), days),
            day=np.tile(np.arange(days), users),
            state=flat[0],
            action=flat[1],
            outcome=np.column_stack([reward.ravel(), reward.ravel() * self.price[flat]]),
            num_states=S,
            num_actions=A,
            about=campaign(self.cmdp.discount),
            propensity=self.behaviour[flat],
        )


def _draw(prob: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """One draw from each row of `[n, k]`."""
    index: NDArray[np.intp] = (prob.cumsum(axis=1) < rng.random((len(prob), 1))).sum(axis=1)
    last: NDArray[np.intp] = np.minimum(index, prob.shape[1] - 1)
    return last


def ragged(seed: int, users: int = 60) -> Transitions:
    """A log with everything: gaps of 1 to 3 days, terminal rows, truncated rows, forced rows; 3 states, 2 actions."""
    rng = np.random.default_rng(seed)
    user: list[int] = []
    day: list[int] = []
    ends: list[bool] = []
    for u in range(users):
        at = 0
        while at < 8:
            user.append(u)
            day.append(at)
            ends.append(bool(rng.random() < 0.1))
            if ends[-1]:
                break
            at += int(rng.integers(1, 4))
    n = len(user)
    return transitions(
        user=user,
        day=day,
        state=rng.integers(3, size=n),
        action=rng.integers(2, size=n),
        outcome=rng.random((n, 2)),
        num_states=3,
        num_actions=2,
        window=8,
        terminal=ends,
        forced=rng.random(n) < 0.2,
        propensity=np.full(n, 0.5),
        steady=False,
    )


def fit(
    panel: Panel,
    basis: Basis,
    policy: NDArray[Any] | None = None,
    *,
    days: Sequence[int] = (),
    support: float = 0.01,
    least_rows: int = 2,
) -> Fitted:
    """The fitted value of one policy."""
    return Evaluator(panel, basis, support, least_rows).fit(policy, days=days)


def doubly_robust(
    panel: Panel,
    basis: Basis,
    policy: NDArray[Any] | None,
    *,
    days: Sequence[int] = (),
    propensity: NDArray[np.floating] | None = None,
    folds: int = FOLDS,
) -> Robust:
    """The doubly robust value of one policy."""
    return DoublyRobust(panel, basis, folds).estimate(policy, days=days, propensity=propensity)


def marginal(
    panel: Panel,
    basis: Basis,
    policy: NDArray[Any] | None,
    *,
    days: Sequence[int] = (),
    propensity: NDArray[np.floating] | None = None,
    among: NDArray[np.bool_] | None = None,
    support: float = 0.01,
    least_rows: int = 2,
) -> Marginal:
    """The marginalised value of one policy."""
    found = Marginalised(panel, basis, support, least_rows)
    return found.estimate(policy, days=days, propensity=propensity, among=among)
