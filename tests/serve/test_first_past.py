"""`outlay serve --history`: what was known of users before the ledger began, and the ledger's later days on top."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_pasts import FIRST, Time, campaign, write_past_bundle
from small_servers import ADMIN, RESERVE, Client, server
from small_trials import START, trial
from test_ledger_past import decide, report, seen

from outlay.core.errors import LogError, OutlayError
from outlay.serve.application import ServerOptions
from outlay.serve.clock import EPOCH, Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.launch import serve


def written(path: Path, rows: list[tuple[str, int, float, float, float]]) -> Path:
    """A log of users, days since FIRST, coupons, active and spend."""
    user, day, coupon, active, spend = zip(*rows, strict=True)
    dates = [EPOCH + datetime.timedelta(FIRST + each) for each in day]
    columns: dict[str, Any] = {"user_id": user, "day": dates, "coupon": coupon, "active": active, "spend": spend}
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [("ann", -9, 3.0, 1.0, 5.0), ("ann", -2, 1.5, 1.0, 7.0), ("bob", -1, 0.0, 0.0, 2.0), ("cid", -9, 0, 1, 1)]
    return written(tmp_path / "log.parquet", rows)


@pytest.mark.parametrize("complete", [False, True])
def test_what_the_log_knew_comes_first_and_then_the_ledger(tmp_path: Path, log: Path, complete: bool) -> None:
    bundle = write_past_bundle(tmp_path / "bundle", campaign=campaign(complete=complete))
    time = Time()
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time), history=log) as client:
        first = decide(client, 0)
        found = seen(client, first)
        assert (found["history_days"], found["spend_last_4d"]) == (4 if complete else 1, 7)
        assert (found["reward_since_4d"], found["spend_mean_4d"]) == (2, 7)
        assert seen(client, decide(client, 1, user="bob"))["history_days"] == 1
        assert seen(client, decide(client, 2, user="cid"))["history_days"] == (4 if complete else 0)
        assert seen(client, decide(client, 3, user="dan"))["history_days"] == 0
        report(client, first, "active")
        time.at(1)
        found = seen(client, decide(client, 4))
        assert (found["reward_last_4d"], found["spend_last_4d"], found["spend_mean_4d"]) == (1, 12.5, 9.75)
        time.at(3)
        assert seen(client, decide(client, 5))["spend_mean_4d"] == 12.5  # the log's day is out of reach


def test_a_day_that_both_know_is_the_ledgers(tmp_path: Path) -> None:
    log = written(tmp_path / "log.parquet", [("ann", 0, 3.0, 1.0, 5.0)])
    time = Time()
    bundle = write_past_bundle(tmp_path / "bundle")
    with server(bundle, tmp_path / "ledger.db", clock=Clock("UTC", time), history=log) as client:
        decide(client, 0)
        time.at(1)
        found = seen(client, decide(client, 1))
        assert (found["history_days"], found["spend_last_4d"], found["reward_last_4d"]) == (1, 12.5, 0)


def test_bundles_of_other_histories_read_it_for_themselves(tmp_path: Path, log: Path) -> None:
    """One that comes into service, and the arm of a test."""
    other = write_past_bundle(tmp_path / "other", 4, campaign(days=14, columns=("spend",)))
    time = Time()
    with server(
        write_past_bundle(tmp_path / "bundle"), tmp_path / "ledger.db", clock=Clock("UTC", time), history=log
    ) as client:
        assert client.post("/v1/admin/bundle", json={"path": str(other)}, headers=ADMIN).status_code == 200
        assert seen(client, decide(client, 0))["spend_mean_14d"] == 6


def test_arms_summarise_for_themselves(tmp_path: Path) -> None:
    days = (START - EPOCH).days - FIRST
    log = written(tmp_path / "log.parquet", [(f"u{i}", days - 1, 3.0, 1.0, float(i)) for i in range(40)])
    other = write_past_bundle(tmp_path / "other", 4, campaign(days=2, columns=("spend", "reward")))
    time = Time()
    time.at(days)
    test = trial(tmp_path, other, ramp=[{"day": 0, "coverage": 1.0}])

    def own(client: Client, user: int) -> tuple[str, set[str]]:
        answer = decide(client, user, f"u{user}")
        found = seen(client, answer)
        assert {value for name, value in found.items() if name.startswith("spend_last")} == {user}
        return answer["arm"], {name for name in found if name.startswith("spend_last")}

    with server(
        write_past_bundle(tmp_path / "bundle"),
        tmp_path / "ledger.db",
        clock=Clock("UTC", time),
        history=log,
        experiment=test,
        caps={"total": 1e5},
    ) as client:
        arms = [own(client, user) for user in range(40)]
    assert {arm for arm, _ in arms} == {"old", "new", "even", "nobody", "policy"}
    assert all(names == {"spend_last_2d" if arm == "new" else "spend_last_4d"} for arm, names in arms)


def test_times_that_are_no_dates_are_an_error(tmp_path: Path) -> None:
    columns = {"user_id": ["ann"], "day": [3], "coupon": [0.0], "active": [1.0], "spend": [1.0]}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    bundle = write_past_bundle(tmp_path / "bundle")
    with pytest.raises(LogError, match="its times end with 3, which is no date"):
        prepare_bundle(bundle, ServeConfig.parse({"reserve": RESERVE}), history=tmp_path / "log.parquet")


def test_a_history_that_no_policy_looks_at_is_an_error(bundle: Any, log: Path, tmp_path: Path) -> None:
    config = ServeConfig.parse({"reserve": RESERVE})
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    with pytest.raises(OutlayError, match="the policy looks at no past days"):
        serve(ServerOptions(bundle=bundle.folder, ledger=ledger, config=config, history=log))
