"""A simulated campaign on disk: the log and its campaign file as a team would have them, and the truth beside them.

    log.parquet      one row per user and day; `user_id` is text, a user's rows are contiguous and in order
    campaign.toml    what the log means, the limit, the horizon

and the truth, where the states are few

    truth.npz        transition [S, A, S], reward [S, A], cost [S, A, m], start [S], actions [A], discount
    states.parquet   row i = state i: the feature columns as in the log, with the same types

or of a city

    city.json        its options; `city_truth.py` makes the truth of them

A simulator gives what these hold; this file only writes them.

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

from outlay.core.files import new_folder, write_manifest
from outlay.simulators.simulator import Columns

USER_DIGITS = 7  # u0000017; more users get more digits


def write_campaign(
    out: Path,
    *,
    text: str,
    log: Iterable[Columns],
    truth: Callable[[Path], None],
    manifest: Mapping[str, Any],
) -> Path:
    """Write the folder, whole or not at all; an older folder of ours is replaced.

    Args:
        out: the folder.
        text: content of campaign.toml.
        log: chunks of rows, each a row group; the whole-number column `user` is written as the text `user_id`.
        truth: writes the truth into the folder that it is given.
        manifest: what the folder's manifest says besides format and version (campaign, seed, …).

    Returns:
        The path of campaign.toml.

    Raises:
        FolderError: if `out` holds something that outlay did not write.
    """
    with new_folder(out) as folder:
        (folder / "campaign.toml").write_text(text, encoding="utf-8")
        rows = _write_log(folder / "log.parquet", log)
        truth(folder)
        write_manifest(folder, "campaign", {**manifest, "rows": rows})
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
