import numpy as np
import pytest

from outlay.learning.mixing.growing import Growing, GrowingRows


def test_an_older_value_stays_as_it_was() -> None:
    one = Growing().appended("a")
    two = one.appended("b")
    assert list(one) == ["a"]
    assert list(two) == ["a", "b"]
    assert two[1] == "b"
    with pytest.raises(IndexError):
        one[1]


def test_two_ways_on_from_one_value_do_not_meet() -> None:
    one = Growing().appended("a")
    left, right = one.appended("b"), one.appended("c")
    again = left.appended("d")
    assert [list(x) for x in (one, left, right, again)] == [["a"], ["a", "b"], ["a", "c"], ["a", "b", "d"]]


def test_rows_are_values_too_across_growth() -> None:
    states = [GrowingRows(np.empty((0, 2)))]
    for i in range(50):
        states.append(states[-1].appended(np.array([i, -i], np.float64)))
    branch = states[10].appended(np.array([99.0, 99.0]))
    for count, state in enumerate(states):
        assert len(state) == count
        np.testing.assert_array_equal(state.array[:, 0], np.arange(count))
    assert branch.array[-1].tolist() == [99.0, 99.0]
    with pytest.raises(ValueError, match="read-only"):
        branch.array[0, 0] = 1.0
