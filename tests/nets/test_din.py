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

from outlay.core.response import Past
from outlay.nets.deepfm import ResponseShape
from outlay.nets.din import DIN, MOST_AGE, init, no_past

ROWS, BACK = 10, 4

every = eqx.filter_jit(DIN.every)  # as training and scoring call them: one program a shape
logged = eqx.filter_jit(DIN.logged)


def model(sizes: tuple[int, ...] = (5, 9), num_numbers: int = 2, layers: tuple[int, ...] = (16, 8)) -> DIN:
    """With every parameter away from zero, where a term that is forgotten would pass."""
    fresh = init(ResponseShape(sizes, num_numbers, 3, 2, layers, 4), 2, 0)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), fresh)  # type: ignore[no-any-return]


def states(of: DIN, *shape: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(2)
    codes = rng.integers(0, of.shape.sizes, (*shape, len(of.shape.sizes)))
    return jnp.asarray(codes, jnp.int32), jnp.asarray(rng.normal(size=(*shape, of.shape.num_numbers)), jnp.float32)


def past(of: DIN) -> Past:
    """Some rows with all four days, some with fewer, the first with none."""
    rng = np.random.default_rng(3)
    codes, numbers = states(of, ROWS, BACK)
    present = np.arange(BACK) < (np.arange(ROWS) % (BACK + 1))[:, None]
    return Past(
        codes=codes,
        numbers=numbers,
        action=jnp.asarray(rng.integers(0, 3, (ROWS, BACK))),
        outcome=jnp.asarray(rng.normal(size=(ROWS, BACK, 2)), jnp.float32),
        age=jnp.where(present, jnp.asarray(rng.integers(1, 60, (ROWS, BACK))), -1),
    )


def longhand(of: DIN, codes: Any, numbers: Any, action: int, before: list[Any]) -> NDArray[np.float64]:
    """One row, day by day. `before` holds (codes, numbers, action, outcome, age) of the days that there were."""

    def plain(x: Any) -> NDArray[np.float64]:
        return np.asarray(x, np.float64)

    def flat(codes: Any, numbers: Any, action: int) -> NDArray[np.float64]:
        start = np.cumsum((0, *of.shape.sizes))[:-1]
        parts = [plain(of.fields.code)[s + c] for s, c in zip(start, codes, strict=True)]
        parts += [x * v for x, v in zip(numbers, plain(of.fields.number), strict=True)]
        return np.concatenate([*parts, plain(of.fields.action)[action]])

    def day(z: NDArray[np.float64]) -> NDArray[np.float64]:
        return z @ plain(of.day.weight) + plain(of.day.bias)

    today = flat(codes, numbers, action)
    query, pooled = day(today), np.zeros(of.day.bias.shape)
    for then_codes, then_numbers, then_action, outcome, age in before:
        e = day(flat(then_codes, then_numbers, then_action)) + outcome @ plain(of.outcome)
        e += plain(of.age)[min(age, MOST_AGE)]
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
    (codes, numbers), days = states(of, ROWS), past(of)
    found = np.asarray(every(of, codes, numbers, days))
    assert found.shape == (ROWS, 3, 2)
    columns = [np.asarray(column) for column in days]
    for i in range(ROWS):
        before = [[column[i, n] for column in columns] for n in range(BACK) if columns[4][i, n] >= 0]
        for a in range(3):
            wanted = longhand(of, np.asarray(codes)[i], np.asarray(numbers, float)[i], a, before)
            np.testing.assert_allclose(found[i, a], wanted, rtol=1e-3, atol=1e-4)
    for a in range(3):
        np.testing.assert_allclose(
            logged(of, codes, numbers, jnp.full(ROWS, a), days), found[:, a], rtol=1e-4, atol=1e-5
        )


def test_what_stands_where_a_day_is_absent_does_not_matter() -> None:
    of = model()
    (codes, numbers), days = states(of, ROWS), past(of)
    absent = days.age < 0
    changed = days._replace(
        codes=jnp.where(absent[..., None], 0, days.codes),
        numbers=jnp.where(absent[..., None], 1e3, days.numbers),
        action=jnp.where(absent, 0, days.action),
        outcome=jnp.where(absent[..., None], -1e3, days.outcome),
    )
    np.testing.assert_array_equal(every(of, codes, numbers, changed), every(of, codes, numbers, days))
    longer = Past(*(jnp.concatenate([column, jnp.zeros_like(column)], axis=1) for column in days))
    longer = longer._replace(age=jnp.concatenate([days.age, jnp.full_like(days.age, -1)], axis=1))
    np.testing.assert_allclose(every(of, codes, numbers, longer), every(of, codes, numbers, days), atol=1e-5)


def test_the_order_of_days_is_told_by_their_age_alone() -> None:
    of = model()
    (codes, numbers), days = states(of, ROWS), past(of)
    turned = Past(*(column[:, ::-1] for column in days))
    np.testing.assert_allclose(every(of, codes, numbers, turned), every(of, codes, numbers, days), rtol=1e-4, atol=1e-4)
    older = days._replace(age=jnp.where(days.age < 0, -1, days.age % 30 + 1))
    assert np.abs(np.asarray(every(of, codes, numbers, older) - every(of, codes, numbers, days)))[1:].max() > 1e-3


def test_every_part_of_a_past_day_matters_and_rows_are_independent() -> None:
    of = model()
    (codes, numbers), days = states(of, ROWS), past(of)
    base = np.asarray(every(of, codes, numbers, days))
    for name in ("codes", "numbers", "action", "outcome"):
        column = getattr(days, name)
        other = days._replace(**{name: column.at[2, 0].set((column[2, 0] + 1) % 3)})
        found = np.asarray(every(of, codes, numbers, other))
        assert np.abs(found - base)[2].max() > 1e-3
        np.testing.assert_array_equal(np.delete(found, 2, 0), np.delete(base, 2, 0))


def test_no_past_is_a_past_without_days() -> None:
    of = model()
    codes, numbers = states(of, ROWS)
    days = past(of)
    empty = days._replace(age=jnp.full_like(days.age, -1))
    np.testing.assert_array_equal(every(of, codes, numbers, no_past(of, ROWS, 7)), every(of, codes, numbers, empty))
