"""The verdict: what to do, as a kind with its figures, and in words.

The kinds, in the order in which they are asked for:

    refused          nothing can be relied on                      do not serve it
    loses            a certain loss                                keep the old policy, unless saving is the aim
    unassigned       assignment not known, no certain gain         test it first
    promising        assignment not known, a certain gain          test it first
    over             the estimate itself breaks a limit            do not serve it
    not certified    a bound does                                  do not serve it yet
    gain unknown     certified, no gain could be measured          test it first
    old ruled out    certified, no certain gain over an old        serve it: it is the best within the limits, unless a
                     policy that breaks the limits                 constant may do as well
    constant         a certain gain, a constant may do as well,    serve a constant
                     and is estimated above the old policy
    serve            a certain gain                                serve it
    behind the cap   the same, the money held while serving        serve it where a cap holds its budget
    worse            the estimate is a loss                        keep the old policy
    chance           the gain may be chance                        keep the old policy, or test it
    test             a gain is likely                              test it first

Where the limits rule the old policy out (`ruled_out.py`), it is not to be kept: without a certain gain over it, the
policy is held against the best constant actions, and what the cut costs is told.

What is held while serving (`ReasonKind.HELD`) is judged as what is certified is, and told with what holds it.

This is the one place where what was found becomes sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from outlay.core.actions import Given
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.core.reasons import ReasonKind
from outlay.core.wording import change, exact, four, percent, size
from outlay.estimators.certificate import Certificate
from outlay.estimators.units import objective
from outlay.evaluating.constants import AgainstConstants
from outlay.evaluating.first_days import FirstDays
from outlay.evaluating.ruled_out import BrokenLimit, ruled_out

CLEARLY_WORSE = -0.01  # of the old policy's value: an estimate below it is no reason for a test
ALIKE = 0.005  # of another's spend or reward: a smaller difference is none


class VerdictKind(StrEnum):
    """How an evaluation ends."""

    REFUSED = "refused"
    LOSES = "loses"
    UNASSIGNED = "unassigned"
    PROMISING = "promising"
    OVER = "over"
    NOT_CERTIFIED = "not certified"
    GAIN_UNKNOWN = "gain unknown"
    OLD_RULED_OUT = "old ruled out"
    CONSTANT = "constant"
    SERVE = "serve"
    BEHIND_CAP = "behind the cap"
    WORSE = "worse"
    CHANCE = "chance"
    TEST = "test"


# In these the policy may be served: what constants bring for the whole limit is told beside what it brings for less.
OWN_SPEND = (VerdictKind.OLD_RULED_OUT, VerdictKind.CONSTANT, VerdictKind.SERVE, VerdictKind.BEHIND_CAP)


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A policy against another one, in shares of the other's figures.

    Attributes:
        gain: of the objective.
        at_least: its lower bound at the confidence of the certificate; None where there is none, or all may be lost.
        at_most: its upper bound; None where there is none.
        spend: of the money budget; None where it is not known.
    """

    gain: float
    at_least: float | None
    at_most: float | None
    spend: float | None

    @property
    def sure(self) -> bool:
        """Whether it is a gain for certain."""
        return self.at_least is not None and self.at_least > 0

    @property
    def saves(self) -> bool:
        """Whether less money is spent, by more than nothing."""
        return self.spend is not None and self.spend < -ALIKE


@dataclass(frozen=True, slots=True)
class WholeLimit:
    """Constant actions that spend all that they may and are estimated to bring more than the policy at its own spend.

    Attributes:
        gain: of the objective, in shares of the policy's.
        words: what they are, in a sentence.
    """

    gain: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do.

    Attributes:
        kind: how the evaluation ended.
        confidence: of the bounds.
        old: the policy against the old one; None where the gain was not measured.
        constants: against the best constant actions at its spend; None where that was not measured.
        broken: the limits that the old policy breaks.
        words: the verdict for people.
        fixed: those constant actions with their shares of users; empty where none keep the limits for as little.
        whole: the best constant actions at the whole limit, if they are estimated to bring more; else None.
    """

    kind: VerdictKind
    confidence: float
    old: PolicyChange | None
    constants: PolicyChange | None
    broken: tuple[BrokenLimit, ...]
    words: str
    fixed: tuple[tuple[Given, float], ...] = ()
    whole: WholeLimit | None = None


def verdict(
    estimates: Sequence[Estimate],
    certificate: Certificate,
    campaign: Campaign,
    policy: str = "mixture",
    *,
    constants: AgainstConstants | None = None,
    whole: str | None = None,
    first_days: FirstDays | None = None,
) -> Verdict:
    """Serve `policy`, do not serve it, or test first: with the figures behind it.

    Args:
        estimates: of it and of the old policy.
        certificate: of it.
        campaign: budgets, and what the reward is called.
        policy: its name in the estimates.
        constants: it beside the best constant actions at its spend; None where that was not measured.
        whole: the constant actions that spend the whole limit and are `constants` in the estimates; None without any.
        first_days: how its first days differ from the others, which is said where it can be relied on.
    """
    money = campaign.budgets[campaign.money].name
    old = _value(estimates, "old", objective(campaign))
    spent, before = (_value(estimates, name, money) for name in (policy, "old"))
    against_old = against_constants = None
    if certificate.gain is not None and old:
        gain, least, most = certificate.gain, certificate.gain_bound, certificate.gain_most
        against_old = _change(gain, least, most, old, spent, before)
    if constants is not None and constants.value:
        own = constants
        against_constants = _change(own.gain, own.gain_bound, None, own.value, spent, own.spend)
    broken = ruled_out(estimates, campaign)
    found = Verdict(
        kind=_kind(certificate, against_old, against_constants, constants, broken),
        confidence=certificate.confidence,
        old=against_old,
        constants=against_constants,
        broken=broken,
        words="",
        fixed=constants.given if constants is not None and constants.keep else (),
    )
    words = _Words(found, certificate, campaign, constants).all()
    mine, its = (_value(estimates, name, objective(campaign)) for name in (policy, "constants"))
    if found.kind in OWN_SPEND and whole is not None and mine and its is not None and its / mine > 1 + ALIKE:
        room = "" if certificate.held else ", with no room kept as proof,"
        said = (
            f"Constant actions that spend the whole limit{room} are estimated to bring {change(its / mine - 1)} "
            f"{campaign.told('reward')} against this policy: {whole}."
        )
        found, words = replace(found, whole=WholeLimit(its / mine - 1, said)), f"{words} {said}"
    if certificate.held:
        words = f"{words} {AT_THAT_SPEND}"
    if first_days is not None and certificate.withheld is None and first_days.words:
        words = f"{words} {first_days.words}"
    return replace(found, words=words)


def _kind(
    certificate: Certificate,
    old: PolicyChange | None,
    over: PolicyChange | None,
    constants: AgainstConstants | None,
    broken: Sequence[BrokenLimit],
) -> VerdictKind:
    reason = None if certificate.reason is None else certificate.reason.kind
    sure = old is not None and old.sure
    cut = bool(broken) and old is not None and not sure
    if reason in WAYS_OUT:
        return VerdictKind.REFUSED
    if old is not None and old.at_most is not None and old.at_most < 0 and not cut:
        return VerdictKind.LOSES
    if reason is ReasonKind.UNASSIGNED:
        return VerdictKind.PROMISING if sure else VerdictKind.UNASSIGNED
    if not certificate.certified and not certificate.held:
        beyond = (line.value is not None and not line.keeps(line.value) for line in certificate.budgets)
        return VerdictKind.OVER if any(beyond) else VerdictKind.NOT_CERTIFIED
    if old is None:
        return VerdictKind.GAIN_UNKNOWN
    if cut:
        return VerdictKind.OLD_RULED_OUT
    if sure:
        as_well = over is not None and constants is not None and constants.keep and not over.sure
        if as_well and constants is not None and constants.gain < (certificate.gain or 0.0):
            return VerdictKind.CONSTANT
        return VerdictKind.BEHIND_CAP if certificate.held else VerdictKind.SERVE
    if old.gain < CLEARLY_WORSE:
        return VerdictKind.WORSE
    if certificate.gain_likely is None or certificate.gain_likely <= 0:
        return VerdictKind.CHANCE
    return VerdictKind.TEST


def _change(
    gain: float, least: float | None, most: float | None, base: float, spent: float | None, other: float | None
) -> PolicyChange:
    lost = least is not None and least <= -abs(base)
    return PolicyChange(
        gain=gain / base,
        at_least=None if least is None or lost else least / base,
        at_most=None if most is None else most / base,
        spend=None if spent is None or not other else spent / other - 1,
    )


def _value(estimates: Sequence[Estimate], policy: str, target: str) -> float | None:
    """By the fitted evaluation."""
    for e in estimates:
        if (e.policy, e.estimator, e.target) == (policy, "fqe", target) and e.value is not None:
            return e.value
    return None


# Words.

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
AT_THAT_SPEND = (
    "The gain is that at the estimated spend: if it costs more in truth, the cap cuts in, and the gain is that of a "
    "cheaper mixture."
)
NEARLY = "More users, or a lower limit in training, may certify it."
WAYS_OUT = {
    ReasonKind.UNSUPPORTED: THIN,
    ReasonKind.REPRODUCTION: DOUBTED,
    ReasonKind.STATE: DOUBTED,
    ReasonKind.BALANCE: DOUBTED,
    ReasonKind.CONTRADICTED: DOUBTED,
    ReasonKind.DOUBTED: "Find out why, or test the policy on some users first.",
    ReasonKind.NOT_CHECKED: UNCHECKED,
    ReasonKind.SHARED: SHARED_WAY,
}


@dataclass(frozen=True)
class _Words:
    """The sentences of a verdict, from its kind and figures."""

    found: Verdict
    certificate: Certificate
    campaign: Campaign
    beside: AgainstConstants | None

    def all(self) -> str:
        """Return the whole verdict."""
        kinds = VerdictKind
        match self.found.kind:
            case kinds.REFUSED:
                assert self.certificate.reason is not None
                return f"Do not serve it: {self.certificate.words}. {WAYS_OUT[self.certificate.reason.kind]}"
            case kinds.LOSES:
                return self._loses()
            case kinds.UNASSIGNED if self._cut:
                return f"Test it first. {self._ruled_out()}. {ESTIMATED}"
            case kinds.UNASSIGNED:
                return f"Do not serve it: no gain could be shown. {ESTIMATED}"
            case kinds.PROMISING:
                return f"Promising, to be tested first: {self._against_old()}{self._spend(self.found.old)}. {ESTIMATED}"
            case kinds.OVER:
                too = f" {self._today()}, too." if self.found.broken else ""
                return f"Do not serve it: {self.certificate.words}. {BEYOND}{too}"
            case kinds.NOT_CERTIFIED:
                return self._not_yet()
            case kinds.GAIN_UNKNOWN:
                unknown = "but the gain over the old policy could not be measured"
                if self.certificate.held:
                    return f"{self._kept[:1].upper()}{self._kept[1:]}, {unknown}."
                return f"The limit is certified ({self._limits}, {self._sure}), {unknown}."
            case kinds.OLD_RULED_OUT:
                return f"{self._ruled_out()}; {self._kept}."
            case kinds.SERVE | kinds.BEHIND_CAP | kinds.CONSTANT:
                return self._served()
            case kinds.WORSE | kinds.CHANCE | kinds.TEST:
                return self._no_gain_shown()

    @property
    def _sure(self) -> str:
        return f"{exact(self.found.confidence)} sure"

    @property
    def _limits(self) -> str:
        return self._without(None)

    def _without(self, held: str | None) -> str:
        """The limits, but for the one that is held."""
        return " and ".join(f"{self._called(b.name)} {b.words}" for b in self.campaign.budgets if b.name != held)

    def _called(self, budget: str) -> str:
        return self.campaign.told("budgets", budget)

    @property
    def _kept(self) -> str:
        """`coupon_cost at most 1.2 per decision is certified`, or what holds it."""
        held, reason = self.certificate.held, self.certificate.reason
        if held is None or reason is None:
            return f"{self._limits} is certified"
        others = self._without(held)
        return f"{reason.words}{f', and {others} is certified' if others else ''}"

    @property
    def _cut(self) -> bool:
        return bool(self.found.broken) and self.found.old is not None and not self.found.old.sure

    def _loses(self) -> str:
        old = self.found.old
        assert old is not None
        assert old.at_most is not None
        least = f"{self._sure} of a loss of {size(old.at_most)} at least"
        keep = "Do not serve it, unless saving is the aim" if old.saves else "Do not serve it"
        kept = self.certificate.certified or self.certificate.held
        aside = self._kept if kept else f"It is {self.certificate.words}"
        claim = f"{self._gain()} against the old policy ({least}){self._spend(old)}"
        return f"It loses: {claim}. {keep}: keep the old policy. ({aside}.)"

    def _not_yet(self) -> str:
        reason, lines = self.certificate.reason, self.certificate.budgets
        assert reason is not None
        # Then the words say what would certify it.
        told = reason.kind is ReasonKind.APPROXIMATE or any(line.events is not None for line in lines)
        rest = [text for text in ("" if told else NEARLY, f"{self._ruled_out()}." if self._cut else "") if text]
        return " ".join([f"Do not serve it yet: {self.certificate.words}.", *rest])

    def _served(self) -> str:
        old, over, beside = self.found.old, self.found.constants, self.beside
        claim, spend = self._against_old(), self._spend(old)
        serve = (
            "Serve it behind a cap (outlay serve --cap, or outlay allocate)" if self.certificate.held else "Serve it"
        )
        if beside is None or over is None:
            return f"{serve}: {claim}{spend}, and {self._kept}."
        if not beside.keep:
            none = "No constant actions keep the limits for as little."
            return f"{serve}: {claim}{spend}, and {self._kept}. {none}"
        more, least, at = change(over.gain), self._at_least(over), self._spend(over)
        its = "" if self.certificate.held else "its "
        if over.sure:
            best = f"{more} against the best constant actions ({least}){at}"
            return f"{serve}: {claim}{spend}, and {best}; {self._kept}."
        if self.found.kind is not VerdictKind.CONSTANT:
            return (
                f"{serve}: {claim}{spend}, and {self._kept}. No gain could be shown over the best constant actions "
                f"({beside.words}): the estimate is {more} ({least}). But they are estimated below the old policy."
            )
        return (
            f"Serve a constant: the policy brings {claim}{spend}, and {its}{self._kept}, but a constant "
            f"{self._as_well}: {beside.words}. No gain over it could be shown: the estimate is {more} ({least}){at}. "
            "Serve the constant, whose own costs are estimated and not certified, or test the two against each other "
            "(outlay experiment plan)."
        )

    def _no_gain_shown(self) -> str:
        old = self.found.old
        assert old is not None
        shown = f"No gain could be shown: the estimate is {self._against_old()}{self._spend(old)}"
        advice = {
            VerdictKind.WORSE: f"Keep the old policy{', unless saving is the aim' if old.saves else ''}",
            VerdictKind.CHANCE: "It may be chance: keep the old policy, or test it first (outlay experiment plan)",
            VerdictKind.TEST: "Test it against the old policy before it is served to all (outlay experiment plan)",
        }[self.found.kind]
        return f"{shown}. {advice}; {self._kept}."

    def _today(self) -> str:
        broken = (
            f"{self._called(each.budget)} is {four(each.value)}, and may be {each.limit}" for each in self.found.broken
        )
        return f"Your budget rules out today's policy ({', '.join(broken)})"

    def _ruled_out(self) -> str:
        """What the policy is among those that keep the limits, and what is lost against one that does not."""
        return f"{self._today()}. {self._within()}. {self._cost_of_the_cut()}{self._spend(self.found.old)}"

    def _within(self) -> str:
        best, over, beside = (
            "Within that budget this is the best policy that was measured",
            self.found.constants,
            self.beside,
        )
        if beside is None or over is None:
            return best
        if not beside.keep:
            return f"{best}, and no constant actions keep the limits for as little"
        aside = f"{change(over.gain)} against the best constant actions ({self._at_least(over)}){self._spend(over)}"
        if over.sure:
            return f"{best}: {aside}"
        return f"Within that budget a constant {self._as_well}: {beside.words}. The policy's estimate is {aside}"

    @property
    def _as_well(self) -> str:
        over = self.found.constants
        return "brings more, by estimate" if over is not None and over.gain < -ALIKE else "may do as well"

    def _cost_of_the_cut(self) -> str:
        old = self.found.old
        assert old is not None
        if old.at_most is not None and old.at_most < 0:
            least = f"{self._sure} of {size(old.at_most)} at least"
            return f"The cut costs {self._gain().removeprefix('−')} against today's policy ({least})"
        return f"Against today's policy the estimate is {self._gain()} ({self._at_least(old)})"

    def _gain(self) -> str:
        """`+3.2% active over the first 7 days`."""
        assert self.found.old is not None
        said, window = f"{change(self.found.old.gain)} {self.campaign.told('reward')}", self.certificate.window
        if window is None or self.campaign.log.once:
            return said
        return f"{said} on the first day" if window == 1 else f"{said} over the first {window} days"

    def _against_old(self) -> str:
        assert self.found.old is not None
        return f"{self._gain()} against the old policy ({self._at_least(self.found.old)})"

    def _at_least(self, against: PolicyChange) -> str:
        """A lower bound: `97.5% sure of +2.2% at least`, or what may be lost."""
        if against.at_least is None:
            return "too little is known to say how much it may lose"
        if against.at_least > 0:
            return f"{self._sure} of {change(against.at_least)} at least"
        return f"{self._sure} only that it loses no more than {size(against.at_least)}"

    def _spend(self, against: PolicyChange | None) -> str:
        """` at 14% less coupon_cost`, against another's."""
        name = self._called(self.campaign.budgets[self.campaign.money].name)
        if against is None or against.spend is None:
            return ""
        if abs(against.spend) < ALIKE:
            return f" at the same {name}"
        return f" at {percent(abs(against.spend), 0)} {'less' if against.spend < 0 else 'more'} {name}"
