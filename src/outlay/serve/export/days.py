"""The files of one day: `log/` with a row per user, `further/` with the decisions that are not that row.

The row of a user's day is the first decision that was a choice, else the first. It carries what the day brought and
cost, all decisions together; in `further/` each has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from outlay.core.errors import FolderError
from outlay.core.files import new_file
from outlay.logs.reading import literal, quoted
from outlay.logs.source import Source
from outlay.serve.export.folder import date_of
from outlay.serve.export.layout import DECISION, FEATURE, FOLDER, KIND, LogLayout, of_text

PARTS = LOG, FURTHER = "log", "further"
FILE = "part-0.parquet"
ROW_GROUP, CELLS = 122_880, 8_000_000  # rows, and about as many values, at most
Sums = tuple[int, int, int, int]
SUMMED = ("reserved", "held", "paid")


def place_of(out: Path, part: str, day: int) -> Path:
    """The file of a day."""
    return out / part / f"{FOLDER}={date_of(day).isoformat()}" / FILE


def write_day(
    source: Source, work: Path, chances: Path, day: int, layout: LogLayout, minor: int, out: Path
) -> tuple[int, Sums]:
    """Write both files, each whole or not at all.

    Args:
        source: a DuckDB connection.
        work: folder with `decisions.parquet` and `outcomes.parquet` of the day.
        chances: Parquet with `decision_id, propensity, marginal`.
        day: its number.
        layout: of the columns.
        minor: minor units in one unit of money.
        out: the exported folder.

    Returns:
        Rows of the log; and, summed over them, decisions, offers, minor units held and minor units paid.
    """
    kinds = {f"k{i}": kind for i, kind in enumerate(layout.kinds)}
    came = "".join(f", sum(value) FILTER (kind = {literal(kind)}) AS {name}" for name, kind in kinds.items())
    sums = [f"(sum({name}) OVER of_day)::bigint AS {name}_of_day" for name in SUMMED]  # not 128 bits wide
    sums += [f"sum(coalesce({name}, 0)) OVER of_day AS {name}_of_day" for name in kinds]
    source.run(f"""
        CREATE OR REPLACE TEMP TABLE ranked AS
        SELECT d.*, coalesce(propensity, 1) AS propensity, coalesce(marginal, 1) AS marginal,
            {", ".join([*kinds, *sums])}{"," if kinds or sums else ""}
            count(*) OVER of_day AS decisions, count(*) FILTER (reserved > 0) OVER of_day AS offers,
            row_number() OVER (PARTITION BY "user" ORDER BY d.forced, decision_id) AS place
        FROM read_parquet({_listed(work / "decisions.parquet")}) d
        LEFT JOIN read_parquet({_listed(chances)}) USING (decision_id)
        LEFT JOIN (SELECT decision_id{came} FROM read_parquet({_listed(work / "outcomes.parquet")}) GROUP BY 1)
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
    """What a file of the log holds, as `write_day` gives it."""
    columns = ("decisions", "offers", "held_minor", "paid_minor")
    sums = ", ".join(f"sum({quoted(layout.names[role])})::bigint" for role in columns)
    [(rows, *numbers)] = source.run(f"SELECT count(*), {sums} FROM read_parquet({_listed(path)})")
    decisions, offers, held, paid = map(int, numbers)
    return int(rows), (decisions, offers, held, paid)


def rewrite(source: Source, out: Path, day: int, layout: LogLayout) -> None:
    """Give the files of an exported day the columns and types of this layout, where they are others.

    Raises:
        FolderError: if a file is gone.
    """
    if not place_of(out, LOG, day).exists():
        raise FolderError("is gone.", file=place_of(out, LOG, day),
                          way_out="Put it back, or remove the folder and export all of it again.")  # fmt: skip
    for path in (place_of(out, part, day) for part in PARTS):
        if not path.exists():
            continue
        relation = f"read_parquet({_listed(path)}, hive_partitioning = false)"
        found = {str(row[0]): str(row[1]) for row in source.run(f"DESCRIBE SELECT * FROM {relation}")}
        types = {layout.names[FEATURE + name]: layout.type_of(name) for name in layout.types}
        if list(found) != list(layout.names.values()) or any(found[name] != kind for name, kind in types.items()):
            _written(source, f"SELECT {layout.rewritten(found)} FROM {relation}", path, layout)


def earlier(out: Path, days: Iterable[int], layout: LogLayout) -> str | None:
    """SQL of the decisions of exported days, as `export_chances` wants them; None where there are none."""
    paths = [place_of(out, part, day) for day in days for part in PARTS]
    found = [path for path in paths if path.exists()]
    if not found:
        return None
    names = {**{role: role for role in DECISION}, "user": "user", "action": "action"}
    columns = ", ".join(f"{quoted(layout.names[role])} AS {quoted(name)}" for role, name in names.items())
    return f"(SELECT {columns} FROM read_parquet({_listed(*found)}, hive_partitioning = false))"


def _selected(layout: LogLayout, kinds: Mapping[str, str], day: int, minor: int, *, own: bool) -> str:
    """The SELECT list; with `own` a decision's own outcomes and money instead of its user's day's."""
    held = {kind: name for name, kind in kinds.items()}
    known = {"user": '"user"', "time": f"DATE '{date_of(day).isoformat()}'", "action": "action"} | DECISION
    of_day, places = "" if own else "_of_day", {name: i for i, name in enumerate(layout.types)}
    if own:
        known |= {"decisions": "1::bigint", "offers": "(reserved > 0)::bigint"}
    parts = []
    for role, name in layout.names.items():
        if role.startswith(FEATURE):
            feature = role.removeprefix(FEATURE)
            sql = of_text(f"f{places[feature]}", layout.type_of(feature))
        elif role.startswith(KIND):
            sql = f"coalesce({held[role.removeprefix(KIND)]}{of_day}, 0)::double"
        else:
            sql = known[role].format(minor=minor)
            sql = sql.replace("_of_day", "") if own else sql
        parts.append(f"{sql} AS {quoted(name)}")
    return ", ".join(parts)


def _copy(source: Source, columns: str, where: str, path: Path, layout: LogLayout) -> None:
    _written(source, f"SELECT {columns} FROM ranked WHERE {where} ORDER BY decision_id", path, layout)


def _written(source: Source, query: str, path: Path, layout: LogLayout) -> None:
    group = max(2_048, min(ROW_GROUP, CELLS // len(layout.names)))
    with new_file(path) as temporary:
        source.run(f"COPY ({query}) TO {literal(temporary)} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group})")


def _listed(*paths: Path) -> str:
    return f"[{', '.join(literal(path) for path in paths)}]"
