"""The start of every training on a log: networks of the right shape, the table of states, and start rows.

A network starts at the logged mean of every outcome: (1−γ)·J is a mean, so that is where most values lie, and only what
states and actions change is left to learn. At γ = 0.95 a network that starts at 0 spends its first epoch climbing.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.campaign import Train
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.learning import critic as critics
from outlay.learning.critic import CriticSettings, DistinctStates, Oracle
from outlay.learning.outcomes import outcomes
from outlay.nets.batches import StateRows, gather, uses_table
from outlay.nets.network import QNetwork, Shape, init_pair
from outlay.ops.action_basis import smooth_basis

START_ROWS = 8192  # start rows of select users on which a critic measures itself (fewer where rows are evaluated)
LEVEL_ROWS = 100_000  # from which the starting level is taken


def shape_of(data: Transitions, train: Train, settings: CriticSettings, num_heads: int, num_policies: int) -> Shape:
    """Return the shape of the networks of a training."""
    return Shape(
        sizes=data.schema.sizes,
        num_numbers=data.number_columns.shape[1],
        num_actions=data.num_actions,
        num_heads=num_heads,
        num_outcomes=data.outcome.shape[1] if settings.oracle != "ddqn" else 0,
        imitation=settings.oracle == "bcq",
        layers=train.layers,
        embedding=train.embedding,
        num_policies=num_policies,
        action_basis=smooth_basis(data.actions, data.campaign.names.degree(train.action_degree), data.campaign.none),
    )


def settings_of(train: Train, oracle: Oracle, discount: float) -> CriticSettings:
    """The critic's settings from the campaign's."""
    return CriticSettings(
        oracle=oracle,
        discount=discount,
        learning_rate=train.learning_rate,
        target_decay=train.target_decay,
        small_q_weight=train.small_q_weight,
        supervised_weight=train.supervised_weight,
        imitation_weight=train.imitation_weight,
        imitation_threshold=train.imitation_threshold,
    )


def fresh_pair(data: Transitions, shape: Shape, spread: NDArray[np.float64], seed: int) -> QNetwork:
    """Return networks that predict the logged mean of every outcome.

    Args:
        data: the log.
        shape: from `shape_of`.
        spread: `[H]` units of the heads.
        seed: of the weights.
    """
    rows = data.rows_of(LEARN)
    if len(rows) > LEVEL_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, LEVEL_ROWS, replace=False))
    return init_pair(shape, seed, outcomes(data, rows).mean(axis=0) / spread)


def whole_blocks(train: Train, rows: int, block: int) -> int:
    """Gradient steps of a schedule on so many learn rows, in whole blocks."""
    wanted = max(train.epochs * rows / train.batch, train.min_steps)
    return max(1, round(wanted / block)) * block


def table_of(data: Transitions, batch: int) -> DistinctStates | None:
    """Return the distinct states if evaluating them is cheaper than evaluating rows, else None."""
    if not uses_table(data, batch) or data.states is None:
        return None
    states = data.states
    return DistinctStates(jnp.asarray(states.codes), jnp.asarray(states.numbers), jnp.asarray(states.allowed))


class Starts(NamedTuple):
    """Start rows of *select* users."""

    state: StateRows
    action: Array  # [B] as logged
    forced: Array  # [B]
    allowed: Array  # [B, K]

    @classmethod
    def of(cls, data: Transitions, batch: int, seed: int) -> Starts:
        """Return a sample of them; `batch` as for `table_of`."""
        table = uses_table(data, batch)
        rows = data.users["start_row"][data.users_of(SELECT)]
        limit = START_ROWS if table else START_ROWS // 4
        if len(rows) > limit:
            rows = np.random.default_rng(seed).choice(rows, limit, replace=False)
        rows = np.sort(rows)
        start = gather(data, rows, table=table)
        return cls(
            start.state, jnp.asarray(start.action), jnp.asarray(start.chosen == 0), jnp.asarray(data.allowed(rows))
        )

    def measure(
        self,
        pair: QNetwork,
        table: DistinctStates | None,
        weights: Array,
        spread: Array,
        threshold: float,
        values: QNetwork | None = None,
    ) -> Array:
        """Return `[L, H]` a critic's values of its greedy policies, in raw units.

        Args:
            pair: the critic's networks.
            table: the distinct states.
            weights: `[L, H]` w in units of the heads.
            spread: `[H]` those units.
            threshold: BCQ's.
            values: other networks that value these policies; None: the critic's own.
        """
        outputs, row = critics.evaluate(pair, self.state, table)
        allowed = self.allowed if table is None else table.allowed
        best = critics.act(outputs, weights, allowed, threshold)
        q = outputs.q if values is None else critics.evaluate(values, self.state, table)[0].q
        chosen = critics.pick_best(q, best)[:, row]
        logged = critics.pick(q, row, self.action)
        return jnp.where(self.forced[:, None, None], logged, chosen).mean((0, 1)) * spread
