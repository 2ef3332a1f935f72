"""Commands that learn and judge: train, evaluate, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from outlay.cli.console import Json, Quiet, Threads, print_json, progress, stdout, table, use_threads

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that outlay train wrote.")]

Method = Literal["aim-greedy", "aim-mean", "single-best", "uniform", "lp"]
Oracle = Literal["bcq", "edrr", "ddqn"]
Preset = Literal["outlay", "paper"]


def train(
    source: Annotated[Path, typer.Argument(metavar="CAMPAIGN_OR_DATA", help="campaign.toml, or a DATA folder.")],
    out: Annotated[Path, typer.Option("--out", help="The RUN folder to write.")],
    method: Annotated[Method, typer.Option(help="How candidates are mixed.")] = "aim-greedy",
    oracle: Annotated[Oracle, typer.Option(help="How best responses are learned.")] = "bcq",
    preset: Annotated[Preset | None, typer.Option(help="paper: the paper's schedule.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Learn a mixed policy that keeps the budgets, and write its bundle.

    Example: outlay train campaign.toml --out run --method aim-greedy --seed 1
    """
    use_threads(threads)
    with progress("train", quiet=quiet or as_json) as report:
        from outlay.jobs.train import train as job

        run = job(
            source, out, method=method, oracle=oracle, preset=preset, seed=seed,
            resume=resume, threads=threads, progress=report,
        )  # fmt: skip
    if as_json:
        print_json({"run": str(out), **run.manifest})
    elif not quiet:
        _show_run(run.manifest, [budget.name for budget in run.campaign.budgets])
        stdout.print(f"{out} written. Next: outlay evaluate {out}", markup=False)


def _show_run(manifest: dict[str, Any], budgets: list[str]) -> None:
    rows = [
        (f"member {i}", f"{m['weight']:.1%}", m["name"], " ".join(f"{x:.4g}" for x in m["multiplier"]),
         *(number for pair in zip(m["critic"] or [None] * len(m["fitted"]), m["fitted"], strict=True)
           for number in pair))
        for i, m in enumerate(manifest["members"])
    ]  # fmt: skip
    names = [f"{name} ({by})" for name in ("reward", *budgets) for by in ("critic", "fitted")]
    table(f"{manifest['method']} of {manifest['oracle']}, {manifest['steps']:,} steps in {manifest['seconds']:.0f} s",
          ("", "users", "policy", "λ", *names), rows)  # fmt: skip
    for note in manifest["notes"]:
        stdout.print(f"note: {note}", markup=False)


def evaluate(
    run: RunFolder,
    confidence: Annotated[float | None, typer.Option(help="Of intervals and certificate, e.g. 0.95.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Estimates with intervals and the certificate, on users never used for choosing.

    Example: outlay evaluate run --confidence 0.95
    """
    use_threads(threads)
    with progress("evaluate", quiet=quiet or as_json) as report:
        from outlay.jobs.evaluate import evaluate as job
        from outlay.jobs.run import Run

        opened = Run.open(run)
        found = job(opened, confidence=confidence, progress=report)
    if as_json:
        print_json(found.to_dict())
    elif not quiet:
        from outlay.jobs.report import DISCOUNTED, policy_rows

        show_policies(policy_rows(opened, found.to_dict()), opened, found.confidence)
        meta = opened.campaign.meta
        if meta.discount > 0 and any(b.per == "decision" for b in opened.campaign.budgets):
            stdout.print(DISCOUNTED.format(discount=meta.discount), markup=False, highlight=False)
        stdout.print(found.verdict, markup=False)


def show_policies(rows: Any, run: Any, confidence: float) -> None:
    """The table of policies: totals, cost against its limit, certified or not."""
    campaign = run.campaign
    days = campaign.meta.report_days
    reward = campaign.reward_label
    columns = ["policy", *(f"{reward}, {k} d" for k in days)]
    columns += [f"{b.name} ({'≤' if b.sign > 0 else '≥'} {b.limit:g} per {b.per})" for b in campaign.budgets]
    lines = []
    for row in rows:
        cells = [_interval(row.totals.get(k)) for k in days] + [
            _interval(row.costs.get(b.name)) for b in campaign.budgets
        ]
        known = {None: "–", True: "yes", False: "no"}[row.certified]
        lines.append((f"{row.name} ({row.note})" if row.note else row.name, *cells, known))
    level = f"{100 * confidence:.4g} % intervals, users never used for choosing"
    table(f"{campaign.meta.name}: per user, {level}", (*columns, "certified"), lines)


def _interval(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value.value:.3f}" if value.low is None else f"{value.value:.3f} ±{(value.high - value.low) / 2:.3f}"


def report(run: RunFolder, quiet: Quiet = False, threads: Threads = None) -> None:
    """Write the HTML report of a run again, into RUN/report.html.

    Example: outlay report run
    """
    from outlay.jobs.report import report as job

    use_threads(threads)
    path = job(run)
    if not quiet:
        stdout.print(f"{path} written: one page, no network needed.", markup=False)
