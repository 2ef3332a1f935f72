"""Policies from outside on logs that are not as tidy as habit: no counted states, gaps, one step, rare segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_other_campaigns import untidy

import outlay
from campaign_files import campaign_file, panel
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.agreement import Agreement
from outlay.estimators.markov import MarkovCheck
from outlay.estimators.observed import Reproduction
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.verdict import THIN, VerdictKind
from policy_files import policy_file

ACTIONS = np.array([1.0, 2.0, 3.0])
PROPENSITY = 'propensity = "p"'


def judged(folder: Path, columns: dict[str, Any], probability: Any, **settings: Any) -> Evaluation:
    path = campaign_file(folder, columns, **settings)
    data = outlay.prepare(path, folder / "data").folder
    policy = np.broadcast_to(probability, (len(columns["day"]), 3))
    found = outlay.evaluate(data, policy=policy_file(folder / "policy.parquet", pa.table(columns), ACTIONS, policy))
    json.dumps(found.to_dict(), allow_nan=False)
    return found


@pytest.fixture(scope="module")
def gappy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evaluation, Transitions]:
    """Gaps, users who leave, rows without a choice, masks, a number among the features; the highest coupon of each."""
    folder = tmp_path_factory.mktemp("untidy")
    data = outlay.prepare(untidy(folder), folder / "data")
    log = pq.read_table(folder / "log.parquet")
    three = np.array([len(allowed) == 3 for allowed in log["allowed"].to_pylist()])[:, None]
    policy = np.where(three, [0.1, 0.2, 0.7], [0.3, 0.7, 0.0])
    free = ~np.array(log["no_choice"])
    kept = policy_file(folder / "policy.parquet", log.filter(pa.array(free)), ACTIONS, policy[free])
    return outlay.evaluate(data, policy=kept), data


def test_a_policy_is_judged_where_states_are_too_many_to_count(gappy: tuple[Evaluation, Transitions]) -> None:
    """The truth of the first day: by level, the coupon's share, and 1 yuan where there is no choice."""
    found, data = gappy
    assert data.states is None
    assert data.forced[data.rows_of(CERTIFY)].any()
    assert found.diagnostics.detail(Reproduction).ok
    assert found.diagnostics.detail(Agreement).ok
    # It is not said how the actions were drawn.
    assert [name for name, check in found.diagnostics.checks.items() if not check.ok] == ["assignment"]
    first = data.users["first_row"][data.users_of(CERTIFY)]
    three = data.allowed(first)[:, 2]
    coupon = np.where(three, 0.1 + 2 * 0.2 + 3 * 0.7, 0.3 + 2 * 0.7)
    coupon = np.where(data.forced[first], 1.0, coupon)
    # levels 0 to 3 are alike in number; level 0 has no third coupon
    active = (0.2 + 0.15 * coupon + 0.05 * np.where(three, 2, 0)).mean()
    relied = 0
    for e in found.estimates:
        if e.target == "reward@1" and e.recommended:
            assert e.value is not None
            assert e.std_error is not None
            assert abs(e.value - active) < 3.5 * e.std_error + 0.01, e.estimator
            relied += 1
    assert relied >= 3
    fqe = {e.target: e for e in found.estimates if e.estimator == "fqe"}
    assert all(fqe[target].recommended for target in ("reward", "money", "reward@1", "reward@3", "money@3"))


def test_the_old_policy_is_given_back_by_every_estimator_there(gappy: tuple[Evaluation, Transitions]) -> None:
    found, _ = gappy
    by = {(e.estimator, e.target): e for e in found.beside if e.policy == "old"}
    for target in ("reward@1", "reward@3", "money@3"):
        seen = by["observed", target]
        assert seen.value is not None
        assert seen.std_error is not None
        for estimator in ("fqe", "fqe2", "dr", "pdis"):
            value = by[estimator, target].value
            assert value is not None
            assert abs(value - seen.value) < 3 * seen.std_error
    assert "constants" in found.policies
    assert "3 for" not in found.notes["constants"]  # not everybody may be given 3


def test_one_decision_a_user_is_all_that_a_log_may_hold(tmp_path: Path) -> None:
    """Discount 0: the value is the mean of the first rows, and every estimator may be relied on."""
    columns = panel(users=6000, days=1)
    coupon = np.array(columns["coupon"])
    columns["active"] = (np.random.default_rng(1).random(6000) < 0.1 + 0.2 * coupon).astype(int).tolist()
    found = judged(
        tmp_path, columns, [0.2, 0.3, 0.5], log=PROPENSITY, discount=0.0, campaign="report_days = [1]\nhorizon_days = 1"
    )
    active, cost = 0.1 + 0.2 * 2.3, 0.1 * 2.3 + 0.2 * (0.2 + 0.3 * 4 + 0.5 * 9)
    for e in found.estimates:
        assert e.recommended, e
        assert e.value is not None
        assert e.std_error is not None
        truth = active if e.target.startswith("reward") else cost
        assert abs(e.value - truth) < 3.5 * e.std_error, (e.estimator, e.target)
    assert found.diagnostics.detail(Agreement).ok


def test_a_segment_of_one_user_has_no_number_and_a_reason(tmp_path: Path) -> None:
    columns = panel(users=400)
    data = outlay.prepare(campaign_file(tmp_path, columns), tmp_path / "data")
    alone = data.user_ids()[int(data.users_of(CERTIFY)[0])].as_py()
    columns["part"] = ["rare" if user == alone else "other" for user in columns["user_id"]]
    found = judged(tmp_path, columns, [0.3, 0.3, 0.4], log=f'{PROPENSITY}\nsegment = "part"')
    rare = [row for row in found.segments if row.segment == "rare"]
    assert {row.policy for row in rare} == {"old", "policy", "gain"}
    for row in rare:
        assert row.users == 1
        assert row.value is row.low is row.high is None
        assert not row.recommended
        assert row.withheld == Reason(ReasonKind.FEW_IN_SEGMENT, {"count": 1, "needed": 30})
    (line,) = [line for line in found.diagnostics.overlap if line.segment == "rare"]
    assert line.choices == 4
    others = [row for row in found.segments if row.segment == "other"]
    assert {row.users for row in others} == {399}
    assert any(row.value is not None for row in others)


def test_few_users_certify_nothing_and_say_so(tmp_path: Path) -> None:
    found = judged(tmp_path, panel(users=20), [0.3, 0.3, 0.4], log=PROPENSITY)
    assert found.certificate.users == 20
    assert not found.certificate.certified
    reason = Reason(ReasonKind.FEW_USERS, {"count": 20, "units": "users", "needed": 30})
    assert found.certificate.reason == reason
    assert reason.words in found.verdict.words


def test_a_total_that_is_withheld_does_not_forbid_what_is_certified(tmp_path: Path) -> None:
    """Sooner or later users come to where nobody was given 3; a discount of 0.03 hardly sees it, and totals do."""
    columns = panel(users=4000, days=7)
    rng = np.random.default_rng(1)
    late = np.array(columns["day"]) >= np.repeat(rng.geometric(0.2, 4000), 7)
    coupon = np.where(late, rng.integers(1, 3, len(late)), rng.integers(1, 4, len(late)))
    columns |= {
        "level": late.astype(int).tolist(),
        "coupon": coupon.astype(float).tolist(),
        "p": np.where(late, 1 / 2, 1 / 3).tolist(),
        "active": (rng.random(len(late)) < 0.1 * coupon).astype(int).tolist(),
    }
    found = judged(tmp_path, columns, [0, 0, 1.0], log=PROPENSITY, discount=0.03)
    fqe = {e.target: e for e in found.estimates if e.estimator == "fqe"}
    assert fqe["reward@7"].withheld is not None
    assert fqe["reward@7"].withheld.figures["action"] == 3.0
    assert fqe["reward"].value == pytest.approx(0.3, abs=0.05)
    assert found.certificate.certified
    assert found.certificate.withheld is None
    assert found.verdict.kind is VerdictKind.CONSTANT  # which is what the policy is
    assert [row.day for row in found.daily if row.policy == "policy"] == [1]


def test_what_the_log_cannot_carry_is_the_reason_in_certificate_and_verdict(tmp_path: Path) -> None:
    """Nobody was ever given 3 on level 2: no number, and the reason names the amount."""
    columns = panel(users=2000)
    columns["coupon"] = [
        1.0 if c == 3 and level == 2 else c for c, level in zip(columns["coupon"], columns["level"], strict=True)
    ]
    found = judged(tmp_path, columns, [0, 0, 1.0])
    for e in found.estimates:
        assert e.withheld or e.estimator in ("snpdis", "pdis")
    reason = found.certificate.reason
    assert reason is not None
    assert reason.kind is ReasonKind.UNSUPPORTED
    assert isinstance(behind := reason.figures["found"], Reason)
    assert (behind.kind, behind.figures["action"]) == (ReasonKind.HARDLY_GIVEN_MOST, 3.0)
    assert found.certificate.withheld == reason
    assert reason.words in found.verdict.words
    assert found.verdict.words.endswith(THIN)
    unseen = [line for line in found.diagnostics.overlap if line.unseen]
    assert unseen == []  # level is no segment; by segment every action was given


@pytest.mark.parametrize("seed", range(2))
def test_users_who_join_later_and_are_others_do_not_refuse_a_log_that_is_right(tmp_path: Path, seed: int) -> None:
    """Half are there from the first of 6 days; those who join on a later one are twice as active as these, 0.3 a day.

    All of them count for k days, whether their window covers these or not; nobody's covers 30.
    """
    rng = np.random.default_rng(seed)
    users, days = 4000, 6
    joined = np.where(rng.random(users) < 0.5, 0, rng.integers(1, days, users))
    user, day = np.nonzero(np.arange(days) >= joined[:, None])
    late = (joined > 0).astype(int)[user]
    columns = {
        "user_id": [f"u{u}" for u in user],
        "day": day,
        "level": late,
        "coupon": rng.integers(1, 4, len(day)).astype(float),
        "p": np.full(len(day), 1 / 3),
        "active": (rng.random(len(day)) < 0.3 * (1 + late)).astype(int),
    }
    found = judged(tmp_path, columns, [1.0, 0, 0], log=PROPENSITY, campaign="report_days = [1, 3, 6, 30]")
    assert found.diagnostics.detail(Reproduction).ok, found.diagnostics.detail(Reproduction).words
    assert found.diagnostics.detail(Agreement).ok
    relied = {(e.estimator, e.target): e for e in found.estimates if e.recommended}
    truth = {f"reward@{k}": 0.3 * k * (0.5 + 2 * 0.5) for k in (1, 3, 6)}
    for estimator, target in (
        ("fqe", "reward@1"),
        ("dr", "reward@1"),
        ("mis", "reward@1"),
        ("fqe", "reward@3"),
        ("mis", "reward@3"),
        ("fqe", "reward@6"),
    ):
        e = relied[estimator, target]
        assert e.value is not None
        assert e.std_error is not None
        assert abs(e.value - truth[target]) < 3.5 * e.std_error, (estimator, target)
    (by_day,) = (e for e in found.estimates if (e.estimator, e.target) == ("mis", "reward@6"))
    assert by_day.withheld is not None
    assert by_day.withheld.kind is ReasonKind.HARDLY_GIVEN, "no late user has a sixth day, and days are apart"
    for e in found.estimates:
        if e.target.endswith("@30"):
            assert e.value is None
            assert e.withheld == Reason(ReasonKind.NOT_SHOWN, {"days": 30})


def skewed(users: int) -> dict[str, Any]:
    """Coupons of 1, 2 and 3 for 60%, 30% and 10% of the rows; a coupon of c is used with probability c/5."""
    columns, rng = panel(users=users), np.random.default_rng(1)
    rows = len(columns["day"])
    coupon = rng.choice([1.0, 2.0, 3.0], rows, p=[0.6, 0.3, 0.1])
    return columns | {"coupon": coupon.tolist(), "active": (rng.random(rows) < coupon / 5).astype(int).tolist()}


def test_random_draws_cost_their_share_of_the_difference_to_even_draws(tmp_path: Path) -> None:
    """Where it is not known how actions were drawn. Old policy 0.3 active and 0.54 yuan, even draws 0.4 and 0.9333."""
    found = judged(tmp_path, skewed(4_000), [0.0, 0.0, 1.0], discount=0.0).randomising
    assert found is not None
    assert found.share == 0.05
    assert found.relative == pytest.approx(0.05 * (0.3 - 0.4) / 0.3, abs=0.004)
    assert found.reward == pytest.approx(0.05 * (0.3 - 0.4), abs=0.001)
    assert found.spend == pytest.approx(0.05 * (0.9333 - 0.54) / 0.54, abs=0.008)
    assert f"it changes active by about {-100 * found.relative:+.2g}% and coupon_cost by" in found.words


def test_random_draws_are_not_advised_where_they_are_logged(tmp_path: Path) -> None:
    (tmp_path / "said").mkdir()
    columns = skewed(200)
    columns["p"] = [{1.0: 0.6, 2.0: 0.3, 3.0: 0.1}[coupon] for coupon in columns["coupon"]]
    assert judged(tmp_path, columns, [0.0, 0.0, 1.0], log=PROPENSITY).randomising is None
    assert judged(tmp_path / "said", columns, [0.0, 0.0, 1.0], log="randomised = true").randomising is None


def test_a_past_that_is_not_enough_is_answered_by_an_experiment(tmp_path: Path) -> None:
    """Types of users of whom the state shows yesterday alone; without that, a longer past is to be tried first."""
    rng = np.random.default_rng(0)
    columns = panel(users=1_500, days=6)
    chance = np.repeat(rng.choice([0.1, 0.8], 1_500), 6)
    columns["active"] = (rng.random(9_000) < chance).astype(int).tolist()
    history = '[log.history]\ndays = 1\ncolumns = ["reward"]\nsummaries = ["last"]'
    for tail, wanted in ((history, True), ("", False)):
        found = judged(tmp_path, columns, [0.0, 0.0, 1.0], log=PROPENSITY, tail=tail, numeric="[]")
        assert found.diagnostics.detail(MarkovCheck).ok is False
        assert (found.settling is not None) == wanted
        assert found.test is None
