"""Whether the clusters of a log can be used: every user is in one, and there are enough of them.

Learn, select and certify users are drawn by cluster, so each part needs a few; standard errors come from the clusters
of a part, and with few of them they are rough.
"""

from __future__ import annotations

from outlay.core.transitions import CERTIFY, SPLITS
from outlay.core.wording import counted
from outlay.logs.findings import Finding
from outlay.logs.roles import Log
from outlay.ops.intervals import LEAST_USERS

LEAST = 2  # clusters in each part: with one there is no standard error


def clustering(log: Log) -> list[Finding]:
    """Findings about the clusters of the linked log; none without clusters."""
    if log.campaign.log.cluster is None:
        return []
    run, drop = log.source.run, "Fix them, or leave these rows out with log.where."
    missing = int(run("SELECT count(*) - count(cluster) FROM roles")[0][0])
    if missing:
        row, user = run('SELECT row, "user" FROM roles WHERE cluster IS NULL ORDER BY row LIMIT 1')[0]
        message = f"the cluster is missing in {counted(missing, 'row')}, first in row {row + 1} (user {user})."
        return [Finding("error", "log.cluster", message, drop, missing)]
    moved = run(
        'SELECT "user", min(cluster), max(cluster), min(row) AS first, count(*) OVER () FROM roles '
        'WHERE "user" IS NOT NULL GROUP BY "user" HAVING min(cluster) <> max(cluster) ORDER BY first LIMIT 1'
    )
    if moved:
        user, one, other, _, count = moved[0]
        message = f"{counted(count, 'user', 'are')} in more than one cluster, first user {user}: {one} and {other}."
        way_out = "Give an expression that never changes for a user, such as the cluster of the first row."
        return [Finding("error", "log.cluster", message, way_out, int(count))]
    clusters = int(run("SELECT count(DISTINCT cluster) FROM roles")[0][0])
    if clusters < LEAST * len(SPLITS):
        message = f"the users come in {clusters} clusters, too few: each of {', '.join(SPLITS)} needs {LEAST}."
        return [
            Finding("error", "log.cluster", message, "Give smaller clusters, or a log with more of them.", clusters)
        ]
    certify = log.campaign.train.shares[CERTIFY] * clusters
    if certify < LEAST_USERS:
        message = (
            f"about {certify:.0f} of {clusters:,} clusters certify; with fewer than {LEAST_USERS} standard "
            "errors are rough, and nothing is certified."
        )
        way_out = "Give smaller clusters or a larger certify part (train.shares), or learn a frontier with folds."
        return [Finding("warning", "log.cluster", message, way_out, clusters)]
    return []
