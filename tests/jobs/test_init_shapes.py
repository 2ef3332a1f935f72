"""`init` on files in the shape of public logs: the right action, reward and user, and a draft that `check` takes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from outlay.core.campaign import Campaign
from outlay.core.errors import LogError
from outlay.jobs.check import check
from outlay.jobs.init import Guided, OpenQuestion, guide
from public_shapes import SHAPES, SUMS, Columns, Shape

# Whose rows lie in an order: by user, by time, or by a number. Those of the others are drawn one like the other.
ORDERED = sorted(set(SHAPES) - {"hillstrom", "criteo", "in_vehicle", "lenta", "bank", "retail_hero"})


def written(columns: Columns, folder: Path) -> Path:
    with (folder / "log.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return folder / "log.csv"


def edits(found: Guided, shape: Shape) -> list[str]:
    """What a person has to change in the roles and the features."""
    role = {each.role: each.column for each in found.looked}
    user = None if role["user"] == "each row" else role["user"]
    wrong = [f"action {role['action']}"] * (role["action"] not in shape.action)
    wrong += [f"reward {role['reward']}"] * (role["reward"] not in shape.reward)
    wrong += [f"user {user}"] * (user not in shape.user)
    features = {each.column for each in found.looked if each.role == "feature"}
    wrong += [f"{name} is a feature" for name in shape.outcomes if name in features]
    return wrong + [f"{name} is no feature" for name in shape.features if name not in features]


@pytest.mark.parametrize("name", SHAPES)
def test_roles_are_right_and_check_takes_the_draft(tmp_path: Path, name: str) -> None:
    shape = SHAPES[name](np.random.default_rng(3))
    found = guide(written(shape.columns, tmp_path), tmp_path / "campaign.toml")
    assert edits(found, shape) == []
    assert not check(tmp_path / "campaign.toml").blocks
    assert {each.column for each in found.looked} >= set(shape.columns) - {""}


@pytest.mark.parametrize("name", ORDERED)
def test_the_order_of_rows_does_not_matter(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(4)
    shape = SHAPES[name](rng)
    order = rng.permutation(len(next(iter(shape.columns.values()))))
    columns = {name: [values[i] for i in order] for name, values in shape.columns.items()}
    wrong = edits(guide(written(columns, tmp_path), tmp_path / "campaign.toml"), shape)
    assert [each for each in wrong if not each.startswith("user")] == []


@pytest.mark.parametrize("name", SUMS)
def test_a_log_of_sums_is_told_what_this_is_not_for(tmp_path: Path, name: str) -> None:
    log = written(SUMS[name](np.random.default_rng(0)), tmp_path)
    with pytest.raises(LogError, match=r"sums over many people.*media mix model"):
        guide(log, tmp_path / "campaign.toml")
    assert not (tmp_path / "campaign.toml").exists()


def test_what_is_not_sure_is_asked_and_the_rest_follows_from_the_answer(tmp_path: Path) -> None:
    columns = SHAPES["complete_journey"](np.random.default_rng(0)).columns
    log = written({f"c{i + 1}": values for i, values in enumerate(columns.values())}, tmp_path)
    asked: list[OpenQuestion] = []

    def ask(question: OpenQuestion) -> str:
        asked.append(question)
        return {"action": "c6", "reward": "c7"}.get(question.role, question.guess)

    found = guide(log, tmp_path / "campaign.toml", ask=ask)
    assert "reward" in {question.role for question in asked}
    assert Campaign.load(tmp_path / "campaign.toml").log.reward == "c7"
    assert "c8" in {each.column for each in found.looked if each.role == "outcome"}
