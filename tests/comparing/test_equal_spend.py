"""Two controls, one ruler: every method costs the same on day one, and its truth stands beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.choosing.measure import Measure
from outlay.comparing import true_values as exact
from outlay.comparing.contenders import Contender, Learning, PlannedTraining
from outlay.comparing.equal_spend import MethodEvaluator, Score, day_costs
from outlay.comparing.results import MethodRow
from outlay.comparing.true_values import TabularValues, true_values
from outlay.core.progress import silent
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.fitted import Fitted
from outlay.response.model import Kind

MOST = 1.4  # yuan on day one


@dataclass(frozen=True)
class Watching(Measure):
    """Notes the policies that it is asked about."""

    asked: list[NDArray[np.integer]] = field(default_factory=list)

    def policy(self, actions: NDArray[np.integer]) -> Fitted:
        """As measured, and noted."""
        self.asked.append(actions)
        return super().policy(actions)


@dataclass(frozen=True)
class Learned:
    """Two response models, and the costs of the day that both are held to."""

    deepfm: Contender
    din: Contender
    costs: Score


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "USER_DAYS", 20_000)


def watching(judge: MethodEvaluator, contender: Contender) -> Watching:
    return Watching(judge.data, CERTIFY, contender.bundle or values(contender))


def values(contender: Contender) -> Bundle:
    assert contender.learned is not None
    return contender.learned


@pytest.fixture(scope="module")
def learned(habit_data: Transitions, tmp_path_factory: pytest.TempPathFactory) -> Learned:
    campaign = habit_data.campaign.with_train(min_steps=1000, epochs=0.1)
    folder = tmp_path_factory.mktemp("learned")

    def learn(kind: Kind) -> Contender:
        learning = Learning(habit_data, campaign, 0, folder / kind)
        training = PlannedTraining("response", kind, 1, (MethodRow(kind, "two-stage", ""),))
        return learning.priced(training, learning.response(kind, 1, silent))

    deepfm = learn("deepfm")
    return Learned(deepfm, learn("din"), day_costs(values(deepfm), 0))


@pytest.fixture(scope="module")
def judge(habit_data: Transitions) -> MethodEvaluator:
    return MethodEvaluator(habit_data, habit_data.campaign, true_values(habit_data.campaign, habit_data))


@pytest.mark.parametrize("kind", ["deepfm", "din"])
def test_day_one_costs_what_it_may_in_truth_too(kind: str, judge: MethodEvaluator, learned: Learned) -> None:
    """That of DIN is simulated; both lie as near to their target as the model of the costs is right."""
    contender = getattr(learned, kind)
    history = values(contender).history
    assert (0 if history is None else len(history.lags)) == {"deepfm": 0, "din": 7}[kind]
    at = watching(judge, contender)
    judged = judge.immediate(at, values(contender), learned.costs, MOST)
    assert judged is not None
    assert judged.truth is not None
    assert judged.truth["coupon_cost@1"] == pytest.approx(MOST, rel=0.1)
    assert set(judged.truth) >= {"reward", "coupon_cost", "reward@1", "reward@3", "reward@7", "coupon_cost@7"}
    assert len(at.asked) == 2  # the two neighbouring prices


def test_what_is_served_has_a_truth_though_it_looks_back(judge: MethodEvaluator, learned: Learned) -> None:
    for contender in (learned.deepfm, learned.din):
        assert contender.bundle is not None
        judged = judge.served(Measure(judge.data, CERTIFY, contender.bundle))
        assert judged.truth is not None
        assert 0.5 < judged.truth["reward"] < 0.9
        assert judged.truth["coupon_cost"] <= 1.1 * judge.campaign.budgets[0].limit


def test_without_a_limit_that_binds_one_policy_is_measured_once(judge: MethodEvaluator, learned: Learned) -> None:
    at = watching(judge, learned.deepfm)
    judged = judge.immediate(at, values(learned.deepfm), learned.costs, 1e9)
    assert judged is not None
    assert judged.truth is not None
    assert len(at.asked) == 1
    states = judge.data.states
    assert states is not None
    best = values(learned.deepfm).members[0].run(["q"], states.codes, states.numbers)[0][:, :, 0].argmax(axis=1)
    assert np.array_equal(at.asked[0], best[at.panel.state])


def test_a_frontier_is_priced_by_the_mean_of_what_its_members_own_of_the_network(
    judge: MethodEvaluator, learned: Learned, tmp_path: Path
) -> None:
    data = judge.data
    training = PlannedTraining("frontier", "tabular", 0, (MethodRow("frontier", "rl", ""),))
    one = Learning(data, data.campaign, 0, tmp_path).frontier(training, silent)
    mixture = values(one)
    assert len(mixture.members) == 2
    at = watching(judge, one)
    judged = judge.immediate(at, mixture, learned.costs, 1e9)
    assert judged is not None
    assert data.states is not None
    (q,) = mixture.members[0].run(["q"], data.states.codes, data.states.numbers)
    heads = q.shape[2] // 2
    rewards = [q[:, :, member.policy * heads] for member in mixture.members]
    assert not np.allclose(rewards[0], rewards[1])
    best = np.average(rewards, axis=0, weights=mixture.weights).argmax(axis=1)
    assert np.array_equal(at.asked[0], best[at.panel.state])
    assert judged.truth is not None
    served = judge.served(at)
    assert served.truth is not None
    assert served.truth["coupon_cost"] <= 1.1 * judge.campaign.budgets[0].limit


def test_a_limit_that_nothing_keeps_leaves_nothing_to_judge(judge: MethodEvaluator, learned: Learned) -> None:
    at = watching(judge, learned.deepfm)
    assert judge.immediate(at, values(learned.deepfm), learned.costs, 1e-3) is None
    assert at.asked == []


def test_where_the_truth_does_not_fit_none_is_told(judge: MethodEvaluator, learned: Learned) -> None:
    """Not for states that the log does not show, nor for pasts whose days nobody can draw."""
    known = judge.known
    assert isinstance(known, TabularValues)
    elsewhere = replace(judge, known=TabularValues(replace(known.truth, codes=known.truth.codes + 100), known.data))
    no_people = replace(judge, known=TabularValues(replace(known.truth, people=None), known.data))
    deepfm, din = learned.deepfm.bundle, learned.din.bundle
    assert deepfm is not None
    assert din is not None
    at, looking_back = (Measure(judge.data, CERTIFY, bundle) for bundle in (deepfm, din))
    assert elsewhere.served(at).truth is None
    assert replace(judge, known=None).served(at).truth is None
    assert no_people.served(looking_back).truth is None
    assert no_people.served(at).truth == judge.served(at).truth


def test_contenders_leave_their_bundles_where_they_are_told(learned: Learned) -> None:
    assert learned.din.bundle is not None
    assert Path(learned.din.bundle.folder).parent.name == "din"
