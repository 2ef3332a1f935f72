"""RUN/frontier: what every budget needs once training is over: the networks of all policies, and what they measured.

write(run / "frontier", frame, measured, old, check)
stored = Stored.read(run / "frontier")
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.write import BundleSpec, MemberSpec
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.files import new_folder, read_manifest, write_manifest
from outlay.core.network import NetworkArrays, read_network, write_network
from outlay.core.transitions import Transitions
from outlay.estimators.fitted import Fitted
from outlay.estimators.frontier import Points
from outlay.jobs.choose import Frame, Kept, Offered
from outlay.jobs.looks import next_look
from outlay.jobs.reserve import known_reserves
from outlay.jobs.window import window_of

AGAIN = "Train again with --method frontier."

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Stored:
    """RUN/frontier, as training wrote it. L policies, H heads, m budgets.

    Attributes:
        folder: where it lies.
        networks: those of the policies.
        network: `[L]` which of them each policy is of.
        policy: `[L]` by which of that network's policies it acts.
        points: what they were measured at.
        old: the same of the log's policy.
        multiplier: `[L, m]`.
        head_weights: `[L, H]`.
        scale: `[m]` one unit of violation of each limit.
        manifest: heads, imitation_threshold, data_hash, seed, check, and look: which look at the *certify* users would
            have been its, after that of the run's own mixture, when it was trained. Mixtures keep the room that this
            look needs, however many looks others take before it, so that a budget is always the same bundle. And
            window: the days that `points` are about (`window.py`).
    """

    folder: Path
    networks: tuple[NetworkArrays, ...]
    network: NDArray[np.int64]
    policy: NDArray[np.int64]
    points: Points
    old: Points
    multiplier: Vector
    head_weights: Vector
    scale: Vector
    manifest: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Stored:
        """Read it.

        Raises:
            FolderError: if the run has none, or it is damaged.
        """
        if not folder.is_dir():
            raise FolderError("this run has no frontier: it was trained for one budget.", file=folder.parent,
                              way_out="Train with --method frontier.")  # fmt: skip
        manifest = read_manifest(folder, "frontier", unfinished=AGAIN)
        try:
            with (folder / "points.npz").open("rb") as handle, np.load(handle) as file:
                part = {name: file[name] for name in file.files}
            users = int(manifest["users"])
            return cls(
                folder=folder,
                networks=tuple(read_network(folder / _file(i)) for i in range(part["network"].max() + 1)),
                network=part["network"],
                policy=part["policy"],
                points=Points(part["value"], part["covariance"], part["certifying"], users, part["tails"],
                              part["gains"]),
                old=Points(part["old"], part["old_covariance"], part["old_certifying"], users, part["old_tails"],
                           part["old_gains"]),
                multiplier=part["multiplier"],
                head_weights=part["head_weights"],
                scale=part["scale"],
                manifest={name: manifest[name] for name in
                          ("heads", "imitation_threshold", "data_hash", "seed", "check", "look")}
                | {"window": manifest.get("window")},
            )  # fmt: skip
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise FolderError("is damaged: a part of it is absent or cannot be read.", file=folder,
                              way_out=AGAIN) from None  # fmt: skip

    def spec(self, weights: Vector, campaign: Campaign, data: Transitions) -> BundleSpec:
        """The bundle of the mixture with weights `[L]`: the networks with the heads of its members alone."""
        used, policies = np.flatnonzero(weights), self.policies(campaign)
        slim: dict[int, NetworkArrays] = {}
        place: dict[tuple[int, int], int] = {}
        for i in np.unique(self.network[used]).tolist():
            kept = np.unique(self.policy[used[self.network[used] == i]]).tolist()
            slim[i] = self.networks[i].only(kept)
            place |= {(i, policy): k for k, policy in enumerate(kept)}
        return BundleSpec(
            campaign=campaign,
            schema=data.schema,
            actions=data.actions,
            reserve=known_reserves(data, campaign),
            heads=tuple(self.manifest["heads"]),
            members=tuple(
                replace(
                    policies[i],
                    network=slim[self.network[i]],
                    weight=float(weights[i]),
                    policy=place[self.network[i], self.policy[i]],
                )
                for i in used
            ),
            imitation_threshold=self.manifest["imitation_threshold"],
            data_hash=self.manifest["data_hash"],
            seed=int(self.manifest["seed"]),
        )

    def policies(self, campaign: Campaign) -> tuple[MemberSpec, ...]:
        """All L of them, for a server that mixes them anew as money and users come."""
        return tuple(
            MemberSpec(
                network=self.networks[self.network[i]],
                weight=0.0,
                multiplier=self.multiplier[i],
                head_weights=self.head_weights[i],
                measurement=self.points.shown(alone, campaign)[0],
                policy=int(self.policy[i]),
            )
            for i, alone in enumerate(np.eye(len(self.points)))
        )


def write(folder: Path, frame: Frame, measured: list[Kept], old: Fitted, check: str) -> None:
    """What every other budget needs: networks with the policies that could be measured, and the measurements."""
    campaign = frame.campaign
    known = [kept.known for kept in measured]
    points = Points.of([kept.fitted for kept in measured], campaign, [kept.certifying for kept in measured], known)
    log = Points.of([old], campaign)
    networks, network, policy = _networks([kept.policy for kept in measured])
    with new_folder(folder) as temporary:
        for i, each in enumerate(networks):
            write_network(temporary / _file(i), each)
        np.savez(
            temporary / "points.npz",
            multiplier=np.array([kept.policy.multiplier for kept in measured]),
            head_weights=np.array([kept.policy.head_weights for kept in measured]),
            network=network, policy=policy,
            value=points.value, covariance=points.covariance, certifying=points.certifying,
            tails=points.tails, gains=points.gains,
            old=log.value, old_covariance=log.covariance, old_certifying=log.certifying,
            old_tails=log.tails, old_gains=log.gains, scale=frame.scale,
        )  # fmt: skip
        write_manifest(temporary, "frontier", {
            "data_hash": frame.data.manifest["data_hash"], "heads": list(frame.heads), "users": points.users,
            "imitation_threshold": frame.imitation_threshold, "seed": frame.seed, "check": check,
            "look": next_look(frame.data) + 1,  # the next one is for the run's own mixture
            "window": window_of(frame.data),
        })  # fmt: skip


def _networks(policies: list[Offered]) -> tuple[list[NetworkArrays], NDArray[np.int64], NDArray[np.int64]]:
    """The different networks with the policies that are used, and for each policy its network and its place there."""
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


def _file(number: int) -> str:
    return f"network-{number}.npz"
