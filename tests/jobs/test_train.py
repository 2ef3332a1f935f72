"""Training on a campaign whose truth is known: it keeps the limit, whatever the rule and the oracle."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import outlay
from conftest import Habit
from outlay.choosing.run import Run
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, InfeasibleError, LogError, OutlayError
from outlay.core.transitions import LEARN, SELECT, Transitions
from outlay.jobs.train import _fewer
from outlay.learning.game import SPARES
from outlay.learning.mixing import RULES
from outlay.ops.tabular import constrained_optimum, measure
from outlay.training import BISECTION, GAMES, log_game
from outlay.training.log_game import WEIGHTS
from telling import missing

LIMIT = 2.2


def truth_of(run: Run, habit: Habit) -> NDArray[np.float64]:
    """`[1+m]` true (1−γ)·J of the mixture as it is served: every member in every state, by its bundle."""
    bundle = outlay.load_bundle(run.bundle)
    decisions = bundle.decide(pq.read_table(habit.folder / "states.parquet"), members=True)
    action = decisions["action_index"].to_numpy().reshape(habit.truth.num_states, -1)
    members = [measure(habit.truth, action[:, i]) for i in range(action.shape[1])]
    return np.asarray(bundle.weights @ np.array(members))


def check_truth(run: Run, habit: Habit) -> None:
    """Within 5% of the limit's side, and at most 5% below the exact optimum at its own spend."""
    value, cost = truth_of(run, habit)
    assert cost <= 1.05 * LIMIT
    assert value >= 0.95 * constrained_optimum(habit.truth, [cost]).value
    # Not by spending nothing: more than half of what the limit brings beyond the cheapest coupon is won.
    cheapest = measure(habit.truth, np.zeros(habit.truth.num_states, int))[0]
    best = constrained_optimum(habit.truth, [LIMIT]).value
    assert value - cheapest > 0.5 * (best - cheapest)


def test_the_served_mixture_keeps_the_limit_and_is_near_the_optimum_at_its_spend(habit: Habit, finished: Path) -> None:
    check_truth(Run.open(finished), habit)


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(set(GAMES) - {"aim-greedy", "uniform", "single-best"}))
def test_every_rule_keeps_the_limit(method: str, habit: Habit, tmp_path: Path) -> None:
    run = outlay.train(habit.data, tmp_path / "run", method=method)
    assert run.manifest["method"] == method
    check_truth(run, habit)
    assert len(run.manifest["members"]) <= 3  # m + 2


@pytest.fixture(scope="module")
def quick(habit: Habit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign file for where it does not matter how much is learned: few steps, a limit that does not bind."""
    easy, short = (f"at_most = {LIMIT}", "at_most = 5.0"), ("min_steps = 2000", "min_steps = 500")
    return habit.changed(tmp_path_factory.mktemp("quick"), easy, short)


@pytest.fixture(scope="module")
def quick_data(quick: Path) -> Path:
    return outlay.prepare(quick, quick.parent / "data").folder


def test_the_original_method_keeps_every_policy_with_equal_weights(quick_data: Path, tmp_path: Path) -> None:
    """All that count: on a log this small those of the second half."""
    run = outlay.train(quick_data, tmp_path / "run", method="uniform")
    assert len(run.metrics()) == 5
    assert [member["number"] for member in run.manifest["members"]] == [2, 3, 4]
    assert [member["weight"] for member in run.manifest["members"]] == pytest.approx([1 / 3] * 3)
    assert len(outlay.load_bundle(run.bundle).members) == 3


@pytest.mark.slow
@pytest.mark.parametrize("oracle", ["ddqn", "edrr"])
def test_every_oracle_keeps_the_limit(oracle: str, habit: Habit, tmp_path: Path) -> None:
    run = outlay.train(habit.data, tmp_path / "run", oracle=oracle, method="aim-greedy")
    assert run.manifest["oracle"] == oracle
    check_truth(run, habit)
    bundle = outlay.load_bundle(run.bundle)
    assert bundle.manifest.imitation_threshold is None


def test_a_run_says_what_it_is(habit: Habit, finished: Path) -> None:
    run, campaign = Run.open(finished), Campaign.load(habit.campaign)
    assert {
        "bundle",
        "campaign.toml",
        "candidates.parquet",
        "checkpoints",
        "data",
        "manifest.json",
        "metrics.jsonl",
        "settings.toml",
    } == {path.name for path in finished.iterdir()}
    assert run.campaign.train == campaign.train
    assert run.manifest["data"] == "data"  # inside, so the folder can be moved
    assert run.data().manifest.data_hash == run.manifest["data_hash"]
    assert (finished / "campaign.toml").read_text() == habit.campaign.read_text()
    settings = tomllib.loads((finished / "settings.toml").read_text())["train"]
    assert settings["layers"] == [16, 8]
    assert settings["imitation_threshold"] == 0.3
    metrics = run.metrics()
    assert [m.step for m in metrics] == list(range(100, run.manifest["steps"] + 1, 100))
    assert metrics[-1].original_parameters == len(metrics) * run.manifest["parameters"]
    assert max(m.stored_parameters for m in metrics) <= 3 * run.manifest["parameters"]
    assert sum(m["weight"] for m in run.manifest["members"]) == pytest.approx(1)
    assert pq.read_table(finished / "candidates.parquet").num_rows == len(metrics)
    bundle = outlay.load_bundle(run.bundle)
    assert bundle.weights.tolist() == pytest.approx([m["weight"] for m in run.manifest["members"]])


def test_the_state_of_a_large_log_is_tested_on_some_of_the_users_who_teach(
    habit: Habit, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Transitions.open(habit.data)
    learn = len(data.rows_of(LEARN))
    assert np.array_equal(_fewer(data).rows_of(LEARN), data.rows_of(LEARN))
    monkeypatch.setattr("outlay.jobs.train.STATE_ROWS", 2 * learn // 7)
    some = _fewer(data)
    assert len(some.rows_of(LEARN)) == pytest.approx(learn / 4, rel=0.01)
    assert set(some.users_of(LEARN)) < set(data.users_of(LEARN))
    assert np.array_equal(some.rows_of(SELECT), data.rows_of(SELECT))


def test_the_weights_leave_room_for_the_certificate(finished: Path) -> None:
    """Fitted cost + margin of the mixture is at most the limit, and the margin is no ornament on 450 users."""
    manifest = Run.open(finished).manifest
    cost = sum(m["weight"] * m["fitted"][1] for m in manifest["members"])
    assert all(m["name"] == f"step {m['step']}" for m in manifest["members"] if m["step"] is not None)
    assert 0.05 < manifest["margin"][0] < 1
    assert cost + manifest["margin"][0] <= LIMIT * (1 + 1e-9)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bundle_and_another_seed_another(quick_data: Path, tmp_path: Path) -> None:
    ids = [
        outlay.load_bundle(outlay.train(quick_data, tmp_path / f"{i}", seed=seed, method="aim-greedy").bundle).id
        for i, seed in enumerate((3, 3, 4))
    ]
    assert ids[0] == ids[1] != ids[2]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 users, of whom the paper's split leaves seven to measure on: too few to say what a policy is worth."""
    path = outlay.simulate("habit", tmp_path_factory.mktemp("small") / "log", users=150, seed=3)
    path.write_text(path.read_text() + "[train]\nlayers = [16, 8]\n")
    return path


@pytest.fixture(scope="module")
def small_data(small: Path) -> Path:
    return outlay.prepare(Campaign.load(small).with_train(preset="paper"), small.parent / "data").folder


@pytest.mark.parametrize("method", GAMES)
def test_weights_as_found_need_no_fitted_figures(method: str, small_data: Path, tmp_path: Path) -> None:
    """Of the preset that the data were prepared with; no more networks are stored than the rule needs."""
    run = outlay.train(small_data, tmp_path / "run", method=method)
    assert run.manifest["weights"] == "as found"
    assert run.manifest["margin"] == [0.0]
    if method != BISECTION:  # whose policy gives hardly anything, of which these users saw enough
        assert [member.fitted for member in run.members] == [None] * len(run.members)
    bundle = outlay.load_bundle(run.bundle)
    assert bundle.weights.sum() == pytest.approx(1)
    most = {"uniform": len(run.metrics()), "lp": 2 + SPARES}.get(method, 3)  # m + 2
    assert max(m.stored_parameters for m in run.metrics()) <= most * run.manifest["parameters"]


@pytest.mark.slow
def test_the_paper_preset_is_the_papers_schedule_and_says_so(
    small: Path, habit_data: Transitions, tmp_path: Path
) -> None:
    run = outlay.train(small, tmp_path / "run", preset="paper")
    assert (run.manifest["method"], run.manifest["oracle"], run.manifest["weights"]) == (
        "aim-greedy",
        "bcq",
        "as found",
    )
    train, campaign = run.campaign.train, run.campaign
    assert (train.preset, train.shares, train.epochs, train.min_steps) == ("paper", (0.9, 0.05, 0.05), 2, 0)
    assert (train.multiplier_every, train.candidate_every, train.learning_rate) == (10, 100, 1e-3)
    assert (train.imitation_threshold, train.scaled_multipliers, campaign.meta.discount) == (0, False, 0.8)
    assert (train.screening, train.folds) == (False, 1)
    assert any(not missing(note, "J is 5 times") for note in run.manifest["notes"])
    split = run.data().manifest.users_per_split
    assert split["learn"] / 150 == pytest.approx(0.9, abs=0.05)
    assert train.batch == 512
    assert run.manifest["steps"] == 100, "no fewer than a candidate takes"
    larger = log_game.set_up(habit_data, campaign, RULES["aim-greedy"], "bcq", 0)
    assert larger.steps == round(2 * len(habit_data.rows_of(LEARN)) / 512 / 100) * 100
    assert 'preset = "paper"' in (tmp_path / "run" / "settings.toml").read_text()
    assert run.manifest["weights"] == "as found"
    assert WEIGHTS[run.manifest["weights"]] in run.manifest["notes"]


def test_single_best_serves_one_policy(habit: Habit, tmp_path: Path) -> None:
    """A mixture of its network and of constant coupons would be another method."""
    run = outlay.train(habit.data, tmp_path / "run", method="single-best")
    check_truth(run, habit)
    (member,) = run.manifest["members"]
    assert member["weight"] == 1.0
    assert member["fitted"][1] <= LIMIT
    assert run.manifest["weights"] == "one policy"


def test_the_paper_preset_may_learn_every_budget(few: Habit, tmp_path: Path) -> None:
    """Limits are held there as in any campaign; only the weights that rules find hold none."""
    run = outlay.train(few.campaign, tmp_path / "run", preset="paper", method="frontier", oracle="tabular")
    assert (run.manifest["method"], run.campaign.train.preset) == ("frontier", "paper")


@pytest.mark.slow
def test_the_paper_preset_on_prepared_data_says_what_it_cannot_change(small: Path, tmp_path: Path) -> None:
    mine = Campaign.load(small).with_train(shares=[0.9, 0.06, 0.04])
    data = outlay.prepare(mine, tmp_path / "data").folder
    run = outlay.train(data, tmp_path / "run", preset="paper", method="aim-greedy")
    assert any(not missing(note, "prepared data", "split", "[0.9, 0.06, 0.04]") for note in run.manifest["notes"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            (f"at_most = {LIMIT}", "at_least = 5.5"),
            (
                r"no policy keeps this limit: the most that a policy reaches is [1-5]\.\d+ per decision",
                "Lower the limit",
            ),
        ),
        (
            (f"at_most = {LIMIT}", "at_least = 9.0"),
            (r"the most .*\b6 per decision", "Lower the limit"),
        ),
        (
            (f"at_most = {LIMIT}", "at_most = -1.0"),
            (r"the least .*\b0 per decision", "Raise the limit"),
        ),
        (
            (
                "[[budget]]",
                '[[budget]]\nname = "visits"\ncost = "active"\nat_least = 0.99\nmoney = false\n\n[[budget]]',
            ),
            (
                r"these limits together; it would have to be visits at least 0\.\d+ "
                r"per decision and coupon_cost at most \d",
                "Loosen the limits",
            ),
        ),
    ],
)
def test_what_can_be_reached_is_told_as_the_limits_are_written(
    change: tuple[str, str], words: tuple[str, str], few: Habit, tmp_path: Path
) -> None:
    with pytest.raises(InfeasibleError, match=rf"{words[0]}.*{words[1]}"):
        outlay.train(few.changed(tmp_path / "in", change), tmp_path / "run")


def test_a_limit_that_no_policy_keeps_is_infeasible_and_the_smallest_reachable_cost_is_told(
    habit: Habit, tmp_path: Path
) -> None:
    """Always the cheapest coupon costs 0.42 in truth; the log's learn users say nearly that."""
    least = measure(habit.truth, np.zeros(habit.truth.num_states, int))[1]
    path = habit.changed(tmp_path / "in", (f"at_most = {LIMIT}", "at_most = 0.3"))
    with pytest.raises(InfeasibleError, match="no policy keeps this limit") as caught:
        outlay.train(path, tmp_path / "run")
    message = str(caught.value)
    assert not missing(message, "coupon_cost", "at most 0.3 per decision", "Raise the limit")
    assert str(path) in message
    told = float(message.split("the least that a policy reaches is ")[1].split(" ")[0])
    assert told == pytest.approx(least, rel=0.1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]  # nothing half-written


def test_a_limit_that_training_does_not_reach_names_what_it_reached(habit: Habit, tmp_path: Path) -> None:
    """The cheapest coupon costs 4 yuan in 7 days: a limit per user is not known to be too low before the choice."""
    unit = ('per = "decision"', 'per = "user"')
    path = habit.changed(tmp_path / "in", (f"at_most = {LIMIT}", "at_most = 3.0"), unit)
    with pytest.raises(InfeasibleError, match=r"coupon_cost: .* per user, .*the least .*\(by "):
        outlay.train(path, tmp_path / "run", folds=1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_what_outlay_did_not_write_is_not_replaced(habit: Habit, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "thesis.tex").write_text("x")
    with pytest.raises(FolderError, match="outlay did not write it"):
        outlay.train(habit.data, out, method="aim-greedy")
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "thesis.tex"]


def test_an_older_run_stays_until_the_new_one_is_finished(
    few: Habit, quick_data: Path, run: Path, tmp_path: Path
) -> None:
    before = (run / "manifest.json").read_bytes()
    path = few.changed(tmp_path / "in", (f"at_most = {LIMIT}", "at_most = 0.3"))
    with pytest.raises(InfeasibleError):
        outlay.train(path, run, method="aim-greedy")
    assert (run / "manifest.json").read_bytes() == before
    outlay.train(quick_data, run, seed=5, method="aim-greedy")
    assert Run.open(run).manifest["seed"] == 5
    assert not (run / "data").exists()  # nothing of the old one is left
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "run"]


@pytest.mark.parametrize("inside", [".", "data", "campaign.toml"])
def test_a_run_does_not_replace_what_it_learns_from(inside: str, run: Path) -> None:
    before = sorted(run.rglob("*"))
    with pytest.raises(FolderError, match=r"in the folder .*replace"):
        outlay.train(run / inside, run, method="aim-greedy")
    assert sorted(run.rglob("*")) == before


def test_unknown_names_are_told_with_the_known_ones(habit: Habit, tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match=r"method: is 'aim'\. Did you mean 'aim-mean'"):
        outlay.train(habit.data, tmp_path / "run", method="aim")
    with pytest.raises(OutlayError, match=r"oracle: is 'dqn'\. .*\bddqn\b"):
        outlay.train(habit.data, tmp_path / "run", oracle="dqn")
    with pytest.raises(OutlayError, match=r"train\.preset: is 'fast'"):
        outlay.train(habit.data, tmp_path / "run", preset="fast")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("method", "option", "value"),
    [
        ("two-stage", "oracle", "bcq"),
        ("two-stage", "oracle", "orthogonal"),
        ("frontier", "response", "deepfm"),
        ("lp", "response", "din"),
        ("frontier", "label_days", 1),
        ("aim-greedy", "label_days", 3),
        ("two-stage", "folds", 1),
        ("lp", "folds", 4),
    ],
)
def test_an_option_that_the_method_does_not_use_is_refused(
    method: str, option: str, value: Any, habit: Habit, tmp_path: Path
) -> None:
    """Also where it is the value that another method has by default."""
    with pytest.raises(OutlayError, match=rf"{option}: is {value!r}, .*\b{method}\b.*Leave it out"):
        outlay.train(habit.data, tmp_path / "run", method=method, **{option: value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("method", "option"), [("frontier", "folds"), ("two-stage", "label_days")])
def test_a_number_below_one_is_refused(method: str, option: str, habit: Habit, tmp_path: Path) -> None:
    impossible: dict[str, Any] = {option: 0}
    with pytest.raises(OutlayError, match=rf"{option}: is 0; .*\b1 or more"):
        outlay.train(habit.data, tmp_path / "run", method=method, **impossible)


def test_a_split_without_users_is_told(habit: Habit, tmp_path: Path) -> None:
    """DATA of an older day: its users file has no certify users."""
    data = tmp_path / "data"
    shutil.copytree(habit.data, data)
    users = np.load(data / "users.npy")
    users["split"] = np.minimum(users["split"], 1)
    np.save(data / "users.npy", users)
    with pytest.raises(LogError, match=r"no user .*'certify'"):
        outlay.train(data, tmp_path / "run", method="aim-greedy")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_progress_rises_to_one(quick: Path, tmp_path: Path) -> None:
    seen: list[tuple[float, str]] = []
    outlay.train(quick, tmp_path / "run", progress=lambda share, text: seen.append((share, text)), method="aim-greedy")
    shares = [share for share, _ in seen]
    assert (np.diff(shares) > -1e-9).all()
    assert shares[-1] == 1
    assert any("200 of 500 steps" in text for _, text in seen)
