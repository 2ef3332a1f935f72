"""Learners that are pooled: side by side, a failure of one stops the others; whose policies are served."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import outlay
from outlay.bundles.pool import Pool
from outlay.bundles.read import load_bundle
from outlay.bundles.reference import forward
from outlay.choosing.run import Run
from outlay.choosing.stored import StoredFrontier
from outlay.core.bodies import Trees
from outlay.core.errors import CampaignError, OutlayError
from outlay.core.progress import silent
from outlay.training import pool
from outlay.training.pool import learn_all
from patience import PATIENCE

SMALL = "folds = 1\nshares = [0.6, 0.2, 0.2]\nlayers = [16]\nembedding = 2\nbatch = 256\nepochs = 1.0\n"


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DATA folder of few users with rich states."""
    folder = tmp_path_factory.mktemp("city")
    path = outlay.simulate("city", folder / "log", users=2000, seed=1)
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}\n[train]\n{SMALL}", encoding="utf-8")
    return outlay.prepare(path, folder / "data").folder


@pytest.fixture(scope="module")
def pooled(city: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return outlay.train(city, tmp_path_factory.mktemp("pooled") / "run", seed=1)


@pytest.mark.slow
def test_by_default_one_q_is_learned_which_is_the_mean_of_trees_and_networks(pooled: Run) -> None:
    assert pooled.manifest["oracle"] == "trees and orthogonal"
    stored = StoredFrontier.read(pooled.folder / "frontier")
    learned = [stored.networks[i] for i in np.unique(stored.network[~stored.constant])]
    for network in learned:
        assert isinstance(network.body, Trees)
        assert network.num_layered == 2


@pytest.fixture(scope="module")
def trees(city: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return outlay.train(city, tmp_path_factory.mktemp("trees") / "run", oracle="trees", seed=1)


@pytest.mark.slow
def test_trees_serve_and_export_every_budget_and_score_rows_with_values_that_are_missing(
    trees: Run, city: Path, tmp_path: Path
) -> None:
    assert trees.manifest["oracle"] == "trees"
    assert "lightgbm" in trees.manifest["versions"]
    limit = 0.8 * trees.campaign.budgets[0].limit  # 400 users who select leave no room for much less
    outlay.frontier(trees.folder, budgets=[limit], export=tmp_path / "bundle")
    bundle = load_bundle(tmp_path / "bundle")
    log = pq.read_table(trees.manifest["source"]).slice(0, 500)
    holes = log.set_column(log.schema.get_field_index("habit"), "habit", [[None] * 500])
    for table in (log, holes):
        decided = bundle.decide(table)
        assert set(decided["action"].to_pylist()) <= set(bundle.actions.tolist())
    assert bundle.decide(log)["action"].to_pylist() != bundle.decide(holes)["action"].to_pylist()


@pytest.mark.slow
def test_a_training_of_trees_goes_on_where_it_was_killed(trees: Run, city: Path, tmp_path: Path) -> None:
    def killed(_: float, text: str) -> None:
        if text.startswith("measuring"):
            raise KeyboardInterrupt

    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        outlay.train(city, tmp_path / "run", oracle="trees", seed=1, progress=killed)
    resumed = outlay.train(
        city, tmp_path / "run", oracle="trees", seed=1, resume=True, progress=lambda _, text: said.append(text)
    )
    assert not any(text.startswith("trees") for text in said)
    one, other = (np.load(run.folder / "frontier" / "network-0.npz") for run in (trees, resumed))
    with one, other:
        assert "trees_threshold" in one.files
        assert all(np.array_equal(one[part], other[part]) for part in one.files)


def test_trees_are_of_frontiers_alone(city: Path, tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match=r"oracle: is 'trees', .*aim-greedy"):
        outlay.train(city, tmp_path / "run", oracle="trees", method="aim-greedy")


@pytest.mark.slow
def test_a_server_can_mix_the_policies_anew(pooled: Run) -> None:
    """Each as its own arrays say."""
    bundle, stored = load_bundle(pooled.folder / "bundle"), StoredFrontier.read(pooled.folder / "frontier")
    pool = Pool(bundle)
    places = [int(np.flatnonzero(stored.network == i)[k]) for i in range(len(stored.networks)) for k in (3, -3)]
    weights = np.zeros(len(pool.entries))
    weights[places] = 1 / len(places)
    mixed = pool.mixture(weights)
    seen = bundle.schema.encode(pq.read_table(pooled.manifest["source"]).slice(0, 300))
    for place, member in zip(sorted(places), mixed.members, strict=True):
        network = stored.networks[stored.network[place]].only([stored.policy[place]])
        value = forward(network, seen.codes, seen.numbers).q @ stored.head_weights[place]
        chosen = member.choose(seen.codes, seen.numbers, None, 0.0)[0]
        best, taken = value.max(axis=1), value[np.arange(300), chosen]
        np.testing.assert_allclose(taken, best, atol=1e-5 * np.abs(value).max())
        assert (chosen == value.argmax(axis=1)).mean() > 0.99  # equals may fall apart in the last bit


def _training(folder: Path) -> Any:
    return SimpleNamespace(folder=folder)


def test_learners_come_back_in_order_and_the_share_done_never_falls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(learner: str, _training: Any, _folder: Path, report: Any) -> str:
        for step in range(5):
            time.sleep(0.02 if learner == "slow" else 0.001)
            report((step + 1) / 5, learner)
        return learner

    monkeypatch.setattr(pool, "_learn", learn)
    shares: list[float] = []
    found: list[Any] = [*learn_all(("slow", "quick"), _training(tmp_path / "c"), lambda share, _: shares.append(share))]
    assert found == ["slow", "quick"]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("order", [("broken", "patient"), ("patient", "broken")])
def test_an_error_of_one_learner_ends_the_others_and_is_the_one_that_is_raised(
    order: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, finished = list[str](), list[str]()

    def learn(learner: str, _training: Any, _folder: Path, report: Any) -> str:
        if learner == "broken":
            raise CampaignError("is empty.", where="[train] layers")
        began = time.monotonic()
        try:
            while time.monotonic() - began < PATIENCE:
                report(0.5, "still learning")
                time.sleep(0.005)
            finished.append(learner)
        finally:
            ended.append(learner)
        return learner

    monkeypatch.setattr(pool, "_learn", learn)
    with pytest.raises(CampaignError, match="is empty"):
        learn_all(order, _training(tmp_path / "c"), silent)
    assert ended == ["patient"]
    assert not finished


def test_what_stops_the_report_stops_every_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(learner: str, _training: Any, _folder: Path, report: Any) -> str:
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE:
            report(0.5, learner)
            time.sleep(0.005)
        finished.append(learner)
        return learner

    def interrupted(_share: float, _text: str) -> None:
        raise KeyboardInterrupt

    finished: list[str] = []
    monkeypatch.setattr(pool, "_learn", learn)
    with pytest.raises(KeyboardInterrupt):
        learn_all(("one", "other"), _training(tmp_path / "c"), interrupted)
    assert not finished
