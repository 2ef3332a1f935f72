"""Measuring: the bundle's own decisions, on the rows of one split, and propensities where the log has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from outlay.bundles.decide import Bundle
from outlay.bundles.read import load_bundle
from outlay.core.transitions import CERTIFY, LEARN, SELECT, Transitions
from outlay.jobs import measure
from outlay.jobs.measure import Measure


@pytest.fixture(scope="module")
def bundle(finished: Path) -> Bundle:
    return load_bundle(finished / "bundle")


def test_members_act_as_the_bundle_decides(habit_data: Transitions, bundle: Bundle) -> None:
    """Every row of the split, decided from its raw values as `score` would."""
    at = Measure(habit_data, CERTIFY, bundle)
    codes, _ = habit_data.features(at.panel.rows)
    columns = {
        field.name: [field.values[code - 3] for code in codes[:, i]]
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
    for target in ("reward", "coupon_cost", "reward@7"):
        one, other = counted.value[counted.column(target)], wide.value[wide.column(target)]
        error = counted.influence[:, counted.column(target)].std() / np.sqrt(len(counted.influence))
        assert one == pytest.approx(other, abs=2 * error)


def test_constants_are_ordered_as_in_truth(habit_data: Transitions, bundle: Bundle) -> None:
    """Always 6 yuan brings more and costs more than always 1."""
    low, high = Measure(habit_data, LEARN, bundle).constants([0, 10], [7])
    for target in ("reward", "coupon_cost", "reward@7"):
        assert high.value[high.column(target)] > low.value[low.column(target)]


def test_propensities_are_as_logged_else_counted_on_learn_users(habit_data: Transitions, bundle: Bundle) -> None:
    logged = Measure(habit_data, CERTIFY, bundle).propensity()
    assert logged is not None
    np.testing.assert_allclose(logged, 1 / 11, rtol=1e-6)
    counted = Measure(replace(habit_data, propensity=None), CERTIFY, bundle).propensity()
    assert counted is not None
    assert counted.mean() == pytest.approx(1 / 11, rel=0.02)
    assert counted.std() > 0
    # By hand, for the first row.
    assert habit_data.state is not None
    rows = habit_data.rows_of(LEARN)
    first = habit_data.rows_of(CERTIFY)[0]
    same = rows[habit_data.state[rows] == habit_data.state[first]]
    share = (habit_data.action[same] == habit_data.action[first]).mean()
    assert counted[0] == pytest.approx(share)


def test_where_states_are_many_the_imitation_head_gives_propensities(habit_data: Transitions, bundle: Bundle) -> None:
    wide = replace(habit_data, propensity=None, state=None, states=None)
    found = Measure(wide, CERTIFY, bundle).propensity()
    assert found is not None
    assert found.mean() == pytest.approx(1 / 11, rel=0.15)
