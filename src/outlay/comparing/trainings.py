"""The trainings of a comparison: what has to be learned for which rows, and outcomes that are stored when finished.

    trainings = planned(oracles, responses, label_days, counted=True, wanted=("frontier*",))
    learn_seed(folder, campaign, trainings, seed, most, report)        # what the folder does not hold yet
    kept_outcomes(folder / "trained", trainings[0], seed)              # its outcomes

Several rows may share a training, as all mixing rules observe one game. FOLDER/trained/seed-0/… holds a folder for each
training, which is whole or absent: an interrupted comparison continues with the first that is absent.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from outlay.bundles.read import load_bundle
from outlay.choosing.measure import Measure
from outlay.comparing.contenders import (
    COMPARED_RULES,
    COUNTED,
    NETWORK,
    Contender,
    FittedResponse,
    bisection_row,
    fit_response,
    frontier_row,
    learn_frontier,
    play_bisection,
    play_rules,
    price_response,
    response_row,
    rows_of,
    write_values,
)
from outlay.comparing.equal_spend import MethodEvaluator, MethodValues, Score, day_costs
from outlay.comparing.results import CONTROLS, RE_SOLVED, MethodRow
from outlay.comparing.true_values import true_values
from outlay.core.campaign import Campaign
from outlay.core.errors import OutlayError
from outlay.core.files import kind_of, new_folder, write_manifest
from outlay.core.progress import Progress, silent, within
from outlay.core.transitions import CERTIFY, Transitions
from outlay.estimators.fitted import Fitted
from outlay.twostage.response import Kind

ORTHOGONAL = "orthogonal"  # an oracle of frontiers alone
TRAINED, DAY_COSTS, ENTRIES = "trained", "day-costs", "rows.json"
DAY_COST_MODEL: tuple[Kind, int] = (
    "deepfm",
    1,
)  # the response model that predicts what a day costs, for all methods of a seed


@dataclass(frozen=True)
class PlannedTraining:
    """One training.

    Attributes:
        kind: what is learned.
        learner: the oracle or the response model.
        label_days: of a response model; 0 for others.
        rows: names of the rows that it is needed for.
    """

    kind: Literal["response", "game", "bisection", "frontier"]
    learner: str
    label_days: int
    rows: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.kind}-{self.learner}-{self.label_days}"


@dataclass(frozen=True)
class SeedOutcome:
    """A row under one control after one seed.

    Attributes:
        row: without figures; what it stores, its seconds and why it was refused are of this seed.
        values: measured; None where it was refused.
        course: (gradient steps, parameters stored) of the training.
        original: the same of the original method.
    """

    row: MethodRow
    values: MethodValues | None
    course: list[tuple[int, int]] = field(default_factory=list)
    original: list[tuple[int, int]] = field(default_factory=list)


def planned(
    oracles: Sequence[str],
    responses: Sequence[str],
    label_days: Sequence[int],
    *,
    counted: bool,
    wanted: Sequence[str] | None,
) -> list[PlannedTraining]:
    """List what has to be learned, in the order of the rows.

    Args:
        oracles: of games and frontiers.
        responses: the response models.
        label_days: days that their labels look ahead.
        counted: whether the log's states can be counted.
        wanted: patterns of names of rows, `*` for any text, whatever the case; None: all.

    Raises:
        OutlayError: if a pattern fits no row.
    """
    games = [oracle for oracle in oracles if oracle != ORTHOGONAL]
    frontiers = [*(oracle for oracle in oracles if not oracle.endswith(NETWORK)), *([COUNTED] if counted else [])]
    every = [
        *(PlannedTraining("response", kind, k, (response_row(kind, k),)) for kind in responses for k in label_days),
        *(
            PlannedTraining("game", o, 0, tuple(name for rule in COMPARED_RULES for name in rows_of(o, rule)))
            for o in games
        ),
        *(PlannedTraining("bisection", o, 0, (bisection_row(o),)) for o in games),
        *(PlannedTraining("frontier", o, 0, (frontier_row(o),)) for o in frontiers),
    ]
    if wanted is None:
        return every
    names = [name for training in every for name in training.rows]
    for pattern in wanted:
        if not any(_fits(name, pattern) for name in names):
            raise OutlayError(f"is {pattern!r}; no row has that name.", where="rows",
                              way_out=f"Rows: {'; '.join(names)}.")  # fmt: skip
    kept_outcomes = (
        PlannedTraining(
            one.kind, one.learner, one.label_days, tuple(n for n in one.rows if any(_fits(n, p) for p in wanted))
        )
        for one in every
    )
    return [training for training in kept_outcomes if training.rows]


def learn_seed(
    folder: Path,
    campaign: Campaign,
    trainings: Sequence[PlannedTraining],
    seed: int,
    most: float,
    report: Progress = silent,
) -> None:
    """Learn and measure with one seed what the folder does not hold yet.

    Args:
        folder: with data/.
        campaign: its campaign.
        trainings: from `planned`.
        seed: of everything random.
        most: what day one may cost per user under immediate control.
        report: called with the share done and what is being done.
    """
    missing = [one for one in trainings if not _is_kept(folder / TRAINED, seed, one)]
    if not missing:
        return
    place, work = folder / TRAINED / f"seed-{seed}", folder / f"work-{seed}"
    data = Transitions.open(folder / "data")
    evaluator = MethodEvaluator(data, campaign, true_values(campaign, data))

    parts, fitting = 1 + len(missing), None
    if kind_of(place / DAY_COSTS) is None:
        fitting = fit_response(data, campaign, *DAY_COST_MODEL, seed, within(report, 0, 1 / parts))
        write_values(data, campaign, fitting, seed, place / DAY_COSTS)
    costs = day_costs(load_bundle(place / DAY_COSTS), campaign.money)
    for number, training in enumerate(missing, start=1):
        outcomes = []
        further = within(report, number / parts, (number + 1) / parts)
        for contender in _learned(data, campaign, training, seed, work, fitting, further):
            bundle = contender.bundle or contender.learned
            measure = None if bundle is None else Measure(data, CERTIFY, bundle)
            outcomes += list(_outcomes(evaluator, measure, contender, costs, most))
        _keep(place / training.name, outcomes)


def kept_outcomes(folder: Path, training: PlannedTraining, seed: int) -> list[SeedOutcome]:
    """Read the outcomes of a finished training.

    Args:
        folder: FOLDER/trained.
        training: the training.
        seed: the seed.
    """
    place = folder / f"seed-{seed}" / training.name
    outcomes = []
    for number, entry in enumerate(_entries(place)):
        if entry["row"]["name"] not in training.rows:
            continue
        values = None
        if entry["measured"]:
            with np.load(place / f"{number}.npz", allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            fitted = Fitted(targets=tuple(entry["targets"]), withheld=tuple(entry["withheld"]), **arrays)
            values = MethodValues(fitted, entry["truth"])
        course, original = ([(int(step), int(count)) for step, count in entry[which]] for which in
                            ("course", "original"))  # fmt: skip
        outcomes.append(SeedOutcome(MethodRow(**entry["row"]), values, course, original))
    return outcomes


def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name.lower(), pattern.lower())


def _is_kept(folder: Path, seed: int, training: PlannedTraining) -> bool:
    place = folder / f"seed-{seed}" / training.name
    return kind_of(place) == "rows" and set(training.rows) <= {entry["row"]["name"] for entry in _entries(place)}


def _entries(place: Path) -> list[dict[str, Any]]:
    return list(json.loads((place / ENTRIES).read_text(encoding="utf-8")))


def _learned(
    data: Transitions,
    campaign: Campaign,
    training: PlannedTraining,
    seed: int,
    work: Path,
    fitting: FittedResponse | None,
    report: Progress,
) -> Iterator[Contender]:
    learner, days = training.learner, training.label_days
    if training.kind == "game":
        yield from play_rules(data, campaign, learner, seed, work, training.rows, report)
    elif training.kind == "bisection":
        yield play_bisection(data, campaign, learner, seed, work, report)
    elif training.kind == "frontier":
        yield learn_frontier(data, campaign, learner, seed, work, report)
    else:
        if fitting is None or (learner, days) != DAY_COST_MODEL:
            fitting = fit_response(data, campaign, cast(Kind, learner), days, seed, report)
        yield price_response(data, campaign, fitting, seed, work)


def _outcomes(
    evaluator: MethodEvaluator, measure: Measure | None, contender: Contender, costs: Score, most: float
) -> Iterator[SeedOutcome]:
    """A contender under both controls; `measure` is of what it serves, else of what it learned."""
    measured: dict[str, tuple[MethodValues | None, str | None]] = dict.fromkeys(CONTROLS, (None, contender.refused))
    if measure is not None and contender.learned is not None:
        too_expensive = f"even the cheapest actions cost more than {most:.4g} on day one"
        measured["immediate"] = evaluator.immediate(measure, contender.learned, costs, most), too_expensive
    if measure is not None and contender.bundle is not None:
        measured["total"] = evaluator.served(measure), None
    if (contender.rule or "").endswith(RE_SOLVED):  # what is learned is the same: the row beside it prices it
        del measured["immediate"]
    for control, (values, refused) in measured.items():
        row = MethodRow(
            name=contender.name,
            group="two-stage" if contender.rule is None else "rl",
            control=control,
            oracle=contender.oracle,
            rule=contender.rule,
            label_days=contender.label_days,
            stored_parameters=None if values is None else float(contender.stored_parameters),
            seconds=contender.seconds,
            refused=refused if values is None else None,
        )
        yield SeedOutcome(row, values, contender.course, contender.original)


def _keep(place: Path, outcomes: Sequence[SeedOutcome]) -> None:
    with new_folder(place) as temporary:
        entries = []
        for number, outcome in enumerate(outcomes):
            entry: dict[str, Any] = {"row": asdict(outcome.row), "measured": outcome.values is not None,
                                     "course": outcome.course, "original": outcome.original}  # fmt: skip
            if outcome.values is not None:
                fitted, truth = outcome.values
                entry |= {"targets": fitted.targets, "withheld": fitted.withheld, "truth": truth}
                np.savez(temporary / f"{number}.npz", value=fitted.value, influence=fitted.influence.astype(np.float32),
                         mass=fitted.mass.astype(np.float32), unsupported=fitted.unsupported,
                         daily=fitted.daily)  # fmt: skip
            entries.append(entry)
        (temporary / ENTRIES).write_text(json.dumps(entries), encoding="utf-8")
        write_manifest(temporary, "rows", {})
