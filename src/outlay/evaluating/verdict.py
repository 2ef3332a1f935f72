"""One sentence that says what to do.

The outcomes, in the order in which they are asked for:

    nothing can be relied on                     do not serve it
    a certain loss                               do not serve it; only where it saves money, for that aim
    not certified                                do not serve it, or not yet
    the gain could not be measured               that
    a certain gain, assignment not known         promising: test it first
    a certain gain, a constant may do as well    serve a constant
    a certain gain                               serve it
    neither a certain gain nor a certain loss    keep the old policy, or test it

Where the limits rule the old policy out (`ruled_out.py`), it is not to be kept: without a certain gain over it, the
policy is held against the best constant actions, and what the cut costs is told.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.core.reasons import ReasonKind
from outlay.core.wording import exact
from outlay.estimators.certificate import Certificate
from outlay.estimators.units import objective
from outlay.evaluating.constants import AgainstConstants
from outlay.evaluating.first_days import FirstDays
from outlay.evaluating.ruled_out import ruled_out

CLEARLY_WORSE = -0.01  # of the old policy's value: an estimate below it is no reason for a test
SAME_SPEND = 0.005  # of the other's: a smaller difference is none
THIN = "A longer or larger log, or fewer actions, may support an answer."
BEYOND = "Its estimate itself is beyond the limit: take a policy that keeps it with room to spare."
DOUBTED = (
    "Outcomes depend on something that the features do not tell, days differ, or the log did too little of what the "
    "policy does: add it to log.features, or test the policy on some users."
)
UNCHECKED = (
    "Test it on some users first (outlay experiment plan). A log can confirm it if more of its decisions were drawn at "
    "random, with their propensities stated (log.propensity), or if the policy is closer to the old one."
)
ESTIMATED = (
    "But the campaign file does not say how the log's actions were drawn. Whatever drove them beside the features "
    "biases all of this, and no check can see that. Test it on some users (outlay experiment plan); next time draw "
    "some actions at random and log their propensities. If actions were randomised given the features, say so: "
    "randomised = true under [log]."
)
SHARED_WAY = (
    "Test it in an experiment whose arms are whole clusters of users (outlay experiment plan), each large enough to "
    "hold all who share it."
)
NEARLY = "More users, or a lower limit in training, would certify it."
WAYS_OUT = {
    ReasonKind.UNSUPPORTED: THIN,
    ReasonKind.REPRODUCTION: DOUBTED,
    ReasonKind.STATE: DOUBTED,
    ReasonKind.BALANCE: DOUBTED,
    ReasonKind.CONTRADICTED: DOUBTED,
    ReasonKind.NOT_CHECKED: UNCHECKED,
    ReasonKind.SHARED: SHARED_WAY,
}


def verdict(
    estimates: Sequence[Estimate],
    certificate: Certificate,
    campaign: Campaign,
    policy: str = "mixture",
    *,
    constants: AgainstConstants | None = None,
    first_days: FirstDays | None = None,
) -> str:
    """Serve `policy`, do not serve it, or test first: with the figures behind it.

    Args:
        estimates: of it and of the old policy.
        certificate: of it.
        campaign: budgets, and what the reward is called.
        policy: its name in the estimates.
        constants: it beside the best constant actions at its spend; None where that was not measured.
        first_days: how its first days differ from the others, which is said where it can be relied on.
    """
    said = _verdict(estimates, certificate, campaign, policy, constants)
    if first_days is None or certificate.withheld is not None or not first_days.words:
        return said
    return f"{said} {first_days.words}"


def _verdict(
    estimates: Sequence[Estimate],
    certificate: Certificate,
    campaign: Campaign,
    policy: str,
    constants: AgainstConstants | None,
) -> str:
    kind = None if certificate.reason is None else certificate.reason.kind
    if kind in WAYS_OUT:
        return f"Do not serve it: {certificate.words}. {WAYS_OUT[kind]}"

    sure = f"{exact(certificate.confidence)} sure"
    limits = " and ".join(f"{b.name} {b.words}" for b in campaign.budgets)
    old = _value(estimates, "old", objective(campaign))
    money = campaign.budgets[campaign.money].name
    spent, before = (_value(estimates, name, money) for name in (policy, "old"))
    spend, saves = _spend(spent, before, campaign), _less(spent, before)
    gain = certificate.gain
    change = "" if gain is None or not old else f"{_percent(gain, old)} {campaign.reward_label}"
    if change and certificate.window is not None:
        change += " on the first day" if certificate.window == 1 else f" over the first {certificate.window} days"

    broken = ruled_out(estimates, campaign)
    out = f"Your budget rules out today's policy ({', '.join(each.words for each in broken)})"
    sure_gain = certificate.gain_bound is not None and certificate.gain_bound > 0
    instead = ""
    if broken and old and gain is not None and not sure_gain:
        cut = _cut(certificate, change, old, sure)
        instead = f"{out}. {_within(constants, spent, campaign, sure)}. {cut}{spend}."

    if not instead and old and gain is not None and certificate.gain_most is not None and certificate.gain_most < 0:
        least = f"{sure} of a loss of {_size(certificate.gain_most, old)} at least"
        keep = "Do not serve it, unless saving is the aim" if saves else "Do not serve it"
        aside = f"{limits} is certified" if certificate.certified else f"It is {certificate.words}"
        return f"It loses: {change} against the old policy ({least}){spend}. {keep}: keep the old policy. ({aside}.)"

    floor = _at_least(certificate.gain_bound, old, sure) if old else ""
    if kind is ReasonKind.UNASSIGNED:
        if instead:
            return f"Test it first. {instead} {ESTIMATED}"
        if old and sure_gain:
            return f"Promising, to be tested first: {change} against the old policy ({floor}){spend}. {ESTIMATED}"
        return f"Do not serve it: no gain could be shown. {ESTIMATED}"

    if not certificate.certified:
        if any(line.value is not None and (line.value < line.limit) == line.floor for line in certificate.budgets):
            return f"Do not serve it: {certificate.words}. {BEYOND}{f' {out}, too.' if broken else ''}"
        # Then the words say what would certify it.
        told = kind is ReasonKind.APPROXIMATE or any(line.events is not None for line in certificate.budgets)
        rest = [text for text in ("" if told else NEARLY, instead) if text]
        return " ".join([f"Do not serve it yet: {certificate.words}.", *rest])

    if gain is None or not old:
        return f"The limit is certified ({limits}, {sure}), but the gain over the old policy could not be measured."

    if instead:
        return f"{instead.removesuffix('.')}; {limits} is certified."

    if sure_gain:
        claim = f"{change} against the old policy ({floor})"
        if constants is None or not constants.value:
            return f"Serve it: {claim}{spend}, and {limits} is certified."
        if not constants.keep:
            none = "No constant actions keep the limits for as little."
            return f"Serve it: {claim}{spend}, and {limits} is certified. {none}"
        more = _percent(constants.gain, constants.value)
        beyond = _at_least(constants.gain_bound, constants.value, sure)
        if constants.gain_bound is not None and constants.gain_bound > 0:
            return (
                f"Serve it: {claim}{spend}, and {more} against the best constant actions ({beyond})"
                f"{_spend(spent, constants.spend, campaign)}; {limits} is certified."
            )
        return (
            f"Serve a constant: the policy brings {claim}{spend}, and its {limits} is certified, but a constant may do "
            f"as well: {constants.words}. No gain over it could be shown: the estimate is {more} ({beyond})"
            f"{_spend(spent, constants.spend, campaign)}. Serve the constant, whose own costs are estimated and not "
            "certified, or test the two against each other (outlay experiment plan)."
        )

    shown = f"No gain could be shown: the estimate is {change} against the old policy ({floor}){spend}"
    if gain < CLEARLY_WORSE * abs(old):
        return f"{shown}. Keep the old policy{', unless saving is the aim' if saves else ''}; {limits} is certified."
    if certificate.gain_likely is None or certificate.gain_likely <= 0:
        return (
            f"{shown}. It may be chance: keep the old policy, or test it first (outlay experiment plan); {limits} is "
            "certified."
        )
    return (
        f"{shown}. Test it against the old policy before it is served to all (outlay experiment plan); {limits} is "
        "certified."
    )


def _within(constants: AgainstConstants | None, spent: float | None, campaign: Campaign, sure: str) -> str:
    """What the policy is among those that keep the limits: the best that was measured, or no better than a constant."""
    best = "Within that budget this is the best policy that was measured"
    if constants is None or not constants.value:
        return best
    if not constants.keep:
        return f"{best}, and no constant actions keep the limits for as little"
    more, beyond = _percent(constants.gain, constants.value), _at_least(constants.gain_bound, constants.value, sure)
    aside = f"{more} against the best constant actions ({beyond}){_spend(spent, constants.spend, campaign)}"
    if constants.gain_bound is not None and constants.gain_bound > 0:
        return f"{best}: {aside}"
    as_well = f"Within that budget a constant may do as well as this policy: {constants.words}"
    return f"{as_well}. The policy's estimate is {aside}"


def _cut(certificate: Certificate, change: str, old: float, sure: str) -> str:
    """What is lost against an old policy that cannot be kept."""
    if certificate.loses and certificate.gain_most is not None:
        least = f"{sure} of {_size(certificate.gain_most, old)} at least"
        return f"The cut costs {change.removeprefix('-')} against today's policy ({least})"
    return f"Against today's policy the estimate is {change} ({_at_least(certificate.gain_bound, old, sure)})"


def _value(estimates: Sequence[Estimate], policy: str, target: str) -> float | None:
    """By the fitted evaluation."""
    for e in estimates:
        if (e.policy, e.estimator, e.target) == (policy, "fqe", target) and e.value is not None:
            return e.value
    return None


def _percent(change: float, base: float) -> str:
    """`+3.2%`; what would round to 0.0% keeps a digit that says something."""
    return f"{'+' if change > 0 else '-' if change < 0 else ''}{_size(change, base)}"


def _size(change: float, base: float) -> str:
    """The same without the sign."""
    share = abs(100 * change / base)
    return f"{share:.1f}%" if share >= 0.05 else f"{share:.1g}%"


def _at_least(bound: float | None, base: float, sure: str) -> str:
    """A lower bound: `97.5% sure of +2.2% at least`, or what may be lost."""
    if bound is None or bound <= -abs(base):
        return "too little is known to say how much it may lose"
    if bound > 0:
        return f"{sure} of {_percent(bound, base)} at least"
    return f"{sure} only that it loses no more than {_size(bound, base)}"


def _less(spent: float | None, other: float | None) -> bool:
    """Whether less money is spent, by more than nothing."""
    return spent is not None and other is not None and spent < (1 - SAME_SPEND) * other


def _spend(spent: float | None, other: float | None, campaign: Campaign) -> str:
    """` at 14% less coupon_cost`, against another's."""
    budget = campaign.budgets[campaign.money]
    if spent is None or not other:
        return ""
    change = spent / other - 1
    if abs(change) < SAME_SPEND:
        return f" at the same {budget.name}"
    return f" at {100 * abs(change):.0f}% {'less' if change < 0 else 'more'} {budget.name}"
