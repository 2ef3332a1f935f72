"""Folds of users: what each fold serves was taught and chosen by other users, so that all users certify.

    fold k      learn on others, choose on others, certify on the users of fold k
    served      the mixture of the K fold mixtures, with weights n_k/n: a user draws one of their policies
    measured    Σ_k n_k/n · (estimate of fold k's mixture on fold k's users), a mean over all n users

Fold k's policies never saw the users of fold k: not in learning, nor in choosing weights (each fold chooses by its own
select users alone), nor in a model of the old policy. Its estimate errs by those users alone, so the influences of all
users stand side by side. Clusters of users are never divided between folds.

The error of the sum is that of one sample of n if learning settles. Let ψ_k be the influence of fold k's mixture, and ψ
that of any mixture which does not depend on the log. E_k stands for a mean over the users of fold k less its
expectation:

    Σ_k n_k/n E_k ψ_k = E_n ψ + R        R = Σ_k n_k/n E_k (ψ_k − ψ),     √E R² ≤ √K · δ/√n,     δ = max_k √E (ψ_k − ψ)²

as each term of R has, given the other folds, mean 0 and variance (n_k/n)² δ_k²/n_k at most, and Cauchy-Schwarz adds K
of them. Without an assumption nothing better holds: fold 1's policy depends on the users of fold 2 and the reverse, so
the terms of R may rise together. If the folds' mixtures differ by noise alone and have nothing in common, a tail of
2.5% becomes 9% (K = 4, each the best of 20 policies); if a tenth of the variance of ψ_k is noise of the choice, 2.9%;
if a fifth is, 3.6% (`tests/choosing/test_folds.py`). So a certificate of folds rests on one thing more than the
conditions it names: another log of as many users would have taught nearly the same mixture. One fold does not need it.

Source: Bayle, Bayle, Janson and Mackey (2020) for mean and variance of cross-validated estimates of stable learners.
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
        return data.siblings()
    # Another salt than that of the split as prepared: folds have nothing to do with it.
    draw = uniform(f"{data.campaign.train.salt} {SALT}", data.drawn_by().to_pylist())
    return [data.fold(number, folds, draw) for number in range(folds)]


def fold_shares(folds: Sequence[Transitions]) -> NDArray[np.float64]:
    """`[K]` share of each fold's users in all that certify."""
    users = np.array([len(view.users_of(CERTIFY)) for view in folds], np.float64)
    shares: NDArray[np.float64] = users / users.sum()
    return shares


def seed_of(seed: int, fold: int) -> int:
    """The seed of one fold's training; the first has that of the run."""
    return seed + 1_000_003 * fold
