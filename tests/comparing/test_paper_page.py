"""The page of the paper: every part has its place there, and a figure goes from a result into its table."""

from __future__ import annotations

from pathlib import Path

import pytest

import paper
from fit_habit import DAYS, EFFECTS
from outlay.comparing.results import ORIGINAL, Comparison, MethodRow, SeedMean, StoredCount
from outlay.core.campaign import BudgetLimit

PAGE = paper.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("mark", [*paper.PARTS, "stored"])
def test_every_part_has_its_place_on_the_page(mark: str) -> None:
    text = paper.filled(PAGE, mark, "| a | table |")
    assert text.count("| a | table |") == 1
    assert paper.filled(text, mark, "other").count("| a | table |") == 0


def test_a_part_without_its_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 times"):
        paper.filled("nothing", "ab", "table")


def row(name: str, *, rule: str | None = None, label: int | None = None, reward: float) -> MethodRow:
    """A method at equal spend on day one."""
    oracle = name.partition(", ")[0].lower()
    figures = {f"reward@{k}": SeedMean(reward * k, truth=reward * k, truth_sd=0.01, sd=0.01) for k in (1, 7)}
    figures |= {target: SeedMean(2.0, truth=2.0, truth_sd=0.1) for target in ("cost", "cost@1")}
    group = "rl" if rule else "two-stage"
    return MethodRow(name, group, "immediate", oracle, rule, label, figures)


@pytest.fixture
def comparison() -> Comparison:
    rows = [row(f"BCQ, {rule}", rule=rule, reward=0.7) for rule in paper.RULES]
    rows.append(row("DeepFM, 1-day label", label=1, reward=0.6))
    held = {"single-best": 10, "aim-mean": 30, "aim-greedy": 20}
    stored: dict[str, tuple[StoredCount, ...]] = {
        f"BCQ, {rule}": (StoredCount(100, count, 0.0),) for rule, count in held.items()
    }
    return Comparison(
        campaign="small",
        unit="yuan",
        reward_label="active",
        money="cost",
        budgets=(BudgetLimit(name="cost", limit=2.2),),
        immediate=3.0,
        report_days=(1, 7),
        horizon_days=7,
        seeds=2,
        confidence=0.95,
        users=100,
        rows=tuple(rows),
        stored=stored | {ORIGINAL: (StoredCount(100, 1480, 0.0),)},
    )


def test_table_2_has_the_papers_figures_beside_ours(comparison: Comparison) -> None:
    lines = paper.second_table(comparison, "immediate", beside=True).splitlines()
    assert "| DeepFM, 1-day label | 0.5997 / 2.2032 / 4.7806 | 0.6396 / 2.3232 / 5.2114 | 0.6000 ± 0.0100" in lines[-1]
    assert "| looking ahead above 1-day labels over 7 days | holds |" in paper.controlled(comparison, "immediate", "")


def test_what_is_stored_is_counted_in_networks(comparison: Comparison) -> None:
    lines = paper.stored_table(comparison).splitlines()[2:]
    assert [line.split("|")[-2].strip() for line in lines] == ["1", "3", "2", "148"]


def test_table_1_holds_the_papers_effects() -> None:
    found = [
        {"segment": segment, "days": days, "effect": effect, "low": effect - 0.01, "high": effect + 0.01}
        for segment, effects in EFFECTS.items()
        for days, effect in zip(DAYS, effects, strict=True)
    ]
    text = paper.first_table(found)
    assert "| 7 days | paper | +1.24 | +0.68 | 82% |" in text
    assert "| | ours | +1.240 (+1.230 to +1.250) | +0.680 (+0.670 to +0.690) | 82% |" in text


def test_the_figure_of_the_page_is_there() -> None:
    assert f"](images/{paper.FIGURE.name})" in PAGE
    assert Path(paper.FIGURE).exists()
