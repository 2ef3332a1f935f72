"""Small logs whose states are too many to count: an answer with a wide interval, or one sentence why there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import outlay
from campaign_files import campaign_file, panel
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.choosing.measure import HIDDEN_ROWS, Measure
from outlay.core.transitions import CERTIFY, SELECT, Transitions
from outlay.estimators.basis import FeatureBasis
from outlay.ops.intervals import std_error
from small_bundles import random_network


def measured(folder: Path, split: int, users: int = 3000) -> Measure:
    """A randomised log of one day with one number, and a network that says much about it."""
    log = panel(users, 1)
    data: Transitions = outlay.prepare(
        campaign_file(folder, log, categorical="[]", numeric='["spend"]', log='propensity = "p"'), folder / "data"
    )
    network = random_network(0, sizes=(), numbers=data.number_columns.shape[1], layers=(64, 32))
    members = (MemberSpec(network, 1.0, [0.5], [1.0, -0.5], [0.0, 0.0]),)
    write_bundle(folder / "bundle", BundleSpec(data.campaign, data.schema, data.actions, ("r", "c"), members))
    return Measure(data, split, load_bundle(folder / "bundle"))


@pytest.mark.parametrize("split", [SELECT, CERTIFY], ids=["select", "certify"])
def test_three_thousand_users_of_one_day_have_an_answer(tmp_path: Path, split: int) -> None:
    at = measured(tmp_path, split)
    for fitted in (at.old(), *at.members(), *at.constants([0, 1, 2], [1])):
        for target in ("reward", "coupon_cost"):
            place = fitted.column(target)
            assert fitted.withheld[place] is None
            assert std_error(fitted.influence[:, place]) > 0.015  # of 400 to 450 users


def test_a_basis_has_as_many_features_of_an_action_as_its_rows_carry(tmp_path: Path) -> None:
    at = measured(tmp_path, SELECT)
    basis = at.basis()
    assert isinstance(basis, FeatureBasis)
    assert basis.kept is not None
    assert basis.kept[:, -1].all(), "the plain feature"
    rows = np.bincount(at.panel.action, minlength=3)
    assert basis.kept.sum(axis=1).tolist() == (1 + rows // HIDDEN_ROWS).tolist()
    rare = replace(at.data, action=np.where(np.arange(len(at.data.action)) % 100 == 0, at.data.action, 0))
    basis = Measure(rare, SELECT, at.bundle).basis()
    assert isinstance(basis, FeatureBasis)
    assert basis.kept is not None
    assert basis.kept.sum(axis=1).tolist() == [4, 1, 1]
