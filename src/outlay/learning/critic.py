"""The vector critic: one network, a head for the reward and one for each cost. DDQN, EDRR and BCQ are its settings.

    w       = (1, −λ)                                               in the units of `heads.py`
    a*(s')  = argmax over allowed a of wᵀ Q_online(s', a)           (a forced row takes its logged action)
    y       = (1−γ)·(r, c) + γ^Δ · Q_target(s', a*)                 (after a terminal row: the first part alone)
    loss    = ‖ Q(s, a) − y ‖², each head in units of its spread;  truncated rows have no y, unless γ = 0

It learns the best responses to L vectors w at once, each with heads of its own on one trunk, all from every row: L = 1
in a game, whose λ moves; one for each λ of a frontier.

* DDQN: two networks; per sample the one with the smaller wᵀQ_target weighs 0.8, the other 0.2, and the same weights mix
  their vectors; one y for both; a* and the acting policy come from the mean of the two.
* EDRR adds a supervised head on the trunk: the immediate outcome of the logged action.
* BCQ adds an imitation head π_B(a|s); actions with π_B < threshold · max π_B leave the argmax.

The target networks are exponential averages of the weights, and the same averages act.

Given a policy that acts, the same steps learn the value of that policy instead: the paper's extra network, which
measures costs.

Source: Cai et al. (WSDM 2023), sections 4 and 6; the threshold is Fujimoto et al. (2019), not in the paper. We differ
in what the paper leaves open: vector heads instead of one network per cost, γ^Δ, masks, weight averages.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from outlay.nets.batches import Batch, StateRows
from outlay.nets.loop import ALONE, ProcessGroup
from outlay.nets.network import NetworkOutputs, QNetwork, apply_pair

Oracle = Literal["ddqn", "edrr", "bcq"]
FINAL_RATE = 0.02


class CriticSettings(NamedTuple):
    """How the critic learns; the fields are those of `[train]`."""

    oracle: Oracle
    discount: float
    learning_rate: float
    target_decay: float
    small_q_weight: float
    supervised_weight: float
    imitation_weight: float
    imitation_threshold: float
    decay_steps: int = 0  # the learning rate falls to FINAL_RATE of itself over so many, as a cosine; 0: it stays

    @property
    def threshold(self) -> float:
        """BCQ's threshold; 0 for the other oracles, which have no imitation head."""
        return self.imitation_threshold if self.oracle == "bcq" else 0.0


class DistinctStates(NamedTuple):
    """The distinct states, where they are few; else both arrays have no rows."""

    codes: Array  # [S, F]
    numbers: Array  # [S, n]
    allowed: Array  # [S, K]


class Critic(NamedTuple):
    """The state of a critic between gradient steps."""

    online: QNetwork
    target: QNetwork  # exponential averages of `online`
    optimiser: optax.OptState


def init(pair: QNetwork, settings: CriticSettings) -> Critic:
    """A critic from a fresh pair of networks."""
    return Critic(pair, pair, _adam(settings).init(eqx.filter(pair, eqx.is_array)))


def evaluate(pair: QNetwork, states: StateRows, table: DistinctStates | None) -> tuple[NetworkOutputs, Array]:
    """Outputs of the pair and, for each row of `states`, its row in them."""
    if table is None:
        return apply_pair(pair, states.codes, states.numbers), jnp.arange(states.codes.shape[0])
    return apply_pair(pair, table.codes, table.numbers), states.row


def act(outputs: NetworkOutputs, weights: Array, allowed: Array, threshold: float) -> Array:
    """`[R, L]` argmax over allowed actions of wᵀ of the mean of the pair.

    Args:
        outputs: of `R` states.
        weights: `[L, H]` w, in units of the heads.
        allowed: `[R, K]` or `[1, K]`.
        threshold: BCQ's; 0 leaves every allowed action in.
    """
    score = jnp.einsum("rklh,lh->rlk", outputs.q.mean(0), weights)
    if threshold > 0 and outputs.logits is not None:
        log_prob = jnp.where(allowed, jax.nn.log_softmax(outputs.logits.mean(0)), -jnp.inf)
        allowed = allowed & (log_prob >= jnp.log(threshold) + log_prob.max(1, keepdims=True))
    return jnp.where(allowed[:, None], score, -jnp.inf).argmax(2)


def pick(q: Array, row: Array, action: Array) -> Array:
    """Return the outputs for the action of each row: `[2, R, K, …]`, `[B]`, `[B]` → `[2, B, …]`."""
    return q.reshape(len(q), -1, *q.shape[3:])[:, row * q.shape[2] + action]


def pick_best(q: Array, best: Array) -> Array:
    """Return the outputs of each policy's own heads for its action: `[2, R, K, L, H]`, `[R, L]` → `[2, R, L, H]`."""
    return jnp.take_along_axis(q, best[None, :, None, :, None], axis=2)[:, :, 0]


def target(
    critic: Critic,
    batch: Batch,
    table: DistinctStates | None,
    weights: Array,
    settings: CriticSettings,
    acting: QNetwork | None = None,
) -> Array:
    """The future part of y: `[B, L, H]` γ^Δ · Q_target(s', a*), the smaller of the pair weighing more.

    With `acting` a* is the action of that policy, and the pair weighs alike: its value, not that of a best response.
    """
    online, row = evaluate(critic.online if acting is None else acting, batch.next_state, table)
    averaged, _ = evaluate(critic.target, batch.next_state, table)
    allowed = batch.next_allowed if table is None else table.allowed
    best = act(online, weights, allowed, settings.threshold)

    def lower(values: Array) -> Array:
        if acting is not None:
            return values.mean(0)
        score = jnp.einsum("enlh,lh->enl", values, weights)
        share = jnp.where(score[0] <= score[1], settings.small_q_weight, 1 - settings.small_q_weight)[..., None]
        return share * values[0] + (1 - share) * values[1]

    chosen = lower(pick_best(averaged.q, best))[row]
    logged = lower(pick(averaged.q, row, batch.next_action))
    future: Array = batch.discount[:, None, None] * jnp.where(batch.next_forced[:, None, None], logged, chosen)
    return future


def loss(
    online: QNetwork, batch: Batch, future: Array, table: DistinctStates | None, spread: Array, settings: CriticSettings
) -> Array:
    """Mean over the batch and the policies, summed over the pair. `future` is from `target`, without gradient."""
    outputs, row = evaluate(online, batch.state, table)
    immediate = batch.outcome / spread
    error = pick(outputs.q, row, batch.action) - ((1 - settings.discount) * immediate[:, None] + future)
    total: Array = (batch.has_target * jnp.square(error).sum((0, 3)).mean(1)).mean()
    if outputs.outcome is not None:
        predicted = pick(outputs.outcome, row, batch.action)
        off = predicted - immediate[:, : predicted.shape[-1]]
        total += settings.supervised_weight * jnp.square(off).sum((0, 2)).mean()
    if outputs.logits is not None:
        # Forced rows are no choices, so there is nothing to imitate in them.
        log_prob = jax.nn.log_softmax(outputs.logits)[:, row, batch.action]
        total -= settings.imitation_weight * (batch.chosen * log_prob.sum(0)).mean()
    return total


def gradient_step(
    critic: Critic,
    batch: Batch,
    table: DistinctStates | None,
    weights: Array,
    spread: Array,
    settings: CriticSettings,
    acting: QNetwork | None = None,
    group: ProcessGroup = ALONE,
) -> tuple[Critic, Array]:
    """One step of Adam and of the weight averages; `acting` as in `target`, the gradient is averaged over a group."""
    future = target(critic, batch, table, weights, settings, acting)
    found = eqx.filter_value_and_grad(loss)(critic.online, batch, future, table, spread, settings)
    value, gradient = group.mean(found)
    updates, optimiser = _adam(settings).update(gradient, critic.optimiser)
    online = eqx.apply_updates(critic.online, updates)
    keep = settings.target_decay
    averaged = jax.tree.map(lambda old, new: keep * old + (1 - keep) * new, critic.target, online)
    return Critic(online, averaged, optimiser), value


def _adam(settings: CriticSettings) -> optax.GradientTransformation:
    if settings.decay_steps == 0:
        return optax.adam(settings.learning_rate)
    return optax.adam(optax.cosine_decay_schedule(settings.learning_rate, settings.decay_steps, FINAL_RATE))
