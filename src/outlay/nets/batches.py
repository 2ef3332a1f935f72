"""Batches from the memory map: blocks of gradient steps, gathered by a thread while the last block trains.

A block is what one compiled scan eats: `[steps, batch]` transitions. Where distinct states are few, a row carries the
index of its state and the network is evaluated once per distinct state instead of once per row: the same numbers, a
fraction of the work.

Most of a block of a wide log is codes: 100 steps of 512 rows and 1,000 fields are 51 MB or more. Where the encoded log
fits on an accelerator (`ResidentStates`), the host sends the numbers of the rows, and the card gathers their states
from its own memory. Batches are the same, to the bit. On a processor there is nothing to gain: the memory map is as
near as a copy of it would be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from outlay.core.transitions import Transitions

Column = Any  # a NumPy array on the host, a JAX array inside a compiled step
BLOCK_BYTES = 2**26  # of codes in a block, where a training may choose its size; two blocks are in memory
CHUNK_ROWS, CHUNK_VALUES = 4096, 2**22  # most rows that are evaluated at a time, and values of their embeddings
TABLE_LIMIT = 2  # in batches: with more distinct states than this, evaluating the rows themselves is cheaper
RESIDENT_SHARE = 0.6  # of the free memory that the states may take; networks, batches and activations need the rest


class StateRows(NamedTuple):
    """States of some rows, as codes and numbers or, with a table of distinct states, as indices into it."""

    codes: Column  # [..., F], of the smallest integer type that holds every code of the log
    numbers: Column  # [..., n]
    row: Column  # [...], row of the table; empty where there is none


class Batch(NamedTuple):
    """Transitions. Arrays have the leading shape `[batch]`, or `[steps, batch]` in a block."""

    state: StateRows
    next_row: Column  # the next row; the row itself where there is none (its weight is 0 there)
    next_state: StateRows  # of the next row; empty where networks do not read it
    action: Column
    outcome: Column  # [..., H] reward, costs, and decisions where measured
    discount: Column  # γ^Δ; 0 where there is no next row
    has_target: Column  # 0 where the row is truncated and the future matters (γ > 0), else 1
    chosen: Column  # 1 where there was a choice, 0 in forced rows
    allowed: Column  # [..., K]; a single row of ones where every action is always allowed, or a table tells
    next_forced: Column  # the next row had no choice: its logged action is taken
    next_action: Column
    next_allowed: Column  # as `allowed`


def uses_table(data: Transitions, batch: int) -> bool:
    """Whether the network is evaluated on the table of distinct states."""
    return data.states is not None and len(data.states) <= TABLE_LIMIT * batch


def gather(
    data: Transitions,
    rows: NDArray[np.int64],
    *,
    table: bool,
    next_states: bool = True,
    resident: ResidentStates | None = None,
) -> Batch:
    """The transitions that start in `rows` (any shape).

    Args:
        data: the transitions.
        rows: of any shape.
        table: whether states are given by their place in the table of distinct states.
        next_states: whether the states of the next rows are read.
        resident: the states on an accelerator, which gathers them itself; None: they are read from the memory map.
    """
    shape, flat = rows.shape, rows.ravel()
    following = np.asarray(data.next_row[flat]).astype(np.int64)
    linked = following >= 0
    following = np.where(linked, following, flat)
    terminal = data.terminal[flat]
    outcome = data.outcome[flat]
    if not data.steady:
        outcome = np.concatenate([outcome, ~data.forced[flat][:, None]], axis=1).astype(np.float32)
    gamma = data.campaign.meta.discount
    discount = np.where(linked & ~terminal, gamma ** data.gap[flat].astype(np.float64), 0.0)
    if data.eligible is None or table:
        allowed = next_allowed = np.ones((*shape[:-1], 1, data.num_actions), np.bool_)
    else:
        allowed = data.allowed(flat).reshape(*shape, data.num_actions)
        next_allowed = data.allowed(following).reshape(*shape, data.num_actions)
    return Batch(
        state=_states(data, flat, shape, table, resident),
        next_row=following.astype(np.int32).reshape(shape),
        next_state=_states(data, following, shape, table, resident) if next_states else _no_states(shape),
        action=data.action[flat].astype(np.int32).reshape(shape),
        outcome=outcome.reshape(*shape, outcome.shape[1]),
        discount=discount.astype(np.float32).reshape(shape),
        has_target=(linked | terminal | (gamma == 0)).astype(np.float32).reshape(shape),
        chosen=(~data.forced[flat]).astype(np.float32).reshape(shape),
        allowed=allowed,
        next_forced=(data.forced[following] & linked).reshape(shape),
        next_action=data.action[following].astype(np.int32).reshape(shape),
        next_allowed=next_allowed,
    )


def _states(
    data: Transitions, rows: NDArray[np.int64], shape: tuple[int, ...], table: bool, resident: ResidentStates | None
) -> StateRows:
    if table and data.state is not None:
        empty = np.empty((*shape, 0))
        return StateRows(
            empty.astype(np.int32), empty.astype(np.float32), data.state[rows].astype(np.int32).reshape(shape)
        )
    codes: Column = data.codes(rows, data.code_type) if resident is None else resident.codes(rows)
    numbers: Column = None if resident is None else resident.numbers_of(rows)
    if numbers is None:
        numbers = data.numbers(rows)
    none = np.empty((*shape[:-1], 0), np.int32)
    return StateRows(codes.reshape(*shape, codes.shape[1]), numbers.reshape(*shape, numbers.shape[1]), none)


def _no_states(shape: tuple[int, ...]) -> StateRows:
    codes, numbers = np.empty((*shape, 0), np.uint8), np.empty((*shape, 0), np.float32)
    return StateRows(codes, numbers, np.empty((*shape[:-1], 0), np.int32))


class Order(NamedTuple):
    """In which order rows are seen, and how many at a time."""

    batch: int  # rows a gradient step
    steps: int  # gradient steps a block
    total: int  # gradient steps in all, a multiple of `steps`
    seed: int  # of the permutations
    start: int = 0  # gradient steps already made, a multiple of `steps`


def blocks(
    data: Transitions,
    rows: NDArray[np.int64],
    order: Order,
    *,
    table: bool | None = None,
    next_states: bool = True,
    share: slice | None = None,
    resident: ResidentStates | None = None,
) -> Iterator[Batch]:
    """Blocks of batches until all gradient steps are made, each epoch a new permutation of `rows`.

    A thread gathers the next block while the caller works on the last; no more than these two are in memory.

    The block that holds a given step depends on the seed and the step alone, so a resumed run sees what it would have.

    Args:
        data: the transitions.
        rows: `[n]` rows to learn from.
        order: of the rows.
        table: whether states are given by their place in the table of distinct states; None: where that is cheaper.
        next_states: whether the states of the next rows are read.
        share: the rows of each batch that are gathered; None: all.
        resident: the states on an accelerator, as in `gather`.
    """
    table = uses_table(data, order.batch) if table is None else table
    share = slice(None) if share is None else share
    with ThreadPoolExecutor(1) as pool:
        before: Future[Batch] | None = None
        for some in _row_blocks(rows, order):
            following = pool.submit(
                gather, data, some[:, share], table=table, next_states=next_states, resident=resident
            )
            if before is not None:
                yield before.result()
            before = following
        if before is not None:
            yield before.result()


def steps_in_memory(data: Transitions, batch: int, most: int) -> int:
    """The most gradient steps, a divisor of `most`, whose codes take no more than BLOCK_BYTES; at least one."""
    step = batch * len(data.schema.categorical) * data.code_type.itemsize
    return next(n for n in range(most, 0, -1) if most % n == 0 and (n * step <= BLOCK_BYTES or n == 1))


def chunks(data: Transitions, rows: NDArray[np.int64], width: int) -> list[NDArray[np.int64]]:
    """Split rows into parts that networks are evaluated on at a time: smaller ones in a wide log.

    Args:
        data: the log.
        rows: `[n]`.
        width: of an embedding.
    """
    size = min(CHUNK_ROWS, max(1, CHUNK_VALUES // (width * max(1, len(data.schema.categorical)))))
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def padded(parts: Sequence[NDArray[np.int64]]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Each of the parts, of which the first is the largest, and it with rows repeated up to one power of two.

    So that one program is compiled for all of them, and for those of another fold.
    """
    for part in parts:
        yield part, np.resize(part, 1 << (len(parts[0]) - 1).bit_length())


def _row_blocks(rows: NDArray[np.int64], order: Order) -> Iterator[NDArray[np.int64]]:
    """The rows `[steps, batch]` of each block."""
    need = order.steps * order.batch
    epoch, permuted = -1, np.empty(0, np.int64)
    for first in range(order.start * order.batch, order.total * order.batch, need):
        parts, place = [], first
        while place < first + need:
            if place // len(rows) != epoch:
                epoch = place // len(rows)
                permuted = np.random.default_rng([order.seed, epoch]).permutation(rows)
            inside = place % len(rows)
            parts.append(permuted[inside : inside + first + need - place])
            place += len(parts[-1])
        yield np.concatenate(parts).reshape(order.steps, order.batch)


@dataclass(frozen=True)
class ResidentStates:
    """Encoded states on a device.

    Attributes:
        columns: `[N, f]` codes, as `Transitions.code_columns`.
        order: `[F]` the place of each field among these columns side by side.
        kind: type of the codes in a batch.
        numbers: `[N, n]`, or None where some of them are computed on the host.
    """

    columns: tuple[Array, ...]
    order: NDArray[np.int32]
    kind: Any
    numbers: Array | None

    @classmethod
    def of(cls, data: Transitions) -> ResidentStates:
        """Copy the states of a log to the device that trains."""
        places = [place for positions, _ in data.code_columns for place in positions]
        numbers = None if data.further is not None else jnp.asarray(data.number_columns)
        columns = tuple(jnp.asarray(columns) for _, columns in data.code_columns)
        return cls(columns, np.argsort(places).astype(np.int32), data.code_type, numbers)

    def codes(self, rows: NDArray[np.int64]) -> Array:
        """`[B, F]` as `Transitions.codes`."""
        codes: Array = _taken(self.columns, rows, self.order, self.kind)
        return codes

    def numbers_of(self, rows: NDArray[np.int64]) -> Array | None:
        """`[B, n]` as `Transitions.numbers`, or None where the host computes them."""
        return None if self.numbers is None else _taken((self.numbers,), rows, None, np.float32)


def resident_states(data: Transitions) -> ResidentStates | None:
    """The states of a log on the accelerator; None where there is none, or they do not fit."""
    free = _free_memory()
    size = data.number_columns.nbytes + sum(columns.nbytes for _, columns in data.code_columns)
    return None if free is None or size > RESIDENT_SHARE * free else ResidentStates.of(data)


def _free_memory() -> int | None:
    """Bytes that are free on the device that trains; None where it is a processor."""
    device = jax.local_devices()[0]
    stats = None if device.platform == "cpu" else device.memory_stats()
    return None if stats is None else stats["bytes_limit"] - stats["bytes_in_use"]


@partial(jax.jit, static_argnames="kind")
def _taken(columns: tuple[Array, ...], rows: Array, order: Array | None, kind: Any) -> Array:
    found = [column[rows].astype(kind) for column in columns]
    beside = jnp.concatenate(found, axis=1) if found else jnp.zeros((len(rows), 0), kind)
    return beside if order is None else beside[:, order]
