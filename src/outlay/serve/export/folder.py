"""The folder of an export: its manifest, the files of its days, and a temporary folder to work in.

    DIR/campaign.toml   DIR/manifest.json   DIR/log/dt=…/part-0.parquet   DIR/further/dt=…/part-0.parquet

`log/` has one decision per user and day, `further/` all other decisions. A user's row in `log/` is the day's first
decision that was not forced, or else the first. It has the outcomes and costs of all the user's decisions on that day;
each row in `further/` has its own.

Each file is replaced atomically, and the manifest is written last: after an interrupted run, the next one writes again
whatever is missing.
"""

from __future__ import annotations

import datetime
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import MANIFEST, check_replaceable, new_file, read_manifest, write_manifest
from outlay.core.version import __version__
from outlay.logs.reading import literal, quoted
from outlay.logs.source import Source
from outlay.serve.clock import date_of, day_of
from outlay.serve.ledger.caps import Tally
from outlay.serve.user_days.log_row import DECISION, FEATURE, FOLDER, KIND, LogLayout, of_text

EXPORT = "export"
TOTALLED = ("rows", "decisions", "offers", "held", "paid", "late", "excess")
MEMORY = "512MB"  # limit for DuckDB; beyond it, DuckDB uses the disk
PARTS = LOG, FURTHER = "log", "further"
FILE = "part-0.parquet"
ROW_GROUP, CELLS = 122_880, 8_000_000  # limits of a row group: rows, and approximately values
Sums = tuple[int, int, int, int]
SUMMED = ("reserved", "held", "paid")


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
        check_replaceable(out, EXPORT)
        if not (out / MANIFEST).exists():
            return cls(campaign, {})
        manifest = read_manifest(out, EXPORT)
        if manifest["campaign"] != campaign:
            raise FolderError(
                f"is an export of campaign {manifest['campaign']!r}, not of {campaign!r}.",
                file=out,
                way_out="Give another --out.",
            )
        layout = manifest["layout"]
        return cls(
            campaign,
            {
                day_of(datetime.date.fromisoformat(date)): ExportedDay(**numbers)
                for date, numbers in manifest["days"].items()
            },
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
        write_manifest(out, EXPORT, content)

    def edited(self, file: Path) -> bool:
        """Return whether the campaign file was changed after it was written."""
        return file.exists() and self.campaign_file not in (None, digest(file.read_text(encoding="utf-8")))


class Database(Source):
    """A DuckDB source for the export's own statements, whose errors do not concern a log."""

    def in_words(self, error: Exception, *_: str | None) -> OutlayError:
        """Raise DuckDB's error unchanged."""
        raise error


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
        with suppress(duckdb.Error):  # in a notebook without widgets, which shows none
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
    last = None if until is None else day_of(until)
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


def held_otherwise(out: Path, days: Iterable[int], layout: LogLayout, action: Any) -> list[int]:
    """Return the days whose file holds actions as another type: a bundle of then read the log otherwise.

    Args:
        out: the export folder.
        days: exported ones.
        layout: their columns.
        action: the Arrow type of the action's column from now on.
    """
    column = layout.names["action"]
    files = ((day, place_of(out, LOG, day)) for day in days)
    return [day for day, path in files if path.exists() and pq.read_schema(path).field(column).type != action]


def ledger_sums(tally: Tally) -> tuple[int, int, int, int]:
    """Return decisions, offers, minor units reserved and minor units paid."""
    return tally.decisions, tally.offers, tally.reserved, tally.settled


def place_of(out: Path, part: str, day: int) -> Path:
    """Return the path of a day's file."""
    return out / part / f"{FOLDER}={date_of(day).isoformat()}" / FILE


def write_day(
    source: Source, work: Path, propensities: Path, day: int, layout: LogLayout, minor: int, out: Path
) -> tuple[int, Sums]:
    """Write both files of a day, each atomically.

    Args:
        source: a DuckDB connection.
        work: folder with `decisions.parquet` and `outcomes.parquet` of the day.
        propensities: Parquet file with `decision_id, propensity, marginal`.
        day: its number.
        layout: the columns.
        minor: minor units in one unit of money.
        out: the export folder.

    Returns:
        The number of rows of the log, and their sums of decisions, offers, minor units reserved and minor units paid.
    """
    kinds = {f"k{i}": kind for i, kind in enumerate(layout.kinds)}
    totals = "".join(f", sum(value) FILTER (kind = {literal(kind)}) AS {name}" for name, kind in kinds.items())
    sums = [f"(sum({name}) OVER of_day)::bigint AS {name}_of_day" for name in SUMMED]  # not 128 bits wide
    sums += [f"sum(coalesce({name}, 0)) OVER of_day AS {name}_of_day" for name in kinds]
    source.run(f"""
        CREATE OR REPLACE TEMP TABLE ranked AS
        SELECT d.*, coalesce(propensity, 1) AS propensity, coalesce(marginal, 1) AS marginal,
            {", ".join([*kinds, *sums])}{"," if kinds or sums else ""}
            count(*) OVER of_day AS decisions, count(*) FILTER (offer) OVER of_day AS offers,
            row_number() OVER (PARTITION BY "user" ORDER BY d.forced, decision_id) AS place
        FROM read_parquet({_listed(work / "decisions.parquet")}) d
        LEFT JOIN read_parquet({_listed(propensities)}) USING (decision_id)
        LEFT JOIN (SELECT decision_id{totals} FROM read_parquet({_listed(work / "outcomes.parquet")}) GROUP BY 1)
            USING (decision_id)
        WINDOW of_day AS (PARTITION BY "user")""")
    _copy(source, _selected(layout, kinds, day, minor, own=False), "place = 1", place_of(out, LOG, day), layout)
    further = place_of(out, FURTHER, day)
    if source.run("SELECT 1 FROM ranked WHERE place > 1 LIMIT 1"):
        _copy(source, _selected(layout, kinds, day, minor, own=True), "place > 1", further, layout)
    else:
        further.unlink(missing_ok=True)
    source.run("DROP TABLE ranked")
    return file_sums(source, place_of(out, LOG, day), layout)


def file_sums(source: Source, path: Path, layout: LogLayout) -> tuple[int, Sums]:
    """Return the number of rows of a file of the log, and its sums, as `write_day` does."""
    columns = ("decisions", "offers", "held_minor", "paid_minor")
    sums = ", ".join(f"sum({quoted(layout.names[role])})::bigint" for role in columns)
    [(rows, *numbers)] = source.run(f"SELECT count(*), {sums} FROM read_parquet({_listed(path)})")
    decisions, offers, held, paid = map(int, numbers)
    return int(rows), (decisions, offers, held, paid)


def rewrite(source: Source, out: Path, day: int, layout: LogLayout) -> None:
    """Rewrite the files of an exported day if their columns or types differ from the layout's.

    Raises:
        FolderError: if the file in `log/` is missing.
    """
    if not place_of(out, LOG, day).exists():
        raise FolderError(
            "is missing.",
            file=place_of(out, LOG, day),
            way_out="Restore it, or remove the folder and export everything again.",
        )
    for path in (place_of(out, part, day) for part in PARTS):
        if not path.exists():
            continue
        relation = f"read_parquet({_listed(path)}, hive_partitioning = false)"
        present = {str(row[0]): str(row[1]) for row in source.run(f"DESCRIBE SELECT * FROM {relation}")}
        types = {layout.names[FEATURE + name]: layout.type_of(name) for name in layout.types}
        if list(present) != list(layout.names.values()) or any(present[name] != kind for name, kind in types.items()):
            _write(source, f"SELECT {layout.rewritten(present)} FROM {relation}", path, layout)


def earlier_decisions(out: Path, days: Iterable[int], layout: LogLayout) -> str | None:
    """Return SQL for the decisions of exported days, as `write_propensities` takes it; None if there are none."""
    paths = [place_of(out, part, day) for day in days for part in PARTS]
    files = [path for path in paths if path.exists()]
    if not files:
        return None
    names = {role: role for role in (*DECISION, "user", "action") if role in layout.names}
    columns = ", ".join(f"{quoted(layout.names[role])} AS {quoted(name)}" for role, name in names.items())
    return f"(SELECT {columns} FROM read_parquet({_listed(*files)}, hive_partitioning = false))"


def _selected(layout: LogLayout, kinds: Mapping[str, str], day: int, minor: int, *, own: bool) -> str:
    """Return the SELECT list; `own`: with the decision's own outcomes and money instead of those of the user's day."""
    columns = {kind: name for name, kind in kinds.items()}
    known = {"user": '"user"', "time": f"DATE '{date_of(day).isoformat()}'", "action": "action"} | DECISION
    of_day, places = "" if own else "_of_day", {name: i for i, name in enumerate(layout.types)}
    if own:
        known |= {"decisions": "1::bigint", "offers": "offer::bigint"}
    parts = []
    for role, name in layout.names.items():
        if role.startswith(FEATURE):
            feature = role.removeprefix(FEATURE)
            sql = of_text(f"f{places[feature]}", layout.type_of(feature))
        elif role.startswith(KIND):
            sql = f"coalesce({columns[role.removeprefix(KIND)]}{of_day}, 0)::double"
        else:
            sql = known[role].format(minor=minor)
            sql = sql.replace("_of_day", "") if own else sql
        parts.append(f"{sql} AS {quoted(name)}")
    return ", ".join(parts)


def _copy(source: Source, columns: str, where: str, path: Path, layout: LogLayout) -> None:
    _write(source, f"SELECT {columns} FROM ranked WHERE {where} ORDER BY decision_id", path, layout)


def _write(source: Source, query: str, path: Path, layout: LogLayout) -> None:
    group = max(2_048, min(ROW_GROUP, CELLS // len(layout.names)))
    with new_file(path) as temporary:
        source.run(f"COPY ({query}) TO {literal(temporary)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group})")


def _listed(*paths: Path) -> str:
    return f"[{', '.join(literal(path) for path in paths)}]"
