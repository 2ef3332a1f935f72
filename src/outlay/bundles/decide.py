"""From rows to decisions.

    action = argmax_a wᵀQ(s, a)   over the allowed actions: eligible, and  log π_B(a|s) ≥ log threshold + max log π_B
    member = the one that `user:episode` draws, kept for the whole episode

Every row is decided alone: the table it stands in changes nothing (but the last bits of Q, which a tie may turn on).
Graphs run in sessions of onnxruntime, in chunks of bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outlay.bundles.certificate import Judgement
from outlay.bundles.manifest import Manifest
from outlay.bundles.rows import eligible_actions, record_batches, users_of
from outlay.core.actions import ActionNames
from outlay.core.campaign import Campaign
from outlay.core.files import MANIFEST
from outlay.core.history import History
from outlay.core.schema import Schema, user_text
from outlay.core.shown import Shown
from outlay.core.wording import counted
from outlay.ops.hashing import rendezvous

CELLS = 1 << 20  # codes and numbers a session sees at a time, so that wide rows do not fill the memory
CHUNK_ROWS = 1_024  # and at most so many rows, so that activations stay near the processor
UNKNOWN, UNSEEN = b"unknown", b"unseen"  # keys in the metadata of a result


@dataclass(frozen=True)
class Member:
    """A policy of the mixture, ready to run.

    Attributes:
        session: an `onnxruntime.InferenceSession`.
        weight: α.
        salt: of the draw.
        head_weights: `[H]` w.
        policy: which of the L policies that the graph answers for.
        file: of the graph, for errors.
        network: which of the graph's networks it is of, where log π_B `[N, K, networks]` comes from several.
        held: numbers that the graph holds for a row, where they are many more than it takes.
    """

    session: Any
    weight: float
    salt: str
    head_weights: NDArray[np.float64]
    policy: int = 0
    file: Path | None = None
    network: int = 0
    held: int = 0

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """What the graph takes: codes, numbers, or both."""
        return tuple(given.name for given in self.session.get_inputs())

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What the graph gives, with the shape of one row: q, features, and imitation where there is such a head."""
        return {output.name: tuple(output.shape[1:]) for output in self.session.get_outputs()}

    def run(
        self, outputs: Sequence[str], codes: NDArray[np.int32], numbers: NDArray[np.float32]
    ) -> list[NDArray[np.float32]]:
        """Some outputs for N rows.

        Args:
            outputs: names out of `shapes`.
            codes: `[N, F]`, F may be 0.
            numbers: `[N, n]`, n may be 0.

        Returns:
            `[N, …]` for each output.
        """
        rows = len(codes)
        feed: dict[str, NDArray[Any]] = {"codes": codes, "numbers": numbers}
        chunk = max(1, min(CHUNK_ROWS, CELLS // (codes.shape[1] + numbers.shape[1] + self.held)))
        if 0 < rows <= chunk:
            return list(self.session.run(outputs, {name: feed[name] for name in self.inputs}))
        results = [np.empty((rows, *self.shapes[name]), np.float32) for name in outputs]
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            found = self.session.run(outputs, {name: feed[name][part] for name in self.inputs})
            for result, values in zip(results, found, strict=True):
                result[part] = values
        return results

    def own(self, q: NDArray[np.float32]) -> NDArray[np.float32]:
        """The part `[N, K, H]` of what the graph gives, `[N, K, L·H]`, that is this member's."""
        heads = len(self.head_weights)
        return q[:, :, self.policy * heads : (self.policy + 1) * heads]

    def choose(
        self,
        codes: NDArray[np.int32],
        numbers: NDArray[np.float32],
        eligible: NDArray[np.bool_] | None,
        threshold: float,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The action of each row: the largest wᵀQ among those allowed, the lower one of equals.

        Args:
            codes: `[N, F]`.
            numbers: `[N, n]`.
            eligible: `[N, K]`, at least one per row; None allows all.
            threshold: actions with π_B below this share of the largest among the eligible are left out; 0 keeps all.

        Returns:
            `[N]` action indices and `[N, K]` wᵀQ.
        """
        return self.pick(self.answer(codes, numbers, threshold), eligible, threshold)

    def answer(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float32], threshold: float, *further: str
    ) -> list[NDArray[np.float32]]:
        """The part of `choose` that is the same for members with one network: Q, and log π_B if a threshold asks.

        `further` outputs come last.
        """
        return self.run([*self._asked(threshold), *further], codes, numbers)

    def room(self, rows: int, threshold: float) -> list[NDArray[np.float32]]:
        """Empty arrays for `answer` in so many rows; none where the graph answers for several policies."""
        several = self.shapes["q"][1] > len(self.head_weights)
        return [] if several else [np.empty((rows, *self.shapes[name]), np.float32) for name in self._asked(threshold)]

    def _asked(self, threshold: float) -> list[str]:
        return ["q", "imitation"] if threshold > 0 and "imitation" in self.shapes else ["q"]

    def pick(
        self, answer: list[NDArray[np.float32]], eligible: NDArray[np.bool_] | None, threshold: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The part of `choose` that is this member's own."""
        own = self.own(answer[0])  # a product of matrices this thin would take four times as long
        value: NDArray[np.float64] = sum(own[:, :, h] * weight for h, weight in enumerate(self.head_weights))
        if eligible is None and len(answer) == 1:
            return value.argmax(1), value
        allowed = np.ones(value.shape, np.bool_) if eligible is None else eligible
        if len(answer) > 1:
            imitation = answer[1] if answer[1].ndim == 2 else answer[1][:, :, self.network]
            log_prob = np.where(allowed, imitation, -np.inf)
            allowed = log_prob >= np.log(threshold) + log_prob.max(1, keepdims=True)
        return np.where(allowed, value, -np.inf).argmax(1), value


@dataclass(frozen=True, repr=False)
class Bundle(Shown):
    """A verified bundle. k members, K actions, H heads.

    Attributes:
        folder: where it lies.
        manifest: what it says of itself.
        schema: how features are encoded.
        members: the mixture.
        capped: the mixture that is served where a cap holds the money budget; empty: the same.
        judgement: what an evaluation said of it, if there was one.
    """

    folder: Path
    manifest: Manifest
    schema: Schema
    members: tuple[Member, ...]
    judgement: Judgement | None = None
    capped: tuple[Member, ...] = ()

    def headline(self) -> str:
        """Where it lies, and what it holds."""
        return f"{self.folder}, {counted(len(self.members), 'member')}, {len(self.actions)} actions, id {self.id[:12]}."

    @property
    def id(self) -> str:
        """Names what is served: a hash of the content."""
        return self.manifest.id

    @cached_property
    def actions(self) -> NDArray[np.float64]:
        """`[K]` the values given, ascending."""
        return np.array(self.manifest.actions, np.float64)

    @cached_property
    def names(self) -> ActionNames:
        """What actions are called."""
        return self.campaign.names

    def called(self, action: NDArray[np.integer[Any]]) -> dict[str, Any]:
        """The columns that say which actions were chosen `[N]`: as the log calls them, and their amounts."""
        return {
            name: pa.array(column).take(pa.array(action))
            for name, column in self.names.columns(self.actions.tolist()).items()
        }

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """`[k]` α."""
        return np.array([member.weight for member in self.members])

    @property
    def threshold(self) -> float:
        """The threshold of π_B below which actions are left out; 0 if there is none."""
        return self.manifest.imitation_threshold or 0.0

    @cached_property
    def campaign(self) -> Campaign:
        """The campaign file as it was when the policy was trained, without its log."""
        content = self.manifest.campaign
        return Campaign.parse({**content, "log": {**content["log"], "source": "unknown"}}, self.folder / MANIFEST)

    @cached_property
    def history(self) -> History | None:
        """The summaries of each user's past days among its features; None where there are none."""
        return History.of(self.campaign)

    def decide(self, table: Any, *, episode: str | None = None, members: bool = False) -> Any:
        """Decide for every row of a table.

        Args:
            table: anything that speaks Arrow's PyCapsule interface (pyarrow, polars, pandas, a DuckDB relation), with
                the feature columns, those of `history` among them; the user column (named as in the campaign, or
                `user`) keeps a user's member the same, and without one every row is its own unit, drawn by its
                position.
            episode: a new one draws the members anew; default: the campaign's name.
            members: what every member would do, instead of the one that is drawn.

        Returns:
            A pyarrow Table with `row` (from 0), `user` (where known), `action` (the value given), `action_index`,
            `member`, `probability` (the weights of all members that agree); with `members`, a line per row and member:
            `row`, `member`, `weight`, `action`, `action_index`, `q` (list: wᵀQ of each action). How many values the
            vocabulary does not know, and how many rows are in a state that the log never showed, is in the schema's
            metadata; `unknown_values` and `unseen_rows` read it.

        Raises:
            LogError: if a column is missing, a user is null, or `eligible` allows nothing or an unknown value.
        """
        schema, batches = record_batches(table)
        parts, row = [], 0
        for batch in batches:
            parts.append(self.decide_batch(batch, first_row=row, episode=episode, members=members))
            row += batch.num_rows
        if not parts:
            parts = [self.decide_batch(schema.empty_table(), episode=episode, members=members)]
        counts = _counts(sum(map(unknown_values, parts)), sum(map(unseen_rows, parts)))
        return pa.concat_tables([part.replace_schema_metadata() for part in parts]).replace_schema_metadata(counts)

    def decide_batch(
        self,
        batch: Any,
        *,
        first_row: int = 0,
        episode: str | None = None,
        members: bool = False,
        file: str | Path | None = None,
    ) -> Any:
        """`decide` for one pyarrow RecordBatch or small Table, whose first row is row `first_row` of `file`."""
        encoded = self.schema.encode(batch, file=file)
        name = self.manifest.eligible
        eligible = (
            None
            if name is None
            else eligible_actions(batch, name, self.actions, self.names, first_row=first_row, file=file)
        )
        chosen, values = zip(*self.choices(encoded.codes, encoded.numbers, eligible), strict=True)
        actions = np.stack(chosen, axis=1)
        rows = np.arange(first_row, first_row + batch.num_rows)
        if members:
            columns = self._all_members(rows, actions, np.stack(values, axis=1))
        else:
            users = users_of(batch, self.manifest.user, first_row=first_row, file=file)
            columns = self._drawn_member(rows, actions, users, episode)
        unseen = self.unseen(encoded.codes, encoded.numbers)
        return pa.table(columns).replace_schema_metadata(_counts(encoded.unknown, int(unseen.sum())))

    def choices(
        self,
        codes: NDArray[np.int32],
        numbers: NDArray[np.float32],
        eligible: NDArray[np.bool_] | None = None,
        known: Mapping[Any, list[NDArray[np.float32]]] | None = None,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """`[N]` actions and `[N, K]` wᵀQ of one member after the other; a network that neighbours share is run once.

        Args:
            codes: `[N, F]`.
            numbers: `[N, n]`.
            eligible: `[N, K]`, at least one per row; None allows all.
            known: by session, `Member.answer` in these rows; those networks are not run.
        """
        for _, alike in groupby(self.members, key=lambda member: member.session):
            first, *others = alike
            answer = (known or {}).get(first.session) or first.answer(codes, numbers, self.threshold)
            for member in (first, *others):
                yield member.pick(answer, eligible, self.threshold)

    def choices_and_features(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float32], eligible: NDArray[np.bool_] | None
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.float32], list[NDArray[np.float32]]]:
        """The actions of members that share one network, its `features` and its `Member.answer`, by one run of it."""
        *answer, features = self.members[0].answer(codes, numbers, self.threshold, "features")
        return [member.pick(answer, eligible, self.threshold)[0] for member in self.members], features, answer

    def member_actions(
        self,
        member: int,
        codes: NDArray[np.int32],
        numbers: NDArray[np.float32],
        eligible: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """`[N]` actions of one member; arguments as for `choices`."""
        return self.members[member].choose(codes, numbers, eligible, self.threshold)[0]

    def features(self, member: int, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> NDArray[np.float32]:
        """`[N, d]` what one member's networks make of the state, whatever the action."""
        return self.members[member].run(["features"], codes, numbers)[0]

    def unseen(self, codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> NDArray[np.bool_]:
        """`[N]` whether a row is in a state that the log never showed, for members that are tables of states.

        They give such a row the action that is best on average over the states of the log.
        """
        result = np.zeros(len(codes), np.bool_)
        for member in self._tables:
            result |= member.run(["unseen"], codes, numbers)[0] > 0
        return result

    @cached_property
    def _tables(self) -> list[Member]:
        """One member of each session that looks states up in a table."""
        tables = {member.session: member for member in self.members if "unseen" in member.shapes}
        return list(tables.values())

    def _drawn_member(
        self, rows: NDArray[np.int64], actions: NDArray[np.int64], users: Any, episode: str | None
    ) -> dict[str, Any]:
        names = pa.array(rows).cast(pa.string()) if users is None else user_text(users)
        suffix = self.manifest.episode if episode is None else episode
        units = pc.binary_join_element_wise(names, suffix, ":").cast(pa.binary())
        drawn = rendezvous([m.salt for m in self.members], self.weights, units.to_pylist())
        action = actions[np.arange(len(rows)), drawn]
        return {
            "row": rows,
            **({} if users is None else {"user": users}),
            **self.called(action),
            "action_index": action,
            "member": drawn,
            "probability": (actions == action[:, None]) @ self.weights,
        }

    def _all_members(
        self, rows: NDArray[np.int64], actions: NDArray[np.int64], values: NDArray[np.float64]
    ) -> dict[str, Any]:
        count, k = actions.shape
        ends = np.arange(0, values.size + 1, len(self.actions), dtype=np.int32)
        return {
            "row": np.repeat(rows, k),
            "member": np.tile(np.arange(k), count),
            "weight": np.tile(self.weights, count),
            **self.called(actions.ravel()),
            "action_index": actions.ravel(),
            "q": pa.ListArray.from_arrays(pa.array(ends), pa.array(values.ravel())),
        }


def unknown_values(decisions: Any) -> int:
    """How many values the vocabulary did not know, of a table that `decide` returned."""
    return int(decisions.schema.metadata[UNKNOWN])


def unseen_rows(decisions: Any) -> int:
    """How many rows were in a state that the log never showed, of a table that `decide` returned."""
    return int(decisions.schema.metadata[UNSEEN])


def _counts(unknown: int, unseen: int) -> dict[bytes, str]:
    """The metadata of a result."""
    return {UNKNOWN: str(unknown), UNSEEN: str(unseen)}
