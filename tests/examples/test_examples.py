"""The campaign files on real data, from the log to the verdict; skipped where the data are not beside the checkout."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from outlay.core.campaign import Campaign
from outlay.core.transitions import Transitions
from outlay.estimators.observed import Reproduction
from outlay.evaluating.evaluation import Evaluation
from outlay.evaluating.log_check import CheckReport
from outlay.evaluating.verdict import VerdictKind
from outlay.jobs.check import check
from outlay.jobs.evaluate import evaluate
from outlay.jobs.report import report
from outlay.jobs.train import train

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("OUTLAY_DATA", ROOT.parent / "shared" / "data"))

Copy = Callable[..., Path]


@dataclass(frozen=True)
class Job:
    """What a whole run left behind."""

    checked: CheckReport
    data: Transitions
    evaluation: Evaluation
    page: str


def campaign_copy(name: str, folder: Path, **train_settings: object) -> Path:
    """The example's file with its source made absolute and other settings under [train]."""
    text = (ROOT / "examples" / name / "campaign.toml").read_text(encoding="utf-8")
    source = next((DATA / name).glob("*.csv.gz"), None)
    if source is None:
        pytest.skip(f"no data in {DATA / name}; set OUTLAY_DATA to the folder that holds {name}/")
    settings = "\n".join(f"{key} = {value}" for key, value in train_settings.items())
    for key in train_settings:
        text = re.sub(rf"^{key} = .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r'^source = ".*"', f'source = "{source}"', text, flags=re.MULTILINE)
    path = folder / "campaign.toml"
    path.write_text(f"{text}\n{settings}\n", encoding="utf-8")
    return path


def whole_job(name: str, folder: Path) -> Job:
    """Check → prepare and train (few steps) → evaluate → report."""
    path = campaign_copy(name, folder, min_steps=600, candidate_every=50, epochs=1.0, folds=1)
    checked = check(path)
    run = train(path, folder / "run")
    evaluation = evaluate(run)
    return Job(checked, run.data(), evaluation, report(run).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def charitable(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return whole_job("charitable_match", tmp_path_factory.mktemp("charitable"))


@pytest.fixture(scope="module")
def coupons(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return whole_job("couponsretailer", tmp_path_factory.mktemp("coupons"))


@pytest.mark.parametrize("name", ["charitable_match", "couponsretailer"])
def test_the_campaign_file_is_valid_and_its_source_lies_beside_the_checkout(name: str) -> None:
    campaign = Campaign.load(ROOT / "examples" / name / "campaign.toml")
    assert Path(str(campaign.source)).resolve().parent == (ROOT.parent / "shared" / "data" / name).resolve()


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


def test_charitable_match_brings_the_published_means_of_every_arm(charitable: Job) -> None:
    data = charitable.data
    means = [data.outcome[data.action == a].mean(axis=0, dtype=np.float64) for a in range(4)]
    assert data.actions.tolist() == [0, 1, 2, 3]
    assert np.bincount(data.action).tolist() == [16_687, 11_133, 11_134, 11_127]
    assert [round(float(m[0]), 2) for m in means] == [0.81, 0.94, 1.03, 0.93]
    assert [round(float(m[1]), 2) for m in means] == [0.00, 0.94, 2.05, 2.80]


def test_charitable_match_looks_randomised_and_a_higher_match_brings_no_more(charitable: Job) -> None:
    verdict = charitable.checked.randomisation
    assert verdict is not None
    assert verdict.stated
    assert verdict.looks_randomised
    [effect] = [e for e in charitable.checked.effects if e.segment == "all"]
    assert effect.effect == pytest.approx(0.9327 - 0.9367, abs=1e-3)
    assert effect.low < 0 < effect.high


def test_charitable_match_is_a_one_step_problem_in_which_no_gain_can_be_claimed(charitable: Job) -> None:
    data = charitable.data
    assert np.all(data.next_row[:] == -1)
    assert data.campaign.log.once
    old = [e for e in charitable.evaluation.beside if (e.policy, e.estimator) == ("old", "observed")]
    rows = data.rows_of(2)
    assert {e.target: e.value for e in old}["reward@1"] == pytest.approx(data.outcome[rows, 0].mean(dtype=np.float64))
    assert_honest(charitable)


def test_couponsretailer_counts_the_forced_rows_as_no_decisions(coupons: Job) -> None:
    data = coupons.data
    forced = np.asarray(data.forced[:])
    assert (len(data), len(data.users), int(forced.sum())) == (50_624, 1_582, 34_646)
    assert coupons.checked.actions[1].choices == int(data.action[~forced].sum()) == 3_102
    assert not data.action[forced].any(), "a coupon that is held is no action"
    assert not data.steady


def test_couponsretailer_is_not_taken_for_an_experiment_and_its_state_does_not_say_enough(coupons: Job) -> None:
    verdict = coupons.checked.randomisation
    assert verdict is not None
    assert not verdict.looks_randomised
    assert "period" in verdict.verdict
    assert_honest(coupons)
    assert coupons.checked.state is not None
    assert coupons.checked.state.ok is False
    every = coupons.checked.tried[0].columns
    whole = [(tried.days, tried.ok) for tried in coupons.checked.tried if tried.columns == every]
    assert whole == [(3, False), (7, False), (14, False), (28, True)]
    assert not coupons.evaluation.certificate.certified
    assert "[log.history]" in coupons.evaluation.verdict.words


def test_a_coupon_that_is_held_taken_for_an_action_is_caught_by_check(tmp_path: Path) -> None:
    path = campaign_copy("couponsretailer", tmp_path)
    text = re.sub(r'^action = """.*?"""', 'action = "coupons_Any"', path.read_text(), flags=re.MULTILINE | re.DOTALL)
    path.write_text(re.sub(r"^forced = .*\n", "", text, flags=re.MULTILINE))
    verdict = check(path).randomisation
    assert verdict is not None
    assert not verdict.looks_randomised
    assert verdict.dependences[0].name == "the action before"
    assert verdict.dependences[0].strength > 0.5
