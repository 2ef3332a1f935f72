"""The command that judges a policy: evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from outlay.cli.console import Json, Quiet, Threads, print_json, progress, stdout, table, use_threads
from outlay.core.target import Target

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
    learned_here: Annotated[
        bool,
        typer.Option("--learned-here", help="The policy learned from this log: measure it on certify users alone."),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    threads: Threads = None,
) -> None:
    """Estimates with intervals and the certificate, on users never used for choosing.

    With DATA and a policy file these are all users of the log, where it states propensities.

    Example: outlay evaluate run --against other-run

    Example: outlay evaluate data --policy rules.parquet --json
    """
    use_threads(threads)
    with progress("evaluate", quiet=quiet or as_json) as report:
        from outlay.jobs.evaluate import evaluate as job
        from outlay.jobs.evaluate import opened

        run, data = opened(source)
        found = job(run or data, policy=policy, against=against, confidence=confidence,
                    learned_here=learned_here, progress=report)  # fmt: skip
    if as_json:
        print_json(found.to_dict())
    elif not quiet:
        _show(found.to_dict(), (run.campaign if run else data.campaign))


def _show(found: dict[str, Any], campaign: Any) -> None:
    from outlay.choosing.estimators import ESTIMATORS
    from outlay.jobs.report import DISCOUNTED, policy_rows

    _policies(policy_rows(campaign, found), campaign, found)
    if found["window"] is not None:
        _say(found["window"]["words"])
    elif campaign.meta.discount > 0 and any(b.per == "decision" for b in campaign.budgets):
        _say(DISCOUNTED.format(discount=campaign.meta.discount))
    title = f"{found['policies'][found['subject']]}, by each estimator"
    days = found["window"] and found["window"]["days"]
    _side_by_side(title, found["estimates"], campaign, days)
    for name in dict.fromkeys(e["estimator"] for e in found["estimates"]):
        _say(f"  {name}: {ESTIMATORS[name].note}")
    _reasons(found["estimates"])
    _segments(found, campaign)
    rows = [d for d in found["differences"] if d["against"] != "old"]
    if rows:
        against = found["policies"]["against"]
        _side_by_side(f"{found['policies'][found['subject']]} less {against}, paired by user", rows, campaign, days)
    _rests_on(found)
    _certificate(found["certificate"], found["diagnostics"]["curve"])
    _say(found["verdict"])
    _say(f"Sure and certified hold {found['condition']}.")


def _policies(rows: Any, campaign: Any, found: dict[str, Any]) -> None:
    """Totals, cost against its limit, certified or not."""
    fitted = [e for e in (*found["estimates"], *found["beside"]) if e["estimator"] == "fqe" and e["caution"]]
    shown = {"reward", *(b.name for b in campaign.budgets)}
    doubted = {found["policies"][e["policy"]] for e in fitted if e["target"].partition("@")[0] in shown}
    days = campaign.meta.report_days
    reward = campaign.reward_label
    columns = ["policy", *(f"{reward}, {k} d" for k in days)]
    columns += [f"{b.name} ({'≤' if b.sign > 0 else '≥'} {b.limit:g} per {b.per})" for b in campaign.budgets]
    lines = []
    for row in rows:
        mark = NOT_RELIED_ON if row.name in doubted else ""
        seen = "" if row.kind == "old" else mark  # its totals are observed
        marked = [
            *((row.totals.get(k), seen) for k in days),
            *((row.costs.get(b.name), mark) for b in campaign.budgets),
        ]
        cells = [_cell(v.value, v.low, v.high) + star if v else "–" for v, star in marked]
        known = {None: "–", True: "yes", False: "no"}[row.certified]
        lines.append((row.name, *cells, known))
    whom = "all users" if found["users"] == "all" else "users never used for choosing"
    level = f"{100 * found['confidence']:.4g} % intervals, {whom}"
    table(f"{campaign.meta.name}: per user, {level}", (*columns, "certified"), lines)
    for row in rows:
        if row.note:
            _say(f"  {row.name}: {row.note}")


def _side_by_side(title: str, rows: list[dict[str, Any]], campaign: Any, days: int | None) -> None:
    """A line for each target, a column for each estimator; `days` of a window that means are over."""
    names = list(dict.fromkeys(e["estimator"] for e in rows))
    by = {(e["estimator"], e["target"]): e for e in rows}
    lines = [
        (_words(target, campaign, days), *(_estimate(by.get((name, target))) for name in names))
        for target in dict.fromkeys(e["target"] for e in rows)
    ]
    table(title, ("", *names), lines)


def _words(target: str, campaign: Any, window: int | None) -> str:
    """`active, 7 d` for `reward@7`; `active per day, discounted` for `reward`, or `…, mean of 7 d`."""
    name, _, days = target.partition("@")
    name, _, beyond = name.partition("/")
    label = campaign.reward_label if name == "reward" else name
    if days:
        return f"{label}, {days} d"
    per = {b.name: f"per {b.per}" for b in campaign.budgets}
    if window is not None:
        span = "discounted" if beyond else f"mean of {window} d"
        return f"{label} {per.get(name, 'per day')}{'' if per.get(name) == 'per user' else f', {span}'}"
    return f"{label} {per.get(name, 'per day, discounted' if campaign.meta.discount > 0 else 'on the first day')}"


def _reasons(rows: list[dict[str, Any]]) -> None:
    """Why numbers are not given or not relied on: a reason for each estimator."""
    for mark, what, meaning in ((NOT_RELIED_ON, "caution", "not to be relied on"), ("–", "withheld", "not given")):
        said = {
            name: {e[what]: None for e in rows if e["estimator"] == name and e[what]}
            for name in dict.fromkeys(e["estimator"] for e in rows)
        }
        alike: dict[str, list[str]] = {}
        for name, reasons in said.items():
            if reasons:
                more = f" ({len(reasons) - 1} more in --json)" if len(reasons) > 1 else ""
                alike.setdefault(f"{next(iter(reasons))}{more}", []).append(name)
        for reason, names in alike.items():
            _say(f"  {mark} {meaning}: {', '.join(names)}: {reason}")


def _segments(found: dict[str, Any], campaign: Any) -> None:
    """The longest total in each segment."""
    target = str(Target("reward", max(campaign.meta.report_days)))
    rows = [e for e in found["segments"] if e["target"] == target]
    by = {(e["segment"], e["policy"]): e for e in rows}
    if not rows:
        return
    policies = ["old", found["subject"], "gain"]
    lines = [
        (name, by[name, "old"]["users"], *(_estimate(by[name, policy]) for policy in policies))
        for name in dict.fromkeys(segment for segment, _ in by)
    ]
    titles = [found["policies"].get(policy, policy) for policy in policies]
    table(
        f"{_words(target, campaign, None)}, by segment of a user's first row, by fqe",
        ("segment", "users", *titles),
        lines,
    )
    for segment, reason in dict.fromkeys((e["segment"], e["withheld"]) for e in rows if e["withheld"]):
        _say(f"  – {segment}: {reason}")


def _rests_on(found: dict[str, Any]) -> None:
    """What the numbers rest on, in a few lines."""
    checks = found["diagnostics"]
    for name in ("reproduction", "agreement"):
        _say(f"{name.capitalize()}: {checks[name]['words']}.")
    if checks["propensities"]["source"] != "as logged":
        _say(f"Propensities by a behaviour model. {checks['propensities']['words']}")
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


def _certificate(found: dict[str, Any], curve: dict[str, Any] | None) -> None:
    """What it is for, and every bound; the verdict says why there is none."""
    from outlay.choosing.looks import counted_in

    _say(
        f"Certificate at {100 * found['confidence']:.5g} %, look {found['look']} at these {found['users']:,} users: "
        f"{'certified' if found['certified'] else 'not certified'}."
    )
    for line in found["budgets"]:
        if line["bound"] is not None:
            side, limit = ("at least", "≥") if line["floor"] else ("at most", "≤")
            _say(
                f"  {line['budget']}: {line['value']:.3f}, {side} {line['bound']:.3f} (limit {limit} {line['limit']:g})"
            )
    if curve is not None and curve["refused"] is None:
        _say(
            f"Look {curve['look']}, at {100 * (1 - curve['alpha']):.5g} %, is for the curve, "
            f"{curve['policies']} mixtures and all between them, so for every other budget: outlay frontier says which "
            "are certified. At the campaign's own budget its mixture leaves room for that look, and has other figures "
            "than the one here."
        )
    _say(f"Looks at these users are counted in {counted_in()}, whichever DATA folder their rows are in.")


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
