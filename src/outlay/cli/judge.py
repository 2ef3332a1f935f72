"""The command that judges a policy: evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli.console import Json, Quiet, Threads, print_json, progress, stdout, table, use_threads
from outlay.core.campaign import Campaign
from outlay.core.estimate import Estimate
from outlay.core.reasons import Reason
from outlay.core.target import Target
from outlay.core.wording import HasInterval, exact

if TYPE_CHECKING:  # the import takes long, and --help does without it
    from outlay.estimators.certificate import Certificate
    from outlay.evaluating.evaluation import Evaluation

NOT_RELIED_ON = "*"


def evaluate(
    source: Annotated[
        Path, typer.Argument(metavar="RUN_OR_DATA", help="A folder that outlay train wrote; or DATA, with --policy.")
    ],
    policy: Annotated[
        Path | None,
        typer.Option(help="A policy as Parquet: user, time, then the probability of each action, named by its value."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Compare it with another RUN or policy file too. Default: old, the log's own.")
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Of intervals and certificate, e.g. 0.95.")] = None,
    learned_here: Annotated[
        bool,
        typer.Option("--learned-here", help="The policy was learned from this log: measure it on certify users alone."),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Estimate what a policy brings and costs, and certify it, on users never used for choosing.

    With DATA and a policy file these are all users of the log, if it states propensities.

    Example: outlay evaluate run --against other-run

    Example: outlay evaluate data --policy rules.parquet --json
    """
    use_threads(threads)
    with progress("evaluate", quiet=quiet or as_json) as report:
        from outlay.jobs.evaluate import evaluate as job
        from outlay.jobs.evaluate import opened

        run, data = opened(source)
        result = job(
            run or data,
            policy=policy,
            against=against,
            confidence=confidence,
            learned_here=learned_here,
            progress=report,
        )
    if as_json:
        print_json(result.to_dict())
    elif not quiet:
        _show(result, run.campaign if run else data.campaign)


def _show(result: Evaluation, campaign: Campaign) -> None:
    from outlay.choosing.estimators import ESTIMATORS
    from outlay.pages.report_words import DISCOUNTED

    _policies(result, campaign)
    if result.window is not None:
        _say(result.window.words)
    elif campaign.meta.discount > 0 and any(b.per == "decision" for b in campaign.budgets):
        _say(DISCOUNTED.format(discount=campaign.meta.discount))
    days = result.window.days if result.window else None
    _side_by_side(f"{result.title}, by each estimator", result.estimates, campaign, days)
    for name in dict.fromkeys(e.estimator for e in result.estimates):
        _say(f"  {name}: {ESTIMATORS[name].note}")
    _reasons(result.estimates)
    _segments(result, campaign)
    differences = [e for e in result.differences if e.against != "old"]
    if differences:
        title = f"{result.title} less {result.policies['against']}, paired by user"
        _side_by_side(title, differences, campaign, days)
    _rests_on(result)
    _certificate(result.certificate, result.confidence)
    _say(f"Grade: {result.grade}.")
    _say(result.verdict.words)
    for test in (result.test, result.settling):
        if test is not None:
            _say(f"{test.words} Plan it with:")
            _say(f"  {test.command}")
            _say(f"  {test.placeholders}")
    if result.randomising is not None:
        _say(result.randomising.words)
    _say(f'"Sure" and "certified" hold {result.condition}.')


def _policies(result: Evaluation, campaign: Campaign) -> None:
    """Show totals, costs against their limits, and what is certified."""
    days, reward, rows = campaign.meta.report_days, campaign.reward_label, result.rows(campaign)
    columns = ["policy", *(f"{reward}, {k} d" for k in days)]
    columns += [f"{b.name} ({'≤' if b.sign > 0 else '≥'} {b.limit:g} per {b.per})" for b in campaign.budgets]
    doubted = _doubted(result, campaign)
    lines = []
    for row in rows:
        mark = NOT_RELIED_ON if row.name in doubted else ""
        cells = [
            *((row.totals.get(k), "" if row.kind == "old" else mark) for k in days),  # the old policy's are observed
            *((row.costs.get(b.name), mark) for b in campaign.budgets),
        ]
        known = {None: "–", True: "yes", False: "no"}[row.certified]
        lines.append((row.name, *(_cell(e) + star if e else "–" for e, star in cells), known))
    users = "all users" if result.users == "all" else "users never used for choosing"
    title = f"{campaign.meta.name}: per user, {exact(result.confidence)} intervals, {users}"
    table(title, (*columns, "certified"), lines)
    for row in rows:
        if row.note:
            _say(f"  {row.name}: {row.note}")


def _doubted(result: Evaluation, campaign: Campaign) -> set[str]:
    """Return the titles of policies with a number in the table of results that is not to be relied on."""
    shown = {"reward", *(b.name for b in campaign.budgets)}
    return {
        result.policies[e.policy]
        for e in (*result.estimates, *result.beside)
        if e.estimator == "fqe" and e.caution and Target.parse(e.target).name in shown
    }


def _side_by_side(title: str, estimates: Sequence[Estimate], campaign: Campaign, window: int | None) -> None:
    """Show a line for each target and a column for each estimator; means are over `window` days, if there is one."""
    names = list(dict.fromkeys(e.estimator for e in estimates))
    by = {(e.estimator, e.target): e for e in estimates}
    lines = [
        (_words(target, campaign, window), *(_estimate(by.get((name, target))) for name in names))
        for target in dict.fromkeys(e.target for e in estimates)
    ]
    table(title, ("", *names), lines)


def _words(text: str, campaign: Campaign, window: int | None) -> str:
    """`active, 7 d` for `reward@7`; `active per day, discounted` for `reward`, or `…, mean of 7 d`."""
    target = Target.parse(text)
    label = campaign.reward_label if target.name == "reward" else target.name
    if target.days is not None:
        return f"{label}, {target.days} d"
    per = {b.name: f"per {b.per}" for b in campaign.budgets}.get(target.name)
    if window is not None:
        span = "discounted" if target.kind else f"mean of {window} d"
        return f"{label} {per or 'per day'}{'' if per == 'per user' else f', {span}'}"
    return f"{label} {per or ('per day, discounted' if campaign.meta.discount > 0 else 'on the first day')}"


def _reasons(estimates: Sequence[Estimate]) -> None:
    """Say why numbers are not given or not to be relied on: a reason for each estimator."""
    for mark, meaning in ((NOT_RELIED_ON, "not to be relied on"), ("–", "not given")):
        reasons: dict[str, list[Reason]] = {}
        for e in estimates:
            if reason := e.caution if mark == NOT_RELIED_ON else e.withheld:
                reasons.setdefault(e.estimator, []).append(reason)
        alike: dict[str, list[str]] = {}
        for name, own in reasons.items():
            others = len(set(own)) - 1
            alike.setdefault(f"{own[0]}{f' ({others} more in --json)' if others else ''}", []).append(name)
        for words, names in alike.items():
            _say(f"  {mark} {meaning}: {', '.join(names)}: {words}")


def _segments(result: Evaluation, campaign: Campaign) -> None:
    """Show the longest total in each segment."""
    target = str(Target("reward", max(campaign.meta.report_days)))
    by = {(e.segment, e.policy): e for e in result.segments if e.target == target}
    if not by:
        return
    titles = {"old": result.policies["old"], result.subject: result.title, "gain": "gain"}
    lines = [
        (name, f"{by[name, 'old'].users:,}", *(_estimate(by[name, policy]) for policy in titles))
        for name in dict.fromkeys(segment for segment, _ in by)
    ]
    title = f"{_words(target, campaign, None)}, by segment of a user's first row, by fqe"
    table(title, ("segment", "users", *titles.values()), lines)
    for segment, reason in dict.fromkeys((e.segment, e.withheld) for e in by.values() if e.withheld):
        _say(f"  – {segment}: {reason}")


def _rests_on(result: Evaluation) -> None:
    """Say what the numbers rest on, in a few lines."""
    diagnostics = result.diagnostics
    for name, finding in diagnostics.checks.items():
        _say(f"{name.capitalize()}: {finding.words}.")
    if diagnostics.path_bias is not None:
        _say(f"Bias: {diagnostics.path_bias.words}.")
    _say(f"Days: {diagnostics.days.words}.")
    if diagnostics.sensitivity is not None:
        _say(f"Unlogged causes: {diagnostics.sensitivity.words}.")
    paths = ", ".join(
        f"{line.matched:.2%} of users for {line.days} d ({line.ess:,.0f} effective)" for line in diagnostics.paths
    )
    _say(f"Logged paths that match the policy: {paths}.")
    for line in diagnostics.overlap:
        if line.unseen_share > 0:
            values = ", ".join(f"{value:g}" for value in line.unseen)
            _say(f"In segment {line.segment!r} {line.unseen_share:.1%} of what it gives was never given: {values}.")


def _certificate(certificate: Certificate, confidence: float) -> None:
    """Say what it certifies, and every bound; the verdict says why there is none."""
    from outlay.choosing.looks import alpha_of, counted_in
    from outlay.estimators.certificate import OWN

    clusters = "" if certificate.clusters is None else f" in {certificate.clusters:,} clusters"
    _say(
        f"Certificate at {exact(certificate.confidence)}, look {certificate.look} at these {certificate.users:,} "
        f"users{clusters}: {'certified' if certificate.certified else 'not certified'}."
    )
    for line in certificate.budgets:
        if line.bound is not None:
            side, limit = ("at least", "≥") if line.floor else ("at most", "≤")
            _say(f"  {line.budget}: {line.value:.3f}, {side} {line.bound:.3f} (limit {limit} {line.limit:g})")
    if certificate.look and certificate.alpha and certificate.alpha < 0.99 * alpha_of(certificate.look, confidence):
        _say(
            f"The same look certifies every other budget of the curve, which outlay frontier shows: {OWN:.0%} of the "
            f"error that it may make ({exact(alpha_of(certificate.look, confidence))}) are for this mixture."
        )
    _say(f"Looks at these users are counted in {counted_in()}, whichever DATA folder their rows are in.")


def _estimate(e: Estimate | None) -> str:
    if e is None or e.value is None:
        return "–"
    return _cell(e) + ("" if e.recommended else NOT_RELIED_ON)


def _cell(e: HasInterval) -> str:
    return f"{e.value:.3f}" if e.low is None or e.high is None else f"{e.value:.3f} ±{(e.high - e.low) / 2:.3f}"


def _say(text: str) -> None:
    stdout.print(text, markup=False, highlight=False)
