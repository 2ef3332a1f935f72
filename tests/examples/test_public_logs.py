"""The public logs of `examples/`: what a person edits, what `check` says beside plain means, and how the job ends.

The data are no part of this project; logs that are not on this machine are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from public_logs import BY_HAND, HERE, LOGS, campaign_in, difference, effect_of, looked_at, path_of, verdict_of

from outlay.core.campaign import Campaign
from outlay.core.errors import LogError
from outlay.evaluating.log_check import CheckReport

LARGE = {"voters", "completejourney"}


def counts() -> dict[str, int]:
    """Edits of each row of the table; of files written by hand, more than any."""
    rows = [line.split(" | ") for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines()]
    found = {row[0].strip("| "): row[3] for row in rows if row[0].strip("| ") in LOGS}
    return {name: 99 if cell == BY_HAND else int(cell.split(":")[0]) for name, cell in found.items()}


def here(name: str) -> None:
    if path_of(name) is None:
        pytest.skip(f"no data; python examples/public_logs.py get {name}, or OUTLAY_DATA")


class Looked(NamedTuple):
    """What was found of a log.

    Attributes:
        folder: with the draft of `init`, where the log is one file.
        changed: what a person changes of it.
        report: of `check`.
    """

    folder: Path
    changed: list[str]
    report: CheckReport


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Looked]:
    """What is found of a log by its name, once."""

    @cache
    def look(name: str) -> Looked:
        here(name)
        folder = tmp_path_factory.mktemp(name)
        return Looked(folder, *looked_at(name, folder))

    return look


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
    name: str, look: Callable[[str], Looked]
) -> None:
    if LOGS[name].verdict == "init refuses":
        with pytest.raises(LogError, match="sums over many people"):
            look(name)
        return
    folder, changed, report = look(name)
    assert not report.blocks
    if changed != [BY_HAND]:
        assert len(changed) <= counts()[name]
    if report.once and report.effects:
        value, error = difference(Campaign.load(campaign_in(name, folder)), report)
        assert effect_of(report) == pytest.approx(value, rel=1e-6, abs=1e-3 * error)


@pytest.mark.parametrize(
    ("name", "user", "action", "reward"),
    [
        ("couponsretailer", "customer_id", {"coupons_Any", "coupons_OtherFood"}, {"dailyspending"}),
        ("charitable_match", None, {"treatment"}, {"out_gavedum", "out_amountgive"}),
    ],
)
def test_the_roles_of_a_log_whose_file_was_written_by_hand_are_guessed(
    name: str, user: str | None, action: set[str], reward: set[str], look: Callable[[str], Looked]
) -> None:
    log = Campaign.load(look(name).folder / "init.toml").log
    assert log.user == user
    assert log.action in action  # one coupon of six kinds, or any of them: it is asked
    assert log.reward in reward


def test_completejourney_becomes_rows_of_households_and_weeks(look: Callable[[str], Looked]) -> None:
    found = look("completejourney").report
    assert (found.rows, found.users) == (110_438, 2_379)
    counts = {action.called: action.count for action in found.actions}
    assert counts == {"none": 103_849, "Type A": 3_647, "Type B": 2_368, "Type C": 574}
    assert found.state is not None
    assert found.state.ok is False


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_the_whole_job_ends_as_the_table_says(name: str, tmp_path: Path) -> None:
    here(name)
    if LOGS[name].verdict != "init refuses":
        assert verdict_of(name, tmp_path)[0] == LOGS[name].verdict
