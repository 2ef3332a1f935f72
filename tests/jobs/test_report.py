"""The report's content comes from the run as it is, and the page needs nothing from outside."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import outlay
from conftest import Habit
from outlay.choosing.run import Run
from outlay.core.errors import FolderError
from outlay.jobs.report import content, report
from outlay.jobs.report_evidence import certificate, evidence


def test_the_page_asks_nothing_of_the_network(run: Path) -> None:
    """No tag and no style with an address; in scripts only names of formats and links that a person clicks."""
    outlay.evaluate(run)
    page = report(run).read_text(encoding="utf-8")
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


def test_the_content_is_what_training_and_evaluation_found(evaluated: Path) -> None:
    opened = Run.open(evaluated)
    found, estimates = content(opened), opened.estimates()
    assert estimates is not None
    assert found.title == "habit"
    assert found.verdict == estimates["verdict"]
    assert found.certified == estimates["certificate"]["certified"]
    assert found.confidence == 0.95
    assert [p.kind for p in found.policies][:1] == ["old"]
    served = next(p for p in found.policies if p.kind == "chosen")
    value = next(e for e in estimates["estimates"]
                 if (e["policy"], e["estimator"], e["target"]) == ("mixture", "fqe", "coupon_cost"))  # fmt: skip
    assert served.costs["coupon_cost"].value == value["value"]
    assert served.costs["coupon_cost"].high == value["high"]
    assert len(found.candidates) == len(found.training) == len(opened.metrics()) == 20
    assert [m.weight for m in found.members] == [m["weight"] for m in opened.manifest["members"]]
    kept = {c.step for c in found.candidates if c.kept}
    assert kept == {m["step"] for m in opened.manifest["members"]} - {None}  # a constant has none
    assert found.training[-1].original_parameters == 20 * opened.manifest["parameters"]
    assert {share.segment for share in found.shares} == {"inactive", "active"}
    assert found.budgets[0].limit == 2.2
    assert found.old is not None
    assert found.certificate is not None
    assert found.certificate.look == 1


def test_the_page_shows_what_the_evaluation_rests_on(evaluated: Path) -> None:
    opened = Run.open(evaluated)
    page, estimates = content(opened), opened.estimates()
    assert estimates is not None
    assert page.evidence is not None
    assert page.certificate is not None
    assert [check.name for check in page.evidence.checks] == ["propensities", "reproduction", "agreement"]
    assert [line.days for line in page.evidence.paths] == [1, 3, 7]
    assert {line.segment: line.mean_ratio for line in page.evidence.overlap} == {
        line["segment"]: line["mean_ratio"] for line in estimates["diagnostics"]["overlap"]
    }
    assert page.evidence.model == (), "propensities are as logged"
    assert {e.estimator for e in page.estimates if e.policy == "mixture"} == {"fqe", "dr", "mis", "snpdis", "pdis"}
    assert page.certificate.policies == 1, "aim-greedy has no frontier"
    assert page.certificate.rests_on[0].startswith("Outcomes and moves depend on state and action alone")
    assert "Nothing unlogged drove the log's actions." in page.certificate.rests_on
    assert page.certificate.gain is not None
    assert page.certificate.gain.bound == estimates["certificate"]["gain_bound"]
    assert [against.title for against in page.against] == ["the old policy"]
    assert not [note for note in page.notes if "eproduction" in note], "checks have a section of their own"


def test_what_is_claimed_of_a_window_alone_does_not_take_days_to_be_alike(evaluated: Path) -> None:
    run = Run.open(evaluated)
    found = run.estimates()
    assert found is not None
    of_a_window = " ".join(certificate(run, {**found, "window": 7}).rests_on)
    assert "state and action alone" not in of_a_window
    assert "The features say enough about a user." in of_a_window


def test_gains_by_segment_are_paired(evaluated: Path) -> None:
    lines = content(Run.open(evaluated)).segments
    assert {line.segment for line in lines} == {"inactive", "active"}
    for line in lines:
        old, new, gain = line.old.value, line.new.value, line.gain.value
        assert old is not None
        assert new is not None
        assert gain == pytest.approx(new - old)


def test_the_certificate_is_of_the_mixture_alone_and_the_curve_has_its_own(habit: Habit, tmp_path: Path) -> None:
    run = outlay.train(habit.changed(tmp_path), tmp_path / "run", method="frontier", oracle="tabular")
    found = outlay.evaluate(run)
    certificate = content(run).certificate
    assert certificate is not None
    assert (certificate.policies, certificate.look) == (1, 1)
    assert found.diagnostics["curve"]["look"] == 2
    assert "the bounds hold for" not in report(run).read_text(encoding="utf-8")
    assert "outlay frontier has other figures for the same budget" in report(run).read_text(encoding="utf-8")


def test_a_behaviour_model_is_shown_action_by_action(evaluated: Path) -> None:
    found = Run.open(evaluated).estimates()
    assert found is not None
    line = {"action": 1.5, "among": "all", "rows": 900, "predicted": 0.09, "observed": 0.1, "z": 1.0}
    found["diagnostics"]["propensities"] = {"source": "behaviour model", "ok": False, "words": "It does not fit.",
                                            "actions": [line]}  # fmt: skip
    found["diagnostics"]["agreement"]["differences"] = []
    shown = evidence(found)
    assert (shown.checks[0].ok, shown.checks[0].words) == (False, "It does not fit.")
    assert shown.checks[2].ok is None, "not checked"
    assert [(fit.action, fit.predicted, fit.observed) for fit in shown.model] == [(1.5, 0.09, 0.1)]


def test_what_an_older_version_evaluated_is_to_be_evaluated_again(run: Path) -> None:
    old = {"verdict": "Serve it.", "confidence": 0.95, "certificate": {}, "policies": ["old"], "estimates": []}
    (run / "estimates.json").write_text(json.dumps(old))
    with pytest.raises(
        FolderError, match=r"another version of outlay: .*subject.* absent.*Run outlay evaluate .*again"
    ):
        report(run)


def test_the_intervals_of_the_report_are_those_of_the_evaluation(run: Path) -> None:
    outlay.evaluate(run, confidence=0.8)
    assert content(Run.open(run)).confidence == 0.8


def test_before_the_evaluation_the_page_says_so(run: Path) -> None:
    assert content(Run.open(run)).certified is None
    page = report(run).read_text(encoding="utf-8")
    assert "Not evaluated yet" in page
    assert "outlay evaluate" in page


def test_figures_are_drawn_as_they_were_recorded(evaluated: Path) -> None:
    """In the unit and with the sign of the campaign file: no sign is turned on the way to the page."""
    opened = Run.open(evaluated)
    found = content(opened)
    for candidate, training, recorded in zip(found.candidates, found.training, opened.metrics(), strict=True):
        assert training.measured is not None
        assert (candidate.measured.reward, *candidate.measured.costs) == tuple(recorded["measured"])
        assert (training.measured.reward, *training.measured.costs) == tuple(recorded["critic"])
    for member, recorded in zip(found.members, opened.manifest["members"], strict=True):
        assert member.measured.fitted is not None
        assert (member.measured.fitted.reward, *member.measured.fitted.costs) == tuple(recorded["fitted"])


def test_damage_is_told(run: Path, tmp_path: Path) -> None:
    (run / "estimates.json").write_text(json.dumps({})[:1])
    with pytest.raises(FolderError, match=r"estimates\.json: is not valid JSON.*Run outlay evaluate .*again"):
        report(run)
    with pytest.raises(FolderError, match="does not exist"):
        report(tmp_path / "none")
    assert not (run / "report.html").exists()
