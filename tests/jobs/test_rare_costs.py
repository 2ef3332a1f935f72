"""Costs that the certify users did not meet, or hardly: 0 ± 0 certifies nothing, unless nothing can happen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from campaign_files import campaign_file

import outlay
from outlay.core.estimate import Estimate
from outlay.core.transitions import CERTIFY
from outlay.jobs.evaluation import Evaluation
from policy_files import policy_file

USERS, OUTSIDE = 1_000, 3
ACTIONS = np.array([0.0, 1.0, 2.0])


def prepared(folder: Path, columns: dict[str, Any], limit: float) -> outlay.Transitions:
    settings = "[train]\nshares = [0.4, 0.2, 0.4]\n"
    path = campaign_file(folder, columns, discount=0.0, log='propensity = "p"', tail=settings)
    path.write_text(path.read_text().replace("at_most = 1.2", f"at_most = {limit}"))
    return outlay.prepare(path, folder / "data")


def always(action: int, bought: int, folder: Path, limit: float = 0.01) -> Evaluation:
    """Always one action, by a log of a day in which so many certify users bought with 2, and three others did."""
    coupon = np.random.default_rng(0).choice(ACTIONS, USERS)
    columns: dict[str, Any] = {
        "user_id": [f"u{i}" for i in range(USERS)], "day": [0] * USERS, "level": [0] * USERS,
        "coupon": coupon.tolist(), "active": [0] * USERS, "p": [1 / 3] * USERS,
    }  # fmt: skip
    data = prepared(folder, columns, limit)
    certifying = {data.user_ids().to_pylist()[user] for user in data.users_of(CERTIFY)}
    given = [(name in certifying, i) for i, name in enumerate(columns["user_id"]) if coupon[i] == 2]
    inside, outside = ([i for among, i in given if among is wanted] for wanted in (True, False))
    for i in [*inside[:bought], *outside[:OUTSIDE]]:
        columns["active"][i] = 1
    data = prepared(folder, columns, limit)
    chance = np.eye(len(ACTIONS))[np.full(USERS, action)]
    return outlay.evaluate(data, policy=policy_file(folder / "policy.parquet", pa.table(columns), ACTIONS, chance))


def cost(found: Evaluation) -> Estimate:
    (estimate,) = (e for e in found.estimates if (e.estimator, e.target) == ("fqe", "coupon_cost"))
    return estimate


def test_no_event_among_these_users_certifies_nothing(tmp_path: Path) -> None:
    """The bound is the rule of three: as if one of about 130 who were given it had bought, times ln(1/α)."""
    found = always(2, 0, tmp_path)
    assert (cost(found).value, cost(found).std_error) == (0, 0)
    assert not cost(found).recommended
    assert cost(found).caution == "it is alike for all these users, and not in the whole log: ±0 is no error"
    assert not found.certificate.certified
    (line,) = found.certificate.budgets
    given = USERS * 0.4 / 3
    assert line.bound == pytest.approx(-2 * np.log(0.025) / given, rel=0.25)


def test_few_events_certify_nothing_though_the_limit_is_far(tmp_path: Path) -> None:
    found = always(2, 4, tmp_path, limit=5.0)
    assert not found.certificate.certified
    assert "coupon_cost: rare outcomes make its error" in found.certificate.words
    assert found.certificate.words in found.verdict


def test_many_events_do(tmp_path: Path) -> None:
    found = always(2, 60, tmp_path, limit=5.0)
    assert cost(found).recommended
    assert found.certificate.words == "certified"


@pytest.mark.parametrize("action", [0, 1])
def test_a_cost_that_cannot_arise_is_certain(action: int, tmp_path: Path) -> None:
    """No row of the log with 0 or 1 ever cost anything."""
    found = always(action, 4, tmp_path)
    assert (cost(found).value, cost(found).std_error) == (0, 0)
    assert cost(found).recommended
    assert found.certificate.words == "certified"
    assert found.certificate.budgets[0].bound == 0
