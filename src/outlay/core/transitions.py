"""Transitions: a campaign log encoded once, in memory-mapped columns, rows linked by an index.

    codes, numbers = data.features(rows)        # the states of some rows
    following = data.next_row[rows]             # −1: no next row in the log

A row ends in one of three ways: it has a next row; it is *terminal* (the story ended); or it is *truncated* (only our
window ended: no next row, not terminal), which says nothing about the future.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from outlay.core.actions import Given
from outlay.core.assignment import Assignment
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.files import as_path, map_array, read_manifest
from outlay.core.schema import Schema
from outlay.core.shown import Shown
from outlay.core.wording import number

LEARN, SELECT, CERTIFY, EVERYONE = 0, 1, 2, 3
SPLITS = ("learn", "select", "certify")
USERS = np.dtype([("first_row", "<i8"), ("start_row", "<i8"), ("window", "<i4"), ("split", "u1"), ("segment", "<i2")])
CODE_TYPES = ("uint8", "uint16", "uint32")
CODE_ROWS = 256  # whose codes are put in order at a time: so many fit in the processor's cache
NAMES = "users.parquet"  # user, first_time, and cluster where given: a row per user, in the order of users.npy
CLUSTERS = "clusters.npy"  # [U] number of each user's cluster, where the campaign file names one
NEEDED = {"rows", "columns", "code_columns", "actions", "segments", "campaign", "campaign_file", "steady", "data_hash"}
AGAIN = "Write it again with: outlay prepare CAMPAIGN --out DATA"


@dataclass(frozen=True)
class States:
    """The distinct states of a log, where they are few; row i is state i.

    Attributes:
        codes: `[S, F]` int32.
        numbers: `[S, 2·F']` float32.
        allowed: `[S, K]` bool, the actions allowed there (part of the state).
    """

    codes: NDArray[np.int32]
    numbers: NDArray[np.float32]
    allowed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True)
class ColumnAbout:
    """What the manifest says of a file of columns."""

    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class DataManifest:
    """What a DATA folder says of itself (manifest.json).

    Attributes:
        steady: whether every policy decides once per time unit for ever.
        data_hash: of its columns.
        rows: N.
        actions: `[K]` the values given, ascending.
        segments: their names.
        campaign: the content of the campaign file.
        campaign_file: where that lay.
        source: where the log lay.
        columns: file → what is in it.
        code_columns: file of codes → places of its fields.
        first_time: of a row of the log, a date or a number; as is `last_time`.
        users_per_split: name of a split → users; as is `rows_per_split`.
        clusters: that the users come in; None where every user is independent.
        assignment: what the log's actions go with; None where that was not tested (an older version).
        events: what was found of outcomes in a table of their own, with its `words`; empty without one.
        ripeness: of outcomes that come later, likewise.
        hashed: of fields with more values than have codes of their own, likewise.
    """

    steady: bool
    data_hash: str = ""
    rows: int = 0
    actions: tuple[float, ...] = ()
    segments: tuple[str, ...] = ()
    campaign: Mapping[str, Any] = field(default_factory=dict)
    campaign_file: str = ""
    source: str = ""
    columns: Mapping[str, ColumnAbout] = field(default_factory=dict)
    code_columns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    first_time: int | float | str = 0
    last_time: int | float | str = 0
    users_per_split: Mapping[str, int] = field(default_factory=dict)
    rows_per_split: Mapping[str, int] = field(default_factory=dict)
    clusters: int | None = None
    assignment: Assignment | None = None
    events: Mapping[str, Any] = field(default_factory=dict)
    ripeness: Mapping[str, Any] = field(default_factory=dict)
    hashed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def told(self) -> list[str]:
        """What a training should say of its log, in words without a full stop."""
        driven = "" if self.assignment is None else self.assignment.words
        return [words for words in (self.ripeness.get("words"), self.hashed.get("words"), driven) if words]

    @classmethod
    def read(cls, folder: Path) -> DataManifest:
        """Read it.

        Raises:
            FolderError: if it is missing, half-written, damaged or of another format version.
        """
        found = read_manifest(folder, "data", unfinished=AGAIN)
        if absent := NEEDED - set(found):
            raise FolderError(
                f"is damaged: its manifest lacks {', '.join(sorted(absent))}.", file=folder, way_out=AGAIN
            )
        try:
            return _MANIFEST.validate_python(found)
        except ValidationError as error:
            words = error.errors()[0]["msg"]
            raise FolderError(f"is damaged: its manifest is not one ({words}).", file=folder, way_out=AGAIN) from None


_MANIFEST = TypeAdapter(DataManifest)


@dataclass(frozen=True, repr=False, eq=False)  # told apart by identity
class Transitions(Shown):
    """A DATA folder, opened. N rows, K actions, m budgets, U users.

    Attributes:
        folder: where it lies.
        manifest: what it says of itself.
        campaign: the campaign file it was made from.
        schema: how features were encoded.
        actions: `[K]` the values given, ascending.
        segments: names of the segments; `users["segment"]` indexes them.
        action: `[N]` index into `actions`.
        outcome: `[N, 1+m]` float32: reward, then the costs as logged (no signs).
        next_row: `[N]` row of the same user's next row, −1 where there is none.
        gap: `[N]` whole time units to the next row; 0 where there is none.
        day: `[N]` time units since the user's first row.
        user: `[N]` index into `users`.
        users: `[U]` of dtype USERS: first row; start row (first or latest); window, the time units from the first row
            to the end of the log, both included; split; segment.
        forced: `[N]` bool: no choice in this row.
        terminal: `[N]` bool: the story ends after this row.
        propensity: `[N]` float32 probability of the logged action under the log's policy (1 in forced rows), or None.
        state: `[N]` index into `states`, or None where distinct states are many.
        states: the distinct states, or None.
        folds: K where the split is that of one of K folds; 1: as it was prepared.
        draw: `[U]` by which users fall into folds; None where there are none.
        cluster: `[U]` number of each user's cluster; None where every user is independent.
        further: rows `[B]` → numbers of further fields, which follow those of the columns; None: there are none.
    """

    folder: Path
    manifest: DataManifest
    campaign: Campaign
    schema: Schema
    actions: NDArray[np.float64]
    segments: tuple[str, ...]
    action: NDArray[Any]
    outcome: NDArray[np.float32]
    next_row: NDArray[Any]
    gap: NDArray[np.int32]
    day: NDArray[np.int32]
    user: NDArray[np.uint32]
    users: NDArray[Any]
    forced: NDArray[np.bool_]
    terminal: NDArray[np.bool_]
    propensity: NDArray[np.float32] | None
    state: NDArray[Any] | None
    states: States | None
    code_columns: tuple[tuple[tuple[int, ...], NDArray[Any]], ...]  # (positions in schema.categorical, [N, f])
    number_columns: NDArray[np.float32]
    eligible: NDArray[np.uint8] | None  # [N, ceil(K/8)] packed bits
    folds: int = 1
    draw: NDArray[np.float64] | None = None
    cluster: NDArray[np.int64] | None = None
    further: Callable[[NDArray[Any]], NDArray[np.float32]] | None = None

    def headline(self) -> str:
        """Where it lies, and how large it is."""
        size = f"{number(len(self))} rows of {number(len(self.users))} users, {self.num_actions} actions"
        return f"{self.folder}, {size}."

    def __len__(self) -> int:
        return len(self.action)

    @property
    def num_actions(self) -> int:
        """K."""
        return len(self.actions)

    def given(self, place: int) -> Given:
        """What people and files call one of the K actions."""
        return self.campaign.given(float(self.actions[place]))

    @property
    def called(self) -> list[Given]:
        """`[K]` the same of all of them."""
        return [self.given(place) for place in range(self.num_actions)]

    @property
    def steady(self) -> bool:
        """Whether every policy decides once per time unit for ever: then J_1 = 1/(1−γ) and needs no measuring."""
        return self.manifest.steady

    def features(self, rows: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """States of `rows`: codes `[B, F]` int32 and numbers `[B, 2·F']` float32."""
        return self.codes(rows, np.int32), self.numbers(rows)

    def codes(self, rows: NDArray[Any], kind: Any) -> NDArray[Any]:
        """The codes of `rows`, `[B, F]` of a type that holds them, as `code_type` does."""
        codes = np.empty((len(rows), len(self.schema.categorical)), kind)
        for positions, columns in self.code_columns:
            places = list(positions)
            for first in range(0, len(rows), CODE_ROWS):
                part = slice(first, first + CODE_ROWS)
                codes[part, places] = columns[rows[part]]
        return codes

    def numbers(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """The numbers of `rows`, `[B, 2·F']`."""
        numbers = self.number_columns[rows]
        return numbers if self.further is None else np.hstack([numbers, self.further(rows)])

    @property
    def code_type(self) -> Any:
        """The smallest type that holds every code."""
        return np.result_type(np.uint8, *(columns.dtype for _, columns in self.code_columns))

    def allowed(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """`[B, K]` the actions that could have been chosen in `rows` (all, where the log has no such column)."""
        if self.eligible is None:
            return np.ones((len(rows), self.num_actions), np.bool_)
        return np.unpackbits(self.eligible[rows], axis=1, count=self.num_actions).astype(np.bool_)

    @cached_property
    def allowed_everywhere(self) -> NDArray[np.bool_]:
        """`[K]` the actions that could have been chosen in every row that had a choice."""
        if self.eligible is None:
            return np.ones(self.num_actions, np.bool_)
        common = np.bitwise_and.reduce(self.eligible[~np.asarray(self.forced)], axis=0)
        return np.unpackbits(common, count=self.num_actions).astype(np.bool_)

    @cached_property
    def _row_split(self) -> NDArray[np.uint8]:
        return self.users["split"][self.user]

    def user_ids(self) -> Any:
        """`[U]` Arrow strings: what the log calls each user, in canonical text."""
        return self._names.column("user").combine_chunks()

    def drawn_by(self) -> Any:
        """`[U]` Arrow strings by which splits and folds are drawn: names of clusters, or of users without them."""
        return self.user_ids() if self.cluster is None else self._names.column("cluster").combine_chunks()

    def first_times(self) -> NDArray[np.int64]:
        """`[U]` time of each user's first row, in units of the log's `time` (dates: days since 1970-01-01)."""
        return np.asarray(self._names.column("first_time"), np.int64)

    @property
    def dates(self) -> bool:
        """Whether the log's times are dates."""
        return isinstance(self.manifest.first_time, str)

    @cached_property
    def _names(self) -> Any:
        path = self.folder / NAMES
        try:
            return pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise FolderError(f"cannot be read ({error}).", file=path, way_out=AGAIN) from None

    def rows_of(self, split: int) -> NDArray[np.int64]:
        """Rows of the users of one split (LEARN, SELECT or CERTIFY), or of EVERYONE, ascending."""
        return np.arange(len(self)) if split == EVERYONE else np.flatnonzero(self._row_split == split)

    def users_of(self, split: int) -> NDArray[np.int64]:
        """Users of one split, or EVERYONE, ascending."""
        return np.arange(len(self.users)) if split == EVERYONE else np.flatnonzero(self.users["split"] == split)

    def independent(self, split: int) -> int:
        """Return the number of clusters in one split, or EVERYONE; of users where every user is independent."""
        members = self.users_of(split)
        return len(members if self.cluster is None else np.unique(self.cluster[members]))

    def fold(self, number: int, of: int, draw: NDArray[np.float64]) -> Transitions:
        """The same log with the users split for one of several folds.

        The users of each fold, a share 1/K of all by hash, certify what others taught and chose: those next to them by
        hash select (as many as were prepared to, but no more than a fold), and the rest teach. So every user certifies
        in one fold, and selects in one fold at most.

        Args:
            number: k of the fold, from 0.
            of: K folds, 2 or more.
            draw: `[U]` of each user, uniform on [0, 1), the same for all of a cluster.
        """
        place = (draw - number / of) % 1.0
        select = 1 / of + min(self.campaign.train.shares[SELECT], 1 / of)
        split = np.where(place < 1 / of, CERTIFY, np.where(place < select, SELECT, LEARN))
        users = self.users.copy()
        users["split"] = split
        return replace(self, users=users, folds=of, draw=draw)

    def siblings(self) -> list[Transitions]:
        """All folds of the log, this one among them; itself where there are none."""
        draw = self.draw
        return [self] if draw is None else [self.fold(number, self.folds, draw) for number in range(self.folds)]

    def with_fields(self, names: Collection[str]) -> Transitions:
        """The same log with some of its categorical fields only; their codes are held in memory.

        Args:
            names: of the fields that are kept, in any order.
        """
        kept = [place for place, field in enumerate(self.schema.categorical) if field.name in names]
        place_of = {place: i for i, place in enumerate(kept)}
        columns = []
        for positions, codes in self.code_columns:
            if own := [i for i, place in enumerate(positions) if place in place_of]:
                columns.append((tuple(place_of[positions[i]] for i in own), codes[:, own]))
        schema = replace(self.schema, categorical=tuple(self.schema.categorical[place] for place in kept))
        return replace(self, schema=schema, code_columns=tuple(columns), state=None, states=None)

    @property
    def certifying(self) -> int:
        """The users that a certificate rests on: everyone, where folds take turns."""
        return EVERYONE if self.folds > 1 else CERTIFY

    @classmethod
    def open(cls, folder: str | Path) -> Transitions:
        """Open a DATA folder; columns stay on disk until they are read.

        Raises:
            FolderError: if it is missing, half-written, damaged or of another format version.
        """
        folder = as_path(folder, "data", "the path of a DATA folder")
        manifest = DataManifest.read(folder)
        column, needed = partial(_column, folder, manifest), partial(_needed, folder, manifest)
        rows = manifest.rows
        forced, terminal = column("forced"), column("terminal")
        try:
            schema = Schema.read(folder / "vocabulary.parquet")
            users = np.load(folder / "users.npy")
            cluster = np.load(folder / CLUSTERS) if manifest.clusters is not None else None
            states = None
            if "state" in manifest.columns:
                parts = (np.load(folder / f"state_{part}.npy") for part in ("codes", "numbers", "allowed"))
                states = States(*parts)
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise FolderError(f"is damaged ({error}).", file=folder, way_out=AGAIN) from None
        return cls(
            folder=folder,
            manifest=manifest,
            campaign=Campaign.parse(manifest.campaign, Path(manifest.campaign_file)),
            schema=schema,
            actions=np.asarray(manifest.actions, np.float64),
            segments=manifest.segments,
            action=needed("action"),
            outcome=needed("outcome"),
            next_row=needed("next_row"),
            gap=needed("gap"),
            day=needed("day"),
            user=needed("user"),
            users=users,
            cluster=cluster,
            forced=np.zeros(rows, np.bool_) if forced is None else forced,
            terminal=np.zeros(rows, np.bool_) if terminal is None else terminal,
            propensity=column("propensity"),
            state=column("state"),
            states=states,
            code_columns=tuple((places, needed(name)) for name, places in manifest.code_columns.items()),
            number_columns=needed("numbers"),
            eligible=column("eligible"),
        )


def _column(folder: Path, manifest: DataManifest, name: str) -> NDArray[Any] | None:
    """A file of columns, which stays on disk; None if the manifest names none.

    Raises:
        FolderError: if it cannot be read, or has another shape than the manifest says.
    """
    path = folder / "columns" / f"{name}.npy"
    if name not in manifest.columns:
        return None
    try:
        array = map_array(path, "r")
    except (OSError, ValueError, EOFError) as error:
        raise FolderError(f"cannot be read ({error}): the DATA folder is damaged.", file=path, way_out=AGAIN) from None
    if array.shape != (wanted := manifest.columns[name].shape):
        raise FolderError(f"has shape {list(array.shape)}; the manifest says {list(wanted)}.", file=path, way_out=AGAIN)
    return array


def _needed(folder: Path, manifest: DataManifest, name: str) -> NDArray[Any]:
    """A file of columns that every DATA folder has. Raises FolderError as `_column`, and if there is none."""
    array = _column(folder, manifest, name)
    if array is None:
        raise FolderError("a column is missing from the manifest.", file=folder, where=name, way_out=AGAIN)
    return array
