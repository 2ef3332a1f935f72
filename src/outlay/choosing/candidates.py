"""Candidates: policies that may be served, and what they are measured at on the *select* users.

Learning found them by figures of its own, and choosing by those figures would choose their errors too. So they are
measured again, on users who taught them nothing, by the fitted evaluation that the certificate will use.

The objective of a candidate is what mixtures maximise. Where states are not counted it includes what follows the log's
days (`estimators/long_run.py`). Out of it and out of costs the luck of single measurements is taken (`luck.py`).

Where states are counted, similar amounts inform each other, which takes a third or more off every standard error. The
certificate does not rest on that. Policies are measured without it too, and if the two disagree by more than chance
(Hausman's test), the amounts are not smooth, and the figures without it are used.

Source: Hausman (1978) for the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.bundles.in_memory import in_memory
from outlay.bundles.write import BundleSpec, MemberSpec
from outlay.choosing.estimates import further_errors, interpolated
from outlay.choosing.looks import next_alpha
from outlay.choosing.luck import concave, shrunk
from outlay.choosing.measure import Measure
from outlay.choosing.reserve import known_reserves, largest_costs
from outlay.core.arrays import NetworkArrays, ResponseArrays, preferring_network
from outlay.core.bodies import Trees
from outlay.core.campaign import Campaign
from outlay.core.estimate import Target
from outlay.core.inequalities import Inequalities
from outlay.core.reasons import Reason, ReasonKind
from outlay.core.transitions import SELECT, Transitions
from outlay.estimators.fitted import Fitted
from outlay.estimators.reach import Reach, largest
from outlay.estimators.units import (
    apart,
    chosen_by,
    coordinates,
    days_counted,
    decisions,
    missing,
    needed,
    needed_days,
)
from outlay.estimators.windowed import counted
from outlay.ops.intervals import BY_CHANCE, std_error

ROUNDING = 1e-2  # of a standard error: smaller differences are none
TINY = 1e-12
TRAINED_WITH = ("jax", "equinox", "optax")

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class RunContext:
    """What all policies of one run share.

    Attributes:
        data: the transitions.
        campaign: limits and settings as used.
        scale: `[m]` one unit of violation of each limit.
        heads: `[H]` names of the networks' heads.
        imitation_threshold: BCQ's; None if no network has such a head.
        seed: of the training.
        folder: of the run that is being made.
        view: the log with the features that the policies read, where they read past days that DATA does not tell.
        own_share: of the next look's α for the mixture that is served; less than 1 where the look is at a whole curve.
    """

    data: Transitions
    campaign: Campaign
    scale: Vector
    heads: tuple[str, ...]
    imitation_threshold: float | None
    seed: int
    folder: Path
    view: Transitions | None = None
    own_share: float = 1.0

    @property
    def seen(self) -> Transitions:
        """The log with the features that the policies read."""
        return self.data if self.view is None else self.view

    @cached_property
    def limits(self) -> Vector:
        """`[m]` in ≤ form."""
        return Inequalities.of(self.campaign.budgets).limits

    @cached_property
    def reserve(self) -> Vector | None:
        """`[K]` money to set aside for each action; None if it is not known. Reads the log once."""
        return known_reserves(self.data, self.campaign)

    @cached_property
    def largest_costs(self) -> Vector:
        """`[K]` the most that a row of the log has cost with each action, in money. Reads the log once."""
        return largest_costs(self.data, self.campaign)

    @cached_property
    def margins(self) -> dict[tuple[int, bool], tuple[Fitted, Vector]]:
        """A fitted evaluation and the margins `[m]` of its policy alone, which are needed again.

        By its identity, and whether rare users are allowed for (`choose.SolvedMixture`).
        """
        return {}

    @cached_property
    def counted(self) -> bool:
        """Whether the states of *select* users are counted."""
        return counted(self.data, SELECT)

    @cached_property
    def alpha(self) -> float:
        """What the next look at the certify users may spend."""
        return next_alpha(self.data, self.campaign.train.confidence, self.data.certifying)


@dataclass(frozen=True)
class CandidatePolicy:
    """A policy that may be served.

    Attributes:
        name: `step 2400`, or `always 1.5`.
        network: it gives the action with the largest w·Q.
        multiplier: `[m]` λ it answers.
        head_weights: `[H]` w.
        number: of the game's candidate; None for a constant action.
        step: gradient steps made by then; None for a constant action.
        learned: `[1+m]` the learner's own estimate, as tables show it; None if it has none.
        policy: which of the network's policies it acts by; several λ may act by one, each with its own weights.
        fold: whose users had no part in it.
        answers: whether it is the best response to its λ of a learner that answers every λ.
    """

    name: str
    network: NetworkArrays | ResponseArrays
    multiplier: Vector
    head_weights: Vector
    number: int | None = None
    step: int | None = None
    learned: Vector | None = None
    policy: int = 0
    fold: int = 0
    answers: bool = False


@dataclass(frozen=True)
class MeasuredPolicy:
    """A candidate with what it was measured at on *select*.

    Attributes:
        policy: the candidate.
        coordinates: `[1+m]` reward and budgets in ≤ form; NaN if it could not be measured.
        std_error: `[1+m]`.
        decisions: `[m]` what excesses are divided by in tables (`units.decisions`).
        raw: the whole measurement.
        fitted: the same with the luck of costs taken out (`without_luck`).
        certifying: the same as the certificate will measure it.
        withheld: why it could not be measured, if it could not.
        reach: how far a user may go in influence (`estimators/reach.py`).
        objective: what mixtures maximise (`units.chosen_by`, `shrunk`).
        objective_influence: `[U]` of each user on it.
        further: `[m]` how much more the estimate that assumes less errs on the costs, as a multiple of the error of
            `certifying` (`further_errors`).
    """

    policy: CandidatePolicy
    coordinates: Vector
    std_error: Vector
    decisions: Vector
    raw: Fitted
    fitted: Fitted
    certifying: Fitted
    withheld: Reason | None
    reach: Reach
    objective: float
    objective_influence: Vector
    further: Vector


WeightedPolicies = tuple[Sequence[MeasuredPolicy], Vector]  # of a mixture, with the weight of each


def measure(context: RunContext, candidates: Sequence[CandidatePolicy]) -> tuple[list[MeasuredPolicy], Measure]:
    """Measure policies on *select*. Returns them with what measured them."""
    campaign, days = context.campaign, needed_days(context.campaign)
    plain = Measure(context.data, SELECT, candidates_bundle(context, candidates), long_run=True)
    fits = certifying = plain.members(days)
    used = plain
    if plain.action_basis is not None:
        smooth = replace(plain, smooth=True)
        smoothed = smooth.members(days)
        if not _disagree(smoothed, certifying, campaign):
            fits, used = smoothed, smooth
    fits = [_lower_error(one, other, campaign) for one, other in zip(fits, certifying, strict=True)]
    further = further_errors(plain, plain.actions, certifying, campaign)
    measured = [
        _measured(policy, fitted, plainly, campaign, plain.reach([plain.actions(i)]), own)
        for i, (policy, fitted, plainly, own) in enumerate(zip(candidates, fits, certifying, further, strict=True))
    ]
    return without_luck(measured, context), used


def candidates_bundle(context: RunContext, candidates: Sequence[CandidatePolicy]) -> Bundle:
    """Return a bundle of policies with equal weights, to measure them by; nothing is written."""
    return in_memory(bundle_spec(context, candidates, np.full(len(candidates), 1 / len(candidates))))


def without_luck(measured: Sequence[MeasuredPolicy], context: RunContext) -> list[MeasuredPolicy]:
    """Take luck out of measured objectives and costs: learned policies, and constant actions, are a family each.

    If states are counted, all stay as measured: there is little luck in them, and each policy is exact.
    """
    result = list(measured)
    if context.counted:
        return result
    campaign = context.campaign
    known = [i for i, each in enumerate(measured) if each.withheld is None]
    constant = {i for i in known if measured[i].policy.number is None}
    for family in ([i for i in known if i not in constant], sorted(constant)):
        members = [measured[i] for i in family]
        for each, cleaned in zip(family, _less_luck(members, campaign), strict=True):
            result[each] = cleaned
    return result


def _less_luck(family: Sequence[MeasuredPolicy], campaign: Campaign) -> list[MeasuredPolicy]:
    """The policies of a family with `shrunk` objectives, costs and decisions, where there is what to shrink them to."""
    if not family:
        return []
    fits = [each.raw for each in family]
    for target in needed(campaign)[1:]:
        name = Target.parse(target).name
        steady = _together([apart(each.raw, name) for each in family])
        if steady is not None and target in fits[0].targets:
            place = fits[0].column(target)
            columns = [(each.value[place], each.influence[:, place]) for each in fits]
            fits = [each.having(place, *cleaned) for each, cleaned in zip(fits, _shrunk(steady, columns), strict=True)]
    result = [
        replace(each, fitted=fitted, coordinates=coordinates(fitted, campaign)[0])
        for each, fitted in zip(family, fits, strict=True)
    ]
    steady = _together([_steady(each, campaign) for each in family])
    if steady is None:
        return result
    free = _together([chosen_by(each.raw, campaign) for each in family])
    assert free is not None
    values, influence = shrunk(*steady, *free)
    if _best_responses(family):
        values, influence = concave(values, influence, np.array([each.coordinates[1] for each in result]))
    return [
        replace(each, objective=float(value), objective_influence=own)
        for each, value, own in zip(result, values, influence.T, strict=True)
    ]


def _together(pairs: Sequence[tuple[float, Vector] | None]) -> tuple[Vector, Vector] | None:
    """Values `[L]` and influences `[G, L]`; None unless all are known."""
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        return None
    return np.array([value for value, _ in known]), np.column_stack([influence for _, influence in known])


def _shrunk(steady: tuple[Vector, Vector], free: Sequence[tuple[float, Vector]]) -> list[tuple[float, Vector]]:
    """As `shrunk`, from and into a pair a policy."""
    found = _together(free)
    assert found is not None
    values, influence = shrunk(*steady, *found)
    return list(zip(values.tolist(), influence.T, strict=True))


def _best_responses(family: Sequence[MeasuredPolicy]) -> bool:
    """Whether policies answer the prices of one limit."""
    return all(each.policy.answers and len(each.policy.multiplier) == 1 for each in family)


def _steady(measured: MeasuredPolicy, campaign: Campaign) -> tuple[float, Vector] | None:
    """Return what an objective is shrunk towards, and its influence `[G]`: of the log's states, or of its learner.

    A log of one step has no days before: there, a learner's values are a smooth function of λ, if off in level and
    size.
    """
    found, learned, days = apart(measured.raw, "reward"), measured.policy.learned, days_counted(campaign)
    if found is not None:
        return days * found[0], days * found[1]
    return None if learned is None else (days * float(learned[0]), np.zeros(len(measured.objective_influence)))


def measure_further(
    context: RunContext,
    candidates: Sequence[CandidatePolicy],
    earlier: Sequence[MeasuredPolicy],
    measure: Measure,
) -> tuple[list[MeasuredPolicy], Bundle]:
    """Measure policies that were found later. Returns them with their bundle.

    They are described by the features of the network that they share with one of the earlier, or else of the first.

    Args:
        context: what all policies share.
        candidates: the new ones.
        earlier: policies whose first are those of the bundle that `measure` has.
        measure: what measured those.
    """
    campaign, days = context.campaign, needed_days(context.campaign)
    networks = [each.policy.network for each in earlier[: len(measure.served.members)]]
    same = all(policy.network is networks[0] for policy in candidates)
    wider = measure.acting(candidates_bundle(context, candidates), same=same)
    plain = replace(measure, smooth=False) if measure.smooth else measure
    result = []
    for i, policy in enumerate(candidates):
        source = next((j for j, network in enumerate(networks) if network is policy.network), 0)
        actions = wider.actions(i)
        fitted = certifying = plain.evaluator(source).fit(actions, days=days)
        if measure.smooth:
            fitted = _lower_error(measure.evaluator(source).fit(actions, days=days), certifying, campaign)
        further = _between(earlier, coordinates(certifying, campaign)[0][1:])
        result.append(_measured(policy, fitted, certifying, campaign, measure.reach([actions]), further))
    return result, wider.served


def _between(earlier: Sequence[MeasuredPolicy], cost: Vector) -> Vector:
    """`[m]` of `further_errors` for a policy of these costs `[m]`, from those that were measured earlier."""
    theirs, further = (np.array(each) for each in zip(*((k.coordinates[1:], k.further) for k in earlier), strict=True))
    return np.array([interpolated(cost[j : j + 1], theirs[:, j], further[:, j])[0] for j in range(len(cost))])


def constant_actions(context: RunContext, measure: Measure) -> list[MeasuredPolicy]:
    """Measure policies that look at no state.

    They are always the same action if all rows allow it, else the cheapest of what each row allows.
    """
    data, plain = context.data, replace(measure, smooth=False) if measure.smooth else measure
    schema, count, budgets = context.seen.schema, data.num_actions, context.campaign.budgets
    days, heads = needed_days(context.campaign), len(context.heads)
    preferences = {
        f"always {data.campaign.label(float(data.actions[a]))}": np.arange(count) == a
        for a in np.flatnonzero(data.allowed_everywhere)
    }
    if data.eligible is not None:
        for j, budget in enumerate(budgets):
            name = f"always the {'least' if budget.sign > 0 else 'most'} {budget.name} allowed"
            preferences[name] = -budget.sign * _ranks(_mean_cost(measure, j))
    policies, actions, certifying, fits = [], [], [], []
    for name, preference in preferences.items():
        network = preferring_network(preference, schema.sizes, 2 * len(schema.numeric), heads)
        policies.append(CandidatePolicy(name, network, np.zeros(len(budgets)), np.eye(heads)[0]))
        actions.append(np.where(data.allowed(measure.panel.rows), preference, -np.inf).argmax(axis=1))
        certifying.append(plain.evaluator().fit(actions[-1], days=days))
        fits.append(measure.evaluator().fit(actions[-1], days=days) if measure.smooth else certifying[-1])
    further = (
        further_errors(plain, lambda i: actions[i], certifying, context.campaign) if policies else np.empty((0, 0))
    )
    return [
        _measured(policy, fitted, plainly, context.campaign, plain.reach([action]), own)
        for policy, fitted, plainly, action, own in zip(policies, fits, certifying, actions, further, strict=True)
    ]


def _mean_cost(measure: Measure, j: int) -> Vector:
    """`[K]` mean of a cost over the rows in which each action was given; actions never given cost the mean of all."""
    action, cost = np.asarray(measure.panel.action), np.asarray(measure.panel.outcome[:, 1 + j], np.float64)
    count = measure.data.num_actions
    rows, total = np.bincount(action, minlength=count), np.bincount(action, cost, count)
    return np.where(rows > 0, total / np.maximum(rows, 1), cost.mean())


def _ranks(values: Vector) -> Vector:
    """0 for the smallest, 1 for the next, …."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)


def _disagree(smooth: Sequence[Fitted], plain: Sequence[Fitted], campaign: Campaign) -> bool:
    """Whether any figure differs by more than chance."""
    for one, other in zip(smooth, plain, strict=True):
        (a, influence, _), (b, wide, _) = coordinates(one, campaign), coordinates(other, campaign)
        if (np.abs(a - b) > BY_CHANCE * std_error(influence - wide) + ROUNDING * std_error(wide)).any():
            return True
    return False


def _lower_error(smooth: Fitted, plain: Fitted, campaign: Campaign) -> Fitted:
    """The one with the smaller errors: an amount of 0, say, costs nothing, and its neighbours only blur that."""
    one, other = (std_error(coordinates(fitted, campaign)[1]) for fitted in (smooth, plain))
    return smooth if np.log((one + TINY) / (other + TINY)).sum() < 0 else plain


def _measured(
    policy: CandidatePolicy, fitted: Fitted, certifying: Fitted, campaign: Campaign, reach: Reach, further: Vector
) -> MeasuredPolicy:
    values, influence, _ = coordinates(fitted, campaign)
    value, objective_influence = chosen_by(fitted, campaign)
    reason = missing(certifying, campaign) or missing(fitted, campaign)
    if reason is None and not np.isfinite([*values, value]).all():
        reason = Reason(ReasonKind.NOT_MEASURED)
    return MeasuredPolicy(
        policy,
        values,
        std_error(influence),
        decisions(fitted, campaign),
        fitted,
        fitted,
        certifying,
        reason,
        largest(certifying, campaign, reach),
        value,
        objective_influence,
        further,
    )


def bundle_spec(
    context: RunContext,
    members: Sequence[CandidatePolicy | MeasuredPolicy],
    weights: Vector,
    capped: WeightedPolicies | None = None,
) -> BundleSpec:
    """Return what a bundle of these members says. Measurements are as tables show them, 0 before there are any.

    Of a network that answers many λ it holds the heads of its members alone.

    Args:
        context: what they share.
        members: the mixture.
        weights: `[k]` of it.
        capped: members and weights behind a cap; None: the same.
    """
    others, shares = ((), np.zeros(0)) if capped is None else capped
    every = [*members, *others]
    policies = [member.policy if isinstance(member, MeasuredPolicy) else member for member in every]
    used: dict[int, list[int]] = {}
    for policy in policies:
        places = used.setdefault(id(policy.network), [])
        if policy.policy not in places:
            places.append(policy.policy)
    slim = {
        id(policy.network): policy.network.only(used[id(policy.network)])
        for policy in policies
        if isinstance(policy.network, NetworkArrays) and policy.network.num_policies > 1
    }
    boosted = any(isinstance(p.network, NetworkArrays) and isinstance(p.network.body, Trees) for p in policies)
    # The log of the view has the summaries of the past that a server has to compute.
    log = context.campaign.log if context.view is None else context.view.campaign.log
    specs = tuple(
        MemberSpec(
            network=slim.get(id(policy.network), policy.network),
            weight=float(weight),
            multiplier=policy.multiplier,
            head_weights=policy.head_weights,
            measurement=_measurement(member, context.campaign),
            policy=used[id(policy.network)].index(policy.policy),
        )
        for member, policy, weight in zip(every, policies, [*weights, *shares], strict=True)
    )
    return BundleSpec(
        campaign=context.campaign.model_copy(update={"log": log}),
        schema=context.seen.schema,
        actions=context.data.actions,
        reserve=context.reserve,
        largest_costs=context.largest_costs,
        heads=context.heads,
        members=specs[: len(members)],
        capped=specs[len(members) :],
        imitation_threshold=context.imitation_threshold,
        data_hash=context.data.manifest.data_hash,
        seed=context.seed,
        versions={name: version(name) for name in (*TRAINED_WITH, *(("lightgbm",) if boosted else ()))},
    )


def _measurement(member: CandidatePolicy | MeasuredPolicy, campaign: Campaign) -> Vector:
    known = np.zeros(1 + len(campaign.budgets)) if isinstance(member, CandidatePolicy) else shown(member, campaign)
    return np.nan_to_num(known)


def shown(measured: MeasuredPolicy, campaign: Campaign) -> Vector:
    """Return `[1+m]` reward and costs as tables show them."""
    costs = Inequalities.of(campaign.budgets).shown(measured.coordinates[1:], measured.decisions)
    return np.append(measured.coordinates[0], costs)
