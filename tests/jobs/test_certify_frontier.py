"""One look for the whole frontier: what it measured, whose bundles it certifies, and that it is taken once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import outlay
from conftest import Habit
from outlay.core.errors import FolderError
from outlay.core.transitions import CERTIFY
from outlay.estimators.basis import Counted
from outlay.estimators.fitted import combine
from outlay.estimators.joint import Joint
from outlay.estimators.units import coordinates
from outlay.jobs import certify_frontier as job
from outlay.jobs.certify_frontier import certified, certify_frontier
from outlay.jobs.frontier import frontier
from outlay.jobs.looks import looks
from outlay.jobs.measure import Measure
from outlay.jobs.run import Run
from outlay.jobs.subject import Subject
from outlay.ops.skewed import Spread
from outlay.ops.tabular import measure


@pytest.fixture(scope="module")
def trained(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    outlay.train(habit.campaign, folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Run:
    shutil.copytree(trained, tmp_path / "run")
    return Run.open(tmp_path / "run")


def test_the_bundle_of_the_run_is_certified_from_what_its_members_measure(run: Run, habit: Habit) -> None:
    """Values are those of its members on certify users; bounds lie as far above as k and each one's errors say."""
    data, campaign = run.data(), run.campaign
    assert certified(run, data, campaign) is None
    found = certify_frontier(run, data, campaign)
    assert found.look == 2
    assert found.alpha == pytest.approx(0.0125)
    assert looks(data)[0].startswith(f"{outlay.load_bundle(run.bundle).id}@")  # the look it was chosen for
    assert looks(data)[1].startswith("frontier-")
    bundle = outlay.load_bundle(run.bundle)
    weights = found.weights_of(bundle)
    assert weights is not None
    assert len(weights) == len(found.band) == run.manifest["policies"]
    assert weights[weights > 0] == pytest.approx(bundle.weights)

    members = Measure(data, CERTIFY, bundle).members()
    x, _, _ = coordinates(combine(members, bundle.weights), campaign)
    above = [Spread.of(coordinates(member, campaign)[1][:, 1]).above(found.band.factor) for member in members]
    certificate = found.band.certificate(weights, campaign)
    (line,) = certificate.budgets
    assert line.value == pytest.approx(x[1])
    assert line.bound == pytest.approx(x[1] + bundle.weights @ above)
    old = Measure(data, CERTIFY, bundle).old()
    assert certificate.gain == pytest.approx(x[0] - coordinates(old, campaign)[0][0])
    assert found.record(certificate)["look"] == 2
    json.dumps(found.record(certificate), allow_nan=False)

    decided = bundle.decide(pq.read_table(habit.folder / "states.parquet"), members=True)
    action = decided["action_index"].to_numpy().reshape(habit.truth.num_states, -1)
    spend = bundle.weights @ [measure(habit.truth, column)[1] for column in action.T]
    assert line.bound is not None
    assert spend < line.bound < 1.1 * spend


def test_it_looks_once_and_then_reads_at_any_confidence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    data = run.data()
    said: list[tuple[float, str]] = []
    first = certify_frontier(run, data, run.campaign, lambda share, text: said.append((share, text)))
    assert len(said) == len(first.band)
    assert [share for share, _ in said] == sorted(share for share, _ in said)
    monkeypatch.setattr(job, "Measure", None)
    again = certify_frontier(run, data, run.campaign)
    assert (again.look, again.salts, again.band.factor) == (first.look, first.salts, first.band.factor)
    assert np.array_equal(again.band.points.covariance, first.band.points.covariance)
    other = certify_frontier(run, data, run.campaign.with_train(confidence=0.9))
    assert other.look == 2
    assert other.alpha == pytest.approx(0.025)
    assert other.band.factor < first.band.factor
    assert len(looks(data)) == 2


def test_a_look_is_counted_before_anything_is_seen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    data = run.data()
    with monkeypatch.context() as patch:
        patch.setattr(job, "Measure", killed)
        with pytest.raises(KeyboardInterrupt):
            certify_frontier(run, data, run.campaign)
    assert len(looks(data)) == 2
    assert certified(run, data, run.campaign) is None
    assert certify_frontier(run, data, run.campaign).look == 2
    assert len(looks(data)) == 2


def test_every_exported_bundle_is_of_this_frontier_and_another_runs_is_not(
    run: Run, finished: Path, tmp_path: Path
) -> None:
    found = certify_frontier(run, run.data(), run.campaign)
    curve = frontier(run)
    for share in (0.2, 0.8):
        budget = curve.least + share * (curve.most - curve.least)
        frontier(run, [budget], export=tmp_path / "bundle")
        bundle = outlay.load_bundle(tmp_path / "bundle")
        weights = found.weights_of(bundle)
        assert weights is not None
        assert sorted(weights[weights > 0]) == pytest.approx(sorted(bundle.weights))
    assert found.weights_of(outlay.load_bundle(finished / "bundle")) is None


def test_what_stays_on_disk_says_nothing_of_any_user(run: Run) -> None:
    found = certify_frontier(run, run.data(), run.campaign)
    with np.load(run.folder / "frontier" / "band.npz") as file:
        assert max(file[name].size for name in file.files) == found.band.points.covariance.size
        assert set(file.files) == {"value", "covariance", "tails", "gains", "users", "salts", "said"}


def test_a_run_without_a_frontier_has_no_band(finished: Path) -> None:
    run = Run.open(finished)
    with pytest.raises(FolderError, match="trained for one budget"):
        certify_frontier(run, run.data(), run.campaign)


def test_where_states_are_not_counted_each_policy_has_to_be_confirmed_by_single_steps(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if one policy were what the log hardly ever did: mixtures without it are certified, and with it none is."""
    asked: list[str] = []

    def steps(at: Measure, policy: Subject, propensity: object) -> Joint:
        asked.append(policy.name)
        days = [f"{name}@{k}" for k in at.days for name in at.panel.names]
        users = at.panel.num_users
        spread = 1e3 if len(asked) == 1 else 0.0
        noise = spread * np.random.default_rng(0).normal(size=(users, len(days)))
        return Joint(tuple(days), np.zeros(len(days)), noise, np.ones_like(noise), (None,) * len(days))

    monkeypatch.setattr(Measure, "counted", property(lambda _: False))
    monkeypatch.setattr(
        Measure, "_basis", lambda at, _: Counted(at.panel.state, len(at.data.states), at.data.num_actions)
    )
    monkeypatch.setattr(job, "single_steps", steps)
    found = certify_frontier(run, run.data(), run.campaign)
    assert len(asked) == len(found.band)
    assert found.band.refused is None
    assert [reason is None for reason in found.band.withheld] == [False] + [True] * (len(asked) - 1)
    assert str(found.band.withheld[0]).startswith("not checked: the log did too little of what the policy does")
    first, last = np.zeros(len(asked)), np.zeros(len(asked))
    first[0] = last[-1] = 1
    assert not found.band.certificate(first, run.campaign).certified
    assert found.band.certificate(last, run.campaign).withheld is None
