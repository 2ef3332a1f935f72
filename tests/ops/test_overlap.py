"""The share of two sets from their smallest hashes: exact for a part, close for a half, none for strangers."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.ops.overlap import mixed, shared, smallest


def of(start: int, end: int) -> np.ndarray:
    return smallest(mixed(np.arange(start, end)))


@pytest.mark.parametrize("size", [3_000, 60_000, 1_000_000])
def test_a_part_is_wholly_in_it(size: int) -> None:
    whole = of(0, 1_000_000)
    for start in (0, 1_000_000 - size):
        assert shared(of(start, start + size), whole) == shared(whole, of(start, start + size)) == 1


@pytest.mark.parametrize("common", [0.0, 0.2, 0.5, 0.8])
def test_the_share_of_the_smaller_one_is_close(common: float) -> None:
    one, other = of(0, 100_000), of(round((1 - common) * 100_000), 400_000)
    assert shared(one, other) == pytest.approx(common, abs=0.06)
    assert shared(of(0, 2_000), of(round((1 - common) * 2_000), 4_000)) == pytest.approx(common, abs=1e-9)


def test_hashes_need_every_column_in_its_place() -> None:
    a, b = np.arange(1_000), np.arange(1_000)[::-1].copy()
    assert len(set(mixed(a, b).tolist())) == 1_000
    assert not (mixed(a, b) == mixed(b, a)).any()
    assert (mixed(a, b)[:10] == mixed(a[:10], b[:10])).all()


def test_an_empty_set_shares_nothing() -> None:
    assert shared(of(0, 0), of(0, 10)) == 0
