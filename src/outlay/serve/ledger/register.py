"""The campaigns of a ledger: caps, pause, notes, and whether their users are counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from outlay.serve.ledger.admission import Standing
from outlay.serve.ledger.caps import Caps
from outlay.serve.ledger.ids import new_decision_id
from outlay.serve.ledger.ledger import LedgerError, Note
from outlay.serve.ledger.pages import Transaction
from outlay.serve.ledger.sums import COLUMNS, USER, USER_DAY
from outlay.serve.ledger.tables import CAMPAIGN, FORMAT, NOTE, TABLES, create
from outlay.serve.ledger.terms import Terms

_TERMS = ("settings", "bundle", "path")
NEW = "{}"  # caps that nobody has set yet; no other transaction ever sees them


def prepare(books: Transaction, found: Mapping[str, Collection[str]], place: str, short: str = "") -> None:
    """Make the tables if there are none; `short` as in `tables.create`.

    Args:
        books: a transaction.
        found: the tables that are there, each with its columns.
        place: for errors.
        short: as in `tables.create`.

    Raises:
        LedgerError: if the tables found are not ours, or of another version.
    """
    if not found:
        for statement in create(short):
            books.run(statement)
        return
    if "ledger_format" not in found:
        raise LedgerError("it is no outlay ledger.", file=place, way_out="Name a new place.")
    version = books.read("select version from ledger_format")[0][0]
    if version > FORMAT:
        raise LedgerError(
            f"it is a ledger of format {version}; this outlay reads format {FORMAT}.", file=place,
            way_out="Use the outlay that wrote it, or a newer one.",
        )  # fmt: skip
    changed = [table.name for table in TABLES if set(table.columns) != set(found.get(table.name, ()))]
    if version == FORMAT and not changed:
        return
    unlike = f" with other columns in {', '.join(map(repr, changed))}" if version == FORMAT else ""
    raise LedgerError(
        f"it is a ledger of format {version}{unlike}, written by an older outlay; this one reads format {FORMAT}.",
        file=place,
        way_out="Name a new ledger for what is served from now on, and take the log out of this one with the outlay "
        "that wrote it (outlay export-log).",
    )  # fmt: skip


def by_table(pairs: Iterable[tuple[Any, ...]]) -> dict[str, list[str]]:
    """Columns by table, of pairs of a table and a column."""
    found: dict[str, list[str]] = {}
    for table, column in pairs:
        found.setdefault(str(table), []).append(str(column))
    return found


def read_clock(books: Transaction) -> None:
    """Set the process's clock by the ledger's."""
    asked = books.clock.machine.ticks()
    [(told,)] = books.read(f"select {books.time}")
    books.clock.take(told, asked)


def standings(books: Transaction, names: Collection[str], lock: str = "") -> dict[str, Standing]:
    """Caps and pause of campaigns; with `lock`, held in the order of their names. Reads the ledger's clock.

    Raises:
        LedgerError: if the ledger has no such campaign.
    """
    sql = f"""select name, caps, paused, {books.time} from campaign
        where name in (select a from {{keys}} as k) order by name {lock}"""
    asked, found = books.clock.machine.ticks(), dict[str, Standing]()
    for name, caps, paused, told in books.match(sql, [(name,) for name in names]):
        if not found:
            books.clock.take(told, asked)
        found[name] = Standing(msgspec.json.decode(caps, type=Caps), bool(paused))
    if len(found) < len(names):
        unknown = sorted(set(names) - set(found))
        raise LedgerError(f"the ledger has no campaign {unknown[0]!r}.", way_out="Set its caps first.")
    return found


def enter(books: Transaction, campaign: str, lock: str) -> Terms | None:
    """Lock a campaign, and make it if there is none of that name; its terms, or None where it is new."""
    books.insert(CAMPAIGN, [(campaign, NEW, False, False, False, "", "", "")], "on conflict (name) do nothing")
    return terms(books, campaign, lock)


def terms(books: Transaction, campaign: str, lock: str = "") -> Terms | None:
    """By what its servers go; None where there is no such campaign yet."""
    for caps, *others in books.read(
        f"select caps, settings, bundle, path from campaign where name = ? {lock}", campaign
    ):
        if caps != NEW:
            return Terms(caps=msgspec.json.decode(caps, type=Caps), **dict(zip(_TERMS, others, strict=True)))
    return None


def set_terms(books: Transaction, campaign: str, new: Terms) -> None:
    """Replace all of them but the caps."""
    sql = "update campaign set settings = ?, bundle = ?, path = ? where name = ?"
    books.run(sql, new.settings, new.bundle, new.path, campaign)


def set_caps(books: Transaction, campaign: str, before: Caps, caps: Caps) -> None:
    """Replace the caps, leave a note of it, and begin or end the counters of users."""
    text = msgspec.json.encode(caps).decode()
    sql = "update campaign set caps = ?, by_user = ?, by_user_day = ? where name = ?"
    books.run(sql, text, caps.by_user, caps.by_user_day, campaign)
    _leave(books, campaign, "caps", text)
    for scope, was, now in (
        (USER, before.by_user, caps.by_user),
        (USER_DAY, before.by_user_day, caps.by_user_day),
    ):
        if now and not was:
            books.take_time()
            sql = f"insert into counter ({COLUMNS}) select {COLUMNS} from ({scope.sums}) as sums where campaign = ?"
            books.run(sql, campaign)
        if was and not now:
            books.take_time()
            books.run(f"delete from counter where campaign = ? and scope = ? and {scope.here}", campaign, scope.name)


def set_paused(books: Transaction, campaign: str, paused: bool) -> None:
    """Begin or end a pause, and leave a note of it."""
    books.run("update campaign set paused = ? where name = ?", paused, campaign)
    _leave(books, campaign, "pause", "true" if paused else "false")


def add_note(books: Transaction, campaign: str, note: Note) -> Note:
    """Write a note where none stands under its kind and key; what stands there then."""
    row = campaign, note.kind, note.key, note.ts, note.content
    books.insert(NOTE, [row], "on conflict (campaign, kind, key) do nothing")
    sql = "select ts, content from note where campaign = ? and kind = ? and key = ?"
    [(ts, content)] = books.read(sql, campaign, note.kind, note.key)
    return Note(kind=note.kind, key=note.key, ts=ts, content=content)


def notes(books: Transaction, campaign: str, kind: str) -> list[Note]:
    """All notes of a kind, by ts and key."""
    found = books.read("select key, ts, content from note where campaign = ? and kind = ?", campaign, kind)
    return [Note(kind=kind, key=key, ts=ts, content=content) for key, ts, content in sorted(found, key=_by_time)]


def _by_time(row: tuple[Any, ...]) -> tuple[int, str]:
    return row[1], row[0]  # in the order of the characters, not of the database's language


def _leave(books: Transaction, campaign: str, kind: str, content: str) -> None:
    now = books.clock.now()
    add_note(books, campaign, Note(kind=kind, key=new_decision_id(now), ts=now, content=content))
