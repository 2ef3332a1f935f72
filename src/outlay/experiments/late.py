"""Which days of a test are ripe: late enough before the end of its outcomes that all of them are known.

With d the longest of `[log.delays]` in the campaign file and T the last day of which outcomes were collected
(`log.as_of`, or the log's last day), a day t of the test is ripe if t + d ≤ T, as a row of a log is
(`logs/ripeness.py`). Days that are not ripe count in no metric, so no decision is made on them.
"""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass
from typing import Any

from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError, OutlayError
from outlay.core.wording import days as counted
from outlay.experiments.columns import ExperimentColumns
from outlay.experiments.design import Experiment
from outlay.experiments.rows import Run


@dataclass(frozen=True)
class LateOutcomes:
    """What of a test is ripe.

    Attributes:
        delay: d, in days.
        start: the first day of the test.
        planned: days of the test.
        collected: days of the test of which outcomes were collected, T + 1; may be more than were planned.
        rows: of any user, on days of the test that are not ripe; they are left out.
    """

    delay: int
    start: datetime.date
    planned: int
    collected: int
    rows: int

    @property
    def ripe(self) -> int:
        """The days of the test that are ripe."""
        return min(self.collected - self.delay, self.planned)

    def due(self, day: int) -> datetime.date:
        """The date until which outcomes have to be collected for a look after `day` days."""
        return self.start + datetime.timedelta(days=day - 1 + self.delay)

    def refuse(self, day: int) -> None:
        """Check that the days of a look are ripe.

        Raises:
            OutlayError: if not.
        """
        if day > self.ripe:
            found = f"is {day}, and of the test only {counted(self.ripe)} {'is' if self.ripe == 1 else 'are'} ripe"
            raise OutlayError(f"{found}: outcomes can come up to {counted(self.delay)} later (log.delays).",
                              where="day", way_out=f"Look after day {self.ripe} at the latest, or when outcomes have "
                              f"been collected until {self.due(day)}.")  # fmt: skip

    def notes(self) -> list[str]:
        """What was left out, and when the verdict is due."""
        if self.ripe == self.planned:
            return []
        left = f" The {self.rows:,} rows of later days are left out." if self.rows else ""
        return [
            f"Outcomes can come up to {counted(self.delay)} later (log.delays), so {counted(self.ripe)} of the test "
            f"{'is' if self.ripe == 1 else 'are'} ripe.{left} The verdict is not final before day "
            f"{self.planned} is ripe: when outcomes have been collected until {self.due(self.planned)}."
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        dates = {"start": self.start.isoformat(), "due": self.due(self.planned).isoformat()}
        return asdict(self) | dates | {"ripe": self.ripe, "final": self.ripe == self.planned}


def late_outcomes(run: Run, columns: ExperimentColumns, experiment: Experiment, campaign: Campaign) -> LateOutcomes:
    """What of a test is ripe.

    Args:
        run: of the DuckDB connection with the view `log_kept`.
        columns: SQL over it.
        experiment: the test.
        campaign: with `[log.delays]` or `log.as_of`.

    Raises:
        CampaignError: if `log.as_of` is no date, or is needed and missing.
        LogError: if no day of the test is ripe.
    """
    meta, delay = experiment.meta, campaign.log.longest_delay
    last, rows = _last_day(run, columns, experiment, campaign), 0
    if columns.day is not None:
        [(rows,)] = run(f"SELECT count(*) FROM (SELECT {columns.day} AS day FROM log_kept) "
                        f"WHERE day >= 0 AND day < {meta.days} AND day > {last - delay}")  # fmt: skip
    found = LateOutcomes(delay, meta.start, meta.days, last + 1, int(rows))
    if found.ripe < 1:
        until = meta.start + datetime.timedelta(days=last)
        raise LogError(f"no day of the test is ripe: outcomes come up to {counted(delay)} later (log.delays) and were "
                       f"collected until {until}.", where="log.delays",
                       way_out=f"Wait until they have been collected until {found.due(1)} at least.")  # fmt: skip
    return found


def _last_day(run: Run, columns: ExperimentColumns, experiment: Experiment, campaign: Campaign) -> int:
    """T, counted from the start of the test."""
    as_of, file = campaign.log.as_of, campaign.path
    if isinstance(as_of, datetime.date):
        return (as_of - experiment.meta.start).days
    if as_of is not None:
        raise CampaignError(f"is a number, {as_of}; a test has dates.", file=file, where="log.as_of",
                            way_out="Leave it out in a copy of the file: then it is the log's last day.")  # fmt: skip
    if columns.day is None:
        raise CampaignError("is missing, and each row of the log is a whole user: until when were outcomes collected?",
                            file=file, where="log.as_of", way_out="Give the date.")  # fmt: skip
    [(last,)] = run(f"SELECT max(day) FROM (SELECT {columns.day} AS day FROM log_kept)")
    return -1 if last is None else int(last)
