"""Which action each request gets, before the ledger reserves the money.

    member   drawn by `user:episode` and the bundle's salts, as everywhere (`ops/hashing.py`)
    action   the member's best allowed one, as in `Bundle.decide`
    slice    a share of `user:episode`, by a salt of its own, gets an action drawn evenly from the allowed ones

The networks, the choice and the draw are the bundle's own functions, called for one row or many; only features are read
here in another way (`deciding/features.py`). A user stays in the random slice for the whole episode. Pacing is another
decider, with other weights and another price (`pacing/pacing.py`); deciding costs the same.

A guard that refuses turns the answer into none: the campaign's no-incentive value, free of charge, a forced row of the
log. Guards are asked in this order, and the first one that refuses gives the reason:

    paused → not_eligible → user_limit → value_limit → day_cap → arm_cap → total_cap

Two of them, `not_eligible` and `value_limit`, need nothing but the request and the settings; they are asked here.
Counters and the pause live in the ledger and are asked inside its transaction (`ledger/ledger.py`), so that no two
servers can both take the last unit.

What a decision was drawn from is stored in the column `members` of the ledger, enough to compute its probability later:

    P(a) = (1 − random) Σ_k weights_k 1[actions_k = a]  +  random · 1[a is allowed] / |allowed|

A user keeps a member, and stays in the random slice or out of it, for a whole episode. So the probabilities of a user's
days do not simply multiply: each term of the sum is a path, and the days before say which paths are still possible.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.bundles.pool import Pool
from outlay.core.actions import ActionNames
from outlay.ops.hashing import rendezvous, uniform
from outlay.serve.config import ValueLimits
from outlay.serve.deciding.features import EncodedRow, RowEncoder, arrays, request_schema

NOT_ELIGIBLE = "not_eligible"
VALUE_LIMIT = "value_limit"
SAME_ACTION = 1e-6  # relative difference of action values that are the same
POLICY, RANDOM = "policy", "random"  # `arm` and `reason` of answers outside a test
MISSING_FEATURES, MODEL_ERROR = "missing_features", "model_error"  # reasons for the fallback

log = logging.getLogger("outlay.serve")


@dataclass(frozen=True, slots=True)
class ChosenAction:
    """What is proposed to the ledger.

    Attributes:
        arm: "policy", "random", or the arm of a test.
        member: position of the member that was drawn; None if none decided.
        index: position of the action among the bundle's actions; −1 if it is none of them.
        action: its value.
        probability: of the action: the weights of the members that agree, or evenly in the random slice.
        members: a DrawRecord as JSON.
        reason: why it is this action.
        forced: whether there was no choice.
        unseen: whether the policies are tables of states, and the state is in none of them.
    """

    arm: str
    member: int | None
    index: int
    action: float
    probability: float
    members: str
    reason: str
    forced: bool
    unseen: bool = False


class DrawRecord(Struct, frozen=True, omit_defaults=True):
    """The draw of one decision; empty if a fallback or a guard answered before anything was drawn.

    Attributes:
        members: positions in the bundle's pool (`Bundle.pool`) of the members that may be drawn, weight > 0, ascending.
        actions: what each of them would do here, positions among the bundle's actions.
        weights: weight of each; their sum is 1.
        price: factor on all λ, from pacing.
        random: share of the random slice.
        allowed: positions of the actions that the request allows; None: all.
        cluster: by which the arm of the test was drawn; None if it was drawn by user, or there is no test.
    """

    members: list[int] = []
    actions: list[int] = []
    weights: list[float] = []
    price: float = 1.0
    random: float = 0.0
    allowed: list[int] | None = None
    cluster: str | None = None


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(DrawRecord)


def encode_draw(draw: DrawRecord) -> str:
    """Return the draw as it is stored, JSON without the defaults."""
    return _encode(draw).decode()


def decode_draw(text: str) -> DrawRecord:
    """Return the draw that is stored. Raises msgspec.DecodeError if the text is not a draw."""
    return _decoder.decode(text)


def value_refusal(limits: ValueLimits, action: float, none: float, names: ActionNames) -> str | None:
    """Return why the value may not be given, or None. The no-incentive value `none` may always be given."""

    def same(value: float) -> bool:  # 0.1 + 0.2, or 0.3 in single precision, is 0.3
        return math.isclose(action, value, rel_tol=SAME_ACTION)

    least, most, listed = limits.at_least, limits.at_most, limits.allowed
    allowed = None if listed is None else [value for each in listed if (value := names.value(each)) is not None]
    refused = (
        (least is not None and action < least and not same(least))
        or (most is not None and action > most and not same(most))
        or (allowed is not None and not any(map(same, allowed)))
    )
    return VALUE_LIMIT if refused and action != none else None


class EncodedRequest(NamedTuple):
    """A request in numbers.

    Attributes:
        request_id: draws the action of the random slice.
        user: canonical text.
        row: the features, at last with the summaries of the user's past; None if one is absent.
        eligible: `[K]` which actions are allowed; None allows all.
    """

    request_id: str
    user: str
    row: EncodedRow | None
    eligible: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Decider:
    """A bundle with the weights and the random slice that it serves with.

    Attributes:
        pool: the policies of a verified bundle.
        weights: `[P]` of the policies; the bundle's own, or those that pacing solved for. Weight 0 leaves a policy out.
        none: the value that means "no incentive".
        fallback: action given if features are missing or the model fails.
        random_share: share of users and episodes in the random slice.
        random_salt: salt of the slice.
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
        """The live policies as a bundle, with these weights and at this price."""
        return self.pool.mixture(self.weights, self.price)

    def decide(self, requests: Sequence[EncodedRequest], episode: str) -> list[ChosenAction]:
        """Return a choice for every request, in order.

        Each is decided independently; an error of the model gives all of them the fallback.
        """
        units = [f"{request.user}:{episode}" for request in requests]
        arms = self._arms(units)
        choices: dict[int, ChosenAction] = {}
        for i, request in enumerate(requests):
            if request.eligible is not None and not request.eligible.any():
                choices[i] = self._forced(arms[i], self.none, NOT_ELIGIBLE, request)
            elif request.row is None:
                choices[i] = self._forced(arms[i], self.fallback, MISSING_FEATURES, request)
        places = [i for i in range(len(requests)) if i not in choices] if choices else list(range(len(requests)))
        if places:
            open_requests = [requests[i] for i in places]
            try:
                chosen = self._chosen(open_requests, [units[i] for i in places], [arms[i] for i in places])
            except Exception:  # whatever a model does, the user gets an answer
                log.exception("the model of bundle %s failed", self.pool.bundle.id)
                chosen = [self._forced(arms[i], self.fallback, MODEL_ERROR, requests[i]) for i in places]
            choices.update(zip(places, chosen, strict=True))
        return [choices[i] for i in range(len(requests))]

    def arm_of(self, request: EncodedRequest, episode: str) -> str:
        """Return RANDOM if the user is in the random slice of this episode, else POLICY."""
        return self._arms([f"{request.user}:{episode}"])[0]

    def index_of(self, action: float) -> int:
        """Return the position of an action among the bundle's, to single precision; −1 if it is none of them."""
        if action in self._positions:
            return self._positions[action]
        places = np.flatnonzero(np.isclose(self.pool.bundle.actions, action, rtol=SAME_ACTION, atol=0))
        return int(places[0]) if len(places) else -1

    def _chosen(self, requests: list[EncodedRequest], units: list[str], arms: list[str]) -> list[ChosenAction]:
        codes, numbers = arrays([request.row for request in requests if request.row is not None])
        choices = self.bundle.choices(codes, numbers, self._eligible(requests))
        actions = np.array([chosen for chosen, _ in choices]).T.copy()  # [N, k]; np.stack takes three times as long
        drawn = rendezvous(self._salts, self.bundle.weights, units)
        given = actions[np.arange(len(requests)), drawn]
        probability = (actions == given[:, None]) @ self.bundle.weights
        unseen = self.bundle.unseen(codes, numbers).tolist()
        return [
            self._random(request, every)
            if arm == RANDOM
            else ChosenAction(
                POLICY,
                self._places[member],
                index,
                self._values[index],
                p,
                self._draw(request, every),
                POLICY,
                False,
                new,
            )
            for request, arm, member, index, p, every, new in zip(
                requests,
                arms,
                drawn.tolist(),
                given.tolist(),
                probability.tolist(),
                actions.tolist(),
                unseen,
                strict=True,
            )
        ]

    def _random(self, request: EncodedRequest, every: list[int]) -> ChosenAction:
        """Draw evenly from the allowed actions; `every` is what each member would have done."""
        eligible = request.eligible
        allowed = range(len(self._values)) if eligible is None else np.flatnonzero(eligible).tolist()
        (u,) = uniform(f"{self.random_salt}-action", [request.request_id]).tolist()
        index = allowed[int(u * len(allowed))]
        draw = self._draw(request, every)
        return ChosenAction(RANDOM, None, index, self._values[index], 1 / len(allowed), draw, RANDOM, False)

    def _forced(self, arm: str, action: float, reason: str, request: EncodedRequest) -> ChosenAction:
        """Answer without a choice. A fallback that is not allowed becomes none, which always is."""
        index = self.index_of(action)
        if action != self.none and request.eligible is not None and not (index >= 0 and request.eligible[index]):
            return self._forced(arm, self.none, NOT_ELIGIBLE, request)
        return ChosenAction(arm, None, index, action, 1.0, "{}", reason, True)

    def _eligible(self, requests: list[EncodedRequest]) -> NDArray[np.bool_] | None:
        if all(request.eligible is None for request in requests):
            return None
        every = np.ones(len(self._values), np.bool_)
        return np.stack([every if request.eligible is None else request.eligible for request in requests])

    def _arms(self, units: list[str]) -> list[str]:
        if self.random_share == 0:
            return [POLICY] * len(units)
        return [RANDOM if u < self.random_share else POLICY for u in uniform(self.random_salt, units).tolist()]

    def _draw(self, request: EncodedRequest, actions: list[int]) -> str:
        allowed = None if request.eligible is None else np.flatnonzero(request.eligible).tolist()
        return encode_draw(DrawRecord(self._places, actions, self._alpha, self.price, self.random_share, allowed))

    @cached_property
    def encoder(self) -> RowEncoder:
        """The encoder of the features that a request gives, by the bundle's schema."""
        return RowEncoder(request_schema(self.pool.bundle))

    @cached_property
    def _places(self) -> list[int]:
        """Positions of the live policies in the pool."""
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
