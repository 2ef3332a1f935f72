"""Response models with random parameters, and random past days: for tests of bundles and of measuring."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from outlay.core.response import Attention, Layer, Pairs, Past, ResponseArrays
from small_bundles import SCHEMA

WIDTH = 4  # of an embedding


def random_response(
    seed: int,
    *,
    past_days: int = 0,
    sizes: tuple[int, ...] = SCHEMA.sizes,
    numbers: int = 2,
    actions: int = 3,
    outcomes: int = 2,
    one_day: bool = False,
    layers: tuple[int, ...] = (16, 8),
) -> ResponseArrays:
    """DeepFM, or DIN with `past_days`; `one_day`: the label's costs are those of the day."""
    rng = np.random.default_rng(seed)
    heads = outcomes if one_day else 2 * outcomes - 1

    def array(*shape: int) -> NDArray[np.float32]:
        return rng.normal(0, shape[0] ** -0.5 if shape[0] else 1, shape).astype(np.float32)

    def layer(width: int, out: int) -> Layer:
        return array(width, out), array(out)

    flat = (len(sizes) + numbers + 1) * WIDTH
    own: Pairs | Attention = Pairs(array(sum(sizes), heads), array(numbers, heads), array(actions, heads),
                                   array(WIDTH, heads))  # fmt: skip
    if past_days:
        own = Attention(past_days, layer(flat, 6), array(outcomes, 6), array(32, 6), layer(18, 5), layer(5, 1))
    widths = (flat + 6 * bool(past_days), *layers, heads)
    return ResponseArrays(
        code=2 * array(sum(sizes), WIDTH),
        offsets=np.cumsum((0, *sizes))[:-1].astype(np.int64),
        number=array(numbers, WIDTH),
        action=2 * array(actions, WIDTH),
        layers=tuple(layer(a, b) for a, b in itertools.pairwise(widths)),
        own=own,
        num_heads=outcomes,
        binary=np.zeros(heads, np.bool_),
    )


def random_states(rows: int, sizes: tuple[int, ...], numbers: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, np.array(sizes, np.int64), (rows, len(sizes))).astype(np.int32)
    return codes, rng.normal(0, 2, (rows, numbers)).astype(np.float32)


def random_past(
    rows: int, days: int, sizes: tuple[int, ...], numbers: int, *, actions: int = 3, outcomes: int = 2
) -> Past:
    """A third of the days absent, with something standing there; some long ago."""
    rng = np.random.default_rng(2)
    shape = (rows, days)
    codes, values = random_states(rows * days, sizes, numbers)
    return Past(
        codes=codes.reshape(*shape, len(sizes)),
        numbers=values.reshape(*shape, numbers),
        action=rng.integers(0, actions, shape).astype(np.int32),
        outcome=rng.normal(1, 2, (*shape, outcomes)).astype(np.float32),
        age=np.where(rng.random(shape) < 1 / 3, -1, rng.integers(1, 60, shape)).astype(np.int32),
    )
