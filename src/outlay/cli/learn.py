"""Commands that learn and judge: train, evaluate, report, compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from outlay.cli.console import Json, Quiet, Threads, print_json, progress, stdout, table, use_threads
from outlay.core.errors import OutlayError

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that outlay train wrote.")]

Method = Literal["aim-greedy", "aim-mean", "single-best", "uniform", "lp", "two-stage"]
Oracle = Literal["bcq", "edrr", "ddqn"]
Response = Literal["deepfm", "din"]
Preset = Literal["outlay", "paper"]


def train(
    source: Annotated[Path, typer.Argument(metavar="CAMPAIGN_OR_DATA", help="campaign.toml, or a DATA folder.")],
    out: Annotated[Path, typer.Option("--out", help="The RUN folder to write.")],
    method: Annotated[
        Method, typer.Option(help="How candidates are mixed; two-stage predicts and prices instead.")
    ] = "aim-greedy",
    oracle: Annotated[Oracle, typer.Option(help="How best responses are learned.")] = "bcq",
    response: Annotated[Response, typer.Option(help="two-stage: the response model.")] = "deepfm",
    label_days: Annotated[int, typer.Option(min=1, help="two-stage: days that its labels look ahead.")] = 1,
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
            source, out, method=method, oracle=oracle, response=response, label_days=label_days,
            preset=preset, seed=seed, resume=resume, threads=threads, progress=report,
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
    steps = f"{manifest['steps']:,} steps in " if manifest["steps"] else ""
    table(f"{manifest['method']} of {manifest['oracle']}, {steps}{manifest['seconds']:.0f} s",
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


def compare(
    campaign: Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="campaign.toml.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write: table, figures, JSON.")] = Path("comparison"),
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each method.")] = 3,
    immediate: Annotated[
        float | None, typer.Option(help="What day one may cost per user. Default: as under the log's policy.")
    ] = None,
    label_days: Annotated[str, typer.Option(help="Days that labels of response models look ahead.")] = "1,3,7",
    oracles: Annotated[str, typer.Option(help="Of the methods that look ahead.")] = "ddqn,edrr,bcq",
    responses: Annotated[str, typer.Option(help="The response models.")] = "deepfm,din",
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Methods side by side at equal spend, as in the paper's second table.

    Example: outlay compare campaign.toml --out comparison --seeds 5
    """
    use_threads(threads)
    with progress("compare", quiet=quiet or as_json) as report:
        from outlay.jobs.compare import compare as job

        found = job(
            campaign, out, seeds=seeds, immediate=immediate, label_days=_whole_numbers("--label-days", label_days),
            oracles=_names(oracles), responses=_names(responses), threads=threads, progress=report,
        )  # fmt: skip
    if as_json:
        print_json({"path": str(out), **found.to_dict()})
    elif not quiet:
        _show_comparison(found)
        stdout.print(f"{out / 'comparison.html'} written: tables and figures, no network needed.", markup=False)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _whole_numbers(option: str, text: str) -> tuple[int, ...]:
    parts = _names(text)
    if not parts or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise OutlayError(f"is {text!r}.", where=option, way_out="Give whole numbers, e.g. 1,3,7.")
    return tuple(int(part) for part in parts)


def _show_comparison(found: Any) -> None:
    """A table under each control, then the findings."""
    days = found.report_days
    targets = [*(f"reward@{k}" for k in days), f"{found.money}@1", found.money]
    columns = ["method", *(f"{found.reward_label}, {k} d" for k in days), f"{found.money}, day one",
               f"{found.money}, {found.limits[0].removeprefix(found.money).strip()}"]  # fmt: skip
    true = any(figure.truth is not None for row in found.rows for figure in row.figures.values())
    for control, words in (("immediate", f"equal spend on day one: {found.immediate:.4g} {found.unit} per user"),
                           ("total", f"the campaign's limits: {'; '.join(found.limits)}")):  # fmt: skip
        lines = [
            (row.name, *(_compared(row.figures.get(target)) for target in targets))
            if row.figures else (row.name, f"– {row.refused}", *[""] * (len(targets) - 1))
            for row in found.rows if row.control in (control, "none")
        ]  # fmt: skip
        said = "estimate ± sd over seeds" + (" [true value]" if true else "")
        table(f"{found.campaign}, {words}; {said}, {found.seeds} seeds", columns, lines)
    for finding in found.findings:
        stdout.print(finding, markup=False, highlight=False)


def _compared(figure: Any) -> str:
    if figure is None or figure.value is None:
        return "–"
    spread = "" if figure.sd is None else f" ±{figure.sd:.4f}"
    truth = "" if figure.truth is None else f" [{figure.truth:.4f}]"
    return f"{figure.value:.4f}{spread}{truth}"
