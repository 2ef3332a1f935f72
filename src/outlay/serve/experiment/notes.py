"""What the ledger knows of A/B tests: the first word about a test stands, and only its coverage may grow.

    kind "experiment":  key NAME, then NAME:1, NAME:2, …       the whole file, as JSON, of each state of the ramp

Coverage grows on days to come, never on today's or an earlier one, and every server follows the last state that is
noted. So all servers have the same users in the same arms on every day, whichever file they were started with.
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
NAME_LENGTH = ID_LENGTH - 8  # behind it stands the number of the state


def check_experiment(ledger: Ledger, trial: ServedExperiment, day: int) -> bool:
    """Whether the test is new to the ledger.

    Args:
        ledger: may not know the campaign.
        trial: about to be served.
        day: today's number.

    Raises:
        OutlayError: if the ledger holds the test with other content than coverage, its coverage would shrink or grow
            on a day that has begun, or the name of an arm has money of another test.
        LedgerError: if the ledger cannot be reached.
    """
    experiment = trial.experiment
    if len(trial.name) > NAME_LENGTH or "\0" in trial.name:
        raise OutlayError(f"has more than {NAME_LENGTH} characters, or a NUL.", file=experiment.path,
                          where="experiment.name", way_out="Plan the test with a shorter name.")  # fmt: skip
    states = _states(ledger, experiment.meta.campaign)
    known = states.pop(trial.name, None)
    names = {arm.name for arm in trial.arms}
    for other in states.values():
        for arm in other[-1].arms:
            if arm.name in names:
                raise OutlayError(
                    f"had a budget in the test {other[-1].meta.name!r} of this ledger, and what was spent from it "
                    "would count here.", file=experiment.path, where=f"arm {arm.name!r}",
                    way_out="Plan the test with names of its own for the arms.",
                )  # fmt: skip
    if known is None:
        return True
    live = known[-1].model_copy(update={"path": experiment.path})
    experiment.check_growth(live)
    for past in range(min(day - trial.first, experiment.meta.days - 1) + 1):
        if experiment.coverage(past) != live.coverage(past):
            raise OutlayError(
                f"coverage on day {past} would be {experiment.coverage(past):g}, and it was {live.coverage(past):g}: "
                "that day has begun.", file=experiment.path, where="ramp",
                way_out=f"Let it grow from day {day - trial.first + 1} on at the earliest.",
            )  # fmt: skip
    return False


def record_experiment(ledger: Ledger, trial: ServedExperiment, now: int) -> None:
    """Note the test, or what grew of it, and its bundles.

    Args:
        ledger: knows the campaign.
        trial: was checked.
        now: epoch ms.

    Raises:
        OutlayError: if another server has noted another state in between.
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
        raise OutlayError(f"another server has just begun the test {trial.name!r} otherwise.", file=experiment.path,
                          way_out="Start again: it says what differs.")  # fmt: skip


def follow_ramp(ledger: Ledger, trial: ServedExperiment) -> ServedExperiment:
    """The test with the ramp that stands now. Raises LedgerError if the ledger cannot be reached."""
    states = _states(ledger, trial.experiment.meta.campaign).get(trial.name)
    if not states or states[-1].ramp == trial.experiment.ramp:
        return trial
    return replace(trial, experiment=trial.experiment.model_copy(update={"ramp": states[-1].ramp}))


def other_live_experiments(ledger: Ledger, campaign: str, served: str | None, day: int) -> list[Experiment]:
    """Tests of the ledger that are not over and are not the one that is served."""
    states = _states(ledger, campaign)
    return [live[-1] for name, live in states.items() if name != served and day < (live[-1].end - EPOCH).days]


def _states(ledger: Ledger, campaign: str) -> dict[str, list[Experiment]]:
    """Test → its states, the latest last."""
    try:
        notes = ledger.notes(campaign, EXPERIMENT)
    except LedgerError:
        if campaign in ledger.campaigns():
            raise
        return {}  # a campaign that is new has no notes
    found: dict[str, list[Experiment]] = {}
    for note in sorted(notes, key=_by_number):
        experiment = Experiment.parse(json.loads(note.content))
        found.setdefault(experiment.meta.name, []).append(experiment)
    return found


def _by_number(note: Note) -> tuple[int, str]:
    """States of a test in the order of their numbers: clocks of servers differ, and so do times of notes."""
    return len(note.key), note.key
