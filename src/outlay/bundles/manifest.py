"""manifest.json of a bundle: what the graphs mean, and the hashes that prove nothing has changed.

    id      first 16 hexadecimal digits of the SHA-256 of all but estimates and certificate: names what is served
    sha256  of everything in the manifest but itself; the files' own hashes are in it, so it covers the whole folder

Both are taken over canonical JSON (keys sorted, no spaces, UTF-8).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from outlay.core.errors import BundleError, FolderError
from outlay.core.files import MANIFEST, read_manifest, sha256, write_manifest

KIND = "bundle"
VOCABULARY = "vocabulary.parquet"
GOLDEN = "golden.npz"
FRONTIER = "frontier.onnx"  # all policies of a training for every budget, beside those of the mixture
GOLDEN_FRONTIER = "q_frontier"  # its golden rows
WAY_OUT = "Export the bundle again from its run, or copy it again."
FRAME = ("format", "version", "sha256")  # written around the content
LATER = ("id", "estimates", "certificate")  # may change while the id stays


def seal(folder: Path, content: dict[str, Any]) -> str:
    """Write the manifest with its id and hash, whole or not at all. Returns the id."""
    core = {key: value for key, value in content.items() if key not in (*FRAME, *LATER)}
    content = {"id": digest(core)[:16], **core, **{key: content[key] for key in LATER[1:]}}
    write_manifest(folder, KIND, {**content, "sha256": digest(content)})
    return str(content["id"])


def unseal(folder: Path) -> dict[str, Any]:
    """Read the manifest and check that it is the one that was written, byte by byte.

    Raises:
        BundleError: if it is missing, half-written, changed, or of another kind or format version.
    """
    try:
        manifest = read_manifest(folder, KIND, unfinished=WAY_OUT)
    except FolderError as error:
        raise BundleError(error.found, file=error.file, where=error.where, way_out=error.way_out) from None
    content = {key: value for key, value in manifest.items() if key not in FRAME}
    # A changed space alters the bytes but not the content, so the layout is compared too.
    layout = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    if manifest.get("sha256") != digest(content) or (folder / MANIFEST).read_bytes() != layout.encode():
        raise BundleError(
            "was changed after it was written (its hash differs).", file=folder / MANIFEST, way_out=WAY_OUT
        )
    return manifest


def read_file(folder: Path, name: str, manifest: dict[str, Any]) -> bytes:
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


def verified(folder: Path, name: str, manifest: dict[str, Any]) -> Path:
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


def _compare(path: Path, found: str, manifest: dict[str, Any]) -> None:
    """Raise BundleError unless the hash that was found is that of the manifest."""
    if found != manifest["files"].get(path.name):
        raise BundleError("was changed after it was written (its hash differs).", file=path, way_out=WAY_OUT)


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON of `value`, hexadecimal."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
