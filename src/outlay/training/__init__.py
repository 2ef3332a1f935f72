"""Trainings: learners, a game or the two-stage method on a log, from an opened DATA folder to a written RUN folder."""

from typing import Literal

from outlay.learning import LEARNERS
from outlay.learning.mixing import RULES

BISECTION: Literal["bisection"] = "bisection"  # one policy, its λ found by bisection
GAMES = (*RULES, BISECTION)
METHODS = ("frontier", *GAMES, "two-stage")
AUTO = "auto"  # the counted model where distinct states are few, else the mean of several learners
ORACLES = (AUTO, *LEARNERS)
