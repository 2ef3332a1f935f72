"""Pacing: the spend follows the plan even if traffic and redemption drift.

There is a slow loop and a fast one; the ledger's hard caps depend on neither.

    each episode     weights α of the policies that fit the money of its days, given the forecast of decisions and κ
    in between       e = (spent since the anchor − planned) / money of a whole day,    with a dead band of 2%
                     I ← I + 2 e Δt,    log ρ → (I + 4 e) / ε  by at most 10% in a correction,    ρ in [1/4, 4]

ε is the elasticity of the spend: the effect of a price, by the policies' measurements and by what was observed since.
A user keeps a policy for an episode, so only the price ρ moves within it: a factor on all costs in what the policies
maximise. The anchor is where the path of a day begins: midnight, the moment when counting resumes after a stop or a
pause, or when a cap is changed. What was missed before the anchor is not made up for at once: it is part of what is
left, and is spread over all remaining days by their shares (`pacing/budgets.py`).

A state is a value that holds everything the next one needs: `begin` and `correct` are pure. Outside the plan, and on
days without money, the cheapest policy serves at the highest price.

States are notes in the ledger, and all servers serve what is stored there:

    decider = pacer.decider(base, episode, now)     the decider of this episode; reads the ledger only when one begins
    pacer.tend(base, episode, now)                  every second, in the background: corrects the price when it is time

The first server to write the next state wins; all others find it under its key and adopt it. So any number of servers
follow one state, and every decision is made with weights and a price that the ledger knows.

Source: ours. Steering the spend along a path in small steps is from Agarwal et al. (2014), *Budget pacing for targeted
online advertisements*; here a price is steered, so that every decision keeps a known probability.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from dataclasses import replace as changed
from importlib import import_module

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from outlay.serve.clock import Moment
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import Decider
from outlay.serve.ledger.ledger import Ledger, Note
from outlay.serve.pacing.budgets import BudgetState, PacedBudget
from outlay.serve.pacing.forecast import Forecast, PacingSetup, PathAnchor, Snapshot, TrafficHistory
from outlay.serve.pacing.mixing import PolicyPool, Vector

BAND = 0.02  # of a day's money
GAIN = 4.0  # of the log of spend, per day's money of error
LASTING = 2.0  # of I, per day's money of error and per day that it lasts
ELASTIC = 0.25, 4.0  # bounds on ε
STEP = math.log(1.1)
LIMIT = math.log(4.0)
LATEST = 0.999  # the most progress of an anchor: a part of the day must be left
MISSED = 3  # corrections that may be missed before it counts as a stop


class PacingState(Struct, frozen=True, kw_only=True):
    """The state of pacing.

    Attributes:
        step: 0 at the start of the episode, one more with every correction.
        members: positions in the pool of the policies that serve.
        weights: of each, sum 1.
        price: ρ.
        integral: I.
        limit: minor units per decision that the weights were solved for; None if they are the bundle's own.
        cost: measured cost of the mixture at price 1, minor units per decision.
        priced: the same at this price.
        traffic: the decisions so far.
        anchor: of the day's path.
        snapshot: what was known when the state was created.
    """

    step: int
    members: list[int]
    weights: list[float]
    price: float
    integral: float
    limit: float | None
    cost: float
    priced: float
    traffic: TrafficHistory
    anchor: PathAnchor
    snapshot: Snapshot


def begin(setting: PacingSetup, budget: BudgetState, now: Moment, before: PacingState | None) -> PacingState:
    """Return the first state of an episode; `before` is the last state of what was served before, if there is one."""
    if before is None:
        forecast = Forecast(setting, budget, now, TrafficHistory.opened(budget.days, now))
        anchor = _anchor(forecast, early=True)
    else:
        forecast, anchor = _followed(setting, budget, now, before)
    snapshot = forecast.snapshot(anchor)
    weights, price, limit = setting.policies.own, 1.0, forecast.per_decision(snapshot)
    if limit is not None:
        weights = setting.policies.mixture(limit, snapshot.factor)
        price = 1.0 if limit > 0 else math.exp(LIMIT)
    live = np.flatnonzero(weights)
    return PacingState(
        step=0,
        members=live.tolist(),
        weights=weights[live].tolist(),
        price=price,
        integral=0.0,
        limit=limit,
        cost=setting.policies.spend(weights, 1.0),
        priced=setting.policies.spend(weights, price),
        traffic=forecast.traffic,
        anchor=anchor,
        snapshot=snapshot,
    )


def correct(setting: PacingSetup, budget: BudgetState, now: Moment, before: PacingState) -> PacingState:
    """Return the next state of an episode: the same weights at another price."""
    forecast, anchor = _followed(setting, budget, now, before)
    snapshot = forecast.snapshot(anchor)
    weights = weights_of(before, len(setting.policies.own))
    integral, target = before.integral, LIMIT
    if snapshot.day_money > 0:
        error = (snapshot.spent - snapshot.planned) / snapshot.day_money
        error -= _within(error, BAND)
        elapsed = min(now.ts - before.traffic.ts, MISSED * setting.minutes * 60_000) / 86_400_000
        elasticity = min(max(snapshot.response * setting.policies.elasticity(weights), ELASTIC[0]), ELASTIC[1])
        integral = _within(integral + LASTING * error * elapsed, elasticity * LIMIT)
        target = _within((integral + GAIN * error) / elasticity, LIMIT)
    log_price = math.log(before.price)
    price = math.exp(log_price + _within(target - log_price, STEP))
    return replace(
        before,
        step=before.step + 1,
        price=price,
        integral=integral,
        priced=setting.policies.spend(weights, price),
        traffic=forecast.traffic,
        anchor=anchor,
        snapshot=snapshot,
    )


def weights_of(state: PacingState, count: int) -> Vector:
    """Return a state's weights `[P]` over a pool of `count` policies."""
    weights = np.zeros(count)
    weights[state.members] = state.weights
    return weights


def _followed(
    setting: PacingSetup, budget: BudgetState, now: Moment, before: PacingState
) -> tuple[Forecast, PathAnchor]:
    """Return what is known now, and the anchor: a new one on another day, after a stop, or with another cap."""
    old, anchor = before.traffic, before.anchor
    stopped = now.ts - old.ts > MISSED * setting.minutes * 60_000
    traffic = old.continued(budget.days, now, before.cost, before.priced, stopped=stopped)
    forecast = Forecast(setting, budget, now, traffic)
    if stopped or now.day != anchor.day or budget.cap != anchor.total:
        anchor = _anchor(forecast, early=now.day != anchor.day)
    return forecast, anchor


def _anchor(forecast: Forecast, *, early: bool) -> PathAnchor:
    """Return an anchor at this moment; or at midnight, if `early` and midnight has only just passed."""
    now, cap = forecast.now, forecast.budget.cap
    if early and now.part * 1440 <= MISSED * forecast.setting.minutes:
        return PathAnchor(now.day, 0.0, 0.0, cap)
    return PathAnchor(now.day, min(forecast.done, LATEST), forecast.today, cap)


def _within(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)


_decode = msgspec.json.Decoder(PacingState).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class _Paced:
    """What serves in an episode; without a state it is the bundle itself."""

    base: Decider
    episode: str
    setting: PacingSetup
    state: PacingState | None
    decider: Decider

    @property
    def campaign(self) -> str:
        return self.base.pool.bundle.manifest.name

    @property
    def prefix(self) -> str:
        """The prefix of the notes' keys: another bundle has another pool, so it has states of its own."""
        return f"{self.episode}/{self.base.pool.bundle.id}/"

    def at(self, state: PacingState) -> _Paced:
        weights = weights_of(state, len(self.setting.policies.own))
        return changed(self, state=state, decider=changed(self.base, weights=weights, price=state.price))


class Pacer:
    """Follows the plan of one of a campaign's budgets."""

    def __init__(self, ledger: Ledger, config: ServeConfig, budget: PacedBudget) -> None:
        self._ledger = ledger
        self._config = config
        self._budget = budget
        self._lock = threading.Lock()
        self._paced: _Paced | None = None
        import_module("outlay.ops.mixture_lp")  # takes half a second, which no decision should wait for

    def decider(self, base: Decider, episode: str, now: int) -> Decider:
        """Return the bundle's decider with the weights and the price of this episode.

        Args:
            base: the decider without a plan.
            episode: of the decisions.
            now: epoch ms.

        Raises:
            LedgerError: if the episode is new here and the ledger cannot be reached.
        """
        paced = self._paced
        if paced is None or paced.base is not base or paced.episode != episode:
            with self._lock:
                paced = self._entered(base, episode, now)
        return paced.decider

    def tend(self, base: Decider, episode: str, now: int) -> PacingState | None:
        """Correct the price if it is time. Return the current state; None while the budget has no cap.

        Raises:
            LedgerError: if the ledger cannot be reached; the previous state then stays in service.
        """
        with self._lock:
            paced = self._entered(base, episode, now)
            state = paced.state
            if state is not None and now - state.traffic.ts >= paced.setting.minutes * 60_000:
                totals = self._ledger.totals(paced.campaign)
                moment = Moment.of(now, self._config.zone)
                budget = self._budget.budget(totals, moment.day)
                if budget is not None and not totals.paused:
                    self._paced = paced = self._stands(paced, correct(paced.setting, budget, moment, state))
            return paced.state

    def _entered(self, base: Decider, episode: str, now: int) -> _Paced:
        """Return what serves in this episode: the state in the ledger, or a first state written here."""
        paced = self._paced
        if paced is None or paced.base is not base or paced.episode != episode:
            paced = _Paced(base, episode, self._setting(base), None, base)
        if paced.state is None:
            notes = self._ledger.notes(paced.campaign, self._budget.kind)
            moment = Moment.of(now, self._config.zone)
            if (last := _last(notes, paced.prefix)) is not None:
                paced = paced.at(last)
            elif (budget := self._budget.budget(self._ledger.totals(paced.campaign), moment.day)) is not None:
                paced = self._stands(paced, begin(paced.setting, budget, moment, _last(notes, "")))
            self._paced = paced
        return paced

    def _stands(self, paced: _Paced, state: PacingState) -> _Paced:
        """Write a state to the ledger. If another server was first, adopt the latest state that it wrote."""
        note = Note(
            kind=self._budget.kind,
            key=f"{paced.prefix}{state.step:06d}",
            ts=state.traffic.ts,
            content=_encode(state).decode(),
        )
        if self._ledger.note(paced.campaign, note).content != note.content:
            last = _last(self._ledger.notes(paced.campaign, self._budget.kind), paced.prefix)
            assert last is not None
            state = last
        return paced.at(state)

    def _setting(self, base: Decider) -> PacingSetup:
        return PacingSetup(
            schedule=self._budget.schedule,
            policies=PolicyPool.of(base.pool, self._config.minor, base.weights),
            expiry_days=self._config.expiry_hours / 24,
            episode_days=self._config.episode.days,
        )


def _last(notes: list[Note], prefix: str) -> PacingState | None:
    """Return the latest state under keys with this prefix."""
    return next((_decode(note.content) for note in reversed(notes) if note.key.startswith(prefix)), None)
