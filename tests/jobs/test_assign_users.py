"""Arms for the users of a table or a log: a line per user, the server's draw, who is eligible."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment
from outlay.experiments.split import entries
from outlay.jobs.assign_users import BATCH, assign_users


def experiment_of(eligible: str | None = None) -> Experiment:
    meta = {"name": "spring", "campaign": "habit", "start": "2026-03-02", "days": 14, "metric": "active"}
    arms = [{"name": name, "kind": "holdout", "share": share} for name, share in (("old", 0.6), ("new", 0.3))]
    ramp = [{"day": 0, "coverage": 0.2}, {"day": 2, "coverage": 1.0}]
    return Experiment.parse(
        {"experiment": meta | ({} if eligible is None else {"eligible": eligible}), "arm": arms, "ramp": ramp}
    )


def table(folder: Path, columns: Mapping[str, Any], name: str = "users.parquet") -> Path:
    path = folder / name
    if name.endswith(".csv"):
        pacsv.write_csv(pa.table(dict(columns)), path)
    else:
        pq.write_table(pa.table(dict(columns)), path)
    return path


def test_a_log_gives_a_line_per_user_in_the_order_of_first_rows(tmp_path: Path) -> None:
    users = ["u3", "u1", "u3", "u2", "u1"]
    out = tmp_path / "arms.parquet"
    result = assign_users(experiment_of(), table(tmp_path, {"user": users, "day": [0, 0, 1, 1, 2]}), out, day=2)
    arms, since = entries(experiment_of(), ["u3", "u1", "u2"])
    wanted = [("old", "new", None)[i] for i in arms]
    days = [None if day < 0 else day for day in since]
    assert pq.read_table(out).to_pydict() == {"user": ["u3", "u1", "u2"], "arm": wanted, "day": days}
    assert (result.users, result.eligible, result.coverage) == (3, 3, 1.0)


def test_more_users_than_a_batch_get_the_same_arms_as_alone(tmp_path: Path) -> None:
    count = BATCH + 5_000
    out = tmp_path / "arms.parquet"
    result = assign_users(experiment_of(), table(tmp_path, {"user": range(count)}), out, day=0)
    found = pq.read_table(out)
    arms, since = entries(experiment_of(), range(count))
    arms = np.where(since == 0, arms, -1)
    assert found["user"].to_pylist() == [str(i) for i in range(count)]
    assert found["arm"].to_pylist() == [("old", "new", None)[i] for i in arms]
    assert found["day"].to_pylist() == [None if i < 0 else 0 for i in arms]
    assert result.counts == {"old": int((arms == 0).sum()), "new": int((arms == 1).sum())}


def test_numbers_and_texts_of_the_same_user_get_the_same_arm(tmp_path: Path) -> None:
    found = []
    for i, users in enumerate(([3.0, 17.0, 4.0], [3, 17, 4], ["3", "17", "4"])):
        out = tmp_path / f"{i}.parquet"
        assign_users(experiment_of(), table(tmp_path, {"user": users}), out, day=2)
        found.append(pq.read_table(out).to_pydict())
    assert found[0] == found[1] == found[2]


def test_csv_in_and_out_and_another_name_of_the_column(tmp_path: Path) -> None:
    out = tmp_path / "arms.csv"
    assign_users(experiment_of(), table(tmp_path, {"id": ["a", "b"]}, "users.csv"), out, day=2, user="id")
    assert out.read_text().splitlines()[0] == '"user","arm","day"'
    assert len(out.read_text().splitlines()) == 3


def test_users_who_are_not_eligible_at_their_first_row_are_in_no_arm(tmp_path: Path) -> None:
    columns = {"user": ["a", "a", "b", "b", "c"], "level": [1, 5, 5, 1, None]}
    out = tmp_path / "arms.parquet"
    content = experiment_of().model_dump(by_alias=True)
    content["arm"] = [{"name": name, "kind": "holdout", "share": 0.5} for name in ("old", "new")]
    whole = Experiment.parse(content)
    everyone = assign_users(whole, table(tmp_path, columns), out, day=2)
    assert sum(everyone.counts.values()) == everyone.eligible == 3
    some = Experiment.parse(content | {"experiment": content["experiment"] | {"eligible": "level <= 1"}})
    result = assign_users(some, table(tmp_path, columns), out, day=2)
    found = dict(zip(*(pq.read_table(out)[name].to_pylist() for name in ("user", "arm")), strict=True))
    assert (result.users, result.eligible) == (3, 1)
    assert found["a"] is not None
    assert found["b"] is found["c"] is None


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"user_id": ["a"]}, {}, r"column 'user': .*no such column.*--user"),
        ({"user": ["a", None]}, {}, r"column 'user': .*missing"),
        ({"user": pa.array([], pa.string())}, {}, "has no rows"),
        ({"user": ["a"]}, {"day": -1}, "day: is -1"),
        ({"user": ["a"]}, {"day": 14}, r"day: is 14; .*\b0 to 13\b"),
        ({"user": ["a"]}, {"experiment": "level = 1"}, r"experiment.eligible: .*no column 'level'"),
    ],
)
def test_what_cannot_be_read_is_told_and_nothing_is_written(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    experiment = experiment_of(options.get("experiment"))
    with pytest.raises(OutlayError, match=message):
        assign_users(experiment, table(tmp_path, columns), tmp_path / "arms.parquet", day=options.get("day", 0))
    assert not (tmp_path / "arms.parquet").exists()
