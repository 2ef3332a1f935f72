"""Policies held side by side: what a run serves, what another run would do here, what a file says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import outlay
from conftest import Habit
from outlay.choosing.evaluated_policy import OLD, compared_policy, from_file, from_run, mixture_of
from outlay.choosing.measure import Measure
from outlay.choosing.run import Run
from outlay.core.errors import FolderError, LogError, OutlayError
from outlay.core.transitions import CERTIFY, Transitions
from policy_files import generous, habit_policy, habit_states


@pytest.fixture(scope="module")
def at(habit_data: Transitions) -> Measure:
    return Measure(habit_data, CERTIFY, None)


def test_a_table_says_what_is_done_in_every_row(at: Measure, habit: Habit, tmp_path: Path) -> None:
    path = habit_policy(habit, tmp_path / "rule.parquet", generous, 0.4)
    found = from_file(at, path, "policy")
    assert (found.name, found.title, found.features, found.run) == ("policy", "rule.parquet", (0,), None)
    states = at.data.states
    assert states is not None
    assert at.panel.state is not None
    (part,) = found.parts
    assert part is not None
    yesterday, level = (states.codes[at.panel.state, i] for i in (0, 1))
    fields = at.data.schema.categorical
    known = [np.array(field.values, int)[code - 3] for field, code in zip(fields, (yesterday, level), strict=True)]
    assert part == pytest.approx(habit_states(habit, generous, 0.4)[5 * known[0] + known[1]])
    assert found.members() == []
    assert OLD.parts == (None,)


def test_the_mixture_of_another_run_does_here_what_it_does_there(at: Measure, finished: Path) -> None:
    bundle = outlay.load_bundle(finished / "bundle")
    there = mixture_of(Measure(at.data, CERTIFY, bundle), "")
    found = from_run(at, Run.open(finished), "against")
    assert found.weights == pytest.approx(bundle.weights)
    assert (found.title, found.identity) == ("run (aim-greedy)", bundle.id)
    assert found.features == (0,) * len(found.parts)
    assert found.run is not None
    assert found.run.folder == finished
    for one, other in zip(found.parts, there.parts, strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))


def test_a_rival_is_a_run_a_table_or_the_old_policy(
    at: Measure, finished: Path, habit: Habit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = habit_policy(habit, tmp_path / "rule.parquet", generous)
    names = [
        getattr(compared_policy(at, what), "title", None)
        for what in (None, "old", path, str(finished), Run.open(finished))
    ]
    assert names == [None, None, "rule.parquet", "run (aim-greedy)", "run (aim-greedy)"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FolderError, match=r"^elsewhere, --against: does not exist"):
        compared_policy(at, "elsewhere")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FolderError, match="folder"):
        compared_policy(at, "folder")
    (tmp_path / "notes.txt").write_text("not a policy")
    with pytest.raises(LogError, match=r"notes\.txt, policy: .*Parquet"):
        compared_policy(at, "notes.txt")


def test_a_run_with_other_actions_or_a_damaged_bundle_is_no_rival(
    at: Measure, finished: Path, habit: Habit, tmp_path: Path
) -> None:
    path = habit.changed(tmp_path / "more", ("5.5, 6.0]", "5.5, 6.0, 7.0]"))
    more = outlay.prepare(path, tmp_path / "more" / "data")
    with pytest.raises(FolderError, match=r"run, --against: .*other features"):
        from_run(Measure(more, CERTIFY, None), Run.open(finished), "against")
    shutil.copytree(finished, tmp_path / "broken")
    manifest = tmp_path / "broken" / "bundle" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["members"][0]["weight"] = 7
    manifest.write_text(json.dumps(content))
    with pytest.raises(OutlayError, match="broken"):
        compared_policy(at, tmp_path / "broken")
