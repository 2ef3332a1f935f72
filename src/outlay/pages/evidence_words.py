"""The evaluation in words: the certificate, gains by segment, what each estimator says, and what all of it rests on."""

from __future__ import annotations

from collections.abc import Iterable

from outlay.choosing import estimators
from outlay.core.estimate import Estimate
from outlay.core.target import Target
from outlay.pages.content import Interval, ReportContent
from outlay.pages.evidence_content import Bound, SegmentLine
from outlay.pages.words import NONE, budget, days, decimals, exact, number, per, plain, target

ESTIMATORS = {name: (row.title, row.assumes) for name, row in estimators.ESTIMATORS.items()}

CHECKS = {
    "propensities": ("How likely was the old policy to give what it gave?",
                     "so what needs propensities is not recommended, and agreement is not checked"),
    "reproduction": ("Does the fitted evaluation give the old policy's observed totals back?",
                     "so the fitted evaluation is not recommended, and nothing is certified"),
    "agreement": ("Do the other estimators, some of which assume less, contradict the fitted evaluation?",
                  "so the fitted evaluation is not recommended, and nothing is certified"),
}  # fmt: skip


def certificate_finding(content: ReportContent) -> str:
    """Each bound against its limit."""
    certificate = content.certificate
    if certificate is None or certificate.refused:
        return "No certificate"
    parts = []
    for bound in certificate.bounds:
        line = budget(content, bound.budget)
        side = "at most" if line.sign > 0 else "at least"
        parts.append(
            f"{bound.budget} is {side} {bound_numbers(bound)[2]} {per(line)} "
            f"({'inside' if bound.kept else 'outside'} the limit of {plain(line.limit)})"
        )
    return f"With {exact(certificate.confidence)} confidence {' and '.join(parts)}"


def bound_numbers(bound: Bound) -> tuple[str, str, str]:
    """Margin, estimate and bound, rounded alike."""
    digits = decimals([Interval(bound.value, min(bound.value, bound.bound), max(bound.value, bound.bound))])
    return number(bound.margin, digits), number(bound.value, digits), number(bound.bound, digits)


def guarantee(content: ReportContent) -> str:
    """What the certificate promises: of this mixture, or of all mixtures of the frontier at once."""
    certificate = content.certificate
    assert certificate is not None
    alpha = exact(1 - certificate.confidence)
    if certificate.policies == 1:
        return f"the chance that this mixture is certified and yet breaks a limit is at most {alpha}."
    return (
        f"the bounds hold for {certificate.policies} policies together, and so for every mixture of them and for every "
        f"budget of the curve, by one look: the chance that any of these is certified and yet breaks a limit is at "
        f"most {alpha}. Another budget costs no further look."
    )


def gain(content: ReportContent) -> str:
    """What the mixture brings beyond the old policy, and at least."""
    certificate = content.certificate
    if certificate is None or certificate.gain is None:
        return "The gain over the old policy could not be measured, or too few events make it to bound it."
    found = certificate.gain
    digits = decimals([Interval(found.value, found.bound, 2 * found.value - found.bound)])
    value, bound = signed(found.value, digits), signed(found.bound, digits)
    return (
        f"Beyond the old policy it brings {value} ({target(content, found.target)}): with "
        f"{exact(certificate.confidence)} confidence {bound} at least."
    )


def share(part: float) -> str:
    """A share that may be tiny: `0.0011` → `0.110 %`."""
    return f"{number(100 * part)} %"


def signed(value: float, digits: int) -> str:
    """A difference, with its sign."""
    text = number(value, digits)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def longest(targets: Iterable[str]) -> str | None:
    """The reward's total of most days among some targets, else the reward's discounted mean."""
    named = set(targets)
    totals = [int(t.partition("@")[2]) for t in named if t.startswith("reward@")]
    return str(Target("reward", max(totals))) if totals else "reward" if "reward" in named else None


def segments_finding(content: ReportContent) -> str:
    """The segments that gain or lose most."""
    wanted = longest(line.target for line in content.segments)
    lines = [line for line in content.segments if line.target == wanted and line.gain.value is not None]
    if wanted is None or not lines:
        return "No gain by segment can be given"
    lines = sorted(lines, key=lambda line: -abs(line.gain.value or 0.0))
    digits = decimals([interval(line.gain) for line in lines])
    shown = [f"{line.segment} {signed(line.gain.value or 0.0, digits)}{_clearly(line)}" for line in lines[:3]]
    return f"Gain over the old policy in {target(content, wanted)}: {'; '.join(shown)}"


def _clearly(line: SegmentLine) -> str:
    low, high = line.gain.low, line.gain.high
    return " (it may be none)" if low is not None and high is not None and low <= 0 <= high else ""


def estimates_finding(content: ReportContent) -> str:
    """What the estimators that can be relied on say of the longest total, and which cannot."""
    mine = [e for e in content.estimates if e.policy == "mixture"]
    wanted = longest(e.target for e in mine)
    asked = [e for e in mine if e.target == wanted]
    relied = [e for e in asked if e.recommended]
    if wanted is None or not relied:
        return "No estimate can be relied on"
    digits = decimals([interval(e) for e in relied])
    said = _listed([f"{number(e.value, digits)} by {e.estimator}" for e in relied])
    others = _listed([e.estimator for e in asked if not e.recommended])
    text = f"{target(content, wanted)}: {said}"
    return f"{text}; {others} cannot tell" if others else text


def interval(e: Estimate) -> Interval | None:
    """A number with its ends; None where it is withheld."""
    return None if e.value is None else Interval(e.value, e.low, e.high)


def estimate(e: Estimate, digits: int | None = None) -> tuple[str, str]:
    """Value and interval, rounded alike."""
    if e.value is None:
        return NONE, NONE
    digits = decimals([interval(e)]) if digits is None else digits
    ends = NONE if e.low is None or e.high is None else f"{number(e.low, digits)} to {number(e.high, digits)}"
    return number(e.value, digits), ends


def use(e: Estimate) -> str:
    """Whether to act on a number, and why not."""
    if e.withheld:
        return f"withheld: {e.withheld}"
    return "recommended" if e.recommended else f"not recommended: {e.caution}" if e.caution else "for comparison"


def reasons(content: ReportContent) -> list[str]:
    """Why numbers of the policy are withheld or not recommended, a sentence for each reason."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for e in content.estimates:
        reason = e.withheld or e.caution
        if e.policy != "mixture" or reason is None:
            continue
        what = "gives no number" if e.withheld else "is not recommended"
        groups.setdefault((what, reason), {}).setdefault(e.estimator, []).append(e.target)
    sentences = []
    for (what, reason), targets in groups.items():
        together: dict[str, list[str]] = {}
        for estimator, names in targets.items():
            together.setdefault(_about(content, names), []).append(estimator)
        for about, names in together.items():
            does = what if len(names) == 1 else {"gives no number": "give no number"}.get(what, "are not recommended")
            sentences.append(f"{_listed(names)} {does} for {about}: {reason}.")
    return sentences


def _about(content: ReportContent, targets: list[str]) -> str:
    """Targets in few words: all quantities over the same days are `totals of 7 days`."""
    every = {"reward", *(b.name for b in content.budgets)}
    alike = all(b.per == "decision" for b in content.budgets)
    means = "discounted means" if content.window is None else f"means of the first {days(content.window)}"
    parts = []
    for kind in dict.fromkeys(_kind(t) for t in targets):
        names = [t for t in targets if _kind(t) == kind]
        if {t.removesuffix(kind) for t in names} == every and (kind or alike):
            parts.append(f"totals of {days(kind[1:])}" if "@" in kind else "discounted means" if kind else means)
        else:
            parts += [target(content, name) for name in names]
    return _listed(parts)


def _kind(name: str) -> str:
    """`@7` of a total, `/discounted` of a mean beside one over a window, nothing of what is maximised."""
    return next((name[name.index(mark) :] for mark in "@/" if mark in name), "")


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def evidence_finding(content: ReportContent) -> str:
    """Which checks were passed."""
    checks = content.evidence.checks if content.evidence else ()
    failed = [check.name for check in checks if check.ok is False]
    skipped = [check.name for check in checks if check.ok is None]
    if failed:
        return f"Not passed: {_listed(failed)}"
    return f"Every check made was passed; not checked: {_listed(skipped)}" if skipped else "Every check was passed"


def unseen(content: ReportContent) -> list[str]:
    """Values that the policy gives in a segment where the log never gave them."""
    lines = content.evidence.overlap if content.evidence else ()
    return [
        f"In segment {line.segment} {share(line.unseen_share)} of what the policy gives was never given by the log: "
        f"{', '.join(plain(value) for value in line.unseen)}."
        for line in lines
        if line.unseen
    ]
