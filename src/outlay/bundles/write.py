"""Write a bundle: an immutable folder named by its content.

A member's salt is the hash of its own network and its head weights, so a policy that stays keeps its users in the next
bundle. A network that members share is written once. The bundle of a training for every budget carries all its policies
beside the mixture, so that a server can mix them anew. The folder is read back and checked before it takes its place.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import ArrayLike, NDArray

from outlay.bundles.graph import frontier_graph, policy_graph, response_graph
from outlay.bundles.manifest import (
    FRONTIER,
    GOLDEN,
    GOLDEN_FRONTIER,
    VOCABULARY,
    BudgetEntry,
    FeatureNames,
    FrontierEntry,
    Manifest,
    PolicyEntry,
    digest,
    seal,
)
from outlay.bundles.pool import Pool
from outlay.bundles.read import load_bundle
from outlay.bundles.reference import forward, respond
from outlay.core.arrays import NetworkArrays, ResponseArrays
from outlay.core.campaign import Campaign
from outlay.core.files import new_folder, sha256
from outlay.core.schema import CLIP, Schema
from outlay.core.version import __version__

Network = NetworkArrays | ResponseArrays
Rows = tuple[NDArray[np.int32], NDArray[np.float32]]  # codes [N, F], numbers [N, n]

GOLDEN_ROWS = 256
ALL_MISSING = 16  # of so many golden rows, one has no numbers
FRONTIER_ROWS = 32  # of them, for a graph with very many policies
ROUNDING = 1e-6  # weights may miss 1 by this much


@dataclass(frozen=True)
class MemberSpec:
    """One member of the mixture.

    Attributes:
        network: its critic, or the response model it prices.
        weight: α, its share of users.
        multiplier: `[m]` λ it answers, one per budget.
        head_weights: `[H]` w: it gives the action with the largest w·Q.
        measurement: `[1+m]` reward and costs it was measured at, in (1−γ)·J.
        policy: which of the network's L policies it is.
        fold: whose users had no part in it, of a frontier that was learned in folds.
    """

    network: Network
    weight: float
    multiplier: ArrayLike
    head_weights: ArrayLike
    measurement: ArrayLike
    policy: int = 0
    fold: int = 0

    @property
    def held(self) -> int:
        """Numbers that its network holds for a row, where they are many more than it takes."""
        return self.network.held if isinstance(self.network, ResponseArrays) else 0


@dataclass(frozen=True)
class BundleSpec:
    """All that a bundle says.

    Attributes:
        campaign: names, units, budgets and columns are taken from it.
        schema: how features are encoded.
        actions: `[K]` the values given, ascending.
        heads: `[H]` names of the critic's heads.
        members: the mixture.
        capped: the mixture to serve where a cap holds the money budget, of policies of the frontier; empty: the same.
        imitation_threshold: actions below this share of the largest π_B are left out; None where there is no such head.
        data_hash: of the DATA folder it was learned from.
        seed: of the training.
        versions: of what trained it, by package; those of what writes it are added.
        reserve: `[K]` money to set aside when each action is given; None: not known.
        largest_costs: `[K]` the most that a row of the log has cost with each action, in money; None: not known.
        frontier: all policies that may be mixed anew, of any number of networks; their weights are not read. The graph
            of the frontier computes them, but for those whose network is that of a member (constant actions).
    """

    campaign: Campaign
    schema: Schema
    actions: ArrayLike
    heads: tuple[str, ...]
    members: tuple[MemberSpec, ...]
    imitation_threshold: float | None = None
    data_hash: str = ""
    seed: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    reserve: ArrayLike | None = None
    largest_costs: ArrayLike | None = None
    frontier: tuple[MemberSpec, ...] = ()
    capped: tuple[MemberSpec, ...] = ()

    def __post_init__(self) -> None:
        actions = np.asarray(self.actions, np.float64)
        if actions.ndim != 1 or np.any(np.diff(actions) <= 0):
            raise ValueError(f"actions are {actions.tolist()}; they must be ascending")
        for mixture in (self.members, *([self.capped] if self.capped else [])):
            weights = np.array([member.weight for member in mixture], np.float64)
            if np.any(weights <= 0) or abs(weights.sum() - 1) > ROUNDING:
                raise ValueError(f"weights are {weights.tolist()}; they must be positive and sum to 1")
        for i, member in enumerate((*self.members, *self.capped, *self.frontier)):
            if member.network.num_actions != len(actions):
                raise ValueError(f"member {i} has {member.network.num_actions} actions, the bundle {len(actions)}")
            if np.shape(member.head_weights) != (member.network.num_heads,) or member.network.num_heads != len(
                self.heads
            ):
                raise ValueError(
                    f"member {i} has {member.network.num_heads} heads and head weights of shape "
                    f"{np.shape(member.head_weights)}; the bundle names {len(self.heads)} heads"
                )
        if any(not isinstance(network, NetworkArrays) for network in self.frontier_networks):
            raise ValueError("a policy of the frontier is a response model, and no member of the mixture")

    @property
    def networks(self) -> list[Network]:
        """The different ones, in the order of the members."""
        return list(dict.fromkeys(member.network for member in (*self.members, *self.capped)))

    @property
    def frontier_networks(self) -> list[NetworkArrays]:
        """The different ones that the graph of the frontier computes, in the order of its policies."""
        own = set(self.networks)
        networks = dict.fromkeys(policy.network for policy in self.frontier if policy.network not in own)
        return list(networks)  # type: ignore[arg-type]  # checked


def write_bundle(folder: Path, spec: BundleSpec) -> str:
    """Write, read back and put in place. Returns the bundle's id.

    Raises:
        FolderError: if `folder` holds something that outlay did not write.
        BundleError: if the runtime does not compute what the network says.
        ValueError: if two members are the same policy, or a mixture behind a cap has no frontier beside it.
    """
    if spec.capped and not spec.frontier:
        raise ValueError("the mixture behind a cap is of policies of the frontier, and there is none")
    rows = _golden_rows(spec.schema, GOLDEN_ROWS, np.random.default_rng(spec.seed))
    golden: dict[str, NDArray[Any]] = dict(zip(("codes", "numbers"), rows, strict=True))
    with new_folder(Path(folder)) as temporary:
        written: dict[Network, tuple[str, str]] = {}
        hashes = _Hashes(rows)
        for i, network in enumerate(spec.networks):
            name = f"policy-{i}.onnx"
            graph, golden[f"q_{i}"], golden[f"q_{i}_size"] = _computed(network, rows)
            (temporary / name).write_bytes(graph)
            written[network] = name, _hash(graph)
        members, capped = (_mixture(mixture, written, hashes) for mixture in (spec.members, spec.capped))
        frontier = _write_frontier(temporary, spec, rows, golden, written) if spec.frontier else None
        spec.schema.write(temporary / VOCABULARY)
        np.savez(temporary / GOLDEN, **golden)  # type: ignore[arg-type]  # NumPy types the names as flags
        names = [*(name for name, _ in written.values()), VOCABULARY, GOLDEN, *([FRONTIER] if frontier else [])]
        files = {name: sha256(temporary / name) for name in names}
        said = replace(described(spec), members=members, capped=capped, frontier=frontier, files=files)
        manifest = seal(temporary, said)
        Pool(load_bundle(temporary)).check()
    return manifest.id


class _Hashes:
    """Hashes of the graphs of single policies, each computed once: policies of a network may share its heads."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._known: dict[tuple[Network, int], str] = {}

    def of(self, member: MemberSpec, graph_hash: str | None = None) -> str:
        """Hash of the network with this policy alone; `graph_hash` is that of the whole network, where it is known."""
        network = member.network
        if isinstance(network, ResponseArrays) or (network.num_policies == 1 and graph_hash is not None):
            assert graph_hash is not None
            return graph_hash
        key = network, member.policy
        if key not in self._known:
            self._known[key] = _hash(_graph(network.only([member.policy]), *self._rows))
        return self._known[key]


def _mixture(
    members: Sequence[MemberSpec], written: Mapping[Network, tuple[str, str]], hashes: _Hashes
) -> tuple[PolicyEntry, ...]:
    """What the manifest says of a mixture. Raises ValueError if two members are the same policy."""
    total = sum(member.weight for member in members)
    entries = tuple(
        replace(
            _entry(member, hashes.of(member, written[member.network][1])),
            file=written[member.network][0],
            weight=float(member.weight / total),
        )
        for member in members
    )
    if len({entry.salt for entry in entries}) < len(entries):
        raise ValueError("two members are the same policy; give it once, with the sum of their weights")
    return entries


def _entry(member: MemberSpec, graph_hash: str) -> PolicyEntry:
    """What the manifest says of a policy; `graph_hash` is that of its network with this policy alone."""
    head_weights = _floats(member.head_weights)
    return PolicyEntry(
        salt=digest([graph_hash, head_weights])[:16],
        multiplier=_floats(member.multiplier),
        head_weights=head_weights,
        measurement=_floats(member.measurement),
        parameters=member.network.num_parameters,
        policy=member.policy,
        held=member.held,
    )


def _write_frontier(
    folder: Path,
    spec: BundleSpec,
    rows: Rows,
    golden: dict[str, NDArray[Any]],
    written: Mapping[Network, tuple[str, str]],
) -> FrontierEntry:
    """The graph of the frontier's networks, its golden rows, and what the manifest says of all its policies.

    Args:
        folder: of the bundle.
        spec: of the bundle.
        rows: the golden ones.
        golden: is added to.
        written: file and hash of the graphs of members, by network. Policies that are computed by one of these, and not
            by the graph of the frontier, name its file; the others the number of their network in the graph.
    """
    networks, hashes = spec.frontier_networks, _Hashes(rows)
    graph = frontier_graph(networks, rows[0].shape[1], rows[1].shape[1])
    (folder / FRONTIER).write_bytes(graph.SerializeToString(deterministic=True))
    computed = [forward(network, rows[0][:FRONTIER_ROWS], rows[1][:FRONTIER_ROWS]) for network in networks]
    golden[GOLDEN_FRONTIER] = np.concatenate([each.q for each in computed], axis=2).astype(np.float32)
    golden[f"{GOLDEN_FRONTIER}_size"] = np.concatenate([each.size for each in computed])
    place: dict[Network, int] = {network: i for i, network in enumerate(networks)}
    entries = []
    for policy in spec.frontier:
        file, graph_hash = written.get(policy.network, (None, None))
        entry = _entry(policy, hashes.of(policy, graph_hash))
        if file is None:
            entries.append(replace(entry, network=place[policy.network], fold=policy.fold))
        else:
            entries.append(replace(entry, file=file))
    return FrontierEntry(FRONTIER, tuple(entries))


def described(spec: BundleSpec) -> Manifest:
    """Return what the manifest says, but for members, files and identity."""
    campaign = spec.campaign
    return Manifest(
        name=campaign.meta.name,
        unit=campaign.meta.unit,
        none=campaign.none,
        discount=campaign.meta.discount,
        episode=campaign.meta.name,
        actions=_floats(spec.actions),
        reserve=None if spec.reserve is None else _floats(spec.reserve),
        largest_costs=None if spec.largest_costs is None else _floats(spec.largest_costs),
        heads=tuple(spec.heads),
        imitation_threshold=spec.imitation_threshold,
        features=FeatureNames(
            tuple(each.name for each in spec.schema.categorical), tuple(each.name for each in spec.schema.numeric)
        ),
        user=campaign.log.user or "user",
        eligible=campaign.log.eligible,
        budgets=tuple(
            BudgetEntry(b.name, b.limit, b.per, b.sign, i == campaign.money) for i, b in enumerate(campaign.budgets)
        ),
        campaign=_campaign(campaign),
        data_hash=spec.data_hash,
        seed=spec.seed,
        versions={
            **spec.versions,
            "outlay": __version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            "numpy": np.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
    )


def _campaign(campaign: Campaign) -> dict[str, Any]:
    """The campaign file without the places of its tables, which are another machine's."""
    content = campaign.model_dump(mode="json", by_alias=True, exclude_none=True)
    log = {key: value for key, value in content["log"].items() if key not in ("source", "query")}
    if "events" in log:
        log["events"] = log["events"] | {"source": "unknown", "query": None}
    labels = {key: part for key, part in content.pop("labels").items() if part}
    content |= {"log": log} | ({"labels": labels} if labels else {})
    return {key: part for key, part in content.items() if key not in ("events", "rows")}


def _computed(network: Network, rows: Rows) -> tuple[bytes, Any, Any]:
    """The graph of a network, `[N, K, L·H]` what it has to compute, and `[L·H]` the size of the terms of that."""
    if isinstance(network, ResponseArrays):
        graph: bytes = response_graph(network).SerializeToString(deterministic=True)
        wanted = respond(network, *rows)
    else:
        graph, wanted = _graph(network, *rows), forward(network, *rows)
    return graph, wanted.q.astype(np.float32), wanted.size


def _graph(network: NetworkArrays, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> bytes:
    graph: bytes = policy_graph(network, codes.shape[1], numbers.shape[1]).SerializeToString(deterministic=True)
    return graph


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _golden_rows(schema: Schema, count: int, rng: np.random.Generator) -> Rows:
    sizes = np.array(schema.sizes, np.int64)
    codes = rng.integers(0, sizes, (count, len(sizes))).astype(np.int32)
    values = np.clip(rng.normal(0, 2, (count, len(schema.numeric))), -CLIP, CLIP)
    missing = rng.random(values.shape) < 0.1
    missing[-count // ALL_MISSING :] = True  # a user without a past among them
    numbers = np.stack([np.where(missing, 0, values), missing], axis=2).reshape(count, -1)
    return codes, numbers.astype(np.float32)


def _floats(values: ArrayLike) -> tuple[float, ...]:
    return tuple(float(value) for value in np.asarray(values, np.float64))
