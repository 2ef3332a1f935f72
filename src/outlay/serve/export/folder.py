"""The folder of an export: its manifest, and a temporary folder to work in.

    DIR/campaign.toml   DIR/manifest.json   DIR/log/dt=…/part-0.parquet   DIR/further/dt=…/part-0.parquet

Each file is replaced atomically, and the manifest is written last: after an interrupted run, the next one writes again
whatever is missing.
"""

from __future__ import annotations

import datetime
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import MANIFEST, check_replaceable, read_manifest, write_manifest
from outlay.core.version import __version__
from outlay.logs.source import Source
from outlay.serve.clock import EPOCH
from outlay.serve.ledger.caps import Tally
from outlay.serve.user_days.layout import LogLayout

KIND = "export"
TOTALLED = ("rows", "decisions", "offers", "held", "paid", "late", "excess")
MEMORY = "512MB"  # limit for DuckDB; beyond it, DuckDB uses the disk


@dataclass(frozen=True)
class ExportedDay:
    """A day of the log: its number of rows, and the ledger's sums, which equal those of the rows.

    Attributes:
        rows: number of rows, one per user.
        decisions: number of all decisions.
        offers: number of decisions that gave an incentive.
        held: minor units still reserved.
        paid: minor units.
        late: number of outcomes received after the wait window.
        closed: whether the wait window was over; a day is rewritten if it was not.
        excess: minor units of `paid` that no reservation covered.
    """

    rows: int
    decisions: int
    offers: int
    held: int
    paid: int
    late: int
    closed: bool
    excess: int = 0

    @property
    def sums(self) -> tuple[int, int, int, int]:
        """Decisions, offers, minor units reserved and minor units paid, as the ledger counts them."""
        return self.decisions, self.offers, self.held, self.paid


@dataclass(frozen=True)
class ExportState:
    """The contents of an export folder.

    Attributes:
        campaign: name of the campaign.
        days: exported days, by number.
        layout: columns of the files; None before the first export.
        campaign_file: hash of campaign.toml as it was written; None if it was not.
    """

    campaign: str
    days: dict[int, ExportedDay]
    layout: LogLayout | None = None
    campaign_file: str | None = None

    @classmethod
    def load(cls, out: Path, campaign: str) -> ExportState:
        """Read the state of an export folder; it is empty if the folder does not exist yet.

        Raises:
            FolderError: if the folder is not an export, or is an export of another campaign.
        """
        check_replaceable(out, KIND)
        if not (out / MANIFEST).exists():
            return cls(campaign, {})
        manifest = read_manifest(out, KIND)
        if manifest["campaign"] != campaign:
            raise FolderError(
                f"is an export of campaign {manifest['campaign']!r}, not of {campaign!r}.",
                file=out,
                way_out="Give another --out.",
            )
        layout = manifest["layout"]
        return cls(
            campaign,
            {day_of(date): ExportedDay(**numbers) for date, numbers in manifest["days"].items()},
            None if layout is None else LogLayout(**layout),
            manifest["campaign_file"],
        )

    def save(self, out: Path) -> None:
        """Write the manifest."""
        content = {
            "outlay": __version__,
            "campaign": self.campaign,
            "days": {date_of(day).isoformat(): vars(numbers) for day, numbers in sorted(self.days.items())},
            "totals": {name: sum(vars(day)[name] for day in self.days.values()) for name in TOTALLED},
            "layout": None if self.layout is None else vars(self.layout),
            "campaign_file": self.campaign_file,
        }
        write_manifest(out, KIND, content)

    def edited(self, file: Path) -> bool:
        """Return whether the campaign file was changed after it was written."""
        return file.exists() and self.campaign_file not in (None, digest(file.read_text(encoding="utf-8")))


class Database(Source):
    """A DuckDB source for the export's own statements, whose errors do not concern a log."""

    def in_words(self, error: Exception, *_: str | None) -> OutlayError:
        """Raise DuckDB's error unchanged."""
        raise error


def date_of(day: int) -> datetime.date:
    """Return the date of a day number."""
    return EPOCH + datetime.timedelta(days=day)


def day_of(date: str) -> int:
    """Return the day number of a date such as 2026-01-05."""
    return (datetime.date.fromisoformat(date) - EPOCH).days


def digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def workplace(out: Path) -> Iterator[Path]:
    """Create an empty hidden folder in `out`, and remove it at the end."""
    work = out / ".work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def database(work: Path, threads: int | None) -> Iterator[Database]:
    """Open a DuckDB database with bounded memory."""
    with closing(duckdb.connect(str(work / "export.duckdb"))) as connection:
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")
        if threads is not None:
            connection.execute(f"SET threads = {threads}")
        yield Database(connection, work, {})


@contextmanager
def own_errors(out: Path) -> Iterator[None]:
    """Turn errors about a full disk or a read-only folder into an OutlayError."""
    try:
        yield
    except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
        raise OutlayError(
            f"cannot be written ({str(error).splitlines()[0]}).",
            file=out,
            way_out="Free disk space, or give another --out, and run it again: complete files are kept.",
        ) from None


def days_due(
    tallies: Mapping[int, Tally],
    state: ExportState,
    closed: int,
    *,
    until: datetime.date | None = None,
    all_days: bool = False,
) -> list[int]:
    """Return the days to write: new days, days that were not closed or whose money has changed since they were written,
    and all days after one with additional decisions.

    Args:
        tallies: the ledger's counters, by day.
        state: contents of the folder.
        closed: the last day whose wait window is over.
        until: the last day to export.
        all_days: also export days that are not closed.

    Raises:
        OutlayError: if there is no day to write, or the folder has days of another ledger.
    """
    for day, exported in state.days.items():
        if day not in tallies or tallies[day].decisions < exported.decisions:
            raise OutlayError(
                f"has {exported.decisions:,} decisions of {date_of(day)}, but the ledger has "
                f"{tallies[day].decisions if day in tallies else 0:,}: it was exported from another ledger.",
                where="--out",
                way_out="Give another --out.",
            )
    last = None if until is None else (until - EPOCH).days
    requested = [day for day in sorted(tallies) if last is None or day <= last]
    due = [day for day in requested if all_days or day <= closed]
    if not due:
        if not requested:
            message = f"there are no decisions until {until}." if tallies else "there are no decisions."
            raise OutlayError(message, where="LEDGER", way_out="Export when there are some.")
        raise OutlayError(
            f"no day is closed: outcomes of the first, {date_of(requested[0])}, may still arrive.",
            where="LEDGER",
            way_out=f"Export in {requested[0] - closed} days, or export open days with --all-days.",
        )
    more = [day for day in due if day in state.days and state.days[day].decisions != tallies[day].decisions]
    return [
        day
        for day in due
        if day not in state.days
        or not state.days[day].closed
        or state.days[day].sums != ledger_sums(tallies[day])
        or (more and day >= more[0])
    ]


def ledger_sums(tally: Tally) -> tuple[int, int, int, int]:
    """Return decisions, offers, minor units reserved and minor units paid."""
    return tally.decisions, tally.offers, tally.reserved, tally.settled
