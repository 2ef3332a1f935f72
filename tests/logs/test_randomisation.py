"""Measures of dependence: nothing where there is none, 1 for a function, and honest p-values."""

from __future__ import annotations

import numpy as np
import pytest

from outlay.logs.randomisation import correlation_ratio, cramers_v


def test_v_is_one_for_a_function_and_nought_for_proportional_rows() -> None:
    assert cramers_v(np.diag([50.0, 60.0, 70.0]))[0] == pytest.approx(1, abs=0.02)
    strength, p_value = cramers_v(np.outer([10.0, 20.0, 30.0], [4.0, 5.0]))
    assert strength == 0
    assert p_value == pytest.approx(1)


def test_chi_square_of_a_table_worked_by_hand() -> None:
    """[[30, 20], [20, 30]]: every cell is 5 off its expected 25, χ² = 4, one degree of freedom, p = 0.0455."""
    strength, p_value = cramers_v(np.array([[30.0, 20.0], [20.0, 30.0]]))
    assert p_value == pytest.approx(0.0455, abs=1e-4)
    assert strength == pytest.approx(np.sqrt((0.04 - 1 / 99) / (2 - 1 / 99 - 1)))


def test_rare_values_do_not_make_a_dependence() -> None:
    """2,000 values seen once each: put together, they say nothing."""
    rng = np.random.default_rng(0)
    table = np.eye(3)[rng.integers(0, 3, 2000)]
    assert cramers_v(table) == (0.0, 1.0)


def test_p_values_are_uniform_where_there_is_no_dependence() -> None:
    rng = np.random.default_rng(1)
    v, f = [], []
    for _ in range(400):
        action, value, number = rng.integers(0, 3, 500), rng.integers(0, 4, 500), rng.normal(size=500)
        table = np.zeros((4, 3))
        np.add.at(table, (value, action), 1)
        v.append(cramers_v(table)[1])
        groups = np.array(
            [[np.sum(action == a), number[action == a].mean(), number[action == a].var()] for a in range(3)]
        )
        f.append(correlation_ratio(groups)[1])
    assert np.mean(np.array(v) < 0.05) == pytest.approx(0.05, abs=0.035)
    assert np.mean(np.array(f) < 0.05) == pytest.approx(0.05, abs=0.035)


def test_the_correlation_ratio_is_one_where_the_groups_do_not_overlap() -> None:
    assert correlation_ratio(np.array([[50, 0.0, 1e-9], [50, 1.0, 1e-9]]))[0] == pytest.approx(1, abs=1e-4)
    assert correlation_ratio(np.array([[50, 2.0, 1.0], [50, 2.0, 1.0]]))[0] == 0
    assert correlation_ratio(np.empty((0, 3))) == (0.0, 1.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [1e-100, 1.0, 1e200])
def test_the_correlation_ratio_does_not_depend_on_the_unit(unit: float) -> None:
    groups = np.array([[50, 0.0, 0.01], [60, 0.1, 0.01], [40, 0.3, 0.02]])
    large = groups * [1, unit, 1]
    large[:, 2] = (np.sqrt(groups[:, 2]) * min(unit, 1e150)) ** 2
    if unit <= 1:
        assert correlation_ratio(large) == pytest.approx(correlation_ratio(groups), rel=1e-6)
    else:  # the spread within groups is too small to matter beside the one between
        assert correlation_ratio(large)[0] == pytest.approx(1, abs=0.02)
