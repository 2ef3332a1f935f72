"""The folder of an export: what its manifest says of it, and a place in it to work.

    DIR/campaign.toml   DIR/manifest.json   DIR/log/dt=…/part-0.parquet   DIR/further/dt=…/part-0.parquet

Files are replaced one by one, each whole. The manifest is written last; whatever a killed run leaves, the next one
writes again.
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
from outlay.serve.export.layout import LogLayout
from outlay.serve.ledger.caps import Tally

KIND = "export"
TOTALLED = ("rows", "decisions", "offers", "held", "paid", "late", "excess")
MEMORY = "512MB"  # that DuckDB holds before it writes to disk


@dataclass(frozen=True)
class ExportedDay:
    """A day of the log: its rows, and the ledger's sums, which are the rows' too.

    Attributes:
        rows: one per user.
        decisions: all.
        offers: decisions that set money aside.
        held: minor units still set aside.
        paid: minor units.
        late: outcomes that came after the wait window.
        closed: whether that was over; a day that was not is written anew.
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
        """What the ledger counts."""
        return self.decisions, self.offers, self.held, self.paid


@dataclass(frozen=True)
class ExportState:
    """What an exported folder holds.

    Attributes:
        campaign: whose decisions.
        days: by number.
        layout: of the files; None before the first export.
        campaign_file: hash of campaign.toml as it was written; None where it was not.
    """

    campaign: str
    days: dict[int, ExportedDay]
    layout: LogLayout | None = None
    campaign_file: str | None = None

    @classmethod
    def load(cls, out: Path, campaign: str) -> ExportState:
        """Read the state of an export folder; a folder that does not exist yet has none.

        Raises:
            FolderError: if something else stands there, or an export of another campaign.
        """
        check_replaceable(out, KIND)
        if not (out / MANIFEST).exists():
            return cls(campaign, {})
        manifest = read_manifest(out, KIND)
        if manifest["campaign"] != campaign:
            raise FolderError(
                f"is an export of campaign {manifest['campaign']!r}, and not of {campaign!r}.", file=out,
                way_out="Give another --out.",
            )  # fmt: skip
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
        """Whether the campaign file is not as it was written."""
        return file.exists() and self.campaign_file not in (None, digest(file.read_text(encoding="utf-8")))


class Database(Source):
    """DuckDB for our own statements: what is wrong with those is no fault of a log."""

    def in_words(self, error: Exception, *_: str | None) -> OutlayError:
        """DuckDB's error stays as it is."""
        raise error


def date_of(day: int) -> datetime.date:
    """A day number as a date."""
    return EPOCH + datetime.timedelta(days=day)


def day_of(date: str) -> int:
    """The number of a day such as 2026-01-05."""
    return (datetime.date.fromisoformat(date) - EPOCH).days


def digest(text: str) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def workplace(out: Path) -> Iterator[Path]:
    """A hidden folder in `out`, empty, gone in the end."""
    work = out / ".work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def database(work: Path, threads: int | None) -> Iterator[Database]:
    """DuckDB, with bounded memory."""
    with closing(duckdb.connect(str(work / "export.duckdb"))) as connection:
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")
        if threads is not None:
            connection.execute(f"SET threads = {threads}")
        yield Database(connection, work, {})


@contextmanager
def own_errors(out: Path) -> Iterator[None]:
    """A full disk, or a folder that cannot be written, in words."""
    try:
        yield
    except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
        raise OutlayError(
            f"cannot be written ({str(error).splitlines()[0]}).", file=out,
            way_out="Make room there, or give another --out, and run it again: what is whole stays.",
        ) from None  # fmt: skip


def days_due(
    tallies: Mapping[int, Tally],
    state: ExportState,
    closed: int,
    *,
    until: datetime.date | None = None,
    all_days: bool = False,
) -> list[int]:
    """The days to write: new ones, those not yet closed when they were written, those whose money moved since, and all
    that follow one that got more decisions.

    Args:
        tallies: what the ledger counts, by day.
        state: what the folder holds.
        closed: the last day whose wait window is over.
        until: the last day.
        all_days: those that are not closed as well.

    Raises:
        OutlayError: if there is none that could be written, or the folder holds days of another ledger.
    """
    for day, told in state.days.items():
        if day not in tallies or tallies[day].decisions < told.decisions:
            raise OutlayError(
                f"holds {told.decisions} decisions of {date_of(day)}, and the ledger "
                f"{tallies[day].decisions if day in tallies else 0}: it was exported from another.",
                where="--out", way_out="Give another --out.",
            )  # fmt: skip
    last = None if until is None else (until - EPOCH).days
    asked = [day for day in sorted(tallies) if last is None or day <= last]
    due = [day for day in asked if all_days or day <= closed]
    if not due:
        if not asked:
            found = f"there are no decisions until {until}." if tallies else "there are no decisions."
            raise OutlayError(found, where="LEDGER", way_out="Export when there are some.")
        raise OutlayError(
            f"no day is closed: outcomes of the first, {date_of(asked[0])}, are still awaited.", where="LEDGER",
            way_out=f"Export in {asked[0] - closed} days, or take days as they are with --all-days.",
        )  # fmt: skip
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
    """Decisions, offers, minor units held and minor units paid."""
    return tally.decisions, tally.offers, tally.reserved, tally.settled
