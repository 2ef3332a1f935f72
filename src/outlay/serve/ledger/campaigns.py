"""A ledger's tables, clock and campaigns: caps, pause, notes, and the counters of users."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from outlay.serve.ledger.actor import Actor, current_actor
from outlay.serve.ledger.admission import CampaignState
from outlay.serve.ledger.caps import CampaignConfig, Caps
from outlay.serve.ledger.ledger import LedgerError, Note
from outlay.serve.ledger.records import new_decision_id
from outlay.serve.ledger.repository import Transaction
from outlay.serve.ledger.tables import CAMPAIGN, COLUMNS, FORMAT, NOTE, TABLES, USER, USER_DAY, create_statements

_CONFIG = ("settings", "bundle", "path")
ACTOR = "actor"  # kind of the notes that say whose changes are
NEW = "{}"  # caps that have not been set yet; no other transaction ever sees them


class ActorNote(msgspec.Struct, frozen=True):
    """Content of an "actor" note.

    Attributes:
        change: kind of the note with the same key, which says what was changed.
        actor: who did it.
    """

    change: str
    actor: Actor


def prepare(tx: Transaction, existing: Mapping[str, Collection[str]], place: str, short: str = "") -> None:
    """Create the tables if there are none.

    Args:
        tx: a transaction.
        existing: the tables that exist, each with its columns.
        place: for errors.
        short: as in `tables.create_statements`.

    Raises:
        LedgerError: if the existing tables are not a ledger's, or of another version. Further tables and columns do
            not matter: nothing reads or fills them.
    """
    if not existing:
        for statement in create_statements(short):
            tx.run(statement)
        return
    if "ledger_format" not in existing:
        raise LedgerError("it is not an outlay ledger.", file=place, way_out="Give the URL of a new ledger.")
    version = tx.read("select version from ledger_format")[0][0]
    if version > FORMAT:
        raise LedgerError(
            f"it is a ledger of format {version}; this version of outlay reads format {FORMAT}.",
            file=place,
            way_out="Use the version of outlay that wrote it, or a newer one.",
        )
    changed = [table.name for table in TABLES if not set(table.columns) <= set(existing.get(table.name, ()))]
    if version == FORMAT and not changed:
        return
    unlike = f" with other columns in {', '.join(map(repr, changed))}" if version == FORMAT else ""
    raise LedgerError(
        f"it is a ledger of format {version}{unlike}, written by an older version of outlay; this one reads format "
        f"{FORMAT}.",
        file=place,
        way_out="Serve from a new ledger, and export the log of this one with the version of outlay "
        "that wrote it (outlay export-log).",
    )


def columns_by_table(pairs: Iterable[tuple[Any, ...]]) -> dict[str, list[str]]:
    """Group pairs of a table and a column by table."""
    columns: dict[str, list[str]] = {}
    for table, column in pairs:
        columns.setdefault(str(table), []).append(str(column))
    return columns


def read_clock(tx: Transaction) -> None:
    """Set the process's clock from the ledger's."""
    requested = tx.clock.machine.ticks()
    [(reading,)] = tx.read(f"select {tx.time}")
    tx.clock.take(reading, requested)


def states(tx: Transaction, names: Collection[str], lock: str = "") -> dict[str, CampaignState]:
    """Return caps and pause of campaigns; with `lock`, lock them in the order of their names. Reads the clock too.

    Raises:
        LedgerError: if the ledger has no such campaign.
    """
    sql = f"""select name, caps, paused, {tx.time} from campaign
        where name in (select a from {{keys}} as k) order by name {lock}"""
    requested, campaigns = tx.clock.machine.ticks(), dict[str, CampaignState]()
    for name, caps, paused, reading in tx.match(sql, [(name,) for name in names]):
        if not campaigns:
            tx.clock.take(reading, requested)
        campaigns[name] = CampaignState(_caps(caps), bool(paused))
    if len(campaigns) < len(names):
        unknown = sorted(set(names) - set(campaigns))
        raise LedgerError(f"the ledger has no campaign {unknown[0]!r}.", way_out="Set its caps first.")
    return campaigns


def create_and_lock(tx: Transaction, campaign: str, lock: str) -> CampaignConfig | None:
    """Lock a campaign, and create it if it does not exist; return its configuration, or None if it is new."""
    tx.insert(CAMPAIGN, [(campaign, NEW, False, False, False, "", "", "")], "on conflict (name) do nothing")
    return config(tx, campaign, lock)


def config(tx: Transaction, campaign: str, lock: str = "") -> CampaignConfig | None:
    """Return what a campaign's servers share; None if there is no such campaign yet."""
    for caps, *others in tx.read(f"select caps, settings, bundle, path from campaign where name = ? {lock}", campaign):
        if caps != NEW:
            return CampaignConfig(caps=_caps(caps), **dict(zip(_CONFIG, others, strict=True)))
    return None


def _caps(text: str) -> Caps:
    """Return caps. Raises LedgerError if one is set whose kind is unknown here: it would limit nothing."""
    try:
        return msgspec.json.decode(text, type=Caps)
    except msgspec.ValidationError:  # a newer version wrote them
        given = {name: cap for name, cap in msgspec.json.decode(text).items() if cap is not None}
    try:
        return msgspec.convert(given, Caps)
    except msgspec.ValidationError as error:
        raise LedgerError(
            f"the campaign has caps that this version of outlay does not know: {error}.",
            way_out="Use the version of outlay that set them.",
        ) from error


def set_config(tx: Transaction, campaign: str, new: CampaignConfig) -> None:
    """Replace what a campaign's servers share, except the caps, and leave a note."""
    sql = "update campaign set settings = ?, bundle = ?, path = ? where name = ?"
    tx.run(sql, new.settings, new.bundle, new.path, campaign)
    shared = {name: getattr(new, name) for name in _CONFIG}
    _leave(tx, campaign, "config", msgspec.json.encode(shared).decode())


def set_caps(tx: Transaction, campaign: str, before: Caps, caps: Caps) -> None:
    """Replace the caps, leave a note, and begin or end counting users."""
    text = msgspec.json.encode(caps).decode()
    sql = "update campaign set caps = ?, by_user = ?, by_user_day = ? where name = ?"
    tx.run(sql, text, caps.by_user, caps.by_user_day, campaign)
    _leave(tx, campaign, "caps", text)
    for scope, was, now in (
        (USER, before.by_user, caps.by_user),
        (USER_DAY, before.by_user_day, caps.by_user_day),
    ):
        if now and not was:
            tx.take_time()
            sql = f"insert into counter ({COLUMNS}) select {COLUMNS} from ({scope.sums}) as sums where campaign = ?"
            tx.run(sql, campaign)
        if was and not now:
            tx.take_time()
            tx.run(f"delete from counter where campaign = ? and scope = ? and {scope.here}", campaign, scope.name)


def set_paused(tx: Transaction, campaign: str, paused: bool) -> None:
    """Begin or end a pause, and leave a note."""
    tx.run("update campaign set paused = ? where name = ?", paused, campaign)
    _leave(tx, campaign, "pause", "true" if paused else "false")


def add_note(tx: Transaction, campaign: str, note: Note) -> Note:
    """Write a note if its kind and key are free; return the note that is stored there."""
    row = campaign, note.kind, note.key, note.ts, note.content
    tx.insert(NOTE, [row], "on conflict (campaign, kind, key) do nothing")
    sql = "select ts, content from note where campaign = ? and kind = ? and key = ?"
    [(ts, content)] = tx.read(sql, campaign, note.kind, note.key)
    return Note(kind=note.kind, key=note.key, ts=ts, content=content)


def notes(tx: Transaction, campaign: str, kind: str) -> list[Note]:
    """Return all notes of a kind, ordered by ts and key."""
    rows = tx.read("select key, ts, content from note where campaign = ? and kind = ?", campaign, kind)
    return [Note(kind=kind, key=key, ts=ts, content=content) for key, ts, content in sorted(rows, key=_by_time)]


def _by_time(row: tuple[Any, ...]) -> tuple[int, str]:
    return row[1], row[0]  # in the order of the characters, not of the database's language


def _leave(tx: Transaction, campaign: str, kind: str, content: str) -> None:
    """Leave a note of a change, and one with the same key that says whose it is.

    Two changes within a millisecond would have notes in the order of chance: a later one gets a later time.
    """
    sql = "select coalesce(max(ts), -1) from note where campaign = ? and kind = ?"
    [(last,)] = tx.read(sql, campaign, kind)
    ts = max(tx.clock.now(), last + 1)
    note = Note(kind=kind, key=new_decision_id(ts), ts=ts, content=content)
    actor = ActorNote(change=kind, actor=current_actor())
    add_note(tx, campaign, note)
    add_note(tx, campaign, replace(note, kind=ACTOR, content=msgspec.json.encode(actor).decode()))
