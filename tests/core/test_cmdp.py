import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.cmdp import ModelError, TabularCMDP
from outlay.core.errors import OutlayError


def arrays() -> dict[str, NDArray[np.float64]]:
    return {
        "transition": np.full((2, 3, 2), 0.5),
        "reward": np.ones((2, 3)),
        "cost": np.ones((2, 3, 1)),
        "start": np.array([0.25, 0.75]),
    }


def test_sizes_and_outcome_put_the_reward_first() -> None:
    cmdp = TabularCMDP(**{**arrays(), "cost": np.full((2, 3, 2), 7.0)}, discount=0.9)
    assert (cmdp.num_states, cmdp.num_actions, cmdp.num_costs) == (2, 3, 2)
    assert cmdp.outcome[1, 2].tolist() == [1.0, 7.0, 7.0]


def test_the_model_keeps_its_own_read_only_copy() -> None:
    given = arrays()
    cmdp = TabularCMDP(**given, discount=0.9)
    given["reward"][0, 0] = 5.0
    assert cmdp.reward[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        cmdp.reward[0, 0] = 5.0


def test_no_cost_at_all_is_a_model_too() -> None:
    assert TabularCMDP(**{**arrays(), "cost": np.ones((2, 3, 0))}, discount=0.0).num_costs == 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("transition", np.full((2, 3, 3), 0.5), r"transition: .*\(2, 3, 3\); .*\[S, A, S\]"),
        ("transition", np.zeros((0, 3, 0)), "a state and an action"),
        ("reward", np.ones((3, 2)), r"reward: .*\(3, 2\); .*\(2, 3\)"),
        ("cost", np.ones((2, 3)), r"cost: .*\(2, 3\); .*\(2, 3, m\)"),
        ("start", np.ones(3) / 3, r"start: .*\(3,\); .*\(2,\)"),
        ("start", np.array([0.5, 0.6]), r"start: .*\b1\.1; .*\b1\b"),
        ("start", np.array([1.5, -0.5]), r"start\[1\]: holds -0\.5; expected probabilities"),
        ("reward", np.array([[1, 1, np.nan], [1, 1, 1]]), r"reward\[0, 2\]: holds nan"),
        ("reward", [["a", "b", "c"]] * 2, r"reward: .*array of numbers"),
    ],
)
def test_a_wrong_array_is_named_with_the_place_the_expected_and_the_found(
    name: str, value: NDArray[np.float64], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        TabularCMDP(**{**arrays(), name: value}, discount=0.9)


def test_a_row_that_does_not_add_up_to_one_is_named() -> None:
    given = arrays()
    given["transition"][1, 2] = [0.5, 0.4]
    with pytest.raises(ModelError, match=r"transition\[1, 2\]: .*0\.9.* 1\b"):
        TabularCMDP(**given, discount=0.9)


@pytest.mark.parametrize("discount", [1.0, -0.1, float("nan")])
def test_a_discount_outside_zero_and_one_is_refused(discount: float) -> None:
    with pytest.raises(ModelError, match=r"discount: .*0 <= discount < 1"):
        TabularCMDP(**arrays(), discount=discount)


def test_the_error_is_an_outlay_error_and_a_value_error() -> None:
    assert issubclass(ModelError, OutlayError)
    assert issubclass(ModelError, ValueError)
