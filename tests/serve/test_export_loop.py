"""Once around: what is served becomes the next campaign, and the next evaluation finds the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from small_servers import Client, server

import outlay
from outlay.bundles.decide import Bundle
from outlay.bundles.pool import Pool
from outlay.core.cmdp import TabularCMDP
from outlay.core.estimate import Estimate
from outlay.core.transitions import Transitions
from outlay.estimators.observed import Reproduction
from outlay.ops.tabular import totals
from outlay.serve.clock import Clock
from outlay.serve.deciding.decider import Decider, EncodedRequest, decode_draw
from outlay.serve.deciding.features import RowEncoder
from outlay.serve.deciding.loaded_bundle import register_bundle
from outlay.serve.export.export import ExportResult, export_log
from outlay.serve.export.propensities import Phase, Steps, laws_of, path_probabilities
from outlay.simulators import habit

USERS, DAYS, SLICE, FIRST = 3_000, 7, 0.3, 20_454
SURE = 0.999  # confidence: other machines draw other users


@dataclass(frozen=True)
class Round:
    """What one round leaves: the bundle served, the export, its DATA and a second run, the model of the truth."""

    bundle: Bundle
    folder: Path
    exported: ExportResult
    data: Transitions
    truth: TabularCMDP

    def total(self, policy: Any) -> NDArray[np.float64]:
        """True reward and cost of 7 days."""
        total: NDArray[np.float64] = totals(self.truth, policy, DAYS)[-1]
        return total

    def actions(self, member: int, table: Any) -> NDArray[np.int64]:
        """What a member does in rows."""
        encoded = self.bundle.schema.encode(table)
        return self.bundle.member_actions(member, encoded.codes, encoded.numbers)


class Time:
    """Seconds since 1970, as one likes."""

    def __init__(self, day: int) -> None:
        self.now = day * 86_400.0 + 3_600

    def __call__(self) -> float:
        """Now."""
        return self.now


def serve_habit(client: Client, time: Time) -> None:
    """People of the habit campaign ask every day; the active ones say so and redeem."""
    rng, people = np.random.default_rng(3), habit.model()
    yesterday, level = habit.states()
    state = people.newcomers(rng, USERS)
    for day in range(DAYS):
        time.now = (FIRST + day) * 86_400.0 + 3_600
        for first in range(0, USERS, 1_000):
            some = range(first, first + 1_000)
            asked = [
                {
                    "request_id": f"{day}-{i}",
                    "user_id": f"u{i}",
                    "time": day,
                    "features": {"yesterday": int(yesterday[state[i]]), "level": int(level[state[i]])},
                }
                for i in some
            ]
            answers = client.post("/v1/decisions", json={"requests": asked}).json()["decisions"]
            action = np.array([answer["action_index"] for answer in answers])
            active, state[first : first + 1_000] = people.day(rng, state[first : first + 1_000], action)
            time.now += 60
            told = [
                {"decision_id": answer["decision_id"], "kind": kind, "event_id": "1", "value": value}
                for answer, came in zip(answers, active, strict=True)
                for kind, value in (("active", None), ("redeemed", answer["action"]))
                if came
            ]
            for begin in range(0, len(told), 1_000):
                assert client.post("/v1/outcomes", json={"outcomes": told[begin : begin + 1_000]}).status_code == 200


@pytest.fixture(scope="module")
def once_around(tmp_path_factory: pytest.TempPathFactory) -> Round:
    folder = tmp_path_factory.mktemp("loop")
    campaign = outlay.simulate("habit", folder / "first", users=6_000, seed=1)
    with campaign.open("a") as file:
        file.write("\n[train]\nshares = [0.4, 0.2, 0.4]\n")
    outlay.train(campaign, folder / "run", oracle="tabular")
    bundle = outlay.load_bundle(folder / "run" / "bundle")
    time = Time(FIRST)
    settings: dict[str, Any] = {"reserve": None, "random": {"share": SLICE}}
    with server(bundle, folder / "ledger.db", clock=Clock("UTC", time), **settings) as client:
        service = client.service
        register_bundle(service.ledger, service.state.loaded, service.state.config, int(time.now * 1000))
        serve_habit(client, time)
    exported = export_log(
        f"sqlite:///{folder / 'ledger.db'}", folder / "next", clock=lambda zone: Clock(zone, Time(FIRST + 20))
    )
    data = outlay.prepare(folder / "next" / "campaign.toml", folder / "data")
    return Round(bundle, folder, exported, data, habit.model().cmdp())


def covers(estimates: Iterable[Estimate], target: str, truth: float, *estimators: str) -> None:
    found = {e.estimator: e for e in estimates if e.target == target and e.estimator in estimators}
    assert set(found) == set(estimators)
    for estimate in found.values():
        assert estimate.low is not None, estimate
        assert estimate.high is not None
        assert estimate.low <= truth <= estimate.high, estimate
        assert estimate.high - estimate.low < 0.25 * truth, estimate  # it says something


@pytest.mark.slow
def test_the_second_round_covers_the_truth_of_what_was_served(once_around: Round) -> None:
    here = once_around
    run = outlay.train(here.data.folder, here.folder / "second", oracle="tabular")
    result = outlay.evaluate(run, confidence=SURE)
    states = pq.read_table(here.folder / "first" / "states.parquet")
    members = [here.total(here.actions(i, states)) for i in range(len(here.bundle.members))]
    evenly = here.total(np.full(here.truth.reward.shape, 1 / 11))
    reward, cost = (1 - SLICE) * np.average(members, axis=0, weights=here.bundle.weights) + SLICE * evenly
    old = [e for e in result.beside if e.policy == "old"]
    covers(old, "reward@7", reward, "observed", "fqe", "dr", "mis", "snpdis", "pdis")
    covers(old, "coupon_cost@7", cost, "observed", "fqe", "dr", "mis", "snpdis", "pdis")
    assert result.diagnostics.detail(Reproduction).ok


def policy_of(here: Round, member: int) -> Path:
    """A member as a policy file for the exported log."""
    table = ds.dataset(sorted(map(str, (here.folder / "next" / "log").glob("*/*.parquet")))).to_table()
    action = here.actions(member, table)
    columns = {f"{value:g}": (action == i).astype(np.float64) for i, value in enumerate(here.bundle.actions)}
    path = here.folder / f"member{member}.parquet"
    pq.write_table(pa.table({"user_id": table["user_id"], "day": table["day"], **columns}), path)
    return path


@pytest.mark.slow
def test_propensities_of_paths_carry_an_evaluation_of_one_member(once_around: Round) -> None:
    """Most users who have this member keep it for the week; products of marginals would take that for luck."""
    here = once_around
    member = int(here.bundle.weights.argmax())
    result = outlay.evaluate(here.data, policy=policy_of(here, member), confidence=SURE)
    states = pq.read_table(here.folder / "first" / "states.parquet")
    reward, cost = here.total(here.actions(member, states))
    covers(result.estimates, "reward@7", reward, "dr", "snpdis")
    covers(result.estimates, "coupon_cost@7", cost, "dr", "snpdis")

    file = here.folder / "next" / "marginal.toml"
    text = (here.folder / "next" / "campaign.toml").read_text()
    file.write_text(text.replace('propensity = "propensity"', 'propensity = "marginal"'))
    wrong = outlay.evaluate(
        outlay.prepare(file, here.folder / "wrong"), policy=policy_of(here, member), confidence=SURE
    )
    [weighed] = [e for e in wrong.estimates if e.target == "reward@7" and e.estimator == "pdis"]
    assert weighed.value is not None
    assert weighed.value > 1.5 * reward


@pytest.mark.slow
def test_the_log_is_whole(once_around: Round) -> None:
    here = once_around
    assert [day.rows for day in here.exported.days.values()] == [USERS] * DAYS
    assert here.exported.restarts.histories == 0
    assert here.exported.days[FIRST].held == 0
    assert here.data.propensity is not None
    assert not here.data.forced.any()


def test_frequencies_of_paths_through_the_decider_are_the_products(bundle: Bundle) -> None:
    """Many users in the same states on three days."""
    users, states = 15_000, [("1", "Ulm", 3.0), ("3", "Lyon", 14.0), ("2", "Ulm", 8.0), ("3", "Oslo", 20.0)]
    encoder = RowEncoder(bundle.schema)
    rows = [encoder.encode(dict(zip(("level", "city", "spend"), state, strict=True))) for state in states]
    pool = Pool(bundle)
    decider = Decider(pool, pool.weights, none=0.0, fallback=0.0, random_share=0.2)
    chosen = [
        decider.decide([EncodedRequest(f"r{day}-{i}", f"u{i}", row) for i in range(users)], "week")
        for day, row in enumerate(rows)
    ]
    drawn = [decode_draw(day[0].members) for day in chosen]
    assert len({tuple(draw.actions) for draw in drawn}) > 1
    paths = Counter(zip(*([choice.index for choice in day] for day in chosen), strict=True))
    action = np.array(list(paths)).ravel()
    members = np.tile([draw.actions for draw in drawn], (len(paths), 1))
    every = np.ones(len(action), np.bool_)
    found = path_probabilities(
        Steps(
            user=np.repeat(np.arange(len(paths)), len(states)),
            phase=np.zeros(len(action), np.int64),
            given=every,
            refused=~every,
            same=members == action[:, None],
            fits=np.ones_like(members, np.bool_),
            share=np.full(len(action), drawn[0].random),
            allowed=np.full(len(action), 3),
            fitting=np.full(len(action), 3),
        ),
        laws_of([Phase(tuple(member.salt for member in bundle.manifest.members), tuple(drawn[0].weights))]),
    )
    expected = found.propensity.reshape(len(paths), -1).prod(axis=1)
    number = np.array(list(paths.values()))
    z = (number - users * expected) / np.sqrt(users * expected * (1 - expected))
    assert np.abs(z).max() < 4.5
    assert expected.sum() == pytest.approx(1, abs=0.01)
