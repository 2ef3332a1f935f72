"""The ledger against a dictionary: whatever is asked, in whatever order, both say the same."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from small_ledgers import CLOCK, DAY, HOUR, outcome, proposal

from outlay.serve.ledger.caps import Caps, Tally
from outlay.serve.ledger.ledger import Note
from outlay.serve.ledger.records import Proposal
from outlay.serve.ledger.sqlite import SqliteLedger

CAP = st.none() | st.none() | st.integers(5, 40)
AMOUNT = st.integers(0, 12)
OFFERED = st.none() | AMOUNT  # None: no incentive; 0: one that is free
CAPS = st.builds(
    Caps,
    total=CAP,
    day=CAP,
    arms=st.dictionaries(st.just("random"), st.integers(5, 30)),
    user_amount=CAP,
    user_offers=CAP,
    user_day_amount=CAP,
    user_day_offers=st.none() | st.integers(1, 3),
)
NO_LIMITS = st.builds(Caps, total=CAP, day=CAP)  # of users: their counters go, and later come again


def reopened(folder: Path) -> SqliteLedger:
    ledger = SqliteLedger(folder / "ledger.db")
    ledger._writer.execute("pragma synchronous = off")  # thousands of commits, and no crash
    return ledger


@dataclass
class Decision:
    """What the dictionary knows of a request."""

    id: str
    arm: str
    user: str
    day: int
    amount: int
    offer: bool
    reason: str
    expires: int
    held: int
    paid: int = 0
    excess: int = 0
    redeemed: bool = False
    released: bool = False

    def expired(self, now: int) -> bool:
        """Whether a retry gets nothing any more."""
        return self.offer and not self.redeemed and (self.released or self.expires <= now)


class LedgerModel(RuleBasedStateMachine):
    """Longhand: every sum is computed anew from all decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.ledger = reopened(self.folder)
        self.decisions: dict[str, Decision] = {}
        self.events: dict[tuple[str, str, str], tuple[int | None, str]] = {}
        self.now = CLOCK
        self.changes = 0
        self.notes: dict[str, Note] = {}

    def teardown(self) -> None:
        """The rows still add up, and nothing was forgotten."""
        assert self.ledger.check() == []
        for kind in ("caps", "pause") if self.changes else ():
            assert len(self.ledger.notes("coupons", kind)) == self.changes
        self.ledger.close()
        shutil.rmtree(self.folder)

    @initialize(caps=CAPS | NO_LIMITS)
    def begin(self, caps: Caps) -> None:
        """The campaign."""
        self.administer(caps, False)

    @rule(caps=CAPS | NO_LIMITS, paused=st.sampled_from([False, False, False, True]))
    def administer(self, caps: Caps, paused: bool) -> None:
        """New caps, also below what is committed; a pause; and a new process that reads what the old one left."""
        self.caps, self.paused = caps, paused
        self.ledger.set_caps("coupons", caps)
        self.changes += 1
        (self.ledger.pause if paused else self.ledger.resume)("coupons")
        self.ledger.close()
        self.ledger = reopened(self.folder)

    @rule(
        asked=st.lists(
            st.tuples(
                st.sampled_from("abcdefghijkl"),
                OFFERED,
                st.sampled_from(["main", "random"]),
                st.sampled_from(["ann", "bob"]),
                st.integers(DAY, DAY + 1),
                st.integers(1, 3),
                st.sampled_from([None, None, None, "value_limit"]),
            ),
            min_size=1,
            max_size=5,
        )
    )
    def record(self, asked: list[tuple[str, int | None, str, str, int, int, str | None]]) -> None:
        """A group, with retries in it."""
        group = [
            proposal(
                *(name, amount or 0),
                action=float(amount is not None),
                arm=arm,
                user=user,
                day=day,
                ts=self.now,
                expires=self.now + hours * HOUR,
                refused=own,
            )
            for name, amount, arm, user, day, hours, own in asked
        ]
        for made, answer in zip(group, self.ledger.record(group), strict=True):
            known = self.decisions.get(made.request_id)
            if known is None:
                reason = self._decide(made)
                offer = made.offer and reason == "policy"
                amount = made.amount if offer else 0
                known = Decision(
                    made.decision_id, made.arm, made.user, made.day, amount, offer, reason, made.expires, held=amount
                )
                self.decisions[made.request_id] = known
                assert answer.status == "new"
            else:
                assert answer.status == "replay"
            told = (known.offer, known.amount, known.reason)
            if known.expired(self.now):
                told = (False, 0, "expired")
            assert answer.decision_id == known.id
            assert (answer.action != made.none_action, answer.amount, answer.reason) == told

    def _decide(self, made: Proposal) -> str:
        if self.paused:
            return "paused"
        reason = self._refused(made.amount, made.arm, made.user, made.day, offers=1) if made.offer else None
        if made.refused and reason != "user_limit":
            reason = made.refused
        return reason or "policy"

    def _refused(self, amount: int, arm: str, user: str, day: int, offers: int) -> str | None:
        def over(cap: int | None, **same: object) -> bool:
            inside = [d for d in self.decisions.values() if all(getattr(d, k) == v for k, v in same.items())]
            return cap is not None and sum(d.held + d.paid for d in inside) + amount > cap

        def often(cap: int | None, **same: object) -> bool:
            inside = [d for d in self.decisions.values() if all(getattr(d, k) == v for k, v in same.items())]
            return cap is not None and offers > 0 and sum(d.offer for d in inside) + offers > cap

        if over(self.caps.user_day_amount, user=user, day=day) or over(self.caps.user_amount, user=user):
            return "user_limit"
        if often(self.caps.user_day_offers, user=user, day=day) or often(self.caps.user_offers, user=user):
            return "user_limit"
        if over(self.caps.day, day=day):
            return "day_cap"
        if over(self.caps.arms.get(arm), arm=arm):
            return "arm_cap"
        return "total_cap" if over(self.caps.total) else None

    @precondition(lambda self: self.decisions)
    @rule(
        happened=st.lists(
            st.tuples(
                st.integers(0, 11),
                st.sampled_from(["redeemed", "redeemed", "refund", "active"]),
                st.sampled_from(["e1", "e2", "e3"]),
                st.none() | AMOUNT,
            ),
            min_size=1,
            max_size=8,
        )
    )
    def happen(self, happened: list[tuple[int, str, str, int | None]]) -> None:
        """A group of outcomes, with repeated ones in it."""
        known = list(self.decisions.values())
        group = [
            (known[which % len(known)], outcome(known[which % len(known)].id, kind, name, amount=amount))
            for which, kind, name, amount in happened
        ]
        answers = self.ledger.outcomes([event for _, event in group])
        for (decision, event), answer in zip(group, answers, strict=True):
            key = event.decision_id, event.kind, event.event_id
            if key in self.events:
                before, status = self.events[key]
                assert answer.status == (status if before == event.amount else "conflict")
            else:
                self.events[key] = event.amount, self._settle(decision, event.kind, event.amount)
                assert (answer.status, answer.replayed) == (self.events[key][1], False)

    def _settle(self, decision: Decision, kind: str, amount: int | None) -> str:
        if kind == "redeemed":
            wanted = decision.amount if amount is None else amount
            if decision.redeemed:
                return "refused"
            if wanted == 0 and not decision.offer:
                return "kept"
            late = decision.released
            excess = max(wanted - decision.amount, 0)
            if late and self._refused(wanted, decision.arm, decision.user, decision.day, offers=0):
                excess = wanted
            decision.held, decision.paid, decision.excess, decision.redeemed = 0, wanted, excess, True
            return "overrun" if excess else "late" if late else "settled"
        if kind == "refund":
            wanted = decision.paid if amount is None else amount
            if not decision.redeemed or wanted > decision.paid:
                return "refused"
            decision.paid -= wanted
            decision.excess = max(decision.excess - wanted, 0)
            return "refunded"
        return "kept"

    @rule(key=st.sampled_from("abc"), content=st.sampled_from(["1", "2"]))
    def note(self, key: str, content: str) -> None:
        """The first word stands."""
        said = Note(kind="pace", key=key, ts=self.now, content=content)
        assert self.ledger.note("coupons", said) == self.notes.setdefault(key, said)

    @rule(hours=st.integers(0, 2))
    def release(self, hours: int) -> None:
        """Time passes."""
        self.now += hours * HOUR
        due = [d for d in self.decisions.values() if d.expired(self.now) and not d.released]
        for decision in due:
            decision.held, decision.released = 0, True
        assert self.ledger.release("coupons", self.now) == len(due)

    @invariant()
    def agree(self) -> None:
        """The counters are the sums."""
        if not hasattr(self, "caps"):
            return
        totals = self.ledger.totals("coupons")
        made = list(self.decisions.values())
        assert seen(totals.total) == sums(made)
        assert {day: seen(tally) for day, tally in totals.days.items()} == {
            day: sums([d for d in made if d.day == day]) for day in {d.day for d in made}
        }
        assert {arm: seen(tally) for arm, tally in totals.arms.items()} == {
            arm: sums([d for d in made if d.arm == arm]) for arm in {d.arm for d in made} | set(self.caps.arms)
        }
        assert {key: seen(tally) for key, tally in totals.arm_days.items()} == {
            key: sums([d for d in made if (d.arm, d.day) == key]) for key in {(d.arm, d.day) for d in made}
        }


def seen(tally: Tally) -> tuple[int, ...]:
    return tally.reserved, tally.settled, tally.excess, tally.granted, tally.offers, tally.decisions


def sums(made: list[Decision]) -> tuple[int, ...]:
    money = (sum(each) for each in zip(*((d.held, d.paid, d.excess, d.amount) for d in made), strict=True))
    return *(money if made else (0, 0, 0, 0)), sum(d.offer for d in made), len(made)


LedgerModel.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestLedgerModel = LedgerModel.TestCase
