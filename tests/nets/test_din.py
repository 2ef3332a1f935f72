"""DIN: both calls against the equations written longhand, and what it must not look at."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from outlay.nets.deepfm import ResponseShape
from outlay.nets.din import DIN, init

ROWS, BACK, COLUMNS = 10, 4, 3

every = eqx.filter_jit(DIN.every)  # as training and scoring call them: one program a shape
logged = eqx.filter_jit(DIN.logged)


def model(sizes: tuple[int, ...] = (5, 9), num_numbers: int = 2, layers: tuple[int, ...] = (16, 8)) -> DIN:
    """With every parameter away from zero, where a term that is forgotten would pass."""
    fresh = init(ResponseShape(sizes, num_numbers, 3, 2, layers, 4), BACK, COLUMNS, 0)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), fresh)  # type: ignore[no-any-return]


def states(of: DIN) -> tuple[Array, Array]:
    """Some rows with all four past days, some with fewer, the first with none; of others a single value is missing."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, of.shape.sizes, (ROWS, len(of.shape.sizes)))
    missing = np.arange(BACK) >= (np.arange(ROWS) % (BACK + 1))[:, None]
    missing = np.repeat(missing[..., None], COLUMNS, axis=2)
    missing[4::5, 0, 1] = True
    values = np.where(missing, 0, rng.normal(size=missing.shape))
    past = np.stack([values, missing], axis=3).reshape(ROWS, -1)
    numbers = np.hstack([rng.normal(size=(ROWS, of.shape.num_numbers)), past])
    return jnp.asarray(codes, jnp.int32), jnp.asarray(numbers, jnp.float32)


def days_of(of: DIN, numbers: Array) -> NDArray[np.float64]:
    """`[ROWS, BACK, 2·COLUMNS]`."""
    return np.asarray(numbers, np.float64)[:, of.shape.num_numbers :].reshape(ROWS, BACK, -1)


def longhand(of: DIN, codes: Any, numbers: Any, action: int, past: NDArray[np.float64]) -> NDArray[np.float64]:
    """One row, day by day."""

    def plain(x: Any) -> NDArray[np.float64]:
        return np.asarray(x, np.float64)

    start = np.cumsum((0, *of.shape.sizes))[:-1]
    parts = [plain(of.fields.code)[s + c] for s, c in zip(start, codes, strict=True)]
    parts += [x * v for x, v in zip(numbers, plain(of.fields.number), strict=True)]
    today = np.concatenate([*parts, plain(of.fields.action)[action]])
    query = today @ plain(of.query.weight) + plain(of.query.bias)
    pooled = np.zeros(query.shape)
    for told, age in zip(past, plain(of.age), strict=True):
        if told[1::2].all():
            continue
        e = told @ plain(of.day) + age
        hidden = np.maximum(np.concatenate([query, e, query * e]) @ plain(of.unit.weight) + plain(of.unit.bias), 0)
        pooled += (hidden @ plain(of.relevance.weight) + plain(of.relevance.bias)) * e
    h = np.concatenate([today, pooled])
    for i, layer in enumerate(of.dense):
        h = (np.maximum(h, 0) if i else h) @ plain(layer.weight) + plain(layer.bias)
    return h


@pytest.mark.parametrize(
    ("sizes", "num_numbers", "layers"), [((5, 9), 0, (16, 8)), ((), 4, (16,)), ((5, 9), 2, (16, 8)), ((4,), 2, ())]
)
def test_both_calls_are_the_equations(sizes: tuple[int, ...], num_numbers: int, layers: tuple[int, ...]) -> None:
    of = model(sizes, num_numbers, layers)
    codes, numbers = states(of)
    past = days_of(of, numbers)
    found = np.asarray(every(of, codes, numbers))
    assert found.shape == (ROWS, 3, 2)
    for i in range(ROWS):
        for a in range(3):
            wanted = longhand(of, np.asarray(codes)[i], np.asarray(numbers, float)[i, :num_numbers], a, past[i])
            np.testing.assert_allclose(found[i, a], wanted, rtol=1e-3, atol=1e-4)
    for a in range(3):
        np.testing.assert_allclose(logged(of, codes, numbers, jnp.full(ROWS, a)), found[:, a], rtol=1e-4, atol=1e-5)


def test_every_value_of_a_past_day_matters_but_of_an_absent_one_none() -> None:
    """Row 8 has three of four days. Other rows do not matter to it."""
    of = model()
    codes, numbers = states(of)
    base = np.asarray(every(of, codes, numbers))
    for place in range(2, numbers.shape[1], 2):
        found = np.asarray(every(of, codes, numbers.at[8, place].add(1.5)))
        assert (np.abs(found - base)[8].max() > 1e-3) == (place < 2 + 3 * 2 * COLUMNS)
        np.testing.assert_array_equal(np.delete(found, 8, 0), np.delete(base, 8, 0))
