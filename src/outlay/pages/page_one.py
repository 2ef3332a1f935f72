"""Page one of the report: the decision, in totals for all users and in the words of the campaign file.

Every figure is a field of `Evaluation.totals`, `first_days` or `verdict`; here they are rounded and put into sentences.
Amounts are rounded to a tenth of the error of the change, so that what is written adds up as far as it is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlay.core.actions import shown
from outlay.core.campaign import Campaign
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.wording import NONE, change, exact, four, number, percent, plain, size, weeks
from outlay.estimators.certificate import BudgetBound
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.first_days import SAME
from outlay.evaluating.totals import DecisionTotals, SegmentTotals, TotalChange
from outlay.evaluating.verdict import ALIKE, VerdictKind
from outlay.pages.amounts import Names, Rounding, brief_change, capital, head
from outlay.pages.lines import Line, Lines
from outlay.pages.tables import Table, numbers, row, words

REFUSED = {
    ReasonKind.UNSUPPORTED: "The log shows too little of what the new choices would give.",
    ReasonKind.REPRODUCTION: "The model behind the figures does not give back what the log itself shows.",
    ReasonKind.STATE: "What users did on earlier days matters, and the columns of the log do not tell enough of it.",
    ReasonKind.BALANCE: "Who was given what followed something that the columns of the log do not tell.",
    ReasonKind.CONTRADICTED: "Two ways of measuring the new choices disagree.",
    ReasonKind.NOT_CHECKED: "Too few decisions of the log are like the new ones, so nothing could confirm the figures.",
    ReasonKind.DOUBTED: "A check of the figures was not passed.",
    ReasonKind.SHARED: "What one user gets out of it depends on how many others get it, and no log can show that.",
}
MISFIT = "How it was decided who was given what could not be learned, so nothing could confirm the figures."
GAIN = {VerdictKind.SERVE, VerdictKind.BEHIND_CAP, VerdictKind.OLD_RULED_OUT}  # the switch is what is advised
UNKNOWN = {VerdictKind.PROMISING, VerdictKind.UNASSIGNED}  # how the log's actions were drawn
MISSING = {
    ReasonKind.FEW_USERS: "There are too few users for a proof.",
    ReasonKind.DAYS: "Days differ by more than users tell.",
    ReasonKind.APPROXIMATE: "The new choices look at single past days, which the columns of the log do not have.",
}
NEAR = 0.05  # of today's money: a limit that spends so nearly as much is told as one that spends it
MOST_SEGMENTS = 6


@dataclass(frozen=True)
class Card:
    """A figure with what stands beside it."""

    what: str
    value: str
    note: str


@dataclass(frozen=True)
class PageOne:
    """The decision.

    Attributes:
        evaluation: of the policy of a run.
        campaign: its limits and labels.
    """

    evaluation: Evaluation
    campaign: Campaign

    @property
    def kind(self) -> VerdictKind:
        """How the evaluation ended."""
        return self.evaluation.verdict.kind

    @property
    def totals(self) -> DecisionTotals | None:
        """The totals, where figures of the policy may be shown."""
        return None if self.kind is VerdictKind.REFUSED else self.evaluation.totals

    @property
    def kicker(self) -> str:
        """`coupons · for the 20,000 users of this log · their first 7 days · at most 2.2 yuan per user and day`."""
        found, limits = self.evaluation.totals, [self._names.limit(b, daily=self._daily) for b in self.campaign.limits]
        whom = [] if found is None else self._names.whom(found.users, found.log_users, found.days)
        return " · ".join([self.campaign.meta.name, *whom, *limits])

    # The decision.

    @property
    def headline(self) -> str:
        """What to do, and what to expect of it where that is known."""
        return self._decision.strip()

    @property
    def _decision(self) -> str:
        new, what, broken = self._names.new, self._today, self.evaluation.verdict.broken
        match self.kind:
            case VerdictKind.SERVE:
                return f"Switch to {new}{self._broken}. {self._expect('Expect')}"
            case VerdictKind.BEHIND_CAP:
                return f"Switch to {new}, with a cap on the money{self._broken}. {self._expect('Expect')}"
            case VerdictKind.OLD_RULED_OUT if self._same:
                return f"Change {what}: it breaks your limit. {self._expect(f'The estimate for {new} is')}"
            case VerdictKind.OLD_RULED_OUT:
                return f"Switch to {new}{self._broken}. {self._expect('Expect')}"
            case VerdictKind.CONSTANT:
                return (
                    f"Give everyone the same, without looking at who it is: {self._fixed}. It may do as well as {new}."
                )
            case VerdictKind.TEST:
                return f"Test {new} on some users first. {self._expect('The estimate is')}"
            case VerdictKind.PROMISING:
                return f"Test {new} on some users first. {self._expect('The estimate is')}"
            case VerdictKind.UNASSIGNED if broken:
                return f"Test {new} on some users first{self._broken}, and no gain could be shown."
            case VerdictKind.UNASSIGNED:
                return f"Keep {what}, or test {new} on some users first: no gain could be shown."
            case VerdictKind.GAIN_UNKNOWN:
                return f"Test {new} on some users first: what they gain could not be measured."
            case VerdictKind.CHANCE:
                return f"Keep {what}: what {new} seem to gain may be chance. {self._expect('The estimate is')}"
            case VerdictKind.WORSE | VerdictKind.LOSES:
                old = self.evaluation.verdict.old
                saving = ", unless saving is the aim" if old is not None and old.saves else ""
                return f"Keep {what}{saving}. {self._expect(f'{capital(new)} would bring')}"
            case VerdictKind.OVER:
                return f"Do not switch: {new} would break your limit{', as today does' if broken else ''}."
            case VerdictKind.NOT_CERTIFIED:
                today = ", and what you do today breaks it" if broken else ""
                return f"Do not switch yet: it is not proved that {new} keep your limit{today}."
            case VerdictKind.REFUSED:
                return f"Do not switch: this log cannot tell what {new} would bring."

    @property
    def sure(self) -> list[str]:
        """How sure that is, in sentences."""
        found, verdict, certificate = self.totals, self.evaluation.verdict, self.evaluation.certificate
        said: list[str] = []
        if self.kind is VerdictKind.REFUSED and certificate.reason is not None:
            return [_refused(certificate.reason), f"Keep {self._today} until a test or another log says more."]
        if self.kind in UNKNOWN:
            said.append("It is not known how it was decided who was given what, so this log can prove nothing.")
        kept = " and of staying within the limit" if certificate.certified else ""
        if found is not None and found.reward.now is not None:
            said.append(self._bound(found, kept))
        elif kept:
            said.append(f"Sure ({self._confidence}) of staying within the limit.")
        if said and self.kind is VerdictKind.CONSTANT:
            said.append(f"That is sure of {self._names.new}: what the same for everyone brings and costs is estimated.")
        if self.kind in (VerdictKind.OVER, VerdictKind.NOT_CERTIFIED):
            said += [self._beyond(line) for line in certificate.budgets if not line.kept]
            said += [MISSING[reason.kind] for reason in [certificate.reason] if reason and reason.kind in MISSING]
        if certificate.held is not None:
            said.append("The limit is held by a cap while it runs; that it would hold without one is not proved.")
        said += [self._cost_of_today(each.budget, each.value) for each in verdict.broken]
        if self.kind is VerdictKind.OLD_RULED_OUT:
            same = f"Within the limit, the same for everyone may do as well: {self._fixed}."
            said.append(same if self._same else "Within the limit, nothing that was measured brings more.")
        if verdict.whole is not None:
            said.append(verdict.whole.words)
        return said

    @property
    def risk(self) -> str:
        """What totals do not tell: a peak on day one; empty where there is none."""
        first, found = self.evaluation.first_days, self.totals
        if first is None or found is None or found.first_day is None or self.evaluation.certificate.withheld:
            return ""
        told, beyond = [], []
        if first.above_old is not None and first.above_old > SAME and found.first_day.more is not None:
            beyond.append(f"{self._money(found.first_day, abs(found.first_day.more.value))} more than now")
        if first.above_average is not None and first.above_average > SAME:
            beyond.append(f"{100 * first.above_average:.0f}% above the daily average you set")
        if beyond:
            advised = self.kind in GAIN and not (self.kind is VerdictKind.OLD_RULED_OUT and self._same)
            peak = "Approve a peak first: day one costs" if advised else f"With {self._names.new}, day one would cost"
            told.append(f"{peak} {self._money(found.first_day, found.first_day.new.value)}, {' and '.join(beyond)}.")
        if first.beyond_average > 1 and first.beyond_average < first.days:
            told.append(f"From day {first.beyond_average + 1} on, a day costs less than that average.")
        return " ".join(told)

    # The figures.

    @property
    def cards(self) -> list[Card]:
        """People, money, day one, and other budgets; only what is known now where the policy has no figures."""
        found = self.evaluation.totals
        if found is None:
            return []
        span, money = self._names.span(found.days), self._names.budget(self._names.money)
        cards = [
            self._card(self._names.reward, span, found.reward, self._names.reward_unit),
            self._card(money, span, found.money, self._names.money_unit),
        ]
        if found.first_day is not None and found.days > 1:
            last = [day.money.value for day in found.by_day if day.policy == "new" and day.day == found.days]
            course = f"{'falls' if last and last[0] < found.first_day.new.value else 'goes'} to"
            end = f"{course} {Rounding.of_change(found.first_day).number(last[0])} by day {found.days}" if last else ""
            cards.append(self._card(money, "day one", found.first_day, self._names.money_unit, end))
        units = {budget.name: self.campaign.called("budgets", budget.name) for budget in self.campaign.limits}
        cards += [self._card(units[name].label, span, each, units[name].unit) for name, each in found.costs.items()]
        return cards

    @property
    def course(self) -> list[Lines]:
        """Money and reward of each day, now and new; empty where there are no days."""
        found = self.totals
        if found is None or len({day.day for day in found.by_day}) < 2:
            return []
        rule = None if found.limit_a_day is None else (found.limit_a_day, "your limit, on average")
        unit = f", {self._names.money_unit}" if self._names.money_unit else ""
        money = self._names.budget(self._names.money)
        made = []
        for name, title, level in (
            ("money", f"{money} by day{unit}", rule),
            ("reward", f"{self._names.reward} by day", None),
        ):
            lines = [
                Line(said, look, [getattr(day, name) for day in found.by_day if day.policy == look])
                for look, said in (("old", "now"), ("new", "new"))
            ]
            made.append(Lines(capital(title), [line for line in lines if line.days], level))
        return made

    @property
    def segments(self) -> Table | None:
        """Who gets more and who gets less, largest change of money first; None without segments."""
        found = self.totals
        known = [each for each in found.segments if each.money and each.money.more] if found else []
        if found is None or not known:
            return None
        known.sort(key=lambda each: -abs(each.money.more.value) if each.money and each.money.more else 0.0)
        given = any(each.given for each in known)
        things = head(f"{self._names.things} given, mean", self.campaign.called("action").unit)
        money = head(self._names.budget(self._names.money), self._names.money_unit)
        heads = ("users", *([things] if given else []), money, head(self._names.reward, self._names.reward_unit))
        rows = [
            row(
                self.campaign.called("segments", each.segment).label,
                number(each.users),
                *([self._given(each)] if given else []),
                self._more(each.money),
                self._more(each.reward),
            )
            for each in known[:MOST_SEGMENTS]
        ]
        return Table("", (*words("who"), *numbers(*heads)), tuple(rows))

    @property
    def budgets(self) -> Table | None:
        """What other limits bring, beside the campaign's, and that one spent in full; None without a curve."""
        found = self.totals
        if found is None or not found.budgets:
            return None
        limit = self.campaign.budgets[self.campaign.money].limit
        lines = [(each.limit, each.capped, each.money.value, each.reward.value, each.more) for each in found.budgets]
        own = None if found.reward.more is None else found.reward.more.value
        lines.append((limit, False, found.money.new.value, found.reward.new.value, own))
        lines.sort()
        money, now = head(self._names.budget(self._names.money), self._names.money_unit), found.money.now

        def mark(of: float, capped: bool, spent: float) -> str:
            same = now is not None and abs(spent - now.value) < NEAR * now.value
            yours = " (yours, behind a cap)" if capped else " (yours)"
            return yours if of == limit else " (about today's money)" if same else ""

        rows = [
            row(
                f"{plain(each)}{mark(each, capped, spent)}",
                Rounding.of_change(found.money).number(spent),
                Rounding.of_change(found.reward).number(reward),
                NONE if more is None else Rounding.of_change(found.reward).signed(more),
                look="chosen" if each == limit and not capped else "",
            )
            for each, capped, spent, reward, more in lines
        ]
        heads = (money, head(self._names.reward, self._names.reward_unit), "more than now")
        per = self._names.per(self._names.money, daily=self._daily)
        return Table("", (*words(f"limit {per}"), *numbers(*heads)), tuple(rows))

    @property
    def capped(self) -> str:
        """What it means that a limit is held by a cap; empty where no row of `budgets` says so."""
        if self.totals is None or not any(each.capped for each in self.totals.budgets):
            return ""
        return (
            "All other figures are for a policy that leaves part of the limit unspent, as proof that it costs no more "
            "than you allow. Behind a cap a server cannot overspend, so it serves a policy that leaves none as proof; "
            "what that spends is an estimate too."
        )

    # What could make it wrong.

    @property
    def doubts(self) -> list[str]:
        """What was checked, and what no log can show, in sentences."""
        checks = self.evaluation.diagnostics
        others = {"did not": checks.answered(False), "could not be made": checks.answered(None)}
        which = " and which ".join(what for what, names in others.items() if names)
        missing = checks.missing_days
        return [
            f"{len(checks.answered(True))} of {len(checks.checks)} checks passed"
            f"{f'; the evidence says which {which}' if which else ''}.",
            *([f"{capital(missing.words)}."] if missing is not None and missing.many else []),
            "No log can show whether people change their habits, whether users influence one another, or whether "
            "something outside the log drove who was given what.",
        ]

    @property
    def test(self) -> str:
        """The test that settles it, in a few words; empty where none is planned."""
        plan, settling = self.evaluation.test, self.evaluation.settling
        if plan is not None:
            part = "half of the gain" if plan.part < 1 else "the gain"
            return f"{number(plan.users_per_arm)} users per group for {weeks(plan.days)} show {part}"
        if settling is not None:
            users, span = number(settling.users_per_arm), weeks(settling.days)
            return f"{users} users per group for {span} show what each value does"
        return ""

    # Words and numbers.

    @property
    def _names(self) -> Names:
        return Names(self.campaign)

    @property
    def _today(self) -> str:
        return "what you do today"

    @property
    def _confidence(self) -> str:
        return exact(self.evaluation.totals.sure if self.evaluation.totals else self.evaluation.verdict.confidence, 3)

    @property
    def _fixed(self) -> str:
        unit, said = self.campaign.called("action").unit, []
        for action, share in self.evaluation.verdict.fixed:
            name = self.campaign.called("actions", shown(action)).label
            what = name if isinstance(action, str) or name != shown(action) else f"{name} {unit}".strip()
            said.append(f"{what} for {percent(share, 0)} of users")
        return ", ".join(said) or "a constant"

    @property
    def _broken(self) -> str:
        return f": today's {self._names.things} break your limit" if self.evaluation.verdict.broken else ""

    @property
    def _same(self) -> bool:
        """Whether constant actions may do as well as the policy, within the limit."""
        verdict = self.evaluation.verdict
        return bool(verdict.fixed) and not (verdict.constants is not None and verdict.constants.sure)

    @property
    def _daily(self) -> bool:
        found = self.evaluation.totals
        return found is not None and found.limit_a_day is not None

    def _money(self, of: TotalChange, value: float) -> str:
        """An amount of money, rounded as the change is known."""
        return Rounding.of_change(of).amount(value, self._names.money_unit)

    def _gained(self, of: TotalChange, value: float) -> str:
        """The same of the reward."""
        return Rounding.of_change(of).amount(value, self._names.reward_unit)

    def _cost_of_today(self, name: str, value: float) -> str:
        budget = next(each for each in self.campaign.limits if each.name == name)
        unit, side = self._names.unit(budget), "at most" if budget.sign > 0 else "at least"
        what = f"{unit} of {self._names.budget(budget)}" if unit else self._names.budget(budget)
        today = f"Today it is {number(value)} {what} {self._names.per(budget, daily=self._daily)}"
        return f"{today}; your limit is {side} {plain(budget.limit)}."

    def _expect(self, begin: str) -> str:
        """`Expect about 27,500 more active days a week (+2.7%) for 550,000 yuan less (−15%).`"""
        found = self.totals
        if found is None or found.reward.more is None:
            return ""
        more, span = found.reward.more.value, self._names.span(found.days)
        span = f" {span}" if span else ""
        amount, share = self._gained(found.reward, abs(more)), found.reward.share
        by = "" if share is None else f" ({change(share)})"
        side = "more" if more > 0 else self._names.less
        said = f"about {amount} {side} {self._names.reward}{span}{by}"
        if not self._names.counts:
            said = f"{self._names.reward} to {'rise' if more > 0 else 'fall'} by about {amount}{span}{by}"
            begin = "Expect" if begin == "Expect" else f"{begin.removesuffix(' is').removesuffix(' would bring')}:"
        return f"{begin} {said}{self._for_money(found)}."

    def _for_money(self, found: DecisionTotals) -> str:
        share, more = found.money.share, found.money.more
        if share is None or more is None:
            return ""
        if abs(share) < ALIKE:
            return " for the same money"
        what = "" if self._names.money_unit else f" {self._names.budget(self._names.money)}"
        side = "less" if share < 0 else "more"
        return f" for {self._money(found.money, abs(more.value))} {side}{what} ({brief_change(share)})"

    def _bound(self, found: DecisionTotals, kept: str) -> str:
        """How sure the total itself is."""
        least, most = found.at_least, found.at_most

        def told(bound: float) -> str:
            now = found.reward.now.value if found.reward.now else 0.0
            by = f" ({change(bound / abs(now))})" if now else ""
            return f"{self._gained(found.reward, abs(bound))} {'more' if bound > 0 else 'less'}{by}"

        sure = f"Sure ({self._confidence})"
        if self.kind in UNKNOWN:
            sure = f"If nothing but what the log tells drove it, sure ({self._confidence})"
        each = sure.replace(")", " each)") if kept else sure
        if least is not None and least > 0:
            return f"{each} of at least {told(least)}{kept}."
        if most is not None and most < 0:
            return f"{each} of at least {told(most)}{kept}."
        doubt = "Not sure of a gain: how much it may lose is not known"
        if least is not None:
            doubt = f"Not sure of a gain: it may also bring up to {told(least)}" if least else "Not sure of a gain"
        old = self.evaluation.verdict.old
        if old is not None and old.sure and old.at_least is not None and self.kind in GAIN:
            doubt += f" in these days. Sure is a gain of {size(old.at_least)} over all days to come, near ones first"
        kept = f" Sure ({self._confidence}) of staying within the limit." if kept else ""
        return f"{doubt}.{kept}"

    def _beyond(self, line: BudgetBound) -> str:
        """A limit that is not proved to be kept: `Coupon money may come to 2.01 yuan, and your limit is at most 2.`"""
        budget = next(each for each in self.campaign.limits if each.name == line.budget)
        what, unit = self._names.budget(budget), self._names.unit(budget)
        what, limit = capital(what), f"{'at least' if line.floor else 'at most'} {plain(line.limit)}"
        if line.value is None:
            return f"{what} could not be measured."
        value = f"{what} is estimated at {four(line.value)} {unit}".strip()
        reach = (
            f", and may come to {four(line.bound)}" if line.bound is not None else ", from too few events to prove it"
        )
        return f"{value} {self._names.per(budget, daily=self._daily)}{reach}; your limit is {limit}."

    def _card(self, label: str, span: str, of: TotalChange, unit: str, end: str = "") -> Card:
        rounding = Rounding.of_change(of)
        now = "" if of.now is None else f"now {rounding.number(of.now.value)}"
        what = f"{capital(label)}, {span}".removesuffix(", ")
        if self.kind is VerdictKind.REFUSED:
            return Card(what, rounding.amount(of.now.value, unit) if of.now else NONE, "now")
        reach = ""
        if of.more is not None and of.more.low is not None and of.more.high is not None:
            low, high = (rounding.signed(x) for x in (of.more.low, of.more.high))
            reach = f"{low} to {high}"
        star = "" if of.relied_on else "not to be relied on"
        note = " · ".join(part for part in (now, reach, end, star) if part)
        return Card(what, rounding.amount(of.new.value, unit), note)

    def _more(self, of: TotalChange | None) -> str:
        if of is None or of.more is None:
            return NONE
        share = "" if of.share is None else f" ({brief_change(of.share)})"
        return f"{Rounding.of_change(of).signed(of.more.value)}{share}"

    def _given(self, each: SegmentTotals) -> str:
        return NONE if each.given is None else " → ".join(number(x, 2) for x in each.given)


def _refused(reason: Reason) -> str:
    """Why this log cannot tell, in a sentence."""
    found = reason.figures.get("found")
    if reason.kind is ReasonKind.NOT_CHECKED and isinstance(found, Reason) and found.kind is ReasonKind.MISFIT:
        return MISFIT
    return REFUSED[reason.kind]
