"""Stated propensities against the log: true ones pass however they vary, false ones are named with their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from campaign_files import campaign_file, panel
from outlay.core.campaign import Campaign
from outlay.jobs.check import check
from outlay.logs.propensities import Claims, claims
from outlay.logs.quality import inspect
from outlay.logs.roles import link, open_log
from telling import missing

CAMPAIGN = """
[campaign]
name = "test"
discount = 0.5
[log]
source = "log.parquet"
user = "user"
time = "day"
action = "action"
reward = "reward"
propensity = "p"
{log}
[log.features]
categorical = ["state"]
numeric = []
[[budget]]
name = "cost"
cost = "action"
at_most = 1.0
"""


def held(folder: Path, columns: dict[str, Any], log: str = 'segment = "state"') -> Claims:
    """The claims of a log; a row per user unless `columns` says otherwise."""
    rows = len(columns["action"])
    columns = {"user": np.arange(rows), "day": np.zeros(rows, np.int64), "reward": np.zeros(rows)} | columns
    pq.write_table(pa.table(columns), folder / "log.parquet")
    (folder / "campaign.toml").write_text(CAMPAIGN.format(log=log))
    work = folder / "work"
    work.mkdir(exist_ok=True)
    with open_log(Campaign.load(folder / "campaign.toml"), work) as opened:
        link(opened)
        result = claims(opened, sorted({float(a) for a in columns["action"]}))
    (work / "work.duckdb").unlink()
    return result


def draw(rng: np.random.Generator, chances: NDArray[np.float64]) -> NDArray[np.int64]:
    """`[n]` actions drawn from `[n, K]`."""
    below = chances.cumsum(axis=1)[:, :-1] < rng.random(len(chances))[:, None]
    return np.asarray(below.sum(axis=1), np.int64)


def of_the_given(chances: NDArray[np.float64], action: NDArray[np.int64]) -> NDArray[np.float64]:
    return chances[np.arange(len(action)), action]


def true_log(rng: np.random.Generator) -> dict[str, Any]:
    """A log drawn with its propensities: chances depend on the state and the action before, some are tiny or none."""
    users, days, actions = int(rng.integers(20, 1500)), int(rng.integers(1, 6)), int(rng.integers(2, 6))
    spread = rng.choice([0.5, 2.0, 5.0])  # of the logits: up to chances of e^-20
    logits = rng.normal(0, spread, (4, actions + 1, actions))
    allowed = rng.random((4, actions)) < rng.choice([0.6, 1.1])
    allowed[:, 0] = True
    logits = np.where(allowed[:, None], logits, -np.inf)
    if rng.random() < 0.3:
        logits = np.where(rng.random(logits.shape) < 0.3, -np.inf, logits)  # allowed, and yet without a chance
        logits[..., 0] = 0.0
    chances = np.exp(logits - logits.max(axis=-1, keepdims=True))
    chances /= chances.sum(axis=-1, keepdims=True)
    state = rng.integers(0, 4, users)
    before = np.full(users, actions)
    action, p, states = [], [], []
    for _ in range(days):
        now = chances[state, before]
        before = draw(rng, now)
        action.append(before)
        p.append(of_the_given(now, before))
        states.append(state)
        state = np.where(rng.random(users) < 0.3, before % 4, state)
    lists = [[float(a) for a in np.flatnonzero(allowed[s])] for s in range(4)]
    every = np.concatenate(states)
    return {
        "user": np.tile(np.arange(users), days),
        "day": np.repeat(np.arange(days), users),
        "state": every,
        "action": np.concatenate(action),
        "p": np.concatenate(p),
        "allowed": [None if row % 50 == 0 else lists[s] for row, s in enumerate(every)],
    }


@pytest.mark.parametrize("listed", [True, False])
def test_true_propensities_are_not_contradicted_however_they_vary(tmp_path: Path, listed: bool) -> None:
    rng = np.random.default_rng(5)
    log = 'segment = "state"' + ('\neligible = "allowed"' if listed else "")
    for _ in range(12):
        found = held(tmp_path, true_log(rng), log)
        assert found.contradicted == ()


def test_the_figures_of_a_log_worked_by_hand(tmp_path: Path) -> None:
    """Three of four rows have action 1 at 1/2: Σ 1/p = 6 for 4 rows, variance 3 · ½ / ¼ = 6, expected 3 · 4 / 6 = 2."""
    found = held(tmp_path, {"action": [1, 1, 1, 0], "p": [0.5] * 4, "state": [0] * 4})
    claim = found.overall[1.0]
    assert (claim.rows, claim.given) == (4, 3)
    assert claim.expected == pytest.approx(2)
    assert claim.z == pytest.approx(2 / np.sqrt(6))
    assert not found.refused
    assert not found.certain


def test_an_action_counts_only_where_it_had_a_chance(tmp_path: Path) -> None:
    """Action 2: not where the list leaves it out, nor where another was certain; a missing list allows all."""
    columns = {
        "action": [2, 1, 1, 1, 0],
        "p": [0.5, 0.5, 0.5, 1.0, 0.5],
        "state": [0] * 5,
        "allowed": [[1.0, 2.0], [2.0, 1.0, 1.0], [0.0, 1.0], [0.0, 1.0, 2.0], None],
    }
    found = held(tmp_path, columns, 'eligible = "allowed"')
    assert {action: claim.rows for action, claim in found.overall.items()} == {0: 2, 1: 5, 2: 3}


def test_swapped_propensities_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    chances = np.tile([0.2, 0.3, 0.5], (2000, 1))
    action = draw(rng, chances)
    columns = {"action": action, "state": rng.integers(0, 2, 2000)}
    assert not held(tmp_path, columns | {"p": of_the_given(chances, action)}).contradicted
    found = held(tmp_path, columns | {"p": of_the_given(chances[:, [2, 1, 0]], action)})
    assert found.refused
    worst = found.contradicted[0]
    assert (worst.action, worst.segment, worst.rows) == (2, None, 2000)
    assert worst.given == np.sum(action == 2)
    assert worst.expected == pytest.approx(400)
    assert not missing(str(found), "action 2", f"{worst.given / 2000:.1%}", "2,000 rows", "20.0%")


def test_even_shares_stated_for_an_uneven_draw_are_refused(tmp_path: Path) -> None:
    action = draw(np.random.default_rng(1), np.tile([0.4, 0.6], (2000, 1)))
    found = held(tmp_path, {"action": action, "p": np.full(2000, 0.5), "state": np.zeros(2000, np.int64)})
    assert found.refused
    assert [claim.action for claim in found.contradicted] == [1]


def test_propensities_swapped_by_segment_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    state = rng.integers(0, 2, 4000)
    chances = np.array([[0.3, 0.7], [0.7, 0.3]])[state]
    action = draw(rng, chances)
    columns = {"action": action, "p": of_the_given(chances[:, ::-1], action), "state": state}
    assert held(tmp_path, columns).refused


def test_propensities_that_are_right_overall_and_not_by_segment_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    state = rng.integers(0, 2, 4000)
    action = draw(rng, np.array([[0.3, 0.7], [0.7, 0.3]])[state])
    columns = {"action": action, "p": np.full(4000, 0.5), "state": state}
    assert held(tmp_path, columns, "").contradicted == ()
    found = held(tmp_path, columns)
    assert found.refused
    assert {(claim.action, claim.segment) for claim in found.contradicted} == {(1, "0"), (0, "1")}
    assert "in segment '0'" in str(found)


@pytest.mark.parametrize("chances", [[0.3, 0.7], [0.05, 0.03, 0.92]])
def test_the_chance_of_one_action_stated_in_every_row_is_refused(tmp_path: Path, chances: list[float]) -> None:
    """No action is given more often than stated: the others are given too often for what is left of 1."""
    action = draw(np.random.default_rng(3), np.tile(chances, (3000, 1)))
    found = held(tmp_path, {"action": action, "p": np.full(3000, chances[-1]), "state": np.zeros(3000, np.int64)})
    assert found.refused
    assert found.contradicted[0].action is None
    assert found.contradicted[0].expected == pytest.approx(3000 * (1 / chances[-1] - 1))
    assert "less likely action" in str(found)


def test_an_action_without_a_chance_in_some_rows_contradicts_nothing(tmp_path: Path) -> None:
    """Σ 1/p is half the rows, and yet all is true: in one state the action was never drawn, and no list says so."""
    rng = np.random.default_rng(4)
    state = rng.integers(0, 2, 4000)
    chances = np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0]])[state]
    action = draw(rng, chances)
    found = held(tmp_path, {"action": action, "p": of_the_given(chances, action), "state": state})
    assert found.contradicted == ()
    assert found.overall[2.0].z < -10


def test_an_action_of_a_plain_draw_that_comes_too_rarely_is_refused_unless_a_list_explains_it(tmp_path: Path) -> None:
    """1/2 stated for each of three actions at 1/3, in every row."""
    rng = np.random.default_rng(6)
    action = rng.integers(0, 3, 3000)
    columns = {"action": action, "p": np.full(3000, 0.5), "state": rng.integers(0, 2, 3000)}
    found = held(tmp_path, columns)
    assert found.refused
    assert {claim.action for claim in found.contradicted} == {0, 1, 2}
    assert not missing(str(found), "propensities", "50.0%")
    lists = {"allowed": [[float(a), float((a + 1) % 3)] for a in action]}
    assert not held(tmp_path, columns | lists, 'eligible = "allowed"').refused


def test_rounded_propensities_are_not_refused_but_told(tmp_path: Path) -> None:
    """Four actions at 1/4, stated as 0.24: off by 4%, 6.5 standard errors in 80,000 rows."""
    action = np.repeat(np.arange(4), 20_000)
    columns = {"action": action, "p": np.full(80_000, 0.24), "state": np.zeros(80_000, np.int64)}
    found = held(tmp_path, columns, "")
    assert len(found.contradicted) == 4
    assert found.contradicted[0].z == pytest.approx(6.5, abs=0.05)
    assert not found.refused
    assert "; and 1 more" in str(found)


def test_likely_actions_rounded_to_two_decimals_are_not_refused(tmp_path: Path) -> None:
    """0.99 for 0.9949: half of the rare rows are wanting, by rounding alone."""
    action = np.repeat([0, 1], [99_490, 510])
    columns = {"action": action, "p": np.where(action == 0, 0.99, 0.0051), "state": np.zeros(100_000, np.int64)}
    found = held(tmp_path, columns, "")
    assert {claim.action for claim in found.contradicted} == {0, None}
    assert not found.refused


def test_few_rows_of_a_rare_action_refuse_nothing(tmp_path: Path) -> None:
    """Nine in 1,000 rows at 1/1000: one was to be expected, and nine are too few to say so for certain."""
    p = np.array([0.001] * 9 + [0.999] * 991)
    found = held(tmp_path, {"action": [1] * 9 + [0] * 991, "p": p, "state": [0] * 1000})
    assert found.overall[1.0].z <= 3
    assert found.contradicted == ()


def test_segments_are_those_of_the_first_row_and_missing_is_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    lasting = rng.random(3000) < 0.5
    action = draw(rng, np.where(np.tile(lasting, 2)[:, None], [0.3, 0.7], [0.7, 0.3]))
    columns = {
        "user": np.tile(np.arange(3000), 2),
        "day": np.repeat([0, 1], 3000),
        "action": action,
        "p": np.full(6000, 0.5),
        "state": [*("a" if user else None for user in lasting), *["later"] * 3000],
    }
    assert {claim.segment for claim in held(tmp_path, columns).contradicted} == {"a", "missing"}


def test_forced_rows_are_left_out_and_spoilt_propensities_are_not_held(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    columns = {
        "action": np.append(rng.integers(0, 2, 1000), np.ones(500, np.int64)),
        "p": np.full(1500, 0.5),
        "state": np.zeros(1500, np.int64),
        "forced": np.arange(1500) >= 1000,
    }
    assert held(tmp_path, columns, "").refused
    assert held(tmp_path, columns, 'forced = "forced"').contradicted == ()
    columns["p"][3] = 0.0
    held(tmp_path, columns, "")
    with open_log(Campaign.load(tmp_path / "campaign.toml"), tmp_path / "work") as log:
        link(log)
        facts = inspect(log)
    assert facts.propensities is None
    assert [finding.where for finding in facts.errors] == ["log.propensity"]


def test_a_propensity_whose_square_is_no_float_is_judged_like_any_other(tmp_path: Path) -> None:
    columns = panel(users=40)
    columns["p"] = [1e-300 if i % 10 == 0 else 1 / 3 for i in range(160)]
    found = check(campaign_file(tmp_path, columns, log='propensity = "p"'))
    assert "log.propensity" in {each.key for each in found.findings}
