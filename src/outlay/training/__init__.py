"""Trainings: learners, a game or the two-stage method on a log, from an opened DATA folder to a written RUN folder."""

from outlay.learning.mixing import RULES

BISECTION = "bisection"  # one policy, its λ found by bisection
GAMES = (*RULES, BISECTION)
METHODS = ("frontier", *GAMES, "two-stage")
