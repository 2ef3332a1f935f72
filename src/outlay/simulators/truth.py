"""The truth beside a simulated campaign: exact values of policies, where `truth.npz` and `states.parquet` lie there.

    truth = Truth.beside(campaign, data)           # None where there is none
    truth.values(actions)                          # {"reward": …, "coupon_cost": …, "reward@7": …}

A policy is known here by its action in each of the model's states; one that looks further back is simulated
(`rollout.py`), for which `people` draws the days of a campaign that one of our simulators made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.files import kind_of, read_manifest
from outlay.core.target import Target
from outlay.core.transitions import Transitions
from outlay.ops.tabular import measure, totals
from outlay.simulators.catalogue import CAMPAIGNS, find
from outlay.simulators.participation import Participation
from outlay.simulators.simulator import Simulator

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Truth:
    """The model that a log was drawn from, with the log's actions only.

    Attributes:
        model: S states, the K actions of the log.
        codes: `[S, F]` its states, encoded as the log was.
        numbers: `[S, 2·F']`.
        budgets: names of its costs.
        people: how its days are drawn, observed outcomes and moves together; None where that is not known.
    """

    model: TabularCMDP
    codes: NDArray[np.int32]
    numbers: NDArray[np.float32]
    budgets: tuple[str, ...]
    people: Participation | None = None

    @classmethod
    def beside(cls, campaign: Campaign, data: Transitions) -> Truth | None:
        """The truth in the campaign's folder; None where there is none that fits the campaign."""
        folder = campaign.path.parent
        if not (folder / "truth.npz").exists() or not (folder / "states.parquet").exists():
            return None
        with np.load(folder / "truth.npz") as file:
            arrays = {name: file[name] for name in file.files}
        place = np.searchsorted(arrays["actions"], data.actions)
        fits = (
            arrays["cost"].shape[2] == len(campaign.budgets)
            and (place < len(arrays["actions"])).all()
            and np.allclose(arrays["actions"][np.minimum(place, len(arrays["actions"]) - 1)], data.actions)
        )
        if not fits:
            return None
        encoded = data.schema.encode(pq.read_table(folder / "states.parquet"))
        model = TabularCMDP(
            transition=arrays["transition"][:, place],
            reward=arrays["reward"][:, place],
            cost=arrays["cost"][:, place],
            start=arrays["start"],
            discount=campaign.meta.discount,
        )
        budgets = tuple(budget.name for budget in campaign.budgets)
        return cls(model, encoded.codes, encoded.numbers, budgets, _people(folder, place, model))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of a measurement."""
        return ("reward", *self.budgets)

    def features(self, state: NDArray[np.integer]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Codes `[n, F]` and numbers `[n, 2·F']` of states `[n]`."""
        return self.codes[state], self.numbers[state]

    def values(self, policy: NDArray[Any], days: Sequence[int]) -> dict[str, float]:
        """True value of a policy, `[S]` action indices or `[S, K]` probabilities, by target."""
        names = self.names
        values = dict(zip(names, measure(self.model, policy).tolist(), strict=True))
        if days:
            whole = totals(self.model, policy, max(days))
            values |= {str(Target(name, k)): float(whole[k - 1, j]) for k in days for j, name in enumerate(names)}
        return values


def mixed(parts: Sequence[dict[str, float]], weights: Vector) -> dict[str, float]:
    """The value of a sticky mixture from those of its members."""
    return {name: float(sum(w * part[name] for part, w in zip(parts, weights, strict=True))) for name in parts[0]}


def _people(folder: Path, place: NDArray[np.intp], model: TabularCMDP) -> Participation | None:
    """The people of the simulator that wrote the folder if the model is theirs."""
    name = read_manifest(folder, "campaign").get("campaign") if kind_of(folder) == "campaign" else None
    made = find(str(name)) if name in CAMPAIGNS else None
    if not isinstance(made, Simulator):
        return None
    people = replace(made.model, active_prob=made.model.active_prob[:, place], coupons=made.model.coupons[place])
    theirs = people.cmdp()
    same = all(
        getattr(theirs, part).shape == getattr(model, part).shape
        and np.allclose(getattr(theirs, part), getattr(model, part), rtol=0, atol=1e-12)
        for part in ("transition", "reward", "cost", "start")
    )
    return people if same else None
