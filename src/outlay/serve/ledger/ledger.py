"""The ledger: every decision and the money behind it, in one transaction.

    proposal ──record──▶ decision (amount reserved) ──redeemed──▶ settled ──refund──▶ given back
                              └──────────expiry────▶ released ──redeemed──▶ settled late

Promises, whatever the concurrency, the retries and the crashes:

* Nothing is granted beyond a cap: reserved + settled ≤ cap after every grant, for the campaign, the day, the arm, the
  user and the user's day. Settled money counts for ever, reserved money until its release.
* What was paid is settled, also where it is more than was reserved: only such excess takes a scope over its cap.
* The decision row *is* the reservation. What `record` returned is on disk.
* One request id of a campaign spends once and always gets the stored answer; with another body it is a conflict.
* One event (decision, kind, event id) moves money once and always gets the stored answer.
* Counters equal the sums of the rows at every moment that a reader can see; `check` computes both. Users are counted
  only while the caps limit users.
* What was decided about the campaign stands beside its decisions, and the first word stands.

Money is whole minor units (`ledger/money.py`). Times are epoch milliseconds of the ledger's clock
(`ledger/clock.py`); a request's own time decides nothing here. A cap that is lowered below what is committed takes
nothing back and gives nothing more.

Six tables: `campaign` (caps, pause, settings and bundle of its servers), `note` (append-only: what was decided about
it), `decision` (append-only but for `state`, `held`, `paid` and `excess`: its money now), `entry` (append-only: every
later movement of money), `outcome` (every event, with the answer it got), `counter` (a row per scope, with the caps as
CHECK constraints).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from outlay.core.errors import OutlayError
from outlay.serve.ledger.caps import CampaignConfig, Caps, Totals
from outlay.serve.ledger.clock import LedgerClock
from outlay.serve.ledger.money import LARGEST
from outlay.serve.ledger.records import DecisionFields, Outcome, OutcomeResult, Proposal, Recorded, check_ids


class LedgerError(OutlayError):
    """The ledger cannot be reached, cannot write, or is not ours. Of what it was asked to write it has nothing."""


class UndecidedError(LedgerError):
    """A transaction was sent and its end is not known: what it had to write may be in the ledger, now or in a moment.

    Ask again with the same ids: the answer is then what stands there.
    """


class ClockJumpedError(LedgerError):
    """The ledger's clock is not where the process believed it to be: the times that it gave are wrong ones."""


class Note(Struct, frozen=True, kw_only=True):
    """Something that was decided about a campaign.

    Attributes:
        kind: what it is about. The ledger's own are "caps" and "pause", the trail of what was changed.
        key: its name, unique in its campaign and kind.
        ts: when, epoch ms.
        content: JSON.

    Raises:
        ValueError: if a ledger cannot hold it.
    """

    kind: str
    key: str
    ts: int
    content: str

    def __post_init__(self) -> None:
        check_ids(kind=self.kind, key=self.key)
        if abs(self.ts) > LARGEST or "\0" in self.content:
            raise ValueError(f"ts is {self.ts}, or the content has a NUL")


class DecisionRow(DecisionFields, frozen=True, kw_only=True):
    """A decision as it stands, with its outcomes in the order in which they came.

    Attributes:
        room: the most that the limits would have allowed when it was made, minor units; 0 where they allowed no offer;
            None where nothing limits it, or in a pause.
        state: "free" (amount 0), "reserved", "settled" or "released".
        held: minor units reserved now.
        paid: minor units settled now.
        excess: the part of `paid` that no reservation covered.
        outcomes: each with the answer that it got.
    """

    room: int | None
    state: str
    held: int
    paid: int
    excess: int
    outcomes: tuple[tuple[Outcome, OutcomeResult], ...]


class Ledger(Protocol):
    """What both ledgers do. Every method may be called from any thread; each raises `LedgerError` when it cannot.

    Attributes:
        clock: the ledger's, which gives all times: days, expiry, when an outcome was received.
    """

    clock: LedgerClock

    def record(self, proposals: Sequence[Proposal]) -> list[Recorded]:
        """Decide and write a group in one transaction; the answers come in the order of the proposals.

        Raises:
            ClockJumpedError: if the ledger's clock is not where the proposals' times come from. It is right afterwards.
        """
        ...

    def outcomes(self, events: Sequence[Outcome]) -> list[OutcomeResult]:
        """Keep a group of outcomes and move their money in one transaction; the answers come in their order."""
        ...

    def release(self, campaign: str, now: int) -> int:
        """Release what a campaign has reserved until `now` (epoch ms) or earlier; how many reservations that were.

        Raises:
            ClockJumpedError: as `record`.
        """
        ...

    def set_caps(self, campaign: str, caps: Caps) -> None:
        """Replace a campaign's caps, from the next decision on. The first call makes the campaign.

        The first limit for users counts the users of all decisions so far, and the ledger waits for it.
        """
        ...

    def change_caps(self, campaign: str, change: Callable[[Caps | None], Caps]) -> Caps:
        """Replace the caps by what `change` makes of them, in one transaction; the new ones.

        Args:
            campaign: its name.
            change: gets None where the campaign is new. What it raises leaves the caps as they are.
        """
        ...

    def config(self, campaign: str) -> CampaignConfig | None:
        """By what the campaign's servers go; None where there is no such campaign."""
        ...

    def change_config(self, campaign: str, change: Callable[[CampaignConfig | None], CampaignConfig]) -> CampaignConfig:
        """Replace the terms by what `change` makes of them, in one transaction; the new ones. As `change_caps`."""
        ...

    def forget_clock(self) -> None:
        """Set the ledger's clock by this machine's; without effect where the database has one of its own."""
        ...

    def pause(self, campaign: str) -> None:
        """Answer "no incentive" from the next decision on, on every server, until `resume`."""
        ...

    def resume(self, campaign: str) -> None:
        """End a pause."""
        ...

    def note(self, campaign: str, note: Note) -> Note:
        """What stands under the note's kind and key: this note, on disk on return, or the one that came first."""
        ...

    def notes(self, campaign: str, kind: str) -> list[Note]:
        """All notes of a kind, by ts and key."""
        ...

    def campaigns(self) -> list[str]:
        """The names of all campaigns, sorted."""
        ...

    def totals(self, campaign: str) -> Totals:
        """The campaign's money by scope."""
        ...

    def rows(self, campaign: str, after: int, until: int) -> Iterator[DecisionRow]:
        """Decisions with after ≤ ts < until (epoch ms), in the order of their ids."""
        ...

    def touch(self) -> None:
        """Commit a write that changes nothing. Raises LedgerError where the ledger can be read and not written."""
        ...

    def check(self) -> list[str]:
        """Compare counters, reservations and caps with the sums of the rows; what does not agree, in words."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...
