"""Propensities of exported rows: path probabilities, held against everything that can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.ops.hashing import rendezvous, uniform
from outlay.serve.export.propensities import PathProbabilities, Phase, Steps, draw_law, laws_of, path_probabilities

WEIGHTS = (0.5, 0.3, 0.2)
SALTS = ("a", "b", "c")
MIXTURE = Phase(SALTS, WEIGHTS)
ACTIONS = 4


class Step(NamedTuple):
    """One decision: what members would do, which actions fit, what was given (None: the guards refused)."""

    members: tuple[int, ...]
    fits: tuple[bool, ...]
    action: int | None
    drawn: bool = True
    share: float = 0.1
    phase: int = 0


def steps_of(paths: Sequence[Sequence[Step]]) -> Steps:
    rows = [step for path in paths for step in path]
    user = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    members = np.array([row.members for row in rows])
    action = np.array([-1 if row.action is None else row.action for row in rows])
    drawn = np.array([row.drawn for row in rows])
    fits = np.array([row.fits for row in rows])
    return Steps(
        user=user,
        phase=np.array([row.phase for row in rows]),
        given=drawn & (action >= 0),
        refused=drawn & (action < 0),
        same=members == action[:, None],
        fits=np.take_along_axis(fits, members, axis=1),
        share=np.array([row.share for row in rows]),
        allowed=np.full(len(rows), ACTIONS),
        fitting=fits.sum(axis=1),
    )


def enumerated(path: Sequence[Step], weights: Sequence[float]) -> list[float]:
    """The propensities of one path, component by component."""
    share = path[0].share
    left = [*(w * (1 - share) for w in weights), share]
    found = []
    for step in path:
        if not step.drawn:
            found.append(1.0)
            continue
        fit = [float(step.fits[a]) for a in step.members] + [sum(step.fits) / ACTIONS]
        if step.action is None:
            left = [w * (1 - f) for w, f in zip(left, fit, strict=True)]
            found.append(1.0)
            continue
        p = [float(a == step.action) for a in step.members] + [1 / ACTIONS]
        before = sum(w * f for w, f in zip(left, fit, strict=True))
        left = [w * x for w, x in zip(left, p, strict=True)]
        found.append(sum(left) / before)
    return found


@st.composite
def possible_paths(draw: st.DrawFn) -> list[Step]:
    """What a user whose component is drawn first may go through."""
    component = draw(st.integers(0, 3))
    path = []
    for _ in range(draw(st.integers(1, 6))):
        members = tuple(draw(st.integers(0, ACTIONS - 1)) for _ in range(3))
        fits = tuple(draw(st.booleans()) for _ in range(ACTIONS))
        wanted = members[component] if component < 3 else draw(st.integers(0, ACTIONS - 1))
        drawn = draw(st.integers(0, 4)) > 0
        path.append(Step(members, fits, wanted if fits[wanted] and drawn else None, drawn))
    return path


@given(st.lists(possible_paths(), min_size=1, max_size=8))
def test_they_are_the_sums_over_members_and_slice(paths: list[list[Step]]) -> None:
    found = path_probabilities(steps_of(paths), laws_of([MIXTURE]))
    wanted = [p for path in paths for p in enumerated(path, WEIGHTS)]
    np.testing.assert_allclose(found.propensity, wanted, rtol=1e-12)
    assert not found.restarted.any()
    assert np.all((found.propensity > 0) & (found.propensity <= 1))


@given(possible_paths())
def test_of_the_row_alone_nothing_before_counts(path: list[Step]) -> None:
    found = path_probabilities(steps_of([path]), laws_of([MIXTURE]))
    np.testing.assert_allclose(found.marginal, [enumerated([step], WEIGHTS)[0] for step in path], rtol=1e-12)


def test_a_phase_of_more_members_may_have_no_row_among_these() -> None:
    """Users of a bundle of one member in a block of their own; others in the episode have three."""
    path = [Step((0,), (True,) * ACTIONS, 0), Step((1,), (True,) * ACTIONS, 1)]
    found = path_probabilities(steps_of([path]), laws_of([Phase(("a",), (1.0,)), MIXTURE]))
    np.testing.assert_allclose(found.propensity, enumerated(path, (1.0,)), rtol=1e-12)


def frequencies(count: int, phases: Sequence[Phase], shares: Sequence[float]) -> tuple[dict[tuple[int, ...], int], int]:
    """Paths of many users through real draws: on day t member m of its phase gives action (m + t) mod 4."""
    units = [f"u{i}:episode" for i in range(count)]
    wanted = np.random.default_rng(0).integers(0, ACTIONS, (count, len(phases)))
    for day, (phase, share) in enumerate(zip(phases, shares, strict=True)):
        member = rendezvous(phase.salts, phase.weights, units)
        chosen = uniform("slice", units) >= share
        wanted[chosen, day] = (member[chosen] + day) % ACTIONS
    paths, number = np.unique(wanted, axis=0, return_counts=True)
    return {tuple(path): int(n) for path, n in zip(paths.tolist(), number, strict=True)}, count


def products(paths: Sequence[tuple[int, ...]], phases: Sequence[Phase], shares: Sequence[float]) -> PathProbabilities:
    known = list(dict.fromkeys(phases))
    every = (True,) * ACTIONS
    told = [
        [
            Step(
                tuple((m + t) % ACTIONS for m in range(3)), every, action, share=shares[t], phase=known.index(phases[t])
            )
            for t, action in enumerate(path)
        ]
        for path in paths
    ]
    return path_probabilities(steps_of(told), laws_of(known))


OTHER = Phase(SALTS, (0.2, 0.3, 0.5))
NEW = Phase(("d", "e", "f"), (0.1, 0.6, 0.3))
PARTLY = Phase(("b", "c", "g"), (0.2, 0.2, 0.6))


@pytest.mark.parametrize(
    ("phases", "shares"),
    [
        ([MIXTURE] * 3, [0.1] * 3),
        ([MIXTURE] * 3, [0.0] * 3),
        ([MIXTURE, OTHER, OTHER], [0.1] * 3),  # other weights in the middle of an episode
        ([MIXTURE, NEW, NEW], [0.1] * 3),  # another bundle, all members new
        ([MIXTURE, PARTLY, OTHER], [0.1] * 3),  # two changes, members in common
        ([MIXTURE] * 3, [0.1, 0.3, 0.05]),  # another share of the slice
        ([MIXTURE] * 3, [1.0] * 3),
    ],
)
def test_products_over_days_are_the_frequencies_of_paths(phases: list[Phase], shares: list[float]) -> None:
    seen, count = frequencies(200_000, phases, shares)
    paths = sorted(seen)
    found = products(paths, phases, shares)
    assert not found.restarted.any()
    expected = found.propensity.reshape(len(paths), -1).prod(axis=1)
    assert expected.sum() == pytest.approx(1, abs=2e-4)  # all that can happen did
    number = np.array([seen[path] for path in paths])
    z = (number - count * expected) / np.sqrt(count * expected * (1 - expected) + (2e-4 * count * expected) ** 2 + 1)
    assert np.abs(z).max() < 4.5
    assert (z**2).mean() < 2


def test_marginals_multiplied_are_not_the_frequencies() -> None:
    seen, count = frequencies(50_000, [MIXTURE] * 3, [0.1] * 3)
    path = (0, 1, 2)  # member 0's, for three days
    found = products([path], [MIXTURE] * 3, [0.1] * 3)
    assert found.propensity.prod() == pytest.approx(seen[path] / count, rel=0.03)
    assert found.marginal.prod() < 0.3 * seen[path] / count


def test_a_law_of_changed_weights_is_the_exact_one() -> None:
    """Two phases have closed forms: P(i stays i) = 1 / Σ_l max(α_l / α_i, β_l / β_i)."""
    before, after = np.array(WEIGHTS), np.array([0.4, 0.3, 0.3])
    law = draw_law([MIXTURE, Phase(SALTS, tuple(after))])
    assert law.weights.sum() == pytest.approx(1)
    told = {tuple(case): weight for case, weight in zip(law.places.tolist(), law.weights, strict=True)}
    for i in range(3):
        stays = 1 / np.maximum(before / before[i], after / after[i]).sum()
        assert told[i, i] == pytest.approx(stays, abs=3e-4)
        assert sum(w for (first, _), w in told.items() if first == i) == pytest.approx(before[i], abs=3e-4)
        assert sum(w for (_, last), w in told.items() if last == i) == pytest.approx(after[i], abs=3e-4)


def test_equal_weights_under_two_bundles_are_one_draw() -> None:
    law = draw_law([MIXTURE, MIXTURE])
    assert law.places.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert law.weights.tolist() == [0.5, 0.3, 0.2]


def test_a_refusal_tells_what_was_wanted() -> None:
    """Only member 2 wants action 3, which the money has no room for; who is refused is member 2, or in the slice."""
    fits = (True, True, True, False)
    path = [Step((0, 1, 3), fits, None), Step((0, 0, 1), (True,) * 4, 1)]
    found = path_probabilities(steps_of([path]), laws_of([MIXTURE]))
    posterior = 0.9 * 0.2 / (0.9 * 0.2 + 0.1 / 4)
    assert found.propensity[1] == pytest.approx(posterior + (1 - posterior) / 4)


def test_a_history_that_contradicts_itself_begins_anew() -> None:
    """Member 0's action, then member 1's: no user outside the slice goes this way."""
    every = (True,) * 4
    path = [
        Step((0, 1, 1), every, 0, share=0.0),
        Step((0, 1, 1), every, 1, share=0.0),
        Step((0, 1, 2), every, 1, share=0),
    ]
    found = path_probabilities(steps_of([path, path[:1]]), laws_of([MIXTURE]))
    assert found.restarted.tolist() == [False, True, False, False]
    assert found.propensity == pytest.approx([0.5, 0.5, 0.6, 0.5])


def test_what_no_draw_gives_has_no_chance() -> None:
    found = path_probabilities(steps_of([[Step((0, 1, 1), (True,) * 4, 3, share=0.0)]]), laws_of([MIXTURE]))
    assert found.marginal.tolist() == [0.0]


def test_a_long_stay_in_the_slice_keeps_its_digits() -> None:
    every = (True,) * 4
    path = [Step((0, 1, 1), every, 3, share=0.01)] * 2_000
    found = path_probabilities(steps_of([path]), laws_of([MIXTURE]))
    assert found.propensity[0] == pytest.approx(0.01 / 4)
    np.testing.assert_allclose(found.propensity[1:], 0.25, rtol=1e-9)
