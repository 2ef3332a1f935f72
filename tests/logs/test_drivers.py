"""The calendar and every column of the log are looked at: what drives actions is found, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from campaign_files import campaign_file
from outlay.core.assignment import Assignment, Driver
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError
from outlay.core.transitions import CERTIFY
from outlay.estimators.balance import balance_check
from outlay.estimators.panel import Panel
from outlay.jobs.check import check
from outlay.jobs.evaluate import evaluate
from outlay.jobs.prepare import prepare
from outlay.logs.drivers import assignment
from outlay.logs.quality import inspect
from outlay.logs.reading import used
from outlay.logs.roles import link, open_log
from policy_files import policy_file

STATED, DECLARED = 'propensity = "p"', "randomised = true"
Columns = dict[str, Any]


def driven(path: Path) -> Assignment:
    campaign = Campaign.load(path)
    with tempfile.TemporaryDirectory() as folder, open_log(campaign, Path(folder)) as log:
        link(log)
        return assignment(log, inspect(log))


def names(path: Path) -> set[str]:
    return {driver.name for driver in driven(path).drivers}


def drawn(seed: int, users: int, days: int, policy: str = "even") -> Columns:
    """A row per user and day with columns of all kinds that nothing drives the actions by, and exact propensities.

    `policy` is `even`, `rare` (most get the first coupon), `kept` (drawn once for a user) or `level` (by features).
    """
    rng = np.random.default_rng(seed)
    n = users * days
    age, city = rng.integers(18, 80, users).repeat(days), rng.integers(0, 40, users).repeat(days)
    level, yesterday = rng.integers(0, 4, n), rng.integers(0, 2, n)
    chance = np.full((n, 4), 0.25)
    if policy == "rare":
        chance = np.tile([0.9, 0.05, 0.03, 0.02], (n, 1))
    if policy == "level":
        chance = np.exp(np.stack([1.5 * yesterday, 0 * level, 0.8 * level, yesterday - 0.5 * level], axis=1))
        chance /= chance.sum(axis=1, keepdims=True)
    action = (chance.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, 3)
    if policy == "kept":
        action = action[::days].repeat(days)
    return {
        "user_id": np.arange(users).repeat(days),
        "day": np.tile(np.arange(days), users),
        "level": level,
        "yesterday": yesterday,
        "coupon": action.astype(float),
        "p": chance[np.arange(n), action],
        "active": rng.integers(0, 2, n),
        "age": age,
        "city": np.char.add("c", city.astype(str)),
        "joined": [f"2026-0{1 + a % 9}-{1 + a % 28:02d}" for a in age],
        "noise": rng.normal(size=n),
        "heavy": rng.lognormal(0, 2, n),
        "rare": (rng.random(n) < 0.01).astype(int),
        "one": np.ones(n),
        "code": np.char.add("k", rng.integers(0, 3000, n).astype(str)),
        "offer": np.char.add("arm ", action.astype(str)),
    }


def by_wave(seed: int, *, spread: float = 0.2, users: int = 2000, days: int = 1) -> Columns:
    """Two actions; the share of the second goes from 0.3 − `spread` to 0.3 + `spread` over waves that follow dates."""
    rng = np.random.default_rng(seed)
    columns, n = drawn(seed, users, days), users * days
    wave = (np.arange(users) * 8 // users).repeat(days)
    treated = rng.random(n) < 0.3 + spread * (wave / 3.5 - 1)
    columns |= {
        "coupon": treated.astype(float),
        "p": np.where(treated, 0.3, 0.7),
        "offer": np.zeros(n),
        "wave": np.char.add("w", wave.astype(str)),
        "date": [f"{2 + w:02d}.03.2026" for w in wave],
    }
    return columns


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize(
    ("users", "days"),
    [(300, 1), pytest.param(2000, 1, marks=pytest.mark.slow), (500, 7), pytest.param(5000, 3, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("policy", ["even", "rare", "kept", "level"])
def test_nothing_is_found_where_nothing_drives_the_actions(
    tmp_path: Path, policy: str, users: int, days: int, stated: bool
) -> None:
    columns = drawn(int(stated), users, days, policy)
    if not stated:
        del columns["p"]
    path = campaign_file(tmp_path, columns, log=STATED if stated else DECLARED, categorical='["level", "yesterday"]')
    assert driven(path).drivers == ()


@pytest.mark.parametrize("log", [STATED, DECLARED])
def test_a_stratum_and_a_date_that_are_left_out_are_found(tmp_path: Path, log: str) -> None:
    columns = by_wave(1)
    if log == DECLARED:
        del columns["p"]
    path = campaign_file(tmp_path, columns, log=log)
    found = driven(path)
    # Users are numbered in the order in which they came, but an id is a role.
    assert {driver.name for driver in found.drivers} == {"wave", "date"}
    assert found.drivers[0].role == "column"
    assert found.drivers[0].strength == pytest.approx(np.std(0.2 * (np.arange(8) / 3.5 - 1)) / np.sqrt(0.21), abs=0.05)
    assert "[log.features]" in found.way_out
    assert TypeAdapter(Assignment).validate_python(found.to_dict()) == found


def test_the_calendar_is_found(tmp_path: Path) -> None:
    columns = by_wave(2, days=4)
    rng = np.random.default_rng(2)
    treated = rng.random(len(columns["day"])) < 0.2 + 0.1 * columns["day"]
    columns |= {"coupon": treated.astype(float), "p": np.where(treated, 0.35, 0.65)}
    assert names(campaign_file(tmp_path, columns, log=STATED)) == {"log.time"}
    del columns["p"]
    assert names(campaign_file(tmp_path, columns, log=DECLARED)) == {"log.time"}
    assert names(campaign_file(tmp_path, columns, log=DECLARED, numeric='["day"]')) == set()


def test_features_explain_what_they_say_and_stated_propensities_must_say_it_too(tmp_path: Path) -> None:
    columns = by_wave(3)
    assert names(campaign_file(tmp_path, columns, log=STATED, categorical='["wave"]')) == {"wave", "date"}
    del columns["p"]
    assert names(campaign_file(tmp_path, columns, log=DECLARED, categorical='["wave"]')) == set()


def test_what_follows_from_the_action_is_named_as_an_outcome_or_used_in_a_role(tmp_path: Path) -> None:
    columns, rng = drawn(4, 3000, 2), np.random.default_rng(4)
    columns["visited"] = (rng.random(6000) < 0.2 + 0.1 * columns["coupon"]).astype(int)
    columns["spend"] = columns["coupon"] * columns["active"]
    assert names(campaign_file(tmp_path, columns, log=STATED)) == {"visited", "spend"}
    assert names(campaign_file(tmp_path, columns, log=f'{STATED}\noutcomes = ["visited", "spend"]')) == set()
    path = campaign_file(tmp_path, columns, log=f'{STATED}\noutcomes = ["visited"]')
    path.write_text(path.read_text().replace("coupon * active", "spend + 0 * coupon"))
    assert names(path) == set()


def test_an_outcome_is_no_feature(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="which is a feature"):
        Campaign.load(campaign_file(tmp_path, drawn(0, 100, 1), log='outcomes = ["level"]'))


def test_an_action_by_weekday_is_told_as_the_calendar_also_where_everybody_begins_on_one_day(tmp_path: Path) -> None:
    """Yesterday's action then says which day it is: that is no reason to look at first days alone, a day of which."""
    columns, rng = drawn(3, 500, 14), np.random.default_rng(4)
    weekend = np.isin(columns["day"] % 7, [5, 6])
    columns["coupon"] = np.where(rng.random(7000) < 0.8, weekend, rng.integers(0, 2, 7000)).astype(float)
    columns |= {"p": np.full(7000, 0.5), "offer": np.zeros(7000)}
    assert "log.time" in names(campaign_file(tmp_path, columns, log=STATED))


def test_columns_in_expressions() -> None:
    columns = ["spend", "spend today", "Kind", "other"]
    assert used("spend", columns) == {"spend"}
    assert used("case when kind = 'other' then 1 else \"spend today\" end", columns) == {"spend today", "Kind"}


def test_prepare_carries_it_and_nothing_is_balanced(tmp_path: Path) -> None:
    """Whatever the users did before; and `check` says so."""
    path = campaign_file(tmp_path, by_wave(5, days=2), log=STATED, campaign="horizon_days = 1\nreport_days = [1]")
    data = prepare(path, tmp_path / "data")
    panel = Panel.of(data, CERTIFY)
    assert panel.propensity is not None
    found = balance_check(panel, panel.day, None, panel.propensity)
    assert found.ok is False
    assert found.refused is not None
    assert "'wave'" in found.refused.words
    assert data.manifest.assignment is not None
    assert "'wave'" in data.manifest.assignment.words
    report = check(path)
    assert {"column wave", "column date"} <= {finding.where for finding in report.findings}
    assert report.randomisation is not None
    assert not report.randomisation.looks_randomised
    assert report.assignment is not None
    assert all(isinstance(driver, Driver) for driver in report.assignment.drivers)


def test_no_figure_of_another_policy_is_relied_on_then_and_the_old_policy_is_as_observed(tmp_path: Path) -> None:
    columns = by_wave(5)
    path = campaign_file(tmp_path, columns, log=STATED, campaign="horizon_days = 1\nreport_days = [1]")
    data = prepare(path, tmp_path / "data")
    always = np.tile([0.0, 1.0], (len(columns["day"]), 1))
    policy = policy_file(tmp_path / "policy.parquet", pa.table(columns), data.actions, always)
    found = evaluate(data, policy=policy)
    assert not found.certificate.certified
    assert not any(e.recommended for e in found.estimates if e.estimator == "fqe")
    old = [e for e in found.beside if (e.policy, e.estimator) == ("old", "fqe") and e.value is not None]
    assert old
    assert all(e.recommended for e in old)


def test_dates_of_any_year_are_looked_at(tmp_path: Path) -> None:
    """Logs write 20000-01-01 for "never": a year that datetime does not know."""
    columns = drawn(0, 400, 2)
    never = np.random.default_rng(1).random(len(columns["day"])) < 0.3
    columns["ended"] = np.where(never, np.datetime64("20000-01-01", "us"), np.datetime64("2026-03-01", "us"))
    assert names(campaign_file(tmp_path, columns, log=STATED)) == set()
    columns["ended"] = np.where(np.array(columns["coupon"]) == 1, *np.array(["20000-01-01", "2026-03-01"], "M8[us]"))
    assert "ended" in names(campaign_file(tmp_path, columns, log=STATED))
