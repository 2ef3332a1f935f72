import numpy as np
import pytest

from outlay.ops.intervals import interval, quantile, ratio, std_error


def test_the_standard_error_of_a_mean_is_the_textbook_one() -> None:
    """Values 1, 2, 6: mean 3, ψ = −2, −1, 3, variance 14 / 2 = 7, se = √(7/3)."""
    assert std_error(np.array([-2.0, -1.0, 3.0])) == pytest.approx(np.sqrt(7 / 3))
    assert np.isnan(std_error(np.zeros((1, 2)))).all()


def test_intervals_use_both_tails() -> None:
    assert np.stack(interval(1.0, 2.0, 0.95)) == pytest.approx([1 - 3.92, 1 + 3.92], abs=1e-3)


@pytest.mark.parametrize("probability", [0.0, 1.0, float("nan"), 1.2])
def test_a_probability_outside_the_open_interval_is_an_error(probability: float) -> None:
    with pytest.raises(ValueError, match="strictly between"):
        quantile(probability)


def test_the_ratio_interval_covers_the_true_ratio() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        below = rng.exponential(2, size=300)
        above = 3 * below + rng.normal(size=300)
        value, psi = ratio(above.mean(), above - above.mean(), below.mean(), below - below.mean())
        hits += bool(abs(value - 3) <= 1.96 * std_error(psi))
    assert hits / 1000 == pytest.approx(0.95, abs=0.02)


def test_a_ratio_to_nothing_is_not_a_number() -> None:
    value, psi = ratio(1.0, np.zeros(3), 0.0, np.zeros(3))
    assert np.isnan(value)
    assert np.isnan(psi).all()
