"""Files as they are: recognised, said, written into the campaign file, and read by that."""

from __future__ import annotations

import datetime
import gzip
import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest

from outlay.core.campaign import Campaign, ReadingSection
from outlay.core.errors import LogError, OutlayError
from outlay.jobs.check import check
from outlay.jobs.init import OpenQuestion, guide
from outlay.logs.source import Copying, open_source

HEADS = ["kunde", "datum", "rabatt", "besucht", "umsatz", "stadt"]


def rows() -> list[tuple[Any, ...]]:
    rng, found = np.random.default_rng(0), []
    for user in range(60):
        for day in range(10):
            given = float(rng.choice([0, 2.5, 5]))
            came = int(rng.random() < 0.3 + 0.05 * given)
            date = datetime.date(2026, 4, 1) + datetime.timedelta(days=day)
            found.append(
                (f"K{user}", date, given, came, round(came * float(rng.gamma(2, 600)), 2), "Köln"[: 2 + user % 3])
            )
    return found


ROWS = rows()


def german(x: float) -> str:
    return f"{x:,.2f}".translate(str.maketrans(",.", ".,"))


def as_text(number: Any, sep: str, dates: str) -> str:
    lines = [
        sep.join([user, date.strftime(dates), number(given), str(came), number(spent), city])
        for user, date, given, came, spent, city in ROWS
    ]
    return "\n".join([sep.join(HEADS), *lines])


def told(path: Any, folder: Path, **options: Any) -> tuple[Campaign, tuple[str, ...]]:
    """The campaign file that init writes, once its log is what it should be; and what was said."""
    found = guide(path, folder / "campaign.toml", **options)
    report = check(folder / "campaign.toml")
    assert not report.blocks
    assert (report.rows, report.users, report.days) == (600, 60, 10)
    assert [action.value for action in report.actions] == [0.0, 2.5, 5.0]
    campaign = Campaign.load(folder / "campaign.toml")
    assert (campaign.log.user, campaign.log.time, campaign.log.action) == ("kunde", "datum", "rabatt")
    used = campaign.log.reward == "besucht"  # or umsatz; a coupon is paid when somebody comes
    spent = np.mean([given * (came if used else 1) for _, _, given, came, *_ in ROWS])
    assert campaign.budgets[0].limit == pytest.approx(spent, rel=1e-3)
    return campaign, found.read


@pytest.mark.parametrize(
    ("name", "text", "encoding", "reading"),
    [
        (
            "a.csv",
            as_text(german, ";", "%d.%m.%Y"),
            "latin-1",
            {"delimiter": ";", "encoding": "cp1252", "decimal": ",", "dates": "%d.%m.%Y"},
        ),
        (
            "bom.csv",
            as_text(german, ";", "%d.%m.%Y"),
            "utf-8-sig",
            {"delimiter": ";", "decimal": ",", "dates": "%d.%m.%Y"},
        ),
        (
            "wide.csv",
            as_text(german, ";", "%d.%m.%Y"),
            "utf-16",
            {"delimiter": ";", "encoding": "utf-16", "decimal": ",", "dates": "%d.%m.%Y"},
        ),
        (
            "euro.csv.gz",
            as_text(lambda x: f"{german(x)} €", ";", "%d.%m.%y"),
            "cp1252",
            {"delimiter": ";", "encoding": "cp1252", "decimal": ",", "dates": "%d.%m.%y"},
        ),
        (
            "us.csv",
            as_text(lambda x: f'"${x:,.2f}"', ",", "%m/%d/%Y"),
            "utf-8",
            {"decimal": ".", "dates": "%m/%d/%Y"},
        ),
        ("uk.tsv", as_text(lambda x: f"£{x:,.2f}", "\t", "%d/%m/%Y"), "utf-8", {"decimal": ".", "dates": "%d/%m/%Y"}),
        ("pipe.csv", as_text(str, "|", "%Y-%m-%d"), "utf-8", {"delimiter": "|"}),
    ],
)
def test_csv_as_people_export_it(tmp_path: Path, name: str, text: str, encoding: str, reading: dict[str, str]) -> None:
    content = text.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    campaign, said = told(tmp_path / name, tmp_path)
    assert campaign.log.reading is not None
    assert campaign.log.reading.model_dump(exclude_none=True) == reading
    assert len(said) == len(reading)


@pytest.mark.parametrize("dates", ["%d-%b-%y", "%d %B %Y", "%b %d, %Y", "%a %b %d %Y"])
def test_months_by_their_names_are_read(tmp_path: Path, dates: str) -> None:
    (tmp_path / "log.csv").write_text(as_text(str, "|", dates))
    campaign, _ = told(tmp_path / "log.csv", tmp_path)
    assert campaign.log.reading is not None
    assert campaign.log.reading.dates == dates
    assert check(tmp_path / "campaign.toml").first == min(day for _, day, *_ in ROWS).isoformat()


def test_lines_that_end_twice_are_read(tmp_path: Path) -> None:
    """As Python's `csv` writes them on Windows into a file that was opened without `newline=""`."""
    (tmp_path / "log.csv").write_bytes(as_text(str, ",", "%Y-%m-%d").replace("\n", "\r\r\n").encode())
    assert told(tmp_path / "log.csv", tmp_path)[1] == ()


def table() -> Any:
    return pa.table({head: [row[i] for row in ROWS] for i, head in enumerate(HEADS)})


def test_json_lines_arrow_and_feather(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(dict(zip(HEADS, row, strict=True)), default=str) for row in ROWS)
    (tmp_path / "a.jsonl").write_text(lines)
    pf.write_feather(table(), tmp_path / "a.feather")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, table().schema) as stream:
        stream.write_table(table())
    for name in ("a.jsonl", "a.feather", "a.arrow"):
        told(tmp_path / name, tmp_path)
        (tmp_path / "campaign.toml").unlink()


def test_sqlite_with_one_table_or_a_query(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as store:
        store.execute(f"CREATE TABLE log ({', '.join(HEADS)})")
        store.executemany("INSERT INTO log VALUES (?,?,?,?,?,?)", [(r[0], str(r[1]), *r[2:]) for r in ROWS])
        store.commit()
        told(tmp_path / "shop.sqlite", tmp_path)
        (tmp_path / "campaign.toml").unlink()
        store.execute("CREATE TABLE other (x)")
        store.commit()
    with pytest.raises(LogError, match=r"has 2 tables.*query = .*log, other"):
        told(tmp_path / "shop.sqlite", tmp_path)
    told(tmp_path / "shop.sqlite", tmp_path, query="SELECT * FROM log")
    with pytest.raises(LogError, match="no such table"):
        guide(tmp_path / "shop.sqlite", tmp_path / "other.toml", query="SELECT * FROM missing")


def test_excel(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    write_excel(tmp_path / "log.xlsx", {"Notes": [["nothing"]], "Log": [HEADS, *ROWS]})
    campaign, said = told(tmp_path / "log.xlsx", tmp_path)
    assert campaign.log.reading is not None
    assert campaign.log.reading.sheet == "Log"
    assert any("longest" in words for words in said)


def write_excel(path: Path, sheets: dict[str, list[Any]]) -> None:
    """The least that a reader takes for an Excel file."""

    def cell(value: Any) -> str:
        if isinstance(value, (int, float)):
            return f"<c><v>{value}</v></c>"
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'

    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    listed = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, 1))
    targets = "".join(
        f'<Relationship Id="r{i}" Type="{office}/worksheet" Target="worksheets/s{i}.xml"/>'
        for i in range(1, len(sheets) + 1)
    )
    relations = f'<Relationships xmlns="{package}/relationships">'
    book = f'{relations}<Relationship Id="b" Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>'
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", f'<Types xmlns="{package}/content-types"/>')
        file.writestr("_rels/.rels", book)
        file.writestr("xl/workbook.xml", f'<workbook {main} xmlns:r="{office}"><sheets>{listed}</sheets></workbook>')
        file.writestr("xl/_rels/workbook.xml.rels", f"{relations}{targets}</Relationships>")
        for i, rows_ in enumerate(sheets.values(), 1):
            lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows_)
            file.writestr(f"xl/worksheets/s{i}.xml", f"<worksheet {main}><sheetData>{lines}</sheetData></worksheet>")


def test_a_list_of_files_is_one_log(tmp_path: Path) -> None:
    for i in (0, 1):
        pq.write_table(table().slice(300 * i, 300), tmp_path / f"part{i}.parquet")
    campaign, _ = told([tmp_path / "part0.parquet", tmp_path / "part1.parquet"], tmp_path)
    assert campaign.log.source == ("part0.parquet", "part1.parquet")
    with pytest.raises(LogError, match="does not exist"):
        guide([tmp_path / "part0.parquet", tmp_path / "part9.parquet"], tmp_path / "other.toml")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(LogError, match="several kinds"):
        guide([tmp_path / "part0.parquet", tmp_path / "a.csv"], tmp_path / "other.toml")
    with pytest.raises(OutlayError, match="list is of files of this machine"):
        guide(["s3://x/a.parquet", "s3://x/b.parquet"], tmp_path / "other.toml")


@pytest.mark.parametrize(("answer", "days"), [("%d/%m/%Y", 10), ("%m/%d/%Y", 10 * 30)])
def test_an_order_of_day_and_month_that_the_rows_leave_open_is_asked(tmp_path: Path, answer: str, days: int) -> None:
    (tmp_path / "a.csv").write_text(as_text(str, ",", "%d/%m/%Y"))

    def ask(question: OpenQuestion) -> str:
        return answer if question.role == "dates" else question.guess

    guide(tmp_path / "a.csv", tmp_path / "campaign.toml", ask=ask)
    campaign = Campaign.load(tmp_path / "campaign.toml")
    assert campaign.log.reading is not None
    assert campaign.log.reading.dates == answer
    assert check(campaign).days >= 0.9 * days


def test_dates_in_both_orders_are_told_with_their_rows(tmp_path: Path) -> None:
    lines = as_text(str, ",", "%d/%m/%Y").splitlines()
    lines[3], lines[4] = (
        line.replace("/04/", f"/{part}/") for line, part in zip(lines[3:5], ("25", "04"), strict=True)
    )
    lines[4] = lines[4].replace("04/04/2026", "25/04/2026")
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(LogError, match=r"in row 3 is none by.*in row 4 is none by") as refused:
        guide(tmp_path / "a.csv", tmp_path / "campaign.toml")
    assert refused.value.where == "column datum"


def test_a_value_that_does_not_fit_is_told_with_its_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(as_text(german, ";", "%d.%m.%Y"))
    guide(tmp_path / "a.csv", tmp_path / "campaign.toml")
    lines = (tmp_path / "a.csv").read_text().splitlines()
    lines[7] = lines[7].replace(lines[7].split(";")[2], "viel")
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(OutlayError, match=r"rabatt.*'viel' in row 7|'viel'"):
        check(tmp_path / "campaign.toml")


@pytest.mark.parametrize(
    ("line", "found"),
    [('encoding = "klingon"', "an encoding"), ('dates = "day first"', "places of day"), ('decimal = ";"', "decimal")],
)
def test_a_wrong_reading_is_refused_in_words(tmp_path: Path, line: str, found: str) -> None:
    (tmp_path / "a.csv").write_text(as_text(german, ";", "%d.%m.%Y"))
    guide(tmp_path / "a.csv", tmp_path / "campaign.toml")
    text = (tmp_path / "campaign.toml").read_text().partition("[log.reading]")[0]
    budget = (tmp_path / "campaign.toml").read_text().partition("[[budget]]")[2]
    (tmp_path / "campaign.toml").write_text(f"{text}[log.reading]\n{line}\n[[budget]]{budget}")
    with pytest.raises(OutlayError, match=found):
        Campaign.load(tmp_path / "campaign.toml")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda lines: [*lines[:57], lines[57] + ",7", *lines[58:]],
            r"line 58: has 4 values, and the header 3 columns",
        ),
        (lambda lines: [*lines[:99], "u,1", *lines[100:]], r"line 100: has 2 values, and the header 3 columns"),
        (lambda lines: [*lines[:4], *(f"{each},9" for each in lines[4:])], r"line 5: has 4 values"),
        (lambda _: ["a,b,c", "1,2,3", "1", "1,2,3,4"], r"line 3: has 1 values"),
    ],
)
@pytest.mark.parametrize("delimiter", [None, ","])
def test_a_ragged_line_is_named(
    tmp_path: Path, change: Callable[[list[str]], list[str]], told: str, delimiter: str | None
) -> None:
    lines = ["user,day,name", *(f'u{i},{i},"x, {i}"' for i in range(300))]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(change(lines)) + "\n")
    reading = ReadingSection(delimiter=delimiter)
    with pytest.raises(LogError, match=told), open_source(path, tmp_path, copying=Copying(reading=reading)):
        pass


@pytest.mark.parametrize("first", [["Report of March", ""], []])
def test_a_title_above_a_table_is_no_ragged_line(tmp_path: Path, first: list[str]) -> None:
    path = tmp_path / "log.csv"
    path.write_text("\n".join([*first, "user,day", *(f"u{i},{i}" for i in range(300))]) + "\n")
    with open_source(path, tmp_path) as source:
        assert [*source.columns] == ["user", "day"]
