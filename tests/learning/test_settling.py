"""When λ has settled: in the second half of its steps it swings by less than it is large, about the limit."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.learning.settling import settled

STEPS = np.arange(40)


def one(multiplier: object, excess: object) -> bool:
    return settled(np.array(multiplier, float)[:, None], np.array(excess, float)[:, None])


def test_it_has_not_while_it_climbs_or_falls() -> None:
    """From 0, with the limit broken throughout; or down again, kept throughout."""
    assert not one(STEPS / 40, np.ones(40))
    assert not one(2 - STEPS / 40, -np.ones(40))


def test_it_has_not_while_it_jumps_from_end_to_end() -> None:
    ends = STEPS % 2 == 0
    assert not one(ends * 1.0, np.where(ends, -1, 1))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_it_has_where_it_swings_about_its_place_in_whatever_unit(scale: float) -> None:
    swings = 1 + 0.3 * np.sin(STEPS)
    assert one(scale * swings, np.sin(STEPS))
    assert not one(scale * (1 + 0.6 * np.sin(STEPS)), np.sin(STEPS))


def test_the_way_there_is_forgotten() -> None:
    """Jumps in the first half do not matter."""
    way = np.concatenate([STEPS % 2 * 5.0, np.ones(40)])
    assert one(way, np.concatenate([np.ones(40), np.sin(STEPS)]))


def test_a_limit_that_does_not_bind_has_no_price() -> None:
    assert one(np.zeros(40), -np.ones(40))
    assert not one(np.zeros(40), np.ones(40))


def test_every_limit_must_have_its_price() -> None:
    settled_one, rising = (1 + 0.1 * np.sin(STEPS), np.sin(STEPS)), (STEPS / 40, np.ones(40))
    pairs = [np.column_stack(pair) for pair in zip(settled_one, rising, strict=True)]
    assert not settled(*pairs)
    pairs = [np.column_stack([part, part]) for part in settled_one]
    assert settled(*pairs)
