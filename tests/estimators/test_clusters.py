"""Clusters: a log whose users are copied k times says no more than one of them, if the copies are one cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from logs_in_memory import World, campaign
from numpy.typing import NDArray
from one_mixture import certify

from outlay.core.transitions import CERTIFY, USERS, Transitions
from outlay.estimators import importance
from outlay.estimators.agreement import agree
from outlay.estimators.band import About, Band, MixtureFigures
from outlay.estimators.basis import CountedBasis
from outlay.estimators.certificate import Certificate
from outlay.estimators.clusters import Clusters, by_cluster
from outlay.estimators.doubly_robust import DoublyRobust
from outlay.estimators.fitted import Evaluator
from outlay.estimators.frontier import Points
from outlay.estimators.joint import Everyone, Joint, UserFold, pool
from outlay.estimators.marginalised import Marginalised
from outlay.estimators.observed import observe, reproduces
from outlay.estimators.panel import Panel
from outlay.estimators.reach import Reach, largest
from outlay.estimators.sequential import Sequential
from outlay.estimators.units import coordinates
from outlay.ops.intervals import MANY_CLUSTERS, Spread, degrees, student

COPIES = 4
POLICY = np.array([1, 0, 1])
ABOUT = campaign(0.8)
LOG = World.drawn(7).log(160, 5, np.random.default_rng(3))


def copied(data: Transitions, copies: int = COPIES, *, clustered: bool = True) -> Transitions:
    """The log with every user `copies` times, the copies of a user being one cluster."""
    rows, users = len(data), len(data.users)
    offset = np.repeat(np.arange(copies), rows)

    def again(column: NDArray[Any]) -> NDArray[Any]:
        whole: NDArray[Any] = np.concatenate([column] * copies)
        return whole

    people = np.concatenate([data.users] * copies).astype(USERS)
    for name in ("first_row", "start_row"):
        people[name] += np.repeat(np.arange(copies), users) * rows
    assert data.propensity is not None
    assert data.state is not None
    return replace(
        data,
        action=again(data.action),
        outcome=again(data.outcome),
        gap=again(data.gap),
        day=again(data.day),
        next_row=np.where(again(data.next_row) < 0, -1, again(data.next_row) + offset * rows),
        user=(again(data.user) + offset * users).astype(np.uint32),
        users=people,
        forced=again(data.forced),
        terminal=again(data.terminal),
        propensity=again(data.propensity),
        state=again(data.state),
        number_columns=again(data.number_columns),
        cluster=np.tile(np.arange(users), copies) if clustered else None,
    )


def basis(panel: Panel) -> CountedBasis:
    return CountedBasis(np.asarray(panel.state), 3, 2)


def actions(panel: Panel) -> NDArray[Any]:
    return np.asarray(POLICY[np.asarray(panel.state)])


def fitted(panel: Panel) -> Joint:
    return Evaluator(panel, basis(panel)).fit(actions(panel), days=[1, 3])


def robust(panel: Panel) -> Joint:
    return DoublyRobust(panel, basis(panel)).estimate(actions(panel), days=[1, 3])


def marginal(panel: Panel) -> Joint:
    return Marginalised(panel, basis(panel)).estimate(actions(panel), days=[1, 3])


def weighed(panel: Panel) -> Joint:
    return importance.weigh(panel, actions(panel), days=[1, 3])


def observed(panel: Panel) -> Joint:
    return observe(panel, days=[1, 3])


def steps(panel: Panel) -> Joint:
    assert panel.propensity is not None
    return DoublyRobust(panel, basis(panel)).single_steps(actions(panel), panel.propensity, days=[1, 3])


def day_by_day(panel: Panel) -> Joint:
    assert panel.propensity is not None
    features = np.eye(3, dtype=np.float32)[np.asarray(panel.state)][:, :2]
    return Sequential(panel, features, panel.propensity, 3).fit(actions(panel), days=[3])


ESTIMATES = [fitted, robust, marginal, weighed, observed, steps, day_by_day]
# The ridge, the leverage of a row and the fewest rows of a cell count rows, so copies change them a little.
CLOSE = {"fitted": 0.02, "steps": 0.02, "day_by_day": 0.05, "robust": 0.02, "marginal": 0.03}


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_copies_in_one_cluster_add_nothing_and_without_clusters_the_errors_are_too_small_by_root_k(
    estimate: Callable[[Panel], Joint],
) -> None:
    one, clustered, apart = (
        estimate(Panel.of(log, CERTIFY)) for log in (LOG, copied(LOG), copied(LOG, clustered=False))
    )
    known = one.std_error > 0
    assert known.sum() >= 3
    close = CLOSE.get(estimate.__name__, 1e-9)
    assert clustered.influence.shape == one.influence.shape
    assert clustered.std_error[known] == pytest.approx(one.std_error[known], rel=close)
    assert apart.std_error[known] * np.sqrt(COPIES) == pytest.approx(one.std_error[known], rel=close + 0.01)


def certificate(log: Transitions) -> Certificate:
    joint = fitted(Panel.of(log, CERTIFY))
    x, influence, limits = coordinates(joint, ABOUT)
    return certify(
        x,
        influence,
        limits,
        ["cost"],
        gain=float(x[0]),
        gain_influence=influence[:, 0],
        confidence=0.95,
        reach=largest(joint, ABOUT, replace(Reach.unknown(1), known=np.array([3.0]))),
        clusters=joint.clusters,
    )


def test_the_certificate_has_the_bounds_of_the_uncopied_log() -> None:
    one, clustered, apart = (certificate(log) for log in (LOG, copied(LOG), copied(LOG, clustered=False)))

    def room(found: Certificate) -> list[float]:
        (line,) = found.budgets
        assert line.bound is not None
        assert line.value is not None
        assert found.gain is not None
        assert found.gain_bound is not None
        return [line.bound - line.value, found.gain - found.gain_bound]

    assert room(clustered) == pytest.approx(room(one), rel=0.02)
    assert np.sqrt(COPIES) * np.array(room(apart)) == pytest.approx(room(one), rel=0.25)  # and a little for skewness
    assert (clustered.users, clustered.clusters) == (640, 160)
    assert (apart.users, apart.clusters) == (640, None)


def band(log: Transitions) -> Band:
    panel = Panel.of(log, CERTIFY)
    evaluator = Evaluator(panel, basis(panel))
    policies = [np.array(p)[np.asarray(panel.state)] for p in ((0, 0, 0), (1, 0, 1), (1, 1, 1))]
    points = Points.of([evaluator.fit(p) for p in policies] + [evaluator.fit()], ABOUT)
    return Band.of(MixtureFigures(points, None, (None,) * 3), About(), ABOUT, 0.95)


def test_the_band_has_the_errors_factor_and_bounds_of_the_uncopied_log() -> None:
    one, clustered, apart = (band(log) for log in (LOG, copied(LOG), copied(LOG, clustered=False)))
    error, same, small = (each.points.coordinates(ABOUT)[1] for each in (one, clustered, apart))
    assert same == pytest.approx(error, rel=0.02)
    assert small * np.sqrt(COPIES) == pytest.approx(error, rel=0.02)
    assert clustered.factor == pytest.approx(one.factor, rel=0.01)
    above, its = (each.points.spread(ABOUT).above(each.factor) for each in (one, clustered))
    assert its == pytest.approx(above, rel=0.03)
    assert (clustered.points.users, clustered.points.clusters) == (640, 160)
    both = clustered.points.mixed(np.array([[0.5, 0.5, 0, 0]]))
    assert both.independent == 160
    found = clustered.certificate(np.array([0.5, 0.5, 0.0]), ABOUT)
    assert (found.users, found.clusters) == (640, 160)


def test_agreement_tolerates_what_it_tolerates_on_the_uncopied_log() -> None:
    def compared(log: Transitions) -> dict[str, float]:
        panel = Panel.of(log, CERTIFY)
        other = robust(panel)
        found = agree(fitted(panel), {"dr": (other, [None] * len(other.targets))}, steps(panel))
        return {f"{each.estimator} {each.target}": each.std_error for each in found.differences}

    one, clustered, apart = (compared(log) for log in (LOG, copied(LOG), copied(LOG, clustered=False)))
    assert len(one) > 4
    assert clustered == pytest.approx(one, rel=0.05)
    assert {name: 2 * error for name, error in apart.items()} == pytest.approx(one, rel=0.05)


def test_with_few_clusters_every_multiple_of_an_error_is_students() -> None:
    assert student(1.959964, 9) == pytest.approx(2.262157, rel=1e-5)
    assert student(1.7, degrees(MANY_CLUSTERS)) == 1.7
    joint = fitted(Panel.of(copied(World.drawn(7).log(12, 5, np.random.default_rng(3))), CERTIFY))
    assert joint.freedom == 11
    (first, *_) = joint.estimates("mixture", "fqe", confidence=0.95)
    assert first.high is not None
    assert first.value is not None
    assert first.std_error is not None
    assert first.high - first.value == pytest.approx(student(1.959964, 11) * first.std_error, rel=1e-5)
    psi = np.random.default_rng(0).normal(size=40)
    few, alone = (Spread.of(psi, clustered=clustered).above(1.645) for clustered in (True, False))
    assert few > 1.015 * alone
    panel = Panel.of(copied(LOG), CERTIFY)
    assert reproduces(observed(panel), Evaluator(panel, basis(panel)).fit(days=[1, 3])).ok


def test_clusters_of_unequal_sizes_have_the_error_of_their_sums() -> None:
    rng = np.random.default_rng(1)
    index = np.repeat(np.arange(50), rng.integers(1, 20, 50))
    values = rng.normal(size=50)[index] + rng.normal(size=len(index))
    sums = np.bincount(index, values - values.mean())
    by_hand = np.sqrt(50 / 49 * np.square(sums).sum()) / len(index)
    psi = by_cluster(values, Clusters(index, 50))
    assert psi.std(ddof=1) / np.sqrt(50) == pytest.approx(by_hand, rel=1e-9)


def test_folds_of_clusters_stand_side_by_side() -> None:
    log = copied(LOG)
    whole = Clusters.among(log.cluster, np.arange(640))
    folds = [
        np.flatnonzero(np.isin(np.tile(np.arange(160), COPIES), half)) for half in (np.arange(60), np.arange(60, 160))
    ]
    parts = [observed(Panel.of(replace(log, users=_only(log, users)), CERTIFY)) for users in folds]
    together = pool(parts, [UserFold(u, len(u) / 640) for u in folds], Everyone(640, whole))
    expected = np.sqrt((0.375 * parts[0].std_error) ** 2 + (0.625 * parts[1].std_error) ** 2)
    assert together.influence.shape == (160, len(together.targets))
    assert together.std_error == pytest.approx(expected, rel=0.01)


def _only(log: Transitions, users: NDArray[Any]) -> NDArray[Any]:
    chosen = log.users.copy()
    chosen["split"] = np.where(np.isin(np.arange(len(chosen)), users), CERTIFY, 0)
    return chosen


@pytest.mark.parametrize(("count", "least"), [(40, 0.90), (12, 0.90)])
def test_intervals_hold_the_truth_where_cities_differ_and_without_clusters_they_do_not(
    count: int, least: float
) -> None:
    """Uneven cities, each with a reward of its own: 95% intervals of the fitted value of the log's policy, 120 logs."""
    world, logs = World.drawn(7), 120
    truth = float(world.cmdp.start @ (world.behaviour * world.cmdp.reward).sum(axis=1))
    held = {True: 0, False: 0}
    for seed in range(logs):
        rng = np.random.default_rng([seed, count])
        city = np.repeat(np.arange(count), rng.integers(10, 40, count))
        log = world.log(len(city), 1, rng)
        outcome = log.outcome.copy()
        outcome[:, 0] += rng.normal(0, 0.3, count)[city]
        for clustered in held:
            panel = Panel.of(replace(log, outcome=outcome, cluster=city if clustered else None), CERTIFY)
            found = Evaluator(panel, basis(panel)).fit(days=[1]).estimates("old", "fqe", confidence=0.95)
            one = next(each for each in found if each.target == "reward@1")
            assert one.low is not None
            assert one.high is not None
            held[clustered] += one.low <= truth <= one.high
    assert least <= held[True] / logs <= 0.985
    assert held[False] / logs < 0.75
