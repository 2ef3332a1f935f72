"""After learning: measure the policies that were found again, and solve their weights on limits with a margin.

Whoever found them chose by measurements of its own; choosing by measured value chooses the errors too. So the policies
that are left are measured once more on the *select* users, by the fitted evaluation that the certificate will use, and
their weights are solved with every cost raised by the margin that makes a certificate likely
(`estimators/certificate.py`). Where they cannot keep the limits, the reserve and then the constant actions are taken
in. Constant actions also take part where a mixture with them is better by more than noise: no mixture is served that
they beat by what can be seen.

What is mixed by is the aim of each policy: what it is worth beyond the log's days too, where states are not counted
(`estimators/long_run.py`), less the luck of single measurements (`choosing/shrinkage.py`). Costs are taken as measured.

Where states are counted, amounts that are alike speak for each other, which takes a third or more off every standard
error: to choose by, as the certificate does not rest on it. Policies are measured without it too, and where the two
disagree by more than chance (Hausman's test) the amounts are not smooth, and the figures without it are taken.

Source: Hausman (1978) for the test.
"""

from __future__ import annotations

import re
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
from outlay.choosing.looks import next_alpha
from outlay.choosing.measure import Measure
from outlay.choosing.reserve import known_reserves
from outlay.choosing.shrinkage import in_line
from outlay.choosing.window import counted
from outlay.core.campaign import Campaign
from outlay.core.errors import InfeasibleError
from outlay.core.network import NetworkArrays, preferring_network
from outlay.core.response import ResponseArrays
from outlay.core.transitions import SELECT, Transitions
from outlay.core.trees import Trees
from outlay.estimators.certificate import margins
from outlay.estimators.fitted import Fitted
from outlay.estimators.reach import largest
from outlay.estimators.units import chosen_by, coordinates, days_counted, decisions, missing, needed_days
from outlay.ops.intervals import quantile, std_error
from outlay.ops.mixture_lp import FEASIBLE, solve_mixture
from outlay.ops.skewed import Spread

REFININGS, NEAR = 8, 1e-3  # of the room of a mixture, which depends on its weights a little
BY_CHANCE = 4.0  # standard deviations: of hundreds of figures hardly one differs by more
ROUNDING = 1e-2  # of a standard error: differences that are none
TINY = 1e-12
TRAINED_WITH = ("jax", "equinox", "optax")
NOISE = 1.0  # standard errors by which constant actions, or another learner, have to be better
LUCK = 2.0  # the same of constant actions beside policies whose aims are in line, and so have no luck of their own
TOGETHER = "all together"  # the mixture of all learners' policies

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """What all policies of one run share.

    Attributes:
        data: the transitions.
        campaign: limits and settings as used.
        scale: `[m]` one unit of violation of each limit.
        heads: `[H]` names of the networks' heads.
        imitation_threshold: BCQ's; None where no network has such a head.
        seed: of the training.
        folder: of the run that is being made.
    """

    data: Transitions
    campaign: Campaign
    scale: Vector
    heads: tuple[str, ...]
    imitation_threshold: float | None
    seed: int
    folder: Path

    @cached_property
    def reserve(self) -> Vector | None:
        """`[K]` money to set aside for each action, where it is known: a pass over the log."""
        return known_reserves(self.data, self.campaign)

    @cached_property
    def rooms(self) -> dict[int, tuple[Fitted, Vector]]:
        """By its identity, a fitted evaluation and the margins `[m]` of its policy alone, which are needed again."""
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
class Offered:
    """A policy that may be served.

    Attributes:
        name: `step 2400`, or `always 1.5`.
        network: it gives the action with the largest w·Q.
        multiplier: `[m]` λ it answers.
        head_weights: `[H]` w.
        number: of the candidate it was; None for a constant action.
        step: gradient steps made by then; None for a constant action.
        learned: `[1+m]` what learning itself said of it, as tables show it; None where it said nothing.
        policy: which of the network's policies it acts by; several λ may act by one, each with its own weights.
        fold: whose users had no part in it.
        learner: what it was learned by; empty for constant actions, and where there is one learner.
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
    learner: str = ""


@dataclass(frozen=True)
class Standing:
    """How a learner's own mixture does on *select*, beside the one that was taken.

    Attributes:
        learner: its name.
        value: what its best mixture that keeps the limits is chosen by.
        behind: by how much that is below the mixture that was taken, which stands first; negative: above it, by noise.
        std_error: of this difference.
    """

    learner: str
    value: float
    behind: float
    std_error: float


@dataclass(frozen=True)
class Kept:
    """A policy with what it was measured at on *select*.

    Attributes:
        policy: the policy.
        x: `[1+m]` objective and budgets in ≤ form; NaN where it could not be measured.
        std_error: `[1+m]`.
        decisions: `[m]` what excesses are divided by in tables (`units.decisions`).
        fitted: the whole measurement.
        certifying: the same as the certificate will measure it.
        withheld: why not, where it could not be measured.
        known: `[m]` the largest influence of a user on its costs (`estimators/reach.py`).
        aim: what mixtures are chosen to have much of (`units.chosen_by`, `choosing/shrinkage.py`).
        aim_influence: `[U]` of each user on it.
    """

    policy: Offered
    x: Vector
    std_error: Vector
    decisions: Vector
    fitted: Fitted
    certifying: Fitted
    withheld: str | None
    known: Vector
    aim: float
    aim_influence: Vector


@dataclass(frozen=True)
class Chosen:
    """The mixture as it will be served.

    Attributes:
        members: those with a weight above 0.
        weights: `[k]`.
        margin: `[m]` by which the costs were raised, weighted.
        measured: every policy that was offered, reserve included.
        at: what measured them.
        fold_weights: `[K, k]` of the members in the mixture of each fold.
        standings: of the learners, where there are several: the one taken first, then by value.
    """

    members: tuple[Kept, ...]
    weights: Vector
    margin: Vector
    measured: tuple[Kept, ...]
    at: Measure
    fold_weights: Vector
    standings: tuple[Standing, ...] = ()


def choose(
    frame: Frame,
    offered: Sequence[Offered],
    reserve: Sequence[Offered] = (),
    *,
    weights: Vector | None = None,
    alone: bool = False,
) -> Chosen:
    """Measure policies on *select*, and solve their weights.

    Args:
        frame: what they share.
        offered: the policies to mix.
        reserve: taken in where those cannot keep the limits.
        weights: `[k]` of the offered policies, to be kept as they are; None solves them.
        alone: serve one policy: the first pool of offered, reserve and constant actions in which one keeps the limits.

    Raises:
        InfeasibleError: if no mixture of what was found keeps the limits, or nothing can be measured.
    """
    kept, at = measure(frame, [*offered, *reserve])
    return choose_among(frame, kept, at, len(offered), weights=weights, alone=alone)


def choose_among(
    frame: Frame, kept: list[Kept], at: Measure, count: int, *, weights: Vector | None = None, alone: bool = False
) -> Chosen:
    """Solve the weights of policies that were measured.

    Args:
        frame: what they share.
        kept: the policies, first those to mix, then the reserve.
        at: what measured them.
        count: how many are to be mixed.
        weights: as of `choose`.
        alone: as of `choose`.

    Raises:
        InfeasibleError: as `choose` does.
    """
    limits = np.array([b.sign * b.limit for b in frame.campaign.budgets])
    first = kept[:count]
    if weights is not None:
        known = np.array([k.withheld is None for k in first])
        if not (weights * known).any():
            raise _infeasible(first, [], limits, frame.campaign)
        pool = [k for k in first if k.withheld is None]
        return _mixed(pool, weights[known] / weights[known].sum(), margins_of(pool, frame), kept, at)
    own = _of_learners(first, frame, alone)
    found = _taken(own)
    if found is None:
        found = best(kept, frame, alone)
    standings = _standings(own, found)
    every = [*kept, *constant_actions(frame, at)]
    found = with_constants(found, best(every, frame, alone), frame)
    if found is not None:
        return replace(_mixed(found.pool, found.weights, found.margin, kept, at), standings=standings)
    # No room for the margin: served as near to the limits as they allow, and then hardly certified.
    pool = [k for k in every if k.withheld is None]
    if pool and not alone and (exact := solve_mixture(to_solve(pool), limits, frame.scale)).feasible:
        return _mixed(pool, exact.weights, margins_of(pool, frame), kept, at)
    raise _infeasible(every, pool, limits, frame.campaign)


def measure(frame: Frame, offered: Sequence[Offered]) -> tuple[list[Kept], Measure]:
    """Policies with their fitted evaluation."""
    campaign, days = frame.campaign, needed_days(frame.campaign)
    plain = Measure(frame.data, SELECT, candidates_bundle(frame, offered), long_run=True)
    fits = certifying = plain.members(days)
    at = plain
    if plain.action_basis is not None:
        smooth = replace(plain, smooth=True)
        found = smooth.members(days)
        if not _disagree(found, certifying, campaign):
            fits, at = found, smooth
    fits = [_surer(one, other, campaign) for one, other in zip(fits, certifying, strict=True)]
    measured = zip(offered, fits, certifying, strict=True)
    kept = [
        _kept(policy, fitted, plainly, campaign, plain.known_costs([plain.actions(i)]))
        for i, (policy, fitted, plainly) in enumerate(measured)
    ]
    return aimed(kept, frame), at


def candidates_bundle(frame: Frame, offered: Sequence[Offered]) -> Bundle:
    """Policies with equal weights, to be measured; nothing is written."""
    return in_memory(bundle_spec(frame, offered, np.full(len(offered), 1 / len(offered))))


def aimed(kept: Sequence[Kept], frame: Frame) -> list[Kept]:
    """The same with the aims of each critic's policies brought in line with what learning said of them.

    Where states are counted, aims stay as measured: there is little luck in them, and each policy is exact.
    """
    if frame.counted:
        return list(kept)
    measured_aims = [chosen_by(each.fitted, frame.campaign) for each in kept]
    found = [replace(k, aim=aim, aim_influence=psi) for k, (aim, psi) in zip(kept, measured_aims, strict=True)]
    known = [i for i, each in enumerate(kept) if each.withheld is None and each.policy.learned is not None]
    critics = [(id(each.policy.network), each.policy.learner) for each in kept]
    for critic in {critics[i] for i in known}:
        alike = [i for i in known if critics[i] == critic]
        said = np.array([one.policy.learned[0] for one in (kept[i] for i in alike) if one.policy.learned is not None])
        measured = np.array([found[i].aim for i in alike])
        said *= days_counted(frame.campaign)
        told = in_line(said, measured, np.stack([found[i].aim_influence for i in alike], axis=1))
        for i, aim, influence in zip(alike, told[0], told[1].T, strict=True):
            found[i] = replace(found[i], aim=float(aim), aim_influence=influence)
    return found


def measure_further(
    frame: Frame, offered: Sequence[Offered], kept: Sequence[Kept], at: Measure
) -> tuple[list[Kept], Bundle]:
    """Policies found later, measured at `at` as `kept` were, whose first are those of its bundle; and their bundle.

    They are told by the features of the network that they share with one of those, or else by those of the first.
    """
    campaign, days = frame.campaign, needed_days(frame.campaign)
    theirs = replace(at, bundle=candidates_bundle(frame, offered))
    plain = replace(at, smooth=False) if at.smooth else at
    networks = [k.policy.network for k in kept[: len(at.served.members)]]
    out = []
    for i, policy in enumerate(offered):
        source = next((j for j, network in enumerate(networks) if network is policy.network), 0)
        actions = theirs.actions(i)
        certifying = plain.evaluator(source).fit(actions, days=days)
        fitted = _surer(at.evaluator(source).fit(actions, days=days), certifying, campaign) if at.smooth else certifying
        out.append(_kept(policy, fitted, certifying, campaign, at.known_costs([actions])))
    return out, theirs.served


def constant_actions(frame: Frame, at: Measure) -> list[Kept]:
    """What looks at no state: always the same action, where all rows allow it; else the cheapest of what they allow."""
    data, plain = frame.data, replace(at, smooth=False)
    count, width, budgets = data.num_actions, data.number_columns.shape[1], frame.campaign.budgets
    days, heads = needed_days(frame.campaign), len(frame.heads)
    preferences = {f"always {data.actions[a]:g}": np.arange(count) == a
                   for a in np.flatnonzero(data.allowed_everywhere)}  # fmt: skip
    if data.eligible is not None:
        for j, budget in enumerate(budgets):
            name = f"always the {'least' if budget.sign > 0 else 'most'} {budget.name} allowed"
            preferences[name] = -budget.sign * _ranks(_mean_cost(at, j))
    out = []
    for name, preference in preferences.items():
        network = preferring_network(preference, data.schema.sizes, width, heads)
        always = Offered(name, network, np.zeros(len(budgets)), np.eye(heads)[0])
        actions = np.where(data.allowed(at.panel.rows), preference, -np.inf).argmax(axis=1)
        certifying = plain.evaluator().fit(actions, days=days)
        fitted = at.evaluator().fit(actions, days=days) if at.smooth else certifying
        out.append(_kept(always, fitted, certifying, frame.campaign, plain.known_costs([actions])))
    return out


def _mean_cost(at: Measure, j: int) -> Vector:
    """`[K]` mean of a cost over the rows in which each action was given; actions never given cost the mean of all."""
    action, cost = np.asarray(at.panel.action), np.asarray(at.panel.outcome[:, 1 + j], np.float64)
    count = at.data.num_actions
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


def _surer(smooth: Fitted, plain: Fitted, campaign: Campaign) -> Fitted:
    """The one with the smaller errors: an amount of 0, say, costs nothing, and neighbours only blur that."""
    one, other = (std_error(coordinates(fitted, campaign)[1]) for fitted in (smooth, plain))
    return smooth if np.log((one + TINY) / (other + TINY)).sum() < 0 else plain


def _kept(policy: Offered, fitted: Fitted, certifying: Fitted, campaign: Campaign, costs: Vector) -> Kept:
    x, influence, _ = coordinates(fitted, campaign)
    aim, influence_of_aim = chosen_by(fitted, campaign)
    reason = missing(certifying, campaign) or missing(fitted, campaign)
    if reason is None and not np.isfinite([*x, aim]).all():
        reason = "it could not be measured"
    most = largest(certifying, campaign, costs)
    return Kept(
        policy, x, std_error(influence), decisions(fitted, campaign), fitted, certifying, reason, most,
        aim, influence_of_aim,
    )  # fmt: skip


def to_solve(pool: Sequence[Kept]) -> Vector:
    """`[k, 1+m]` what mixtures are chosen by, and budgets in ≤ form."""
    return np.array([[kept.aim, *kept.x[1:]] for kept in pool])


def _solved(pool: list[Kept], margin: Vector, frame: Frame) -> Vector | None:
    """The best weights with all costs raised by the margins `[k, m]`; None where no mixture keeps the limits."""
    raised = to_solve(pool) + np.column_stack([np.zeros(len(pool)), margin])
    limits = np.array([b.sign * b.limit for b in frame.campaign.budgets])
    solution = solve_mixture(raised, limits, frame.scale)
    return solution.weights if solution.feasible else None


def _best_alone(pool: list[Kept], margin: Vector, frame: Frame) -> Vector | None:
    """All weight on the policy of the largest objective that keeps the limits: with the margins where one does."""
    x = to_solve(pool)
    limits = np.array([b.sign * b.limit for b in frame.campaign.budgets])
    for raised in (margin, 0 * margin):
        keeps = ((x[:, 1:] + raised - limits) / frame.scale <= FEASIBLE).all(axis=1)
        if keeps.any():
            one = np.zeros(len(pool))
            one[np.where(keeps, x[:, 0], -np.inf).argmax()] = 1
            return one
    return None


@dataclass(frozen=True)
class Found:
    """The best mixture of a pool: weights `[k]`, and the margins `[k, m]` that it keeps the limits with."""

    pool: list[Kept]
    weights: Vector
    margin: Vector


def best(policies: Sequence[Kept], frame: Frame, alone: bool = False) -> Found | None:
    """The best mixture of those measured, or the best one `alone`; None where none keeps the limits with its margin."""
    pool = [k for k in policies if k.withheld is None]
    if not pool:
        return None
    margin = margins_of(pool, frame)
    if alone:
        one = _best_alone(pool, margin, frame)
        return None if one is None else Found(pool, one, margin)
    weights = _solved(pool, margin, frame)
    return None if weights is None else Found(pool, *_tightened(pool, weights, margin, frame))


def _of_learners(policies: list[Kept], frame: Frame, alone: bool) -> dict[str, Found]:
    """The best mixture of each learner's own policies, and that of all of them, where these keep the limits."""
    names = list(dict.fromkeys(kept.policy.learner for kept in policies))
    pools = {name: [kept for kept in policies if kept.policy.learner == name] for name in names}
    if len(names) > 1:
        pools[TOGETHER] = policies
    found = {name: best(pool, frame, alone) for name, pool in pools.items()}
    return {name: each for name, each in found.items() if each is not None}


def _taken(own: dict[str, Found]) -> Found | None:
    """The first, or a later one that is better by more than noise: the best of many noisy figures is mostly noise."""
    taken = None
    for found in own.values():
        if taken is None or _better(found, taken):
            taken = found
    return taken


def _standings(own: dict[str, Found], taken: Found | None) -> tuple[Standing, ...]:
    """How all of them do beside the one that is taken."""
    if taken is None or len(own) < 2:
        return ()
    out = [Standing(name, _aim(found)[0], *_ahead(taken, found)) for name, found in own.items()]
    return tuple(sorted(out, key=lambda each: (own[each.learner] is not taken, -each.value)))


def with_constants(found: Found | None, wider: Found | None, frame: Frame) -> Found | None:
    """The mixture that constant actions take part in, `wider`, where it is better than the one without by enough.

    Constant actions are measured one by one, so the best of them is lucky; beside policies whose aims were brought in
    line, which have no luck left, they have to be better by more.
    """
    if found is None or wider is None:
        return wider if found is None else found
    in_line = not frame.counted and any(kept.policy.learned is not None for kept in found.pool)
    return wider if _better(wider, found, LUCK if in_line else NOISE) else found


def _better(one: Found, other: Found, noise: float = NOISE) -> bool:
    """Whether one mixture is above the other by more than noise, in standard errors."""
    ahead, error = _ahead(one, other)
    return ahead > noise * error


def _ahead(one: Found, other: Found) -> tuple[float, float]:
    """By how much one mixture is above the other, and the standard error: they are measured on the same users."""
    (a, first), (b, second) = _aim(one), _aim(other)
    return a - b, float(std_error(first - second))


def _aim(found: Found) -> tuple[float, Vector]:
    """What a mixture is chosen by, and the influence of every user on it."""
    pairs = [(weight, kept) for weight, kept in zip(found.weights, found.pool, strict=True) if weight > 0]
    value = sum(weight * kept.aim for weight, kept in pairs)
    return float(value), np.sum([weight * kept.aim_influence for weight, kept in pairs], axis=0)


def _tightened(pool: list[Kept], weights: Vector, margin: Vector, frame: Frame) -> tuple[Vector, Vector]:
    """Weights and margins `[k, m]` where the mixture has the room that it needs itself.

    Errors of its members cancel in part, so it needs less than they do on average.
    """
    scale = np.ones(margin.shape[1])
    for _ in range(REFININGS):
        used = np.flatnonzero(weights)
        mean = weights[used] @ margin[used]
        own = _room([pool[i] for i in used], weights[used], frame)
        needed = np.divide(own, mean, out=np.ones_like(own), where=mean > 0)
        if np.abs(needed - scale).max() <= NEAR or (found := _solved(pool, margin * needed, frame)) is None:
            break
        scale, weights = needed, found
    return weights, margin * scale


def _room(members: list[Kept], weights: Vector, frame: Frame) -> Vector:
    """`[m]` by which the costs of a sticky mixture of some policies are raised."""
    influence = []
    for fits in ([k.fitted for k in members], [k.certifying for k in members]):
        parts = [w * coordinates(fitted, frame.campaign)[1][:, 1:] for fitted, w in zip(fits, weights, strict=True)]
        influence.append(np.sum(parts, axis=0))
    known = weights @ np.array([k.known for k in members])
    data, margin = frame.data, frame.campaign.train.margin
    certifying = Spread.of(influence[1], known).scaled(len(data.users_of(data.certifying)))
    # The folds' mixtures are certified as one, and were chosen on users who have nobody in common.
    return margins(
        std_error(influence[0]) / np.sqrt(data.folds), certifying, factor=quantile(1 - frame.alpha), margin=margin
    )


def margins_of(pool: list[Kept], frame: Frame) -> Vector:
    """`[k, m]` by which each policy's costs are raised."""
    for kept in pool:
        if id(kept.fitted) not in frame.rooms:
            frame.rooms[id(kept.fitted)] = kept.fitted, _room([kept], np.ones(1), frame)
    return np.array([frame.rooms[id(kept.fitted)][1] for kept in pool])


def _mixed(pool: list[Kept], weights: Vector, margin: Vector, measured: list[Kept], at: Measure) -> Chosen:
    members = tuple(k for k, w in zip(pool, weights, strict=True) if w > 0)
    share = weights[weights > 0]
    return Chosen(members, share, share @ margin[weights > 0], tuple(measured), at, share[None])


def _infeasible(kept: list[Kept], pool: list[Kept], limits: Vector, campaign: Campaign) -> InfeasibleError:
    if not pool:
        return InfeasibleError(
            f"nothing that was found can be measured on the select users: {_why_not(kept)}.",
            file=campaign.path,
            way_out="Take a longer or larger log, a shorter campaign.horizon_days where a limit is per user, or leave "
            "out actions that were hardly ever given (log.actions).",
        )
    costs = np.array([limits + (k.x[1:] - limits) / k.decisions for k in pool])
    least, place = costs.min(axis=0), costs.argmin(axis=0)
    absent = [k for k in kept if k.withheld]
    alone = [j for j in range(len(limits)) if least[j] > limits[j]] or range(len(limits))
    words = "; ".join(
        f"{b.name}: the {'smallest' if b.sign > 0 else 'largest'} that was measured is "
        f"{round(b.sign * least[j], 9) + 0:.4g} per {b.per}, by {pool[place[j]].policy.name}, the limit is {b.words}"
        for j, b in enumerate(campaign.budgets)
        if j in alone
    )
    if absent:
        words += f". {len(absent)} could not be measured, {absent[0].policy.name} for one: {absent[0].withheld}"
    return InfeasibleError(
        f"no policy that was found keeps the limits, constant actions included. {words}.",
        file=campaign.path,
        where="[[budget]]",
        way_out="Raise a ceiling, lower a floor, or add actions that reach it.",
    )


def _why_not(kept: list[Kept]) -> str:
    """Why none could be measured: reasons that differ in their figures alone are told once, by the nearest to it."""
    alike: dict[str, list[Kept]] = {}
    for k in kept:
        alike.setdefault(re.sub(r"\d+(\.\d+)?", "#", k.withheld or ""), []).append(k)
    words = []
    for same in alike.values():
        nearest = min(same, key=lambda k: float(k.certifying.unsupported.max()))
        name = nearest.policy.name
        who = name if len(same) == 1 else f"{len(same)} policies, {name} the nearest to it"
        words.append(f"{who}: {nearest.withheld}")
    return "; ".join(words)


def bundle_spec(frame: Frame, members: Sequence[Offered | Kept], weights: Vector) -> BundleSpec:
    """What a bundle of these members says. Measurements stand as tables show them, 0 before there are any.

    Of a network that answers many λ it holds the heads of its members alone.
    """
    policies = [member.policy if isinstance(member, Kept) else member for member in members]
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
    return BundleSpec(
        campaign=frame.campaign,
        schema=frame.data.schema,
        actions=frame.data.actions,
        reserve=frame.reserve,
        heads=frame.heads,
        members=tuple(
            MemberSpec(
                network=slim.get(id(policy.network), policy.network),
                weight=float(weight),
                multiplier=policy.multiplier,
                head_weights=policy.head_weights,
                measurement=_measurement(member, frame.campaign),
                policy=used[id(policy.network)].index(policy.policy),
            )
            for member, policy, weight in zip(members, policies, weights, strict=True)
        ),
        imitation_threshold=frame.imitation_threshold,
        data_hash=frame.data.manifest["data_hash"],
        seed=frame.seed,
        versions={name: version(name) for name in (*TRAINED_WITH, *(("lightgbm",) if boosted else ()))},
    )


def _measurement(member: Offered | Kept, campaign: Campaign) -> Vector:
    known = np.zeros(1 + len(campaign.budgets)) if isinstance(member, Offered) else shown(member, campaign)
    return np.nan_to_num(known)


def shown(kept: Kept, campaign: Campaign) -> Vector:
    """`[1+m]` objective and costs as tables show them."""
    signs = np.array([b.sign for b in campaign.budgets])
    limits = np.array([b.sign * b.limit for b in campaign.budgets])
    return np.append(kept.x[0], signs * (limits + (kept.x[1:] - limits) / kept.decisions))
