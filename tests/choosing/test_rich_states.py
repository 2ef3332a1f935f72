"""States that are not counted: a world of habits whose truth is known (`benchmarks/slow_habits.py`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import outlay
from conftest import Habit
from outlay.bundles.read import load_bundle
from outlay.choosing.measure import Measure
from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, EVERYONE, Transitions
from outlay.estimators.agreement import Agreement
from outlay.estimators.long_run import LONG_RUN, in_log_states
from outlay.estimators.sequential import Sequential
from outlay.estimators.units import chosen_by, displayed
from outlay.estimators.windowed import beyond_window, claims_window, discounted_weights, window_of
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.verdict import VerdictKind
from policy_files import policy_file
from slow_habits import COUPONS, World, always

WORLD = World(days=7, discount=0.9, at_most=1.2, users=20_000)
TWO = 2  # index of the coupon 2
USERS = 6000


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evaluation, Transitions]:
    """A coupon of 2 for everybody, on a log that does not end where the discount does."""
    folder = tmp_path_factory.mktemp("rich")
    path = WORLD.write(folder, users=USERS, seed=3)
    data = outlay.prepare(path, folder / "data")
    log = pq.read_table(folder / "log.parquet")
    twos = np.broadcast_to(np.eye(len(COUPONS))[TWO], (len(log), len(COUPONS)))
    return outlay.evaluate(data, policy=policy_file(folder / "twos.parquet", log, COUPONS, twos)), data


def of(found: Evaluation, policy: str, target: str) -> Estimate:
    rows = [*found.beside, *found.estimates]
    return next(e for e in rows if (e.policy, e.estimator, e.target) == (policy, "fqe", target))


def near(estimate: Estimate, truth: float) -> bool:
    assert estimate.value is not None
    assert estimate.std_error is not None
    return abs(estimate.value - truth) <= 3 * estimate.std_error


def test_the_truth_is_what_the_log_shows(judged: tuple[Evaluation, Transitions]) -> None:
    log = pq.read_table(judged[1].manifest.source)
    seen = np.bincount(log["day"].to_numpy(), log["active"].to_numpy()) / USERS
    daily = WORLD.daily(None)
    assert seen == pytest.approx(daily[:7, 0], abs=4 * 0.5 / np.sqrt(USERS))
    found = WORLD.value(daily, (3,))
    assert found["reward@3"] == pytest.approx(daily[:3, 0].sum())
    assert daily[:, 0].min() < found["reward"] < daily[:, 0].max()


def test_claims_are_about_the_days_that_the_log_shows(judged: tuple[Evaluation, Transitions]) -> None:
    found, _ = judged
    before, after = (WORLD.value(WORLD.daily(policy), (7,)) for policy in (None, always(TWO)))
    for policy, true in (("old", before), ("policy", after)):
        for name in ("reward", "coupon_cost"):
            mean, total = of(found, policy, name), of(found, policy, f"{name}@7")
            assert mean.value is not None
            assert total.value is not None
            assert mean.value == pytest.approx(total.value / 7)
            assert mean.recommended
            assert near(mean, true[f"{name}@7"] / 7)
    certificate = found.certificate
    assert certificate.window == 7
    assert certificate.certified
    assert certificate.budgets[0].value == pytest.approx(of(found, "policy", "coupon_cost").value)
    gain = next(d for d in found.differences if (d.against, d.estimator, d.target) == ("old", "fqe", "reward"))
    assert certificate.gain == pytest.approx(gain.value)
    assert "over the first 7 days" in found.verdict.words


@pytest.mark.slow
def test_a_policy_that_leads_users_where_the_log_has_hardly_been_is_not_relied_on(
    judged: tuple[Evaluation, Transitions], tmp_path: Path
) -> None:
    """No coupon for anybody, for a week: in the log hardly a user went without one for as long."""
    two, data = judged
    assert of(two, "policy", "reward@7").recommended
    log = pq.read_table(data.manifest.source)
    none = np.broadcast_to(np.eye(len(COUPONS))[0], (len(log), len(COUPONS)))
    found = outlay.evaluate(data, policy=policy_file(tmp_path / "none.parquet", log, COUPONS, none))
    assert not of(found, "policy", "reward@7").recommended
    assert not found.certificate.certified
    assert found.certificate.gain_bound is None
    assert found.verdict.kind is VerdictKind.REFUSED
    assert found.certificate.reason is not None
    assert found.certificate.reason.kind is ReasonKind.NOT_CHECKED
    behind = found.certificate.reason.figures["found"]
    assert isinstance(behind, Reason)
    assert behind.kind is ReasonKind.EXTRAPOLATED
    assert behind.figures["share"] > behind.figures["most"] == 0.6  # type: ignore[operator]
    assert of(found, "old", "reward@7").recommended, "the log's own policy leads nobody elsewhere"


def test_what_lies_beyond_the_window_is_shown_with_its_room_and_not_relied_on(
    judged: tuple[Evaluation, Transitions],
) -> None:
    found, _ = judged
    for policy in ("old", "policy"):
        for name in ("reward", "coupon_cost"):
            beyond = of(found, policy, f"{name}/discounted")
            assert beyond.value is not None
            assert not beyond.recommended
            assert beyond.caution is not None
            assert beyond.caution.kind is ReasonKind.BEYOND_DAYS_WITHIN
            figures = beyond.caution.figures
            assert figures["share"] == pytest.approx(0.9**7)
            assert figures["days"] == 7
            assert figures["low"] < figures["high"]  # type: ignore[operator]
    assert found.window is not None
    assert found.window.days == 7
    assert found.window.beyond == pytest.approx(0.9**7)
    assert "48% of the discounted weight" in found.window.words
    assert found.to_dict()["condition"].startswith("if the features say enough")


def test_choices_credit_what_lasts_beyond_the_window(judged: tuple[Evaluation, Transitions]) -> None:
    _, data = judged
    at = Measure(data, EVERYONE, None, long_run=True)
    ones = at.policy(np.ones(len(at.panel), np.int64))
    value, error = (float(part[ones.column(LONG_RUN)]) for part in (ones.value, ones.std_error))
    true = WORLD.value(WORLD.daily(always(1)), (7,))
    assert error < 0.025
    assert abs(value - true["reward"]) <= 3 * error
    assert true["reward@7"] / 7 < true["reward"] - 0.015  # a week's mean is less: habits have hardly begun
    old = at.old()
    assert old.value[old.column(LONG_RUN)] == pytest.approx(WORLD.value(WORLD.daily(None), ())["reward"], abs=0.013)
    assert LONG_RUN not in Measure(data, EVERYONE, None).old().targets
    there = ones.column(in_log_states("reward"))  # less noise, and blind to what a week of offers adds up to
    assert ones.std_error[there] < 0.75 * error
    assert ones.value[there] < true["reward"] - 2 * ones.std_error[there]
    assert old.value[old.column(in_log_states("reward"))] == pytest.approx(old.value[old.column(LONG_RUN)])
    shown = displayed(ones, data.campaign)
    assert not {LONG_RUN, in_log_states("reward")} & {*shown.targets}
    assert chosen_by(ones, data.campaign)[0] == value
    per_user = tuple(budget.model_copy(update={"per": "user"}) for budget in data.campaign.budgets)
    assert (
        chosen_by(ones, data.campaign.model_copy(update={"budgets": per_user}))[0]
        == ones.value[ones.column("reward@7")]
    )


def test_a_second_basis_and_the_network_s_with_plain_features_beside(
    judged: tuple[Evaluation, Transitions], habit: Habit, habit_data: Transitions, finished: Path
) -> None:
    found, data = judged
    second = next(e for e in found.estimates if (e.estimator, e.target) == ("fqe2", "reward@7"))
    assert second.value == pytest.approx(of(found, "policy", "reward@7").value, rel=0.05)
    assert "fqe2" in {d.estimator for d in found.diagnostics.detail(Agreement).differences}
    second_one = Measure(data, CERTIFY, None).second
    assert isinstance(second_one, Sequential)
    assert second_one.paths

    bundle = load_bundle(finished / "bundle")
    wide = replace(habit_data, state=None, states=None)
    with_network = Measure(wide, CERTIFY, bundle).evaluator()
    alone = Measure(wide, CERTIFY, None).evaluator()
    assert isinstance(with_network, Sequential)
    assert isinstance(alone, Sequential)
    assert with_network.features.shape[1] > alone.features.shape[1]
    assert np.array_equal(with_network.features[:, -alone.features.shape[1] :], alone.features)
    assert Measure(habit_data, CERTIFY, None).second is None


def with_discount(data: Transitions, discount: float) -> Transitions:
    meta = data.campaign.meta.model_copy(update={"discount": discount})
    return replace(data, campaign=data.campaign.model_copy(update={"meta": meta}))


def test_which_days_claims_are_about(judged: tuple[Evaluation, Transitions], habit_data: Transitions) -> None:
    _, data = judged
    assert window_of(habit_data) is None, "states are counted"
    assert window_of(replace(habit_data, state=None, states=None)) == 7
    assert window_of(data) == 7
    assert window_of(with_discount(data, 0.0)) == 1, "the first day is all there is"
    assert claims_window(with_discount(data, 0.0)) is None, "so there is nothing to say of further days"
    assert window_of(with_discount(data, 0.5)) == 5, "what holds all but a twentieth of the weight"
    assert window_of(replace(data, terminal=np.asarray(data.next_row) < 0)) is None, "every story ends in the log"
    late = np.array(data.users)
    late["window"] = np.where(np.arange(len(late)) % 3 == 0, 7, 4)
    assert window_of(replace(data, users=late)) == 4, "half of the users reach no further"


def test_discounted_means_are_relied_on_where_hardly_anything_lies_beyond(
    judged: tuple[Evaluation, Transitions],
) -> None:
    """γ 0.5, seven days: 3% lies beyond five of them."""
    at = Measure(with_discount(judged[1], 0.5), CERTIFY, None)
    assert at.window == 5
    old = at.old()
    least, most = np.zeros(2), np.array([1.0, 2.0])
    assert beyond_window(old.daily, least, most, 5, 0.5) is None
    reason = beyond_window(old.daily, least, most, 5, 0.9)
    shown = float(0.1 * 0.9 ** np.arange(5) @ old.daily[:5, 0])
    assert reason is not None
    assert reason.kind is ReasonKind.BEYOND_DAYS_WITHIN
    assert (reason.figures["low"], reason.figures["high"]) == pytest.approx((shown, shown + 0.9**5))
    unknown = beyond_window(np.full_like(old.daily, np.nan), least, most, 5, 0.9)
    assert unknown == Reason(ReasonKind.BEYOND_DAYS, {"share": 0.9**5, "days": 5})
    weights = discounted_weights(5, 0.5)
    assert weights.sum() == pytest.approx(1)
    assert old.value[old.column("reward/discounted")] == pytest.approx(weights @ old.daily[:5, 0])
