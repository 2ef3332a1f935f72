"""The exact game: the best mixed policy of a model that is known, with a certificate.

    result = solve(cmdp, limits)                   # column generation
    result.mixture, result.lower, result.upper, result.gap

    max r(μ)  s.t.  c(μ) ≤ limits  over mixtures μ of deterministic policies;   x(π) = [r, c] = (1−γ)·J(π)

Every round asks policy iteration for the best response to a λ ≥ 0. The answer proves an upper bound, however λ was
chosen; a mixture that keeps the limits is a lower bound. All in (1−γ)·J, in the units of reward and costs.

    asked (1, −λ):   max_π r(π) − λᵀ(c(π) − limits)    ≥  reward of every mixture that keeps the limits
    asked (0, −λ):   min_π λᵀ(c(π) − limits)           ≤  scaled violation of every mixture, if ‖λ · scale‖₂ ≤ 1

Source: Cai et al. (WSDM 2023) for the game; Dantzig & Wolfe (1960) for column generation; Xiao et al. (2019) for the
bisection; Altman (1999) for the occupancy program; weak duality for the bounds, where the norm is its own dual. The
rules that mix are in `mixing/`, the players of λ in `multipliers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outlay.core.cmdp import ModelError, TabularCMDP
from outlay.core.errors import InfeasibleError
from outlay.core.mixture import Mixture
from outlay.learning.mixing import RULES, lp, rule
from outlay.learning.mixing.rule import Constraints, PricingRule, Rule
from outlay.learning.multipliers import eg_multiplier, ogd_step, smoothed
from outlay.ops.mixture_lp import FEASIBLE
from outlay.ops.tabular import constrained_optimum, measure, policy_iteration

OTHER_METHODS = ("bisection", "exact")  # beside the mixing rules
Multipliers = Literal["ogd", "eg", "duals"]

Floats = NDArray[np.float64]

PAPER_ROUNDS = 1480  # λ steps of the paper's schedule on its data
MOST_ROUNDS = 1000  # of column generation and bisection, which stop by themselves long before
SMOOTHING = 0.5  # share of the best known λ in the λ that column generation asks for, with two limits or more
PROVEN = 1e-9  # of the violation: an infeasible limit is proven to this
ROUNDING = 1e-13  # of the size of the rewards: a smaller gain is none
Policy = NDArray[np.intp]
Response = tuple[Policy, Floats]

LEAST_ROOM = 1e-3  # of the scale: with less room under a limit than this, λ_max is not larger still


@dataclass(frozen=True, slots=True)
class SolveHistory:
    """The course of a solution, one row for each mixture (T rows).

    Attributes:
        best_responses: `[T]` asked so far.
        multiplier: `[T, m]` the λ of the newest one, in reward per unit of cost (while the limits are not kept by
            column generation: the weights of the limits whose sum it made least).
        response: `[T, 1+m]` its measurement.
        mixture: `[T, 1+m]` measurement of the mixture.
        violation: `[T]` its scaled violation.
        lower: `[T]` its reward, −∞ where it does not keep the limits.
        upper: `[T]` the least upper bound so far.
    """

    best_responses: NDArray[np.intp]
    multiplier: Floats
    response: Floats
    mixture: Floats
    violation: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class SolveResult:
    """A mixed policy under limits, with its certificate. All in (1−γ)·J.

    Attributes:
        method: how it was found.
        limits: `[m]`.
        mixture: members are deterministic policies `[S]`, with weights and measurements `[k, 1+m]`.
        lower: reward of the mixture, −∞ if it does not keep the limits.
        upper: no mixture that keeps the limits has more reward; −∞ if it is proven that none keeps them.
        best_responses: how many were computed.
        feasible: whether the mixture keeps the limits, to 1e-9 in scaled units.
        violation: Euclidean norm of the mixture's excess over the limits, in scaled units.
        least_violation: no policy at all has less violation; above 0 it proves that the limits cannot be kept.
        multiplier: `[m]` λ that proves `upper`: the marginal reward of each limit, where the gap is small. Where the
            limits cannot be kept: λ with λᵀ(c − limits) ≥ least_violation for every policy.
        history: round by round.
    """

    method: str
    limits: Floats
    mixture: Mixture[NDArray[np.intp]]
    lower: float
    upper: float
    best_responses: int
    feasible: bool
    violation: float
    least_violation: float
    multiplier: Floats
    history: SolveHistory

    @property
    def gap(self) -> float:
        """Upper − lower, in reward: at most this much is lost. ∞ if the mixture does not keep the limits."""
        return self.upper - self.lower if self.feasible else float("inf")

    def __str__(self) -> str:
        """A table of the members, the limits below it, and what is proven."""
        costs = [f"cost {j}" for j in range(len(self.limits))]
        rows = [["member", "weight", "reward", *costs]]
        for i, (weight, x) in enumerate(zip(self.mixture.weights, self.mixture.measurements, strict=True)):
            rows.append([str(i), f"{weight:.4f}", *(f"{value:.6g}" for value in x)])
        rows.append(["mixture", "", *(f"{value:.6g}" for value in self.mixture.measurement)])
        rows.append(["limit", "", "", *(f"{limit:.6g}" for limit in self.limits)])
        rows.append(["multiplier", "", "", *(f"{price:.4g}" for price in self.multiplier)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = "\n".join("  ".join(map(str.rjust, row, widths)).rstrip() for row in rows)
        return f"{table}\n{self._proven()}"

    def _proven(self) -> str:
        effort = f"{self.method}, {self.best_responses} best responses"
        if self.least_violation > 0 and not self.feasible:
            return (
                f"No policy keeps the limits: the scaled violation is {self.violation:.4g}, and at least "
                f"{self.least_violation:.4g} for every policy ({effort})."
            )
        if not self.feasible:
            return f"The mixture does not keep the limits: its scaled violation is {self.violation:.4g} ({effort})."
        return f"Keeps the limits; the optimum is between {self.lower:.8g} and {self.upper:.8g} ({effort})."


class BestResponder:
    """Best responses of one problem, each started from the last one, and the bounds that they prove.

    Attributes:
        cmdp: the model.
        constraints: limits and their scale.
        allowed: `[S, A]` the actions that may be chosen, or None.
        upper: the least upper bound so far.
        multiplier: `[m]` the λ that proved it.
        least_violation: the largest lower bound of the scaled violation so far; above 0 the limits cannot be kept.
        proof: `[m]` the λ that proved it.
    """

    def __init__(
        self, cmdp: TabularCMDP, constraints: rule.Constraints, allowed: NDArray[np.bool_] | None = None
    ) -> None:
        self.cmdp = cmdp
        self.constraints = constraints
        self.allowed = allowed
        self.upper = float("inf")
        self.multiplier: Floats = np.zeros(len(constraints.limits))
        self.least_violation = 0.0
        self.proof: Floats = np.zeros(len(constraints.limits))
        self.count = 0
        self._last: Policy | None = None
        self._newest: tuple[Floats, Floats] = (self.multiplier, np.full(1 + len(constraints.limits), np.nan))
        self._course: list[tuple[int, Floats, Floats, Floats, float]] = []

    def best(self, multiplier: Floats) -> Response:
        """The policy `[S]` of the largest r − λᵀ(c − limits), and its measurement `[1+m]`."""
        policy, x = self._respond(1.0, multiplier)
        bound = float(x[0] - multiplier @ (x[1:] - self.constraints.limits))
        if bound < self.upper:
            self.upper, self.multiplier = bound, multiplier
        return policy, x

    def least_cost(self, proof: Floats) -> Response:
        """The policy `[S]` of the least λᵀ(c − limits), ‖λ · scale‖₂ ≤ 1, and its measurement `[1+m]`."""
        policy, x = self._respond(0.0, proof)
        least = float(proof @ (x[1:] - self.constraints.limits))
        if least > self.least_violation:
            self.least_violation, self.proof = least, proof
        return policy, x

    def default_bound(self) -> Floats:
        """`[m]` λ_max, by 1 + m responses.

        Slater: Σ λ_j room_j ≤ most reward − reward of any policy with room under every limit. With one limit the policy
        of least cost proves the bound; with more it may have no room under the others, hence the factor m.
        """
        count = len(self.constraints.limits)
        most = self.best(np.zeros(count))[1][0]
        bound = np.empty(count)
        for j, unit in enumerate(np.eye(count) / self.constraints.scale):
            x = self.least_cost(unit)[1]
            room = max(self.constraints.limits[j] - x[1 + j], LEAST_ROOM * self.constraints.scale[j])
            bound[j] = count * (most - x[0]) / room
        return np.maximum(bound, 1e-9 * (float(np.ptp(self.cmdp.reward)) or 1.0) / self.constraints.scale)

    def record(self, mixture: Mixture[Policy]) -> None:
        """Append the mixture after the responses so far to the history."""
        self._course.append((self.count, *self._newest, mixture.measurement, self.upper))

    def result(self, method: str, mixture: Mixture[Policy]) -> SolveResult:
        """Return the mixture with all that is proven about it."""
        constraints, x = self.constraints, mixture.measurement
        violation = rule.violation(constraints, x)
        feasible = violation <= FEASIBLE
        if not feasible and violation > self.least_violation:
            self.least_cost(np.maximum(x[1:] - constraints.limits, 0.0) / constraints.scale**2 / violation)
        impossible = self.least_violation > FEASIBLE
        return SolveResult(
            method=method,
            limits=constraints.limits,
            mixture=mixture,
            lower=float(x[0]) if feasible else float("-inf"),
            upper=float("-inf") if impossible else self.upper,
            best_responses=self.count,
            feasible=feasible,
            violation=violation,
            least_violation=self.least_violation,
            multiplier=self.proof if impossible else self.multiplier,
            history=self._history(),
        )

    def _respond(self, reward_weight: float, multiplier: Floats) -> Response:
        weights = np.concatenate([[reward_weight], -multiplier])
        policy = policy_iteration(self.cmdp, weights, allowed=self.allowed, initial=self._last)
        x = measure(self.cmdp, policy)
        self._last = policy
        self.count += 1
        self._newest = multiplier, x
        return policy, x

    def _history(self) -> SolveHistory:
        counts, multipliers, responses, mixtures, uppers = zip(*self._course, strict=True)
        mixture = np.array(mixtures)
        excess = np.maximum((mixture[:, 1:] - self.constraints.limits) / self.constraints.scale, 0.0)
        violation = np.sqrt((excess * excess).sum(axis=1))
        return SolveHistory(
            best_responses=np.array(counts),
            multiplier=np.array(multipliers),
            response=np.array(responses),
            mixture=mixture,
            violation=violation,
            lower=np.where(violation <= FEASIBLE, mixture[:, 0], -np.inf),
            upper=np.array(uppers),
        )


def solve(
    cmdp: TabularCMDP,
    limits: ArrayLike,
    *,
    method: str = "lp",
    rounds: int | None = None,
    multipliers: Multipliers | None = None,
    every: int = 1,
    tolerance: float | None = None,
    scale: ArrayLike | None = None,
    bound: ArrayLike | None = None,
    scaled_multipliers: bool = True,
    allowed: NDArray[np.bool_] | None = None,
) -> SolveResult:
    """The best mixed policy under limits, by the method of your choice.

    Args:
        cmdp: the model.
        limits: `[m]` finite, in (1−γ)·J of each cost. For a floor negate cost and limit.
        method: how the best responses are mixed: a rule of `mixing.RULES` (`lp`: the best mixture of all of them;
            `aim-greedy`, `aim-mean`, `single-best`, `uniform`: the paper's, one response at a time); `bisection`
            (m = 1): the two ends of an interval that is halved; `exact`: the occupancy program (HiGHS), its policy
            taken apart.
        rounds: best responses at most; default 1,480 with `ogd` and `eg` (the paper's schedule), else 1,000.
        multipliers: who chooses λ; default `duals` for rules with prices (`lp`), else `ogd`. `bisection` and `exact`
            need none.
        every: a response is given to the rule every so many rounds (10 in the paper); `ogd` and `eg` only.
        tolerance: stop once the gap is at most this, in reward; default 1e-9 of the spread of the rewards.
        scale: `[m]` one unit of violation of each limit; default |limit|, or 1 where it is 0.
        bound: `[m]` λ_max of `ogd`, `eg` and `bisection`, in reward per unit of cost. Default: found with 1 + m best
            responses, m · (largest reward − reward of the policy of least cost j) / (its room under limit j).
        scaled_multipliers: `ogd` and `eg` step in units of the scale and of the rewards' spread; False: raw, as the
            paper does.
        allowed: `[S, A]` the actions that may be chosen; default all.

    Raises:
        ModelError: naming the argument that is wrong, what was found and what is expected.
    """
    constraints = _checked_constraints(cmdp, limits, scale)
    player = _checked_player(method, multipliers, len(constraints.limits))
    _check_count("rounds", rounds)
    _check_count("every", every)
    if tolerance is None:
        tolerance = 1e-9 * (float(np.ptp(cmdp.reward)) or 1.0)

    ask = BestResponder(cmdp, constraints, allowed)
    if method == "exact":
        mixture = _exact(ask, tolerance)
    elif method != "bisection" and player == "duals":
        mixture = _column_generation(ask, RULES[method], rounds or MOST_ROUNDS, tolerance)
    else:
        largest = ask.default_bound() if bound is None else _checked_bound(bound, len(constraints.limits))
        if method == "bisection":
            mixture = _bisection(ask, largest, rounds or MOST_ROUNDS, tolerance)
        else:
            raw = not scaled_multipliers
            mixture = _play(ask, RULES[method], player, rounds or PAPER_ROUNDS, every, largest, raw)
    return ask.result(method, mixture)


def _column_generation(ask: BestResponder, mixing: Rule, rounds: int, least_gap: float) -> Mixture[Policy]:
    """λ from the duals of the linear program over all responses so far; a rule without prices mixes them beside it."""
    program = mixing if isinstance(mixing, PricingRule) else lp
    master = program.init(ask.constraints)
    beside = None if program is mixing else mixing.init(ask.constraints)
    rounding = ROUNDING * float(np.abs(ask.cmdp.reward).max())
    smoothing = SMOOTHING if len(ask.constraints.limits) > 1 else 0.0  # one price alone does not jump about
    share = 0.0
    for _ in range(rounds):
        before = master
        feasible = program.violation(before) <= FEASIBLE
        if program.members(before) and not feasible:
            policy, x = ask.least_cost(program.duals(before))
        else:
            policy, x = ask.best(smoothed(program.duals(before), ask.multiplier, share))
        master = program.step(before, policy, x)
        if beside is not None:
            beside = mixing.step(beside, policy, x)
        ask.record(mixing.mixture(master if beside is None else beside))
        violation = program.violation(master)
        if violation > FEASIBLE:
            if ask.least_violation >= violation * (1 - PROVEN):
                break
            continue
        if ask.upper - program.lower(master) <= least_gap:
            break
        improved = not feasible or program.reduced_cost(before, x[None])[0] > rounding
        if not improved and share == 0.0:
            break  # an exact best response to the duals that improves nothing: optimal to rounding
        # A λ that was moved and found nothing new: next the dual itself is asked.
        share = smoothing if improved and feasible else 0.0
    return mixing.mixture(master if beside is None else beside)


def _play(
    ask: BestResponder, mixing: Rule, player: Multipliers, rounds: int, every: int, bound: Floats, raw: bool
) -> Mixture[Policy]:
    """The paper's game: a no-regret player of λ against best responses; at the end the mean λ is asked, too."""
    constraints = ask.constraints
    size = np.ones(len(constraints.limits)) if raw else constraints.scale
    unit = np.ones(len(constraints.limits)) if raw else (float(ask.cmdp.reward.std()) or 1.0) / constraints.scale
    cost = ask.cmdp.cost
    largest = np.abs(np.stack([cost.min((0, 1)), cost.max((0, 1))]) - constraints.limits).max(0) / size
    scaled, total, mean = np.zeros((3, len(constraints.limits)))
    state = mixing.init(ask.constraints)
    for t in range(1, rounds + 1):
        if player == "eg":
            scaled = eg_multiplier(total, t, bound / unit, largest)
        policy, x = ask.best(scaled * unit)
        excess = (x[1:] - constraints.limits) / size
        mean += (scaled * unit - mean) / t
        total += excess
        if player == "ogd":
            scaled = ogd_step(scaled, excess, t, bound / unit)
        if t % every == 0 or t == rounds:
            state = mixing.step(state, policy, x)
            ask.record(mixing.mixture(state))
    ask.best(mean)
    return mixing.mixture(state)


def _bisection(ask: BestResponder, bound: Floats, rounds: int, least_gap: float) -> Mixture[Policy]:
    """Halve the interval of λ between a response over the one limit and one within it, and mix the two."""
    over = ask.best(np.zeros(1))
    within = over if rule.feasible(ask.constraints, over[1]) else ask.least_cost(1 / ask.constraints.scale)
    low, high = 0.0, float(bound[0])
    ends = _two_ends(ask, over, within)
    ask.record(lp.mixture(ends))
    for _ in range(rounds if ends.feasible else 0):
        middle = (low + high) / 2
        if not low < middle < high or ask.upper - lp.lower(ends) <= least_gap:
            break
        response = ask.best(np.array([middle]))
        if rule.feasible(ask.constraints, response[1]):
            within, high = response, middle
        else:
            over, low = response, middle
        ends = _two_ends(ask, over, within)
        ask.record(lp.mixture(ends))
    return lp.mixture(ends)


def _two_ends(ask: BestResponder, over: Response, within: Response) -> lp.LpState:
    state = lp.init(ask.constraints)
    for policy, x in (within, over):
        state = lp.step(state, policy, x)
    return state


def _exact(ask: BestResponder, least_gap: float) -> Mixture[Policy]:
    """The occupancy program's policy draws anew at every step in a few states; as a mixture it is drawn once.

    Its occupancy lies in the hull of the deterministic policies that take only its actions, so column generation
    among those finds the mixture.
    """
    try:
        optimum = constrained_optimum(ask.cmdp, ask.constraints.limits, allowed=ask.allowed)
    except InfeasibleError:
        return _column_generation(ask, lp, MOST_ROUNDS, least_gap)
    ask.best(optimum.dual)
    within = BestResponder(ask.cmdp, ask.constraints, optimum.policy > 0)
    mixture = _column_generation(within, lp, MOST_ROUNDS, least_gap)
    ask.count += within.count
    ask.record(mixture)
    return mixture


def _checked_constraints(cmdp: TabularCMDP, limits: ArrayLike, scale: ArrayLike | None) -> Constraints:
    try:
        constraints = rule.constraints(limits, scale)
    except ValueError as error:
        where, _, reason = str(error).partition(": ")
        raise ModelError(reason, where=where) from None
    if len(constraints.limits) != cmdp.num_costs:
        raise ModelError(
            f"expected {cmdp.num_costs} numbers, one a cost of the model, found {len(constraints.limits)}.",
            where="limits",
        )
    return constraints


def _checked_player(method: str, multipliers: Multipliers | None, count: int) -> Multipliers:
    """Who chooses the λ of so many limits."""
    _check_choice("method", method, (*RULES, *OTHER_METHODS))
    player = multipliers or ("duals" if isinstance(RULES.get(method), PricingRule) else "ogd")
    _check_choice("multipliers", player, get_args(Multipliers))
    if method == "bisection" and count != 1:
        raise ModelError(f"'bisection' takes one limit, found {count}; try 'lp'.", where="method")
    return player


def _checked_bound(bound: ArrayLike, count: int) -> Floats:
    largest = np.asarray(bound, dtype=np.float64)
    if largest.shape != (count,) or not (largest > 0).all() or not np.isfinite(largest).all():
        raise ModelError(f"is {bound!r}; expected {count} finite numbers above 0.", where="bound")
    return largest


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ModelError(f"is {value!r}; expected one of {', '.join(choices)}.", where=name)


def _check_count(name: str, value: int | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
        raise ModelError(f"is {value!r}; expected a whole number, 1 or more.", where=name)
