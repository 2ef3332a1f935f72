"""Methods side by side: results as they are written, and the truth in each budget's own unit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from typer.testing import CliRunner, Result

import outlay
from outlay.cli.main import app
from outlay.comparing.contenders import Learning, planned
from outlay.comparing.results import CONTROLS, Comparison
from outlay.core.campaign import BudgetLimit
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import partial_of
from outlay.jobs import compare as job
from outlay.jobs.compare import compare
from outlay.pages.comparison_table import lead, title
from paper_orderings import count, orderings
from telling import missing

SMALL = "\n[train]\nlayers = [16, 8]\nbatch = 256\nepochs = 0.1\nmin_steps = 200\n"


class Compared(NamedTuple):
    """One `outlay compare`.

    Attributes:
        asked: what the command line asked the job for.
        found: what the job returned.
        said: what the terminal printed.
        out: the folder written.
    """

    asked: dict[str, Any]
    found: Comparison
    said: Result
    out: Path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = outlay.simulate("habit", tmp_path_factory.mktemp("small") / "campaign", users=2000, seed=1)
    path.write_text(path.read_text() + SMALL)
    return path


@pytest.fixture(scope="module")
def compared(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """A campaign with a total per user over five days, reported after one and three, with the truth beside it."""
    path, text = small.with_name("user.toml"), small.read_text()
    changes = {
        "at_most = 2.2 ": "at_most = 10 ",
        'per = "decision"': 'per = "user"',
        "horizon_days = 7": "horizon_days = 5",
        "report_days = [1, 3, 7]": "report_days = [1, 3]",
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    out, asked = tmp_path_factory.mktemp("out") / "out", dict[str, Any]()
    found: list[Comparison] = []

    def kept(*arguments: Any, **options: Any) -> Comparison:
        asked.update(options)
        found.append(compare(*arguments, **options))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "compare", kept)
        said = CliRunner().invoke(
            app,
            [
                "compare",
                "-v",
                str(path),
                "--out",
                str(out),
                "--seeds",
                "1",
                "--label-days",
                "1",
                "--oracles",
                "bcq",
                "--responses",
                "deepfm",
                "--immediate",
                "2.5",
            ],
        )
    assert said.exit_code == 0, said.output
    return Compared(asked, found[0], said, out)


@pytest.mark.slow
def test_a_limit_per_user_is_shown_in_its_own_unit_in_estimate_and_in_truth(compared: Compared) -> None:
    found, out = compared.found, compared.out
    assert found.budgets == (BudgetLimit(name="coupon_cost", limit=10.0, per="user", unit="yuan"),)
    assert (found.report_days, found.horizon_days) == ((1, 3), 5)
    constants = next(row for row in found.rows if row.group == "constant")
    old = found.rows[0]
    for row in (constants, old):
        cost, reward = row.figures["coupon_cost"], row.figures["reward@5"]
        assert cost.truth == pytest.approx(cost.value, rel=0.15)  # a mean per decision would be a fifth of it
        assert reward.truth == pytest.approx(reward.value, rel=0.15)
    judged = orderings(found.rows, found.budgets, found.report_days)
    assert {one.target for one in judged} == {"reward@1", "reward@3"}
    rules = [row.name for row in found.rows if row.group == "rl" and row.control == "total"]
    assert rules[:4] == ["BCQ, single-best", "BCQ, single-best, re-solved", "BCQ, aim-mean", "BCQ, aim-mean, re-solved"]
    assert not [row.name for row in found.rows if row.control == "immediate" and "re-solved" in row.name]
    for name, course in found.stored.items():  # the figure's lines end where the tables stand
        assert {row.stored_parameters for row in found.rows if row.name == name} <= {course[-1].mean}
        assert {at.sd for at in course} == {None}, "one seed has no spread"
    assert rules[-2:] == ["frontier, bcq", "frontier, counted"]
    for row in found.rows:
        if row.rule == "frontier":
            assert row.oracle == {"frontier, bcq": "bcq", "frontier, counted": "tabular"}[row.name]
            assert {"reward@3", "coupon_cost"} <= set(row.figures)
            assert row.stored_parameters is not None
            assert row.stored_parameters > 0
            assert row.seconds is not None
            assert row.seconds > 0
    claims = [one.claim.split(" ≥ ") for one in judged if one.control == "total"]
    assert ["frontier, bcq", "BCQ, aim-greedy, re-solved"] in claims
    assert ["frontier, counted", "frontier, bcq"] in claims
    assert list(found.stored)[-1] == "frontier, bcq", "the counted one takes no steps"
    assert [at.mean for at in found.stored["frontier, bcq"]] == [
        next(row.stored_parameters for row in found.rows if row.name == "frontier, bcq")
    ] * 2
    assert sorted(path.name for path in out.iterdir()) == [
        "comparison.html",
        "comparison.json",
        "data",
        "manifest.json",
    ]
    assert not any(one.proven for one in judged)
    assert msgspec.json.decode((out / "comparison.json").read_bytes(), type=Comparison) == found
    page = (out / "comparison.html").read_text(encoding="utf-8")
    assert not missing(count(judged).partition(".")[0], "one seed")
    assert "per user in 5 days" in page


@pytest.mark.slow
def test_the_terminal_prints_a_table_for_each_control_and_what_leads(compared: Compared) -> None:
    options = {name: compared.asked[name] for name in ("seeds", "immediate", "label_days", "oracles", "responses")}
    assert options == {
        "seeds": 1,
        "immediate": 2.5,
        "label_days": (1,),
        "oracles": ("bcq",),
        "responses": ("deepfm",),
    }
    lines = compared.said.stdout.splitlines()
    tables = [line for line in lines if line.startswith("habit, ")]
    assert tables == [title(compared.found, control) for control in CONTROLS]
    assert not missing(tables[0], "at most 2.50 yuan")
    assert not missing(tables[1], "coupon money", "at most 10 yuan")
    assert all(line.endswith("estimate [true value], 1 seed") for line in tables)
    heads = [line for line in lines if line.strip().startswith("method")]
    assert all(line.split()[-3:] == ["stored", "parameters", "training"] for line in heads)
    assert ["against the limit" in line for line in heads] == [False, True]
    counted = [line for line in lines if line.strip().startswith("frontier, counted")]
    assert len(counted) == 2
    assert not re.search(r"\d%", counted[0])
    assert re.search(r" \d+\.\d% \(true\) .*\d[,\d]* .*\d[.\d]* s$", counted[1])
    judged = orderings(compared.found.rows, compared.found.budgets, (1, 3))
    assert len([one for one in judged if not one.proven and not missing(one.sentence("active"), "one seed")]) >= 6
    pairs = [(one.control, *one.claim.split(" ≥ ")) for one in judged]
    assert ("immediate", "BCQ, aim-greedy", "BCQ, single-best") in pairs
    assert [lines.count(f"{lead(compared.found, control)}.") for control in CONTROLS] == [1, 1]
    assert not missing(lead(compared.found, "total"), "active days in 3 days")


def test_rows_are_chosen_by_name_and_bring_only_their_trainings() -> None:
    every = planned(("bcq", "bcq+network", "orthogonal"), ("deepfm", "din"), (1, 7), counted=True, wanted=None)
    assert [one.name for one in every] == [
        "response-deepfm-1",
        "response-deepfm-7",
        "response-din-1",
        "response-din-7",
        "game-bcq-0",
        "game-bcq+network-0",
        "bisection-bcq-0",
        "bisection-bcq+network-0",
        "frontier-bcq-0",
        "frontier-orthogonal-0",
        "frontier-tabular-0",
    ]
    some = planned(
        ("bcq", "orthogonal"),
        ("deepfm", "din"),
        (1, 7),
        counted=True,
        wanted=("bcq, AIM-*", "frontier, o*", "DIN, 7-day label"),
    )
    assert [(one.name, tuple(row.name for row in one.rows)) for one in some] == [
        ("response-din-7", ("DIN, 7-day label",)),
        ("game-bcq-0", ("BCQ, aim-mean", "BCQ, aim-mean, re-solved", "BCQ, aim-greedy", "BCQ, aim-greedy, re-solved")),
        ("frontier-orthogonal-0", ("frontier, orthogonal",)),
    ]
    with pytest.raises(OutlayError, match=r"rows: is 'frontier, trees'; .*Rows: DeepFM, 1-day"):
        planned(("bcq",), ("deepfm",), (1,), counted=False, wanted=("frontier*", "frontier, trees"))


TWICE: dict[str, Any] = {"seeds": 2, "rows": ("deepfm, 1*", "bcq, single-best")}


@pytest.fixture(scope="module")
def whole(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Two seeds, one after the other, uninterrupted."""
    return compare(small, tmp_path_factory.mktemp("whole") / "out", **TWICE)


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on_and_ends_as_if_nothing_had_happened(
    small: Path, whole: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, learned = Learning.rules, list[str]()

    def interrupted(*arguments: Any) -> Any:
        learned.append("game")
        if len(learned) == 2:
            raise KeyboardInterrupt
        return one(*arguments)

    monkeypatch.setattr(Learning, "rules", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compare(small, tmp_path / "out", **TWICE)
    assert partial_of(tmp_path / "out").is_dir()
    assert not (tmp_path / "out").exists()
    with pytest.raises(FolderError, match="was begun with another immediate"):
        compare(small, tmp_path / "out", resume=True, immediate=9.0, **TWICE)
    resumed = compare(small, tmp_path / "out", resume=True, **TWICE)
    assert len(learned) == 3, "the first seed's game is not played again"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "comparison.html",
        "comparison.json",
        "data",
        "manifest.json",
    ]

    def told(found: Comparison) -> list[Any]:
        return [replace(row, seconds=None) for row in found.rows]

    assert told(resumed) == told(whole)
    assert resumed.stored == whole.stored
    assert [row.name for row in whole.rows if row.control == "total"][1:] == ["DeepFM, 1-day label", "BCQ, single-best"]
    (course,) = [course for name, course in whole.stored.items() if name == "BCQ, single-best"]
    assert course[-1].sd is not None, "two seeds have a spread"
    with pytest.raises(FolderError, match="no unfinished comparison"):
        compare(small, tmp_path / "other", resume=True)


@pytest.mark.slow
def test_seeds_side_by_side_find_what_they_find_one_after_the_other(
    small: Path, whole: Comparison, tmp_path: Path
) -> None:
    """In processes of their own; sums over several threads may differ in the last digits."""
    said: list[str] = []
    options = TWICE | {"rows": TWICE["rows"][:1], "processes": 2}
    two = compare(small, tmp_path / "two", progress=lambda _, text: said.append(text), **options)
    assert any("of 2 trainings" in text for text in said)
    one = [row for row in whole.rows if row.name != "BCQ, single-best"]
    for first, second in zip(one, two.rows, strict=True):
        assert first.name == second.name
        for target, figure in first.figures.items():
            assert second.figures[target].truth == pytest.approx(figure.truth, rel=0.02)
