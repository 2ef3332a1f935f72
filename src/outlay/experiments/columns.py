"""The columns of a test's log: which are the user, the day, the arm and the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outlay.core.errors import LogError, OutlayError, nearest
from outlay.experiments.design import Experiment
from outlay.experiments.moments import BEFORE, Metric
from outlay.logs.reading import literal
from outlay.logs.source import WHOLE, Source, Term

DEFAULTS: dict[str, tuple[str, ...]] = {  # role → the columns that it may be in, the first that is there
    "user": ("user", "user_id"),
    "day": ("day", "date", "dt"),
    "arm": ("arm",),
    "segment": ("segment",),
    "cluster": ("cluster",),
    "cost": ("cost", "paid"),
    "redemption": ("redemption", "redeemed"),  # otherwise a day on which money was paid
}
DATES = """Write 2026-03-02, or say how dates are written: --column "day=strptime(day, '%d.%m.%Y')"."""
ZONED = r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"  # text that ends in a time zone
DRAWN = "arm_cluster"  # in which a server's log has the cluster by which it drew the arm
OUTSIDE = "policy", "random"  # what a server names users outside the test: its bundle, and the random slice


@dataclass(frozen=True)
class ExperimentColumns:
    """SQL expressions over the log, by what they stand for.

    Attributes:
        user: canonical text.
        arm: text; NULL if the user is in no arm.
        day: whole number, 0 on the first day of the test; None if a row is a user.
        segment: text, or None.
        values: metric → DOUBLE; NULL means missing, which is an error in a row of a user in the test.
        before: the same for the days before the start, if a row is a user; otherwise it comes from those days' rows.
            NULL counts as 0 here, which costs precision but does not bias the lift.
        cluster: text, if the test draws its arms by cluster.
    """

    user: str
    arm: str
    day: str | None
    segment: str | None
    values: Mapping[str, str]
    before: Mapping[str, str]
    cluster: str | None = None


@dataclass(frozen=True)
class Roles:
    """The columns of a log, by what they stand for.

    Attributes:
        source: the log.
        experiment: whose metrics are wanted.
        given: role or metric → column or SQL expression; the others are found by `DEFAULTS` or by their name.
        assigned: whether a list says who is in which arm, so the log need not.
        served: whether a server wrote the log; it also names users outside the test.
    """

    source: Source
    experiment: Experiment
    given: Mapping[str, str]
    assigned: bool
    served: bool = False

    def __post_init__(self) -> None:
        known = {*DEFAULTS, "eligible", self.experiment.meta.metric, *self.experiment.meta.guardrails}
        for name in self.given:
            if name not in known:
                raise OutlayError(f"{name!r} is not a role.", where="column",
                                  way_out=f"Known: {', '.join(sorted(known))}.")  # fmt: skip

    def metrics(self) -> list[Metric]:
        """The verdict's metric, cost, cost per unit of that metric, redemption, then the other guardrails."""
        meta, ratio = self.experiment.meta, f"cost_per_{self.experiment.meta.metric}"
        found = [Metric(meta.metric, meta.metric)]
        if meta.metric != "cost" and self._found("cost"):
            found += [Metric("cost", "cost"), Metric(ratio, "cost", meta.metric)]
            if self._found("redemption") or self._found("day"):
                found.append(Metric("redemption", "redemption"))
        names = {metric.name for metric in found}
        more = [name for name in meta.guardrails if name not in names and name not in self.left_out()]
        return found + [Metric(name, name) for name in more]

    def left_out(self) -> list[str]:
        """`redemption`, if it is a guardrail but a row per user does not say on how many days money was paid."""
        asked = "redemption" in self.experiment.meta.guardrails
        return ["redemption"] if asked and not self._found("redemption") and not self._found("day") else []

    def columns(self, metrics: Sequence[Metric]) -> ExperimentColumns:
        """SQL for every role and every column of the metrics."""
        user = self._needed("user")
        arm = self._found("arm") if self.assigned else self._needed("arm")
        day, segment = self._found("day"), self._found("segment")
        values = {name: self._value(name) for name in dict.fromkeys(c for m in metrics for c in m.columns)}
        before = {}
        if day is None:
            before = {n: self._number(n + BEFORE, n + BEFORE) for n in values if n + BEFORE in self.source.columns}
        return ExperimentColumns(
            user=canonical_sql(user),
            arm=self._arm("NULL" if arm is None else arm.sql),
            day=None if day is None else self._day(day),
            segment=None if segment is None else f"CAST({segment.sql} AS VARCHAR)",
            values=values,
            before=before,
            cluster=self._cluster(),
        )

    def _cluster(self) -> str | None:
        """The cluster as given, as a server drew by it, or as in the experiment file; or a list of users says it."""
        text = self.experiment.meta.cluster
        if text is None:
            return None
        if "cluster" not in self.given and self._has_drawn_clusters():
            return canonical_sql(self.source.term("column cluster", DRAWN))
        if "cluster" not in self.given and self.assigned:
            try:
                return canonical_sql(self.source.term("column cluster", text))
            except LogError:
                found = self._found("cluster")
                return "CAST(NULL AS VARCHAR)" if found is None else canonical_sql(found)
        return canonical_sql(self.source.term("column cluster", self.given.get("cluster", text)))

    def _has_drawn_clusters(self) -> bool:
        """Whether a server wrote the log and drew its arms by cluster."""
        if not self.served or DRAWN not in self.source.columns:
            return False
        return bool(self.source.run(f"SELECT 1 FROM log_kept WHERE {DRAWN} IS NOT NULL LIMIT 1"))

    def eligible(self) -> str | None:
        """The experiment's condition as SQL over the log; None if it has none or the log lacks its columns."""
        text = self.given.get("eligible", self.experiment.meta.eligible)
        if text is None:
            return None
        try:
            sql = self.source.term("column eligible", text).sql
        except LogError:
            if "eligible" in self.given:
                raise
            return None
        return f"coalesce(CAST({sql} AS BOOLEAN), FALSE)"

    def _arm(self, sql: str) -> str:
        """Text; NULL if a server says that the user is outside the test, unless the test has an arm of that name."""
        own = {arm.name for arm in self.experiment.arms}
        outside = [literal(name) for name in OUTSIDE if self.served and name not in own]
        text = f"CAST({sql} AS VARCHAR)"
        return f"CASE WHEN {text} NOT IN ({', '.join(outside)}) THEN {text} END" if outside else text

    def _found(self, role: str) -> Term | None:
        """The role's term: as given, or the first of its columns that exists."""
        if role in self.given:
            return self.source.term(f"column {role}", self.given[role])
        name = next((name for name in DEFAULTS.get(role, (role,)) if name in self.source.columns), None)
        return None if name is None else self.source.term(f"column {role}", name)

    def _needed(self, role: str) -> Term:
        found = self._found(role)
        if found is None:
            raise LogError("is missing in the log.", file=self.source.file, where=f"column {role!r}",
                           way_out=f"{nearest(role, self.source.columns, 'Columns')} "
                           f"Or say what it is: --column '{role}=…'.")  # fmt: skip
        return found

    def _value(self, name: str) -> str:
        if name == "redemption" and self._found(name) is None:
            return f"CAST({self._value('cost')} > 0 AS DOUBLE)"  # a day on which money was paid
        return self.source.number(self._needed(name))

    def _number(self, role: str, column: str) -> str:
        return self.source.number(self.source.term(f"column {role}", column))

    def _day(self, term: Term) -> str:
        """Days since the start: of a date, or a whole number counted from it."""
        start = literal(self.experiment.meta.start.isoformat())
        if term.type in WHOLE:
            return f"CAST({term.sql} AS BIGINT)"
        if term.type == "TIMESTAMP WITH TIME ZONE":
            raise self._zoned(term, term.text)
        if term.type == "DATE" or term.type.startswith("TIMESTAMP"):
            return f"date_diff('day', DATE {start}, CAST({term.sql} AS DATE))"
        if term.type == "VARCHAR":
            date = f"TRY_CAST({term.sql} AS DATE)"
            wrong = self.source.run(
                f"SELECT {term.sql} FROM log_kept WHERE {term.sql} IS NOT NULL AND {date} IS NULL LIMIT 1"
            )
            if self.source.run(f"SELECT 1 FROM log_kept WHERE regexp_matches({term.sql}, '{ZONED}') LIMIT 1"):
                raise self._zoned(term, f"CAST({term.text} AS TIMESTAMPTZ)")
            if not wrong:
                return f"date_diff('day', DATE {start}, {date})"
            raise self.source.wrong_type(term, f"holds {wrong[0][0]!r}, which is not a date.", DATES)
        raise self.source.wrong_type(
            term, f"is of type {term.type}.", "Give dates, or whole numbers with 0 on the first day of the test."
        )

    def _zoned(self, term: Term, moment: str) -> OutlayError:
        """An error: the day of a time stamp would depend on the machine's time zone."""
        return self.source.wrong_type(
            term, "has a time zone, so the day depends on where you are.",
            f"Say it: --column \"day=CAST({moment} AT TIME ZONE 'Europe/Berlin' AS DATE)\".",
        )  # fmt: skip


def canonical_sql(term: Term) -> str:
    """SQL for `core.schema.canonical_text`: 3, 3.0 and "3" are one user."""
    if term.type == "VARCHAR":
        return term.sql
    if term.type in ("FLOAT", "DOUBLE", "DECIMAL"):
        whole = f"{term.sql} = round({term.sql}) AND abs({term.sql}) < 4e18"
        return (
            f"CASE WHEN {whole} THEN CAST(CAST({term.sql} AS BIGINT) AS VARCHAR) ELSE CAST({term.sql} AS VARCHAR) END"
        )
    return f"CAST({term.sql} AS VARCHAR)"
