"""Methods after learning: rules that look on at one game, frontiers, and what each of them stores."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outlay.comparing.contenders import COMPARED_RULES, Contender, Learning, PlannedTraining, RuleGroup, planned
from outlay.comparing.results import RE_SOLVED
from outlay.core.arrays import read_network
from outlay.core.campaign import Labels
from outlay.core.progress import silent
from outlay.core.transitions import Transitions
from outlay.learning.game import SPARES
from outlay.learning.mixing import RULES, lp
from outlay.learning.mixing.rule import constraints
from telling import missing

SHORT: dict[str, Any] = {"min_steps": 1500, "epochs": 0.1}


def training(name: str) -> PlannedTraining:
    """Of all that a comparison may plan."""
    every = planned(("ddqn", "bcq"), ("deepfm",), (1,), counted=True, wanted=None)
    return next(one for one in every if one.name == name)


@pytest.fixture(scope="module")
def everyone(habit_data: Transitions, tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Contender]:
    campaign = habit_data.campaign.with_train(**SHORT)
    learning = Learning(habit_data, campaign, 0, tmp_path_factory.mktemp("contenders"))
    return {one.row.rule: one for one in learning.rules(training("game-ddqn-0"), silent)}


@pytest.fixture
def contenders(everyone: dict[str, Contender]) -> dict[str, Contender]:
    """The rules with the weights that they found."""
    return {rule: one for rule, one in everyone.items() if not rule.endswith(RE_SOLVED)}


def test_every_rule_keeps_its_own_weights_and_stands_beside_the_re_solved_ones(
    everyone: dict[str, Contender], contenders: dict[str, Contender]
) -> None:
    """Solved by one linear program, single-best would be aim-greedy, and aim-mean lp."""
    assert tuple(everyone) == tuple(f"{rule}{which}" for rule in COMPARED_RULES for which in ("", RE_SOLVED))
    for rule, one in contenders.items():
        assert one.bundle is one.learned, "what it serves is what it found"
        assert one.row.refused is None
        assert one.row.stored_parameters == one.course[-1][1], "one source for the table and the figure"
        other = everyone[f"{rule}{RE_SOLVED}"]
        assert other.row.name == f"{one.row.name}, re-solved"
        assert (other.learned, other.course, other.original) == (None, [], [])
        assert (other.bundle is None) == (other.row.refused is not None)
    assert contenders["single-best"].bundle is not None
    assert len(contenders["single-best"].bundle.members) == 1


def test_a_row_alone_is_what_it_is_among_others(
    habit_data: Transitions, everyone: dict[str, Contender], tmp_path: Path
) -> None:
    """The candidate with the most room stands in reserve, though no rule that looks on holds it."""
    game, learning = training("game-ddqn-0"), Learning(habit_data, habit_data.campaign.with_train(**SHORT), 0, tmp_path)
    rows = [row for row in game.rows if row.re_solved and row.mixing == "single-best"]
    (one,) = learning.rules(replace(game, rows=tuple(rows)), silent)
    other = everyone[f"single-best{RE_SOLVED}"]
    assert one.row.rule == f"single-best{RE_SOLVED}"
    assert replace(one.row, seconds=None) == replace(other.row, seconds=None)
    assert one.bundle is not None
    assert other.bundle is not None
    assert one.bundle.weights.tolist() == other.bundle.weights.tolist()
    assert [member.multiplier for member in one.bundle.manifest.members] == [
        member.multiplier for member in other.bundle.manifest.members
    ]


def test_every_rule_is_shown_the_same_game(contenders: dict[str, Contender]) -> None:
    assert tuple(contenders) == COMPARED_RULES
    assert [one.row.name for one in contenders.values()] == [f"DDQN, {rule}" for rule in COMPARED_RULES]
    first, *others = contenders.values()
    steps = [step for step, _ in first.original]
    assert len(steps) > 5
    for one in (first, *others):
        assert one.original == first.original
        assert [step for step, _ in one.course] == steps[-len(first.course) :], "from when candidates count"
        assert (one.row.seconds or 0) > 0


def test_a_rule_stores_no_more_than_it_promises(contenders: dict[str, Contender]) -> None:
    """One policy, m + 2, or m + 1 and the spares; the original method keeps every candidate. m is 1."""
    size = contenders["single-best"].original[0][1]
    most = {"single-best": 1, "aim-mean": 3, "aim-greedy": 3, "lp": 2 + SPARES}
    for rule, one in contenders.items():
        stored = [parameters / size for _, parameters in one.course]
        assert all(count == int(count) for count in stored)
        assert stored[0] == 1
        assert max(stored) <= most[rule]
        assert (one.row.stored_parameters or 0.5) % size == 0
    assert [parameters // size for _, parameters in contenders["lp"].original] == list(
        range(1, 1 + len(contenders["lp"].original))
    )
    assert max(parameters for _, parameters in contenders["lp"].course) > 2 * size


def test_a_bisection_serves_one_policy_and_refuses_several_limits(habit_data: Transitions, tmp_path: Path) -> None:
    campaign = habit_data.campaign.with_train(min_steps=1200, epochs=0.1)
    one = Learning(habit_data, campaign, 0, tmp_path).bisection(training("bisection-ddqn-0"), silent)
    assert (one.row.name, one.row.rule, one.row.refused) == ("DDQN, bisection", "bisection", None)
    assert one.bundle is not None
    assert one.learned is one.bundle
    assert len(one.bundle.members) == 1
    assert [parameters for _, parameters in one.course] == [one.row.stored_parameters] * 2
    two = campaign.model_copy(update={"budgets": campaign.budgets * 2})
    refused = Learning(habit_data, two, 0, tmp_path).bisection(training("bisection-ddqn-0"), silent)
    assert refused.bundle is None
    assert "2 budgets" in str(refused.row.refused)


def test_what_was_learned_is_the_rules_own_mixture(contenders: dict[str, Contender]) -> None:
    for rule, one in contenders.items():
        assert one.learned is not None
        assert one.learned.weights.sum() == pytest.approx(1)
        assert len(one.learned.members) <= {"single-best": 1, "lp": 2}.get(rule, 3)


def test_rules_looking_on_end_where_they_would_alone() -> None:
    rules, on = RuleGroup(COMPARED_RULES), constraints(np.array([0.5]), np.array([1.0]), spares=SPARES)
    points = np.random.default_rng(0).random((30, 2))
    together = rules.init(on)
    alone = {name: RULES[name].init(on) for name in COMPARED_RULES}
    for number, point in enumerate(points):
        together = rules.step(together, number, point)
        alone = {name: RULES[name].step(state, number, point) for name, state in alone.items()}
        stored = {number for name, state in alone.items() for number in RULES[name].members(state)}
        assert set(rules.mixture(together).members) == stored
    for name, state in together.items():
        assert RULES[name].mixture(state).members == RULES[name].mixture(alone[name]).members
    assert together["lp"].constraints.spares == SPARES
    assert len(lp.members(together["lp"])) > len(lp.mixture(together["lp"]).members)


def test_a_limit_that_nothing_keeps_is_told_with_the_contender(habit_data: Transitions, tmp_path: Path) -> None:
    strict = habit_data.campaign.budgets[0].model_copy(update={"at_most": 0.01})
    campaign = habit_data.campaign.with_train(min_steps=50, epochs=0.01).model_copy(update={"budgets": (strict,)})
    learning = Learning(habit_data, campaign, 0, tmp_path)
    fitted = learning.response("deepfm", 1, silent)
    found = learning.priced(training("response-deepfm-1"), fitted)
    assert found.bundle is None
    assert found.row.refused is not None
    assert "keeps the limits" in found.row.refused
    assert found.row.stored_parameters == fitted.model.num_parameters
    assert found.learned is not None
    assert found.learned.members


@pytest.mark.slow
@pytest.mark.parametrize(("oracle", "name"), [("bcq", "frontier, bcq"), ("tabular", "frontier, counted")])
def test_a_frontier_serves_one_network_for_the_campaigns_limits(
    oracle: str, name: str, habit_data: Transitions, tmp_path: Path
) -> None:
    campaign = habit_data.campaign.with_train(min_steps=500, epochs=0.1)
    said: list[str] = []
    learning = Learning(habit_data, campaign, 0, tmp_path)
    one = learning.frontier(training(f"frontier-{oracle}-0"), lambda _, text: said.append(text))
    assert (one.row.name, one.row.oracle, one.row.rule, one.row.label_days) == (name, oracle, "frontier", None)
    assert one.bundle is not None
    assert one.learned is one.bundle
    assert one.bundle.folder == tmp_path / "served"
    assert 1 <= len(one.bundle.members) <= 2  # m + 1
    assert len({id(member.session) for member in one.bundle.members}) == 1
    network, written = train_frontier_network(tmp_path), one.bundle.manifest.members[0].parameters
    assert one.row.stored_parameters == written
    assert written < network
    steps = 500 if oracle == "bcq" else 0
    assert one.course == ([(0, written), (steps, written)] if steps else [])
    assert one.original == []
    assert (one.row.seconds or 0) > 0
    assert said
    assert all(text.startswith(f"{name}: ") for text in said)


def train_frontier_network(folder: Path) -> int:
    """Parameters of the network that answers every λ."""
    return read_network(folder / "frontier" / "network-0.npz").num_parameters


def test_a_frontier_that_cannot_keep_the_limit_is_refused(habit_data: Transitions, tmp_path: Path) -> None:
    strict = habit_data.campaign.budgets[0].model_copy(update={"at_most": 0.01})
    campaign = habit_data.campaign.model_copy(update={"budgets": (strict,)})
    one = Learning(habit_data, campaign, 0, tmp_path).frontier(training("frontier-tabular-0"), silent)
    assert (one.bundle, one.learned, one.row.rule) == (None, None, "frontier")
    assert one.row.refused is not None
    assert not missing(one.row.refused, "no policy", "limit")
    assert re.search(r"\b0\.5\d*", one.row.refused), "the least that a policy reaches"


def test_a_frontier_of_too_many_limits_is_refused(habit_data: Transitions, tmp_path: Path) -> None:
    budget = habit_data.campaign.budgets[0]
    many = tuple(budget.model_copy(update={"name": f"cost_{i}", "money": i == 0}) for i in range(4))
    campaign = habit_data.campaign.model_copy(update={"budgets": many, "labels": Labels()})
    one = Learning(habit_data, campaign, 0, tmp_path).frontier(training("frontier-bcq-0"), silent)
    assert one.row.refused is not None
    assert "4 budgets" in one.row.refused
