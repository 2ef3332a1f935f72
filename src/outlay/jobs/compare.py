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

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np

from outlay.choosing.measure import Measure
from outlay.comparing.contenders import NETWORK
from outlay.comparing.equal_spend import Judge
from outlay.comparing.findings import findings
from outlay.comparing.known import known_values
from outlay.comparing.results import CAPTURED, Figure, Finding, Limit, Row
from outlay.comparing.trainings import ORTHOGONAL, TRAINED, Outcome, Training, kept, learn_seed, planned
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import (
    check_replaceable,
    kind_of,
    new_file,
    partial_of,
    put_in_place,
    read_manifest,
    write_json,
    write_manifest,
)
from outlay.core.target import Target
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.fitted import combine
from outlay.estimators.units import estimates, objective
from outlay.jobs.prepare import prepare
from outlay.pages.comparison import render
from outlay.pages.comparison_charts import ORIGINAL
from outlay.training.frontier import countable

ORACLES = ("ddqn", "edrr", "bcq", f"bcq{NETWORK}", ORTHOGONAL)
RESPONSES = ("deepfm", "din")

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
        stored: {method: [(gradient steps, mean over seeds of the parameters stored, their standard deviation)]}, and
            `original method`; of a frontier what its bundle stores, at both ends of the training. The last mean is the
            one that the rows have.
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
    stored: dict[str, list[tuple[int, float, float | None]]]
    findings: list[Finding]

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return asdict(self)


def compare(
    source: str | Path | Campaign,
    out: str | Path,
    *,
    seeds: int = 3,
    immediate: float | None = None,
    label_days: Sequence[int] = (1, 3, 7),
    oracles: Sequence[str] = ORACLES,
    responses: Sequence[str] = RESPONSES,
    rows: Sequence[str] | None = None,
    resume: bool = False,
    processes: int = 1,
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
        oracles: of the methods that look ahead: of each a game with every mixing rule, and a frontier; of `orthogonal`
            a frontier alone, of `bcq+network`, whose candidates one more network measures, a game alone. The frontier
            of the counted model stands beside them where the log's states can be counted.
        responses: the response models.
        rows: which rows to make, by name, `*` for any text (`frontier*`, `BCQ, aim-greedy`); default: all.
        resume: go on with an unfinished comparison into the same folder; rows that are finished are not made again.
        processes: seeds that are learned side by side. More than one needs the `if __name__ == "__main__":` that
            Python's multiprocessing asks of a script.
        threads: for reading the log.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: for wrong input.
        FolderError: if `out` holds something that outlay did not write, or there is nothing to resume.
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
    if not resume:
        shutil.rmtree(partial, ignore_errors=True)
    elif not partial.is_dir():
        raise FolderError("there is no unfinished comparison to resume.", file=out,
                          way_out="Compare without --resume.")  # fmt: skip
    partial.mkdir(parents=True, exist_ok=True)
    try:
        if kind_of(partial / "data") is None:
            prepare(campaign, partial / "data", threads=threads, progress=lambda f, text: report(0.05 * f, text))
        data = Transitions.open(partial / "data")
        spans = [k for k in label_days if k <= int(data.users["window"].max())]
        trainings = planned(oracles, responses, spans, counted=countable(data) is not None, wanted=rows)
        report(0.05, "the truth, where it is known")
        known = known_values(campaign, data)
        judge, at = Judge(data, campaign, known), Measure(data, CERTIFY, None)
        immediate = judge.immediate_of_log(at) if immediate is None else immediate
        _same(partial / TRAINED, {"campaign": campaign.model_dump(mode="json"), "immediate": immediate})
        found = [*_yardsticks(judge, at)]
        _learn(partial, campaign, trainings, seeds, immediate, processes, _within(report, 0.1, 0.85, "learning"))
        report(0.97, "writing")
        stored: dict[str, list[tuple[int, float, float | None]]] = {}
        for training in trainings:
            by_seed = [kept(partial / TRAINED, training, seed) for seed in range(seeds)]
            for outcomes in zip(*by_seed, strict=True):
                found.append(_row(outcomes[0].row, outcomes, campaign))
                if outcomes[0].course:
                    stored[outcomes[0].row.name] = _spread([outcome.course for outcome in outcomes])
                if outcomes[0].original:  # of the first oracle
                    stored.setdefault(ORIGINAL, _spread([outcome.original for outcome in outcomes]))
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
            rows=found,
            stored=stored,
            findings=findings(found, limits, campaign.meta.report_days),
        )
        for left in (partial / TRAINED, *partial.glob("work-*")):
            shutil.rmtree(left, ignore_errors=True)
        write_json(partial / "comparison.json", result.to_dict())
        with new_file(partial / "comparison.html") as temporary:
            temporary.write_text(render(result.to_dict()), encoding="utf-8")
        write_manifest(partial, "comparison", {"campaign": campaign.meta.name, "seeds": seeds})
        put_in_place(partial, out)
    except OutlayError:
        if not resume:  # the same input would fail again; a comparison to be resumed may only have met a wrong option
            shutil.rmtree(partial, ignore_errors=True)
        raise
    report(1.0, "done")
    return result


def _same(trained: Path, key: dict[str, Any]) -> None:
    """What is kept there belongs to this comparison.

    Raises:
        FolderError: if it belongs to another one.
    """
    if kind_of(trained) is None:
        trained.mkdir(exist_ok=True)
        write_manifest(trained, "checkpoint", {"key": key})
        return
    made = read_manifest(trained, "checkpoint")["key"]
    differing = [name for name in key if made.get(name) != key[name]]
    if differing:
        raise FolderError(f"the unfinished comparison was begun with another {' and '.join(differing)}.", file=trained,
                          way_out="Put it back as it was, or compare without --resume.")  # fmt: skip


def _learn(
    folder: Path,
    campaign: Campaign,
    trainings: list[Training],
    seeds: int,
    most: float,
    processes: int,
    report: Report,
) -> None:
    """Every training with every seed; seeds side by side where there are several processes."""
    if (count := min(processes, seeds)) <= 1:
        for seed in range(seeds):
            told = _within(report, seed / seeds, 1 / seeds, f"seed {seed + 1} of {seeds}")
            learn_seed(folder, campaign, trainings, seed, most, told)
        return
    context = get_context("spawn")  # JAX has threads, which a fork would leave behind
    shares = context.SimpleQueue()
    for number in range(count):
        shares.put(_cores()[number::count])
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_take_cores, initargs=(shares,))
    try:
        waiting = {pool.submit(learn_seed, folder, campaign, trainings, seed, most) for seed in range(seeds)}
        while waiting:
            done, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
            for learned in done:
                learned.result()
            finished = len(list((folder / TRAINED).glob("seed-*/*/rows.json")))
            report(finished / (seeds * len(trainings)), f"{finished} of {seeds * len(trainings)} trainings")
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _within(report: Report, begin: float, part: float, title: str) -> Report:
    return lambda share, text: report(begin + part * share, f"{title}, {text}")


def _cores() -> list[int]:
    """The processors that this process may use, where the system says so."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _take_cores(shares: Any) -> None:
    """Keep a process of the pool to its share of the processors."""
    if share := shares.get():
        os.sched_setaffinity(0, share)


def _check(name: str, given: Sequence[str], known: Sequence[str]) -> None:
    unknown = [one for one in given if one not in known]
    if unknown or not given:
        raise OutlayError(f"is {', '.join(unknown) or 'empty'}.", where=name, way_out=f"Known: {', '.join(known)}.")


def _yardsticks(judge: Judge, at: Measure) -> Iterator[Row]:
    """The log's policy and the best constants: nothing is learned, so once is enough."""
    yield _row(
        Row("old policy", "log", "none"), [Outcome(Row("", "log", "none"), judge.old(at), [], [])], judge.campaign
    )
    if (found := judge.constants(at)) is not None:
        judged, words = found
        row = Row(f"best constants ({words})", "constant", "total")
        yield _row(row, [Outcome(row, judged, [], [])], judge.campaign)


def _row(row: Row, outcomes: Sequence[Outcome], campaign: Campaign) -> Row:
    """A row with the figures of its seeds."""
    refused = next((outcome.row.refused for outcome in outcomes if outcome.row.refused), None)
    rows = [outcome.row for outcome in outcomes if outcome.judged is not None]
    seconds = [outcome.row.seconds for outcome in outcomes if outcome.row.seconds is not None]
    row = replace(row, seconds=float(np.mean(seconds)) if seconds else None, refused=refused)
    found = [outcome.judged for outcome in outcomes if outcome.judged is not None]
    if not found:
        return replace(row, stored_parameters=None)
    confidence, count = campaign.train.confidence, len(found)
    whole = combine([judged.fitted for judged in found], np.full(count, 1 / count))
    each = [estimates(judged.fitted, campaign, "", "fqe", confidence=confidence) for judged in found]
    truths = [judged.truth for judged in found if judged.truth is not None]
    wanted = _targets(campaign)
    # The truth has discounted means under a budget's name; what a table shows of a budget per user is its total.
    totals = {b.name: str(Target(b.name, campaign.meta.horizon_days)) for b in campaign.budgets if b.per == "user"}
    figures = {}
    for place, estimate in enumerate(estimates(whole, campaign, "", "fqe", confidence=confidence)):
        if estimate.target not in wanted:
            continue
        values = [every[place].value for every in each]
        sd = None if count < 2 or None in values else float(np.std(np.array(values, np.float64), ddof=1))
        true = [truth[totals.get(estimate.target, estimate.target)] for truth in truths]
        figures[estimate.target] = Figure(estimate.value, estimate.low, estimate.high, sd, *_true(true, count))
    if truths and all(CAPTURED in truth for truth in truths):
        figures[CAPTURED] = Figure(None, None, None, None, *_true([truth[CAPTURED] for truth in truths], count))
    stored = [one.stored_parameters for one in rows if one.stored_parameters is not None]
    return replace(row, figures=figures, stored_parameters=float(np.mean(stored)) if stored else None)


def _true(values: list[float], seeds: int) -> tuple[float | None, float | None]:
    """Mean and standard deviation over seeds; None where it is not known of all of them."""
    if len(values) < seeds:
        return None, None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if seeds > 1 else None


def _spread(courses: Sequence[list[tuple[int, int]]]) -> list[tuple[int, float, float | None]]:
    """(gradient steps, mean over seeds of the parameters stored, their standard deviation)."""
    count = np.array([[stored for _, stored in course] for course in courses], np.float64)
    deviation = [None] * count.shape[1] if len(count) < 2 else count.std(axis=0, ddof=1).tolist()
    return [(step, mean, sd) for (step, _), mean, sd in
            zip(courses[0], count.mean(axis=0).tolist(), deviation, strict=True)]  # fmt: skip


def _targets(campaign: Campaign) -> set[str]:
    """What the page shows: totals of the report days, what day one costs, what is maximised, each budget's own unit."""
    names = ["reward", *(budget.name for budget in campaign.budgets)]
    spans = {1, *campaign.meta.report_days}
    return {*names, objective(campaign), *(str(Target(name, k)) for name in names for k in spans)}
