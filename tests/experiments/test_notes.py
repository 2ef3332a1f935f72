"""Notes and reasons: every kind has its own words, what is decided and tested goes by the kind and its figures."""

from __future__ import annotations

import json
from dataclasses import replace
from string import Formatter

import pyarrow.compute as pc
import pytest

from outlay.experiments.analyze import analyze
from outlay.experiments.lift import Withheld, needed_pairs
from outlay.experiments.log import ExperimentColumns
from outlay.experiments.moments import Metric
from outlay.experiments.sums import read_sums
from outlay.experiments.words import NoteKind, spans
from small_panels import experiment, opened, panel
from telling import missing

REASONS = list(NoteKind)[: list(NoteKind).index(NoteKind.FADED) + 1]


def places(kind: NoteKind) -> dict[str, str]:
    """The figures that its words need, by their formats."""
    return {name: form or "" for _, name, form, _ in Formatter().parse(kind.value) if name}


@pytest.mark.parametrize("kind", NoteKind)
def test_words_hold_every_figure(kind: NoteKind) -> None:
    figures = {name: 7 if form else name for name, form in places(kind).items()}
    note = kind(**figures)
    assert all(str(figure) in note.words for figure in figures.values() if isinstance(figure, str))
    assert json.loads(json.dumps(note.to_dict())) == {"kind": kind.named, "figures": figures, "words": note.words}
    assert (note == replace(note), note == kind(**figures)) == (True, True)


def test_reasons_are_parts_of_a_sentence_and_notes_are_sentences() -> None:
    for kind in NoteKind:
        assert (kind.value[-1] in ".?") == (kind not in REASONS), kind


def test_names_of_kinds_are_told_apart() -> None:
    assert len({kind.named for kind in NoteKind}) == len(NoteKind.__members__), "no two kinds have the same words"


def test_a_figure_that_is_missing_or_braces_in_a_name_are_no_words() -> None:
    with pytest.raises(KeyError):
        NoteKind.BEYOND(rows=3)
    assert not missing(NoteKind.NO_USERS(arm="{days}").words, "“{days}”")


def test_json_has_kinds_figures_and_words() -> None:
    """Of an arm without users, and of a metric that is the same for all."""
    metrics = [Metric("active", "active"), Metric("cost_per_active", "cost", "active")]
    columns = ExperimentColumns('"user"', "arm", "day", None, {"active": "active", "cost": "cost"}, {})
    log = panel(users=200)
    for kept, blocked in ((log, []), (log.filter(pc.field("arm") == "old"), [NoteKind.NO_USERS(arm="new")])):
        sums = read_sums(opened(kept), "log", columns, experiment(), needed_pairs(metrics))
        found = analyze(sums, experiment(), metrics, 14, money="cost")
        (arm,) = json.loads(json.dumps(found.to_dict()))["comparisons"]
        assert arm["blocked"] == [note.to_dict() for note in blocked]
        withheld = found.comparisons[0].lifts[1]
        assert isinstance(withheld, Withheld)
        assert arm["lifts"][1] == {"metric": "cost_per_active", "reason": withheld.reason.to_dict()}


def test_runs_of_days_are_told_together() -> None:
    assert spans([], str) == ""
    assert spans([4], str) == "4"
    assert spans([1, 2, 3, 7, 9, 10], str).split(", ") == ["1 to 3", "7", "9 to 10"]
