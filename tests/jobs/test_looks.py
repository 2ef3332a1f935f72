"""Looks at the certify users: counted once per bundle or frontier, with α halved each time."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlay
from conftest import Habit
from outlay.core.errors import FolderError
from outlay.jobs.looks import FILE, alpha_of, look, looks, next_alpha, next_look


def test_each_new_bundle_gets_half_of_what_the_last_one_got(tmp_path: Path) -> None:
    assert next_alpha(tmp_path, 0.95) == pytest.approx(0.025)
    for number, bundle in enumerate(("a", "b", "c"), start=1):
        assert next_look(tmp_path) == number
        assert next_alpha(tmp_path, 0.95) == alpha_of(number, 0.95) == pytest.approx(0.05 / 2**number)
        found, alpha = look(tmp_path, bundle, 0.95)
        assert found == number
        assert alpha == pytest.approx(0.05 / 2**number)
    assert looks(tmp_path) == ["a", "b", "c"]


def test_all_looks_together_keep_alpha(tmp_path: Path) -> None:
    assert sum(look(tmp_path, str(i), 0.9)[1] for i in range(40)) <= 0.1 + 1e-12


def test_the_same_bundle_again_is_the_same_look(tmp_path: Path) -> None:
    for bundle in ("a", "b"):
        look(tmp_path, bundle, 0.95)
    for confidence, wanted in ((0.95, 0.025), (0.99, 0.005)):
        number, alpha = look(tmp_path, "a", confidence)
        assert number == 1
        assert alpha == pytest.approx(wanted)
    assert looks(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("content", ["[", '["a",', "\x00"])
def test_a_damaged_record_is_not_taken_for_no_looks(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    for function in (looks, lambda folder: next_alpha(folder, 0.95), lambda folder: look(folder, "a", 0.95)):
        with pytest.raises(FolderError, match=r"looks\.json: is not valid JSON.*another train\.salt"):
            function(tmp_path)
    assert (tmp_path / FILE).read_text() == content


def test_the_same_log_prepared_again_keeps_the_count(habit: Habit, tmp_path: Path) -> None:
    """Also with another limit: the certify users are the same."""
    text = (habit.folder / "campaign.toml").read_text().replace('"log.parquet"', f'"{habit.folder}/log.parquet"')
    path = tmp_path / "campaign.toml"
    path.write_text(text)
    data = outlay.prepare(path, tmp_path / "data")
    look(data.folder, "first", 0.95)
    path.write_text(text.replace("at_most = 2.2", "at_most = 1.9"))
    again = outlay.prepare(path, tmp_path / "data")
    assert again.campaign.budgets[0].limit == 1.9
    assert looks(again.folder) == ["first"]
    path.write_text(f"{text.split('[train]')[0]}\n[train]\nsalt = 'another'\n")
    assert looks(outlay.prepare(path, tmp_path / "data").folder) == []
