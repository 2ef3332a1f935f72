"""The result of an evaluation. The report, the terminal, `--json` and estimates.json all take it as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from outlay.choosing.run import ESTIMATES
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError
from outlay.core.estimate import Estimate, Target
from outlay.core.files import write_json
from outlay.core.shown import Shown
from outlay.estimators.certificate import CONDITION, Certificate
from outlay.estimators.day_effects import DayEffects
from outlay.estimators.path_bias import PathBias
from outlay.estimators.sensitivity import Sensitivity
from outlay.estimators.windowed import Window
from outlay.evaluating.checks import Checks
from outlay.evaluating.diagnostics import ActionShare, DayMeans, MatchingPaths, MissingDays, SegmentOverlap
from outlay.evaluating.first_days import FirstDays
from outlay.evaluating.grade import Grade
from outlay.evaluating.holding import Holding
from outlay.evaluating.next_test import PlannedTest, SettlingTest
from outlay.evaluating.randomising import RandomisingCost
from outlay.evaluating.totals import DecisionTotals
from outlay.evaluating.verdict import Verdict

PolicyKind = Literal["old", "constant", "method", "chosen", "member"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference(Estimate):
    """The evaluated policy less another one, paired by user.

    Attributes:
        against: name of the other policy.
    """

    against: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEstimate(Estimate):
    """An estimate for the users of one segment; the policy `gain` is the evaluated policy less the old one.

    Attributes:
        segment: its name; a user belongs to the segment of the first row.
        users: how many users it has.
    """

    segment: str
    users: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics(Checks):
    """What the numbers rest on: the checks, and how much of the log is about the policy.

    Attributes:
        days: how days differ, and what that adds to errors.
        path_bias: what paths of the log say of the error of the policy's fitted means; None where states are not
            counted.
        sensitivity: what an unlogged cause of the log's actions would have to weigh to undo the claims; None where the
            campaign file says how actions came about, or nothing is claimed.
        paths: by number of days, ascending.
        overlap: by segment.
        missing_days: between users' rows; None where none is missing.
    """

    days: DayEffects
    paths: tuple[MatchingPaths, ...]
    overlap: tuple[SegmentOverlap, ...]
    path_bias: PathBias | None = None
    sensitivity: Sensitivity | None = None
    missing_days: MissingDays | None = None


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy in the table of results.

    Attributes:
        name: its title.
        kind: the log's policy, constant actions, another method's mixture, the evaluated policy, or a member of it.
        note: a few words beside the name; may be empty.
        totals: `{days: total of the reward per user}`; numbers that are withheld are left out.
        costs: `{budget: cost in the unit of that budget}`; the same.
        certified: whether all limits are certified; None for all but the evaluated policy.
        held: whether what is not certified is held while serving.
    """

    name: str
    kind: PolicyKind
    note: str
    totals: Mapping[int, Estimate]
    costs: Mapping[str, Estimate]
    certified: bool | None
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Evaluation(Shown):
    """An evaluation of one policy.

    Attributes:
        subject: name of the evaluated policy in the estimates: `mixture` or `policy`.
        policies: `{name: title}` of every policy, in the order of the tables.
        estimates: of the evaluated policy, by every estimator.
        beside: of the others: the old policy, constant actions, members, the policy it is compared with.
        differences: between the evaluated policy and others.
        segments: by segment, fitted values of the old and the evaluated policy, and the gain.
        certificate: of the evaluated policy.
        confidence: of the intervals; the certificate has its own, which depends on the look.
        grade: `certified`, `held` (while serving), `promising` (test it first) or `not supported`.
        verdict: what to do: a kind, its figures and its words.
        diagnostics: what the numbers rest on.
        notes: `{name: a few words beside the policy}`.
        daily: means per user of the first days, of the old and the evaluated policy.
        first_days: how the policy's first days differ from those after them; None with too few days.
        shares: how often each action is given in each segment, by the old (`old`) and the evaluated policy (`new`).
        window: the days that claims are about, where means over them stand in for discounted ones; else None.
        users: who was measured: `certify`, or `all` where the policy learned from none of them.
        test: the experiment that would settle it, where the grade is not `not supported`; else None.
        settling: where the state is not enough even with its summaries of the past, the experiment that needs no state.
        randomising: where it is not known how actions were drawn, what it costs to draw some at random from now on.
        holding: how the run keeps its money budget, and what that costs; None of a policy from outside, and where it
            is not known.
        totals: what it brings and costs all users, now and with it; None where no total is given.
        condition: what every "sure" and "certified" rests on: `if …`.
    """

    grade: Grade
    verdict: Verdict
    confidence: float
    estimates: tuple[Estimate, ...]
    certificate: Certificate
    differences: tuple[PairedDifference, ...]
    segments: tuple[SegmentEstimate, ...]
    subject: str
    policies: Mapping[str, str]
    beside: tuple[Estimate, ...]
    diagnostics: Diagnostics
    notes: Mapping[str, str]
    daily: tuple[DayMeans, ...]
    shares: tuple[ActionShare, ...]
    window: Window | None
    users: Literal["certify", "all"]
    test: PlannedTest | None = None
    settling: SettlingTest | None = None
    randomising: RandomisingCost | None = None
    first_days: FirstDays | None = None
    holding: Holding | None = None
    totals: DecisionTotals | None = None
    condition: str = CONDITION

    def headline(self) -> str:
        """The verdict."""
        return self.verdict.words

    def tables(self) -> Mapping[str, Sequence[Any]]:
        """Estimates of the policy and of others, differences, by segment, day by day, and what is given to whom."""
        return {
            "estimates": self.estimates,
            "beside": self.beside,
            "differences": self.differences,
            "segments": self.segments,
            "daily": self.daily,
            "shares": self.shares,
        }

    @property
    def title(self) -> str:
        """What tables call the evaluated policy."""
        return self.policies[self.subject]

    def value(self, policy: str, estimator: str, target: str) -> Estimate | None:
        """Return one estimate; None where it was not made or its number is withheld."""
        key = policy, estimator, target
        every = (*self.estimates, *self.beside)
        return next((e for e in every if (e.policy, e.estimator, e.target) == key and e.value is not None), None)

    def rows(self, campaign: Campaign) -> list[PolicyRow]:
        """Return the table of results: totals and costs of every policy, by the fitted evaluation.

        The old policy's totals are the observed ones, where those are of all users.
        """
        kinds: dict[str, PolicyKind] = {
            "old": "old",
            "constants": "constant",
            "against": "method",
            self.subject: "chosen",
        }
        claimed = () if self.window is None else (self.window.days,)
        rows, spans = [], sorted({*campaign.meta.report_days, *claimed})
        for name, title in self.policies.items():
            totals = {k: self._total(name, str(Target("reward", k))) for k in spans}
            costs = {budget.name: self.value(name, "fqe", budget.name) for budget in campaign.budgets}
            rows.append(
                PolicyRow(
                    name=title,
                    kind=kinds.get(name, "member"),
                    note=self.notes.get(name, ""),
                    totals={k: e for k, e in totals.items() if e is not None},
                    costs={budget: e for budget, e in costs.items() if e is not None},
                    certified=self.certificate.certified if name == self.subject else None,
                    held=name == self.subject and self.certificate.held is not None,
                )
            )
        return rows

    def _total(self, policy: str, target: str) -> Estimate | None:
        """Return what `rows` says of a total."""
        observed = self.value(policy, "observed", target) if policy == "old" else None
        if observed is not None and observed.caution is None:
            return observed
        return self.value(policy, "fqe", target) or observed

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)

    def write(self, folder: Path) -> None:
        """Write estimates.json into a RUN folder."""
        write_json(folder / ESTIMATES, self.to_dict())

    @classmethod
    def read(cls, folder: Path) -> Evaluation | None:
        """Read estimates.json of a RUN folder; None before the evaluation.

        Raises:
            FolderError: if the file is damaged, or another version wrote it.
        """
        path, way_out = folder / ESTIMATES, f"Run outlay evaluate {folder} again."
        if not path.exists():
            return None
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except ValidationError as error:
            if any(problem["type"] == "json_invalid" for problem in error.errors()):
                raise FolderError("is not valid JSON.", file=path, way_out=way_out) from None
            fields = sorted({".".join(map(str, problem["loc"])) for problem in error.errors()})
            raise FolderError(
                f"was written by another version of outlay; missing or of another type: {', '.join(fields[:9])}.",
                file=path,
                way_out=way_out,
            ) from None
