"""Write a bundle: an immutable folder named by its content.

A member's salt is the hash of its graph and its head weights, so a policy that stays keeps its users in the next
bundle. The folder is read back and checked before it takes its place.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import ArrayLike, NDArray

from outlay.bundles.graph import policy_graph
from outlay.bundles.manifest import GOLDEN, VOCABULARY, digest, seal, unseal
from outlay.bundles.read import load_bundle
from outlay.bundles.reference import forward
from outlay.core.campaign import Campaign
from outlay.core.files import new_folder, sha256
from outlay.core.network import NetworkArrays
from outlay.core.schema import CLIP, Schema
from outlay.core.version import __version__

GOLDEN_ROWS = 256
ROUNDING = 1e-6  # weights may miss 1 by this much


@dataclass(frozen=True)
class MemberSpec:
    """One member of the mixture.

    Attributes:
        network: its critic.
        weight: α, its share of users.
        multiplier: `[m]` λ it answers, one per budget.
        head_weights: `[H]` w: it gives the action with the largest w·Q.
        measurement: `[1+m]` reward and costs it was measured at, in (1−γ)·J.
    """

    network: NetworkArrays
    weight: float
    multiplier: ArrayLike
    head_weights: ArrayLike
    measurement: ArrayLike


@dataclass(frozen=True)
class BundleSpec:
    """All that a bundle says.

    Attributes:
        campaign: names, units, budgets and columns are taken from it.
        schema: how features are encoded.
        actions: `[K]` the values given, ascending.
        heads: `[H]` names of the critic's heads.
        members: the mixture.
        imitation_threshold: actions below this share of the largest π_B are left out; None where there is no such head.
        data_hash: of the DATA folder it was learned from.
        seed: of the training.
        estimates: what evaluation said, if it has run; JSON.
        certificate: the certificate, if there is one; JSON.
        versions: of what trained it, by package; those of what writes it are added.
    """

    campaign: Campaign
    schema: Schema
    actions: ArrayLike
    heads: tuple[str, ...]
    members: tuple[MemberSpec, ...]
    imitation_threshold: float | None = None
    data_hash: str = ""
    seed: int = 0
    estimates: Any = None
    certificate: Any = None
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        actions = np.asarray(self.actions, np.float64)
        if actions.ndim != 1 or np.any(np.diff(actions) <= 0):
            raise ValueError(f"actions are {actions.tolist()}; they must be ascending")
        weights = np.array([member.weight for member in self.members], np.float64)
        if np.any(weights <= 0) or abs(weights.sum() - 1) > ROUNDING:
            raise ValueError(f"weights are {weights.tolist()}; they must be positive and sum to 1")
        for i, member in enumerate(self.members):
            if member.network.num_actions != len(actions):
                raise ValueError(f"member {i} has {member.network.num_actions} actions, the bundle {len(actions)}")
            if np.shape(member.head_weights) != (member.network.num_heads,) or member.network.num_heads != len(
                self.heads
            ):
                raise ValueError(
                    f"member {i} has {member.network.num_heads} heads and head weights of shape "
                    f"{np.shape(member.head_weights)}; the bundle names {len(self.heads)} heads"
                )


def write_bundle(folder: Path, spec: BundleSpec) -> str:
    """Write, read back and put in place. Returns the bundle's id.

    Raises:
        FolderError: if `folder` holds something that outlay did not write.
        BundleError: if the runtime does not compute what the network says.
        ValueError: if two members are the same policy.
    """
    rng = np.random.default_rng(spec.seed)
    codes, numbers = _golden_rows(spec.schema, rng)
    golden: dict[str, NDArray[Any]] = {"codes": codes, "numbers": numbers}
    total = sum(member.weight for member in spec.members)
    members: list[dict[str, Any]] = []
    with new_folder(Path(folder)) as temporary:
        for i, member in enumerate(spec.members):
            name = f"policy-{i}.onnx"
            graph = policy_graph(member.network, codes.shape[1], numbers.shape[1]).SerializeToString(deterministic=True)
            (temporary / name).write_bytes(graph)
            golden[f"q_{i}"] = forward(member.network, codes, numbers).q.astype(np.float32)
            head_weights = _floats(member.head_weights)
            members.append({
                "file": name,
                "weight": float(member.weight / total),
                "multiplier": _floats(member.multiplier),
                "head_weights": head_weights,
                "salt": digest([hashlib.sha256(graph).hexdigest(), head_weights])[:16],
                "measurement": _floats(member.measurement),
                "parameters": member.network.num_parameters,
            })  # fmt: skip
        salts = [member["salt"] for member in members]
        if len(set(salts)) < len(salts):
            raise ValueError("two members are the same policy; give it once, with the sum of their weights")
        spec.schema.write(temporary / VOCABULARY)
        np.savez(temporary / GOLDEN, **golden)  # type: ignore[arg-type]  # NumPy types the names as flags
        names = [*(member["file"] for member in members), VOCABULARY, GOLDEN]
        files = {name: sha256(temporary / name) for name in names}
        identity = seal(temporary, {**_content(spec), "members": members, "files": files})
        load_bundle(temporary)
    return identity


def update_certificate(folder: Path, estimates: Any, certificate: Any) -> None:
    """Put estimates and certificate into a bundle that exists; its id and all else stay.

    Raises:
        BundleError: if the manifest is missing or damaged.
    """
    seal(Path(folder), {**unseal(Path(folder)), "estimates": estimates, "certificate": certificate})


def _content(spec: BundleSpec) -> dict[str, Any]:
    campaign = spec.campaign
    return {
        "name": campaign.meta.name,
        "unit": campaign.meta.unit,
        "none": campaign.meta.none,
        "discount": campaign.meta.discount,
        "episode": campaign.meta.name,
        "actions": _floats(spec.actions),
        "heads": list(spec.heads),
        "imitation_threshold": spec.imitation_threshold,
        "features": {
            "categorical": [f.name for f in spec.schema.categorical],
            "numeric": [f.name for f in spec.schema.numeric],
        },
        "user": campaign.log.user,
        "eligible": campaign.log.eligible,
        "budgets": [{"name": b.name, "limit": b.limit, "per": b.per, "sign": b.sign} for b in campaign.budgets],
        "data_hash": spec.data_hash,
        "seed": spec.seed,
        "versions": {
            **spec.versions,
            "outlay": __version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            "numpy": np.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
        "estimates": spec.estimates,
        "certificate": spec.certificate,
    }


def _golden_rows(schema: Schema, rng: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    sizes = np.array(schema.sizes, np.int64)
    codes = rng.integers(0, sizes, (GOLDEN_ROWS, len(sizes))).astype(np.int32)
    values = np.clip(rng.normal(0, 2, (GOLDEN_ROWS, len(schema.numeric))), -CLIP, CLIP)
    missing = rng.random(values.shape) < 0.1
    numbers = np.stack([np.where(missing, 0, values), missing], axis=2).reshape(GOLDEN_ROWS, -1)
    return codes, numbers.astype(np.float32)


def _floats(values: ArrayLike) -> list[float]:
    return [float(value) for value in np.asarray(values, np.float64)]
