"""A rehearsal: the server's clock runs ahead, so that a week is over in minutes.

    rehearsal.time(t) = begins + (t − real) · 86,400 / seconds         a day lasts so many seconds of the ledger's clock

It begins at the next midnight of the server's zone. The first one that is noted stands for the ledger and goes on for
good, over restarts and in all servers; a ledger that has seen the real clock never rehearses, and the other way round.
"""

from __future__ import annotations

import datetime
import zoneinfo

import msgspec
from msgspec import Struct

from outlay.core.errors import OutlayError
from outlay.serve.clock import ONE_DAY, Clock, midnight
from outlay.serve.ledger.ledger import Ledger, LedgerError, Note

REHEARSAL = "rehearsal"  # kind and key of the note
DAY = 86_400.0  # seconds
SHORTEST = 1.0  # seconds of a day: a second is how often a server looks after itself


class Rehearsal(Struct, frozen=True, kw_only=True):
    """How fast time goes.

    Attributes:
        seconds: of real time in a day.
        real: epoch seconds of the ledger's clock when it began.
        begins: epoch seconds of the rehearsal then: a midnight.
    """

    seconds: float
    real: float
    begins: float

    def time(self, real: float) -> float:
        """Epoch seconds of the rehearsal at this time of the ledger's clock."""
        return self.begins + (real - self.real) * DAY / self.seconds


def new_rehearsal(seconds: float, timezone: str, real: float) -> Rehearsal:
    """From this time of the ledger's clock on, at the next midnight.

    Raises:
        OutlayError: if a day is too short, or longer than a day.
    """
    if not SHORTEST <= seconds <= DAY:
        raise OutlayError(f"is {seconds:g}.", where="--rehearse",
                          way_out=f"Give the seconds that a day is to last, {SHORTEST:g} to {DAY:g}.")  # fmt: skip
    zone = zoneinfo.ZoneInfo(timezone)
    tomorrow = datetime.datetime.fromtimestamp(real, zone).date() + ONE_DAY
    return Rehearsal(seconds=seconds, real=real, begins=midnight(tomorrow, zone))


def rehearsal_of(ledger: Ledger, campaign: str) -> Rehearsal | None:
    """The one that the ledger holds. Raises LedgerError if it cannot be reached."""
    if campaign not in ledger.campaigns():
        return None
    notes = ledger.notes(campaign, REHEARSAL)
    return msgspec.json.decode(notes[0].content, type=Rehearsal) if notes else None


def clock_of(ledger: Ledger, campaign: str, timezone: str) -> Clock:
    """The clock of the ledger's servers. Raises LedgerError if the ledger cannot be reached."""
    return clock_with(ledger, rehearsal_of(ledger, campaign), timezone)


def clock_with(ledger: Ledger, rehearsal: Rehearsal | None, timezone: str) -> Clock:
    """The ledger's clock, or what a rehearsal makes of it."""
    read = ledger.clock.seconds
    return Clock(timezone, read if rehearsal is None else lambda: rehearsal.time(read()))


def check_rehearsal(ledger: Ledger, campaign: str, wanted: Rehearsal | None) -> Rehearsal | None:
    """What is to be rehearsed: what stands, or what is wanted where nothing does; None: the real clock serves.

    Raises:
        OutlayError: if the ledger has seen the other clock, or rehearses at another speed.
        LedgerError: if it cannot be reached.
    """
    stands = rehearsal_of(ledger, campaign)
    if stands is not None and wanted is None:
        raise OutlayError(
            f"the ledger is of a rehearsal, in which a day lasts {stands.seconds:g} seconds.", where="--ledger",
            way_out=f"Go on with --rehearse {stands.seconds:g}, or take another ledger.",
        )  # fmt: skip
    if stands is not None and wanted is not None and stands.seconds != wanted.seconds:
        raise OutlayError(
            f"is {wanted.seconds:g}, and a day of the ledger's rehearsal lasts {stands.seconds:g} seconds.",
            where="--rehearse", way_out=f"Go on with --rehearse {stands.seconds:g}, or take another ledger.",
        )  # fmt: skip
    if stands is None and wanted is not None and _has_decisions(ledger, campaign):
        raise OutlayError(
            "the ledger has decisions that were made by the real clock.", where="--rehearse",
            way_out="Rehearse on a ledger of its own: --ledger sqlite:///rehearsal.db.",
        )  # fmt: skip
    return stands or wanted


def note_rehearsal(ledger: Ledger, campaign: str, rehearsal: Rehearsal) -> list[str]:
    """Note it, and say it to the operator. Raises LedgerError if the ledger cannot be written, or noted another."""
    content = msgspec.json.encode(rehearsal).decode()
    note = Note(kind=REHEARSAL, key=REHEARSAL, ts=int(rehearsal.begins * 1000), content=content)
    if ledger.note(campaign, note).content != content:
        raise LedgerError("another server has just begun a rehearsal.", way_out="Start again.")
    return [
        f"REHEARSAL: a day of this server lasts {rehearsal.seconds:g} seconds; its days are not real days, and this "
        "ledger cannot be used for anything else."
    ]


def _has_decisions(ledger: Ledger, campaign: str) -> bool:
    return campaign in ledger.campaigns() and ledger.totals(campaign).total.decisions > 0
