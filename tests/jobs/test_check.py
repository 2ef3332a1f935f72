"""Findings, randomisation, overlap and the effect table of `check`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from campaign_files import campaign_file, panel
from command_line import outlay
from hidden_worlds import WORLDS
from outlay.core.errors import CampaignError, LogError
from outlay.core.reasons import Reason, ReasonKind
from outlay.evaluating.log_check import CheckReport
from outlay.jobs.check import check
from telling import missing


def where(report: CheckReport, level: str) -> list[str]:
    return [finding.where for finding in report.findings if finding.level == level]


def test_a_clean_random_log_blocks_nothing(tmp_path: Path) -> None:
    columns = panel(users=300)
    report = check(campaign_file(tmp_path, columns, log='propensity = "p"', numeric='["spend"]'))
    assert (report.rows, report.users, report.days, report.first, report.last) == (1200, 300, 4, 0, 3)
    assert not report.blocks
    assert report.findings == ()
    assert [action.value for action in report.actions] == [1, 2, 3]
    assert [action.count for action in report.actions] == [columns["coupon"].count(v) for v in (1, 2, 3)]
    assert report.randomisation is not None
    assert report.randomisation.looks_randomised
    assert report.missing["spend"] == 0


def test_a_user_that_is_the_place_of_a_row_is_a_warning(tmp_path: Path) -> None:
    columns = panel(users=300, days=1)
    path = campaign_file(tmp_path, columns)
    assert "log.user" not in where(check(path), "warning")
    path.write_text(path.read_text().replace('user = "user_id"', 'user = "row_number() over ()"'))
    assert "log.user" in where(check(path), "warning")


def test_money_below_zero_is_a_warning(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, panel(users=300))
    text = path.read_text()
    assert "budget.cost" not in {finding.key for finding in check(path).findings}
    path.write_text(text.replace('cost = "coupon * active"', 'cost = "coupon - 1.5"'))
    (finding,) = (finding for finding in check(path).findings if finding.key == "budget.cost")
    assert finding.level == "warning"
    assert finding.count == panel(users=300)["coupon"].count(1)
    assert "value -0.5" in finding.message


@pytest.mark.parametrize(
    ("limit", "ends"),
    [
        ("at_most = -1", "least that the log shows is 0 per decision"),
        ("at_least = 3.5", "most that the log shows is 3 per decision"),
        ('at_most = -1\nper = "user"', "least that the log shows is 0 per user"),
        ("at_most = 0", None),
        ("at_least = 2.9", None),
        ('at_least = 3.5\nper = "user"', None),
    ],
)
def test_a_limit_that_every_row_breaks_blocks(limit: str, ends: str | None, tmp_path: Path) -> None:
    path = campaign_file(tmp_path, panel(users=100))
    path.write_text(path.read_text().replace("at_most = 1.2", limit))
    report = check(path)
    assert where(report, "error") == ([] if ends is None else ["budget coupon_cost"])
    assert ends is None or ends in report.findings[0].message


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (
            "at_most = 0.7",
            ("costs 0.9475 per", "above the limit of 0.7", "ruled out", "write at_most = 0.9475"),
        ),
        (
            "at_least = 1.5",
            ("brings 0.9475 per", "below the limit of 1.5", "write at_least = 0.9475"),
        ),
        ("at_most = 1000", ("at most 1,000 per decision cannot bind", "the most that a row", "is 3 per decision")),
        ("at_least = 0", ("at least 0 per decision cannot bind", "the least that a row", "is 0 per decision")),
        ('at_most = 100\nper = "user"', ("at most 100 per user cannot bind", "is 21 per user")),
        ("at_most = 0.92", ()),  # broken by no more than chance
        ("at_most = 2.9", ()),
        ('at_most = 2\nper = "user"', ()),  # what a user comes to over the horizon takes an evaluation
    ],
)
def test_a_limit_that_todays_policy_breaks_or_that_cannot_bind_is_a_warning(
    limit: str, said: tuple[str, ...], tmp_path: Path
) -> None:
    path = campaign_file(tmp_path, panel(users=300), campaign="horizon_days = 7")
    path.write_text(path.read_text().replace("at_most = 1.2", limit))
    told = [f"{each.message} {each.way_out}" for each in check(path).findings if each.key == "budget"]
    assert len(told) == bool(said)
    assert not missing(" ".join(told), *said)


def test_rows_without_a_choice_count_for_what_they_cost_but_not_as_decisions(tmp_path: Path) -> None:
    columns = panel(users=300)
    half = [int(i // 4 % 2) for i in range(1200)]  # of the users
    columns["coupon"] = [0.0 if held else coupon for coupon, held in zip(columns["coupon"], half, strict=True)]
    path = campaign_file(tmp_path, columns | {"held": half}, log='forced = "held = 1"')
    path.write_text(path.read_text().replace("at_most = 1.2", "at_most = 0.6"))
    spent = np.dot(columns["coupon"], columns["active"]) / 600
    (finding,) = (each for each in check(path).findings if each.key == "budget")
    assert f"costs {spent:.4g} per decision" in finding.message


def test_the_report_is_json(tmp_path: Path) -> None:
    report = check(campaign_file(tmp_path, panel(), log='propensity = "p"'))
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert set(content["effects"][0]) >= {"segment", "days", "effect", "low", "high", "users"}
    assert content["actions"][0]["action"] == 1
    assert sum(action["share"] for action in content["actions"]) == pytest.approx(1)
    assert content["blocks"] is False


def test_all_findings_are_listed_and_counted(tmp_path: Path) -> None:
    columns = panel()
    columns["p"] = [-0.1, 1.5, None] + [1 / 3] * 117
    columns["active"] = [float("nan")] * 2 + [float(x) for x in columns["active"][2:]]
    columns["day"][1] = 0
    columns["coupon"][9] = 9.0
    columns["empty"] = [None] * 119 + ["NA"]
    path = campaign_file(
        tmp_path, columns, log='propensity = "p"\nactions = [1.0, 2.0, 3.0]', categorical='["level", "empty"]'
    )
    report = check(path)
    assert report.blocks
    assert report.duplicates == 1
    assert report.missing["reward"] == 2
    assert report.missing["propensity"] == 1
    assert report.missing["empty"] == 120
    errors = where(report, "error")
    assert errors.count("log.propensity") == 3
    assert {"log.reward", "log.user, log.time", "log.actions"} <= set(errors)
    assert "log.features, empty" in where(report, "warning")
    empty = next(each for each in report.to_dict()["findings"] if each["name"] == "empty")
    assert (empty["key"], empty["where"], empty["count"]) == ("log.features", "log.features, empty", 120)
    counts = {f.where: f.count for f in report.findings if f.level == "error"}
    assert counts["log.reward"] == 2
    assert counts["log.actions"] == 1


def test_a_campaign_file_that_does_not_fit_the_log_is_an_error(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, panel(), tail='reserve = "cuopon"')
    with pytest.raises(CampaignError, match=r"budget coupon_cost\.reserve.*Did you mean 'coupon'\?"):
        check(path)


@pytest.mark.parametrize(
    ("log", "discount", "level"),
    [
        ("", 0.8, "error"),
        ("complete = false", 0.8, "warning"),
        ('terminal = "false"', 0.8, "note"),
        ("complete = true", 0.8, "note"),
        ("", 0.0, "note"),
    ],
)
def test_absences_are_told_by_how_much_they_matter(tmp_path: Path, log: str, discount: float, level: str) -> None:
    keep = [i for i in range(120) if i % 10 != 4]  # a tenth of the days: the middle one of some users
    columns = {name: [values[i] for i in keep] for name, values in panel().items()}
    report = check(campaign_file(tmp_path, columns, log=log, discount=discount, campaign="none = 1.0"))
    assert where(report, level) == ["log.complete"]
    assert report.blocks == (level == "error")


def test_a_few_absent_days_are_a_warning(tmp_path: Path) -> None:
    columns = {name: values[:5] + values[6:] for name, values in panel().items()}
    report = check(campaign_file(tmp_path, columns))
    assert where(report, "warning") == ["log.complete"]
    assert not report.blocks


def test_late_joiners_and_those_who_ended_are_no_absence(tmp_path: Path) -> None:
    columns = panel()
    keep = [i for i in range(120) if i not in (0, 1, 7)]
    columns = {name: [values[i] for i in keep] for name, values in columns.items()}
    columns["left"] = [user == "u1" and day == 2 for user, day in zip(columns["user_id"], columns["day"], strict=True)]
    assert check(campaign_file(tmp_path, columns, log='terminal = "left"')).findings == ()


def effect_log(rng: np.random.Generator, users: int) -> dict[str, list[Any]]:
    """Two segments; the first coupon (1 or 3) adds 0.5 a day to the reward in `a`, and nothing in `b`."""
    user = np.repeat(np.arange(users), 5)
    segment = np.where(user % 2 == 0, "a", "b")
    first = rng.random(users) < np.where(np.arange(users) % 2 == 0, 0.3, 0.6)
    coupon = np.where(first[user], 3.0, 1.0)
    reward = rng.normal(2.0 + (segment == "b") * 5, 1.0, len(user)) + 0.5 * first[user] * (segment == "a")
    high = np.where(segment == "a", 0.3, 0.6)
    return {
        "user_id": [f"u{i}" for i in user],
        "day": [int(i) for i in np.tile(np.arange(5), users)],
        "segment": segment.tolist(),
        "coupon": coupon.tolist(),
        "active": reward.tolist(),
        "level": [0] * len(user),
        "p": np.where(coupon == 3, high, 1 - high).tolist(),
        "held": (np.tile(np.arange(5), users) > 0).tolist(),
    }


def test_effects_are_weighted_by_stated_propensities_and_cover_the_truth(tmp_path: Path) -> None:
    """Segment b gets the high coupon more often and is more active: without weights, `all` would come out too high."""
    columns = effect_log(np.random.default_rng(3), 2000)
    log = 'propensity = "p"\nforced = "held"\nsegment = "segment"'
    report = check(campaign_file(tmp_path, columns, log=log, campaign="report_days = [1, 3, 5, 7]"))
    effects = {(e.segment, e.days): e for e in report.effects}
    assert [(e.segment, e.days) for e in report.effects] == [(s, k) for s in ("all", "a", "b") for k in (1, 3, 5)]
    for (segment, days), entry in effects.items():
        truth = days * {"all": 0.25, "a": 0.5, "b": 0.0}[segment]
        assert abs(entry.effect - truth) < 1.5 * (entry.high - entry.low) / 2 + 1e-9, (segment, days)
    assert effects["all", 1].users == 2000
    assert effects["a", 3].low > 0
    assert report.contrast == (1, 3)


def test_the_effect_of_a_hand_worked_log(tmp_path: Path) -> None:
    """First actions 1, 1, 3, 3 and day totals 0, 1, 2, 3: ȳ(3) − ȳ(1) = 2.5 − 0.5; se² = ¼·½·2/1 per arm = ¼ + ¼.

    Two users an arm leave one degree of freedom.
    """
    columns = {
        "user_id": [1, 2, 3, 4, 5],
        "day": [0] * 5,
        "coupon": [1.0, 1.0, 3.0, 3.0, 2.0],
        "level": [0] * 5,
        "active": [0.0, 1.0, 2.0, 3.0, 9.0],
    }
    report = check(campaign_file(tmp_path, columns, campaign="report_days = [1]"))
    [entry] = report.effects
    assert entry.effect == pytest.approx(2.0)
    assert entry.high - entry.effect == pytest.approx(12.7062 * np.sqrt(0.5), rel=1e-5)
    assert entry.users == 4


def test_users_whose_window_is_too_short_or_who_had_no_choice_are_left_out(tmp_path: Path) -> None:
    columns = panel(users=40)
    late = [i for i in range(160) if not (i < 40 and i % 4 < 2)]  # ten users join on day 2: windows of 2 days
    columns = {name: [values[i] for i in late] for name, values in columns.items()}
    columns["none"] = [user == "u39" for user in columns["user_id"]]
    columns["coupon"] = [float(1 + 2 * (int(user[1:]) % 2)) for user in columns["user_id"]]
    path = campaign_file(tmp_path, columns, log='forced = "none"', campaign="report_days = [1, 3]")
    assert {e.days: e.users for e in check(path).effects} == {1: 39, 3: 29}


def test_contrast_actions_absent_from_first_rows_are_a_note(tmp_path: Path) -> None:
    columns = panel()
    columns["coupon"] = [2.0 if day == 0 else c for day, c in zip(columns["day"], columns["coupon"], strict=True)]
    report = check(campaign_file(tmp_path, columns, log="contrast = [1.0, 3.0]"))
    assert report.effects == ()
    assert "log.contrast" in where(report, "note")
    assert not report.blocks


def test_an_action_that_follows_a_feature_does_not_look_randomised(tmp_path: Path) -> None:
    columns = panel(users=200)
    columns["coupon"] = [1.0 + level for level in columns["level"]]
    report = check(campaign_file(tmp_path, columns, numeric='["spend"]'))
    assert report.randomisation is not None
    assert not report.randomisation.looks_randomised
    assert "level (1.00)" in report.randomisation.verdict
    assert "spend" not in report.randomisation.verdict
    assert "log.action" in where(report, "warning")


def test_a_campaign_that_runs_on_shows_as_the_action_before(tmp_path: Path) -> None:
    """The overlap trap: the action is drawn once a user, and the later rows only look like choices."""
    columns = panel(users=200)
    columns["coupon"] = [float(1 + int(user[1:]) % 3) for user in columns["user_id"]]
    report = check(campaign_file(tmp_path, columns))
    assert report.randomisation is not None
    assert "the action before (1.00)" in report.randomisation.verdict
    columns["held"] = [day > 0 for day in columns["day"]]
    marked = check(campaign_file(tmp_path, columns, log='forced = "held"'))
    assert marked.randomisation is not None
    assert marked.randomisation.looks_randomised


def test_stated_propensities_that_contradict_the_log_block(tmp_path: Path) -> None:
    columns = panel(users=300)
    columns["p"] = [{1.0: 0.6, 2.0: 0.2, 3.0: 0.2}[coupon] for coupon in columns["coupon"]]
    report = check(campaign_file(tmp_path, columns, log='propensity = "p"'))
    assert report.blocks
    [finding] = report.findings
    assert (finding.level, finding.where) == ("error", "log.propensity")
    share = columns["coupon"].count(2.0) / 1200
    assert not missing(finding.message, "action 2", f"{share:.1%}", "1,200 rows", "20.0%")
    assert "log.forced" in finding.way_out
    assert report.randomisation is not None
    assert not report.randomisation.looks_randomised
    assert "do not fit the log" in report.randomisation.verdict


def test_stated_propensities_a_little_off_are_a_warning(tmp_path: Path) -> None:
    columns = panel(users=15_000)
    columns["coupon"] = np.random.default_rng(1).permutation(np.arange(60_000) % 3 + 1.0).tolist()
    columns["p"] = [0.32] * 60_000
    report = check(campaign_file(tmp_path, columns, log='propensity = "p"'))
    assert not report.blocks
    [finding] = [finding for finding in report.findings if finding.where == "log.propensity"]
    assert finding.level == "warning"
    assert "more digits" in finding.way_out


def test_propensities_of_1_in_every_row_block(tmp_path: Path) -> None:
    report = check(campaign_file(tmp_path, panel() | {"p": [1.0] * 120}, log='propensity = "p"'))
    [finding] = report.findings
    assert (finding.level, finding.where, finding.count) == ("error", "log.propensity", 120)
    assert report.randomisation is not None
    assert not report.randomisation.looks_randomised


def test_too_high_a_propensity_in_every_row_is_an_error_that_names_the_numbers(tmp_path: Path) -> None:
    """A half for each of three: each might have had no chance in a third of the rows, but no list says so."""
    report = check(campaign_file(tmp_path, panel(users=300) | {"p": [0.5] * 1200}, log='propensity = "p"'))
    [finding] = report.findings
    assert (finding.level, finding.where) == ("error", "log.propensity")
    assert not missing(finding.message, "propensities", "50.0%")
    assert "log.eligible" in finding.way_out


def test_overlap_names_the_segment_with_the_smallest_share(tmp_path: Path) -> None:
    columns = panel(users=200)
    columns["coupon"] = [1.0 + (i // 4 % 2 == 0) * (i % 2) for i in range(800)]  # odd users only ever get 1
    columns["odd"] = [i // 4 % 2 for i in range(800)]
    report = check(campaign_file(tmp_path, columns, log='segment = "odd"'))
    high = next(entry for entry in report.overlap if entry.action == 2)
    assert (high.share, high.least_share, high.least_segment) == (0.25, 0.0, "1")
    assert any("segment '1'" in finding.message for finding in report.findings)


def test_check_writes_nothing(tmp_path: Path) -> None:
    check(campaign_file(tmp_path, panel()))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["campaign.toml", "log.parquet"]


@pytest.mark.slow
def test_a_state_that_hides_types_is_a_warning_and_the_past_that_is_enough_is_named(tmp_path: Path) -> None:
    world = replace(WORLDS["hidden"], days=8)
    report = check(world.write(tmp_path, users=1500, seed=2))
    assert report.state is not None
    assert report.state.ok is False
    assert not report.blocks
    whole = [(tried.days, tried.ok) for tried in report.tried if len(tried.columns) == 3]
    assert whole == [(3, False), (7, True)]
    (warning,) = (finding for finding in report.findings if finding.where == "log.features")
    enough = [tried for tried in report.tried if tried.ok][-1]
    assert len(enough.columns) <= 2
    assert f"[log.history] with days = 7, columns = {json.dumps(enough.columns)}" in warning.way_out
    with_past = replace(world, history=7, columns=enough.columns, summaries=enough.summaries)
    again = check(with_past.write(tmp_path / "past", users=1500, seed=2))
    assert again.state is not None
    assert again.state.ok
    assert again.tried == ()
    assert report.test is again.test is None


@pytest.mark.slow
def test_where_no_past_is_enough_the_experiment_that_needs_no_state_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = replace(WORLDS["hidden"], days=6)
    path = world.write(tmp_path, users=3000, seed=2)
    report = check(path)
    assert [tried.ok for tried in report.tried] == [False]
    assert report.test is not None
    assert report.test.actions == (0.0, 1.0, 2.0, 4.0)
    assert report.to_dict()["test"]["command"] == report.test.command
    monkeypatch.setattr("outlay.jobs.check.check", lambda *_, **__: report)
    found = outlay("check", path)
    assert f"{report.test.words} Plan it with:\n  {report.test.command}\n" in found.out


def test_a_state_that_says_enough_is_not_doubted(tmp_path: Path) -> None:
    report = check(WORLDS["known"].write(tmp_path, users=3000, seed=3))
    assert report.state is not None
    assert report.state.ok
    assert report.tried == ()
    assert "log.features" not in where(report, "warning")


def test_an_old_policy_that_looked_at_the_past_is_a_warning(tmp_path: Path) -> None:
    """Users who were not active on the day before mostly get the largest coupon, and no propensity tells it."""
    columns, rng = panel(users=800), np.random.default_rng(4)
    active = np.array(columns["active"]).reshape(800, 4)
    lured = np.hstack([np.zeros((800, 1), bool), (active[:, :-1] == 0) & (rng.random((800, 3)) < 0.7)]).ravel()
    columns["coupon"] = np.where(lured, 3.0, columns["coupon"]).tolist()
    report = check(campaign_file(tmp_path, columns, numeric='["spend"]'))
    assert report.balance is not None
    assert report.balance.ok is False
    assert report.balance.dependences[0].past == "reward"
    (warning,) = (finding for finding in report.findings if finding.where == "log.propensity")
    assert report.balance.finding.kind is ReasonKind.DRIVEN_AND
    assert isinstance(found := report.balance.finding.figures["found"], Reason)
    assert (found.kind, found.figures["source"]) == (ReasonKind.LOOKED_BACK, "reward on the day before")
    assert warning.message == f"{report.balance.words}."


@pytest.mark.parametrize(("spoilt", "where"), [("coupon", "log.action"), ("user_id", "log.user")])
def test_a_column_without_a_value_is_one_finding(tmp_path: Path, spoilt: str, where: str) -> None:
    """Also where actions are listed, and where no row names its user."""
    columns = panel() | {spoilt: pa.nulls(120, pa.string() if spoilt == "user_id" else pa.float64())}
    found = check(campaign_file(tmp_path, columns, log="actions = [1.0, 2.0, 3.0]"))
    [error] = [each for each in found.findings if each.level == "error" and each.where == where]
    assert "missing" in error.message
    assert error.way_out


def test_a_column_with_the_name_of_the_number_of_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="__row: is a name that is kept"):
        check(campaign_file(tmp_path, panel() | {"__row": ["x"] * 120}))


def test_a_day_beyond_the_whole_numbers_of_doubles_is_no_bug(tmp_path: Path) -> None:
    columns = panel()
    columns["day"][-1] = 2**60
    assert check(campaign_file(tmp_path, columns, log="complete = false")).rows == 120
