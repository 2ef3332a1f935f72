"""Pacing beside a test: every arm follows its own money, and the others what is left of the total."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from small_servers import RESERVE, STATE, server
from small_trials import START, Days, trial

from outlay.bundles.decide import Bundle
from outlay.bundles.pool import Pool
from outlay.serve.clock import Moment
from outlay.serve.config import Plan, ServeConfig
from outlay.serve.deciding.decider import decode_draw
from outlay.serve.deciding.loaded_bundle import prepare_bundle
from outlay.serve.experiment import ServedExperiment, load_experiment
from outlay.serve.ledger.caps import Caps, Tally, Totals
from outlay.serve.pacing.budgets import PacedBudget, arm_budget, outside_budget
from outlay.serve.pacing.forecast import PacingSetup
from outlay.serve.pacing.mixing import PolicyPool
from outlay.serve.pacing.pacing import PacingState, begin, correct

DAY0 = 20_514  # 2026-03-02
PLAN = Plan(start=START, days=10, shares=(1, 1, 2, 1, 1, 1, 1, 1, 1, 1))


def tally(cap: int | None, reserved: int, settled: int, decisions: int) -> Tally:
    return Tally(cap, reserved, settled, decisions, decisions, reserved + settled)


TOTALS = Totals(
    campaign="coupons",
    caps=Caps(total=10_000, day=2_000, arms={"new": 1_000, "old": 3_000, "policy": 9_000}),
    paused=False,
    total=tally(10_000, 500, 900, 80),
    days={DAY0: tally(2_000, 100, 600, 50), DAY0 + 1: tally(2_000, 400, 300, 30)},
    arms={"new": tally(1_000, 50, 150, 9), "old": tally(3_000, 60, 90, 11), "policy": tally(9_000, 390, 660, 60)},
    arm_days={
        ("new", DAY0): tally(None, 10, 90, 5),
        ("new", DAY0 + 1): tally(None, 40, 60, 4),
        ("old", DAY0): tally(None, 60, 90, 11),
        ("policy", DAY0): tally(None, 30, 420, 34),
        ("policy", DAY0 + 1): tally(None, 360, 240, 26),
    },
)


@pytest.fixture
def served(frontier_bundle: Bundle, tmp_path: Path) -> ServedExperiment:
    config = ServeConfig.parse({"reserve": RESERVE})
    loaded = prepare_bundle(frontier_bundle.folder, config)
    return load_experiment(trial(tmp_path, frontier_bundle.folder), loaded, config)


def test_an_arm_follows_its_cap_and_its_days(served: ServedExperiment) -> None:
    new = next(arm for arm in served.arms if arm.name == "new")
    paced = arm_budget(PLAN, served, new)
    assert paced is not None
    assert paced.kind == "pace new"
    money = paced.budget(TOTALS, DAY0 + 1)
    assert money == (1_000, math.inf, {DAY0: tally(None, 10, 90, 5), DAY0 + 1: tally(None, 40, 60, 4)}, 1_000)
    shares = list(paced.schedule.shares.values())
    by_coverage = [0.2, 0.2, 2 * 0.6, 0.6, 1, 1, 1, 0, 0, 0]  # seven days of the test, by its ramp
    assert shares == pytest.approx([10 * share / sum(by_coverage) for share in by_coverage])


def test_the_others_follow_what_the_arms_leave(served: ServedExperiment) -> None:
    paced = outside_budget(PLAN, served)
    money = paced.budget(TOTALS, DAY0 + 1)
    assert money is not None
    assert (money.total, money.day_cap) == (10_000 - 4_000, 2_000)
    assert money.days[DAY0] == Tally(2_000, 30, 420, 34, 34, 450)
    assert money.days[DAY0 + 1] == Tally(2_000, 360, 240, 26, 26, 600)
    after = paced.budget(TOTALS, served.end)
    assert after is not None
    assert after.total == 10_000 - 200 - 150  # what the arms hold and spent
    assert (money.cap, after.cap) == (6_000, 10_000)
    outside = [1 - 0.8 * c for c in (0.2, 0.2, 0.6, 0.6, 1, 1, 1, 0, 0, 0)]
    outside[2] *= 2
    assert list(paced.schedule.shares.values()) == pytest.approx([10 * x / sum(outside) for x in outside])


def test_what_is_released_after_a_test_begins_no_new_path(served: ServedExperiment) -> None:
    """For a day after it, reservations of the arms expire all the time; the others are steered all the same."""
    paced, policies = outside_budget(PLAN, served), PolicyPool.of(Pool(served.arms[0].loaded.bundle), 100)
    setting, day = PacingSetup(paced.schedule, policies, 1.0, None), served.end
    states: list[PacingState] = []
    for part in (0.1, 0.11):
        arms = TOTALS.arms | {"old": tally(3_000, 60 - round(200 * part), 90, 11)}
        money = paced.budget(replace(TOTALS, arms=arms), day)
        assert money is not None
        now = Moment(round((day + part) * 86_400_000), day, part)
        states.append(correct(setting, money, now, states[-1]) if states else begin(setting, money, now, None))
    assert states[0].anchor == states[1].anchor


def test_without_a_test_all_money_is_everybodys() -> None:
    paced = outside_budget(PLAN, None)
    plain = Totals(
        campaign="coupons",
        caps=Caps(total=10),
        paused=False,
        total=tally(10, 1, 2, 3),
        days={},
        arms={"policy": tally(None, 1, 2, 3)},
        arm_days={},
    )
    assert paced == PacedBudget(paced.schedule)
    assert paced.budget(plain, DAY0) == (10, math.inf, {}, 10)
    assert paced.kind == "pace"


def test_arms_without_prices_and_days_off_the_plan_are_not_paced(served: ServedExperiment) -> None:
    assert [arm.name for arm in served.arms if arm_budget(PLAN, served, arm)] == ["new"]
    off = Plan(start=START.replace(month=7), days=3)
    assert [arm_budget(off, served, arm) for arm in served.arms] == [None] * 4
    assert outside_budget(off, served).schedule.shares == outside_budget(off, None).schedule.shares


def test_a_server_paces_each_budget_separately(frontier_bundle: Bundle, tmp_path: Path) -> None:
    """The arm's money runs out on its first day; that of the others lasts."""
    arms: list[dict[str, Any]] = [
        {"name": "new", "kind": "bundle", "bundle": str(frontier_bundle.folder), "share": 0.5, "budget": 900.0},
        {"name": "nobody", "kind": "holdout", "share": 0.1},
    ]
    experiment = trial(tmp_path, frontier_bundle.folder, [{"day": 0, "coverage": 1.0}], arms)
    plan = {"start": START, "days": 7, "correct_minutes": 60}
    users = [f"user-{i}" for i in range(100)]
    clock, prices = Days(), {}
    with server(
        frontier_bundle, tmp_path / "ledger.db", clock=clock, experiment=experiment, plan=plan, caps={"total": 100_000}
    ) as client:
        for hour in range(20):
            clock.at = (hour + 0.01) / 24
            client.service.maintain()
            asked = [{"request_id": f"{hour}-{user}", "user_id": user, "features": STATE} for user in users]
            assert client.post("/v1/decisions", json={"requests": asked}).status_code == 200
        ledger = client.service.ledger
        for row in ledger.rows("coupons", 0, 2**50):
            prices[row.arm] = decode_draw(row.members).price
        assert len(ledger.notes("coupons", "pace new")) == len(ledger.notes("coupons", "pace")) == 20
    assert prices["new"] > 1.5
    assert prices["policy"] <= 1.0
