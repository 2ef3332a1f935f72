"""Per-decision doubly robust estimation, cross-fitted by user, or by cluster.

    k days       Ψ = Σ_{t: day_t < k} w_{t−1} V̂_h(s_t) + w_t (x_t − Q̂_h(s_t, a_t))        h = k − day_t
    discounted   Ψ = Σ_{t ≥ start} γ^{day_t − day_start} (w_{t−1} V̂(s_t) + w_t ((1−γ) x_t − Q̂(s_t, a_t)))
    weights      w_t = Π_{s ≤ t} π(a_s) / p(a_s)

The value is the mean of Ψ over users. Q̂ and V̂ come from fitted evaluation (`fitted.py`) on the users of the other
folds, so that no value meets an outcome that it was fitted to. Whatever Q̂ is, its terms have mean zero if the
propensities are right: totals rest on those alone, and a good Q̂ only takes noise away. In the discounted sum the last
row of a truncated path has no w_t: its V̂ stands for all that follows, and there the value rests on what fitted
evaluation rests on. In totals, a row after which the log does not show all k days adds nothing: the mean of what the
other rows of its day add stands for it, and V̂ for how users whose window ends early differ from them. What the error of
V̂ adds there belongs to the influence of the users that V̂ was fitted to.

Weights are never clipped: a clipped weight is biased, and no biased number may enter a certificate. If weights are
heavy-tailed the intervals miss too often; `cautions` says so.

Source: Jiang & Li (2016) and Thomas & Brunskill (2016) for the estimator; Chernozhukov et al. (2018) for cross-fitting.
The closed tail and its error: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.target import Target
from outlay.estimators.importance import NO_PROPENSITIES, few_users, row_ratios
from outlay.estimators.joint import Everyone, Joint, UserFold, certain, joined, mixed, pooled, withheld
from outlay.estimators.linear.basis import Array, Basis
from outlay.estimators.linear.cells import PolicyMoves
from outlay.estimators.linear.regression import Need, Stage
from outlay.estimators.linear.sample import Sample
from outlay.estimators.panel import Index, Panel
from outlay.estimators.path_sums import FoldValues, WeightedPaths
from outlay.estimators.windowed import over_window
from outlay.ops.hashing import uniform
from outlay.ops.importance import row_weights

FOLDS = 5
MOST = 0.01  # of all weight for one user, so that 100 carry it; up to here 92 to 97% of 95% intervals held
SALT = "doubly robust"


@dataclass(frozen=True, kw_only=True)
class Robust(Joint):
    """Doubly robust values of one policy or mixture, with the targets of `Fitted`.

    `mass` is each user's weight at the end of the k days; of discounted values the discounted mean of the weights.

    Attributes:
        covered: `[T]` users whose k days the log shows (`Panel.covers`); of discounted values, all.
    """

    covered: NDArray[np.int64]

    @property
    def matched(self) -> NDArray[np.float64]:
        """`[T]` share of those with a weight above 0: after k days; of discounted values, after one row at least."""
        share: NDArray[np.float64] = (self.mass > 0).sum(axis=0) / np.maximum(self.covered, 1)
        return share

    @property
    def tail(self) -> NDArray[np.float64]:
        """`[T]` the largest share of all weight that one user has."""
        total = self.mass.sum(axis=0)
        share: NDArray[np.float64] = np.divide(self.mass.max(axis=0), total, out=np.zeros_like(total), where=total > 0)
        return share

    def cautions(self) -> list[str | None]:
        """Return `[T]` why not to rely on a number, or None: few users, or one with too much of the weight."""
        return [
            few_users(ess)
            or (f"one user has {tail:.1%} of the weight; at most {MOST:.0%} may" if tail > MOST else None)
            for ess, tail in zip(self.ess, self.tail, strict=True)
        ]


def combine(parts: Sequence[Robust], weights: NDArray[np.float64]) -> Robust:
    """The sticky mixture of members estimated on the same users: per member, then per user."""
    return Robust(**mixed(parts, weights), covered=parts[0].covered)


def pool(parts: Sequence[Robust], folds: Sequence[UserFold], everyone: Everyone) -> Robust:
    """The weighted mean of estimates from users that have nobody in common (`joint.pooled`)."""
    return Robust(**pooled(parts, folds, everyone), covered=np.sum([part.covered for part in parts], axis=0))


def fold_of(panel: Panel, folds: int) -> Index:
    """`[U]` fold of each user: a salted hash of the user's number in the DATA folder, or of that of the cluster."""
    users, cluster = panel.data.user[panel.rows[panel.first]], panel.data.cluster
    numbers = users.tolist() if cluster is None else cluster[users].tolist()
    return (uniform(SALT, numbers) * folds).astype(np.intp)


@dataclass(frozen=True)
class DoublyRobust:
    """Doubly robust estimation on the rows of a panel; what no policy changes is computed once for all of them.

    It keeps what `Evaluator` keeps, with Gram matrices for each fold; the values of one fold are in memory at a time.

    Attributes:
        panel: the rows; `basis` is over the same rows.
        basis: Counted, Smooth or Features.
        folds: 2 or more.
        support: largest share of paths with which a number is still given: of those that meet a state where the policy
            gives what these users were never given there or, beyond the last row of a truncated path, a thin pair.
        least_rows: a pair with fewer rows behind it is thin and takes the state-free mean of its action.
        window: days k whose means stand in the place of discounted ones (`windowed.py`); None: discounted.
    """

    panel: Panel
    basis: Basis
    folds: int = FOLDS
    support: float = 0.01
    least_rows: int = 2
    window: int | None = None

    def estimate(
        self,
        policy: NDArray[Any] | None,
        *,
        days: Sequence[int] = (),
        propensity: NDArray[np.floating] | None = None,
        among: NDArray[np.bool_] | None = None,
    ) -> Robust:
        """Value of a policy on the users of the panel.

        Args:
            policy: as `Panel.follow` takes it: `[n]`, `[n, K]`, or None, whose weights are 1.
            days: horizons k of the totals.
            propensity: `[n]` of the logged action; default as logged.
            among: `[U]` users whose value it is; default all. The rows of all users are used in any case.

        Raises:
            LogError: if the policy is not allowed, or a propensity of a row with a choice is missing or outside (0, 1].
        """
        panel, horizons = self.panel, sorted({*days, *([] if self.window is None else [self.window])})
        target, ratio = row_ratios(panel, policy, propensity)
        members = np.ones(panel.num_users, np.bool_) if among is None else among
        along = np.ones(len(panel)) if ratio is None else ratio
        first = row_weights(along, panel.following, panel.first)
        start = row_weights(along, panel.following, panel.start)
        paths = [
            WeightedPaths.discounted(panel, start, members),
            *(WeightedPaths.total(panel, k, first, members) for k in horizons),
        ]
        if ratio is None:
            return self._joined([self._withheld(part, NO_PROPENSITIES) for part in paths], members)
        moves = PolicyMoves.of(panel, self._whole.log, target)
        (seen,) = self._whole.stages(moves, (1,), least_rows=1)
        needs = [self._never_given(part, seen) for part in paths]
        sums = [np.zeros((panel.num_users, len(self._names(part)))) for part in paths]
        errors, unclosed = np.zeros_like(sums[0]), None
        for fold, others in self._others:
            critic = FoldValues.of(others, moves, max(horizons, default=0), self.least_rows)
            for part, total in zip(paths, sums, strict=True):
                critic.add(part, fold, total)
            errors += critic.closing_errors(paths[0], fold, needs[0])
            unclosed = unclosed or critic.unclosed(paths[0], fold)
        return self._joined(
            [
                self._result(part, total, unclosed if part.days is None else None, need, errors)
                for part, total, need in zip(paths, sums, needs, strict=True)
            ],
            members,
        )

    @cached_property
    def _whole(self) -> Sample:
        return Sample.of(self.panel, self.basis)

    @cached_property
    def _others(self) -> list[tuple[NDArray[np.bool_], Sample]]:
        """The users `[U]` of each fold, with the rows of all others."""
        fold = fold_of(self.panel, self.folds)
        return [(fold == f, self._whole.only(fold != f)) for f in range(self.folds) if (fold == f).any()]

    def _names(self, part: WeightedPaths) -> tuple[str, ...]:
        if part.days is None:
            return self._whole.names
        names = self.panel.names if self.window is None else self._whole.names
        return tuple(str(Target(name, part.days)) for name in names)

    def _never_given(self, part: WeightedPaths, seen: Stage) -> Need:
        """The paths that meet a state where the policy gives what no row of it was given."""
        need = Need(self.panel.data.actions)
        weight, moves = part.share[part.user] * part.before, seen.moves
        need.arrive(seen, np.bincount(moves.point[part.rows], weight, moves.num_points).astype(np.float64))
        return need

    def _result(self, part: WeightedPaths, sums: Array, reason: str | None, need: Need, errors: Array) -> Robust:
        """The value from the sums `[U, T]` of each user and the error of the closing values `[U, T]`."""
        if not part.covered:
            reason = "there is no user" if part.days is None else f"no user's window covers {part.days} days"
        elif not part.mass.any():
            span = "" if part.days is None else f" for {part.days} days"
            reason = f"no user's logged path is the policy's{span}"
        reason = reason or need.reason(self.support)
        if reason is not None:
            return self._withheld(part, reason)
        value = part.share @ sums
        own = part.share[:, None] * (sums - value) + (errors if part.days is None else 0)
        return Robust(
            targets=self._names(part),
            value=value,
            influence=self.panel.num_users * own,
            mass=np.repeat(part.mass[:, None], len(value), axis=1),
            withheld=(None,) * len(value),
            covered=_covered(part, len(value)),
        )

    def _withheld(self, part: WeightedPaths, reason: str) -> Robust:
        names = self._names(part)
        return Robust(**withheld(names, self.panel.num_users, reason), covered=_covered(part, len(names)))

    def _joined(self, parts: list[Robust], members: NDArray[np.bool_]) -> Robust:
        """The discounted part and the totals, and the decisions between them where they are known."""
        known = (
            {}
            if not self.panel.data.steady
            else {"decisions": 1.0}
            if self.window is None
            else {"decisions": 1.0, str(Target("decisions", self.window)): float(self.window)}
        )
        for place, (target, value) in enumerate(known.items(), start=1):
            one = vars(certain(target, value, self.panel.num_users))
            one["mass"] = members[:, None].astype(np.float64)
            parts.insert(place, Robust(**one, covered=parts[0].covered[:1]))
        fields = joined(parts, self.panel.clusters)
        whole = Robust(**fields, covered=np.concatenate([part.covered for part in parts]))
        return over_window(whole, (*self.panel.names, "decisions"), self.window)


def _covered(part: WeightedPaths, outcomes: int) -> NDArray[np.int64]:
    return np.full(outcomes, part.covered)
