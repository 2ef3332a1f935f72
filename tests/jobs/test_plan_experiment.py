"""Planning a test: what a past log says, what is written, what is refused."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaign_files import campaign_file, panel
from outlay.bundles.decide import Bundle
from outlay.core.campaign import Campaign
from outlay.core.errors import BundleError, OutlayError
from outlay.experiments.design import Experiment
from outlay.experiments.planning import measure_past
from outlay.experiments.words import ExperimentNote, NoteKind
from outlay.jobs.plan_experiment import PlanResult, plan_experiment
from telling import missing

USERS, DAYS = 300, 28
OLD: dict[str, Any] = {"name": "old", "kind": "constant", "action": 1.0, "share": 0.5, "budget": 20_000.0}
NEW: dict[str, Any] = {"name": "new", "kind": "random", "share": 0.5, "budget": 20_000.0}
BEFORE_START = datetime.date(2026, 1, 1)


def design(*arms: dict[str, Any], ramp: Any = None, **meta: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "experiment": {"name": "spring", "start": "2026-03-02", "days": 14, **meta},
        "arm": list(arms or (OLD, NEW)),
    }
    return found if ramp is None else found | {"ramp": [{"day": day, "coverage": c} for day, c in ramp]}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    columns = panel(USERS, DAYS)
    columns["active"] = [float(active) for active in columns["active"]]
    return campaign_file(tmp_path_factory.mktemp("past"), columns)


def plan(campaign: Path, out: Path, content: dict[str, Any], **options: Any) -> PlanResult:
    return plan_experiment(content, campaign, out / "experiment.toml", **{"today": BEFORE_START, **options})


def of_kind(found: PlanResult, *kinds: NoteKind) -> list[ExperimentNote]:
    return [note for note in found.notes if note.kind in kinds]


def test_totals_of_users_are_those_of_numpy(campaign: Path) -> None:
    past = measure_past(Campaign.load(campaign), 14)
    columns = panel(USERS, DAYS)
    active = np.array(columns["active"], float).reshape(USERS, DAYS)
    cost = active * np.array(columns["coupon"]).reshape(USERS, DAYS)
    parts = {"reward": active, "redeemed": cost > 0, "cost0": cost}
    table = np.stack([v[:, 14:].sum(1) for v in parts.values()] + [v[:, :14].sum(1) for v in parts.values()])
    assert past.moments.columns == (*parts, *(f"{name}_before" for name in parts))
    assert (past.moments.users, past.window, past.before, past.log_days) == (USERS, 14, 14, 28)
    np.testing.assert_allclose(past.moments.mean, table.mean(1))
    np.testing.assert_allclose(past.moments.covariance, np.cov(table), atol=1e-9)
    np.testing.assert_allclose(past.moments.cubes, (table**3).mean(1))


def test_a_short_log_is_scaled_up_and_has_no_days_before(campaign: Path) -> None:
    """56 days are taken as twice 28: twice the mean, four times the variance."""
    whole, twice = (measure_past(Campaign.load(campaign), days) for days in (28, 56))
    assert (twice.window, twice.before, whole.before) == (28, 0, 0)
    np.testing.assert_allclose(twice.moments.mean, 2 * whole.moments.mean)
    np.testing.assert_allclose(twice.moments.covariance, 4 * whole.moments.covariance)
    np.testing.assert_allclose(twice.moments.cubes, 8 * whole.moments.cubes)


def test_users_without_rows_in_the_window_do_not_count_and_absent_days_are_zero(tmp_path: Path) -> None:
    """User b left before the last 7 days; c has one of them only."""
    columns = {
        "user_id": ["a", "a", "b", "c", "d", "d"],
        "day": [0, 13, 3, 9, 12, 1],
        "level": [0] * 6,
        "coupon": [1.0] * 5 + [2.0],
        "active": [1.0, 1.0, 1.0, 1.0, 0.0, 1.0],
    }
    past = measure_past(Campaign.load(campaign_file(tmp_path, columns)), 7)
    assert past.moments.users == 3
    np.testing.assert_allclose(past.moments.mean, [2 / 3, 2 / 3, 2 / 3, 2 / 3, 2 / 3, 1.0])


def test_who_may_be_in_the_test_is_told_by_the_first_row(campaign: Path) -> None:
    loaded, columns = Campaign.load(campaign), panel(USERS, DAYS)
    first = np.array(columns["level"]).reshape(USERS, DAYS)[:, 0]
    assert measure_past(loaded, 14, eligible="level = 1").moments.users == (first == 1).sum()
    with pytest.raises(OutlayError, match=r"eligible: .*'levle'.*'level'"):
        measure_past(loaded, 14, eligible="levle = 1")
    with pytest.raises(OutlayError, match=r"\b0 users .*14 days"):
        measure_past(loaded, 14, eligible="level > 7")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (
            "active",
            float("nan"),
            r"log\.reward: 'active' .*\b2 rows.*\"coalesce\(active, 0\)\"",
        ),
        ("coupon", float("nan"), r"budget coupon_cost\.cost: 'coupon \* active' .*\b2 rows"),
        ("coupon", float("inf"), r"infinity .*1e\+60 in 2 rows"),
        ("active", 1e300, r"infinity .*1e\+60 in 2 rows"),
    ],
)
def test_a_past_log_with_numbers_that_are_none_is_refused(tmp_path: Path, column: str, value: float, said: str) -> None:
    columns = panel(USERS, DAYS)
    columns |= {name: [float(x) or 1.0 for x in columns[name]] for name in ("active", "coupon")}
    for k in (DAYS - 1, 5 * DAYS - 1):
        columns[column][k] = value
    with pytest.raises(OutlayError, match=said):
        measure_past(Campaign.load(campaign_file(tmp_path, columns)), 7)


def test_a_past_log_with_two_rows_of_a_day_is_refused(tmp_path: Path) -> None:
    columns = {name: [*values, values[20]] for name, values in panel(USERS, DAYS).items()}
    with pytest.raises(OutlayError, match=r"\b1 user has two rows .*user .*1 row repeats another"):
        measure_past(Campaign.load(campaign_file(tmp_path, columns)), 14)


def test_what_is_doubtful_in_a_past_log_is_noted(campaign: Path, tmp_path: Path) -> None:
    """Days that nobody has, among the last 7 and the 7 before them; days that are not added up do not count."""
    assert measure_past(Campaign.load(campaign), 14).notes == ()
    columns = panel(USERS, DAYS)
    kept = [day not in (3, 16, 17, 22) for day in columns["day"]]
    columns = {name: [x for x, keep in zip(values, kept, strict=True) if keep] for name, values in columns.items()}
    columns["coupon"][-1], columns["active"][-1] = -1.5, 1
    found = measure_past(Campaign.load(campaign_file(tmp_path, columns)), 7)
    assert found.notes == (
        NoteKind.PAST_UNRECORDED(days="day 16 to day 17, day 22"),
        NoteKind.NEGATIVE_MONEY(money="coupon_cost", least=-1.5),
    )
    assert found.actions == tuple(sorted(set(columns["coupon"])))


def test_the_written_file_is_sealed_and_reads_back(campaign: Path, tmp_path: Path) -> None:
    result = plan(campaign, tmp_path, design(ramp=[(0, 0.1), (2, 1.0)], decisions=[7, 14]))
    found = Experiment.load(result.path)
    assert found == result.experiment
    assert found.meta.campaign == "test"
    assert found.meta.metric == "active"
    assert found.meta.guardrails == ("cost", "redemption")
    assert (result.users, result.seen_days) == (USERS, 12)
    assert [(step.day, str(step.date), step.users) for step in result.ramp] == [
        (0, "2026-03-02", (15, 15)),
        (2, "2026-03-04", (150, 150)),
    ]
    assert {(power.metric, power.arm, power.cuped) for power in result.powers} == {
        (metric, "new", cuped) for metric in ("active", "cost", "redemption") for cuped in (False, True)
    }
    assert result.alpha < 0.05
    json.dumps(result.to_dict(), allow_nan=False)


def test_more_users_are_the_same_log_with_more_power(campaign: Path, tmp_path: Path) -> None:
    few, many = (plan(campaign, tmp_path, design(), users=users) for users in (10_000, 40_000))
    assert few.powers[0].absolute == pytest.approx(2 * many.powers[0].absolute, rel=1e-6)


def test_a_bundle_is_pinned_by_its_id_and_found_from_the_file(
    campaign: Path, tmp_path: Path, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bundle.folder.parent)
    arm = {"name": "new", "kind": "bundle", "bundle": bundle.folder.name, "share": 0.5, "budget": 20_000.0}
    found = plan(campaign, tmp_path, design(OLD, arm)).experiment.arms[1]
    assert found.bundle is not None
    assert found.bundle_id == bundle.id
    assert (tmp_path / found.bundle).resolve() == bundle.folder.resolve()
    with pytest.raises(BundleError, match="does not exist"):
        plan(campaign, tmp_path, design(OLD, arm | {"bundle": "elsewhere"}))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (design(days=10), {}, "whole weeks"),
        (design(OLD, NEW | {"share": 0.6}), {}, "sum to 1.1"),
        (design(OLD, {**NEW, "budget": None}), {}, "'new' has no budget"),
        (design(metric="activ"), {}, r"'activ'.*'active'"),
        (design(guardrails=["complaints"]), {}, "cost, redemption, cost_per_active, coupon_cost, active"),
        (design(metric="cost_per_active"), {}, "is a ratio"),
        (design(salt="outlay"), {}, "learn / select / certify"),
        (design(), {"users": 0}, "users: is 0"),
        (design(), {"users": 2}, "at least 2"),
        (design(), {"lift": 0.0}, "lift: is 0"),
        (design(), {"lift": -1.5}, "lift: is -1.5"),
        ({"experiment": 3}, {}, "experiment: is 3"),
        ({"experiment": {}, "arm": [3]}, {}, "experiment.name: is missing"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    campaign: Path, tmp_path: Path, content: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OutlayError, match=message):
        plan(campaign, tmp_path, content, **options)
    assert not list(tmp_path.iterdir())


def test_a_constant_metric_is_refused_and_a_constant_guardrail_noted(tmp_path: Path) -> None:
    columns = panel(USERS, 14) | {"active": [1] * USERS * 14, "spend": [2.0] * USERS * 14}
    folder = tmp_path / "log"
    folder.mkdir()
    campaign = campaign_file(folder, columns)
    with pytest.raises(OutlayError, match=r"metric 'active': .*the same"):
        plan(campaign, tmp_path, design())
    result = plan(campaign, tmp_path, design(metric="cost", guardrails=["active"]))
    assert {power.metric for power in result.powers} == {"cost"}
    assert NoteKind.CONSTANT_GUARDRAIL(metric="active") in result.notes


def test_actions_that_the_campaign_does_not_give_are_refused(campaign: Path, tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match=r"arm 'old'\.action: is 3\.3, .*not an action.*\b1, "):
        plan(campaign, tmp_path, design(OLD | {"action": 3.3}, NEW))


def test_what_has_begun_is_said_to_be_live(campaign: Path, tmp_path: Path) -> None:
    early = plan(campaign, tmp_path, design(start="2020-03-02"))
    (note,) = of_kind(early, NoteKind.LIVE)
    assert str(note.figures["when"]).startswith("on 2020-03-02, ")


def test_unequal_or_small_purses_are_noted(campaign: Path, tmp_path: Path) -> None:
    equal = plan(campaign, tmp_path, design(OLD, NEW | {"share": 0.25, "budget": 10_000.0}))
    assert not of_kind(equal, NoteKind.UNEQUAL_BUDGETS, NoteKind.SHORT_BUDGETS)
    unequal = plan(campaign, tmp_path, design(OLD, NEW | {"budget": 30_000.0}))
    assert NoteKind.UNEQUAL_BUDGETS(most="new", least="old", times=1.5) in unequal.notes
    # 150 users spend about 1 a day (half of them 2 on average) over 14 days: about 2,100; 0.5 if each is given 1.
    small = plan(campaign, tmp_path, design(OLD | {"budget": 1_000.0}, NEW | {"budget": 1_000.0}))
    (note,) = of_kind(small, NoteKind.SHORT_BUDGETS)
    old, new = str(note.figures["arms"]).split("; ")
    assert old.startswith("'old' has 1,000 of 1,0")
    assert new.startswith("'new' has 1,000 of 2,")
    assert old.endswith("gone after day 12")  # 150 users spend about 75 a day
    assert new.endswith("gone after day 6")
    little = plan(campaign, tmp_path, design(OLD | {"budget": 1.0}, NEW))
    assert str(of_kind(little, NoteKind.SHORT_BUDGETS)[0].figures["arms"]).endswith("gone on the first day")
    assert not missing(of_kind(little, NoteKind.UNEQUAL_BUDGETS)[0].words, "has 20,000 times the budget")


def test_an_arm_whose_action_cost_nothing_in_the_log_needs_no_money(tmp_path: Path) -> None:
    columns = panel(USERS, DAYS)
    columns["coupon"] = [coupon - 1 for coupon in columns["coupon"]]
    folder = tmp_path / "log"
    folder.mkdir()
    arms = [OLD | {"action": 0.0, "budget": 1.0}, OLD | {"name": "new", "action": 2.0}]
    found = plan(campaign_file(folder, columns), tmp_path, design(*arms))
    assert not of_kind(found, NoteKind.SHORT_BUDGETS, NoteKind.UNEQUAL_BUDGETS)
    money = dict(zip(found.past.actions, found.past.spent, strict=True))
    assert money[2.0] == pytest.approx(2 * money[1.0], rel=0.1)
    forced = [int(i % 4 == 0) for i in range(USERS * DAYS)]  # who has no choice costs what it did
    kept = plan(campaign_file(folder, columns | {"held": forced}, log='forced = "held = 1"'), tmp_path, design(*arms))
    paid = np.array(columns["coupon"]) * columns["active"] * forced
    assert kept.past.spent[0] == pytest.approx(paid.reshape(USERS, DAYS)[:, -14:].sum(axis=1).mean())


def test_short_logs_ramps_and_small_arms_are_noted(campaign: Path, tmp_path: Path) -> None:
    assert plan(campaign, tmp_path, design()).notes == ()
    ramped = plan(campaign, tmp_path, design(ramp=[(0, 0.5), (4, 1.0)]))
    assert NoteKind.RAMP_ENDS(growth=4, days=10) in ramped.notes
    long = plan(campaign, tmp_path, design(days=42))
    assert NoteKind.SCALED(days=42, times=1.5, had="28 days that the log has") in long.notes
    assert NoteKind.NO_DAYS_BEFORE() in long.notes
    assert all(not power.cuped for power in long.powers)
    small = plan(campaign, tmp_path, design(), users=60)
    assert NoteKind.ROUGH_POWER(users=30, enough=100) in small.notes


def test_guardrails_need_more_than_the_metric_of_the_verdict(campaign: Path, tmp_path: Path) -> None:
    """The same numbers as verdict and as guardrail: (3.035 + 0.842) to (1.96 + 0.842) standard errors."""
    verdict = plan(campaign, tmp_path, design(metric="cost", guardrails=["active"])).powers[0]
    found = plan(campaign, tmp_path, design())
    beside = next(power for power in found.powers if power.metric == "cost" and not power.cuped)
    assert beside.absolute / verdict.absolute == pytest.approx((3.035 + 0.842) / (1.960 + 0.842), rel=1e-3)
    assert found.guardrail_alpha == pytest.approx(0.0024, abs=1e-4)


def test_money_that_should_fall_is_written_so(campaign: Path, tmp_path: Path) -> None:
    found = plan(campaign, tmp_path, design(metric="coupon_cost", guardrails=["active"])).experiment.meta
    assert (found.better, found.unit) == ("lower", "money")
    assert plan(campaign, tmp_path, design()).experiment.meta.better == "higher"


def test_a_small_arm_whose_cost_few_users_make_is_noted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = panel(USERS, DAYS)
    columns["coupon"] = (np.repeat(rng.random(USERS) < 0.03, DAYS) * rng.lognormal(0, 1, USERS * DAYS)).tolist()
    campaign = campaign_file(tmp_path, columns)
    old, small = NEW | {"name": "old"}, NEW | {"share": 0.05, "budget": 2000.0}
    (note,) = of_kind(plan(campaign, tmp_path, design(old, small), users=4000), NoteKind.SKEWED)
    assert note == NoteKind.SKEWED(metrics="cost and redemption", arm="new", control=2000, treatment=200)
    assert not of_kind(plan(campaign, tmp_path, design(old, NEW), users=4000), NoteKind.SKEWED)


def test_a_live_test_is_replaced_only_if_its_coverage_grows(campaign: Path, tmp_path: Path) -> None:
    start = datetime.date(2026, 3, 2)
    first = plan(campaign, tmp_path, design(ramp=[(0, 0.1)]))
    plan(campaign, tmp_path, design(ramp=[(0, 0.1), (3, 1.0)]), today=start)
    with pytest.raises(OutlayError, match=r"coverage on day 3 .*1 to 0\.1"):
        plan(campaign, tmp_path, design(ramp=[(0, 0.1)]), today=start)
    with pytest.raises(OutlayError, match=r"'spring' .*2026-03-02, .*coverage"):
        plan(campaign, tmp_path, design(salt="autumn"), today=start)
    plan(campaign, tmp_path, design(salt="autumn"), today=start - datetime.timedelta(days=1))
    assert Experiment.load(first.path).meta.salt == "autumn"


def test_another_file_is_not_taken_for_a_test(campaign: Path, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text("[campaign]\n")
    with pytest.raises(OutlayError, match="experiment"):
        plan(campaign, tmp_path, design())
    assert (tmp_path / "experiment.toml").read_text() == "[campaign]\n"


# Arms drawn by cluster.


@pytest.fixture(scope="module")
def by_city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 cities of 4 to 16 users with a chance of their own."""
    rng = np.random.default_rng(0)
    city = np.repeat(np.arange(60), rng.integers(4, 17, 60))
    columns = panel(len(city), DAYS)
    columns["city"] = np.repeat(city, DAYS).tolist()
    chance = np.clip(0.5 + 0.2 * rng.normal(size=60), 0.05, 0.95)
    columns["active"] = (rng.random(len(city) * DAYS) < chance[columns["city"]]).astype(float).tolist()
    return campaign_file(tmp_path_factory.mktemp("cities"), columns)


def test_the_design_effect_is_that_of_the_cities_and_more_users_are_needed(by_city: Path, tmp_path: Path) -> None:
    plain = plan(by_city, tmp_path / "a", design(guardrails=[]), lift=0.05)
    drawn = plan(by_city, tmp_path / "b", design(guardrails=[], cluster="city"), lift=0.05)
    found = drawn.design
    assert found is not None
    assert plain.design is None
    frame = measure_past(Campaign.load(by_city), 14, cluster="city")
    assert frame.clusters is not None
    assert frame.clusters.users == found.clusters == 60
    sizes = np.repeat(np.arange(60), np.random.default_rng(0).integers(4, 17, 60))
    counts = np.bincount(sizes)
    assert found.size == pytest.approx((counts**2).sum() / counts.sum())
    assert found.effect == pytest.approx(1 + (found.size - 1) * found.correlation)
    assert 0.7 < found.correlation < 1.1  # of 14 days' totals: nearly all that differs is the city
    smallest, wider = plain.powers[0], drawn.powers[0]
    assert wider.users == smallest.users
    assert wider.absolute == pytest.approx(smallest.absolute * np.sqrt(found.effect), rel=0.02)
    assert smallest.lift_users is not None
    assert wider.lift_users is not None
    assert wider.lift_users == pytest.approx(smallest.lift_users * found.effect, rel=0.05)
    (note,) = of_kind(drawn, NoteKind.CLUSTERED)
    assert note.figures["correlation"] == found.correlation
    assert drawn.to_dict()["design_effect"]["clusters"] == 60
    assert Experiment.load(drawn.path).meta.cluster == "city"


def test_a_user_in_two_cities_cannot_be_planned_for(by_city: Path, tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match=r"users .*not in one cluster"):
        plan(by_city, tmp_path, design(cluster="city + day % 2"))
