"""Policies from outside: the same numbers as from a run, the truth inside the intervals, differences, looks."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import outlay
from conftest import Habit
from outlay.choosing.estimates import estimate_policy
from outlay.choosing.evaluated_policy import mixture_of
from outlay.choosing.measure import Measure
from outlay.choosing.run import Run
from outlay.core.errors import FolderError
from outlay.core.transitions import CERTIFY, Transitions
from outlay.evaluating.evaluation import Evaluation
from outlay.ops.tabular import measure, totals
from policy_files import generous, habit_policy, habit_states, policy_file, thrifty
from telling import missing

pytestmark = pytest.mark.usefixtures("few_budgets")
SURE = 0.3  # how often a rule is followed: enough paths of the log then go its way
PROMISED = {"estimator", "target", "value", "low", "high", "ess", "recommended", "withheld"}


@pytest.fixture
def data(habit: Habit, tmp_path: Path) -> Path:
    """A copy of DATA, whose looks may be counted."""
    shutil.copytree(habit.data, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def few_data(few: Habit, tmp_path: Path) -> Path:
    shutil.copytree(few.data, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture(scope="module")
def found(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """A drawn policy held against another; shared."""
    folder = tmp_path_factory.mktemp("policy")
    shutil.copytree(habit.data, folder / "data")
    policy = habit_policy(habit, folder / "generous.parquet", generous, SURE)
    against = habit_policy(habit, folder / "thrifty.parquet", thrifty, SURE)
    return outlay.evaluate(folder / "data", policy=policy, against=against, learned_here=True)


def true_values(habit: Habit, policy: Any) -> dict[str, float]:
    """By target."""
    names, days = ("reward", "coupon_cost"), totals(habit.truth, policy, 7)
    found = dict(zip(names, measure(habit.truth, policy), strict=True))
    return found | {f"{name}@{k}": days[k - 1][i] for k in (1, 3, 7) for i, name in enumerate(names)}


def test_a_table_of_what_a_member_does_gives_the_members_numbers_without_the_run(
    run: Path, habit: Habit, tmp_path: Path
) -> None:
    """Fitted, doubly robust and marginalised; on DATA alone and beside the run."""
    log = pq.read_table(habit.folder / "log.parquet")
    bundle = outlay.load_bundle(run / "bundle")
    decided = bundle.decide(log, members=True)
    member = decided["action"].to_numpy().reshape(len(log), -1)[:, 0]
    one_hot = (member[:, None] == bundle.actions).astype(np.float64)
    path = policy_file(tmp_path / "member.parquet", log, bundle.actions, one_hot)

    alone = outlay.evaluate(run / "data", policy=path, learned_here=True)
    beside = outlay.evaluate(run, policy=path)
    at = Measure(Transitions.open(run / "data"), CERTIFY, bundle)
    mixture = mixture_of(at, "")
    first = replace(mixture, parts=mixture.parts[:1], weights=np.ones(1), features=(0,), name="policy")
    wanted = estimate_policy(at, first, at.propensity()).rows(at.data.campaign, 0.95)
    for result in (alone, beside):
        assert [(e.estimator, e.target) for e in result.estimates] == [(e.estimator, e.target) for e in wanted]
        for e, other in zip(result.estimates, wanted, strict=True):
            for name in ("value", "low", "high", "std_error", "ess"):
                one, two = getattr(e, name), getattr(other, name)
                assert one is two is None or one == pytest.approx(two, rel=1e-6), (e.estimator, e.target, name)
            assert (e.withheld, e.recommended) == (other.withheld, other.recommended)
    assert (alone.certificate.look, beside.certificate.look) == (1, 1)
    assert not (run / "estimates.json").exists()  # which is about the mixture of the run


def test_a_policy_that_learned_from_none_is_measured_on_all(found: Evaluation, habit: Habit, data: Path) -> None:
    """The same truth with the error of 100 instead of 15% of the users."""
    policy = habit_policy(habit, data / "generous.parquet", generous, SURE)
    every = outlay.evaluate(data, policy=policy)
    truth = true_values(habit, habit_states(habit, generous, SURE))
    some = {e.target: e for e in found.estimates if e.estimator == "fqe"}
    for e in every.estimates:
        if e.estimator == "fqe":
            before = some[e.target].std_error
            assert e.value is not None
            assert e.std_error is not None
            assert before is not None
            assert abs(e.value - truth[e.target]) < 3.5 * e.std_error
            assert e.std_error == pytest.approx(before * math.sqrt(0.15), rel=0.2)
    assert (every.users, found.users) == ("all", "certify")
    assert every.certificate.users == len(Transitions.open(habit.data).users)
    assert every.certificate.look == 1


def test_the_truth_lies_in_the_intervals_of_what_is_recommended(found: Evaluation, habit: Habit) -> None:
    truth = true_values(habit, habit_states(habit, generous, SURE))
    relied = [e for e in found.estimates if e.recommended]
    assert {e.estimator for e in relied} >= {"fqe", "dr", "mis"}
    assert {e.target for e in relied if e.estimator == "fqe"} == set(truth)
    inside = 0
    for e in relied:
        assert e.value is not None
        assert e.std_error is not None
        assert e.low is not None
        assert e.high is not None
        inside += e.low <= truth[e.target] <= e.high
        assert abs(e.value - truth[e.target]) < 3.5 * e.std_error, (e.estimator, e.target)
    assert inside >= 0.8 * len(relied)  # they share their users, so they miss together


def test_differences_are_those_of_the_values_and_the_truth_lies_in_them(found: Evaluation, habit: Habit) -> None:
    mine = {(e.estimator, e.target): e for e in found.estimates}
    other = {(e.estimator, e.target): e for e in found.beside if e.policy == "against"}
    a, b = (true_values(habit, habit_states(habit, rule, SURE)) for rule in (generous, thrifty))
    rows = [d for d in found.differences if d.against == "against"]
    assert {(d.estimator, d.target) for d in rows} == set(mine) == set(other)
    for d in rows:
        target = d.target
        one, two = mine[d.estimator, target], other[d.estimator, target]
        assert d.recommended == (one.recommended and two.recommended)
        if d.value is None:
            assert d.withheld == (one.withheld or two.withheld)
            continue
        assert one.value is not None
        assert two.value is not None
        assert one.std_error is not None
        assert two.std_error is not None
        assert d.value == pytest.approx(one.value - two.value)
        if d.estimator in ("fqe", "dr"):  # users are the same, and both give any coupon to most of them
            least = {"fqe": 0.75, "dr": 1.0}[d.estimator]
            assert d.std_error < least * math.hypot(one.std_error, two.std_error)  # type: ignore[operator]
        if d.recommended:
            assert abs(d.value - (a[target] - b[target])) < 3.5 * d.std_error  # type: ignore[operator]
    assert {d.against for d in found.differences} == {"old", "against"}
    old = {e.target: e.value for e in found.beside if (e.policy, e.estimator) == ("old", "fqe")}
    for d in found.differences:
        if (d.against, d.estimator) == ("old", "fqe"):
            assert d.value == pytest.approx(mine["fqe", d.target].value - old[d.target])  # type: ignore[operator]


def test_the_document_has_what_is_promised_about_the_policy_asked_for(found: Evaluation) -> None:
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {"estimates", "certificate", "verdict", "differences", "segments", "beside", "diagnostics"} <= set(document)
    for e in document["estimates"]:
        assert set(e) >= PROMISED
        assert e["policy"] == "policy"
        assert (e["value"] is None) == (e["withheld"] is not None)
        assert (e["low"] is None) == (e["high"] is None) == (e["value"] is None)
        assert not (e["recommended"] and e["caution"])
    targets = {"reward", "coupon_cost"} | {f"{name}@{k}" for name in ("reward", "coupon_cost") for k in (1, 3, 7)}
    for estimator, wanted in (
        ("fqe", targets),
        ("dr", targets),
        ("mis", targets),
        ("pdis", targets - {"reward", "coupon_cost"}),
    ):
        assert {e["target"] for e in document["estimates"] if e["estimator"] == estimator} == wanted
    assert {e["policy"] for e in document["beside"]} == {"old", "constants", "against"}
    assert document["policies"] == {
        "old": "old policy",
        "constants": "best constant mixture",
        "against": "thrifty.parquet",
        "policy": "generous.parquet",
    }
    certificate = document["certificate"]
    assert {"certified", "words", "confidence", "users", "budgets", "gain", "gain_bound", "look", "alpha"} <= set(
        certificate
    )
    line = certificate["budgets"][0]
    fitted = next(e for e in document["estimates"] if (e["estimator"], e["target"]) == ("fqe", "coupon_cost"))
    assert line["value"] == pytest.approx(fitted["value"])
    gain = next(
        d for d in document["differences"] if (d["against"], d["estimator"], d["target"]) == ("old", "fqe", "reward")
    )
    assert certificate["gain"] == pytest.approx(gain["value"])
    for row in document["daily"]:
        assert row["policy"] in ("old", "policy")


def test_segments_are_parts_of_all_users_and_their_gains_differences(
    found: Evaluation, habit: Habit, habit_data: Transitions
) -> None:
    users = {row.segment: row.users for row in found.segments}
    assert list(users) == ["active", "inactive"]
    assert sum(users.values()) == len(habit_data.users_of(CERTIFY)) == found.certificate.users
    by = {(r.segment, r.policy, r.target): r for r in found.segments}
    mine = {e.target: e.value for e in found.estimates if e.estimator == "fqe"}
    for target, value in mine.items():
        for segment in users:
            one, old, gain = (by[segment, policy, target].value for policy in ("policy", "old", "gain"))
            assert gain == pytest.approx(one - old)  # type: ignore[operator]
        if target != "coupon_cost":  # per decision it is a ratio of two means
            parts = sum(users[s] * by[s, "policy", target].value for s in users) / sum(users.values())  # type: ignore[misc,operator]
            assert parts == pytest.approx(value)
    level = pq.read_table(habit.folder / "states.parquet")["level"].to_numpy()
    for segment, among in (("inactive", level <= 1), ("active", level > 1)):
        start = habit.truth.start * among / habit.truth.start[among].sum()
        there = replace(habit.truth, start=start)
        for target, policy in (("policy", habit_states(habit, generous, SURE)), ("old", np.full((10, 11), 1 / 11))):
            e = by[segment, target, "reward@7"]
            assert abs(e.value - totals(there, policy, 7)[-1][0]) < 3.5 * e.std_error, segment  # type: ignore[operator]


@pytest.mark.slow
def test_a_policy_is_a_look_by_what_its_file_says(few_data: Path, few: Habit, tmp_path: Path) -> None:
    first = habit_policy(few, tmp_path / "first.parquet", generous)
    again = shutil.copy(first, tmp_path / "again.parquet")
    other = habit_policy(few, tmp_path / "other.parquet", thrifty)
    found = [outlay.evaluate(few_data, policy=path).certificate for path in (first, again, other, first)]
    assert [certificate.look for certificate in found] == [1, 1, 2, 1]
    assert len(json.loads((few_data / "looks.json").read_text())) == 2
    assert found[2].confidence == pytest.approx(1 - 0.05 / 6)
    assert outlay.evaluate(few_data, policy=first, learned_here=True).certificate.look == 3, "on other users"


@pytest.mark.slow
def test_the_policy_it_is_held_against_has_been_looked_at_too(few_data: Path, few: Habit, tmp_path: Path) -> None:
    """Its figures on the certify users are in the table: chosen by them, it has to be its second look."""
    first = habit_policy(few, tmp_path / "first.parquet", generous)
    other = habit_policy(few, tmp_path / "other.parquet", thrifty)
    assert outlay.evaluate(few_data, policy=first, against=other).certificate.look == 1
    third = habit_policy(few, tmp_path / "third.parquet", generous, SURE)
    assert outlay.evaluate(few_data, policy=third).certificate.look == 3
    assert outlay.evaluate(few_data, policy=other, against="old").certificate.look == 2
    assert outlay.evaluate(few_data, policy=first, against=first).certificate.look == 1


def test_old_is_the_default_to_hold_it_against(few_data: Path, few: Habit, tmp_path: Path) -> None:
    policy = habit_policy(few, tmp_path / "policy.parquet", generous)
    default, named = (outlay.evaluate(few_data, policy=policy, against=against).to_dict() for against in (None, "old"))
    assert default == named
    assert {d["against"] for d in default["differences"]} == {"old"}
    assert "against" not in default["notes"]


def test_a_run_is_held_against_another_run_and_against_a_table(habit: Habit, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "twin")
    twin = outlay.evaluate(run, against=tmp_path / "twin").to_dict()
    rows = [d for d in twin["differences"] if d["against"] == "against"]
    assert {d["estimator"] for d in rows} == {"fqe", "dr", "mis", "pdis", "snpdis"}
    for d in rows:
        assert d["withheld"] or (d["value"], d["std_error"]) == (
            pytest.approx(0, abs=1e-12),
            pytest.approx(0, abs=1e-12),
        )
    assert twin["policies"]["against"] == "twin (aim-greedy)"
    (name,) = json.loads((run / "data" / "looks.json").read_text())
    assert name.startswith(f"{outlay.load_bundle(run / 'bundle').id}@")

    table = habit_policy(habit, tmp_path / "table.parquet", generous, SURE)
    found = outlay.evaluate(run, against=table)
    assert found.subject == "mixture"
    assert len(json.loads((run / "data" / "looks.json").read_text())) == 2
    back = outlay.evaluate(run / "data", policy=table, against=run)
    a, b = (
        {(d.estimator, d.target): d.value for d in each.differences if d.against == "against"} for each in (found, back)
    )
    for key, value in a.items():
        assert value is b[key] is None or value == pytest.approx(-b[key], abs=1e-9)  # type: ignore[operator]
    assert found.notes.keys() == {"constants"}


@pytest.mark.slow
def test_a_frontier_that_was_evaluated_costs_no_look_to_be_held_against(
    habit: Habit, counted_and_evaluated: Path, tmp_path: Path
) -> None:
    """Its mixture and its curve are one look, and every comparison costs none."""
    run = Run.open(shutil.copytree(counted_and_evaluated, tmp_path / "run"))
    evaluated = Evaluation.read(run.folder)
    assert evaluated is not None
    assert evaluated.certificate.look == 1
    policy = habit_policy(habit, tmp_path / "policy.parquet", generous)
    found = outlay.evaluate(run.folder / "data", policy=policy, against=run)
    assert found.certificate.look == 2
    assert found.certificate.users == 6000  # who certify the run: all, in four folds
    assert len(json.loads((run.folder / "data" / "looks.json").read_text())) == 2


def test_a_run_on_another_log_says_so_and_one_with_another_schema_is_refused(
    habit: Habit, run: Path, tmp_path: Path
) -> None:
    policy = habit_policy(habit, tmp_path / "policy.parquet", generous, SURE)
    campaign = outlay.simulate("habit", tmp_path / "later", users=600, seed=9)
    data = outlay.prepare(campaign, tmp_path / "data").folder
    found = outlay.evaluate(data, policy=policy_of(campaign), against=run)
    assert not missing(found.notes["against"], "other data")

    path = habit.changed(tmp_path / "narrow", ('categorical = ["yesterday", "level"]', 'categorical = ["level"]'))
    narrow = outlay.prepare(path, tmp_path / "narrow" / "data").folder
    with pytest.raises(FolderError, match=r"--against: .*other features.*outlay prepare"):
        outlay.evaluate(narrow, policy=policy, against=run)
    assert not (narrow / "looks.json").exists()
    with pytest.raises(FolderError, match=r"nothing, --against: does not exist.*RUN.*policy.*old"):
        outlay.evaluate(narrow, policy=policy, against=tmp_path / "nothing")
    with pytest.raises(FolderError, match="outlay-run"):
        outlay.evaluate(narrow, policy=policy, against=habit.data)


def policy_of(campaign: Path) -> Path:
    """Always 3 on a simulated campaign."""
    log = pq.read_table(campaign.parent / "log.parquet")
    return policy_file(
        campaign.parent / "always.parquet", log, np.arange(2, 13) / 2, np.tile(np.eye(11)[4], (len(log), 1))
    )
