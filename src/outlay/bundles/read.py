"""Read a bundle: nothing comes back before every byte and the golden rows are checked."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.bundles.manifest import FRONTIER, GOLDEN, VOCABULARY, WAY_OUT, read_file, unseal, verified
from outlay.bundles.policy import Member
from outlay.bundles.vocabulary import shared_schema
from outlay.core.errors import BundleError
from outlay.core.schema import Schema

TOLERANCE = 1e-5  # of the size of a head's terms: single precision leaves some 1e-7 of it


def load_bundle(path: str | Path, *, threads: int = 1, shared: Path | None = None) -> Bundle:
    """Load, verify and warm up a bundle. Needs onnxruntime; neither onnx nor JAX.

    Args:
        path: the bundle's folder.
        threads: of each policy's session. 1 is fastest for single rows; scale servers by processes.
        shared: a folder, writable by this user alone, in which the decoded vocabulary lies once for all processes that
            are given it; None: the process has its own.

    Raises:
        BundleError: if a file is missing or has changed, the format version is not ours, a model reads past days as
            older versions did, or this machine's runtime computes other values than were written.
    """
    folder = Path(path)
    manifest = unseal(folder)
    if manifest.get("past_days"):
        raise BundleError(
            f"its response model (DIN) was trained by outlay {manifest['versions']['outlay']}, which told it past days "
            "in another way.",
            file=folder,
            way_out="Train it again.",
        )
    if manifest["campaign"]["train"].get("encoder", "none") != "none":
        raise BundleError(
            "its networks read past days through an encoder (train.encoder), which outlay no longer has.",
            file=folder,
            way_out="Train it again without train.encoder; networks read lags as numbers.",
        )
    vocabulary = read_file(folder, VOCABULARY, manifest)
    files = dict.fromkeys(entry["file"] for entry in manifest["members"])  # members may share a network
    sessions = {name: open_session(verified(folder, name, manifest), threads) for name in files}
    members = tuple(
        Member(
            sessions[m["file"]],
            m["weight"],
            m["salt"],
            np.array(m["head_weights"]),
            m["policy"],
            folder / m["file"],
            held=m.get("held", 0),
        )
        for m in manifest["members"]
    )
    if manifest.get("frontier"):
        verified(folder, FRONTIER, manifest)  # it is read when a policy outside the mixture is first needed
    schema = Schema.read(pa.BufferReader(vocabulary)) if shared is None else shared_schema(vocabulary, shared)
    pa.default_memory_pool().release_unused()  # what decoding took
    bundle = Bundle(folder, manifest, schema, members)
    _check_golden(bundle, read_file(folder, GOLDEN, manifest))
    return bundle


def open_session(graph: Path, threads: int = 1) -> Any:
    """An `onnxruntime.InferenceSession` of so many threads that do not spin.

    It reads the file itself: a session that is given its bytes keeps them, beside the tensors that it makes of them.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that spin while they wait cost a hundredfold in the tail and keep the cores from others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _check_golden(bundle: Bundle, content: bytes) -> None:
    with np.load(io.BytesIO(content)) as golden:
        rows = golden["codes"], golden["numbers"]
        different = {member.file: member for member in bundle.members}
        for i, member in enumerate(different.values()):
            (found,) = member.run(["q"], *rows)
            member.run(["q"], rows[0][:1], rows[1][:1])  # warms up the size that servers ask for
            check_values(found, golden, f"q_{i}", member.file)


def check_values(found: NDArray[np.float32], golden: Any, name: str, file: Path | None) -> None:
    """Whether this machine's runtime computes what was written, each head beside the size of its own terms.

    Args:
        found: `[N, K, L·H]` what it computes.
        golden: the file of golden rows.
        name: of what was written; `[L·H]` the sizes are beside it (older bundles: the largest values are taken).
        file: of the graph.

    Raises:
        BundleError: if not.
    """
    wanted = golden[name]
    size = golden.get(f"{name}_size", np.abs(wanted).max(axis=(0, 1)))
    gap = np.abs(found - wanted).max(axis=(0, 1))
    off = ~(gap <= TOLERANCE * size)
    if off.any():
        head = int(off.argmax())
        raise BundleError(
            f"this machine's runtime (onnxruntime {onnxruntime.__version__}) computes values that differ by "
            f"{gap[head]:.2g} from those written, which are sums of up to {size[head]:.2g}; at most {TOLERANCE:g} of "
            "that is allowed.",
            file=file,
            way_out=WAY_OUT,
        )
