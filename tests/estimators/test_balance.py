"""Balance: an old policy that looked at the past is found, and its true propensities are not blamed for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs_in_memory import World, transitions
from numpy.typing import NDArray

from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY
from outlay.estimators.balance import ESTIMATED, BalanceCheck, balance_check
from outlay.estimators.panel import Panel

USERS, DAYS = 3000, 7


def checked(seed: int, lean: float, stated: str, *, features: bool = False) -> BalanceCheck:
    """Users act by chance; after an inactive day they get the higher of two amounts with probability 0.5 + `lean`.

    Args:
        seed: of the log.
        lean: of the old policy towards those who were not active on the day before.
        stated: `right` propensities in the log, `wrong` ones that know nothing of the past, or `none`: estimated as the
            shares of the actions, which the log does not tell.
        features: describe the state by a column of noise rather than counting it.
    """
    rng = np.random.default_rng(seed)
    action, active = np.zeros((USERS, DAYS), int), np.zeros((USERS, DAYS))
    chance = np.full((USERS, DAYS), 0.5)
    for day in range(DAYS):
        if day:
            chance[:, day] += np.where(active[:, day - 1] == 0, lean, -lean)
        action[:, day] = rng.random(USERS) < chance[:, day]
        active[:, day] = rng.random(USERS) < 0.4 + 0.2 * action[:, day]
    given = np.where(action == 1, chance, 1 - chance).ravel()
    share = np.where(action.ravel() == 1, action.mean(), 1 - action.mean())
    log = transitions(
        user=np.repeat(np.arange(USERS), DAYS),
        day=np.tile(np.arange(DAYS), USERS),
        state=np.zeros(USERS * DAYS),
        action=action.ravel(),
        outcome=np.column_stack([active.ravel(), (active * action).ravel()]),
        num_states=1,
        num_actions=2,
        propensity={"right": given, "wrong": share, "none": None}[stated],
    )
    panel = Panel.of(log, CERTIFY)
    columns: list[NDArray[np.float64]] | None = [rng.normal(size=(len(panel), 2))] if features else None
    return balance_check(panel, panel.day, columns, given if stated == "right" else share)


@pytest.mark.parametrize("features", [False, True])
def test_targeting_by_the_past_is_found_and_named(features: bool) -> None:
    found = checked(1, 0.15, "none", features=features)
    assert found.ok is False
    assert found.dependences[0].past == "reward"
    assert found.finding.kind is ReasonKind.LOOKED_BACK
    assert found.finding.figures["source"] == found.dependences[0].source
    assert found.refused == Reason(ReasonKind.BALANCE, {"found": found.finding, "way_out": ESTIMATED})


def test_logged_propensities_that_know_the_targeting_pass_and_others_do_not() -> None:
    """They may depend on anything as long as they are right."""
    assert checked(2, 0.15, "right").ok
    assert checked(2, 0.15, "right", features=True).ok
    wrong = checked(2, 0.15, "wrong")
    assert wrong.ok is False
    assert wrong.finding.kind is ReasonKind.MISSTATED


@pytest.mark.parametrize("stated", ["right", "none"])
@pytest.mark.parametrize("seed", range(4))
def test_actions_by_chance_are_balanced(seed: int, stated: str) -> None:
    found = checked(seed, 0.0, stated)
    assert found.ok
    assert found.refused is None
    assert max(abs(each.z) for each in found.dependences) < 4


def test_a_policy_that_looks_at_the_state_alone_is_balanced() -> None:
    panel = Panel.of(World.drawn(3).log(2000, 7, np.random.default_rng(3)), CERTIFY)
    assert panel.propensity is not None
    assert balance_check(panel, panel.day, None, panel.propensity).ok


def test_actions_that_were_never_given_are_not_judged_by_propensities() -> None:
    """In half of the states, told by a column, the old policy always gave the second amount."""
    rng = np.random.default_rng(4)
    user, day = np.repeat(np.arange(USERS), DAYS), np.tile(np.arange(DAYS), USERS)
    told = rng.integers(2, size=USERS * DAYS)
    action = np.where(told == 1, 1, rng.integers(2, size=USERS * DAYS))
    log = transitions(
        user=user,
        day=day,
        state=told,
        action=action,
        outcome=rng.random((USERS * DAYS, 2)),
        num_states=2,
        num_actions=2,
        propensity=np.where(told == 1, 1.0, 0.5),
    )
    panel = Panel.of(log, CERTIFY)
    assert panel.propensity is not None
    found = balance_check(panel, panel.day, [told[:, None].astype(float)], panel.propensity)
    assert found.ok is None
    assert found.refused is None


def test_outcomes_that_are_known_later_are_no_part_of_the_past() -> None:
    """An event that is credited to a user's latest row moves to the day of the action that decides which row it is."""
    panel = Panel.of(World.drawn(3).log(500, 7, np.random.default_rng(3)), CERTIFY)
    assert panel.propensity is not None
    log = panel.data.campaign.log.model_copy(update={"delays": {"reward": 2}})
    late = replace(panel, data=replace(panel.data, campaign=panel.data.campaign.model_copy(update={"log": log})))
    tested = {each.past for each in balance_check(late, late.day, None, panel.propensity).dependences}
    assert {each.past for each in balance_check(panel, panel.day, None, panel.propensity).dependences} - tested == {
        "reward"
    }
