import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from myopic import one_day_city
from outlay.cli.main import app
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, OutlayError
from outlay.jobs.simulate import simulate
from outlay.simulators import city_truth
from outlay.simulators.city import COUPONS, F_GRID, H_GRID, City, GridMoves
from outlay.simulators.city_people import LEAST_CHANCE, People, Policy, PolicyValues, log_of
from outlay.simulators.city_truth import Choose, CityCurve, CityTruth
from outlay.simulators.environment import CityEnvironment, environment

PRICE = 0.1
SHORT = City(discount=0.6)  # a discount at which value iteration is quick


@pytest.fixture(scope="module")
def truth() -> CityTruth:
    return CityTruth(SHORT)


@pytest.fixture(scope="module")
def log() -> dict[str, np.ndarray]:
    """All chunks of a log in one."""
    return logged(City())


def logged(city: City, users: int = 4000) -> dict[str, np.ndarray]:
    chunks = list(log_of(city, users, 7, seed=5))
    return {name: np.concatenate([np.asarray(chunk[name]) for chunk in chunks]) for name in chunks[0]}


def constant(action: int) -> Choose:
    return lambda p: np.full(p.shape[1:], action, np.int8)


def always(action: int, shares: bool = False) -> Policy:
    """The same coupon for everybody, as an index or as probabilities."""
    one = np.eye(len(COUPONS))[action] if shares else action
    return lambda table: np.full((table.num_rows, *np.shape(one)), one)


def test_moves_keep_the_mean_and_stay_on_the_grid() -> None:
    grid = np.linspace(0, 1, 7)
    target = 0.7 * grid + 0.2
    moves = GridMoves(grid, target).matrix()
    np.testing.assert_allclose(moves.sum(axis=1), 1)
    np.testing.assert_allclose(moves @ grid, target)
    assert (moves >= 0).all()
    drawn = GridMoves(grid, target).draw(np.full(20_000, 3), np.random.default_rng(0).random(20_000))
    np.testing.assert_allclose(np.bincount(drawn, minlength=7) / 20_000, moves[3], atol=0.015)


def test_the_start_is_a_distribution_and_shares_are_those_of_drawn_users(truth: CityTruth) -> None:
    assert truth.start.sum() == pytest.approx(1)
    values = PolicyValues(truth, users=100)
    people = People.draw(SHORT, 200_000, np.random.default_rng(3))
    drawn = np.bincount(values._state(people)[0], minlength=truth.shares.size) / 200_000
    np.testing.assert_allclose(drawn, truth.shares.ravel(), atol=5 * np.sqrt(0.03 / 200_000))
    assert 0.2 < truth.shares[1].sum() < 0.4


@pytest.mark.parametrize("action", range(len(COUPONS)))
def test_a_step_back_is_the_model_written_out(truth: CityTruth, action: int) -> None:
    """Against sums over all next states of a handful of states."""
    rng = np.random.default_rng(action)
    values = rng.random((1, *truth.start.shape))
    active, idle = list(truth.after(values))[action]
    for _ in range(20):
        t, h, f, g = (int(rng.integers(size)) for size in truth.start.shape)
        tired = F_GRID[f] + 0.2 * (COUPONS[action] / 5 - F_GRID[f])
        for was, end in ((True, 0.3 if truth.seekers[t] and action > 0 else 1.0), (False, 0.0)):
            habit = H_GRID[h] + 0.15 * (end - H_GRID[h])
            near_h = np.maximum(0, 1 - np.abs(H_GRID - habit) / H_GRID[1])
            near_f = np.maximum(0, 1 - np.abs(F_GRID - tired) / F_GRID[1])
            gap = 0 if was else min(g + 1, truth.start.shape[3] - 1)
            expected = near_h @ values[0, t, :, :, gap] @ near_f
            assert (active[0, t, h, f] if was else idle[0, t, h, f, g]) == pytest.approx(expected)


def test_simulated_values_are_the_exact_ones(truth: CityTruth) -> None:
    values = PolicyValues(truth, users=4000)
    for action in (0, 2, 4):
        exact = truth.value(constant(action))
        found = values(always(action))
        for name, true in (("reward", exact.reward), ("coupon_cost", exact.cost)):
            assert abs(found.value[name] - true) <= 4 * found.std_error[name] + 1e-3 * max(true, 0.1)
    low, high = (values(always(a, shares=True)).value["reward"] for a in (1, 3))
    mixed = values(
        lambda table: np.full(table.num_rows, 1), lambda table: np.full(table.num_rows, 3), weights=(0.25, 0.75)
    )
    assert mixed.value["reward"] == pytest.approx(0.25 * low + 0.75 * high)


def test_policies_share_their_luck(truth: CityTruth) -> None:
    """A difference of policies that differ for few is far sharper than either."""
    values = PolicyValues(truth, users=2000)
    few = lambda table: np.where(table["age"].to_numpy() > 2, 3, 2)  # noqa: E731
    twice = [values(few).value for _ in range(2)]
    assert twice[0] == twice[1]
    base = values(lambda table: np.full(table.num_rows, 2))
    by_user = (
        values._by_user(few, (7,))["reward@7"] - values._by_user(lambda t: np.full(t.num_rows, 2), (7,))["reward@7"]
    )
    assert by_user.std() / np.sqrt(2000) < 0.3 * base.std_error["reward@7"]


@pytest.mark.slow
def test_no_policy_is_above_the_bound(truth: CityTruth) -> None:
    best = truth.best_response(PRICE)
    assert best.reward - PRICE * best.cost <= best.bound + 1e-12
    assert best.reward - PRICE * best.cost == pytest.approx(best.bound, abs=1e-4)
    again = truth.value(lambda _: best.actions)
    assert (again.reward, again.cost) == pytest.approx((best.reward, best.cost), abs=1e-4)
    tried = [truth.value(constant(a)) for a in range(5)] + [one_day_city(truth, price) for price in (0.05, PRICE, 0.2)]
    for policy in tried:
        assert policy.reward - PRICE * policy.cost < best.bound
    old = PolicyValues(truth, users=3000)(None)
    assert old.value["reward"] - PRICE * old.value["coupon_cost"] < best.bound


def test_with_no_tomorrow_the_one_day_rule_is_best() -> None:
    truth = CityTruth(City(discount=0.0))
    best, rule = truth.best_response(PRICE), one_day_city(truth, PRICE)
    assert (best.reward, best.cost) == pytest.approx((rule.reward, rule.cost))


def test_a_rhythm_is_simulated_as_it_is_solved() -> None:
    city = City(rhythm=True, late=True, discount=0.5)
    truth = CityTruth(city)
    exact = truth.value(constant(3))
    found = PolicyValues(truth, users=4000)(lambda table: np.full(table.num_rows, 3))
    assert abs(found.value["reward"] - exact.reward) < 4 * found.std_error["reward"] + 1e-3
    first, plain = (CityTruth(City(rhythm=rhythm, discount=0.0)).value(constant(3)) for rhythm in (True, False))
    assert first.reward > plain.reward + 0.01  # the calendar begins on a good day
    best = truth.best_response(PRICE)
    assert exact.reward - PRICE * exact.cost < best.bound


def test_the_curve_is_between_constants_and_bound_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(city_truth, "REFINEMENTS", 3)
    simulate("city", tmp_path / "c", users=5, discount=0.3)
    curve = city_truth.optimum(tmp_path / "c")
    assert (np.diff(curve.points[:, 1]) > 0).all()
    for spend in np.linspace(0.2, 2.5, 6):
        assert curve.best_constant(spend) <= curve.reached(spend) <= curve.most(spend)
    spend = 0.7
    assert curve.captured(curve.reached(spend), spend) == pytest.approx(1)
    assert curve.captured(curve.best_constant(spend), spend) == pytest.approx(0)
    monkeypatch.delattr(CityTruth, "curve")
    for kept, found in zip(city_truth.optimum(tmp_path / "c"), curve, strict=True):
        np.testing.assert_array_equal(kept, found)
    assert isinstance(curve, CityCurve)
    with pytest.raises(FolderError, match="has no city"):
        city_truth.optimum(tmp_path)


def test_the_log_is_drawn_as_it_says(log: dict[str, np.ndarray]) -> None:
    assert len(log["user"]) == 28_000
    assert log["propensity"].min() >= LEAST_CHANCE
    for action, coupon in enumerate(COUPONS):
        weight = (log["coupon"] == coupon) / log["propensity"]
        assert weight.mean() == pytest.approx(1, abs=4 * weight.std() / np.sqrt(len(weight))), action
    np.testing.assert_array_equal(log["cost"], log["coupon"] * log["active"])
    rows = np.stack([log[name] for name in ("habit", "engagement", "price_taste", "recent")], axis=1)
    assert len(np.unique(rows, axis=0)) == len(rows)  # no state twice
    again = logged(City())
    np.testing.assert_array_equal(again["active"], log["active"])


def test_slow_habits_move_less(log: dict[str, np.ndarray]) -> None:
    def moved(found: dict[str, np.ndarray]) -> float:
        days = found["habit"].reshape(-1, 7)
        return float(np.abs(days[:, -1] - days[:, 0]).mean())

    assert moved(logged(City(slow=True))) < 0.8 * moved(log)
    assert City(slow=True).gamma == 0.95


def test_money_is_heavy_tailed_and_has_the_mean_of_the_truth() -> None:
    found = logged(City(money=True), 20_000)
    spent = found["spend"][found["active"] == 1]
    assert (found["spend"][found["active"] == 0] == 0).all()
    assert spent.mean() > 1.5 * np.median(spent)
    assert spent.mean() == pytest.approx(np.mean([0.5, 1.0, 2.0]), rel=0.05)
    partner = found["partner"][found["active"] == 1] % 3
    assert spent[partner == 2].mean() > 3 * spent[partner == 0].mean()


def test_hidden_features_are_not_in_the_log(log: dict[str, np.ndarray], tmp_path: Path) -> None:
    found = logged(City(hidden=True))
    assert set(log) - set(found) == {"engagement", "fatigue"}
    path = simulate("city", tmp_path / "c", users=20, hidden=True)
    assert set(Campaign.load(path).log.features.names) <= set(pq.read_table(path.parent / "log.parquet").column_names)


def test_a_rhythm_shows_in_the_week(log: dict[str, np.ndarray]) -> None:
    def spread(found: dict[str, np.ndarray]) -> float:
        return float(np.ptp([found["active"][found["weekday"] == day].mean() for day in range(7)]))

    assert spread(logged(City(rhythm=True))) > 0.06 > spread(log)


def test_sparse_drops_the_days_without_anything_and_late_users_come_late(log: dict[str, np.ndarray]) -> None:
    sparse = logged(City(sparse=True))
    nothing = (sparse["coupon"] == 0) & (sparse["active"] == 0)
    assert (sparse["day"][nothing] == 0).all()
    assert len(sparse["user"]) < 0.95 * len(log["user"])
    late = logged(City(late=True))
    first = late["day"][np.unique(late["user"], return_index=True)[1]]
    assert (first > 0).mean() == pytest.approx(0.3, abs=0.03)
    assert len(first) == 4000


def test_the_command_writes_a_campaign_that_prepares(tmp_path: Path) -> None:
    out = tmp_path / "c"
    command = [
        "simulate",
        "city",
        "--out",
        str(out),
        "--users",
        "50",
        "--slow",
        "--sparse",
        "--discount",
        "0.8",
        "--json",
    ]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["features"] == 20
    campaign = Campaign.load(out / "campaign.toml")
    assert campaign.meta.discount == 0.8
    assert campaign.log.complete
    assert City.read(out) == City(slow=True, sparse=True, discount=0.8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"discount": 1.0}, "discount: is 1"),
        ({"held": (1.0, 3.0)}, r"held: city .*no such option"),
        ({"fields": 3}, r"fields: city .*no such option.*wide"),
        ({"campaign": "habit", "slow": True}, r"slow: habit .*no such option.*wide and city"),
    ],
)
def test_options_that_do_not_fit_are_told(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match=message):
        simulate(**{"campaign": "city", "out": tmp_path / "c", "users": 10, **options})  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()


def test_an_episode_is_one_user_of_the_city() -> None:
    env = environment("city", days=3, money=True)
    assert isinstance(env, CityEnvironment)
    first, _ = env.reset(seed=1)
    assert first.shape == (20,)
    total, over, days = 0.0, False, 0
    while not over:
        _, reward, _, over, info = env.step(np.int64(4))
        assert info["cost"][0] == (5.0 if reward > 0 else 0.0)
        total, days = total + reward, days + 1
    assert days == 3
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)
