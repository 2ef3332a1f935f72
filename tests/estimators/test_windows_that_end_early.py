"""Users whose window ends earlier than others' belong to every mean: exact truth, coverage, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import campaign, transitions
from numpy.typing import NDArray

from outlay.core.reasons import ReasonKind
from outlay.core.transitions import EVERYONE, Transitions
from outlay.estimators.basis import CountedBasis
from outlay.estimators.doubly_robust import DoublyRobust
from outlay.estimators.fitted import Evaluator, Fitted
from outlay.estimators.joint import Joint
from outlay.estimators.marginalised import Marginalised
from outlay.estimators.panel import Panel
from outlay.estimators.row_features import days_before
from outlay.estimators.sequential import Sequential
from outlay.estimators.windowed import unlike

DAYS = 5
ACTIVE = np.array([[0.1, 0.35], [0.4, 0.6]])  # by type, old or new, and habit
LIFT = np.array([0.1, 0.35])  # of action 1, by type
NEW = 0.4  # share


def chance(kind: NDArray[np.int64], habit: NDArray[np.int64], action: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(ACTIVE[kind, habit] + LIFT[kind] * action)


def log(users: int, seed: int, *, by_type: bool, never: bool = False) -> Transitions:
    """Users of two types, which a feature tells; `by_type`: new ones join late, all but a third of them.

    `never`: no new user is there from the beginning.
    """
    rng = np.random.default_rng(seed)
    kind = (rng.random(users) < NEW).astype(np.int64)
    late = rng.random(users) < (np.where(kind == 1, 1.0 if never else 0.67, 0.1) if by_type else 0.4)
    joined = np.where(late, rng.integers(1, DAYS, users), 0)
    habit = (rng.random(users) < ACTIVE[kind, 0]).astype(np.int64)
    parts = []
    for day in range(DAYS):
        action = rng.integers(2, size=users)
        came = (rng.random(users) < chance(kind, habit, action)).astype(np.int64)
        parts.append(np.column_stack([np.arange(users), np.full(users, day), 2 * kind + habit, action, came]))
        habit = came
    rows = np.stack(parts, axis=1).reshape(-1, 5)
    rows = rows[rows[:, 1] < DAYS - joined[rows[:, 0]]]
    user, day, state, action, came = rows.T
    return transitions(
        user=user,
        day=day,
        state=state,
        action=action,
        outcome=np.column_stack([came, came * action]).astype(float),
        num_states=4,
        num_actions=2,
        about=campaign(0.9),
        window=DAYS - joined,
        propensity=np.full(len(rows), 0.5),
    )


def truth(given: int) -> NDArray[np.float64]:
    """`[DAYS]` what each day of all users brings, if everybody is given one action."""
    share = {
        (k, h): (NEW if k else 1 - NEW) * (ACTIVE[k, 0] if h else 1 - ACTIVE[k, 0])
        for k, h in itertools.product((0, 1), repeat=2)
    }
    found = []
    for _ in range(DAYS):
        came = {k: sum(share[k, h] * (ACTIVE[k, h] + LIFT[k] * given) for h in (0, 1)) for k in (0, 1)}
        found.append(came[0] + came[1])
        share = {(k, h): came[k] if h else (NEW if k else 1 - NEW) - came[k] for k, h in share}
    return np.array(found)


def by_day(data: Transitions, window: int = DAYS) -> Sequential:
    panel = Panel.of(data, EVERYONE)
    assert panel.propensity is not None
    kind = np.eye(4, dtype=np.float32)[np.asarray(panel.state)][:, 1:]
    return Sequential(panel, np.hstack([kind, days_before(panel)]), panel.propensity, window)


def counted(data: Transitions) -> Evaluator:
    panel = Panel.of(data, EVERYONE)
    return Evaluator(panel, CountedBasis(np.asarray(panel.state), 4, 2))


def z(found: Joint, given: int, days: int = DAYS) -> float:
    place = found.column(f"reward@{days}")
    return float((found.value[place] - truth(given)[:days].sum()) / found.std_error[place])


@pytest.mark.parametrize("by_type", [True, False])
@pytest.mark.parametrize("engine", [by_day, counted])
def test_every_total_is_of_all_users(by_type: bool, engine: Callable[[Transitions], Evaluator | Sequential]) -> None:
    """Before, a total of 5 days was that of users who were there from the beginning: 0.86 of the truth."""
    at = engine(log(30_000, 1, by_type=by_type))
    for given in (0, 1):
        found = at.fit(np.full(len(at.panel), given), days=(1, 3, DAYS))
        for days in (1, 3, DAYS):
            assert abs(z(found, given, days)) < 3
            assert found.std_error[found.column(f"reward@{days}")] < 0.03 * truth(given)[:days].sum()
        np.testing.assert_allclose(found.daily[:, 0], truth(given), atol=0.03)


@pytest.mark.parametrize("engine", [pytest.param(by_day, marks=pytest.mark.slow), counted])
def test_intervals_hold_the_truth_as_often_as_they_say(engine: Callable[[Transitions], Evaluator | Sequential]) -> None:
    """200 logs of 600 users: a total, and a gain."""
    total, gain = [], []
    for seed in range(200):
        at = engine(log(600, 1_000 + seed, by_type=True))
        one, none = (at.fit(np.full(len(at.panel), a), days=(DAYS,)) for a in (1, 0))
        total.append(z(one, 1))
        less, place = one.minus(none), one.column(f"reward@{DAYS}")
        gain.append((less.value[place] - (truth(1) - truth(0)).sum()) / less.std_error[place])
    for each in (total, gain):
        assert 0.9 <= np.mean(np.abs(each) < 1.96) <= 0.985
        assert abs(np.mean(each)) < 0.25


def test_other_estimators_are_about_the_same_users() -> None:
    panel = Panel.of(log(40_000, 2, by_type=True), EVERYONE)
    basis, policy = CountedBasis(np.asarray(panel.state), 4, 2), np.ones(len(panel), np.intp)
    found: dict[str, Joint] = {
        "mis": Marginalised(panel, basis).estimate(policy, days=(3,)),
        "dr": DoublyRobust(panel, basis).estimate(policy, days=(3,)),
    }
    for name, joint in found.items():
        assert joint.withheld[joint.column("reward@3")] is None, name
        assert abs(z(joint, 1, 3)) < 3, name


def test_users_unlike_all_whose_days_the_log_shows_are_not_extrapolated() -> None:
    """No new user has more than four days: what their fifth brings, users of the other type do not tell."""
    data = log(4_000, 3, by_type=True, never=True)
    at = by_day(data)
    found = at.fit(np.ones(len(at.panel), np.intp), days=(3, 4, DAYS))
    reason = found.withheld[found.column(f"reward@{DAYS}")]
    assert reason is not None
    assert reason.kind is ReasonKind.UNLIKE
    assert 0.05 < float(str(reason.figures["share"])) < 1
    assert [found.withheld[found.column(f"reward@{k}")] for k in (3, 4)] == [None, None]
    assert abs(z(found, 1, 4)) < 3
    whole = counted(data).fit(np.ones(len(at.panel), np.intp), days=(DAYS,))
    assert abs(z(whole, 1)) < 3, "counted states are the same on every day"


def test_where_all_windows_are_alike_nothing_changes() -> None:
    """Windows that reach beyond the days that are asked for are as good as one another."""
    data = log(1_000, 4, by_type=False)
    here = data.users["window"] == DAYS
    among = np.asarray(here)
    alike = replace(data, users=data.users.copy())
    alike.users["window"][here] += 3
    one, other = (by_day(each, 3).fit(np.ones(len(each), np.intp), days=(3,), among=among) for each in (data, alike))
    np.testing.assert_allclose(one.value, other.value)


def test_a_user_without_further_rows_brings_nothing_until_the_log_ends() -> None:
    """Days without a row inside the window are known: they brought 0."""
    data = log(3_000, 5, by_type=False)
    quits = (np.asarray(data.user) % 3 == 0) & (np.asarray(data.users["window"])[np.asarray(data.user)] == DAYS)
    kept = ~(quits & (np.asarray(data.day) >= 2))
    user, day = np.asarray(data.user)[kept], np.asarray(data.day)[kept]
    fewer = transitions(
        user=user,
        day=day,
        state=np.asarray(data.state)[kept],
        action=np.asarray(data.action)[kept],
        outcome=np.asarray(data.outcome)[kept].astype(float),
        num_states=4,
        num_actions=2,
        about=campaign(0.9),
        window=np.asarray(data.users["window"]),
        propensity=np.full(kept.sum(), 0.5),
    )
    among = np.asarray(fewer.users["window"]) == DAYS
    found: Fitted = by_day(fewer).fit(None, days=(DAYS,), among=among)
    panel = Panel.of(fewer, EVERYONE)
    assert found.value[found.column(f"reward@{DAYS}")] == pytest.approx(
        panel.by_user(panel.outcome)[among, 0].mean(), rel=1e-6
    )


def test_a_user_whose_last_rows_all_lie_before_an_unknown_day_is_counted_once() -> None:
    """With gaps of some days between rows, several rows of a user have nothing known after them."""
    rng = np.random.default_rng(6)
    users, days = 1_000, 12
    new = np.arange(users) < 40
    window = np.where(new, 8, days)
    came = (rng.random((users, days)) < 0.8) | (np.arange(days) == 0)
    user, day = np.nonzero(came & (np.arange(days) < window[:, None]))
    action = rng.integers(2, size=len(user))
    panel = Panel.of(
        transitions(
            user=user,
            day=day,
            state=new[user].astype(int),
            action=action,
            outcome=np.zeros((len(user), 2)),
            num_states=2,
            num_actions=2,
            about=campaign(0.9),
            window=window,
            propensity=np.full(len(user), 0.5),
        ),
        EVERYONE,
    )
    assert (panel.known_until(days) < days).sum() > 2 * new.sum()
    share = unlike(panel, np.asarray(panel.state, np.float32)[:, None], np.ones(users, np.bool_), days)
    assert (share[:8] == 0).all()
    assert (share[8:] > 0.03).all()
    assert (share[8:] <= 0.04).all()
