"""Commands of A/B tests: experiment plan, assign and analyze."""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlay.cli.console import (
    Json,
    Quiet,
    TableFile,
    Threads,
    print_json,
    progress,
    say,
    show,
    table,
    use_threads,
    warn,
)
from outlay.cli.dialect import Command
from outlay.core.actions import shown
from outlay.core.errors import OutlayError
from outlay.core.wording import change, exact, number, percent, plain

if TYPE_CHECKING:
    from outlay.core.campaign import Campaign
    from outlay.experiments.power import Power
    from outlay.experiments.results import Analysis
    from outlay.experiments.words import ExperimentNote
    from outlay.jobs.plan_experiment import PlanResult

app = typer.Typer(
    help="A/B tests: plan, assign, analyze. Every arm has its own budget.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ARM = "Give e.g. --arm new,bundle=run/bundle,share=0.5,budget=20000"
RAMP = "Give e.g. --ramp 0:0.01,2:0.1,4:1 (day:coverage)"


Arms = Annotated[
    list[str],
    typer.Option(
        metavar="ARM",
        help="NAME,bundle=DIR or action=VALUE or random or holdout,share=S,budget=MONEY. The first is the control.",
    ),
]
Guardrails = Annotated[
    list[str] | None,
    typer.Option(metavar="METRIC", help="A metric to watch on every day. Default: cost and redemption."),
]
Decisions = Annotated[
    str | None, typer.Option(metavar="DAYS", help="Days of planned decisions, e.g. 7,14. Default: the last day.")
]
Eligible = Annotated[
    str | None, typer.Option(metavar="SQL", help="SQL over the log: who may be in the test. Default: all.")
]
ClusterColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column or SQL over the log by which to draw arms, instead of by user, e.g. city."
    ),
]
UserCount = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER", help="How many users may be in the test. Default: the users in the log's last days."
    ),
]

TestLog = Annotated[
    Path,
    typer.Argument(
        metavar="LOG", help="Parquet or CSV, or a folder of Parquet files: one row per user and day, or per user."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ROLE=SQL", help="A column or expression for user, day, arm, segment, eligible, cost or a metric."
    ),
]
Assigned = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Parquet with user, arm and day; these users count even if they have no rows."),
]
Promised = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ARM=FILE",
        help="RUN/estimates.json of an arm, to compare what was promised with what happened. FILE alone, if one arm "
        "gets a verdict.",
    ),
]
LogCampaign = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The log's campaign.toml: its [log.delays] and [labels]. Default: that of an exported log.",
    ),
]
PageFile = Annotated[
    Path | None, typer.Option(metavar="FILE.html", help="Write the page of the test, one self-contained file.")
]


def plan(
    campaign: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN", help="The campaign.toml with a past log of the users to be tested.")
    ],
    arm: Arms,
    start: Annotated[str, typer.Option(metavar="DATE", help="Date of day 0, e.g. 2026-03-02.")],
    days: Annotated[int, typer.Option(metavar="NUMBER", help="Length of the test, in whole weeks.")] = 14,
    ramp: Annotated[
        str,
        typer.Option(
            metavar="STEPS", help="DAY:COVERAGE, …: the part of each arm's share that is in from that day on."
        ),
    ] = "0:1",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the test. Default: campaign and start.")
    ] = None,
    salt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Salt of the draw of arms. Default: the name.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="METRIC", help="The verdict's metric. Default: the campaign's reward.")
    ] = None,
    guardrail: Guardrails = None,
    decisions: Decisions = None,
    confidence: Annotated[
        float, typer.Option(metavar="NUMBER", help="Confidence of intervals and of the verdict.")
    ] = 0.95,
    power: Annotated[
        float, typer.Option(metavar="NUMBER", help="Probability of detecting the smallest detectable effect.")
    ] = 0.8,
    eligible: Eligible = None,
    cluster: ClusterColumn = None,
    users: UserCount = None,
    lift: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="A relative effect of interest, e.g. 0.006.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write.")] = Path(
        "experiment.toml"
    ),
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Plan a test: arms, shares, budgets and days, and what it can detect.

    Example: outlay experiment plan campaign.toml --start 2026-03-02 --days 14 --ramp 0:0.01,2:1
    --arm old,action=1.5,share=0.5,budget=20000 --arm new,bundle=run/bundle,share=0.5,budget=20000
    """
    from outlay.core.campaign import Campaign
    from outlay.jobs.plan_experiment import plan_experiment as job

    use_threads(threads)
    known = Campaign.load(campaign)
    given = {
        "name": name or f"{known.meta.name}-{start}",
        "salt": salt,
        "start": _date(start),
        "days": days,
        "metric": metric,
        "guardrails": guardrail or None,
        "confidence": confidence,
        "power": power,
        "eligible": eligible,
        "cluster": cluster,
        "decisions": None if decisions is None else decisions.split(","),
    }
    design = {
        "experiment": {key: value for key, value in given.items() if value is not None},
        "ramp": [_step(text) for text in ramp.split(",")],
        "arm": [_arm(text) for text in arm],
    }
    with progress("plan", quiet=quiet or as_json) as report:
        report(0.0, "reading the log")
        result = job(design, known, out, users=users, lift=lift, threads=threads)
    if as_json:
        print_json(result.to_dict())
        return
    _show_notes(result.notes)
    if not quiet:
        _show_plan(result, known)


def assign(
    experiment: Annotated[Path, typer.Argument(metavar="EXPERIMENT", help="The experiment.toml.")],
    users: Annotated[
        Path, typer.Argument(metavar="USERS", help="Parquet or CSV with a user column, for example a log.")
    ],
    day: Annotated[int, typer.Option(metavar="NUMBER", help="Day of the test; 0 is its start.")],
    out: TableFile,
    user: Annotated[str, typer.Option(metavar="COLUMN", help="Name of the user column.")] = "user",
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Write the arm of every user on a day of the test.

    A ramp adds users; it moves nobody to another arm.

    Example: outlay experiment assign experiment.toml users.parquet --day 0 --out arms.parquet
    """
    from outlay.jobs.assign_users import assign_users as job

    use_threads(threads)
    result = job(experiment, users, out, day=day, user=user, threads=threads)
    if as_json:
        print_json(result.to_dict())
    elif not quiet:
        outside = result.users - sum(result.counts.values())
        table("", ("arm", "users"), [*result.counts.items(), ("not in the test", outside)])
        say(f"{out} written: {number(result.users)} users on day {day}, coverage {plain(result.coverage)}.")


def analyze(
    log: TestLog,
    experiment: Annotated[Path, typer.Option(metavar="EXPERIMENT", help="The experiment.toml.")] = Path(
        "experiment.toml"
    ),
    day: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Look after this many days. Default: the last whole week.")
    ] = None,
    column: Columns = None,
    assigned: Assigned = None,
    promised: Promised = None,
    campaign: LogCampaign = None,
    report: PageFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Analyze a test: lift with intervals, guardrails, and the verdict.

    You may look at guardrails on any day; the verdict comes at planned decisions.

    Example: outlay experiment analyze closed --promised new=run/estimates.json --report test.html
    """
    from outlay.jobs.analyze_experiment import analyze_experiment as job

    use_threads(threads)
    write = None if report is None else _page_writer(report)
    with progress("analyze", quiet=quiet or as_json) as show:
        analysis = job(
            log,
            experiment,
            day=day,
            columns=_columns(column or []),
            assigned=assigned,
            promised=_promised(promised or []),
            campaign=campaign,
            threads=threads,
            progress=show,
        )
    if write is not None:
        write(analysis)
    if as_json:
        print_json(analysis.to_dict())
        return
    _show_notes(analysis.notes)
    if not quiet:
        if report is not None:
            say(f"{report} written: one page that works offline.")
        _show(analysis)


for command in (plan, assign, analyze):
    app.command(cls=Command)(command)


def _arm(text: str) -> dict[str, Any]:
    """An arm as in experiment.toml; its values are checked there."""
    name, *parts = text.split(",")
    arm: dict[str, Any] = {"name": name}
    before = ""
    for part in parts:
        key, has_value, value = part.partition("=")
        if key in arm or (key in ("bundle", "action", "random", "holdout") and "kind" in arm):
            raise OutlayError(f"{text!r} describes the arm twice.", where="--arm", way_out=f"{ARM}.")
        if not has_value and key in ("random", "holdout"):
            arm["kind"] = key
        elif has_value and key in ("bundle", "action", "share", "budget"):
            arm[key] = _number(value) if key in ("share", "budget") else value
            if key in ("bundle", "action"):
                arm["kind"] = "bundle" if key == "bundle" else "constant"
        elif before == "action":  # its name has a comma
            arm["action"] += f",{part}"
            continue
        else:
            raise OutlayError(f"{text!r}: {part!r} is not a part of an arm.", where="--arm", way_out=f"{ARM}.")
        before = key
    if "kind" not in arm:
        found = f"{text!r} does not say what the arm gives: bundle, action, random or holdout."
        raise OutlayError(found, where="--arm", way_out=f"{ARM}.")
    return arm


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise OutlayError(f"is {text!r}; must be a date.", where="--start", way_out="Give e.g. 2027-03-31.") from None


def _number(text: str) -> float | str:
    """The number in a text; a text that holds none is refused where the test is checked."""
    try:
        return float(text)
    except ValueError:
        return text


def _step(text: str) -> dict[str, float | str]:
    day, has_coverage, coverage = text.partition(":")
    if not has_coverage:
        raise OutlayError(f"{text!r} is not a step of a ramp.", where="--ramp", way_out=f"{RAMP}.")
    return {"day": _number(day), "coverage": _number(coverage)}


def _show_notes(notes: Iterable[ExperimentNote]) -> None:
    """Print notes beside the results."""
    for note in notes:
        warn(f"note: {note.words}")


def _page_writer(path: Path) -> Callable[[Analysis], object]:
    """The function that writes the page; what prevents it is reported before the log is read."""
    from outlay.pages.experiment import render
    from outlay.pages.page import check_page_path, write_page

    check_page_path(path)
    return lambda analysis: write_page(render(analysis), path)


def _columns(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        role, _, sql = (part.strip() for part in text.partition("="))
        if not role or not sql or role in found:
            raise OutlayError(
                f"is {text!r}.", where="--column", way_out="Give every role once, e.g. --column cost='coupon * active'."
            )
        found[role] = sql
    return found


def _promised(given: list[str]) -> dict[str, str | Path] | Path | None:
    """Arm → file; or a file alone, for the only arm that gets a verdict."""
    if len(given) == 1 and "=" not in given[0]:
        return Path(given[0])
    found: dict[str, str | Path] = {}
    for text in given:
        arm, named, file = text.partition("=")
        if not named or arm in found:
            raise OutlayError(
                f"is {text!r}.", where="--promised", way_out="Give every arm once: --promised new=run/estimates.json."
            )
        found[arm] = Path(file)
    return found or None


def _show_plan(result: PlanResult, campaign: Campaign) -> None:
    _show_arms(result, campaign.meta.unit)
    pairs = _pairs(result.powers)
    _show_power(result, pairs)
    say(
        f"{result.path} written and sealed. {_verdict(*pairs[0])} Next, with the users of the log or a table of "
        f"others: {_assign(result.path, campaign)}"
    )


def _show_arms(result: PlanResult, unit: str) -> None:
    """The arms and their money, and the ramp."""
    meta, arms = result.experiment.meta, result.experiment.arms
    counted = zip(arms, result.ramp[-1].users, strict=True)
    each = [None if a.budget is None or not count else a.budget / count for a, count in counted]
    table(
        f"{meta.name}: {meta.days} days from {meta.start}",
        ("arm", "kind", "gives", "share", "users", f"budget ({unit})", "per user"),
        [
            (
                a.name,
                a.kind,
                a.bundle or (None if a.action is None else shown(a.action)),
                plain(a.share),
                count,
                None if a.budget is None else plain(a.budget),
                per_user,
            )
            for a, count, per_user in zip(arms, result.ramp[-1].users, each, strict=True)
        ],
    )
    table(
        "Users in the test, by day of the ramp",
        ("day", "date", "coverage", *(arm.name for arm in arms)),
        [(str(step.day), str(step.date), plain(step.coverage), *step.users) for step in result.ramp],
    )


def _show_power(result: PlanResult, pairs: Sequence[tuple[Power, Power | None]]) -> None:
    """What can be detected."""
    found: list[tuple[Any, ...]] = []
    asked: list[tuple[Any, ...]] = []
    for bare, cuped in pairs:
        pair = bare.metric, bare.arm
        percents = [percent(power.relative if power else None, 2) for power in (bare, cuped)]
        found.append((*pair, bare.mean, bare.absolute, *percents, percent(cuped.left if cuped else None, 1)))
        chances = [percent(power.lift_power if power else None, 1) for power in (bare, cuped)]
        asked.append((*pair, *chances, bare.lift_users, cuped.lift_users if cuped else None))
    chance = exact(result.experiment.meta.power)
    table(
        f"Smallest effect detected with a probability of {chance}, per user over {result.seen_days} days",
        ("metric", "arm", "mean", "smallest effect", "relative", "with CUPED", "variance left"),
        found,
    )
    if (lift := pairs[0][0].lift) is not None:
        title = f"An effect of {change(lift)}: probability of detecting it, and users needed in both arms"
        table(title, ("metric", "arm", "power", "with CUPED", "users needed", "with CUPED"), asked)


def _assign(path: Path, campaign: Campaign) -> str:
    """The command that draws the arms of the log's users."""
    log = os.path.relpath(campaign.source) if isinstance(campaign.source, Path) else "users.parquet"
    user = () if campaign.log.user == "user" else ("--user", campaign.log.user)
    return shlex.join(["outlay", "experiment", "assign", str(path), log, *user, "--day", "0", "--out", "arms.parquet"])


def _pairs(powers: tuple[Power, ...]) -> list[tuple[Power, Power | None]]:
    """Every comparison without CUPED, together with the same with it."""
    with_cuped = {(power.metric, power.arm): power for power in powers if power.cuped}
    return [(power, with_cuped.get((power.metric, power.arm))) for power in powers if not power.cuped]


def _verdict(bare: Power, cuped: Power | None) -> str:
    best = min((power for power in (bare, cuped) if power is not None), key=lambda power: power.absolute)
    size = number(best.absolute) if best.relative is None else percent(best.relative, 2)
    return f"A change of {bare.metric} by less than {size} will probably stay hidden."


def _show(a: Analysis) -> None:
    from outlay.experiments.lift import Lift
    from outlay.pages import experiment_words as tables

    show(tables.shares(a))
    if a.ratios:
        show(tables.ratios(a))
    if any(arm.spent is not None for arm in a.arms):
        show(tables.spent(a))
    for arm in a.comparisons:
        show(tables.all_metrics(a, arm))
        if arm.saved:
            say("  – CUPED adjusts the difference, so it is not simply one value less the other")
        if arm.exposed:
            show(tables.all_metrics(a, arm, among_rows=True))
        if any(isinstance(x, Lift) and x.cautious for x in (*arm.lifts, *arm.exposed)):
            say(f"  * {tables.WIDENED}")
        if arm.decisions:
            show(tables.decisions(a, arm))
        if arm.change is not None:
            show(tables.by_week(a, arm))
        show(tables.followed(a, arm))
        if arm.segments:
            show(tables.by_segment(a, arm))
    if a.promised:
        show(tables.promises(a))
    say(a.verdict)
