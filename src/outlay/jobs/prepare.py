"""`prepare`: a campaign log becomes a DATA folder of encoded, linked, memory-mapped transitions."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outlay.core.addresses import absolute, shown
from outlay.core.assignment import Assignment
from outlay.core.campaign import Campaign
from outlay.core.errors import LogError
from outlay.core.files import as_path, check_replaceable, new_file, sha256, write_manifest
from outlay.core.history import History
from outlay.core.journal import Journal, resumable_folder
from outlay.core.machine import processors
from outlay.core.parallel import Mapper, in_threads
from outlay.core.progress import Progress, counted, telling, within
from outlay.core.schema import Schema, canonical_text, user_text
from outlay.core.transitions import CLUSTERS, NAMES, SPLITS, USERS, Transitions
from outlay.core.version import __version__
from outlay.logs import events
from outlay.logs.blocks import Block, FeatureFiles, changed, find_features
from outlay.logs.clustering import LEAST
from outlay.logs.drivers import assignment
from outlay.logs.encode import Columns, Encoding, StateCollector, find_states, write_features, write_links, write_roles
from outlay.logs.past_days import feature_terms, write_history, write_recent
from outlay.logs.quality import Facts, inspect, refuse
from outlay.logs.reading import find_files, stamps
from outlay.logs.roles import Log, complete, link, open_log
from outlay.logs.vocabulary import hashed_words, make_schema
from outlay.ops.hashing import uniform

COUNTED, PLACES, FETCHED = "counted.parquet", "places.npy", "fetched"  # while DATA is made
MISSING_SEGMENT = "missing"
USER_BATCH = 500_000


def prepare(
    campaign: Campaign | str | Path,
    out: str | Path,
    *,
    threads: int | None = None,
    memory: str | None = None,
    cluster: bool = False,
    progress: Progress | None = None,
) -> Transitions:
    """Read, check, encode and link a log; write DATA.

    Args:
        campaign: a campaign, or the path of its file.
        out: the DATA folder; an older one of ours is replaced, whole or not at all. If a run is cut off, the next one
            with the same campaign and log goes on with what is left.
        threads: of DuckDB; None: its choice.
        memory: what DuckDB may hold before it writes to disk, as "4GB".
        cluster: count and encode the features on a Ray cluster, whose machines see the log and `out` under the same
            paths.
        progress: called with the share done and what is being done.

    Returns:
        The DATA folder, opened.

    Raises:
        CampaignError: if the campaign file is wrong, or names what the log does not have.
        LogError: if the log cannot be read or fails a check that blocks.
        FolderError: if `out` holds something that outlay did not write, or another process is writing it.
    """
    if not isinstance(campaign, Campaign):
        campaign = Campaign.load(campaign)
    out = as_path(out, "out", "the path to write to")
    report = telling(progress)
    check_replaceable(out, "data")
    about = _about(campaign)
    with resumable_folder(out, about) as (folder, done):
        _fill(_Making(campaign, folder, done, _mapper(threads, cluster), report), threads, memory)
        if _about(campaign)["files"] != about["files"]:
            raise changed(campaign.source)
    report(1.0, "done")
    return Transitions.open(out)


class _Making(NamedTuple):
    """DATA being made: of a campaign, in a folder, of which some is done; what maps its blocks, and who is told."""

    campaign: Campaign
    folder: Path
    done: Journal
    over: Mapper
    report: Progress


class _LogRows(NamedTuple):
    """The rows of DATA: their table, how many; where some were filled in, `[rows of the log]` the others' places."""

    table: str
    number: int
    places: NDArray[np.int64] | None


def _fill(making: _Making, threads: int | None, memory: str | None) -> None:
    """Write all that a DATA folder holds, the manifest last; blocks of features that are done already are left."""
    campaign, folder, report = making.campaign, making.folder, making.report
    work, fetched = folder / "work", folder / FETCHED
    shutil.rmtree(work, ignore_errors=True)  # of a run that was cut off
    work.mkdir()
    report(0.0, "reading the log")
    with open_log(
        campaign, work, threads=threads, memory=memory, fetched=fetched, tell=lambda text: report(0.0, text)
    ) as log:
        campaign, making = log.campaign, making._replace(campaign=log.campaign)
        report(0.05, "linking rows")
        link(log)
        report(0.08, "checking")
        facts = inspect(log)
        refuse(campaign, facts)
        found = _found(log, facts, assignment(log, facts))
        rows = _rows(log, facts.rows, work, report)
        columns = Columns(folder, rows.number)
        report(0.2, "reading features")
        files, blocks = find_features(log, work)
        if sum(block.rows for block in blocks) != facts.rows:
            raise changed(campaign.source)
        schema = _schema(making, log, files, blocks)
        users, segments, clusters = _users(log, rows.table, facts.last_time, folder)
        actions = np.array([action.value for action in facts.actions], np.float64)
        write_roles(log, rows.table, actions, columns, counted(within(report, 0.4, 0.5), rows.number, "writing roles"))
        found |= {"rows": rows.number, "users": len(users), "segments": segments, "even": write_links(log, columns)}
        found |= {} if clusters is None else {"clusters": clusters}
        schema, states, found["code_columns"] = _encode(making, log, schema, (files, blocks), columns, rows, actions)
    shutil.rmtree(work)
    shutil.rmtree(fetched, ignore_errors=True)
    report(0.9, "finishing")
    _finish(campaign, folder, columns, schema, users, states, found)


def _rows(log: Log, count: int, work: Path, report: Progress) -> _LogRows:
    """The log's rows, with missing days filled in and linked again where the campaign says that the log is complete."""
    if not log.campaign.log.complete:
        return _LogRows("roles", count, None)
    report(0.18, "filling missing days")
    every = complete(log)
    places = _places(log, count)
    np.save(work / PLACES, places)
    link(log, "completed")
    return _LogRows("completed", every, places)


def _encode(
    making: _Making,
    log: Log,
    schema: Schema,
    features: tuple[FeatureFiles, list[Block]],
    columns: Columns,
    rows: _LogRows,
    actions: NDArray[np.float64],
) -> tuple[Schema, StateCollector | None, Mapping[str, Sequence[int]]]:
    """Write the features, and summaries of past days where the campaign has them.

    Returns:
        The schema with those; the distinct states, where there are no past days; how codes lie on disk.
    """
    history, (files, blocks), report = History.of(making.campaign), features, making.report
    if history is not None:
        feature_terms(log.source, making.campaign, history)  # an error now, not after minutes
    places = None if rows.places is None else making.folder / "work" / PLACES
    encoding = Encoding.of(schema, files, columns.folder, places)
    write_features(
        encoding,
        blocks,
        columns,
        counted(
            within(report, 0.5, 0.9 if history is None else 0.7),
            sum(block.rows for block in blocks),
            "encoding features",
        ),
        over=making.over,
        done=making.done,
        summaries=0 if history is None else len(history.names),
    )
    if history is None:
        return schema, find_states(encoding, blocks, columns, len(actions)), encoding.groups
    tell = counted(within(report, 0.7, 0.9), rows.number, "summarising the past")
    schema = write_history(log, history, schema, columns, rows.places, actions, tell)
    write_recent(log, history, actions, making.folder)
    return schema, None, encoding.groups


def _found(log: Log, facts: Facts, assigned: Assignment) -> dict[str, Any]:
    """Return what the manifest says of the log itself."""
    return {
        "rows_in_log": facts.rows,
        "actions": [float(action.value) for action in facts.actions],
        "first_time": events.shown(facts.first_time, dates=log.dates),
        "last_time": events.shown(facts.last_time, dates=log.dates),
        "assignment": assigned.to_dict(),
        **({} if log.credited is None else {"events": asdict(log.credited) | {"words": log.credited.words}}),
        **({} if log.ripeness is None else {"ripeness": asdict(log.ripeness) | {"words": log.ripeness.words}}),
    }


def _mapper(threads: int | None, cluster: bool) -> Mapper:
    if cluster:
        from outlay.cluster.ray_cluster import on_cluster

        return on_cluster
    return partial(in_threads, threads=threads or processors())


def _finish(
    campaign: Campaign,
    folder: Path,
    columns: Columns,
    schema: Schema,
    users: NDArray[Any],
    states: StateCollector | None,
    found: dict[str, Any],
) -> None:
    """Put all on disk and write the manifest, with what was `found` in the log."""
    num_states = states.write(folder) if states else None
    steady = found.pop("even") and not any(
        columns.arrays[name].any() for name in ("forced", "terminal") if name in columns.arrays
    )
    user_counts = np.bincount(users["split"], minlength=3)
    row_counts = np.bincount(users["split"][columns.arrays["user"]], minlength=3)
    shapes = columns.finish()
    schema.write(folder / "vocabulary.parquet")
    (folder / COUNTED).unlink()
    np.save(folder / "users.npy", users)
    if hashed := [field.name for field in schema.categorical if field.buckets]:
        words = f"{', '.join(hashed)} {hashed_words(len(hashed), campaign.train.max_values)}"
        found["hashed"] = {"fields": hashed, "words": words}
    write_manifest(
        folder,
        "data",
        {
            "outlay": __version__,
            **found,
            "states": num_states,
            "steady": steady,
            "columns": shapes,
            "users_per_split": dict(zip(SPLITS, user_counts.tolist(), strict=True)),
            "rows_per_split": dict(zip(SPLITS, row_counts.tolist(), strict=True)),
            "campaign": campaign.model_dump(by_alias=True, mode="json", exclude_none=True),
            "campaign_file": str(campaign.path.absolute()),
            "source": shown(campaign.source),
            "data_hash": _data_hash(folder, shapes),
        },
    )


def _about(campaign: Campaign) -> dict[str, Any]:
    """What DATA is made of: the campaign, and the size and time of change of every file of its log."""
    paths = [campaign.source]
    if campaign.log.events is not None:
        paths.append(absolute(campaign.log.events.source, campaign.path.parent))
    files: list[Any] = []
    with suppress(LogError, OSError):  # which are told where the files are read
        for path in paths:
            if not isinstance(path, str):  # what lies elsewhere has been copied, and the copy stays
                files += stamps(find_files(path, campaign.path))
    about = {"outlay": __version__, "campaign": campaign.model_dump(by_alias=True, mode="json"), "files": files}
    if isinstance(campaign.source, str):
        about["day"] = datetime.now(UTC).date().isoformat()  # the copy of an earlier day is not gone on with
    return about


def _schema(making: _Making, log: Log, files: FeatureFiles, blocks: list[Block]) -> Schema:
    """How features are encoded: counted, or as an earlier try counted it."""
    path, report = making.folder / COUNTED, within(making.report, 0.22, 0.4)
    if COUNTED in making.done:
        return Schema.read(path)
    rows = sum(block.rows for block in blocks)
    schema = make_schema(log, files, blocks, counted(report, rows, "counting values"), making.over)
    with new_file(path) as temporary:
        schema.write(temporary)
    making.done.add(COUNTED)
    return schema


def _places(log: Log, rows: int) -> NDArray[np.int64]:
    """`[rows]` where each row of the log stands among the completed ones."""
    places = np.empty(rows, np.int64)
    query = "SELECT row, source_row FROM completed WHERE source_row IS NOT NULL"
    for batch in log.source.batches(query, USER_BATCH):
        places[batch.column("source_row").to_numpy()] = batch.column("row").to_numpy()
    return places


def _users(log: Log, table: str, last_time: int, folder: Path) -> tuple[NDArray[Any], list[str], int | None]:
    """users.npy, the names of the segments and the number of clusters; writes names, and the cluster of each user."""
    train = log.campaign.train
    [(count,)] = log.source.run("SELECT count(*) FROM users")
    users = np.zeros(count, USERS)
    bounds = np.cumsum(train.shares)[:2]
    segment: list[Any] = []
    called: list[Any] = []
    clusters = _clusters(log)
    start = "last_row" if log.campaign.log.start == "latest" else "first_row"
    query = f"""
        SELECT u.id, u."user", u.first_row, u.{start} AS start_row, {last_time} - u.first_time + 1 AS span, r.segment,
            u.first_time
        FROM users u JOIN {table} r ON r.row = u.first_row ORDER BY u.id"""
    for batch in log.source.batches(query, USER_BATCH):
        at = batch.column("id").to_numpy()
        users["first_row"][at] = batch.column("first_row").to_numpy()
        users["start_row"][at] = batch.column("start_row").to_numpy()
        users["window"][at] = batch.column("span").to_numpy()
        name = user_text(batch.column("user"))
        names = {"user": name, "first_time": batch.column("first_time").cast(pa.int64())}
        if clusters is not None:
            names["cluster"] = clusters.take(pa.array(at))
        called.append(pa.table(names))
        draw = uniform(train.salt, names.get("cluster", name).to_pylist())
        users["split"][at] = np.searchsorted(bounds, draw, side="right")
        segment.append(canonical_text(batch.column("segment")))
    pq.write_table(pa.concat_tables(called), folder / NAMES)
    segments = pa.chunked_array(segment).combine_chunks().dictionary_encode()
    texts = [*segments.dictionary.to_pylist(), MISSING_SEGMENT]
    ordered = sorted(set(texts[:-1]) | ({MISSING_SEGMENT} if segments.null_count else set()))
    place = np.array([ordered.index(text) if text in ordered else -1 for text in texts], np.int16)
    users["segment"] = place[segments.indices.fill_null(len(texts) - 1).to_numpy()]
    grouped = None if clusters is None else _write_clusters(log, clusters, users, folder)
    empty = [name for i, name in enumerate(SPLITS) if not np.any(users["split"] == i)]
    if empty:
        raise LogError(
            f"its {count:,} users are too few: none falls into the part {' and '.join(empty)}.",
            file=log.source.file,
            where="train.shares",
            way_out="Give a log of more users, or larger shares for that part.",
        )
    return users, ordered, grouped


def _clusters(log: Log) -> Any:
    """`[U]` Arrow strings: the name of each user's cluster; None where every user is independent."""
    if log.campaign.log.cluster is None:
        return None
    query = """
        SELECT u.id, any_value(r.cluster) AS cluster FROM users u JOIN roles r ON r."user" = u."user"
        GROUP BY u.id ORDER BY u.id"""
    found = [canonical_text(batch.column("cluster")) for batch in log.source.batches(query, USER_BATCH)]
    return pa.chunked_array(found).combine_chunks()


def _write_clusters(log: Log, clusters: Any, users: NDArray[Any], folder: Path) -> int:
    """Write the number of each user's cluster, and give how many clusters there are.

    Raises:
        LogError: if a part has fewer clusters than a standard error needs.
    """
    coded = clusters.dictionary_encode()
    numbers = coded.indices.to_numpy().astype(np.int64)
    for split, name in enumerate(SPLITS):
        count = len(np.unique(numbers[users["split"] == split]))
        if count < LEAST:
            raise LogError(
                f"its {len(coded.dictionary)} clusters are too few: {count} of them falls into the part {name}, which "
                f"needs {LEAST}.",
                file=log.source.file,
                where="log.cluster",
                way_out="Give smaller clusters, a longer log, or larger shares for that part (train.shares).",
            )
    np.save(folder / CLUSTERS, numbers)
    return len(coded.dictionary)


def _data_hash(folder: Path, columns: dict[str, Any]) -> str:
    """Hash of everything that training reads."""
    digest = hashlib.sha256()
    for path in (
        folder / "users.npy",
        folder / "vocabulary.parquet",
        *([folder / CLUSTERS] if (folder / CLUSTERS).exists() else []),
        *(folder / "columns" / f"{n}.npy" for n in sorted(columns)),
    ):
        digest.update(f"{path.name} {sha256(path)}\n".encode())
    return digest.hexdigest()
