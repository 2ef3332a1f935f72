"""Any log with arms: dates or numbers, other names, users in rows, a list of the assigned; and what is refused."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from outlay.core.errors import LogError, OutlayError
from outlay.experiments.design import Experiment
from outlay.experiments.lift import Lift
from outlay.experiments.results import Analysis
from outlay.experiments.split import entries
from outlay.experiments.words import ExperimentNote, NoteKind
from outlay.jobs.analyze_experiment import analyze_experiment
from small_panels import START, experiment, panel, written
from telling import missing

LOG = panel(users=600, days=14, lift=0.3)


def active(result: Analysis) -> Lift:
    found = result.comparisons[0].lift("active")
    assert found is not None
    return found


def of_kind(result: Analysis, kind: NoteKind) -> list[ExperimentNote]:
    return [note for note in result.notes if note.kind is kind]


def renamed(log: pa.Table, **names: str) -> pa.Table:
    return log.rename_columns([names.get(name, name) for name in log.column_names])


def dated(log: pa.Table) -> pa.Table:
    dates = [START + datetime.timedelta(days=d) for d in log["day"].to_pylist()]
    return log.set_column(1, "day", pa.array(dates))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analyze_experiment(written(LOG, tmp_path_factory.mktemp("plain")), experiment())


def test_the_export_of_a_server_is_read_as_it_is(plain: Analysis, tmp_path: Path) -> None:
    """Dates, `paid` for the cost, a folder a day, further decisions of a day apart, users outside the test."""
    outside = pa.array([("policy", "random", None)[i % 50 % 3] for i in range(700)])
    outsiders = panel(users=50, seed=9).set_column(2, "arm", outside)
    outsiders = outsiders.set_column(0, "user", pa.array([f"x{u}" for u in outsiders["user"].to_pylist()]))
    log = renamed(dated(pa.concat_tables([LOG, outsiders])), cost="paid")
    for day in pc.unique(log["day"]).to_pylist():
        for part in ("log", "further"):
            folder = tmp_path / part / f"dt={day}"
            folder.mkdir(parents=True)
            pq.write_table(log.filter(pc.field("day") == day), folder / "part-0.parquet")
    found = analyze_experiment(tmp_path, experiment())
    assert found.day == 14
    assert active(found).absolute.value == pytest.approx(active(plain).absolute.value)
    assert [x.metric for x in found.comparisons[0].lifts] == [
        "active",
        "cost",
        "cost_per_active",
        "redemption",
    ]


def test_only_an_export_may_name_the_users_outside(tmp_path: Path) -> None:
    log = LOG.set_column(2, "arm", pc.if_else(pc.equal(LOG["user"], LOG["user"][0]), "policy", LOG["arm"]))
    with pytest.raises(LogError, match="policy"):
        analyze_experiment(written(log, tmp_path), experiment())


@pytest.mark.parametrize("kind", ["csv", "names", "texts"])
def test_other_forms_say_the_same(plain: Analysis, tmp_path: Path, kind: str) -> None:
    columns: dict[str, str] = {}
    path = tmp_path / "log.csv"
    if kind == "csv":
        pacsv.write_csv(LOG, path)
    elif kind == "texts":
        log = dated(LOG)
        path = written(log.set_column(1, "day", pc.cast(log["day"], pa.string())), tmp_path)
    else:
        path = written(renamed(LOG, user="who", day="d", arm="variant", active="acted", cost="c"), tmp_path)
        columns = {"user": "who", "day": "d", "arm": "variant", "active": "acted", "cost": "c + 0"}
    found = analyze_experiment(path, experiment(), columns=columns)
    assert active(found).absolute.value == pytest.approx(active(plain).absolute.value)
    assert found.verdict == plain.verdict


def test_a_day_may_be_an_expression(plain: Analysis, tmp_path: Path) -> None:
    later = LOG.set_column(1, "day", pc.add(LOG["day"], 1))
    found = analyze_experiment(written(later, tmp_path), experiment(), columns={"day": "day - 1"})
    assert found.verdict == plain.verdict


@pytest.mark.parametrize("kind", ["moments", "texts"])
def test_moments_with_a_time_zone_are_refused_until_one_says_whose_days_they_are(
    plain: Analysis, tmp_path: Path, kind: str
) -> None:
    """Half an hour after midnight in Berlin, which is the day before in UTC."""
    midnight = pc.cast(dated(LOG)["day"], pa.timestamp("ms"))
    moment = pc.assume_timezone(pc.add(midnight, datetime.timedelta(minutes=30)), "Europe/Berlin")
    texts = pa.array([m.isoformat() for m in moment.to_pylist()])
    path = written(LOG.set_column(1, "ts", moment if kind == "moments" else texts), tmp_path)
    with pytest.raises(OutlayError) as caught:
        analyze_experiment(path, experiment(), columns={"day": "ts"})
    way_out = caught.value.way_out
    assert way_out is not None
    given = way_out.split('"day=')[1].split('"')[0]
    assert given.endswith("AT TIME ZONE 'Europe/Berlin' AS DATE)")
    assert analyze_experiment(path, experiment(), columns={"day": given}).verdict == plain.verdict


def test_days_that_nobody_has_bar_the_verdict(tmp_path: Path) -> None:
    log = LOG.filter(pc.invert(pc.is_in(LOG["day"], pa.array([3, 4]))))
    found = analyze_experiment(written(log, tmp_path), experiment())
    days = "2026-03-05 to 2026-03-06"
    assert found.comparisons[0].blocked == [NoteKind.DAYS_WITHOUT_ROWS(days=days)]
    assert not missing(found.verdict, "day 14 of 14", "No verdict on “new”.", found.comparisons[0].blocked[0].words)
    assert NoteKind.UNRECORDED(days=days) in found.notes
    short = analyze_experiment(written(LOG.filter(pc.field("day") < 7), tmp_path), experiment(), day=14)
    (reason,) = short.comparisons[0].blocked
    assert reason == NoteKind.DAYS_WITHOUT_ROWS(days="2026-03-09 to 2026-03-15")
    assert not missing(short.verdict, reason.words)


def test_a_metric_that_is_the_same_for_all_users_of_a_day_is_not_compared(tmp_path: Path) -> None:
    """A ramp: users differ only by when they came."""
    late = pc.and_(pc.less(LOG["day"], 3), pc.equal(pc.utf8_slice_codeunits(LOG["user"], 1, 2), "1"))
    log = LOG.set_column(3, "active", pa.array([1.0] * LOG.num_rows)).filter(pc.invert(late))
    found = analyze_experiment(written(log, tmp_path), experiment())
    (reason,) = found.comparisons[0].blocked
    assert (reason.kind, reason.figures["metric"]) == (NoteKind.NOT_COMPARED, "active")
    assert not missing(str(reason.figures["reason"]), "differ", "by the day")
    assert not missing(found.verdict, reason.words)


def test_a_row_may_be_a_user_with_the_time_before_beside(tmp_path: Path) -> None:
    users = np.arange(400)
    rng = np.random.default_rng(0)
    before = rng.poisson(4, 400)
    log = pa.table(
        {
            "user": users,
            "arm": np.where(users % 2, "new", "old"),
            "active": before + rng.poisson(2 + users % 2),
            "active_before": before,
            "cost": rng.poisson(5, 400),
            "cost_before": rng.poisson(5, 400),
        }
    )
    found = analyze_experiment(written(log, tmp_path), experiment(), day=14)
    assert active(found).covariate
    assert [d.day for d in found.comparisons[0].decisions] == [14]
    assert NoteKind.WHOLE_USERS() in found.notes
    assert "Take “new”" in found.verdict


def per_user(log: pa.Table) -> pa.Table:
    found = log.group_by(["user", "arm"]).aggregate([("active", "sum"), ("cost", "sum")])
    return found.rename_columns(["user", "arm", "active", "cost"])


def test_of_a_row_per_user_nobody_knows_how_many_days_it_has(tmp_path: Path) -> None:
    """Seven days of a test of fourteen would be judged by the bound of its end."""
    with pytest.raises(LogError, match=r"how many days .*--day 14\b"):
        analyze_experiment(written(per_user(LOG), tmp_path), experiment())


def test_more_spent_than_the_budget_is_noted(tmp_path: Path) -> None:
    arms = [
        {"name": n, "kind": "constant", "action": 1.0, "share": 0.5, "budget": b} for n, b in (("old", 1e6), ("new", 5))
    ]
    found = analyze_experiment(written(LOG, tmp_path), experiment(arm=arms))
    [note] = of_kind(found, NoteKind.OVERSPENT)
    assert (note.figures["arm"], note.figures["budget"]) == ("new", 5)
    assert note.figures["spent"] == found.arms[1].spent


def test_a_log_in_which_nobody_has_an_arm_is_refused(tmp_path: Path) -> None:
    arms = LOG.column_names.index("arm")
    nobody = LOG.set_column(arms, "arm", pa.nulls(len(LOG), pa.string()))
    with pytest.raises(LogError, match=r"no row .*has an arm"):
        analyze_experiment(written(nobody, tmp_path), experiment())


def test_a_row_per_user_does_not_say_on_how_many_days_money_was_paid(tmp_path: Path) -> None:
    meta = {
        "name": "spring",
        "campaign": "habit",
        "start": START,
        "days": 14,
        "metric": "active",
        "guardrails": ["cost", "redemption"],
    }
    users = per_user(LOG)
    found = analyze_experiment(written(users, tmp_path), experiment(experiment=meta), day=14)
    assert [x.metric for x in found.comparisons[0].lifts] == ["active", "cost", "cost_per_active"]
    assert NoteKind.NO_REDEMPTION(column="redemption") in found.notes
    days = users.append_column("redeemed", users["active"])
    told = analyze_experiment(written(days, tmp_path), experiment(experiment=meta), day=14)
    assert told.comparisons[0].lift("redemption") is not None


def test_a_row_per_user_may_be_of_a_test_with_a_ramp(tmp_path: Path) -> None:
    """Nobody's first day is known then, neither from the log nor from the list."""
    design = experiment(ramp=[{"day": 0, "coverage": 0.1}, {"day": 2, "coverage": 1.0}])
    arm, _ = entries(design, LOG["user"].to_pylist())
    log = per_user(LOG.set_column(2, "arm", pa.array(np.array(["old", "new"])[arm])))
    alone = analyze_experiment(written(log, tmp_path), design, day=14)
    assert sum(arm.users for arm in alone.arms) == 600
    pq.write_table(log.select(["user", "arm"]).append_column("day", pa.array([2] * 600)), tmp_path / "arms.parquet")
    listed = analyze_experiment(written(log, tmp_path), design, day=14, assigned=tmp_path / "arms.parquet")
    assert active(listed) == active(alone)


def test_a_daily_log_without_its_day_is_not_taken_for_a_row_per_user(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"column 'day': .*missing"):
        analyze_experiment(written(LOG.drop_columns(["day"]), tmp_path), experiment())


@pytest.mark.parametrize("form", ["%m/%d/%Y", "%d.%m.%Y"])
def test_dates_of_other_forms_must_be_said(plain: Analysis, tmp_path: Path, form: str) -> None:
    days = [(START + datetime.timedelta(days=d)).strftime(form) for d in LOG["day"].to_pylist()]
    bare = pacsv.WriteOptions(quoting_style="none")  # texts in quotes would not be taken for dates anyway
    pacsv.write_csv(LOG.set_column(1, "day", pa.array(days)), tmp_path / "log.csv", bare)
    with pytest.raises(LogError, match=r"not a date.*2026-03-02.*--column"):
        analyze_experiment(tmp_path / "log.csv", experiment())
    found = analyze_experiment(tmp_path / "log.csv", experiment(), columns={"day": f"strptime(day, '{form}')"})
    assert active(found).absolute.value == pytest.approx(active(plain).absolute.value)


@pytest.mark.parametrize(("name", "advice"), [("New ", "Did you mean 'new'?"), ("policy", "nullif(arm, 'policy')")])
def test_an_arm_that_is_none_is_named_before_users_are_found_in_two(tmp_path: Path, name: str, advice: str) -> None:
    log = LOG.set_column(2, "arm", pc.if_else(pc.less(LOG["day"], 3), name, LOG["arm"]))
    with pytest.raises(LogError) as caught:
        analyze_experiment(written(log, tmp_path), experiment())
    assert (caught.value.where, caught.value.found.split(", ")[0]) == ("arm", f"holds {name!r}")
    assert advice in str(caught.value)


def test_a_list_may_be_csv_and_users_without_rows_are_told(plain: Analysis, tmp_path: Path) -> None:
    users = LOG.filter(pc.field("day") == 0).select(["user", "arm"])
    pacsv.write_csv(users.append_column("day", pa.array([0] * 600)), tmp_path / "arms.csv")
    path = written(LOG, tmp_path)
    assert active(analyze_experiment(path, experiment(), assigned=tmp_path / "arms.csv")) == active(plain)
    few = written(LOG.filter(pc.field("user") < "u3"), tmp_path)
    found = analyze_experiment(few, experiment(), assigned=tmp_path / "arms.csv")
    gone = 600 - len(pc.unique(LOG.filter(pc.field("user") < "u3")["user"]))
    assert NoteKind.WITHOUT_ROWS(count=gone, assigned=600) in found.notes


def test_a_look_that_was_asked_for_is_not_called_the_last_whole_week(tmp_path: Path) -> None:
    found = analyze_experiment(written(LOG, tmp_path), experiment(), day=3)
    assert not of_kind(found, NoteKind.LATER_DAYS)
    with pytest.raises(OutlayError, match=r"day: .*-3; .*at least 1\b"):
        analyze_experiment(written(LOG, tmp_path), experiment(), day=-3)


def test_the_look_is_after_the_last_whole_week(tmp_path: Path) -> None:
    found = analyze_experiment(written(LOG.filter(pc.field("day") < 10), tmp_path), experiment())
    assert (found.day, found.observed) == (7, 10)
    assert NoteKind.LATER_DAYS(observed=10, day=7) in found.notes
    early = analyze_experiment(written(LOG.filter(pc.field("day") < 3), tmp_path), experiment())
    assert early.day == 3
    assert NoteKind.BROKEN_WEEK(day=3) in early.notes
    assert early.comparisons[0].outcome == "open"
    assert not missing(early.verdict, "Let it run", "“new”")


def test_a_look_after_the_planned_end_is_refused(tmp_path: Path) -> None:
    path = written(panel(users=600, days=20, lift=0.3), tmp_path)
    with pytest.raises(OutlayError, match="planned for 14 days"):
        analyze_experiment(path, experiment(), day=15)
    found = analyze_experiment(path, experiment())
    assert found.day == 14
    assert NoteKind.BEYOND(rows=3_600, days=14) in found.notes


def test_a_list_of_the_assigned_counts_those_who_never_came(tmp_path: Path) -> None:
    """Half of the users of one arm leave no row, which the log alone does not show."""
    gone = pa.array([int(u[1:]) % 2 == 0 for u in LOG["user"].to_pylist()])
    log = LOG.filter(pc.or_(pc.invert(gone), pc.equal(LOG["arm"], "old")))
    users = LOG.filter(pc.field("day") == 0).select(["user", "arm"])
    pq.write_table(users, tmp_path / "arms.parquet")
    found = analyze_experiment(
        written(log.drop_columns(["arm"]), tmp_path), experiment(), assigned=tmp_path / "arms.parquet"
    )
    assert sum(arm.users for arm in found.arms) == 600
    assert [check.of for check in found.ratios] == ["assigned", "in the log"]
    assert [check.passed for check in found.ratios] == [True, False]
    assert "No verdict on “new”" in found.verdict
    assert "are in the log" in found.verdict
    assert isinstance(found.comparisons[0].exposed[0], Lift)


def test_a_list_that_lacks_users_of_the_log_is_told(tmp_path: Path) -> None:
    users = LOG.filter(pc.field("day") == 0).select(["user", "arm"])
    pq.write_table(users.slice(0, 500), tmp_path / "arms.parquet")
    found = analyze_experiment(written(LOG, tmp_path), experiment(), assigned=tmp_path / "arms.parquet")
    assert sum(arm.users for arm in found.arms) == 500
    assert NoteKind.NOT_LISTED(count=100) in found.notes


def test_rows_without_an_arm_from_before_assignment_do_not_count(tmp_path: Path) -> None:
    """A ramp: everybody is let in on day 5, and has an empty arm before."""
    arm = np.where(LOG["day"].to_numpy() < 5, None, LOG["arm"].to_pylist())
    log = LOG.set_column(2, "arm", pa.array(arm, pa.string()))
    users = LOG.filter(pc.field("day") == 0).select(["user", "arm"])
    pq.write_table(users.append_column("day", pa.array([5] * 600)), tmp_path / "arms.parquet")
    design = experiment(ramp=[{"day": 0, "coverage": 0.5}, {"day": 5, "coverage": 1.0}])
    listed = analyze_experiment(written(log, tmp_path), design, assigned=tmp_path / "arms.parquet")
    alone = analyze_experiment(written(log, tmp_path), design)
    assert active(listed) == active(alone)
    assert active(listed).control == pytest.approx(9 * 0.45, rel=0.1)


@pytest.fixture
def estimates(tmp_path: Path) -> Path:
    end = {"policy": "mixture", "estimator": "fqe", "recommended": True, "caution": None}
    told = {
        "confidence": 0.95,
        "differences": [{**end, "target": "reward@7", "against": "old", "value": 0.9, "low": 0.6, "high": 1.2}],
        "beside": [{**end, "policy": "old", "target": "reward@7", "value": 3.15, "low": 3.1, "high": 3.2}],
    }
    (tmp_path / "estimates.json").write_text(json.dumps(told))
    return tmp_path / "estimates.json"


def test_what_was_promised_stands_beside(tmp_path: Path, estimates: Path) -> None:
    path = written(LOG, tmp_path)
    for given in (estimates, {"new": estimates}):
        found = analyze_experiment(path, experiment(), promised=given)
        assert [(p.metric, p.days, p.agrees) for p in found.promised] == [("active", 7, True)]
    assert NoteKind.OTHER_CONTROL(control="old") in found.notes
    assert not of_kind(found, NoteKind.RAMP_OF_PROMISE)
    ramp = experiment(ramp=[{"day": 0, "coverage": 0.5}, {"day": 4, "coverage": 1.0}])
    ramped = analyze_experiment(path, ramp, promised=estimates)
    assert of_kind(ramped, NoteKind.RAMP_OF_PROMISE) == [NoteKind.RAMP_OF_PROMISE(days=7, inside=7.0)]
    (row,) = found.to_dict()["promised"]
    assert (row["arm"], row["metric"], row["agrees"]) == ("new", "active", True)
    estimates.write_text("{}")
    with pytest.raises(OutlayError, match="is not an evaluation"):
        analyze_experiment(path, experiment(), promised=estimates)


def test_every_arm_may_have_a_promise_and_a_file_alone_is_of_the_only_one(tmp_path: Path, estimates: Path) -> None:
    arms = [{"name": n, "kind": "constant", "action": 1.0, "share": 0.3, "budget": 9e6} for n in ("old", "new", "more")]
    design = experiment(arm=arms)
    arm = np.where([int(u[1:]) % 3 == 0 for u in LOG["user"].to_pylist()], "more", LOG["arm"].to_pylist())
    path = written(LOG.set_column(2, "arm", pa.array(arm)), tmp_path)
    both = analyze_experiment(path, design, promised={"new": estimates, "more": estimates})
    new, more = both.promised
    assert (new.arm, more.arm) == ("new", "more")
    assert replace(new, arm="more") != more
    for wrong, said in (
        (estimates, "does not say which arm .*Give new="),
        ({"old": estimates}, "'old' is not an arm that is compared with the control. The arms that are: new, more"),
        ({"new": tmp_path / "no.json"}, "no.json, promised: does not exist"),
    ):
        with pytest.raises(OutlayError, match=said):
            analyze_experiment(path, design, promised=wrong)


def eligible(condition: str) -> Experiment:
    meta = {
        "name": "spring",
        "campaign": "habit",
        "start": START,
        "days": 14,
        "metric": "active",
        "guardrails": ["cost"],
        "eligible": condition,
    }
    return experiment(experiment=meta)


def test_users_in_an_arm_must_have_been_eligible(tmp_path: Path) -> None:
    """On their first row: what they are later may be the arm's doing."""
    age = np.where(LOG["day"].to_numpy() == 0, 30, 10)
    path = written(LOG.append_column("age", pa.array(age)), tmp_path)
    analyze_experiment(path, eligible("age >= 18"))
    analyze_experiment(path, eligible("income > 1000"))  # which the log does not know
    with pytest.raises(LogError) as caught:
        analyze_experiment(path, eligible("age < 18"))
    assert re.search(r"\b600 users in an arm .*not eligible .* user 'u\d+'", str(caught.value))
    assert "--column eligible=SQL" in str(caught.value)
    analyze_experiment(path, eligible("age < 18"), columns={"eligible": "age >= 18"})


def test_a_list_of_an_early_day_of_the_ramp_is_refused(tmp_path: Path) -> None:
    early = LOG.filter(pc.less(pc.utf8_length(LOG["user"]), 3)).group_by(["user", "arm"]).aggregate([])
    pq.write_table(early, tmp_path / "arms.parquet")
    with pytest.raises(LogError, match=r"assigned: .*\b10 users, .*\b590 others"):
        analyze_experiment(written(LOG, tmp_path), experiment(), assigned=tmp_path / "arms.parquet")


def test_users_of_a_list_must_have_been_eligible_when_they_were_assigned(tmp_path: Path) -> None:
    age = np.where(LOG["day"].to_numpy() < 3, 10, 30)
    path = written(LOG.append_column("age", pa.array(age)).drop_columns(["arm"]), tmp_path)
    users = LOG.filter(pc.field("day") == 0).select(["user", "arm"])
    pq.write_table(users.append_column("day", pa.array([3] * 600)), tmp_path / "arms.parquet")
    analyze_experiment(path, eligible("age >= 18"), assigned=tmp_path / "arms.parquet")
    with pytest.raises(LogError, match="were not eligible"):
        analyze_experiment(path, eligible("age < 18"), assigned=tmp_path / "arms.parquet")


def test_arms_drawn_by_the_file_need_no_note(tmp_path: Path) -> None:
    design = experiment()
    arm, _ = entries(design, LOG["user"].to_pylist())
    log = LOG.set_column(2, "arm", pa.array(np.array(["old", "new"])[arm]))
    assert analyze_experiment(written(log, tmp_path), design).notes == ()


def test_the_document_is_plain_json(plain: Analysis) -> None:
    found = json.loads(json.dumps(plain.to_dict(), allow_nan=False))
    assert found["verdict"] == plain.verdict
    assert found["comparisons"][0]["decided"] == 7
    assert found["comparisons"][0]["outcome"] == "better"
    assert (found["better"], found["unit"]) == ("higher", "money")
    assert found["comparisons"][0]["courses"][0]["seen"][1] == 14
    assert found["comparisons"][0]["lifts"][0]["metric"] == "active"
    assert len(found["arms"][0]["spent_by_day"]) == 14


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda log: log.drop_columns(["arm"]), {}, "column 'arm': is missing in the log"),
        (lambda log: log.drop_columns(["cost"]), {}, "column 'cost': is missing in the log"),
        (lambda log: log, {"columns": {"cots": "cost"}}, "'cots' is not a role. Known: "),
        (lambda log: log, {"columns": {"cost": "coost"}}, "no column 'coost'"),
        (
            lambda log: log.set_column(1, "day", pa.array(["monday"] * log.num_rows)),
            {},
            "'monday', which is not a date",
        ),
        (lambda log: log.set_column(1, "day", pa.array([0.5] * log.num_rows)), {}, "is of type DOUBLE"),
        (
            lambda log: log.set_column(3, "active", pa.array(["yes"] * log.num_rows)),
            {},
            "'yes' in row 1 is not a number",
        ),
        (lambda log: pa.concat_tables([log, log.slice(0, 1)]), {}, "more than one row, for example user 'u0' on day 0"),
        (lambda log: log, {"day": 0}, "day: is 0"),
    ],
)
def test_a_wrong_log_is_an_error_that_says_where(
    tmp_path: Path, change: Any, options: dict[str, Any], said: str
) -> None:
    path = written(change(LOG), tmp_path)
    with pytest.raises(OutlayError) as caught:
        analyze_experiment(path, experiment(), **options)
    assert said in str(caught.value)


def test_an_error_about_rows_names_the_file(tmp_path: Path) -> None:
    path = written(pa.concat_tables([LOG, LOG.slice(0, 1)]), tmp_path)
    with pytest.raises(LogError) as caught:
        analyze_experiment(path, experiment())
    assert str(caught.value).startswith(f"{path}, user, day: ")
    assert not missing(str(caught.value), "1 row repeats another row of the log exactly", "do not add them up")
    other = LOG.slice(0, 1).set_column(LOG.schema.get_field_index("cost"), "cost", pa.array([7.0]))
    with pytest.raises(LogError, match="Sum them"):
        analyze_experiment(
            written(pa.concat_tables([LOG, other], promote_options="permissive"), tmp_path), experiment()
        )
