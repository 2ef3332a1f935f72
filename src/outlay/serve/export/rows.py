"""Decisions of one day, from the ledger's rows to two Parquet files of work: the decisions, and what came of them.

`decisions`: a row per decision, features as canonical text in columns f0, f1, …; `outcomes`: a row per outcome that
came within the wait window, with its kind and its value (1 where none was given). What the ledger refused came to
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from outlay.core.progress import Counter
from outlay.serve.clock import Clock, midnight
from outlay.serve.deciding.choice import VALUE_LIMIT, decode_draw
from outlay.serve.deciding.features import value_text
from outlay.serve.export.folder import date_of, ledger_sums
from outlay.serve.export.history import CampaignHistory, PossibleActions
from outlay.serve.ledger.caps import Tally
from outlay.serve.ledger.ledger import DecisionRow, Ledger, LedgerError
from outlay.serve.ledger.money import LARGEST
from outlay.serve.ledger.records import ARM_CAP, DAY_CAP, TOTAL_CAP, USER_LIMIT

MONEY_SAID_NO = (USER_LIMIT, VALUE_LIMIT, DAY_CAP, ARM_CAP, TOTAL_CAP)
CELLS = 500_000  # values held at a time
DECISIONS = {
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
    "reserved": pa.int64(),
    "held": pa.int64(),
    "paid": pa.int64(),
}
OUTCOMES = {"decision_id": pa.string(), "kind": pa.string(), "value": pa.float64()}
_features = msgspec.json.Decoder(dict[str, Any])


@dataclass
class DaySummary:
    """What was met on the way.

    Attributes:
        types: feature → types of its values: bool, int, float, str.
        kinds: of outcomes.
        late: outcomes that came after the wait window.
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
    terms: Callable[[str, int], PossibleActions],
    window_ends: int,
    tell: Counter,
) -> DaySummary:
    """Write `decisions` and `outcomes` of some rows, a few at a time.

    Args:
        rows: of one day.
        folder: to write into; it is there.
        features: their names; f0, f1, … in this order.
        terms: what a bundle could give at a time.
        window_ends: epoch ms at which the wait window of the day ends.
        tell: takes the number of rows with every few of them.

    Raises:
        LedgerError: if a row does not fit its own draw.
    """
    seen = DaySummary({name: set() for name in features})
    decisions = pa.schema([*DECISIONS.items(), *((f"f{i}", pa.string()) for i in range(len(features)))])
    at_most = max(64, CELLS // len(decisions))
    with ExitStack() as files:
        sheets = [
            _Sheet(
                files.enter_context(pq.ParquetWriter(folder / f"{name}.parquet", schema, compression="zstd")), schema
            )
            for name, schema in (("decisions", decisions), ("outcomes", pa.schema(OUTCOMES.items())))
        ]
        for row in rows:
            sheets[0].rows.append((*_decision(row, terms(row.bundle, row.ts)), *_texts(row, features, seen.types)))
            sheets[1].rows += _came(row, window_ends, seen)
            for place, amount in enumerate((1, row.amount > 0, row.held, row.paid)):
                seen.sums[place] += amount
            if len(sheets[0].rows) >= at_most or len(sheets[1].rows) >= CELLS:
                tell(len(sheets[0].rows))
                for sheet in sheets:
                    sheet.write()
        tell(len(sheets[0].rows))
        for sheet in sheets:
            sheet.write()
    return seen


class _Sheet:
    """Rows on their way into a file."""

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


def _decision(row: DecisionRow, terms: PossibleActions) -> tuple[Any, ...]:
    """The columns of DECISIONS.

    A row had no choice where the answer was forced, nor where the guards would have let pass one action only: else
    those who wanted that one would be left as choices, and the choices be a selection.
    """
    draw = decode_draw(row.members)
    drawn, given = bool(draw.members), bool(draw.members) and not row.forced
    # What was given did fit, whatever the notes say: settings may have changed between the note and the decision.
    room = None if row.room is None else max(row.room, row.amount)
    fits = [fit or (given and i == row.action_index) for i, fit in enumerate(terms.fits(room))]
    allowed = range(len(fits)) if draw.allowed is None else draw.allowed
    fitting = sum(fits[i] for i in allowed)
    own = [a for m, a in zip(draw.members, draw.actions, strict=True) if row.member in (None, m)]
    refused = drawn and row.reason in MONEY_SAID_NO and not all(fits[i] for i in own)
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
        row.action,
        row.forced or fitting < 2,
        None if draw.allowed is None else [terms.actions[i] for i in draw.allowed],
        drawn,
        given,
        refused,
        draw.members,
        [terms.actions[i] for i in draw.actions],
        draw.weights,
        [fits[i] for i in draw.actions],
        draw.random,
        len(allowed) if drawn else 1,
        fitting if drawn else 1,
        draw.price,
        row.amount,
        row.held,
        row.paid,
    )


def _texts(row: DecisionRow, features: Sequence[str], types: dict[str, set[type]]) -> list[str | None]:
    """The features as canonical text; a feature that is absent is missing."""
    told = _features.decode(row.features)
    texts = []
    for name in features:
        text = value_text(value) if (value := told.get(name)) is not None else None
        if text is not None:
            # As a float, which others may be, it would be another number.
            types[name].add(str if isinstance(value, int) and abs(value) > LARGEST else type(value))
        texts.append(text)
    return texts


def _came(row: DecisionRow, window_ends: int, seen: DaySummary) -> list[tuple[str, str, float]]:
    """The columns of OUTCOMES, for each outcome that came to something in time."""
    found = []
    for outcome, answer in row.outcomes:
        if answer.status == "refused":
            continue
        if outcome.received >= window_ends:
            seen.late += 1
            continue
        seen.kinds.add(outcome.kind)
        found.append((row.decision_id, outcome.kind, 1.0 if outcome.value is None else outcome.value))
    return found


TRIES = 3  # of reading a day whose money moves meanwhile
DAY = 86_400_000  # milliseconds


def read_days(
    ledger: Ledger,
    notes: CampaignHistory,
    days: Sequence[int],
    closed: int,
    clock: Clock,
    features: Sequence[str],
    work: Path,
    tell: Counter,
) -> Iterator[tuple[int, DaySummary]]:
    """Write each day's rows into a folder of its own in `work`; what was met.

    Args:
        ledger: to read.
        notes: of the campaign.
        days: their numbers.
        closed: the last day whose wait window is over; on later ones servers may go on writing.
        clock: the servers'.
        features: their names.
        work: a folder.
        tell: takes the number of rows with every few of them.

    Raises:
        LedgerError: if the rows of a day never have the sums that the ledger counts.
    """
    for day in days:
        folder = work / str(day)
        folder.mkdir()
        write = partial(write_rows, folder=folder, features=features, terms=notes.terms, tell=tell)
        yield day, _read_day(ledger, notes, day, clock, write, moving=day > closed)


def _read_day(
    ledger: Ledger, notes: CampaignHistory, day: int, clock: Clock, write: Callable[..., DaySummary], *, moving: bool
) -> DaySummary:
    begin, end, closes = (
        int(midnight(date_of(each), clock.zone) * 1000) for each in (day, day + 1, day + notes.settings.wait_days + 1)
    )
    for slack in (0, *[DAY] * (TRIES - 1)):  # another time zone may have been in force
        before = _counted(ledger, notes)[day]
        rows = ledger.rows(notes.campaign, begin - slack, end + slack)
        seen = write((row for row in rows if row.day == day), window_ends=closes)
        after = _counted(ledger, notes)[day]
        if tuple(seen.sums) == ledger_sums(after):
            return seen
    if moving and before != after:
        return seen
    raise LedgerError(
        f"counts {describe_sums(ledger_sums(after))} on {date_of(day)}, and its rows {describe_sums(seen.sums)}.",
        way_out="If money is moving on that day, run it again; if it is not, the ledger is damaged.",
    )


def describe_sums(sums: Sequence[int]) -> str:
    """Sums of a day, as `due.sums_of` gives them."""
    decisions, offers, held, paid = sums
    return f"{decisions} decisions, {offers} offers, {held} minor units held and {paid} paid"


def _counted(ledger: Ledger, notes: CampaignHistory) -> Mapping[int, Tally]:
    return ledger.totals(notes.campaign).days
