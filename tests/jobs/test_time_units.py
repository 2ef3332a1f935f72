"""Logs that do not count days: what a unit of time is called, what is told of it, and rows that lie unevenly."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaign_files import campaign_file
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError, OutlayError
from outlay.core.event_tables import unit_called
from outlay.core.transitions import Transitions
from outlay.core.wording import in_units
from outlay.evaluating.log_check import CheckReport
from outlay.experiments.planning import measure_past
from outlay.experiments.words import NoteKind
from outlay.jobs.check import check
from outlay.jobs.plan_experiment import plan_experiment
from outlay.jobs.plan_log import plan_log
from outlay.jobs.prepare import prepare
from telling import missing

MONDAY = datetime.date(2026, 1, 5)


def rows(times: Callable[[int], Iterable[int]], users: int = 120, *, dates: bool = False) -> dict[str, list[Any]]:
    """A log in which each user has rows at some times; dates count from a Monday."""
    rng = np.random.default_rng(0)
    pairs = [(f"u{u}", t) for u in range(users) for t in times(u)]
    return {
        "user_id": [user for user, _ in pairs],
        "day": [MONDAY + datetime.timedelta(days=t) if dates else t for _, t in pairs],
        "level": rng.integers(0, 3, len(pairs)).tolist(),
        "coupon": rng.integers(1, 4, len(pairs)).astype(float).tolist(),
        "active": rng.integers(0, 2, len(pairs)).tolist(),
    }


def called(columns: dict[str, list[Any]], time: str) -> dict[str, list[Any]]:
    return {time if name == "day" else name: values for name, values in columns.items()}


def in_time(path: Path, time: str, rows: str = "") -> Path:
    path.write_text(path.read_text().replace('time = "day"', f'time = "{time}"') + rows)
    return path


def keys(found: CheckReport) -> set[str]:
    return {each.key for each in found.findings}


def told(found: CheckReport, key: str) -> str:
    return " ".join(f"{each.message} {each.way_out}" for each in found.findings if each.key == key)


def test_a_unit_is_what_the_column_is_called() -> None:
    names = ("week", "week_no", "hours", "decision", "Step", "month", "day", "t", "weekday", "daystep")
    expected = ("week", "week", "hour", "decision", "step", "month", "day", "day", "day", "day")
    assert tuple(map(unit_called, names)) == expected


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("Day one, 7 days, 7-day labels, a day, daily", "week", "Week one, 7 weeks, 7-week labels, a week, weekly"),
        ("a day later; A day", "hour", "an hour later; An hour"),
        ("by day and per day: from day 3 on", "decision", "by decision and per decision: from decision 3 on"),
        (
            "column 'day' and --days 7, days = 14, horizon_days",
            "week",
            "column 'day' and --days 7, days = 14, horizon_days",
        ),
        ("the users' days, today's users and days", "week", "the users' weeks, today's users and weeks"),
        ("more active days in 7 days", "week", "more active days in 7 weeks"),
    ],
)
def test_sentences_are_told_in_another_unit_and_names_are_left(text: str, unit: str, expected: str) -> None:
    assert in_units(text, unit, ["active days"]) == expected


def test_a_log_of_weeks_says_weeks(tmp_path: Path) -> None:
    path = in_time(campaign_file(tmp_path, called(rows(lambda u: range(6) if u else [0, 4, 5]), "week")), "week")
    found = check(path)
    assert found.unit == "week"
    assert not missing(told(found, "log.complete"), "weeks")
    assert "day" not in told(found, "log.complete")
    assert prepare(path, tmp_path / "data").campaign.unit == "week"
    assert Transitions.open(tmp_path / "data").campaign.unit == "week"


def test_dates_are_counted_by_the_week_or_month_where_the_file_says_so(tmp_path: Path) -> None:
    columns = rows(lambda _: range(0, 70, 7), dates=True)
    path = campaign_file(tmp_path, columns, tail='[rows]\nunit = "week"')
    data = prepare(path, tmp_path / "data")
    assert np.array_equal(np.asarray(data.day)[:10], np.arange(10))
    first = columns["day"][0]
    monday = first - datetime.timedelta(days=first.weekday())
    found = check(path)
    assert (found.first, found.last) == (str(monday), str(monday + datetime.timedelta(weeks=9)))
    assert found.by_day[1].first == str(monday + datetime.timedelta(weeks=1))
    assert not data.dates  # its times are whole weeks
    path = campaign_file(tmp_path, rows(lambda _: [0, 31, 60, 91], dates=True), tail='[rows]\nunit = "month"')
    assert np.array_equal(np.asarray(prepare(path, tmp_path / "months").day)[:4], [0, 1, 2, 3])
    assert (check(path).first, check(path).last) == ("2026-01-01", "2026-04-01")


@pytest.mark.parametrize("unit", ["day", "week"])
def test_a_date_beyond_the_calendar_is_shown(tmp_path: Path, unit: str) -> None:
    path = campaign_file(tmp_path, rows(lambda _: range(0, 70, 7), dates=True), tail=f'[rows]\nunit = "{unit}"')
    text = "day + case when user_id = 'u1' then to_years(97000) else to_years(0) end"
    path.write_text(path.read_text().replace('time = "day"', f'time = "cast({text} as date)"'))
    assert str(check(path).last).startswith("99")


def test_times_of_day_are_counted_by_the_hour_in_a_zone(tmp_path: Path) -> None:
    columns = rows(lambda _: range(4))
    start = datetime.datetime(2026, 1, 5, 22, 30, tzinfo=datetime.UTC)
    columns["day"] = [start + datetime.timedelta(hours=t) for t in columns["day"]]
    path = campaign_file(tmp_path, columns, tail='[rows]\nunit = "hour"\nzone = "Europe/Berlin"')
    assert np.array_equal(np.asarray(prepare(path, tmp_path / "data").day)[:4], [0, 1, 2, 3])
    assert check(path).first == "2026-01-05 23:00"  # the hour in Berlin
    path.write_text(path.read_text().replace('"hour"', '"day"'))
    with pytest.raises(LogError, match="repeat a user and time"):  # two rows before midnight in Berlin
        prepare(path, tmp_path / "days")


def test_a_file_that_names_no_unit_is_told_of_it_with_times_of_day(tmp_path: Path) -> None:
    columns = rows(lambda _: range(4))
    columns["day"] = [datetime.datetime(2026, 1, 5, t) for t in columns["day"]]
    with pytest.raises(CampaignError) as caught:
        check(campaign_file(tmp_path, columns))
    assert not missing(str(caught.value), 'unit = "hour" under [rows]')


def test_rows_until_is_for_events_alone(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=r"rows.until"):
        Campaign.load(campaign_file(tmp_path, rows(lambda _: range(3)), tail='[rows]\nuntil = "user"'))


def test_a_file_of_events_takes_no_unit_that_they_have_not(tmp_path: Path) -> None:
    path = campaign_file(
        tmp_path,
        rows(lambda _: range(3)),
        tail='[rows]\nunit = "step"\n[[events]]\nsource = "e.csv"\ntime = "t"\ncolumns = { coupon = "c" }',
    )
    path.write_text(path.read_text().replace('source = "log.parquet"\n', ""))
    with pytest.raises(CampaignError, match=r"rows.unit is 'step'"):
        Campaign.load(path)


def test_a_user_who_stays_away_is_named_with_the_time(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, rows(lambda u: [0, 1, 2, 8, 9] if u % 3 == 0 else range(10)))
    found = check(path)
    assert found.blocks
    assert not missing(told(found, "log.complete"), "user 'u0'", "between 2 and 8", "complete = true")
    assert "log.user" not in keys(found)


def test_rows_that_are_always_a_week_apart_are_warned_of_with_what_they_count(tmp_path: Path) -> None:
    dates = check(campaign_file(tmp_path, rows(lambda _: range(0, 63, 7), dates=True)))
    assert not missing(told(dates, "log.time"), "7 days apart", "0.21 times", 'unit = "week" under [rows]')
    numbers = check(campaign_file(tmp_path, rows(lambda _: range(0, 90, 30))))
    assert not missing(told(numbers, "log.time"), "30 days apart", 'time = "day // 30"')
    assert "log.time" not in keys(check(campaign_file(tmp_path, rows(lambda _: range(9)))))


def test_days_on_which_nobody_has_a_row_are_no_absence_of_users(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, rows(lambda _: [t for t in range(21) if t % 7 < 5], dates=True))
    found = check(path)
    assert not found.blocks
    assert "log.complete" not in keys(found)
    assert not missing(told(found, "log.time"), "4 of the log's 19 days", "2026-01-10 to 2026-01-11", "dense_rank()")
    in_time(path, "dense_rank() over (order by day) - 1")
    assert np.array_equal(np.asarray(prepare(path, tmp_path / "data").day)[:15], np.arange(15))


@pytest.mark.parametrize("dates", [False, True])
def test_users_who_come_back_after_a_year_may_be_somebody_else(tmp_path: Path, dates: bool) -> None:
    def times(user: int) -> Iterable[int]:
        return [*range(4), *range(370, 374)] if user % 5 == 0 else range(4) if user % 2 else range(370, 374)

    path = campaign_file(tmp_path, rows(times, dates=dates), log="complete = false")
    found = check(path)
    assert not missing(told(found, "log.user"), "24 users", "'u0'", "367 days later", "concat(user_id")
    line = next(each.way_out for each in found.findings if each.key == "log.user").split(": ", 1)[1].rstrip(".")
    path.write_text(path.read_text().replace('user = "user_id"', line))
    again = check(path)
    assert "log.user" not in keys(again)
    assert again.users == 120 + 24


ARMS = [{"name": "old", "kind": "constant", "action": 1.0, "share": 0.5, "budget": 500.0}]
ARMS += [{"name": "new", "kind": "random", "share": 0.5, "budget": 10.0}]
TEST = {"experiment": {"name": "spring", "start": "2027-03-02", "days": 14}, "arm": ARMS}


def test_a_test_of_two_weeks_has_two_rows_of_a_log_of_weeks(tmp_path: Path) -> None:
    path = in_time(campaign_file(tmp_path, called(rows(lambda _: range(6)), "week")), "week")
    past = measure_past(Campaign.load(path), 14)
    assert (past.window, past.before, past.scale, past.unit) == (2, 2, 1.0, "week")
    hours = in_time(campaign_file(tmp_path, called(rows(lambda _: range(6)), "hour")), "hour")
    assert measure_past(Campaign.load(hours), 14).scale == pytest.approx(14 * 24 / 6)


def test_decisions_are_taken_as_days_and_that_is_said(tmp_path: Path) -> None:
    path = in_time(campaign_file(tmp_path, called(rows(lambda _: range(20)), "decision")), "decision")
    plan = plan_experiment(TEST, path, tmp_path / "experiment.toml", today=datetime.date(2027, 1, 1))
    assert NoteKind.COUNTED(days=14, unit="decision") in plan.notes
    assert plan.past.window == 14


@pytest.mark.parametrize("dated", [False, True])
def test_a_user_of_one_row_brings_no_more_in_a_longer_test(tmp_path: Path, dated: bool) -> None:
    columns = rows(lambda u: [u % 20], dates=True)
    path = campaign_file(tmp_path, columns)
    if not dated:
        path.write_text(path.read_text().replace('time = "day"\n', ""))
    plan = plan_experiment(TEST, path, tmp_path / "experiment.toml", today=datetime.date(2027, 1, 1))
    kinds = {note.kind for note in plan.notes}
    assert plan.past.moments.average("reward") == pytest.approx(np.mean(columns["active"]))
    assert plan.past.scale == 1
    assert {NoteKind.ONE_ROW, NoteKind.SHORT_BUDGETS_ONCE} <= kinds
    assert not kinds & {NoteKind.SCALED, NoteKind.SINGLE_DAY, NoteKind.NO_DAYS_BEFORE, NoteKind.PAST_UNRECORDED}
    found = plan_log(path)
    assert (found.days, found.span) == (1, None)
    with pytest.raises(OutlayError, match="each user of this log has one row"):
        plan_log(path, days=7)


def test_the_next_log_is_told_in_its_units(tmp_path: Path) -> None:
    path = in_time(campaign_file(tmp_path, called(rows(lambda _: range(6)), "week")), "week")
    assert plan_log(path).span == "6 weeks"
