"""Write the ledger's rows of one day to two temporary Parquet files: decisions and outcomes.

`decisions` has a row per decision, with features as canonical text in columns f0, f1, …. `outcomes` has a row per
outcome received within the wait window, with its kind and value (1 if none was given). Outcomes that the ledger refused
are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from outlay.core.actions import ActionNames, Holds
from outlay.core.progress import Counter
from outlay.serve.clock import Clock, date_of, midnight
from outlay.serve.deciding.decider import VALUE_LIMIT, decode_draw
from outlay.serve.deciding.features import value_text
from outlay.serve.export.folder import ledger_sums
from outlay.serve.ledger.caps import Tally
from outlay.serve.ledger.ledger import DecisionRow, Ledger, LedgerError
from outlay.serve.ledger.money import LARGEST
from outlay.serve.ledger.records import ARM_CAP, DAY_CAP, TOTAL_CAP, USER_LIMIT
from outlay.serve.user_days.campaign_history import CampaignHistory, PossibleActions
from outlay.serve.user_days.log_row import allowed_of, counts_as_forced, fits_of, outcomes_in_time, window_end

MONEY_REASONS = (USER_LIMIT, VALUE_LIMIT, DAY_CAP, ARM_CAP, TOTAL_CAP)
CELLS = 500_000  # values in memory at a time
TRIES = 3  # attempts to read a day while its money changes
DAY = 86_400_000  # milliseconds
DECISIONS: dict[str, Any] = {
    "decision_id": pa.string(),
    "request_id": pa.string(),
    "request_time": pa.string(),
    "ts": pa.timestamp("ms", "UTC"),
    "user": pa.string(),
    "episode": pa.string(),
    "bundle": pa.string(),
    "arm": pa.string(),
    "reason": pa.string(),
    "member": pa.int64(),
    "action": pa.float64(),
    "forced": pa.bool_(),
    "eligible": pa.list_(pa.float64()),
    "drawn": pa.bool_(),
    "given": pa.bool_(),
    "refused": pa.bool_(),
    "members": pa.list_(pa.int64()),
    "member_actions": pa.list_(pa.float64()),
    "member_weights": pa.list_(pa.float64()),
    "member_fits": pa.list_(pa.bool_()),
    "random": pa.float64(),
    "random_of": pa.int64(),
    "random_fits": pa.int64(),
    "price": pa.float64(),
    "cluster": pa.string(),
    "offer": pa.bool_(),
    "reserved": pa.int64(),
    "held": pa.int64(),
    "paid": pa.int64(),
}
HELD: dict[Holds, Any] = {"texts": pa.string(), "truth values": pa.bool_(), "whole numbers": pa.int64()}
OUTCOMES = {"decision_id": pa.string(), "kind": pa.string(), "value": pa.float64()}
_features = msgspec.json.Decoder(dict[str, Any])


def decision_columns(names: ActionNames) -> dict[str, Any]:
    """The columns of `decisions` but for the features; actions are as the log of these names has them."""
    action = HELD.get(names.holds, pa.float64())
    allowed = pa.float64() if names.holds == "amounts" else pa.string()
    return DECISIONS | {"action": action, "eligible": pa.list_(allowed), "member_actions": pa.list_(action)}


@dataclass
class DaySummary:
    """A summary of one day's rows.

    Attributes:
        types: feature → types of its values: bool, int, float, str.
        kinds: kinds of its outcomes.
        late: number of outcomes received after the wait window.
        sums: decisions, offers, minor units held, minor units paid.
    """

    types: dict[str, set[type]] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    late: int = 0
    sums: list[int] = field(default_factory=lambda: [0, 0, 0, 0])


def write_rows(
    rows: Iterable[DecisionRow],
    folder: Path,
    features: Sequence[str],
    history: CampaignHistory,
    window_ends: int,
    progress: Counter,
) -> DaySummary:
    """Write `decisions` and `outcomes` in batches.

    Args:
        rows: the rows of one day.
        folder: an existing folder to write to.
        features: their names; columns f0, f1, … are in this order.
        history: the campaign's bundles and settings.
        window_ends: epoch ms at which the wait window of the day ends.
        progress: called with the number of rows in each batch.

    Raises:
        LedgerError: if no bundle is recorded for a row.
    """
    summary, names = DaySummary({name: set() for name in features}), ActionNames.of_file(history.content)
    columns = decision_columns(names)
    decisions = pa.schema([*columns.items(), *((f"f{i}", pa.string()) for i in range(len(features)))])
    batch = max(64, CELLS // len(decisions))
    with ExitStack() as files:
        tables = [
            _TableWriter(
                files.enter_context(pq.ParquetWriter(folder / f"{name}.parquet", schema, compression="zstd")), schema
            )
            for name, schema in (("decisions", decisions), ("outcomes", pa.schema(OUTCOMES.items())))
        ]
        for row in rows:
            texts = _texts(row, features, history.unlike(row.bundle), summary.types)
            tables[0].rows.append((*_decision(row, history.terms(row.bundle, row.ts), names), *texts))
            tables[1].rows += _outcomes(row, window_ends, summary)
            for place, amount in enumerate((1, row.offer, row.held, row.paid)):
                summary.sums[place] += amount
            if len(tables[0].rows) >= batch or len(tables[1].rows) >= CELLS:
                progress(len(tables[0].rows))
                for table in tables:
                    table.write()
        progress(len(tables[0].rows))
        for table in tables:
            table.write()
    return summary


class _TableWriter:
    """Buffers the rows of a Parquet file."""

    def __init__(self, file: Any, schema: Any) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._file = file
        self._schema = schema

    def write(self) -> None:
        if self.rows:
            columns = [
                pa.array(column, kind)
                for column, kind in zip(zip(*self.rows, strict=True), self._schema.types, strict=True)
            ]
            self._file.write_table(pa.Table.from_arrays(columns, schema=self._schema))
            self.rows = []


def _decision(row: DecisionRow, terms: PossibleActions, names: ActionNames) -> tuple[Any, ...]:
    """Return the values of `decision_columns`; `names` are those of the log."""
    draw = decode_draw(row.members)
    drawn, given = bool(draw.members), bool(draw.members) and not row.forced
    fits, allowed = fits_of(row, draw, terms), allowed_of(draw, terms)
    fitting = sum(fits[i] for i in allowed)
    own = [a for m, a in zip(draw.members, draw.actions, strict=True) if row.member in (None, m)]
    called = float if names.holds == "amounts" else terms.names.given
    refused = drawn and row.reason in MONEY_REASONS and not all(fits[i] for i in own)
    return (
        row.decision_id,
        row.request_id,
        row.time,
        row.ts,
        row.user,
        row.episode,
        row.bundle,
        row.arm,
        row.reason,
        row.member,
        terms.names.logged(row.action, names.holds),
        counts_as_forced(row, terms),
        None if draw.allowed is None else [called(terms.actions[i]) for i in draw.allowed],
        drawn,
        given,
        refused,
        draw.members,
        [terms.names.logged(terms.actions[i], names.holds) for i in draw.actions],
        draw.weights,
        [fits[i] for i in draw.actions],
        draw.random,
        len(allowed) if drawn else 1,
        fitting if drawn else 1,
        draw.price,
        draw.cluster,
        row.offer,
        row.amount,
        row.held,
        row.paid,
    )


def _texts(
    row: DecisionRow, features: Sequence[str], without: Collection[str], types: dict[str, set[type]]
) -> list[str | None]:
    """Return the features as canonical text; None for an absent feature, and for those of `without`."""
    recorded = _features.decode(row.features) | dict.fromkeys(without)
    texts = []
    for name in features:
        text = value_text(value) if (value := recorded.get(name)) is not None else None
        if text is not None:
            # Such a number would change if the column became float.
            types[name].add(str if isinstance(value, int) and abs(value) > LARGEST else type(value))
        texts.append(text)
    return texts


def _outcomes(row: DecisionRow, window_ends: int, summary: DaySummary) -> list[tuple[str, str, float]]:
    """Return the columns of OUTCOMES for each outcome that was accepted and received in time."""
    timely = list(outcomes_in_time(row, window_ends))
    summary.late += sum(result.status != "refused" for _, result in row.outcomes) - len(timely)
    summary.kinds |= {kind for kind, _ in timely}
    return [(row.decision_id, kind, value) for kind, value in timely]


def read_days(
    ledger: Ledger,
    history: CampaignHistory,
    days: Sequence[int],
    closed: int,
    clock: Clock,
    features: Sequence[str],
    work: Path,
    progress: Counter,
) -> Iterator[tuple[int, DaySummary]]:
    """Write each day's rows into its own folder in `work`, and yield the day with its summary.

    Args:
        ledger: the ledger to read.
        history: the campaign's bundles and settings.
        days: day numbers.
        closed: the last day whose wait window is over; servers may still write to later days.
        clock: the servers' clock.
        features: names of the features.
        work: the folder for temporary files.
        progress: called with the number of rows in each batch.

    Raises:
        LedgerError: if the sums of a day's rows differ from the ledger's counters in every attempt.
    """
    for day in days:
        folder = work / str(day)
        folder.mkdir()
        write = partial(write_rows, folder=folder, features=features, history=history, progress=progress)
        yield day, _read_day(ledger, history, day, clock, write, moving=day > closed)


def _read_day(
    ledger: Ledger, history: CampaignHistory, day: int, clock: Clock, write: Callable[..., DaySummary], *, moving: bool
) -> DaySummary:
    begin, end = (int(midnight(date_of(each), clock.zone) * 1000) for each in (day, day + 1))
    closes = window_end(day, history.wait_days, clock)
    for slack in (0, *[DAY] * (TRIES - 1)):  # another time zone may have been in force
        before = _tallies(ledger, history)[day]
        rows = ledger.rows(history.campaign, begin - slack, end + slack)
        summary = write((row for row in rows if row.day == day), window_ends=closes)
        after = _tallies(ledger, history)[day]
        if tuple(summary.sums) == ledger_sums(after):
            return summary
    if moving and before != after:
        return summary
    raise LedgerError(
        f"counts {describe_sums(ledger_sums(after))} on {date_of(day)}, but its rows have "
        f"{describe_sums(summary.sums)}.",
        way_out="If money is still changing on that day, export again; if not, the ledger is damaged.",
    )


def describe_sums(sums: Sequence[int]) -> str:
    """Describe the sums of a day, which are those of `ledger_sums`."""
    decisions, offers, held, paid = sums
    return f"{decisions:,} decisions, {offers:,} offers, {held:,} minor units reserved and {paid:,} paid"


def _tallies(ledger: Ledger, history: CampaignHistory) -> Mapping[int, Tally]:
    return ledger.totals(history.campaign).days
