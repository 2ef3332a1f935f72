"""The command that judges a test: experiment analyze."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli.console import Json, Quiet, Threads, print_json, progress, stderr, stdout, table, use_threads
from outlay.core.errors import OutlayError

if TYPE_CHECKING:
    from outlay.experiments.findings import ArmComparison, RatioCheck
    from outlay.experiments.lift import IntervalEstimate, Lift, Withheld
    from outlay.jobs.analyze_experiment import AnalyzeResult


def analyze(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="Parquet or CSV, or a folder of Parquet files: a row per user and day, or per user."
        ),
    ],
    experiment: Annotated[Path, typer.Option(help="The experiment.toml.")] = Path("experiment.toml"),
    day: Annotated[int | None, typer.Option(help="Look after so many days. Default: the last whole week.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=SQL",
            help="A column or expression for user, day, arm, segment, eligible, cost or a metric.",
        ),
    ] = None,
    assigned: Annotated[
        Path | None, typer.Option(help="Parquet of user, arm and day: then all of them count, rows or none.")
    ] = None,
    promised: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARM=FILE",
            help="RUN/estimates.json of an arm, to hold what was promised against what happened. FILE, where one arm "
            "gets a verdict.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write the page of the test, one self-contained file.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """What a test has shown: lift with intervals, the verdict at planned decisions, guardrails on any day.

    Example: outlay experiment analyze closed --promised new=run/estimates.json --report test.html
    """
    from outlay.jobs.analyze_experiment import analyze_experiment as job

    use_threads(threads)
    write = None if report is None else _page_writer(report)
    with progress("analyze", quiet=quiet or as_json) as told:
        result = job(
            log, experiment, day=day, columns=_columns(column or []), assigned=assigned,
            promised=_promised(promised or []), threads=threads, progress=told,
        )  # fmt: skip
    if write is not None:
        write(result)
    if as_json:
        print_json(result.to_dict())
        return
    for note in result.notes:
        stderr.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    if not quiet:
        if report is not None:
            stdout.print(f"{report} written: one page, no network needed.", markup=False, highlight=False)
        _show(result)


def _page_writer(path: Path) -> Callable[[AnalyzeResult], object]:
    """What writes the page; whatever stands in its way is told before the log is read."""
    from outlay.jobs.experiment_report import check_report_path, write_experiment_report

    check_report_path(path)
    return lambda result: write_experiment_report(result, path)


def _columns(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        role, _, sql = (part.strip() for part in text.partition("="))
        if not role or not sql or role in found:
            raise OutlayError(f"is {text!r}.", where="--column",
                              way_out="Give every role once, e.g. --column cost='coupon * active'.")  # fmt: skip
        found[role] = sql
    return found


def _promised(given: list[str]) -> dict[str, str | Path] | Path | None:
    """Arm → file; or a file alone, of the only arm that gets a verdict."""
    if len(given) == 1 and "=" not in given[0]:
        return Path(given[0])
    found: dict[str, str | Path] = {}
    for text in given:
        arm, named, file = text.partition("=")
        if not named or arm in found:
            raise OutlayError(f"is {text!r}.", where="--promised",
                              way_out="Give every arm once: --promised new=run/estimates.json.")  # fmt: skip
        found[arm] = Path(file)
    return found or None


def _show(result: AnalyzeResult) -> None:
    found, meta = result.findings, result.experiment.meta
    table(
        f"{meta.name}: arms after day {found.day} of {meta.days}",
        ("arm", "users", "share", "planned", "sample ratio p", f"spent ({meta.unit})", "budget"),
        [
            (arm.name, arm.users, f"{arm.share:.2%}", f"{arm.planned_share:.2%}", _ratio(arm.name, found.ratios),
             _money(arm.spent), _money(arm.budget))
            for arm in found.arms
        ],
    )  # fmt: skip
    for comparison in found.comparisons:
        _show_comparison(comparison, result)
    if result.promised:
        table(
            "promised against happened, relative",
            ("arm", "metric", "days", "estimator", "promised", "happened", "agree"),
            [
                (arm, p.metric, p.days, p.estimator, _span(p.promised), _span(p.happened), p.agrees)
                for arm, told in result.promised.items()
                for p in told
            ],
        )
    stdout.print(result.verdict, markup=False, highlight=False)


def _show_comparison(comparison: ArmComparison, result: AnalyzeResult) -> None:
    from outlay.experiments.lift import Withheld

    control, level = result.experiment.control.name, f"{100 * result.experiment.meta.confidence:.4g} %"
    columns = ("per user", control, comparison.arm, f"difference, {level}", f"relative, {level}", "saved by CUPED")
    views = [("", comparison.lifts), (", users with a row only, never decisive", comparison.exposed)]
    for which, lifts in views:
        if not lifts:
            continue
        table(
            f"{comparison.arm} against {control}: at one look{which}",
            columns,
            [_line(x, {} if which else comparison.saved) for x in lifts],
        )
        if comparison.saved and not which:
            stdout.print("  – CUPED adjusts the difference, which so is not just one value less the other",
                         markup=False, highlight=False)  # fmt: skip
        for x in lifts:
            if isinstance(x, Withheld):
                stdout.print(f"  – {x.metric}: not given: {x.reason}", markup=False, highlight=False)
            elif x.cautious:
                stdout.print(f"  – {x.metric}: the interval is widened, since few users make most of it and an arm is "
                             "small", markup=False, highlight=False)  # fmt: skip
    if comparison.decisions:
        table(
            "planned decisions, intervals that hold over all of them",
            ("after day", "z", "bound", "relative", "crossed"),
            [(str(d.day), d.z, d.bound, _span(d.relative), bool(d.side)) for d in comparison.decisions],
        )
    if comparison.change is not None:
        change = comparison.change
        table(
            f"{change.first.metric} by week, at one look, per day of the users who came in week 1",
            ("week 1", change.weeks, "p of no change", "the effect is"),
            [(_relative(change.first), _relative(change.since), f"{change.p_value:.2g}", change.trend)],
        )
    table(
        "on any day, intervals that hold on all days at once",
        ("", "relative, so far", "now", "seen on days"),
        [
            (course.metric, _span(course.points[-1].always_relative),
             {1: "higher", -1: "lower", 0: "not visibly other"}[course.now],
             None if course.seen is None else " to ".join(map(str, dict.fromkeys(course.seen))))
            for course in comparison.courses
            if course.points
        ],
    )  # fmt: skip
    if comparison.segments:
        main = comparison.lifts[0].metric
        table(
            f"{main} by segment, at one look: to understand, not to decide by",
            ("segment", "users", f"relative, {level}"),
            [(s.name, s.users, _relative(s.lifts[0])) for s in comparison.segments],
        )


def _ratio(arm: str, checks: Sequence[RatioCheck]) -> str | None:
    """P-values of all users; of the assigned and of those in the log where these differ."""
    whole = [check for check in checks if check.arm == arm and not check.part]
    told = [f"{check.p_value:.3g}" + (f" {check.of}" if len(whole) > 1 else "") for check in whole]
    return ", ".join(told) or None


def _money(x: float | None) -> str | None:
    return None if x is None else f"{x:,.0f}" if abs(x) >= 100 else f"{x:,.2f}"


def _line(x: Lift | Withheld, explained: Mapping[str, float]) -> tuple[object, ...]:
    from outlay.experiments.lift import Withheld

    if isinstance(x, Withheld):
        return x.metric, None, None, None, None, None
    a = x.absolute
    saved = explained.get(x.metric)
    difference = f"{a.value:+.4g} ({a.low:+.4g} to {a.high:+.4g})"
    return x.metric, x.control, x.treatment, difference, _relative(x), None if saved is None else f"{saved:.0%}"


def _relative(x: Lift | Withheld) -> str:
    from outlay.experiments.lift import Withheld

    return "–" if isinstance(x, Withheld) else _span(x.relative)


def _span(x: IntervalEstimate | None) -> str:
    from outlay.experiments.words import span

    return "–" if x is None else span(x)
