"""What must not be in the ledger of `serve_crash.py`, in SQL of its own: outlay's code has no part in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

TOTAL, RANDOM, OF_USER, OFFERS = 500_000, 100_000, 800, 4  # the caps in serve_crash.CONFIG, in minor units

_COMMITTED = "sum(held) + sum(paid) - sum(excess)"
_NOW = "extract(epoch from clock_timestamp()) * 1000"

WRONG = {
    "the campaign is over its cap": f"select {_COMMITTED} from decision having {_COMMITTED} > {TOTAL}",
    "a day is over its cap": f"select day, {_COMMITTED} from decision group by day having {_COMMITTED} > {TOTAL}",
    "the random slice is over its cap": f"""
        select {_COMMITTED} from decision where arm = 'random' having {_COMMITTED} > {RANDOM}""",
    "a user is over the amount": f"""
        select "user", {_COMMITTED} from decision group by "user" having {_COMMITTED} > {OF_USER}""",
    "a user has too many offers": f"""
        select "user", count(*) from decision where action <> 0 group by "user" having count(*) > {OFFERS}""",
    "an incentive has nothing reserved": "select decision_id from decision where action <> 0 and amount = 0",
    "a request is answered twice": "select request_id from decision group by request_id having count(*) > 1",
    "a decision is redeemed twice": """
        select decision_id from outcome where kind = 'redeemed' and status <> 'refused'
        group by decision_id having count(*) > 1""",
    "more is given back than was paid": "select decision_id from decision where paid < 0",
    "the movements are not the money": """
        select d.decision_id from decision as d left join entry as e on e.decision_id = d.decision_id
        group by d.decision_id, d.amount, d.held, d.paid
        having d.amount + coalesce(sum(e.reserved), 0) <> d.held or coalesce(sum(e.settled), 0) <> d.paid""",
}
WRONG_TIMES = {  # where the database's clock is everybody's
    "decisions are timed after the ledger's clock": f"select decision_id from decision where ts > {_NOW}",
    "movements are timed after the ledger's clock": f"select decision_id from entry where ts > {_NOW}",
    "reservations were released early": """
        select e.decision_id from entry as e join decision as d on d.decision_id = e.decision_id
        where e.kind = 'release' and e.ts < d.expires""",
}


def wrong(url: str) -> list[str]:
    """What is wrong, in words, with the first row of each kind."""
    return [f"{words}: {found[0]}" for words, sql in _queries(url).items() if (found := rows(url, sql))]


def settings(url: str) -> list[Any]:
    """What a refused start must leave alone."""
    return rows(url, "select name, caps, settings, bundle from campaign")


def _queries(url: str) -> dict[str, str]:
    return WRONG if url.startswith("sqlite") else WRONG | WRONG_TIMES


def rows(url: str, sql: str) -> list[Any]:
    """The answer of the database."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as file:
            return file.execute(sql).fetchall()
    import psycopg

    with psycopg.connect(url, options="-c search_path=outlay") as database:
        return database.execute(sql.encode()).fetchall()
