"""`outlay train --seeds N`: the same training with N seeds, side by side, from one DATA folder.

    runs = train_seeds("campaign.toml", "runs", seeds=5)        # runs/data, runs/seed-0 … runs/seed-4

Every seed is a RUN of its own, whole or absent. Where the work was cut off, the same call goes on with what is left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from outlay.choosing.run import Run
from outlay.core.campaign import Campaign
from outlay.core.errors import FolderError, OutlayError
from outlay.core.files import (
    MANIFEST,
    as_path,
    check_replaceable,
    kind_of,
    partial_of,
    read_manifest,
    write_manifest,
)
from outlay.core.machine import processors
from outlay.core.parallel import in_processes
from outlay.core.progress import Progress, telling, within
from outlay.core.transitions import Transitions
from outlay.jobs.prepare import prepare
from outlay.learning.screening import Screening, screen, wide

BYTES, ROW_BYTES = 1.5e9, 200  # memory of a training, about: for itself, and for each row
PREPARED, SCREENED = 0.1, 0.12  # share of the work when DATA are there, and when fields of noise are known


def train_seeds(
    source: str | Path | Campaign,
    out: str | Path,
    *,
    seeds: int,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[Run]:
    """Train with several seeds; as many at a time as there are processors and memory for.

    Args:
        source: campaign.toml (the log is prepared into OUT/data) or a DATA folder.
        out: the folder of the RUN folders `seed-0`, `seed-1`, …
        seeds: how many.
        seed: the first of them; the others follow.
        threads: for reading the log.
        progress: called with the share done and what is being done.
        options: further ones of `train`: method, oracle, response, label_days, preset, folds, hold.

    Returns:
        The runs, in the order of their seeds.

    Raises:
        FolderError: if `out` holds something else, or seeds that were trained otherwise.
        LostWorkerError: if a process was killed; what is done is kept.
        OutlayError: as `train`.
    """
    if seeds < 1:
        raise OutlayError(f"is {seeds}; it must be 1 or more.", where="seeds", way_out="Give the number of seeds.")
    out, report = as_path(out, "out", "the path to write to"), telling(progress)
    data = _data(source, out, options, threads, within(report, 0, PREPARED))
    if data.folder == out / "data":
        options = {key: value for key, value in options.items() if key != "preset"}  # with which it was prepared
    if (found := _screening(data, options, within(report, PREPARED, SCREENED))) is not None:
        options = options | {"screening": found}
    further = within(report, SCREENED, 1)
    folders = {number: out / f"seed-{number}" for number in range(seed, seed + seeds)}
    left = [number for number, folder in folders.items() if kind_of(folder) != "run"]
    told: dict[int, float] = dict.fromkeys(set(folders) - set(left), 1.0)

    def tell() -> None:
        for number in left:
            told[number] = 1.0 if kind_of(folders[number]) == "run" else told.get(number, 0.0)
        done = sum(share == 1.0 for share in told.values())
        further(sum(told.values()) / seeds, f"{done} of {seeds} seeds")

    together = min(processors(), _room(data), len(left))  # more than processors would only disturb one another
    whole = len(left) // together * together if together > 1 else 0
    for some in (left[:whole], left[whole:]):  # the last seeds share all processors among fewer processes
        if len(some) > 1 and together > 1:
            for _ in in_processes(partial(_train_one, data.folder, out, options), some, min(together, len(some)), tell):
                tell()
        else:
            for number, alone in _shares(some, further, seeds):
                _train_one(data.folder, out, options, number, alone)
    return [Run.open(folder) for folder in folders.values()]


def _data(
    source: str | Path | Campaign, out: Path, options: dict[str, Any], threads: int | None, report: Progress
) -> Transitions:
    """The DATA that all seeds learn from; `out` is ours from now on.

    Raises:
        FolderError: if it holds something else, or seeds that were trained otherwise.
    """
    check_replaceable(out, "seeds")
    given = not isinstance(source, Campaign) and kind_of(Path(source)) == "data"
    campaign = None if given else source if isinstance(source, Campaign) else Campaign.load(source)
    about = {
        "options": {key: value for key, value in sorted(options.items()) if value is not None},
        "data": str(Path(str(source)).resolve()) if campaign is None else "data",
        "campaign": None if campaign is None else campaign.model_dump(by_alias=True, mode="json"),
    }
    if (out / MANIFEST).exists():
        made = read_manifest(out, "seeds")
        if json.loads(json.dumps(about)) != {name: made.get(name) for name in about}:
            raise FolderError(
                "holds seeds that were trained otherwise.",
                file=out,
                way_out="Give another --out, or the campaign and the options as they were.",
            )
    else:
        out.mkdir(parents=True, exist_ok=True)
        write_manifest(out, "seeds", about)
    if campaign is None:
        return Transitions.open(str(source))
    if kind_of(out / "data") != "data":
        if (preset := options.get("preset")) is not None:
            campaign = campaign.with_train(preset=preset)
        prepare(campaign, out / "data", threads=threads, progress=report)
    return Transitions.open(out / "data")


def _screening(data: Transitions, options: dict[str, Any], report: Progress) -> Screening | None:
    """Return which fields of a wide log tell anything, the same for all seeds; None if all are learned from."""
    asked = data.campaign.with_train(preset=options.get("preset"), folds=options.get("folds"))
    return screen(data, report) if wide(data, asked) else None


def _train_one(data: Path, out: Path, options: dict[str, Any], number: int, report: Progress | None = None) -> int:
    """Train with one seed, or go on with it; its number."""
    from outlay.jobs.train import train  # loads JAX, which looks at once how many processors it may use

    folder = out / f"seed-{number}"
    resume = partial_of(folder).is_dir()
    train(data, folder, seed=number, resume=resume, progress=report, **options)
    return number


def _shares(left: list[int], report: Progress, seeds: int) -> Iterator[tuple[int, Progress]]:
    """The seeds that are left, each with the progress of its part."""
    first = seeds - len(left)
    for place, number in enumerate(left, first):
        yield number, within(report, place / seeds, (place + 1) / seeds, f"seed {place + 1} of {seeds}: ")


def _room(data: Transitions) -> int:
    """How many trainings there is memory for."""
    return max(1, int(_free_memory() // (BYTES + ROW_BYTES * len(data))))


def _free_memory() -> float:
    """Bytes that may be used, where the system says so."""
    with suppress(OSError, StopIteration, ValueError), Path("/proc/meminfo").open(encoding="ascii") as file:
        return 1024.0 * float(next(line.split()[1] for line in file if line.startswith("MemAvailable:")))
    return 8e9
