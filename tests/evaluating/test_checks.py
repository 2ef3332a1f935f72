"""Evaluations that must not be acted on: what outcomes depend on is hidden, days differ, the old policy is unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import outlay
from campaign_files import campaign_file
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.agreement import Agreement
from outlay.estimators.balance import BalanceCheck
from outlay.estimators.behaviour.check import BehaviourCheck
from outlay.estimators.observed import Reproduction
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.verdict import VerdictKind
from policy_files import policy_file

USERS, DAYS = 4000, 4
ACTIONS = np.array([1.0, 2.0, 3.0])
SEGMENTS = 'segment = "city"'
REPORT = "report_days = [1, 3]\nhorizon_days = 4"
Columns = dict[str, Any]


def evaluated(folder: Path, columns: Columns, log: str, probability: Any, **settings: Any) -> Evaluation:
    path = campaign_file(folder, columns, log=log, campaign=REPORT, **settings)
    data = outlay.prepare(path, folder / "data").folder
    policy = np.broadcast_to(probability, (USERS * DAYS, 3))
    return outlay.evaluate(data, policy=policy_file(folder / "policy.parquet", pa.table(columns), ACTIONS, policy))


def drawn(rng: np.random.Generator, chance: Any) -> tuple[Any, Any]:
    """Actions and their propensities, from the chance of each `[n, 3]`."""
    chance = np.broadcast_to(chance, (USERS * DAYS, 3))
    action = (chance.cumsum(axis=1) < rng.random((USERS * DAYS, 1))).sum(axis=1)
    return action, chance[np.arange(len(action)), action]


def log_of(chance: Callable[[Columns], Any], active: Callable[[Columns, Any], Any]) -> Columns:
    """Users by `hidden` (anew every day), `city` and `level`."""
    rng = np.random.default_rng(3)
    rows = USERS * DAYS
    user = np.repeat(np.arange(USERS), DAYS)
    known = {
        "user_id": [f"u{u:04}" for u in user],
        "day": np.tile(np.arange(DAYS), USERS),
        "level": rng.integers(0, 3, rows),
        "hidden": rng.integers(0, 2, rows),
        "city": np.array(["east", "west"])[rng.integers(0, 2, USERS)[user]],
    }
    action, propensity = drawn(rng, chance(known))
    p = active(known, action)
    return known | {"coupon": ACTIONS[action], "p": propensity, "active": (rng.random(rows) < p).astype(int)}


def numbers(found: Evaluation, policy: str, estimator: str) -> dict[str, Any]:
    rows = [*found.estimates, *found.beside]
    return {e.target: e for e in rows if (e.policy, e.estimator) == (policy, estimator)}


@pytest.fixture(scope="module")
def confounded(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """The log gives 3 to whoever is about to be active anyway, and knows it; the features do not."""

    def chance(known: Columns) -> Any:
        return np.where(known["hidden"][:, None] == 1, [0.2, 0.3, 0.5], [0.5, 0.3, 0.2])

    columns = log_of(chance, lambda known, _: 0.05 + 0.9 * known["hidden"])
    folder = tmp_path_factory.mktemp("confounded")
    return evaluated(folder, columns, 'propensity = "p"\n' + SEGMENTS, [0, 0, 1.0], tail="")


def test_an_unseen_cause_that_the_propensities_know_contradicts_the_fitted_evaluation(confounded: Evaluation) -> None:
    """The truth is 0.5 a day whatever is given; rows given 3 are active in 0.05 + 0.9 · 5/7 of all cases."""
    fqe, dr, mis = (numbers(confounded, "policy", name) for name in ("fqe", "dr", "mis"))
    assert fqe["reward@1"].value == pytest.approx(0.05 + 0.9 * 5 / 7, abs=0.05)
    for robust in (dr["reward@1"], mis["reward@1"], mis["reward"]):
        assert robust.recommended
        assert abs(robust.value - 0.5) < 3.5 * robust.std_error
    assert confounded.diagnostics.detail(Reproduction).ok  # the old policy is given back, so this says nothing
    agreement = confounded.diagnostics.detail(Agreement)
    assert not agreement.ok
    assert agreement.finding.kind is ReasonKind.CONTRADICTED


def test_what_is_contradicted_is_shown_not_recommended_and_certifies_nothing(confounded: Evaluation) -> None:
    reason = confounded.diagnostics.detail(Agreement).finding
    for e in numbers(confounded, "policy", "fqe").values():
        assert e.value is not None
        assert not e.recommended
        assert e.caution == reason
    certificate = confounded.certificate
    assert not certificate.certified
    assert certificate.withheld == reason
    assert reason.words in certificate.words
    assert certificate.gain is certificate.budgets[0].bound is None
    assert confounded.verdict.kind is VerdictKind.REFUSED
    assert certificate.reason == reason
    assert reason.kind is ReasonKind.CONTRADICTED
    assert reason.words in confounded.verdict.words
    for row in confounded.segments:
        assert not row.recommended
        assert row.caution == reason
    assert not any(d.recommended for d in confounded.differences if d.estimator == "fqe")
    assert any(d.recommended for d in confounded.differences if d.estimator == "dr")


def test_days_that_differ_are_seen_where_the_old_policy_is_not_given_back(tmp_path: Path) -> None:
    """Everybody is active on the first day and hardly anybody later; the state does not tell days apart."""
    columns = log_of(lambda _: [0.3, 0.3, 0.4], lambda known, _: np.where(known["day"] == 0, 0.9, 0.2))
    found = evaluated(tmp_path, columns, 'propensity = "p"', [0, 1.0, 0])
    check = found.diagnostics.detail(Reproduction)
    assert not check.ok
    assert check.finding.kind is ReasonKind.REPRODUCTION
    assert found.verdict.kind is VerdictKind.REFUSED
    assert found.certificate.reason == check.refused == check.finding
    assert found.certificate.withheld == check.finding
    assert {e.caution for e in numbers(found, "old", "fqe").values()} == {check.finding}
    one = numbers(found, "policy", "dr")["reward@1"]  # which takes no day for another
    assert one.recommended
    assert abs(one.value - 0.9) < 3.5 * one.std_error


@pytest.fixture(scope="module")
def by_city(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """No propensities; the log looked at the city, which is a segment and no feature."""

    def chance(known: Columns) -> Any:
        return np.where(known["city"][:, None] == "east", [0.6, 0.3, 0.1], [0.1, 0.3, 0.6])

    columns = log_of(chance, lambda _, action: 0.3 + 0.1 * action)
    del columns["p"]  # a column of chances that no role names would be told as one that goes with the action
    folder = tmp_path_factory.mktemp("city")
    return evaluated(folder, columns, SEGMENTS, [0, 0, 1.0])


def test_a_behaviour_model_that_does_not_fit_is_told_and_weights_are_not_relied_on(by_city: Evaluation) -> None:
    told = by_city.diagnostics.detail(BehaviourCheck)
    assert told is not None
    assert not told.ok
    assert "segment" in told.words
    assert "does not fit" in told.words
    given, said = 0, set[Reason | None]()
    for name in ("dr", "mis", "snpdis", "pdis"):
        for e in numbers(by_city, "policy", name).values():
            assert e.withheld or e.caution
            assert e.recommended is False
            said.add(e.caution)
            given += e.value is not None
    assert given > 8
    misfit = Reason(ReasonKind.MISFIT)
    assert misfit in said
    assert by_city.diagnostics.detail(Agreement).finding == Reason(ReasonKind.NOT_COMPARED, {"found": misfit})
    assert by_city.diagnostics.detail(Agreement).ok


def test_the_old_policy_needs_no_propensities_and_is_not_doubted_with_the_model(by_city: Evaluation) -> None:
    for name in ("fqe", "dr", "mis", "pdis"):
        for e in numbers(by_city, "old", name).values():
            assert e.withheld or e.recommended, (name, e)
    for e in numbers(by_city, "policy", "fqe").values():  # it is not the model that speaks against these
        assert e.caution is not None
        assert e.caution.kind is ReasonKind.BALANCE
        assert "column 'city'" in e.caution.words
    assert by_city.diagnostics.detail(BalanceCheck).ok is False  # the action of the days before tells the city
    assert not by_city.certificate.certified


def test_a_behaviour_model_that_fits_is_used_and_told(tmp_path: Path) -> None:
    """Chances by level, which is a feature: what rests on the model is right, and relied on."""
    columns = log_of(
        lambda known: np.where(known["level"][:, None] == 2, [0.1, 0.2, 0.7], [0.5, 0.3, 0.2]),
        lambda known, action: 0.1 + 0.2 * action + 0.1 * known["level"],
    )
    del columns["p"]
    found = evaluated(tmp_path, columns, "", [0.1, 0.4, 0.5])
    told = found.diagnostics.detail(BehaviourCheck)
    assert told is not None
    assert told.ok
    assert found.diagnostics.detail(Agreement).ok
    assert "agree with it" in found.diagnostics.detail(Agreement).words
    truth = 0.1 + 0.2 * (0.4 + 2 * 0.5) + 0.1
    for name in ("fqe", "dr", "mis", "snpdis"):
        e = numbers(found, "policy", name)["reward@1"]
        assert e.recommended
        assert abs(e.value - truth) < 3.5 * e.std_error
    for line in found.diagnostics.overlap:
        assert abs(line.mean_ratio - 1) < 4 * line.mean_ratio_error  # type: ignore[operator]
