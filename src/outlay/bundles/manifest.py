"""manifest.json of a bundle: what the graphs mean, and the hashes that prove nothing has changed.

    sha256  of everything in the manifest but itself; the files' own hashes are in it, so it covers the whole folder
    id      its first 16 hexadecimal digits: names what is served

The hash is taken over canonical JSON (keys sorted, no spaces, UTF-8). A bundle never changes once it is written: what
is found out about it later stands beside it (`bundles/certificate.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from outlay.core.errors import BundleError, FolderError
from outlay.core.files import FRAME, MANIFEST, document_text, read_manifest, sha256, write_manifest

KIND = "bundle"
VOCABULARY = "vocabulary.parquet"
GOLDEN = "golden.npz"
FRONTIER = "frontier.onnx"  # all policies of a training for every budget, beside those of the mixture
GOLDEN_FRONTIER = "q_frontier"  # its golden rows
WAY_OUT = "Export the bundle again from its run, or copy it again."
ANY_FOLD = -1
ID_LENGTH = 16


@dataclass(frozen=True)
class FeatureNames:
    """The features that a policy reads, in the order of the schema."""

    categorical: tuple[str, ...]
    numeric: tuple[str, ...]


@dataclass(frozen=True)
class BudgetEntry:
    """A budget of the campaign: what it is called, its limit, and whether it is the one that the ledger pays."""

    name: str
    limit: float
    per: Literal["decision", "user"]
    sign: int
    money: bool


@dataclass(frozen=True)
class PolicyEntry:
    """One policy.

    Attributes:
        salt: of the draw: the hash of its own network and its head weights.
        multiplier: `[m]` λ it answers.
        head_weights: `[H]` w.
        measurement: `[1+m]` reward and costs it was measured at.
        parameters: of its network.
        policy: which of the policies of its graph or network it is.
        weight: α, of a member of the mixture; 0 of a policy of the frontier.
        file: of the graph that computes it; None: that of the frontier does.
        network: which of the networks of the frontier's graph it is of.
        fold: whose users had no part in it, of a frontier that was learned in folds; ANY_FOLD where it is a constant.
        held: numbers that its graph holds for a row, where they are many more than it takes.
    """

    salt: str
    multiplier: tuple[float, ...]
    head_weights: tuple[float, ...]
    measurement: tuple[float, ...]
    parameters: int
    policy: int
    weight: float = 0.0
    file: str | None = None
    network: int = 0
    fold: int = ANY_FOLD
    held: int = 0


@dataclass(frozen=True)
class FrontierEntry:
    """All policies of a training for every budget, and the graph that computes those without a graph of their own."""

    file: str
    members: tuple[PolicyEntry, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a bundle says of itself. K actions, H heads.

    Attributes:
        name: of the campaign, as are `unit`, `none` and `discount`.
        episode: by which users keep a member, unless another is given.
        actions: `[K]` the values given, ascending.
        reserve: `[K]` money to set aside when each action is given; None: not known.
        largest_costs: `[K]` the most that a row of the log has cost with each action, in money; None: not known.
        heads: `[H]` names of the critic's heads.
        imitation_threshold: actions below this share of the largest π_B are left out; None where there is no such head.
        user: the column of users.
        eligible: the list column of allowed actions; None if all are.
        campaign: the campaign file, without the places of its tables, which are another machine's.
        data_hash: of the DATA folder it was learned from.
        seed: of the training.
        versions: of what trained and wrote it, by package.
        members: the mixture.
        capped: the mixture that is served where a cap holds the money budget, which needs no margin then; empty: the
            same.
        frontier: what may be mixed anew; None where there is nothing but the mixture.
        files: the hash of each file.
        sha256: of all this; empty if it is not written.
    """

    name: str
    unit: str
    none: float | None
    discount: float
    episode: str
    actions: tuple[float, ...]
    reserve: tuple[float, ...] | None
    largest_costs: tuple[float, ...] | None
    heads: tuple[str, ...]
    imitation_threshold: float | None
    features: FeatureNames
    user: str
    eligible: str | None
    budgets: tuple[BudgetEntry, ...]
    campaign: Mapping[str, Any]
    data_hash: str
    seed: int
    versions: Mapping[str, str]
    members: tuple[PolicyEntry, ...] = ()
    capped: tuple[PolicyEntry, ...] = ()
    frontier: FrontierEntry | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    sha256: str = ""

    @property
    def id(self) -> str:
        """Names what is served."""
        return self.sha256[:ID_LENGTH]

    @property
    def policies(self) -> tuple[PolicyEntry, ...]:
        """All that may be served: those of the frontier where there is one, else the members of the mixture."""
        return self.members if self.frontier is None else self.frontier.members

    def content(self) -> dict[str, Any]:
        """All but the hash, for JSON."""
        return {key: value for key, value in asdict(self).items() if key != "sha256"}


_MANIFEST = TypeAdapter(Manifest)


def seal(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest with its id and hash, whole or not at all. Returns it with the hash."""
    content = manifest.content()
    sealed = replace(manifest, sha256=digest(content))
    write_manifest(folder, KIND, {"id": sealed.id, **content, "sha256": sealed.sha256})
    return sealed


def unseal(folder: Path) -> Manifest:
    """Read the manifest and check that it is the one that was written, byte by byte.

    Raises:
        BundleError: if it is missing, half-written, changed, or of another kind or format version.
    """
    try:
        found = read_manifest(folder, KIND, unfinished=WAY_OUT)
    except FolderError as error:
        raise BundleError(error.found, file=error.file, where=error.where, way_out=error.way_out) from None
    content = {key: value for key, value in found.items() if key not in (*FRAME, "id")}
    sealed = found.get("sha256"), str(found.get("sha256"))[:ID_LENGTH]
    # A changed space alters the bytes but not the content, so the layout is compared too.
    same = (folder / MANIFEST).read_bytes() == document_text(found).encode()
    if not same or sealed != (digest(content), found.get("id")):
        raise _changed(folder / MANIFEST)
    try:
        return _MANIFEST.validate_python({**content, "sha256": found["sha256"]})
    except ValidationError as error:
        raise BundleError(
            f"is not the manifest of a bundle ({error.errors()[0]['msg']}).",
            file=folder / MANIFEST,
            where=".".join(map(str, error.errors()[0]["loc"])),
            way_out=WAY_OUT,
        ) from None


def read_file(folder: Path, name: str, manifest: Manifest) -> bytes:
    """The bytes of one small file of the bundle, checked against its hash.

    Raises:
        BundleError: if the file is missing or changed.
    """
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise _unreadable(folder / name, error) from None
    _compare(folder / name, hashlib.sha256(content).hexdigest(), manifest)
    return content


def verified(folder: Path, name: str, manifest: Manifest) -> Path:
    """The path of one file of the bundle, which was checked against its hash.

    Raises:
        BundleError: if the file is missing or changed.
    """
    path = folder / name
    try:
        found = sha256(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    _compare(path, found, manifest)
    return path


def _unreadable(path: Path, error: OSError) -> BundleError:
    return BundleError(f"cannot be read ({error.strerror}).", file=path, way_out=WAY_OUT)


def _changed(path: Path) -> BundleError:
    return BundleError("was changed after it was written (its hash differs).", file=path, way_out=WAY_OUT)


def _compare(path: Path, found: str, manifest: Manifest) -> None:
    """Raise BundleError unless the hash that was found is that of the manifest."""
    if found != manifest.files.get(path.name):
        raise _changed(path)


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON of `value`, hexadecimal."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
