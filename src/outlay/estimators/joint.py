"""Several quantities estimated together from the same users, each with what every user adds to its error.

The influence per user makes the covariance of anything linear free: mixtures, differences, ratios. Where users come in
clusters it is the influence per cluster (`clusters.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NotRequired, Self, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason, ReasonKind
from outlay.estimators.clusters import Clusters, by_cluster, freedom
from outlay.ops.importance import effective_size
from outlay.ops.intervals import MOST_SKEW, interval, skewness, std_error

J = TypeVar("J", bound="Joint")


@dataclass(frozen=True)
class Joint:
    """T quantities of one policy, U users in G clusters; G = U where every user is independent.

    Attributes:
        targets: `[T]` names: `reward`, a budget's name, `reward@7`, ….
        value: `[T]`; NaN where withheld.
        influence: `[G, T]` ψ, mean zero over clusters; se = std(ψ)/√G.
        mass: `[U, T]` how much the rows of each user count in the estimate, for the effective sample size.
        withheld: `[T]` None, or the reason why there is no number.
        clusters: of the users; None where every user is independent.
    """

    targets: tuple[str, ...]
    value: NDArray[np.float64]
    influence: NDArray[np.float64]
    mass: NDArray[Any]
    withheld: tuple[Reason | None, ...]
    clusters: Clusters | None = None

    @property
    def std_error(self) -> NDArray[np.float64]:
        """`[T]` standard errors."""
        return std_error(self.influence)

    @property
    def skewness(self) -> NDArray[np.float64]:
        """`[T]` of the estimate's error: 0 where it is normal, 1/√n where n rare events make it; 0 without spread."""
        centred = self.influence - self.influence.mean(axis=0)
        square = centred**2
        return skewness(square.sum(axis=0), (square * centred).sum(axis=0))  # a power of 3 takes ten times as long

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the standard errors; +∞ without clusters, or with many."""
        return freedom(self.clusters)

    @property
    def ess(self) -> NDArray[np.float64]:
        """`[T]` effective sample size in users (Kish)."""
        return effective_size(self.mass)

    def column(self, target: str) -> int:
        """Return the column of a target.

        Raises:
            KeyError: if it was not estimated.
        """
        if target not in self.targets:
            raise KeyError(f"{target!r} was not estimated; there are {', '.join(self.targets)}.")
        return self.targets.index(target)

    def having(self, column: int, value: float, influence: NDArray[np.float64]) -> Self:
        """Return the same with another value and influence `[G]` in one column."""
        values, influences = self.value.copy(), self.influence.copy()
        values[column], influences[:, column] = value, influence
        return replace(self, value=values, influence=influences)

    def without(self, reasons: Sequence[Reason | None]) -> Self:
        """Return the same estimates, withholding those for which there is a reason `[T]` and not one already."""
        gone = np.array([reason is not None for reason in reasons], np.bool_)
        return replace(
            self,
            value=np.where(gone, np.nan, self.value),
            influence=np.where(gone, np.nan, self.influence),
            withheld=tuple(own or reason for own, reason in zip(self.withheld, reasons, strict=True)),
        )

    def cautions(self) -> list[Reason | None]:
        """Return for each of the `[T]` targets why not to rely on its number, or None."""
        return [None] * len(self.targets)

    def doubts(self, cautions: Sequence[Reason | None] | None = None) -> list[Reason | None]:
        """Return for each of the `[T]` targets why not to rely on its number and its interval, or None.

        Args:
            cautions: `[T]` reasons that are known already, or None; default none.
        """
        given = cautions if cautions is not None else [None] * len(self.targets)
        return [
            own or _of_error(error, skew) for own, error, skew in zip(given, self.std_error, self.skewness, strict=True)
        ]

    def picked(self, targets: Sequence[str], columns: Sequence[int], factor: Sequence[float]) -> Self:
        """Return some of the quantities under other names, each times a factor ≥ 0; all fields `[T]` go with them.

        Args:
            targets: `[T']` names.
            columns: `[T']` places of what they name.
            factor: `[T']`.
        """
        place, times = np.asarray(columns, np.intp), np.asarray(factor, np.float64)
        own = {
            name: getattr(self, name)[place]
            for name in self.own_fields()
            if np.shape(getattr(self, name)) == (len(self.targets),)
        }
        return replace(
            self,
            targets=tuple(targets),
            value=self.value[place] * times,
            influence=self.influence[:, place] * times,
            mass=self.mass[:, place],
            withheld=tuple(self.withheld[i] for i in place),
            **own,
        )

    @classmethod
    def own_fields(cls) -> list[str]:
        """Return the names of the fields that only this kind of estimate has."""
        known = {each.name for each in fields(Joint)}
        return [each.name for each in fields(cls) if each.name not in known]

    @classmethod
    def further(cls, parts: Sequence[Self], weights: Sequence[float], *, apart: bool) -> dict[str, Any]:  # noqa: ARG003
        """Return `own_fields` of a mixture of parts: weighted sums.

        Args:
            parts: estimates.
            weights: of each.
            apart: whether each part is of other users (`pool`); else all are of the same (`combine`).
        """
        return {name: _weighted(name, parts, weights) for name in cls.own_fields()}

    def minus(self, other: Joint) -> Joint:
        """Return the paired difference to another policy on the same users, for the targets that both have.

        Raises:
            ValueError: if the users are not the same in number.
        """
        if len(self.influence) != len(other.influence):
            raise ValueError("only estimates from the same users can be compared pair by pair.")
        shared = [target for target in self.targets if target in other.targets]
        mine, its = [self.column(t) for t in shared], [other.column(t) for t in shared]
        return Joint(
            targets=tuple(shared),
            value=self.value[mine] - other.value[its],
            influence=self.influence[:, mine] - other.influence[:, its],
            mass=np.minimum(self.mass[:, mine], other.mass[:, its]),
            withheld=tuple(self.withheld[a] or other.withheld[b] for a, b in zip(mine, its, strict=True)),
            clusters=self.clusters,
        )

    def estimates(
        self, policy: str, estimator: str, *, confidence: float, cautions: Sequence[Reason | None] | None = None
    ) -> list[Estimate]:
        """Return one Estimate per target, in the unit it was estimated in.

        Args:
            policy: its name.
            estimator: the name of the estimator.
            confidence: of the intervals.
            cautions: `[T]` why not to rely on each, or None; default none. A number without an interval is not relied
                on.
        """
        errors = self.std_error
        low, high = interval(self.value, errors, confidence, self.freedom)
        ess, doubts = self.ess, self.doubts(cautions)
        out = []
        for t, (target, reason) in enumerate(zip(self.targets, self.withheld, strict=True)):
            if reason is not None:
                out.append(Estimate(policy=policy, estimator=estimator, target=target, value=None, withheld=reason))
                continue
            known, caution = bool(np.isfinite(errors[t])), doubts[t]
            out.append(
                Estimate(
                    policy=policy,
                    estimator=estimator,
                    target=target,
                    value=float(self.value[t]),
                    low=float(low[t]) if known else None,
                    high=float(high[t]) if known else None,
                    std_error=float(errors[t]) if known else None,
                    ess=float(ess[t]),
                    recommended=caution is None,
                    caution=caution,
                )
            )
        return out


def _of_error(error: float, skew: float) -> Reason | None:
    """Why an interval is none, by its standard error and the skewness of the error; None where it is one."""
    if not np.isfinite(error):
        return Reason(ReasonKind.ONE_USER)
    if abs(skew) > MOST_SKEW:
        return Reason(ReasonKind.SKEWED, {"skewness": float(skew)})
    return None


class JointFields(TypedDict):
    """The fields of a Joint, for a class that has more of them."""

    targets: tuple[str, ...]
    value: NDArray[np.float64]
    influence: NDArray[np.float64]
    mass: NDArray[Any]
    withheld: tuple[Reason | None, ...]
    clusters: NotRequired[Clusters | None]


def joined(parts: Sequence[Joint], clusters: Clusters | None) -> JointFields:
    """The fields of several estimates of one policy, made from the same users, side by side.

    Args:
        parts: with the influence of every user.
        clusters: of these users; the influence of the whole is by cluster.
    """
    return {
        "targets": tuple(name for part in parts for name in part.targets),
        "value": np.concatenate([part.value for part in parts]),
        "influence": by_cluster(np.hstack([part.influence for part in parts]), clusters),
        "mass": np.hstack([part.mass for part in parts], dtype=np.float32),  # many policies are kept at a time
        "withheld": tuple(reason for part in parts for reason in part.withheld),
        "clusters": clusters,
    }


def certain(target: str, value: float, users: int) -> Joint:
    """Return a quantity that is known without a log."""
    return Joint((target,), np.array([value]), np.zeros((users, 1)), np.ones((users, 1)), (None,))


def withheld(targets: tuple[str, ...], users: int, reason: Reason) -> JointFields:
    """The fields of quantities for which there is no number."""
    T = len(targets)
    return {
        "targets": targets,
        "value": np.full(T, np.nan),
        "influence": np.full((users, T), np.nan),
        "mass": np.zeros((users, T)),
        "withheld": (reason,) * T,
    }


@dataclass(frozen=True)
class UserFold:
    """A part of the users in an estimate from all of them.

    Attributes:
        users: `[n]` which of all U users the part has.
        share: of the part in the whole: shares sum to 1.
    """

    users: NDArray[np.int64]
    share: float


@dataclass(frozen=True)
class Everyone:
    """All users of the folds.

    Attributes:
        count: U.
        clusters: of them all; no cluster is in two folds. None where every user is independent.
    """

    count: int
    clusters: Clusters | None = None

    @property
    def independent(self) -> int:
        """G: clusters, or users where every user is independent."""
        return self.count if self.clusters is None else self.clusters.count

    def places(self, users: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the clusters of some users stand among all, in order; or the users themselves."""
        return users if self.clusters is None else np.unique(self.clusters.index[users])


def pool(parts: Sequence[J], folds: Sequence[UserFold], everyone: Everyone) -> J:
    """Return the weighted mean of estimates from users that have nobody in common.

    It is about a policy that may differ from fold to fold, as in cross-validation: Σ share · value, with one influence
    for each cluster of everyone.

    Args:
        parts: of the same targets.
        folds: the users of each part. Users in none have no influence.
        everyone: all users, who need not all be in a fold.
    """
    first, count, shares = parts[0], everyone.independent, [fold.share for fold in folds]
    influence, mass = (np.zeros((size, len(first.targets))) for size in (count, everyone.count))
    for part, fold in zip(parts, folds, strict=True):
        places = everyone.places(fold.users)
        influence[places] = part.influence * (fold.share * count / max(1, len(places)))
        mass[fold.users] = part.mass
    return replace(
        first,
        value=_weighted("value", parts, shares),
        influence=influence,
        mass=mass,
        withheld=_first_reasons(parts),
        clusters=everyone.clusters,
        **first.further(parts, shares, apart=True),
    )


def combine(parts: Sequence[J], weights: NDArray[np.float64]) -> J:
    """Return the sticky mixture of `parts`, made from the same users, with weights `[k]` ≥ 0.

    A part with weight 0 does not count, whatever is withheld in it; a target withheld in any other part is withheld.

    Raises:
        ValueError: if the parts are not about the same targets and users, or all weights are 0.
    """
    if len({(part.targets, len(part.influence)) for part in parts}) != 1 or len(parts) != len(weights):
        raise ValueError("only estimates of the same targets from the same users can be mixed, one weight each.")
    shares = [float(weight) for weight in weights if weight != 0]
    used = [part for part, weight in zip(parts, weights, strict=True) if weight != 0]
    if not used:
        raise ValueError("all weights are 0; a mixture needs at least one member.")
    return replace(
        used[0],
        **{name: _weighted(name, used, shares) for name in ("value", "influence", "mass")},
        withheld=_first_reasons(used),
        **used[0].further(used, shares, apart=False),
    )


def _weighted(name: str, parts: Sequence[Joint], weights: Sequence[float]) -> Any:
    return sum(weight * getattr(part, name) for weight, part in zip(weights, parts, strict=True))


def _first_reasons(parts: Sequence[Joint]) -> tuple[Reason | None, ...]:
    """`[T]` why a target is withheld in one of the parts, or None."""
    return tuple(
        next((reason for reason in reasons if reason is not None), None)
        for reasons in zip(*(part.withheld for part in parts), strict=True)
    )
