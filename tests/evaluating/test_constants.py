"""The yardstick without states: what is said where it breaks a limit, and where it does as well as a policy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import outlay
from campaign_files import campaign_file, panel
from outlay.choosing.measure import Measure
from outlay.core.estimate import Target
from outlay.core.transitions import CERTIFY
from outlay.estimators.joint import combine
from outlay.estimators.reach import Reach
from outlay.estimators.units import displayed
from outlay.estimators.windowed import claimed
from outlay.evaluating.constants import AgainstConstants, ConstantActions, beside_constants
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.verdict import VerdictKind
from outlay.ops.intervals import quantile
from policy_files import policy_file
from telling import missing

PROPENSITY = 'propensity = "p"'


def rising() -> dict[str, list[Any]]:
    """Coupons 1, 2, 3 make active with 40, 60, 80%: they cost 0.4, 1.2, 2.4."""
    columns = panel(users=3000)
    coupon = np.array(columns["coupon"])
    columns["active"] = (np.random.default_rng(5).random(len(coupon)) < 0.2 + 0.2 * coupon).astype(int).tolist()
    return columns


def judged(folder: Path, columns: dict[str, Any], shares: list[float], limit: float) -> Evaluation:
    path = campaign_file(folder, columns, log=PROPENSITY)
    path.write_text(path.read_text().replace("at_most = 1.2", f"at_most = {limit}"))
    data = outlay.prepare(path, folder / "data").folder
    policy = np.tile(shares, (len(columns["day"]), 1))
    return outlay.evaluate(data, policy=policy_file(folder / "p.parquet", pa.table(columns), np.arange(1.0, 4), policy))


def test_a_gain_that_a_constant_has_too_is_not_that_of_the_policy(tmp_path: Path) -> None:
    found = judged(tmp_path, rising(), [0.0, 0.6, 0.4], 2.0)
    assert found.verdict.kind is VerdictKind.CONSTANT
    assert not missing(found.verdict.words, "Serve a constant")
    assert re.search(r"\ba constant .*: 2 for \d", found.verdict.words)
    assert found.policies["constants"] == "best constant mixture"


def test_the_yardstick_spends_up_to_the_limit(tmp_path: Path) -> None:
    """No room for a certificate that nobody wants of it: few users certify here, so that room would be large."""
    path = campaign_file(tmp_path, rising(), log=PROPENSITY)
    data = outlay.prepare(path, tmp_path / "data")
    at = Measure(data, CERTIFY, None)
    actions = ConstantActions.of(at, data.campaign)
    assert actions is not None
    best = actions.best(data.campaign)
    cost = displayed(
        combine([actions.fits[actions.actions.index(a)] for a in best.actions], best.weights), data.campaign
    )
    assert best.missed is None
    assert cost.value[cost.column("coupon_cost")] == pytest.approx(1.2, rel=1e-6)


def test_the_bound_against_constants_allows_for_days_and_for_larger_rewards_of_others(tmp_path: Path) -> None:
    """As the bound of the gain over the old policy does: a claim must not be surer beside a constant."""
    data = outlay.prepare(campaign_file(tmp_path, rising(), log=PROPENSITY), tmp_path / "data")
    at = Measure(data, CERTIFY, None)
    policy, propensity = (np.arange(len(at.panel)) % 2 + 1).astype(np.intp), at.propensity()
    fitted, reach = at.fit(policy), at.reach([policy])

    def against(reach: Reach) -> AgainstConstants:
        found = beside_constants(at, fitted, data.campaign, 0.975, second=None, propensity=propensity, reach=reach)
        assert found is not None
        assert found.gain_bound is not None
        return found

    bound, effects = against(reach).gain_bound, at.state.day_effects
    assert bound is not None
    richer = against(replace(reach, record=reach.record + 50)).gain_bound
    assert richer is not None
    assert richer < bound - 0.01
    shaken = replace(effects, outcomes=tuple(replace(each, shock=2.0) for each in effects.outcomes))
    at.state.__dict__["day_effects"] = shaken
    moved = against(reach)
    assert moved.gain_bound is not None
    assert moved.gain_bound < bound
    assert moved.gain - moved.gain_bound >= quantile(0.975) * shaken.error(
        Target("reward", claimed(data.campaign, at.window)), moved.gain
    )


def test_constants_over_the_limit_are_not_called_the_best(tmp_path: Path) -> None:
    found = judged(tmp_path, rising(), [1.0, 0.0, 0.0], 0.25)
    assert found.policies["constants"] == "constants nearest to the limits"
    shares, missed = found.notes["constants"].split("; ", 1)
    assert shares == "1 for 100% of users"
    assert re.search(r"\bcoupon_cost by 0\.1", missed)


def test_only_what_every_row_allows_is_a_constant_action(tmp_path: Path) -> None:
    """2 costs more than the limit, and 1 may not be given to level 0."""
    columns = rising()
    columns["allowed"] = [[2.0, 3.0] if level == 0 else [1.0, 2.0, 3.0] for level in columns["level"]]
    low = np.array(columns["level"]) == 0
    columns["coupon"] = np.where(low & (np.array(columns["coupon"]) == 1), 2.0, columns["coupon"]).tolist()
    path = campaign_file(tmp_path, columns, log='eligible = "allowed"')
    path.write_text(path.read_text().replace("at_most = 1.2", "at_most = 1.0"))
    data = outlay.prepare(path, tmp_path / "data")
    actions = ConstantActions.of(Measure(data, CERTIFY, None), data.campaign)
    assert actions is not None
    found = actions.best(data.campaign)
    assert data.actions[found.actions].tolist() == [2.0]
    assert found.missed is not None
    assert found.missed.startswith("coupon_cost by 0.")
