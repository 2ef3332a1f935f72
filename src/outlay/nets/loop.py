"""The compiled training loop: a whole block of gradient steps in one call, never a Python loop per step.

Processes may train one network together, each on its share of every batch:

    group = ProcessGroup(jax.process_count(), jax.process_index())         after jax.distributed.initialize

Every process holds all weights and sees the same permutations. A gradient step computes the gradient of a process's own
rows and averages it over the group, so all make the step that one process would make with the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from outlay.core.errors import OutlayError

Tree = TypeVar("Tree")
AXIS = "workers"
WHOLE, SHARED = PartitionSpec(), PartitionSpec(None, AXIS)  # type: ignore[no-untyped-call]
Carry = TypeVar("Carry")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes; a group of one needs nothing of what is here.

    Attributes:
        size: how many there are.
        rank: number of this one, from 0.
    """

    size: int = 1
    rank: int = 0

    @cached_property
    def _mesh(self) -> Mesh:
        first = {device.process_index: device for device in reversed(jax.devices())}
        return Mesh(np.array([first[rank] for rank in range(self.size)]), (AXIS,))

    def share(self, rows: int) -> slice:
        """The rows of a batch that are this process's.

        Raises:
            OutlayError: if they cannot be shared equally.
        """
        if rows % self.size:
            raise OutlayError(
                f"{rows} rows of a batch cannot be shared equally by {self.size} workers.",
                where="workers",
                way_out="Give another number of workers, or another [train] batch.",
            )
        part = rows // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def mean(self, tree: Tree) -> Tree:
        """The mean over the group, inside of a compiled function of `spread`."""
        if self.size == 1:
            return tree
        # One message instead of one for each array: what it costs is the waiting.
        flat, back = ravel_pytree(tree)
        mean: Tree = back(jax.lax.pmean(flat, AXIS))  # type: ignore[no-untyped-call]
        return mean

    def spread(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """The function (carry, batches), which every process runs on its own rows of the batches `[steps, rows, …]`."""
        if self.size == 1:
            return function

        def spread(carry: Any, batches: Any) -> Any:
            rows: Any = jax.tree.map(_spec, batches)
            shared = jax.shard_map(function, mesh=self._mesh, in_specs=(WHOLE, rows), out_specs=WHOLE, check_vma=False)
            return shared(carry, batches)

        return spread

    def place(self, batches: Tree) -> Tree:
        """Batches of this process's rows as a part of the batches of the whole group."""
        return self._global(batches, _spec)

    def everywhere(self, tree: Tree) -> Tree:
        """Arrays that are the same in every process, as arrays of the whole group."""
        return self._global(tree, lambda _: WHOLE)

    def here(self, tree: Tree) -> Tree:
        """Arrays of the whole group as arrays of this process."""
        return tree if self.size == 1 else jax.tree.map(lambda x: x.addressable_data(0), tree)

    def _global(self, tree: Tree, spec: Callable[[Any], PartitionSpec]) -> Tree:
        if self.size == 1:
            return tree

        def placed(x: Any) -> Any:
            local, make = np.asarray(x), jax.make_array_from_process_local_data
            return make(NamedSharding(self._mesh, spec(local)), local)  # type: ignore[no-untyped-call]

        whole: Tree = jax.tree.map(placed, tree)
        return whole


ALONE = ProcessGroup()


def _spec(x: Any) -> PartitionSpec:
    """Rows are shared; a single row stands for all, and no row for nothing."""
    return WHOLE if x.shape[1] <= 1 else SHARED


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
