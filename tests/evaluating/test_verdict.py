"""The sentence that says what to do, for every way an evaluation can end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.certificate import BudgetBound, Certificate, unless_shared, unless_unassigned
from outlay.evaluating.constants import AgainstConstants
from outlay.evaluating.ruled_out import ruled_out
from outlay.evaluating.verdict import verdict
from small_logs import campaign

LINE = BudgetBound(budget="cost", value=0.9, bound=0.95, limit=1.0, floor=False, kept=True)
OVER = replace(LINE, value=0.99, bound=1.02, kept=False)
BROKEN = Reason(ReasonKind.LIMIT)


def certificate(**changes: Any) -> Certificate:
    fields: dict[str, Any] = {
        "reason": None,
        "confidence": 0.975,
        "users": 500,
        "budgets": (LINE,),
        "gain": 0.05,
        "gain_bound": 0.02,
        "gain_most": 0.08,
    }
    return Certificate(**{**fields, **changes})


def estimates(new_cost: float = 0.9) -> list[Estimate]:
    values = {("old", "reward"): 0.5, ("old", "cost"): 1.0, ("mixture", "reward"): 0.55, ("mixture", "cost"): new_cost}
    return [Estimate(policy=p, estimator="fqe", target=t, value=value) for (p, t), value in values.items()]


def test_a_sure_gain_within_the_budget_is_to_be_served() -> None:
    found = verdict(estimates(), certificate(), campaign())
    assert found == (
        "Serve it: +10.0% r against the old policy (97.5% sure of +4.0% at least) at 10% less cost, "
        "and cost at most 1 per decision is certified."
    )


def test_the_spend_is_compared_with_the_old_policys() -> None:
    assert " at 20% more cost, " in verdict(estimates(1.2), certificate(), campaign())
    assert " at the same cost, " in verdict(estimates(1.003), certificate(), campaign())


def test_a_gain_that_may_be_none_is_to_be_tested() -> None:
    found = verdict(estimates(), certificate(gain_bound=-0.01, gain_likely=0.01), campaign())
    assert found == (
        "No gain could be shown: the estimate is +10.0% r against the old policy (97.5% sure only that it loses no "
        "more than 2.0%) at 10% less cost. Test it against the old policy before it is served to all (outlay "
        "experiment plan); cost at most 1 per decision is certified."
    )


@pytest.mark.parametrize("likely", [None, 0.0, -0.01])
def test_a_gain_that_may_be_chance_is_no_reason_for_a_test_of_its_own(likely: float | None) -> None:
    found = verdict(estimates(), certificate(gain_bound=-0.03, gain_likely=likely), campaign())
    assert found.startswith("No gain could be shown: the estimate is +10.0% r against the old policy")
    assert "It may be chance: keep the old policy, or test it first" in found


@pytest.mark.parametrize("gain", [0.0, 0.00001, -0.004, -0.02])
@pytest.mark.parametrize("bound", [-0.03, None])
def test_where_nothing_was_gained_the_verdict_begins_with_that(gain: float, bound: float | None) -> None:
    """An estimate of 0 is no gain of 0%."""
    found = verdict(estimates(), certificate(gain=gain, gain_bound=bound), campaign())
    assert found.startswith("No gain could be shown: the estimate is ")
    assert found.endswith("; cost at most 1 per decision is certified.")
    assert ("Keep the old policy" in found) == (gain == -0.02)


def test_a_certain_loss_is_said_to_be_one() -> None:
    """Whatever the certificate says of the costs."""
    loss = {"gain": -0.09, "gain_bound": -0.11, "gain_most": -0.07}
    dearer = verdict(estimates(1.2), certificate(**loss), campaign())
    assert dearer == (
        "It loses: -18.0% r against the old policy (97.5% sure of a loss of 14.0% at least) at 20% more cost. "
        "Do not serve it: keep the old policy. (cost at most 1 per decision is certified.)"
    )
    words = "not certified: cost by 0.02 (upper bound 1.02 against 1)"
    over = verdict(estimates(1.2), certificate(reason=BROKEN, budgets=(OVER,), **loss), campaign())
    assert over.startswith("It loses: -18.0% r against the old policy")
    assert over.endswith(f"Do not serve it: keep the old policy. (It is {words}.)")


def test_a_loss_is_worth_a_thought_only_where_it_saves() -> None:
    sure, unsure = {"gain": -0.09, "gain_bound": -0.11, "gain_most": -0.07}, {"gain": -0.09, "gain_bound": -0.2}
    for changes in (sure, unsure):
        for cost, saves in ((0.9, True), (1.0, False), (1.2, False)):
            found = verdict(estimates(cost), certificate(**changes), campaign())
            assert "keep the old policy" in found.lower()
            assert ("unless saving is the aim" in found) == saves
            assert "Serve it" not in found


def test_a_percentage_that_rounds_to_nothing_keeps_its_digits() -> None:
    """`sure of -0.0% at least` says nothing."""
    for least, words in ((-0.0001, "loses no more than 0.02%"), (0.00012, "sure of +0.02% at least")):
        found = verdict(estimates(), certificate(gain_bound=least), campaign())
        assert words in found
        assert "0.0%" not in found.replace("10.0%", "")
    assert "loses no more than 0%" in verdict(estimates(), certificate(gain_bound=0.0), campaign())


def beside(gain: float, least: float, *, keep: bool = True) -> AgainstConstants:
    """A policy that spends 0.9 and constant actions whose reward is 0.5, at the same spend."""
    return AgainstConstants("2 for 100% of users", gain, least, gain_likely=least, value=0.5, spend=0.9, keep=keep)


def test_a_gain_that_a_constant_brings_as_well_is_that_of_the_constant() -> None:
    assert verdict(estimates(), certificate(), campaign(), constants=beside(0.0005, -0.002)) == (
        "Serve a constant: the policy brings +10.0% r against the old policy (97.5% sure of +4.0% at least) at 10% "
        "less cost, and its cost at most 1 per decision is certified, but a constant may do as well: 2 for 100% of "
        "users. No gain over it could be shown: the estimate is +0.1% (97.5% sure only that it loses no more than "
        "0.4%) at the same cost. Serve the constant, whose own costs are estimated and not certified, or test the two "
        "against each other (outlay experiment plan)."
    )
    assert verdict(estimates(), certificate(), campaign(), constants=beside(0.02, 0.01)) == (
        "Serve it: +10.0% r against the old policy (97.5% sure of +4.0% at least) at 10% less cost, and +4.0% "
        "against the best constant actions (97.5% sure of +2.0% at least) at the same cost; cost at most 1 per "
        "decision is certified."
    )


def test_constants_that_break_a_limit_take_no_gain_away() -> None:
    found = verdict(estimates(), certificate(), campaign(), constants=beside(-0.2, -0.3, keep=False))
    assert found.startswith("Serve it: +10.0% r against the old policy (97.5% sure of +4.0% at least)")
    assert found.endswith(" No constant actions keep the limits for as little.")


LOSS = {"gain": -0.09, "gain_bound": -0.11, "gain_most": -0.07}
TODAY = "Your budget rules out today's policy (cost is 2.5, and may be at most 1 per decision)"


def dear(spread: float = 0.1) -> list[Estimate]:
    """The old policy costs 2.5, give or take `spread`, where 1 is allowed."""
    made = (
        replace(e, value=2.5, low=2.5 - spread, high=2.5 + spread) if (e.policy, e.target) == ("old", "cost") else e
        for e in estimates()
    )
    return list(made)


def test_an_old_policy_beyond_the_budget_is_not_to_be_kept() -> None:
    """The policy is held against what the budget allows, and the verdict says what the cut costs."""
    found = verdict(dear(), certificate(**LOSS), campaign(), constants=beside(0.02, 0.01))
    assert found == (
        f"{TODAY}. Within that budget this is the best policy that was measured: +4.0% against the best constant "
        "actions (97.5% sure of +2.0% at least) at the same cost. The cut costs 18.0% r against today's policy "
        "(97.5% sure of 14.0% at least) at 64% less cost; cost at most 1 per decision is certified."
    )
    as_well = verdict(dear(), certificate(**LOSS), campaign(), constants=beside(0.0005, -0.002))
    assert "Within that budget a constant may do as well as this policy: 2 for 100% of users." in as_well
    alone = verdict(dear(), certificate(**LOSS), campaign(), constants=beside(0.0, 0.0, keep=False))
    assert "the best policy that was measured, and no constant actions keep the limits for as little. The cut" in alone
    unsure = verdict(dear(), certificate(gain_bound=-0.01), campaign())
    assert unsure.startswith(
        f"{TODAY}. Within that budget this is the best policy that was measured. Against today's policy "
    )
    for words in (found, as_well, alone, unsure):
        assert "keep the old policy" not in words.lower()
    assert verdict(dear(), certificate(), campaign()).startswith("Serve it: +10.0% r against the old policy")


def test_an_old_policy_that_may_keep_the_budget_is_not_ruled_out() -> None:
    assert verdict(dear(2.0), certificate(**LOSS), campaign()).startswith("It loses: -18.0% r against the old policy")
    assert ruled_out(dear(2.0), campaign()) == ()
    assert [each.budget for each in ruled_out(dear(), campaign())] == ["cost"]
    about = campaign(budgets=[{"name": "cost", "cost": "c", "at_least": 3.0}])
    assert [each.value for each in ruled_out(dear(), about)] == [2.5]
    assert ruled_out(dear(0.6), about) == ()


def test_what_is_not_certified_is_not_served_though_the_old_policy_breaks_the_budget_too() -> None:
    near = verdict(dear(), certificate(reason=BROKEN, budgets=(OVER,), **LOSS), campaign())
    assert near.startswith("Do not serve it yet: not certified: cost by 0.02")
    assert TODAY in near
    beyond = replace(OVER, value=1.2, bound=1.3)
    over = verdict(dear(), certificate(reason=BROKEN, budgets=(beyond,), **LOSS), campaign())
    assert over.startswith("Do not serve it: not certified: cost by 0.3")
    assert over.endswith(f"{TODAY}, too.")
    told = verdict(dear(), unless_unassigned(certificate(**LOSS), campaign()), campaign())
    assert told.startswith(f"Test it first. {TODAY}.")
    for words in (near, over, told):
        assert "keep the old policy" not in words


def test_an_uncertified_budget_is_not_served_whatever_it_gains() -> None:
    words = "not certified: cost by 0.02 (upper bound 1.02 against 1)"
    found = verdict(estimates(), certificate(reason=BROKEN, budgets=(OVER,)), campaign())
    assert found.startswith(f"Do not serve it yet: {words}.")
    assert "Serve it" not in found


def test_a_gain_that_could_not_be_measured_is_not_invented() -> None:
    """Also where the old policy brought nothing, so that there is no percentage."""
    found = verdict(estimates(), certificate(gain=None, gain_bound=None), campaign())
    assert "could not be measured" in found
    nothing = [Estimate(policy="old", estimator="fqe", target="reward", value=0.0)]
    assert "could not be measured" in verdict(nothing, certificate(), campaign())
    withheld = [Estimate(policy="old", estimator="fqe", target="reward", value=None, withheld="thin")]
    assert "could not be measured" in verdict(withheld, certificate(), campaign())


def test_a_floor_is_said_as_a_floor() -> None:
    about = campaign(budgets=[{"name": "cost", "cost": "c", "at_least": 0.5, "per": "user"}])
    values = [Estimate(policy="old", estimator="fqe", target=t, value=1.0) for t in ("reward@7", "cost")]
    assert "cost at least 0.5 per user is certified" in verdict(values, certificate(), about)


def test_a_policy_that_costs_too_much_is_not_saved_by_more_users() -> None:
    words = "not certified: cost by 0.3 (upper bound 1.3 against 1)"
    over = replace(LINE, value=1.2, bound=1.3, kept=False)
    found = verdict(estimates(), certificate(reason=BROKEN, budgets=(LINE, over)), campaign())
    assert found.startswith(f"Do not serve it: {words}. Its estimate itself is beyond the limit: ")
    floor = replace(LINE, value=1.2, bound=0.9, floor=True, kept=False)
    near = verdict(estimates(), certificate(reason=BROKEN, budgets=(floor,)), campaign())
    assert near.startswith("Do not serve it yet: ")
    under = replace(floor, value=0.9, bound=0.8)
    found = verdict(estimates(), certificate(reason=BROKEN, budgets=(under,)), campaign())
    assert found.startswith("Do not serve it: ")


def test_a_refusal_says_what_would_help() -> None:
    """More users help where support is thin; they do not where the fitted values are wrong."""
    words = "not certified: cost could not be measured (why)"

    def refused(kind: ReasonKind) -> str:
        lines = (replace(LINE, value=None, bound=None, kept=False),)
        found = certificate(reason=Reason(kind, {"found": "why"}), budgets=lines, gain=None, gain_bound=None)
        assert found.words == words
        return verdict(estimates(), found, campaign())

    thin = refused(ReasonKind.UNSUPPORTED)
    assert thin == f"Do not serve it: {words}. A longer or larger log, or fewer actions, may support an answer."
    doubted = refused(ReasonKind.REPRODUCTION)
    assert doubted.startswith(f"Do not serve it: {words}. Outcomes depend on something that the features do not tell")
    assert "log.features" in doubted


def test_what_is_not_certified_is_never_called_certified() -> None:
    """Whatever stands against it: the words follow from the reason, and the verdict from its kind."""
    figures = dict.fromkeys(("found", "way_out", "budgets", "estimator", "target", "units", "share"), "…")
    numbers = dict.fromkeys(("other", "fitted", "errors", "beyond", "count", "needed"), 1.0)
    for kind in set(ReasonKind) - {ReasonKind.AGREES, ReasonKind.NOT_COMPARED}:
        found = certificate(reason=Reason(kind, {**figures, **numbers}), budgets=(OVER,))
        assert not found.certified
        assert found.words.startswith("not certified: ")
        assert (found.withheld is not None) == found.reason.withholds  # type: ignore[union-attr]
        said = verdict(estimates(), found, campaign())
        assert "Serve it" not in said
        assert " is certified" not in said
        assert "it: certified" not in said


def test_a_shared_budget_is_never_certified_and_the_way_out_is_an_experiment() -> None:
    about = campaign(budgets=[{"name": "cost", "cost": "cost", "at_most": 1.0, "shared": True}])
    found = unless_shared(certificate(), about)
    assert not found.certified
    assert (found.gain_bound, found.gain_most) == (None, None)
    assert [(line.bound, line.kept, line.value) for line in found.budgets] == [(None, False, 0.9)]
    words = verdict(estimates(), found, about)
    assert words.startswith("Do not serve it: not certified: cost is shared: what it costs or brings depends on how")
    assert "whole clusters of users" in words
    assert unless_shared(certificate(), campaign()) == certificate()
