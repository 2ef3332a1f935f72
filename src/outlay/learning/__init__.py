"""Learning: learners of best responses to every λ, by name; the game of critic and multipliers, and its mixing rules.

One file a learner, one row here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlay.core.registry import Registry

if TYPE_CHECKING:
    from outlay.learning.learner import Learner

CRITICS = (
    "bcq",
    "edrr",
    "ddqn",
)  # the paper's: heads on a grid of λ, or, in a game, the best response to λ as it moves
POOL = ("trees", "orthogonal")  # whose mean `auto` takes where states are not counted (`learning/averaged.py`)
COUNTED = "tabular"  # that `auto` takes where they are

LEARNERS: Registry[Learner] = Registry(
    {
        "orthogonal": "outlay.learning.orthogonal",
        "trees": "outlay.learning.trees",
        **dict.fromkeys(CRITICS, "outlay.learning.critic_grid"),
        "tabular": "outlay.learning.tabular",
    }
)
