"""The command that judges a policy: evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from outlay.cli.console import Json, Quiet, Threads, print_json, progress, stdout, table, use_threads

NOT_RELIED_ON = "*"


def evaluate(
    source: Annotated[
        Path, typer.Argument(metavar="RUN_OR_DATA", help="A folder that outlay train wrote; or DATA, with --policy.")
    ],
    policy: Annotated[
        Path | None,
        typer.Option(help="A policy as Parquet: user, time, then the probability of each action, named by its value."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Hold it against another RUN or policy file too. Default: old, the log's own.")
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Of intervals and certificate, e.g. 0.95.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Estimates with intervals and the certificate, on users never used for choosing.

    Example: outlay evaluate run --against other-run

    Example: outlay evaluate data --policy rules.parquet --json
    """
    use_threads(threads)
    with progress("evaluate", quiet=quiet or as_json) as report:
        from outlay.jobs.evaluate import evaluate as job
        from outlay.jobs.evaluate import opened

        run, data = opened(source)
        found = job(run or data, policy=policy, against=against, confidence=confidence, progress=report)
    if as_json:
        print_json(found.to_dict())
    elif not quiet:
        _show(found.to_dict(), (run.campaign if run else data.campaign))


def _show(found: dict[str, Any], campaign: Any) -> None:
    from outlay.jobs.report import DISCOUNTED, policy_rows

    _policies(policy_rows(campaign, found), campaign, found["confidence"])
    if campaign.meta.discount > 0 and any(b.per == "decision" for b in campaign.budgets):
        _say(DISCOUNTED.format(discount=campaign.meta.discount))
    _estimators(found)
    _segments(found, campaign)
    _differences(found)
    _rests_on(found)
    _say(found["verdict"])


def _policies(rows: Any, campaign: Any, confidence: float) -> None:
    """Totals, cost against its limit, certified or not."""
    days = campaign.meta.report_days
    reward = campaign.reward_label
    columns = ["policy", *(f"{reward}, {k} d" for k in days)]
    columns += [f"{b.name} ({'≤' if b.sign > 0 else '≥'} {b.limit:g} per {b.per})" for b in campaign.budgets]
    lines = []
    for row in rows:
        values = [*(row.totals.get(k) for k in days), *(row.costs.get(b.name) for b in campaign.budgets)]
        cells = [_cell(v and v.value, v and v.low, v and v.high) for v in values]
        known = {None: "–", True: "yes", False: "no"}[row.certified]
        lines.append((f"{row.name} ({row.note})" if row.note else row.name, *cells, known))
    level = f"{100 * confidence:.4g} % intervals, users never used for choosing"
    table(f"{campaign.meta.name}: per user, {level}", (*columns, "certified"), lines)


def _estimators(found: dict[str, Any]) -> None:
    """Every estimator of the policy, side by side."""
    names = list(dict.fromkeys(e["estimator"] for e in found["estimates"]))
    targets = list(dict.fromkeys(e["target"] for e in found["estimates"]))
    by = {(e["estimator"], e["target"]): e for e in found["estimates"]}
    lines = [(target, *(_estimate(by.get((name, target))) for name in names)) for target in targets]
    table(f"{found['policies'][found['subject']]}, by each estimator", ("", *names), lines)
    cautions = {e["caution"] for e in found["estimates"] if e["caution"]}
    if cautions:
        _say(f"{NOT_RELIED_ON} not to be relied on; –: not given. --json says why, number by number.")


def _segments(found: dict[str, Any], campaign: Any) -> None:
    """The longest total in each segment."""
    target = f"reward@{max(campaign.meta.report_days)}"
    by = {(e["segment"], e["policy"]): e for e in found["segments"] if e["target"] == target}
    if not by:
        return
    policies = ["old", found["subject"], "gain"]
    lines = [
        (name, by[name, "old"]["users"], *(_estimate(by[name, policy]) for policy in policies))
        for name in dict.fromkeys(segment for segment, _ in by)
    ]
    titles = [found["policies"].get(policy, policy) for policy in policies]
    table(f"{campaign.reward_label}, {target.partition('@')[2]} d, by segment", ("segment", "users", *titles), lines)


def _differences(found: dict[str, Any]) -> None:
    """Against another policy than the old one, where one was named."""
    rows = [d for d in found["differences"] if d["against"] != "old"]
    if not rows:
        return
    names = list(dict.fromkeys(d["estimator"] for d in rows))
    by = {(d["estimator"], d["target"]): d for d in rows}
    lines = [
        (target, *(_estimate(by.get((name, target))) for name in names))
        for target in dict.fromkeys(d["target"] for d in rows)
    ]
    table(f"less {found['policies']['against']}, paired by user", ("", *names), lines)


def _rests_on(found: dict[str, Any]) -> None:
    """What the numbers rest on, in a few lines."""
    checks = found["diagnostics"]
    for name in ("reproduction", "agreement"):
        _say(f"{name.capitalize()}: {checks[name]['words']}.")
    if checks["propensities"]["source"] != "as logged":
        _say(f"Propensities by a behaviour model: {checks['propensities']['words']}.")
    paths = ", ".join(
        f"{line['matched']:.2%} of users for {line['days']} d ({line['ess']:,.0f} effective)"
        for line in checks["paths"]
    )
    _say(f"Logged paths that go the policy's way: {paths}.")
    for line in checks["overlap"]:
        if line["unseen_share"] > 0:
            values = ", ".join(f"{value:g}" for value in line["unseen"])
            _say(
                f"In segment {line['segment']!r} {line['unseen_share']:.1%} of what it gives was never given: {values}."
            )


def _estimate(e: dict[str, Any] | None) -> str:
    if e is None or e["value"] is None:
        return "–"
    return _cell(e["value"], e["low"], e["high"]) + ("" if e["recommended"] else NOT_RELIED_ON)


def _cell(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} ±{(high - low) / 2:.3f}"


def _say(text: str) -> None:
    stdout.print(text, markup=False, highlight=False)
