"""True values of policies: of a city against exact ones, of a table exactly, and right where the past matters.

And when they are not told: where the campaign is no longer the one that was simulated.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import outlay
from conftest import Habit
from outlay.comparing import true_values as known
from outlay.comparing.results import CAPTURED
from outlay.comparing.true_values import (
    Acts,
    CityValues,
    Rolled,
    Truth,
    mixed,
    rolled_out,
    simulate,
    true_values,
)
from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.files import MANIFEST
from outlay.core.history import History
from outlay.core.looking_back import LagFields
from outlay.core.schema import Numeric
from outlay.core.transitions import Transitions
from outlay.simulators import city_truth, find
from outlay.simulators.city import CATEGORICAL, NUMERIC, City
from outlay.simulators.city_truth import CityTruth
from outlay.simulators.simulator import Participation, Simulator

PEOPLE = {
    **{name: np.zeros(1, np.int8) for name in CATEGORICAL},
    **{name: np.full(1, 0.5, np.float32) for name in NUMERIC},
}
ACTIONS = "actions = [0.0, 1.0, 2.0, 3.0, 5.0]"
DAYS = (1, 7, 30)

States = NDArray[np.int64]
Codes = NDArray[np.int32]
Numbers = NDArray[np.float32]


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of 400 users, at a discount at which value iteration is quick."""
    return outlay.simulate("city", tmp_path_factory.mktemp("city") / "log", users=400, seed=1, discount=0.6)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "USERS", 10_000)
    monkeypatch.setattr(city_truth, "REFINEMENTS", 3)


def changed(path: Path, folder: Path, *changes: tuple[str, str]) -> tuple[Campaign, Transitions]:
    """The campaign with lines replaced, in its own folder, and its data."""
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    other = path.with_name(f"{folder.name}.toml")
    other.write_text(text)
    outlay.prepare(other, folder / "data")
    return Campaign.load(other), Transitions.open(folder / "data")


def always(action: int) -> Acts:
    def acts(codes: NDArray[np.int32], _numbers: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.full(len(codes), action)

    return acts


@pytest.mark.usefixtures("quick")
def test_values_in_a_city_are_the_exact_ones_under_the_names_of_the_campaign(city: Path, tmp_path: Path) -> None:
    campaign, data = changed(
        city, tmp_path, ('name = "coupon_cost"', 'name = "money"'), ("budgets.coupon_cost", "budgets.money")
    )
    found = true_values(campaign, data)
    assert isinstance(found, CityValues)
    exact = CityTruth(City(discount=0.6)).constants()[[1, 4]]
    truth = found.mixture([always(1), always(4)], np.array([0.25, 0.75]), lags=None, days=(1, 7))
    assert truth is not None
    assert (truth["reward"], truth["money"]) == pytest.approx(tuple(np.array([0.25, 0.75]) @ exact), rel=0.02)
    assert set(truth) == {"reward", "money", "reward@1", "money@1", "reward@7", "money@7", CAPTURED}
    assert 2 * truth["reward@1"] < truth["reward@7"] < 14 * truth["reward@1"]
    lags = LagFields(History(1, ("reward",), ("lags",), 0.0, complete=False), ())
    assert found.mixture([always(0)], np.ones(1), lags=lags, days=(1,)) is None


@pytest.mark.usefixtures("quick")
def test_shares_of_the_optimum_are_those_of_the_policy_on_raw_features(city: Path, tmp_path: Path) -> None:
    """The policy sees encoded features; the same rule on the city's own table has the same value and share."""
    campaign, data = changed(city, tmp_path)
    found = true_values(campaign, data)
    assert isinstance(found, CityValues)
    assert found.curve is not None
    assert (city.parent / "optimum.npz").exists(), "found once"
    habit = data.schema.encode(pa.table(PEOPLE)).numbers[:, 0]
    (edge,) = habit

    def targeted(codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.where(numbers[:, 0] < edge, 2, 1)

    constant, rule, dearest = (
        found.mixture([acts], np.ones(1), lags=None, days=(1,)) for acts in (always(2), targeted, always(4))
    )
    assert constant is not None
    assert rule is not None
    assert dearest is not None
    assert constant[CAPTURED] == pytest.approx(0, abs=0.15)
    assert CAPTURED not in dearest, "at the largest spend there is nothing to win, and its share would be noise"
    raw = found.values(lambda table: np.where(np.asarray(table["habit"]) < 0.5, 2, 1), days=(1,)).value
    assert rule["reward"] == pytest.approx(raw["reward"], abs=1e-9)
    assert rule[CAPTURED] == pytest.approx(found.curve.captured(raw["reward"], raw["coupon_cost"]))
    assert abs(rule[CAPTURED]) > 0.05, "another share than that of a constant"
    old = found.old((1,))
    assert old is not None
    first = np.asarray(data.users["start_row"], np.int64)
    assert old["coupon_cost@1"] == pytest.approx(float(data.outcome[first, 1].mean()), abs=0.12)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "change",
    [
        ('cost = "cost" ', 'cost = "cost * 0.5" '),
        ('reward = "active"', 'reward = "active * 2"'),
        (ACTIONS, f'{ACTIONS}\nstart = "latest"'),
    ],
    ids=["another cost", "another reward", "other starts"],
)
def test_a_campaign_that_is_not_the_city_s_any_more_has_no_known_truth(
    change: tuple[str, str], city: Path, tmp_path: Path
) -> None:
    assert true_values(*changed(city, tmp_path, change)) is None


@pytest.mark.usefixtures("quick")
def test_another_discount_is_another_truth_and_no_share_of_the_optimum(city: Path, tmp_path: Path) -> None:
    found = true_values(*changed(city, tmp_path, ("discount = 0.6", "discount = 0")))
    assert isinstance(found, CityValues)
    truth = found.mixture([always(2)], np.ones(1), lags=None, days=(1,))
    assert truth is not None
    assert truth["reward"] == pytest.approx(truth["reward@1"], rel=0.01), "without a tomorrow the first day is all"
    assert CAPTURED not in truth


@pytest.mark.usefixtures("quick")
def test_without_a_simulated_city_nothing_is_known(city: Path, tmp_path: Path) -> None:
    campaign, data = changed(city, tmp_path)
    elsewhere = campaign.model_copy(update={"path": tmp_path / "campaign.toml"})
    assert true_values(elsewhere, data) is None


def beside(folder: Path, data: Transitions) -> Truth | None:
    return Truth.beside(outlay.Campaign.load(folder / "campaign.toml"), data)


@pytest.fixture
def folder(habit: Habit, tmp_path: Path) -> Path:
    shutil.copytree(habit.folder, tmp_path / "campaign")
    return tmp_path / "campaign"


def test_a_simulated_campaign_has_its_truth_and_its_people_beside_it(habit: Habit, habit_data: Transitions) -> None:
    truth = beside(habit.folder, habit_data)
    assert truth is not None
    assert truth.people is not None
    np.testing.assert_allclose(truth.people.cmdp().transition, truth.model.transition, atol=1e-12)
    assert truth.people.coupons.tolist() == habit_data.actions.tolist()
    codes, numbers = truth.features(np.array([3, 3]))
    assert codes.shape == (2, 2)
    assert numbers.shape == (2, 0)
    assert (codes[0] == truth.codes[3]).all()


def test_only_the_actions_of_the_log_are_told(tmp_path: Path) -> None:
    path = outlay.simulate("habit", tmp_path / "campaign", users=300, held=(1, 3))
    outlay.prepare(path, tmp_path / "data")
    truth = beside(path.parent, Transitions.open(tmp_path / "data"))
    assert truth is not None
    assert truth.people is not None
    assert truth.people.coupons.tolist() == [1, 3]
    assert truth.model.num_actions == 2


def test_people_are_those_of_the_model_or_unknown(folder: Path, habit_data: Transitions) -> None:
    with np.load(folder / "truth.npz") as file:
        arrays = dict(file)
    np.savez(folder / "truth.npz", **{**arrays, "reward": 0.9 * arrays["reward"]})
    changed = beside(folder, habit_data)
    assert changed is not None
    assert changed.people is None
    np.savez(folder / "truth.npz", **arrays)
    assert getattr(beside(folder, habit_data), "people", None) is not None
    (folder / MANIFEST).unlink()
    assert getattr(beside(folder, habit_data), "people", "no truth") is None


def test_without_its_files_there_is_no_truth(folder: Path, habit_data: Transitions) -> None:
    (folder / "states.parquet").unlink()
    assert beside(folder, habit_data) is None


def test_a_mixture_is_worth_the_mean_of_its_members() -> None:
    assert mixed([{"reward": 1.0}, {"reward": 3.0}], np.array([0.25, 0.75])) == {"reward": 2.5}


def lags(days: int) -> LagFields:
    """Every value of so many days, as it is."""
    history = History(days, ("action", "reward", "coupon_cost"), ("lags",), 0.0, complete=False)
    return LagFields(history, tuple(Numeric(name, 0.0, 1.0) for name in history.names[1:]))


@pytest.fixture(params=["habit", "thirty-day"])
def truth(request: pytest.FixtureRequest) -> Truth:
    made = find(request.param)
    assert isinstance(made, Simulator)
    return Truth(
        model=made.model.cmdp(),
        codes=made.codes.T.astype(np.int32),
        numbers=np.zeros((len(made.model.start), 0), np.float32),
        budgets=("coupon_cost",),
        people=made.model,
    )


def welcome_back(codes: Codes, numbers: Numbers) -> States:
    """Coupon 1 for those who were active the day before yesterday and not yesterday, else coupon 9."""
    yesterday, before = numbers[:, 2], numbers[:, 8]
    return np.where((before == 1) & (yesterday == 0), 1, 9)


def with_two_days(people: Participation) -> TabularCMDP:
    """The same people with their last two days in the state: 4·state + 2·active yesterday + active the day before."""
    count, actions = people.active_prob.shape
    transition = np.zeros((count, 2, 2, actions, count, 2, 2))
    for s, yesterday, before, active in np.ndindex(count, 2, 2, 2):
        day = people.active_prob[s] if active else 1 - people.active_prob[s]
        move = people.move_prob[s, active]
        transition[s, yesterday, before, :, people.moved[s, active], active, yesterday] += day * move
        transition[s, yesterday, before, :, people.stayed[s, active], active, yesterday] += day * (1 - move)
    small = people.cmdp()
    return TabularCMDP(
        transition=transition.reshape(4 * count, actions, 4 * count),
        reward=np.repeat(small.reward, 4, axis=0),
        cost=np.repeat(small.cost, 4, axis=0),
        start=np.kron(small.start, [1.0, 0.0, 0.0, 0.0]).astype(np.float64),
        discount=small.discount,
    )


def exact(people: Participation) -> dict[str, float]:
    """What `welcome_back` is worth."""
    model = with_two_days(people)
    none = np.zeros((model.num_states, 0))
    table = Truth(model, none.astype(np.int32), none.astype(np.float32), ("coupon_cost",))
    return table.values(np.tile([9, 1, 9, 9], model.num_states // 4), DAYS)


def off(found: Rolled, wanted: dict[str, float]) -> dict[str, float]:
    """Differences in standard errors; exact targets left out."""
    assert set(found.value) == set(wanted)
    return {
        name: abs(found.value[name] - wanted[name]) / error for name, error in found.std_error.items() if error > 1e-12
    }


def test_a_policy_of_the_state_alone_gets_its_exact_value(truth: Truth) -> None:
    table = np.random.default_rng(3).integers(truth.model.num_actions, size=truth.model.num_states)
    state = {tuple(codes): i for i, codes in enumerate(truth.codes.tolist())}
    found = rolled_out(truth, lambda codes, _: table[[state[tuple(row)] for row in codes.tolist()]], lags(1), DAYS)
    assert found.value == pytest.approx(truth.values(table, DAYS), rel=1e-9)
    assert max(found.std_error.values()) < 1e-12


def test_a_policy_that_looks_at_the_past_gets_the_value_that_a_larger_table_gives_it(truth: Truth) -> None:
    """Outcomes that were drawn apart from the moves would be off by 40 standard errors on habit."""
    assert truth.people is not None
    wanted = exact(truth.people)
    found = rolled_out(truth, welcome_back, lags(7), DAYS)
    assert max(off(found, wanted).values(), default=0) < 4
    assert found.value["reward@1"] == pytest.approx(wanted["reward@1"], rel=1e-9)
    assert all(error < 0.01 * found.value[name] for name, error in found.std_error.items())


def test_people_who_move_otherwise_are_found_out(truth: Truth) -> None:
    """The same table to compare with, but habits form a quarter as fast."""
    assert truth.people is not None
    others = replace(truth, people=replace(truth.people, move_prob=truth.people.move_prob / 4))
    assert max(off(rolled_out(others, welcome_back, lags(7), DAYS), exact(truth.people)).values()) > 6


def test_the_past_is_told_as_the_log_tells_it(truth: Truth) -> None:
    """Yesterday first, with what was observed; absent days are missing."""
    seen: list[Numbers] = []

    def watching(codes: Codes, numbers: Numbers) -> States:
        seen.append(numbers.reshape(len(codes), 3, 3, 2))
        return welcome_back(codes, numbers)

    paths = simulate(truth, watching, lags(3), 5)
    assert truth.people is not None
    missing = [past[0, :, :, 1].tolist() for past in seen]
    assert missing == [[[float(lag > day)] * 3 for lag in (1, 2, 3)] for day in range(5)]
    for place, day in enumerate((3, 2, 1)):
        coupon, active, cost = seen[4][:, place, :, 0].T
        np.testing.assert_allclose(coupon, truth.people.coupons[paths.action[:, day]], rtol=1e-6)
        assert set(active.tolist()) == {0.0, 1.0}
        np.testing.assert_allclose(cost, active * coupon, rtol=1e-6)


def test_policies_meet_the_same_people_with_the_same_luck(truth: Truth) -> None:
    """A dearer coupon brings everybody whom the cheaper one brings."""
    cheap, dear = simulate(truth, always(1), lags(1), 2), simulate(truth, always(9), lags(1), 2)
    assert np.array_equal(cheap.state[:, 0], dear.state[:, 0])
    assert (dear.outcome[:, 0, 0] >= cheap.outcome[:, 0, 0]).all()
    assert (dear.outcome[:, 0, 0] > cheap.outcome[:, 0, 0]).any()
