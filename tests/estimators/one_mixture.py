"""The certificate of one mixture from its figures, for tests of the certificate alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.reasons import Reason
from outlay.estimators.band import About, Band, MixtureFigures
from outlay.estimators.certificate import Certificate
from outlay.estimators.clusters import Clusters
from outlay.estimators.frontier import Points
from outlay.estimators.joint import Joint
from outlay.estimators.reach import Reach
from outlay.estimators.units import needed
from small_logs import campaign

Array = NDArray[np.float64]


class Second(NamedTuple):
    """What an estimate that assumes less says of the coordinates of a policy (`units.coordinates`).

    Attributes:
        x: `[1+m]` objective and budgets in ≤ form.
        influence: `[G, 1+m]`.
        gain: objective less that of the old policy, by the same estimate.
        gain_influence: `[G]`.
    """

    x: Array
    influence: Array
    gain: float
    gain_influence: Array


def certify(
    x: ArrayLike,
    influence: Array,
    limits: Sequence[float] | Array,
    names: Sequence[str],
    *,
    gain: float,
    gain_influence: Array,
    confidence: float,
    signs: Sequence[int] | None = None,
    withheld: Reason | None = None,
    reach: Reach | None = None,
    clusters: Clusters | None = None,
    second: Second | None = None,
) -> Certificate:
    """Of a mixture whose budgets are `x[1:]` in ≤ form, and whose objective is the gain, beside an old policy of 0."""
    signs = [1] * len(limits) if signs is None else signs
    about = campaign(
        budgets=[
            {"name": name, "cost": name, "at_most" if sign > 0 else "at_least": sign * limit}
            for name, sign, limit in zip(names, signs, limits, strict=True)
        ]
    )
    about = about.model_copy(update={"log": about.log.model_copy(update={"propensity": "p"})})

    def points(gain: float, gain_influence: Array, x: Array, influence: Array) -> Points:
        value = np.array([gain, *(signs * x[1:]), 1.0])
        psi = np.column_stack([gain_influence, signs * influence[:, 1:], np.zeros(len(influence))])
        users = len(psi) if clusters is None else len(clusters.index)
        own, nothing = (
            Joint(tuple(needed(about)), of, by, np.ones((users, len(of))), (None,) * len(of), clusters)
            for of, by in ((value, psi), (0 * np.nan_to_num(value), 0 * np.nan_to_num(psi)))
        )
        far = Reach.unknown(len(limits))
        return Points.of([own, nothing], about, reaches=[far if reach is None else reach, far])

    first = points(gain, gain_influence, np.asarray(x, np.float64), influence)
    other = None if second is None else points(second.gain, second.gain_influence, second.x, second.influence)
    unbelieved = () if reach is None else tuple(np.atleast_1d(reach.unbelieved).tolist())
    band = Band.of(MixtureFigures(first, other, (withheld,), unbelieved=unbelieved), About(), about, confidence)
    return band.certificate(np.ones(1), about)
