"""Link the rows of each user in time.

Table `users`, a row per user in the order of their first rows: `id` (from 0), `user`, `first_row`, `last_row`,
`first_time`, `last_time`, `segment`, `action`, `propensity`, `forced` (of the first row), `ended` (a terminal row).
Table `links`, a row per row: `row`, `id`, `day` (since the user's first row), `next_row` and `gap` (NULL where none).

With `complete = true` a day without a row is information: the table `completed` holds a row for every day of a user
from the first row to the end of the log (or to a terminal row), with no incentive, no reward and no cost.
"""

from __future__ import annotations

from outlay.core.errors import CampaignError, LogError
from outlay.logs.roles import Log

MAX_GROWTH = 100  # times the rows: beyond, a wrong time is likelier than a sparse log


def link(log: Log, table: str = "roles") -> None:
    """Make the tables `users` and `links` of `roles` or `completed`."""
    run = log.source.run
    run(f"""
        CREATE OR REPLACE TABLE users AS
        SELECT row_number() OVER (ORDER BY first_row) - 1 AS id, * FROM (
            SELECT "user", arg_min(row, "time") AS first_row, arg_max(row, "time") AS last_row,
                min("time") AS first_time, max("time") AS last_time, bool_or(terminal) AS ended
            FROM {table} WHERE "user" IS NOT NULL AND "time" IS NOT NULL GROUP BY "user")""")
    run(f"""
        CREATE OR REPLACE TABLE links AS
        SELECT r.row, u.id, r."time" - u.first_time AS day, r.terminal, r.forced,
            lead(r.row) OVER w AS next_row, lead(r."time") OVER w - r."time" AS gap
        FROM {table} r JOIN users u ON r."user" = u."user" WHERE r."time" IS NOT NULL
        WINDOW w AS (PARTITION BY u.id ORDER BY r."time", r.row)""")


def last_time(log: Log) -> int:
    """The last time unit of the log."""
    return int(log.source.run('SELECT max("time") FROM roles')[0][0])


def complete(log: Log) -> int:
    """Make the table `completed`; needs `users` and `links` of `roles`. Gives its number of rows.

    Raises:
        CampaignError: if the campaign file does not say which action means "no incentive".
        LogError: if the completed log would be absurdly longer than the log.
    """
    campaign, run = log.campaign, log.source.run
    none = campaign.meta.none
    if none is None:
        raise CampaignError(
            "log.complete = true adds days without an incentive, but no action is named for them.",
            file=campaign.path,
            where="campaign.none",
            way_out="Add, as in: none = 0.0",
        )
    end = f"CASE WHEN u.ended THEN u.last_time ELSE {last_time(log)} END"
    days, rows = run(f"SELECT sum({end} - u.first_time + 1), (SELECT count(*) FROM roles) FROM users u")[0]
    if days > MAX_GROWTH * rows:
        raise LogError(
            f"completing {rows:,} rows to daily ones would make {days:,}.",
            file=log.source.file,
            where="log.complete",
            way_out="Check log.time: is its unit the day?",
        )
    costs = ", ".join(f"CASE WHEN r.row IS NULL THEN 0 ELSE r.{name} END AS {name}" for name in log.costs)
    run(f"""
        CREATE OR REPLACE TABLE completed AS
        SELECT row_number() OVER (ORDER BY d.first_row, d."time") - 1 AS row, r.row AS source_row, d."user", d."time",
            CASE WHEN r.row IS NULL THEN CAST({none} AS DOUBLE) ELSE r.action END AS action,
            CASE WHEN r.row IS NULL THEN 0 ELSE r.reward END AS reward, {costs},
            r.propensity, r.row IS NULL OR r.forced AS forced, coalesce(r.terminal, false) AS terminal,
            r.eligible, r.segment
        FROM (SELECT u."user", u.first_row, unnest(range(u.first_time, {end} + 1)) AS "time" FROM users u) d
        LEFT JOIN roles r ON r."user" = d."user" AND r."time" = d."time" """)
    return int(days)
