"""What training left, in words: candidates, members, λ, stored numbers, a response model's calibration."""

from __future__ import annotations

from outlay.pages.content import ReportContent
from outlay.pages.learned_content import CalibrationLine, Measured
from outlay.pages.words import days, keeps_limits, number, short


def calibration_title(content: ReportContent, line: CalibrationLine) -> str:
    """What a head of a response model predicts."""
    what = content.reward_label if line.head == "reward" else line.head
    return f"{what} within {days(content.label_days)}"


def calibration_finding(content: ReportContent) -> str:
    """Whether outcomes follow the predictions, head by head."""
    parts = []
    for line in content.calibration:
        said = calibration_title(content, line)
        if line.slope is None or line.slope_error is None:
            parts.append(f"{said}: all predictions are alike")
        else:
            slope = f"{number(line.slope, 3)} ± {number(2 * line.slope_error, 3)}"
            parts.append(f"{said}: outcomes move by {slope} where predictions move by 1")
    return "; ".join(parts)


def plane_finding(content: ReportContent) -> str:
    """How many candidates kept the limits, and what the mixture is made of."""
    kept = sum(keeps_limits(c.measured, content.budgets) for c in content.candidates)
    by = content.candidates_measured_by
    every = {1: "the limit", 2: "both limits"}.get(len(content.budgets), "every limit")
    texts = []
    if content.candidates:
        texts.append(f"{kept:,} of {len(content.candidates):,} candidates keep {every}, by {by}")
    if content.members:
        count = len(content.members)
        texts.append("one policy is served" if count == 1 else f"a mixture of {count} is served")
    text = "; ".join(texts)
    return text[:1].upper() + text[1:]


def candidates(content: ReportContent) -> str:
    """How the candidates came to be."""
    if not content.training:
        return f"{len(content.candidates):,} policies, one for each λ; the best mixture of them is served"
    last = max((c.step for c in content.candidates), default=0)
    many = f"{len(content.candidates):,} policies over {last:,} gradient steps"
    return f"{many}; the rule {content.method} chose among them"


def two_figures(measured: Measured, budgets: int) -> list[str]:
    """Reward, then each cost: the critic's figure and the fitted one, side by side."""
    points = [measured.critic, measured.fitted]
    rows = [[None if p is None else p.reward for p in points]]
    rows += [[None if p is None else p.costs[j] for p in points] for j in range(budgets)]
    return [number(value, 3 if value is not None and abs(value) < 10 else None) for row in rows for value in row]


def multiplier_finding(content: ReportContent) -> str:
    """Where λ stood in the last quarter of training."""
    tail = content.training[-max(1, len(content.training) // 4) :]
    parts = []
    for j, budget in enumerate(content.budgets):
        values = [t.multiplier[j] for t in tail]
        ends = number(min(values)), number(max(values))
        span = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
        parts.append(span if len(content.budgets) == 1 else f"{span} for {budget.name}")
    return f"The price of the budget, λ, ended at {', '.join(parts)} in the last quarter"


def stored_finding(content: ReportContent) -> str:
    """Stored numbers against the original method."""
    known = [t for t in content.training if t.stored_parameters is not None]
    if not known:
        return "Stored parameters"
    last = known[-1]
    text = f"{short(last.stored_parameters or 0)} parameters kept at the end"
    if last.original_parameters and last.stored_parameters:
        times = last.original_parameters / last.stored_parameters
        text += f"; the original method would keep {short(last.original_parameters)}"
        if times >= 1.5:
            text += f", {number(times, 0 if times >= 10 else 1)} times as many"
    return text
