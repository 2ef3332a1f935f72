"""RUN/frontier: the networks of all policies and their measurements, from which the mixture for any budget is made.

write_frontier(run / "frontier", folds, check)
stored = StoredFrontier.read(run / "frontier")
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.write import BundleSpec, MemberSpec
from outlay.choosing.allowances import allowances_of, read, written
from outlay.choosing.budget_grid import GridProblem, solve_grid
from outlay.choosing.candidates import CandidatePolicy, MeasuredPolicy, RunContext
from outlay.choosing.choose import Selection
from outlay.choosing.folds import fold_shares
from outlay.choosing.measure import Measure
from outlay.choosing.reserve import known_reserves, largest_costs
from outlay.choosing.run import Run
from outlay.core.arrays import NetworkArrays, read_network, write_network
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, InfeasibleError
from outlay.core.files import new_folder, read_manifest, write_manifest
from outlay.core.transitions import EVERYONE, Transitions
from outlay.estimators.allowances import Allowances
from outlay.estimators.certificate import OWN
from outlay.estimators.day_effects import MOST_ROWS
from outlay.estimators.fitted import Fitted
from outlay.estimators.frontier import Points, pooled, shown
from outlay.estimators.windowed import window_of

AGAIN = "Train again with --method frontier."
MANIFEST = ("own", "heads", "imitation_threshold", "data_hash", "seed", "check", "window", "no_curve")
POINTS = ("value", "covariance", "certifying", "tails", "gains")
SPENDING = ("limits", "weights", "aim", "covariance")
PARTS = (
    "network",
    "policy",
    "fold",
    "constant",
    "multiplier",
    "head_weights",
    "value",
    "budgets",
    "weights",
    "aim",
    "shares",
    "scale",
)

ROUNDING = 1e-6  # of the objective: a smaller difference is none

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SpendingMixtures:
    """The best mixtures without a margin below the money limit, for a grid of limits: those of a server with a cap.

    Attributes:
        limits: `[S]` of the money budget, ascending; empty where there is no curve, or a cap holds the budget anyway.
        weights: `[S, P]`.
        aim: `[S]` the objective that mixtures were chosen by, per unit of time.
        covariance: `[S, S]` of the mixtures' rewards, on *select* users.
    """

    limits: Vector
    weights: Vector
    aim: Vector
    covariance: Vector

    @classmethod
    def none(cls, policies: int) -> SpendingMixtures:
        """No mixtures of so many policies."""
        return cls(np.empty(0), np.empty((0, policies)), np.empty(0), np.empty((0, 0)))

    def between(self, limit: float) -> Vector:
        """Return `[S]` shares of the mixtures in the one for a limit, which lies between two of the grid."""
        return np.array([np.interp(limit, self.limits, one) for one in np.eye(len(self.limits))])


@dataclass(frozen=True)
class StoredFrontier:
    """RUN/frontier, as training wrote it. P policies of K folds, G budgets, H heads, m limits.

    Attributes:
        folder: RUN/frontier.
        networks: those of the policies.
        network: `[P]` place of each policy's network among them.
        policy: `[P]` place of the policy among those of its network.
        fold: `[P]` the fold whose users had no part in it.
        constant: `[P]` whether it is a constant action, which training did not learn.
        multiplier: `[P, m]`.
        head_weights: `[P, H]`.
        value: `[P, T]` measured on *select* users of its fold, as in `Points`.
        budgets: `[G]` of the money budget, ascending; empty where that is a floor, or no mixture keeps the others.
        weights: `[G + 1, P]` of the mixture for each, and last of the mixture that the run serves; every fold has the
            same share in all of them.
        margin: `[G + 1]` by which the money budget's coordinate was raised when choosing.
        aim: `[G + 1]` the objective that mixtures were chosen by (`units.chosen_by`), per unit of time.
        points: measurements of the G + 1 mixtures on *select* users.
        spending: the same without a margin of the money budget.
        old: the same of the log's policy.
        shares: `[K]` of the folds: n_k / n.
        scale: `[m]` one unit of violation of each limit.
        allowances: what widens every interval.
        manifest: heads, imitation_threshold, data_hash, seed, check; own: budget of the mixture that the run serves;
            window: the days that `points` are about (`windowed.py`); no_curve: why there are no budgets.
    """

    folder: Path
    networks: tuple[NetworkArrays, ...]
    network: NDArray[np.int64]
    policy: NDArray[np.int64]
    fold: NDArray[np.int64]
    constant: NDArray[np.bool_]
    multiplier: Vector
    head_weights: Vector
    value: Vector
    budgets: Vector
    weights: Vector
    margin: Vector
    aim: Vector
    points: Points
    spending: SpendingMixtures
    old: Points
    shares: Vector
    scale: Vector
    allowances: Allowances
    manifest: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> StoredFrontier:
        """Read the folder of a run.

        Raises:
            FolderError: if the run has none, or it is damaged, or an older version wrote it.
        """
        if not folder.is_dir():
            raise FolderError(
                "this run has no frontier: it was trained for one budget.",
                file=folder.parent,
                way_out="Train with --method frontier.",
            )
        manifest = read_manifest(folder, "frontier", unfinished=AGAIN)
        if "own" not in manifest:
            raise FolderError(
                "was written by an older version, which did not measure what the run serves.",
                file=folder,
                way_out=AGAIN,
            )
        try:
            with (folder / "points.npz").open("rb") as handle, np.load(handle) as file:
                part = {name: file[name] for name in file.files}
            grid, old = ({name: part[f"{of}_{name}"] for name in POINTS} for of in ("grid", "old"))
            return cls(
                folder=folder,
                networks=tuple(read_network(folder / _file(i)) for i in range(part["network"].max() + 1)),
                points=Points(**grid, users=int(manifest["users"]), clusters=manifest.get("clusters")),
                spending=_spending_of(part),
                old=Points(**old, users=int(manifest["users"]), clusters=manifest.get("clusters")),
                **{name: part[name] for name in PARTS},
                margin=part["room"],
                allowances=read(manifest["allowances"]),
                manifest={name: manifest[name] for name in MANIFEST},
            )
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise FolderError(
                "is damaged: a part of it is missing or cannot be read.", file=folder, way_out=AGAIN
            ) from None

    @property
    def own(self) -> float:
        """The budget of the mixture that the run serves."""
        return float(self.manifest["own"])

    def spec(self, weights: Vector, campaign: Campaign, data: Transitions, capped: Vector | None = None) -> BundleSpec:
        """Return the bundle of the mixture with weights `[P]`, and of the one behind a cap, if there is another.

        Its networks have the heads of their members alone.
        """
        capped = np.zeros(len(weights)) if capped is None else capped
        policies, used = self.policies(campaign), np.flatnonzero(weights + capped)
        slim: dict[int, NetworkArrays] = {}
        place: dict[tuple[int, int], int] = {}
        for i in np.unique(self.network[used]).tolist():
            kept = np.unique(self.policy[used[self.network[used] == i]]).tolist()
            slim[i] = self.networks[i].only(kept)
            place |= {(i, policy): k for k, policy in enumerate(kept)}

        def member(i: int, weight: float) -> MemberSpec:
            at = int(self.network[i])
            return replace(policies[i], network=slim[at], weight=weight, policy=place[at, int(self.policy[i])])

        return BundleSpec(
            campaign=campaign,
            schema=data.schema,
            actions=data.actions,
            reserve=known_reserves(data, campaign),
            largest_costs=largest_costs(data, campaign),
            heads=tuple(self.manifest["heads"]),
            members=tuple(member(same[0], float(weights[same].sum())) for same in self._members(weights)),
            capped=tuple(member(same[0], float(capped[same].sum())) for same in self._members(capped)),
            imitation_threshold=self.manifest["imitation_threshold"],
            data_hash=self.manifest["data_hash"],
            seed=int(self.manifest["seed"]),
        )

    def fold_weights(self, weights: Vector) -> list[list[float]]:
        """Return `[K, k]`: the weights of a mixture's k members within each fold, from its weights `[P]`."""
        members = self._members(weights)
        each = [np.array([weights[of][self.fold[of] == k].sum() for of in members]) for k in range(len(self.shares))]
        return [(inside / inside.sum()).tolist() for inside in each]

    def _members(self, weights: Vector) -> list[list[int]]:
        """The places of the policies in a mixture `[P]`, by member: folds share their constant actions."""
        same: dict[object, list[int]] = {}
        for i in np.flatnonzero(weights).tolist():
            network = self.networks[self.network[i]]
            same.setdefault(network.head[1].tobytes() if self.constant[i] else i, []).append(i)
        return list(same.values())

    def beside(self, spec: BundleSpec) -> BundleSpec:
        """Return a bundle with all policies beside its members, for a server that mixes anew as money and users come.

        Of constant actions it has those that it serves, with a cap or without: their own graphs compute them.
        """
        every = self.policies(spec.campaign)
        learned = [policy for policy, constant in zip(every, self.constant, strict=True) if not constant]
        if not learned:
            return replace(spec, frontier=every)
        constants = {_preference(policy) for policy, constant in zip(every, self.constant, strict=True) if constant}
        served = {_preference(each): each for each in (*spec.capped, *spec.members)}
        kept = [policy for which, policy in served.items() if which in constants]
        return replace(spec, frontier=(*learned, *kept))

    def capped(self, campaign: Campaign) -> Vector | None:
        """Return `[P]` weights of the mixture for a server with a cap; None where it is the one served without."""
        found = self.spends(campaign) if campaign.train.hold == "auto" else None
        return None if found is None else found @ self.spending.weights

    def spends(self, campaign: Campaign) -> Vector | None:
        """Return `[S]` shares of the mixtures without a margin in the one for the money limit, as behind a cap.

        None where there are none, where they do not reach so low, or where none of them brings more than the mixture
        for the limit, which keeps a margin.
        """
        limit = campaign.budgets[campaign.money].limit
        if not len(self.spending.limits) or any(campaign.held) or limit < self.spending.limits[0]:
            return None
        found, kept = self.spending.between(limit), self.between(limit, own=True) @ self.aim
        return found if found @ self.spending.aim > kept + ROUNDING * abs(kept) else None

    def between(self, budget: float, *, own: bool = False) -> Vector:
        """Return `[G + 1]` shares of the stored mixtures in the one for a budget, which lies between two of the grid.

        Args:
            budget: not below the curve.
            own: whether the budget that the run was trained for has the mixture that it serves, which comes last.
        """
        if own and budget == self.own:
            last: Vector = np.eye(len(self.budgets) + 1)[-1]
            return last
        return np.array([*(np.interp(budget, self.budgets, one) for one in np.eye(len(self.budgets))), 0.0])

    def room(self, campaign: Campaign) -> Vector:
        """Return `[G + 1]` the margins in the unit of the money budget: a coordinate per decision is x₁ times it."""
        per_decision = campaign.budgets[campaign.money].per == "decision"
        room: Vector = self.margin / (self.points.value[:, -1] if per_decision else 1.0)
        return room

    def policies(self, campaign: Campaign) -> tuple[MemberSpec, ...]:
        """Return all P policies."""
        return tuple(
            MemberSpec(
                network=self.networks[self.network[i]],
                weight=0.0,
                multiplier=self.multiplier[i],
                head_weights=self.head_weights[i],
                measurement=shown(self.value[i], campaign),
                policy=int(self.policy[i]),
                fold=int(self.fold[i]),
            )
            for i in range(len(self.value))
        )


def stored_curve(run: Run) -> StoredFrontier | None:
    """Return the frontier of a run that has a curve.

    Raises:
        FolderError: if it is damaged.
    """
    folder = run.folder / "frontier"
    stored = StoredFrontier.read(folder) if folder.is_dir() else None
    return None if stored is None or not len(stored.budgets) else stored


@dataclass(frozen=True)
class FoldPolicies:
    """The policies of one fold.

    Attributes:
        context: what they share.
        measured: those that could be measured.
        old: the log's policy on the same *select* users.
        chosen: the mixture for the campaign's own limits, of these policies.
        spending: the same without a margin of the money budget; None where it has none, or is no ceiling.
    """

    context: RunContext
    measured: list[MeasuredPolicy]
    old: Fitted
    chosen: Selection
    spending: Selection | None

    @cached_property
    def points(self) -> Points:
        """Their measurements."""
        return Points.of(
            [kept.fitted for kept in self.measured],
            self.context.campaign,
            [kept.certifying for kept in self.measured],
            [kept.reach for kept in self.measured],
        )

    @property
    def aim(self) -> Vector:
        """`[L]` the objective that mixtures are chosen by."""
        return np.array([kept.objective for kept in self.measured])

    def problem(self, of: Selection) -> GridProblem:
        """The linear program for any budget, with a margin for the look that will certify the whole curve.

        Args:
            of: `chosen`, or `spending`, for which the money budget has no margin; its constant actions take part.
        """
        context, data, places = self.context, self.context.data, self.places(of)
        held = of is self.spending
        return GridProblem(
            self.points.only(places),
            self.aim[places],
            context.campaign.held_while_serving() if held else context.campaign,
            context.scale,
            context.alpha * (1 - OWN),
            data.independent(data.certifying),
            data.folds,
            np.array([self.measured[i].further for i in places]),
            of.rare,
        )

    def places(self, of: Selection) -> NDArray[np.intp]:
        """Places among `measured` of learned policies, and of the constant actions that are in a mixture."""
        inside = {id(kept) for kept in of.members}
        used = [kept.policy.number is not None or id(kept) in inside for kept in self.measured]
        return np.flatnonzero(used)

    def weights(self, of: Selection, solved: Vector) -> Vector:
        """`[G, L]` weights of all policies, from those of the policies of a problem."""
        whole = np.zeros((len(solved), len(self.measured)))
        whole[:, self.places(of)] = solved
        return whole

    def own(self, of: Selection) -> Vector:
        """`[L]` weights of a mixture that was chosen."""
        weight = {id(kept): share for kept, share in zip(of.members, of.weights, strict=True)}
        return np.array([weight.get(id(kept), 0.0) for kept in self.measured])


def write_frontier(folder: Path, folds: Sequence[FoldPolicies], check: str) -> None:
    """Write the networks with the policies that could be measured, and the mixtures for a grid of budgets."""
    context = folds[0].context
    campaign, data = context.campaign, context.data
    shares = fold_shares([fold.context.data for fold in folds])
    budgets, weights, margins, no_curve = _grid(folds)
    # The mixture that the run serves comes last.
    weights = [np.vstack([w, fold.own(fold.chosen)]) for w, fold in zip(weights, folds, strict=True)]
    own = [fold.chosen.margin[campaign.money] for fold in folds]
    margin = sum(share * np.append(m, last) for share, m, last in zip(shares, margins, own, strict=True))
    log = pooled([Points.of([fold.old], campaign) for fold in folds], shares)
    mixtures = pooled([fold.points.mixed(w) for fold, w in zip(folds, weights, strict=True)], shares)
    every = [kept.policy for fold in folds for kept in fold.measured]
    spending = SpendingMixtures.none(len(every)) if no_curve else _spending(folds, shares)
    networks, network, policy = _networks(every)
    with new_folder(folder) as temporary:
        for i, each in enumerate(networks):
            write_network(temporary / _file(i), each)
        np.savez(
            temporary / "points.npz",
            network=network,
            policy=policy,
            fold=np.repeat(np.arange(len(folds)), [len(fold.measured) for fold in folds]),
            constant=np.array([each.number is None for each in every]),
            multiplier=np.array([each.multiplier for each in every]),
            head_weights=np.array([each.head_weights for each in every]),
            value=np.concatenate([fold.points.value for fold in folds]),
            budgets=budgets,
            shares=shares,
            weights=np.hstack([share * w for share, w in zip(shares, weights, strict=True)]),
            aim=np.asarray(sum(share * w @ fold.aim for share, w, fold in zip(shares, weights, folds, strict=True))),
            scale=context.scale,
            room=np.asarray(margin),  # its name in files
            **{f"spending_{name}": getattr(spending, name) for name in SPENDING},
            **{f"grid_{name}": getattr(mixtures, name) for name in POINTS},
            **{f"old_{name}": getattr(log, name) for name in POINTS},
        )
        content = {
            "data_hash": data.manifest.data_hash,
            "heads": list(context.heads),
            "users": mixtures.users,
            "imitation_threshold": context.imitation_threshold,
            "seed": context.seed,
            "check": check,
            "own": campaign.budgets[campaign.money].limit,
            "window": window_of(data),
            "no_curve": no_curve,
            "allowances": written(_allowances(data)),
        }
        clusters = {} if mixtures.clusters is None else {"clusters": mixtures.clusters}
        write_manifest(temporary, "frontier", content | clusters)


def _allowances(data: Transitions) -> Allowances:
    """By a sample of all users: one split has few on each day, and nothing is chosen by it."""
    most = max(1, MOST_ROWS * len(data.users) // max(1, len(data.action)))
    return allowances_of(Measure(data, EVERYONE, None, most_users=most))


def _grid(folds: Sequence[FoldPolicies]) -> tuple[Vector, list[Vector], list[Vector], str | None]:
    """The mixtures for a grid of budgets, or none and the reason."""
    campaign = folds[0].context.campaign
    money = campaign.budgets[campaign.money]
    try:
        if money.sign > 0:
            budgets, weights, margins = solve_grid([fold.problem(fold.chosen) for fold in folds])
            return (
                budgets,
                [fold.weights(fold.chosen, w) for fold, w in zip(folds, weights, strict=True)],
                margins,
                None,
            )
        no_curve = f"budget {money.name} is a floor, so no curve shows what more money buys."
    except InfeasibleError as error:
        no_curve = error.found
    return np.empty(0), [np.empty((0, len(each.points))) for each in folds], [np.empty(0) for _ in folds], no_curve


def _spending(folds: Sequence[FoldPolicies], shares: Vector) -> SpendingMixtures:
    """The mixtures without a margin, or none."""
    chosen = [fold.spending for fold in folds if fold.spending is not None]
    if len(chosen) < len(folds):
        return SpendingMixtures.none(sum(len(fold.measured) for fold in folds))
    limits, solved, _ = solve_grid([fold.problem(own) for fold, own in zip(folds, chosen, strict=True)])
    weights = [fold.weights(own, w) for fold, own, w in zip(folds, chosen, solved, strict=True)]
    each = list(zip(shares, weights, folds, strict=True))
    return SpendingMixtures(
        limits,
        np.hstack([share * w for share, w, _ in each]),
        np.asarray(sum(share * w @ fold.aim for share, w, fold in each)),
        np.asarray(sum(share**2 * w @ fold.points.covariance[:, 0, :, 0] @ w.T for share, w, fold in each)),
    )


def _spending_of(part: Mapping[str, Vector]) -> SpendingMixtures:
    """As stored; none in a run of an older version."""
    if "spending_limits" not in part:
        return SpendingMixtures.none(len(part["fold"]))
    return SpendingMixtures(**{name: part[f"spending_{name}"] for name in SPENDING})


def _networks(policies: list[CandidatePolicy]) -> tuple[list[NetworkArrays], NDArray[np.int64], NDArray[np.int64]]:
    """The networks with only the policies that are used, and for each policy its network and its place there."""
    used: dict[int, tuple[NetworkArrays, list[int]]] = {}
    for each in policies:
        assert isinstance(each.network, NetworkArrays)
        _, places = used.setdefault(id(each.network), (each.network, []))
        if each.policy not in places:
            places.append(each.policy)
    order = list(used)
    place = [(order.index(id(each.network)), used[id(each.network)][1].index(each.policy)) for each in policies]
    network, policy = np.array(place, np.int64).T
    return [whole.only(places) for whole, places in used.values()], network, policy


def _preference(policy: MemberSpec) -> bytes | None:
    """What tells a constant action; None of a policy that looks at states."""
    network = policy.network
    return network.head[1].tobytes() if isinstance(network, NetworkArrays) and not network.head[0].any() else None


def _file(number: int) -> str:
    return f"network-{number}.npz"
