"""Commands from a log to transitions: init, check, prepare."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from outlay.cli.console import Json, Quiet, Threads, keeping, print_json, progress, stderr, stdout, table, use_threads
from outlay.core.files import partial_of

CampaignFile = Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="The campaign.toml.")]


def init(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG", help="Parquet or CSV (.gz), or postgresql://, s3://, gs://; a row per user and day."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Where to write.")] = Path("campaign.toml"),
    query: Annotated[str | None, typer.Option(help="SQL that gives the rows, where LOG is a database.")] = None,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Look at a log's columns and write a commented campaign.toml with guesses.

    Example: outlay init log.parquet --out campaign.toml
    """
    from outlay.jobs.init import init as job

    use_threads(threads)
    job(log, out, query=query)
    if not quiet:
        stdout.print(
            f"{out} written. Read its comments, correct the guesses, then run: outlay check {out}", markup=False
        )


def check(campaign: CampaignFile, as_json: Json = False, quiet: Quiet = False, threads: Threads = None) -> None:
    """Data quality, randomisation, overlap, and the effect of the first day's action. Exits 2 if a finding blocks.

    Example: outlay check campaign.toml --json
    """
    from outlay.jobs.check import check as job

    use_threads(threads)
    with progress("check", quiet=quiet or as_json) as report:
        report(0.1, "reading the log")
        found = job(campaign, threads=threads)
    if as_json:
        print_json(found.to_dict())
    elif not quiet:
        _show_check(found.to_dict())
    if quiet:  # errors still show
        for finding in found.findings:
            if finding.level == "error":
                stderr.print(_line(asdict(finding)), markup=False, highlight=False, soft_wrap=True)
    if found.blocks:
        raise typer.Exit(2)


def _show_check(found: dict[str, Any]) -> None:
    """Findings first, then what was given, then what it did."""
    facts = [
        (found["rows"], found["users"], found["days"], str(found["first"]), str(found["last"]), found["duplicates"])
    ]
    table(f"{found['campaign']}: {found['source']}", ("rows", "users", "days", "first", "last", "duplicates"), facts)
    overlap = {entry["action"]: entry for entry in found["overlap"]}
    rows = []
    for action in found["actions"]:
        entry = overlap.get(action["action"], {})
        rows.append(
            (
                f"{action['action']:g}",
                action["count"],
                action["choices"],
                entry.get("share"),
                entry.get("least_share"),
                entry.get("least_segment"),
                entry.get("least_propensity"),
            )
        )
    columns = ("action", "rows", "choices", "share of choices", "least share", "in segment", "least propensity")
    table("What was given", columns, rows)
    if found["randomisation"]:
        stdout.print(f"Assignment: {found['randomisation']['verdict']}", markup=False)
    if found["effects"]:
        low, high = found["contrast"]
        effects = [
            (e["segment"], e["days"], f"{e['effect']:+.3f}", f"[{e['low']:+.3f}, {e['high']:+.3f}]", e["users"])
            for e in found["effects"]
        ]
        title = f"First day's action {high:g} against {low:g}: effect on the total reward per user, 95% intervals"
        table(title, ("segment", "days", "effect", "interval", "users"), effects)
    if found["state"]:
        stdout.print(f"State: {found['state']['words']}.", markup=False, highlight=False)
    if found["tried"]:
        enough = {True: "yes", False: "no", None: "not tested"}
        tried = [
            (each["days"], ", ".join(each["columns"]), ", ".join(each["summaries"]), enough[each["ok"]])
            for each in found["tried"]
        ]
        table("The same with the user's past under [log.history]", ("days", "columns", "summaries", "enough"), tried)
    missing = {name: count for name, count in found["missing"].items() if count}
    if missing:
        table("Missing values", ("role or feature", "rows"), list(missing.items()))
    for finding in found["findings"]:
        stdout.print(_line(finding), markup=False, highlight=False)
    if test := found["test"]:
        for line in (f"{test['words']} Plan it with:", f"  {test['command']}", f"  {test['placeholders']}"):
            stdout.print(line, markup=False, highlight=False, soft_wrap=True)
    blocked = any(finding["level"] == "error" for finding in found["findings"])
    driven = found["assignment"] is not None and found["assignment"]["drivers"]
    verdict = "Nothing blocks. Next: outlay prepare or train."
    if blocked:
        verdict = "Fix these errors before you run outlay prepare."
    elif driven:
        verdict = "Nothing stops outlay prepare or train, but nothing will be certified: see the warnings."
    stdout.print(verdict, markup=False)


def _line(finding: dict[str, Any]) -> str:
    """What is wrong, where, and the way out."""
    return f"{finding['level']}: {finding['where']}: {finding['message']} {finding['way_out']}".rstrip()


def prepare(
    campaign: CampaignFile,
    out: Annotated[Path, typer.Option("--out", help="The DATA folder to write.")],
    cluster: Annotated[bool, typer.Option("--cluster", help="Count and encode the features on a Ray cluster.")] = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Encode and link the log: memory-mapped transitions, split by user into learn, select and certify.

    If it is stopped or killed, the same command goes on with what is left.

    Example: outlay prepare campaign.toml --out data
    """
    from outlay.jobs.prepare import prepare as job

    use_threads(threads)
    with keeping(partial_of(out)), progress("prepare", quiet=quiet) as report:
        data = job(campaign, out, threads=threads, cluster=cluster, progress=report)
    if not quiet:
        counts = [len(data.users_of(split)) for split in range(3)]
        table("", ("rows", "users", "learn", "select", "certify"), [(len(data), len(data.users), *counts)])
        manifest = data.manifest
        for told in (*([manifest.events["words"]] if manifest.events else ()), *manifest.told):
            stdout.print(f"{told}.", markup=False, highlight=False)
        stdout.print(f"{out} written. Next: outlay train {out} --out run", markup=False)
