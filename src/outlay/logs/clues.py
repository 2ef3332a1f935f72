"""From clues to a role: which column is the user, the action or the reward, and how sure that is.

A clue is a figure in [0, 1] with its words. With the weights w of a role, and clues x of a column,

    P(column | log) = exp(w·x) / (exp(w of none) + Σ over columns exp(w·x)),    P(outcome) = 1 / (1 + exp(−w·x))

The weights are those of a penalised fit to logs whose roles are known: `benchmarks/init_roles.py` draws them, fits, and
says how often a guess is right, and how often a sure one is wrong. Chosen by hand are SURE, LIKELY and NEAR alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from outlay.logs.weights import WEIGHTS

SURE = 0.9  # probability from which a guess needs no question
LIKELY = 0.5  # and from which a column follows from the action
NEAR = 0.03  # and from which another column is named beside it

Clues = dict[str, tuple[float, str]]  # clue → its strength, and what it says (empty: nothing worth telling)


@dataclass(frozen=True)
class Ranked:
    """Columns by how likely they have a role.

    Attributes:
        of: column → probability, the likeliest first.
        none: that no column has it.
        words: column → the clues that speak for it, the strongest first.
    """

    of: dict[str, float]
    none: float
    words: dict[str, str]

    @property
    def best(self) -> str | None:
        """The likeliest column; None where none is likelier."""
        first = next(iter(self.of), None)
        return first if first is not None and self.of[first] > self.none else None

    def near(self, column: str) -> tuple[str, ...]:
        """Other columns that might be meant, likeliest first."""
        return tuple(name for name, p in self.of.items() if name != column and p >= NEAR)[:5]


def rank(role: str, found: Mapping[str, Clues]) -> Ranked:
    """Columns that may have a role, by their clues."""
    weights = WEIGHTS[role]
    totals = {name: sum(weights.get(clue, 0) * x for clue, (x, _) in clues.items()) for name, clues in found.items()}
    none = weights.get("none", -math.inf)
    top = max([none, *totals.values()], default=0.0)
    parts = {name: math.exp(total - top) for name, total in totals.items()}
    whole = sum(parts.values()) + math.exp(none - top)
    order = sorted(parts, key=lambda name: -parts[name])  # the first in the log of those that are level
    words = {name: _said(found[name], weights) for name in order}
    return Ranked({name: parts[name] / whole for name in order}, math.exp(none - top) / whole, words)


def chance(role: str, clues: Clues) -> float:
    """The probability that a column has a role that many may have."""
    weights = WEIGHTS[role]
    total = weights["none"] + sum(weights.get(clue, 0) * x for clue, (x, _) in clues.items())
    return 1 / (1 + math.exp(-max(min(total, 500), -500)))


def strongest(role: str, clues: Clues) -> str:
    """The words of the clue that speaks most for a role."""
    return _said(clues, WEIGHTS[role], 1)


def _said(clues: Clues, weights: Mapping[str, float], most: int = 3) -> str:
    spoken = [(weights.get(clue, 0) * x, words) for clue, (x, words) in clues.items() if words]
    spoken = sorted((each for each in spoken if each[0] > 0), key=lambda each: -each[0])
    return "; ".join(words for _, words in spoken[:most]) or "by elimination"
