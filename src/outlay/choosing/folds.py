"""Folds of users: what each fold serves was taught and chosen by other users, so that all users certify.

    fold k      learn on others, choose on others, certify on the users of fold k
    served      the mixture of the K fold mixtures, with weights n_k/n: a user draws one of their policies
    measured    Σ_k n_k/n · (estimate of fold k's mixture on fold k's users), a mean over all n users

Fold k's policies never saw the users of fold k: not in learning, nor in choosing weights (each fold chooses by its own
select users alone), nor in a model of the old policy. Its estimate errs by those users alone, so the influences of all
users stand side by side, and the error of the sum is that of one sample of n. Clusters of users are never divided
between folds.

Source: Bayle, Bayle, Janson and Mackey (2020) for mean and variance of cross-validated estimates, given the policies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outlay.core.transitions import CERTIFY, Transitions
from outlay.ops.hashing import uniform

SALT = "folds"


def views(data: Transitions, folds: int) -> list[Transitions]:
    """The log as each fold sees it; one fold is the split as it was prepared."""
    if folds == data.folds:
        return siblings(data)
    # Another salt than that of the split as prepared: folds have nothing to do with it.
    draw = uniform(f"{data.campaign.train.salt} {SALT}", data.drawn_by().to_pylist())
    return [data.fold(number, folds, draw) for number in range(folds)]


def siblings(view: Transitions) -> list[Transitions]:
    """All folds of a view, itself among them."""
    draw = view.draw
    return [view] if draw is None else [view.fold(number, view.folds, draw) for number in range(view.folds)]


def fold_shares(folds: Sequence[Transitions]) -> NDArray[np.float64]:
    """`[K]` share of each fold's users in all that certify."""
    users = np.array([len(view.users_of(CERTIFY)) for view in folds], np.float64)
    shares: NDArray[np.float64] = users / users.sum()
    return shares


def seed_of(seed: int, fold: int) -> int:
    """The seed of one fold's training; the first has that of the run."""
    return seed + 1_000_003 * fold
