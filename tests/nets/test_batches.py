"""Batches: every row once an epoch, in an order that a seed decides; and the same from states on an accelerator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.schema import Categorical, Schema
from outlay.core.transitions import Transitions
from outlay.learning import critic
from outlay.learning.critic import CriticSettings, DistinctStates
from outlay.nets import batches
from outlay.nets.batches import (
    Batch,
    Order,
    ResidentStates,
    blocks,
    chunks,
    gather,
    resident_states,
    steps_in_memory,
    uses_table,
)
from outlay.nets.network import Shape, init_pair
from outlay.ops.action_basis import smooth_basis
from small_logs import campaign, draw, log_of, random_cmdp, transitions

ALLOWED = [[1, 1, 1], [0, 1, 1], [1, 0, 0]]


def every_kind_of_row(*, steady: bool = False) -> Transitions:
    """Row 0: next day; 1: gap of two days; 2: truncated; 3: its next row is forced; 4: forced and terminal."""
    return transitions(
        user=[0, 0, 0, 1, 1],
        day=[0, 1, 3, 0, 1],
        state=[0, 1, 2, 0, 1],
        action=[2, 1, 0, 1, 2],
        outcome=[[1, 10], [2, 20], [3, 30], [4, 40], [5, 50]],
        num_states=3,
        num_actions=3,
        about=campaign(0.8),
        terminal=[False, False, False, False, True],
        forced=[False, False, False, False, True],
        allowed=ALLOWED,
        steady=steady,
    )


def test_every_kind_of_row_is_gathered_as_the_method_says() -> None:
    batch = gather(every_kind_of_row(), np.arange(5), table=False)
    np.testing.assert_allclose(batch.discount, [0.8, 0.8**2, 0, 0.8, 0], rtol=1e-6)
    assert batch.has_target.tolist() == [1, 1, 0, 1, 1]  # the truncated row has none; the terminal one has
    assert batch.chosen.tolist() == [1, 1, 1, 1, 0]
    assert batch.next_forced.tolist() == [False, False, False, True, False]
    assert batch.next_action.tolist()[3] == 2  # what the forced row was given
    assert batch.action.tolist() == [2, 1, 0, 1, 2]
    assert batch.state.codes[:, 0].tolist() == [3, 4, 5, 3, 4]
    assert batch.next_state.codes[:, 0].tolist() == [4, 5, 5, 4, 4]
    assert batch.state.numbers[:, 0].tolist() == [0, 1, 0, 0, 1]
    assert batch.next_allowed[[0, 1, 3]].astype(int).tolist() == [ALLOWED[1], ALLOWED[2], ALLOWED[1]]
    # Not steady: the last head counts decisions, and a forced row is none.
    assert batch.outcome.tolist() == [[1, 10, 1], [2, 20, 1], [3, 30, 1], [4, 40, 1], [5, 50, 0]]


def test_where_the_future_does_not_matter_truncated_rows_have_a_target_too() -> None:
    """γ = 0: the target is the row's own outcome, whatever follows it, and nothing is taken from a next state."""
    data = replace(every_kind_of_row(), campaign=campaign(0.0))
    batch = gather(data, np.arange(5), table=False)
    assert batch.has_target.tolist() == [1, 1, 1, 1, 1]
    assert batch.discount.tolist() == [0, 0, 0, 0, 0]


def test_where_every_policy_decides_every_day_decisions_are_not_counted() -> None:
    assert gather(every_kind_of_row(steady=True), np.arange(5), table=False).outcome.shape == (5, 2)


def test_rows_of_any_shape_keep_it() -> None:
    """A block `[2, 3]` holds what its rows hold alone."""
    data = every_kind_of_row()
    order = np.array([[4, 0, 2], [1, 3, 0]])
    for table in (False, True):
        block, flat = gather(data, order, table=table), gather(data, order.ravel(), table=table)
        for found, wanted in zip(jax.tree.leaves(block), jax.tree.leaves(flat), strict=True):
            if wanted.size and found is not block.next_allowed:
                assert found.shape[:2] == (2, 3)
                np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("table", [False, True])
def test_masks_that_never_bind_or_that_a_table_tells_are_a_single_row(table: bool) -> None:
    data = every_kind_of_row() if table else replace(every_kind_of_row(), eligible=None)
    allowed = gather(data, np.zeros((4, 6), np.int64), table=table).next_allowed
    assert allowed.shape == (4, 1, 3)
    assert allowed.all()


def numbered(rows: int) -> Transitions:
    """One user; the reward of a row is its number, so that a batch shows which rows it holds."""
    number = np.arange(rows)
    return transitions(
        user=np.zeros(rows),
        day=number,
        state=number % 3,
        action=number % 2,
        outcome=np.column_stack([number, number]),
        num_states=3,
        num_actions=2,
    )


def rows_of(batch: Batch) -> list[int]:
    return [int(number) for number in batch.outcome[..., 0].ravel()]


@pytest.mark.parametrize(("rows", "batch", "steps"), [(20, 4, 2), (10, 4, 1), (3, 8, 2), (24, 4, 3)])
def test_every_epoch_is_a_new_permutation_of_the_rows(rows: int, batch: int, steps: int) -> None:
    """Also where a batch straddles two epochs, or holds several."""
    learn = np.arange(5, 5 + rows)  # rows of other splits are never seen
    total = steps * (4 * rows // (batch * steps) + 1)
    found = blocks(numbered(50), learn, Order(batch, steps, total, seed=7))
    seen = [number for block in found for number in rows_of(block)]
    assert len(seen) == total * batch
    epochs = [seen[i : i + rows] for i in range(0, 4 * rows, rows)]
    for epoch in epochs:
        assert sorted(epoch) == learn.tolist()
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_a_block_depends_on_seed_and_step_alone() -> None:
    """So a run that is resumed in the middle sees what it would have seen."""
    data, learn = numbered(50), np.arange(50)

    def seen(seed: int, start: int = 0) -> list[list[int]]:
        found = blocks(data, learn, Order(4, 5, 40, seed, start))
        return [rows_of(block) for block in found]

    whole = seen(3)
    assert len(whole) == 8
    for done in (5, 20, 35):
        assert seen(3, start=done) == whole[done // 5 :]
    assert seen(4) != whole
    assert seen(3, start=40) == []


def test_codes_stay_in_the_smallest_type_until_a_network_reads_them() -> None:
    data = numbered(50)
    positions, columns = data.code_columns[0]
    for kind in (np.uint8, np.uint16, np.uint32):
        wider = replace(data, code_columns=((positions, np.asarray(columns).astype(kind)),))
        batch = gather(wider, np.arange(9), table=False)
        assert batch.state.codes.dtype == batch.next_state.codes.dtype == kind
        np.testing.assert_array_equal(batch.state.codes, data.features(np.arange(9))[0])


def test_a_block_of_a_wide_log_has_fewer_steps_and_a_part_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = numbered(50)
    fields = len(data.schema.categorical)
    assert steps_in_memory(data, 4, 100) == 100
    assert len(chunks(data, np.arange(50), 8)) == 1
    monkeypatch.setattr(batches, "BLOCK_BYTES", 4 * fields * data.code_type.itemsize * 30)
    monkeypatch.setattr(batches, "CHUNK_VALUES", 8 * fields * 10)
    assert steps_in_memory(data, 4, 100) == 25  # the next divisor of 100 below 30
    assert steps_in_memory(data, 4000, 100) == 1
    assert [len(part) for part in chunks(data, np.arange(50), 8)] == [10] * 5


def test_the_table_is_used_where_states_are_few() -> None:
    data = numbered(50)
    assert uses_table(data, 2)  # 3 states against batches of 2 rows
    assert not uses_table(data, 1)
    assert not uses_table(replace(data, states=None), 512)


@eqx.filter_jit
def _slope(state: critic.Critic, batch: Batch, table: DistinctStates | None, weights: Any, settings: Any) -> Any:
    spread = jnp.array([0.3, 0.7, 1.0])
    future = critic.target(state, batch, table, weights, settings)
    return jax.value_and_grad(critic.loss)(state.online, batch, future, table, spread, settings)


@pytest.mark.parametrize(
    ("oracle", "masked"), [pytest.param("ddqn", True, marks=pytest.mark.slow), ("bcq", False), ("bcq", True)]
)
def test_evaluating_distinct_states_gives_the_loss_and_the_gradient_of_evaluating_rows(
    oracle: critic.Oracle, masked: bool
) -> None:
    """The claim of `nets/batches.py`; "the same" up to the order of float32 sums."""
    model = random_cmdp(0, states=5)
    allowed = np.random.default_rng(1).random((5, 3)) < 0.6 if masked else None
    if allowed is not None:
        allowed[:, 1] = True
    rng = np.random.default_rng(2)
    data = draw(
        model,
        60,
        6,
        seed=0,
        allowed=allowed,
        forced=rng.random(360) < 0.2,
        terminal=rng.random(360) < 0.1,
        steady=False,
    )
    settings = CriticSettings(oracle, 0.8, 1e-3, 0.99, 0.8, 1.0, 1.0, 0.5)
    of = Shape(
        data.schema.sizes,
        2,
        3,
        3,
        2 if oracle == "bcq" else 0,
        oracle == "bcq",
        (16, 8),
        4,
        num_policies=2,
        action_basis=smooth_basis(np.arange(3.0), 1, None),
    )
    state = critic.init(init_pair(of, 0), settings)._replace(target=init_pair(of, 1))
    weights = jnp.array([[0.3, -0.2, 0.1], [0.1, -0.3, 0.4]])
    assert data.states is not None
    states = DistinctStates(*map(jnp.asarray, (data.states.codes, data.states.numbers, data.states.allowed)))
    rows = rng.permutation(360)[:256]

    def found(batch: Batch, table: DistinctStates | None) -> tuple[float, NDArray[np.float32]]:
        value, gradient = _slope(state, batch, table, weights, settings)
        return float(value), np.concatenate([np.asarray(g).ravel() for g in jax.tree.leaves(gradient)])

    by_row = found(gather(data, rows, table=False), None)
    by_state = found(gather(data, rows, table=True), states)
    assert by_state[0] == pytest.approx(by_row[0], rel=1e-6)
    np.testing.assert_allclose(by_state[1], by_row[1], atol=2e-6)
    assert np.abs(by_row[1]).max() > 1e-2


def mixed() -> Transitions:
    """Fields of two types of codes, in turns."""
    data, rng = log_of(random_cmdp(0)), np.random.default_rng(0)
    few, many = rng.integers(0, 200, (len(data), 3)), rng.integers(0, 60_000, (len(data), 2))
    columns = ((0, 2, 3), few.astype(np.uint8)), ((4, 1), many.astype(np.uint16))
    fields = tuple(Categorical(str(i), ()) for i in range(5))
    return replace(data, schema=Schema(fields, ()), code_columns=columns, state=None, states=None)


@pytest.mark.parametrize("further", [False, True])
def test_batches_are_those_of_the_memory_map(further: bool) -> None:
    data = mixed()
    if further:
        data = replace(data, further=lambda rows: np.stack([rows, 2 * rows], axis=1).astype(np.float32))
    rows = np.random.default_rng(1).integers(0, len(data), (4, 25))
    own, there = (gather(data, rows, table=False, resident=states) for states in (None, ResidentStates.of(data)))
    assert isinstance(there.state.codes, jax.Array)
    for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(there), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_states_stay_on_the_host_where_there_is_no_accelerator_or_they_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = mixed()
    assert (resident_states(data) is None) == (jax.devices()[0].platform == "cpu")
    size = data.number_columns.nbytes + sum(columns.nbytes for _, columns in data.code_columns)
    for free, fits in ((size, False), (2 * size, True)):
        monkeypatch.setattr(batches, "_free_memory", lambda free=free: free)
        assert (resident_states(data) is not None) == fits


def test_what_is_free_is_asked_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class Card:
        platform = "gpu"

        def memory_stats(self) -> dict[str, int]:
            return {"bytes_limit": 100, "bytes_in_use": 40}

    monkeypatch.setattr(jax, "local_devices", lambda *_: [Card()])
    assert batches._free_memory() == 60
