"""The action chosen for a request: how it was drawn, and which guards may still refuse it.

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

import math
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from outlay.serve.config import ValueLimits

NOT_ELIGIBLE = "not_eligible"
VALUE_LIMIT = "value_limit"
SAME_ACTION = 1e-6  # relative difference of action values that are the same


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


def value_refusal(limits: ValueLimits, action: float, none: float) -> str | None:
    """Return why the value may not be given, or None. The no-incentive value `none` may always be given."""

    def same(value: float) -> bool:  # 0.1 + 0.2, or 0.3 in single precision, is 0.3
        return math.isclose(action, value, rel_tol=SAME_ACTION)

    least, most, allowed = limits.at_least, limits.at_most, limits.allowed
    refused = (
        (least is not None and action < least and not same(least))
        or (most is not None and action > most and not same(most))
        or (allowed is not None and not any(map(same, allowed)))
    )
    return VALUE_LIMIT if refused and action != none else None
