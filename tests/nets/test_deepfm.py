"""DeepFM: its pairwise part against the double sum, both calls against each other, and the scale it starts at."""

from __future__ import annotations

from itertools import combinations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from outlay.nets.deepfm import DeepFM, ResponseShape, init
from outlay.nets.network import offsets

Floats = NDArray[np.float64]

every = eqx.filter_jit(DeepFM.every)  # as training and scoring call them: one program a shape
logged = eqx.filter_jit(DeepFM.logged)

KINDS = pytest.mark.parametrize(
    ("sizes", "num_numbers", "layers"),
    [((5, 9), 0, (16, 8)), ((), 4, (16,)), ((5, 9, 3), 2, (16, 8)), ((4,), 2, ())],
    ids=["categorical only", "numeric only", "both", "no hidden layer"],
)


def model(sizes: tuple[int, ...], num_numbers: int, layers: tuple[int, ...] = (16, 8), seed: int = 0) -> DeepFM:
    """With every parameter away from zero, where a term that is forgotten would pass."""
    fresh = init(ResponseShape(sizes, num_numbers, 4, 3, layers, 5), seed)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), fresh)  # type: ignore[no-any-return]


def states(of: DeepFM, count: int = 12) -> tuple[Array, Array]:
    rng = np.random.default_rng(2)
    codes = rng.integers(0, of.shape.sizes, (count, len(of.shape.sizes)))
    return jnp.asarray(codes, jnp.int32), jnp.asarray(rng.normal(size=(count, of.shape.num_numbers)), jnp.float32)


def longhand(of: DeepFM, codes: NDArray[np.int32], numbers: Floats, action: int) -> Floats:
    """The equations of the module's docstring for one row, pair by pair, in float64."""
    table, weights = of.fields, of.weight
    vectors, first = [], []
    for place, code in zip(offsets(of.shape.sizes), codes, strict=True):
        vectors.append(np.asarray(table.code, float)[place + int(code)])
        first.append(np.asarray(weights.code, float)[place + int(code)])
    for j, number in enumerate(numbers):
        vectors.append(number * np.asarray(table.number, float)[j])
        first.append(number * np.asarray(weights.number, float)[j])
    vectors.append(np.asarray(table.action, float)[action])
    first.append(np.asarray(weights.action, float)[action])
    by_head = [v.reshape(of.shape.num_heads, of.shape.embedding) for v in vectors]
    pairs = sum((v * w).sum(axis=1) for v, w in combinations(by_head, 2))
    h = np.concatenate(vectors)
    for i, layer in enumerate(of.dense):
        h = (np.maximum(h, 0) if i else h) @ np.asarray(layer.weight, float) + np.asarray(layer.bias, float)
    found: Floats = np.sum(first, axis=0) + pairs / (10 * len(vectors)) + h
    return found


@KINDS
def test_the_sum_of_squares_is_the_double_sum(
    sizes: tuple[int, ...], num_numbers: int, layers: tuple[int, ...]
) -> None:
    of = model(sizes, num_numbers, layers)
    codes, numbers = states(of)
    action = jnp.arange(12) % 4
    wanted = [longhand(of, np.asarray(codes)[i], np.asarray(numbers, float)[i], i % 4) for i in range(12)]
    np.testing.assert_allclose(logged(of, codes, numbers, action), wanted, rtol=1e-4, atol=1e-4)


@KINDS
def test_every_incentive_at_once_is_each_one_alone(
    sizes: tuple[int, ...], num_numbers: int, layers: tuple[int, ...]
) -> None:
    of = model(sizes, num_numbers, layers)
    codes, numbers = states(of)
    found = every(of, codes, numbers)
    assert found.shape == (12, 4, 3)
    for a in range(4):
        np.testing.assert_allclose(found[:, a], logged(of, codes, numbers, jnp.full(12, a)), atol=1e-5)
    assert np.ptp(np.asarray(found), axis=1).min() > 1e-3  # the incentive matters


def test_a_row_is_answered_as_if_it_were_alone() -> None:
    of = model((5, 9), 2)
    codes, numbers = states(of)
    order = np.random.default_rng(3).permutation(12)
    found = every(of, codes, numbers)
    np.testing.assert_allclose(every(of, codes[order], numbers[order]), found[order], atol=1e-5)
    np.testing.assert_allclose(every(of, codes[:1], numbers[:1]), found[:1], atol=1e-5)


def test_wide_logs_start_at_the_scale_of_narrow_ones() -> None:
    """Two fields or two hundred: fresh answers are of order 1, in units of the labels' spread."""
    for fields in (2, 200):
        fresh = init(ResponseShape((10,) * fields, 0, 4, 2, (32,), 8), 0)
        size = float(jnp.abs(every(fresh, *states(fresh, 50))).mean())
        assert 0.01 < size < 2


def test_a_fresh_model_is_a_function_of_the_seed() -> None:
    of = ResponseShape((5,), 2, 3, 2, (8,), 4)
    one, again, other = (jax.tree.leaves(init(of, seed)) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))
