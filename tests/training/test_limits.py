"""Limits that no days of the log can keep together are told before anything is trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

import outlay
from campaign_files import campaign_file, panel
from outlay.core.errors import InfeasibleError
from outlay.learning.tabular import countable
from outlay.training.limits import check_together, proof
from telling import missing

LIMITS = """
[[budget]]
name = "worth"
cost = "coupon"
at_most = {worth}
per = "{per}"
[[budget]]
name = "reached"
cost = "case when coupon >= 2 then 1 else 0 end"
at_least = {reached}
per = "{per}"
"""


def campaign(folder: Path, worth: float, reached: float = 0.6, per: str = "decision") -> Path:
    """Coupons 1, 2, 3 for 300 users; 2 for six in ten and 1 for the rest are worth 1.6. No state is met twice."""
    tail = LIMITS.format(worth=worth, reached=reached, per=per)
    return campaign_file(
        folder,
        panel(users=300),
        categorical="[]",
        numeric='["spend"]',
        log='propensity = "p"',
        campaign="horizon_days = 4",
        tail=tail,
    )


@pytest.mark.parametrize("method", ["frontier", "aim-greedy"])
def test_limits_that_are_kept_one_by_one_and_not_together_are_refused_with_the_proof(
    method: str, tmp_path: Path
) -> None:
    with pytest.raises(InfeasibleError) as caught:
        outlay.train(campaign(tmp_path, 1.59), tmp_path / "run", method=method)
    message = str(caught.value)
    assert not missing(
        message, "budget worth", "at most 1.59 per decision", "budget reached", "at least 0.6 per decision"
    )
    assert not missing(message, "worth − reached is 1 or more", "0.99 or less")
    assert not missing(message, "raise worth to 1.6", "lower reached to 0.59", "add actions")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("worth", "reached", "per", "refused"),
    [
        (1.6, 0.6, "decision", False),  # met exactly, but for what single precision makes of it
        (1.61, 0.6, "decision", False),
        (1.0, 0.0, "decision", False),
        (0.99, 0.0, "decision", True),  # one limit by itself
        (6.4, 2.4, "user", False),  # the same over four days
        (6.3, 2.4, "user", True),
        (3.0, 1.01, "decision", True),
    ],
)
def test_what_can_be_kept_is_not_refused(worth: float, reached: float, per: str, refused: bool, tmp_path: Path) -> None:
    data = outlay.prepare(campaign(tmp_path, worth, reached, per), tmp_path / "data")
    assert countable(data) is None
    if not refused:
        check_together(data, data.campaign)
        return
    with pytest.raises(
        InfeasibleError, match=r"cannot be kept together|no policy keeps this limit: the (least|most)\b"
    ):
        check_together(data, data.campaign)


def test_there_is_a_proof_where_no_mean_of_the_rows_keeps_the_limits() -> None:
    rng = np.random.default_rng(4)
    proved = 0
    for _ in range(60):
        count = int(rng.integers(1, 4))
        rows = rng.normal(0.5, 1, (int(rng.integers(1, 8)), count)).round(1)
        possible = linprog(
            np.zeros(len(rows)), A_ub=rows.T, b_ub=np.zeros(count), A_eq=np.ones((1, len(rows))), b_eq=[1]
        )
        found = proof(rows)
        assert (found is None) == (possible.status == 0)
        if found is not None:
            proved += 1
            assert (found.multiplier >= 0).all()
            assert (rows @ found.multiplier).min() == pytest.approx(found.least)
    assert 10 < proved < 50
