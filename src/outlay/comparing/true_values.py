"""True values of policies, where the campaign was simulated: what a comparison sets beside its estimates.

    known = true_values(campaign, data)           # None where the truth is not known, or does not fit the campaign
    known.mixture([policy], np.ones(1), lags=None, days=(1, 7))            # {"reward": …, "reward@7": …, …}

A policy is a function of encoded features. Where the truth is a table (`truth.py`) it is evaluated exactly, or rolled
out if it looks at past days. In a city (`simulators/city_people.py`) it is simulated on 20,000 users,
and the share of the optimum that it captures is known too (`CAPTURED`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outlay.comparing.results import CAPTURED
from outlay.core.campaign import Campaign
from outlay.core.looking_back import LagFields
from outlay.core.progress import Progress, silent
from outlay.core.transitions import Transitions
from outlay.simulators.city import CITY_FILE, COUPONS, City
from outlay.simulators.city_people import PolicyValue, PolicyValues
from outlay.simulators.city_truth import CityCurve, CityTruth, optimum
from outlay.simulators.truth import Truth, mixed, rolled_out
from outlay.simulators.wide import WIDE_FILE, WideWorld

USERS = 20_000  # simulated for a value in a city
WIDE_USERS = 5000  # whose fields take far more time to draw
SHARE_ERROR = 0.1  # standard error of a captured share; with a larger one it is left out

Acts = Callable[[NDArray[np.int32], NDArray[np.float32]], NDArray[np.int64]]
"""Codes `[n, F]`, numbers `[n, 2·F']` → action indices `[n]`."""


@dataclass(frozen=True)
class TabularValues:
    """Exact values in a tabular model.

    Attributes:
        truth: the model.
        data: the log that was drawn from it.
    """

    truth: Truth
    data: Transitions

    @cached_property
    def shown(self) -> bool:
        """Whether the log shows all states of the model, encoded alike."""
        states = self.data.states
        if states is None or len(states) != self.truth.model.num_states:
            return False
        logged = {_key(*pair) for pair in zip(states.codes, states.numbers, strict=True)}
        return all(_key(*pair) in logged for pair in zip(self.truth.codes, self.truth.numbers, strict=True))

    def mixture(
        self, policies: Sequence[Acts], weights: NDArray[np.float64], *, lags: LagFields | None, days: Sequence[int]
    ) -> dict[str, float] | None:
        """The value of a sticky mixture of policies by target; None where it is not known.

        Args:
            policies: the members.
            weights: their shares of users.
            lags: fields of past days that they read after those of the log.
            days: spans of the totals.
        """
        truth = self.truth
        if not self.shown or (lags is not None and truth.people is None):
            return None
        if lags is None:
            return mixed([truth.values(acts(truth.codes, truth.numbers), days) for acts in policies], weights)
        return mixed([rolled_out(truth, acts, lags, days).value for acts in policies], weights)

    def old(self, days: Sequence[int]) -> dict[str, float] | None:
        """The value of the log's own policy: known where its propensities are all alike, as uniform draws have them."""
        propensity = self.data.propensity
        if propensity is None or np.asarray(self.data.forced).any():
            return None
        share = 1 / self.data.num_actions
        if not np.allclose(propensity[:100_000], share):
            return None
        return self.truth.values(np.full(self.truth.model.reward.shape, share), days)


@dataclass(frozen=True)
class CityValues:
    """Simulated values in a city.

    Attributes:
        values: simulates.
        data: the log.
        curve: the optimum for every budget; None where the campaign's discount is not the city's.
    """

    values: PolicyValues
    data: Transitions
    curve: CityCurve | None

    def mixture(
        self, policies: Sequence[Acts], weights: NDArray[np.float64], *, lags: LagFields | None, days: Sequence[int]
    ) -> dict[str, float] | None:
        """As for `TabularValues`; None for policies that look at past days, which the simulation does not record."""
        if lags is not None:
            return None
        return self._by_target(
            self.values(*(self._city(acts) for acts in policies), weights=weights.tolist(), days=days)
        )

    def old(self, days: Sequence[int]) -> dict[str, float] | None:
        """The value of the log's own policy."""
        return self._by_target(self.values(None, days=days))

    def _city(self, acts: Acts) -> Callable[[pa.Table], NDArray[Any]]:
        def policy(table: pa.Table) -> NDArray[Any]:
            seen = self.data.schema.encode(table)
            return acts(seen.codes, seen.numbers)

        return policy

    def _by_target(self, simulated: PolicyValue) -> dict[str, float]:
        (budget,) = self.data.campaign.budgets
        own = {name.replace("coupon_cost", budget.name): value for name, value in simulated.value.items()}
        reward, cost = simulated.value["reward"], simulated.value["coupon_cost"]
        if self.curve is None:
            return own
        # Near the least and the largest spend hardly anything can be won, and a share of it would be noise.
        room = self.curve.reached(cost) - self.curve.best_constant(cost)
        if simulated.std_error["reward"] > SHARE_ERROR * room:
            return own
        return own | {CAPTURED: self.curve.captured(reward, cost)}


TrueValues = TabularValues | CityValues


def true_values(campaign: Campaign, data: Transitions, report: Progress = silent) -> TrueValues | None:
    """The true values of a simulated campaign's policies; None where they are not known.

    A city's optimum is found at the first call, in half a minute to some minutes, and kept in the campaign's folder.
    """
    if (truth := Truth.beside(campaign, data)) is not None:
        return TabularValues(truth, data)
    folder = campaign.path.parent
    if not (folder / CITY_FILE).exists():
        return None
    city = City.read(folder)
    fits = (
        len(campaign.budgets) == 1
        and campaign.budgets[0].cost in ("cost", "coupon * active")
        and campaign.log.reward == ("spend" if city.money else "active")
        and (campaign.log.where, campaign.log.start) == (None, "first")
        and not city.sparse  # completed rows have no choice, but in the city every day has one
        and len(data.actions) == len(COUPONS)
        and np.allclose(data.actions, COUPONS)
    )
    if not fits:
        return None
    same = campaign.meta.discount == city.gamma
    curve = optimum(folder, report) if same else None
    city = city if same else replace(city, discount=campaign.meta.discount)
    wide = (folder / WIDE_FILE).exists()
    values = PolicyValues(
        CityTruth(city), users=WIDE_USERS if wide else USERS, show=WideWorld.read(folder).show if wide else None
    )
    return CityValues(values, data, curve)


def _key(codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> bytes:
    return np.asarray(codes, np.int32).tobytes() + np.asarray(numbers, np.float32).tobytes()
