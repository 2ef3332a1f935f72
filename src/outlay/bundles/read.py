"""Read a bundle: nothing comes back before every byte and the golden rows are checked.

Its vocabulary is compressed, so every process that reads it has a copy of its own. `shared_schema` decodes it once into
an Arrow file in a folder of the launcher, which all workers map: a record batch for each categorical field, with the
values by code and their index (`core/text_index.py`). The bundle itself is never mapped: a folder that is overwritten
in place would pull the pages from under a running server.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
from numpy.typing import NDArray

from outlay.bundles.certificate import read_certificate
from outlay.bundles.decide import Bundle, Member
from outlay.bundles.manifest import FRONTIER, GOLDEN, VOCABULARY, WAY_OUT, read_file, unseal, verified
from outlay.core.errors import BundleError, FolderError
from outlay.core.files import as_path, new_file
from outlay.core.schema import Categorical, Numeric, Schema
from outlay.core.text_index import TextIndex

KEPT_VOCABULARIES = 8  # vocabularies in the folder; a bundle that went out of use needs its file no longer
VOCABULARY_COLUMNS = pa.schema({"value": pa.string(), "hash": pa.uint32(), "place": pa.int32()})
TOLERANCE = 1e-5  # of the size of a head's terms: single precision leaves some 1e-7 of it

log = logging.getLogger("outlay.serve")


def shared_schema(vocabulary: bytes, folder: Path) -> Schema:
    """Return a bundle's schema, whose values are mapped from a file that all processes share.

    Args:
        vocabulary: content of vocabulary.parquet, verified.
        folder: of files that processes share; it must be writable by this user alone. Where it cannot be written, the
            values are this process's own.
    """
    path = folder / f"{hashlib.sha256(vocabulary).hexdigest()}.arrow"
    if not path.exists():
        schema = Schema.read(pa.BufferReader(vocabulary))
        try:
            _write_values(path, schema)
        except (FolderError, OSError) as error:
            log.warning("the vocabulary is not shared with other workers: %s", error)
            return schema
        _remove_older(folder)
    return _mapped(path)


def _write_values(path: Path, schema: Schema) -> None:
    fields = [{"name": each.name, "buckets": each.buckets} for each in schema.categorical]
    numeric = [[each.name, each.mean, each.scale] for each in schema.numeric]
    facts = {"fields": json.dumps(fields), "numeric": json.dumps(numeric)}
    with (
        new_file(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, VOCABULARY_COLUMNS.with_metadata(facts)) as writer,
    ):
        for field in schema.categorical:
            index = TextIndex.of(field.values)
            writer.write_batch(pa.record_batch([field.values, index.hashes, index.places], VOCABULARY_COLUMNS))


def _mapped(path: Path) -> Schema:
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    facts = reader.schema.metadata
    categorical = []
    for i, field in enumerate(json.loads(facts[b"fields"])):
        values, hashes, places = reader.get_batch(i).columns
        index = TextIndex(values, hashes.to_numpy(), places.to_numpy())
        categorical.append(Categorical(field["name"], values, field["buckets"], index))
    return Schema(tuple(categorical), tuple(Numeric(*each) for each in json.loads(facts[b"numeric"])))


def _remove_older(folder: Path) -> None:
    """Remove all but the newest files; processes that have mapped one keep it."""
    with suppress(OSError):  # another worker removes them as well
        for old in sorted(folder.glob("*.arrow"), key=lambda file: file.stat().st_mtime)[:-KEPT_VOCABULARIES]:
            old.unlink()


def load_bundle(path: str | Path, *, threads: int = 1, shared: Path | None = None) -> Bundle:
    """Load, verify and warm up a bundle. Needs onnxruntime; neither onnx nor JAX.

    Args:
        path: the bundle's folder.
        threads: of each policy's session. 1 is fastest for single rows; scale servers by processes.
        shared: a folder, writable by this user alone, in which the decoded vocabulary lies once for all processes that
            are given it; None: the process has its own.

    Raises:
        BundleError: if a file is missing or has changed, the format version is not ours, its certificate is that of
            another bundle, or this machine's runtime computes other values than were written.
    """
    folder = as_path(path, "path", "the path of a bundle's folder")
    manifest = unseal(folder)
    vocabulary = read_file(folder, VOCABULARY, manifest)
    mixtures = manifest.members, manifest.capped
    files = dict.fromkeys(str(entry.file) for mixture in mixtures for entry in mixture)  # they may share a network
    sessions = {name: open_session(verified(folder, name, manifest), threads) for name in files}
    members, capped = (
        tuple(
            Member(
                sessions[str(m.file)],
                m.weight,
                m.salt,
                np.array(m.head_weights),
                m.policy,
                folder / str(m.file),
                held=m.held,
            )
            for m in mixture
        )
        for mixture in mixtures
    )
    if manifest.frontier is not None:
        verified(folder, FRONTIER, manifest)  # it is read when a policy outside the mixture is first needed
    schema = Schema.read(pa.BufferReader(vocabulary)) if shared is None else shared_schema(vocabulary, shared)
    pa.default_memory_pool().release_unused()  # what decoding took
    bundle = Bundle(folder, manifest, schema, members, read_certificate(folder, manifest), capped)
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
        name: of what was written; `[L·H]` the sizes are beside it.
        file: of the graph.

    Raises:
        BundleError: if not.
    """
    wanted = golden[name]
    size = golden[f"{name}_size"]
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
