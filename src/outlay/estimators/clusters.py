"""Clusters: users who may share what happens to them, as a household, a city or a group of friends does.

    ψ_g  =  (G/U) Σ_{u ∈ g} (ψ_u − ψ̄)          se = std(ψ_g) / √G

Users are independent between clusters, and anything may hold within one. So an estimate's influence is summed by
cluster before anything is squared, and clusters stand where users stood: in standard errors, covariances, skewness and
the largest influence. With few clusters the quantiles are those of Student's t with G − 1 degrees of freedom
(`ops/intervals.py`). Without clusters, every user is independent of all others, and nothing is summed.

Source: Liang & Zeger (1986); the factor G / (G − 1) and t with G − 1 degrees: Cameron & Miller (2015).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.ops.intervals import degrees

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Clusters:
    """The clusters of U users.

    Attributes:
        index: `[U]` the cluster of each user, from 0; every number below G occurs.
        count: G.
    """

    index: NDArray[np.intp]
    count: int

    @classmethod
    def among(cls, numbers: NDArray[np.int64] | None, users: NDArray[np.int64]) -> Clusters | None:
        """Return the clusters of some users, numbered anew in the order of their numbers.

        Args:
            numbers: of the cluster of every user of the log; None: every user is independent.
            users: `[U]` which of them.
        """
        if numbers is None:
            return None
        met, index = np.unique(numbers[users], return_inverse=True)
        return cls(index.ravel(), len(met))

    def sums(self, values: Array) -> Array:
        """Sums `[G, …]` over the users of each cluster, from `[U, …]`."""
        flat = values.reshape(len(values), -1)
        added: Array = np.zeros((self.count, flat.shape[1]))
        for place, column in enumerate(flat.T):
            added[:, place] = np.bincount(self.index, column, self.count)
        return added.reshape(self.count, *values.shape[1:])


def by_cluster(influence: Array, clusters: Clusters | None) -> Array:
    """Return the influence `[G, …]` of clusters, from that of users `[U, …]`; without clusters, the same."""
    if clusters is None:
        return influence
    return clusters.sums(influence - influence.mean(axis=0)) * (clusters.count / len(influence))


def freedom(clusters: Clusters | None) -> float:
    """Return the degrees of freedom of standard errors: +∞ without clusters, and with many of them."""
    return np.inf if clusters is None else degrees(clusters.count)
