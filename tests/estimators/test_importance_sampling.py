from __future__ import annotations

import numpy as np
import pytest
from logs_in_memory import World, ragged, transitions
from numpy.typing import NDArray

from outlay.core.errors import LogError
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.importance import Kind, weigh
from outlay.estimators.joint import combine
from outlay.estimators.observed import observe
from outlay.estimators.panel import Panel
from outlay.ops import tabular
from outlay.ops.intervals import std_error

KINDS: tuple[Kind, ...] = ("plain", "self-normalised")


def two_days(first: int, second: int, reward: tuple[float, float], prob: tuple[float, float]) -> Transitions:
    return transitions(
        user=[0, 0],
        day=[0, 1],
        state=[0, 0],
        action=[first, second],
        num_states=1,
        num_actions=2,
        outcome=[[reward[0], 0], [reward[1], 0]],
        propensity=prob,
    )


def test_without_clipping_it_is_unbiased_over_all_logs_of_two_actions_and_two_days() -> None:
    """100 users hold every path as often as its probability says, so the mean is the expectation: the policy's value.

    Action 1 has probability 0.3 on day 0 and 0.6 on day 1; rewards 1 + action, on day 1 tripled after action 1. The
    policy (1, 0) is worth 2 + 3·1 = 5.
    """
    paths = [(0, 0)] * 28 + [(0, 1)] * 42 + [(1, 0)] * 12 + [(1, 1)] * 18
    first, second = np.array(paths).T
    reward = np.column_stack([1 + first, (1 + second) * np.where(first == 1, 3, 1)]).ravel()
    prob = np.column_stack([np.where(first, 0.3, 0.7), np.where(second, 0.6, 0.4)]).ravel()
    data = transitions(
        user=np.repeat(np.arange(100), 2),
        day=np.tile([0, 1], 100),
        state=np.zeros(200),
        num_states=1,
        action=np.array(paths).ravel(),
        num_actions=2,
        outcome=np.column_stack([reward, 2 * reward]),
        propensity=prob,
    )
    panel = Panel.of(data, CERTIFY)
    for kind in KINDS:
        got = weigh(panel, np.tile([1, 0], 100), days=(2,), kind=kind, clip=1e9)
        assert got.value == pytest.approx([5.0, 10.0], rel=1e-6)
        assert got.matched[0] == pytest.approx(0.12)


def test_it_covers_the_true_total_and_agrees_with_the_self_normalised_one() -> None:
    world, policy = World.drawn(5), np.array([1, 0, 1])
    truth = tabular.totals(world.cmdp, policy, 2)[1, 0]
    hits = dict.fromkeys(KINDS, 0)
    for seed in range(160):
        panel = Panel.of(world.log(400, 3, np.random.default_rng([seed, 1])), CERTIFY)
        for kind in KINDS:
            got = weigh(panel, policy[np.asarray(panel.state)], days=(2,), kind=kind, clip=1e9)
            hits[kind] += abs(got.value[0] - truth) <= 1.96 * got.std_error[0]
    assert 0.91 <= hits["plain"] / 160 <= 0.985
    assert 0.91 <= hits["self-normalised"] / 160 <= 0.985


def longhand(panel: Panel, target: NDArray[np.intp], days: int, clip: float) -> float:
    assert panel.propensity is not None
    totals = []
    for u in range(panel.num_users):
        if panel.window[u] < days:
            continue
        row, weight, total = int(panel.first[u]), 1.0, 0.0
        while row >= 0 and panel.day[row] < days:
            if not panel.forced[row]:
                weight *= (panel.action[row] == target[row]) / panel.propensity[row]
            total += min(weight, clip) * panel.outcome[row, 0]
            row = int(panel.following[row])
        totals.append(total)
    return float(np.mean(totals))


def test_gaps_forced_and_terminal_rows_agree_with_a_walk_along_each_path() -> None:
    panel = Panel.of(ragged(4, users=200), CERTIFY)
    target = np.random.default_rng(0).integers(2, size=len(panel))
    for clip in (3.0, 1e9):
        got = weigh(panel, target, days=(1, 4, 8), clip=clip)
        at = [got.column(f"reward@{k}") for k in (1, 4, 8)]
        assert got.value[at] == pytest.approx([longhand(panel, target, k, clip) for k in (1, 4, 8)])


def test_the_policy_of_the_log_has_weight_one_and_gives_the_observed_means() -> None:
    panel = Panel.of(ragged(6, users=100), CERTIFY)
    got, seen = weigh(panel, None, days=(1, 5)), observe(panel, days=(1, 5))
    assert got.value == pytest.approx(seen.value[:4])
    assert got.std_error == pytest.approx(seen.std_error[:4])
    assert got.ess == pytest.approx(np.full(4, 100))


def test_a_sticky_mixture_is_the_mean_of_its_members_per_user_not_of_their_actions() -> None:
    """Two constant members on a 2-day log: only whole paths match; a policy redrawn each day would match all four."""
    rng = np.random.default_rng(1)
    action = rng.integers(2, size=800)
    data = transitions(
        user=np.repeat(np.arange(400), 2),
        day=np.tile([0, 1], 400),
        state=np.zeros(800),
        action=action,
        outcome=np.column_stack([action, action]),
        num_states=1,
        num_actions=2,
        propensity=np.full(800, 0.5),
    )
    panel = Panel.of(data, CERTIFY)
    parts = [weigh(panel, np.full(800, a), days=(2,)) for a in (0, 1)]
    mixture = combine(parts, np.array([0.5, 0.5]))
    pairs = action.reshape(400, 2)
    assert mixture.matched[0] == pytest.approx((pairs[:, 0] == pairs[:, 1]).mean())
    assert mixture.value[0] == pytest.approx(np.mean(0.5 * (2 * pairs[:, 0] + 4 * pairs[:, 0] * pairs[:, 1])))
    assert mixture.std_error[0] == pytest.approx(std_error(0.5 * (2 * pairs[:, 0] + 4 * pairs.prod(axis=1))), rel=1e-9)


def test_where_the_clip_binds_the_estimate_is_too_low_and_never_recommended() -> None:
    world, policy = World.drawn(8, actions=4), np.zeros(3, np.intp)
    panel = Panel.of(world.log(20_000, 4, np.random.default_rng(3)), CERTIFY)
    target = policy[np.asarray(panel.state)]
    free, bound = weigh(panel, target, days=(1, 4), clip=1e9), weigh(panel, target, days=(1, 4))
    at = free.column("reward@4")
    assert bound.clipped[at] > 0
    assert bound.value[at] < free.value[at] - 2 * free.std_error[at]
    found = bound.estimates("member 0", "pdis", confidence=0.95, cautions=bound.cautions())
    rows = {e.target: e for e in found}
    assert not rows["reward@4"].recommended
    assert rows["reward@1"].recommended
    assert rows["reward@4"].value is not None
    assert rows["reward@4"].caution == Reason(ReasonKind.CLIPPED, {"share": bound.clipped[at]})


def test_a_number_nobody_can_carry_is_withheld_with_the_reason() -> None:
    panel = Panel.of(two_days(0, 0, (1, 1), (0.5, 0.5)), CERTIFY)
    assert weigh(panel, np.array([0, 1]), days=(2,)).withheld[0] == Reason(ReasonKind.NO_PATH_SO_LONG, {"days": 2})
    assert weigh(panel, np.array([0, 0]), days=(3,)).withheld[0] == Reason(ReasonKind.NOT_SHOWN, {"days": 3})
    silent = transitions(user=[0], day=[0], state=[0], action=[0], outcome=[[1, 1]], num_states=1, num_actions=2)
    assert weigh(Panel.of(silent, CERTIFY), np.array([0]), days=(1,)).withheld[0] == Reason(ReasonKind.NO_PROPENSITIES)
    given = weigh(Panel.of(silent, CERTIFY), np.array([0]), days=(1,), propensity=np.array([0.5]))
    assert given.value[0] == 2.0


def test_a_propensity_of_zero_or_nan_is_an_error_that_names_the_row() -> None:
    for wrong in (0.0, float("nan"), 1.5):
        panel = Panel.of(two_days(0, 0, (1, 1), (0.5, wrong)), CERTIFY)
        with pytest.raises(LogError, match="in row 1"):
            weigh(panel, np.array([0, 0]), days=(2,))
