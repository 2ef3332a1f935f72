"""States on an accelerator: batches are the same as from the memory map.

A processor stands in for the accelerator: what is gathered by the device is compiled for it in the same way.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from outlay.core.schema import Categorical, Schema
from outlay.core.transitions import Transitions
from outlay.nets import resident
from outlay.nets.batches import gather
from outlay.nets.resident import ResidentStates, resident_states
from small_logs import log_of, random_cmdp


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
        monkeypatch.setattr(resident, "_free_memory", lambda free=free: free)
        assert (resident_states(data) is not None) == fits


def test_what_is_free_is_asked_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class Card:
        platform = "gpu"

        def memory_stats(self) -> dict[str, int]:
            return {"bytes_limit": 100, "bytes_in_use": 40}

    monkeypatch.setattr(jax, "local_devices", lambda *_: [Card()])
    assert resident._free_memory() == 60
