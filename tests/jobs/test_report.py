"""The report's content comes from the run as it is, and the page needs nothing from outside."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import outlay
from outlay.choosing.run import Run
from outlay.core.errors import CampaignError, FolderError
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.agreement import Agreement
from outlay.estimators.behaviour.check import BehaviourCheck
from outlay.estimators.certificate import CONDITIONS
from outlay.estimators.windowed import Window
from outlay.evaluating.checks import of_agreement, of_behaviour
from outlay.evaluating.evaluation import Evaluation
from outlay.jobs.report import report
from outlay.pages import evaluation_words, tables
from outlay.pages import results as findings
from outlay.pages.report import render
from outlay.pages.results import RunResults


def test_the_page_asks_nothing_of_the_network(evaluated: Path, tmp_path: Path) -> None:
    """No tag and no style with an address; in scripts only names of formats and links that a person clicks."""
    page = report(shutil.copytree(evaluated, tmp_path / "run")).read_text(encoding="utf-8")
    assert len(page) > 100_000
    outside = re.sub(r"<script\b.*?</script>", "<script></script>", page, flags=re.DOTALL)
    assert not re.search(r"(src|href|srcset|action|data)\s*=\s*[\"']?\s*(https?:)?//", outside)
    assert not re.search(r"url\(\s*[\"']?\s*(https?:)?//|@import", outside)
    assert not re.search(r"<(link|iframe|object|embed)\b", outside)
    openings = re.findall(r"<script\b[^>]*>", page)
    assert openings
    assert not any("src" in tag for tag in openings)
    for name in ("vega-datasets", "cdn.", "googleapis", "unpkg"):
        assert name not in outside


def results_of(run: Path) -> RunResults:
    return RunResults.read(Run.open(run))


def test_the_results_are_what_training_and_evaluation_found(evaluated: Path) -> None:
    results, written = results_of(evaluated), json.loads((evaluated / "estimates.json").read_text())
    assert results.evaluated.to_dict() == Evaluation.read(evaluated).to_dict()  # type: ignore[union-attr]
    assert json.loads(json.dumps(results.evaluated.to_dict())) == written
    assert results.campaign.meta.name == "habit"
    assert results.evaluated.certificate.certified == written["certificate"]["certified"]
    assert results.confidence == 0.95
    assert [p.kind for p in results.policies][:1] == ["old"]
    served = next(row for row in results.policies if row.kind == "chosen")
    value = next(
        e
        for e in written["estimates"]
        if (e["policy"], e["estimator"], e["target"]) == ("mixture", "fqe", "coupon_cost")
    )
    assert served.costs["coupon_cost"].value == value["value"]
    assert served.costs["coupon_cost"].high == value["high"]
    assert len(results.candidates) == len(results.course) == 20
    manifest = results.run.manifest
    assert [m.weight for m in results.run.members] == [m["weight"] for m in manifest["members"]]
    steps = {m["step"] for m in manifest["members"]} - {None}  # a constant has none
    assert {member.step for member in results.run.members} - {None} == steps <= {c.step for c in results.candidates}
    assert results.course[-1].original_parameters == 20 * manifest["parameters"]
    assert {share.segment for share in results.evaluated.shares} == {"inactive", "active"}
    assert results.budgets[0].limit == 2.2
    assert results.old is not None
    assert results.evaluated.certificate.look == 1


def test_labels_that_are_changed_in_the_run_are_those_of_its_report(evaluated: Path, tmp_path: Path) -> None:
    shutil.copytree(evaluated, tmp_path / "run")
    own = tmp_path / "run" / "campaign.toml"
    text = own.read_text(encoding="utf-8")
    assert "active days" in report(tmp_path / "run").read_text(encoding="utf-8")
    own.write_text(text.replace('reward = "active days"', 'reward = "days with a visit"'), encoding="utf-8")
    page = report(tmp_path / "run").read_text(encoding="utf-8")
    assert "days with a visit" in page
    assert "active days" not in page.partition('id="evidence-of-it"')[0]
    own.write_text(text.replace("budgets.coupon_cost", "budgets.cupon_cost"), encoding="utf-8")
    with pytest.raises(CampaignError, match="coupon_cost"):
        report(tmp_path / "run")


def test_the_page_shows_what_the_evaluation_rests_on(evaluated: Path) -> None:
    results = results_of(evaluated)
    diagnostics, certificate = results.evaluated.diagnostics, results.evaluated.certificate
    names = ["propensities", "reproduction", "state", "balance", "agreement"]
    assert [name for name in diagnostics.checks if name in names] == names
    assert [line.days for line in diagnostics.paths] == [1, 3, 7]
    written = json.loads((evaluated / "estimates.json").read_text())
    assert {line.segment: line.mean_ratio for line in diagnostics.overlap} == {
        line["segment"]: line["mean_ratio"] for line in written["diagnostics"]["overlap"]
    }
    assert diagnostics.checks["propensities"].detail is None, "propensities are as logged"
    assert {e.estimator for e in results.evaluated.estimates} == {"fqe", "dr", "mis", "snpdis", "pdis"}
    assert certificate.policies == 1, "aim-greedy has no frontier"
    stationary, *conditions = evaluation_words.rests_on(results)
    assert stationary == evaluation_words.STATIONARY
    assert [each.lower().rstrip(".") for each in conditions[: len(CONDITIONS)]] == [each.lower() for each in CONDITIONS]
    assert certificate.gain_bound == written["certificate"]["gain_bound"]
    assert [name for name, _ in tables.differences(results.evaluated, results.campaign)] == ["old"]
    assert not [note for note in findings.notes(results) if "eproduction" in note], "checks have their own section"


def test_what_is_claimed_of_a_window_alone_does_not_take_days_to_be_alike(evaluated: Path) -> None:
    results = results_of(evaluated)
    evaluation = dataclasses.replace(results.evaluated, window=Window(7, 0.2, "the first 7 days"))
    whole = evaluation_words.rests_on(results)
    of_a_window = evaluation_words.rests_on(dataclasses.replace(results, evaluation=evaluation))
    assert [each for each in whole if each not in of_a_window] == [evaluation_words.STATIONARY]
    assert of_a_window[0].lower() == f"{CONDITIONS[0]}.".lower()


def test_gains_by_segment_are_paired(evaluated: Path) -> None:
    results = results_of(evaluated)
    by = {(e.segment, e.target, e.policy): e.value for e in results.evaluated.segments}
    assert {segment for segment, *_ in by} == {"inactive", "active"}
    for segment, target in {key[:2] for key in by}:
        old, new, gain = (by[segment, target, policy] for policy in ("old", results.evaluated.subject, "gain"))
        assert old is not None
        assert new is not None
        assert gain == pytest.approx(new - old)


@pytest.mark.slow
def test_the_certificate_is_of_the_mixture_alone_and_the_curve_has_a_share_of_its_look(
    counted_and_evaluated: Path, tmp_path: Path
) -> None:
    run = Run.open(shutil.copytree(counted_and_evaluated, tmp_path / "run"))
    certificate = results_of(run.folder).evaluated.certificate
    assert (certificate.policies, certificate.look) == (1, 1)
    assert certificate.alpha == pytest.approx(0.75 * 0.025)
    assert outlay.frontier(run).band.look == 1  # type: ignore[union-attr]
    page = unescape(report(run).read_text(encoding="utf-8"))
    assert evaluation_words.guarantee(certificate) in page
    assert findings.BESIDE_CURVE in page


def test_a_behaviour_model_is_shown_action_by_action(evaluated: Path, tmp_path: Path) -> None:
    run = shutil.copytree(evaluated, tmp_path / "run")
    written = json.loads((run / "estimates.json").read_text())
    line = {"action": 1.5, "among": "all", "rows": 900, "predicted": 0.0912, "observed": 0.1034, "z": 1.0}
    fit = {
        "rows": 900,
        "log_loss": 2.0,
        "constant_log_loss": 2.1,
        "actions": [line],
        "worst": line,
        "comparisons": 1,
        "least_propensity": 0.05,
        "least_action": 1.5,
        "ok": False,
        "words": "It does not fit",
    }
    told = written["diagnostics"]["checks"]
    told["propensities"] = dataclasses.asdict(of_behaviour(TypeAdapter(BehaviourCheck).validate_python(fit)))
    told["agreement"] = dataclasses.asdict(
        of_agreement(Agreement(Reason(ReasonKind.NOT_COMPARED, {"found": "misfit"}), ()))
    )
    (run / "estimates.json").write_text(json.dumps(written))
    checks = results_of(run).evaluated.diagnostics.checks
    assert (checks["propensities"].ok, checks["propensities"].words) == (False, "It does not fit")
    assert checks["agreement"].ok is None, "not checked"
    page = render(results_of(run))
    assert re.search(r"1\.5</th>\s*<td class=.n.>900</td>\s*<td class=.n.>9\.12%</td>\s*<td class=.n.>10\.3%", page)


def test_what_an_older_version_evaluated_is_to_be_evaluated_again(run: Path) -> None:
    old = {"verdict": "Serve it.", "confidence": 0.95, "certificate": {}, "policies": ["old"], "estimates": []}
    (run / "estimates.json").write_text(json.dumps(old))
    with pytest.raises(FolderError, match=r"another version of outlay.*beside.*outlay evaluate"):
        report(run)


def test_the_intervals_of_the_report_are_those_of_the_evaluation(run: Path) -> None:
    outlay.evaluate(run, confidence=0.8)
    assert results_of(run).confidence == 0.8


def test_before_the_evaluation_the_page_says_so(run: Path) -> None:
    assert results_of(run).evaluation is None
    page = report(run).read_text(encoding="utf-8")
    assert "Not evaluated yet" in page
    assert "outlay evaluate" in page


def test_figures_are_drawn_as_they_were_recorded(evaluated: Path) -> None:
    """In the unit and with the sign of the campaign file: no sign is turned on the way to the page."""
    results = results_of(evaluated)
    lines = [json.loads(line) for line in (evaluated / "metrics.jsonl").read_text().splitlines()]
    for candidate, recorded in zip(results.candidates, lines, strict=True):
        assert candidate.measured == tuple(recorded["measured"])
        assert candidate.critic == tuple(recorded["critic"])
    for member, recorded in zip(results.run.members, results.run.manifest["members"], strict=True):
        assert results.figures(member).fitted == tuple(recorded["fitted"])


def test_damage_is_told(run: Path, tmp_path: Path) -> None:
    (run / "estimates.json").write_text(json.dumps({})[:1])
    with pytest.raises(FolderError, match=r"estimates\.json: .*JSON.*outlay evaluate"):
        report(run)
    with pytest.raises(FolderError, match="does not exist"):
        report(tmp_path / "none")
    assert not (run / "report.html").exists()
