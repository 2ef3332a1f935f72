"""Measuring: the bundle's own decisions, on the rows of one split, and propensities where the log has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.bundles.reference import respond
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.choosing import measure
from outlay.choosing.measure import Measure
from outlay.core.arrays import NetworkArrays, ResponseArrays, preferring_network
from outlay.core.transitions import CERTIFY, LEARN, SELECT, Transitions
from small_logs import campaign, draw, random_cmdp
from small_responses import random_response, with_lags


@pytest.fixture(scope="module")
def bundle(finished: Path) -> Bundle:
    return load_bundle(finished / "bundle")


def test_members_act_as_the_bundle_decides(habit_data: Transitions, bundle: Bundle) -> None:
    """Every row of the split, decided from its raw values as `score` would."""
    at = Measure(habit_data, CERTIFY, bundle)
    codes, _ = habit_data.features(at.panel.rows)
    columns = {
        field.name: [field.values[code - 3].as_py() for code in codes[:, i]]
        for i, field in enumerate(habit_data.schema.categorical)
    }
    decided = bundle.decide(pa.table(columns), members=True)["action_index"].to_numpy()
    decided = decided.reshape(len(codes), len(bundle.members))
    for i in range(len(bundle.members)):
        assert np.array_equal(at.actions(i), decided[:, i])
    assert np.array_equal(at.panel.rows, habit_data.rows_of(CERTIFY))


def test_without_a_table_of_states_rows_are_decided_in_chunks(
    habit_data: Transitions, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = replace(habit_data, state=None, states=None)
    wanted = [Measure(habit_data, SELECT, bundle).actions(i) for i in range(len(bundle.members))]
    monkeypatch.setattr(measure, "CHUNK_ROWS", 1000)
    at = Measure(wide, SELECT, bundle)
    assert len(at.panel) > 2000
    for i, actions in enumerate(wanted):
        assert np.array_equal(at.actions(i), actions)


def test_the_network_features_measure_what_the_counted_states_measure(habit_data: Transitions, bundle: Bundle) -> None:
    """Two bases for the same policy on the same users: within two standard errors of one another."""
    counted = Measure(habit_data, SELECT, bundle).old()
    wide = Measure(replace(habit_data, state=None, states=None), SELECT, bundle).old()
    for target in ("reward/discounted", "coupon_cost/discounted", "reward@7"):
        target, there = target.removesuffix("/discounted"), target
        one, other = counted.value[counted.column(target)], wide.value[wide.column(there)]
        error = counted.influence[:, counted.column(target)].std() / np.sqrt(len(counted.influence))
        assert one == pytest.approx(other, abs=2 * error)


def test_constants_are_ordered_as_in_truth(habit_data: Transitions, bundle: Bundle) -> None:
    """Always 6 yuan brings more and costs more than always 1."""
    low, high = Measure(habit_data, LEARN, bundle).constants([0, 10], [7])
    for target in ("reward", "coupon_cost", "reward@7"):
        assert high.value[high.column(target)] > low.value[low.column(target)]


def test_members_are_measured_with_the_spans_asked_for(habit_data: Transitions, bundle: Bundle) -> None:
    """By default those of the tables, and every day's points; without spans the discounted values alone."""
    at = Measure(habit_data, CERTIFY, bundle)
    whole, alone = at.members(), at.members(days=())
    assert at.days == (1, 3, 7)
    for one, other in zip(whole, alone, strict=True):
        assert other.targets == ("reward", "coupon_cost", "decisions")
        assert one.targets[3:] == tuple(f"{name}@{k}" for k in (1, 3, 7) for name in ("reward", "coupon_cost"))
        np.testing.assert_array_equal(one.value[:3], other.value)
        assert one.daily.shape == (7, 2)
        assert one.daily[:, 0].sum() == pytest.approx(one.value[one.column("reward@7")])


@pytest.mark.parametrize("many", [False, True], ids=["counted states", "many states"])
def test_propensities_are_as_logged_else_by_the_behaviour_model(habit_data: Transitions, many: bool) -> None:
    """The model is fitted on other users; coupons of *habit* are uniform."""
    logged = Measure(habit_data, CERTIFY, None)
    np.testing.assert_allclose(logged.propensity(), 1 / 11, rtol=1e-6)
    assert logged.behaviour_check is None
    data = replace(habit_data, propensity=None)
    at = Measure(replace(data, state=None, states=None) if many else data, CERTIFY, None)
    found, check = at.propensity(), at.behaviour_check
    np.testing.assert_allclose(found, 1 / 11, rtol=0.05)
    assert found.std() > 0
    assert check is not None
    assert check.ok
    assert check.rows == len(at.panel)


PAST_DAYS = 3


@pytest.fixture(scope="module", params=[True, False], ids=["counted states", "many states"])
def walked(request: pytest.FixtureRequest) -> Transitions:
    """A log with gaps between the days, of users in all three splits."""
    split = np.arange(400) % 3
    data = draw(random_cmdp(3, states=5), 400, 6, 0, split=split, counted=request.param)
    return replace(data, day=data.day + data.day // 3, propensity=np.full(len(data), 1 / 3, np.float32))


@pytest.fixture(scope="module")
def walked_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Two prices of a DIN, and a constant action, for the logs of `draw`."""
    about, schema = with_lags(campaign(), draw(random_cmdp(3, states=5), 2, 2, 0).schema, PAST_DAYS)
    response = random_response(0, past_days=PAST_DAYS, sizes=schema.sizes, numbers=4)
    networks: list[NetworkArrays | ResponseArrays] = [
        response,
        response,
        preferring_network(np.eye(3)[2], schema.sizes, 2 * len(schema.numeric), 2),
    ]
    members = tuple(MemberSpec(n, 1 / 3, [0.5 * i], [1.0, -0.5 * i], [0, 0]) for i, n in enumerate(networks))
    spec = BundleSpec(about, schema, [0.0, 1.0, 2.0], ("reward", "cost"), members)
    folder = tmp_path_factory.mktemp("walked") / "bundle"
    write_bundle(folder, spec)
    return load_bundle(folder)


def test_a_member_that_looks_back_is_told_the_days_before_each_row(walked: Transitions, walked_bundle: Bundle) -> None:
    """Against the longhand reference, with the past of each row looked up by its day."""
    at = Measure(walked, CERTIFY, walked_bundle)
    codes, numbers = walked.features(at.panel.rows)
    place = {pair: row for row, pair in enumerate(zip(walked.user.tolist(), walked.day.tolist(), strict=True))}
    told = np.full((len(codes), 1 + 3 * PAST_DAYS), np.nan)
    for i, row in enumerate(at.panel.rows):
        for lag in range(1, PAST_DAYS + 1):
            then = place.get((int(walked.user[row]), int(walked.day[row]) - lag))
            if then is not None:
                told[i, 3 * lag - 2 : 3 * lag + 1] = walked.actions[walked.action[then]], *walked.outcome[then]
    known = np.isfinite(told)
    told[:, 0] = known[:, 1::3].sum(axis=1)
    known[:, 0] = True
    assert 0 < known[:, 1:].mean() < 1
    scaled = np.where(known, (told - 0.5) / 0.7, 0)
    numbers = np.hstack([numbers, np.stack([scaled, ~known], axis=2).reshape(len(codes), -1)]).astype(np.float32)
    response = random_response(0, past_days=PAST_DAYS, sizes=walked.schema.sizes, numbers=4)
    q = respond(response, codes, numbers).q
    for member, price in enumerate((0.0, 0.5)):
        value = q @ [1.0, -price]
        ordered = np.sort(value, axis=1)
        sure = ordered[:, -1] - ordered[:, -2] > 1e-4
        assert sure.mean() > 0.99
        assert np.array_equal(at.actions(member)[sure], value.argmax(1)[sure])
        assert len(np.unique(at.actions(member))) > 1
    assert set(at.actions(2).tolist()) == {2}


def test_chunks_do_not_matter_to_a_member_that_looks_back(
    walked: Transitions, walked_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [Measure(walked, SELECT, walked_bundle).actions(i) for i in range(3)]
    monkeypatch.setattr(measure, "CHUNK_ROWS", 100)
    at = Measure(walked, SELECT, walked_bundle)
    for i, actions in enumerate(wanted):
        assert np.array_equal(at.actions(i), actions)


def test_everything_is_measured_where_members_look_back(walked: Transitions, walked_bundle: Bundle) -> None:
    """A constant among the members is worth what the constant is worth."""
    at = Measure(walked, LEARN, walked_bundle)
    members, old, (constant,) = at.members(), at.old(), at.constants([2], at.days)
    assert len(members) == 3
    for found in (*members, old, constant):
        assert np.isfinite(found.value[found.column("reward@3")])
    np.testing.assert_allclose(members[2].value, constant.value, rtol=1e-6)
    dearer = members[1].minus(members[0])
    place = dearer.column("cost")
    assert dearer.value[place] < 2 * dearer.std_error[place]


def test_a_response_model_that_does_not_look_back_is_asked_once_per_state(tmp_path: Path) -> None:
    data = draw(random_cmdp(3, states=5), 60, 7, 0)
    data = replace(data, propensity=np.full(len(data), 1 / 3, np.float32))
    response = random_response(0, sizes=data.schema.sizes, numbers=2)
    members = (MemberSpec(response, 1.0, [0.5], [1.0, -0.5], [0, 0]),)
    write_bundle(tmp_path / "bundle", BundleSpec(campaign(), data.schema, [0.0, 1.0, 2.0], ("reward", "cost"), members))
    bundle = load_bundle(tmp_path / "bundle")
    counted, many = (Measure(d, LEARN, bundle) for d in (data, replace(data, state=None, states=None)))
    assert np.array_equal(counted.actions(0), many.actions(0))
    assert "_row_actions" not in counted.__dict__
    assert np.isfinite(many.members()[0].value).all()
