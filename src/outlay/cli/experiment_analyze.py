"""The command that judges a test: experiment analyze."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli.console import Json, Quiet, Threads, print_json, progress, stderr, stdout, table, use_threads
from outlay.core.errors import OutlayError

if TYPE_CHECKING:
    from outlay.experiments.lift import ArmDifference, Lift, Withheld
    from outlay.experiments.results import Analysis, ArmComparison, RatioCheck
    from outlay.experiments.words import ExperimentNote


def analyze(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="Parquet or CSV, or a folder of Parquet files: a row per user and day, or per user."
        ),
    ],
    experiment: Annotated[Path, typer.Option(help="The experiment.toml.")] = Path("experiment.toml"),
    day: Annotated[int | None, typer.Option(help="Look after this many days. Default: the last whole week.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=SQL",
            help="A column or expression for user, day, arm, segment, eligible, cost or a metric.",
        ),
    ] = None,
    assigned: Annotated[
        Path | None, typer.Option(help="Parquet of user, arm and day: all of them count, with or without rows.")
    ] = None,
    promised: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARM=FILE",
            help="RUN/estimates.json of an arm, to compare what was promised with what happened. FILE alone, if one "
            "arm gets a verdict.",
        ),
    ] = None,
    campaign: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The log's campaign.toml: its [log.delays] say which days are ripe. Default: that of an exported log.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write the page of the test, one self-contained file.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Analyze a test: lift with intervals, the verdict at planned decisions, guardrails on any day.

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
    show_notes(analysis.notes)
    if not quiet:
        if report is not None:
            say(f"{report} written: one page that works offline.")
        _show(analysis)


def say(text: str) -> None:
    """Print a line as it is."""
    stdout.print(text, markup=False, highlight=False)


def show_notes(notes: Iterable[ExperimentNote]) -> None:
    """Print notes beside the results."""
    for note in notes:
        stderr.print(f"note: {note.words}", markup=False, highlight=False, soft_wrap=True)


def _page_writer(path: Path) -> Callable[[Analysis], object]:
    """The function that writes the page; what prevents it is reported before the log is read."""
    from outlay.pages.experiment import check_page_path, write_page

    check_page_path(path)
    return lambda analysis: write_page(analysis, path)


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


def _show(analysis: Analysis) -> None:
    from outlay.core.wording import exact

    _show_arms(analysis)
    for comparison in analysis.comparisons:
        _show_lifts(comparison, analysis.control, exact(analysis.experiment.meta.confidence))
        _show_decisions(comparison)
        _show_courses(comparison)
        _show_segments(comparison, exact(analysis.experiment.meta.confidence))
    if analysis.promised:
        table(
            "promised and happened, relative",
            ("arm", "metric", "days", "estimator", "promised", "happened", "agree"),
            [
                (
                    p.arm,
                    p.metric,
                    p.days,
                    p.estimator,
                    *(_span(x.in_percent) for x in (p.promised, p.happened)),
                    p.agrees,
                )
                for p in analysis.promised
            ],
        )
    say(analysis.verdict)


def _show_arms(analysis: Analysis) -> None:
    from outlay.core.wording import number

    meta = analysis.experiment.meta
    shares = {arm.name: [f"{number(100 * x, 2)}%" for x in (arm.share, arm.planned_share)] for arm in analysis.arms}
    table(
        f"{meta.name}: arms after day {analysis.day} of {meta.days}",
        ("arm", "users", "share", "planned", "sample ratio p", f"spent ({meta.unit})", "budget"),
        [
            (a.name, a.users, *shares[a.name], _ratio(a.name, analysis.ratios), _money(a.spent), _money(a.budget))
            for a in analysis.arms
        ],
    )


def _show_lifts(comparison: ArmComparison, control: str, level: str) -> None:
    from outlay.experiments.lift import Withheld

    columns = ("per user", control, comparison.arm, f"difference, {level}", f"relative, {level}", "explained by CUPED")
    views = [("", comparison.lifts), (", users with a row only, never decisive", comparison.exposed)]
    for which, lifts in views:
        if not lifts:
            continue
        saved = {} if which else comparison.saved
        title = f"{comparison.arm} against {control}: at a single look{which}"
        table(title, columns, [_line(x, saved.get(x.metric)) for x in lifts])
        if saved:
            say("  – CUPED adjusts the difference, so it is not simply one value less the other")
        for x in lifts:
            if isinstance(x, Withheld):
                say(f"  – {x.metric}: not shown: {x.reason.words}")
            elif x.cautious:
                say(
                    f"  – {x.metric}: the interval is widened, since a few users account for most of it and an arm is "
                    "small"
                )


def _show_decisions(comparison: ArmComparison) -> None:
    from outlay.experiments.words import p_value

    if comparison.decisions:
        table(
            "planned decisions, with intervals that hold over all of them",
            ("after day", "z", "bound", "relative", "crossed"),
            [(str(d.day), d.z, d.bound, _span(d), bool(d.side)) for d in comparison.decisions],
        )
    if (change := comparison.change) is not None:
        table(
            f"{change.first.metric} by week, at a single look, per day of the users who came in week 1",
            ("week 1", change.weeks, "p of no change", "the effect is"),
            [(_span(change.first), _span(change.since), p_value(change.p_value), change.trend)],
        )


def _show_courses(comparison: ArmComparison) -> None:
    sides = {1: "higher", -1: "lower", 0: "no change shows"}
    seen = {
        course.metric: None if course.seen is None else " to ".join(map(str, dict.fromkeys(course.seen)))
        for course in comparison.courses
    }
    table(
        "any day, with intervals that hold on all days at once",
        ("", "relative, so far", "now", "seen on days"),
        [
            (course.metric, _span(course.points[-1].on_all_days), sides[course.now], seen[course.metric])
            for course in comparison.courses
            if course.points
        ],
    )


def _show_segments(comparison: ArmComparison, level: str) -> None:
    if comparison.segments:
        table(
            f"{comparison.lifts[0].metric} by segment, at a single look: for understanding, not for deciding",
            ("segment", "users", f"relative, {level}"),
            [(s.name, s.users, _span(s.lifts[0])) for s in comparison.segments],
        )


def _ratio(arm: str, checks: Sequence[RatioCheck]) -> str | None:
    """P-values of all users; separately for the assigned and for those in the log if these differ."""
    from outlay.experiments.words import p_value

    whole = [check for check in checks if check.arm == arm and not check.part]
    return ", ".join(p_value(c.p_value) + (f" {c.of}" if len(whole) > 1 else "") for c in whole) or None


def _money(x: float | None) -> str | None:
    return None if x is None else f"{x:,.0f}" if abs(x) >= 100 else f"{x:,.2f}"


def _line(x: Lift | Withheld, saved: float | None) -> tuple[object, ...]:
    from outlay.core.wording import percent
    from outlay.experiments.lift import ArmDifference, Withheld
    from outlay.experiments.words import span

    if isinstance(x, Withheld):
        return x.metric, None, None, None, None, None
    difference = span(ArmDifference(x.absolute, None), unit="")
    return x.metric, x.control, x.treatment, difference, _span(x), None if saved is None else percent(max(saved, 0.0))


def _span(x: ArmDifference | Withheld) -> str | None:
    """A relative effect with its interval, if there is one."""
    from outlay.experiments.lift import ArmDifference
    from outlay.experiments.words import span

    return span(x) if isinstance(x, ArmDifference) and x.relative is not None else None
