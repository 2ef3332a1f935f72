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

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.errors import FolderError
from outlay.core.files import MANIFEST, check_replaceable, new_folder, read_manifest, sha256, write_manifest

Columns = Mapping[str, NDArray[np.generic]]

USER_DIGITS = 7  # u0000017; more users get more digits
WAY_OUT = "Give another --out, or remove the folder yourself."
TEMPLATE = """\
# A simulated coupon campaign whose truth is known ({truth}). Made by: outlay simulate {name}

[campaign]
name = "{name}"
unit = "yuan"             # of money, for words and axes
discount = {discount}            # per day: how much a day counts against the day before
horizon_days = {horizon_days}          # the days that a total per user spans
report_days = {report_days}   # windows of the tables{none}

[log]
source = "log.parquet"    # one row per user and day; relative to this file
user = "user_id"
time = "day"
action = "coupon"         # the value given, in yuan
actions = {actions}
reward = "{reward}"         # {about_reward}
propensity = "propensity" # probability with which the log gave that coupon: {propensity}{more}
segment = "{segment}"   # groups of the tables, by first row
contrast = {contrast}     # the two coupons that the effect table compares

[log.features]            # the state, known before the decision
categorical = {categorical}{numeric}   # {about_features}

[[budget]]
name = "coupon_cost"
cost = "cost"             # the coupon, paid only on active days
at_most = {at_most}             # yuan per decision; change it and train again
per = "decision"
reserve = "coupon"        # set aside when the coupon is given: it may be used
money = true

[labels]                  # what the report calls things, where their names say too little
reward = "{label}"
action = {{ label = "coupons", unit = "yuan" }}
budgets.coupon_cost = "coupon money"
"""
LINE = 110  # characters of a line of the feature list


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


@dataclass(frozen=True, kw_only=True)
class CampaignFile:
    """What a campaign.toml says.

    Attributes:
        name: of the campaign.
        discount: γ per day.
        horizon_days: span of a total per user, no longer than the log.
        report_days: windows of the tables, no longer than the log.
        none: the value that means no coupon, if there is one.
        actions: the values that a policy may choose.
        propensity: what the log's probabilities are, in words.
        more: further lines of `[log]`, each after a line break.
        reward: its column.
        about_reward: the reward in words.
        label: what it counts, in the plural.
        segment: column or SQL expression of the groups.
        contrast: two actions that the effect table compares.
        categorical: feature columns.
        numeric: feature columns.
        about_features: what they are, in words.
        at_most: the limit, in money per decision.
        truth: the files that hold the truth.
    """

    name: str
    discount: float
    horizon_days: int
    report_days: Sequence[int]
    none: float | None
    actions: Sequence[float]
    propensity: str
    more: str = ""
    reward: str = "active"
    about_reward: str = "1 if the user was active that day"
    label: str = "active days"
    segment: str
    contrast: Sequence[float]
    categorical: Sequence[str]
    numeric: Sequence[str] = ()
    about_features: str
    at_most: float
    truth: str

    def text(self) -> str:
        """Return the file."""
        of_toml = {
            "report_days": list(self.report_days),
            "none": ""
            if self.none is None
            else f"\nnone = {self.none}                # the value that means no coupon",
            "actions": list(self.actions),
            "contrast": list(self.contrast),
            "categorical": _list(self.categorical),
            "numeric": f"\nnumeric = {_list(self.numeric)}" if self.numeric else "",
        }
        return TEMPLATE.format(**vars(self) | of_toml)


def _list(names: Sequence[str]) -> str:
    """A TOML array of texts, on several lines where one would be too long."""
    array = ", ".join(f'"{name}"' for name in names)
    return f"[{array}]" if len(array) <= LINE else f"[\n{textwrap.fill(array, LINE)}\n]"
