"""Transitions in memory, with encoded features, and logs drawn from a CMDP: for the tests of nets and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.bundles.reference import forward
from outlay.core.arrays import NetworkArrays
from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.schema import FIRST, Categorical, Numeric, Schema
from outlay.core.transitions import LEARN, SELECT, USERS, DataManifest, States, Transitions

BUDGET = {"name": "cost", "cost": "cost", "at_most": 1.0}


def campaign(
    discount: float = 0.8,
    budgets: list[dict[str, Any]] | None = None,
    train: dict[str, Any] | None = None,
    **meta: Any,
) -> Campaign:
    content = {
        "campaign": {"name": "test", "discount": discount, **meta},
        "log": {
            "source": "x.parquet",
            "user": "u",
            "time": "t",
            "action": "a",
            "reward": "r",
            "features": {"categorical": ["s"], "numeric": ["parity"]},
        },
        "budget": [BUDGET] if budgets is None else budgets,
        "train": train or {},
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
    terminal: ArrayLike | None = None,
    forced: ArrayLike | None = None,
    allowed: ArrayLike | None = None,
    steady: bool = True,
    split: ArrayLike = LEARN,
    counted: bool = True,
) -> Transitions:
    """A log sorted by user and day; the state is one categorical field and one numeric one (is it odd?).

    `allowed` is `[S, K]`, a part of the state; `counted` False: as if distinct states were too many for a table.
    """
    user, day, action = np.asarray(user, np.uint32), np.asarray(day, np.int32), np.asarray(action, np.uint8)
    state = np.asarray(state, np.int64)
    n, U = len(user), int(user.max()) + 1
    same = np.append(user[1:] == user[:-1], False)
    users = np.zeros(U, USERS)
    users["first_row"] = users["start_row"] = np.searchsorted(user, np.arange(U))
    users["window"] = day.max() + 1
    users["split"] = split
    codes = (FIRST + np.arange(num_states, dtype=np.int32))[:, None]
    numbers = np.stack([np.arange(num_states) % 2, np.zeros(num_states)], axis=1).astype(np.float32)
    mask = np.ones((num_states, num_actions), np.bool_) if allowed is None else np.asarray(allowed, np.bool_)
    return Transitions(
        folder=Path("memory"),
        manifest=DataManifest(steady=steady),
        campaign=campaign() if about is None else about,
        schema=Schema((Categorical("s", tuple(map(str, range(num_states)))),), (Numeric("parity", 0, 1),)),
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
        terminal=np.zeros(n, np.bool_) if terminal is None else np.asarray(terminal, np.bool_),
        propensity=None,
        state=state.astype(np.uint16) if counted else None,
        states=States(codes, numbers, mask) if counted else None,
        code_columns=(((0,), codes[state].astype(np.uint8)),),
        number_columns=numbers[state],
        eligible=None if allowed is None else np.packbits(mask[state], axis=1),
    )


def random_cmdp(seed: int, *, states: int = 3, actions: int = 3, costs: int = 1, discount: float = 0.8) -> TabularCMDP:
    """Rewards and costs that rise together with the action, so that a limit binds."""
    rng = np.random.default_rng(seed)
    dear = np.linspace(0, 1, actions)[None, :]
    return TabularCMDP(
        transition=rng.dirichlet(np.ones(states), size=(states, actions)),
        reward=0.5 * rng.random((states, actions)) + 0.5 * dear,
        cost=0.5 * rng.random((states, actions, costs)) + dear[:, :, None],
        start=rng.dirichlet(np.ones(states)),
        discount=discount,
    )


def draw(
    cmdp: TabularCMDP,
    users: int,
    days: int,
    seed: int,
    *,
    behaviour: NDArray[np.float64] | None = None,
    about: Campaign | None = None,
    **roles: Any,
) -> Transitions:
    """A row a day per user; rewards and costs are their expectations, so that only moves are random.

    `behaviour` `[K]` are the probabilities of the actions; default uniform.
    """
    rng = np.random.default_rng(seed)
    S, K = cmdp.num_states, cmdp.num_actions
    state, action = np.empty((users, days), np.int64), np.empty((users, days), np.int64)
    now = rng.choice(S, size=users, p=cmdp.start)
    for t in range(days):
        state[:, t] = now
        action[:, t] = rng.choice(K, size=users, p=behaviour)
        cumulated = cmdp.transition[now, action[:, t]].cumsum(axis=1)
        now = np.minimum((cumulated < rng.random((users, 1))).sum(axis=1), S - 1)
    at = (state.ravel(), action.ravel())
    return transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=at[0],
        action=at[1],
        outcome=cmdp.outcome[at],
        num_states=S,
        num_actions=K,
        about=about or campaign(cmdp.discount),
        **roles,
    )


def log_of(model: TabularCMDP, **options: Any) -> Transitions:
    return draw(model, 2000, 8, seed=0, split=np.repeat([LEARN, SELECT], [1800, 200]), counted=False, **options)


def q_of(network: NetworkArrays, states: int) -> NDArray[np.float64]:
    """`[S, K, L, H]` of states numbered in the one field of small logs."""
    offset = len(network.embedding[0]) - states
    numbers = np.stack([np.arange(states) % 2, np.zeros(states)], axis=1).astype(np.float32)
    q = forward(network, (offset + np.arange(states, dtype=np.int32))[:, None], numbers).q
    return q.reshape(states, network.num_actions, network.num_policies, -1)


def exact_q(model: TabularCMDP, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """`[S, K, 1+m]` (1−γ)·Q of an action where the log's policy goes on, actions drawn with `shares` `[K]`."""
    moves = np.einsum("a,sat->st", shares, model.transition)
    day = np.einsum("a,sah->sh", shares, model.outcome)
    value = np.linalg.solve(np.eye(len(moves)) - model.discount * moves, (1 - model.discount) * day)
    return np.asarray((1 - model.discount) * model.outcome + model.discount * model.transition @ value)


def effects(q: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(q - q.mean(axis=1, keepdims=True))
