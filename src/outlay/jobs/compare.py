"""`outlay compare`: methods side by side at equal spend, as in the paper's second table.

    result = compare("campaign.toml", "comparison", seeds=5)

Every method learns from the same users of the same log and is held to the same spend in two ways:

    immediate   the paper's budget control: everybody gets argmax_a value(s, a) − λ ĉ(s, a), with the least λ at which
                day one costs no more than it may, the same for every method (ĉ: a day's cost, by one model for all)
    total       what is served: a rule's own mixture, as it found it; the same members with weights solved again on
                *select* users for the campaign's limits ("re-solved"); of other methods the mixture chosen like that

and evaluated by the same fitted evaluation on *certify* users, who had no part in either; where the truth is known,
exactly as well. Means over seeds with standard deviations; intervals are of the mean policy over seeds.

The certify users of the comparison are those of OUT/data: they have been looked at many times, so nothing is certified
here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError
from outlay.core.files import check_replaceable, new_file, partial_of, put_in_place, write_json, write_manifest
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.fitted import combine
from outlay.estimators.units import estimates, objective
from outlay.jobs.contenders import COUNTED, Contender, frontier, reinforcement, response_model
from outlay.jobs.equal_spend import Judge, Judged, Scorer
from outlay.jobs.findings import Figure, Finding, Limit, Row, findings
from outlay.jobs.measure import Measure
from outlay.jobs.prepare import prepare
from outlay.jobs.train_frontier import countable
from outlay.jobs.truth import Truth
from outlay.reports.comparison import render
from outlay.reports.comparison_words import CONTROLS, RE_SOLVED

ORACLES = ("ddqn", "edrr", "bcq")
RESPONSES = ("deepfm", "din")

Floats = NDArray[np.floating[Any]]
Report = Callable[[float, str], None]


@dataclass(frozen=True)
class Comparison:
    """What was found; `to_dict` is comparison.json.

    Attributes:
        campaign: its name.
        unit, reward_label, money: for words.
        budgets: the limits.
        immediate: what day one costs per user at most under immediate control.
        report_days: of the totals.
        horizon_days: of the totals that budgets per user limit.
        seeds: how many.
        confidence: of intervals.
        users: certify users.
        rows: old policy, constants, then methods under each control.
        stored: {method: [(gradient steps, parameters stored)]}, of the first seed, and `original method`; of a frontier
            what its bundle stores, at both ends of the training.
        findings: which orderings hold.
    """

    campaign: str
    unit: str
    reward_label: str
    money: str
    budgets: list[Limit]
    immediate: float
    report_days: tuple[int, ...]
    horizon_days: int
    seeds: int
    confidence: float
    users: int
    rows: list[Row]
    stored: dict[str, list[tuple[int, int]]]
    findings: list[Finding]

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return asdict(self)


@dataclass
class _Tally:
    """One row while the seeds go by."""

    row: Row
    judged: list[Judged] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: str | None = None


def compare(
    source: str | Path | Campaign,
    out: str | Path,
    *,
    seeds: int = 3,
    immediate: float | None = None,
    label_days: Sequence[int] = (1, 3, 7),
    oracles: Sequence[str] = ORACLES,
    responses: Sequence[str] = RESPONSES,
    threads: int | None = None,
    progress: Report | None = None,
) -> Comparison:
    """Train and evaluate methods side by side.

    Args:
        source: campaign.toml.
        out: the folder to write: comparison.json, comparison.html, data/.
        seeds: trainings of each method.
        immediate: what day one may cost per user under immediate control, in the money budget's unit; default: what
            it costs under the log's policy.
        label_days: of the response models; those that the log is too short for are left out.
        oracles: of the methods that look ahead: of each a game with every mixing rule, and a frontier. The frontier of
            the counted model stands beside them where the log's states can be counted.
        responses: the response models.
        threads: for reading the log.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: for wrong input.
        FolderError: if `out` holds something that outlay did not write.
    """
    report = progress or (lambda _fraction, _text: None)
    _check("oracles", oracles, ORACLES)
    _check("responses", responses, RESPONSES)
    if seeds < 1:
        raise OutlayError(f"is {seeds}.", where="seeds", way_out="Give 1 or more.")
    out = Path(out)
    check_replaceable(out, "comparison")
    campaign = source if isinstance(source, Campaign) else Campaign.load(source)
    partial = partial_of(out)
    shutil.rmtree(partial, ignore_errors=True)
    work = partial / "work"  # of one method after the other
    work.mkdir(parents=True)
    try:
        prepare(campaign, partial / "data", threads=threads, progress=lambda f, text: report(0.05 * f, text))
        data = Transitions.open(partial / "data")
        longest = int(data.users["window"].max())
        spans = [k for k in label_days if k <= longest]
        judge = Judge(data, campaign, Truth.beside(campaign, data))
        tallies: dict[tuple[str, str], _Tally] = {}
        stored: dict[str, list[tuple[int, int]]] = {}
        for seed in range(seeds):
            begin, part = 0.05 + 0.9 * seed / seeds, 0.9 / seeds
            within = _within(report, begin, part, f"seed {seed + 1} of {seeds}")
            for contender, costs in _learned(data, campaign, seed, work, spans, oracles, responses, within):
                shown = contender.bundle or contender.learned
                at = None if shown is None else Measure(data, CERTIFY, shown)
                if not tallies:
                    assert at is not None  # frontiers alone may have nothing to show, and they come last
                    immediate = judge.immediate_of_log(at) if immediate is None else immediate
                    _yardsticks(tallies, judge, at)
                assert immediate is not None
                _add(tallies, judge, at, contender, costs, immediate)
                if seed == 0 and contender.course:
                    stored[contender.name] = contender.course
                if seed == 0 and contender.original:
                    stored.setdefault("original method", contender.original)  # of the first oracle
        report(0.97, "writing")
        assert immediate is not None  # there is a contender
        rows = [_row(tally, campaign) for tally in tallies.values()]
        limits = [Limit(b.name, b.limit, b.sign, b.per, b.words) for b in campaign.budgets]
        result = Comparison(
            campaign=campaign.meta.name,
            unit=campaign.meta.unit,
            reward_label=campaign.reward_label,
            money=campaign.budgets[campaign.money].name,
            budgets=limits,
            immediate=immediate,
            report_days=campaign.meta.report_days,
            horizon_days=campaign.meta.horizon_days,
            seeds=seeds,
            confidence=campaign.train.confidence,
            users=len(data.users_of(CERTIFY)),
            rows=rows,
            stored=stored,
            findings=findings(rows, limits, campaign.meta.report_days),
        )
        shutil.rmtree(work)
        write_json(partial / "comparison.json", result.to_dict())
        with new_file(partial / "comparison.html") as temporary:
            temporary.write_text(render(result.to_dict()), encoding="utf-8")
        write_manifest(partial, "comparison", {"campaign": campaign.meta.name, "seeds": seeds})
        put_in_place(partial, out)
    except OutlayError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    report(1.0, "done")
    return result


def _check(name: str, given: Sequence[str], known: Sequence[str]) -> None:
    unknown = [one for one in given if one not in known]
    if unknown or not given:
        raise OutlayError(f"is {', '.join(unknown) or 'empty'}.", where=name, way_out=f"Known: {', '.join(known)}.")


def _within(report: Report, begin: float, part: float, title: str) -> Report:
    return lambda share, text: report(begin + part * share, f"{title}, {text}")


def _learned(
    data: Transitions,
    campaign: Campaign,
    seed: int,
    folder: Path,
    spans: Sequence[int],
    oracles: Sequence[str],
    responses: Sequence[str],
    report: Report,
) -> Iterator[tuple[Contender, Scorer]]:
    """Every method after learning with one seed, and the expected cost of a day that all of them are held to."""
    frontiers = [*oracles, *([COUNTED] if countable(data) is not None else [])]
    count = len(oracles) + len(frontiers) + len(spans) * len(responses) + 1
    done = 0

    def further(share: float, text: str) -> None:
        report((done + share) / count, text)

    first, teller = response_model(data, campaign, "deepfm", 1, seed, folder, further)
    place = 1 + campaign.money

    def costs(rows: NDArray[np.int64]) -> Floats:
        return np.maximum(teller.predict(data, rows)[:, :, place], 0)

    done += 1
    for kind in responses:
        for days in spans:
            if (kind, days) == ("deepfm", 1):
                yield first, costs
            else:
                yield response_model(data, campaign, kind, days, seed, folder, further)[0], costs
            done += 1
    for oracle in oracles:
        for contender in reinforcement(data, campaign, oracle, seed, folder, further):
            yield contender, costs
        done += 1
    for oracle in frontiers:
        yield frontier(data, campaign, oracle, seed, folder, further), costs
        done += 1


def _yardsticks(tallies: dict[tuple[str, str], _Tally], judge: Judge, at: Measure) -> None:
    """The log's policy and the best constants: nothing is learned, so once is enough."""
    tallies["old", "none"] = _Tally(Row("old policy", "log", "none"), [judge.old(at)])
    if (found := judge.constants(at)) is not None:
        judged, words = found
        tallies["constants", "total"] = _Tally(Row(f"best constants ({words})", "constant", "total"), [judged])


def _add(
    tallies: dict[tuple[str, str], _Tally],
    judge: Judge,
    at: Measure | None,
    contender: Contender,
    costs: Scorer,
    most: float,
) -> None:
    """One seed of a method, under both controls; `at` is of what it serves, else of what it learned."""
    found: dict[str, tuple[Judged | None, str | None]] = dict.fromkeys(CONTROLS, (None, contender.refused))
    if at is not None and contender.learned is not None:
        dear = f"even the cheapest actions cost more than {most:.4g} on day one"
        found["immediate"] = judge.immediate(at, contender.learned, costs, most), dear
    if at is not None and contender.bundle is not None:
        found["total"] = judge.served(at), None
    if (contender.rule or "").endswith(RE_SOLVED):  # what is learned is the same: the row beside it prices it
        del found["immediate"]
    for control, (judged, refused) in found.items():
        group = "two-stage" if contender.rule is None else "rl"
        fresh = Row(contender.name, group, control, contender.oracle, contender.rule, contender.label_days)
        tally = tallies.setdefault((contender.name, control), _Tally(fresh))
        tally.seconds.append(contender.seconds)
        if judged is None:
            tally.refused = refused
        else:
            tally.judged.append(judged)
            tally.parameters.append(contender.stored_parameters)


def _row(tally: _Tally, campaign: Campaign) -> Row:
    if not tally.judged:
        return replace(tally.row, refused=tally.refused)
    confidence, count = campaign.train.confidence, len(tally.judged)
    whole = combine([judged.fitted for judged in tally.judged], np.full(count, 1 / count))
    each = [estimates(judged.fitted, campaign, "", "fqe", confidence=confidence) for judged in tally.judged]
    truths = [judged.truth for judged in tally.judged]
    wanted = _targets(campaign)
    # The truth has discounted means under a budget's name; what a table shows of a budget per user is its total.
    totals = {b.name: f"{b.name}@{campaign.meta.horizon_days}" for b in campaign.budgets if b.per == "user"}
    figures = {}
    for place, estimate in enumerate(estimates(whole, campaign, "", "fqe", confidence=confidence)):
        if estimate.target not in wanted:
            continue
        values = [found[place].value for found in each]
        known = [truth[totals.get(estimate.target, estimate.target)] for truth in truths if truth is not None]
        figures[estimate.target] = Figure(
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            sd=None if count < 2 or None in values else float(np.std(np.array(values, np.float64), ddof=1)),
            truth=float(np.mean(known)) if len(known) == count else None,
            truth_sd=float(np.std(known, ddof=1)) if len(known) == count > 1 else None,
        )
    return replace(
        tally.row,
        figures=figures,
        stored_parameters=float(np.mean(tally.parameters)) if tally.parameters else None,
        seconds=float(np.mean(tally.seconds)) if tally.seconds else None,
        refused=tally.refused,
    )


def _targets(campaign: Campaign) -> set[str]:
    """What the page shows: totals of the report days, what day one costs, what is maximised, each budget's own unit."""
    names = ["reward", *(budget.name for budget in campaign.budgets)]
    spans = {1, *campaign.meta.report_days}
    return {*names, objective(campaign), *(f"{name}@{k}" for name in names for k in spans)}
