"""Response models with random parameters, and random past days: for tests of bundles and of measuring."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from outlay.core.arrays import Attention, Layer, Pairs, ResponseArrays
from outlay.core.campaign import Campaign
from outlay.core.history import History
from outlay.core.schema import Numeric, Schema
from small_bundles import SCHEMA

WIDTH = 4  # of an embedding
COLUMNS = 3  # told of a past day: action, reward, cost


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
    """DeepFM, or DIN with `past_days` beside `numbers` of the state; `one_day`: the label's costs are of the day."""
    rng = np.random.default_rng(seed)
    heads = outcomes if one_day else 2 * outcomes - 1

    def array(*shape: int) -> NDArray[np.float32]:
        return rng.normal(0, shape[0] ** -0.5 if shape[0] else 1, shape).astype(np.float32)

    def layer(width: int, out: int) -> Layer:
        return array(width, out), array(out)

    flat = (len(sizes) + numbers + 1) * WIDTH
    own: Pairs | Attention = Pairs(
        array(sum(sizes), heads), array(numbers, heads), array(actions, heads), array(WIDTH, heads)
    )
    if past_days:
        own = Attention(layer(flat, 6), array(2 * COLUMNS, 6), array(past_days, 6), layer(18, 5), layer(5, 1))
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


def random_past(rows: int, days: int, columns: int = COLUMNS) -> NDArray[np.float32]:
    """`[N, L·2C]` the numbers of past days: a third of the days absent, and single values missing of others."""
    rng = np.random.default_rng(2)
    missing = (rng.random((rows, days, 1)) < 1 / 3) | (rng.random((rows, days, columns)) < 0.2)
    values = np.where(missing, 0, rng.normal(0, 2, missing.shape))
    return np.stack([values, missing], axis=3).reshape(rows, -1).astype(np.float32)


def with_lags(campaign: Campaign, schema: Schema, days: int) -> tuple[Campaign, Schema]:
    """A campaign and its fields with every single value of the past days."""
    content = campaign.model_dump(mode="json", by_alias=True, exclude_none=True)
    content["log"]["history"] = {"days": days, "summaries": ["lags"]}
    campaign = Campaign.parse(content, campaign.path)
    history = History.of(campaign)
    assert history is not None
    return campaign, replace(schema, numeric=(*schema.numeric, *(Numeric(name, 0.5, 0.7) for name in history.names)))
