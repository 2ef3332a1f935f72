"""How likely each decision was, given what its user got before in the episode: propensities whose products are paths.

    p_t = Σ_c w_c Π_{s ≤ t} p_c(a_s)  /  Σ_c w_c Π_{s < t} p_c(a_s) f_c(t)

A component c is what one user may have been drawn for the episode: a member of the mixture (w = its weight, times the
share outside the random slice; p_c is 1 or 0), or the slice (w = its share; p_c = 1 / number of allowed actions).
f_c is the chance that the money's guards let pass what c gives, 1 where they limit nothing. A row that they refused is
no choice, but it tells what c wanted: its factor is 1 − f_c. All other rows without a choice have the factor 1. (An arm
may have a cap of its own; the other arm is taken to have had as much room.)

Weights may change inside an episode, when another bundle goes into service. Who is drawn before and after is then one
draw, not two: rendezvous hashing keeps most users (`draw_law`). The share of the slice may change as well; its uniform
number stays, so the components are the intervals between the shares.

Source: the path probability of a sticky mixture, Σ_k α_k Π_t π_k(a_t | s_t); the rest is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

SAMPLES = 17  # log₂ of the points from which the law of changed weights is told: shares are right to about 0.0001

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Phase:
    """Weights in force for a part of an episode.

    Attributes:
        salts: of the k members that may be drawn.
        weights: of each, sum 1.
    """

    salts: tuple[str, ...]
    weights: tuple[float, ...]


class Law(NamedTuple):
    """Who is drawn in phases that share members: C cases.

    Attributes:
        places: `[C, P]` position among each phase's members.
        weights: `[C]` probability of each case.
    """

    places: Integers
    weights: Floats


Laws = list[tuple[Integers, Law]]  # phases that share members, and who is drawn in them


@dataclass(frozen=True)
class Steps:
    """Decisions of one episode, user by user, each in the order of time. n rows, k members at most.

    Attributes:
        user: `[n]` equal numbers are one user.
        phase: `[n]` which weights were in force.
        given: `[n]` there was a draw, and what it said was given.
        refused: `[n]` there was a draw, and the money's guards refused what it said; where that is not known, false.
        same: `[n, k]` the member would have given the same.
        fits: `[n, k]` the guards would have let pass what the member gives.
        share: `[n]` of the random slice.
        allowed: `[n]` from how many actions the slice draws.
        fitting: `[n]` how many of those the guards would have let pass.
    """

    user: Integers
    phase: Integers
    given: Flags
    refused: Flags
    same: Flags
    fits: Flags
    share: Floats
    allowed: Integers
    fitting: Integers

    def first(self) -> Flags:
        """`[n]` the first row of each user."""
        return np.append(True, self.user[1:] != self.user[:-1])[: len(self.user)]


class Chances(NamedTuple):
    """What is known of each row.

    Attributes:
        propensity: `[n]` given the rows before; 1 without a choice, 0 where the row contradicts its own draw.
        marginal: `[n]` of the row alone.
        torn: `[n]` the rows before cannot belong to it, so that its user's history begins here.
    """

    propensity: Floats
    marginal: Floats
    torn: Flags


def chances(steps: Steps, laws: Laws) -> Chances:
    """Propensities of whole users' rows of one episode, whose phases have these laws (`laws_of`).

    A history that its own draws contradict (the salt of the slice was changed, say) begins anew where it does.
    """
    begins = steps.first()
    alone = _path(steps, laws, np.ones_like(begins))
    marginal = np.where(steps.given, alone, 1.0)
    torn = np.zeros_like(begins)
    while True:
        found = np.where(steps.given, _path(steps, laws, begins), 1.0)
        broken = steps.given & (found == 0) & (marginal > 0) & ~begins
        if not broken.any():
            return Chances(found, marginal, torn)
        places = np.flatnonzero(broken)
        _, first = np.unique(steps.user[places], return_index=True)
        torn[places[first]] = begins[places[first]] = True


def laws_of(phases: Sequence[Phase]) -> Laws:
    """Phases that share members, directly or through others, with the law of their draws; draws apart are independent.

    Returns:
        For each group its phases, in the order of the columns of the law.
    """
    groups: list[tuple[set[str], list[int]]] = []
    for number, phase in enumerate(phases):
        salts, members = set(phase.salts), [number]
        for other in [group for group in groups if group[0] & salts]:
            groups.remove(other)
            salts |= other[0]
            members += other[1]
        groups.append((salts, sorted(members)))
    return [(np.array(members), draw_law([phases[i] for i in members])) for _, members in groups]


def draw_law(phases: Sequence[Phase]) -> Law:
    """Who is drawn in each of several phases by one user: argmin_k E_k / α_k, with the same E_k ~ Exp(1) in all.

    One phase is told exactly. Several are told from 2¹⁷ points that fill the cube evenly; the same arguments always
    give the same law.

    Source: `ops/hashing.rendezvous`; Sobol's points (1967), scrambled as by Owen (1998).
    """
    if len(set(phases)) == 1:
        places = np.tile(np.arange(len(phases[0].salts))[:, None], (1, len(phases)))
        return Law(places, np.array(phases[0].weights) / sum(phases[0].weights))
    salts = sorted({salt for phase in phases for salt in phase.salts})
    scores = -np.log1p(-qmc.Sobol(len(salts), seed=0).random_base2(SAMPLES))
    drawn = np.stack(
        [
            np.argmin(scores[:, [salts.index(salt) for salt in phase.salts]] / np.array(phase.weights), axis=1)
            for phase in phases
        ],
        axis=1,
    )
    places, count = np.unique(drawn, axis=0, return_counts=True)
    return Law(places, count / count.sum())


def _path(steps: Steps, laws: Laws, begins: Flags) -> Floats:
    """`[n]` p of each row, with histories that begin where `begins` says."""
    with np.errstate(divide="ignore"):  # the logarithm of what is impossible is −∞
        before, after = _logs(steps, laws, begins)
    possible = np.isfinite(after) & np.isfinite(before)
    found = np.zeros(len(after))
    found[possible] = np.minimum(np.exp(after[possible] - before[possible]), 1.0)
    return found


def _logs(steps: Steps, laws: Laws, begins: Flags) -> tuple[Floats, Floats]:
    """Logarithms of Σ_c of the rows up to each, with f_c of the row itself and with its p_c."""
    bounds = np.unique(np.concatenate([[0.0, 1.0], steps.share]))
    before = after = np.full(len(begins), -np.inf)
    for low, high in pairwise(bounds.tolist()):
        in_slice = steps.share > low
        past, fits, now = _slice_logs(steps, in_slice, begins)
        lower, upper = past + fits, past + now
        for phases, law in laws:
            fits, now = _member_logs(steps, ~in_slice, phases, law, begins)
            lower, upper = lower + fits, upper + now
        before = np.logaddexp(before, np.log(high - low) + lower)
        after = np.logaddexp(after, np.log(high - low) + upper)
    return before, after


def _slice_logs(steps: Steps, in_slice: Flags, begins: Flags) -> tuple[Floats, Floats, Floats]:
    """What the rows before say of a user in the slice, f of the row, and its p; 0 in rows outside it."""
    fits = np.log(steps.fitting / steps.allowed)
    refused = np.log(1 - steps.fitting / steps.allowed)
    now = np.where(steps.given, -np.log(steps.allowed), np.where(steps.refused, refused, 0.0))
    now = np.where(in_slice, now, 0.0)
    gone = np.isneginf(now)
    total = np.cumsum(np.where(gone, 0.0, now))
    past = _since(total - np.where(gone, 0.0, now), begins)
    never = _since(np.cumsum(gone) - gone, begins)
    return np.where(never > 0, -np.inf, past), np.where(in_slice & steps.given, fits, 0.0), now


def _member_logs(steps: Steps, drawn: Flags, phases: Integers, law: Law, begins: Flags) -> tuple[Floats, Floats]:
    """Logarithms of Σ_c w_c over the cases that fit the rows before and f of the row, and the row as well."""
    wrong = np.zeros((len(begins), len(law.weights)), np.int32)
    stopped = np.zeros_like(wrong, np.bool_)
    for column, phase in enumerate(phases):
        rows = np.flatnonzero(drawn & (steps.phase == phase) & (steps.given | steps.refused))
        if not len(rows):  # and no columns for its members, where it has more than the phases that are here
            continue
        same, fits = (part[rows][:, law.places[:, column]] for part in (steps.same, steps.fits))
        given = steps.given[rows, None]
        wrong[rows] = np.where(given, ~same, fits)
        stopped[rows] = given & ~fits
    past = _since(np.cumsum(wrong, axis=0) - wrong, begins) == 0
    return np.log((past & ~stopped) @ law.weights), np.log((past & (wrong == 0)) @ law.weights)


def _since(sums: NDArray[Any], begins: Flags) -> NDArray[Any]:
    """Running sums that start from 0 at each row that begins; `sums` are those before each row."""
    start = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    return sums - sums[start]  # type: ignore[no-any-return]
