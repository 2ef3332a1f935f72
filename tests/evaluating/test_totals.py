"""Totals for all users: what they are by hand, and that their intervals and bounds hold the truth of simulated logs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outlay.choosing.allowances import allowances_of
from outlay.choosing.estimates import PolicyEstimates, estimate_policy
from outlay.choosing.evaluated_policy import OLD
from outlay.choosing.measure import Measure
from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY
from outlay.estimators.band import About
from outlay.estimators.certificate import Certificate
from outlay.evaluating.certify import bounds_of_totals, figures_of, over_days
from outlay.evaluating.diagnostics import ActionShare
from outlay.evaluating.evaluation import SegmentEstimate
from outlay.evaluating.totalling import (
    PerUser,
    all_lost,
    budget_totals,
    by_day,
    days_told,
    segment_totals,
    totals_of,
)
from outlay.evaluating.totals import DecisionTotals, Total
from outlay.ops.tabular import totals as true_totals
from small_logs import campaign, draw, random_cmdp

DAYS, USERS = 5, 300
CHOSEN = np.array([2, 0, 1])  # action of the policy in each state
ABOUT = campaign(report_days=(1, 3, DAYS), horizon_days=DAYS)


def told(model: TabularCMDP, seed: int, about: Campaign = ABOUT) -> tuple[DecisionTotals, Measure, PolicyEstimates]:
    """The totals of a policy from a log of `USERS` users whose actions were drawn evenly."""
    data = draw(model, USERS, 8, seed, split=CERTIFY, about=about)
    vars(data)["_names"] = pa.table({"first_time": np.zeros(USERS, np.int64)})  # all begin on one day
    at = Measure(data, CERTIFY, None)
    assert data.state is not None
    policy = replace(OLD, name="policy", parts=(CHOSEN[data.state],))
    propensity = np.full(len(data.user), 1 / model.num_actions)
    new, old = (estimate_policy(at, each, propensity) for each in (policy, OLD))
    per_user = PerUser.of(at, new, old, about)
    days = days_told(per_user, about)
    assert days is not None
    over = over_days(about, days)
    bounds = bounds_of_totals(
        figures_of(at, new, old, over, None), About((), None, allowances_of(at)), over, confidence=0.9
    )
    found = totals_of(per_user, about, data, days, bounds)
    return replace(found, by_day=by_day(at, old, new, about, found)), at, new


def truth_of(model: TabularCMDP) -> dict[str, np.ndarray[Any, Any]]:
    """`[days, 2]` the true totals of reward and money of all users, now and with the policy."""
    evenly = np.full(model.reward.shape, 1 / model.num_actions)
    return {"old": USERS * true_totals(model, evenly, DAYS), "new": USERS * true_totals(model, CHOSEN, DAYS)}


def held(total: Total | None, truth: float) -> bool:
    assert total is not None
    assert total.low is not None
    assert total.high is not None
    return total.low <= truth <= total.high


def test_the_days_add_up_to_the_total_that_is_named() -> None:
    found, _, _ = told(random_cmdp(1), 0)
    assert (found.users, found.log_users, found.days) == (USERS, USERS, DAYS)
    for policy, side in (("old", "now"), ("new", "new")):
        days = [day for day in found.by_day if day.policy == policy]
        assert [day.day for day in days] == [1, 2, 3, 4, 5]
        assert sum(day.reward.value for day in days) == pytest.approx(getattr(found.reward, side).value)
        assert sum(day.money.value for day in days) == pytest.approx(getattr(found.money, side).value)
    assert found.first_day is not None
    assert found.first_day.new.value == pytest.approx(found.by_day[DAYS].money.value)
    assert found.reward.now is not None
    assert found.reward.more is not None
    assert found.reward.more.value == pytest.approx(found.reward.new.value - found.reward.now.value)
    assert found.reward.share == pytest.approx(found.reward.new.value / found.reward.now.value - 1)
    assert found.limit_a_day == USERS * 1.0
    # What is sure lies on either side of the change that is named, and is of that same change.
    assert found.at_least is not None
    assert found.at_most is not None
    assert found.at_least < found.reward.more.value < found.at_most


def test_totals_are_for_as_many_users_as_the_campaign_file_says() -> None:
    more = ABOUT.model_copy(update={"meta": ABOUT.meta.model_copy(update={"users": 10 * USERS})})
    one, ten = told(random_cmdp(1), 0)[0], told(random_cmdp(1), 0, more)[0]
    assert (ten.users, ten.log_users) == (10 * USERS, USERS)
    assert ten.reward.new.value == pytest.approx(10 * one.reward.new.value)
    assert ten.at_least == pytest.approx(10 * (one.at_least or np.nan))
    assert ten.by_day[0].money.low == pytest.approx(10 * (one.by_day[0].money.low or np.nan))


SOME = range(20)


@cache
def coverage(logs: range) -> Counter[str]:
    """How often the truth lies in each interval, and beyond each bound, over simulated logs."""
    model, count = random_cmdp(3), Counter[str]()
    truth = truth_of(model)
    gain = truth["new"] - truth["old"]
    for seed in logs:
        found, _, _ = told(model, seed)
        changes = {"reward": (found.reward, DAYS, 0), "money": (found.money, DAYS, 1), "first": (found.first_day, 1, 1)}
        for name, (change, day, column) in changes.items():
            assert change is not None
            count[f"{name} new"] += held(change.new, truth["new"][day - 1, column])
            count[f"{name} now"] += held(change.now, truth["old"][day - 1, column])
            count[f"{name} more"] += held(change.more, gain[day - 1, column])
        for each in found.by_day:
            daily = np.diff(truth[each.policy], axis=0, prepend=0.0)[each.day - 1]
            count[f"{each.policy} reward on day {each.day}"] += held(each.reward, daily[0])
            count[f"{each.policy} money on day {each.day}"] += held(each.money, daily[1])
        assert found.at_least is not None
        assert found.at_most is not None
        count["at least"] += found.at_least <= gain[DAYS - 1, 0]
        count["at most"] += found.at_most >= gain[DAYS - 1, 0]
    return count


def test_intervals_and_bounds_hold_the_truth_of_some_logs() -> None:
    for name, count in coverage(SOME).items():
        assert count >= (14 if name.startswith("at ") else 16), name  # of 20: by chance once in a thousand tests


@pytest.mark.slow
def test_intervals_and_bounds_hold_the_truth_as_often_as_they_say() -> None:
    """95% intervals, 90% bounds; those that hold two estimates are wider than they need be where both are right."""
    logs = 60
    found = Counter(coverage(SOME))
    found.update(coverage(range(len(SOME), logs)))
    for name, count in found.items():
        level = 0.9 if name.startswith("at ") else 0.95
        assert count / logs > level - 3.5 * np.sqrt(level * (1 - level) / logs), name


def estimate(policy: str, target: str, value: float | None, **fields: Any) -> Estimate:
    found = Estimate(policy=policy, estimator="fqe", target=target, value=value, recommended=True, **fields)
    return found if value is None else replace(found, low=value - 0.1, high=value + 0.1)


def figures(**doubted: Any) -> PerUser:
    """DecisionTotals per user of 1, 3 and 5 days; `doubted` changes estimates of the policy, by target."""
    new, old, more = (
        {
            f"{name}@{k}": estimate(policy, f"{name}@{k}", value * k)
            for name, value in (("reward", reward), ("cost", cost))
            for k in (1, 3, 5)
        }
        for policy, reward, cost in (("mixture", 0.6, 0.9), ("old", 0.5, 1.0), ("gain", 0.1, -0.1))
    )
    return PerUser(new | doubted, old, more)


def test_the_longest_total_that_can_be_relied_on_is_told_and_else_the_longest() -> None:
    withheld = {"withheld": Reason(ReasonKind.NOT_SHOWN, {"days": 5})}
    assert days_told(figures(), ABOUT) == 5
    assert days_told(figures(**{"cost@5": estimate("mixture", "cost@5", None, **withheld)}), ABOUT) == 3
    doubted = {f"reward@{k}": replace(estimate("mixture", f"reward@{k}", k), recommended=False) for k in (3, 5)}
    assert days_told(figures(**doubted), ABOUT) == 1
    assert days_told(figures(**doubted, **{"cost@1": estimate("mixture", "cost@1", None, **withheld)}), ABOUT) == 5
    assert days_told(PerUser({}, {}, {}), ABOUT) is None


def without_bounds() -> Certificate:
    return Certificate(
        reason=Reason(ReasonKind.STATE, {"found": "…", "way_out": "…"}),
        confidence=0.9,
        users=USERS,
        budgets=(),
        gain=None,
        gain_bound=None,
        gain_most=None,
    )


def test_no_bound_loses_more_than_all_of_a_reward_that_is_never_below_0() -> None:
    data = draw(random_cmdp(1), USERS, 8, 0, split=CERTIFY, about=ABOUT)
    bounds = replace(without_bounds(), gain=-1.0, gain_bound=-3.0, gain_most=1.0)  # per user, who has 2.5 now
    outcome = np.abs(data.outcome)
    below = outcome.copy()
    below[0, 0] = -0.1
    for rewards, least in ((outcome, -2.5 * USERS), (below, -3.0 * USERS)):
        found = totals_of(figures(), ABOUT, replace(data, outcome=rewards), 5, bounds)
        assert (found.at_least, found.at_most) == (least, USERS)
        measured = (estimate("mixture", "reward@5", 1.5), estimate("mixture", "cost@5", 5.0)), bounds
        budget = budget_totals(1.0, measured, ABOUT, USERS, all_lost(found.reward.now, replace(data, outcome=rewards)))
        assert budget is not None
        assert budget.at_least == least


def test_segments_add_up_to_the_totals_and_say_what_they_are_given() -> None:
    data = draw(random_cmdp(1), USERS, 8, 0, split=CERTIFY, about=ABOUT)
    whole = totals_of(figures(), ABOUT, data, 5, without_bounds())
    assert (whole.at_least, whole.at_most, whole.sure) == (None, None, 0.9)
    rows = [
        SegmentEstimate(segment=segment, users=users, **estimate(policy, target, value * more).as_fields())
        for segment, users, more in (("few", 100, 2.0), ("many", 200, 0.5))
        for policy, target, value in (
            ("old", "reward@5", 2.5),
            ("mixture", "reward@5", 3.0),
            ("gain", "reward@5", 0.5),
            ("old", "cost@5", 5.0),
            ("mixture", "cost@5", 4.5),
            ("gain", "cost@5", -0.5),
        )
    ]
    shares = [
        ActionShare(segment="few", policy=policy, action=action, share=share)
        for policy, action, share in (("old", 1.0, 0.5), ("old", 2.0, 0.5), ("new", 1.0, 0.25), ("new", 2.0, 0.75))
    ]
    few, many = segment_totals(rows, shares, ABOUT, whole)
    assert (few.users, many.users, few.given, many.given) == (100, 200, (1.5, 1.75), None)
    for name in ("reward", "money"):
        parts, all_of_them = [getattr(each, name) for each in (few, many)], getattr(whole, name)
        assert sum(part.more.value for part in parts) == pytest.approx(all_of_them.more.value)
        assert sum(part.new.value for part in parts) == pytest.approx(all_of_them.new.value)
    assert segment_totals([], shares, ABOUT, whole) == ()
    named = [replace(share, action="none") for share in shares]
    assert segment_totals(rows, named, ABOUT, whole)[0].given is None


def test_limits_are_totals_over_the_days_that_are_named() -> None:
    budgets = [
        {"name": "cost", "cost": "c", "at_most": 2.0},
        {"name": "reach", "cost": "r", "at_least": 7.0, "per": "user"},
    ]
    over = over_days(campaign(budgets=budgets, horizon_days=7), 14)
    assert [(b.per, b.limit, b.sign) for b in over.budgets] == [("user", 28.0, 1), ("user", 14.0, -1)]
    assert over.meta.horizon_days == 14
