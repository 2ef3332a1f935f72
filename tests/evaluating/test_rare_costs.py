"""Costs that the certify users did not meet, or hardly: 0 ± 0 certifies nothing, unless nothing can happen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import outlay
from campaign_files import campaign_file
from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, Transitions
from outlay.evaluating.evaluation import Evaluation
from policy_files import policy_file

USERS, OUTSIDE = 1_000, 3
ACTIONS = np.array([0.0, 1.0, 2.0])


def prepared(folder: Path, columns: dict[str, Any], limit: float, stated: str = "") -> Transitions:
    """DATA; what the log contradicts is stated afterwards: an older version prepared it."""
    late = stated.partition("=")[2].strip(' "') if "/" in stated else ""
    settings = "[train]\nshares = [0.4, 0.2, 0.4]\n"
    path = campaign_file(folder, columns, discount=0.0, log='propensity = "p"', tail=settings)
    path.write_text(path.read_text().replace("at_most = 1.2", f"at_most = {limit}{'' if late else stated}"))
    outlay.prepare(path, folder / "data")
    if late:
        file = folder / "data" / "manifest.json"
        content = json.loads(file.read_text())
        content["campaign"]["budget"][0]["reserve"] = late
        file.write_text(json.dumps(content))
    return Transitions.open(folder / "data")


STATED = '\nreserve = "coupon"'


def always(action: int, bought: int, folder: Path, limit: float = 0.01, stated: str = "") -> Evaluation:
    """Always one action, by a log of a day in which so many certify users bought with 2, and three others did."""
    coupon = np.random.default_rng(0).choice(ACTIONS, USERS)
    columns: dict[str, Any] = {
        "user_id": [f"u{i}" for i in range(USERS)],
        "day": [0] * USERS,
        "level": [0] * USERS,
        "coupon": coupon.tolist(),
        "active": [0] * USERS,
        "p": [1 / 3] * USERS,
    }
    data = prepared(folder, columns, limit)
    certifying = {data.user_ids().to_pylist()[user] for user in data.users_of(CERTIFY)}
    given = [(name in certifying, i) for i, name in enumerate(columns["user_id"]) if coupon[i] == 2]
    inside, outside = ([i for among, i in given if among is wanted] for wanted in (True, False))
    for i in [*inside[:bought], *outside[:OUTSIDE]]:
        columns["active"][i] = 1
    data = prepared(folder, columns, limit, stated)
    chance = np.eye(len(ACTIONS))[np.full(USERS, action)]
    policy = policy_file(folder / "policy.parquet", pa.table(columns), ACTIONS, chance)
    return outlay.evaluate(data, policy=policy, learned_here=True)


def cost(found: Evaluation) -> Estimate:
    (estimate,) = (e for e in found.estimates if (e.estimator, e.target) == ("fqe", "coupon_cost"))
    return estimate


def test_no_event_among_these_users_certifies_nothing(tmp_path: Path) -> None:
    """Three in the whole log are too few to tell that a cost is never more than the amount."""
    found = always(2, 0, tmp_path, limit=5.0)
    assert (cost(found).value, cost(found).std_error) == (0, 0)
    assert not cost(found).recommended
    assert cost(found).caution == Reason(ReasonKind.UNVARYING)
    (line,) = found.certificate.budgets
    assert (line.value, line.bound, line.events) == (0, None, 0)
    assert found.certificate.reason == Reason(ReasonKind.LIMIT)
    assert found.certificate.words == f"not certified: {line.words}"
    assert found.certificate.words in found.verdict.words


def test_with_the_largest_cost_stated_it_is_the_rule_of_three(tmp_path: Path) -> None:
    """As if one of about 130 who were given it had bought, times ln(1/α)."""
    (line,) = always(2, 0, tmp_path, stated=STATED).certificate.budgets
    given = USERS * 0.4 / 3
    assert line.bound == pytest.approx(-2 * np.log(0.025) / given, rel=0.25)


@pytest.mark.parametrize(("stated", "certified"), [("", False), (STATED, True), ('\nreserve = "coupon / 2"', False)])
def test_few_events_are_bounded_by_the_largest_cost_that_is_stated_and_true(
    stated: str, certified: bool, tmp_path: Path
) -> None:
    """Two here and three elsewhere say nothing of it; what the log contradicts does not count."""
    found = always(2, 2, tmp_path, limit=0.2, stated=stated)
    assert not cost(found).recommended  # its interval misses, whatever the bound
    assert found.certificate.certified == certified
    contradicted = "/" in stated
    (line,) = found.certificate.budgets
    assert line.events == (None if certified else 2)
    assert line.unbelieved == (5 if contradicted else 0)
    assert found.certificate.words.endswith(line.words) == (not certified)


def test_a_cost_that_is_nothing_or_the_amount_needs_no_statement(tmp_path: Path) -> None:
    """Seven events in the log, each of the amount given: the certificate takes it for the largest."""
    found = always(2, 4, tmp_path, limit=0.2)
    assert found.certificate.words == "certified"
    (line,) = found.certificate.budgets
    assert line.value is not None
    assert line.bound is not None
    assert 2 * line.value < line.bound < 0.2


def test_many_events_do(tmp_path: Path) -> None:
    found = always(2, 60, tmp_path, limit=5.0)
    assert cost(found).recommended
    assert found.certificate.words == "certified"


def test_an_action_that_gives_nothing_certainly_costs_nothing(tmp_path: Path) -> None:
    found = always(0, 4, tmp_path)
    assert (cost(found).value, cost(found).std_error) == (0, 0)
    assert cost(found).recommended
    assert found.certificate.words == "certified"
    assert found.certificate.budgets[0].bound == 0


def test_one_that_nobody_took_up_yet_may_cost_something(tmp_path: Path) -> None:
    """No row with 1 ever cost anything: the rule of three for a cost of 1."""
    (line,) = always(1, 4, tmp_path).certificate.budgets
    assert line.bound == pytest.approx(-np.log(0.025) / (USERS * 0.4 / 3), rel=0.25)


FIRM = 500.0


@pytest.mark.parametrize("stated", ["", f'\nreserve = "coupon * {FIRM / 2:g}"'])
def test_a_large_payer_elsewhere_in_the_log_is_not_certified_away(stated: str, tmp_path: Path) -> None:
    """All certify users buy for a little, and look alike; one of the others is a firm."""
    found = {}
    for firm in (2.0, FIRM):
        rng = np.random.default_rng(1)
        coupon = rng.choice(ACTIONS, USERS)
        columns: dict[str, Any] = {
            "user_id": [f"u{i}" for i in range(USERS)],
            "day": [0] * USERS,
            "level": [0] * USERS,
            "coupon": coupon,
            "active": rng.uniform(0.5, 1, USERS),
            "p": [1 / 3] * USERS,
        }
        folder = tmp_path / f"{firm:g}"
        folder.mkdir()
        data = prepared(folder, columns, 2.0)
        certifying = {data.user_ids().to_pylist()[user] for user in data.users_of(CERTIFY)}
        place = next(i for i, name in enumerate(columns["user_id"]) if coupon[i] == 2 and name not in certifying)
        columns["active"][place] = firm / 2
        data = prepared(folder, columns, 2.0, stated)
        policy = policy_file(folder / "policy.parquet", pa.table(columns), ACTIONS, np.eye(3)[np.full(USERS, 2)])
        found[firm] = outlay.evaluate(data, policy=policy, learned_here=True).certificate
    usual, warned = (each.budgets[0] for each in found.values())
    assert usual.value == warned.value
    assert usual.bound is not None
    assert warned.bound is not None
    assert usual.bound < 2 or stated
    given = sum(coupon[i] == 2 and name in certifying for i, name in enumerate(columns["user_id"]))
    alpha = found[FIRM].alpha
    assert alpha is not None
    assert warned.bound - 1.5 == pytest.approx(-FIRM * np.log(alpha) / given, rel=0.02), "the rule of three"
    assert not found[FIRM].certified
    assert found[2.0].certified == (not stated)
    assert warned.rare is not None
    assert warned.rare > 0.9
    assert "one more user, or cluster, as dear as the dearest" in found[FIRM].words
    assert stated or "as dear" not in usual.words


def test_a_statement_that_the_log_contradicts_is_told(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "user_id": ["a", "b", "c", "d"],
        "day": [0] * 4,
        "level": [0] * 4,
        "coupon": [0.0, 1.0, 2.0, 2.0],
        "active": [1, 0, 1, 0],
        "p": [1 / 3] * 4,
        "day_of_week": [0, 0, 0, 1],
    }
    for stated, said in {
        STATED: None,
        '\nreserve = "coupon / 2"': "coupon / 2 is not the largest cost: 1 row costs more, first in row 3",
        '\nreserve = "coupon + 9 * level"': None,
        '\nreserve = "coupon + 9 * day_of_week"': "coupon + 9 * day_of_week is not told by the action alone: 1 actions",
        '\nreserve = "case when coupon > 0 then coupon end"': "case when coupon > 0 then coupon end is not told by the",
    }.items():
        path = campaign_file(tmp_path, columns, discount=0.0, log='propensity = "p"')
        path.write_text(path.read_text().replace("at_most = 1.2", f"at_most = 1.2{stated}"))
        messages = [f.message for f in outlay.check(path).findings if f.where == "budget coupon_cost.reserve"]
        assert len(messages) == (said is not None)
        assert said is None or messages[0].startswith(said)
