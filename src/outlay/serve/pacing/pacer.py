"""Pacing in a server: states are notes in the ledger, and all servers serve what is stored there.

    decider = pacer.decider(base, episode, now)     the decider of this episode; reads the ledger only when one begins
    pacer.tend(base, episode, now)                  every second, in the background: corrects the price when it is time

The first server to write the next state wins; all others find it under its key and adopt it. So any number of servers
follow one state, and every decision is made with weights and a price that the ledger knows.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from importlib import import_module

import msgspec

from outlay.serve.clock import Moment
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import Decider
from outlay.serve.ledger.ledger import Ledger, Note
from outlay.serve.pacing.budgets import PacedBudget
from outlay.serve.pacing.mixing import PolicyPool
from outlay.serve.pacing.pacing import PacingSetup, PacingState, begin, correct, weights_of

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
        return replace(self, state=state, decider=replace(self.base, weights=weights, price=state.price))


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
            base: the decider with the bundle's own weights.
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
            policies=PolicyPool.of(base.pool, self._config.minor),
            expiry_days=self._config.expiry_hours / 24,
            episode_days=self._config.episode.days,
        )


def _last(notes: list[Note], prefix: str) -> PacingState | None:
    """Return the latest state under keys with this prefix."""
    return next((_decode(note.content) for note in reversed(notes) if note.key.startswith(prefix)), None)
