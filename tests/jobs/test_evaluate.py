"""Evaluation: on certify users only, looks counted, numbers that the truth agrees with, and a file others can read."""

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
from outlay.bundles.decide import Bundle
from outlay.choosing.run import Run
from outlay.core.errors import BundleError, FolderError, OutlayError
from outlay.core.reasons import Reason
from outlay.core.transitions import CERTIFY, Transitions
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.verdict import VerdictKind
from outlay.ops.tabular import measure, totals

pytestmark = pytest.mark.usefixtures("few_budgets")
FIELDS = {
    "policy",
    "estimator",
    "target",
    "value",
    "low",
    "high",
    "std_error",
    "ess",
    "recommended",
    "withheld",
    "caution",
}
TARGETS = {"reward", "coupon_cost"} | {f"{name}@{k}" for name in ("reward", "coupon_cost") for k in (1, 3, 7)}


def read(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "estimates.json").read_text())
    return found


def estimate(found: dict[str, Any], policy: str, estimator: str, target: str) -> dict[str, Any]:
    (one,) = [
        e
        for e in [*found["estimates"], *found["beside"]]
        if (e["policy"], e["estimator"], e["target"]) == (policy, estimator, target)
    ]
    return dict(one)


def test_estimates_json_has_the_fields_that_are_promised(evaluated: Path) -> None:
    """The contract: estimators, targets, null where there is no interval, a reason where a number is withheld."""
    found = read(evaluated)
    assert {"estimates", "certificate", "verdict", "confidence", "policies", "daily", "shares"} <= set(found)
    for e in found["estimates"]:
        assert set(e) == FIELDS
        if e["withheld"] is None:
            assert math.isfinite(e["value"])
            assert e["low"] <= e["value"] <= e["high"]
            assert e["ess"] > 0
        else:
            assert Reason(**{key: e["withheld"][key] for key in ("kind", "figures")}).words == e["withheld"]["words"]
            assert e["value"] is e["low"] is e["high"] is None
            assert not e["recommended"]
    assert {e["policy"] for e in found["estimates"]} == {"mixture"}
    for estimator in ("fqe", "dr", "mis"):
        for some, policy in (("estimates", "mixture"), ("beside", "old")):
            targets = {e["target"] for e in found[some] if (e["policy"], e["estimator"]) == (policy, estimator)}
            assert targets == TARGETS
    assert {e["estimator"] for e in found["estimates"]} == {"fqe", "dr", "mis", "pdis", "snpdis"}
    assert list(found["policies"])[:3] == ["old", "constants", "mixture"]
    certificate = found["certificate"]
    assert certificate["look"] == 1
    assert certificate["alpha"] == pytest.approx(0.025)
    assert certificate["confidence"] == pytest.approx(0.975)
    assert [line["budget"] for line in certificate["budgets"]] == ["coupon_cost"]
    assert found["confidence"] == 0.95


def test_importance_sampling_is_shown_and_not_recommended_and_has_no_discounted_value(evaluated: Path) -> None:
    sampled = [e for e in read(evaluated)["estimates"] if e["estimator"] in ("pdis", "snpdis")]
    assert {e["target"] for e in sampled} == TARGETS - {"reward", "coupon_cost"}
    assert not any(e["recommended"] for e in sampled if not e["target"].endswith("@1"))
    assert all(e["caution"] for e in sampled if not e["recommended"] and not e["withheld"])


@pytest.fixture(scope="module")
def again(evaluated: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evaluation]:
    """A run that was evaluated, evaluated once more, and what that returned."""
    run = shutil.copytree(evaluated, tmp_path_factory.mktemp("again") / "run")
    return run, outlay.evaluate(run)


def test_the_result_the_file_and_the_bundle_say_the_same(again: tuple[Path, Evaluation]) -> None:
    run, result = again
    assert json.loads(json.dumps(result.to_dict())) == read(run)
    written = Evaluation.read(run)
    assert written is not None
    assert written.diagnostics.checks == result.diagnostics.checks  # each with figures of its own type
    assert written.estimates == result.estimates
    judgement = outlay.load_bundle(run / "bundle").judgement
    assert judgement is not None
    assert judgement.certificate == read(run)["certificate"]
    assert [each.to_dict() for each in judgement.estimates] == read(run)["estimates"]
    assert judgement.estimates == result.estimates  # with reasons of their type


def test_an_evaluation_leaves_the_served_policy_as_it_was(finished: Path, evaluated: Path) -> None:
    before, after = (outlay.load_bundle(folder / "bundle") for folder in (finished, evaluated))
    assert before.id == after.id
    assert before.manifest == after.manifest


def test_the_truth_lies_in_the_intervals(evaluated: Path, habit: Habit) -> None:
    """Discounted figures and 7-day totals of the mixture, on 475 users; intervals widened to four standard errors.

    Half an interval is not allowed to be so wide that it says nothing: at most a third of the value.
    """
    found = read(evaluated)
    bundle = outlay.load_bundle(evaluated / "bundle")
    decisions = bundle.decide(pq.read_table(habit.folder / "states.parquet"), members=True)
    action = decisions["action_index"].to_numpy().reshape(habit.truth.num_states, -1)
    members = range(action.shape[1])
    discounted = bundle.weights @ np.array([measure(habit.truth, action[:, i]) for i in members])
    week = bundle.weights @ np.array([totals(habit.truth, action[:, i], 7)[-1] for i in members])
    wanted = {"reward": discounted[0], "coupon_cost": discounted[1], "reward@7": week[0], "coupon_cost@7": week[1]}
    for target, truth in wanted.items():
        e = estimate(found, "mixture", "fqe", target)
        assert abs(e["value"] - truth) < 4 * e["std_error"], target
        assert e["high"] - e["value"] < e["value"] / 3
        assert e["recommended"]


def test_totals_are_the_estimates_times_the_users_and_hold_the_truth(evaluated: Path, habit: Habit) -> None:
    """Of all 6,000 users, as 900 of them measure it: of every day, and of the week."""
    result = Evaluation.read(evaluated)
    assert result is not None
    found = result.totals
    assert found is not None
    assert (found.users, found.days, found.sure) == (6000, 7, result.certificate.confidence)
    for change, name in ((found.reward, "reward"), (found.money, "coupon_cost")):
        e, old = (result.value(policy, "fqe", f"{name}@7") for policy in ("mixture", "old"))
        assert e is not None
        assert old is not None
        assert (change.new.value, change.new.low) == pytest.approx((6000 * e.value, 6000 * e.low))  # type: ignore[operator]
        assert change.now is not None
        assert change.now.value == pytest.approx(6000 * old.value)  # type: ignore[operator]
        paired = next(d for d in result.differences if (d.against, d.estimator, d.target) == ("old", "fqe", e.target))
        assert change.more is not None
        assert change.more.value == pytest.approx(6000 * paired.value)  # type: ignore[operator]
    truth = true_days(evaluated / "bundle", habit)
    for day in (day for day in found.by_day if day.policy == "new"):
        for total, true in zip(
            (day.reward, day.money), 6000 * np.diff(truth, axis=0, prepend=0)[day.day - 1], strict=True
        ):
            assert total.high is not None
            assert abs(total.value - true) < 2 * (total.high - total.value)  # four standard errors
    assert sum(each.users for each in found.segments) == pytest.approx(6000, abs=2)
    assert found.budgets == (), "a run for one budget has no curve"


def true_days(bundle: Path, habit: Habit) -> Any:
    """`[7, 2]` true totals per user of a bundle's mixture over its first days."""
    return true_days_of(outlay.load_bundle(bundle), habit)


def true_days_of(served: Bundle, habit: Habit) -> Any:
    """The same of a bundle that is read."""
    decisions = served.decide(pq.read_table(habit.folder / "states.parquet"), members=True)
    action = decisions["action_index"].to_numpy().reshape(habit.truth.num_states, -1)
    return sum(w * totals(habit.truth, action[:, i], 7) for i, w in enumerate(served.weights))


@pytest.mark.slow
def test_other_budgets_hold_the_truth_of_the_mixtures_that_are_served_for_them(
    counted_and_evaluated: Path, habit: Habit, tmp_path: Path
) -> None:
    shutil.copytree(counted_and_evaluated, tmp_path / "run")
    evaluated = Evaluation.read(tmp_path / "run")
    assert evaluated is not None
    found = evaluated.totals
    assert found is not None
    *others, full = found.budgets
    assert 1 <= len(others) <= 3
    assert [each.capped for each in found.budgets] == [False] * len(others) + [True]
    assert found.reward.now is not None
    for each in found.budgets:
        assert each.more == pytest.approx(each.reward.value - found.reward.now.value)
        if each.capped:
            served = outlay.load_bundle(tmp_path / "run" / "bundle")
            served = replace(served, members=served.capped)
        else:
            outlay.frontier(tmp_path / "run", [each.limit], export=tmp_path / f"{each.limit}")
            served = outlay.load_bundle(tmp_path / f"{each.limit}")
        week = 6000 * true_days_of(served, habit)[-1]
        for total, true in zip((each.reward, each.money), week, strict=True):
            assert total.high is not None
            assert abs(total.value - true) < 2 * (total.high - total.value)
    spends = [each.money.value for each in others]
    assert spends == sorted(spends)
    assert found.money.new.value < full.money.value
    assert found.reward.new.value < full.reward.value


def test_the_old_policy_is_evaluated_beside_it_and_given_back(evaluated: Path, habit: Habit) -> None:
    found = read(evaluated)
    uniform = np.full(habit.truth.reward.shape, 1 / 11)
    for target, truth in zip(("reward", "coupon_cost"), measure(habit.truth, uniform), strict=True):
        e = estimate(found, "old", "fqe", target)
        assert abs(e["value"] - truth) < 4 * e["std_error"]
    week = totals(habit.truth, uniform, 7)[-1]
    e = estimate(found, "old", "observed", "reward@7")
    assert abs(e["value"] - week[0]) < 4 * e["std_error"]
    assert found["diagnostics"]["checks"]["reproduction"]["ok"]


def test_only_certify_users_are_looked_at(evaluated: Path, run: Path) -> None:
    """Outcomes of all other users are made absurd; nothing changes but the constants, which *select* users choose.

    If they are absurdly large, the certificate has to expect such users: its estimates stay, its bounds widen.
    """
    before = read(evaluated)
    data = Transitions.open(run / "data")
    outcome = np.load(run / "data" / "columns" / "outcome.npy")
    rows = np.concatenate([data.rows_of(split) for split in range(3) if split != CERTIFY])
    outcome[rows] = 1e3
    np.save(run / "data" / "columns" / "outcome.npy", outcome)
    outlay.evaluate(run)
    large = read(run)
    outcome[rows] = 0
    np.save(run / "data" / "columns" / "outcome.npy", outcome)
    outlay.evaluate(run)
    after = read(run)

    def about_policies(found: dict[str, Any]) -> list[Any]:
        return [e for e in found["estimates"] if e["policy"] != "constants"]

    assert about_policies(after) == about_policies(large) == about_policies(before)
    assert after["certificate"] == before["certificate"]
    (wide,), (line,) = large["certificate"]["budgets"], before["certificate"]["budgets"]
    assert wide["value"] == line["value"]
    assert wide["bound"] > 10 * line["bound"]
    assert after["certificate"]["users"] == len(data.users_of(CERTIFY))


def test_the_same_bundle_looked_at_twice_is_one_look(evaluated: Path, again: tuple[Path, Evaluation]) -> None:
    first, (run, second) = Evaluation.read(evaluated), again
    assert first is not None
    assert (first.certificate.look, second.certificate.look) == (1, 1)
    assert first.to_dict() == second.to_dict()
    assert len(json.loads((run / "data" / "looks.json").read_text())) == 1


@pytest.mark.slow
def test_a_second_run_on_the_same_data_is_a_second_look_with_half_the_error(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one, with the data inside, was looked at with an error of 0.025."""
    first = Run.open(shutil.copytree(evaluated, tmp_path / "first"))
    second = outlay.train(first.folder / "data", tmp_path / "second", seed=1, method="aim-greedy")
    found = outlay.evaluate(second).certificate
    assert found.look == 2
    assert found.alpha == pytest.approx(0.05 / 6)
    assert outlay.evaluate(first).certificate.look == 1
    assert len(json.loads((first.folder / "data" / "looks.json").read_text())) == 2
    monkeypatch.setenv("OUTLAY_LOOKS", str(tmp_path / "none.sqlite"))
    unseen = shutil.copytree(first.folder / "data", tmp_path / "unseen")
    (unseen / "looks.json").unlink()
    alone = outlay.train(unseen, tmp_path / "alone", seed=1, method="aim-greedy")
    margins = [run.manifest["margin"][0] for run in (alone, second)]
    assert margins[1] > margins[0]  # the second run knew at training time that it would be the second look


def test_a_higher_confidence_widens_intervals_and_bounds(evaluated: Path, tmp_path: Path) -> None:
    narrow = read(evaluated)
    wide = outlay.evaluate(shutil.copytree(evaluated, tmp_path / "run"), confidence=0.99).to_dict()
    a, b = (estimate(found, "mixture", "fqe", "coupon_cost") for found in (narrow, wide))
    assert a["value"] == b["value"]
    # Of two estimates, whose hull the interval is, each widens by that; what is between them does not.
    assert 1 < (b["high"] - b["low"]) / (a["high"] - a["low"]) <= 2.5758 / 1.96 * (1 + 1e-3)
    assert wide["certificate"]["budgets"][0]["bound"] > narrow["certificate"]["budgets"][0]["bound"]
    assert wide["certificate"]["alpha"] == pytest.approx(0.005)
    assert wide["confidence"] == 0.99
    assert wide["certificate"]["look"] == 1  # another confidence is no other look


def test_certified_means_that_the_bound_keeps_the_limit(evaluated: Path, tmp_path: Path) -> None:
    run = shutil.copytree(evaluated, tmp_path / "run")
    certificate = read(run)["certificate"]
    line = certificate["budgets"][0]
    assert line["value"] < line["bound"] <= line["limit"] == 2.2
    assert certificate["certified"]
    assert line["kept"]
    # The same run held to a limit just under its bound is not certified, and says by how much.
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["campaign"]["budget"][0]["at_most"] = line["bound"] - 0.01
    (run / "manifest.json").write_text(json.dumps(manifest))
    found = outlay.evaluate(run)
    assert not found.certificate.certified
    assert found.certificate.words.startswith("not certified: coupon money by 0.01 ")
    assert found.verdict.kind is VerdictKind.NOT_CERTIFIED


def test_days_and_shares_add_up(evaluated: Path) -> None:
    found = read(evaluated)
    for policy in ("old", "mixture"):
        days = [row for row in found["daily"] if row["policy"] == policy]
        assert [row["day"] for row in days] == list(range(1, 8))
        total = estimate(found, policy, "fqe", "reward@7")["value"]
        assert sum(row["reward"] for row in days) == pytest.approx(total)
        cost = estimate(found, policy, "fqe", "coupon_cost@3")["value"]
        assert sum(row["costs"][0] for row in days[:3]) == pytest.approx(cost)
    for policy in ("old", "new"):
        for segment in ("inactive", "active"):
            shares = [s for s in found["shares"] if (s["policy"], s["segment"]) == (policy, segment)]
            assert [s["action"] for s in shares] == [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6]
            assert sum(s["share"] for s in shares) == pytest.approx(1)
            if policy == "old":  # the log was uniform
                assert max(s["share"] for s in shares) < 0.15


def test_a_run_whose_data_changed_is_refused(run: Path) -> None:
    manifest = run / "data" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"data_hash": "', '"data_hash": "0'))
    with pytest.raises(FolderError, match=r"not the one .*trained on"):
        outlay.evaluate(run)
    shutil.rmtree(run / "data")
    with pytest.raises(FolderError, match="does not exist"):
        outlay.evaluate(run)
    assert not (run / "estimates.json").exists()


def test_a_changed_bundle_is_refused_before_anything_is_looked_at(run: Path) -> None:
    policy = run / "bundle" / "policy-0.onnx"
    content = bytearray(policy.read_bytes())
    content[len(content) // 2] ^= 1
    policy.write_bytes(content)
    with pytest.raises(BundleError, match=r"policy-0\.onnx: .*changed"):
        outlay.evaluate(run)
    assert not (run / "data" / "looks.json").exists()


@pytest.mark.parametrize("confidence", [0.5, 1.0, 95.0])
def test_an_impossible_confidence_is_refused(run: Path, confidence: float) -> None:
    with pytest.raises(OutlayError, match=rf"confidence: is {confidence:g}.*0\.95"):
        outlay.evaluate(run, confidence=confidence)


def test_a_moved_run_is_still_whole(run: Path, tmp_path: Path) -> None:
    """Its DATA lies inside and is found by a relative path."""
    moved = tmp_path / "elsewhere" / "run"
    moved.parent.mkdir()
    run.rename(moved)
    assert outlay.evaluate(moved).certificate.look == 1
    assert Evaluation.read(moved) is not None
