"""Propensities of an export's new decisions, given each user's earlier decisions in the episode.

DuckDB sorts the rows by episode and user, on disk if there are many. They are processed in blocks of whole users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.progress import Counter
from outlay.logs.reading import literal
from outlay.logs.source import Source
from outlay.serve.export.paths import Phase, Steps, laws_of, path_probabilities
from outlay.serve.ledger.ledger import LedgerError

ROWS, CELLS = 50_000, 4_000_000  # of a block: rows, and rows × cases; a block is extended to the end of its last user
PROPENSITIES = pa.schema(
    [("decision_id", pa.string()), ("propensity", pa.float64()), ("marginal", pa.float64())]
)  # of decisions with a draw
STEP = (
    'decision_id, "user", bundle, action, given, refused, members, member_actions, member_weights, member_fits, '
    "random, random_of, random_fits"
)
Salts = Callable[[str], tuple[str, ...]]  # bundle → salts of its pool


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
        new: SQL of a relation with the columns of `rows.DECISIONS`: the new decisions.
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

    def members(name: str, kind: Any) -> NDArray[Any]:
        matrix = np.zeros(filled.shape, kind)
        matrix[filled] = _numbers(pc.list_flatten(block.column(name)))
        return matrix

    action = _numbers(block.column("action"))
    return Steps(
        user=_numbers(block.column("user").combine_chunks().dictionary_encode().indices).astype(np.int64),
        phase=_numbers(block.column("phase")),
        given=_numbers(block.column("given")),
        refused=_numbers(block.column("refused")),
        same=filled & (members("member_actions", np.float64) == action[:, None]),
        fits=filled & members("member_fits", np.bool_),
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
            f"decision {row['decision_id']} gave {row['action']:g}, which its draw cannot give "
            f"(the members' actions: {row['member_actions']}; random share: {row['random']:g}).",
            way_out="The ledger was edited by hand, or written by a faulty version: please report it.",
        )
