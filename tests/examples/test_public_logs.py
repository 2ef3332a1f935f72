"""The public logs of `examples/`: what a person edits, what `check` says beside plain means, and how the job ends.

The data are no part of this project; logs that are not on this machine are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from public_logs import BY_HAND, HERE, LOGS, campaign_in, difference, effect_of, looked_at, path_of, verdict_of

from outlay.core.campaign import Campaign
from outlay.core.errors import LogError

LARGE = {"voters", "completejourney"}


def counts() -> dict[str, int]:
    """Edits of each row of the table; of files written by hand, more than any."""
    rows = [line.split(" | ") for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines()]
    found = {row[0].strip("| "): row[3] for row in rows if row[0].strip("| ") in LOGS}
    return {name: 99 if cell == BY_HAND else int(cell.split(":")[0]) for name, cell in found.items()}


def here(name: str) -> None:
    if path_of(name) is None:
        pytest.skip(f"no data; python examples/public_logs.py get {name}, or OUTLAY_DATA")


def test_the_table_has_every_log_and_a_campaign_file_for_each_that_is_one() -> None:
    assert len(LOGS) >= 15
    assert counts().keys() == LOGS.keys()
    assert sorted(counts().values())[len(LOGS) // 2] <= 2  # the median of edits
    for name, log in LOGS.items():
        assert (HERE / name / "campaign.toml").exists() == (log.verdict != "init refuses")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in LOGS]
)
def test_init_takes_no_more_edits_than_the_table_says_and_check_agrees_with_plain_means(
    name: str, tmp_path: Path
) -> None:
    here(name)
    if LOGS[name].verdict == "init refuses":
        with pytest.raises(LogError, match="sums over many people"):
            looked_at(name, tmp_path)
        return
    changed, report = looked_at(name, tmp_path)
    assert not report.blocks
    if changed != [BY_HAND]:
        assert len(changed) <= counts()[name]
    if report.once and report.effects:
        value, error = difference(Campaign.load(campaign_in(name, tmp_path)), report)
        assert effect_of(report) == pytest.approx(value, rel=1e-6, abs=1e-3 * error)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_the_whole_job_ends_as_the_table_says(name: str, tmp_path: Path) -> None:
    here(name)
    if LOGS[name].verdict != "init refuses":
        assert verdict_of(name, tmp_path)[0] == LOGS[name].verdict
