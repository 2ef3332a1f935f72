"""The public logs of `examples/`: what a person edits, what `check` says beside plain means, and how the job ends.

The data are no part of this project; logs that are not on this machine are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pytest
from public_logs import BY_HAND, HERE, LOGS, campaign_in, difference, effect_of, looked_at, path_of, verdict_of

from outlay.core.campaign import Campaign
from outlay.core.errors import LogError
from outlay.core.transitions import Transitions
from outlay.estimators.observed import Reproduction
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.log_check import CheckReport
from outlay.evaluating.verdict import VerdictKind
from outlay.jobs.check import check
from outlay.jobs.evaluate import evaluate
from outlay.jobs.report import report
from outlay.jobs.train import train

LARGE = {"voters", "completejourney"}
# One fold instead of four, few steps and one learner: these logs end as they do by what `check` finds, or for want of
# events.
SHORT = {"folds": 1, "min_steps": 200, "candidate_every": 50, "epochs": 1.0}
SHORTENED = ("charitable_match", "couponsretailer", "completejourney")


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


@dataclass(frozen=True)
class Job:
    """What a whole run left behind."""

    data: Transitions
    evaluation: Evaluation
    page: str


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Job]:
    """The whole job of a log by its name, shortened, once: train → evaluate → report."""

    @cache
    def job(name: str) -> Job:
        here(name)
        folder = tmp_path_factory.mktemp(name)
        path = campaign_in(name, folder)
        text = path.read_text(encoding="utf-8")
        for key in SHORT:
            text = re.sub(rf"^{key} = .*\n", "", text, flags=re.MULTILINE)
        section = "" if "\n[train]\n" in text else "\n[train]"
        settings = "\n".join(f"{key} = {value}" for key, value in SHORT.items())
        path.write_text(f"{text}{section}\n{settings}\n", encoding="utf-8")
        run = train(path, folder / "run", oracle="trees")
        evaluation = evaluate(run)
        return Job(run.data(), evaluation, report(run).read_text(encoding="utf-8"))

    return job


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
@pytest.mark.parametrize("name", [name for name in LOGS if name not in SHORTENED])
def test_the_whole_job_ends_as_the_table_says(name: str, tmp_path: Path) -> None:
    here(name)
    if LOGS[name].verdict != "init refuses":
        assert verdict_of(name, tmp_path)[0] == LOGS[name].verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORTENED)
def test_a_shortened_job_ends_as_the_table_says_too(name: str, job: Callable[[str], Job]) -> None:
    assert job(name).evaluation.verdict.kind == LOGS[name].verdict


@pytest.mark.parametrize("name", ["charitable_match", "couponsretailer"])
def test_the_campaign_file_is_valid_and_its_source_lies_beside_the_checkout(name: str) -> None:
    campaign = Campaign.load(HERE / name / "campaign.toml")
    assert Path(str(campaign.source)).resolve().parent == (HERE.parents[1] / "shared" / "data" / name).resolve()


def assert_honest(job: Job) -> None:
    """No gain is claimed, the certificate says what it rests on, and the page carries the verdict."""
    certificate = job.evaluation.certificate
    assert job.evaluation.verdict.kind is not VerdictKind.SERVE
    assert (certificate.gain is None) == (certificate.withheld is not None)
    assert certificate.gain_bound is None or certificate.gain_bound < 0  # too few events give no bound
    assert certificate.users > 0
    assert certificate.users == len(job.data.users_of(2))
    line = certificate.budgets[0]
    assert line.kept == (line.bound is not None and line.bound <= line.limit)  # too few events give no bound
    assert certificate.certified <= line.kept  # and not where the figure has a star
    assert job.evaluation.diagnostics.detail(Reproduction).ok
    assert job.evaluation.verdict.words.split(":")[0][:40] in job.page


def test_charitable_match_brings_the_published_means_of_every_arm(job: Callable[[str], Job]) -> None:
    data = job("charitable_match").data
    means = [data.outcome[data.action == a].mean(axis=0, dtype=np.float64) for a in range(4)]
    assert data.actions.tolist() == [0, 1, 2, 3]
    assert np.bincount(data.action).tolist() == [16_687, 11_133, 11_134, 11_127]
    assert [round(float(m[0]), 2) for m in means] == [0.81, 0.94, 1.03, 0.93]
    assert [round(float(m[1]), 2) for m in means] == [0.00, 0.94, 2.05, 2.80]


def test_charitable_match_looks_randomised_and_a_higher_match_brings_no_more(look: Callable[[str], Looked]) -> None:
    found = look("charitable_match").report
    verdict = found.randomisation
    assert verdict is not None
    assert verdict.stated
    assert verdict.looks_randomised
    [effect] = [e for e in found.effects if e.segment == "all"]
    assert effect.effect == pytest.approx(0.9327 - 0.9367, abs=1e-3)
    assert effect.low < 0 < effect.high


def test_charitable_match_is_a_one_step_problem_in_which_no_gain_can_be_claimed(
    job: Callable[[str], Job],
) -> None:
    charitable = job("charitable_match")
    data = charitable.data
    assert np.all(data.next_row[:] == -1)
    assert data.campaign.log.once
    old = [e for e in charitable.evaluation.beside if (e.policy, e.estimator) == ("old", "observed")]
    rows = data.rows_of(2)
    assert {e.target: e.value for e in old}["reward@1"] == pytest.approx(data.outcome[rows, 0].mean(dtype=np.float64))
    assert_honest(charitable)


def test_couponsretailer_counts_the_forced_rows_as_no_decisions(
    job: Callable[[str], Job], look: Callable[[str], Looked]
) -> None:
    data = job("couponsretailer").data
    forced = np.asarray(data.forced[:])
    assert (len(data), len(data.users), int(forced.sum())) == (50_624, 1_582, 34_646)
    assert look("couponsretailer").report.actions[1].choices == int(data.action[~forced].sum()) == 3_102
    assert not data.action[forced].any(), "a coupon that is held is no action"
    assert not data.steady


def test_couponsretailer_is_not_taken_for_an_experiment_and_its_state_does_not_say_enough(
    job: Callable[[str], Job], look: Callable[[str], Looked]
) -> None:
    found, coupons = look("couponsretailer").report, job("couponsretailer")
    verdict = found.randomisation
    assert verdict is not None
    assert not verdict.looks_randomised
    assert "period" in verdict.verdict
    assert_honest(coupons)
    assert found.state is not None
    assert found.state.ok is False
    every = found.tried[0].columns
    whole = [(tried.days, tried.ok) for tried in found.tried if tried.columns == every]
    assert whole == [(3, False), (7, False), (14, False), (28, True)]
    assert not coupons.evaluation.certificate.certified
    assert "[log.history]" in coupons.evaluation.verdict.words


def test_a_coupon_that_is_held_taken_for_an_action_is_caught_by_check(tmp_path: Path) -> None:
    here("couponsretailer")
    path = campaign_in("couponsretailer", tmp_path)
    some = tmp_path / "some.csv"  # a tenth of the customers
    where = f"from '{path_of('couponsretailer')}' where customer_id % 10 = 0"
    duckdb.execute(f"copy ({where}) to '{some}' (header)")
    text = re.sub(r'^source = ".*"', f'source = "{some}"', path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r'^action = """.*?"""', 'action = "coupons_Any"', text, flags=re.MULTILINE | re.DOTALL)
    path.write_text(re.sub(r"^forced = .*\n", "", text, flags=re.MULTILINE), encoding="utf-8")
    verdict = check(path).randomisation
    assert verdict is not None
    assert not verdict.looks_randomised
    assert verdict.dependences[0].name == "the action before"
    assert verdict.dependences[0].strength > 0.5
