"""One budget has one answer: where an evaluation bounds no gain, neither does the curve of the same run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outlay
from outlay.core.reasons import ReasonKind
from outlay.evaluating.verdict import VerdictKind

pytestmark = pytest.mark.usefixtures("few_budgets")
USERS, DAYS = 4000, 7
CAMPAIGN = """
[campaign]
name = "rare"
discount = 0.8
none = 0.0
[log]
source = "log.parquet"
user = "user_id"
time = "day"
action = "coupon"
actions = [0.0, 1.0, 2.0]
reward = "money"
propensity = "p"
[log.features]
categorical = ["level"]
[[budget]]
name = "cost"
cost = "cost"
at_most = 0.15
[train]
folds = 2
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> outlay.Run:
    """Purchases of one user in a hundred, a few of them large: their error is too skewed for an interval."""
    folder, rng, parts = tmp_path_factory.mktemp("rare"), np.random.default_rng(1), []
    level = rng.integers(0, 3, USERS)
    for day in range(DAYS):
        coupon = rng.integers(0, 3, USERS)
        buys = rng.random(USERS) < 0.01 * (1 + 4 * coupon * (level + 1))
        money = np.where(buys, rng.lognormal(0, 1.5, USERS), 0.0)
        parts.append(
            pa.table(
                {
                    "user_id": np.arange(USERS),
                    "day": np.full(USERS, day),
                    "level": level,
                    "coupon": coupon.astype(float),
                    "money": money,
                    "cost": 0.2 * coupon * (rng.random(USERS) < 0.5),
                    "p": np.full(USERS, 1 / 3),
                }
            )
        )
    pq.write_table(pa.concat_tables(parts), folder / "log.parquet")
    (folder / "campaign.toml").write_text(CAMPAIGN)
    return outlay.train(folder / "campaign.toml", folder / "run")


def test_a_gain_that_evaluate_does_not_bound_is_not_bounded_by_the_curve(run: outlay.Run, tmp_path: Path) -> None:
    found = outlay.evaluate(run)
    gain = next(d for d in found.differences if (d.against, d.estimator, d.target) == ("old", "fqe", "reward"))
    assert gain.caution is not None
    assert gain.caution.kind is ReasonKind.SKEWED
    assert found.certificate.certified
    assert (found.certificate.gain_bound, found.certificate.gain_most) == (None, None)
    curve = outlay.frontier(run, [0.15], export=tmp_path / "bundle")
    assert curve.export is not None
    assert curve.export.certificate.certified
    assert (curve.export.certificate.gain_bound, curve.export.certificate.gain_most) == (None, None)
    for verdict in (found.verdict, curve.export.verdict):
        assert verdict.kind is VerdictKind.CHANCE
        assert verdict.old is not None
        assert verdict.old.at_least is None
    assert {point.gain_bound for point in curve.requested} == {None}


def test_what_the_run_serves_is_a_point_of_its_curve(run: outlay.Run, tmp_path: Path) -> None:
    found, curve = outlay.evaluate(run), outlay.frontier(run, [0.15], export=tmp_path / "bundle")
    (point,) = curve.requested
    assert curve.export is not None
    assert curve.export.certificate == found.certificate
    cost = next(e for e in found.estimates if (e.estimator, e.target) == ("fqe", "cost"))
    assert [cost.value, cost.low, cost.high] == pytest.approx([point.spend[0], point.spend_low[0], point.spend_high[0]])
    served, exported = outlay.load_bundle(run.bundle), outlay.load_bundle(tmp_path / "bundle")
    assert served.weights.tolist() == pytest.approx(exported.weights.tolist())


@pytest.mark.slow
def test_a_band_of_an_older_version_is_measured_again_as_the_same_look(run: outlay.Run, tmp_path: Path) -> None:
    """It has no mixture that the run serves."""
    first = outlay.frontier(run, [0.15], export=tmp_path / "first").export
    band = run.folder / "frontier" / "band.npz"
    with np.load(band) as file:
        part = {name: file[name] for name in file.files}
    said = json.loads(str(part["said"]))
    del said["about"]
    np.savez(band, **part | {"said": json.dumps(said)})
    assert outlay.frontier(run, [0.15]).band is None
    again = outlay.frontier(run, [0.15], export=tmp_path / "again").export
    assert first is not None
    assert again is not None
    assert (again.look, again.certificate) == (first.look, first.certificate)
