"""Apprenticeship and pure exploration against known answers: by hand, by construction, by another solver."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from outlay.core.cmdp import TabularCMDP
from outlay.ops.tabular import constrained_optimum, measure

Floats = NDArray[np.float64]

ROOT = Path(__file__).parents[2]
AIM_AND_LP = ["aim-mean", "aim-greedy", "lp"]


def example(name: str) -> Any:
    """The script as a module; examples/ is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


apprenticeship = example("apprenticeship")
exploration = example("exploration")


def occupancy(world: TabularCMDP, policy: Floats) -> Floats:
    """`[S]` d of a policy, step by step: Σ (1−γ) γ^t P^t start."""
    move = world.transition[np.arange(world.num_states), policy]
    shares, weight, states = np.zeros(world.num_states), 1 - world.discount, world.start
    while weight > 1e-13:
        shares = shares + weight * states
        states, weight = states @ move, weight * world.discount
    return shares


def matched_both_ways(transition: Floats, features: Floats, start: Floats, discount: float) -> TabularCMDP:
    """A world for apprenticeship from features `[S, A, m]`."""
    return TabularCMDP(
        transition=transition,
        reward=np.zeros(features.shape[:2]),
        cost=np.concatenate([features, -features], axis=2),
        start=start,
        discount=discount,
    )


def random_world(seed: int) -> tuple[TabularCMDP, TabularCMDP]:
    """8 states, 3 actions, 4 features: for apprenticeship, and with the first feature as a reward, the others costs."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.full(8, 0.3), size=(8, 3))
    features, start = rng.uniform(size=(8, 3, 4)), rng.dirichlet(np.ones(8))
    priced = TabularCMDP(
        transition=transition, reward=features[..., 0], cost=features[..., 1:], start=start, discount=0.8
    )
    return matched_both_ways(transition, features, start, 0.8), priced


def out_of_reach(seed: int, beyond: float) -> tuple[TabularCMDP, Floats, Floats]:
    """A world, an expert outside what it allows, and the nearest point to it, known by construction.

    The optimum under limits is a mixture on a face; w = (1, −λ) is the face's normal, and the expert is put `beyond`
    it along w.
    """
    world, priced = random_world(seed)
    cheap = measure(priced, np.full((8, 3), 1 / 3))[1:]
    optimum = constrained_optimum(priced, [*(cheap[:2] - 0.02), np.inf])
    normal = np.concatenate([[1.0], -optimum.dual])
    assert (optimum.dual > 0).any(), "a limit binds, so no single policy is nearest"
    return world, optimum.measurement, optimum.measurement + beyond * normal / np.linalg.norm(normal)


def distance(world: TabularCMDP, mixture: Any, expert: Floats) -> float:
    return float(np.linalg.norm(apprenticeship.features(world, mixture.measurement) - expert))


def last(played: Any) -> Any:
    for result in played:
        final = result
    return final


# Apprenticeship


@pytest.mark.parametrize("name", AIM_AND_LP)
def test_three_choices_and_an_expert_who_does_two_things_at_once(name: str) -> None:
    """One decision with features (0, 0), (1, 0), (0, 1): the nearest mixture to (1, 1) is (½, ½), at √½."""
    features = np.array([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    world = matched_both_ways(np.ones((1, 3, 1)), features, np.ones(1), 0.0)
    expert = np.array([1.0, 1.0])
    [mixture], bound = last(apprenticeship.imitate(world, expert, (name,), 400))
    assert apprenticeship.features(world, mixture.measurement) == pytest.approx([0.5, 0.5], abs=2e-3)
    assert sorted(int(policy[0]) for policy in mixture.members) == [1, 2]
    assert bound == pytest.approx(np.sqrt(0.5), abs=2e-3)
    assert apprenticeship.least_distance(world, expert) == pytest.approx(np.sqrt(0.5), abs=1e-8)


@pytest.mark.parametrize(("name", "near"), [("aim-mean", 3e-3), ("aim-greedy", 3e-3), ("lp", 1e-9)])
@pytest.mark.parametrize("seed", range(3))
def test_an_expert_who_is_a_mixture_of_random_policies_is_matched(name: str, near: float, seed: int) -> None:
    world, _ = random_world(seed)
    rng = np.random.default_rng(seed)
    policies = rng.dirichlet(np.ones(3), size=(5, 8))
    expert = rng.dirichlet(np.ones(5)) @ [apprenticeship.features(world, measure(world, pi)) for pi in policies]
    [mixture], bound = last(apprenticeship.imitate(world, expert, (name,), 300))
    assert distance(world, mixture, expert) < near
    assert bound < 1e-12, "nothing keeps it from the expert"
    assert apprenticeship.least_distance(world, expert) < 1e-9
    assert len(mixture.members) <= 5, "m + 1"


@pytest.mark.parametrize(("name", "near"), [("aim-mean", 2e-3), ("aim-greedy", 2e-3), ("lp", 1e-9)])
@pytest.mark.parametrize("seed", [0, 2, 4])
def test_an_expert_out_of_reach_is_imitated_as_nearly_as_can_be(name: str, near: float, seed: int) -> None:
    world, nearest, expert = out_of_reach(seed, beyond=0.05)
    assert apprenticeship.least_distance(world, expert) == pytest.approx(0.05, abs=1e-8)
    for [mixture], bound in apprenticeship.imitate(world, expert, (name,), 400):
        assert bound <= 0.05 + 1e-12
        assert distance(world, mixture, expert) >= 0.05 - 1e-12
        assert len(mixture.members) <= 5, "m + 1"
    assert distance(world, mixture, expert) == pytest.approx(0.05, abs=near)
    assert apprenticeship.features(world, mixture.measurement) == pytest.approx(nearest, abs=10 * near)
    assert bound == pytest.approx(0.05, abs=5 * near)


def test_aim_greedy_is_the_projection_method() -> None:
    """Abbeel & Ng, section 3.1, longhand: to the foot of the perpendicular, no further than the ends."""
    world, _, expert = out_of_reach(0, beyond=0.05)
    point = None
    for [mixture], _ in apprenticeship.imitate(world, expert, ("aim-greedy",), 30):
        missing = expert if point is None else expert - point
        newest = apprenticeship.features(world, measure(world, apprenticeship.best_response(world, missing)))
        if point is None:
            point = newest
        else:
            way = newest - point
            point = point + np.clip(way @ (expert - point) / (way @ way), 0.0, 1.0) * way
        assert apprenticeship.features(world, mixture.measurement) == pytest.approx(point, abs=1e-9)


def test_uniform_keeps_every_policy_and_aim_mean_nine_for_the_same_features() -> None:
    world = apprenticeship.grid(slip=0.3)
    for expert in apprenticeship.experts(world).values():
        for step, ([mean, uniform], _) in enumerate(
            apprenticeship.imitate(world, expert, ("aim-mean", "uniform"), 200), start=1
        ):
            assert mean.measurement == pytest.approx(uniform.measurement, abs=1e-12)
            assert len(uniform.members) == step
            # m + 2 = 11 is promised; the shares of the 9 regions add up to 1, which leaves 8 dimensions.
            assert len(mean.members) <= 9


def test_the_members_bring_the_features_that_their_weights_promise() -> None:
    """Each policy of the mixture followed for an episode of its own; no measurement of the rule is believed."""
    world = apprenticeship.grid(slip=0.3)
    expert = apprenticeship.experts(world)["an expert who wavers"]
    [mixture], _ = last(apprenticeship.imitate(world, expert, ("lp",), 15))
    regions = world.cost[:, 0, :9]
    followed = mixture.weights @ [occupancy(world, policy) @ regions for policy in mixture.members]
    assert followed == pytest.approx(expert, abs=1e-9)


# Pure exploration


def test_rooms_are_explored_evenly() -> None:
    """With a door between any two rooms the shares can be equal, and no entropy is above ln S."""
    [mixture], bound = last(exploration.explore(exploration.rooms(8), ("aim-mean",), 1000))
    assert mixture.measurement[1:] == pytest.approx(np.full(8, 1 / 8), abs=1e-3)
    assert exploration.entropy(mixture.measurement[1:]) == pytest.approx(np.log(8), abs=1e-5)
    assert np.log(8) <= bound == pytest.approx(np.log(8), abs=1e-3)
    assert len(mixture.members) <= 8, "S + 2 is promised; shares add up to 1, and S are enough"


def test_a_door_that_shuts_behind_is_left_at_once() -> None:
    """By hand: at γ = 0.3 the share of the first room is 0.7 at least, so the best is to leave at once."""
    transition = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    world = exploration.explorable(transition, discount=0.3)
    [mixture], bound = last(exploration.explore(world, ("aim-mean",), 20))
    known = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3))
    assert [policy[0] for policy in mixture.members] == [1]
    assert exploration.entropy(mixture.measurement[1:]) == pytest.approx(known, abs=1e-12)
    assert bound == pytest.approx(known, abs=1e-8)
    assert exploration.most_entropy(world) == pytest.approx(known, abs=1e-8)


def random_maze(seed: int) -> TabularCMDP:
    """9 states, 2 actions with few ways on, so that the optimum is well inside ln S."""
    transition = np.random.default_rng(seed).dirichlet(np.full(9, 0.15), size=(9, 2))
    world: TabularCMDP = exploration.explorable(transition, discount=0.9)
    return world


@pytest.mark.parametrize(
    "world", [exploration.river(), *map(random_maze, (0, 3, 4))], ids=["river", "maze 0", "maze 3", "maze 4"]
)
def test_the_entropy_is_the_one_of_a_convex_solver(world: TabularCMDP) -> None:
    optimum = exploration.most_entropy(world)
    assert optimum < np.log(world.num_states) - 0.01
    for [mixture], bound in exploration.explore(world, ("aim-mean",), 1000):
        reached = exploration.entropy(mixture.measurement[1:])
        assert reached <= optimum + 1e-7
        assert bound >= optimum - 1e-7
        assert len(mixture.members) <= world.num_states, "S + 2 is promised; shares add up to 1, and S are enough"
    assert reached == pytest.approx(optimum, abs=1e-3)
    assert bound == pytest.approx(optimum, abs=2e-3)


def test_aim_mean_explores_as_the_running_mean_does_with_few_swimmers() -> None:
    world = exploration.river()
    for step, ([mean, uniform], _) in enumerate(exploration.explore(world, ("aim-mean", "uniform"), 300), start=1):
        assert mean.measurement == pytest.approx(uniform.measurement, abs=1e-12)
        assert (len(uniform.members), len(mean.members) <= 10) == (step, True)
    followed = mean.weights @ [occupancy(world, policy) for policy in mean.members]
    assert followed == pytest.approx(mean.measurement[1:], abs=1e-9)


def test_moves_at_random_explore_the_river_badly() -> None:
    """What the example is for: at random one sees 2.3 places of 10, the mixture 9.8 (exp of the entropy)."""
    world = exploration.river()
    aimless = measure(world, np.full((10, 2), 0.5))[1:]
    assert np.exp(exploration.entropy(aimless)) < 2.5
    assert np.exp(exploration.most_entropy(world)) > 9.8


# Both


@pytest.mark.parametrize("name", ["apprenticeship", "exploration"])
def test_an_example_asks_nothing_of_a_rule_but_the_contract(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert set(re.findall(r"\brule\.(\w+)", text)) == {"init", "step", "mixture"}
    assert re.findall(r"^from outlay\.learning.*$", text, re.MULTILINE) == [
        "from outlay.learning.mixing import RULES",
        "from outlay.learning.mixing.rule import constraints",
    ]


@pytest.mark.parametrize(("name", "rounding"), [("apprenticeship", 1.5e-5), ("exploration", 0.02)])
def test_the_docs_show_what_the_script_prints(
    name: str, rounding: float, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the first hundred steps print. Rooms are all alike, so there rounding decides which comes next."""
    module = {"apprenticeship": apprenticeship, "exploration": exploration}[name]
    monkeypatch.setattr(module, "SHOWN", tuple(step for step in module.SHOWN if step <= 100))
    module.main()
    lines = capsys.readouterr().out.split("\nThe mixture")[0].splitlines()
    shown = (ROOT / "docs" / "other-uses.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 10
    for line in lines:
        assert any(same(line, other, rounding) for other in shown), line


def same(line: str, other: str, rounding: float) -> bool:
    figure = r"\d+\.\d+"
    if re.sub(figure, "#", line) != re.sub(figure, "#", other):
        return False
    figures, others = (np.array(re.findall(figure, text), dtype=np.float64) for text in (line, other))
    return bool((np.abs(figures - others) <= rounding).all())
