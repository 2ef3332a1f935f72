"""Commands from a log to a run: init, check, prepare, train."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from outlay.cli.console import (
    CampaignFile,
    Json,
    Quiet,
    Resume,
    Seed,
    Threads,
    Verbose,
    keeping,
    print_json,
    progress,
    say,
    show,
    stdout,
    table,
    tell_as,
    use_threads,
    warn,
)
from outlay.core.actions import shown
from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError, listed, nearest
from outlay.core.files import partial_of
from outlay.core.wording import Interval, change, counted, decimals, exact, in_units, number, percent, signed, size
from outlay.training import METHODS, ORACLES

if TYPE_CHECKING:
    from outlay.choosing.run import Run
    from outlay.evaluating.log_check import CheckReport
    from outlay.evaluating.log_size import LogSize
    from outlay.jobs.init import OpenQuestion, Reasoned
    from outlay.jobs.plan_log import LogPlan
    from outlay.logs.effects import Effect
    from outlay.logs.findings import Finding

    Method = str
    Oracle = str
else:
    Method = Literal[METHODS]
    Oracle = Literal[ORACLES]

COLUMN, WHY, SHOWN = 24, 90, 8  # letters of a name and of a reason, and names in a line, on one screen
ACTIONS, EFFECTS, FINDINGS, DRAFTED = 6, 5, 4, 2  # on one screen, worst first
BRIEF = 3  # columns of the actions there
PLAINLY = {
    "feature": "features (known before)",
    "outcome": "follow from the action, so no features",
    "left out": "left out",
}

MethodOption = Annotated[
    Method | None,
    typer.Option(
        metavar="METHOD",
        help="frontier: one training run for every budget; two-stage: predict, then price. "
        f"Default: frontier; with --preset paper aim-greedy. All: {', '.join(METHODS)}.",
    ),
]
OracleOption = Annotated[
    Oracle,
    typer.Option(
        help="How best responses are learned; auto counts few states, and otherwise averages trees and orthogonal."
    ),
]
ResponseOption = Annotated[
    Literal["deepfm", "din"] | None,
    typer.Option(help="two-stage: the response model; din reads each user's past days. Default: deepfm."),
]
LabelDays = Annotated[
    int | None, typer.Option(metavar="NUMBER", min=1, help="two-stage: days that its labels look ahead. Default: 1.")
]
PresetOption = Annotated[
    Literal["outlay", "paper"] | None,
    typer.Option(
        help="paper: its method (aim-greedy, bcq) and schedule, the rule's own weights; no folds, no screening, no "
        "threshold on bcq's actions. λ is stepped in raw (1−γ)·J; the paper's J is 1/(1−γ) times that."
    ),
]
Folds = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        min=1,
        help="frontier: learn this many times, each time without one fold, so that all users certify.",
    ),
]
Held = Annotated[
    Literal["auto", "certified", "serving"] | None,
    typer.Option(
        help="certified: keep a margin below the money budget, for its certificate. serving: keep none, because the "
        "cap of outlay serve holds the money. auto, the default: keep it, except in outlay serve behind a cap."
    ),
]
SeedCount = Annotated[
    int | None, typer.Option(metavar="NUMBER", min=1, help="Train this many seeds side by side, each into OUT/seed-N.")
]
Workers = Annotated[
    int | None,
    typer.Option(metavar="NUMBER", min=1, help="frontier: processes of a Ray cluster that train networks together."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a RUN that was already evaluated, estimates included.")
]


def init(
    log: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG",
            help="Parquet, CSV, JSON lines, Excel, Arrow or SQLite, one or more; or postgresql://, s3://, gs://. "
            "One row per user, or per user and day.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write.")] = Path(
        "campaign.toml"
    ),
    query: Annotated[
        str | None, typer.Option(metavar="SQL", help="SQL that selects the rows, if LOG is a database.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take the guesses; ask nothing.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Guess what each column of a log is, and write campaign.toml.

    In a terminal it asks where it is not sure. Then it runs check.

    Example: outlay init log.parquet --out campaign.toml
    """
    from outlay.jobs.check import check as job
    from outlay.jobs.init import guide

    use_threads(threads)
    asking = not (yes or quiet or as_json) and sys.stdin.isatty() and stdout.is_terminal
    found = guide(log, out, query=query, ask=_Asking(verbose) if asking else None)
    if quiet and not as_json:
        _end_if_refused(found.errors, tell=True)
        return
    if not (asking or as_json):
        _show_columns(found.looked, verbose=verbose)
        say(*found.read)
    with progress("check", quiet=quiet or as_json) as report:
        report(0.0, "reading the log")
        checked = job(out, threads=threads)
    if as_json:
        columns = [asdict(each) for each in found.looked]
        print_json({"path": str(out), "read": found.read, "columns": columns, "check": checked.to_dict()})
        _end_if_refused(checked.findings)
        return
    if asking:
        say(*found.read)
    _show_draft(out, found.looked, checked, verbose=verbose)
    _end_if_refused(checked.findings)


def _show_columns(looked: Sequence[Reasoned], *, verbose: bool) -> None:
    """Column → role, why, sure or not; what has no role of its own in a line a kind, unless all is wanted."""
    plain_roles = () if verbose else ("feature", "outcome", "left out")
    shown = [each for each in looked if each.role not in plain_roles]
    lines = [
        (
            shorten(each.column, COLUMN, placeholder=" …"),
            each.role,
            "yes" if each.sure else "NOT SURE",
            each.why if verbose else shorten(each.why, WHY, placeholder=" …"),
        )
        for each in shown
    ]
    table("What the columns do", ("column", "role", "sure", "why"), lines, screen=not verbose)
    for role, means in PLAINLY.items():
        names = [(each.column, each.sure) for each in looked if each.role == role and role in plain_roles]
        if names:
            told = [f"{name} (not sure)" if not sure and role != "left out" else name for name, sure in names[:SHOWN]]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            say(f"  {means}: {', '.join(told)}{more}")


class _Asking:
    """Asks the person at the terminal; shows what the columns do before the first question about them."""

    def __init__(self, verbose: bool) -> None:
        self.shown, self.verbose = False, verbose

    def __call__(self, question: OpenQuestion) -> str:
        """The answer: a number of the list, or a column's name."""
        if question.looked and not self.shown:
            _show_columns(question.looked, verbose=self.verbose)
            self.shown = True
        return _ask(question)


def _ask(question: OpenQuestion) -> str:
    """The answer of the person at the terminal."""
    choices = [question.guess, *(name for name in question.others if name != question.guess)][:9]
    say(f"{question.meaning}?", *(f"  {i}  {n}" for i, n in enumerate(choices, 1)))
    while True:
        answer = str(typer.prompt("Number or name", default="1")).strip()
        if answer in question.columns:
            return answer
        chosen = choices[int(answer) - 1] if answer.isdigit() and 1 <= int(answer) <= len(choices) else ""
        if chosen in question.columns:
            return chosen
        say(nearest(answer, question.columns, "Columns"))


def _show_draft(out: Path, looked: Sequence[Reasoned], checked: CheckReport, *, verbose: bool) -> None:
    """What check says of the draft, and what to do next."""
    levels = [finding.level for finding in checked.findings]
    counts = [counted(levels.count(level), level) for level in ("error", "warning")]
    say(
        f"{out} written, and checked: {number(checked.rows)} rows of {number(checked.users)} users, "
        f"{len(checked.actions)} actions, {', '.join(counts)}."
    )
    if checked.randomisation:
        say(f"Assignment: {checked.randomisation.verdict}")
    _say_findings([each for each in checked.findings if each.level != "note"], most=DRAFTED, verbose=verbose)
    unsure = [f"{each.role} ({each.column})" for each in looked if not each.sure and each.role not in PLAINLY]
    if unsure:
        say(f"Look at these lines of it first: {listed(unsure)}.")
    if checked.blocks:
        say(f"Next: fix these errors, then outlay check {out}")
    else:
        say(f"Next: outlay check {out} for what it shows, then outlay train {out} --out run")


def _say_findings(findings: Sequence[Finding], *, most: int, verbose: bool) -> None:
    """The worst of them, or all."""
    shown = findings if verbose else [each for each in findings if each.level != "note"][:most]
    say(*map(_line, shown))
    if len(shown) < len(findings):
        say(f"{len(findings) - len(shown)} more: add -v.")


def check(
    campaign: CampaignFile,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL that makes the rows of [[events]], and stop.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="PAGE", help="Write the findings as a page with charts, an .html file."),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Show what is wrong with a log, and if its actions were random.

    Data quality, randomisation, overlap, and the effect of the first day's action. Exits with 2 if a finding blocks.

    Example: outlay check campaign.toml --report log.html
    """
    from outlay.jobs.check import check as job
    from outlay.jobs.check import rows_sql

    use_threads(threads)
    if sql:
        text = rows_sql(campaign)
        if as_json:
            print_json({"sql": text})
        else:
            say(text)
        return
    with progress("check", quiet=quiet or as_json) as tell:
        tell(0.0, "reading the log")
        found = job(campaign, page=report, threads=threads)
    if as_json:
        print_json({**found.to_dict(), "page": None if report is None else str(report)})
    elif not quiet:
        _show_check(found, Campaign.load(campaign), verbose=verbose)
        if report is not None:
            say(f"{report} written: the log on one page, with charts; it works offline.")
    _end_if_refused(found.findings, tell=quiet)


def plan_log(
    campaign: CampaignFile,
    gain: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="A relative gain to find, e.g. 0.02; says how many users that takes."),
    ] = None,
    users: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Users of the next log. Default: as many as this one has.")
    ] = None,
    days: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Days of the next log. Default: as many as this one has.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Say how large the next log must be to prove a gain.

    And what it costs to draw actions at random meanwhile. Any past log of the customers will do, even one in which
    nothing was random.

    Example: outlay plan-log campaign.toml --gain 0.02 --days 14
    """
    from outlay.jobs.plan_log import plan_log as job

    use_threads(threads)
    with progress("plan-log", quiet=quiet or as_json) as report:
        report(0.0, "reading the log")
        found = job(campaign, gain=gain, users=users, days=days, threads=threads)
    if as_json:
        print_json(found.to_dict())
    elif not quiet:
        _show_log_plan(found)


def _show_log_plan(found: LogPlan) -> None:
    """A row per share that is drawn at random."""
    days = "" if found.span is None else f" x {found.span}"
    header = ["drawn at random", f"changes {found.reward} by", "interval of a gain", "gain found"]
    rows = []
    for each in found.sizes:
        cost = "?" if each.cost is None else _cost(each)
        width, found_gain = f"± {_relative(each.half_width)}", _relative(each.smallest)
        row = [exact(each.share), cost, *((width, found_gain) if each.supported else ("too few", "–"))]
        rows.append([*row, *([] if each.users_needed is None else [number(each.users_needed)])])
    wanted = [] if found.gain is None else [f"users for {exact(found.gain)}"]
    table(f"The next log, of {number(found.users)} users{days}", [*header, *wanted], rows)
    say(
        "An action is drawn evenly for that share of the decisions; its propensity goes into the log (log.propensity). "
        "Intervals are of 95%; a gain of the size in the column 'gain found' is found 4 times out of 5. Too few: some "
        "action would hardly ever be given in some state, so nothing could be measured."
    )
    if found.past.wider is None:
        say(
            "Expect wider intervals, and more users, than these: states are too many to count, and only a log whose "
            "actions were all drawn at random would tell how much wider."
        )
    if found.past.even is None:
        say("What drawing costs is not known, since the file does not say that anything was drawn in this log.")


def _cost(found: LogSize) -> str:
    """What drawing takes from the reward, as a change of it."""
    relative, error = -(found.cost or 0.0), found.cost_error or 0.0
    digits = decimals([Interval(100 * relative, 100 * (relative - error), 100 * (relative + error))])
    return f"{change(relative, digits)} ± {percent(error, digits)}"


def _relative(share: float) -> str:
    return "over 100%" if share > 1 else size(share)


def _show_check(found: CheckReport, campaign: Campaign, *, verbose: bool) -> None:
    """Findings first, then what was given, then what it did."""
    from outlay.pages import log_health
    from outlay.pages.tables import Table

    tell_as(partial(in_units, unit=found.unit))
    facts = {"rows": found.rows, "users": found.users, "days": found.days, "first": str(found.first)}
    facts |= {"last": str(found.last), "duplicates": found.duplicates}
    if found.once:  # a row is all there is of a user: at most it says when
        seen = {} if found.days == 1 else {"from": str(found.first), "to": str(found.last)}
        facts = {"users, one row each": found.users, **seen}
    table(f"{found.campaign}: {found.source}", tuple(facts), [tuple(facts.values())], screen=not verbose)
    made = log_health.given(found, campaign)
    if verbose:
        show(made, screen=False)
    else:
        brief = (replace(row, cells=row.cells[:BRIEF]) for row in made.rows[:ACTIONS])
        show(Table(made.title, made.columns[:BRIEF], tuple(brief)))
        if len(found.actions) > ACTIONS:
            say(f"  and {len(found.actions) - ACTIONS} more actions: add -v.")
    if found.randomisation:
        say(f"Assignment: {found.randomisation.verdict}")
    if found.effects and found.contrast:
        low, high = map(shown, found.contrast)
        title = f"First day's action {high} against {low}: effect on the total reward per user, 95% intervals"
        if found.once:
            title = f"Action {high} against {low}: effect on the reward per user, 95% intervals"
        heads = ("segment", *(() if found.once else ("days",)), "effect", "interval", "users")
        longest = max(e.days for e in found.effects)
        told = found.effects if verbose else [e for e in found.effects if e.days == longest][:EFFECTS]
        effects = [(e.segment, *(() if found.once else (e.days,)), *_signed(e), e.users) for e in told]
        table(title, heads, effects, screen=not verbose)
    if found.state and not found.once:
        say(f"State: {found.state.words}.")
    if found.tried:
        enough = {True: "yes", False: "no", None: "not tested"}
        tried = [
            (each.days, ", ".join(each.columns), ", ".join(each.summaries), enough[each.ok]) for each in found.tried
        ]
        table("The same with the user's past under [log.history]", ("days", "columns", "summaries", "enough"), tried)
    if verbose and (missing := {name: count for name, count in found.missing.items() if count}):
        table("Missing values", ("role or feature", "rows"), list(missing.items()))
    _say_findings(found.findings, most=FINDINGS, verbose=verbose)
    if test := found.test:
        say(f"{test.words} Plan it with:", f"  {test.command}", f"  {test.placeholders}")
    blocked = any(finding.level == "error" for finding in found.findings)
    driven = found.assignment is not None and found.assignment.drivers
    verdict = "Nothing blocks. Next: outlay prepare or train."
    if blocked:
        verdict = "Fix these errors before you run outlay prepare."
    elif driven:
        verdict = "Nothing stops outlay prepare or train, but nothing will be certified: see the warnings."
    say(verdict)


def _signed(e: Effect) -> tuple[str, str]:
    """An effect and its interval, with signs, rounded alike."""
    digits = decimals([Interval(e.effect, e.low, e.high)])
    return signed(e.effect, digits), f"{signed(e.low, digits)} to {signed(e.high, digits)}"


def _end_if_refused(findings: Sequence[Finding], *, tell: bool = False) -> None:
    """End with 2 where one of them is an error, told on stderr where nothing else tells it."""
    errors = [finding for finding in findings if finding.level == "error"]
    if tell:
        for each in errors:
            warn(_line(each))
    if errors:
        raise typer.Exit(2)


def _line(finding: Finding) -> str:
    """What is wrong, where, and the way out."""
    return f"{finding.level}: {finding.where}: {finding.message} {finding.way_out}".rstrip()


def prepare(
    campaign: CampaignFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The DATA folder to write.")],
    ray: Annotated[bool, typer.Option("--ray", help="Count and encode the features on a Ray cluster.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Encode the log for training, and split it by user.

    Writes memory-mapped transitions of learn, select and certify users. If it is interrupted, run it again: it
    continues.

    Example: outlay prepare campaign.toml --out data
    """
    from outlay.jobs.prepare import prepare as job

    use_threads(threads)
    with keeping(partial_of(out)), progress("prepare", quiet=quiet or as_json) as report:
        data = job(campaign, out, threads=threads, cluster=ray, progress=report)
    counts = [len(data.users_of(split)) for split in range(3)]
    if as_json:
        splits = dict(zip(("learn", "select", "certify"), counts, strict=True))
        print_json({"path": str(out), "rows": len(data), "users": len(data.users), **splits})
    elif not quiet:
        table("", ("rows", "users", "learn", "select", "certify"), [(len(data), len(data.users), *counts)])
        manifest = data.manifest
        tell_as(data.campaign.timed)
        for told in (*([manifest.events["words"]] if manifest.events else ()), *manifest.told):
            say(f"{told}.")
        say(f"{out} written. Next: outlay train {out} --out run")


def train(
    source: Annotated[Path, typer.Argument(metavar="CAMPAIGN_OR_DATA", help="campaign.toml, or a DATA folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The RUN folder to write.")],
    method: MethodOption = None,
    oracle: OracleOption = "auto",
    response: ResponseOption = None,
    label_days: LabelDays = None,
    preset: PresetOption = None,
    folds: Folds = None,
    hold: Held = None,
    seed: Seed = 0,
    seeds: SeedCount = None,
    workers: Workers = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Learn a policy that keeps the budgets, and write its bundle.

    Example: outlay train campaign.toml --out run --seed 1
    """
    use_threads(threads)
    options: dict[str, Any] = {"method": method, "oracle": oracle, "response": response, "label_days": label_days}
    options |= {"preset": preset, "folds": folds, "hold": hold, "threads": threads}
    if seeds is not None:
        if resume or overwrite or workers is not None:
            raise OutlayError(
                "goes on by itself with the seeds that are left, on this machine.",
                where="--seeds",
                way_out="Leave --resume, --overwrite and --workers out.",
            )
        with keeping(out), progress("train", quiet=quiet or as_json) as report:
            from outlay.jobs.train_seeds import train_seeds

            runs = train_seeds(source, out, seeds=seeds, seed=seed, progress=report, **options)
        _show_seeds(runs, out, as_json=as_json, quiet=quiet)
        return
    options |= {"seed": seed, "resume": resume, "overwrite": overwrite, "workers": workers}
    with keeping(partial_of(out), "--resume"), progress("train", quiet=quiet or as_json) as report:
        from outlay.jobs.train import train as job

        run = job(source, out, progress=report, **options)
    if as_json:
        print_json({"run": str(out), **run.manifest})
    elif not quiet:
        _show_run(run, verbose=verbose)
        say(f"{out} written. Next: outlay evaluate {out}")


def _show_run(run: Run, *, verbose: bool) -> None:
    """What was learned, in two sentences; or all members and notes."""
    tell_as(run.campaign.timed)
    if verbose:
        from outlay.pages.tables import members

        show(members(run), screen=False)
        say(*(f"note: {note}" for note in run.manifest["notes"]))
        return
    from outlay.estimators.units import days_counted
    from outlay.pages.tables import limit

    worth, *spent = map(number, _fitted_mean(run))
    reward = f"{run.campaign.told('reward')} {worth}"
    costs = [
        f"{run.campaign.told('budgets', b.name)} {cost} ({limit(b)})"
        for b, cost in zip(run.campaign.limits, spent, strict=True)
    ]
    policies, notes = len(run.members), len(run.manifest["notes"])
    days = days_counted(run.campaign)
    per = "a user" if run.campaign.log.once else f"over {days} days" if days > 1 else "a day"
    say(
        f"Learned {policies} policies, of which a fixed draw gives each user one."
        if policies > 1
        else "Learned one policy.",
        f"Chosen for what it brings users who taught it nothing: {', '.join([f'{reward} {per}', *costs])}. The best of "
        "many looks better than it is: outlay evaluate measures it on other users.",
        f"With -v: the policies, and {notes} note{'s' * (notes != 1)} on how they were learned.",
    )


def _show_seeds(runs: list[Run], out: Path, *, as_json: bool, quiet: bool) -> None:
    """Show what the mixtures of several seeds are worth on select users."""
    if as_json:
        print_json([{"run": str(run.folder), **run.manifest} for run in runs])
    elif not quiet:
        rows = [(str(run.folder), number(run.manifest["seconds"], 0), *_fitted_mean(run)) for run in runs]
        table(
            "As select users measure it", ("", "seconds", "reward", *(b.name for b in runs[0].campaign.budgets)), rows
        )
        say(f"{out} written. Next: outlay evaluate {runs[0].folder}")


def _fitted_mean(run: Run) -> list[float | None]:
    """What the mixture is worth by the fitted evaluation; None where a member is not known."""
    count = 1 + len(run.campaign.budgets)
    if any(m.fitted is None for m in run.members):
        return [None] * count
    return [sum(m.weight * m.fitted[i] for m in run.members if m.fitted is not None) for i in range(count)]
