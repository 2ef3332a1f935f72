"""How large the next log must be: the error and the cost that are told, against simulated logs and exact values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import outlay
from campaign_files import campaign_file, panel
from known_worlds import WORLDS
from log_size import played, write
from outlay import plan_log
from outlay.choosing.measure import Measure
from outlay.cli.main import app
from outlay.core.errors import OutlayError
from outlay.core.transitions import EVERYONE
from outlay.ops.intervals import quantile
from outlay.ops.tabular import measure
from outlay.simulators.habit import COUPONS, DISCOUNT, model
from telling import missing

USERS, DAYS, PAST = 3_000, 7, 0.3
USUAL = 2  # the coupon that the old policy gives, an index


def drawn(share: float) -> NDArray[np.float64]:
    """`[S, A]` the old policy, of which a share is drawn evenly."""
    policy = np.full((10, len(COUPONS)), share / len(COUPONS))
    policy[:, USUAL] += 1 - share
    return policy


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("past"), played(drawn(PAST), 20_000, DAYS, 1))


def gain(log: dict[str, NDArray[np.float64]], action: int) -> float:
    """Value of always giving `action` less that of the log's policy, by counts of states and actions."""
    state, follows = log["state"].astype(int), log["day"] < DAYS - 1
    after = np.flatnonzero(follows) + USERS  # rows are ordered by day

    def value(rows: NDArray[np.bool_]) -> float:
        moves, reward = np.zeros((10, 10)), np.zeros(10)
        here = state[rows]
        np.add.at(reward, here, log["active"][rows])
        reward /= np.bincount(here, minlength=10)
        going = np.flatnonzero(rows & follows)
        np.add.at(moves, (state[going], state[after[np.searchsorted(np.flatnonzero(follows), going)]]), 1)
        moves /= moves.sum(axis=1, keepdims=True)
        return float(model().start @ np.linalg.solve(np.eye(10) - DISCOUNT * moves, reward) * (1 - DISCOUNT))

    return value(log["choice"] == action) - value(np.ones(len(state), np.bool_))


def test_the_error_that_is_told_is_that_of_simulated_logs(past: Path) -> None:
    """Of a policy that gives a coupon which the log gives in `share`/11 of its rows, over 60 logs; within 20%."""
    share = 0.5
    plan = plan_log(past, users=USERS, days=DAYS, shares=[share])
    logs = [played(drawn(share), USERS, DAYS, 100 + i) for i in range(60)]
    spread = np.std([gain(log, 5) for log in logs], ddof=1)
    rare = share / len(COUPONS)
    # The plan takes every action alike; the policy here gives one of the ten rare ones.
    mixed = np.mean([1 / drawn(share)[0, a] for a in range(len(COUPONS))])
    told = plan.sizes[0].half_width / quantile(0.975) * plan.past.mean * np.sqrt((1 / rare - 1) / (mixed - 1))
    assert told / spread == pytest.approx(1, abs=0.2)


def test_what_drawing_costs_is_near_the_exact_difference(past: Path) -> None:
    cmdp = model().cmdp()
    before = measure(cmdp, drawn(PAST))[0]
    for size in plan_log(past).sizes:
        exact = 1 - measure(cmdp, (1 - size.share) * drawn(PAST) + size.share * drawn(1.0))[0] / before
        assert size.cost is not None
        assert size.cost_error is not None
        assert abs(size.cost - exact) < 3 * size.cost_error
        assert size.cost == pytest.approx(exact, rel=0.2)


def test_more_users_days_and_random_draws_find_smaller_gains(past: Path) -> None:
    small, large = plan_log(past, users=50_000, gain=0.02), plan_log(past, users=200_000, days=14, gain=0.02)
    for before, after in zip(small.sizes, large.sizes, strict=True):
        assert after.half_width == pytest.approx(before.half_width / np.sqrt(8))
        assert after.users_needed is not None
        assert before.users_needed is not None
        assert after.users_needed == pytest.approx(before.users_needed / 2, rel=0.01)
    widths = [size.half_width for size in small.sizes]
    assert widths == sorted(widths, reverse=True)
    needed = small.sizes[3].users_needed
    assert needed is not None
    assert plan_log(past, users=needed).sizes[3].smallest == pytest.approx(0.02, rel=0.01)


def test_too_few_rows_of_an_action_in_a_state_are_told(past: Path) -> None:
    sizes = plan_log(past, users=100).sizes
    assert not any(size.supported for size in sizes)
    found = plan_log(past, users=100, gain=0.9).sizes[0].users_needed
    assert found is not None
    assert plan_log(past, users=found).sizes[0].supported


def test_a_log_in_which_nothing_was_random_has_a_plan_but_no_cost(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, {k: v for k, v in panel(users=300, days=4).items() if k != "p"})
    plan = plan_log(path, gain=0.1)
    assert [size.cost for size in plan.sizes] == [None] * len(plan.sizes)
    assert all(size.users_needed for size in plan.sizes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gain", "2"], "--gain: is 2; must be between 0 and 1"),
        (["--users", "0"], "--users: is 0; must be at least 1"),
        (["--days", "-3"], "--days: is -3; must be at least 1"),
    ],
)
def test_wrong_sizes_are_one_error(past: Path, options: list[str], said: str) -> None:
    answer = CliRunner().invoke(app, ["plan-log", str(past), *options])
    assert isinstance(answer.exception, OutlayError)
    assert said in str(answer.exception)


def test_the_command_prints_a_row_per_share(past: Path) -> None:
    answer = CliRunner().invoke(app, ["plan-log", str(past), "--gain", "0.02"])
    assert answer.exit_code == 0, answer.output
    assert "users for 2%" in answer.output
    assert answer.output.count("%  ") >= 7


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WORLDS["mild"].write(tmp_path_factory.mktemp("rich"), users=3_000, seed=1)


def test_where_states_are_many_errors_are_those_that_another_log_has(rich: Path, tmp_path: Path) -> None:
    """The plan gives the mean error of constant actions in another log; the formula alone gives less than half."""
    data = outlay.prepare(WORLDS["mild"].write(tmp_path, users=6_000, seed=2), tmp_path / "data")
    at = Measure(data, EVERYONE, None)
    old, target = at.old(), f"reward@{at.window}"
    errors = [
        (of.influence[:, of.column(target)] - old.influence[:, old.column(target)]).std() / np.sqrt(6_000)
        for of in at.constants(range(data.num_actions), at.days)
    ]
    plan = plan_log(rich, users=6_000, shares=[1.0])
    told = plan.sizes[0].half_width / quantile(0.975)
    assert told * old.value[old.column(target)] == pytest.approx(np.mean(errors), rel=0.2)
    assert plan.past.wider is not None
    assert plan.past.wider > 2


def test_where_states_are_many_users_may_come_in_clusters(rich: Path, tmp_path: Path) -> None:
    """Clusters of users who have nothing in common leave errors as they are."""
    clustered = tmp_path / "campaign.toml"
    text = rich.read_text().replace('user = "user"', 'user = "user"\ncluster = "user // 3"')
    clustered.write_text(text.replace('"log.parquet"', f'"{rich.parent}/log.parquet"'))
    assert plan_log(clustered).past.wider == pytest.approx(plan_log(rich).past.wider, rel=0.1)


def test_where_states_are_many_and_nothing_was_drawn_sizes_are_the_least(rich: Path, tmp_path: Path) -> None:
    unknown = tmp_path / "campaign.toml"
    text = rich.read_text().replace('propensity = "p"\n', "").replace('"log.parquet"', f'"{rich.parent}/log.parquet"')
    unknown.write_text(text)
    assert plan_log(unknown).past.wider is None
    shown = CliRunner().invoke(app, ["plan-log", str(unknown)])
    assert not missing(shown.output, "wider intervals, and more users")


def test_where_each_user_has_one_row_of_a_state_of_its_own_every_action_is_still_given(tmp_path: Path) -> None:
    columns = {k: v for k, v in panel(users=900, days=1).items() if k not in ("day", "p")}
    columns["active"] = [int(i % 20 == 0) for i in range(900)]  # so rare that what drawing costs has an error above 10%
    path = campaign_file(tmp_path, columns, log="randomised = true", numeric='["spend"]', discount=0.0)
    path.write_text(path.read_text().replace('time = "day"\n', ""))
    shown = CliRunner().invoke(app, ["plan-log", str(path), "--gain", "0.02"])
    assert shown.exit_code == 0, shown.output
    table = shown.output.partition("An action is drawn evenly")[0]
    assert "too few" not in table
    assert "e+" not in table
    assert "wider intervals" not in shown.output
    plan = plan_log(path)
    assert [size.half_width for size in plan.sizes] == pytest.approx([plan.sizes[-1].half_width] * 7, rel=0.01)
