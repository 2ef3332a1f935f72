"""Which action each request gets, before anyone asks for the money.

    member   drawn by `user:episode` and the bundle's salts, as everywhere (`ops/hashing.py`)
    action   the member's best allowed one, as in `Bundle.decide`
    slice    a share of `user:episode`, by a salt of its own, gets an action drawn evenly from the allowed ones

The networks, the choice and the draw are the bundle's own functions, called for one row or many; only the reading of
features is this room's (`server/features.py`). The random slice is an arm: a user stays in it for the whole episode.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.ops.hashing import rendezvous, uniform
from outlay.server.features import Row, RowEncoder, arrays
from outlay.server.guards import NOT_ELIGIBLE, Choice, allows_nothing

POLICY, RANDOM = "policy", "random"  # arms, and the reasons of their answers
MISSING_FEATURES, MODEL_ERROR = "missing_features", "model_error"  # reasons of the fallback

log = logging.getLogger("outlay.serve")


class Case(NamedTuple):
    """What is asked, in numbers.

    Attributes:
        request_id: draws the action of the random slice.
        user: canonical text.
        row: the features; None where one is absent.
        eligible: `[K]` which actions are allowed; None allows all.
    """

    request_id: str
    user: str
    row: Row | None
    eligible: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Decider:
    """A bundle with the weights and the slice that it serves with.

    Attributes:
        bundle: verified.
        weights: `[k]` of the members; the bundle's own, or what pacing made of them.
        none: the value that means "no incentive".
        fallback: action given where features are missing or the model fails.
        random_share: of users and episodes in the random slice.
        random_salt: of the slice.
    """

    bundle: Bundle
    weights: NDArray[np.float64]
    none: float
    fallback: float
    random_share: float = 0.0
    random_salt: str = "random-slice"

    def decide(self, cases: Sequence[Case], episode: str) -> list[Choice]:
        """Propose for every case. Each is decided alone; an error of the model gives all of them the fallback."""
        units = [f"{case.user}:{episode}" for case in cases]
        arms = self._arms(units)
        found: dict[int, Choice] = {}
        for i, case in enumerate(cases):
            if allows_nothing(case.eligible):
                found[i] = self._settled(arms[i], self.none, NOT_ELIGIBLE, case)
            elif case.row is None:
                found[i] = self._settled(arms[i], self.fallback, MISSING_FEATURES, case)
        places = [i for i in range(len(cases)) if i not in found] if found else list(range(len(cases)))
        if places:
            asked = [cases[i] for i in places]
            try:
                chosen = self._chosen(asked, [units[i] for i in places], [arms[i] for i in places])
            except Exception:  # whatever a model does, the user gets an answer
                log.exception("the model of bundle %s failed", self.bundle.id)
                chosen = [self._settled(arms[i], self.fallback, MODEL_ERROR, cases[i]) for i in places]
            found.update(zip(places, chosen, strict=True))
        return [found[i] for i in range(len(cases))]

    def arm_of(self, case: Case, episode: str) -> str:
        """Whether the user is in the random slice of this episode."""
        return self._arms([f"{case.user}:{episode}"])[0]

    def index_of(self, action: float) -> int:
        """Its position among the bundle's actions, to single precision; −1 where it is none of them."""
        if action in self._places:
            return self._places[action]
        places = np.flatnonzero(np.isclose(self.bundle.actions, action, rtol=1e-6, atol=0))
        return int(places[0]) if len(places) else -1

    def _chosen(self, cases: list[Case], units: list[str], arms: list[str]) -> list[Choice]:
        codes, numbers = arrays([case.row for case in cases if case.row is not None])
        actions = np.stack([chosen for chosen, _ in self.bundle.choices(codes, numbers, self._eligible(cases))], axis=1)
        drawn = rendezvous(self._salts, self.weights, units)
        given = actions[np.arange(len(cases)), drawn]
        probability = (actions == given[:, None]) @ self.weights
        return [
            self._evenly(case, every)
            if arm == RANDOM
            else Choice(POLICY, member, index, self._values[index], p, self._members(every), POLICY, False)
            for case, arm, member, index, p, every in zip(
                cases, arms, drawn.tolist(), given.tolist(), probability.tolist(), actions.tolist(), strict=True
            )
        ]

    def _evenly(self, case: Case, every: list[int]) -> Choice:
        allowed = range(len(self._values)) if case.eligible is None else np.flatnonzero(case.eligible).tolist()
        (u,) = uniform(f"{self.random_salt}-action", [case.request_id]).tolist()
        index = allowed[int(u * len(allowed))]
        return Choice(RANDOM, None, index, self._values[index], 1 / len(allowed), self._members(every), RANDOM, False)

    def _settled(self, arm: str, action: float, reason: str, case: Case) -> Choice:
        """An answer without a choice. A fallback that is not allowed becomes none; none always is."""
        index = self.index_of(action)
        if action != self.none and case.eligible is not None and not (index >= 0 and case.eligible[index]):
            return self._settled(arm, self.none, NOT_ELIGIBLE, case)
        return Choice(arm, None, index, action, 1.0, "{}", reason, True)

    def _eligible(self, cases: list[Case]) -> NDArray[np.bool_] | None:
        if all(case.eligible is None for case in cases):
            return None
        every = np.ones(len(self._values), np.bool_)
        return np.stack([every if case.eligible is None else case.eligible for case in cases])

    def _arms(self, units: list[str]) -> list[str]:
        if self.random_share == 0:
            return [POLICY] * len(units)
        return [RANDOM if u < self.random_share else POLICY for u in uniform(self.random_salt, units).tolist()]

    def _members(self, actions: list[int]) -> str:
        return f'{{"actions":{actions},"weights":{self._weights_text}}}'

    @cached_property
    def encoder(self) -> RowEncoder:
        """Of the bundle's schema; makes the rows of cases."""
        return RowEncoder(self.bundle.schema)

    @cached_property
    def _salts(self) -> list[str]:
        return [member.salt for member in self.bundle.members]

    @cached_property
    def _values(self) -> list[float]:
        return self.bundle.actions.tolist()  # type: ignore[no-any-return]

    @cached_property
    def _places(self) -> dict[float, int]:
        return {action: i for i, action in enumerate(self._values)}

    @cached_property
    def _weights_text(self) -> str:
        return str(self.weights.tolist())
