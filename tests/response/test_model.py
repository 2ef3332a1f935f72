"""Response models learn what is true, from whom they may, and answer the same however they are asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.cmdp import TabularCMDP
from outlay.core.errors import LogError, OutlayError
from outlay.core.looking_back import with_lags
from outlay.core.transitions import Transitions
from outlay.response import answers, model
from outlay.response.labels import k_day_labels
from outlay.response.model import Kind, fit
from small_logs import campaign, draw, random_cmdp, transitions

KINDS: tuple[Kind, ...] = ("deepfm", "din")
SLOW = pytest.mark.slow
TRAIN = {"layers": [16, 8], "embedding": 4, "batch": 128, "epochs": 1, "min_steps": 300, "learning_rate": 1e-2}


def log(users: int = 300, *, days: int = 6, seed: int = 0, **roles: Any) -> tuple[TabularCMDP, Transitions]:
    model = random_cmdp(3)
    return model, draw(model, users, days, seed, about=campaign(0.8, train=TRAIN), **roles)


def with_past(kind: Kind, data: Transitions) -> Transitions:
    return with_lags(data, 3) if kind == "din" else data


def truth(model: TabularCMDP, days: int) -> NDArray[np.float64]:
    """`[S, K, 1+2m]`: the incentive today, uniform ones after it, and the costs of today."""
    free = np.zeros((model.num_states, model.outcome.shape[2]))
    total = model.outcome
    for _ in range(days - 1):
        free = total.mean(axis=1)
        total = model.outcome + model.transition @ free
    return total if days == 1 else np.concatenate([total, model.cost], axis=2)


@pytest.mark.parametrize(
    ("kind", "days"), [("deepfm", 1), pytest.param("deepfm", 3, marks=SLOW), pytest.param("din", 3, marks=SLOW)]
)
def test_predictions_are_the_true_totals(kind: Kind, days: int) -> None:
    """2,000 users: the mean of a pair's three-day totals has a standard error near 0.01."""
    model, data = log(2000)
    rows, label = k_day_labels(data, days)
    longer = data.campaign.train.model_copy(update={"min_steps": 1500})
    found = fit(with_past(kind, data), rows, label, response=kind, train=longer)
    assert data.state is not None
    wanted = truth(model, days)[data.state[rows]]
    off = found.predict(with_past(kind, data), rows) - wanted
    assert np.sqrt(np.square(off).mean((0, 1))).max() < (0.01 if days == 1 else 0.05)
    assert np.ptp(wanted, axis=1).min() > 0.3  # what incentives change is far above that
    assert off[:, :, 1].std() < 0.1 * label[:, 1].std()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_binary_label_is_predicted_as_a_chance(kind: Kind) -> None:
    """Chances from 0.02 to 0.5; of 1,500 rows of a pair the least has some 30 with a 1."""
    chance = np.array([[0.02, 0.07], [0.2, 0.5]])
    rng, users, days = np.random.default_rng(0), 1000, 6
    n = users * days
    state, action = rng.integers(0, 2, n), rng.integers(0, 2, n)
    bought = (rng.random(n) < chance[state, action]).astype(float)
    data = transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=state,
        action=action,
        outcome=np.column_stack([bought, 3 * action * bought]),
        num_states=2,
        num_actions=2,
        about=campaign(0.8, train=TRAIN),
        split=np.zeros(users),
    )
    rows, label = k_day_labels(data, 1)
    data = with_past(kind, data)
    found = fit(data, rows, label, response=kind)
    assert found.binary == (True, False)
    told = found.predict(data, rows)[:, :, 0]
    assert told.min() > 0
    by_state = np.array([told[state[rows] == s].mean(axis=0) for s in (0, 1)])
    seen = np.array([[label[(state[rows] == s) & (action[rows] == a), 0].mean() for a in (0, 1)] for s in (0, 1)])
    np.testing.assert_allclose(by_state, seen, rtol=0.3)
    if kind == "deepfm":  # what is binary is found before there is a network
        short = data.campaign.train.model_copy(update={"min_steps": 1, "batch": 32})
        longer = fit(data, *k_day_labels(data, 3), response=kind, train=short)
        assert longer.binary == (False, False, False), "three days hold more than one"


def persistent(users: int, days: int = 6) -> Transitions:
    """Active today as yesterday, nine times of ten; no state tells it. The cost follows the action."""
    rng = np.random.default_rng(0)
    stays = rng.random((users, days)) < 0.9
    active = (rng.random(users) < 0.5)[:, None] ^ (np.cumsum(~stays, axis=1) % 2 == 1)
    n = users * days
    action = rng.integers(0, 2, n)
    return transitions(
        user=np.repeat(np.arange(users), days),
        day=np.tile(np.arange(days), users),
        state=np.zeros(n),
        action=action,
        outcome=np.column_stack([active.ravel(), 3 * action]),
        num_states=2,  # of which one occurs; as in the log of chances, so that one program learns from both
        num_actions=2,
        about=campaign(0.8, train=TRAIN),
        split=np.zeros(users),
    )


@pytest.mark.slow
def test_history_tells_what_the_state_does_not() -> None:
    """Variance of today 0.25; given yesterday 0.09. On first days there is no yesterday."""
    data = persistent(1500)
    rows, label = k_day_labels(data, 1)
    later, here = data.day[rows] > 0, data.user[rows] % 2 == 0  # the others are learned from
    error = {}
    for kind in KINDS:
        model = fit(with_past(kind, data), rows[~here], label[~here], response=kind)
        off = model.predict(with_past(kind, data), rows[here], logged=True) - label[here]
        error[kind] = [np.square(off[part, 0]).mean() for part in (later[here], ~later[here])]
    assert error["deepfm"][0] == pytest.approx(0.25, abs=0.01)
    assert error["din"][0] == pytest.approx(0.09, abs=0.01)
    assert error["din"][1] == pytest.approx(0.25, abs=0.01)


@pytest.fixture(scope="module", params=KINDS)
def learned(request: pytest.FixtureRequest) -> tuple[Transitions, Any]:
    data = with_past(request.param, log()[1])
    rows, label = k_day_labels(data, 3)
    return data, fit(data, rows, label, response=request.param)


def test_the_answer_for_the_logged_incentive_is_one_of_all(learned: Any) -> None:
    data, found = learned
    rows = np.random.default_rng(0).permutation(len(data))[:500]
    every = found.predict(data, rows)
    assert every.shape == (500, 3, 3)
    np.testing.assert_allclose(
        found.predict(data, rows, logged=True), every[np.arange(500), data.action[rows]], rtol=1e-5, atol=1e-5
    )


def test_blocks_and_company_do_not_matter(learned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's answer is the same in blocks of a few, in another order and alone."""
    data, found = learned
    data = replace(data, state=None, states=None)
    rows = np.random.default_rng(0).permutation(len(data))[:200]
    every = found.predict(data, rows)
    np.testing.assert_allclose(found.predict(data, rows[:1]), every[:1], rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(answers, "BLOCK_BYTES", 1 << 17)
    np.testing.assert_allclose(found.predict(data, rows[::-1]), every[::-1], rtol=1e-5, atol=1e-5)
    assert found.predict(data, rows[:0]).shape == (0, 3, 3)


def test_distinct_states_give_what_rows_give(learned: Any) -> None:
    data, found = learned
    rows = np.arange(300)
    for logged in (False, True):
        np.testing.assert_allclose(
            found.predict(data, rows, logged=logged),
            found.predict(replace(data, state=None, states=None), rows, logged=logged),
            rtol=1e-5,
            atol=1e-5,
        )


def leaves(found: answers.Response) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found.network)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_a_function_of_the_seed(kind: Kind) -> None:
    data = with_past(kind, log()[1])
    rows, label = k_day_labels(data, 1)
    one, again, other = (leaves(fit(data, rows, label, response=kind, seed=s)) for s in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_progress_tells_the_share_done() -> None:
    _, data = log()
    rows, label = k_day_labels(data, 1)
    seen: list[tuple[float, str]] = []
    fit(data, rows, label, progress=lambda share, text: seen.append((share, text)))
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert shares[0] == pytest.approx(1 / 3)
    assert seen[0][1] == "100 of 300 steps"


def test_wide_rows_come_in_smaller_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches are the same, so the model is."""
    _, data = log()
    rows, label = k_day_labels(data, 1)
    whole = fit(data, rows, label).predict(data, rows)
    monkeypatch.setattr(model, "BLOCK_BYTES", 128 * 4 * 8 * 50)
    shares: list[float] = []
    parts = fit(data, rows, label, progress=lambda share, _: shares.append(share)).predict(data, rows)
    assert len(shares) == 6
    np.testing.assert_allclose(parts, whole, atol=1e-3)


def test_a_constant_label_is_learned_as_such() -> None:
    _, data = log()
    rows, label = k_day_labels(data, 1)
    label[:, 1] = 3.5
    np.testing.assert_allclose(fit(data, rows, label).predict(data, rows)[..., 1], 3.5, atol=1e-3)


def test_wrong_settings_are_errors() -> None:
    _, data = log(20)
    rows, label = k_day_labels(data, 1)
    wrong: Any = "mlp"
    with pytest.raises(OutlayError, match=r"response: is 'mlp'\. .*deepfm, din"):
        fit(data, rows, label, response=wrong)
    with pytest.raises(OutlayError, match=r"log\.history\.summaries: .*past days"):
        fit(data, rows, label, response="din")
    with pytest.raises(LogError, match="no row has a label"):
        fit(data, rows[:0], label[:0])
