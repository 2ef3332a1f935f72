"""The vocabulary of a bundle, in memory once for all processes that serve it.

vocabulary.parquet is compressed, so every process that reads it has a copy of its own. `shared_schema` decodes it once
into an Arrow file in a folder of the launcher, which all workers map: a record batch for each categorical field, with
the values by code and their index (`core/text_index.py`). The bundle itself is never mapped: a folder that is
overwritten in place would pull the pages from under a running server.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from outlay.core.errors import FolderError
from outlay.core.files import new_file
from outlay.core.schema import Categorical, Numeric, Schema
from outlay.core.text_index import TextIndex

KEPT = 8  # vocabularies in the folder; a bundle that went out of use needs its file no longer
COLUMNS = pa.schema({"value": pa.string(), "hash": pa.uint32(), "place": pa.int32()})

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
            _write(path, schema)
        except (FolderError, OSError) as error:
            log.warning("the vocabulary is not shared with other workers: %s", error)
            return schema
        _remove_older(folder)
    return _map(path)


def _write(path: Path, schema: Schema) -> None:
    fields = [{"name": each.name, "buckets": each.buckets} for each in schema.categorical]
    numeric = [[each.name, each.mean, each.scale] for each in schema.numeric]
    facts = {"fields": json.dumps(fields), "numeric": json.dumps(numeric)}
    with (
        new_file(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, COLUMNS.with_metadata(facts)) as writer,
    ):
        for field in schema.categorical:
            index = TextIndex.of(field.values)
            writer.write_batch(pa.record_batch([field.values, index.hashes, index.places], COLUMNS))


def _map(path: Path) -> Schema:
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
        for old in sorted(folder.glob("*.arrow"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink()
