"""Networks as files and in part: what is written is read, and one policy of many is that policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.bundles.reference import forward
from outlay.core.arrays import NetworkArrays, lookup_network, read_network, write_network
from outlay.core.bodies import StateTable
from small_bundles import SCHEMA, random_network

POLICIES, HEADS, ACTIONS = 4, 2, 3


def many(*, imitation: bool = True, outcomes: int = 2, layers: tuple[int, ...] = (16, 8), **more: Any) -> NetworkArrays:
    """Four policies on one trunk."""
    network = random_network(0, heads=POLICIES * HEADS, imitation=imitation, outcomes=outcomes, layers=layers, **more)
    return replace(network, num_policies=POLICIES)


def rows() -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    return rng.integers(0, SCHEMA.sizes, (20, 2)).astype(np.int32), rng.normal(size=(20, 2)).astype(np.float32)


def same(one: NetworkArrays, other: NetworkArrays) -> bool:
    """Bitwise, types of numbers included."""
    assert (one.num_actions, one.num_policies, one.num_heads) == (
        other.num_actions,
        other.num_policies,
        other.num_heads,
    )
    assert (one.imitation is None, one.outcome is None) == (other.imitation is None, other.outcome is None)
    parts = []
    for network in (one, other):
        dense = (*network.layers, network.head, network.imitation or (), network.outcome or ())
        body = () if network.body is None else network.body.parts().values()
        parts.append([network.embedding, network.offsets, *body, *(array for pair in dense for array in pair)])
    return len(parts[0]) == len(parts[1]) and all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(*parts, strict=True)
    )


@pytest.mark.parametrize("imitation", [True, False])
@pytest.mark.parametrize("outcomes", [0, 2])
@pytest.mark.parametrize("layers", [(), (16, 8)])
def test_what_is_written_is_read(imitation: bool, outcomes: int, layers: tuple[int, ...], tmp_path: Path) -> None:
    network = many(imitation=imitation, outcomes=outcomes, layers=layers)
    write_network(tmp_path / "network.npz", network)
    assert same(read_network(tmp_path / "network.npz"), network)


def test_a_table_written_as_a_network_is_read_too(tmp_path: Path) -> None:
    codes, numbers = np.array([[0], [1]], np.int32), np.array([[0.5], [0.5]], np.float32)
    q, outcome = np.arange(24.0).reshape(2, ACTIONS, 2, 2), np.ones((2, ACTIONS, 2))
    network = lookup_network(StateTable(codes, numbers), (2,), q, outcome, np.full(2, 0.5))
    write_network(tmp_path / "network.npz", network)
    assert same(read_network(tmp_path / "network.npz"), network)


def test_a_file_that_is_absent_or_cut_off_is_no_network(tmp_path: Path) -> None:
    path = tmp_path / "network.npz"
    with pytest.raises(OSError, match="No such file"):
        read_network(path)
    np.savez(path, embedding=np.zeros(1))
    with pytest.raises(KeyError):
        read_network(path)


@pytest.mark.parametrize("chosen", [[2], [3, 0], [0, 1, 2, 3], [1, 1]])
def test_some_policies_say_what_they_said_among_all(chosen: list[int]) -> None:
    network = many()
    part = network.only(chosen)
    assert (part.num_policies, part.num_heads) == (len(chosen), HEADS)
    whole, found = forward(network, *rows()), forward(part, *rows())
    shape = (20, ACTIONS, -1, HEADS)
    assert np.array_equal(found.q.reshape(shape), whole.q.reshape(shape)[:, :, chosen])
    assert whole.imitation is not None
    assert whole.outcome is not None
    assert np.array_equal(found.imitation, whole.imitation)  # type: ignore[arg-type]
    assert np.array_equal(found.outcome, whole.outcome)  # type: ignore[arg-type]
    a_policy = part.head[0].size // len(chosen) + part.head[1].size // len(chosen)
    assert network.num_parameters - part.num_parameters == (POLICIES - len(chosen)) * a_policy


def test_a_part_of_a_part_is_a_part() -> None:
    network = many()
    assert same(network.only([3, 1, 0]).only([2, 0]), network.only([0, 3]))
