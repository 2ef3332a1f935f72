"""Folds take turns to certify: nobody certifies what they had a part in, and all users together measure the mixture."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import outlay
from conftest import Habit
from outlay.bundles.pool import Pool
from outlay.choosing.choose import Selection
from outlay.choosing.evaluated_policy import mixture_of
from outlay.choosing.folds import fold_shares, views
from outlay.choosing.looks import looks
from outlay.choosing.measure import Measure
from outlay.choosing.rotation import coupled, measured_on
from outlay.choosing.run import Run
from outlay.core.arrays import preferring_network
from outlay.core.errors import FolderError, LogError
from outlay.core.transitions import CERTIFY, EVERYONE, LEARN, SELECT, Transitions
from outlay.estimators.basis import CountedBasis
from outlay.estimators.behaviour.model import Behaviour
from outlay.estimators.fitted import Evaluator, Fitted
from outlay.estimators.joint import Everyone, UserFold, pool
from outlay.estimators.panel import Panel
from outlay.evaluating.evaluate import _members
from outlay.learning.tabular import counted_model
from outlay.ops.intervals import quantile
from outlay.ops.tabular import measure, policy_iteration
from outlay.training.every_budget import _learn_fold, _together
from outlay.training.pool import task_of
from small_logs import campaign, draw, random_cmdp

Array = NDArray[Any]

pytestmark = pytest.mark.usefixtures("few_budgets")
SHARES = st.lists(st.floats(0.01, 1), min_size=1, max_size=4).map(lambda w: np.array(w) / np.sum(w))
FAST = {"epochs": 0.1}  # as `habit` learns otherwise, and with its programs


def silent(_: float, __: str) -> None:
    pass


# Who does what.


@pytest.mark.parametrize("folds", [2, 4, 10])
def test_everybody_certifies_once_and_selects_once_at_most(habit_data: Transitions, folds: int) -> None:
    found = views(habit_data, folds)
    split = np.array([view.users["split"] for view in found])
    assert ((split == CERTIFY).sum(axis=0) == 1).all()
    assert ((split == SELECT).sum(axis=0) <= 1).all()
    assert fold_shares(found) == pytest.approx(1 / folds, abs=0.03)
    assert (split == SELECT).mean() == pytest.approx(min(0.15, 1 / folds), abs=0.02)
    again = views(found[1], folds)  # from any fold
    assert all(np.array_equal(one.users, other.users) for one, other in zip(found, again, strict=True))


def test_folds_have_nothing_to_do_with_the_split_as_prepared(habit_data: Transitions) -> None:
    first = views(habit_data, 4)[0]
    learn = habit_data.users["split"] == LEARN
    assert (first.users["split"][learn] == CERTIFY).mean() == pytest.approx(0.25, abs=0.04)
    assert views(habit_data, 1)[0] is habit_data


def shuffled(view: Transitions, split: int) -> Transitions:
    """The same log, had the users of a split been given other actions, with what came of those."""
    rows = view.rows_of(split)
    other = np.random.default_rng(0).permutation(rows)

    def moved(column: Any) -> Any:
        changed = np.array(column)
        changed[rows] = changed[other]
        return changed

    propensity = None if view.propensity is None else moved(view.propensity)
    return replace(view, action=moved(view.action), outcome=moved(view.outcome), propensity=propensity)


@pytest.mark.parametrize("oracle", ["tabular", pytest.param("orthogonal", marks=pytest.mark.slow)])
def test_what_a_fold_serves_does_not_depend_on_the_users_who_certify_it(
    oracle: str, habit_data: Transitions, tmp_path: Path
) -> None:
    """To the last bit: not through learning, scales, choice or margins. Other users do change it."""
    view = views(habit_data, 4)[2]
    about = view.campaign.with_train(**FAST)

    def learned(data: Transitions, name: str) -> list[Array]:
        (tmp_path / name).mkdir()
        folder = tmp_path / name
        task = task_of(data, about, (oracle,), 0, folder / "checkpoints", resume=False)
        found = _learn_fold(data, task, oracle, folder, silent)
        answers = found.answers
        network = answers.network
        chosen = [found.chosen.weights, found.chosen.margin, *[kept.coordinates for kept in found.chosen.measured]]
        body = network.layers[0] if network.body is None else network.body.parts().values()
        return [answers.multiplier, *network.head, *body, *chosen]

    wanted = learned(view, "as it is")
    for one, other in zip(wanted, learned(shuffled(view, CERTIFY), "certify"), strict=True):
        np.testing.assert_array_equal(one, other)
    for split in (LEARN, SELECT) if oracle == "tabular" else ():
        found = learned(shuffled(view, split), str(split))
        assert any(one.shape != other.shape or (one != other).any() for one, other in zip(wanted, found, strict=True))


@pytest.mark.parametrize("counted", [True, False])
def test_the_model_of_the_old_policy_does_not_depend_on_them_either(counted: bool) -> None:
    data = draw(random_cmdp(3), 400, 5, seed=0, counted=counted)
    place = np.random.default_rng(0).random(400)
    view = data.fold(1, 3, place)
    rows = view.rows_of(CERTIFY)
    wanted = Behaviour.fit(view).probability(rows)
    np.testing.assert_array_equal(Behaviour.fit(shuffled(view, CERTIFY)).probability(rows), wanted)
    assert (Behaviour.fit(shuffled(data.fold(0, 3, place), CERTIFY)).probability(rows) != wanted).any()


def test_too_few_users_for_the_folds_are_told(habit: Habit, tmp_path: Path) -> None:
    path = outlay.simulate("habit", tmp_path / "log", users=40, seed=0)
    path.write_text(path.read_text() + "\n[train]\nfolds = 40\n")
    with pytest.raises(LogError, match=r"one of 40 folds.*fewer folds"):
        outlay.train(path, tmp_path / "run")


# What is measured.


def test_the_interval_of_a_mixture_of_folds_holds_its_true_value_as_often_as_it_says() -> None:
    """Policies learned on others' users, each measured on its own fold, against the value of the very mixture."""
    cmdp, weights, z = random_cmdp(5), np.array([1.0, -0.4]), []
    about = campaign(cmdp.discount)
    for seed in range(150):
        data = draw(cmdp, 240, 6, seed=seed, about=about)
        place = np.random.default_rng(seed).random(240)
        fits, folds, truth = [], [], 0.0
        for k in range(4):
            view = data.fold(k, 4, place)
            model = counted_model(view, LEARN)
            assert model is not None
            policy = policy_iteration(model, weights)
            panel, users = Panel.of(view, CERTIFY), view.users_of(CERTIFY)
            assert panel.state is not None
            fits.append(Evaluator(panel, CountedBasis(panel.state, 3, 3)).fit(policy[panel.state]))
            folds.append(UserFold(users, len(users) / 240))
            truth += folds[-1].share * float(measure(cmdp, policy)[1])
        whole = pool(fits, folds, Everyone(240))
        cost = whole.column("cost")
        z.append((whole.value[cost] - truth) / whole.std_error[cost])
    assert np.mean(np.abs(z) < 1.96) == pytest.approx(0.95, abs=0.045)  # 2.5 standard errors of 150
    assert np.std(z) == pytest.approx(1.0, abs=0.15)
    assert np.mean(z) == pytest.approx(0.0, abs=0.25)


def test_every_estimator_is_pooled_from_what_the_folds_say_where_states_are_not_counted(
    habit_data: Transitions, finished: Path
) -> None:
    """And propensities that nobody logged come from the other folds."""
    data = replace(habit_data, state=None, states=None, propensity=None)
    bundle, folds = outlay.load_bundle(finished / "bundle"), views(data, 2)
    weights = [[1.0, 0.0], [0.4, 0.6]]
    bundle = replace(bundle, members=bundle.members[:1] * 2)
    at = measured_on(data, bundle, weights)
    whole = mixture_of(at, "as served")
    assert whole.weights == pytest.approx([0.4, 0.6])
    propensity = at.propensity()
    part, source = whole.parts[1], whole.features[1]
    assert source == (0, 1)
    pooled_ones = {
        "fqe": at.fit(part, source),
        "fqe2": at.fit_second(part),
        "dr": at.doubly_robust(part, source, propensity),
        "mis": at.marginal(part, source, propensity),
        "steps": at.residuals(part, source, propensity),
    }
    single: dict[str, list[Any]] = {name: [] for name in pooled_ones}
    for view in folds:
        own, rows = Measure(view, CERTIFY, bundle), view.rows_of(CERTIFY)
        given = Behaviour.fit(view).propensity(rows)
        np.testing.assert_array_equal(propensity[rows], given)
        acts = own.actions(0)
        assert part is not None
        np.testing.assert_array_equal(part[rows], acts)
        for name, found in (
            ("fqe", own.fit(acts)),
            ("fqe2", own.fit_second(acts)),
            ("dr", own.doubly_robust(acts, 0, given)),
            ("mis", own.marginal(acts, 0, given)),
            ("steps", own.residuals(acts, 0, given)),
        ):
            single[name].append(found)
    shares = fold_shares(folds)
    for name, found in pooled_ones.items():
        assert found is not None
        both = single[name]
        np.testing.assert_allclose(found.value, sum(s * one.value for s, one in zip(shares, both, strict=True)))
        for view, one in zip(folds, both, strict=True):
            np.testing.assert_allclose(found.influence[view.users_of(CERTIFY)], one.influence, rtol=1e-6)
    assert at.behaviour_check is not None
    some = np.arange(1, len(at.panel), 3)  # some of the rows alone, as in rows with a choice
    chances = at.action_probability(some)
    for view in folds:
        here = np.isin(at.panel.rows[some], view.rows_of(CERTIFY))
        wanted = Behaviour.fit(view).probability(at.panel.rows[some[here]])
        np.testing.assert_array_equal(chances[here], wanted)
    told = _members(at, whole, propensity)
    assert [each.policy.name for each in told] == ["fold 1", "fold 2"]
    assert told[0].fitted.value == pytest.approx(single["fqe"][0].value)
    among = np.zeros(len(data.users), np.bool_)
    mine = folds[1].users_of(CERTIFY)
    among[mine[:500]] = True  # nobody of the first fold
    assert part is not None
    alone = Measure(folds[1], CERTIFY, bundle).fit(part[folds[1].rows_of(CERTIFY)], 0, among[mine])
    np.testing.assert_allclose(at.fit(part, source, among).value, alone.value)


@pytest.fixture
def run(counted: Path, tmp_path: Path) -> Run:
    shutil.copytree(counted, tmp_path / "run")
    return Run.open(tmp_path / "run")


def test_a_run_serves_the_mixture_of_its_folds(run: Run) -> None:
    bundle, data = outlay.load_bundle(run.bundle), run.data()
    assert run.manifest["folds"] == 4
    shares, inside = fold_shares(views(data, 4)), np.array(run.fold_weights)
    assert inside.sum(axis=1) == pytest.approx(1)
    assert bundle.weights == pytest.approx(shares @ inside)
    assert len(bundle.members) <= 4 * (1 + len(run.campaign.budgets))
    networks = {member.file: member.parameters for member in bundle.manifest.members}
    assert run.manifest["stored_parameters"] == sum(networks.values())
    pool_ = Pool(bundle)
    assert len(pool_.entries) >= run.manifest["policies"]
    assert pool_.weights.sum() == pytest.approx(1)
    assert any("all 6,000 users certify" in note for note in run.manifest["notes"])


def test_everyone_measures_the_mixture_each_by_the_policies_of_their_fold(run: Run) -> None:
    bundle, data = outlay.load_bundle(run.bundle), run.data()
    at = measured_on(data, bundle, run.fold_weights)
    whole = mixture_of(at, "as served")
    assert whole.weights.sum() == pytest.approx(1)
    found = sum(
        weight * at.fit(part, f).value
        for part, f, weight in zip(whole.parts, whole.features, whole.weights, strict=True)
    )
    wanted = np.zeros(len(at.fit(None).value))
    for view, weights in zip(views(data, 4), run.fold_weights, strict=True):
        own = Measure(view, CERTIFY, bundle)
        share = len(view.users_of(CERTIFY)) / len(data.users)
        wanted += share * sum(w * own.members()[i].value for i, w in enumerate(weights) if w > 0)
        for part in whole.parts:  # to its own users a fold does nothing but what one of its members does
            assert part is not None
            mine = part[view.rows_of(CERTIFY)]
            assert any(np.array_equal(mine, own.actions(i)) for i, w in enumerate(weights) if w > 0)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_an_evaluation_rests_on_all_users_and_is_one_look(run: Run, counted: Path) -> None:
    """And another run of as many folds is compared with it pair by pair."""
    found = outlay.evaluate(run, against=counted)
    same = [d for d in found.differences if d.against == "against" and d.target == "reward"]
    assert [d.value for d in same if d.value is not None] == pytest.approx([0.0] * len(same), abs=1e-9)
    assert found.certificate.users == len(run.data().users) == 6000
    assert found.certificate.look == 1
    assert len(looks(run.data(), EVERYONE)) == 1  # the curve's as well
    by = {(e.policy, e.estimator, e.target): e for e in [*found.estimates, *found.beside]}
    folds = [by[f"fold {k}", "fqe", "coupon_cost"] for k in (1, 2, 3, 4)]
    whole = by["mixture", "fqe", "coupon_cost"]
    shares = fold_shares(views(run.data(), 4))
    assert whole.value == pytest.approx(shares @ [e.value for e in folds])
    errors = np.array([e.std_error for e in folds])
    assert whole.std_error == pytest.approx(np.sqrt(shares**2 @ errors**2), rel=0.02)
    assert {"old", "constants", "mixture"} <= set(found.policies)
    assert "fold 3, on its users" in found.policies.values()
    json.dumps(found.to_dict(), allow_nan=False)


def test_runs_of_other_folds_are_not_compared(run: Run, finished: Path) -> None:
    with pytest.raises(FolderError, match=r"folds = 1\b.*folds = 4\b.*--folds"):
        outlay.evaluate(run, against=finished)


@pytest.mark.slow
def test_networks_learn_in_folds_and_go_on_where_they_were_killed(habit: Habit, tmp_path: Path) -> None:
    """What is resumed after the first fold ends as the whole training does."""
    path = habit.changed(tmp_path, ("epochs = 1.0", "epochs = 0.1\nfolds = 2"))
    whole = outlay.train(path, tmp_path / "whole", oracle="orthogonal")
    calls = []

    def killed(_: float, text: str) -> None:
        calls.append(text)
        if text.startswith("fold 2 of 2: measuring"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outlay.train(path, tmp_path / "run", oracle="orthogonal", progress=killed)
    resumed = outlay.train(path, tmp_path / "run", oracle="orthogonal", resume=True)
    for name in ("frontier/network-0.npz", "frontier/network-1.npz"):
        with np.load(whole.folder / name) as one, np.load(resumed.folder / name) as other:
            assert all(np.array_equal(one[part], other[part]) for part in one.files)
    bundles = [outlay.load_bundle(each.bundle).manifest for each in (whole, resumed)]
    assert bundles[0].members == bundles[1].members
    networks = [np.load(whole.folder / "frontier" / f"network-{k}.npz")["head_weight"] for k in (0, 1)]
    assert not np.array_equal(*networks)
    found = outlay.evaluate(resumed)
    assert found.certificate.users == 6000
    assert len(outlay.frontier(resumed).requested) == 1


def test_a_constant_action_that_several_folds_serve_is_one_member() -> None:
    learned = preferring_network(np.eye(3)[2], (4,), 0, 2)

    def kept(name: str, network: Any, number: int | None) -> Any:
        policy = SimpleNamespace(name=name, network=network, number=number, fold=0)
        return SimpleNamespace(policy=policy)

    def chosen(weights: list[float]) -> Any:
        again = preferring_network(np.eye(3)[1], (4,), 0, 2)
        members = (kept("λ 1", learned, 0), kept("always 1", again, None))
        return Selection(members, np.array(weights), np.ones(1), members, None, np.array([weights]))  # type: ignore[arg-type]

    import outlay.training.every_budget as job

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "replace", lambda of, **changes: SimpleNamespace(**{**vars(of), **changes}))
        found = _together([chosen([0.7, 0.3]), chosen([0.2, 0.8])], np.array([0.5, 0.5]))
    assert [member.policy.name for member in found.members] == ["λ 1", "always 1", "λ 1"]
    assert found.weights == pytest.approx([0.35, 0.55, 0.1])
    assert found.fold_weights.tolist() == [[0.7, 0.3, 0.0], [0.0, 0.8, 0.2]]


# What the error of K folds rests on.


def _tail(folds: int, policies: int, noise: float, logs: int = 20_000) -> float:
    """How often a bound of 97.5% misses, as `pooled` states its error, if each fold takes the best of some policies.

    `noise`: share of the variance of a user's influence that policies do not have in common. Means of a fold are drawn
    as they are, normal.
    """
    rng, users = np.random.default_rng(0), 100
    common = rng.normal(size=(logs, folds, 1)) * np.sqrt(1 - noise)
    mean = (common + rng.normal(size=(logs, folds, policies)) * np.sqrt(noise)) / np.sqrt(users)
    taken = (mean.sum(axis=1, keepdims=True) - mean).argmin(axis=2)  # by the users of the other folds
    error = np.take_along_axis(mean, taken[..., None], axis=2)[..., 0]
    spread = np.repeat([1.0, -1.0], users // 2)[:, None]  # of variance 1
    part = Fitted(
        targets=("cost",),
        value=np.zeros(1),
        influence=spread,
        mass=np.ones((users, 1)),
        withheld=(None,),
        unsupported=np.zeros(1),
        daily=np.empty((0, 1)),
    )
    places = [UserFold(np.arange(k * users, (k + 1) * users), 1 / folds) for k in range(folds)]
    std_error = pool([part] * folds, places, Everyone(folds * users)).std_error[0]
    return float((error.mean(axis=1) + quantile(0.975) * std_error < 0).mean())


@pytest.mark.parametrize(
    ("noise", "least", "most"), [(0.0, 0.022, 0.028), (0.1, 0.026, 0.032), (0.2, 0.032, 0.039), (1.0, 0.08, 0.11)]
)
def test_the_error_is_that_of_one_sample_as_far_as_folds_take_the_same_policy(
    noise: float, least: float, most: float
) -> None:
    assert least < _tail(4, 20, noise) < most


# Distributions joined into one over tuples.


@given(st.lists(SHARES, min_size=1, max_size=5))
def test_every_distribution_keeps_its_weights(distributions: list[np.ndarray]) -> None:
    places, weights = coupled(distributions)
    assert (weights > 0).all()
    assert len(weights) <= 1 + sum(len(alpha) - 1 for alpha in distributions)
    for k, alpha in enumerate(distributions):
        own = np.bincount([place[k] for place in places], weights, len(alpha))
        np.testing.assert_allclose(own, alpha, atol=1e-9)


def test_alike_distributions_are_joined_option_by_option() -> None:
    places, weights = coupled([np.array([0.3, 0.7])] * 3)
    assert places == [[0, 0, 0], [1, 1, 1]]
    np.testing.assert_allclose(weights, [0.3, 0.7])
