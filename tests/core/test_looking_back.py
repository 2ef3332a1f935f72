"""The view of a log with lags: what training reads of the past is what scoring computes, to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from campaign_files import campaign_file, panel
from outlay.core.errors import CampaignError, LogError
from outlay.core.history import History
from outlay.core.looking_back import LagFields, looking_back, with_lags
from outlay.core.transitions import Transitions
from outlay.jobs.prepare import prepare
from outlay.logs.past_days import UserPast

HISTORY = '[log.history]\ndays = 3\nsummaries = ["mean", "since"]\n'
DELAYS = "[log.delays]\nreward = 2\ncoupon_cost = 1\n"


def gappy(days: int = 8) -> dict[str, list[Any]]:
    """A third of the rows is missing, each user's first row never; in no order."""
    columns = panel(users=60, days=days, seed=3)
    keep = (np.random.default_rng(1).random(len(columns["day"])) < 0.67) | (np.array(columns["day"]) == 0)
    shuffled = np.random.default_rng(2).permutation(np.flatnonzero(keep))
    return {name: [values[i] for i in shuffled] for name, values in columns.items()}


def prepared(folder: Path, tail: str = "", complete: bool = False) -> Transitions:
    folder.mkdir(exist_ok=True)
    path = campaign_file(folder, gappy(), tail=tail, log=f"complete = {str(complete).lower()}", campaign="none = 1.0")
    return prepare(path, folder / "data")


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("tail", ["", HISTORY, DELAYS, HISTORY + DELAYS], ids=["plain", "history", "delays", "both"])
def test_what_is_read_of_the_past_is_what_scoring_computes(tmp_path: Path, tail: str, complete: bool) -> None:
    """From the log and, where all days are ripe, from the DATA folder too."""
    data = prepared(tmp_path, tail, complete)
    seen = with_lags(data, 3)
    history = History.of(seen.campaign)
    assert history is not None
    assert history.days == 3
    assert seen.schema.names[-len(history.names) :] == history.names
    rows = np.random.default_rng(0).permutation(len(data))
    codes, numbers = seen.features(rows)
    assert np.array_equal(codes, data.features(rows)[0])
    assert np.array_equal(numbers[:, : 2 * len(data.schema.numeric)], data.features(rows)[1])
    user = data.user_ids().take(pa.array(data.user[rows]))
    level = np.array(data.schema.categorical[0].values)[codes[:, 0] - 3]
    for place in ("log.parquet", "data")[: 1 if "delays" in tail and "history" not in tail else 2]:
        past = UserPast.read(seen.campaign, tmp_path / place, data.actions)
        table = past.with_features(pa.table({"level": level}), user=user, time=pa.array(data.day[rows]))
        assert np.array_equal(numbers, seen.schema.encode(table).numbers)
    missing = numbers[:, -2 * 3 * len(history.columns) :][:, 1::2]
    assert 0.1 < missing.mean() < 0.9
    assert np.ptp(numbers, axis=0)[-2 * len(history.columns) :: 2].min() > 0


def test_days_that_were_not_ripe_are_not_in_data(tmp_path: Path) -> None:
    data = prepared(tmp_path, DELAYS)
    with pytest.raises(LogError, match=r"days .*not ripe"):
        UserPast.read(with_lags(data, 3).campaign, tmp_path / "data", data.actions)


def test_a_log_that_has_lags_is_left_as_it_is_and_gives_the_same_numbers(tmp_path: Path) -> None:
    data = prepared(tmp_path / "own", '[log.history]\ndays = 3\nsummaries = ["lags"]\n')
    assert with_lags(data, 7) is data
    plain = prepared(tmp_path / "plain")
    lags = LagFields.of(plain.schema, data.campaign, data.schema)
    rows = np.arange(len(data))
    assert np.array_equal(looking_back(plain, lags).features(rows)[1], data.features(rows)[1])
    assert LagFields.of(data.schema, data.campaign, data.schema) is None
    other = prepared(tmp_path / "other", HISTORY)
    assert LagFields.of(plain.schema, other.campaign, other.schema) is None, "means are not single values"


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        ("[log.history]\ndays = 90\n", r"looks back 90 days; .* 60"),
        ('[log.history]\ndays = 3\ncolumns = ["spend"]\n', "summarises 'spend', which DATA does not keep"),
    ],
)
def test_lags_that_data_cannot_tell_are_an_error(tmp_path: Path, tail: str, error: str) -> None:
    with pytest.raises(CampaignError, match=error):
        with_lags(prepared(tmp_path, tail), 7)


def test_a_feature_with_the_name_of_a_past_value_is_an_error(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    field = replace(data.schema.categorical[0], name="reward_lag2")
    with pytest.raises(CampaignError, match="lists 'reward_lag2'"):
        with_lags(replace(data, schema=replace(data.schema, categorical=(field,))), 7)
