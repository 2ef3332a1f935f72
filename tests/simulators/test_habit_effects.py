"""What `outlay check` shows of the habit campaign, next to what the paper measured."""

from statistics import NormalDist

import pytest

from outlay.jobs.check import check
from outlay.jobs.simulate import simulate

PAPER = {
    ("inactive", 1): 0.15,
    ("inactive", 3): 0.54,
    ("inactive", 7): 1.24,
    ("active", 1): 0.11,
    ("active", 3): 0.31,
    ("active", 7): 0.68,
}
USERS = 40_000


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], tuple[float, float]]:
    """Segment and days → effect and its standard error."""
    report = check(simulate("habit", tmp_path_factory.mktemp("held") / "c", users=USERS, held=(1.0, 3.0)))
    assert [finding.key for finding in report.findings] == ["budget"]  # what is held costs more than the limit
    assert report.contrast == (1.0, 3.0)
    z = NormalDist().inv_cdf(0.975)
    return {(e.segment, e.days): (e.effect, (e.high - e.low) / (2 * z)) for e in report.effects}


@pytest.mark.parametrize(("segment", "days"), PAPER)
def test_holding_three_yuan_instead_of_one_wins_what_the_paper_measured(
    shown: dict[tuple[str, int], tuple[float, float]], segment: str, days: int
) -> None:
    """Within 0.03 for the fit, and 2.5 standard errors for the log."""
    effect, error = shown[segment, days]
    assert 0 < error < 0.03
    assert abs(effect - PAPER[segment, days]) < 0.03 + 2.5 * error
