"""Evaluation day by day, given the days before: what it rests on, and what it does not."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import World, campaign, ragged, transitions
from numpy.typing import NDArray

from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import EVERYONE, Transitions
from outlay.estimators.basis import FeatureBasis
from outlay.estimators.fitted import Evaluator
from outlay.estimators.observed import observe
from outlay.estimators.panel import Panel
from outlay.estimators.row_features import before, days_before
from outlay.estimators.sequential import Sequential
from outlay.ops.tabular import totals

DAYS = 5
ACTIVE = np.array([[0.1, 0.35], [0.5, 0.75]])  # by type, which no feature tells, and habit
LIFT = 0.2  # of action 1


def eager(users: int, seed: int) -> Transitions:
    """Types differ for ever and are in no feature; the habit is whether one was active yesterday."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=users)
    habit = (rng.random(users) < ACTIVE[kind, 0]).astype(np.int64)
    state, action, active = (np.empty((users, DAYS), np.int64) for _ in range(3))
    for day in range(DAYS):
        state[:, day], action[:, day] = habit, rng.integers(2, size=users)
        habit = (rng.random(users) < ACTIVE[kind, habit] + LIFT * action[:, day]).astype(np.int64)
        active[:, day] = habit
    return transitions(
        user=np.repeat(np.arange(users), DAYS),
        day=np.tile(np.arange(DAYS), users),
        state=state.ravel(),
        action=action.ravel(),
        outcome=np.column_stack([active.ravel(), (active * action).ravel()]),
        num_states=2,
        num_actions=2,
        about=campaign(0.9),
        propensity=np.full(users * DAYS, 0.5),
    )


def always(given: int) -> NDArray[np.float64]:
    """What each day brings by the truth, if everybody is given one action."""
    share = {(k, h): 0.5 * (ACTIVE[k, 0] if h else 1 - ACTIVE[k, 0]) for k, h in itertools.product((0, 1), repeat=2)}
    found = []
    for _ in range(DAYS):
        chance = {at: ACTIVE[at] + LIFT * given for at in share}
        came = {k: sum(share[k, h] * chance[k, h] for h in (0, 1)) for k in (0, 1)}
        found.append(came[0] + came[1])
        share = {(k, h): came[k] if h else 0.5 - came[k] for k, h in share}
    return np.array(found)


def of(data: Transitions, window: int = DAYS) -> Sequential:
    panel = Panel.of(data, EVERYONE)
    assert panel.propensity is not None
    assert panel.state is not None
    features = np.hstack([np.eye(int(panel.state.max()) + 1, dtype=np.float32)[panel.state][:, 1:], days_before(panel)])
    return Sequential(panel, features, panel.propensity, window)


def test_a_type_that_no_feature_tells_does_not_mislead_it() -> None:
    """The habit stands for the type in the log. To take the state for all is to promise eager users."""
    at = of(eager(20_000, 2))
    found = at.fit(np.ones(len(at.panel), np.intp), days=(1, DAYS))
    truth = always(1)
    for target, true in (("reward@1", truth[0]), (f"reward@{DAYS}", truth.sum())):
        place = found.column(target)
        assert abs(found.value[place] - true) < 2.5 * found.std_error[place]
        assert found.std_error[place] < 0.02 * true
    np.testing.assert_allclose(found.daily[:, 0], truth, atol=0.03)
    assert at.panel.state is not None
    stationary = Evaluator(at.panel, FeatureBasis(at.panel.state[:, None].astype(float), 2))
    misled = stationary.fit(np.ones(len(at.panel), np.intp), days=(DAYS,))
    place = misled.column(f"reward@{DAYS}")
    assert misled.value[place] - truth.sum() > 5 * misled.std_error[place]


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Forty logs of 800 users: a policy's total, and its gain over the other's."""
    gain, total = [], []
    for seed in range(40):
        at = of(eager(800, 100 + seed))
        one, none = (at.fit(np.full(len(at.panel), a), days=(DAYS,)) for a in (1, 0))
        place = one.column(f"reward@{DAYS}")
        less = one.minus(none)
        total.append((one.value[place] - always(1).sum()) / one.std_error[place])
        gain.append((less.value[place] - (always(1) - always(0)).sum()) / less.std_error[place])
    for z in (gain, total):
        assert 0.75 < np.std(z) < 1.25
        assert abs(np.mean(z)) < 0.5


def test_the_old_policy_is_what_was_observed() -> None:
    at = of(World.drawn(1).log(300, 7, np.random.default_rng(1)), 7)
    found, seen = at.fit(days=(1, 3, 7)), observe(at.panel, days=(1, 3, 7))
    for target in ("reward@1", "reward@3", "cost@7"):
        assert found.value[found.column(target)] == pytest.approx(seen.value[seen.column(target)])
    assert found.value[found.column("reward")] == pytest.approx(found.value[found.column("reward@7")] / 7)


def test_values_of_a_known_model() -> None:
    world = World.drawn(4)
    at = of(world.log(20_000, 4, np.random.default_rng(2)), 4)
    policy = np.array([1, 0, 1])
    found = at.fit(policy[np.asarray(at.panel.state)], days=(1, 4))
    exact = totals(world.cmdp, policy, 4)
    for k in (1, 4):
        for j, name in enumerate(("reward", "cost")):
            place = found.column(f"{name}@{k}")
            assert abs(found.value[place] - exact[k - 1, j]) < 3 * found.std_error[place]


def test_a_policy_drawn_in_every_row_and_one_with_certainty_are_the_same() -> None:
    at = of(eager(500, 3))
    drawn = np.tile([0.0, 1.0], (len(at.panel), 1))
    sure = at.fit(np.ones(len(at.panel), np.intp), days=(3,))
    np.testing.assert_allclose(at.fit(drawn, days=(3,)).value, sure.value)


def test_users_of_a_segment_speak_for_themselves() -> None:
    data = eager(2000, 5)
    at, among = of(data), np.arange(2000) % 2 == 0
    changed = replace(data, outcome=np.where((data.user % 2 == 1)[:, None], 1 - data.outcome, data.outcome))
    policy = np.ones(len(at.panel), np.intp)
    here = at.fit(policy, days=(3,), among=among)
    there = replace(at, panel=Panel.of(changed, EVERYONE)).fit(policy, days=(3,), among=among)
    np.testing.assert_allclose(here.value, there.value)
    assert (here.influence[~among] == 0).all()


def test_what_was_never_given_has_no_value() -> None:
    data = eager(200, 6)
    at = of(replace(data, action=np.zeros_like(data.action)))
    found = at.fit(np.ones(len(at.panel), np.intp), days=(1,))
    assert found.withheld[found.column("reward@1")] == Reason(ReasonKind.NEVER_GIVEN, {"action": 1.0})
    late = of(replace(data, action=np.where(data.day < 2, data.action, 0).astype(data.action.dtype)))
    found = late.fit(np.ones(len(at.panel), np.intp), days=(1, 3))
    assert found.withheld[found.column("reward@1")] is None
    after = Reason(ReasonKind.NEVER_GIVEN_AFTER, {"days": 2})
    assert found.withheld[found.column("reward@3")] == after
    assert found.withheld[found.column("reward")] == after


def test_days_without_a_row_and_ends() -> None:
    """Means and latest of the rows before, in the order of days; users of irregular rows have their totals."""
    data = ragged(1)
    panel = Panel.of(data, EVERYONE)
    found = before(panel, panel.outcome)
    for row in (0, 5, len(panel) - 1):
        past = panel.outcome[(panel.user == panel.user[row]) & (panel.day < panel.day[row])]
        want = np.concatenate([past.mean(axis=0), past[-1]]) if len(past) else np.zeros(4)
        np.testing.assert_allclose(found[row], want)
    at = replace(of(data, 2), propensity=np.full(len(panel), 0.5))
    old, seen = at.fit(days=(2,)), observe(panel, days=(2,))
    assert old.value[old.column("reward@2")] == pytest.approx(seen.value[seen.column("reward@2")])
