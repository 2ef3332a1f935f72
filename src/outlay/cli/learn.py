"""Commands that learn, and show what was learned: train, frontier, report, compare."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from outlay.cli.console import (
    Json,
    Quiet,
    Threads,
    keeping,
    print_json,
    progress,
    stderr,
    stdout,
    table,
    use_threads,
)
from outlay.core.errors import OutlayError
from outlay.core.files import can_resume
from outlay.core.machine import processors
from outlay.core.target import Target
from outlay.core.wording import exact
from outlay.training import METHODS, ORACLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlay.choosing.run import Run
    from outlay.comparing.results import Comparison
    from outlay.evaluating.budget_curve import BudgetCurve, CurveMember, CurvePoint

    Method = str
    Oracle = str
else:
    Method = Literal[METHODS]
    Oracle = Literal[ORACLES]

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that outlay train wrote.")]
Response = Literal["deepfm", "din"]
Preset = Literal["outlay", "paper"]


def train(
    source: Annotated[Path, typer.Argument(metavar="CAMPAIGN_OR_DATA", help="campaign.toml, or a DATA folder.")],
    out: Annotated[Path, typer.Option("--out", help="The RUN folder to write.")],
    method: Annotated[
        Method | None,
        typer.Option(
            help="frontier: one training for every budget; two-stage predicts and prices instead. "
            "Default: frontier; with --preset paper aim-greedy."
        ),
    ] = None,
    oracle: Annotated[
        Oracle,
        typer.Option(
            help="How best responses are learned; auto counts few states, and otherwise pools trees and orthogonal."
        ),
    ] = "auto",
    response: Annotated[
        Response | None,
        typer.Option(help="two-stage: the response model; din reads each user's past days. Default: deepfm."),
    ] = None,
    label_days: Annotated[
        int | None, typer.Option(min=1, help="two-stage: days that its labels look ahead. Default: 1.")
    ] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(
            help="paper: its method (aim-greedy, bcq) and schedule, the rule's own weights; no folds, no screening, no "
            "threshold on bcq's actions. λ is stepped in raw (1−γ)·J; the paper's J is 1/(1−γ) times that."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(min=1, help="frontier: learn this often, each time without one fold, so that all users certify."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Train so many seeds side by side, each into OUT/seed-N.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="frontier: processes of a Ray cluster that train networks together.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a RUN that was evaluated, estimates included.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Learn a mixed policy that keeps the budgets, and write its bundle.

    Example: outlay train campaign.toml --out run --seed 1
    """
    use_threads(threads)
    if seeds is not None:
        if resume or overwrite or workers is not None:
            raise OutlayError(
                "goes on by itself with the seeds that are left, on this machine.",
                where="--seeds",
                way_out="Leave --resume, --overwrite and --workers out.",
            )
        _train_seeds(
            source,
            out,
            seeds,
            seed,
            threads,
            as_json,
            quiet,
            method=method,
            oracle=oracle,
            response=response,
            label_days=label_days,
            preset=preset,
            folds=folds,
        )
        return
    try:
        with progress("train", quiet=quiet or as_json) as report:
            from outlay.jobs.train import train as job

            run = job(
                source,
                out,
                method=method,
                oracle=oracle,
                response=response,
                label_days=label_days,
                preset=preset,
                folds=folds,
                seed=seed,
                resume=resume,
                overwrite=overwrite,
                threads=threads,
                workers=workers,
                progress=report,
            )
    except KeyboardInterrupt:
        if can_resume(out):
            stderr.print("There is a checkpoint; continue with --resume.", markup=False)
        raise
    if as_json:
        print_json({"run": str(out), **run.manifest})
    elif not quiet:
        _show_run(run.manifest, [budget.name for budget in run.campaign.budgets])
        stdout.print(f"{out} written. Next: outlay evaluate {out}", markup=False)


def _train_seeds(
    source: Path, out: Path, seeds: int, first: int, threads: int | None, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Train several seeds, and show what the mixtures of each are worth on select users."""
    with keeping(out), progress("train", quiet=quiet or as_json) as report:
        from outlay.jobs.train_seeds import train_seeds as job

        runs = job(source, out, seeds=seeds, seed=first, threads=threads, progress=report, **options)
    if as_json:
        print_json([{"run": str(run.folder), **run.manifest} for run in runs])
    elif not quiet:
        rows = [(str(run.folder), f"{run.manifest['seconds']:.0f}", *_fitted_mean(run)) for run in runs]
        table(
            "As select users measure it", ("", "seconds", "reward", *(b.name for b in runs[0].campaign.budgets)), rows
        )
        stdout.print(f"{out} written. Next: outlay evaluate {runs[0].folder}", markup=False)


def _fitted_mean(run: Run) -> list[float | None]:
    """What the mixture is worth by the fitted evaluation; None where a member is not known."""
    count = 1 + len(run.campaign.budgets)
    if any(m.fitted is None for m in run.members):
        return [None] * count
    return [sum(m.weight * m.fitted[i] for m in run.members if m.fitted is not None) for i in range(count)]


def _show_run(manifest: dict[str, Any], budgets: list[str]) -> None:
    critics = any(m["critic"] for m in manifest["members"])
    unknown = [None] * (1 + len(budgets))
    rows = [
        (
            f"member {i}",
            f"{m['weight']:.1%}",
            m["name"],
            " ".join(f"{x:.4g}" for x in m["multiplier"]),
            *(
                number
                for pair in zip(m["critic"] or unknown, m["fitted"] or unknown, strict=True)
                for number in (pair if critics else pair[1:])
            ),
        )
        for i, m in enumerate(manifest["members"])
    ]
    kinds = (" (critic)", " (fitted)") if critics else ("",)
    names = [f"{name}{kind}" for name in ("reward", *budgets) for kind in kinds]
    steps = f"{manifest['steps']:,} steps in " if manifest["steps"] else ""
    table(
        f"{manifest['method']} of {manifest['oracle']}, {steps}{manifest['seconds']:.0f} s",
        ("", "users", "policy", "λ", *names),
        rows,
    )
    for note in manifest["notes"]:
        stdout.print(f"note: {note}", markup=False)


def frontier(
    run: RunFolder,
    budget: Annotated[
        list[float] | None, typer.Option("--budget", help="A limit of the money budget; repeat it for several.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Write the bundle for the one --budget here, certified (all of a run are one counted look)."),
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Of intervals and the certificate, e.g. 0.95.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Show what every budget buys, from one training; give the mixture and the bundle for any of them.

    Without options the curve is also written as the run's page, RUN/frontier.html.

    Example: outlay frontier run --budget 1.5 --export bundles/1.5
    """
    use_threads(threads)
    with progress("frontier", quiet=quiet or as_json) as report:
        from outlay.jobs.frontier import frontier as job

        curve = job(run, budget or (), export=export, confidence=confidence, progress=report)
    asked = bool(export or budget or confidence)
    if as_json:
        print_json({"page": None if asked else str(run / "frontier.html"), **asdict(curve)})
    elif not quiet:
        _show_frontier(curve, run)
        if curve.export is not None:
            stdout.print(f"{export} written (look {curve.export.look} at the certify users).", markup=False)
            stdout.print(curve.export.verdict.words, markup=False)
            return
        page = run / "frontier.html"
        if asked:
            stdout.print(f"The page is left as it is: outlay frontier {run} writes {page}.", markup=False)
            return
        stdout.print(f"{page} written: the curve with a slider; it works offline.", markup=False)


def _mixture(members: Sequence[CurveMember], folds: int) -> str:
    """λ of each member and its share of users; of a mixture of folds the ends of all λ."""
    multipliers = [", ".join(f"{price:.3g}" for price in member.multiplier) for member in members]
    if folds == 1:
        return "; ".join(f"{price} ({m.weight:.0%})" for price, m in zip(multipliers, members, strict=True))
    order = sorted(range(len(members)), key=lambda i: members[i].multiplier)
    return f"{multipliers[order[0]]} to {multipliers[order[-1]]}, {len(members)} members"


def _marginal(point: CurvePoint) -> str:
    """`0.0312 (0.028 to 0.034)`."""
    ends = f" ({_near(point.marginal_low):.2g} to {_near(point.marginal_high):.2g})"
    return f"{_near(point.marginal):.3g}{'' if point.slack else ends}"


def _show_frontier(curve: BudgetCurve, run: Path) -> None:
    """A table of the curve, and below it what the requested budgets buy and what is certified."""
    from outlay.pages.frontier_words import CERTIFIED, losses, measured_on

    money, place = curve.money_limit, curve.place
    days = Target.parse(curve.objective).days
    reward = f"{curve.reward_label}, {days} d" if days else f"{curve.reward_label} per decision"
    others = [budget.name for budget in curve.budgets if budget is not money]
    columns = [f"{money.name} ≤, per {money.per}", reward, "spend", *others, "marginal reward", "λ (users)"]
    if curve.band is not None:
        columns.append("certified")

    def line(point: CurvePoint, mark: str) -> tuple[str, ...]:
        spends = [f"{_near(s):.4g} ±{_near(h - s):.2g}" for s, h in zip(point.spend, point.spend_high, strict=True)]
        mixture = _mixture(point.members, curve.folds)
        return (
            f"{point.budget:.4g}{mark}",
            f"{point.value:.4f} ±{point.high - point.value:.4f}",
            spends[place],
            *(s for j, s in enumerate(spends) if j != place),
            _marginal(point),
            mixture,
            *(() if point.certified is None else ("yes" if point.certified else "no",)),
        )

    every = max(1, (len(curve.curve) - 1) // 10)
    rows = [(point, "") for point in curve.curve[::every]] + [(point, " requested") for point in curve.requested]
    rows.sort(key=lambda row: row[0].budget)
    table(
        f"{curve.campaign}: what a budget buys, {exact(curve.confidence)} intervals on {measured_on(curve)}",
        columns,
        [line(*row) for row in rows],
    )

    def show(sentence: str) -> None:
        stdout.print(sentence, markup=False, highlight=False)

    if money.limit < curve.least:
        show(f"The campaign's own limit, {money.limit:g}, lies below the curve.")
    for point in curve.requested:
        words = f"At {point.budget:.4g}, one more {curve.unit} per {money.per} buys {_marginal(point)} {reward}."
        if point.slack:
            words = f"At {point.budget:.4g} there is money to spare: above {curve.most:.4g} it buys nothing more."
        show(words + (f" It is {point.certificate}." if point.certified is False else ""))
    old = curve.old
    show(
        f"The log's policy: {'could not be measured' if old is None else f'{old.value:.4f} at {old.spend[place]:.4g}'}."
    )
    show(curve.check)
    if (band := curve.band) is None:
        show(f"Not certified yet: outlay evaluate {run} looks at the certify users, once for every budget.")
    else:
        kept = sum(bool(point.certified) for point in curve.curve)
        lost = losses(curve)
        show(
            f"{kept} of {len(curve.curve)} budgets of the curve are certified at {exact(band.confidence)}, by "
            f"one look at {band.users:,} certify users.{f' {CERTIFIED}: {lost}' if lost else ''} "
            f"Certified holds {curve.condition}."
        )
    if curve.window is not None:
        show(curve.window.words)


def _near(number: float) -> float:
    """The number, or 0 where only rounding is left of it."""
    return round(number, 9) + 0.0


def report(run: RunFolder, quiet: Quiet = False, threads: Threads = None) -> None:
    """Write the HTML report of a run again, into RUN/report.html.

    Example: outlay report run
    """
    from outlay.jobs.report import report as job

    use_threads(threads)
    path = job(run)
    if not quiet:
        stdout.print(f"{path} written: one page; it works offline.", markup=False)


def compare(
    campaign: Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="campaign.toml.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write: table, figures, JSON.")] = Path("comparison"),
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each method.")] = 3,
    immediate: Annotated[
        float | None, typer.Option(help="What day one may cost per user. Default: as under the log's policy.")
    ] = None,
    label_days: Annotated[str, typer.Option(help="Days that labels of response models look ahead.")] = "1,3,7",
    oracles: Annotated[
        str,
        typer.Option(help="Of the methods that look ahead; orthogonal has a frontier alone, bcq+network a game alone."),
    ] = "ddqn,edrr,bcq,bcq+network,orthogonal",
    responses: Annotated[str, typer.Option(help="The response models.")] = "deepfm,din",
    rows: Annotated[
        list[str] | None,
        typer.Option(help="A row to make, by name, * for any text ('frontier*'); repeat it for several. Default: all."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an unfinished comparison.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Compare methods at equal spend, as in the paper's second table; seeds run side by side on the processors.

    Example: outlay compare campaign.toml --out comparison --seeds 5
    """
    use_threads(threads)
    try:
        with progress("compare", quiet=quiet or as_json) as report:
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
    except KeyboardInterrupt:
        if can_resume(out):
            stderr.print("Finished rows are kept; continue with --resume.", markup=False)
        raise
    if as_json:
        print_json({"path": str(out), **asdict(comparison)})
    elif not quiet:
        _show_comparison(comparison)
        stdout.print(f"{out / 'comparison.html'} written: tables and figures; it works offline.", markup=False)


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


def _show_comparison(comparison: Comparison) -> None:
    """A table under each control, and what leads there."""
    from outlay.comparing.results import CONTROLS
    from outlay.pages import comparison_table as tables

    for control in CONTROLS:
        made = tables.table(comparison, control)
        heads = ["method", *(f"{head}, {small}" for head, small in made.heads), "stored parameters", "training"]
        table(tables.title(comparison, control), heads, [line.texts(len(made.heads)) for line in made.lines])
        for sentence in (tables.lead(comparison, control), tables.ties(comparison, control)):
            if sentence:
                stdout.print(f"{sentence}.", markup=False, highlight=False)
