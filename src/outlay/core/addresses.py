"""Where a source lies: a path of this machine, a database, or object storage.

source = "log-*.parquet"                                       Parquet or CSV, a file or a glob
source = "postgresql://reader@host/shop", query = "SELECT …"   rows of a query
source = "s3://bucket/log-*.parquet", "gs://…"                 files of object storage
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

DATABASES = ("postgresql", "postgres")
OBJECTS = ("s3", "gs")


def scheme_of(source: str | Path) -> str | None:
    """What stands before `://`; None for a path of this machine."""
    scheme, found, _ = str(source).partition("://")
    return scheme.lower() if found else None


def absolute(source: str, folder: Path) -> str | Path:
    """The address, or the path, which may be relative to a folder."""
    return source if scheme_of(source) else (folder / source).absolute()


def mistake(source: str, query: str | None) -> str | None:
    """What is wrong with an address, in words; None if nothing is."""
    scheme = scheme_of(source)
    if scheme in DATABASES and query is None:
        return 'source is a database; give the rows to read as query = "SELECT …"'
    if query is not None and scheme not in DATABASES:
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
