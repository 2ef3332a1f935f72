"""What column generation adds to measured policies, and the gap that it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import outlay
from conftest import Habit
from outlay.choosing import choose
from outlay.choosing.candidates import CandidatePolicy, RunContext, measure
from outlay.choosing.choose import choose_among
from outlay.core.campaign import Campaign
from outlay.core.progress import silent
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.learning import multipliers
from outlay.learning.heads import Coordinates, critic_coordinates
from outlay.learning.tabular import _means, counted_model, respond, table_network
from outlay.ops.tabular import constrained_optimum
from outlay.pages import results as findings
from outlay.pages.results import RunResults
from outlay.training import column_generation, every_budget
from outlay.training.column_generation import Gap, Generated, gap_words, generate, pooled
from telling import missing

SECOND = """
[[budget]]
name = "large"
cost = "case when coupon >= 3 then 1 else 0 end"
at_most = 0.3
"""
COARSE = ((0.0, 0.0), (0.2, 0.0), (0.0, 0.5), (0.2, 0.5))  # λ
PER_USER = "[[budget]]\nname = 'sent'\ncost = 'case when coupon > 0 then 1 else 0 end'\nat_most = 3.0\nper = 'user'\n"
SMALL = "[train]\nfolds = 1\nlayers = [16, 8]\nepochs = 1.0\n"


class Counted:
    """Exact best responses of the counted model of some users, whose policies all have tables of their own."""

    def __init__(self, data: Transitions, split: int) -> None:
        model = counted_model(data, split)
        assert model is not None
        # A fitted evaluation lets rows speak whose next row is known, for the day's outcomes too.
        assert data.state is not None
        rows = data.rows_of(split)
        rows = rows[data.next_row[rows] >= 0]
        pair = data.state[rows].astype(np.int64) * data.num_actions + data.action[rows]
        day = _means(pair, data.outcome[rows].astype(np.float64), model.num_states, data.num_actions)
        self.data, self.model = data, replace(model, reward=day[..., 0], cost=day[..., 1:])
        self.coords: Coordinates = critic_coordinates(data.campaign, np.asarray(data.outcome), steady=True)
        self.numbers: Iterator[int] = count()

    def __call__(self, multiplier: NDArray[np.float64]) -> list[CandidatePolicy]:
        """The best response."""
        states = self.data.states
        assert states is not None
        best = respond(self.model, self.coords, states.allowed, multiplier)
        share = np.full(len(states), 1 / len(states))
        sizes = self.data.schema.sizes
        network = table_network(self.model, states, share, sizes, multiplier[None], best[None], self.coords)
        return [
            CandidatePolicy("best", network, multiplier, self.coords.weights(multiplier), number=next(self.numbers))
        ]

    @property
    def optimum(self) -> float:
        """The most that any policy of the model has within the limits."""
        return constrained_optimum(self.model, self.coords.limits).value


@pytest.fixture(scope="module")
def two_limits(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Transitions:
    folder = tmp_path_factory.mktemp("two")
    path = habit.changed(folder, ("\n[train]", SECOND + "\n[train]\naction_degree = 0"))
    return outlay.prepare(path, folder / "data")


@pytest.fixture
def _no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits as they are: no margin for a certificate."""
    monkeypatch.setattr(choose, "margins", lambda errors, *_, **__: 0 * errors)


def generated(data: Transitions, folder: Path, learner: Counted) -> tuple[RunContext, Generated]:
    context = RunContext(data, data.campaign, learner.coords.scale, ("reward", "coupon_cost", "large"), None, 0, folder)
    kept, at = measure(context, [policy for price in COARSE for policy in learner(np.array(price))])
    return context, generate(context, kept, at, learner)


@pytest.mark.usefixtures("_no_room")
def test_a_coarse_grid_leaves_a_gap_that_column_generation_closes(
    two_limits: Transitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Best responses of the very model that measures: the optimum is reached, and the gap proves it."""
    learner = Counted(two_limits, SELECT)
    monkeypatch.setattr(column_generation, "ROUNDS", 0)
    _, coarse = generated(two_limits, tmp_path, learner)
    assert coarse.gap is not None
    missed = learner.optimum - coarse.gap.objective
    assert coarse.gap.added == 0
    assert 0 < missed <= coarse.gap.value + 1e-6  # a bound of what is missed
    assert missed > 0.002

    monkeypatch.setattr(column_generation, "ROUNDS", 50)
    context, found = generated(two_limits, tmp_path, learner)
    assert found.gap is not None
    assert found.gap.added > 1
    assert found.gap.value < 1e-6
    assert found.gap.objective == pytest.approx(learner.optimum, abs=1e-6)
    served = choose_among(context, found.kept, found.at, len(found.kept))
    assert served.weights @ [k.coordinates[0] for k in served.members] == pytest.approx(learner.optimum, abs=1e-6)
    assert (served.weights @ [k.coordinates[1:] for k in served.members] <= learner.coords.limits + 1e-6).all()
    assert len(found.at.served.members) == len(found.kept)
    for i, kept in enumerate(found.kept[-2:], start=len(found.kept) - 2):  # the bundle does what was measured
        again = found.at.evaluator(i).fit(found.at.actions(i))
        assert again.value == pytest.approx(kept.fitted.value)


@pytest.mark.slow
def test_columns_come_where_the_pool_alone_cannot_keep_the_limits(two_limits: Transitions, tmp_path: Path) -> None:
    """Only what reward alone asks for was learned: λ of the proof finds the cheap ones."""
    learner = Counted(two_limits, LEARN)
    heads = ("reward", "coupon_cost", "large")
    context = RunContext(two_limits, two_limits.campaign, learner.coords.scale, heads, None, 0, tmp_path)
    greedy = learner(np.zeros(2))[0]
    kept, at = measure(context, [replace(greedy, multiplier=np.array([5.0, 5.0]))])
    assert (kept[0].coordinates[1:] > learner.coords.limits).any()
    found = generate(context, kept, at, learner)
    assert found.gap is not None
    assert found.gap.added >= 1


@pytest.mark.slow
def test_a_counted_training_has_all_the_corners_of_one_limit(habit: Habit, tmp_path: Path) -> None:
    run = outlay.train(habit.data, tmp_path / "run", oracle="tabular", folds=2)
    gap = run.manifest["gap"]
    assert gap["value"] <= 2 * gap["std_error"]
    assert gap["value"] < 0.005 * gap["objective"]
    assert 0 < gap["std_error"] < 0.03 * gap["objective"]
    (note,) = [note for note in run.manifest["notes"] if note.startswith("Gap: ")]
    assert not missing(note, "counted model", "exact", "not in this figure")
    results = RunResults.read(run)
    assert note in findings.notes(results)
    assert findings.settings(results)["run"]["gap_value"] == gap["value"]


@pytest.mark.slow
def test_several_limits_on_rich_states_are_spent_but_for_their_margins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two totals per user; no state is met twice, and the network answers λ between the points of a coarse grid."""
    monkeypatch.setitem(multipliers.POINTS, 2, 3)
    monkeypatch.setitem(multipliers.AROUND, 2, (0.0, 1.0))
    path = outlay.simulate("city", tmp_path / "log", users=2500, seed=2)
    text = path.read_text().replace("at_most = 0.8 ", "at_most = 4.5 ").replace('per = "decision"', 'per = "user"')
    path.write_text(f"{text}\n{PER_USER}\n{SMALL}")
    data = outlay.prepare(path, tmp_path / "data")
    learned = every_budget.learn(data, data.campaign, "orthogonal", 0, tmp_path, False, silent)
    assert learned.teacher == "orthogonal"
    assert isinstance(learned.figures, every_budget.FrontierFigures)
    chosen, gap = learned.chosen, learned.figures.gap
    assert gap is not None
    spent = chosen.weights @ np.array([kept.coordinates[1:] for kept in chosen.members])
    binding = np.array(gap.multiplier) > 0
    assert binding.any()
    assert (spent + chosen.margin)[binding] == pytest.approx(np.array([4.5, 3.0])[binding], rel=2e-3)
    assert (spent + chosen.margin <= np.array([4.5, 3.0]) * (1 + 2e-3)).all()
    assert (
        gap.objective <= chosen.weights @ [kept.objective for kept in chosen.members] + 1e-6
    )  # constants may take part
    assert len(chosen.measured) == 9 + gap.added


def test_the_gap_of_folds_is_the_mean_and_their_errors_are_of_different_users() -> None:
    one, other = Gap(0.02, 0.03, 0.5, (0.1,), 2), Gap(0.0, 0.04, 0.7, (0.3,), 0)
    both = pooled([one, other], np.array([0.5, 0.5]))
    assert both.value == pytest.approx(0.01)
    assert both.std_error == pytest.approx(0.025)
    assert both.objective == pytest.approx(0.6)
    assert both.multiplier == pytest.approx((0.2,))
    assert both.added == 2


def test_the_gap_in_words(habit_data: Transitions) -> None:
    campaign: Campaign = habit_data.campaign
    said = gap_words(Gap(0.0021, 0.001, 0.7, (0.03,), 1), campaign, "this critic")
    assert said.startswith("Gap: ")
    assert not missing(said, "this critic", "0.0021 ± 0.002", "active days per decision", "0.3% ± 0.3%", "select users")
    assert not missing(said, "1 policy", "not in this figure")
