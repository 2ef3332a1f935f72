"""What a decision was drawn from, in the column `members` of the ledger: enough to say later how likely it was.

    P(a) = (1 − random) Σ_k weights_k 1[actions_k = a]  +  random · 1[a is allowed] / |allowed|

A user keeps a member, and stays in the random slice or out of it, for a whole episode. So the probabilities of a user's
days do not just multiply: the parts of the sum are paths, and what is left of each is told by the days before.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct


class DrawRecord(Struct, frozen=True, omit_defaults=True):
    """The draw of one decision; empty where a fallback or a guard answered before anything was drawn.

    Attributes:
        members: positions in the bundle's pool (`Bundle.pool`) of those that may be drawn, weight > 0, ascending.
        actions: what each of them would do here, positions among the bundle's actions.
        weights: of each, sum 1.
        price: factor on all λ, from pacing.
        random: share of the random slice.
        allowed: positions of the actions that the request allows; None: all.
    """

    members: list[int] = []
    actions: list[int] = []
    weights: list[float] = []
    price: float = 1.0
    random: float = 0.0
    allowed: list[int] | None = None


write = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(DrawRecord)


def read(text: str) -> DrawRecord:
    """The draw that stands in the column. Raises msgspec.DecodeError if it is none."""
    return _decoder.decode(text)
