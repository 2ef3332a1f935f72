"""Small logs whose states are too many to count: an answer with a wide interval, or one sentence why there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import outlay
from campaign_files import campaign_file, panel
from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.choosing.measure import HIDDEN_ROWS, Measure
from outlay.core.transitions import CERTIFY, SELECT, Transitions
from outlay.estimators.basis import FeatureBasis
from outlay.estimators.windowed import claims_window, counted
from outlay.evaluating.evaluation import Evaluation
from outlay.ops.intervals import std_error
from policy_files import policy_file
from small_bundles import random_network

TIERS, OFFERS = ("gold", "silver", "bronze"), np.array([0.0, 2.0, 5.0, 10.0])


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


class Shoppers:
    """Customers of three tiers, who visit more often soon after a visit and with a larger offer."""

    def __init__(self, users: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tier, self.city = self.rng.choice(3, users, p=[0.2, 0.3, 0.5]), self.rng.integers(3, size=users)
        self.since = self.rng.integers(0, 10, users)

    def day(self, offer: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether each visits, given today's offers; days since the last visit go on."""
        pull = np.where(self.tier == 0, 0.008, 0.02) * offer
        chance = np.array([0.5, 0.3, 0.15])[self.tier] * np.where(self.since > 3, 0.9, 1.1) + pull
        visits = self.rng.random(len(chance)) < np.minimum(chance, 0.95)
        self.since = np.where(visits, 0, self.since + 1)
        return visits


def shoppers_log(users: int, days: int = 14, seed: int = 1) -> dict[str, Any]:
    """Four offers drawn evenly, and a counter that grows until the next visit."""
    shoppers, parts = Shoppers(users, seed), []
    for day in range(days):
        since, offer = shoppers.since, shoppers.rng.choice(OFFERS, users)
        visits = shoppers.day(offer)
        parts.append((np.arange(users), np.full(users, day), shoppers.tier, shoppers.city, since, offer, visits))
    user, when, tier, city, since, offer, visits = (np.concatenate(part) for part in zip(*parts, strict=True))
    return {
        "user_id": user,
        "day": when,
        "tier": np.array(TIERS)[tier],
        "city": np.array(["Berlin", "Ulm", "Bonn"])[city],
        "since": since,
        "coupon": offer,
        "active": visits.astype(int),
        "p": np.full(len(user), 0.25),
    }


def test_a_counter_that_grows_is_no_lack_of_support(tmp_path: Path) -> None:
    """Few users reach a high count, but no action is missing from the log: an answer, as wide as the log makes it."""
    log = shoppers_log(2000)
    path = campaign_file(
        tmp_path, log, categorical='["tier", "city"]', numeric='["since"]', log='propensity = "p"', campaign="none = 0"
    )
    data = outlay.prepare(path, tmp_path / "data")
    assert data.states is not None
    assert not counted(data, CERTIFY)
    chance = np.array([0.2, 0.2, 0.2, 0.4])
    often = np.broadcast_to(chance, (len(log["day"]), len(OFFERS)))
    found = outlay.evaluate(data, policy=policy_file(tmp_path / "often.parquet", pa.table(log), OFFERS, often))
    later, visits = Shoppers(200_000, 2), np.zeros(7)
    for day in range(7):
        visits[day] = later.day(later.rng.choice(OFFERS, 200_000, p=chance)).mean()
    told = headline(found)
    for target, truth in (("reward@1", visits[0]), ("reward@3", visits[:3].sum()), ("reward@7", visits.sum())):
        value, error = told[target]
        assert abs(value - truth) <= 3 * error
        assert error < 0.15 * truth


@pytest.mark.usefixtures("few_budgets")
def test_a_trained_run_has_an_answer_there(tmp_path: Path) -> None:
    """One log of eight (seeds 1 to 8) is not relied on: there the policy leads users where hardly anyone has been."""
    path = campaign_file(
        tmp_path,
        shoppers_log(1500, days=8, seed=3),
        categorical='["tier", "city"]',
        numeric='["since"]',
        log='propensity = "p"',
    )
    run = outlay.train(path, tmp_path / "run", oracle="tabular", seed=1, folds=2)
    assert headline(outlay.evaluate(run))["reward@1"][1] > 0


def headline(found: Evaluation) -> dict[str, tuple[float, float]]:
    """Value and standard error of the subject, by target, of what is recommended."""
    told = {}
    for e in found.estimates:
        if e.policy == found.subject and e.estimator == "fqe" and e.recommended:
            assert e.value is not None
            assert e.std_error is not None
            told[e.target] = e.value, e.std_error
    return told


def test_the_headline_of_one_day_corrects_what_its_lines_cannot_follow(tmp_path: Path) -> None:
    """Reward bends in the number, and the log chose by it: a line through it is biased, propensities are not."""
    users, rng = 20_000, np.random.default_rng(7)
    x = rng.normal(size=users)
    chance = np.exp(np.outer(x, [0.5, 0.0, -0.5]))
    chance /= chance.sum(axis=1, keepdims=True)
    action = (chance.cumsum(axis=1) < rng.random((users, 1))).sum(axis=1)
    mean = 0.5 + 0.4 * np.sin(2.5 * x)[:, None] * np.array([1.0, 0.0, -1.0])
    log: dict[str, Any] = {
        "user_id": np.arange(users),
        "day": np.zeros(users, int),
        "spend": x,
        "coupon": 1.0 + action,
        "active": (rng.random(users) < mean[np.arange(users), action]).astype(int),
        "p": chance[np.arange(users), action],
    }
    path = campaign_file(
        tmp_path, log, discount=0, categorical="[]", numeric='["spend"]', log='propensity = "p"', campaign="none = 1"
    )
    data = outlay.prepare(path, tmp_path / "data")
    assert claims_window(data) is None, "the first day is all there is"
    rule = np.eye(3)[np.where(x > 0.3, 2, 0)]
    policy = policy_file(tmp_path / "rule.parquet", pa.table(log), np.array([1.0, 2.0, 3.0]), rule)
    value, error = headline(outlay.evaluate(data, policy=policy))["reward"]
    truth = float((rule * mean).sum(axis=1).mean())
    lines = [np.polyval(np.polyfit(x[action == a], log["active"][action == a], 1), x) for a in range(3)]
    assert abs((rule * np.column_stack(lines)).sum(axis=1).mean() - truth) > 6 * error
    assert abs(value - truth) <= 3 * error
    assert error < 0.02
