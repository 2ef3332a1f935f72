"""Tables in memory where a job takes a log."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outlay
from campaign_files import campaign_file, panel
from outlay.core.errors import OutlayError

COLUMNS = panel(users=100)


def tables() -> list[Any]:
    arrow = pa.table(COLUMNS)
    found = [arrow, arrow.to_batches()[0], duckdb.from_arrow(arrow)]
    if importlib.util.find_spec("pandas") is None:
        return found
    return [*found, importlib.import_module("pandas").DataFrame(COLUMNS)]


@pytest.mark.parametrize("table", tables(), ids=lambda table: type(table).__name__)
def test_check_and_init_take_whatever_speaks_arrow(tmp_path: Path, table: Any) -> None:
    assert outlay.check(table).rows == 400
    text = outlay.init(table, tmp_path / "campaign.toml")
    assert 'source = "campaign.parquet"' in text
    assert pq.read_table(tmp_path / "campaign.parquet").to_pydict() == COLUMNS


def test_a_campaign_file_says_what_the_columns_mean(tmp_path: Path) -> None:
    campaign = campaign_file(tmp_path, COLUMNS)
    report = outlay.check(pa.table(COLUMNS).slice(0, 200), campaign=campaign)
    assert (report.rows, report.users) == (200, 50)
    with pytest.raises(OutlayError, match="is for a table in memory"):
        outlay.check(campaign, campaign=campaign)


def test_dates_may_be_texts_as_pandas_leaves_them(tmp_path: Path) -> None:
    dates = [f"2026-03-{day + 1:02d}" for day in COLUMNS["day"]]
    campaign = campaign_file(tmp_path, COLUMNS)
    report = outlay.check(pa.table(COLUMNS | {"day": dates}), campaign=campaign)
    assert (report.first, report.last) == ("2026-03-01", "2026-03-04")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a RUN and of the campaign file that says what the table's columns mean; only read it."""
    pytest.importorskip("equinox")
    folder = tmp_path_factory.mktemp("table")
    outlay.train(pa.table(COLUMNS), folder / "run", campaign=campaign_file(folder, COLUMNS), oracle="tabular", folds=2)
    return folder


def test_a_table_is_trained_on_and_scored(trained: Path, tmp_path: Path) -> None:
    result = outlay.score(trained / "run" / "bundle", pa.table(COLUMNS).slice(0, 40), tmp_path / "out.parquet")
    assert result.rows == 40


@pytest.mark.parametrize("wrong", [None, {}, 3, [1]])
def test_what_is_no_log_is_one_error(tmp_path: Path, wrong: Any) -> None:
    for job in (outlay.check, lambda log: outlay.train(log, tmp_path / "run")):
        with pytest.raises(
            outlay.OutlayError, match=r"log: is .*, which is neither a file nor a table\. Give the path"
        ):
            job(wrong)
    with pytest.raises(outlay.OutlayError, match=r"rows: is .*, which is neither a file nor a table\. Give the path"):
        outlay.score("bundle", wrong, tmp_path / "out.csv")
    with pytest.raises(outlay.OutlayError, match=r"is not the path of a file\. Give a campaign\.toml"):
        outlay.prepare(wrong, tmp_path / "data")


def test_errors_name_the_argument_and_no_file_of_ours(trained: Path, tmp_path: Path) -> None:
    campaign, bundle = trained / "campaign.toml", trained / "run" / "bundle"
    wrong = pa.table(COLUMNS | {"active": ["x"] * 400})
    empty = pa.table(COLUMNS).slice(0, 0)
    for job, called in (
        (lambda: outlay.check(empty, campaign=campaign), "the table 'log'"),
        (lambda: outlay.check(wrong, campaign=campaign), "active"),
        (lambda: outlay.score(bundle, empty, tmp_path / "out.csv"), "the table 'rows'"),
        (
            lambda: outlay.score(bundle, pa.table({"user_id": ["a"]}), tmp_path / "out.csv"),
            r"the table 'rows', column 'level'.*Columns: user_id",
        ),
    ):
        with pytest.raises(OutlayError, match=called) as error:
            job()
        assert "table.parquet" not in str(error.value)
    assert outlay.check(pa.table(COLUMNS), campaign=campaign).source == "a table in memory"
