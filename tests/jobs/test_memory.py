"""Tables in memory where a job takes a log."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
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
    assert outlay.check(tmp_path / "campaign.toml").rows == 400


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


def test_a_table_is_trained_on_and_scored(tmp_path: Path) -> None:
    pytest.importorskip("equinox")
    campaign = campaign_file(tmp_path, COLUMNS)
    outlay.train(pa.table(COLUMNS), tmp_path / "run", campaign=campaign)
    result = outlay.score(tmp_path / "run" / "bundle", pa.table(COLUMNS).slice(0, 40), tmp_path / "out.parquet")
    assert result.rows == 40
