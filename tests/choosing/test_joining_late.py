"""Users who joined late: which days claims are about, and that what was observed is compared with the same users.

And users who come on some days only, of whom the log has the days of their visits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import outlay
from hidden_worlds import COUPONS, World
from hidden_worlds import WORLDS as HIDDEN
from known_worlds import WORLDS
from outlay.choosing.measure import Measure
from outlay.core.reasons import ReasonKind
from outlay.core.transitions import EVERYONE, Transitions
from outlay.estimators.observed import observe, of_some, reproduces
from outlay.estimators.sequential import Sequential
from outlay.estimators.windowed import claims_window, unlike, why_unlike, window_of
from telling import missing

USERS = 3_000


def prepared(folder: Path, noise: int, *, told: bool = True) -> Transitions:
    """40% of the users, deal seekers all, join on one of the last six of seven days."""
    world = World("late", types=True, told=told, late=0.8, noise=noise, days=7)
    return outlay.prepare(world.write(folder, USERS, 1), folder / "data")


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Transitions:
    return prepared(tmp_path_factory.mktemp("rich"), 1)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Transitions:
    return prepared(tmp_path_factory.mktemp("counted"), 0)


def test_claims_are_about_days_that_half_of_those_who_joined_late_have(rich: Transitions) -> None:
    windows = np.asarray(rich.users["window"])
    late = windows[windows < 7]
    k = window_of(rich)
    assert k in (3, 4)
    assert (late >= k).mean() >= 0.5 > (late >= k + 1).mean()
    told = claims_window(rich)
    assert told is not None
    assert not missing(told.words, "all users", "40%", "joined", "first day")
    few = np.array(rich.users)
    few["window"] = np.where(np.arange(len(few)) % 25 == 0, few["window"], 7)
    assert window_of(replace(rich, users=few)) == 7, "fewer than a twentieth"


def test_claims_are_about_fewer_days_where_the_last_of_them_fall_on_other_weekdays(tmp_path: Path) -> None:
    """Half of the users join on one of the days 1 to 9 of 14, so that half of these have nine days.

    Who joined on day 6 has eight, the last of them on weekday 6; of those with nine, nobody's eighth day is that.
    """
    data = outlay.prepare(WORLDS["shop"].write(tmp_path, users=USERS, seed=1), tmp_path / "data")
    windows = np.asarray(data.users["window"])
    assert np.median(windows[windows < 14]) == 9
    assert window_of(data) == 8
    assert window_of(data.with_fields([f"k{i}" for i in range(5)])) == 9, "nobody's weekday is told"
    at = Measure(data, EVERYONE, None)
    evaluator, members = at.evaluator(), np.ones(at.panel.num_users, np.bool_)
    assert isinstance(evaluator, Sequential)
    assert why_unlike(unlike(at.panel, evaluator.features, members, 8)) is None
    assert at.old().withheld[0] is None


@pytest.mark.parametrize("kind", ["rich", "counted"])
def test_the_old_policy_is_held_against_what_its_own_users_did(kind: str, request: pytest.FixtureRequest) -> None:
    """Totals of all users are not those of users who were there from the beginning, who are another kind."""
    at = Measure(request.getfixturevalue(kind), EVERYONE, None)
    seen, old = observe(at.panel, days=at.days), at.old()
    place, target = seen.column("reward@7"), "reward@7"
    assert old.withheld[old.column(target)] is None or kind == "rich"
    assert reproduces(seen, at.old_as_observed(old)).ok
    if kind == "counted":
        assert abs(old.value[old.column(target)] - seen.value[place]) > 5 * seen.std_error[place]
        assert not reproduces(seen, old).ok
    stars = dict(zip(seen.targets, of_some(at.panel, seen), strict=True))
    assert stars["reward@1"] is None
    assert stars["coupon_cost/decision"] is None
    assert stars["reward@7"] is not None
    assert stars["reward@7"].kind is ReasonKind.SOME_USERS
    assert stars["reward@7"].figures == {"share": pytest.approx(0.6, abs=0.005)}


def test_means_and_totals_are_of_the_same_users(rich: Transitions, counted: Transitions) -> None:
    """The truth of "always 2" over a user's first days, whoever joined when; before, new users were in neither."""
    world = World("late", types=True, told=True, days=7)
    for data in (rich, counted):
        at = Measure(data, EVERYONE, None)
        found = at.fit(np.full(len(at.panel), 2))
        days = at.window or 7
        truth = world.truth(lambda people: np.full(len(people.type), 2), users=40_000, days=days)
        targets = {f"coupon_cost@{days}": truth["coupon_cost"] * days, "coupon_cost@1": truth["coupon_cost@1"]}
        if at.window is None:
            targets |= {"coupon_cost": truth["coupon_cost/discounted"]}
        else:
            targets |= {"coupon_cost": truth["coupon_cost"]}
        for target, true in targets.items():
            place = found.column(target)
            assert abs(found.value[place] - true) < 3.5 * found.std_error[place], target
            assert found.std_error[place] < 0.05 * true * COUPONS[2]


def test_where_no_feature_tells_it_nothing_is_believed(tmp_path: Path) -> None:
    at = Measure(prepared(tmp_path, 1, told=False), EVERYONE, None)
    assert at.state.markov_check.ok is False
    joined = [each for each in at.state.markov_check.dependences if each.lag == "joined"]
    assert max(abs(each.z) for each in joined) > 4


@pytest.mark.parametrize("history", [13, 0])
def test_constants_are_right_on_a_log_of_visits(history: int, tmp_path: Path) -> None:
    """Days that are filled in have states that say who the user is; without, "always 2" is 13% too high (6 errors)."""
    world = replace(HIDDEN["visits"], history=history)
    data = outlay.prepare(world.write(tmp_path, USERS, 1), tmp_path / "data")
    at, targets = Measure(data, EVERYONE, None), ("reward@12", "coupon_cost@12")
    assert at.sequential == (history > 0)
    for action, found in enumerate(at.constants(range(4), [12])):
        truth = world.truth(lambda people, a=action: np.full(len(people.type), a), users=60_000)  # type: ignore[misc]
        for target in targets:
            i = found.column(target)
            assert abs(found.value[i] - truth[target]) <= 3 * found.std_error[i] + 0.02 * truth[target]
