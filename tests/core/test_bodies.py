"""Sums of trees against a walk from node to node: ties, missing numbers, sets of codes, trees of any size."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.bodies import BITS, LEAF, ROWS, Node, Trees, joined


def grown(rng: np.random.Generator, leaves: int, sizes: list[int], num_numbers: int) -> Node:
    """A random tree; some thresholds are met exactly, and some are infinite."""
    if leaves == 1:
        return Node(LEAF, 0.0, float(rng.normal()))
    column, low = int(rng.integers(num_numbers + len(sizes))), int(rng.integers(1, leaves))
    children = [grown(rng, many, sizes, num_numbers) for many in (low, leaves - low)]
    if column < num_numbers:
        return Node(column, float(rng.choice([-0.5, 0.1, 0.3, 0.5, np.inf])), 0.0, None, *children)
    codes = frozenset(np.flatnonzero(rng.random(sizes[column - num_numbers]) < 0.5).tolist())
    return Node(column, 0.0, 0.0, codes, *children)


def reached(node: Node, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> float:
    """The value of the leaf of one row."""
    while node.low is not None and node.high is not None:
        inside = (
            float(numbers[node.column]) <= node.threshold
            if node.codes is None
            else int(codes[node.column - len(numbers)]) in node.codes
        )
        node = node.low if inside else node.high
    return float(np.float32(node.value))


@pytest.mark.parametrize("sizes", [[], [3, 40]])
def test_every_row_gets_the_leaves_that_a_walk_finds(sizes: list[int]) -> None:
    rng, num_numbers, rows = np.random.default_rng(0), 3, ROWS + 7
    trees = [(int(rng.integers(4)), grown(rng, leaves, sizes, num_numbers)) for leaves in (1, 2, 5, BITS, BITS + 1, 70)]
    codes = np.array([[rng.integers(size) for size in sizes] for _ in range(rows)], np.int32).reshape(rows, len(sizes))
    numbers = rng.choice(np.array([-1, -0.5, 0.1, 0.3, 0.5, np.inf, -np.inf, np.nan], np.float32), (rows, num_numbers))
    expected = np.zeros((2, rows, 4))
    for row in range(rows):
        for output, root in trees:
            value = reached(root, codes[row], numbers[row])
            expected[:, row, output] += value, abs(value)
    found = joined(trees, sizes, num_numbers, 4)
    np.testing.assert_allclose(found.sums(codes, numbers), expected[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.sums(codes, numbers, absolute=True), expected[1], rtol=0, atol=1e-12)


def test_an_ensemble_without_rows_or_without_trees_says_zero() -> None:
    nothing = joined([], [], 2, 3)
    assert isinstance(nothing, Trees)
    assert nothing.sums(np.empty((4, 0), np.int32), np.zeros((4, 2), np.float32)).tolist() == [[0.0] * 3] * 4
    assert nothing.sums(np.empty((0, 0), np.int32), np.zeros((0, 2), np.float32)).shape == (0, 3)
