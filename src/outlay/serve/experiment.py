"""The A/B test in a server: who is in which arm, what each gives, and the test's states in the ledger.

    trial = load_experiment(experiment, loaded, config)
    trial.entries(users)                       each user's (or cluster's) arm, and the day from which it is in the test
    arm.decide(cases, episode)                 choices, as of the bundle in service (`deciding/decider.py`)

Arms are drawn by `experiments/split.py`, the draw that `outlay experiment assign` writes and `analyze` reads. For a
user in the test, only the arm decides; the random slice is for all others. Guards, limits per user and the total cap
apply to everybody. An arm keeps the bundle it began with, whatever bundle goes into service for other users.

A constant and a holdout leave nothing to chance, but their rows are choices, not forced: the test compares what the
arms give. Their propensity, like everybody's, is the probability of the action within the arm.

A test is recorded once, and only its coverage may grow:

    note "experiment":  key NAME, then NAME:1, NAME:2, …       the whole file, as JSON, for each state of the ramp

Coverage may grow on future days, never today or earlier, and every server follows the last state recorded. So all
servers have the same users in the same arms on every day, whichever file they were started with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from outlay.core.actions import named
from outlay.core.errors import OutlayError
from outlay.experiments.design import Arm as Design
from outlay.experiments.design import Experiment, Kind
from outlay.experiments.split import OUTSIDE, entries
from outlay.serve.clock import day_of
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import (
    NOT_ELIGIBLE,
    POLICY,
    RANDOM,
    ChosenAction,
    Decider,
    DrawRecord,
    EncodedRequest,
    encode_draw,
)
from outlay.serve.deciding.loaded_bundle import ARM_BUNDLE, LoadedBundle, bundle_note, every_action, prepare_bundle
from outlay.serve.ledger.ledger import Ledger, LedgerError, Note
from outlay.serve.ledger.money import MoneyError
from outlay.serve.ledger.records import ID_LENGTH

NAME_LENGTH = ID_LENGTH - 8  # of an arm, which notes of pacing put a word before; of a test, whose states are numbered
CONSTANT, HOLDOUT = "constant", "holdout"  # reasons
EXPERIMENT = "experiment"  # kind of the notes


@dataclass(frozen=True, eq=False)
class ServedArm:
    """One arm in service.

    Attributes:
        name: as in the file.
        kind: bundle, constant, random or holdout.
        budget: minor units; None if the arm gives nothing.
        loaded: the bundle that decides; of an arm without one, that which the server began with, for what actions cost.
        decider: of an arm with a bundle or a random arm.
        given: what a constant arm gives, or a holdout's none; None if the decider decides.
    """

    name: str
    kind: Kind
    budget: int | None
    loaded: LoadedBundle
    decider: Decider | None
    given: ChosenAction | None

    def decide(
        self, cases: Sequence[EncodedRequest], episode: str, decider: Decider | None = None
    ) -> list[ChosenAction]:
        """Return a choice for every case, by the arm's own decider or by the one that pacing derived from it."""
        by = decider or self.decider
        if by is None:
            return [self._same(case) for case in cases]
        return [replace(choice, arm=self.name) for choice in by.decide(cases, episode)]

    def _same(self, case: EncodedRequest) -> ChosenAction:
        given, none = self.given, self.loaded.decider.none
        assert given is not None
        if case.eligible is None:
            return given
        allowed = np.flatnonzero(case.eligible).tolist()
        if given.index in allowed:
            return replace(given, members=encode_draw(DrawRecord(allowed=allowed)))
        if given.action == none and allowed:
            return given
        return replace(given, index=self.loaded.none_index, action=none, reason=NOT_ELIGIBLE, forced=True)


class Enrolment(NamedTuple):
    """A user's arm, and the days on which it decides.

    Attributes:
        arm: what decides.
        since: first day number.
        end: first day number after the last.
    """

    arm: ServedArm
    since: int
    end: int

    def holds(self, day: int) -> bool:
        """Whether the user is in the test on this day of the server's clock."""
        return self.since <= day < self.end


@dataclass(frozen=True)
class ServedExperiment:
    """A test in service.

    Attributes:
        experiment: its file, with the ramp as the ledger has it.
        arms: in the order of the file.
    """

    experiment: Experiment
    arms: tuple[ServedArm, ...]

    @property
    def name(self) -> str:
        """The test's name."""
        return self.experiment.meta.name

    @cached_property
    def first(self) -> int:
        """Day number of its day 0."""
        return day_of(self.experiment.meta.start)

    @cached_property
    def end(self) -> int:
        """Day number of the first day after it."""
        return day_of(self.experiment.end)

    @property
    def budgets(self) -> dict[str, int]:
        """Arm → minor units, for the arms that may spend."""
        return {arm.name: arm.budget for arm in self.arms if arm.budget is not None}

    def coverage(self, day: int) -> float:
        """Return the part of every arm's share that is in the test on a day number; 0 outside the test."""
        return self.experiment.coverage(day - self.first) if self.is_on(day) else 0.0

    @property
    def cluster(self) -> str | None:
        """The column by which arms are drawn; None: by user."""
        return self.experiment.meta.cluster

    def is_on(self, day: int) -> bool:
        """Return whether a day number is one of its days."""
        return self.first <= day < self.end

    def entries(self, units: Sequence[str]) -> list[Enrolment | None]:
        """Return the enrolment of each user or cluster, given as canonical text; None if the ramp never admits it."""
        arms, since = entries(self.experiment, units)
        return [
            None if day == OUTSIDE else Enrolment(self.arms[arm], self.first + day, self.end)
            for arm, day in zip(arms.tolist(), since.tolist(), strict=True)
        ]

    def check_fits(self, loaded: LoadedBundle) -> None:
        """Check that a bundle to serve beside the arms has the same actions: requests name actions for all of them.

        Raises:
            OutlayError: if it has other actions.
        """
        for arm in self.arms:
            own, new = arm.loaded, loaded
            if (
                not np.array_equal(own.bundle.actions, new.bundle.actions)
                or own.decider.none != new.decider.none
                or own.bundle.names != new.bundle.names
            ):
                raise OutlayError(
                    f"the arm {arm.name!r} has the actions {every_action(own.bundle)} and none is "
                    f"{named(own.bundle.names.given(own.decider.none))}; the bundle {new.path} has "
                    f"{every_action(new.bundle)}, none is {named(new.bundle.names.given(new.decider.none))}.",
                    file=self.experiment.path,
                    where="arm",
                    way_out="Test and serve bundles of the same actions.",
                )


def load_experiment(
    experiment: Experiment,
    loaded: LoadedBundle,
    config: ServeConfig,
    history: Path | None = None,
    shared: Path | None = None,
) -> ServedExperiment:
    """Load, verify and warm up the bundles of the arms.

    Args:
        experiment: read and sealed.
        loaded: the bundle that decides about users outside the test.
        config: settings of the server.
        history: a log or a DATA folder with the past of users before the ledger began.
        shared: a folder in which workers share the vocabularies; see `load_bundle`.

    Raises:
        BundleError: if an arm's bundle is missing, damaged or of another campaign.
        OutlayError: if the test is of another campaign, or an arm cannot be served.
    """
    meta, file = experiment.meta, experiment.path
    if meta.campaign != loaded.campaign:
        raise OutlayError(
            f"is {meta.campaign!r}; this server spends the money of {loaded.campaign!r}.",
            file=file,
            where="experiment.campaign",
            way_out="Serve a bundle of that campaign, or plan a test of this one.",
        )
    if meta.eligible is not None:
        raise OutlayError(
            "is SQL over a log, and a request has none.",
            file=file,
            where="experiment.eligible",
            way_out="Plan the test without it, or send those who are eligible to a server of their own; or draw the "
            "arms beforehand (outlay experiment assign) and analyse with --assigned.",
        )
    trial = ServedExperiment(
        experiment, tuple(_prepared(arm, experiment, loaded, config, history, shared) for arm in experiment.arms)
    )
    trial.check_fits(loaded)
    return trial


def _prepared(
    arm: Design,
    experiment: Experiment,
    loaded: LoadedBundle,
    config: ServeConfig,
    history: Path | None,
    shared: Path | None,
) -> ServedArm:
    file, where = experiment.path, f"arm {arm.name!r}"
    if arm.name in (POLICY, RANDOM):
        raise OutlayError(
            f"is the name of what the server gives outside the test ({POLICY}, and {RANDOM} for the random slice).",
            file=file,
            where=where,
            way_out="Plan the test with another name for this arm.",
        )
    if len(arm.name) > NAME_LENGTH or "\0" in arm.name:
        raise OutlayError(
            f"has a name of more than {NAME_LENGTH} characters, or with a NUL.",
            file=file,
            where=where,
            way_out="Plan the test with a shorter name.",
        )
    try:
        budget = None if arm.budget is None else loaded.money.exact(arm.budget)
    except MoneyError as error:
        raise OutlayError(error.found, file=file, where=f"{where}.budget", way_out=error.way_out) from None
    if arm.kind == "bundle":
        return _of_bundle(arm, experiment, loaded, config, budget, history, shared)
    if arm.kind == "random":
        everyone = replace(loaded.decider, random_share=1.0, random_salt=experiment.meta.salt)
        return ServedArm(arm.name, arm.kind, budget, loaded, everyone, None)
    given = loaded.decider.none if arm.action is None else loaded.bundle.names.value(arm.action)
    action = float("nan") if given is None else given
    index = loaded.decider.index_of(action)
    if index < 0 and action != loaded.decider.none:
        raise OutlayError(
            f"is {named(arm.action or 0.0)}, which is not one of the actions {every_action(loaded.bundle)}.",
            file=file,
            where=f"{where}.action",
            way_out="Plan the test with one of them.",
        )
    value = action if index < 0 else loaded.bundle.actions.tolist()[index]
    reason = HOLDOUT if arm.kind == "holdout" else CONSTANT
    return ServedArm(
        arm.name, arm.kind, budget, loaded, None, ChosenAction(arm.name, None, index, value, 1.0, "{}", reason, False)
    )


def _of_bundle(
    arm: Design,
    experiment: Experiment,
    loaded: LoadedBundle,
    config: ServeConfig,
    budget: int | None,
    history: Path | None,
    shared: Path | None,
) -> ServedArm:
    folder = (experiment.path or Path()).parent / str(arm.bundle)
    own = prepare_bundle(folder, config, campaign=loaded.campaign, history=history, shared=shared)
    if arm.bundle_id not in (None, own.bundle.id):
        raise OutlayError(
            f"is {arm.bundle_id!r}, but {folder} holds {own.bundle.id!r}: another bundle than was planned.",
            file=experiment.path,
            where=f"arm {arm.name!r}.bundle_id",
            way_out="Put the planned bundle back; another one is another test.",
        )
    return ServedArm(arm.name, arm.kind, budget, own, replace(own.decider, random_share=0.0), None)


def check_experiment(ledger: Ledger, trial: ServedExperiment, day: int) -> bool:
    """Check a test against the ledger; return whether it is new there.

    Args:
        ledger: may not know the campaign.
        trial: the test to serve.
        day: today's number.

    Raises:
        OutlayError: if the ledger holds the test with different content other than coverage, its coverage would shrink
            or would change on a day that has begun, or an arm's name was used by another test with a budget.
        LedgerError: if the ledger cannot be reached.
    """
    experiment = trial.experiment
    if len(trial.name) > NAME_LENGTH or "\0" in trial.name:
        raise OutlayError(
            f"has more than {NAME_LENGTH} characters, or a NUL.",
            file=experiment.path,
            where="experiment.name",
            way_out="Plan the test with a shorter name.",
        )
    states = _states(ledger, experiment.meta.campaign)
    known = states.pop(trial.name, None)
    names = {arm.name for arm in trial.arms}
    for other in states.values():
        for arm in other[-1].arms:
            if arm.name in names:
                raise OutlayError(
                    f"had a budget in the test {other[-1].meta.name!r} of this ledger, and what was spent from it "
                    "would count here.",
                    file=experiment.path,
                    where=f"arm {arm.name!r}",
                    way_out="Plan the test with arm names that no other test has used.",
                )
    if known is None:
        return True
    live = known[-1].model_copy(update={"path": experiment.path})
    experiment.check_growth(live)
    for past in range(min(day - trial.first, experiment.meta.days - 1) + 1):
        if experiment.coverage(past) != live.coverage(past):
            raise OutlayError(
                f"coverage on day {past} would be {experiment.coverage(past):g}, and it was {live.coverage(past):g}: "
                "that day has begun.",
                file=experiment.path,
                where="ramp",
                way_out=f"Let it grow from day {day - trial.first + 1} or later.",
            )
    return False


def record_experiment(ledger: Ledger, trial: ServedExperiment, now: int) -> None:
    """Record the test, or its grown coverage, and its bundles.

    Args:
        ledger: it knows the campaign.
        trial: a test that was checked.
        now: epoch ms.

    Raises:
        OutlayError: if another server has recorded a different state in between.
        LedgerError: if the ledger cannot be written.
    """
    experiment, campaign = trial.experiment, trial.experiment.meta.campaign
    for arm in trial.arms:
        ledger.note(campaign, bundle_note(arm.loaded, ARM_BUNDLE, now))
    known = _states(ledger, campaign).get(trial.name, [])
    if known and known[-1].ramp == experiment.ramp:
        return
    key = f"{trial.name}:{len(known)}" if known else trial.name
    note = Note(kind=EXPERIMENT, key=key, ts=now, content=experiment.model_dump_json(by_alias=True, exclude_none=True))
    if ledger.note(campaign, note).content != note.content:
        raise OutlayError(
            f"another server has just begun the test {trial.name!r} with other content.",
            file=experiment.path,
            way_out="Start again; the error then says what differs.",
        )


def follow_ramp(ledger: Ledger, trial: ServedExperiment) -> ServedExperiment:
    """Return the test with the latest ramp in the ledger. Raises LedgerError if the ledger cannot be reached."""
    states = _states(ledger, trial.experiment.meta.campaign).get(trial.name)
    if not states or states[-1].ramp == trial.experiment.ramp:
        return trial
    return replace(trial, experiment=trial.experiment.model_copy(update={"ramp": states[-1].ramp}))


def other_live_experiments(ledger: Ledger, campaign: str, served: str | None, day: int) -> list[Experiment]:
    """Return the tests in the ledger that are not over, other than the one that is served."""
    states = _states(ledger, campaign)
    return [live[-1] for name, live in states.items() if name != served and day < day_of(live[-1].end)]


def _states(ledger: Ledger, campaign: str) -> dict[str, list[Experiment]]:
    """Return each test's states, the latest last."""
    try:
        notes = ledger.notes(campaign, EXPERIMENT)
    except LedgerError:
        if campaign in ledger.campaigns():
            raise
        return {}  # a new campaign has no notes
    states: dict[str, list[Experiment]] = {}
    for note in sorted(notes, key=_by_number):
        experiment = Experiment.parse(json.loads(note.content))
        states.setdefault(experiment.meta.name, []).append(experiment)
    return states


def _by_number(note: Note) -> tuple[int, str]:
    """Sort states of a test by their numbers: the servers' clocks differ, and so do the times of notes."""
    return len(note.key), note.key
