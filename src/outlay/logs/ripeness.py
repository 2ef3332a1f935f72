"""Which rows of a log are ripe: late enough before the end of its outcomes that every value of them is known.

With d the longest of `[log.delays]` and T the last time up to which outcomes were collected (`log.as_of`), a row at
time t is ripe if

    t + d ≤ T

Rows that are not ripe have outcomes that are known in part, so they are left out of the log: for training and
evaluation, the last ripe day is the end of the log.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError
from outlay.core.wording import days as counted_days
from outlay.logs.findings import Finding
from outlay.logs.source import Source

COLLECTED = "log_collected"  # the rows that pass log.where, ripe or not
MUCH = 0.5  # share of rows that are not ripe from which it is a warning
EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class Ripeness:
    """How much of a log is ripe.

    Attributes:
        longest: d, in units of `time`.
        as_of: T; dates as days since 1970-01-01.
        rows: of the log.
        left_out: those of them that are not ripe.
    """

    longest: int
    as_of: int
    rows: int
    left_out: int

    @property
    def last(self) -> int:
        """The last time of a ripe row."""
        return self.as_of - self.longest

    @property
    def words(self) -> str:
        """The rows left out, in words; empty if there are none."""
        if not self.left_out:
            return ""
        share = f"{self.left_out:,} rows ({self.left_out / self.rows:.1%})"
        if not self.longest:
            return f"{share} are later than log.as_of: left out"
        return (
            f"{share} of the last {self.longest} {'day is' if self.longest == 1 else 'days are'} not ripe, since "
            "their outcomes can still come: left out"
        )

    def findings(self) -> list[Finding]:
        """What `check` says of it."""
        if not self.left_out:
            return []
        level, way_out = (
            ("note", "")
            if self.left_out <= MUCH * self.rows
            else ("warning", "Collect outcomes for longer and say until when (log.as_of), or give a longer log.")
        )
        return [
            Finding("note" if level == "note" else "warning", "log.delays", f"{self.words}.", way_out, self.left_out)
        ]


def keep_ripe(
    source: Source, campaign: Campaign, time: str, *, dates: bool, until: int | None = None
) -> Ripeness | None:
    """Take the rows that are not ripe out of `log_kept`; the view `log_collected` still has them.

    Args:
        source: the log.
        campaign: with `[log.delays]` or `log.as_of`; without both, every row is ripe and None is returned.
        time: SQL of a row's time, a whole number.
        dates: whether times are dates.
        until: the last time of an event; without `log.as_of`, outcomes were collected until then.

    Raises:
        CampaignError: if `log.as_of` is a date and times are numbers, or the other way round.
        LogError: if no row is ripe.
    """
    log = campaign.log
    if not log.delays and log.as_of is None:
        return None
    first, last, rows = source.run(f"SELECT min(t), max(t), count(*) FROM (SELECT {time} AS t FROM log_kept)")[0]
    if last is None:  # no row has a time, which is an error of its own
        return None
    collected = int(last) if until is None else max(int(last), until)
    as_of = collected if log.as_of is None else _as_number(campaign, dates=dates)
    if as_of < first:
        raise LogError(
            f"is {shown(as_of, dates=dates)}, and the first row of the log is of {shown(int(first), dates=dates)}.",
            file=source.file,
            where="log.as_of",
            way_out="Give the last time up to which outcomes were collected.",
        )
    ripe = as_of - log.longest_delay
    [(late,)] = source.run(f"SELECT count(*) FROM log_kept WHERE {time} > {ripe}")
    found = Ripeness(log.longest_delay, as_of, int(rows), int(late))
    if ripe < first:
        raise LogError(
            f"no row is ripe: outcomes come up to {log.longest_delay} days later (log.delays) and were collected until "
            f"{shown(as_of, dates=dates)}, which is {counted_days(as_of - int(first))} after the first row.",
            file=source.file,
            where="log.delays",
            way_out="Give a longer log, or collect outcomes for longer and say until when (log.as_of).",
        )
    source.run(f"ALTER VIEW log_kept RENAME TO {COLLECTED}")
    source.run(f"CREATE VIEW log_kept AS SELECT * FROM {COLLECTED} WHERE NOT coalesce({time} > {ripe}, false)")
    return found


def shown(time: int, *, dates: bool) -> int | str:
    """A time as it is shown: a date as text, else the number."""
    return (EPOCH + datetime.timedelta(days=time)).isoformat() if dates else time


def _as_number(campaign: Campaign, *, dates: bool) -> int:
    as_of = campaign.log.as_of
    if dates and isinstance(as_of, datetime.date):
        return (as_of - EPOCH).days
    if dates or not isinstance(as_of, int):
        wanted, found = ("a date, as 2027-03-31", "a number") if dates else ("a whole number", "a date")
        raise CampaignError(
            f"is {found}, {as_of}; the times of the log are {'dates' if dates else 'numbers'}.",
            file=campaign.path,
            where="log.as_of",
            way_out=f"Give {wanted}.",
        )
    return as_of
