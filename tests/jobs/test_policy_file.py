"""Policies from Parquet: found by user and time, whatever the order; what is wrong is said with its place."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outlay
from campaign_files import campaign_file, panel
from outlay.core.errors import FolderError, LogError
from outlay.core.transitions import Transitions
from outlay.logs.policy_file import read_policy

ACTIONS = ("1", "2", "3")


def prepared(folder: Path, columns: dict[str, Any] | None = None, **settings: Any) -> Transitions:
    path = campaign_file(folder, columns or panel(users=60), **settings)
    return outlay.prepare(path, folder / "data")


def probabilities(columns: dict[str, Any]) -> np.typing.NDArray[np.float64]:
    """Other numbers in every row, so that a row that is taken for another is seen."""
    rows = len(columns["user_id"])
    first = np.linspace(0.1, 0.6, rows)
    return np.column_stack([first, 0.3 - first / 4, 0.7 - 3 * first / 4])


def written(folder: Path, columns: dict[str, Any], policy: np.typing.NDArray[np.float64], **other: Any) -> Path:
    table = {"user_id": columns["user_id"], "day": columns["day"], **dict(zip(ACTIONS, policy.T, strict=True)), **other}
    path = folder / "policy.parquet"
    pq.write_table(pa.table(table), path)
    return path


def test_every_row_gets_its_probabilities_whatever_the_order_of_the_table(tmp_path: Path) -> None:
    columns = panel(users=60)
    order = np.random.default_rng(0).permutation(len(columns["user_id"]))
    mixed = {name: [values[i] for i in order] for name, values in columns.items()}
    data, policy = prepared(tmp_path, mixed), probabilities(columns)
    again = np.random.default_rng(1).permutation(len(order))
    shuffled = {name: [values[i] for i in again] for name, values in columns.items()}
    rows = data.rows_of(1)
    found, _ = read_policy(written(tmp_path, shuffled, policy[again]), data, rows)
    assert found == pytest.approx(policy[order][rows])


def test_users_may_be_numbers_and_times_dates(tmp_path: Path) -> None:
    columns = panel(users=60)
    columns["user_id"] = [int(name[1:]) for name in columns["user_id"]]
    columns["day"] = [datetime.date(2024, 2, 27) + datetime.timedelta(days=d) for d in columns["day"]]
    data, policy = prepared(tmp_path, columns), probabilities(columns)
    rows = data.rows_of(0)
    assert read_policy(written(tmp_path, columns, policy), data, rows)[0] == pytest.approx(policy[rows])
    stamps = {**columns, "day": pa.array(columns["day"]).cast(pa.timestamp("us"))}
    assert read_policy(written(tmp_path, stamps, policy), data, rows)[0] == pytest.approx(policy[rows])
    numbers = {**columns, "day": list(range(len(policy)))}
    with pytest.raises(LogError, match=r"'day': .*int64; .*dates"):
        read_policy(written(tmp_path, numbers, policy), data, rows)


def test_roles_that_are_expressions_are_called_user_and_time(tmp_path: Path) -> None:
    columns = panel(users=60)
    path = campaign_file(tmp_path, columns)
    path.write_text(
        path.read_text()
        .replace('user = "user_id"', 'user = "upper(user_id)"')
        .replace('time = "day"', 'time = "day + 5"')
    )
    data, policy = outlay.prepare(path, tmp_path / "data"), probabilities(columns)
    table = {
        "user": [name.upper() for name in columns["user_id"]],
        "time": [d + 5 for d in columns["day"]],
        "1.0": policy[:, 0],
        "3": policy[:, 2],
        "2.00": policy[:, 1],
    }
    pq.write_table(pa.table(table), tmp_path / "policy.parquet")
    rows = data.rows_of(0)
    assert read_policy(tmp_path / "policy.parquet", data, rows)[0] == pytest.approx(policy[rows])
    with pytest.raises(LogError, match=r"'user_id', 'day'; .*'user', 'time'"):
        read_policy(written(tmp_path, columns, policy), data, rows)


def test_a_role_may_be_a_constant_or_a_column_with_a_strange_name(tmp_path: Path) -> None:
    """`time = "0"` is no column's name; `user id` is one, though it looks like an expression."""
    columns = panel(users=60, days=1)
    columns["user id"] = columns.pop("user_id")
    path = campaign_file(tmp_path, columns, discount=0.0)
    path.write_text(path.read_text().replace('"user_id"', '"user id"').replace('time = "day"', 'time = "0"'))
    data, rows = outlay.prepare(path, tmp_path / "data"), np.arange(60)
    policy = probabilities({"user_id": columns["user id"]})
    for user in ("user id", "user"):
        table = {user: columns["user id"], "time": columns["day"], **dict(zip(ACTIONS, policy.T, strict=True))}
        pq.write_table(pa.table(table), tmp_path / "policy.parquet")
        assert read_policy(tmp_path / "policy.parquet", data, rows)[0] == pytest.approx(policy)
    pq.write_table(pa.table({"user": ["a"]}), tmp_path / "policy.parquet")
    with pytest.raises(LogError, match=r"'user'; .*'user', 'time'"):
        read_policy(tmp_path / "policy.parquet", data, rows)


def test_rows_without_a_choice_may_be_absent_and_other_users_present(tmp_path: Path) -> None:
    columns = panel(users=60)
    columns["fixed"] = [d == 2 for d in columns["day"]]
    data, policy = prepared(tmp_path, columns, log='forced = "fixed"'), probabilities(columns)
    kept = [i for i, fixed in enumerate(columns["fixed"]) if not fixed]
    part = {name: [values[i] for i in kept] for name, values in columns.items()}
    for name, stranger in (("user_id", "stranger"), ("day", 99)):
        part[name].append(stranger)
    rows = data.rows_of(0)
    found, _ = read_policy(written(tmp_path, part, np.vstack([policy[kept], policy[:1]])), data, rows)
    forced = np.asarray(data.forced[rows])
    assert forced.any()
    assert found[~forced] == pytest.approx(policy[rows][~forced])
    assert (found[forced] == 0).all()


def test_the_same_table_has_the_same_name_and_another_one_another(tmp_path: Path) -> None:
    columns = panel(users=60)
    data, policy = prepared(tmp_path), probabilities(columns)
    names = [
        read_policy(written(tmp_path, columns, p), data, data.rows_of(0))[1] for p in (policy, policy, policy[::-1])
    ]
    assert names[0] == names[1] != names[2]


def wrong(path: Path, **changes: Any) -> Path:
    table = pq.read_table(path)
    for name, values in changes.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    pq.write_table(table, path)
    return path


def test_what_is_wrong_is_said_with_its_column_row_and_user(tmp_path: Path) -> None:
    columns = panel(users=60)
    data, policy = prepared(tmp_path), probabilities(columns)
    rows, n = np.arange(len(data)), len(policy)

    def refused(message: str, changes: dict[str, list[Any]] | Path) -> None:
        path = changes if isinstance(changes, Path) else wrong(written(tmp_path, columns, policy), **changes)
        with pytest.raises(LogError, match=message) as caught:
            read_policy(path, data, rows)
        assert str(path) in str(caught.value)
        assert caught.value.way_out

    refused(r"'2': is 1\.5 in row 1", {"2": [1.5] * n})
    refused(r"'3': is missing in row 4 \(1 such rows", {"3": [0.1, 0.1, 0.1, None] + [0.1] * (n - 4)})
    refused(r"'3': is -0\.1 in row 1", {"3": [-0.1] * n})
    refused(r"'1': is of type string", {"1": ["0.5"] * n})
    refused(r"has probabilities that sum to .* for user u0, time 0 \(240 of the 240", {"1": [0.9] * n})
    refused("has more than one row for user u0, time 0", {"day": [0, 0, *columns["day"][2:]]})
    refused(r"has no row for user u0, time 1 \(1 of the 240", {"day": [0, 99, *columns["day"][2:]]})
    refused("'7': is not an action of this log", written(tmp_path, columns, policy, **{"7": [0.0] * n}))
    refused("'segment': is not an action of this log", written(tmp_path, columns, policy, segment=["a"] * n))
    refused("'1.0': is the same action as column '1'", written(tmp_path, columns, policy, **{"1.0": [0.0] * n}))
    table = pq.read_table(written(tmp_path, columns, policy))
    pq.write_table(table.drop_columns(["2"]), tmp_path / "policy.parquet")
    refused("has no column for 2", tmp_path / "policy.parquet")
    (tmp_path / "text.parquet").write_text("user_id,day\n")
    refused("cannot be read as Parquet", tmp_path / "text.parquet")
    refused("does not exist", tmp_path / "nothing.parquet")


def test_weight_on_an_action_that_is_not_allowed_is_refused_with_user_and_action(tmp_path: Path) -> None:
    columns = panel(users=60)
    columns["allowed"] = [[a, 3.0 if a != 3.0 else 1.0] for a in columns["coupon"]]
    data, policy = prepared(tmp_path, columns, log='eligible = "allowed"'), probabilities(columns)
    with pytest.raises(LogError, match=r"to [12], .*not allowed, .*user u\d+, time \d"):
        read_policy(written(tmp_path, columns, policy), data, data.rows_of(0))
    allowed = data.allowed(np.arange(len(data)))
    fair = allowed / allowed.sum(axis=1, keepdims=True)
    assert read_policy(written(tmp_path, columns, fair), data, np.arange(len(data)))[0] == pytest.approx(fair)


def test_a_log_that_was_prepared_before_users_had_names_says_so(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    (data.folder / "users.parquet").unlink()
    with pytest.raises(FolderError, match="outlay prepare"):
        read_policy(written(tmp_path, panel(users=60), probabilities(panel(users=60))), data, data.rows_of(0))
