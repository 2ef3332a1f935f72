"""An evaluation in words: the certificate, gains by segment, the estimates, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping

from outlay.core.actions import shown
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate, Target, longest_total
from outlay.core.reasons import Reason
from outlay.core.wording import days, decimals, exact, number, plain, signed
from outlay.estimators.certificate import CONDITIONS, Certificate
from outlay.estimators.units import objective
from outlay.evaluating.check_result import CheckResult
from outlay.evaluating.evaluation import Evaluation
from outlay.pages.amounts import capital
from outlay.pages.results import RunResults
from outlay.pages.tables import around, per, quantity, window

STATIONARY = (
    "Outcomes and moves depend on state and action alone, in the same way on every day of the log; that is why a week "
    "of log can say something about the days after it."
)
SAME_USERS = "The users of the next campaign are like those of this one."


def refusal(results: RunResults) -> str | None:
    """Return why the certificate has no bounds, or None."""
    certificate = results.evaluated.certificate
    if any(line.bound is None for line in certificate.budgets):
        return str(certificate.withheld or certificate.words)
    return certificate.words if certificate.too_few else None


def certificate_finding(results: RunResults) -> str:
    """Return each bound against its limit."""
    if refusal(results):
        return "No certificate"
    parts, held = [], results.evaluated.certificate.held
    for budget, line, row in zip(
        results.budgets, results.evaluated.certificate.budgets, results.certificate.rows, strict=True
    ):
        side, bound = "at most" if budget.sign > 0 else "at least", row.cells[-2].text
        where = "inside" if line.kept else "outside"
        aside = "; a cap holds it while serving" if budget.name == held else ""
        parts.append(
            f"{results.called(budget.name)} is {side} {bound} {per(budget)} "
            f"({where} the limit of {plain(budget.limit)}{aside})"
        )
    return f"With {exact(results.evaluated.certificate.confidence)} confidence {' and '.join(parts)}"


def guarantee(certificate: Certificate) -> str:
    """Return what the certificate promises: for this mixture, or for all mixtures of the frontier at once."""
    alpha = exact(1 - certificate.confidence)
    if certificate.policies == 1:
        return f"the chance that this mixture is certified and yet breaks a limit is at most {alpha}."
    return (
        f"the bounds hold for {number(certificate.policies)} policies together, and so for every mixture of them and "
        "for every budget of the curve, at the cost of one look: the chance that any of these is certified and yet "
        f"breaks a limit is at most {alpha}. Another budget costs no further look."
    )


def chosen(results: RunResults) -> str:
    """Return what room was left when the mixture was chosen, and what that costs."""
    holding = results.evaluated.holding
    room = (
        "The mixture was chosen with limits tightened by the margin, so that a mixture that keeps its limits is likely "
        "to be certified as well."
    )
    if holding is not None and holding.hold == "serving":
        others = "" if len(results.budgets) == 1 else " Other limits were tightened by the margin when it was chosen."
        return f"{holding.words}{others}"
    return room if holding is None else f"{room} {holding.words}"


def rests_on(results: RunResults) -> list[str]:
    """Return what must be true for the certificate to hold, and what was found of it, a sentence each."""
    once = results.campaign.log.once
    stationary = [STATIONARY] if results.window is None and not once else []
    diagnostics = results.evaluated.diagnostics
    days = None if once else diagnostics.days
    found = [days, diagnostics.missing_days, diagnostics.path_bias, diagnostics.sensitivity]
    said = [each.words for each in found if each is not None]
    return [*stationary, *map(_sentence, CONDITIONS), SAME_USERS, *map(_sentence, said)]


def _sentence(words: str) -> str:
    return f"{capital(words)}."


def gain(results: RunResults) -> str:
    """Return what the mixture brings beyond the old policy, and its lower bound."""
    certificate = results.evaluated.certificate
    if certificate.gain is None or certificate.gain_bound is None:
        return "The gain over the old policy could not be measured, or it rests on too few events to be bounded."
    value, bound = certificate.gain, certificate.gain_bound
    digits = decimals([around(value, value - bound)])
    return (
        f"Beyond the old policy it brings {signed(value, digits)} ({results.quantity(objective(results.campaign))}); "
        f"with {exact(certificate.confidence)} confidence at least {signed(bound, digits)}."
    )


def segments_finding(results: RunResults) -> str:
    """Return the segments that gain or lose most."""
    found = [e for e in results.evaluated.segments if e.policy == "gain" and e.value is not None]
    wanted = longest_total(e.target for e in results.evaluated.segments)
    gains = [e for e in found if e.target == wanted]
    if wanted is None or not gains:
        return "No gain by segment can be given"
    digits = decimals(gains)
    most = sorted(gains, key=lambda e: -abs(e.value or 0.0))[:3]
    told = (
        f"{results.campaign.told('segments', e.segment)} {signed(e.value or 0.0, digits)}"
        f"{' (it may be none)' if _may_be_none(e) else ''}"
        for e in most
    )
    return f"Gain over the old policy in {results.quantity(wanted)}: {'; '.join(told)}"


def _may_be_none(e: Estimate) -> bool:
    return e.low is not None and e.high is not None and e.low <= 0 <= e.high


def estimates_finding(results: RunResults) -> str:
    """Return the longest total by the estimators that can be relied on, and name those that cannot."""
    mine = results.evaluated.estimates
    wanted = longest_total(e.target for e in mine)
    relied = [e for e in mine if e.target == wanted and e.recommended]
    if wanted is None or not relied:
        return "No estimate can be relied on"
    digits = decimals(relied)
    values = _listed([f"{number(e.value, digits)} by {e.estimator}" for e in relied])
    others = _listed([e.estimator for e in mine if e.target == wanted and not e.recommended])
    text = f"{results.quantity(wanted)}: {values}"
    return f"{text}; {others} cannot tell" if others else text


def reasons(evaluation: Evaluation, campaign: Campaign) -> list[str]:
    """Return why numbers of the policy are withheld or not recommended, a sentence for each reason."""
    groups: dict[tuple[bool, Reason], dict[str, list[str]]] = {}
    for e in evaluation.estimates:
        if reason := e.withheld or e.caution:
            groups.setdefault((e.withheld is not None, reason), {}).setdefault(e.estimator, []).append(e.target)
    sentences = []
    for (withheld, why), targets in groups.items():
        together: dict[str, list[str]] = {}
        for estimator, names in targets.items():
            together.setdefault(_about(evaluation, campaign, names), []).append(estimator)
        for about, names in together.items():
            one = len(names) == 1
            verb = (
                ("gives no number" if one else "give no number")
                if withheld
                else ("is" if one else "are") + " not recommended"
            )
            sentences.append(f"{_listed(names)} {verb} for {about}: {why}.")
    return sentences


def _about(evaluation: Evaluation, campaign: Campaign, texts: list[str]) -> str:
    """Return targets in few words: all quantities over the same days are `totals of 7 days`."""
    every, over = {"reward", *(b.name for b in campaign.limits)}, window(evaluation)
    alike = all(b.per == "decision" for b in campaign.limits)
    means = "discounted means" if over is None else f"means of the first {days(over)}"
    groups: dict[tuple[int | None, str], list[Target]] = {}
    for parsed in map(Target.parse, texts):
        groups.setdefault((parsed.days, parsed.kind), []).append(parsed)
    parts = []
    for (span, kind), targets in groups.items():
        if {t.name for t in targets} == every and (span is not None or kind or alike):
            parts.append(f"totals of {days(span)}" if span is not None else "discounted means" if kind else means)
        else:
            parts += [quantity(str(t), campaign, over) for t in targets]
    return _listed(list(dict.fromkeys(parts)))  # where users have one row, totals of any days are the same


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def evidence_finding(checks: Mapping[str, CheckResult]) -> str:
    """Return which checks were passed."""
    failed = [name for name, finding in checks.items() if finding.ok is False]
    skipped = [name for name, finding in checks.items() if finding.ok is None]
    if failed:
        return f"Not passed: {_listed(failed)}"
    return f"Every check made was passed; not checked: {_listed(skipped)}" if skipped else "Every check was passed"


def unseen(evaluation: Evaluation, campaign: Campaign) -> list[str]:
    """Return the actions that the policy gives in a segment where the log never gave them, a sentence each."""
    return [
        f"In segment {campaign.told('segments', line.segment)} {exact(line.unseen_share, 3)} of what the policy gives "
        "was never given by the log: "
        f"{', '.join(map(shown, line.unseen))}."
        for line in evaluation.diagnostics.overlap
        if line.unseen
    ]
