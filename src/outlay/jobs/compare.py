"""`outlay compare`: methods side by side at equal spend, as in the paper's second table.

    comparison = compare("campaign.toml", "comparison", seeds=5)

Every method learns from the same users of the same log and is held to the same spend in two ways:

    immediate   the paper's budget control: everybody gets argmax_a value(s, a) − λ ĉ(s, a), with the least λ at which
                day one costs no more than it may, the same for every method (ĉ: a day's cost, by one model for all)
    total       what is served: a rule's own mixture, as it found it; the same members with weights solved again on
                *select* users for the campaign's limits ("re-solved"); of other methods the mixture chosen like that

All are measured by the same fitted evaluation on *certify* users, who had no part in either; where the truth is known,
exactly as well. Figures are means over seeds with standard deviations; intervals are of the mean policy over seeds.

The certify users of the comparison are those of OUT/data. They have been looked at many times, so nothing is certified
here.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from outlay.choosing.measure import Measure
from outlay.comparing.contenders import NETWORK, ORTHOGONAL, planned
from outlay.comparing.equal_spend import MethodEvaluator
from outlay.comparing.results import Comparison
from outlay.comparing.seeds import TRAINED, Seeds, mean_rows, yardsticks
from outlay.comparing.true_values import true_values
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import (
    as_path,
    check_replaceable,
    kind_of,
    new_file,
    put_in_place,
    read_manifest,
    write_json,
    write_manifest,
)
from outlay.core.journal import partial_folder
from outlay.core.progress import Progress, telling, within
from outlay.core.transitions import CERTIFY, Transitions
from outlay.jobs.prepare import prepare
from outlay.jobs.train import RESPONSES
from outlay.learning.tabular import countable
from outlay.pages.comparison import render

ORACLES = ("ddqn", "edrr", "bcq", f"bcq{NETWORK}", ORTHOGONAL)


@dataclass(frozen=True)
class _Comparing:
    """What is compared, as `compare` takes it.

    Raises:
        OutlayError: if a name is unknown, or there are no seeds.
    """

    seeds: int
    immediate: float | None
    label_days: Sequence[int]
    oracles: Sequence[str]
    responses: Sequence[str]
    rows: Sequence[str] | None

    def __post_init__(self) -> None:
        for option, given, known in (
            ("oracles", self.oracles, ORACLES),
            ("responses", self.responses, RESPONSES),
        ):
            unknown = [one for one in given if one not in known]
            if unknown or not given:
                raise OutlayError(
                    f"is {', '.join(unknown) or 'empty'}.", where=option, way_out=f"Give some of: {', '.join(known)}."
                )
        if self.immediate is not None and not math.isfinite(self.immediate):
            raise OutlayError(
                f"is {self.immediate}; expected: a finite number.", where="immediate", way_out="Give one."
            )
        if self.seeds < 1:
            raise OutlayError(f"is {self.seeds}; must be at least 1.", where="seeds", way_out="Give e.g. 3.")


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
    progress: Progress | None = None,
) -> Comparison:
    """Train and evaluate methods side by side.

    Args:
        source: campaign.toml.
        out: the folder to write: comparison.json, comparison.html, data/.
        seeds: trainings of each method.
        immediate: what day one may cost per user under immediate control, in the money budget's unit; default: what
            it costs under the log's policy.
        label_days: of the response models; those that the log is too short for are left out.
        oracles: of the methods that look ahead: of each a game with every mixing rule, a bisection, and a frontier; of
            `orthogonal` a frontier alone, of `bcq+network`, whose candidates one more network measures, no frontier.
            The frontier of the counted model stands beside them where the log's states can be counted.
        responses: the response models.
        rows: which rows to make, by name, `*` for any text (`frontier*`, `BCQ, aim-greedy`); default: all.
        resume: continue an unfinished comparison in the same folder; rows that are finished are not made again.
        processes: seeds that are learned side by side. More than one needs the `if __name__ == "__main__":` that
            Python's multiprocessing asks of a script.
        threads: for reading the log.
        progress: called with the fraction done and what is being done.

    Raises:
        OutlayError: for wrong input.
        FolderError: if `out` holds something that outlay did not write, or there is nothing to resume.
    """
    asked, report = _Comparing(seeds, immediate, label_days, oracles, responses, rows), telling(progress)
    out = as_path(out, "out", "the path to write to")
    check_replaceable(out, "comparison")
    campaign = source if isinstance(source, Campaign) else Campaign.load(source)
    with partial_folder(out, "comparison", resume=resume) as partial:
        if kind_of(partial / "data") is None:
            prepare(campaign, partial / "data", threads=threads, progress=within(report, 0, 0.05))
        comparison = _compared(partial, campaign, asked, processes, report)
        _write(comparison, partial)
        put_in_place(partial, out)
    report(1.0, "done")
    return comparison


def _compared(partial: Path, campaign: Campaign, asked: _Comparing, processes: int, report: Progress) -> Comparison:
    """Learn and measure what the folder does not hold yet, and take means over seeds."""
    data, seeds = Transitions.open(partial / "data"), asked.seeds
    spans = [k for k in asked.label_days if k <= int(data.users["window"].max())]
    counted = countable(data) is not None
    trainings = planned(asked.oracles, asked.responses, spans, counted=counted, wanted=asked.rows)
    report(0.05, "the truth, where it is known")
    evaluator = MethodEvaluator(data, campaign, true_values(campaign, data))
    measure = Measure(data, CERTIFY, None)
    immediate = evaluator.immediate_of_log(measure) if asked.immediate is None else asked.immediate
    _check_same(partial / TRAINED, campaign, immediate)
    known = yardsticks(evaluator, measure)
    learning = Seeds(partial, campaign, trainings, immediate)
    learning.learn(seeds, processes, within(report, 0.1, 0.95, "learning, "))
    report(0.97, "writing")
    learned, stored = mean_rows(learning, seeds, measure.panel.clusters)
    return Comparison(
        campaign=campaign.meta.name,
        unit=campaign.meta.unit,
        reward_label=campaign.told("reward"),
        money=campaign.budgets[campaign.money].name,
        budgets=campaign.limits,
        immediate=immediate,
        report_days=campaign.meta.report_days,
        horizon_days=campaign.meta.horizon_days,
        seeds=seeds,
        confidence=campaign.train.confidence,
        users=len(data.users_of(CERTIFY)),
        rows=(*known, *learned),
        stored=stored,
        names={budget.name: campaign.told("budgets", budget.name) for budget in campaign.budgets},
    )


def _write(comparison: Comparison, partial: Path) -> None:
    """Write the result and its page, and delete what was kept to go on from."""
    for left in (partial / TRAINED, *partial.glob("work-*")):
        shutil.rmtree(left, ignore_errors=True)
    write_json(partial / "comparison.json", asdict(comparison))
    with new_file(partial / "comparison.html") as temporary:
        temporary.write_text(render(comparison), encoding="utf-8")
    write_manifest(partial, "comparison", {"campaign": comparison.campaign, "seeds": comparison.seeds})


def _check_same(trained: Path, campaign: Campaign, immediate: float) -> None:
    """Check that the trainings kept there belong to this comparison.

    Raises:
        FolderError: if they belong to another one.
    """
    key = {"campaign": campaign.model_dump(mode="json"), "immediate": immediate}
    if kind_of(trained) is None:
        trained.mkdir(exist_ok=True)
        write_manifest(trained, "checkpoint", {"key": key})
        return
    made = read_manifest(trained, "checkpoint")["key"]
    differing = [name for name in key if made.get(name) != key[name]]
    if differing:
        raise FolderError(
            f"the unfinished comparison was begun with another {' and '.join(differing)}.",
            file=trained,
            way_out="Restore it, or compare without --resume.",
        )
