"""Runs as an index shows them: ready, refused, not evaluated, and one that cannot be read."""

from __future__ import annotations

from outlay.pages.index import IndexedRun


def runs() -> list[IndexedRun]:
    """The latest first."""
    pages = ("frontier.html", "report.html")
    return [
        IndexedRun(
            folder="autumn & <winter>",
            campaign="coupons",
            pages=pages,
            trained=1_700_000_000.0,
            verdict="serve",
            grade="certified",
            words="Serve it: +11.2% active days is sure.",
            reward="active days",
            more=0.112,
            spends=-0.18,
        ),
        IndexedRun(
            folder="summer",
            campaign="coupons",
            pages=pages,
            trained=1_690_000_000.0,
            verdict="refused",
            grade="not supported",
            words="This log cannot tell.",
        ),
        IndexedRun(folder="spring", campaign="coupons", pages=("frontier.html",), trained=1_680_000_000.0),
        IndexedRun(folder="old", campaign="x", pages=(), trained=0.0, problem="is not valid JSON. Evaluate it again."),
    ]
