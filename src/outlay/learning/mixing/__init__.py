"""Mixing rules: how the policies met in training become one mixed policy. One file a rule, one row here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlay.core.registry import Registry

if TYPE_CHECKING:
    from outlay.learning.mixing.rule import Rule

RULES: Registry[Rule] = Registry(
    {
        "uniform": "outlay.learning.mixing.uniform",
        "single-best": "outlay.learning.mixing.single_best",
        "aim-mean": "outlay.learning.mixing.aim_mean",
        "aim-greedy": "outlay.learning.mixing.aim_greedy",
        "lp": "outlay.learning.mixing.lp",
    }
)
