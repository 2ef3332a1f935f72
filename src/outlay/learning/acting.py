"""The policy that acts now, and one more network, which learns what it is worth: the paper's extra Q-network.

The policy is the argmax of a pair of networks. The extra network makes a step after every step of the critic, towards
the value of the policy that acts then:

    y    = (1−γ)·(r, c) + γ^Δ · Q̂(s', π(s'))          π acts now;  Q̂ the weight averages of the extra network
    x(π) ≈ mean over start rows of Q̂(s, π(s)) + u
    u    = Σ (y − Q̂(s, a)) / Σ (1 − γ^Δ)              over rows of the log that have a y

A policy changes faster than temporal differences can follow. Of the error that a change leaves in Q̂ the part that is
the same in all states fades slowest, by γ a sweep, and is most of it. Adding a constant u to Q̂ changes the residual of
a row by −(1 − γ^Δ)·u, so the u above is what the rows say of that part. It is the doubly robust correction of a fitted
evaluation with the log's rows in the place of the policy's own: exact for an error that is the same everywhere, and 0
once Q̂ has learned. On *habit* at 600,000 users candidates were mismeasured by 0.15 of a cost of 2.2 without it (one
standard deviation: as much as candidates differ) and by 0.02 with it.

The two networks learn from different rows at a time. From the same, what the critic takes for a good action because of
the last rows' luck the extra network would take for one too: rewards came out 1.2% too high.

Source: Cai et al. (WSDM 2023), Deployment: "evaluate J_c(π_t) using an extra Q-network"; u is ours, after the
performance-difference identity J(π) = E Q̂(s₀, π) + Σ_t E γ^t (y − Q̂)(s_t, a_t).
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.transitions import States, Transitions
from outlay.learning import critic as critics
from outlay.learning.critic import Critic, CriticSettings, DistinctStates, act
from outlay.learning.fresh import Starts
from outlay.nets.batches import Batch, gather, uses_table
from outlay.nets.network import QNetwork, apply_pair

LEVEL_ROWS = 65_536  # learn rows that u is taken from (fewer where rows are evaluated)
TINY = 1e-30
OTHER_ROWS = 2**32  # added to the seed of the order in which the extra network sees the rows


class Policy(NamedTuple):
    """The action is the argmax over allowed actions of w·Q, Q the mean of the pair.

    Attributes:
        pair: the networks, heads in units of `spread`.
        weights: `[H]` w in raw units.
        spread: `[H]` units of the heads.
        threshold: BCQ's, 0 for none.
    """

    pair: QNetwork
    weights: NDArray[np.float64]
    spread: NDArray[np.float64]
    threshold: float

    def choose(self, states: States) -> NDArray[np.int64]:
        """`[S]` index of the action in every distinct state of a log."""
        return self.actions(states.codes, states.numbers, states.allowed)

    def actions(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float32], allowed: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """`[n]` index of the action in states `codes [n, F]`, `numbers [n, 2·F']` that allow `allowed [n, K]`."""
        weights = jnp.asarray(self.weights * self.spread, jnp.float32)
        chosen = _choose(
            self.pair, jnp.asarray(codes), jnp.asarray(numbers), jnp.asarray(allowed), weights, self.threshold
        )
        return np.asarray(chosen).astype(np.int64)


@eqx.filter_jit
def _choose(pair: QNetwork, codes: Array, numbers: Array, allowed: Array, weights: Array, threshold: float) -> Array:
    return act(apply_pair(pair, codes, numbers), weights[None], allowed, threshold)[:, 0]


def sample_of(data: Transitions, rows: NDArray[np.int64], batch: int, seed: int) -> Batch:
    """Return rows that u is taken from: some of `rows` `[n]`, those to learn from; `batch` as for `table_of`."""
    table = uses_table(data, batch)
    limit = LEVEL_ROWS if table else LEVEL_ROWS // 16
    if len(rows) > limit:
        rows = np.random.default_rng(seed).choice(rows, limit, replace=False)
    sample: Batch = jax.tree.map(jnp.asarray, gather(data, np.sort(rows), table=table))
    return sample


class ActingValue(NamedTuple):
    """What values policies: the rows that are asked, and the settings."""

    starts: Starts
    sample: Batch
    table: DistinctStates | None
    spread: Array  # [H] units of the heads
    settings: CriticSettings

    def step(self, extra: Critic, acting: QNetwork, weights: Array, batch: Batch) -> Critic:
        """Return the extra network after one step towards the value of a policy.

        Args:
            extra: the network.
            acting: the critic's averaged networks.
            weights: `[H]` w, raw.
            batch: rows that the critic did not just learn from.
        """
        scaled = (weights * self.spread)[None]
        return critics.gradient_step(extra, batch, self.table, scaled, self.spread, self.settings, acting)[0]

    def measure(self, extra: Critic, acting: QNetwork, weights: Array) -> Array:
        """Return `[H]` x of the policy that acts: (1−γ)·J of the heads, raw. Arguments as for `step`."""
        scaled = (weights * self.spread)[None]
        threshold = self.settings.threshold
        x = self.starts.measure(acting, self.table, scaled, self.spread, threshold, extra.target)[0]
        return x + self.level(extra, acting, weights)

    def level(self, extra: Critic, acting: QNetwork, weights: Array) -> Array:
        """Return `[H]` u, raw: the constant that takes the mean residual out; 0 where no row has a y.

        Arguments as for `step`.
        """
        batch, scaled = self.sample, (weights * self.spread)[None]
        future = critics.target(extra, batch, self.table, scaled, self.settings, acting)[:, 0]
        outputs, row = critics.evaluate(extra.target, batch.state, self.table)
        value = critics.pick(outputs.q, row, batch.action).mean(0)[:, 0]
        residual = (1 - self.settings.discount) * batch.outcome / self.spread + future - value
        total = (batch.has_target[:, None] * residual).sum(0)
        weight = jnp.maximum((batch.has_target * (1 - batch.discount)).sum(), TINY)
        constant: Array = total / weight * self.spread
        return constant
