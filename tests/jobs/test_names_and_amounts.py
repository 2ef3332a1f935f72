"""What real logs hold: columns named as roles, users named NA, amounts with rounding, times with a zone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outlay
from campaign_files import campaign_file, panel
from outlay.core.errors import OutlayError
from outlay.logs.source import read_rows
from outlay.logs.values import exactly, nearest_amounts

ROLES = ["segment", "user", "time", "action", "reward", "forced", "eligible", "terminal", "propensity", "row", "cost0"]
THIRD = 1 / 3


@pytest.mark.parametrize("kind", ["categorical", "numeric"])
def test_features_may_be_named_as_roles(tmp_path: Path, kind: str) -> None:
    columns = panel(users=60)
    rng = np.random.default_rng(1)
    columns |= {name: rng.integers(0, 3, len(columns["day"])).tolist() for name in ROLES}
    features: dict[str, Any] = {"categorical": '["level"]', kind: str(ROLES).replace("'", '"')}
    path = campaign_file(tmp_path, columns, log="segment = \"case when level > 1 then 'a' else 'b' end\"", **features)

    randomisation = outlay.check(path).randomisation
    data = outlay.prepare(path, tmp_path / "data")

    assert randomisation is not None
    assert {d.name for d in randomisation.dependences} >= set(ROLES)
    assert set(data.schema.names) >= set(ROLES)


def test_a_dependence_is_measured_on_the_column_not_on_the_role(tmp_path: Path) -> None:
    columns = panel(users=300)
    columns["action"] = columns["coupon"]  # the feature says all of the action
    columns["reward"] = np.random.default_rng(2).integers(0, 2, len(columns["day"])).tolist()  # and this one nothing
    path = campaign_file(tmp_path, columns, categorical='["action"]', numeric='["reward"]')

    randomisation = outlay.check(path).randomisation
    assert randomisation is not None
    strength = {d.name: d.strength for d in randomisation.dependences}

    assert strength["action"] == pytest.approx(1, abs=1e-6)
    assert strength["reward"] < 0.1


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.csv.gz"])
def test_users_may_be_called_na(tmp_path: Path, name: str) -> None:
    columns = panel()
    renamed = {"u0": "NA", "u1": "NULL", "u2": "NaN"}
    columns["user_id"] = [renamed.get(user, user) for user in columns["user_id"]]
    columns["level"] = [None if level == 2 else f"level {level}" for level in columns["level"]]

    path = campaign_file(tmp_path, columns, name=name)
    data = outlay.prepare(path, tmp_path / "data")

    assert not outlay.check(path).missing["user"]
    assert set(data.user_ids().to_pylist()) == set(columns["user_id"])


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_an_empty_user_is_missing(tmp_path: Path, name: str) -> None:
    columns = panel()
    columns["user_id"][5] = ""
    assert outlay.check(campaign_file(tmp_path, columns, name=name)).missing["user"] == 1


def test_na_in_a_column_of_whole_numbers_is_missing(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("user,x\n1,2\nNA,3\n")
    [batch] = read_rows(tmp_path / "rows.csv", {"user": "user", "x": "x"}, users=("user",))
    assert batch.column("user").to_pylist() == [1, None]


def test_a_policy_table_finds_the_users_called_na(tmp_path: Path) -> None:
    columns = panel(users=400)
    columns["user_id"] = ["NA" if user == "u0" else user for user in columns["user_id"]]
    data = outlay.prepare(campaign_file(tmp_path, columns), tmp_path / "data")
    rules = {"user_id": columns["user_id"], "day": columns["day"], "1": 1.0, "2": 0.0, "3": 0.0}
    table = pa.table({k: v if isinstance(v, list) else [v] * len(columns["day"]) for k, v in rules.items()})
    pq.write_table(table, tmp_path / "rules.parquet")

    from outlay.logs.policy_file import read_policy

    found, _ = read_policy(tmp_path / "rules.parquet", data, np.arange(len(data.action)))

    assert found[:, 0].tolist() == [1.0] * len(data.action)


@pytest.mark.parametrize("listed", ["actions = [0.3, 0.333333, 2.0]", ""])
def test_amounts_that_differ_by_rounding_are_one_action(tmp_path: Path, listed: str) -> None:
    columns = panel(users=90)
    rng = np.random.default_rng(0)
    written = [0.1 + 0.2, 0.3, THIRD, 2.0]
    columns["coupon"] = [written[i] for i in rng.integers(0, 4, len(columns["day"]))]
    columns["may"] = [[0.1 + 0.2, THIRD, 2.0]] * len(columns["day"])
    path = campaign_file(tmp_path, columns, log=f'{listed}\neligible = "may"')

    data = outlay.prepare(path, tmp_path / "data")

    assert data.actions.tolist() == ([0.3, 0.333333, 2.0] if listed else [0.3, THIRD, 2.0])
    meant = np.array([0.3 if v == 0.1 + 0.2 else v for v in columns["coupon"]])
    assert np.allclose(data.actions[data.action], meant, rtol=1e-5)
    assert data.allowed(np.arange(len(data.action))).all()


def test_an_unlisted_action_is_told_with_all_its_digits(tmp_path: Path) -> None:
    columns = panel()
    columns["coupon"][3] = 1.23456789
    path = campaign_file(tmp_path, columns, log="actions = [1.0, 2.0, 3.0]")
    with pytest.raises(OutlayError, match=r"not listed: 1\.23456789\."):
        outlay.prepare(path, tmp_path / "data")


def test_large_amounts_that_print_alike_stay_apart() -> None:
    assert nearest_amounts([1_000_001.0, 1_000_002.0], None) == {}
    assert nearest_amounts([1_000_001.0, 1_000_002.0], [1_000_001.0, 1_000_002.0]) == {}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20, unique=True))
def test_what_is_printed_is_found_again(values: list[float]) -> None:
    printed = [float(f"{value:g}") for value in values]
    standing = nearest_amounts(values, printed)
    for value, short in zip(values, printed, strict=True):
        assert abs(standing.get(value, value) - short) <= 1e-5 * abs(short)
    assert [float(exactly(value)) for value in values] == values


@pytest.mark.slow
def test_the_day_of_a_moment_does_not_depend_on_the_machine(tmp_path: Path) -> None:
    columns = panel()
    moments = [f"2027-03-{1 + day:02d} 22:30:00+00" for day in columns.pop("day")]
    columns["day"] = moments
    path = campaign_file(tmp_path, columns)
    path.write_text(path.read_text().replace('time = "day"', 'time = "cast(cast(day as timestamptz) as date)"'))
    code = f"import outlay; print(outlay.check({str(path)!r}).first)"

    # In Tokyo it is the next day already.
    environment = {**os.environ, "TZ": "Asia/Tokyo"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert said.stdout == "2027-03-01\n"
