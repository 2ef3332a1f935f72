"""`check`: what is wrong with a log, whether its actions were randomised, and what the first action did."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from outlay.choosing.measure import Measure
from outlay.core.actions import Given, named
from outlay.core.addresses import shown
from outlay.core.assignment import Assignment
from outlay.core.campaign import SUMMARIES, Budget, Campaign, HistorySection, Summary
from outlay.core.errors import CampaignError, LogError
from outlay.core.shown import told_in
from outlay.core.transitions import EVERYONE
from outlay.core.wording import advised, four, plain
from outlay.estimators.balance import BalanceCheck
from outlay.estimators.markov import MarkovCheck
from outlay.evaluating.log_check import CheckReport, TriedHistory
from outlay.evaluating.next_test import SettlingTest, plan_settling
from outlay.jobs.memory import campaign_of, is_table
from outlay.jobs.prepare import prepare
from outlay.logs import event_rows
from outlay.logs.by_day import joins, propensity_bins, rows_by_day
from outlay.logs.drivers import assignment
from outlay.logs.effects import Effect, contrast, effects
from outlay.logs.findings import LEVELS, Finding
from outlay.logs.quality import Facts, inspect
from outlay.logs.randomisation import Overlap, Randomisation, overlap, randomisation
from outlay.logs.roles import Log, link, open_log
from outlay.logs.source import Resources
from outlay.logs.vocabulary import AGGREGATES, hashed_words
from outlay.ops.intervals import quantile

MOST_CELLS = 100_000_000  # rows times features that are prepared to test the state
TRIED_DAYS = (3, 7, 14, 28)  # under [log.history]
THIN = 0.01  # a share below: too little to learn from


class _StateChecks(NamedTuple):
    """What is found of a campaign's state; None where it was not looked at."""

    markov: MarkovCheck | None
    balance: BalanceCheck | None
    test: SettlingTest | None


class _Given(NamedTuple):
    """What is found of the choices of the log's policy; as the fields of `CheckReport`."""

    overlap: tuple[Overlap, ...] = ()
    randomisation: Randomisation | None = None
    contrast: tuple[Given, Given] | None = None
    effects: tuple[Effect, ...] = ()
    assignment: Assignment | None = None
    findings: tuple[Finding, ...] = ()


def check(
    log: Any,
    *,
    campaign: Campaign | str | Path | None = None,
    page: str | Path | None = None,
    threads: int | None = None,
    memory: str | None = None,
) -> CheckReport:
    """Look at a campaign's log, and write nothing but a page of what was found, where one is asked for.

    Args:
        log: a campaign, or the path of its file; or a table in memory.
        campaign: what the columns of a table in memory mean; None: guessed as `init` does.
        page: an .html file for what was found, with charts; None: none is written.
        threads: of DuckDB; None: its choice.
        memory: what DuckDB may hold before it writes to disk, as "4GB".

    Raises:
        CampaignError: if the campaign file is wrong, or names what the log does not have.
        LogError: if the log cannot be read or has no rows.
        OutlayError: if the page cannot be written there.
    """
    if page is not None:
        from outlay.pages.page import check_page_path

        check_page_path(page)
    with campaign_of(log, campaign) as known:
        settings = known if isinstance(known, Campaign) else Campaign.load(known)
        report = _check(settings, threads, memory)
    report = replace(report, source="a table in memory") if is_table(log) else report
    if page is not None:
        from outlay.pages.log_health import render
        from outlay.pages.page import write_page

        write_page(render(report, settings), page)
    return report


def rows_sql(campaign: str | Path) -> str:
    """The SQL that makes the rows of `[[events]]`, with paths as in the campaign file.

    Raises:
        CampaignError: if the file is wrong, or has no events.
        LogError: if a table cannot be read.
    """
    known = Campaign.load(campaign)
    if not known.events:
        found, way_out = "has no [[events]]: its rows are those of log.source.", "Leave --sql out."
        raise CampaignError(found, file=known.path, way_out=way_out)
    with tempfile.TemporaryDirectory(prefix="outlay-") as folder:
        return event_rows.rows_sql(known, Path(folder), Resources())


def _check(campaign: Campaign, threads: int | None, memory: str | None) -> CheckReport:
    with (
        tempfile.TemporaryDirectory(prefix="outlay-") as folder,
        open_log(campaign, Path(folder), threads=threads, memory=memory) as log,
    ):
        campaign = log.campaign
        link(log)
        facts = inspect(log)
        missing = facts.missing | _missing_features(log)
        findings = [*facts.findings, *_empty_features(missing, facts.rows, log), *_many_values(log, facts.rows)]
        given = (
            _given(log, facts, findings)
            if facts.users and any(action.choices for action in facts.actions)
            else _Given()
        )
        findings += given.findings
        days = facts.last_time - facts.first_time + 1
        checks, tried = None, list[TriedHistory]()
        if not any(finding.level == "error" for finding in findings) and facts.choices:
            checks, tried = _state(campaign, facts.rows, days, threads, memory)
        state, balance, test = checks or _StateChecks(None, None, None)
        findings += [*_limits(log), *_about_state(state, tried), *_about_balance(balance)]
        report = CheckReport(
            campaign=campaign.meta.name,
            source=shown(campaign.source),
            rows=facts.rows,
            users=facts.users,
            days=days,
            first=log.when(facts.first_time),
            last=log.when(facts.last_time),
            actions=facts.actions,
            missing=missing,
            duplicates=facts.duplicates,
            findings=tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level))),
            overlap=given.overlap,
            randomisation=given.randomisation,
            contrast=given.contrast,
            effects=given.effects,
            state=state,
            balance=balance,
            tried=tuple(tried),
            test=test,
            assignment=given.assignment,
            once=bool(campaign.log.once),
            unit=campaign.unit,
            by_day=rows_by_day(log, facts.first_time, facts.last_time) if facts.users else (),
            propensities=propensity_bins(log) if facts.users else (),
            joins=joins(log) if facts.users else None,
        )
        return told_in(report, campaign)


def _given(log: Log, facts: Facts, known: list[Finding]) -> _Given:
    """How the log's policy chose, and what its first action did; `known`: what was found before."""
    overlaps = overlap(log, facts)
    driven = assignment(log, facts)
    verdict = randomisation(log, facts, overlaps, driven)
    pair = contrast(log, facts)
    table = effects(log, *pair) if pair else []
    called = None if pair is None else (log.campaign.given(pair[0]), log.campaign.given(pair[1]))
    findings: list[Finding] = []
    if not driven.drivers:
        findings += _about_assignment(known, verdict, forced=log.campaign.log.forced is not None)
    findings += [*_about_choice(overlaps, called, table), *_about_drivers(driven)]
    return _Given(tuple(overlaps), verdict, called, tuple(table), driven, tuple(findings))


def _state(
    campaign: Campaign, rows: int, days: int, threads: int | None, memory: str | None
) -> tuple[_StateChecks | None, list[TriedHistory]]:
    """What is found of the state, and where it is not enough, whether it would be with past days."""
    if rows * len(campaign.log.features.names) > MOST_CELLS:
        return None, []

    def tested(of: Campaign) -> _StateChecks | None:
        with tempfile.TemporaryDirectory(prefix="outlay-") as folder:
            try:
                data = prepare(of, Path(folder) / "data", threads=threads, memory=memory)
            except LogError:  # too few users to split: prepare will say so
                return None
            measure = Measure(data, EVERYONE, None)
            found = measure.state.markov_check
            if of is not campaign:  # with past days: only whether they are enough
                return _StateChecks(found, None, None)
            test = plan_settling(data, of) if found.ok is False else None
            return _StateChecks(found, measure.state.balance(measure.propensity()), test)

    given = ("action",) if campaign.names.amounts else ()
    own = (*given, "reward", *(budget.name for budget in campaign.budgets))

    def enough(back: int, columns: tuple[str, ...] = own, summaries: tuple[Summary, ...] = SUMMARIES) -> bool:
        known = tuple(column for column in columns if campaign.log.delays.get(column, 0) < back)
        if not known:
            return False
        section = HistorySection(days=back, columns=known, summaries=summaries)
        log = campaign.log.model_copy(update={"history": section})
        found = tested(campaign.model_copy(update={"log": log}))
        assert found is not None
        assert found.markov is not None
        tried.append(TriedHistory(back, known, summaries, found.markov.ok, found.markov.words))
        return found.markov.ok is True

    found, tried = tested(campaign), list[TriedHistory]()
    if found is None or found.markov is None or found.markov.ok is not False or campaign.log.history is not None:
        return found, tried
    back = next((back for back in TRIED_DAYS if back <= days and enough(back)), None)
    if back is not None:  # the less the state holds, the better the log supports it
        fewer = (("reward",), *((each,) for each in given), ("reward", *own[1 + len(given) :]))
        columns = next((columns for columns in fewer if enough(back, columns)), own)
        one: tuple[tuple[Summary], ...] = (("mean",), ("decayed",))
        next((summaries for summaries in one if enough(back, columns, summaries)), None)
    return found if tried and back is None else found._replace(test=None), tried


def _many_values(log: Log, rows: int) -> list[Finding]:
    """Categorical features whose rarer values will share codes."""
    most = log.campaign.train.max_values
    found = []
    for i in range(0, len(log.categorical) if rows > most else 0, AGGREGATES):
        part = log.categorical[i : i + AGGREGATES]
        counts = log.source.run(
            f"SELECT {', '.join(f'approx_count_distinct({term.sql})' for term in part)} FROM log_kept"
        )
        found += [(term.text, int(count)) for term, count in zip(part, counts[0], strict=True) if count > most]
    way_out = "Leave out what only names users or rows; group values, or set train.min_count or train.max_values."
    return [Finding("note", "log.features", f"{hashed_words(1, most)}.", way_out, count, name) for name, count in found]


def _about_balance(balance: BalanceCheck | None) -> list[Finding]:
    if balance is None or balance.ok is not False or not any(each.matters for each in balance.dependences):
        return []
    return [Finding("warning", "log.propensity", f"{balance.words}.", f"{balance.way_out}.", 0)]


def _about_state(state: MarkovCheck | None, tried: list[TriedHistory]) -> list[Finding]:
    if state is None or state.ok is not False:
        return []
    enough = [each for each in tried if each.ok]
    if enough:
        best = enough[-1]
        columns, summaries = json.dumps(best.columns), json.dumps(best.summaries)
        way_out = (
            f"Add a section [log.history] with days = {best.days}, columns = {columns} and summaries = {summaries}: "
            "with it the state is enough."
        )
    elif tried:
        way_out = (
            f"Add a section [log.history]: summaries of up to {tried[-1].days} past days help, but are not enough in "
            "this log. Give a longer log, or features that tell users apart."
        )
    else:
        way_out = f"{state.way_out}."
    return [Finding("warning", "log.features", f"{state.words}.", way_out, 0)]


def _missing_features(log: Log) -> dict[str, int]:
    terms = (*log.categorical, *log.numeric)
    counts: dict[str, int] = {}
    for i in range(0, len(terms), AGGREGATES):
        part = terms[i : i + AGGREGATES]
        row = log.source.run("SELECT " + ", ".join(f"count(*) - count({t.sql})" for t in part) + " FROM log_kept")[0]
        counts |= {term.text: int(count) for term, count in zip(part, row, strict=True)}
    return counts


def _limits(log: Log) -> list[Finding]:
    """Limits that no policy can keep, that every policy keeps, since every row does, and that the log's own breaks."""
    findings = []
    for budget, cost in zip(log.campaign.budgets, log.costs, strict=True):
        sign, days = budget.sign, 1 if budget.per == "decision" else log.campaign.meta.horizon_days
        a_day = budget.limit / days
        allowed = f"CASE WHEN {log.choice} THEN {a_day!r} ELSE 0 END" if budget.per == "decision" else f"{a_day!r}"
        excess = f"{sign} * ({cost} - {allowed})"
        [(least, most, dearest)] = log.source.run(
            f"SELECT min({excess}), max({excess}), max({sign} * {cost}) FROM roles"
        )
        if least is None:
            continue
        if budget.per == "user":  # of a day without a row
            least, most, dearest = min(least, -sign * a_day), max(most, -sign * a_day), max(dearest, 0)
        if least > 1e-6 * max(1.0, abs(a_day)):
            kind, change = ("least", "Raise") if sign > 0 else ("most", "Lower")
            end = f"{four(budget.limit + sign * least * days)} per {budget.per}"
            message = f"{budget.words} can be kept by no policy: the {kind} that the log shows is {end}."
            way_out = f"{change} the limit at least that far, or give a log of other actions."
            findings.append(Finding("error", "budget", message, way_out, 0, budget.name))
        elif most <= 0:
            kind, change = ("most", "Lower") if sign > 0 else ("least", "Raise")
            end = f"{four(sign * dearest * days)} per {budget.per}"
            message = f"{budget.words} cannot bind: the {kind} that a row of the log shows is {end}."
            way_out = f"{change} the limit, unless it is to rule out nothing."
            findings.append(Finding("warning", "budget", message, way_out, 0, budget.name))
        elif (today := _surely_broken(log, budget, cost)) is not None:
            does, beyond, key = ("costs", "above", "at_most") if sign > 0 else ("brings", "below", "at_least")
            broken = f"{four(today)} per {budget.per}, {beyond} the limit of {plain(budget.limit)}"
            message = f"today's policy {does} {broken}, so it will count as ruled out."
            way_out = f"If you mean to compare at what it {does}, write {key} = {advised(today, sign, beyond=False)}."
            findings.append(Finding("warning", "budget", message, way_out, 0, budget.name))
    return findings


def _surely_broken(log: Log, budget: Budget, cost: str) -> float | None:
    """What the log's own policy comes to in the unit of a limit that it breaks by more than its interval; else None.

    A plain mean of the log's rows: what a verdict goes by is discounted. Of a limit per user it is asked where a row is
    all there is of a user; elsewhere only an evaluation tells what a user comes to over the horizon.
    """
    if budget.per == "user" and not log.campaign.log.once:
        return None
    count = f"count(*) FILTER ({log.choice})" if budget.per == "decision" else "count(*)"
    [(total, units, squared, crossed, counted_squared)] = log.source.run(
        "SELECT sum(c), sum(n), sum(c * c), sum(c * n), sum(n * n) FROM "
        f'(SELECT sum({cost}) AS c, CAST({count} AS DOUBLE) AS n FROM roles GROUP BY "user")'
    )
    if total is None or not units:
        return None
    today: float = total / units
    variance = squared - 2 * today * crossed + today**2 * counted_squared
    if not isfinite(variance):  # a cost is infinite, which is a finding of its own
        return None
    z = quantile(1 - (1 - log.campaign.train.confidence) / 2)
    nearest = today - budget.sign * z * sqrt(max(0.0, variance)) / units
    return today if budget.sign * (nearest - budget.limit) > 0 else None


def _empty_features(missing: dict[str, int], rows: int, log: Log) -> list[Finding]:
    way_out = "Leave it out of log.features."
    return [
        Finding("warning", "log.features", "is missing in every row.", way_out, rows, name)
        for name in log.campaign.log.features.names
        if missing[name] == rows
    ]


def _about_assignment(found: list[Finding], verdict: Randomisation, *, forced: bool) -> list[Finding]:
    """That it does not look randomised, unless a finding about log.propensity has said so."""
    if verdict.looks_randomised or any(finding.key == "log.propensity" for finding in found):
        return []
    if verdict.stated:
        way_out = "Check log.propensity, and that every feature is known before the decision, not a result of it."
    elif forced:
        way_out = "Differences may be of the users, not of the action; give log.propensity where it is known."
    else:
        way_out = "If only some rows had a choice, mark the others with log.forced; give log.propensity where known."
    return [Finding("warning", "log.action", verdict.verdict, way_out, 0)]


def _about_drivers(driven: Assignment) -> list[Finding]:
    beyond = "the stated propensities" if driven.stated else "the features"
    return [
        Finding(
            "warning",
            "calendar" if each.role == "calendar" else "column",
            f"beyond {beyond}, {each.words}.",
            f"Nothing is certified until you {each.way_out}.",
            0,
            each.name,
        )
        for each in driven.drivers
    ]


def _about_choice(overlaps: list[Overlap], pair: tuple[Given, Given] | None, table: list[Effect]) -> list[Finding]:
    findings = []
    for entry in overlaps:
        if entry.least_propensity is not None and 0 < entry.least_propensity < THIN:
            message = (
                f"action {named(entry.action)} was given with a probability as low as {entry.least_propensity:.2g}."
            )
            way_out = "Weights up to its inverse make estimates wide; give it more often in the next campaign."
            findings.append(Finding("warning", "log.propensity", message, way_out, 0))
        if entry.share > 0 and entry.least_share < THIN:
            place = f" in segment {entry.least_segment!r}" if entry.least_segment != "all" else ""
            message = f"action {named(entry.action)} was given in {entry.least_share:.2%} of the choices{place}."
            way_out = "Estimates about it will be wide; leave it out, or give it more often in the next campaign."
            findings.append(Finding("warning", "log.action", message, way_out, 0))
    if pair and not table:
        message = f"no users whose first action is {named(pair[0])} or {named(pair[1])} can be compared."
        findings.append(Finding("note", "log.contrast", message, "Name another pair with log.contrast.", 0))
    return findings
