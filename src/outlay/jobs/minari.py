"""Logs as Minari datasets, and Minari datasets as logs: for what others measure their learners on, and learn with.

    dataset = to_minari("campaign.toml", "coupons/spring-v0")               # an episode is a user
    path = from_minari("coupons/spring-v0", "spring", at_most=2.2)          # spring/campaign.toml, as init writes it

A step is a row: the observation are its features, as the index of a value or as a number; the action is the index of
what was given; costs and the probability of what was given are in the step's `infos`. What comes after a user's last
row the log does not know: the last observation is repeated there, and the episode is truncated. The names of what is
behind the indices are kept in the dataset's metadata, so that a log comes back as it went.

Source: Minari's format, version 0.5 (Younis et al. 2024); the correspondence is ours.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError
from outlay.core.files import check_replaceable, new_folder, write_manifest
from outlay.core.machine import optional
from outlay.core.transitions import Transitions
from outlay.core.version import __version__
from outlay.jobs.prepare import prepare

with optional():
    import gymnasium
    import minari
    from minari.data_collector import EpisodeBuffer

SPACES = "Discrete, MultiDiscrete, Box of one dimension, and Dict of these"
ABOUT = "outlay"  # key of the dataset's metadata
TEMPLATE = """\
# Made from the Minari dataset {name}

[campaign]
name = {name}
discount = {discount}            # per step: how much a step counts against the step before
horizon_days = {longest}

[log]
source = "log.parquet"    # one row per step
user = "user"             # an episode
time = "day"              # a step
action = "action"
actions = {actions}
reward = "reward"
terminal = "terminal"     # nothing follows{propensity}

[log.features]
categorical = {categorical}
numeric = {numeric}
"""
BUDGET = """
[[budget]]
name = {name}
cost = {name}
at_most = {at_most}
per = "decision"
"""


@dataclass(frozen=True)
class DatasetNames:
    """What is behind the indices of a dataset, kept in its metadata.

    Attributes:
        categorical: field → its values in the order of their indices; they come first in an observation.
        numeric: fields.
        actions: what each action gives.
        costs: names, in the order of `infos["cost"]`.
    """

    categorical: dict[str, list[str]]
    numeric: list[str]
    actions: list[float]
    costs: list[str]


def to_minari(log: Campaign | Transitions | str | Path, dataset_id: str, *, users: int | None = None) -> Any:
    """Write a log as a Minari dataset, where Minari keeps its own (`MINARI_DATASETS_PATH`).

    Args:
        log: a campaign, its file, a DATA folder, or one that is open.
        dataset_id: of the dataset, as "coupons/spring-v0"; there must be none of that name.
        users: at most so many of them, the first ones; default: all.

    Returns:
        The `minari.MinariDataset`.

    Raises:
        OutlayError: if the log cannot be read, or the dataset is already there.
    """
    if dataset_id in minari.list_local_datasets():
        raise OutlayError(
            f"{dataset_id} is already there.", where="dataset_id", way_out="Give another, or delete it first."
        )
    with tempfile.TemporaryDirectory() as place:
        data = _opened(log, Path(place) / "data")
        names = _names(data)
        sizes = [len(values) for values in names.categorical.values()]
        box = gymnasium.spaces.Box(-np.inf, np.inf, (len(sizes) + len(names.numeric),), np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it asks for an author, an environment, …
            dataset = minari.create_dataset_from_buffers(
                dataset_id,
                list(_episodes(data, names, users)),
                observation_space=box if names.numeric else gymnasium.spaces.MultiDiscrete(sizes),
                action_space=gymnasium.spaces.Discrete(data.num_actions),
                algorithm_name="the policy of a log",
                description=f"{data.campaign.meta.name}: an episode is a user, a step a row of the log.",
            )
    dataset.storage.update_metadata({ABOUT: json.dumps(vars(names))})
    return dataset


def from_minari(
    dataset: Any,
    out: str | Path,
    *,
    at_most: float | Sequence[float],
    costs: Sequence[float] | None = None,
    discount: float = 0.95,
) -> Path:
    """Write a Minari dataset as a log with its campaign file.

    Args:
        dataset: the dataset, or its name among those that are on this machine.
        out: the folder to write; an older one of ours is replaced.
        at_most: what a decision may cost on average, one for each cost.
        costs: of each action, where the dataset's `infos` have no `cost`.
        discount: γ of a step.

    Returns:
        The path of campaign.toml in the folder.

    Raises:
        OutlayError: if the dataset is not there, its spaces are not of the kinds that a log has, or it has no costs.
        FolderError: if `out` holds something that outlay did not write.
    """
    out = Path(out)
    check_replaceable(out, "campaign")
    if isinstance(dataset, str):
        dataset = _loaded(dataset)
    episodes = list(dataset.iterate_episodes())
    if not episodes:
        raise OutlayError("has no episodes.", where="dataset", way_out="Give one that has some.")
    if not isinstance(dataset.action_space, gymnasium.spaces.Discrete):
        raise OutlayError(
            f"the actions of {dataset.spec.dataset_id} are {dataset.action_space}.",
            where="dataset",
            way_out="outlay chooses among a few: Discrete.",
        )
    known, days = _known(dataset), [len(episode.rewards) for episode in episodes]
    action = np.concatenate([np.asarray(episode.actions) for episode in episodes]) - int(dataset.action_space.start)
    fields, categories = _fields(dataset, episodes, known)
    actions = known.actions if known else [float(value) for value in range(dataset.action_space.n)]
    spent = _spent(episodes, action, costs)
    several = [f"cost_{j + 1}" for j in range(spent.shape[1])]
    budgets = known.costs if known and costs is None else several if len(several) > 1 else ["cost"]
    limits = np.atleast_1d(np.asarray(at_most, float)).tolist()
    if len(limits) != len(budgets):
        raise OutlayError(
            f"has {len(limits)} numbers, and a step {len(budgets)} costs.", where="at_most", way_out="Give one each."
        )
    last = np.cumsum(days) - 1
    terminal = np.zeros(len(action), np.bool_)
    terminal[last] = [bool(episode.terminations[-1]) for episode in episodes]
    propensity = _info(episodes, "propensity")
    table = {
        "user": np.repeat([f"e{episode.id}" for episode in episodes], days),
        "day": np.concatenate([np.arange(count) for count in days]),
        **fields,
        "action": np.array(actions)[action],
        "reward": np.concatenate([episode.rewards for episode in episodes]),
        **dict(zip(budgets, spent.T, strict=True)),
        "terminal": terminal,
    } | ({} if propensity is None else {"propensity": propensity[:, 0]})
    text = TEMPLATE.format(
        name=json.dumps(str(dataset.spec.dataset_id)),
        discount=discount,
        longest=max(days),
        actions=actions,
        propensity="" if propensity is None else '\npropensity = "propensity"',
        categorical=json.dumps([name for name in fields if name in categories]),
        numeric=json.dumps([name for name in fields if name not in categories]),
    )
    text += "".join(
        BUDGET.format(name=json.dumps(name), at_most=limit) for name, limit in zip(budgets, limits, strict=True)
    )
    with new_folder(out) as folder:
        pq.write_table(pa.table(table), folder / "log.parquet")
        (folder / "campaign.toml").write_text(text, encoding="utf-8")
        write_manifest(folder, "campaign", {"rows": len(action), "outlay": __version__})
    return out / "campaign.toml"


def _opened(log: Campaign | Transitions | str | Path, place: Path) -> Transitions:
    if isinstance(log, Transitions):
        return log
    if not isinstance(log, Campaign) and Path(log).is_dir():
        return Transitions.open(log)
    return prepare(log, place)


def _loaded(name: str) -> Any:
    try:
        return minari.load_dataset(name)
    except FileNotFoundError:
        known = ", ".join(minari.list_local_datasets()) or "none"
        raise OutlayError(
            f"{name} is not on this machine; there are: {known}.",
            where="dataset",
            way_out=f"Get it with: minari download {name}",
        ) from None


def _names(data: Transitions) -> DatasetNames:
    """The index of a category is that of its code in DATA."""
    special = ["", "missing", "unknown"]  # codes 0 to 2
    categorical = {
        field.name: [*special, *field.values.to_pylist(), *(f"bucket {i}" for i in range(field.buckets))]
        for field in data.schema.categorical
    }
    budgets = [budget.name for budget in data.campaign.budgets]
    return DatasetNames(categorical, [field.name for field in data.schema.numeric], data.actions.tolist(), budgets)


def _episodes(data: Transitions, names: DatasetNames, users: int | None) -> Iterator[EpisodeBuffer]:
    """A user each, rows in their order."""
    order = np.lexsort((data.day, data.user))
    order = order[: np.searchsorted(data.user[order], len(data.users) if users is None else users)]
    codes, numbers = data.features(order)
    scale = np.array([[field.mean, field.scale] for field in data.schema.numeric]).reshape(-1, 2)
    raw = numbers[:, 0 : 2 * len(scale) : 2] * scale[:, 1] + scale[:, 0]
    seen = codes.astype(np.int64) if not names.numeric else np.hstack([codes, raw]).astype(np.float32)
    outcome, action, terminal = data.outcome[order], np.asarray(data.action[order], np.int64), data.terminal[order]
    told = {"cost": outcome[:, 1:]} | (
        {} if data.propensity is None else {"propensity": data.propensity[order][:, None]}
    )
    starts = np.flatnonzero(np.diff(data.user[order].astype(np.int64), prepend=-1))
    for number, (first, end) in enumerate(zip(starts, [*starts[1:], len(order)], strict=True)):
        ended = np.zeros(end - first, np.bool_)
        ended[-1] = True
        yield EpisodeBuffer(
            id=number,
            observations=np.vstack([seen[first:end], seen[end - 1]]),
            actions=action[first:end],
            rewards=outcome[first:end, 0].astype(np.float64),
            terminations=ended & terminal[first:end],
            truncations=ended & ~terminal[first:end],
            infos={name: np.concatenate([values[:1] * 0, values[first:end]]) for name, values in told.items()},
        )


def _known(dataset: Any) -> DatasetNames | None:
    """What `to_minari` kept; None for another dataset."""
    about = dataset.storage.metadata.get(ABOUT)
    return None if about is None else DatasetNames(**json.loads(about))


def _fields(dataset: Any, episodes: Sequence[Any], known: DatasetNames | None) -> tuple[dict[str, Any], set[str]]:
    """The columns of the features by name, and which of them are categories.

    Raises:
        OutlayError: if the dataset has observations that no log has.
    """
    if known is not None:
        seen = np.concatenate([episode.observations[:-1] for episode in episodes])
        columns: dict[str, Any] = {
            name: np.array(values)[seen[:, place].astype(np.int64)]
            for place, (name, values) in enumerate(known.categorical.items())
        }
        first = len(columns)
        columns |= {name: seen[:, first + place] for place, name in enumerate(known.numeric)}
        return columns, set(known.categorical)
    spaces, categories = dataset.observation_space, set[str]()
    found: dict[str, Any] = {}
    single = not isinstance(spaces, gymnasium.spaces.Dict)
    for name, space in [("state", spaces)] if single else spaces.items():
        parts = [episode.observations if single else episode.observations[name] for episode in episodes]
        values = np.concatenate([np.asarray(part)[:-1] for part in parts])
        if isinstance(space, gymnasium.spaces.Discrete):
            new = {name: values}
        elif isinstance(space, gymnasium.spaces.MultiDiscrete | gymnasium.spaces.Box) and values.ndim == 2:
            new = {f"{name}_{place + 1}": values[:, place] for place in range(values.shape[1])}
        else:
            raise OutlayError(
                f"the observations of {dataset.spec.dataset_id} are {space}.",
                where="dataset",
                way_out=f"What outlay reads: {SPACES}.",
            )
        found |= new
        categories |= set() if isinstance(space, gymnasium.spaces.Box) else set(new)
    return found, categories


def _spent(episodes: Sequence[Any], action: NDArray[np.int64], costs: Sequence[float] | None) -> NDArray[np.float64]:
    """`[N, m]` what each step cost.

    Raises:
        OutlayError: if nothing says so.
    """
    if costs is not None:
        if len(costs) <= action.max():
            raise OutlayError(
                f"has {len(costs)} numbers, and there is an action {action.max()}.",
                where="costs",
                way_out="Give one for each action.",
            )
        return np.asarray(costs, np.float64)[action][:, None]
    found = _info(episodes, "cost")
    if found is None:
        raise OutlayError(
            f"the infos of its steps have no cost, only: {', '.join(episodes[0].infos or {}) or 'nothing'}.",
            where="dataset",
            way_out="Say with costs=[…] what each action costs.",
        )
    return found


def _info(episodes: Sequence[Any], name: str) -> NDArray[np.float64] | None:
    """`[N, k]` an entry of all steps' infos, without those of the resets; None where an episode has none."""
    if any(name not in (episode.infos or {}) for episode in episodes):
        return None
    steps = [np.asarray(episode.infos[name], np.float64)[-len(episode.rewards) :] for episode in episodes]
    return np.concatenate([each.reshape(len(each), -1) for each in steps])
