"""Choosing by smooth figures, and what happens where amounts are not smooth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

import outlay
from campaign_files import campaign_file, panel
from outlay.choosing.candidates import CandidatePolicy, MeasuredPolicy, RunContext, constant_actions
from outlay.choosing.choose import (
    Selection,
    SolvedMixture,
    _one_first,
    best,
    choose,
    margin_of_constants,
)
from outlay.choosing.measure import Measure
from outlay.choosing.run import Run
from outlay.core.arrays import preferring_network
from outlay.core.errors import InfeasibleError, LogError
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, SELECT, Transitions
from outlay.estimators.units import coordinates
from outlay.jobs.allocate import allocate_users
from outlay.learning.heads import critic_coordinates
from outlay.learning.tabular import countable
from outlay.ops.intervals import Spread, std_error
from outlay.training.log_game import critic_context
from small_logs import campaign
from telling import missing


def chosen(data: Transitions, folder: Path, actions: Sequence[int] | None = None) -> Selection:
    """Some constant actions, by default all, measured for the choice."""
    every = range(data.num_actions) if actions is None else actions
    campaign = data.campaign
    coords = critic_coordinates(campaign, np.asarray(data.outcome), steady=True)
    context = RunContext(data, campaign, coords.scale, ("reward", "coupon_cost"), None, 0, folder)
    width = data.number_columns.shape[1]
    return choose(
        context,
        [
            CandidatePolicy(
                f"always {a}", preferring_network(one, data.schema.sizes, width, 2), np.zeros(1), np.eye(2)[0]
            )
            for a in every
            for one in [np.eye(data.num_actions)[a]]
        ],
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return outlay.simulate("habit", tmp_path_factory.mktemp("habit"), users=6000, seed=3)


@pytest.fixture(scope="module")
def data(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Transitions:
    return outlay.prepare(log, tmp_path_factory.mktemp("data") / "data")


def errors(found: Selection, which: str) -> NDArray[np.float64]:
    campaign = found.measure.data.campaign
    return np.array([std_error(coordinates(getattr(kept, which), campaign)[1]) for kept in found.measured])


def test_smooth_amounts_take_a_part_of_the_errors_away_and_the_margin_is_that_of_the_certificate(
    data: Transitions, tmp_path: Path
) -> None:
    found = chosen(data, tmp_path)
    assert found.measure.smooth
    ratio = errors(found, "fitted") / errors(found, "certifying")
    assert (ratio[1:-1] < 0.95).all()
    assert np.median(ratio) < 0.85
    assert found.margin[0] > 1.9 * errors(found, "certifying")[:, 1].min() / 2**0.5  # two members that share no error


def test_limits_lowered_by_the_room_keep_it_also_where_users_seldom_decide(tmp_path: Path) -> None:
    """A cost per decision is its coordinate's excess divided by decisions, and so is what its limit is lowered by."""
    columns = panel(users=4000)
    columns["no_choice"] = (np.random.default_rng(2).random(len(columns["day"])) < 0.6).tolist()
    path = campaign_file(tmp_path, columns, log='propensity = "p"\nforced = "no_choice"')
    path.write_text(path.read_text().replace("at_most = 1.2", "at_most = 2.6"))
    data = outlay.prepare(path, tmp_path / "data")
    assert not data.steady
    context = critic_context(
        data,
        data.campaign,
        critic_coordinates(data.campaign, np.asarray(data.outcome), steady=False),
        "ddqn",
        0,
        tmp_path,
    )
    solved = best(constant_actions(context, Measure(data, SELECT, None, long_run=True)), context)
    assert solved is not None
    lowered = data.campaign.lowered(margin_of_constants(context))
    excess = [
        solved.weights
        @ np.array([x[1:] - limit for x, _, limit in (coordinates(p.fitted, about) for p in solved.pool)])
        for about in (data.campaign, lowered)
    ]
    assert excess[1] - excess[0] == pytest.approx(solved.margin)


def test_a_mixture_leaves_the_room_that_it_needs_itself_and_spends_the_rest(data: Transitions, tmp_path: Path) -> None:
    """Its members' errors cancel in part: it needs less than they do on average."""
    found, campaign = chosen(data, tmp_path), data.campaign
    users = [len(data.users_of(split)) for split in (SELECT, CERTIFY)]
    assert len(found.members) == 2

    def room(kept: Sequence[MeasuredPolicy], weights: NDArray[np.float64]) -> float:
        parts = [
            [w * coordinates(getattr(k, fit), campaign)[1][:, 1] for k, w in zip(kept, weights, strict=True)]
            for fit in ("fitted", "certifying")
        ]
        select, certify = (np.sum(part, axis=0) for part in parts)
        certifying, further = Spread.of(certify).scaled(users[1]), weights @ [k.further[0] for k in kept]
        above = np.hypot(certifying.above(norm.isf(0.025)), norm.isf(0.025) * further * certifying.error)
        both = np.hypot(std_error(select), certifying.error * np.hypot(1, further))  # of the estimate that assumes less
        return float(above + norm.isf(0.1) * both)

    alone = [room([kept], np.ones(1)) for kept in found.members]
    assert found.margin[0] == pytest.approx(room(found.members, found.weights), rel=2e-3)
    assert found.margin[0] < found.weights @ alone
    spend = found.weights @ [kept.coordinates[1] for kept in found.members]
    assert spend + found.margin[0] == pytest.approx(2.2, abs=1e-3)


def test_what_constants_beat_by_more_than_noise_is_not_served(data: Transitions, tmp_path: Path) -> None:
    """All that was found gives the least to everybody: far below the limit, and far below the best constants."""
    poor, best = chosen(data, tmp_path, [0]), chosen(data, tmp_path)
    assert [kept.policy.name for kept in poor.measured] == ["always 0"]

    def value(found: Selection) -> float:
        return float(found.weights @ [kept.coordinates[0] for kept in found.members])

    assert value(poor) == pytest.approx(value(best), rel=0.01)
    assert value(poor) > poor.measured[0].coordinates[0] + 0.05


def test_where_one_amount_is_a_step_apart_the_figures_without_smoothing_are_taken(log: Path, tmp_path: Path) -> None:
    """Every third 3.5 is a win, say; its neighbours are as they were."""
    table = pq.read_table(log.parent / "log.parquet").to_pydict()
    lucky = (np.array(table["coupon"]) == 3.5) & (np.arange(len(table["coupon"])) % 3 == 0)
    table["active"] = np.where(lucky, 1, table["active"]).astype(np.int8).tolist()
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    (tmp_path / "campaign.toml").write_text(log.read_text())
    outlay.prepare(tmp_path / "campaign.toml", tmp_path / "data")
    found = chosen(Transitions.open(tmp_path / "data"), tmp_path)
    assert not found.measure.smooth
    assert np.array_equal(errors(found, "fitted"), errors(found, "certifying"))


def test_few_states_are_countable_and_a_run_says_so(habit_run: Run) -> None:
    assert countable(habit_run.data()) is not None
    assert habit_run.manifest["oracle"] == "tabular"
    assert "10 distinct states" in habit_run.manifest["notes"][0]


@pytest.fixture(scope="module")
def habit_run(counted: Path) -> Run:
    return Run.open(counted)


def test_what_training_makes_by_default_can_be_allocated(log: Path, habit_run: Run, tmp_path: Path) -> None:
    """The counted model knows what a day costs; the total is kept."""
    users = log.parent / "states.parquet"
    found = allocate_users(habit_run, users, 20.0, tmp_path / "decisions.parquet")
    assert 0 < found.cost <= 20
    assert found.value <= found.bound


@pytest.mark.parametrize("text", [True, False])
def test_nobody_is_allocated_twice(text: bool, log: Path, habit_run: Run, tmp_path: Path) -> None:
    users, out = pq.read_table(log.parent / "states.parquet"), tmp_path / "decisions.parquet"
    names = [10, 11, 12, 11, 10, *range(20, 15 + users.num_rows)]
    column = pa.array([f"u{name}" for name in names] if text else names)
    pq.write_table(users.append_column("user_id", column), tmp_path / "users.parquet")
    again = (
        r"row 4: user ('u11'|11) stands in the table more than once, first in row 2; 2 rows are repeated\. Keep one row"
    )
    with pytest.raises(LogError, match=again):
        allocate_users(habit_run, tmp_path / "users.parquet", 20.0, out)
    assert not out.exists()


def restricted(folder: Path, limit: float) -> Selection:
    """Coupons 1, 2, 3 cost 0.4, 1.2, 2.4; level 0 may not be given 1; only the dearest was learned."""
    columns = panel(users=1500)
    low, coupon = np.array(columns["level"]) == 0, np.array(columns["coupon"])
    coupon = np.where(low & (coupon == 1), 2.0, coupon)
    active = np.random.default_rng(5).random(len(coupon)) < 0.2 + 0.2 * coupon
    allowed = [[2.0, 3.0] if none else [1.0, 2.0, 3.0] for none in low]
    columns |= {"coupon": coupon.tolist(), "active": active.astype(int).tolist(), "allowed": allowed}
    path = campaign_file(folder, columns, log='eligible = "allowed"')
    path.write_text(path.read_text().replace("at_most = 1.2", f"at_most = {limit}"))
    data = outlay.prepare(path, folder / "data")
    context = RunContext(data, data.campaign, np.ones(1), ("reward", "coupon_cost"), None, 0, folder)
    dear = preferring_network(np.arange(3), data.schema.sizes, data.number_columns.shape[1], 2)
    return choose(context, [CandidatePolicy("dear", dear, np.zeros(1), np.eye(2)[0])])


def test_the_cheapest_that_each_row_allows_is_reachable(tmp_path: Path) -> None:
    """1 where it is allowed and else 2: 0.67 a decision, less than 2 for all."""
    found = restricted(tmp_path, 0.9)
    assert [kept.policy.name for kept in found.members] == ["always 2", "always the least coupon_cost allowed"]
    assert found.members[1].coordinates[1] == pytest.approx(2 / 3 * 0.4 + 1 / 3 * 1.2, abs=0.05)


def test_what_is_called_the_least_is_that_of_all_policies_that_were_measured(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError) as caught:
        restricted(tmp_path, 0.3)
    message = str(caught.value)
    assert not missing(message, "constant actions", "coupon_cost", "at most 0.3 per decision")
    assert "that was measured is 0.6" in message
    assert not missing(message, "the least coupon_cost allowed")


def offered_by_a_rule(data: Transitions, folder: Path, **how: Any) -> Selection:
    """Coupons 1, 2 and 4 for everybody; a quarter 2 and the rest 4 cost more than the limit of 2.2."""
    context = RunContext(data, data.campaign, np.ones(1), ("reward", "coupon_cost"), None, 0, folder)
    places = [data.actions.tolist().index(value) for value in (1.0, 2.0, 4.0)]
    policies = [
        CandidatePolicy(
            f"always {data.actions[a]:g}",
            preferring_network(np.eye(data.num_actions)[a], data.schema.sizes, 0, 2),
            np.zeros(1),
            np.eye(2)[0],
        )
        for a in places
    ]
    return choose(context, policies, **how)


def test_weights_that_a_rule_found_are_kept_as_they_are(data: Transitions, tmp_path: Path) -> None:
    """Whether they keep the limits or not: that is told by the certificate."""
    found = offered_by_a_rule(data, tmp_path, weights=np.array([0.0, 0.25, 0.75]))
    assert [(kept.policy.name, weight) for kept, weight in zip(found.members, found.weights, strict=True)] == [
        ("always 2", 0.25),
        ("always 4", 0.75),
    ]
    assert found.weights @ [kept.coordinates[1] for kept in found.members] > 2.2


def test_one_policy_alone_is_the_best_that_keeps_the_limits(data: Transitions, tmp_path: Path) -> None:
    found = offered_by_a_rule(data, tmp_path, alone=True)
    (kept,) = found.members
    assert found.weights.tolist() == [1.0]
    assert kept.policy.name == "always 2.5"  # a constant that was not offered is better by more than noise
    assert kept.coordinates[1] < 2.2 < found.measured[2].coordinates[1]


@pytest.mark.parametrize(("lead", "served"), [(0.03, 1), (0.1, 2)])
def test_a_mixture_needs_a_lead_over_the_best_single_policy_that_leaves_its_room(
    lead: float, served: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dearest policy would be best, and needs more room than the limit leaves."""
    noise = np.random.default_rng(0).normal(size=(3, 400))
    pool: Any = [
        SimpleNamespace(objective=aim, objective_influence=psi, coordinates=np.array([aim, cost]), withheld=None)
        for aim, cost, psi in zip((0.3, 0.5, 0.5 + 2 * lead), (0.2, 0.9, 1.0), noise, strict=True)
    ]
    monkeypatch.setattr("outlay.choosing.choose.margins_of", lambda *_: np.full((3, 1), 0.05))
    context: Any = SimpleNamespace(campaign=campaign(0.8), limits=np.ones(1), scale=np.ones(1))
    assert context.campaign.budgets[0].limit == 1.0
    mixture = SolvedMixture(pool, np.array([0.0, 0.5, 0.5]), np.full(1, 0.05))
    found = _one_first(mixture, context)
    assert np.count_nonzero(found.weights) == served
    assert found.weights[1] == (1.0 if served == 1 else 0.5)


def test_a_reason_that_all_policies_share_is_told_once(tmp_path: Path) -> None:
    """Ninety users of one day, whose only feature is a number: three or four rows of an action on select."""
    path = campaign_file(tmp_path, panel(90, 1), categorical="[]", numeric='["spend"]', log='propensity = "p"')
    with pytest.raises(InfeasibleError) as refused:
        chosen(outlay.prepare(path, tmp_path / "data"), tmp_path)
    said = str(refused.value)
    assert said.count(Reason(ReasonKind.HARDLY_ANY, {"needed": 10.0}).words) == 1
    assert "6 policies, of which always" in said
    assert "comes nearest: " in said


@pytest.mark.parametrize("times", [1.0, 100.0])
def test_what_rare_payers_may_cost_takes_no_more_than_half_of_a_limit_as_a_margin(tmp_path: Path, times: float) -> None:
    """One user in a thousand pays a hundred times as much: a bound that allows for another leaves next to nothing."""
    columns = panel(users=4000, days=3)
    dear = np.repeat(np.random.default_rng(5).random(4000) < 1e-3, 3)
    columns["paid"] = (np.array(columns["coupon"]) * columns["active"] * np.where(dear, times, 1.0)).tolist()
    path = campaign_file(tmp_path, columns, log='propensity = "p"')
    path.write_text(path.read_text().replace('"coupon * active"', '"paid"'))
    found = chosen(outlay.prepare(path, tmp_path / "data"), tmp_path)
    assert found.rare == (times == 1)
    assert 0 < found.margin[0] <= 0.6
