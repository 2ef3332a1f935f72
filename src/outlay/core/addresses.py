"""Where a source lies: a path of this machine, a database, or object storage.

source = "log-*.parquet"                                       files of this machine, a file or a glob
source = ["2025/*.csv", "2026/*.csv"]                          several of them, as one table
source = "shop.sqlite", query = "SELECT …"                     rows of an SQLite file
source = "postgresql://reader@host/shop", query = "SELECT …"   rows of a query
source = "s3://bucket/log-*.parquet", "gs://…"                 files of object storage
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

DATABASES = ("postgresql", "postgres")
OBJECTS = ("s3", "gs")
SQLITE = (".sqlite", ".sqlite3", ".db")

Place = str | Path | tuple[Path, ...]  # an address, a path or glob, or several of these


def scheme_of(source: str | Path) -> str | None:
    """What stands before `://`; None for a path of this machine."""
    scheme, found, _ = str(source).partition("://")
    return scheme.lower() if found else None


def absolute(source: str | tuple[str, ...], folder: Path) -> Place:
    """The address, or the paths, which may be relative to a folder."""
    if isinstance(source, tuple):
        return tuple((folder / each).absolute() for each in source)
    return source if scheme_of(source) else (folder / source).absolute()


def shown(place: Place) -> str:
    """A place as messages and manifests name it."""
    return ", ".join(map(str, place)) if isinstance(place, tuple) else str(place)


def mistake(source: str | tuple[str, ...], query: str | None) -> str | None:
    """What is wrong with an address, in words; None if nothing is."""
    if isinstance(source, tuple):
        if not source:
            return "source lists no file"
        if any(scheme_of(each) for each in source):
            return "source lists an address; a list is of files of this machine"
        return None if query is None else "query is given, and source is a list of files"
    scheme = scheme_of(source)
    if scheme in DATABASES and query is None:
        return 'source is a database; give the rows to read as query = "SELECT …"'
    if query is not None and scheme not in DATABASES and not source.lower().endswith(SQLITE):
        return 'query is given, and source is no database (source = "postgresql://reader@host/shop")'
    if scheme is None:
        return None
    if scheme not in (*DATABASES, *OBJECTS):
        return f"source begins with {scheme}://; known are paths, postgresql://, s3:// and gs://"
    parts = urlsplit(source)
    if parts.password or "password" in parse_qs(parts.query):
        where = "PGPASSWORD or ~/.pgpass" if scheme in DATABASES else "the environment or the profile of the cloud"
        return f"source holds a password, which would be copied with the campaign; leave it out: {where} is read"
    return None
