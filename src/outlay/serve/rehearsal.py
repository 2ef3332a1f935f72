"""A rehearsal: the server's clock runs fast, so that a week is over in minutes.

    rehearsal.time(t) = begins + (t − real) · 86,400 / seconds         a day lasts `seconds` of the ledger's clock

It begins on the day before what is rehearsed, the test or else the plan, whenever that is to be, and without either at
the next midnight of the server's time zone. The first rehearsal recorded in a ledger continues for good,
over restarts and on all servers. A ledger that was used with the real clock cannot rehearse, and vice versa.
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
SHORTEST = 1.0  # seconds of a day: a server does its background work once a second


class Rehearsal(Struct, frozen=True, kw_only=True):
    """How fast time passes.

    Attributes:
        seconds: real seconds in a day.
        real: epoch seconds of the ledger's clock when the rehearsal began.
        begins: epoch seconds of the rehearsal at that moment: a midnight.
    """

    seconds: float
    real: float
    begins: float

    def time(self, real: float) -> float:
        """Return epoch seconds of the rehearsal at this time of the ledger's clock."""
        return self.begins + (real - self.real) * DAY / self.seconds


def new_rehearsal(seconds: float, timezone: str, real: float, first: datetime.date | None = None) -> Rehearsal:
    """Return a rehearsal that begins at this time of the ledger's clock.

    Args:
        seconds: real seconds in a day.
        timezone: time zone of the days.
        real: epoch seconds of the ledger's clock.
        first: the first day of what is rehearsed; the rehearsal begins with the day before. None: begin with tomorrow.

    Raises:
        OutlayError: if a day would be too short, or longer than a real day.
    """
    if not SHORTEST <= seconds <= DAY:
        raise OutlayError(
            f"is {seconds:g}; must be from {SHORTEST:g} to {DAY:g}.",
            where="--rehearse",
            way_out="Give the seconds that a day should last.",
        )
    zone = zoneinfo.ZoneInfo(timezone)
    day = datetime.datetime.fromtimestamp(real, zone).date() + ONE_DAY if first is None else first - ONE_DAY
    return Rehearsal(seconds=seconds, real=real, begins=midnight(day, zone))


def rehearsal_of(ledger: Ledger, campaign: str) -> Rehearsal | None:
    """Return the rehearsal that the ledger holds, if any. Raises LedgerError if it cannot be reached."""
    if campaign not in ledger.campaigns():
        return None
    notes = ledger.notes(campaign, REHEARSAL)
    return msgspec.json.decode(notes[0].content, type=Rehearsal) if notes else None


def clock_of(ledger: Ledger, campaign: str, timezone: str) -> Clock:
    """Return the clock of the ledger's servers. Raises LedgerError if the ledger cannot be reached."""
    return clock_with(ledger, rehearsal_of(ledger, campaign), timezone)


def clock_with(ledger: Ledger, rehearsal: Rehearsal | None, timezone: str) -> Clock:
    """Return the ledger's clock, sped up if there is a rehearsal."""
    read = ledger.clock.seconds
    return Clock(timezone, read if rehearsal is None else lambda: rehearsal.time(read()))


def check_rehearsal(ledger: Ledger, campaign: str, wanted: Rehearsal | None) -> Rehearsal | None:
    """Return the ledger's rehearsal, or the requested one if the ledger has none; None means the real clock.

    Raises:
        OutlayError: if the ledger was used with the other clock, or rehearses at another speed.
        LedgerError: if it cannot be reached.
    """
    current = rehearsal_of(ledger, campaign)
    if current is not None and wanted is None:
        raise OutlayError(
            f"the ledger belongs to a rehearsal in which a day lasts {current.seconds:g} seconds.",
            where="--ledger",
            way_out=f"Continue with --rehearse {current.seconds:g}, or use another ledger.",
        )
    if current is not None and wanted is not None and current.seconds != wanted.seconds:
        raise OutlayError(
            f"is {wanted.seconds:g}, but a day of the ledger's rehearsal lasts {current.seconds:g} seconds.",
            where="--rehearse",
            way_out=f"Continue with --rehearse {current.seconds:g}, or use another ledger.",
        )
    if current is None and wanted is not None and _has_decisions(ledger, campaign):
        raise OutlayError(
            "the ledger has decisions that were made with the real clock.",
            where="--rehearse",
            way_out="Rehearse on a ledger of its own: --ledger sqlite:///rehearsal.db.",
        )
    return current or wanted


def note_rehearsal(ledger: Ledger, campaign: str, rehearsal: Rehearsal) -> list[str]:
    """Record a rehearsal; return a warning for the operator. Raises LedgerError if that fails or there is another."""
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
