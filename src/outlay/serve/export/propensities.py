"""Propensities of an export's new decisions, each given the user's earlier decisions in the episode.

DuckDB sorts the rows by episode and user, on disk if there are many. They are processed in blocks of whole users. The
product of these propensities over an episode is the probability of its path:

    p_t = Σ_c w_c Π_{s ≤ t} p_c(a_s)  /  Σ_c w_c Π_{s < t} p_c(a_s) f_c(t)

A component c is what may have been drawn for the user in this episode: a member of the mixture (w is its weight times
the share outside the random slice; p_c is 1 or 0), or the slice (w is its share; p_c = 1 / number of allowed actions).
f_c is the probability that the money guards allow the action of c; it is 1 without limits. A decision that the guards
refused is not a choice, but it is evidence about the component: its factor is 1 − f_c. All other decisions without a
choice have the factor 1. (An arm may have its own cap; the other arm is assumed to have had the same room.)

Weights may change within an episode: when another bundle goes into service, and when pacing moves the mixture to
another place of the budget curve. The draws before and after are dependent: rendezvous hashing keeps most users with
their member (`draw_law`). The share of the slice may change too; the user's uniform number does not, so the components
are the intervals between the shares.

Source: the path probability of a sticky mixture, Σ_k α_k Π_t π_k(a_t | s_t); the rest is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.actions import named
from outlay.core.progress import Counter
from outlay.logs.reading import literal
from outlay.logs.source import Source
from outlay.serve.ledger.ledger import LedgerError

SAMPLES = 17  # log₂ of the number of points for the law of changed weights; its error is about 0.0001
ROWS, CELLS = 50_000, 4_000_000  # of a block: rows, and rows × cases; a block is extended to the end of its last user
PROPENSITIES = pa.schema(
    [("decision_id", pa.string()), ("propensity", pa.float64()), ("marginal", pa.float64())]
)  # of decisions with a draw
STEP = (
    'decision_id, "user", bundle, action, given, refused, members, member_actions, member_weights, member_fits, '
    "random, random_of, random_fits"
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
Salts = Callable[[str], tuple[str, ...]]  # bundle → salts of its pool


@dataclass(frozen=True)
class Phase:
    """The weights in force for a part of an episode.

    Attributes:
        salts: salts of the k members that may be drawn.
        weights: weight of each member; they sum to 1.
    """

    salts: tuple[str, ...]
    weights: tuple[float, ...]


class Law(NamedTuple):
    """The joint distribution of the members drawn in P phases that share members: C cases.

    Attributes:
        places: `[C, P]` position of the drawn member among each phase's members.
        weights: `[C]` probability of each case.
    """

    places: Integers
    weights: Floats


Laws = list[tuple[Integers, Law]]  # phases that share members, and the law of their draws


@dataclass(frozen=True)
class Steps:
    """Decisions of one episode, sorted by user and time. n rows, at most k members.

    Attributes:
        user: `[n]` number of the user.
        phase: `[n]` number of the phase.
        given: `[n]` whether there was a draw and its action was given.
        refused: `[n]` whether there was a draw and the money guards refused its action; false if unknown.
        same: `[n, k]` whether the member has the same action.
        fits: `[n, k]` whether the guards would have allowed the member's action.
        share: `[n]` share of the random slice.
        allowed: `[n]` number of actions from which the slice draws.
        fitting: `[n]` how many of those the guards would have allowed.
    """

    user: Integers
    phase: Integers
    given: Flags
    refused: Flags
    same: Flags
    fits: Flags
    share: Floats
    allowed: Integers
    fitting: Integers

    def first(self) -> Flags:
        """Return `[n]` whether a row is its user's first."""
        return np.append(True, self.user[1:] != self.user[:-1])[: len(self.user)]


class PathProbabilities(NamedTuple):
    """The probabilities of n decisions.

    Attributes:
        propensity: `[n]` given the user's earlier rows; 1 without a choice, 0 if the row contradicts its own draw.
        marginal: `[n]` of the row alone.
        restarted: `[n]` whether the row contradicts the earlier ones, so that its user's history restarts here.
    """

    propensity: Floats
    marginal: Floats
    restarted: Flags


def path_probabilities(steps: Steps, laws: Laws) -> PathProbabilities:
    """Compute the probabilities of all decisions of some users in one episode; `laws` are those of `laws_of`.

    A history that contradicts its own draws (e.g. since the slice's salt was changed) restarts at the contradiction.
    """
    begins = steps.first()
    alone = _path(steps, laws, np.ones_like(begins))
    marginal = np.where(steps.given, alone, 1.0)
    restarted = np.zeros_like(begins)
    while True:
        propensity = np.where(steps.given, _path(steps, laws, begins), 1.0)
        broken = steps.given & (propensity == 0) & (marginal > 0) & ~begins
        if not broken.any():
            return PathProbabilities(propensity, marginal, restarted)
        places = np.flatnonzero(broken)
        _, first = np.unique(steps.user[places], return_index=True)
        restarted[places[first]] = begins[places[first]] = True


def laws_of(phases: Sequence[Phase]) -> Laws:
    """Group phases that share members, directly or through others; the draws of different groups are independent.

    Returns:
        For each group, its phases in the order of the law's columns, and the law of their draws.
    """
    groups: list[tuple[set[str], list[int]]] = []
    for number, phase in enumerate(phases):
        salts, members = set(phase.salts), [number]
        for other in [group for group in groups if group[0] & salts]:
            groups.remove(other)
            salts |= other[0]
            members += other[1]
        groups.append((salts, sorted(members)))
    return [(np.array(members), draw_law([phases[i] for i in members])) for _, members in groups]


def draw_law(phases: Sequence[Phase]) -> Law:
    """Compute the law of a user's draws in several phases: argmin_k E_k / α_k, with the same E_k ~ Exp(1) in all.

    The law of one phase is exact; that of several comes from 2¹⁷ quasi-random points. It is deterministic.

    Source: `ops/hashing.rendezvous`; Sobol's points (1967), scrambled as by Owen (1998).
    """
    if len(set(phases)) == 1:
        places = np.tile(np.arange(len(phases[0].salts))[:, None], (1, len(phases)))
        return Law(places, np.array(phases[0].weights) / sum(phases[0].weights))
    from scipy.stats import qmc  # importing it takes half a second

    salts = sorted({salt for phase in phases for salt in phase.salts})
    scores = -np.log1p(-qmc.Sobol(len(salts), seed=0).random_base2(SAMPLES))
    drawn = np.stack(
        [
            np.argmin(scores[:, [salts.index(salt) for salt in phase.salts]] / np.array(phase.weights), axis=1)
            for phase in phases
        ],
        axis=1,
    )
    places, count = np.unique(drawn, axis=0, return_counts=True)
    return Law(places, count / count.sum())


def _path(steps: Steps, laws: Laws, begins: Flags) -> Floats:
    """Return `[n]` p_t of each row; histories start where `begins` is true."""
    with np.errstate(divide="ignore"):  # the logarithm of what is impossible is −∞
        before, after = _logs(steps, laws, begins)
    possible = np.isfinite(after) & np.isfinite(before)
    path = np.zeros(len(after))
    path[possible] = np.minimum(np.exp(after[possible] - before[possible]), 1.0)
    return path


def _logs(steps: Steps, laws: Laws, begins: Flags) -> tuple[Floats, Floats]:
    """Return the logarithms of Σ_c over the earlier rows: with f_c of the row itself, and with its p_c."""
    bounds = np.unique(np.concatenate([[0.0, 1.0], steps.share]))
    before = after = np.full(len(begins), -np.inf)
    for low, high in pairwise(bounds.tolist()):
        in_slice = steps.share > low
        past, fits, now = _slice_logs(steps, in_slice, begins)
        lower, upper = past + fits, past + now
        for phases, law in laws:
            fits, now = _member_logs(steps, ~in_slice, phases, law, begins)
            lower, upper = lower + fits, upper + now
        before = np.logaddexp(before, np.log(high - low) + lower)
        after = np.logaddexp(after, np.log(high - low) + upper)
    return before, after


def _slice_logs(steps: Steps, in_slice: Flags, begins: Flags) -> tuple[Floats, Floats, Floats]:
    """Return the logarithms of the slice's path before each row, of f, and of p; the latter are 0 outside the slice."""
    fits = np.log(steps.fitting / steps.allowed)
    refused = np.log(1 - steps.fitting / steps.allowed)
    now = np.where(steps.given, -np.log(steps.allowed), np.where(steps.refused, refused, 0.0))
    now = np.where(in_slice, now, 0.0)
    gone = np.isneginf(now)
    total = np.cumsum(np.where(gone, 0.0, now))
    past = _since(total - np.where(gone, 0.0, now), begins)
    never = _since(np.cumsum(gone) - gone, begins)
    return np.where(never > 0, -np.inf, past), np.where(in_slice & steps.given, fits, 0.0), now


def _member_logs(steps: Steps, drawn: Flags, phases: Integers, law: Law, begins: Flags) -> tuple[Floats, Floats]:
    """Return the logarithms of Σ_c w_c over cases that match the earlier rows: with f of the row, and with its p."""
    wrong = np.zeros((len(begins), len(law.weights)), np.int32)
    stopped = np.zeros_like(wrong, np.bool_)
    for column, phase in enumerate(phases):
        rows = np.flatnonzero(drawn & (steps.phase == phase) & (steps.given | steps.refused))
        if not len(rows):  # `steps` may then have no columns for its members
            continue
        same, fits = (part[rows][:, law.places[:, column]] for part in (steps.same, steps.fits))
        given = steps.given[rows, None]
        wrong[rows] = np.where(given, ~same, fits)
        stopped[rows] = given & ~fits
    past = _since(np.cumsum(wrong, axis=0) - wrong, begins) == 0
    return np.log((past & ~stopped) @ law.weights), np.log((past & (wrong == 0)) @ law.weights)


def _since(sums: NDArray[Any], begins: Flags) -> NDArray[Any]:
    """Restart running sums at 0 wherever a history begins; `sums` are those before each row."""
    start = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    return sums - sums[start]  # type: ignore[no-any-return]


class Restarts(NamedTuple):
    """The number of histories that were restarted, and the first decision id after a restart."""

    histories: int
    first: str | None


def write_propensities(
    source: Source, new: str, old: str | None, salts: Salts, out: Path, progress: Counter
) -> Restarts:
    """Write `decision_id, propensity, marginal` for the new decisions that have a draw.

    Args:
        source: a DuckDB connection.
        new: SQL of a relation with the columns of `rows.decision_columns`: the new decisions.
        old: the same for earlier days; None if there are none.
        salts: returns the salts of a bundle's pool.
        out: the Parquet file.
        progress: called with the number of new rows in each block.

    Raises:
        LedgerError: if a decision has an action that its draw cannot give.
    """
    restarts, first = 0, None
    with pq.ParquetWriter(out, PROPENSITIES) as file:
        for (episode,) in source.run(f"SELECT DISTINCT episode FROM {new} WHERE drawn ORDER BY episode"):
            here = f"drawn AND episode = {literal(episode)}"
            relation = f"SELECT true AS fresh, {STEP} FROM {new} WHERE {here}"
            if old is not None:
                users = f'SELECT "user" FROM {new} WHERE {here}'
                relation += f' UNION ALL SELECT false, {STEP} FROM {old} WHERE {here} AND "user" IN ({users})'
            source.run(
                "CREATE OR REPLACE TEMP TABLE phase AS SELECT row_number() OVER () - 1 AS phase, * "
                f"FROM (SELECT DISTINCT bundle, members, member_weights FROM ({relation}))"
            )
            laws = laws_of(
                [
                    Phase(tuple(salts(bundle)[i] for i in members), tuple(weights))
                    for bundle, members, weights in source.run(
                        "SELECT bundle, members, member_weights FROM phase ORDER BY phase"
                    )
                ]
            )
            query = f"""SELECT steps.*, phase FROM ({relation}) steps
                JOIN phase USING (bundle, members, member_weights) ORDER BY "user", decision_id"""
            rows = min(ROWS, CELLS // max(len(law.weights) for _, law in laws) + 1)
            for block in _whole_users(source.batches(query, rows)):
                probabilities = path_probabilities(_steps(block), laws)
                _must_be_possible(block, probabilities.marginal)
                restarted = probabilities.restarted & _numbers(block.column("fresh"))
                if restarted.any():
                    restarts += int(restarted.sum())
                    first = first or block.column("decision_id")[int(restarted.argmax())].as_py()
                columns = [block.column("decision_id"), probabilities.propensity, probabilities.marginal]
                file.write_table(pa.table(columns, schema=PROPENSITIES).filter(block.column("fresh")))
                progress(pc.sum(block.column("fresh")).as_py())
    return Restarts(restarts, first)


def _whole_users(batches: Iterator[Any]) -> Iterator[Any]:
    """Regroup batches into tables that end with the last row of a user."""
    waiting: list[Any] = []
    for batch in batches:
        table = pa.Table.from_batches([batch])
        users = table.column("user")
        last = pc.index(users, users[-1]).as_py() if len(users) else 0
        if last or (waiting and len(users) and waiting[-1].column("user")[-1] != users[0]):
            yield pa.concat_tables([*waiting, table.slice(0, last)]).combine_chunks()
            waiting = [table.slice(last)]
        elif len(users):
            waiting.append(table)
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _steps(block: Any) -> Steps:
    lengths = _numbers(pc.list_value_length(block.column("members")))
    filled = np.arange(lengths.max(initial=0)) < lengths[:, None]

    def members(values: NDArray[Any]) -> NDArray[Any]:
        matrix = np.zeros(filled.shape, values.dtype)
        matrix[filled] = values
        return matrix

    action, own = block.column("action").combine_chunks(), pc.list_flatten(block.column("member_actions"))
    code = _numbers(pa.concat_arrays([action, own.combine_chunks()]).dictionary_encode().indices)  # texts or numbers
    return Steps(
        user=_numbers(block.column("user").combine_chunks().dictionary_encode().indices).astype(np.int64),
        phase=_numbers(block.column("phase")),
        given=_numbers(block.column("given")),
        refused=_numbers(block.column("refused")),
        same=filled & (members(code[len(action) :]) == code[: len(action), None]),
        fits=filled & members(_numbers(pc.list_flatten(block.column("member_fits")))),
        share=_numbers(block.column("random")),
        allowed=_numbers(block.column("random_of")),
        fitting=_numbers(block.column("random_fits")),
    )


def _numbers(column: Any) -> NDArray[Any]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _must_be_possible(block: Any, marginal: NDArray[np.float64]) -> None:
    if (marginal == 0).any():
        row = block.slice(int((marginal == 0).argmax()), 1).to_pylist()[0]
        raise LedgerError(
            f"decision {row['decision_id']} gave {named(row['action'])}, which its draw cannot give "
            f"(the members' actions: {row['member_actions']}; random share: {row['random']:g}).",
            way_out="The ledger was edited by hand, or written by a faulty version: please report it.",
        )
