"""Arms by ranges on one hash: the published vectors, the shares, that a ramp moves nobody, independence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray
from scipy.stats import chi2
from small_experiments import content, spring

from outlay.experiments.design import Experiment
from outlay.experiments.split import OUTSIDE, entries, expected_users
from outlay.ops.hashing import rendezvous, uniform

PAGE = Path(__file__).parents[2] / "docs" / "ab-tests.md"
MILLION = 1_000_000

# Anyone who repeats the rule in another language must find these: u, and the arm at coverage 0.1, 0.5 and 1.
VECTORS = {
    "user-0": (0.43831590712992174, "–", "–", "old"),
    "user-4": (0.842813270124037, "–", "none", "none"),
    "user-5": (0.6435067681488537, "–", "new", "new"),
    "user-12": (0.09438109479867807, "–", "old", "old"),
    "user-15": (0.9950850300032251, "–", "–", "–"),
    "user-17": (0.5226497450337907, "new", "new", "new"),
    "user-60": (0.01611906576920419, "old", "old", "old"),
    "user-86": (0.8007251627432396, "none", "none", "none"),
    "3": (0.2096612308148268, "–", "old", "old"),
    "Zoë": (0.6950262396370062, "–", "–", "new"),
}
WORDS = ("old", "new", "none", "–")  # the last stands for −1


def assign(experiment: Experiment, users: Iterable[object], day: int) -> NDArray[np.int64]:
    """The arm of every user on a day of the test; −1 outside."""
    arm, since = entries(experiment, users)
    return np.where((since != OUTSIDE) & (since <= day), arm, OUTSIDE)


@pytest.fixture(scope="module")
def spring_arms() -> NDArray[np.int64]:
    return assign(spring(), range(MILLION), 4)


def independent(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """p-value of the chi-square test that two codings of the same users say nothing about each other."""
    counts = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(counts, (one, other), 1)
    wanted = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
    statistic = ((counts - wanted) ** 2 / wanted).sum()
    return float(chi2.sf(statistic, (counts.shape[0] - 1) * (counts.shape[1] - 1)))


def test_assignment_gives_the_published_vectors() -> None:
    found = [[WORDS[i] for i in assign(spring(), VECTORS, day)] for day in (0, 2, 4)]
    assert uniform("spring", VECTORS).tolist() == [vector[0] for vector in VECTORS.values()]
    assert [list(arms) for arms in zip(*found, strict=True)] == [list(vector[1:]) for vector in VECTORS.values()]


def test_the_page_shows_the_same_vectors() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for user, (u, *arms) in VECTORS.items():
        assert f"| `{user}` | {u!r} | {' | '.join(arms)} |" in page
    assert len(re.findall(r"^\| `.*` \| 0\.\d+ \|", page, re.MULTILINE)) == len(VECTORS)


def test_assignment_follows_its_rule() -> None:
    """Longhand: arm by arm, user by user."""
    experiment, users = spring(), [f"u{i}" for i in range(2_000)]
    for day in (0, 2, 4):
        wanted = []
        for u in uniform("spring", users).tolist():
            inside, start = OUTSIDE, 0.0
            for i, arm in enumerate(experiment.arms):
                if start <= u < start + experiment.coverage(day) * arm.share:
                    inside = i
                start += arm.share
            wanted.append(inside)
        assert assign(experiment, users, day).tolist() == wanted


def test_users_enter_on_the_first_day_that_has_them() -> None:
    experiment, users = spring(), range(3_000)
    arm, since = entries(experiment, users)
    by_day = np.stack([assign(experiment, users, day) for day in range(6)])
    inside = by_day != OUTSIDE
    assert np.array_equal(since, np.where(inside.any(0), inside.argmax(0), OUTSIDE))
    assert set(since.tolist()) == {OUTSIDE, 0, 2, 4}
    assert np.array_equal(arm, by_day[-1])
    assert set(assign(experiment, users, -1).tolist()) == {OUTSIDE}


def test_shares_of_a_million_users_are_those_of_the_file(spring_arms: NDArray[np.int64]) -> None:
    shares = np.bincount(spring_arms + 1, minlength=4) / MILLION
    assert np.abs(shares - [0.1, 0.5, 0.3, 0.1]).max() < 2e-3
    assert expected_users(spring(), MILLION, 2) == [250_000, 150_000, 50_000]


@given(
    shares=st.lists(st.integers(1, 40), min_size=2, max_size=5).filter(lambda parts: sum(parts) <= 100),
    coverages=st.lists(st.floats(0.001, 1), min_size=2, max_size=5),
)
def test_a_ramp_moves_nobody_between_arms(shares: list[int], coverages: list[float]) -> None:
    arms = [{"name": str(i), "kind": "holdout", "share": share / 100} for i, share in enumerate(shares)]
    ramp = [{"day": day, "coverage": coverage} for day, coverage in enumerate(sorted(coverages))]
    experiment = Experiment.parse(content() | {"arm": arms, "ramp": ramp})
    before = np.full(500, OUTSIDE)
    for step in ramp:
        now = assign(experiment, range(500), int(step["day"]))
        assert np.array_equal(now[before != OUTSIDE], before[before != OUTSIDE])
        before = now


def test_a_ramp_from_one_to_a_hundred_per_cent_moves_nobody() -> None:
    ramp = [{"day": 0, "coverage": 0.01}, {"day": 3, "coverage": 1.0}]
    experiment = Experiment.parse(content() | {"ramp": ramp})
    few, all_ = (assign(experiment, range(100_000), day) for day in (0, 3))
    inside = few != OUTSIDE
    assert 700 < inside.sum() < 1_100  # 0.9%
    assert np.array_equal(few[inside], all_[inside])


def test_the_arm_is_independent_of_the_member_draw(spring_arms: NDArray[np.int64]) -> None:
    """A bundle draws by `user:episode` and the salts of its members."""
    members = rendezvous(["a1f0", "77c2"], [0.6, 0.4], (f"{user}:habit" for user in range(MILLION)))
    assert independent(spring_arms + 1, members) > 1e-3


def test_the_arm_is_independent_of_another_test(spring_arms: NDArray[np.int64]) -> None:
    other = assign(spring(name="summer"), range(MILLION), 4)
    assert independent(spring_arms + 1, other + 1) > 1e-3


def test_the_same_salt_would_be_found_out(spring_arms: NDArray[np.int64]) -> None:
    """That the test above can fail: another name, but the same salt."""
    other = assign(spring(name="summer", salt="spring"), range(20_000), 4)
    assert independent(spring_arms[:20_000] + 1, other + 1) < 1e-9
