"""Columns of the exported log: what they are called and of what type, the same in every file.

A feature keeps its name. The user, the time and the action are called as in the campaign, if those are names, and an
outcome is called as its kind. A column whose name is already taken, by a folder too, gets an underscore. Names stay the
same over all exports into one folder. Types only get wider, from whole number to number to text, so a late "unknown"
breaks no column of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from outlay.core.errors import OutlayError
from outlay.logs.reading import literal, quoted

NAME = re.compile(r"[^\W\d]\w*")
FOLDER = "dt"  # of the folders, which readers take for a column
FEATURE, KIND = "feature:", "kind:"
# Role → name, and the SQL that gives it for a decision; those of the day are of all decisions of the user on the day.
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
}
WIDER = {("BIGINT", "DOUBLE"): "DOUBLE", ("DOUBLE", "BIGINT"): "DOUBLE"}  # all other pairs: VARCHAR
TYPE_OF = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


@dataclass(frozen=True)
class LogLayout:
    """The columns of one exported log.

    Attributes:
        names: role → column, in the order of the columns; a feature's role is `feature:NAME`, an outcome's `kind:KIND`.
        types: feature → type of DuckDB; "" where no value was ever given.
    """

    names: dict[str, str]
    types: dict[str, str]

    @classmethod
    def begin(cls, log: Mapping[str, Any], features: Iterable[str]) -> LogLayout:
        """Return the layout of a log without outcomes.

        Args:
            log: `[log]` of the campaign.
            features: their names.
        """
        layout = cls({}, {}).with_features(features)
        for role, other in (("user", "user"), ("time", "day"), ("action", "action")):
            text = str(log[role])
            layout = layout._with(role, text if NAME.fullmatch(text) else other)
        for role in DECISION:
            layout = layout._with(role, role)
        return layout

    def with_features(self, features: Iterable[str]) -> LogLayout:
        """Return the layout with these features as well."""
        layout = self
        for name in features:
            if name not in layout.types:
                layout = replace(layout._with(FEATURE + name, name), types={**layout.types, name: ""})
        return layout

    def with_outcomes(self, kinds: Iterable[str]) -> LogLayout:
        """With columns for these kinds as well.

        Raises:
            OutlayError: if there are two that differ only by case: an expression would read the one for the other.
        """
        layout = self
        for kind in sorted(kinds):
            if KIND + kind in layout.names:
                continue
            if other := next((each for each in layout.kinds if each.casefold() == kind.casefold()), None):
                raise OutlayError(
                    f"has outcomes of the kinds {other!r} and {kind!r}, which would be one column: column names "
                    "ignore upper and lower case.", where="LEDGER",
                    way_out="Find out which is right. Stop the servers, call the other so in the ledger (UPDATE "
                    f"outcome SET kind = {literal(kind)} WHERE kind = {literal(other)}, or the other way round), and "
                    "export into a new folder.",
                )  # fmt: skip
            layout = layout._with(KIND + kind, kind)
        return layout

    def widened(self, met: Mapping[str, Iterable[type]], numeric: Iterable[str]) -> LogLayout:
        """With types that hold these values too; numeric features are DOUBLE."""
        types = dict(self.types)
        for name, kinds in met.items():
            for kind in sorted(TYPE_OF[kind] for kind in kinds):
                before = types[name]
                types[name] = kind if before in ("", kind) else WIDER.get((before, kind), "VARCHAR")
        return replace(self, types=types | dict.fromkeys(numeric, "DOUBLE"))

    @property
    def kinds(self) -> list[str]:
        """Kinds of outcomes that have a column."""
        return [role.removeprefix(KIND) for role in self.names if role.startswith(KIND)]

    def type_of(self, feature: str) -> str:
        """The type of a feature's column."""
        return self.types[feature] or "VARCHAR"

    def rewritten(self, found: Mapping[str, str]) -> str:
        """SELECT list that makes rows of this layout.

        Args:
            found: the columns of a file of an older layout, with their types.
        """
        parts = []
        for role, name in self.names.items():
            column = quoted(name)
            if role.startswith(KIND) and name not in found:
                column = "0.0::double"
            elif role.startswith(FEATURE):
                column = _cast(column, found.get(name), self.type_of(role.removeprefix(FEATURE)))
            parts.append(f"{column} AS {quoted(name)}")
        return ", ".join(parts)

    def _with(self, role: str, name: str) -> LogLayout:
        taken = {FOLDER, *(other.casefold() for other in self.names.values())}  # DuckDB's names know no case
        while name.casefold() in taken:
            name += "_"
        return replace(self, names={**self.names, role: name})


def of_text(column: str, kind: str) -> str:
    """Canonical text in a type that holds it.

    A numeric feature may have been a categorical one of another bundle: what is no number is missing then.
    """
    if kind != "DOUBLE":
        return f"{column}::{kind}"
    return f"CASE {column} WHEN 'true' THEN 1 WHEN 'false' THEN 0 ELSE try_cast({column} AS DOUBLE) END::DOUBLE"


def _cast(column: str, old: str | None, new: str) -> str:
    """A feature in its new type; numbers become canonical text (`core/schema.py`)."""
    if old is None:
        return f"NULL::{new}"
    if old == "VARCHAR":
        return of_text(column, new)
    if (old, new) == ("DOUBLE", "VARCHAR"):
        whole = f"{column} = trunc({column}) AND abs({column}) < 1e18"
        return f"CASE WHEN {whole} THEN {column}::bigint::varchar ELSE {column}::varchar END"
    return f"{column}::{new}"
