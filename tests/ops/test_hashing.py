"""Draws by hashing: the published vectors, the shares, how few units move; what two sets share."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.ops.hashing import mixed, rendezvous, shared, smallest, uniform

# Anyone who repeats the rule in another language must find these.
VECTORS = [
    ("", "", "3f7cf1824f7e92ad", 0.24800023490342427),
    ("outlay", "1", "469d9c0f315565ed", 0.27584243174472567),
    ("outlay", "user-7:coupons", "c218553a8cee3724", 0.7581837909646587),
    ("sel", "Zoë", "dbc3101dd5a9ee0b", 0.8584451744879186),
]
MEMBERS = {"user-0": 0, "user-1": 2, "user-2": 0, "user-3": 0, "user-4": 0, "user-5": 2, "user-6": 0, "user-7": 1}
PAGE = Path(__file__).parents[2] / "docs" / "sticky-assignment.md"


@pytest.mark.parametrize(("salt", "unit", "digest", "wanted"), VECTORS)
def test_uniform_gives_the_published_vectors(salt: str, unit: str, digest: str, wanted: float) -> None:
    assert uniform(salt, [unit])[0] == wanted == (int(digest, 16) >> 11) / 2**53


def test_rendezvous_gives_the_published_vectors() -> None:
    drawn = rendezvous(["a", "b", "c"], [0.5, 0.3, 0.2], [f"{user}:coupons" for user in MEMBERS])
    assert dict(zip(MEMBERS, drawn.tolist(), strict=True)) == MEMBERS


def test_the_page_shows_the_same_vectors() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for salt, unit, digest, wanted in VECTORS:
        assert f"| `{salt}` | `{unit}` | `{digest}` | {wanted!r} |" in page
    assert dict(re.findall(r"\| `(user-\d):coupons` \| (\d) \|", page)) == {u: str(k) for u, k in MEMBERS.items()}


def test_a_unit_counts_by_its_text() -> None:
    assert uniform("s", [3])[0] == uniform("s", ["3"])[0]


def test_rendezvous_follows_its_equation() -> None:
    """Longhand: argmin −ln u / α."""
    salts, weights, units = ["x", "y"], [0.7, 0.3], [f"u{i}" for i in range(500)]
    scores = [-np.log(uniform(s, units)) / w for s, w in zip(salts, weights, strict=True)]
    assert np.array_equal(rendezvous(salts, weights, units), np.argmin(scores, axis=0))


MIXTURES = st.dictionaries(st.text(max_size=4), st.floats(0, 1e3), min_size=1, max_size=5)


@given(MIXTURES.filter(lambda mixture: any(mixture.values())), st.lists(st.text(), max_size=20))
def test_units_are_drawn_alone_as_among_others(mixture: dict[str, float], units: list[str]) -> None:
    """And as the equation says in Python's own floats, wherever two scores are not alike to a rounding."""
    salts, weights = list(mixture), list(mixture.values())
    together = rendezvous(salts, weights, units).tolist()
    assert together == [rendezvous(salts, weights, [unit])[0] for unit in units]
    for unit, drawn in zip(units, together, strict=True):
        scores = [
            -math.log(u) / weight if weight and (u := uniform(salt, [unit])[0]) else math.inf
            for salt, weight in zip(salts, weights, strict=True)
        ]
        assert scores[drawn] <= min(scores) * (1 + 1e-12)


def test_shares_are_the_weights_within_two_thousandths_over_a_million_users() -> None:
    weights = np.array([0.637, 0.363])
    drawn = rendezvous(["first", "second"], weights, (f"user-{i}:coupons" for i in range(1_000_000)))
    shares = np.bincount(drawn, minlength=2) / 1e6
    assert np.abs(shares - weights).max() < 2e-3


def test_uniform_is_uniform_and_salts_are_independent() -> None:
    """Four standard errors: 4/√(12 n) for the mean, 4/√n for the correlation."""
    units = range(200_000)
    u, v = uniform("arm", units), uniform("policy", units)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 4 / np.sqrt(12 * len(units))
    assert abs(np.corrcoef(u, v)[0, 1]) < 4 / np.sqrt(len(units))
    counts = np.histogram2d(u, v, bins=10)[0]
    chi_square = ((counts - 2000) ** 2 / 2000).sum()
    assert chi_square < 160  # 99 degrees of freedom: passed by chance 1 time in 10,000


def test_new_weights_move_near_the_least_share() -> None:
    """.5/.3/.2 to .4/.3/.3 must move 10%; cumulative intervals would move 20%."""
    units = range(100_000)
    before = rendezvous(["a", "b", "c"], [0.5, 0.3, 0.2], units)
    after = rendezvous(["a", "b", "c"], [0.4, 0.3, 0.3], units)
    assert 0.095 < (before != after).mean() < 0.135


def test_a_member_that_comes_or_goes_moves_only_its_own_units() -> None:
    units = range(20_000)
    two = rendezvous(["a", "b"], [0.5, 0.3], units)
    three = rendezvous(["a", "b", "c"], [0.5, 0.3, 0.2], units)
    assert np.array_equal(two[three < 2], three[three < 2])


def test_the_order_of_members_does_not_matter() -> None:
    units = range(2_000)
    one, other = rendezvous(["a", "b"], [0.6, 0.4], units), rendezvous(["b", "a"], [0.4, 0.6], units)
    assert np.array_equal(one, 1 - other)


def test_weight_zero_is_never_drawn_and_the_only_weight_always() -> None:
    assert set(rendezvous(["a", "b", "c"], [0.0, 0.5, 0.5], range(1_000)).tolist()) == {1, 2}
    assert set(rendezvous(["a", "b"], [0.0, 1.0], range(100)).tolist()) == {1}


def test_a_draw_of_zero_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlay.ops.hashing._uniform", lambda salts, _texts: np.array(salts, float)[:, None])
    assert rendezvous(["0.0", "0.5"], [0.9, 0.1], ["u"]).tolist() == [1]
    assert rendezvous(["0.00", "0.0"], [0.9, 0.1], ["u"]).tolist() == [0]


@pytest.mark.parametrize(
    ("salts", "weights", "message"),
    [
        (["a", "b"], [1.0], "as many"),
        (["a", "a"], [0.5, 0.5], "used once"),
        (["a", "b"], [-0.5, 1.5], "not negative"),
        (["a", "b"], [0.0, 0.0], "not all zero"),
        (["a", "b"], [float("nan"), 1.0], "finite"),
    ],
)
def test_impossible_weights_are_refused(salts: list[str], weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rendezvous(salts, weights, ["u"])


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
