"""The results of a run, and its findings in words: its policies, its training, the calibration of a response model.

A title says what its figure shows, in numbers; the intervals and the verdict say what those are worth. Costs and limits
stand as the campaign file writes them: a floor is not negated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from outlay.choosing.run import CalibrationRecord, CandidateRecord, MemberRecord, Run, Vector
from outlay.core.actions import shown
from outlay.core.campaign import BudgetLimit, Campaign, Labels
from outlay.core.wording import days, exact, number, percent, plain, short
from outlay.estimators.certificate import OWN
from outlay.evaluating.evaluation import Evaluation, PolicyRow
from outlay.pages import tables
from outlay.pages.amounts import capital

ONE_MODEL = ("frontier", "two-stage")  # methods in which one model answers every λ: no rule, no candidates
DISCOUNTED = (
    "A cost per decision is the discount-weighted mean over all days to come (each day weighs {discount} times the day "
    "before), so single days lie above and below it."
)
BESIDE_CURVE = (
    "This mixture is a point of its curve: outlay frontier says what other budgets buy. The same look at the certify "
    f"users certifies them too. {percent(OWN)} of the error that it may make are for this mixture, the rest for all "
    "others."
)


class Figures(NamedTuple):
    """The two measurements `[1+m]` of one policy, the reward and then each cost; None where there is none."""

    critic: Vector | None
    fitted: Vector | None


@dataclass(frozen=True)
class RunResults:
    """One run.

    Attributes:
        run: its manifest.
        candidates: the policies that training measured.
        evaluation: None before the evaluation; the page is shorter then.
        labels: what things are called; None: as the run was trained.
    """

    run: Run
    candidates: tuple[CandidateRecord, ...]
    evaluation: Evaluation | None
    labels: Labels | None = None

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

    @cached_property
    def campaign(self) -> Campaign:
        """The campaign, with the settings of the training."""
        campaign = self.run.campaign
        return campaign if self.labels is None else campaign.model_copy(update={"labels": self.labels})

    @property
    def method(self) -> str:
        """The rule that chose the mixture, or the method that made it."""
        return str(self.run.manifest["method"])

    def called(self, budget: str) -> str:
        """What tables and axes call a budget."""
        return self.campaign.told("budgets", budget)

    @property
    def reward_label(self) -> str:
        """What the reward counts, plural: `active days`."""
        return self.campaign.told("reward")

    @property
    def members(self) -> tables.Table:
        """The members of the served mixture, and the mixture."""
        return tables.members(self.run, self.mixture)

    @property
    def certificate(self) -> tables.Table:
        """Every bound against its limit."""
        return tables.certificate(self.evaluated, self.campaign, self.run.manifest["margin"])

    @property
    def action_label(self) -> str:
        """What is given, with its unit: `coupon (yuan)`."""
        label = self.campaign.told("action")
        return label if self.campaign.log.labels else f"{label} ({self.campaign.meta.unit})"

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
        return tables.window(self.evaluation) if self.evaluation else None

    def quantity(self, target: str) -> str:
        """What an estimate is of: `reward@7` → `active days, total of 7 days`."""
        return tables.quantity(target, self.campaign, self.window)

    @property
    def course(self) -> tuple[CandidateRecord, ...]:
        """The course of the training, in steps; empty where one model answers every λ."""
        return () if self.method in ONE_MODEL else self.candidates

    @cached_property
    def policies(self) -> list[PolicyRow]:
        """The table of results; empty before the evaluation."""
        return self.evaluation.rows(self.campaign) if self.evaluation else []

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
    def _per_decision(self) -> bool:
        return all(budget.per == "decision" for budget in self.budgets)


def _mean(weights: Sequence[float], figures: Sequence[Vector | None]) -> Vector | None:
    known = [x for x in figures if x is not None]
    if not known or len(known) < len(figures):
        return None
    return tuple(sum(w * x for w, x in zip(weights, column, strict=True)) for column in zip(*known, strict=True))


def badge(results: RunResults) -> tuple[str, str]:
    """Return the style of the badge, `open`, `yes` or `no`, and its words."""
    if results.evaluation is None:
        return "open", "Not evaluated yet"
    certificate = results.evaluation.certificate
    loss = "; a loss against the old policy" if certificate.loses else ""
    if certificate.held:
        return "open", f"{results.called(certificate.held)} held while serving{loss}"
    if not certificate.certified:
        return "no", "✕ Not certified"
    limits = "Limit" if len(results.budgets) == 1 else "All limits"
    return "open" if loss else "yes", f"✓ {limits} certified at {exact(certificate.confidence)}{loss}"


def notes(results: RunResults) -> list[str]:
    """Return cautions, and choices that were made for the user, a sentence each."""
    manifest = results.run.manifest
    sentences = list(manifest["notes"])
    if manifest.get("window") is None:
        sentences += discounted(results.campaign)
    if results.method == "frontier":
        sentences.append(BESIDE_CURVE)
    if results.method not in ONE_MODEL:
        sentences.append(
            f"During training, the rule chose by {measured_by(results)}; the members that it kept were measured again "
            "by a fitted evaluation."
        )
    return sentences


def discounted(campaign: Campaign) -> list[str]:
    """Return what a cost per decision is where days are discounted; empty where none is."""
    discount = campaign.meta.discount
    if discount > 0 and any(b.per == "decision" for b in campaign.limits):
        return [DISCOUNTED.format(discount=plain(discount))]
    return []


def measured_by(results: RunResults) -> str:
    """Return what measured the candidates, so what the rule chose by: `the critic`."""
    return str(results.run.manifest["candidates_measured_by"])


def settings(results: RunResults) -> dict[str, dict[str, object]]:
    """Return settings and provenance, `{group: {name: value}}`."""
    m = results.run.manifest
    return {
        "run": {
            name: m[name]
            for name in (
                "method",
                "oracle",
                "seed",
                "steps",
                "seconds",
                "parameters",
                "stored_parameters",
                "multiplier_max",
                "multiplier_mean",
            )
        }
        | {f"gap_{name}": m["gap"][name] for name in ("value", "std_error", "added") if m.get("gap")},
        "train": results.campaign.train.model_dump(mode="json", exclude_none=True),
        "data": {"source": m["source"], "hash": m["data_hash"]},
        "versions": m["versions"],
    }


def keeps_limits(measured: Sequence[float], budgets: Sequence[BudgetLimit]) -> bool:
    """Return whether a measurement `[1+m]`, the reward and then each cost, keeps every limit."""
    return all(b.sign * (cost - b.limit) <= 0 for cost, b in zip(measured[1:], budgets, strict=True))


def shares_finding(results: RunResults) -> str:
    """Return the actions whose share moves most in a segment, with both shares."""
    shares = {
        (r.segment, r.action, r.policy): r.share for r in (results.evaluation.shares if results.evaluation else ())
    }
    moves = {key[:2]: (share, shares.get((*key[:2], "new"), 0.0)) for key, share in shares.items() if key[2] == "old"}
    if not moves:
        return "Who gets what"
    most = sorted(moves, key=lambda key: -abs(moves[key][1] - moves[key][0]))[:2]
    told = results.campaign.told
    parts = []
    for segment, action in most:
        what = f"{told('actions', shown(action))} in {told('segments', segment)}"
        old, new = map(percent, moves[segment, action])
        parts.append(f"{what} from {old} to {new}")
    return f"Share of {results.action_label}: {', '.join(parts)}"


def calibration_title(results: RunResults, record: CalibrationRecord) -> str:
    """Return what a head of a response model predicts."""
    what = results.reward_label if record.head == "reward" else results.called(record.head)
    return f"{what} within {days(results.run.manifest['label_days'])}"


def calibration_finding(results: RunResults) -> str:
    """Return whether outcomes follow the predictions, head by head."""
    parts = []
    for record in results.run.calibration:
        title = calibration_title(results, record)
        if record.slope is None or record.slope_error is None:
            parts.append(f"{title}: all predictions are alike")
        else:
            slope = f"{number(record.slope, 3)} ± {number(2 * record.slope_error, 3)}"
            parts.append(f"{title}: outcomes move by {slope} where predictions move by 1")
    return "; ".join(parts)


def plane_finding(results: RunResults) -> str:
    """Return how many candidates kept the limits, and what the mixture is made of."""
    kept = sum(keeps_limits(c.measured, results.budgets) for c in results.candidates)
    every = {1: "the limit", 2: "both limits"}.get(len(results.budgets), "every limit")
    texts = []
    if results.candidates:
        by = measured_by(results)
        texts.append(
            f"{number(kept)} of {number(len(results.candidates))} candidates keep {every}, as measured by {by}"
        )
    if members := len(results.run.members):
        texts.append("one policy is served" if members == 1 else f"a mixture of {members} is served")
    return capital("; ".join(texts))


def candidates(results: RunResults) -> str:
    """Return where the candidates come from."""
    count = f"{number(len(results.candidates))} policies"
    if not results.course:
        return f"{count}, one for each λ; the best mixture of them is served"
    last = max((c.step for c in results.candidates), default=0)
    return f"{count} over {number(last)} gradient steps; the rule {results.method} chose among them"


def multiplier_finding(results: RunResults) -> str:
    """Return where λ was in the last quarter of training."""
    tail = results.course[-max(1, len(results.course) // 4) :]
    parts = []
    for j, budget in enumerate(results.budgets):
        values = [c.multiplier[j] for c in tail]
        ends = number(min(values)), number(max(values))
        span = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
        parts.append(span if len(results.budgets) == 1 else f"{span} for {results.called(budget.name)}")
    return f"The price of the budget, λ, was {', '.join(parts)} in the last quarter of training"


def stored_finding(results: RunResults) -> str:
    """Return how many numbers are stored, against the original method."""
    last = results.course[-1]
    text = f"{short(last.stored_parameters)} parameters kept at the end"
    if last.original_parameters and last.stored_parameters:
        times = last.original_parameters / last.stored_parameters
        text += f"; the original method would keep {short(last.original_parameters)}"
        if times >= 1.5:
            text += f", {number(times, 0 if times >= 10 else 1)} times as many"
    return text
