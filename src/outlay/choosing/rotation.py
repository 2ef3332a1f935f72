"""Measuring a mixture of folds: each fold's policies on its own users, and all users together.

    at = measured_on(data, bundle, fold_weights)       a `Measure` of everyone; a plain one where there is one fold
    subject = served(at, "as served")                  what the mixture does to every user: to those of fold k as fold k

In fold k every estimator is fitted on the users of fold k alone, on the features of networks that never saw them, with
a model of the old policy that never saw them; the results stand side by side (`joint.pooled`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.choosing.folds import views
from outlay.choosing.measure import Measure, Part, Source
from outlay.core.cached import cached_property
from outlay.core.parallel import in_threads
from outlay.core.transitions import CERTIFY, EVERYONE, Transitions
from outlay.estimators.behaviour.check import BehaviourCheck, diagnose
from outlay.estimators.behaviour.model import Behaviour
from outlay.estimators.clusters import Clusters
from outlay.estimators.doubly_robust import Robust
from outlay.estimators.fitted import Fitted
from outlay.estimators.joint import Everyone, J, Joint, UserFold, pool
from outlay.estimators.marginalised import Marginal

ROUNDING = 1e-12  # a shorter piece of a line is none

Array = NDArray[np.float64]
Users = NDArray[np.bool_]


def measured_on(data: Transitions, bundle: Bundle, fold_weights: Sequence[Sequence[float]]) -> Measure:
    """Measurement of a bundle on the users who certify it.

    Args:
        data: as it was prepared.
        bundle: its members.
        fold_weights: `[K, k]` weights of the members in the mixture of each fold.
    """
    if len(fold_weights) == 1:
        return Measure(data, CERTIFY, bundle)
    folds = views(data, len(fold_weights))
    parts = []
    for view, weights in zip(folds, fold_weights, strict=True):
        members = tuple(
            replace(member, weight=weight) for member, weight in zip(bundle.members, weights, strict=True) if weight > 0
        )
        parts.append(Measure(view, CERTIFY, replace(bundle, members=members)))
    return Rotation(folds[0], EVERYONE, bundle, parts=tuple(parts))


@dataclass(frozen=True)
class Rotation(Measure):
    """K folds.

    Attributes:
        parts: one a fold, each with the members of its mixture.
    """

    parts: tuple[Measure, ...] = ()

    @property
    def folds(self) -> tuple[Measure, ...]:
        """One a fold."""
        return self.parts

    def mixture(self) -> tuple[list[Part], Array, list[Source]]:
        """What the mixture does to everyone: parts that give each fold's users one of that fold's members.

        Members of different folds are joined to parts so that each keeps its weight in its fold.
        """
        places, weights = coupled([part.served.weights for part in self.parts])
        self.side_by_side(lambda part: part.actions(0))  # decides for all members
        parts: list[Part] = [
            self._joined([part.actions(i) for part, i in zip(self.parts, place, strict=True)]) for place in places
        ]
        return parts, weights, [tuple(place) for place in places]

    def fit(
        self,
        policy: Part,
        source: Source | None = None,
        among: Users | None = None,
        days: Sequence[int] | None = None,
    ) -> Fitted:
        """As in `Measure`."""
        kind = "fit" if days is None else f"fit of days {[*days]}"
        return self._each(kind, lambda at, of, part, users, _: at.fit(part, of, users, days), policy, source, among)

    def fit_second(self, policy: Part, among: Users | None = None) -> Fitted | None:
        """As in `Measure`."""

        def one(at: Measure, _: Source, part: Part, users: Users | None, __: Array) -> Fitted:
            found = at.fit_second(part, among=users)
            assert found is not None
            return found

        return None if self.counted else self._each("second", one, policy, None, among)

    def doubly_robust(self, policy: Part, source: Source, propensity: Array, among: Users | None = None) -> Robust:
        """As in `Measure`."""
        return self._each(
            "dr",
            lambda at, of, part, users, given: at.doubly_robust(part, of, given, users),
            policy,
            source,
            among,
            propensity,
        )

    def marginal(self, policy: Part, source: Source, propensity: Array, among: Users | None = None) -> Marginal:
        """As in `Measure`."""
        return self._each(
            "mis",
            lambda at, of, part, users, given: at.marginal(part, of, given, users),
            policy,
            source,
            among,
            propensity,
        )

    def residuals(self, policy: Part, source: Source, propensity: Array) -> Joint:
        """As in `Measure`."""
        return self._each(
            "steps",
            lambda at, of, part, _, given: at.residuals(part, of, given),
            policy,
            source,
            None,
            propensity,
        )

    def path_bias(self, policy: Part, propensity: Array, days: Sequence[int]) -> Joint:
        """As in `Measure`."""
        return self._each(
            "paths",
            lambda at, _, part, __, given: at.path_bias(part, given, days),
            policy,
            None,
            None,
            propensity,
        )

    def constants(self, actions: Sequence[int], days: Sequence[int]) -> list[Fitted]:
        """As in `Measure`."""
        found = self.side_by_side(lambda part: part.constants(actions, days))
        return [self.pool(list(each)) for each in zip(*found, strict=True)]

    def pool(self, parts: Sequence[J]) -> J:
        """One estimate from that of every fold."""
        return pool(parts, self._shares(None), self._everyone)

    def propensity(self) -> Array:
        """As in `Measure`: in each fold by a model of the other folds."""
        if self.panel.propensity is not None:
            return self.panel.propensity
        return self._scattered([at.propensity() for at in self.parts], np.empty(len(self.panel)))

    @cached_property
    def behaviour_check(self) -> BehaviourCheck | None:
        """As in `Measure`: every fold's model on its own rows."""
        if self.panel.propensity is not None:
            return None
        learned = sum(at.behaviour.rows for at in self.parts)  # as many for each of its rows as a fold's model has
        return diagnose(self._behaviours, self.data, self.panel.rows, learned=learned)

    def action_probability(self, rows: NDArray[np.intp]) -> Array:
        """As in `Measure`: in each fold by a model of the other folds."""
        return self._behaviours.probability(self.panel.rows[rows])

    @property
    def _behaviours(self) -> _CrossFitted:
        fold = np.zeros(len(self.data), np.uint8)
        fold[self.panel.rows] = self._fold_of_row
        return _CrossFitted(tuple(at.behaviour for at in self.parts), fold)

    @property
    def counted(self) -> bool:
        """Whether states are counted, in all folds."""
        return self.parts[0].counted

    def _each(
        self,
        kind: str,
        one: Callable[[Measure, Source, Part, Users | None, Array], J],
        policy: Part,
        source: Source | None,
        among: Users | None,
        propensity: Array | None = None,
    ) -> J:
        """Estimate in every fold that has some of the users, and pool.

        A source of several is a part of the own mixture: it names the member of each fold, which several parts share.
        """
        folds, given = self._shares(among), np.empty(0) if propensity is None else propensity
        sources = source if isinstance(source, tuple) else (source or 0,) * len(self.parts)
        about = kind, None if among is None else among.tobytes()
        if self._members_told.get("about") != about:  # of the estimator in work alone
            self._members_told.clear()
            self._members_told["about"] = about

        def told(k: int) -> J:
            at, of, rows = self.parts[k], sources[k], self._rows[k]
            known: J | None = self._members_told.get((k, of)) if isinstance(source, tuple) else None
            if known is None:
                part = None if policy is None else policy[rows]
                users = None if among is None else among[folds[k].users]
                known = one(at, of, part, users, given[rows] if len(given) else given)
                if isinstance(source, tuple):
                    self._members_told[k, of] = known
            return known

        some = [k for k, fold in enumerate(folds) if fold.share > 0]
        found = in_threads(told, some, self.threads)
        return pool([*found], [folds[k] for k in some], self._everyone)

    @cached_property
    def _everyone(self) -> Everyone:
        users = self.data.users_of(EVERYONE)
        return Everyone(len(users), Clusters.among(self.data.cluster, users))

    @cached_property
    def _members_told(self) -> dict[Any, Any]:
        return {}

    def _shares(self, among: Users | None) -> list[UserFold]:
        """The users of each fold, and their share in all, or in those among whom a value is asked for."""
        users = [at.data.users_of(CERTIFY) for at in self.parts]
        counts = np.array([len(each) if among is None else among[each].sum() for each in users], np.float64)
        return [UserFold(each, float(share)) for each, share in zip(users, counts / max(1, counts.sum()), strict=True)]

    def _joined(self, actions: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return self._scattered(actions, np.empty(len(self.panel), np.min_scalar_type(self.data.num_actions)))

    def _scattered(self, values: Sequence[NDArray[Any]], into: NDArray[Any]) -> NDArray[Any]:
        for rows, each in zip(self._rows, values, strict=True):
            into[rows] = each
        return into

    @cached_property
    def _rows(self) -> list[NDArray[np.int64]]:
        """The rows of each fold among the rows of all users."""
        return [at.panel.rows for at in self.parts]

    @cached_property
    def _fold_of_row(self) -> NDArray[np.uint8]:
        return self._scattered(
            [np.full(len(at.panel), k) for k, at in enumerate(self.parts)], np.empty(len(self.panel), np.uint8)
        )


@dataclass(frozen=True)
class _CrossFitted:
    """Models of the old policy, each for the rows of its fold: `fold` is of every row of the log."""

    models: tuple[Behaviour, ...]
    fold: NDArray[np.uint8]

    def probability(self, rows: NDArray[np.int64]) -> Array:
        """`[n, K]` as in `Behaviour`."""
        found: Array = np.empty((len(rows), self.models[0].data.num_actions))
        for k, model in enumerate(self.models):
            here = self.fold[rows] == k
            found[here] = model.probability(rows[here])
        return found


def coupled(distributions: Sequence[Array]) -> tuple[list[list[int]], Array]:
    """Several distributions as one over tuples, with as few tuples as needed: `[J, K]` of options, and weights `[J]`.

        Σ over tuples with places[j, k] = i of weights[j]  =  α_k[i]          for each distribution k and each option i

    A line of length 1 is cut where the cumulative weights of any distribution end: each piece is a tuple. So there are
    at most 1 + Σ (options − 1) of them (the north-west corner rule).

    Args:
        distributions: K, each of positive weights that sum to 1.
    """
    ends = [np.append(np.cumsum(alpha)[:-1], 1.0) for alpha in distributions]
    cuts = np.unique(np.concatenate(ends))
    cuts = cuts[np.append(np.diff(cuts) > ROUNDING, True)]
    starts = np.concatenate([[0.0], cuts[:-1]])
    middle = (starts + cuts) / 2
    places = np.stack([np.searchsorted(each, middle) for each in ends], axis=1)
    return places.tolist(), cuts - starts
