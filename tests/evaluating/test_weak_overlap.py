"""States that are not counted, and an old policy that targets: a linear basis extrapolates to the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import outlay
from campaign_files import campaign_file
from outlay.estimators.agreement import Agreement
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.verdict import VerdictKind
from policy_files import policy_file

ACTIONS = np.array([0.0, 1.0, 3.0])
DAYS = 4
REPORT = "report_days = [1, 3]\nhorizon_days = 3\nnone = 0.0"


def evaluated(
    folder: Path, *, users: int, chance: float, seed: int = 1, stated: bool = False, curved: float = 2.0
) -> Evaluation:
    """A policy that gives most to those who were given least, `chance` of the old policy's decisions being random.

    Who comes anyway was given much. `curved` is how much more the coupons do in between; at 0 activity is linear.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(users, 1, 3)) + 0.3 * rng.normal(size=(users, DAYS, 3))
    score = x[..., 0].ravel()
    wanted = np.stack([np.zeros(len(score)), 3 * score, 6 * score - 1], axis=1)  # steep: hardly a doubt
    share = np.exp(wanted - wanted.max(axis=1, keepdims=True))
    old = (1 - chance) * share / share.sum(axis=1, keepdims=True) + chance / 3
    action = np.minimum((old.cumsum(axis=1) < rng.random((len(score), 1))).sum(axis=1), 2)
    lift = np.log1p(ACTIONS[action])
    active = (
        1 / (1 + np.exp(1.2 - 0.8 * score - curved * lift * np.exp(-0.5 * (score + 1) ** 2)))
        if curved
        else np.clip(0.4 + 0.08 * score + 0.1 * lift, 0, 1)
    )
    columns: dict[str, Any] = {
        "user_id": np.repeat([f"u{i}" for i in range(users)], DAYS),
        "day": np.tile(np.arange(DAYS), users),
        **{name: x[..., j].ravel() for j, name in enumerate(("a", "b", "c"))},
        "coupon": ACTIONS[action],
        "p": old[np.arange(len(action)), action],
        "active": (rng.random(len(score)) < active).astype(int),
    }
    path = campaign_file(
        folder,
        columns,
        log='propensity = "p"' if stated else "",
        campaign=REPORT,
        categorical="[]",
        numeric='["a", "b", "c"]',
        tail="",
        discount=0.5,
    )
    path.write_text(path.read_text().replace("at_most = 1.2", "at_most = 3.0"))
    data = outlay.prepare(path, folder / "data").folder
    new = np.eye(3)[np.where(score < -0.2, 2, np.where(score < 0.5, 1, 0))]
    return outlay.evaluate(data, policy=policy_file(folder / "policy.parquet", pa.table(columns), ACTIONS, new))


@pytest.mark.parametrize("stated", [False, True], ids=["estimated", "stated"])
def test_what_is_extrapolated_is_not_certified_though_nothing_contradicts_it(tmp_path: Path, stated: bool) -> None:
    found = evaluated(tmp_path, users=5000, chance=0.04, stated=stated)
    fqe = next(e for e in found.estimates if (e.estimator, e.target) == ("fqe", "reward@3"))
    assert not found.certificate.certified
    assert not fqe.recommended
    assert found.verdict.kind is VerdictKind.REFUSED  # nothing confirms it, or another basis contradicts it


def test_decisions_drawn_at_random_keep_their_certificate(tmp_path: Path) -> None:
    found = evaluated(tmp_path, users=5000, chance=1.0, stated=True, curved=0)
    assert found.certificate.certified, found.verdict
    other = [d for d in found.diagnostics.detail(Agreement).differences if d.estimator == "fqe2"]
    assert {d.target for d in other} >= {"reward@1", "coupon_cost@1", "reward@3", "coupon_cost@3"}
