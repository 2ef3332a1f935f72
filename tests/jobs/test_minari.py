"""A log goes to Minari and comes back as it went; another's dataset becomes a log; what cannot is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("minari", reason="the extra minari is not installed")

import gymnasium
import minari
from minari.data_collector import EpisodeBuffer

import outlay
from outlay.core.errors import OutlayError
from outlay.jobs.minari import from_minari, to_minari
from telling import missing

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def own_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "datasets").mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))


def made(observations: Any, space: gymnasium.Space[Any], infos: Any = None, actions: Any = None, n: int = 2) -> Any:
    """A dataset of one episode with three steps, with terminations at its end."""
    buffer = EpisodeBuffer(
        id=0,
        observations=observations,
        actions=np.array([0, 1, 0]) if actions is None else actions,
        rewards=np.array([1.0, 0.0, 2.0]),
        terminations=np.array([False, False, True]),
        truncations=np.array([False, False, False]),
        infos=infos,
    )
    choices = gymnasium.spaces.Discrete(n) if actions is None else gymnasium.spaces.Box(-1, 1, (1,))
    return minari.create_dataset_from_buffers("one/own-v0", [buffer], observation_space=space, action_space=choices)


def test_a_log_comes_back_as_it_went(tmp_path: Path) -> None:
    campaign = outlay.simulate("thirty-day", tmp_path / "log", users=40, days=5, seed=1)
    dataset = to_minari(campaign, "coupons/thirty-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (40, 200)
    back = from_minari("coupons/thirty-v0", tmp_path / "back", at_most=0.4)
    before, after = pq.read_table(tmp_path / "log" / "log.parquet"), pq.read_table(back.parent / "log.parquet")
    for was, is_now in (
        ("day", "day"),
        ("type", "type"),
        ("coupon", "action"),
        ("active", "reward"),
        ("cost", "coupon_cost"),
    ):
        assert before[was].to_pylist() == pytest.approx(after[is_now].to_pylist()), was
    assert before["level"].cast("string").to_pylist() == after["level"].to_pylist()
    assert after["propensity"].to_numpy() == pytest.approx(np.full(200, 1 / 22))
    assert not any(after["terminal"].to_pylist())
    assert outlay.check(back).rows == 200


def test_some_users_with_numbers_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = [f"u{i // 2},{i % 2},{rng.normal(50, 9):.4f},{i % 3},{i % 2},{i % 3 * 0.5}" for i in range(120)]
    (tmp_path / "log.csv").write_text("user,day,age,gift,bought,cost\n" + "\n".join(lines), encoding="utf-8")
    (tmp_path / "campaign.toml").write_text(
        '[campaign]\nname = "ages"\n[log]\nsource = "log.csv"\nuser = "user"\ntime = "day"\naction = "gift"\n'
        'reward = "bought"\n[log.features]\nnumeric = ["age"]\n[[budget]]\nname = "cost"\ncost = "cost"\nat_most = 1\n',
        encoding="utf-8",
    )
    dataset = to_minari(tmp_path / "campaign.toml", "coupons/ages-v0", users=10)
    ages = np.concatenate([episode.observations[:-1, 0] for episode in dataset.iterate_episodes()])
    assert ages == pytest.approx([float(line.split(",")[2]) for line in lines[:20]], rel=1e-4)


def test_episodes_of_our_worlds_become_a_log(tmp_path: Path) -> None:
    env = minari.DataCollector(gymnasium.make("outlay.gym:outlay/Habit-v0", days=3), record_infos=True)
    for seed in range(5):
        env.reset(seed=seed)
        for _ in range(3):
            env.step(env.action_space.sample())
    env.create_dataset("own/habit-v0")
    log = pq.read_table(from_minari("own/habit-v0", tmp_path / "log", at_most=2).parent / "log.parquet")
    assert log.num_rows == 15
    assert log["cost"].to_numpy() == pytest.approx(log["reward"].to_numpy() * (log["action"].to_numpy() + 2) / 2)


def test_several_spaces_and_prices(tmp_path: Path) -> None:
    space = gymnasium.spaces.Dict(kind=gymnasium.spaces.Discrete(3), seen=gymnasium.spaces.Box(-9, 9, (2,), np.float32))
    told = {"kind": np.array([0, 1, 2, 2]), "seen": np.arange(8, dtype=np.float32).reshape(4, 2)}
    path = from_minari(made(told, space), tmp_path / "log", at_most=1, costs=[0, 5])
    log = pq.read_table(path.parent / "log.parquet")
    assert log["cost"].to_pylist() == [0, 5, 0]
    assert log["terminal"].to_pylist() == [False, False, True]
    assert log["seen_2"].to_pylist() == [1, 3, 5]
    features = outlay.Campaign.load(path).log.features
    assert (features.categorical, features.numeric) == (("kind",), ("seen_1", "seen_2"))


WHOLE = np.array([0, 1, 2, 0])
FEW = gymnasium.spaces.Discrete(3)


@pytest.mark.parametrize(
    ("dataset", "options", "told"),
    [
        ((WHOLE, FEW), {}, ("no cost", "costs=")),
        ((WHOLE, FEW), {"costs": [1]}, ("costs", "an action 1")),
        ((WHOLE, FEW), {"costs": [0, 1], "at_most": [1, 2]}, ("at_most", "2 numbers")),
        (
            (np.zeros((4, 2, 2)), gymnasium.spaces.Box(-1, 1, (2, 2))),
            {"costs": [0, 1]},
            ("observations", "MultiDiscrete"),
        ),
        ((WHOLE, FEW, None, np.zeros((3, 1))), {"costs": [0, 1]}, ("actions", "Discrete")),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, dataset: Any, options: Any, told: tuple[str, ...]) -> None:
    with pytest.raises(OutlayError) as refused:
        from_minari(made(*dataset), tmp_path / "log", **({"at_most": 1} | options))
    assert not missing(str(refused.value), *told)
    assert not (tmp_path / "log").exists()


def test_names_that_are_not_there_or_are(tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match="minari download no/where-v0"):
        from_minari("no/where-v0", tmp_path / "log", at_most=1)
    campaign = outlay.simulate("habit", tmp_path / "habit", users=60)
    to_minari(campaign, "two/habit-v0")
    with pytest.raises(OutlayError, match="already there"):
        to_minari(campaign, "two/habit-v0")
