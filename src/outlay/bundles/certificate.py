"""certificate.json beside the files of a bundle: what an evaluation found out about it.

    write_certificate(folder, estimates, certificate)      names the bundle by its hash; the bundle stays as it is
    judgement = read_certificate(folder, manifest)         None where nobody has evaluated it

It lies in the bundle's folder, so it goes wherever that is copied, and is no part of the bundle: neither its id nor its
hash depends on it. A certificate of another bundle is refused, and one that was changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from outlay.bundles.manifest import Manifest, digest, unseal
from outlay.core.errors import BundleError, FolderError
from outlay.core.estimate import Estimate
from outlay.core.files import FRAME, document_text, read_document, write_document

CERTIFICATE = "certificate.json"
KIND = "certificate"
WAY_OUT = "Evaluate the bundle again (outlay evaluate, or outlay frontier --out), copy it again, or remove the file."


@dataclass(frozen=True)
class Judgement:
    """What an evaluation said of a bundle.

    Attributes:
        estimates: of the mixture and of the old policy.
        certificate: its fields (`estimators/certificate.py`), as JSON has them.
    """

    estimates: tuple[Estimate, ...]
    certificate: Mapping[str, Any]


def write_certificate(folder: Path, estimates: Sequence[Estimate], certificate: Mapping[str, Any]) -> None:
    """Put a certificate beside the files of a bundle, in the place of an older one.

    Args:
        folder: of the bundle.
        estimates: of it and of the old policy.
        certificate: as JSON has it.

    Raises:
        BundleError: if the manifest of the bundle is missing or damaged.
    """
    content = {
        "bundle": unseal(folder).sha256,
        "estimates": [each.to_dict() for each in estimates],
        "certificate": certificate,
    }
    write_document(folder / CERTIFICATE, KIND, {**content, "sha256": digest(content)})


def read_certificate(folder: Path, manifest: Manifest) -> Judgement | None:
    """Return what was found out about a bundle; None if nothing was.

    Args:
        folder: of the bundle.
        manifest: its manifest.

    Raises:
        BundleError: if the certificate is of another bundle, damaged, changed, or of another format version.
    """
    path = folder / CERTIFICATE
    if not path.exists():
        return None
    try:
        found = read_document(path, KIND)
    except FolderError as error:
        raise BundleError(error.found, file=path, way_out=WAY_OUT) from None
    content = {key: value for key, value in found.items() if key not in FRAME}
    if found.get("sha256") != digest(content) or path.read_bytes() != document_text(found).encode():
        raise BundleError("was changed after it was written (its hash differs).", file=path, way_out=WAY_OUT)
    if found["bundle"] != manifest.sha256:
        raise BundleError(
            f"is the certificate of another bundle: of {found['bundle'][:16]}, and this one is {manifest.id}.",
            file=path,
            way_out=WAY_OUT,
        )
    return Judgement(TypeAdapter(tuple[Estimate, ...]).validate_python(found["estimates"]), found["certificate"])
