"""The commands serve, which answers over HTTP, and export-log, which makes the next campaign log of its ledger."""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli.console import BundleFolder, Json, Quiet, Threads, print_json, progress, say, table, use_threads, warn
from outlay.core.wording import days

LEDGER = "OUTLAY_LEDGER"  # the environment variable that names the ledger

if TYPE_CHECKING:
    from outlay.serve.export.export import ExportResult


LedgerOption = Annotated[
    str,
    typer.Option(
        envvar=LEDGER,
        metavar="LEDGER",
        help="sqlite:///FILE on one machine, postgresql://… for several; leave the password out.",
    ),
]
ExperimentFile = Annotated[
    Path | None,
    typer.Option(metavar="EXPERIMENT", help="An experiment.toml: users in the test get what their arm gives."),
]
SecondsOfDay = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Rehearse on a separate ledger: a day lasts this many seconds.")
]
PastOfUsers = Annotated[
    Path | None,
    typer.Option(metavar="LOG_OR_DATA", help="The users' past before the ledger began, if the policy looks at it."),
]
ChangeSettings = Annotated[
    bool, typer.Option("--change-settings", help="Give all servers of the ledger these settings and this bundle.")
]
ErrorsAsJson = Annotated[
    bool, typer.Option("--json", help="An error is one JSON document on stdout; nothing else is printed there.")
]


def serve(
    bundle: BundleFolder,
    ledger: LedgerOption = "sqlite:///ledger.db",
    cap: Annotated[float | None, typer.Option(metavar="NUMBER", help="The most to spend in total, in money.")] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; any but loopback needs OUTLAY_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, max=65_535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    workers: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="Number of processes.")] = 1,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A serve.toml: limits, fallback, random slice, plan.")
    ] = None,
    experiment: ExperimentFile = None,
    rehearse: SecondsOfDay = None,
    history: PastOfUsers = None,
    change_settings: ChangeSettings = False,
    as_json: ErrorsAsJson = False,
    quiet: Quiet = False,
) -> None:
    """Serve decisions over HTTP under a hard budget.

    A ledger records every decision. Tokens are environment variables: OUTLAY_TOKEN opens decisions, outcomes and
    metrics (without it, anybody on this machine may use them); OUTLAY_ADMIN_TOKEN opens the admin routes as well
    (without it, they are closed).

    Example: outlay serve run/bundle --cap 50000 --ledger sqlite:///coupons.db
    """
    import logging

    from outlay.experiments.design import Experiment
    from outlay.serve.application import ServerOptions
    from outlay.serve.config import ServeConfig
    from outlay.serve.http.tokens import ADMIN_TOKEN, USE_TOKEN, Tokens
    from outlay.serve.launch import serve as run_server
    from outlay.serve.log_format import log_to_stderr

    _warn_of_password(ledger)
    settings = ServeConfig() if config is None else ServeConfig.load(config)
    if cap is not None:
        settings = settings.with_cap(cap)

    log_to_stderr()
    say = logging.getLogger("outlay.start").debug if quiet or as_json else logging.getLogger("outlay.start").info
    run_server(
        ServerOptions(
            bundle=bundle,
            ledger=ledger,
            config=settings,
            host=host,
            port=port,
            workers=workers,
            tokens=Tokens(*(os.environ.get(name) or None for name in (USE_TOKEN, ADMIN_TOKEN))),
            experiment=None if experiment is None else Experiment.load(experiment),
            rehearse=rehearse,
            history=history,
            change=change_settings,
        ),
        say,
    )


def export_log(
    ledger: Annotated[
        str, typer.Argument(metavar="LEDGER", envvar=LEDGER, help="sqlite:///FILE or postgresql://…, as in serve.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="The folder to write, or to add to.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the campaign to export, if the ledger has several.")
    ] = None,
    until: Annotated[
        datetime.datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DATE", help="The last day to export.")
    ] = None,
    all_days: Annotated[
        bool,
        typer.Option("--all-days", help="Include days whose outcomes are still awaited; they are rewritten later."),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Export closed days of a ledger as the next campaign's log.

    It writes Parquet and a campaign file. A day is closed when wait_days of serve.toml have passed. Run it again to add
    the days that have closed since.

    Example: outlay export-log sqlite:///coupons.db --out next
    """
    from outlay.serve.export.export import export_log as run_export

    _warn_of_password(ledger)
    use_threads(threads)
    with progress("export-log", quiet=quiet or as_json) as report:
        result = run_export(
            ledger,
            out,
            campaign=name,
            until=None if until is None else until.date(),
            all_days=all_days,
            threads=threads,
            progress=report,
        )
    if as_json:
        print_json(result.to_dict())
    elif not quiet:
        _show(result, out)
    for words in result.warnings():
        warn(f"warning: {words}")


def _show(result: ExportResult, out: Path) -> None:
    exported = result.to_dict()
    columns = ("day", "rows", "decisions", "with an incentive", f"paid ({exported['unit']})", "excess", "late outcomes")
    shown = ("day", "rows", "decisions", "offers", "paid", "excess", "late")
    rows = [tuple(day[name] for name in shown) for day in exported["written"]]
    if rows:
        table(f"campaign {exported['campaign']}: a row per user and day", columns, rows)
    else:
        say("Nothing new: no other day is closed, and no money has moved.")
    if result.edited:
        say(f"{out / 'campaign.toml'} was edited by hand and stays as it is.")
    say(f"{out} holds {days(exported['days'])}. Next: outlay check {out / 'campaign.toml'}")


def _warn_of_password(ledger: str) -> None:
    from outlay.serve.ledger.backends import password_of

    if password_of(ledger) and any(ledger in word for word in sys.argv):
        words = (
            "warning: every user of this machine can read the password of --ledger in the list of processes. Give it "
            f"as PGPASSWORD, in ~/.pgpass, or with the whole URL as {LEDGER}."
        )
        warn(words)
