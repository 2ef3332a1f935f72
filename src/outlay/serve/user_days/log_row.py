"""What the log says of a user's day: which decision is its row, and in which columns; for exports and later policies.

row of a day     the first decision that was not forced, or else the first
its outcomes     those of all the user's decisions on that day that were accepted and received in time
its money        what all of them have paid so far

Columns are the same in every file. A feature keeps its name. The user, time and action columns are named as in the
campaign, if those are plain names; an outcome's column is named after its kind. An underscore is appended to a name
that is already taken, also by a folder. Names stay the same over all exports to a folder. Types are only ever widened,
from integer to float to text, so that a late "unknown" in a column of numbers does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outlay.core.errors import OutlayError
from outlay.logs.reading import literal, quoted
from outlay.serve.clock import Clock, date_of, midnight
from outlay.serve.deciding.decider import DrawRecord, decode_draw
from outlay.serve.ledger.ledger import DecisionRow
from outlay.serve.ledger.records import LARGEST_VALUE
from outlay.serve.user_days.campaign_history import PossibleActions

NAME = re.compile(r"[^\W\d]\w*")
FOLDER = "dt"  # key of the partition folders, which readers add as a column
FEATURE, KIND = "feature:", "kind:"
# Role → the SQL of its value for a decision; "_of_day": summed over all decisions of the user on the day.
DECISION = {
    "propensity": "propensity",
    "forced": "forced",
    "eligible": "eligible",
    "paid": "paid_of_day / {minor}::double",
    "marginal": "marginal",
    "arm": "arm",
    "reason": "reason",
    "bundle": "bundle",
    "episode": "episode",
    "member": "member",
    "members": "members",
    "member_actions": "member_actions",
    "member_weights": "member_weights",
    "member_fits": "member_fits",
    "random": "random",
    "random_of": "random_of",
    "random_fits": "random_fits",
    "price": "price",
    "drawn": "drawn",
    "given": "given",
    "refused": "refused",
    "decision_id": "decision_id",
    "request_id": "request_id",
    "request_time": "request_time",
    "ts": "ts",
    "decisions": "decisions",
    "offers": "offers",
    "reserved_minor": "reserved_of_day",
    "held_minor": "held_of_day",
    "paid_minor": "paid_of_day",
    "arm_cluster": "cluster",
}
WIDER = {("BIGINT", "DOUBLE"): "DOUBLE", ("DOUBLE", "BIGINT"): "DOUBLE"}  # all other pairs: VARCHAR
TYPE_OF = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


@dataclass(frozen=True)
class LogLayout:
    """The columns of one exported log.

    Attributes:
        names: role → column, in the order of the columns; a feature's role is `feature:NAME`, an outcome's `kind:KIND`.
        types: feature → DuckDB type; "" if it never had a value.
    """

    names: dict[str, str]
    types: dict[str, str]

    @classmethod
    def begin(cls, log: Mapping[str, Any], features: Iterable[str]) -> LogLayout:
        """Return the layout of a log without outcomes.

        Args:
            log: the campaign's `[log]`.
            features: names of the features.
        """
        layout = cls({}, {}).with_features(features)
        for role, other in (("user", "user"), ("time", "day"), ("action", "action")):
            text = str(log.get(role) or other)
            layout = layout._with(role, text if NAME.fullmatch(text) else other)
        return layout.with_decisions()

    def with_decisions(self) -> LogLayout:
        """Return the layout with the columns of decisions that it lacks: an older version of outlay began it."""
        layout = self
        for role in DECISION:
            if role not in layout.names:
                layout = layout._with(role, role)
        return layout

    def with_features(self, features: Iterable[str]) -> LogLayout:
        """Return the layout with these features added."""
        layout = self
        for name in features:
            if name not in layout.types:
                layout = replace(layout._with(FEATURE + name, name), types={**layout.types, name: ""})
        return layout

    def with_outcomes(self, kinds: Iterable[str]) -> LogLayout:
        """Return the layout with columns for these kinds added.

        Raises:
            OutlayError: if two kinds differ only by case: expressions could not distinguish them.
        """
        layout = self
        for kind in sorted(kinds):
            if KIND + kind in layout.names:
                continue
            if other := next((each for each in layout.kinds if each.casefold() == kind.casefold()), None):
                raise OutlayError(
                    f"has outcomes of the kinds {other!r} and {kind!r}, which would share a column: column names "
                    "are not case-sensitive.",
                    where="LEDGER",
                    way_out="Decide which is right. Stop the servers, rename the other in the ledger (UPDATE "
                    f"outcome SET kind = {literal(kind)} WHERE kind = {literal(other)}, or the other way round), and "
                    "export to a new folder.",
                )
            layout = layout._with(KIND + kind, kind)
        return layout

    def widened(self, values: Mapping[str, Iterable[type]], numeric: Iterable[str]) -> LogLayout:
        """Return the layout with columns wide enough for these types of values; numeric features are DOUBLE."""
        types = dict(self.types)
        for name, kinds in values.items():
            for kind in sorted(TYPE_OF[kind] for kind in kinds):
                before = types[name]
                types[name] = kind if before in ("", kind) else WIDER.get((before, kind), "VARCHAR")
        return replace(self, types=types | dict.fromkeys(numeric, "DOUBLE"))

    @property
    def kinds(self) -> list[str]:
        """Kinds of outcomes that have a column."""
        return [role.removeprefix(KIND) for role in self.names if role.startswith(KIND)]

    def type_of(self, feature: str) -> str:
        """Return the DuckDB type of a feature's column."""
        return self.types[feature] or "VARCHAR"

    def rewritten(self, old: Mapping[str, str]) -> str:
        """Return the SELECT list that converts a file with an older layout.

        Args:
            old: the file's columns and their types.
        """
        parts = []
        for role, name in self.names.items():
            column = quoted(name)
            if role.startswith(KIND) and name not in old:
                column = "0.0::double"
            elif role in DECISION and name not in old:
                column = "NULL::varchar"
            elif role.startswith(FEATURE):
                column = _cast(column, old.get(name), self.type_of(role.removeprefix(FEATURE)))
            parts.append(f"{column} AS {quoted(name)}")
        return ", ".join(parts)

    def _with(self, role: str, name: str) -> LogLayout:
        taken = {FOLDER, *(other.casefold() for other in self.names.values())}  # DuckDB's names are not case-sensitive
        while name.casefold() in taken:
            name += "_"
        return replace(self, names={**self.names, role: name})


def of_text(column: str, kind: str) -> str:
    """Return SQL that converts canonical text to a type.

    A numeric feature may be categorical in another bundle; its values that are not numbers become missing.
    """
    if kind != "DOUBLE":
        return f"{column}::{kind}"
    return f"CASE {column} WHEN 'true' THEN 1 WHEN 'false' THEN 0 ELSE try_cast({column} AS DOUBLE) END::DOUBLE"


def _cast(column: str, old: str | None, new: str) -> str:
    """Return SQL that converts a feature to its new type; numbers become canonical text (`core/schema.py`)."""
    if old is None:
        return f"NULL::{new}"
    if old == "VARCHAR":
        return of_text(column, new)
    if (old, new) == ("DOUBLE", "VARCHAR"):
        whole = f"{column} = trunc({column}) AND abs({column}) < 1e18"
        return f"CASE WHEN {whole} THEN {column}::bigint::varchar ELSE {column}::varchar END"
    return f"{column}::{new}"


Terms = Callable[[str, int], PossibleActions]  # the possible actions of a bundle at a time (epoch ms)


def window_end(day: int, wait_days: int, clock: Clock) -> int:
    """Return the epoch ms at which the wait window of a day number ends."""
    return int(midnight(date_of(day + wait_days + 1), clock.zone) * 1000)


def outcomes_in_time(row: DecisionRow, window_ends: int) -> Iterator[tuple[str, float]]:
    """Yield kind and value (1 if none was given) of outcomes that were accepted and received before `window_ends`.

    Servers of older versions took any value; it is brought to what they take now, so that sums are finite.
    """
    for outcome, result in row.outcomes:
        if result.status != "refused" and outcome.received < window_ends:
            value = 1.0 if outcome.value is None else outcome.value
            yield outcome.kind, min(max(value, -LARGEST_VALUE), LARGEST_VALUE)


def fits_of(row: DecisionRow, draw: DrawRecord, terms: PossibleActions) -> list[bool]:
    """Return `[K]` whether the guards would have allowed each action.

    The action given was allowed, whatever the recorded settings say: they may have changed in between.
    """
    given = bool(draw.members) and not row.forced
    return [fit or (given and i == row.action_index) for i, fit in enumerate(terms.fits(row.room))]


def allowed_of(draw: DrawRecord, terms: PossibleActions) -> Sequence[int]:
    """Return the positions of the actions that the request allowed."""
    return range(len(terms.actions)) if draw.allowed is None else draw.allowed


def counts_as_forced(row: DecisionRow, terms: PossibleActions) -> bool:
    """Return whether a decision was forced, or the guards would have allowed only one action.

    Otherwise only users whose draw was that action would be left as choices, which would bias the choices.
    """
    draw = decode_draw(row.members)
    fits = fits_of(row, draw, terms)
    return row.forced or sum(fits[i] for i in allowed_of(draw, terms)) < 2


def row_of_day(decisions: Sequence[DecisionRow], terms: Terms) -> DecisionRow:
    """Return the decision of a user's day that is its row in the log.

    Raises:
        LedgerError: if no bundle is recorded for one of them.
    """
    if len(decisions) == 1:
        return decisions[0]
    return min(decisions, key=lambda row: (counts_as_forced(row, terms(row.bundle, row.ts)), row.decision_id))
