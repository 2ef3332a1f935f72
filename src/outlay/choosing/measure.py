"""Measuring policies on the users of one split: bundle members as they will be served, constants, the old policy.

The one place where bundles, transitions and estimators meet; training chooses with it, evaluation certifies with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.choosing.reserve import stated_reserves
from outlay.core.cached import cached_property
from outlay.core.estimate import Target
from outlay.core.looking_back import LagFields, looking_back
from outlay.core.machine import processors
from outlay.core.parallel import in_threads
from outlay.core.transitions import Transitions
from outlay.estimators import path_bias, reach
from outlay.estimators.basis import Basis, CountedBasis, FeatureBasis, SmoothBasis
from outlay.estimators.behaviour.check import BehaviourCheck, diagnose
from outlay.estimators.behaviour.model import Behaviour
from outlay.estimators.doubly_robust import DoublyRobust, Robust
from outlay.estimators.fitted import Evaluator, Fitted
from outlay.estimators.joint import J, Joint
from outlay.estimators.long_run import advantages
from outlay.estimators.marginalised import Marginal, Marginalised
from outlay.estimators.panel import Panel
from outlay.estimators.paths import Paths
from outlay.estimators.reach import Reach
from outlay.estimators.row_features import (
    WITHIN,
    days_before,
    directions,
    hinges,
    plain_features,
    reduced,
    standardised,
)
from outlay.estimators.sequential import Sequential
from outlay.estimators.state_model import StateModel
from outlay.estimators.units import horizons
from outlay.estimators.windowed import counted, window_of
from outlay.ops.action_basis import ActionBasis, smooth_basis

CHUNK_ROWS = 65_536  # rows that are decoded at a time
# Rows of an action for each feature. Hidden directions that vary little live on few rows: with 100 rows for each, more
# than 1% of the paths of small logs met rows without their like. Plain features are what the old policy may have seen.
HIDDEN_ROWS, PLAIN_ROWS = 150, 5

Y = TypeVar("Y")

Part = NDArray[Any] | None  # of a policy, as `Panel.follow` takes it
Answer = list[NDArray[np.float32]]  # `[n, …]` as `Member.answer` gives it
Source = int | tuple[int, ...]  # the member whose features tell it; in each fold, where folds take turns


@dataclass(frozen=True)
class Measure:
    """Fitted evaluation on one split.

    A member may read past days that are no part of the log's own state (DIN, `seen`). It decides every row from the
    days before it in the log, and the fitted evaluation knows the row by its state alone. So its value is an
    approximation: had the member decided from the first day, other days would lie behind each state, and it might
    decide there otherwise.

    Attributes:
        data: the transitions.
        split: SELECT or CERTIFY.
        bundle: its members give actions, and features of states where those are too many to count. None where all
            policies come from elsewhere.
        smooth: whether amounts that are alike speak for each other, where states are counted. Errors are smaller where
            outcomes are smooth in the amount, and values wrong where they are not: to choose by, not to certify.
        most_users: a sample of so many of the users is enough; None: all.
        long_run: whether day by day evaluation tells `LONG_RUN` too: to choose by (`estimators/long_run.py`).
        actions_only: whether only the members' actions are needed, and no features of their network.
        known: by session of the bundle, what its network answers in every row, if another measure has asked it.
    """

    data: Transitions
    split: int
    bundle: Bundle | None
    smooth: bool = False
    most_users: int | None = None
    long_run: bool = False
    actions_only: bool = False
    known: Mapping[Any, Answer] = field(default_factory=dict, compare=False)

    @cached_property
    def panel(self) -> Panel:
        """The rows of the split."""
        return Panel.of(self.data, self.split, self.most_users)

    @cached_property
    def window(self) -> int | None:
        """Days whose means stand in the place of discounted ones (`window_of`)."""
        return window_of(self.data)

    @cached_property
    def days(self) -> tuple[int, ...]:
        """Horizons of the totals: day one, those of the tables, of budgets per user, and of what is claimed."""
        own = () if self.window is None else (self.window,)
        return tuple(sorted({1, *horizons(self.data.campaign), *own}))

    @property
    def folds(self) -> tuple[Measure, ...]:
        """Itself: where folds take turns, one a fold (`rotation.py`)."""
        return (self,)

    @property
    def threads(self) -> int:
        """In how many threads policies and folds are measured.

        Day by day, most of the time goes into copies and products of arrays, during which other threads may run.
        """
        return processors() if self.sequential else 1

    def side_by_side(self, work: Callable[[Measure], Y]) -> list[Y]:
        """The work on every fold, in their order."""
        return list(in_threads(work, self.folds, self.threads))

    def mixture(self) -> tuple[list[Part], NDArray[np.float64], list[Source]]:
        """What the members do in every row, their weights, and whose features tell each."""
        count = len(self.served.members)
        return [self.actions(i) for i in range(count)], self.served.weights, list(range(count))

    def fit(
        self,
        policy: Part,
        source: Source | None = None,
        among: NDArray[np.bool_] | None = None,
        days: Sequence[int] | None = None,
    ) -> Fitted:
        """The fitted evaluation of a policy, as `Panel.follow` takes it, with totals of some days.

        Args:
            policy: what it does in every row.
            source: the member whose features tell it; default the first.
            among: `[U]` users whose value it is; default all.
            days: horizons of the totals; default those of `self.days`.
        """
        return self.evaluator(_number(source)).fit(policy, days=self.days if days is None else days, among=among)

    def old_as_observed(self, old: Fitted) -> Joint:
        """The old policy's totals of the users whose days the log shows, whom `observe` counts.

        Args:
            old: its evaluation on all users, which is the same where everybody's days are shown.
        """
        parts = []
        for k in self.days:
            covers, fitted = self.panel.covers(k), old
            if covers.any() and not covers.all():
                fitted = self.fit(None, among=covers)
            targets = [str(Target(name, k)) for name in self.panel.names]
            parts.append(fitted.picked(targets, [fitted.column(t) for t in targets], [1.0] * len(targets)))
        return Joint(
            targets=tuple(target for part in parts for target in part.targets),
            value=np.concatenate([part.value for part in parts]),
            influence=np.hstack([part.influence for part in parts]),
            mass=np.hstack([part.mass for part in parts]),
            withheld=tuple(reason for part in parts for reason in part.withheld),
            clusters=old.clusters,
        )

    def fit_second(self, policy: Part, among: NDArray[np.bool_] | None = None) -> Fitted | None:
        """The same on a basis that no network made; None where states are counted."""
        return None if self.second is None else self.second.fit(policy, days=self.days, among=among)

    def doubly_robust(
        self, policy: Part, source: Source, propensity: NDArray[np.float64], among: NDArray[np.bool_] | None = None
    ) -> Robust:
        """The doubly robust estimate; arguments as for `fit`, and `[n]` propensities of the logged actions."""
        robust = self.robust(_number(source))
        return robust.estimate(policy, days=self.days, propensity=propensity, among=among)

    def marginal(
        self, policy: Part, source: Source, propensity: NDArray[np.float64], among: NDArray[np.bool_] | None = None
    ) -> Marginal:
        """The marginalised estimate; arguments as for `doubly_robust`."""
        found = Marginalised(self.panel, self.basis(_number(source)), window=self.window)
        return found.estimate(policy, days=self.days, propensity=propensity, among=among)

    def residuals(self, policy: Part, source: Source, propensity: NDArray[np.float64]) -> Joint:
        """What single steps make of the fitted totals, less those (`doubly_robust.py`)."""
        days = [k for k in self.days if self.panel.covers(k).any()]
        return self.robust(_number(source)).single_steps(policy, propensity, days=days)

    def path_bias(self, policy: Part, propensity: NDArray[np.float64], days: Sequence[int]) -> Joint:
        """What paths of the log say of the error of fitted means and totals, where states are counted."""
        return path_bias.estimate(self._paths, policy, propensity, days=days, window=self.window)

    def pool(self, parts: Sequence[J]) -> J:
        """One estimate from that of every fold: the only one."""
        (only,) = parts
        return only

    def members(self, days: Sequence[int] | None = None) -> list[Fitted]:
        """Every member of the bundle, with totals of `days` days (default: those of `self.days`).

        Each takes 16 bytes for each user and target beside what they share (`estimators/fitted.py`).
        """
        spans, found = self.days if days is None else days, list[Fitted]()
        if self.sequential:
            self.actions(0)  # decides for all members; before the threads, so that it is done once
        for source, members in groupby(range(len(self.served.members)), self._source):
            found += in_threads(partial(self._fit_member, self._evaluator(source), spans), members, self.threads)
        return found

    def _fit_member(self, evaluator: Evaluator | Sequential, days: Sequence[int], member: int) -> Fitted:
        return evaluator.fit(self.actions(member), days=days)

    def evaluator(self, member: int = 0) -> Evaluator | Sequential:
        """Return the evaluator for a member's features; there is one for all members where states are counted."""
        return self._evaluator(self._source(member))

    def basis(self, member: int = 0) -> Basis:
        """The basis of values that depend on state and action alone, by the features of a member."""
        return self._basis(self._source(member))

    def robust(self, member: int = 0) -> DoublyRobust:
        """The doubly robust estimator on the same basis."""
        return self._robust(self._source(member))

    def old(self) -> Fitted:
        """The log's own policy."""
        return self.fit(None)

    def policy(self, actions: NDArray[np.integer]) -> Fitted:
        """A policy from elsewhere, by its action index `[n]` in every row of the panel."""
        return self.fit(actions)

    def constants(self, actions: Sequence[int], days: Sequence[int]) -> list[Fitted]:
        """Always the same action, for each of `actions`, with totals of `days` days."""
        evaluator = self.evaluator()
        return [evaluator.fit(np.full(len(self.panel), a), days=days) for a in actions]

    def varies(self, parts: Iterable[NDArray[Any] | None]) -> NDArray[np.bool_]:
        """`[1+m]` whether reward and costs of the log differ where it gave what a policy gives.

        Args:
            parts: of the policy, each as `Panel.follow` takes it.
        """
        return np.asarray(self._varies[self._given(parts)].any(axis=0))

    def reach(self, parts: Sequence[Part], weights: NDArray[np.float64] | None = None) -> Reach:
        """How far outcomes may go beyond what these users have shown, by what a policy gives.

        Args:
            parts: of the policy, each as `Panel.follow` takes it.
            weights: `[k]` of the parts; default: there is one.
        """
        shares = np.ones(1) if weights is None else weights
        used = [(part, share) for part, share in zip(parts, shares, strict=True) if share > 0]
        return Reach.mixed([self._reach(part) for part, _ in used], [share for _, share in used])

    def _reach(self, part: Part) -> Reach:
        """The same of one part."""
        given, panel = self._given([part]), self.panel
        shown = reach.largest_mean(panel.user[rows := self._followed(part)], self._towards(panel.rows[rows]))
        record = self._on_record(given.tobytes())
        possible = np.where(np.isfinite(self._known_costs), self._known_costs, -np.inf)
        stated = np.fmax(possible, self._stated)[given].max(axis=0)
        floors = np.array([budget.sign < 0 for budget in self.data.campaign.budgets])
        record[1:] = np.where(floors, record[1:], np.maximum(record[1:], stated))
        return Reach(self._known_costs[given].max(axis=0), record, shown, self._unbelieved)

    def _followed(self, part: Part) -> NDArray[np.intp]:
        """Rows of the panel in which the log did what a policy does."""
        action, forced = self.panel.action, self.panel.forced
        if part is None:
            return np.arange(len(action))
        chosen = part[np.arange(len(action)), action] > 0 if part.ndim == 2 else part == action
        return np.flatnonzero(chosen | forced)

    def _towards(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        return reach.towards(np.asarray(self.data.outcome[rows], np.float64), self.data.campaign)

    @cached_property
    def _on_record(self) -> Callable[[bytes], NDArray[np.float64]]:
        """By the actions that a policy gives: `[1+m]` the largest of any user of the log (`reach.largest_mean`)."""

        def largest(given: bytes) -> NDArray[np.float64]:
            rows = np.flatnonzero(np.frombuffer(given, np.bool_)[np.asarray(self.data.action, np.intp)])
            return reach.largest_mean(np.asarray(self.data.user, np.intp)[rows], self._towards(rows))

        kept = lru_cache(maxsize=None)(largest)
        return lambda given: kept(given).copy()

    def _given(self, parts: Iterable[NDArray[Any] | None]) -> NDArray[np.bool_]:
        """`[K]` the actions that a policy gives."""
        given = np.zeros(self.data.num_actions, np.bool_)
        forced = self.panel.action[self.panel.forced]
        for part in parts:
            if part is None or len(forced):
                given[np.unique(self.panel.action if part is None else forced)] = True
            if part is not None:
                given |= (part > 0).any(axis=0) if part.ndim == 2 else np.isin(np.arange(len(given)), part)
        return given

    @cached_property
    def _varies(self) -> NDArray[np.bool_]:
        return reach.varies(self.data)

    @cached_property
    def _stated(self) -> NDArray[np.float64]:
        """`[K, m]` the largest cost of a row, as the campaign file says; NaN where it does not."""
        campaign = self.data.campaign
        stated = np.full((self.data.num_actions, len(campaign.budgets)), np.nan)
        for j in range(len(campaign.budgets)):
            if (found := stated_reserves(self.data, campaign, j)) is not None:
                stated[:, j] = found
        return stated

    @cached_property
    def _unbelieved(self) -> NDArray[np.int64]:
        return reach.above_stated(self.data, self.data.campaign, self._stated)

    @cached_property
    def _known_costs(self) -> NDArray[np.float64]:
        return reach.known_costs(self.data, self.data.campaign, self._stated)

    def actions(self, member: int) -> NDArray[np.int64]:
        """`[n]` action index of a member in every row of the panel, forced rows not yet regarded."""
        states = self.data.states
        if self.panel.state is None or states is None or self.lags is not None:
            return np.asarray(self._row_actions[member], np.int64)
        return self.served.member_actions(member, states.codes, states.numbers, states.allowed)[self.panel.state]

    def propensity(self) -> NDArray[np.float64]:
        """`[n]` of the logged action: as logged, else by a model of the old policy.

        Raises:
            LogError: if there is nothing that the model could be fitted on.
        """
        return self._propensity

    @cached_property
    def _propensity(self) -> NDArray[np.float64]:
        return self.behaviour.propensity(self.panel.rows) if self.panel.propensity is None else self.panel.propensity

    @cached_property
    def behaviour_check(self) -> BehaviourCheck | None:
        """Whether the model of the old policy fits the rows of the split; None where propensities are as logged."""
        if self.panel.propensity is not None:
            return None
        return diagnose(self.behaviour, self.data, self.panel.rows, learned=self.behaviour.rows)

    @cached_property
    def state(self) -> StateModel:
        """What the state says of the rows: whether it is enough, and how days differ beyond it."""
        if self.counted:
            return StateModel(self.panel, self.window, None)
        return StateModel.of(self.panel, self.window, self._plain, self._numbers)

    def action_probability(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """`[r, K]` probability of each action under the log's policy in some rows of the panel, by its model."""
        return self.behaviour.probability(self.panel.rows[rows])

    @cached_property
    def behaviour(self) -> Behaviour:
        """The model of the old policy, where propensities are not logged."""
        kept = vars(self.data)  # as of a cached property: many measure the same DATA, or the same fold of it
        if "behaviour" not in kept:
            kept["behaviour"] = Behaviour.fit(self.data)
        found: Behaviour = kept["behaviour"]
        return found

    @cached_property
    def _row_actions(self) -> NDArray[Any]:
        """`[k, n]` action index of every member in every row, each row decided from what the bundle reads of it."""
        if self._of_one_network is not None:
            return self._of_one_network[0]
        chosen = self._undecided()
        for place, rows in self._chunks():
            known = {session: [part[place] for part in answer] for session, answer in self.known.items()}
            decided = self.served.choices(*self.seen.features(rows), self.data.allowed(rows), known)
            for member, (actions, _) in enumerate(decided):
                chosen[member, place] = actions
        return chosen

    def _undecided(self) -> NDArray[Any]:
        """Room for `_row_actions`."""
        return np.empty((len(self.served.members), len(self.panel)), np.min_scalar_type(self.data.num_actions))

    @cached_property
    def _of_one_network(self) -> tuple[NDArray[Any], NDArray[np.float32], Answer] | None:
        """`_row_actions`, `_hidden` and what the network says, where members share their only one: in one pass.

        What it says is kept where it is one Q, which is small; else the list is empty.
        """
        if self.counted or self.actions_only or len({member.session for member in self.served.members}) > 1:
            return None
        along = directions(lambda rows: self.served.features(0, *self.seen.features(rows)), self.panel.rows, CHUNK_ROWS)
        chosen, hidden = self._undecided(), np.empty((len(self.panel), along.matrix.shape[1]), np.float32)
        answer = self.served.members[0].room(len(self.panel), self.served.threshold)

        def fill(chunk: tuple[slice, NDArray[np.int64]]) -> None:
            place, rows = chunk
            codes, numbers = self.seen.features(rows)
            actions, features, told = self.served.choices_and_features(codes, numbers, self.data.allowed(rows))
            chosen[:, place], hidden[place] = actions, along(features)
            for kept, part in zip(answer, told, strict=False):
                kept[place] = part

        deque(in_threads(fill, self._chunks(), processors()), maxlen=0)
        return chosen, hidden, answer

    def acting(self, bundle: Bundle, *, same: bool) -> Measure:
        """The actions of another bundle's members in the same rows.

        Args:
            bundle: the other.
            same: whether its widest network is the only one of this measure's members.
        """
        answer = self._of_one_network[2] if same and self._of_one_network is not None else []
        widest = max(bundle.members, key=lambda member: member.shapes["features"][0])
        return replace(self, bundle=bundle, actions_only=True, known={widest.session: answer} if answer else {})

    def _source(self, member: int) -> int:
        """The first of the members with the network whose features make the basis of this one.

        All have one basis where states are counted.
        """
        if self.bundle is None or self.counted:
            return 0
        # A constant action has no hidden layer to speak of; the widest member then lends its own.
        wide = [m.shapes["features"][0] for m in self.bundle.members]
        source = member if wide[member] == max(wide) else int(np.argmax(wide))
        sessions = [m.session for m in self.bundle.members]
        return sessions.index(sessions[source])

    @cached_property
    def counted(self) -> bool:
        """Whether states are counted: they are few, and each met often enough that its rows can speak for it."""
        return counted(self.data, self.split)

    @cached_property
    def action_basis(self) -> ActionBasis | None:
        """In which amounts can speak for each other; None where they cannot, or states are not counted."""
        if not self.counted:
            return None
        campaign = self.data.campaign
        return smooth_basis(self.data.actions, campaign.names.degree(campaign.train.action_degree), campaign.none)

    @cached_property
    def _evaluator(self) -> Callable[[int], Evaluator | Sequential]:
        """By source; the latest is kept, as the features of every row are large."""
        return lru_cache(maxsize=1)(self._made)

    def _made(self, source: int) -> Evaluator | Sequential:
        if not self.sequential:
            return Evaluator(self.panel, self._basis(source), window=self.window)
        parts = [self._plain, hinges(self._numbers, self.panel.first[self.panel.user]), self._before]
        if self.bundle is not None:
            parts.insert(0, self._hidden(source))
        return self._by_day(parts)

    def _by_day(self, parts: Sequence[NDArray[np.float32]], *, paths: bool = False) -> Sequential:
        assert self.window is not None
        columns = standardised(np.hstack(parts))
        ahead = None if paths else self._advantages
        return Sequential(self.panel, columns, self.propensity(), self.window, paths, ahead)

    @cached_property
    def _advantages(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """What `LONG_RUN` is made of; None where it is not wanted, or the window is one day."""
        return advantages(self.panel) if self.long_run and (self.window or 0) > 1 else None

    @cached_property
    def _robust(self) -> Callable[[int], DoublyRobust]:
        return lru_cache(maxsize=1)(
            lambda source: DoublyRobust(self.panel, self._basis(source), window=self.window, day_by_day=self.sequential)
        )

    @cached_property
    def second(self) -> Evaluator | Sequential | None:
        """The same on a basis that no network made: plain features and their squares; None where states are counted.

        Day by day it also knows how far a user's days went the policy's way (`Sequential.paths`).
        """
        if self.counted:
            return None
        square = np.clip(self._plain, -WITHIN, WITHIN) ** 2
        if self.sequential:
            return self._by_day([self._plain, square, self._before], paths=True)
        return Evaluator(self.panel, self._features(square), window=self.window)

    @property
    def sequential(self) -> bool:
        """Whether policies are evaluated day by day, given the days before: where states are not counted."""
        return self.window is not None and not self.counted

    @cached_property
    def _plain(self) -> NDArray[np.float32]:
        return plain_features(self.data, self.panel.rows)

    @cached_property
    def _before(self) -> NDArray[np.float32]:
        return days_before(self.panel)

    @cached_property
    def _paths(self) -> Paths:
        return Paths(self.panel, self._before)

    @property
    def _numbers(self) -> NDArray[np.float32]:
        """`[n, F']` of the numeric fields."""
        return np.concatenate([self.data.features(rows)[1][:, ::2] for _, rows in self._chunks()])

    def _basis(self, source: int) -> Basis:
        if self.counted and self.panel.state is not None and self.data.states is not None:
            counted = CountedBasis(self.panel.state, len(self.data.states), self.data.num_actions)
            return SmoothBasis(counted, np.array(self.action_basis)) if self.smooth and self.action_basis else counted
        if self.bundle is None:
            return self._features()
        # A layer that was learned to act forgets what only moves: the plain features bring it back.
        return self._features(self._hidden(source))

    @cached_property
    def _hidden(self) -> Callable[[int], NDArray[np.float32]]:
        """By source: `[n, ≤ MOST_FEATURES]` directions of a hidden layer, which several evaluations rest on.

        Its units are many and nearly collinear; the work of an evaluation grows with their number squared.
        """

        def found(source: int) -> NDArray[np.float32]:
            if self._of_one_network is not None:
                return self._of_one_network[1]
            return reduced(
                lambda rows: self.served.features(source, *self.seen.features(rows)), self.panel.rows, CHUNK_ROWS
            )

        return lru_cache(maxsize=1)(found)

    def _features(self, further: NDArray[np.float32] | None = None) -> FeatureBasis:
        """The basis of `further` columns `[n, d]` and the plain features: of both as many as an action's rows carry.

        Columns that vary most come first. The last row of a truncated path is not counted unless it is the first one
        too: without a next row it tells nothing of the days to come.
        """
        panel, plain = self.panel, self._plain
        usable = (panel.following >= 0) | panel.terminal
        usable[panel.first] = True
        rows = np.bincount(panel.action[usable], minlength=self.data.num_actions)[:, None]
        kept = np.arange(plain.shape[1]) < np.maximum(1, rows // PLAIN_ROWS)
        if further is None:
            return FeatureBasis(plain, self.data.num_actions, kept)
        kept = np.hstack([np.arange(further.shape[1]) < rows // HIDDEN_ROWS, kept])
        return FeatureBasis(np.hstack([further, plain]), self.data.num_actions, kept)

    @property
    def served(self) -> Bundle:
        """The bundle, where there is one."""
        if self.bundle is None:
            raise ValueError("there is no bundle, so there are no members.")
        return self.bundle

    @cached_property
    def lags(self) -> LagFields | None:
        """Features of past days that the bundle reads and the log does not have; None where there are none."""
        bundle = self.bundle
        return None if bundle is None else LagFields.of(self.data.schema, bundle.campaign, bundle.schema)

    @cached_property
    def seen(self) -> Transitions:
        """The log with the features that the bundle reads."""
        return looking_back(self.data, self.lags)

    def _chunks(self) -> list[tuple[slice, NDArray[np.int64]]]:
        """Places among the rows of the panel, and the rows."""
        places = [slice(i, i + CHUNK_ROWS) for i in range(0, len(self.panel), CHUNK_ROWS)]
        return [(place, self.panel.rows[place]) for place in places]


def _number(source: Source | None) -> int:
    assert not isinstance(source, tuple)
    return source or 0
