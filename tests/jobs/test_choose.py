"""Choosing by smooth figures, and what happens where amounts are not smooth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

import outlay
from outlay.core.network import constant_network
from outlay.core.transitions import CERTIFY, SELECT, Transitions
from outlay.estimators.certificate import expected_se
from outlay.estimators.units import coordinates
from outlay.jobs.allocate import allocate_users
from outlay.jobs.choose import Chosen, Frame, Kept, Offered, choose
from outlay.jobs.run import Run
from outlay.jobs.train_frontier import countable
from outlay.learning.heads import coordinates as of_campaign
from outlay.ops.intervals import std_error


def chosen(data: Transitions, folder: Path) -> Chosen:
    """Constant actions alone, measured for the choice."""
    campaign = data.campaign
    coords = of_campaign(campaign, np.asarray(data.outcome), steady=True)
    frame = Frame(data, campaign, coords.scale, ("reward", "coupon_cost"), None, 0, folder)
    return choose(frame, [
        Offered(f"always {a}", constant_network(a, data.schema.sizes, 0, data.num_actions, 2), np.zeros(1),
                np.eye(2)[0])
        for a in range(data.num_actions)
    ])  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return outlay.simulate("habit", tmp_path_factory.mktemp("habit"), users=6000, seed=3)


def errors(found: Chosen, which: str) -> NDArray[np.float64]:
    campaign = found.at.data.campaign
    return np.array([std_error(coordinates(getattr(kept, which), campaign)[1]) for kept in found.measured])


def test_smooth_amounts_take_a_part_of_the_errors_away_and_the_margin_is_that_of_the_certificate(
    log: Path, tmp_path: Path
) -> None:
    outlay.prepare(log, tmp_path / "data")
    found = chosen(Transitions.open(tmp_path / "data"), tmp_path)
    assert found.at.smooth
    ratio = errors(found, "fitted") / errors(found, "certifying")
    assert (ratio[1:-1] < 0.95).all()
    assert np.median(ratio) < 0.85
    assert found.margin[0] > 1.9 * errors(found, "certifying")[:, 1].min() / 2**0.5  # two members that share no error


def test_a_mixture_leaves_the_room_that_it_needs_itself_and_spends_the_rest(log: Path, tmp_path: Path) -> None:
    """Its members' errors cancel in part: it needs less than they do on average."""
    data = outlay.prepare(log, tmp_path / "data")
    found, campaign = chosen(data, tmp_path), data.campaign
    users = [len(data.users_of(split)) for split in (SELECT, CERTIFY)]
    assert len(found.members) == 2

    def room(kept: Sequence[Kept], weights: NDArray[np.float64]) -> float:
        parts = [[w * coordinates(getattr(k, fit), campaign)[1][:, 1] for k, w in zip(kept, weights, strict=True)]
                 for fit in ("fitted", "certifying")]  # fmt: skip
        select, certify = (std_error(np.sum(part, axis=0)) for part in parts)
        certify = expected_se(certify, *users)
        return float(norm.isf(0.025) * certify + norm.isf(0.1) * np.hypot(select, certify))

    alone = [room([kept], np.ones(1)) for kept in found.members]
    assert found.margin[0] == pytest.approx(room(found.members, found.weights), rel=2e-3)
    assert found.margin[0] < 0.95 * (found.weights @ alone)
    spend = found.weights @ [kept.x[1] for kept in found.members]
    assert spend + found.margin[0] == pytest.approx(2.2, abs=1e-3)


def test_where_one_amount_is_a_step_apart_the_figures_without_smoothing_are_taken(log: Path, tmp_path: Path) -> None:
    """Every third 3.5 is a win, say; its neighbours are as they were."""
    table = pq.read_table(log.parent / "log.parquet").to_pydict()
    lucky = (np.array(table["coupon"]) == 3.5) & (np.arange(len(table["coupon"])) % 3 == 0)
    table["active"] = np.where(lucky, 1, table["active"]).astype(np.int8).tolist()
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    (tmp_path / "campaign.toml").write_text(log.read_text())
    outlay.prepare(tmp_path / "campaign.toml", tmp_path / "data")
    found = chosen(Transitions.open(tmp_path / "data"), tmp_path)
    assert not found.at.smooth
    assert np.array_equal(errors(found, "fitted"), errors(found, "certifying"))


def test_few_states_are_countable_and_a_run_says_so(habit_run: Run) -> None:
    assert countable(habit_run.data()) is not None
    assert habit_run.manifest["oracle"] == "tabular"
    assert "10 distinct states" in habit_run.manifest["notes"][0]


@pytest.fixture(scope="module")
def habit_run(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return outlay.train(log, tmp_path_factory.mktemp("run") / "run")


def test_what_training_makes_by_default_can_be_allocated(log: Path, habit_run: Run, tmp_path: Path) -> None:
    """The counted model knows what a day costs; the total is kept."""
    users = log.parent / "states.parquet"
    found = allocate_users(habit_run, users, 20.0, tmp_path / "decisions.parquet")
    assert 0 < found.cost <= 20
    assert found.value <= found.bound
