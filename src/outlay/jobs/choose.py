"""After the game: measure the kept members again, and solve their weights on limits with a margin.

The rule chose by measurements made while training; choosing by measured value chooses the errors too. So the ≤ m+2
members that it kept (and the most frugal candidate, in reserve) are measured once more on the *select* users, by the
fitted evaluation that the certificate will use, and the weights are solved with every cost raised by the margin that
makes a certificate likely (`estimators/certificate.py`).
"""

from __future__ import annotations

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
from outlay.core.transitions import CERTIFY, SELECT
from outlay.estimators.certificate import expected_se, margins
from outlay.estimators.units import coordinates
from outlay.jobs.looks import next_alpha
from outlay.jobs.measure import Measure
from outlay.learning.game import Candidate, Game, Progress, frugal
from outlay.nets.network import arrays
from outlay.ops.intervals import std_error
from outlay.ops.mixture_lp import solve_mixture

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Chosen:
    """The mixture as it will be served.

    Attributes:
        members: k candidates; some may have weight 0.
        weights: `[k]`.
        x: `[k, 1+m]` fitted objective and budgets on *select*, in ≤ form.
        std_error: `[k, 1+m]`.
        margin: `[k, m]` by which each cost was raised when the weights were solved.
    """

    members: list[Candidate]
    weights: Vector
    x: Vector
    std_error: Vector
    margin: Vector


def choose(
    game: Game, progress: Progress, mixture: Mixture[int], campaign: Campaign, method: str, folder: Path
) -> Chosen:
    """Measure the kept members by a fitted evaluation on *select*, and solve their weights again.

    Args:
        game: as played.
        progress: where it ended; holds the kept networks.
        mixture: the rule's.
        campaign: its limits and settings.
        method: the rule's name; `uniform` keeps its equal weights, as the original method does.
        folder: where a bundle of all kept members may be written for a moment.

    Raises:
        InfeasibleError: if no mixture of the kept members keeps the limits, or they cannot be measured.
    """
    numbers = list(dict.fromkeys(mixture.members))
    spare = frugal(progress.candidates, game.coords)
    kept = [progress.candidates[n] for n in dict.fromkeys([*numbers, spare])]
    trial = folder / "bundle"
    write_bundle(trial, bundle_spec(game, progress, kept, np.full(len(kept), 1 / len(kept)), campaign, 0))
    fits = Measure(game.data, SELECT, load_bundle(trial)).members()
    parts = [coordinates(fitted, campaign) for fitted in fits]
    known = [bool(np.isfinite(part[0]).all()) for part in parts]
    if not any(known):
        reasons = {reason for fitted in fits for reason in fitted.withheld if reason}
        raise InfeasibleError(
            f"the policies that were found cannot be measured on the select users: {'; '.join(sorted(reasons))}.",
            file=campaign.path,
            way_out="Take a longer or larger log, or leave out actions that were hardly ever given (log.actions).",
        )
    kept = [candidate for candidate, good in zip(kept, known, strict=True) if good]
    numbers = [number for number, good in zip(numbers, known, strict=False) if good]
    x = np.array([part[0] for part, good in zip(parts, known, strict=True) if good])
    se = np.array([std_error(part[1]) for part, good in zip(parts, known, strict=True) if good])
    limits = parts[0][2]
    users = [len(game.data.users_of(split)) for split in (SELECT, CERTIFY)]
    confidence = 1 - next_alpha(game.data.folder, campaign.train.confidence)
    margin = np.array([margins(s[1:], expected_se(s[1:], *users), confidence=confidence,
                               margin=campaign.train.margin) for s in se])  # fmt: skip
    if method == "uniform":  # the original method: every policy, equal weights
        weights = np.where(np.arange(len(kept)) < len(numbers), 1 / max(len(numbers), 1), 0.0)
        return Chosen(kept, weights, x, se, margin)
    cautious = x + np.column_stack([np.zeros(len(x)), margin])
    weights = np.zeros(len(kept))
    feasible = False
    if numbers:
        found = solve_mixture(cautious[: len(numbers)], limits, game.coords.scale)
        weights[: len(numbers)], feasible = found.weights, found.feasible
    if not feasible:  # the spare is there for this
        weights = solve_mixture(cautious, limits, game.coords.scale).weights
    over = (weights @ x)[1:] - limits
    if np.any(over > 1e-9 * game.coords.scale):
        cheapest = x[:, 1:].min(axis=0)
        words = "; ".join(
            f"{b.name}: the best mixture comes to {b.sign * c:.4g}, the smallest reachable is {b.sign * least:.4g}, "
            f"the limit is {b.limit:g} per {b.per}"
            for b, c, least, o in zip(campaign.budgets, (weights @ x)[1:], cheapest, over, strict=True)
            if o > 0
        )
        raise InfeasibleError(f"no policy that was found keeps the limits. {words}.", file=campaign.path,
                              way_out="Raise the limit, or train longer.")  # fmt: skip
    return Chosen(kept, weights, x, se, margin)


def bundle_spec(
    game: Game, progress: Progress, members: list[Candidate], weights: Vector, campaign: Campaign, seed: int
) -> BundleSpec:
    """What a bundle of these candidates says; those with weight 0 are left out."""
    signs = np.array([1, *(b.sign for b in campaign.budgets)])
    heads = ["reward", *(b.name for b in campaign.budgets), *(() if game.data.steady else ("decisions",))]
    return BundleSpec(
        campaign=campaign,
        schema=game.data.schema,
        actions=game.data.actions,
        heads=tuple(heads),
        members=tuple(
            MemberSpec(
                network=arrays(progress.networks[c.number], game.coords.spread),
                weight=float(weight),
                multiplier=c.multiplier,
                head_weights=game.coords.weights(c.multiplier),
                measurement=signs * c.measured,
            )
            for c, weight in zip(members, weights, strict=True)
            if weight > 0
        ),
        imitation_threshold=game.settings.threshold if game.settings.oracle == "bcq" else None,
        data_hash=game.data.manifest["data_hash"],
        seed=seed,
        versions={name: version(name) for name in ("jax", "equinox", "optax")},
    )
