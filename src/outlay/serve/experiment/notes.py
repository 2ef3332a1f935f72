"""A/B tests in the ledger's notes: a test is recorded once, and only its coverage may grow.

    kind "experiment":  key NAME, then NAME:1, NAME:2, …       the whole file, as JSON, for each state of the ramp

Coverage may grow on future days, never today or earlier, and every server follows the last state recorded. So all
servers have the same users in the same arms on every day, whichever file they were started with.
"""

from __future__ import annotations

import json
from dataclasses import replace

from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment
from outlay.serve.clock import EPOCH
from outlay.serve.deciding.loaded_bundle import ARM_BUNDLE, bundle_note
from outlay.serve.experiment.arms import ServedExperiment
from outlay.serve.ledger.ledger import Ledger, LedgerError, Note
from outlay.serve.ledger.records import ID_LENGTH

EXPERIMENT = "experiment"  # kind of the notes
NAME_LENGTH = ID_LENGTH - 8  # the number of the state is appended


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
    return [live[-1] for name, live in states.items() if name != served and day < (live[-1].end - EPOCH).days]


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
