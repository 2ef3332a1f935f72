"""The compiled training loop: a whole block of gradient steps in one call, never a Python loop per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
from jax import Array

from outlay.nets.group import ALONE, ProcessGroup

Carry = TypeVar("Carry")


def compiled_block(
    step: Callable[[Carry, Any], tuple[Carry, Array]],
    after: Callable[[Carry], tuple[Carry, Any]],
    every: int,
    group: ProcessGroup = ALONE,
) -> Callable[[Carry, Any], tuple[Carry, tuple[Array, Any]]]:
    """A function that runs a block of steps, and something after every few of them, as nested `lax.scan`s.

    Args:
        step: (carry, batch) → carry, loss.
        after: carry → carry, info; called once `every` steps.
        every: divides the steps of a block.
        group: of processes that each have a share of the rows; `step` averages over it what it computes of rows.

    Returns:
        block(carry, batches with a leading axis of steps) → carry, (losses `[steps / every]`, infos stacked).
    """

    def inner(carry: Carry, batches: Any) -> tuple[Carry, tuple[Array, Any]]:
        carry, losses = jax.lax.scan(step, carry, batches)
        carry, info = after(carry)
        return carry, (losses.mean(), info)

    @eqx.filter_jit
    def block(carry: Carry, batches: Any) -> tuple[Carry, tuple[Array, Any]]:
        found: tuple[Carry, tuple[Array, Any]] = group.spread(run)(carry, batches)
        return found

    def run(carry: Carry, batches: Any) -> tuple[Carry, tuple[Array, Any]]:
        parts = jax.tree.map(lambda x: x.reshape(x.shape[0] // every, every, *x.shape[1:]), batches)
        return jax.lax.scan(inner, carry, parts)

    return block
