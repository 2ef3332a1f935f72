"""What a report shows: a run, the course of its training and its evaluation, with the few figures derived from them.

Costs and limits stand as the campaign file writes them: a floor is not negated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from outlay.choosing.run import CandidateRecord, MemberRecord, Run, Vector
from outlay.core.campaign import BudgetLimit, Campaign
from outlay.evaluating.evaluation import Evaluation, PolicyKind, PolicyRow, SegmentEstimate

ONE_MODEL = ("frontier", "two-stage")  # methods in which one model answers every λ: no rule, no candidates


class Figures(NamedTuple):
    """The two measurements `[1+m]` of one policy, the reward and then each cost; None where there is none."""

    critic: Vector | None
    fitted: Vector | None


class SegmentLine(NamedTuple):
    """One quantity in one segment, for the old and the evaluated policy, and the difference."""

    old: SegmentEstimate
    new: SegmentEstimate
    gain: SegmentEstimate


@dataclass(frozen=True)
class RunResults:
    """One run.

    Attributes:
        run: its manifest.
        candidates: the policies that training measured.
        evaluation: None before the evaluation; the page is shorter then.
    """

    run: Run
    candidates: tuple[CandidateRecord, ...]
    evaluation: Evaluation | None

    @classmethod
    def read(cls, run: Run) -> RunResults:
        """Read the results in a RUN folder.

        Raises:
            FolderError: if the evaluation is damaged, or another version wrote it.
        """
        return cls(run, run.metrics(), Evaluation.read(run.folder))

    @property
    def evaluated(self) -> Evaluation:
        """The evaluation of a run that was evaluated."""
        assert self.evaluation is not None
        return self.evaluation

    @property
    def campaign(self) -> Campaign:
        """The campaign, with the settings of the training."""
        return self.run.campaign

    @property
    def method(self) -> str:
        """The rule that chose the mixture, or the method that made it."""
        return str(self.run.manifest["method"])

    @property
    def reward_label(self) -> str:
        """What the reward counts, plural: `active days`."""
        return self.campaign.reward_label

    @property
    def action_label(self) -> str:
        """What is given, with its unit: `coupon (yuan)`."""
        return f"{self.campaign.action_label} ({self.campaign.meta.unit})"

    @cached_property
    def budgets(self) -> tuple[BudgetLimit, ...]:
        """The m limits."""
        return self.campaign.limits

    @property
    def confidence(self) -> float:
        """Confidence of all intervals."""
        return self.evaluation.confidence if self.evaluation else self.campaign.train.confidence

    @property
    def window(self) -> int | None:
        """The days that means are over; None where they are discounted means of all days."""
        return self.evaluation.window.days if self.evaluation and self.evaluation.window else None

    @property
    def course(self) -> tuple[CandidateRecord, ...]:
        """The course of the training, in steps; empty where one model answers every λ."""
        return () if self.method in ONE_MODEL else self.candidates

    @cached_property
    def policies(self) -> list[PolicyRow]:
        """The table of results; empty before the evaluation."""
        return self.evaluation.rows(self.campaign) if self.evaluation else []

    def policy(self, kind: PolicyKind) -> PolicyRow | None:
        """Return the first row of a kind."""
        return next((row for row in self.policies if row.kind == kind), None)

    def is_kept(self, candidate: CandidateRecord) -> bool:
        """Whether a candidate is a member of the mixture."""
        return candidate.step in {member.step for member in self.run.members}

    def figures(self, member: MemberRecord) -> Figures:
        """Return the two figures of a member; totals over a horizon are not comparable with figures per decision."""
        return Figures(member.critic, member.fitted if self._per_decision else None)

    @property
    def mixture(self) -> Figures:
        """The two figures of the mixture, where all of its members have them (a constant has none by the critic)."""
        members = self.run.members
        weights = [member.weight for member in members]
        fitted = _mean(weights, [member.fitted for member in members])
        return Figures(_mean(weights, [member.critic for member in members]), fitted if self._per_decision else None)

    @property
    def old(self) -> Vector | None:
        """The old policy's measurement, `[1+m]` per decision; None if it was not evaluated, or limits are per user."""
        if self.evaluation is None or not self._per_decision:
            return None
        targets = ("reward", *(budget.name for budget in self.budgets))
        estimates = [self.evaluation.value("old", "fqe", target) for target in targets]
        values = tuple(e.value for e in estimates if e is not None and e.value is not None)
        return values if len(values) == len(targets) else None

    @property
    def segments(self) -> list[SegmentLine]:
        """By segment and quantity, the values of both policies and the gain."""
        if self.evaluation is None:
            return []
        lines: dict[tuple[str, str], dict[str, SegmentEstimate]] = {}
        for e in self.evaluation.segments:
            lines.setdefault((e.segment, e.target), {})[e.policy] = e
        return [SegmentLine(by["old"], by[self.evaluation.subject], by["gain"]) for by in lines.values()]

    @property
    def _per_decision(self) -> bool:
        return all(budget.per == "decision" for budget in self.budgets)


def _mean(weights: Sequence[float], figures: Sequence[Vector | None]) -> Vector | None:
    known = [x for x in figures if x is not None]
    if not known or len(known) < len(figures):
        return None
    return tuple(sum(w * x for w, x in zip(weights, column, strict=True)) for column in zip(*known, strict=True))
