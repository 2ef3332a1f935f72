"""True values of policies, where the campaign was simulated: what a comparison sets beside its estimates.

    known = true_values(campaign, data)           # None where the truth is not known, or does not fit the campaign
    known.mixture([policy], np.ones(1), lags=None, days=(1, 7))            # {"reward": …, "reward@7": …, …}

A policy is a function of encoded features. In a city (`simulators/city_people.py`) it is simulated on 20,000 users, and
the share of the optimum that it captures is known too (`CAPTURED`). Where the truth is a table, as `truth.npz` and
`states.parquet` beside the campaign hold it (`Truth`), the policy is evaluated exactly. For one that looks at past days
too (`rolled_out`) days are simulated, as `people` draws them in a campaign that one of our simulators made, and only
what the past changes is sampled:

    J(π) = J(π₀) + E_π Σ_t γ^t A_t(s_t, a_t)        A_t = Q_t − V_t of π₀, which does on each day in each state what π
                                                    does there most often

No table can hold a policy of states and pasts, but π₀ looks at day and state alone and is known exactly. A is 0
wherever π does as π₀, and luck in moves and outcomes cancels, so that a few thousand users give a value to 0.1 or
0.2%. Every rollout draws the same random numbers: the difference of two policies is sharper than either.

Source: Kakade & Langford (2002), lemma 6.1, for the difference of two policies; totals and the choice of π₀: ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.comparing.results import CAPTURED
from outlay.core.campaign import Campaign
from outlay.core.cmdp import TabularCMDP
from outlay.core.estimate import Target
from outlay.core.files import kind_of, read_manifest
from outlay.core.history import PastRows
from outlay.core.looking_back import LagFields
from outlay.core.progress import Progress, silent
from outlay.core.transitions import Transitions
from outlay.ops.intervals import std_error
from outlay.ops.tabular import action_values, measure, totals
from outlay.simulators import CAMPAIGNS, find
from outlay.simulators.city import CITY_FILE, COUPONS, City
from outlay.simulators.city_people import PolicyValue, PolicyValues
from outlay.simulators.city_truth import CityCurve, CityTruth, optimum
from outlay.simulators.simulator import Participation, Simulator
from outlay.simulators.wide import WIDE_FILE, WideWorld

USERS = 20_000  # simulated for a value
USER_DAYS = 250_000  # of a policy of a table that looks at past days, at most: 2 to 5 s of DIN on one core
WIDE_USERS = 5000  # whose fields take far more time to draw
LEFT = 0.01  # of a discounted sum may lie beyond the last simulated day, and then only of what π gains over π₀
SHARE_ERROR = 0.1  # standard error of a captured share; with a larger one it is left out

Floats = NDArray[np.float64]
Acts = Callable[[NDArray[np.int32], NDArray[np.float32]], NDArray[np.int64]]
"""Codes `[n, F]`, numbers `[n, 2·F']` → action indices `[n]`."""


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


def mixed(parts: Sequence[dict[str, float]], weights: Floats) -> dict[str, float]:
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


class Rolled(NamedTuple):
    """Values by target, and the standard errors of their simulation."""

    value: dict[str, float]
    std_error: dict[str, float]


class SimulatedPaths(NamedTuple):
    """The days of N users, T each: `state [N, T]`, `action [N, T]`, `outcome [N, T, 1+m]` as observed."""

    state: NDArray[np.int64]
    action: NDArray[np.int64]
    outcome: NDArray[np.float32]

    def before(self, day: int, lags: LagFields, truth: Truth) -> NDArray[np.float32]:
        """`[N, 2·F]` what the fields tell of the days before `day`, as the log would show them."""
        assert truth.people is not None
        users, first = np.arange(len(self.state)), max(0, day - lags.history.days)
        given = truth.people.coupons[self.action[:, first:day]].astype(np.float32)
        told = {"action": given} | {name: self.outcome[:, first:day, j] for j, name in enumerate(truth.names)}
        values = np.stack([told[column].ravel() for column in lags.history.columns], axis=1)
        past = PastRows(np.repeat(users, day - first), np.tile(np.arange(first, day), len(users)), values)
        return lags.numbers(past, users, np.full(len(users), day))


def rolled_out(truth: Truth, acts: Acts, lags: LagFields, days: Sequence[int], *, seed: int = 0) -> Rolled:
    """True value of a policy that looks at past days.

    Args:
        truth: with `people`.
        acts: the policy.
        lags: what it reads of past days, after the numbers of the state.
        days: spans of the totals.
        seed: of the people's luck.

    Returns:
        By target as `Truth.values` names them. A policy of the state alone gets its exact value.
    """
    model, names = truth.model, truth.names
    discounted = 1 if model.discount == 0 else math.ceil(math.log(LEFT) / math.log(model.discount))
    paths = simulate(truth, acts, lags, max(discounted, *days), seed)
    around = _most_frequent(paths, model)
    tail = action_values(model, around[-1])[np.arange(model.num_states), around[-1]]
    gains = [_gain(paths, model, around[:discounted], tail, discount=model.discount)]
    gains += [_gain(paths, model, around[:k], np.zeros_like(tail)) for k in days]
    targets = [*names, *(str(Target(name, k)) for k in days for name in names)]
    value = np.concatenate([exact + gain.mean(axis=0) for exact, gain in gains])
    error = np.concatenate([std_error(gain) for _, gain in gains])
    return Rolled(dict(zip(targets, value.tolist(), strict=True)), dict(zip(targets, error.tolist(), strict=True)))


def simulate(truth: Truth, acts: Acts, lags: LagFields, days: int, seed: int = 0) -> SimulatedPaths:
    """The people's days under a policy."""
    people = truth.people
    assert people is not None
    rng = np.random.default_rng(seed)
    users = min(USERS, max(1, USER_DAYS // days))
    shape = users, days
    paths = SimulatedPaths(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros((*shape, 2), np.float32))
    state = people.newcomers(rng, users)
    for day in range(days):
        codes, numbers = truth.features(state)
        action = acts(codes, np.hstack([numbers, paths.before(day, lags, truth)]))
        paths.state[:, day], paths.action[:, day] = state, action
        active, state = people.day(rng, state, action)
        paths.outcome[:, day, 0], paths.outcome[:, day, 1] = active, active * people.coupons[action]
    return paths


def _most_frequent(paths: SimulatedPaths, model: TabularCMDP) -> NDArray[np.intp]:
    """`[T, S]` π₀: what most users did; in a state that none was in that day, what most did there on any day."""
    day = np.arange(paths.state.shape[1])
    place = (day * model.num_states + paths.state) * model.num_actions + paths.action
    counts = np.bincount(place.ravel(), minlength=len(day) * model.reward.size).reshape(-1, *model.reward.shape)
    action: NDArray[np.intp] = (counts + counts.mean(axis=0) / counts.sum()).argmax(axis=2)
    return action


def _gain(
    paths: SimulatedPaths, model: TabularCMDP, around: NDArray[np.intp], v: Floats, *, discount: float | None = None
) -> tuple[Floats, Floats]:
    """`[1+m]` the value of π₀ `[T, S]`, and `[N, 1+m]` what each user's path gains over it.

    With a discount (1−γ)·J, where `v` `[S, 1+m]` is what π₀ brings after the last day and later days are taken to gain
    as much; without one totals of the T days.
    """
    rate, unit = (1.0, 1.0) if discount is None else (discount, 1 - discount)
    gain = np.zeros((len(paths.state), v.shape[1]))
    for day in reversed(range(len(around))):
        q = unit * model.outcome + rate * model.transition @ v
        v = q[np.arange(model.num_states), around[day]]
        gain += rate**day * (q - v[:, None])[paths.state[:, day], paths.action[:, day]]
    simulated = 1.0 if discount is None else 1 - discount ** len(around)
    return model.start @ v, gain / simulated


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
