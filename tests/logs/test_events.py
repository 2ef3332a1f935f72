"""Later outcomes in a table of their own: each is credited to the row that brought it, or counted."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from campaign_files import campaign_file
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError, OutlayError
from outlay.core.transitions import Transitions
from outlay.jobs.check import check
from outlay.jobs.prepare import prepare
from outlay.logs.past_days import UserPast

TAIL = """
[log.delays]
coupon_cost = 3
reward = 2
[log.events]
source = "events.parquet"
user = "who"
time = "at"
[log.events.outcomes]
coupon_cost = "paid"
reward = "bought / 2"
"""
DAYS, USERS = 9, 40


def tables(seed: int = 0) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """A log with gaps, shuffled, and events that come with the log, before it, after it and of nobody."""
    rng = np.random.default_rng(seed)
    places = [(u, d) for u in range(USERS) for d in range(DAYS) if d == 2 or rng.random() < 0.6]
    places = [places[i] for i in rng.permutation(len(places))]
    n, m = len(places), 300
    log = {
        "user_id": [f"u{u}" for u, _ in places],
        "day": [d for _, d in places],
        "level": rng.integers(0, 3, n).tolist(),
        "coupon": rng.integers(0, 3, n).astype(float).tolist(),
        "active": rng.integers(0, 2, n).tolist(),
        "number": [f"d{i}" for i in range(n)],
    }
    events = {
        "who": [None if u == USERS else f"u{u}" for u in rng.integers(0, USERS + 3, m)],
        "at": rng.integers(-2, DAYS + 4, m).tolist(),
        "paid": np.where(rng.random(m) < 0.4, np.nan, rng.integers(0, 9, m) / 7).tolist(),
        "bought": rng.integers(0, 3, m).tolist(),
        "order_of": [f"d{i}" for i in rng.integers(0, n + 30, m)],
    }
    return log, events


def prepared(
    folder: Path, log: dict[str, Any], events: dict[str, Any], tail: str = TAIL, more: str = ""
) -> Transitions:
    return prepare(written(folder, log, events, tail, more), folder / "data")


def written(folder: Path, log: dict[str, Any], events: dict[str, Any], tail: str = TAIL, more: str = "") -> Path:
    pq.write_table(pa.table(events), folder / "events.parquet")
    return campaign_file(folder, log, tail=tail, campaign="none = 0.0", log=f"complete = false\n{more}")


def by_hand(log: dict[str, Any], events: dict[str, Any]) -> tuple[dict[tuple[str, int], list[float]], list[int]]:
    """Reward and cost of every row, and how many values there are, match no row and come too late."""
    outcome = {
        (u, d): [float(active), coupon * active]
        for u, d, active, coupon in zip(log["user_id"], log["day"], log["active"], log["coupon"], strict=True)
    }
    coupon = {(u, d): c for u, d, c in zip(log["user_id"], log["day"], log["coupon"], strict=True)}
    counts = [0, 0, 0]
    for who, at, paid, bought in zip(*(events[name] for name in ("who", "at", "paid", "bought")), strict=True):
        for head, value, delay in ((0, bought / 2, 2), (1, paid, 3)):
            if value == 0 or np.isnan(value):
                continue
            days = [d for (u, d) in outcome if u == who and d <= at and (head == 0 or coupon[u, d] != 0)]
            late = bool(days) and at - max(days) > delay
            counts = [counts[0] + 1, counts[1] + (not days), counts[2] + late]
            if days and not late:
                outcome[who, max(days)][head] += value
    return outcome, counts


def found_in(data: Transitions) -> dict[tuple[str, int], list[float]]:
    user = np.asarray(data.user)
    names, days = data.user_ids().to_pylist(), data.first_times()[user] + np.asarray(data.day)
    return {(names[u], int(d)): each for u, d, each in zip(user, days, np.asarray(data.outcome).tolist(), strict=True)}


@pytest.mark.parametrize("seed", range(3))
def test_events_are_credited_as_a_loop_over_them_does(tmp_path: Path, seed: int) -> None:
    """Also those of rows that are not ripe, which are then left out: outcomes were collected until the last event."""
    log, events = tables(seed)
    wanted, counts = by_hand(log, events)
    data = prepared(tmp_path, log, events)
    found, last = found_in(data), max(events["at"])
    assert found.keys() == {place for place in wanted if place[1] <= last - 3}
    for place, each in found.items():
        assert each == pytest.approx(wanted[place], rel=1e-6), place
    told = data.manifest.events
    assert [told[name] for name in ("events", "unmatched", "late")] == counts
    assert min(counts) > 0
    again = prepared(tmp_path, log, events)
    assert again.manifest.data_hash == data.manifest.data_hash


def test_events_may_name_their_decision(tmp_path: Path) -> None:
    log, events = tables()
    events["number"] = events.pop("order_of")
    tail = TAIL.replace('user = "who"', 'decision = "number"')
    data = prepared(tmp_path, log, events, tail)
    place = {name: (u, d) for name, u, d in zip(log["number"], log["user_id"], log["day"], strict=True)}
    wanted = {(u, d): float(a) for u, d, a in zip(log["user_id"], log["day"], log["active"], strict=True)}
    for name, at, bought in zip(events["number"], events["at"], events["bought"], strict=True):
        if name in place and 0 <= at - place[name][1] <= 2:
            wanted[place[name]] += bought / 2
    found = found_in(data)
    assert {key: each[0] for key, each in found.items()} == {key: pytest.approx(wanted[key]) for key in found}
    log["number"][3] = log["number"][5]
    with pytest.raises(LogError, match=r"log\.events\.decision: 2 rows .*'d5'"):
        prepared(tmp_path, log, events, tail)


def test_users_may_be_numbers_in_one_table_and_text_in_the_other(tmp_path: Path) -> None:
    log, events = tables()
    wanted = found_in(prepared(tmp_path, log, events))
    log["user_id"] = [int(name[1:]) for name in log["user_id"]]
    events["who"] = [None if name is None else name[1:] for name in events["who"]]
    found = found_in(prepared(tmp_path, log, events))
    assert {(f"u{user}", day): each for (user, day), each in found.items()} == wanted


def test_times_may_be_dates_and_events_csv(tmp_path: Path) -> None:
    log, events = tables()
    wanted = found_in(prepared(tmp_path, log, events))
    first = datetime.date(2027, 3, 1)
    log["day"] = [first + datetime.timedelta(day) for day in log["day"]]
    path = written(tmp_path, log, events, TAIL.replace("parquet", "csv"))
    with pytest.raises(OutlayError, match=r"events\.csv.*: does not exist.*log\.events\.source"):
        prepare(path, tmp_path / "data")
    pacsv.write_csv(pa.table(events), tmp_path / "events.csv")
    with pytest.raises(CampaignError, match=r"log\.events\.time: .*numbers, .*dates"):
        prepare(path, tmp_path / "data")
    events["at"] = [first + datetime.timedelta(day) for day in events["at"]]
    pacsv.write_csv(pa.table(events), tmp_path / "events.csv")
    found = found_in(prepare(path, tmp_path / "data"))
    assert {
        (user, day - (first - datetime.date(1970, 1, 1)).days): each for (user, day), each in found.items()
    } == wanted


def test_check_says_what_is_not_credited(tmp_path: Path) -> None:
    log, events = tables()
    [found] = [each for each in check(written(tmp_path, log, events)).findings if each.where == "log.events"]
    _, counts = by_hand(log, events)
    assert (found.level, found.count) == ("warning", counts[1] + counts[2])
    assert f"{sum(counts) - 2 * (counts[1] + counts[2])} of {counts[0]} later outcomes" in found.message
    assert f"{counts[1]} match no row and {counts[2]} came later" in found.message


def test_the_past_of_a_data_folder_has_the_credited_values(tmp_path: Path) -> None:
    """Those of rows that are not ripe too: a value counts from when its own delay is over."""
    log, events = tables()
    data = prepared(tmp_path, log, events, TAIL + "[log.history]\ndays = 6\n", more="as_of = 9")
    assert data.manifest.last_time == 6
    past = UserPast.read(data.campaign, tmp_path / "data", data.actions)
    assert past.next_time == DAYS
    wanted, _ = by_hand(log, events)
    users = pa.array([f"u{u}" for u in range(USERS)])
    found = past.with_features(pa.table({"user": users}), user=users)
    for user, reward, cost in zip(
        users.to_pylist(), found["reward_last_6d"].to_pylist(), found["coupon_cost_last_6d"].to_pylist(), strict=True
    ):
        days = sorted(d for u, d in wanted if u == user)
        for head, delay, value in ((0, 2, reward), (1, 3, cost)):
            known = [d for d in days if 6 >= DAYS - d > delay]
            last = wanted[user, known[-1]][head] if known else np.nan
            assert value == pytest.approx(last, rel=1e-6, nan_ok=True)
    with pytest.raises(LogError, match="Give a DATA folder"):
        UserPast.read(data.campaign, tmp_path / "log.parquet", data.actions)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('time = "at"', 'time = "day"', "no column 'day'"),
        ('user = "who"', "", "one of user and decision"),
        ('coupon_cost = "paid"', 'coupon_costs = "paid"', "Did you mean 'coupon_cost'"),
        ('coupon_cost = "paid"', 'coupon_cost = "who"', "is not a number"),
        ("reward = 2", "", r"log\.delays .*how much later"),
        ('user = "who"', 'decision = "user_id"', "events.parquet has no column 'user_id'"),
        ('"who"', "\"'x' || who\"", r"\b0 of \d+ .*users and times"),
        ('coupon_cost = "paid"\nreward = "bought / 2"', "", r"log.events.outcomes: is {}; expected: at least 1"),
        ("events.parquet", "none/*.parquet", r"matches no file. Fix log.events.source"),
        ('"bought / 2"', '"sum(bought)"', r"log\.events\.outcomes\.reward: .*one value"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, old: str, new: str, error: str) -> None:
    assert old in TAIL
    with pytest.raises(OutlayError, match=error):
        prepared(tmp_path, *tables(), TAIL.replace(old, new, 1))


def test_bundles_keep_no_place_of_events(tmp_path: Path) -> None:
    from outlay.bundles.write import _campaign

    path = written(tmp_path, *tables())
    content = _campaign(Campaign.load(path))
    assert content["log"]["events"]["source"] == "unknown"
    assert content["log"]["delays"] == {"coupon_cost": 3, "reward": 2}


def test_a_table_without_events_is_refused(tmp_path: Path) -> None:
    log, events = tables()
    with pytest.raises(LogError, match=r"events\.parquet, log\.events\.source: .*no rows.*log\.events"):
        prepared(tmp_path, log, {name: pa.array(values[:0], pa.array(values).type) for name, values in events.items()})
