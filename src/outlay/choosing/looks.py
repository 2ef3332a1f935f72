"""Looks at the certify users, counted together wherever their rows are prepared.

Each mixture that is evaluated on them is a look, and so is the frontier of a run, all its mixtures together. Look k
gets α/(k(k+1)), so that all looks together keep α, and the tenth still has a hundredth of it. The same bundle or
frontier looked at again, on the same data, is the same look.

Where folds take turns everyone certifies: one look at them is one look at all folds.

A look counts for all data that share half of their certify rows or more: a row is the same where user, time, action
and the user's action before it are. So another DATA folder, another reward, more features, a longer log or some of its
users do not begin anew. Users who are called the same in another campaign do, as their days or actions are others: rows
without an incentive are left out, as in most logs they are most of the rows, and alike by chance.

The count is kept in one file of the machine's user (OUTLAY_LOOKS names another), changed in one transaction under its
lock, so that no look is lost where two evaluations run at once or one is killed. It holds hashes, no names. Each DATA
folder has a copy of what counts for it, which goes with the folder to another machine; a folder that cannot be written
is counted all the same.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from outlay.core.errors import FolderError
from outlay.core.files import write_json
from outlay.core.transitions import CERTIFY, Transitions
from outlay.ops.hashing import Hashes, mixed, shared, smallest, uniform

FILE = "looks.json"
SETTING = "OUTLAY_LOOKS"
SAME = 0.5  # of the certify rows of the smaller data: where more are shared, one look has seen the other's users
PATIENCE = 60.0  # seconds to wait while another process counts; it takes milliseconds
TABLES = """
CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, hashes BLOB UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS looks (number INTEGER PRIMARY KEY, rows INTEGER NOT NULL, what TEXT NOT NULL);
"""


class Look(NamedTuple):
    """One look.

    Attributes:
        number: which it is at these users, from 1.
        alpha: what it may spend.
    """

    number: int
    alpha: float


def counted_in() -> Path:
    """The file that looks are counted in.

    Raises:
        FolderError: if nothing says where it is to lie.
    """
    if named := os.environ.get(SETTING):
        return Path(named).expanduser()
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:
        raise FolderError(
            "there is no home folder to count looks at the certify users in.", where=SETTING, way_out=_way_out()
        ) from None
    return state / "outlay" / "looks.sqlite"


def looks(data: Transitions, split: int = CERTIFY) -> list[str]:
    """What was looked at that counts for these users, in order.

    Raises:
        FolderError: if a record is damaged: without it no level can be stated.
    """
    file = counted_in()
    with _refusing(file):
        if not file.exists():
            return _copy(data.folder)
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", timeout=PATIENCE, uri=True)) as store:
            return _known(store, data, _sample(data, split))


def next_look(data: Transitions, split: int = CERTIFY) -> int:
    """The number of the next new look, from 1."""
    return len(looks(data, split)) + 1


def alpha_of(number: int, confidence: float) -> float:
    """The α of a look: Σ 1/(k(k+1)) = 1."""
    return float((1 - confidence) / (number * (number + 1)))


def next_alpha(data: Transitions, confidence: float, split: int = CERTIFY) -> float:
    """The α that the next new look will get."""
    return alpha_of(next_look(data, split), confidence)


def look(data: Transitions, what: str, confidence: float, split: int = CERTIFY) -> Look:
    """Count a look at a bundle, a policy or a frontier on the users of a split of these data.

    Raises:
        FolderError: if it cannot be counted: a certificate rests on the count.
    """
    name, file, sample = f"{what}@{data.manifest.data_hash[:16]}", counted_in(), _sample(data, split)
    with _refusing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file, timeout=PATIENCE, isolation_level=None)) as store:
            store.execute("BEGIN IMMEDIATE")  # nobody else counts until the commit
            for statement in TABLES.split(";"):
                store.execute(statement)
            known = _known(store, data, sample)
            found = known if name in known else [*known, name]
            _record(store, sample, found)
            if found != _copy(data.folder):
                with suppress(FolderError):  # a folder that cannot be written; a copy of it finds the count here
                    write_json(data.folder / FILE, found)
            store.execute("COMMIT")
    number = found.index(name) + 1
    return Look(number, alpha_of(number, confidence))


def _sample(data: Transitions, split: int) -> Hashes:
    """Some of the rows with an incentive: user, time, action and the action before it of each, hashed."""
    users = data.users_of(split)
    names = np.zeros(len(data.users))
    names[users] = uniform("looks", data.user_ids().take(users).to_pylist())
    amount = data.actions[data.action] + 0.0  # −0 is 0
    goes_on = np.flatnonzero(data.next_row >= 0)
    before = np.full(len(data), np.inf)
    before[data.next_row[goes_on]] = amount[goes_on]
    rows = data.rows_of(split)
    given = rows[amount[rows] > data.actions.min()]
    rows = given if len(given) else rows
    user = data.user[rows]
    time = data.first_times()[user] + data.day[rows]
    return smallest(mixed(names[user], time, amount[rows], before[rows]))


def _known(store: sqlite3.Connection, data: Transitions, sample: Hashes) -> list[str]:
    """What counts for these data: from the file, then what only the folder's copy knows, of another machine."""
    if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'looks'").fetchall():  # killed at its first look
        return _copy(data.folder)
    sets = store.execute("SELECT id, hashes FROM rows").fetchall()
    alike = {key for key, hashes in sets if shared(np.frombuffer(hashes, np.uint64), sample) >= SAME}
    order = store.execute("SELECT rows, what FROM looks ORDER BY number")
    return list(dict.fromkeys([*(what for key, what in order if key in alike), *_copy(data.folder)]))


def _record(store: sqlite3.Connection, sample: Hashes, found: list[str]) -> None:
    """Keep, for this sample of rows, what of `found` is not kept for it yet."""
    store.execute("INSERT OR IGNORE INTO rows (hashes) VALUES (?)", (sample.tobytes(),))
    ((key,),) = store.execute("SELECT id FROM rows WHERE hashes = ?", (sample.tobytes(),))
    kept = {what for (what,) in store.execute("SELECT what FROM looks WHERE rows = ?", (key,))}
    store.executemany("INSERT INTO looks (rows, what) VALUES (?, ?)", [(key, w) for w in found if w not in kept])


def _copy(folder: Path) -> list[str]:
    """The folder's own copy."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        return [str(name) for name in json.loads(path.read_text(encoding="utf-8"))]
    except ValueError:
        raise FolderError(
            "is not valid JSON, so it is unknown how often the certify users were looked at.",
            file=path,
            way_out="Prepare the data again with another train.salt.",
        ) from None


@contextmanager
def _refusing(file: Path) -> Iterator[None]:
    """Say in our words why the file cannot be used."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        raise FolderError(
            f"looks at the certify users cannot be counted in it ({error}).", file=file, way_out=_way_out()
        ) from None
    except sqlite3.DatabaseError as error:
        raise FolderError(
            f"is damaged ({error}), so it is unknown how often certify users were looked at.",
            file=file,
            way_out="Restore it; or remove it, and prepare the data again with another train.salt.",
        ) from None


def _way_out() -> str:
    return f"A certificate rests on the count: set {SETTING} to a file that can be written and is kept."
