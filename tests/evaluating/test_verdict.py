"""What to do, for every way an evaluation can end: the kind and its figures; and how the sentences read."""

from __future__ import annotations

from dataclasses import replace
from string import Formatter
from typing import Any

import pytest

from outlay.core.campaign import Labels
from outlay.core.estimate import Estimate
from outlay.core.reasons import WITHHOLDING, WORDS, Reason, ReasonKind
from outlay.core.wording import change, size
from outlay.estimators.certificate import BudgetBound, Certificate
from outlay.evaluating.constants import AgainstConstants
from outlay.evaluating.grade import grade
from outlay.evaluating.ruled_out import ruled_out
from outlay.evaluating.verdict import WAYS_OUT, Verdict, VerdictKind, verdict
from small_logs import campaign
from telling import missing

LINE = BudgetBound(budget="cost", value=0.9, bound=0.95, limit=1.0, floor=False, kept=True)
OVER = replace(LINE, value=0.99, bound=1.02, kept=False)
BROKEN = Reason(ReasonKind.LIMIT)
HELD = Reason(
    ReasonKind.HELD, {"budget": "cost", "label": "cost", "value": 0.99, "low": 0.96, "high": 1.02, "limit": 1.0}
)
AGAINST = WITHHOLDING | {
    ReasonKind.UNASSIGNED,
    ReasonKind.APPROXIMATE,
    ReasonKind.FEW_USERS,
    ReasonKind.LIMIT,
    ReasonKind.DAYS,
}
LOSS: dict[str, Any] = {"gain": -0.09, "gain_bound": -0.11, "gain_most": -0.07}


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


def dear(spread: float = 0.1) -> list[Estimate]:
    """The old policy costs 2.5, give or take `spread`, where 1 is allowed."""
    made = (
        replace(e, value=2.5, low=2.5 - spread, high=2.5 + spread) if (e.policy, e.target) == ("old", "cost") else e
        for e in estimates()
    )
    return list(made)


def beside(gain: float, least: float, *, keep: bool = True) -> AgainstConstants:
    """A policy that spends 0.9 and constant actions whose reward is 0.5, at the same spend."""
    return AgainstConstants("2 for 100% of users", gain, least, gain_likely=least, value=0.5, spend=0.9, keep=keep)


def of(constants: AgainstConstants | None = None, *, given: list[Estimate] | None = None, **changes: Any) -> Verdict:
    """The verdict on a certificate with these changes."""
    return verdict(given or estimates(), certificate(**changes), campaign(), constants=constants)


def test_a_sure_gain_within_the_budget_is_to_be_served_and_told_in_shares_of_the_old_policys() -> None:
    found = of()
    assert found.kind is VerdictKind.SERVE
    assert found.old is not None
    assert found.old.gain == pytest.approx(0.05 / 0.5)
    assert found.old.at_least == pytest.approx(0.02 / 0.5)
    assert found.old.at_most == pytest.approx(0.08 / 0.5)
    assert found.old.spend == pytest.approx(-0.1)
    assert (found.old.sure, found.old.saves, found.confidence) == (True, True, 0.975)
    assert (found.constants, found.broken) == (None, ())


def test_the_spend_is_compared_with_the_old_policys() -> None:
    for cost, saves in ((0.9, True), (0.997, False), (1.0, False), (1.2, False)):
        found = of(given=estimates(cost)).old
        assert found is not None
        assert found.spend == pytest.approx(cost - 1)
        assert found.saves == saves


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"gain_bound": -0.01, "gain_likely": 0.01}, VerdictKind.TEST),
        ({"gain_bound": -0.03, "gain_likely": None}, VerdictKind.CHANCE),
        ({"gain_bound": -0.03, "gain_likely": 0.0}, VerdictKind.CHANCE),
        ({"gain_bound": -0.03, "gain_likely": -0.01}, VerdictKind.CHANCE),
        ({"gain": 0.0, "gain_bound": None}, VerdictKind.CHANCE),  # an estimate of 0 is no gain of 0%
        ({"gain": -0.004, "gain_bound": -0.03}, VerdictKind.CHANCE),
        ({"gain": -0.02, "gain_bound": -0.03}, VerdictKind.WORSE),
        (LOSS, VerdictKind.LOSES),
        ({"reason": BROKEN, "budgets": (OVER,), **LOSS}, VerdictKind.LOSES),  # whatever the certificate says of costs
        ({"reason": BROKEN, "budgets": (OVER,)}, VerdictKind.NOT_CERTIFIED),
        ({"reason": BROKEN, "budgets": (LINE, replace(OVER, value=1.2, bound=1.3))}, VerdictKind.OVER),
        ({"reason": BROKEN, "budgets": (replace(OVER, value=1.2, bound=0.9, floor=True),)}, VerdictKind.NOT_CERTIFIED),
        ({"reason": BROKEN, "budgets": (replace(OVER, value=0.9, bound=0.8, floor=True),)}, VerdictKind.OVER),
        ({"reason": Reason(ReasonKind.UNASSIGNED)}, VerdictKind.PROMISING),
        ({"reason": Reason(ReasonKind.UNASSIGNED), "gain_bound": -0.1}, VerdictKind.UNASSIGNED),
        ({"gain": None, "gain_bound": None}, VerdictKind.GAIN_UNKNOWN),
        ({"reason": HELD, "budgets": (OVER,)}, VerdictKind.BEHIND_CAP),
        ({"reason": HELD, "budgets": (replace(OVER, value=1.01),)}, VerdictKind.BEHIND_CAP),  # its estimate may be over
        ({"reason": HELD, "budgets": (OVER,), "gain": None}, VerdictKind.GAIN_UNKNOWN),
        ({"reason": HELD, "budgets": (OVER,), "gain_bound": -0.01, "gain_likely": 0.01}, VerdictKind.TEST),
        ({"reason": HELD, "budgets": (OVER,), **LOSS}, VerdictKind.LOSES),
    ],
)
def test_every_way_an_evaluation_can_end(changes: dict[str, Any], kind: VerdictKind) -> None:
    found = of(**changes)
    assert found.kind is kind
    assert ("Serve it" in found.words) == (kind in (VerdictKind.SERVE, VerdictKind.BEHIND_CAP))
    assert ("the cap cuts in" in found.words) == (changes.get("reason") is HELD)
    if changes.get("reason") is HELD:
        assert "certified" not in found.words, "of one budget nothing is"


def test_what_is_held_while_serving_is_told_beside_what_is_certified() -> None:
    second = {"name": "large", "cost": "c", "at_most": 0.4}
    two = campaign(0.8, [{"name": "cost", "cost": "c", "at_most": 1.0}, second])
    held = certificate(reason=HELD, budgets=(OVER, replace(LINE, budget="large", value=0.3, bound=0.35, limit=0.4)))
    found = verdict(estimates(), held, two)
    assert found.kind is VerdictKind.BEHIND_CAP
    assert not missing(found.words, "0.99", "0.96 to 1.02", "large at most 0.4 per decision is certified", "--cap")
    assert (held.certified, held.withheld, held.held) == (False, None, "cost")
    assert held.words.startswith("held while serving: ")
    assert (grade(held), grade(replace(held, gain_bound=-0.01, gain_likely=0.01))) == ("held", "promising")
    over = replace(held, budgets=(OVER, replace(LINE, budget="large", value=0.5, limit=0.4)), gain_bound=-0.01)
    assert grade(replace(over, gain_likely=0.01)) == "not supported", "what no cap holds has to keep its limit"


@pytest.mark.parametrize("value", [0.0, None])
def test_an_old_policy_that_brought_nothing_or_is_unknown_leaves_no_share_to_tell(value: float | None) -> None:
    old = Estimate(policy="old", estimator="fqe", target="reward", value=value)
    found = of(given=[old])
    assert (found.kind, found.old) == (VerdictKind.GAIN_UNKNOWN, None)


def test_a_gain_that_a_constant_brings_as_well_is_that_of_the_constant() -> None:
    as_well, better = of(beside(0.0005, -0.002)), of(beside(0.02, 0.01))
    assert (as_well.kind, better.kind) == (VerdictKind.CONSTANT, VerdictKind.SERVE)
    assert better.constants is not None
    assert (better.constants.gain, better.constants.at_least) == pytest.approx((0.04, 0.02))
    assert better.constants.spend == pytest.approx(0.0)
    assert of(beside(-0.2, -0.3, keep=False)).kind is VerdictKind.SERVE, "what breaks a limit takes no gain away"


def test_a_constant_that_is_estimated_below_the_old_policy_is_not_to_be_served() -> None:
    """The policy surely gains on the old one: a constant that it is estimated to beat by more brings less than that."""
    found = of(beside(0.06, -0.002))
    assert found.kind is VerdictKind.SERVE
    assert not missing(found.words, "Serve it: ", "No gain could be shown", "they are estimated below the old policy")


def test_the_constant_actions_are_handed_on_where_they_keep_the_limits() -> None:
    given = ((2.0, 0.6), (3.0, 0.4))
    assert of(replace(beside(0.0005, -0.002), given=given)).fixed == given
    assert of(replace(beside(-0.2, -0.3, keep=False), given=given)).fixed == ()
    assert of().fixed == ()


def test_an_old_policy_beyond_the_budget_is_not_to_be_kept() -> None:
    """The policy is held against what the budget allows, and the verdict says what the cut costs."""
    for changes in (LOSS, {"gain_bound": -0.01}):
        for constants in (None, beside(0.02, 0.01), beside(0.0005, -0.002), beside(0.0, 0.0, keep=False)):
            found = of(constants, given=dear(), **changes)
            assert found.kind is VerdictKind.OLD_RULED_OUT
            assert [(each.budget, each.value) for each in found.broken] == [("cost", 2.5)]
            assert "keep the old policy" not in found.words.lower()
    assert of(given=dear()).kind is VerdictKind.SERVE


def test_an_old_policy_that_may_keep_the_budget_is_not_ruled_out() -> None:
    assert of(given=dear(2.0), **LOSS).kind is VerdictKind.LOSES
    assert ruled_out(dear(2.0), campaign()) == ()
    assert [each.budget for each in ruled_out(dear(), campaign())] == ["cost"]
    about = campaign(budgets=[{"name": "cost", "cost": "c", "at_least": 3.0}])
    assert [each.value for each in ruled_out(dear(), about)] == [2.5]
    assert ruled_out(dear(0.6), about) == ()


def test_what_is_not_certified_is_not_served_though_the_old_policy_breaks_the_budget_too() -> None:
    near = of(given=dear(), reason=BROKEN, budgets=(OVER,), **LOSS)
    over = of(given=dear(), reason=BROKEN, budgets=(replace(OVER, value=1.2, bound=1.3),), **LOSS)
    told = of(given=dear(), reason=Reason(ReasonKind.UNASSIGNED), **LOSS)
    kinds = [VerdictKind.NOT_CERTIFIED, VerdictKind.OVER, VerdictKind.UNASSIGNED]
    assert [found.kind for found in (near, over, told)] == kinds
    for found in (near, over, told):
        assert found.broken
        assert "cost is 2.5" in found.words
        assert "keep the old policy" not in found.words


def test_what_is_not_certified_is_never_called_certified() -> None:
    """Whatever stands against it: the words follow from the reason, and the verdict from its kind."""
    for kind in AGAINST:
        figures = {name: 1.0 if form else "…" for _, name, form, _ in Formatter().parse(WORDS[kind]) if name}
        found = certificate(reason=Reason(kind, figures), budgets=(OVER,))
        assert not found.certified
        assert found.words.startswith("not certified: ")
        assert (found.withheld is not None) == found.reason.withholds  # type: ignore[union-attr]
        said = verdict(estimates(), found, campaign())
        assert (said.kind is VerdictKind.REFUSED) == (kind in WAYS_OUT)
        assert "Serve it" not in said.words
        assert " is certified" not in said.words
        assert "it: certified" not in said.words


def test_every_reason_that_withholds_a_certificate_has_a_way_out() -> None:
    assert set(WAYS_OUT) == WITHHOLDING


# Words.

BUDGET = "cost at most 1 per decision"
TODAY = "Your budget rules out today's policy (cost is 2.5, and may be at most 1 per decision)"


def test_how_a_verdict_reads() -> None:
    claim = "+10.0% r against the old policy (97.5% sure of +4.0% at least) at 10% less cost"
    assert of().words == f"Serve it: {claim}, and {BUDGET} is certified."
    assert of(gain_bound=-0.01, gain_likely=0.01).words == (
        "No gain could be shown: the estimate is +10.0% r against the old policy (97.5% sure only that it loses no "
        "more than 2.0%) at 10% less cost. Test it against the old policy before it is served to all (outlay "
        f"experiment plan); {BUDGET} is certified."
    )
    assert of(given=estimates(1.2), **LOSS).words == (
        "It loses: −18.0% r against the old policy (97.5% sure of a loss of 14.0% at least) at 20% more cost. "
        f"Do not serve it: keep the old policy. ({BUDGET} is certified.)"
    )
    assert of(beside(0.0005, -0.002)).words == (
        f"Serve a constant: the policy brings {claim}, and its {BUDGET} is certified, but a constant may do as well: 2 "
        "for 100% of users. No gain over it could be shown: the estimate is +0.1% (97.5% sure only that it loses no "
        "more than 0.4%) at the same cost. Serve the constant, whose own costs are estimated and not certified, or "
        "test the two against each other (outlay experiment plan)."
    )
    assert of(beside(0.02, 0.01), given=dear(), **LOSS).words == (
        f"{TODAY}. Within that budget this is the best policy that was measured: +4.0% against the best constant "
        "actions (97.5% sure of +2.0% at least) at the same cost. The cut costs 18.0% r against today's policy "
        f"(97.5% sure of 14.0% at least) at 64% less cost; {BUDGET} is certified."
    )
    assert of(reason=BROKEN, budgets=(OVER,)).words == (
        "Do not serve it yet: not certified: cost by 0.02 (upper bound 1.02 against 1). More users, or a lower limit "
        "in training, may certify it."
    )


def test_a_percentage_that_rounds_to_nothing_keeps_its_digits() -> None:
    """`sure of −0.0% at least` says nothing."""
    assert [change(share) for share in (0.1, -0.18, 0.00024, 0.0)] == ["+10.0%", "−18.0%", "+0.02%", "0%"]
    assert [size(share) for share in (-0.18, -0.0002, 0.0)] == ["18.0%", "0.02%", "0%"]


def test_labels_stand_where_columns_would() -> None:
    labels = Labels.model_validate({"reward": "active days", "budgets": {"cost": "coupon money"}})
    about = campaign().model_copy(update={"labels": labels})
    told = verdict(estimates(new_cost=0.8), certificate(), about).words
    assert not missing(told, "+10.0% active days against", "less coupon money, and coupon money at most")
    told = verdict(dear(), certificate(gain=0.0, gain_bound=-0.1), about).words
    assert "(coupon money is 2.5, and may be at most" in told


@pytest.mark.parametrize(
    ("theirs", "changes", "gain"),
    [
        (0.6, {}, 0.6 / 0.55 - 1),
        (0.6, {"reason": HELD}, 0.6 / 0.55 - 1),
        (0.551, {}, None),  # as much
        (0.6, {"gain": 0.01, "gain_bound": -0.01}, None),  # nothing is to be served that they could be held against
    ],
)
def test_constants_that_bring_more_for_the_whole_limit_are_told(
    theirs: float, changes: dict[str, Any], gain: float | None
) -> None:
    """At its own spend the policy is ahead of constants; it leaves much of the limit unspent, and they do not."""
    beside_it = Estimate(policy="constants", estimator="fqe", target="reward", value=theirs)
    given = [*estimates(), beside_it]
    found = verdict(
        given, certificate(**changes), campaign(), constants=beside(0.02, 0.01), whole="2 for 100% of users"
    )
    if gain is None:
        assert found.whole is None
        return
    assert found.whole is not None
    assert found.whole.gain == pytest.approx(gain)
    assert found.whole.words in found.words
    assert not missing(found.whole.words, change(gain), "2 for 100% of users")
    assert ("no room kept as proof" in found.whole.words) == (not changes)


def test_a_constant_that_is_ahead_is_not_said_to_do_as_well() -> None:
    ahead = of(beside(-0.05, -0.1), given=dear(), gain_bound=-0.01)
    assert "a constant brings more, by estimate" in ahead.words
    assert "may do as well" not in ahead.words
