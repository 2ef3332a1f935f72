"""The user's past as features: prepare, a log and a DATA folder give the same values, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from campaign_files import campaign_file, panel
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError
from outlay.core.transitions import Transitions
from outlay.jobs.prepare import prepare
from outlay.logs.past_days import UserPast

HISTORY = "[log.history]\ndays = 3\n"


def prepared(
    folder: Path, columns: dict[str, Any], history: str = HISTORY, log: str = "complete = false", **settings: Any
) -> Transitions:
    path = campaign_file(folder, columns, tail=history, log=log, **settings)
    return prepare(path, folder / "data")


def gappy(days: int = 6) -> dict[str, list[Any]]:
    """A third of the rows is missing, each user's first row never."""
    columns = panel(users=60, days=days, seed=3)
    keep = (np.random.default_rng(1).random(len(columns["day"])) < 0.67) | (np.array(columns["day"]) == 0)
    shuffled = np.random.default_rng(2).permutation(np.flatnonzero(keep))
    return {name: [values[i] for i in shuffled] for name, values in columns.items()}


def summaries(data: Transitions, names: tuple[str, ...]) -> np.ndarray[Any, Any]:
    at = [i for i, field in enumerate(data.schema.numeric) if field.name in names]
    return np.asarray(data.number_columns)[:, [2 * i + j for i in at for j in (0, 1)]]


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("source", ["log", "data"])
def test_scoring_sees_late_outcomes_as_training_does(tmp_path: Path, complete: bool, source: str) -> None:
    """Rewards come up to 2 days later. What is scored from the log of a morning is what a later DATA has."""
    columns = gappy(days=9)
    day = np.array(columns["day"])
    history = HISTORY + "[log.delays]\nreward = 2\ncoupon_cost = 1\n"
    settings = {"log": f"complete = {str(complete).lower()}", "campaign": "none = 1.0"}
    data = prepared(tmp_path, columns, history, **settings)
    (tmp_path / "then").mkdir()
    ids = {name: i for i, name in enumerate(data.user_ids().to_pylist())}
    place = {pair: row for row, pair in enumerate(zip(data.user.tolist(), data.day.tolist(), strict=True))}
    for today in (4, 6):
        half = np.where(day >= today - 1, 7.0, np.array(columns["active"]))  # known in part, as they may still change
        then = {name: np.array(values)[day < today] for name, values in (columns | {"active": half}).items()}
        earlier = prepared(tmp_path / "then", then, history, **settings)
        place_of = tmp_path / "then" / ("log.parquet" if source == "log" else "data")
        past = UserPast.read(data.campaign, place_of, data.actions)
        assert past.next_time == today
        assert earlier.manifest.last_time == today - 3
        now = np.flatnonzero(day == today)
        rows = pa.table({"user_id": [columns["user_id"][i] for i in now], "level": [columns["level"][i] for i in now]})
        encoded = data.schema.encode(past.with_features(rows, user=rows["user_id"]))
        at = [place[ids[user], today] for user in rows["user_id"].to_pylist()]
        assert np.array_equal(encoded.numbers, np.asarray(data.number_columns)[at])


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("source", ["log", "data"])
@pytest.mark.parametrize(
    "history", [HISTORY, '[log.history]\nfeatures = ["sum(reward) over 4 days", "since(action) over 2 days"]\n']
)
def test_scoring_sees_what_training_saw(tmp_path: Path, complete: bool, source: str, history: str) -> None:
    """Every row of the log, decided from a table of rows and the past, has the numbers that DATA has."""
    columns = gappy()
    log = "complete = true" if complete else "complete = false"
    data = prepared(tmp_path, columns, history, log, campaign="none = 1.0", numeric='["spend"]')
    past = UserPast.read(data.campaign, tmp_path / ("log.parquet" if source == "log" else "data"), data.actions)
    rows = pa.table(columns)
    table = past.with_features(rows, user=rows["user_id"], time=rows["day"])
    encoded = data.schema.encode(table)
    ids = {name: i for i, name in enumerate(data.user_ids().to_pylist())}
    place = {pair: row for row, pair in enumerate(zip(data.user.tolist(), data.day.tolist(), strict=True))}
    at = [place[ids[user], day] for user, day in zip(columns["user_id"], columns["day"], strict=True)]
    assert np.array_equal(encoded.numbers, np.asarray(data.number_columns)[at])
    assert past.history.names[0] == "history_days"
    assert np.ptp(summaries(data, past.history.names), axis=0).max() > 0
    assert (len(data) > len(at)) == complete


def test_without_a_time_rows_are_for_the_day_after_the_last(tmp_path: Path) -> None:
    columns = gappy()
    data = prepared(tmp_path, columns)
    past = UserPast.read(data.campaign, tmp_path / "log.parquet", data.actions)
    rows = pa.table({"user_id": ["u1", "nobody"]})
    found = past.with_features(rows, user=rows["user_id"])
    later = past.with_features(rows, user=rows["user_id"], time=pa.array([6, 6]))
    for name in past.history.names:
        assert np.array_equal(found[name], later[name], equal_nan=True)
    assert found["history_days"].to_pylist()[1] == 0


def test_lags_are_the_last_numbers_each_day_together(tmp_path: Path) -> None:
    history = '[log.history]\ndays = 3\ncolumns = ["reward", "spend"]\nsummaries = ["lags", "mean"]\n'
    data = prepared(tmp_path, gappy(), history, numeric='["spend"]')
    read = [field.name for field in data.schema.numeric[-6:]]
    assert read == [f"{column}_lag{lag}" for lag in (1, 2, 3) for column in ("reward", "spend")]
    assert data.number_columns.shape[1] == 2 * len(data.schema.numeric)


def test_a_feature_may_be_summarised_but_not_from_a_data_folder(tmp_path: Path) -> None:
    data = prepared(tmp_path, gappy(), '[log.history]\ndays = 2\ncolumns = ["spend", "spend * 2"]\nsummaries = ["sum"]')
    assert data.schema.names[-3:] == ("history_days", "spend_sum_2d", "spend * 2_sum_2d")
    scales = [field.scale for field in data.schema.numeric[-2:]]
    assert scales[1] == pytest.approx(2 * scales[0], rel=1e-6)
    with pytest.raises(LogError, match="keeps no 'spend'"):
        UserPast.read(data.campaign, tmp_path / "data", data.actions)


@pytest.mark.parametrize(
    ("history", "error"),
    [
        ("[log.history]\ndays = 0", "is 0; expected: above 0"),
        ("[log.history]\nday = 3", "unknown key"),
        ('[log.history]\nsummaries = ["mean", "median"]', "expected: 'mean'"),
        ('[log.history]\nsummaries = ["mean", "mean"]', "lists .'mean'. twice"),
        ("[log.history]\ncolumns = []", "columns is empty"),
        ('[log.history]\ncolumns = ["basket"]', "no column 'basket'"),
        ('[log.history]\nfeatures = ["total(spend) over 3 days"]', "expected: a summary over 1 to 365 days, as 'sum"),
        ('[log.history]\nfeatures = ["sum(spend) over 900 days"]', "lists 'sum.spend. over 900 days'"),
        ('[log.history]\nfeatures = ["sum(basket) over 3 days"]', "no column 'basket'"),
        ('[log.history]\nfeatures = ["sum(spend) over 3 days"]\ndays = 4', "features and days are given"),
        ('[log.history]\nfeatures = ["sum(spend) over 3 days", "sum(spend) over 3 days"]', "lists .* twice"),
        ("[log.history]\nfeatures = []", "features is empty"),
        ('[train]\nencoder = "convolution"', r"train: encoder is 'convolution'.*encoder_width"),
    ],
)
def test_a_wrong_history_is_one_error(tmp_path: Path, history: str, error: str) -> None:
    with pytest.raises(CampaignError, match=error):
        prepared(tmp_path, panel(), history)


def test_summaries_that_the_log_holds_are_taken_where_they_are_known(tmp_path: Path) -> None:
    history = '[log.history]\ndays = 3\ncolumns = ["reward"]\nsummaries = ["sum"]\n'
    columns = panel()
    computed = prepared(tmp_path, columns, history)
    odd = np.arange(len(columns["day"])) % 2 == 1
    held = {"history_days": [2.0 if each else None for each in odd], "reward_sum_3d": [np.nan] * len(odd)}
    for name in ("held", "without"):
        (tmp_path / name).mkdir()
    data = prepared(tmp_path / "held", columns | held, history + "recorded = true")
    for found, expected in (
        (_raw(data, odd), [2.0, np.nan] * int(odd.sum())),
        (_raw(data, ~odd), _raw(computed, ~odd).ravel().tolist()),
    ):
        assert found.ravel() == pytest.approx(expected, abs=1e-5, nan_ok=True)
    with pytest.raises(CampaignError, match=r"no column 'history_days'"):
        prepared(tmp_path / "without", columns, history + "recorded = true")


def _raw(data: Transitions, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The two summaries of some rows of the log as they were before they were scaled."""
    numbers = np.asarray(data.number_columns)[rows][:, -4:].astype(np.float64)
    values = [numbers[:, 2 * i] * f.scale + f.mean for i, f in enumerate(data.schema.numeric[-2:])]
    return np.where(numbers[:, 1::2] > 0, np.nan, np.stack(values, axis=1))


def test_a_feature_with_the_name_of_a_summary_is_an_error(tmp_path: Path) -> None:
    columns = panel()
    columns["history_days"] = columns["day"]
    with pytest.raises(CampaignError, match="makes a feature 'history_days'"):
        prepared(tmp_path, columns, numeric='["history_days"]', log='propensity = "p"')


def test_a_past_that_repeats_a_day_or_has_none_is_an_error(tmp_path: Path) -> None:
    data = prepared(tmp_path, gappy())
    twice = tmp_path / "twice.parquet"
    pq.write_table(pa.table({name: values[:1] * 2 for name, values in gappy().items()}), twice)
    with pytest.raises(LogError, match="1 row repeats a user and time"):
        UserPast.read(data.campaign, twice, data.actions)
    pq.write_table(pq.read_table(twice).drop(["active"]), tmp_path / "lacks.parquet")
    with pytest.raises(LogError, match="no column 'active'"):
        UserPast.read(data.campaign, tmp_path / "lacks.parquet", data.actions)
    plain = Campaign.load(campaign_file(tmp_path, panel()))
    with pytest.raises(LogError, match="looks at no past days"):
        UserPast.read(plain, twice, data.actions)
