"""`outlay experiment analyze --promised`: estimates of arms, beside what happened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from outlay.core.errors import OutlayError
from outlay.experiments.design import Experiment
from outlay.experiments.findings import Findings
from outlay.experiments.promise import Promise, promises
from outlay.experiments.sums import DailySums

ESTIMATES = "Give RUN/estimates.json, or what outlay evaluate --json printed"


def promised_files(given: Mapping[str, str | Path] | str | Path | None, experiment: Experiment) -> dict[str, Path]:
    """Arm → file; a file alone is of the only arm that gets a verdict.

    Raises:
        OutlayError: if it is not clear of which arm a file is, or it does not exist.
    """
    if given is None:
        return {}
    if isinstance(given, str | Path):
        names = [arm.name for arm in experiment.contestants]
        if len(names) > 1:
            raise OutlayError(f"does not say of which arm {given} is.", where="promised",
                              way_out=f"Give {names[0]}={given}, or another arm.")  # fmt: skip
        given = {names[0]: given}
    known = [arm.name for arm in experiment.arms[1:]]
    for name, file in given.items():
        if name not in known:
            raise OutlayError(f"{name!r} is no arm that stands against the control.", where="promised",
                              way_out=f"Those that do: {', '.join(known)}.")  # fmt: skip
        if not Path(file).is_file():
            raise OutlayError("does not exist.", file=Path(file), where="promised", way_out=f"{ESTIMATES}.")
    return {name: Path(file) for name, file in given.items()}


def kept(
    files: Mapping[str, Path], findings: Findings, experiment: Experiment, money: str | None
) -> dict[str, list[Promise]]:
    """Arm → what its estimate promised, and what became of it.

    Raises:
        OutlayError: if a file is no evaluation.
    """
    found, meta = {}, experiment.meta
    for arm, file in files.items():
        comparison = next(each for each in findings.comparisons if each.arm == arm)
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            found[arm] = promises(told, comparison, meta.metric, money, meta.confidence)
        except (OSError, ValueError, KeyError, TypeError):
            raise OutlayError("is no evaluation.", file=file, where="promised", way_out=f"{ESTIMATES}.") from None
    return found


def promise_notes(found: Mapping[str, list[Promise]], sums: DailySums, experiment: Experiment) -> list[str]:
    """Why promises may differ from what happened, or cannot be compared."""
    notes = [
        f"The estimate of {arm!r} and the test have no total in common, so that promise is not compared."
        for arm, told in found.items()
        if not told
    ]
    longest = max((p.days for told in found.values() for p in told), default=0)
    if longest:
        notes.append(
            "What was promised is over the policy of the estimate's log, what happened is over "
            f"{experiment.control.name!r}. If these are not the same policy, the two need not agree."
        )
    if longest and experiment.last_growth:
        notes.append(
            f"What was promised is of {longest} days; by then the ramp's users had been in the test for "
            f"{sums.days_per_user(longest):.1f} of them on average."
        )
    return notes
