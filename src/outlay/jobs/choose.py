"""After the game: measure the kept members again, and solve their weights on limits with a margin.

The rule chose by measurements made while training; choosing by measured value chooses the errors too. So the ≤ m+2
members that it kept are measured once more on the *select* users, by the fitted evaluation that the certificate will
use, and their weights are solved with every cost raised by the margin that makes a certificate likely
(`estimators/certificate.py`). Where they cannot keep the limits, the most frugal candidate and then the constant
actions are taken in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.read import load_bundle
from outlay.bundles.write import BundleSpec, MemberSpec, write_bundle
from outlay.core.campaign import Campaign
from outlay.core.errors import InfeasibleError
from outlay.core.mixture import Mixture
from outlay.core.network import NetworkArrays, constant_network
from outlay.core.transitions import CERTIFY, SELECT
from outlay.estimators.certificate import expected_se, margins
from outlay.estimators.fitted import Fitted
from outlay.estimators.units import coordinates, decisions, horizons
from outlay.jobs.looks import next_alpha
from outlay.jobs.measure import Measure
from outlay.learning.game import Candidate, Game, Progress, frugal
from outlay.nets.network import arrays
from outlay.ops.intervals import std_error
from outlay.ops.mixture_lp import solve_mixture

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Kept:
    """A policy that may be served, with what it was measured at on *select*.

    Attributes:
        name: `step 2400`, or `always 1.5`.
        candidate: where it came from; None for a constant action.
        network: its critic.
        multiplier: `[m]` λ it answers.
        head_weights: `[H]`.
        x: `[1+m]` objective and budgets in ≤ form; NaN where it could not be measured.
        std_error: `[1+m]`.
        decisions: `[m]` what excesses are divided by in tables (`units.decisions`).
        withheld: why not, where it could not be measured.
    """

    name: str
    candidate: Candidate | None
    network: NetworkArrays
    multiplier: Vector
    head_weights: Vector
    x: Vector
    std_error: Vector
    decisions: Vector
    withheld: str | None


@dataclass(frozen=True)
class Chosen:
    """The mixture as it will be served.

    Attributes:
        members: those with a weight above 0.
        weights: `[k]`.
        margin: `[m]` by which the costs were raised, weighted.
    """

    members: tuple[Kept, ...]
    weights: Vector
    margin: Vector


def choose(
    game: Game, progress: Progress, mixture: Mixture[int], campaign: Campaign, method: str, folder: Path
) -> Chosen:
    """Measure the kept members on *select*, and solve their weights again.

    Args:
        game: as played.
        progress: where it ended; holds the kept networks.
        mixture: the rule's.
        campaign: its limits and settings.
        method: the rule's name; `uniform` keeps its equal weights, as the original method does.
        folder: where a bundle of all kept members may be written for a moment.

    Raises:
        InfeasibleError: if no mixture of what was found keeps the limits, or nothing can be measured.
    """
    numbers = list(dict.fromkeys(mixture.members))
    reserve = [n for n in [frugal(progress.candidates, game.coords)] if n not in numbers]
    kept, at = _measured(game, progress, [progress.candidates[n] for n in numbers + reserve], campaign, folder)
    limits = np.array([b.sign * b.limit for b in campaign.budgets])
    first = kept[: len(numbers)]
    if method == "uniform":  # the original method: every policy, equal weights
        return _mixed([k for k in first if k.withheld is None], None, limits, game, campaign)
    pools: list[Callable[[], list[Kept]]] = [lambda: first, lambda: kept, lambda: kept + _constants(game, at, campaign)]
    pool: list[Kept] = []
    for grown in pools:
        pool = [k for k in grown() if k.withheld is None]
        if not pool:
            continue
        raised = np.array([k.x + np.append(0.0, _margin(k, game, campaign)) for k in pool])
        solution = solve_mixture(raised, limits, game.coords.scale)
        if solution.feasible:
            return _mixed(pool, solution.weights, limits, game, campaign)
    # No room for the margin: served as near to the limits as they allow, and then hardly certified.
    x = np.array([k.x for k in pool]) if pool else np.empty((0, 1 + len(limits)))
    if pool and (exact := solve_mixture(x, limits, game.coords.scale)).feasible:
        return _mixed(pool, exact.weights, limits, game, campaign)
    raise _infeasible(kept, pool, limits, campaign)


def _measured(
    game: Game, progress: Progress, candidates: list[Candidate], campaign: Campaign, folder: Path
) -> tuple[list[Kept], Measure]:
    """Candidates with their fitted evaluation, by way of a bundle: measured as they would be served."""
    unknown = np.full(1 + len(campaign.budgets), np.nan)
    bare = [
        Kept(f"step {c.step}", c, arrays(progress.networks[c.number], game.coords.spread), c.multiplier,
             game.coords.weights(c.multiplier), unknown, unknown, unknown[1:], None)
        for c in candidates
    ]  # fmt: skip
    write_bundle(folder / "bundle", bundle_spec(game, bare, np.full(len(bare), 1 / len(bare)), campaign, 0))
    at = Measure(game.data, SELECT, load_bundle(folder / "bundle"))
    return [_with(kept, fitted, campaign) for kept, fitted in zip(bare, at.members(), strict=True)], at


def _constants(game: Game, at: Measure, campaign: Campaign) -> list[Kept]:
    """Always the same action, for each action that is allowed everywhere."""
    if game.data.eligible is not None:
        return []
    heads, count = len(game.coords.spread), game.data.num_actions
    unknown = np.full(1 + len(campaign.budgets), np.nan)
    fits = at.constants(range(count), horizons(campaign))
    out = []
    for a, fitted in enumerate(fits):
        network = constant_network(a, game.shape.sizes, game.shape.num_numbers, count, heads)
        bare = Kept(f"always {game.data.actions[a]:g}", None, network, np.zeros(len(campaign.budgets)),
                    np.eye(heads)[0], unknown, unknown, unknown[1:], None)  # fmt: skip
        out.append(_with(bare, fitted, campaign))
    return out


def _with(kept: Kept, fitted: Fitted, campaign: Campaign) -> Kept:
    x, influence, _ = coordinates(fitted, campaign)
    reason = None if np.isfinite(x).all() else next((r for r in fitted.withheld if r), "it could not be measured")
    return Kept(kept.name, kept.candidate, kept.network, kept.multiplier, kept.head_weights, x, std_error(influence),
                decisions(fitted, campaign), reason)  # fmt: skip


def _margin(kept: Kept, game: Game, campaign: Campaign) -> Vector:
    users = [len(game.data.users_of(split)) for split in (SELECT, CERTIFY)]
    confidence = 1 - next_alpha(game.data.folder, campaign.train.confidence)
    expected = expected_se(kept.std_error[1:], *users)
    return margins(kept.std_error[1:], expected, confidence=confidence, margin=campaign.train.margin)


def _mixed(pool: list[Kept], weights: Vector | None, limits: Vector, game: Game, campaign: Campaign) -> Chosen:
    if not pool:
        raise _infeasible([], [], limits, campaign)
    if weights is None:
        weights = np.full(len(pool), 1 / len(pool))
    members = tuple(k for k, w in zip(pool, weights, strict=True) if w > 0)
    share = weights[weights > 0]
    margin = share @ np.array([_margin(k, game, campaign) for k in members])
    return Chosen(members, share, margin)


def _infeasible(kept: list[Kept], pool: list[Kept], limits: Vector, campaign: Campaign) -> InfeasibleError:
    reasons = sorted({k.withheld for k in kept if k.withheld})
    if not pool:
        return InfeasibleError(
            f"nothing that was found can be measured on the select users: {'; '.join(reasons)}.",
            file=campaign.path,
            way_out="Take a longer or larger log, or leave out actions that were hardly ever given (log.actions).",
        )
    least = np.array([limits + (k.x[1:] - limits) / k.decisions for k in pool]).min(axis=0)
    alone = [j for j in range(len(limits)) if least[j] > limits[j]] or range(len(limits))
    words = "; ".join(
        f"{b.name}: the {'smallest' if b.sign > 0 else 'largest'} reachable is {round(b.sign * least[j], 9) + 0:.4g} "
        f"per {b.per}, the limit is {b.words}"
        for j, b in enumerate(campaign.budgets)
        if j in alone
    )
    return InfeasibleError(
        f"no policy that was found keeps the limits. {words}.",
        file=campaign.path,
        where="[[budget]]",
        way_out="Raise a ceiling, lower a floor, or add actions that reach it.",
    )


def bundle_spec(
    game: Game, members: list[Kept] | tuple[Kept, ...], weights: Vector, campaign: Campaign, seed: int
) -> BundleSpec:
    """What a bundle of these members says. Measurements stand as tables show them."""
    heads = ["reward", *(b.name for b in campaign.budgets), *(() if game.data.steady else ("decisions",))]
    return BundleSpec(
        campaign=campaign,
        schema=game.data.schema,
        actions=game.data.actions,
        heads=tuple(heads),
        members=tuple(
            MemberSpec(
                network=kept.network,
                weight=float(weight),
                multiplier=kept.multiplier,
                head_weights=kept.head_weights,
                measurement=np.nan_to_num(shown(kept, campaign)),
            )
            for kept, weight in zip(members, weights, strict=True)
        ),
        imitation_threshold=game.settings.threshold if game.settings.oracle == "bcq" else None,
        data_hash=game.data.manifest["data_hash"],
        seed=seed,
        versions={name: version(name) for name in ("jax", "equinox", "optax")},
    )


def shown(kept: Kept, campaign: Campaign) -> Vector:
    """`[1+m]` objective and costs as tables show them."""
    signs = np.array([b.sign for b in campaign.budgets])
    limits = np.array([b.sign * b.limit for b in campaign.budgets])
    return np.append(kept.x[0], signs * (limits + (kept.x[1:] - limits) / kept.decisions))
