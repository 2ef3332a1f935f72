"""Mixing rules: how the policies met in training become one mixed policy. One file a rule, one row here."""

from outlay.learning.mixing import aim_greedy, aim_mean, lp, single_best, uniform
from outlay.learning.mixing.rule import Rule

RULES: dict[str, Rule] = {
    "uniform": uniform,
    "single-best": single_best,
    "aim-mean": aim_mean,
    "aim-greedy": aim_greedy,
    "lp": lp,
}

__all__ = ["RULES", "Rule"]
