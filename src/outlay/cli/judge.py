"""Commands that judge what was learned, and show it: evaluate, frontier, report, index, compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlay.cli.console import (
    CampaignFile,
    Confidence,
    Json,
    Quiet,
    Resume,
    RunFolder,
    Threads,
    Verbose,
    keeping,
    print_json,
    progress,
    say,
    show,
    table,
    tell_as,
    use_threads,
    warn,
)
from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError, nearest
from outlay.core.files import partial_of
from outlay.core.machine import processors
from outlay.core.wording import exact, number, plain

if TYPE_CHECKING:  # the import takes long, and --help does without it
    from outlay.comparing.results import Comparison
    from outlay.core.reasons import Reason
    from outlay.estimators.certificate import Certificate
    from outlay.evaluating.budget_curve import BudgetCurve
    from outlay.evaluating.evaluation import Evaluation


whole = partial(show, screen=False)  # of -v
FAILED = 3  # the exit code of what --fail-on names
OUTCOMES: dict[str, Callable[[Certificate], bool]] = {  # of --fail-on
    "not-certified": lambda of: not of.certified and of.held is None,
    "loss": lambda of: of.loses,
    "no-gain": lambda of: of.gain_bound is None or of.gain_bound <= 0,
}


def evaluate(
    source: Annotated[
        Path, typer.Argument(metavar="RUN_OR_DATA", help="A folder that outlay train wrote; or DATA, with --policy.")
    ],
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A policy as Parquet: user, time, then the probability of each action, named by its value.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RUN_OR_FILE", help="Also compare with another RUN or policy file. Default: old, the log's own."
        ),
    ] = None,
    confidence: Confidence = None,
    learned_here: Annotated[
        bool,
        typer.Option("--learned-here", help="The policy was learned from this log: measure it on certify users alone."),
    ] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="OUTCOMES", help="Exit with 3 on any of these, separated by commas: not-certified, loss, no-gain."
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Estimate what a policy brings and costs, and certify it.

    It is measured on users that were never used for choosing. With DATA and a policy file, these are all users of the
    log, if it states propensities.

    Example: outlay evaluate run --against other-run

    Example: outlay evaluate data --policy rules.parquet --json

    Example, in a pipeline: outlay evaluate run --fail-on not-certified,loss
    """
    use_threads(threads)
    failing = _failing(fail_on)
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
        campaign = run.campaign if run else data.campaign
        tell_as(campaign.timed)
        if verbose:
            _show(result, campaign, run.manifest["margin"] if run else None)
        else:
            _show_first(result, campaign, source)
    if reached := [name for name in failing if OUTCOMES[name](result.certificate)]:
        warn(f"--fail-on: {', '.join(reached)}.")
        raise typer.Exit(FAILED)


def _failing(asked: str | None) -> list[str]:
    """The outcomes that `--fail-on` names. Raises OutlayError if one is unknown."""
    names = [] if asked is None else [name.strip() for name in asked.split(",") if name.strip()]
    for name in names:
        if name not in OUTCOMES:
            raise OutlayError(f"names {name!r}.", where="--fail-on", way_out=nearest(name, OUTCOMES, "Give some of"))
    return names


def _show_first(result: Evaluation, campaign: Campaign, source: Path) -> None:
    """One screen: what it is worth beside the log's own policy, what stands against it, the verdict, what to do."""
    from outlay.pages import tables

    show(tables.policies(result, campaign, brief=True), screen=True)
    say(*_doubts(result, campaign))
    checks = result.diagnostics
    told = [f"Checks: {len(checks.answered(True))} of {len(checks.checks)} passed."]
    for answer, what in ((False, "Not passed"), (None, "Could not be made")):
        if names := checks.answered(answer):
            told.append(f"{what}: {', '.join(names)} (-v says why).")
    say(" ".join(told))
    if checks.missing_days is not None and checks.missing_days.many:
        say(f"Missing days: {checks.missing_days.words}.")
    say(f"Grade: {result.grade}.", result.verdict.words)
    if result.certificate.withheld is None:
        say(f'"Sure" and "certified" hold {result.condition}.')
    test = next((test for test in (result.test, result.settling) if test is not None), None)
    if test is not None:
        say(f"{test.words} Plan it with:", f"  {test.command}", test.placeholders)
    elif result.randomising is not None:
        say(result.randomising.words)
    say(f"outlay evaluate {source} -v prints every estimate, check and bound; outlay report {source} writes a page.")


def _doubts(result: Evaluation, campaign: Campaign) -> list[str]:
    """What the stars of other policies mean; of those of the evaluated policy the verdict speaks."""
    doubts: dict[Reason | None, dict[str, str]] = {}
    for row in result.rows(campaign):
        longest = list(row.totals.values())[-1:]
        for e in (*longest, *row.costs.values()) if row.kind != "member" else ():
            doubts.setdefault(e.caution, {})[row.name] = row.kind
    doubts.pop(None, None)
    return [f"* {', '.join(kinds)}: {why}." for why, kinds in doubts.items() if "chosen" not in kinds.values()]


def _show(result: Evaluation, campaign: Campaign, margins: Sequence[float] | None = None) -> None:
    from outlay.choosing.estimators import ESTIMATORS
    from outlay.pages import evaluation_words, tables
    from outlay.pages.results import discounted

    whole(tables.policies(result, campaign))
    say(*(f"  {row.name}: {row.note}" for row in result.rows(campaign) if row.note))
    say(*(discounted(campaign) if result.window is None else [result.window.words]))
    whole(tables.by_estimator(result, campaign))
    for name in dict.fromkeys(e.estimator for e in result.estimates):
        say(f"  {name}: {ESTIMATORS[name].note}")
    say(
        "  * not to be relied on; – no number",
        *(f"  {reason}" for reason in evaluation_words.reasons(result, campaign)),
    )
    for each in tables.segments(result, campaign):
        whole(each)
    for name, each in tables.differences(result, campaign):
        if name != "old":
            whole(each)
    whole(tables.checks(result))
    _rests_on(result, campaign)
    _certificate(result, campaign, margins)
    say(f"Grade: {result.grade}.", result.verdict.words)
    for test in (result.test, result.settling):
        if test is not None:
            say(f"{test.words} Plan it with:", f"  {test.command}", f"  {test.placeholders}")
    if result.randomising is not None:
        say(result.randomising.words)
    say(f'"Sure" and "certified" hold {result.condition}.')


def _rests_on(result: Evaluation, campaign: Campaign) -> None:
    """Say what the numbers rest on beside the checks."""
    from outlay.pages import evaluation_words, tables

    diagnostics, once = result.diagnostics, bool(campaign.log.once)
    if diagnostics.path_bias is not None:
        say(f"Bias: {diagnostics.path_bias.words}.")
    if not once:
        say(f"Days: {diagnostics.days.words}.")
    if diagnostics.missing_days is not None:
        say(f"Missing days: {diagnostics.missing_days.words}.")
    if diagnostics.sensitivity is not None:
        say(f"Unlogged causes: {diagnostics.sensitivity.words}.")
    whole(tables.paths(result, once=once))
    say(*evaluation_words.unseen(result, campaign))


def _certificate(result: Evaluation, campaign: Campaign, margins: Sequence[float] | None) -> None:
    """Say what it certifies, and every bound; the verdict says why there is none."""
    from outlay.choosing.looks import alpha_of, counted_in
    from outlay.pages.results import BESIDE_CURVE
    from outlay.pages.tables import certificate

    found = result.certificate
    clusters = "" if found.clusters is None else f" in {number(found.clusters)} clusters"
    say(
        f"Certificate at {exact(found.confidence)}, look {found.look} at these {number(found.users)} users{clusters}: "
        f"{'certified' if found.certified else 'held while serving' if found.held else 'not certified'}."
    )
    if any(line.bound is not None for line in found.budgets):
        whole(certificate(result, campaign, margins))
    if found.look and found.alpha and found.alpha < 0.99 * alpha_of(found.look, result.confidence):
        say(BESIDE_CURVE)
    if result.holding is not None:
        say(result.holding.words)
    say(f"Looks at these users are counted in {counted_in()}, whichever DATA folder their rows are in.")


def frontier(
    run: RunFolder,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="LIMIT",
            help="A limit of the money budget, or a change of the campaign's, as +20%; repeat the option for several.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Write the certified bundle for --budget here (all bundles of a run are one counted look).",
        ),
    ] = None,
    least_money: Annotated[
        bool, typer.Option("--least-money", help="Find the budget that keeps today's reward for the least money.")
    ] = False,
    worth: Annotated[
        float | None,
        typer.Option(
            metavar="MONEY", help="Find the budget up to which one more unit of the reward costs at most this."
        ),
    ] = None,
    gain: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Find the budget that buys this much more than today, e.g. 0.03."),
    ] = None,
    confidence: Confidence = None,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Show what every budget buys, and write the bundle for one.

    Without options the curve is also written as a page, RUN/frontier.html.

    Example: outlay frontier run --budget 1.5 --out bundles/1.5

    Example: outlay frontier run --budget +20% --budget -20%

    Example: outlay frontier run --least-money --worth 2.5 --gain 0.03
    """
    use_threads(threads)
    with progress("frontier", quiet=quiet or as_json) as report:
        from outlay.choosing.run import Run
        from outlay.jobs.frontier import frontier as job

        goals: dict[str, Any] = {"least_money": least_money, "worth": worth, "gain": gain}
        curve = job(
            run, [_limit(each) for each in budget or ()], export=out, confidence=confidence, progress=report, **goals
        )
        campaign = Run.open(run).labelled
    goals_asked = least_money or worth is not None or gain is not None
    asked = bool(out or budget or confidence or goals_asked)
    if as_json:
        print_json({"page": None if asked else str(run / "frontier.html"), **asdict(curve)})
    elif not quiet:
        tell_as(campaign.timed)
        _show_frontier(curve, campaign, run, asked=goals_asked, verbose=verbose)
        if curve.export is not None:
            say(f"{out} written (look {curve.export.look} at the certify users).", curve.export.verdict.words)
            return
        page = run / "frontier.html"
        if asked:
            say(f"The page is left as it is: outlay frontier {run} writes {page}.")
            return
        say(f"{page} written: the curve with a slider; it works offline.")


def _limit(text: str) -> float | str:
    """A limit, or a change of one, which has a sign."""
    try:
        return text if text.startswith(("+", "-")) else float(text)
    except ValueError:
        return text


def _show_frontier(curve: BudgetCurve, campaign: Campaign, run: Path, *, asked: bool, verbose: bool) -> None:
    """A table of the curve, and below it what the requested budgets and goals are, and what is certified."""
    from outlay.pages.frontier_answers import CurveAnswers
    from outlay.pages.frontier_words import CERTIFIED, CurveWording, goal_line, headline, judged, losses, table

    wording, answers = CurveWording.of(curve, campaign, str(run)), CurveAnswers.of(curve, campaign)
    money, old = curve.money_limit, curve.old
    found = answers.table if answers and not verbose else table(curve, wording, brief=not verbose)
    show(found, screen=not verbose)
    if answers and not verbose and answers.ticks:
        say(answers.ticks)
    if answers and curve.goals and not asked:
        say(*([answers.doubt] if answers.doubt else []), answers.headline, *answers.how)
    elif curve.goals and (asked or verbose):
        looked = curve.band is not None
        lines = (goal_line(g, wording, looked=looked) if answers is None else answers.line(g) for g in curve.goals)
        say(*lines)
    if any(point.slack for point in curve.requested):
        most = number(curve.curve[-1].budget, wording.budget_digits)
        say(f"Above {most} no policy of this curve spends more: it brings what that brings.")
    if money.limit < curve.least:
        say(f"The campaign's own limit, {plain(money.limit)}, lies below the curve.")
    if verbose or answers is None:  # the table has the totals of the same
        for point in curve.requested:
            held = f" It is {point.certificate}." if point.certified is False and not point.withheld else ""
            say(f"{'. '.join(headline(point, wording, curve.confidence))}{held}")
        known = "not measured, since too few rows of the log say what it brings"
        if old is not None:
            spent = number(old.spend[curve.place], wording.spend_digits[curve.place])
            known = f"{wording.value(old.value)} at {spent}"
        say(f"The log's policy: {known}.", curve.check)
    if (band := curve.band) is None:
        say(f"Not certified yet: outlay evaluate {run} looks at the certify users, once for every budget.")
    else:
        lost = losses(curve)
        say(
            f"{judged(curve)}, by "
            f"one look at {number(band.users)} certify users.{f' {CERTIFIED}: {lost}' if lost else ''} "
            f"Certified holds {curve.condition}."
        )
    say(*(each.words for each in (curve.holding, curve.window) if each is not None))


def report(run: RunFolder, as_json: Json = False, quiet: Quiet = False, threads: Threads = None) -> None:
    """Write the HTML report of a run again, into RUN/report.html.

    Example: outlay report run
    """
    from outlay.jobs.report import report as job

    use_threads(threads)
    path = job(run)
    if as_json:
        print_json({"page": str(path)})
    elif not quiet:
        say(f"{path} written: one page; it works offline.")


def index(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that holds the runs.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one page of the runs in a folder, with their verdicts.

    It is FOLDER/index.html, with links to the pages of the runs.

    Example: outlay index runs
    """
    from outlay.jobs.index import index as job

    found = job(folder)
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        rows = [(run.folder, run.grade or run.problem or "not evaluated yet", run.gain) for run in found.runs]
        table("", ("run", "grade", "against now"), rows)
        say(f"{found.page} written: runs and verdicts, with links to their pages.")


def compare(
    campaign: CampaignFile,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder to write: table, figures, JSON.")
    ] = Path("comparison"),
    seeds: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="Training runs of each method.")] = 3,
    immediate: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="What day one may cost per user. Default: as under the log's policy."),
    ] = None,
    label_days: Annotated[
        str, typer.Option(metavar="DAYS", help="Days that labels of response models look ahead.")
    ] = "1,3,7",
    oracles: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Oracles of the methods that look ahead; orthogonal only makes a frontier, bcq+network only a game.",
        ),
    ] = "ddqn,edrr,bcq,bcq+network,orthogonal",
    responses: Annotated[str, typer.Option(metavar="NAMES", help="The response models.")] = "deepfm,din",
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--row",
            metavar="NAME",
            help="A row to make, by name, * for any text ('frontier*'); repeat the option for several. Default: all.",
        ),
    ] = None,
    resume: Resume = False,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Compare methods at equal spend.

    As in the paper's second table; seeds run side by side on the processors.

    Example: outlay compare campaign.toml --out comparison --seeds 5
    """
    use_threads(threads)
    with keeping(partial_of(out), "--resume"), progress("compare", quiet=quiet or as_json) as report:
        from outlay.jobs.compare import compare as job

        comparison = job(
            campaign,
            out,
            seeds=seeds,
            immediate=immediate,
            label_days=_whole_numbers("--label-days", label_days),
            oracles=_names(oracles),
            responses=_names(responses),
            rows=rows or None,
            resume=resume,
            processes=processors(),
            threads=threads,
            progress=report,
        )
    if as_json:
        print_json({"path": str(out), **asdict(comparison)})
    elif not quiet:
        _show_comparison(comparison, verbose=verbose)
        say(f"{out / 'comparison.html'} written: tables and figures; it works offline.")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _whole_numbers(option: str, text: str) -> tuple[int, ...]:
    parts = _names(text)
    if not parts or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise OutlayError(
            f"is {text!r}; must be whole numbers.",
            where=option,
            way_out="Give whole numbers of at least 1, e.g. 1,3,7.",
        )
    return tuple(int(part) for part in parts)


def _show_comparison(comparison: Comparison, *, verbose: bool) -> None:
    """A table under each control, and what leads there."""
    from outlay.comparing.results import CONTROLS
    from outlay.pages import comparison_table as tables

    for control in CONTROLS:
        show(tables.table(comparison, control), screen=not verbose)
        found = (tables.lead(comparison, control), tables.ties(comparison, control))
        say(*(f"{sentence}." for sentence in found if sentence))
