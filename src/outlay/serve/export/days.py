"""The files of one day: `log/` with one decision per user, `further/` with all other decisions.

A user's row in `log/` is the day's first decision that was not forced, or else the first. It has the outcomes and costs
of all the user's decisions on that day; each row in `further/` has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from outlay.core.errors import FolderError
from outlay.core.files import new_file
from outlay.logs.reading import literal, quoted
from outlay.logs.source import Source
from outlay.serve.export.folder import date_of
from outlay.serve.user_days.layout import DECISION, FEATURE, FOLDER, KIND, LogLayout, of_text

PARTS = LOG, FURTHER = "log", "further"
FILE = "part-0.parquet"
ROW_GROUP, CELLS = 122_880, 8_000_000  # limits of a row group: rows, and approximately values
Sums = tuple[int, int, int, int]
SUMMED = ("reserved", "held", "paid")


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
