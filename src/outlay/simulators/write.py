"""A simulated campaign on disk: the log and its campaign file as a team would have them, and the truth beside them.

    log.parquet      one row per user and day; `user_id` is text, a user's rows are contiguous and in order
    campaign.toml    what the log means, the limit, the horizon

and the truth, where the states are few

    truth.npz        transition [S, A, S], reward [S, A], cost [S, A, m], start [S], actions [A], discount
    states.parquet   row i = state i: the feature columns as in the log, with the same types

or of a city

    city.json        its options; `city_truth.py` makes the truth of them
    wide.json        with fields instead of its features: how many fields and values

A simulator gives what these hold; this file only writes them. The manifest lists them with their hashes, so that a
later simulation into the same folder does not delete what somebody else put there.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST, check_replaceable, new_folder, read_manifest, sha256, write_manifest
from outlay.simulators.simulator import Columns

USER_DIGITS = 7  # u0000017; more users get more digits
WAY_OUT = "Give another --out, or remove the folder yourself."


def check_unchanged(out: Path) -> None:
    """Check that a campaign can be written to `out` without the loss of anything that `outlay simulate` did not write.

    Args:
        out: the folder; it may be absent or empty.

    Raises:
        FolderError: if it is a folder of another kind, if it holds a file that a simulation did not write, or if one of
            the files was changed since.
    """
    check_replaceable(out, "campaign")
    if not out.is_dir() or not any(out.iterdir()):
        return
    written = read_manifest(out, "campaign").get("files", {})
    for path in sorted(out.iterdir()):
        if path.name == MANIFEST:
            continue
        if path.name not in written:
            raise FolderError(
                f"is not among the files that the folder's {MANIFEST} lists, so the folder is not replaced.",
                file=path,
                way_out=WAY_OUT,
            )
        if path.is_dir() or sha256(path) != written[path.name]:
            raise FolderError(
                "was changed after outlay simulate wrote it, so the folder is not replaced.", file=path, way_out=WAY_OUT
            )


def write_campaign(
    out: Path,
    *,
    text: str,
    log: Iterable[Columns],
    truth: Callable[[Path], None],
    manifest: Mapping[str, Any],
) -> Path:
    """Write the folder, whole or not at all; an older campaign that nobody has changed is replaced.

    Args:
        out: the folder.
        text: content of campaign.toml.
        log: chunks of rows, each a row group; the whole-number column `user` is written as the text `user_id`.
        truth: writes the truth into the folder that it is given.
        manifest: what the folder's manifest says besides format and version (campaign, seed, …).

    Returns:
        The path of campaign.toml.

    Raises:
        FolderError: if `out` holds something that `outlay simulate` did not write (`check_unchanged`).
    """
    check_unchanged(out)
    with new_folder(out) as folder:
        (folder / "campaign.toml").write_text(text, encoding="utf-8")
        rows = _write_log(folder / "log.parquet", log)
        truth(folder)
        files = {path.name: sha256(path) for path in sorted(folder.iterdir())}
        write_manifest(folder, "campaign", {**manifest, "rows": rows, "files": files})
    return out / "campaign.toml"


def _write_log(path: Path, log: Iterable[Columns]) -> int:
    """Write the chunks one by one, so that memory does not grow with the log; the number of rows."""
    writer: pq.ParquetWriter | None = None
    rows = 0
    try:
        for chunk in log:
            table = _table(chunk)
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
            rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows


def _table(chunk: Columns) -> pa.Table:
    """One chunk with `user_id` first, made once a user and repeated, since making text is the slow part."""
    users, position = np.unique(chunk["user"], return_inverse=True)
    digits = pc.utf8_lpad(pc.cast(pa.array(users), pa.string()), width=USER_DIGITS, padding="0")
    names = pc.binary_join_element_wise(pa.scalar("u"), digits, "")
    others = {name: column for name, column in chunk.items() if name != "user"}
    return pa.table({"user_id": pc.take(names, pa.array(position)), **others})
