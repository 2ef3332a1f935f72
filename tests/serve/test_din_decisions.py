"""DIN from training to serving: a log, a DATA folder and the ledger tell it the same past, so it decides the same."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from small_pasts import FIRST, Time
from small_servers import Client, server

import outlay
from conftest import TRAIN, Habit
from outlay.bundles.decide import Bundle
from outlay.choosing.run import Run
from outlay.core.transitions import Transitions
from outlay.jobs.allocate import allocate_users
from outlay.jobs.score import score
from outlay.serve.clock import EPOCH, Clock
from telling import missing

ASKED = 60  # users who come to the server


def dated(table: Any) -> Any:
    """The log with dates, its last day the one before the server's first."""
    days = [EPOCH + datetime.timedelta(FIRST - 7 + day) for day in table["day"].to_pylist()]
    return table.set_column(table.schema.get_field_index("day"), "day", pa.array(days))


@pytest.fixture(scope="module")
def run(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A third of the rows is missing, so that pasts differ in length; each user's first row never is."""
    folder = tmp_path_factory.mktemp("dated")
    table = pq.read_table(habit.folder / "log.parquet")
    kept = (np.random.default_rng(0).random(len(table)) < 0.67) | (np.asarray(table["day"]) == 0)
    pq.write_table(dated(table.filter(pa.array(kept))), folder / "log.parquet")
    text = habit.campaign.read_text().split("[train]")[0].replace("segment =", "complete = false\nsegment =")
    (folder / "campaign.toml").write_text(text + TRAIN.replace("2000", "300"))
    outlay.prepare(folder / "campaign.toml", folder / "data")
    return outlay.train(folder / "data", folder / "run", method="two-stage", response="din")


@pytest.fixture(scope="module")
def today(run: Run) -> Any:
    """Users of the log and one who is new, with what is known of them today."""
    rng = np.random.default_rng(1)
    users = [*Transitions.open(run.data().folder).user_ids().to_pylist()[: ASKED - 1], "somebody new"]
    return pa.table({"user_id": users, "yesterday": rng.integers(0, 2, ASKED), "level": rng.integers(0, 5, ASKED)})


def scored(bundle: Bundle, today: Any, folder: Path, history: Path) -> list[float]:
    pq.write_table(today, folder / "today.parquet")
    score(bundle, folder / "today.parquet", folder / "scored.parquet", history=history)
    return list(pq.read_table(folder / "scored.parquet")["action"].to_pylist())


def served(client: Client, today: Any, day: int) -> list[dict[str, Any]]:
    questions = [
        {"request_id": f"{day}-{row['user_id']}", "user_id": str(row.pop("user_id")), "features": row}
        for row in today.to_pylist()
    ]
    response = client.post("/v1/decisions", json={"requests": questions})
    assert response.status_code == 200, response.text
    decisions: list[dict[str, Any]] = response.json()["decisions"]
    assert {decision["reason"] for decision in decisions} == {"policy"}
    return decisions


def test_the_bundle_says_what_it_reads_and_the_run_keeps_its_states_counted(run: Run) -> None:
    bundle = outlay.load_bundle(run.bundle)
    assert bundle.history is not None
    assert bundle.schema.names == ("yesterday", "level", *bundle.history.names)
    assert len(bundle.history.lags) == 7
    assert run.data().states is not None
    assert run.campaign.log.history is None
    assert any(not missing(note, "past days", "lags", "[log.history]") for note in run.manifest["notes"])
    assert outlay.evaluate(run).estimates


def test_a_log_and_a_data_folder_give_the_same_decisions(run: Run, today: Any, tmp_path: Path) -> None:
    bundle, log, data = outlay.load_bundle(run.bundle), Path(str(run.data().campaign.source)), run.data().folder
    one = scored(bundle, today, tmp_path, log)
    assert one == scored(bundle, today, tmp_path, data)
    assert len(set(one)) > 1
    tables = []
    for history in (log, data):
        allocate_users(run, tmp_path / "today.parquet", 2.0 * ASKED, tmp_path / "out.parquet", history=history)
        tables.append(pq.read_table(tmp_path / "out.parquet"))
    assert tables[0] == tables[1]
    stranger = today.set_column(0, "user_id", pa.array([f"stranger {i}" for i in range(ASKED)]))
    assert one != scored(bundle, stranger, tmp_path, data)


def test_the_server_decides_as_the_log_of_what_it_did(run: Run, today: Any, tmp_path: Path) -> None:
    """On its first day from the log alone, later from its ledger too; and from the past in a request."""
    log = pq.read_table(run.data().campaign.source, columns=dated_schema().names).cast(dated_schema())
    path, bundle, time = tmp_path / "log.parquet", outlay.load_bundle(run.bundle), Time()
    pq.write_table(log, path)
    reserve = {f"{action:g}": float(action) for action in bundle.actions}
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time), history=path, reserve=reserve) as client:
        for day in range(3):
            time.at(day)
            decisions = served(client, today, day)
            given = [decision["action"] for decision in decisions]
            assert given == scored(bundle, today, tmp_path, path)
            came = np.random.default_rng(day).random(ASKED) < 0.6
            told = [
                {"decision_id": decision["decision_id"], "kind": kind, "event_id": "1"}
                for decision, did in zip(decisions, came.tolist(), strict=True)
                for kind in ("active", "redeemed")
                if did
            ]
            assert client.post("/v1/outcomes", json={"outcomes": told}).status_code == 200
            date = EPOCH + datetime.timedelta(FIRST + day)
            rows = {
                "user_id": today["user_id"].to_pylist(),
                "day": [date] * ASKED,
                "coupon": given,
                "active": came.astype(int),
                "cost": np.where(came, given, 0.0),
            }
            log = pa.concat_tables([log, pa.table(rows).cast(dated_schema())])
            pq.write_table(log, path.with_name("longer.parquet"))
            path = path.with_name("longer.parquet")
        past = log.filter(pc.equal(log["user_id"], today["user_id"][0]))
        own = [
            {
                "days_ago": FIRST + 3 - (row["day"] - EPOCH).days,
                "action": row["coupon"],
                "reward": row["active"],
                "coupon_cost": row["cost"],
            }
            for row in past.to_pylist()
            if FIRST + 3 - (row["day"] - EPOCH).days <= 7
        ]
        time.at(3)
        (row,) = today.slice(0, 1).to_pylist()
        user = row.pop("user_id")
        body = {"request_id": "own", "user_id": str(user), "features": row, "past": own}
        assert client.post("/v1/decisions", json=body).json()["action"] == scored(bundle, today, tmp_path, path)[0]


def dated_schema() -> Any:
    """The columns that a past is read from."""
    return pa.schema(
        {
            "user_id": pa.string(),
            "day": pa.date32(),
            "coupon": pa.float64(),
            "active": pa.float64(),
            "cost": pa.float64(),
        }
    )
