"""Which action each request gets, before anyone asks for the money.

    member   drawn by `user:episode` and the bundle's salts, as everywhere (`ops/hashing.py`)
    action   the member's best allowed one, as in `Bundle.decide`
    slice    a share of `user:episode`, by a salt of its own, gets an action drawn evenly from the allowed ones

The networks, the choice and the draw are the bundle's own functions, called for one row or many; only the reading of
features is this room's (`deciding/features.py`). The random slice is an arm: a user stays in it for the whole episode.
Pacing is another decider, with other weights and another price (`pacing/pacing.py`): deciding costs the same.
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
from outlay.bundles.pool import Pool
from outlay.ops.hashing import rendezvous, uniform
from outlay.serve.deciding import draws
from outlay.serve.deciding.draws import DrawRecord
from outlay.serve.deciding.features import EncodedRow, RowEncoder, arrays
from outlay.serve.deciding.guards import NOT_ELIGIBLE, ChosenAction, allows_nothing

POLICY, RANDOM = "policy", "random"  # arms, and the reasons of their answers
MISSING_FEATURES, MODEL_ERROR = "missing_features", "model_error"  # reasons of the fallback

log = logging.getLogger("outlay.serve")


class EncodedRequest(NamedTuple):
    """What is asked, in numbers.

    Attributes:
        request_id: draws the action of the random slice.
        user: canonical text.
        row: the features; None where one is absent.
        eligible: `[K]` which actions are allowed; None allows all.
    """

    request_id: str
    user: str
    row: EncodedRow | None
    eligible: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Decider:
    """A bundle with the weights and the slice that it serves with.

    Attributes:
        pool: the policies of a verified bundle.
        weights: `[P]` of them; the bundle's own, or what pacing made of them. Those of weight 0 are left out.
        none: the value that means "no incentive".
        fallback: action given where features are missing or the model fails.
        random_share: of users and episodes in the random slice.
        random_salt: of the slice.
        price: factor on the costs, from pacing.
    """

    pool: Pool
    weights: NDArray[np.float64]
    none: float
    fallback: float
    random_share: float = 0.0
    random_salt: str = "random-slice"
    price: float = 1.0

    @cached_property
    def bundle(self) -> Bundle:
        """Of the live policies, with these weights and at this price."""
        return self.pool.mixture(self.weights, self.price)

    def decide(self, cases: Sequence[EncodedRequest], episode: str) -> list[ChosenAction]:
        """Propose for every case. Each is decided alone; an error of the model gives all of them the fallback."""
        units = [f"{case.user}:{episode}" for case in cases]
        arms = self._arms(units)
        found: dict[int, ChosenAction] = {}
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
                log.exception("the model of bundle %s failed", self.pool.bundle.id)
                chosen = [self._settled(arms[i], self.fallback, MODEL_ERROR, cases[i]) for i in places]
            found.update(zip(places, chosen, strict=True))
        return [found[i] for i in range(len(cases))]

    def arm_of(self, case: EncodedRequest, episode: str) -> str:
        """Whether the user is in the random slice of this episode."""
        return self._arms([f"{case.user}:{episode}"])[0]

    def index_of(self, action: float) -> int:
        """Its position among the bundle's actions, to single precision; −1 where it is none of them."""
        if action in self._positions:
            return self._positions[action]
        places = np.flatnonzero(np.isclose(self.pool.bundle.actions, action, rtol=1e-6, atol=0))
        return int(places[0]) if len(places) else -1

    def _chosen(self, cases: list[EncodedRequest], units: list[str], arms: list[str]) -> list[ChosenAction]:
        codes, numbers = arrays([case.row for case in cases if case.row is not None])
        choices = self.bundle.choices(codes, numbers, self._eligible(cases))
        actions = np.array([chosen for chosen, _ in choices]).T.copy()  # [N, k]; np.stack takes three times as long
        drawn = rendezvous(self._salts, self.bundle.weights, units)
        given = actions[np.arange(len(cases)), drawn]
        probability = (actions == given[:, None]) @ self.bundle.weights
        return [
            self._evenly(case, every)
            if arm == RANDOM
            else ChosenAction(
                POLICY, self._places[member], index, self._values[index], p, self._draw(case, every), POLICY, False
            )
            for case, arm, member, index, p, every in zip(
                cases, arms, drawn.tolist(), given.tolist(), probability.tolist(), actions.tolist(), strict=True
            )
        ]

    def _evenly(self, case: EncodedRequest, every: list[int]) -> ChosenAction:
        allowed = range(len(self._values)) if case.eligible is None else np.flatnonzero(case.eligible).tolist()
        (u,) = uniform(f"{self.random_salt}-action", [case.request_id]).tolist()
        index = allowed[int(u * len(allowed))]
        draw = self._draw(case, every)
        return ChosenAction(RANDOM, None, index, self._values[index], 1 / len(allowed), draw, RANDOM, False)

    def _settled(self, arm: str, action: float, reason: str, case: EncodedRequest) -> ChosenAction:
        """An answer without a choice. A fallback that is not allowed becomes none; none always is."""
        index = self.index_of(action)
        if action != self.none and case.eligible is not None and not (index >= 0 and case.eligible[index]):
            return self._settled(arm, self.none, NOT_ELIGIBLE, case)
        return ChosenAction(arm, None, index, action, 1.0, "{}", reason, True)

    def _eligible(self, cases: list[EncodedRequest]) -> NDArray[np.bool_] | None:
        if all(case.eligible is None for case in cases):
            return None
        every = np.ones(len(self._values), np.bool_)
        return np.stack([every if case.eligible is None else case.eligible for case in cases])

    def _arms(self, units: list[str]) -> list[str]:
        if self.random_share == 0:
            return [POLICY] * len(units)
        return [RANDOM if u < self.random_share else POLICY for u in uniform(self.random_salt, units).tolist()]

    def _draw(self, case: EncodedRequest, actions: list[int]) -> str:
        allowed = None if case.eligible is None else np.flatnonzero(case.eligible).tolist()
        return draws.write(
            DrawRecord(self._places, actions, self._alpha, self.price, self.random_share, allowed)
        ).decode()

    @cached_property
    def encoder(self) -> RowEncoder:
        """Of the bundle's schema; makes the rows of cases."""
        return RowEncoder(self.pool.bundle.schema)

    @cached_property
    def _places(self) -> list[int]:
        """Of the live policies in the pool."""
        places: list[int] = np.flatnonzero(self.weights).tolist()
        return places

    @cached_property
    def _alpha(self) -> list[float]:
        alpha: list[float] = self.bundle.weights.tolist()
        return alpha

    @cached_property
    def _salts(self) -> list[str]:
        return [member.salt for member in self.bundle.members]

    @cached_property
    def _values(self) -> list[float]:
        return self.pool.bundle.actions.tolist()  # type: ignore[no-any-return]

    @cached_property
    def _positions(self) -> dict[float, int]:
        return {action: i for i, action in enumerate(self._values)}
