"""`outlay score`: decisions for many rows, from a bundle.

    result = score("bundle/", "users.parquet", "decisions.parquet")

Rows are read, decided and written a batch at a time, so a file may be larger than the memory. Parquet is decided in
shards, by several processes if so wished; where a run is cut off, the next one goes on with the shards that are left.
No training framework is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from outlay.bundles.decide import Bundle, unknown_values, unseen_rows
from outlay.bundles.read import load_bundle
from outlay.core.actions import Given
from outlay.core.addresses import scheme_of
from outlay.core.errors import LogError
from outlay.core.files import MANIFEST, as_path, check_replaceable, new_file, put_in_place, write_json, write_manifest
from outlay.core.journal import unfinished_folder
from outlay.core.parallel import Mapper, in_processes
from outlay.core.progress import Counter, Progress, counted, telling
from outlay.core.version import __version__
from outlay.jobs.memory import as_file
from outlay.jobs.tables import ARROW, checked_out, needed_batches, read_past, table_writer
from outlay.logs.past_days import UserPast
from outlay.logs.reading import Part, find_files, find_parts, stamps

SHARD_ROWS = 524_288


@dataclass(frozen=True)
class ScoreResult:
    """What was decided.

    Attributes:
        path: the file of decisions, or the folder of such files.
        rows: rows decided.
        unknown: values that the vocabulary does not know; they were served as unknown.
        unseen: rows in a state that the log never showed, where policies are tables of states; they were given the
            action that is best on average over the log's states.
        shares: action → share of rows that get it; with `members`, the share expected of the draw.
        held: the budget that only a cap would hold: the bundle was trained to be served behind one (`hold = serving`),
            and decisions in a file have none; None where a margin is kept.
        forced: by what the log says that a row had no choice (`log.forced`); here every row is decided.
    """

    path: Path
    rows: int
    unknown: int
    unseen: int
    shares: dict[Given, float]
    held: str | None = None
    forced: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        shares = [{"action": action, "share": share} for action, share in self.shares.items()]
        return {**asdict(self), "path": str(self.path), "shares": shares}


def score(
    bundle: str | Path | Bundle,
    rows: Any,
    out: str | Path,
    *,
    history: Any = None,
    episode: str | None = None,
    members: bool = False,
    workers: int = 1,
    cluster: bool = False,
    progress: Progress | None = None,
) -> ScoreResult:
    """Decide for every row of a file.

    Args:
        bundle: the bundle's folder, or the bundle.
        rows: a file of any kind that a log may have, globs allowed, or a table in memory, with the feature
            columns (or what their expressions need). A user keeps one member where the user column is there; without it
            every row is drawn by its position.
        out: .parquet or .csv; replaced when all rows are done. A path without an ending is a folder of Parquet files,
            one per shard of 524,288 rows, and a manifest. The columns are those of `Bundle.decide`; a CSV holds `q` as
            JSON text.
        history: a log, a table in memory or a DATA folder with the users' past days, for a policy that looks at
            them (`[log.history]`). Rows are decided for the day that their time column says; without one, for
            the day after the last of it.
        episode: a new one draws the members anew; default: the campaign's name.
        members: a line per row and member instead of the draw.
        workers: processes that share the shards of Parquet files; decisions do not depend on it. Each holds the
            history. More than one needs a script with `if __name__ == "__main__":`.
        cluster: decide the shards on a Ray cluster, whose machines see the bundle, the rows and `out` under the same
            paths.
        progress: called with the share done (0 where the number of rows is unknown, as in a CSV) and what is done.

    Raises:
        BundleError: if the bundle is damaged.
        LogError: if there are no rows, a column is missing, a user is missing, or no action is allowed in a row.
        OutlayError: if `out` ends in anything but .parquet or .csv.
        FolderError: if `out` cannot be written, is a folder of something else, or is being written by another process.
        LostWorkerError: if a worker was killed; the shards that are done are kept for the next run.
    """
    out = as_path(out, "out", "the path to write to")
    past = nullcontext() if history is None else as_file(history, "history")
    with as_file(rows, "rows") as rows, past as history:
        if not out.suffix:
            check_replaceable(out, "decisions")
        else:
            checked_out(out, rows)
        opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
        over = None if isinstance(bundle, Bundle) else _mapper(workers, cluster)
        task = _Task(
            opened.folder.absolute(),
            _absolute(rows),
            None if history is None else _absolute(history),
            episode,
            members,
            ".parquet" if not out.suffix else ARROW,
        )
        return _score(task, opened, over, out, telling(progress))


@dataclass(frozen=True)
class _Task:
    """What all shards share.

    Attributes:
        bundle: its folder.
        rows, history, episode, members: as `score` takes them.
        suffix: of the files of shards.
    """

    bundle: Path
    rows: str
    history: str | None
    episode: str | None
    members: bool
    suffix: str


@dataclass(frozen=True)
class _ShardTotals:
    """What is counted of a shard; `given` is the number of rows of each action, or the sum of their weights."""

    rows: int
    unknown: int
    unseen: int
    given: list[float]


def _score(task: _Task, bundle: Bundle, over: Mapper | None, out: Path, report: Progress) -> ScoreResult:
    """Decide shard by shard, and join the shards in their order, unless the result is a folder of them.

    Args:
        task: what all shards share.
        bundle: what decides.
        over: maps a function over shards elsewhere; None: all are decided in this process.
        out: the file or folder to write.
        report: told how many rows are done.
    """
    shards: list[Part | None] = [*find_parts(task.rows, SHARD_ROWS)] or [None]  # None: all rows at once
    total = sum(shard.rows for shard in shards if shard is not None)
    tell = counted(report, total, f"{total:,} rows") if total else _count_rows(report)
    about = _about(task, bundle)
    with unfinished_folder(out, about) as (folder, _):
        joined = folder / f"joined{out.suffix}"
        with table_writer(joined, out.suffix) if out.suffix else nullcontext() as write:
            waiting = list(range(len(shards)))  # to be joined, in order
            for _ in _decided(task, folder, shards, over, bundle, tell):
                while write and waiting and _totals_file(folder, waiting[0]).exists():
                    for table in _tables(_shard_file(folder, waiting.pop(0), task.suffix)):
                        write(table)
        if _about(task, bundle) != about:
            raise LogError("changed while it was read.", file=task.rows, way_out="Do not write to it, and start again.")
        result = _result(out, bundle, [_totals_file(folder, i) for i in range(len(shards))])
        if out.suffix:
            with new_file(out) as temporary:
                joined.rename(temporary)
        else:
            _finish_folder(folder, out, task, bundle, result)
    return result


def _absolute(path: str | Path) -> str:
    """The path as other processes and machines see it."""
    return str(path) if scheme_of(path) else str(Path(path).absolute())


def _about(task: _Task, bundle: Bundle) -> dict[str, Any]:
    """What decisions are made of."""
    files: list[Any] = []
    with suppress(LogError, OSError):  # which are told where the files are read
        files += stamps(find_files(Path(task.rows), None))
        if task.history is not None:
            path = Path(task.history)
            files += stamps([path / MANIFEST] if path.is_dir() else find_files(path, None))
    return {
        "outlay": __version__,
        "bundle": bundle.id,
        "files": files,
        "episode": task.episode,
        "members": task.members,
        "suffix": task.suffix,
        "shard_rows": SHARD_ROWS,
    }


def _decided(
    task: _Task, folder: Path, shards: Sequence[Part | None], over: Mapper | None, bundle: Bundle, tell: Counter
) -> Iterator[None]:
    """Decide for the shards that are left; yields after each, and once more at the end.

    Args:
        task: what all shards share.
        folder: where they are written.
        shards: all of them; None stands for all rows.
        over: maps a function over shards elsewhere; None: all are decided in this process.
        bundle: what decides.
        tell: told how many rows are done.
    """
    left = [i for i in range(len(shards)) if not _totals_file(folder, i).exists()]
    tell(sum(shard.rows for i, shard in enumerate(shards) if shard is not None and i not in set(left)))
    if over is not None and shards[0] is not None and len(left) > 1:
        for count in over(partial(_decide_apart, task, folder.absolute()), [(i, shards[i]) for i in left]):
            tell(count)
            yield
    elif left:
        past = read_past(bundle, task.rows, task.history)
        for i in left:
            _decide(task, folder, i, shards[i], bundle, past, tell)
            yield
    yield


def _mapper(workers: int, cluster: bool) -> Mapper | None:
    if cluster:
        from outlay.cluster.ray_cluster import on_cluster

        return on_cluster
    return partial(in_processes, workers=workers) if workers > 1 else None


@lru_cache(maxsize=1)
def _opened(task: _Task) -> tuple[Bundle, UserPast | None]:
    """What a worker needs for all its shards."""
    pa.set_cpu_count(1)
    bundle = load_bundle(task.bundle)
    return bundle, read_past(bundle, task.rows, task.history)


def _decide_apart(task: _Task, folder: Path, numbered: tuple[int, Part]) -> int:
    """Decide for a shard in a process of its own; its rows."""
    number, shard = numbered
    bundle, past = _opened(task)
    _decide(task, folder, number, shard, bundle, past, lambda _: None, threads=1)
    return shard.rows


def _decide(
    task: _Task,
    folder: Path,
    number: int,
    shard: Part | None,
    bundle: Bundle,
    past: UserPast | None,
    tell: Counter,
    threads: int | None = None,
) -> None:
    """Write the decisions of a shard and then, as a sign that it is done, what was counted."""
    first = done = 0 if shard is None else shard.first
    unknown = unseen = 0
    given = np.zeros(len(bundle.actions))
    file = _shard_file(folder, number, task.suffix)
    with new_file(file) as temporary, table_writer(temporary, task.suffix) as write:
        for batch in needed_batches(bundle, task.rows, past, part=shard, threads=threads):
            decisions = bundle.decide_batch(
                batch, first_row=done, episode=task.episode, members=task.members, file=task.rows
            )
            write(decisions)
            weight = decisions["weight"].to_numpy() if task.members else None
            given += np.bincount(decisions["action_index"].to_numpy(), weight, len(given))
            unknown += unknown_values(decisions)
            unseen += unseen_rows(decisions)
            done += batch.num_rows
            tell(batch.num_rows)
        if done == first:
            raise LogError("has no rows.", file=task.rows, way_out="Give a file with at least one row to decide.")
    write_json(_totals_file(folder, number), asdict(_ShardTotals(done - first, unknown, unseen, given.tolist())))


def _shard_file(folder: Path, number: int, suffix: str) -> Path:
    return folder / f"decisions-{number:05d}{suffix}"


def _totals_file(folder: Path, number: int) -> Path:
    return folder / f"totals-{number:05d}.json"


def _tables(file: Path) -> Iterator[Any]:
    """The batches of a shard that is done."""
    with pa.memory_map(str(file)) as mapped, pa.ipc.open_file(mapped) as reader:
        for i in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(i)])


def _result(out: Path, bundle: Bundle, files: Sequence[Path]) -> ScoreResult:
    totals = [_ShardTotals(**json.loads(file.read_text(encoding="utf-8"))) for file in files]
    count, campaign = sum(part.rows for part in totals), bundle.campaign
    given = np.sum([part.given for part in totals], axis=0)
    return ScoreResult(
        path=out,
        rows=count,
        unknown=sum(part.unknown for part in totals),
        unseen=sum(part.unseen for part in totals),
        shares=dict(zip(map(bundle.names.given, bundle.actions.tolist()), (given / count).tolist(), strict=True)),
        held=next((budget.name for budget, held in zip(campaign.budgets, campaign.held, strict=True) if held), None),
        forced=campaign.log.forced,
    )


def _finish_folder(folder: Path, out: Path, task: _Task, bundle: Bundle, result: ScoreResult) -> None:
    """Turn the folder of finished shards into the result."""
    for file in folder.iterdir():
        if file.suffix != task.suffix:
            file.unlink()
    counted = {name: value for name, value in result.to_dict().items() if name != "path"}
    write_manifest(folder, "decisions", {"outlay": __version__, "bundle": bundle.id, **counted})
    put_in_place(folder, out)


def _count_rows(report: Progress) -> Callable[[int], None]:
    """A counter for rows whose total is unknown."""
    done = 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        report(0.0, f"{done:,} rows")

    return tell
