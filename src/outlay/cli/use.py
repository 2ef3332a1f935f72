"""Commands that use a run or make a campaign: score, allocate, simulate, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from outlay.cli.console import (
    BundleFolder,
    Json,
    PastDays,
    Quiet,
    RunFolder,
    Seed,
    TableFile,
    Threads,
    keeping,
    print_json,
    progress,
    say,
    table,
    use_threads,
    warn,
)
from outlay.core.actions import shown
from outlay.core.errors import OutlayError
from outlay.core.files import partial_of
from outlay.core.machine import optional
from outlay.core.wording import number, percent
from outlay.simulators import CAMPAIGNS

if TYPE_CHECKING:
    Campaign = str
else:
    Campaign = Literal[tuple(CAMPAIGNS)]


def score(
    bundle: BundleFolder,
    rows: Annotated[str, typer.Argument(metavar="ROWS", help="Parquet or CSV with the feature columns.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE_OR_FOLDER", help="Where to write: .parquet, .csv, or a folder.")
    ],
    history: PastDays = None,
    members: Annotated[bool, typer.Option("--members", help="Write a line for each row and member.")] = False,
    episode: Annotated[
        str | None, typer.Option(metavar="NAME", help="Users keep one member per episode. Default: the campaign.")
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Decide the shards on a Ray cluster.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Decide for many rows.

    Parquet is decided in shards, by one process per processor. If the command is interrupted, run it again: it
    continues with the remaining shards.

    Example: outlay score run/bundle users.parquet --out decisions.parquet
    """
    from outlay.core.machine import processors
    from outlay.jobs.score import score as job

    use_threads(threads)
    with keeping(partial_of(out)), progress("score", quiet=quiet or as_json) as report:
        result = job(
            bundle,
            rows,
            out,
            history=history,
            episode=episode,
            members=members,
            workers=processors(),
            cluster=ray,
            progress=report,
        )
    if result.held is not None:
        warn(
            f"warning: {result.held}: the bundle keeps no margin below its limit (hold = serving), and decisions in a "
            "file have no cap that holds it. Decide by outlay serve --cap, or train with --hold certified."
        )
    _warn_of_forced(result.forced)
    if as_json:
        print_json(result.to_dict())
        return
    _report_new_values(result.unknown, result.unseen)
    if not quiet:
        table("", ("action", "share of rows"), [(shown(a), percent(share, 1)) for a, share in result.shares.items()])
        say(f"{out} written: {number(result.rows)} rows.")


def _warn_of_forced(forced: str | None) -> None:
    """Say that rows without a choice are decided as well, where the log has such rows."""
    if forced is not None:
        warn(
            f"warning: in the log, rows have no choice where {forced} (log.forced). Here every row is decided: give "
            "only rows that have a choice."
        )


def allocate(
    run: RunFolder,
    users: Annotated[Path, typer.Argument(metavar="USERS", help="Parquet or CSV with the features, one row per user.")],
    total: Annotated[float, typer.Option("--total", metavar="NUMBER", help="The most to spend on them, in money.")],
    out: TableFile,
    cost: Annotated[
        Literal["expected", "reserve"],
        typer.Option(
            help="What counts against the total: the day's expected cost, or what must be set aside for the worst."
        ),
    ] = "expected",
    history: PastDays = None,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Decide one day for a fixed list of users under a hard total.

    Example: outlay allocate run today.parquet --total 50000 --out decisions.parquet
    """
    from outlay.choosing.run import Run
    from outlay.jobs.allocate import allocate_users as job

    use_threads(threads)
    with progress("allocate", quiet=quiet or as_json) as report:
        opened = Run.open(run)
        result = job(opened, users, total, out, cost=cost, history=history, progress=report)
    if result.others:
        warn(
            f"warning: --total holds money alone, and not {' or '.join(result.others)}. The policies of outlay score "
            "and outlay serve were chosen under all limits."
        )
    _warn_of_forced(result.forced)
    if as_json:
        print_json(result.to_dict())
        return
    _report_new_values(result.unknown, result.unseen)
    if not quiet:
        unit = opened.campaign.meta.unit
        table("", ("action", "share of users"), [(shown(a), percent(share, 1)) for a, share in result.shares.items()])
        say(
            f"{out} written: {number(result.rows)} users, {cost} cost {number(result.cost, 2)} of "
            f"{number(result.total, 2)} {unit}; at most {percent(result.gap, 2)} of the value is lost against the best "
            "allocation."
        )


def simulate(
    campaign: Annotated[Campaign, typer.Argument(metavar="CAMPAIGN", help=f"Which: {', '.join(CAMPAIGNS)}.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder to write.")],
    users: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="Number of users.")] = 200_000,
    days: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Days of log. Default: 7; thirty-day 30.")
    ] = None,
    seed: Seed = 0,
    held: Annotated[
        str | None,
        typer.Option(metavar="ACTIONS", help="Two actions, e.g. 1,3: each user keeps one of them for all days."),
    ] = None,
    fields: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=20, help="wide: number of fields. Default: 50.")
    ] = None,
    values: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="wide: distinct values over all fields. Default: 5000.")
    ] = None,
    slow: Annotated[bool, typer.Option("--slow", help="city, wide: habits that take weeks.")] = False,
    money: Annotated[bool, typer.Option("--money", help="city: the reward is the amount spent, log-normal.")] = False,
    hidden: Annotated[bool, typer.Option("--hidden", help="city: part of the state is not in the log.")] = False,
    rhythm: Annotated[bool, typer.Option("--rhythm", help="city: weekdays differ, and activity falls.")] = False,
    sparse: Annotated[bool, typer.Option("--sparse", help="city: no rows for days on which nothing happened.")] = False,
    late: Annotated[bool, typer.Option("--late", help="city: 30% of the users join after the first day.")] = False,
    discount: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="city: discount per day. Default: 0.9; with --slow 0.95.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another campaign that this wrote.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Write a simulated campaign whose truth is known.

    A folder with log, campaign file, truth and states. habit has the paper's effects; in thirty-day looking ahead pays;
    city has rich states: 20 features, habits and fatigue as numbers, and no state that occurs twice; wide has the
    city's people behind many categorical fields.

    Example: outlay simulate city --out city --users 50000 --slow
    """
    from outlay.core.files import read_manifest
    from outlay.jobs.simulate import simulate as job

    use_threads(threads)
    path = job(
        campaign,
        out,
        users=users,
        days=days,
        seed=seed,
        held=_pair(held),
        fields=fields,
        values=values,
        slow=slow,
        money=money,
        hidden=hidden,
        rhythm=rhythm,
        sparse=sparse,
        late=late,
        discount=discount,
        overwrite=overwrite,
    )
    if as_json:
        print_json({"path": str(path), **read_manifest(out, "campaign")})
    elif not quiet:
        say(f"{out} written. Next: outlay check {path}")


def _pair(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        raise OutlayError(f"is {text!r}.", where="--held", way_out="Give two actions, e.g. --held 1,3") from None
    return first, second


def doctor(as_json: Json = False, quiet: Quiet = False, threads: Threads = None) -> None:
    """Show what is installed, the devices, and the disk's speed.

    The speed is the median time of a small write that is synced to the disk.

    Example: outlay doctor --json
    """
    from outlay.jobs.doctor import doctor as job

    use_threads(threads)
    found = job()
    if as_json:
        print_json(found)
    elif not quiet:
        table("", ("", ""), [(name, str(value)) for name, value in found.items()])


def _report_new_values(unknown: int, unseen: int) -> None:
    """Say how much of what was decided the log had not shown."""
    if unknown:
        warn(f"{number(unknown)} values were not in the vocabulary and got the unknown code.")
    if unseen:
        warn(
            f"Rows in states that the log never showed: {number(unseen)}. They got the action that is best on average."
        )


def mcp(
    skill: Annotated[
        bool, typer.Option("--skill", help="Print how an agent gets from a log to a verdict, and stop.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Serve these commands as tools to an agent.

    It speaks the Model Context Protocol over standard input and output. The agent's client starts it, with the command
    outlay and the argument mcp.

    Example: outlay mcp --skill
    """
    with optional():
        from outlay.agents.server import server
        from outlay.agents.server import skill as text

    if skill:
        if as_json:
            print_json({"skill": text()})
        else:
            say(text())
        return
    server().run("stdio")
