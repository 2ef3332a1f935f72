"""True values beside estimates: a city's policies against exact values, and campaigns that are no longer the city's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import outlay
from outlay.comparing import true_values as known
from outlay.comparing.results import CAPTURED
from outlay.comparing.true_values import Acts, CityValues, true_values
from outlay.core.campaign import Campaign
from outlay.core.history import History
from outlay.core.looking_back import LagFields
from outlay.core.transitions import Transitions
from outlay.simulators import city_truth
from outlay.simulators.city import CATEGORICAL, NUMERIC, City
from outlay.simulators.city_truth import CityTruth

PEOPLE = {
    **{name: np.zeros(1, np.int8) for name in CATEGORICAL},
    **{name: np.full(1, 0.5, np.float32) for name in NUMERIC},
}
ACTIONS = "actions = [0.0, 1.0, 2.0, 3.0, 5.0]"


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of 400 users, at a discount at which value iteration is quick."""
    return outlay.simulate("city", tmp_path_factory.mktemp("city") / "log", users=400, seed=1, discount=0.6)


@pytest.fixture(autouse=True)
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


def test_values_in_a_city_are_the_exact_ones_under_the_names_of_the_campaign(city: Path, tmp_path: Path) -> None:
    campaign, data = changed(city, tmp_path, ('name = "coupon_cost"', 'name = "money"'))
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


def test_another_discount_is_another_truth_and_no_share_of_the_optimum(city: Path, tmp_path: Path) -> None:
    found = true_values(*changed(city, tmp_path, ("discount = 0.6", "discount = 0")))
    assert isinstance(found, CityValues)
    truth = found.mixture([always(2)], np.ones(1), lags=None, days=(1,))
    assert truth is not None
    assert truth["reward"] == pytest.approx(truth["reward@1"], rel=0.01), "without a tomorrow the first day is all"
    assert CAPTURED not in truth


def test_without_a_simulated_city_nothing_is_known(city: Path, tmp_path: Path) -> None:
    campaign, data = changed(city, tmp_path)
    elsewhere = campaign.model_copy(update={"path": tmp_path / "campaign.toml"})
    assert true_values(elsewhere, data) is None
