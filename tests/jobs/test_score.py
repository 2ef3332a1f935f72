"""Files of rows in, files of decisions out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from outlay.bundles.read import load_bundle
from outlay.core.errors import BundleError, LogError, OutlayError
from outlay.jobs.score import score
from scored_rows import make_bundle, make_rows

ROWS = 150_000  # more than one batch


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("score")
    make_bundle(folder / "bundle")
    pq.write_table(make_rows(ROWS), folder / "rows.parquet")
    return folder


def test_a_file_gets_the_decisions_that_its_table_gets(place: Path, tmp_path: Path) -> None:
    calls: list[tuple[float, str]] = []
    out = tmp_path / "decisions.parquet"
    result = score(
        place / "bundle", place / "rows.parquet", out, progress=lambda share, text: calls.append((share, text))
    )
    table = make_rows(ROWS)
    halved = table.append_column("spend / 2", pa.array(table["spend"].to_numpy() / 2))
    wanted = load_bundle(place / "bundle").decide(halved)
    found = pq.read_table(out)
    assert found.equals(wanted)
    assert result.rows == ROWS
    assert result.path == out
    assert result.unknown == table["city"].to_pylist().count("Oslo") > 0
    counts = np.bincount(wanted["action_index"].to_numpy(), minlength=3) / ROWS
    assert result.shares == dict(zip([0.0, 1.5, 3.0], counts.tolist(), strict=True))
    assert len(calls) > 1
    assert calls[-1] == (1.0, "150,000 rows")
    assert list(tmp_path.iterdir()) == [out]


def test_csv_in_and_out_say_the_same(place: Path, tmp_path: Path) -> None:
    table = make_rows(200)
    pacsv.write_csv(table, tmp_path / "rows.csv")
    pq.write_table(table, tmp_path / "rows.parquet")
    score(place / "bundle", tmp_path / "rows.csv", tmp_path / "a.csv")
    score(place / "bundle", tmp_path / "rows.parquet", tmp_path / "b.parquet")
    one, other = pacsv.read_csv(tmp_path / "a.csv"), pq.read_table(tmp_path / "b.parquet")
    assert one.column_names == other.column_names == ["row", "user", "action", "action_index", "member", "probability"]
    assert one.to_pylist() == other.to_pylist()


def test_members_writes_a_line_per_row_and_member(place: Path, tmp_path: Path) -> None:
    pq.write_table(make_rows(200), tmp_path / "rows.parquet")
    result = score(place / "bundle", tmp_path / "rows.parquet", tmp_path / "m.parquet", members=True)
    found = pq.read_table(tmp_path / "m.parquet")
    assert found.num_rows == 2 * result.rows == 400
    assert found.column_names == ["row", "member", "weight", "action", "action_index", "q"]
    q = np.array(found["q"].to_pylist())
    assert np.array_equal(q.argmax(1), found["action_index"].to_numpy())
    weights = found["weight"].to_numpy()[found["action"].to_numpy() == 1.5].sum() / 200
    assert result.shares[1.5] == pytest.approx(weights)
    assert sum(result.shares.values()) == pytest.approx(1)
    score(place / "bundle", tmp_path / "rows.parquet", tmp_path / "m.csv", members=True)
    assert json.loads(pacsv.read_csv(tmp_path / "m.csv")["q"][3].as_py()) == q[3].tolist()


def test_without_users_every_row_is_drawn_by_its_position_in_the_file(place: Path, tmp_path: Path) -> None:
    table = make_rows(70_000).drop(["user_id"])
    pq.write_table(table, tmp_path / "rows.parquet")
    score(place / "bundle", tmp_path / "rows.parquet", tmp_path / "a.parquet")
    found = pq.read_table(tmp_path / "a.parquet")
    assert "user" not in found.column_names
    pq.write_table(table.append_column("user", pa.array(range(70_000))), tmp_path / "numbered.parquet")
    score(place / "bundle", tmp_path / "numbered.parquet", tmp_path / "b.parquet")
    numbered = pq.read_table(tmp_path / "b.parquet")
    assert numbered["user"].to_pylist() == list(range(70_000))
    assert found["member"].equals(numbered["member"])


def test_a_user_may_be_an_expression(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", user="user_id || '!'")
    pq.write_table(make_rows(3), tmp_path / "rows.parquet")
    score(bundle, tmp_path / "rows.parquet", tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet")["user"].to_pylist() == ["u0!", "u1!", "u2!"]


def test_eligible_is_read_from_the_file(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", eligible="allowed")
    table = make_rows(300).append_column("allowed", pa.array([[1.5], None, [0.0, 3.0]] * 100))
    pq.write_table(table, tmp_path / "rows.parquet")
    score(bundle, tmp_path / "rows.parquet", tmp_path / "a.parquet")
    actions = pq.read_table(tmp_path / "a.parquet")["action"].to_pylist()
    assert set(actions[::3]) == {1.5}
    assert set(actions[2::3]) <= {0.0, 3.0}
    pq.write_table(make_rows(3), tmp_path / "rows.parquet")
    with pytest.raises(LogError, match="allowed"):
        score(bundle, tmp_path / "rows.parquet", tmp_path / "a.parquet")


def test_another_episode_draws_anew(place: Path, tmp_path: Path) -> None:
    pq.write_table(make_rows(500), tmp_path / "rows.parquet")
    members = []
    for i, episode in enumerate((None, "coupons", "week 2")):
        score(place / "bundle", tmp_path / "rows.parquet", tmp_path / f"{i}.parquet", episode=episode)
        members.append(pq.read_table(tmp_path / f"{i}.parquet")["member"].to_pylist())
    assert members[0] == members[1] != members[2]


def refused(place: Path, folder: Path, table: Any, message: str) -> None:
    pq.write_table(table, folder / "rows.parquet")
    (folder / "out.parquet").write_text("older")
    with pytest.raises(LogError, match=message):
        score(place / "bundle", folder / "rows.parquet", folder / "out.parquet")
    assert (folder / "out.parquet").read_text() == "older"
    assert sorted(path.name for path in folder.iterdir()) == ["out.parquet", "rows.parquet"]


def test_wrong_rows_are_named_and_leave_the_older_file(place: Path, tmp_path: Path) -> None:
    refused(place, tmp_path, make_rows(5).slice(0, 0), r"rows\.parquet: has no rows")
    refused(place, tmp_path, make_rows(5).drop(["city"]), r"rows\.parquet, column 'city'")
    refused(place, tmp_path, make_rows(5).drop(["spend"]), r"rows\.parquet, .*'spend'")
    late = make_rows(70_000).set_column(0, "user_id", pa.array(["u"] * 69_999 + [None]))
    refused(place, tmp_path, late, r"rows\.parquet, row 70000, column 'user_id': has no user")


def test_wrong_files_are_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match=r"out\.xlsx, out: .*\.parquet or \.csv"):
        score(place / "bundle", place / "rows.parquet", tmp_path / "out.xlsx")
    with pytest.raises(LogError, match="does not exist"):
        score(place / "bundle", tmp_path / "none.parquet", tmp_path / "out.csv")
    with pytest.raises(BundleError, match="does not exist"):
        score(tmp_path / "none", place / "rows.parquet", tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []
