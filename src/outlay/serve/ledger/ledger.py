"""The ledger: every decision and the money behind it, in one transaction.

    proposal ──record──▶ decision (amount reserved) ──redeemed──▶ settled ──refund──▶ refunded
                              └──────────expiry────▶ released ──redeemed──▶ settled late

These hold under any concurrency, retries and crashes:

* Nothing is granted beyond a cap: reserved + settled ≤ cap after every grant, for the campaign, the day, the arm, the
  user and the user's day. Settled money always counts; reserved money counts until it is released.
* Payments are settled even if they exceed the reservation. Only this excess can take a scope over its cap.
* The decision row *is* the reservation. Once `record` returns, it is on disk.
* A request id spends once per campaign and always gets the stored answer, until what it offered expires: from then on
  "no incentive". With a different body it is a conflict.
* An event (decision, kind, event id) moves money once and always gets the stored answer.
* Counters equal the sums of the rows whenever a reader can see them; `check` computes both. Users are counted only
  while the caps limit users.
* Notes about a campaign are stored with its decisions. The first note under a key is kept; later ones are ignored.

Money is in whole minor units (`ledger/money.py`). Times are epoch milliseconds of the ledger's clock
(`ledger/clock.py`); the time in a request has no effect here. Lowering a cap below what is committed takes nothing
back and grants nothing more.

Six tables: `campaign` (caps, pause, settings and bundle of its servers), `note` (append-only: facts about the
campaign), `decision` (append-only except for `state`, `held`, `paid` and `excess`: its money now), `entry`
(append-only: every later movement of money), `outcome` (every event, with the answer it got), `counter` (a row per
scope, with the caps as CHECK constraints).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from outlay.core.errors import OutlayError
from outlay.serve.ledger.caps import CampaignConfig, Caps, Totals
from outlay.serve.ledger.clock import LedgerClock
from outlay.serve.ledger.money import LARGEST
from outlay.serve.ledger.records import DecisionFields, Outcome, OutcomeResult, Proposal, Recorded, State, check_ids


class LedgerError(OutlayError):
    """The ledger cannot be reached or written, or is not an outlay ledger. Nothing was written."""


class NoLedgerError(LedgerError):
    """There is no ledger, and none was to be created."""


class UndecidedError(LedgerError):
    """A transaction was sent but not confirmed: its rows may be in the ledger, now or soon.

    A retry with the same ids returns what the ledger has recorded.
    """


class ClockJumpedError(LedgerError):
    """The ledger's clock differs from the process's reading of it, so the times that the process used are wrong."""


class Note(Struct, frozen=True, kw_only=True):
    """A fact about a campaign, such as a change of its caps.

    Attributes:
        kind: its subject. The ledger itself writes "caps", "pause" and "config", a trail of changes, and with the key
            of each of them "actor", which says whose it was (`ledger/actor.py`).
        key: its name, unique per campaign and kind.
        ts: epoch ms.
        content: JSON.

    Raises:
        ValueError: if a ledger cannot store it.
    """

    kind: str
    key: str
    ts: int
    content: str

    def __post_init__(self) -> None:
        check_ids(kind=self.kind, key=self.key)
        if abs(self.ts) > LARGEST or "\0" in self.content:
            raise ValueError(f"ts is {self.ts}, which is out of range, or the content contains a NUL")


class DecisionRow(DecisionFields, frozen=True, kw_only=True):
    """A decision in its current state, with its outcomes in order of arrival.

    Attributes:
        offer: it gave an incentive, whatever that reserved.
        room: the most that the limits allowed when it was made, minor units; negative if they allowed no offer, not
            even one that reserves nothing; None if nothing limits it, or during a pause.
        state: "free" (no offer), "reserved", "settled" or "released".
        held: minor units reserved now.
        paid: minor units settled now.
        excess: the part of `paid` that no reservation covered.
        outcomes: each with the answer it got.
    """

    offer: bool
    room: int | None
    state: State
    held: int
    paid: int
    excess: int
    outcomes: tuple[tuple[Outcome, OutcomeResult], ...]


class Ledger(Protocol):
    """The interface of every ledger. Methods may be called from any thread and raise `LedgerError` on failure.

    Attributes:
        clock: the source of all times: days, expiry, when an outcome was received.
        warnings: what an operator should know of it.
    """

    clock: LedgerClock
    warnings: Sequence[str]

    def record(self, proposals: Sequence[Proposal]) -> list[Recorded]:
        """Decide and write a group in one transaction; return the answers in the order of the proposals.

        Raises:
            ClockJumpedError: if the ledger's clock has jumped since the proposals were made. Afterwards it has been
                read again.
        """
        ...

    def outcomes(self, events: Sequence[Outcome]) -> list[OutcomeResult]:
        """Store a group of outcomes and move their money in one transaction; return the answers in the same order."""
        ...

    def release(self, campaign: str, now: int) -> int:
        """Release a campaign's reservations that expire at `now` (epoch ms) or earlier; return how many there were.

        Raises:
            ClockJumpedError: as in `record`.
        """
        ...

    def set_caps(self, campaign: str, caps: Caps) -> None:
        """Replace a campaign's caps, from the next decision on. The first call creates the campaign.

        The first limit on users counts the users of all decisions so far, and the ledger is locked meanwhile.
        """
        ...

    def change_caps(self, campaign: str, change: Callable[[Caps | None], Caps]) -> Caps:
        """Replace the caps with what `change` returns for them, in one transaction; return the new caps.

        Args:
            campaign: its name.
            change: gets None if the campaign is new. If it raises, the caps stay as they are.
        """
        ...

    def config(self, campaign: str) -> CampaignConfig | None:
        """Return what the campaign's servers share; None if there is no such campaign."""
        ...

    def change_config(self, campaign: str, change: Callable[[CampaignConfig | None], CampaignConfig]) -> CampaignConfig:
        """Replace what the campaign's servers share with what `change` returns, as `change_caps` does."""
        ...

    def together(self, campaign: str) -> AbstractContextManager[None]:
        """Lock a campaign, and make this thread's calls within the block one transaction.

        All that they write is on disk if the block ends normally, and none of it if it raises. They may be about this
        campaign only; one that is new has to get its caps among them.
        """
        ...

    def forget_clock(self) -> None:
        """Set the ledger's clock to this machine's; no effect if the database has a clock of its own."""
        ...

    def pause(self, campaign: str) -> None:
        """Answer "no incentive" from the next decision on, on every server, until `resume` is called."""
        ...

    def resume(self, campaign: str) -> None:
        """End a pause."""
        ...

    def note(self, campaign: str, note: Note) -> Note:
        """Store the note if its kind and key are free; return the note that is stored there, on disk."""
        ...

    def notes(self, campaign: str, kind: str) -> list[Note]:
        """Return all notes of a kind, ordered by ts and key."""
        ...

    def campaigns(self) -> list[str]:
        """Return the names of all campaigns, sorted."""
        ...

    def totals(self, campaign: str) -> Totals:
        """Return the campaign's money by scope."""
        ...

    def rows(self, campaign: str, after: int, until: int) -> Iterator[DecisionRow]:
        """Yield decisions with after ≤ ts < until (epoch ms), ordered by id."""
        ...

    def past(self, campaign: str, users: Collection[str], first: int, until: int) -> tuple[list[DecisionRow], set[str]]:
        """Return what happened to users before a decision. Fast: it is called for every group of decisions.

        Args:
            campaign: its name.
            users: their ids.
            first: the first day number.
            until: the day number after the last.

        Returns:
            Their decisions on these days, ordered by id; and the users who have earlier ones.
        """
        ...

    def touch(self, campaign: str) -> None:
        """Commit a write that changes nothing, under the lock that decisions need.

        Raises LedgerError if the campaign's decisions cannot be written now.
        """
        ...

    def check(self) -> list[str]:
        """Compare counters, reservations and caps with the sums of the rows; return one line per discrepancy."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
