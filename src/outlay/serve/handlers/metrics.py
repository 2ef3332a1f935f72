"""Prometheus metrics: counters and timings as they happen, and money from the ledger at every scrape.

With several workers, the launcher sets PROMETHEUS_MULTIPROC_DIR before this module is loaded, to a folder in which
prometheus_client adds up the workers' numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
)

from outlay.serve.deciding.features import RowEncoder
from outlay.serve.ledger.caps import Tally, Totals
from outlay.serve.ledger.money import Money

# Without this every counter has a second series, with the time at which it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)


class Metrics:
    """The metrics of one worker.

    Attributes:
        decision_seconds: time from the body of a request to /v1/decisions to its answer.
        ledger_seconds: time of a group's transaction, including the commit.
        ledger_errors: number of times that decisions were not written.
        unseen_states: decisions for a state that the log never showed, of policies that are tables of states.
        moved_clusters: requests with another cluster than that of the user's first decision in the test.
        decided: the counter of decisions by campaign, arm, member and reason.
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._decisions = Counter(
            "outlay_decisions", "Decisions given.", ("campaign", "arm", "member", "reason"), registry=registry
        )
        self._outcomes = Counter("outlay_outcomes", "Outcomes recorded.", ("kind", "status"), registry=registry)
        self._unknown = Counter(
            "outlay_unknown_values", "Values that are not in the vocabulary.", ("feature",), registry=registry
        )
        self.unseen_states = Counter(
            "outlay_unseen_states", "Decisions for a state that the log never showed.", registry=registry
        )
        self.moved_clusters = Counter(
            "outlay_moved_clusters", "Requests with another cluster than the user's first.", registry=registry
        )
        self._absent = Counter("outlay_absent_features", "Requests without a feature.", ("feature",), registry=registry)
        self.decision_seconds = Histogram(
            "outlay_decision_seconds", "From body to answer.", buckets=SECONDS, registry=registry
        )
        self.ledger_seconds = Histogram(
            "outlay_ledger_commit_seconds", "A transaction of the ledger.", buckets=SECONDS, registry=registry
        )
        self.ledger_errors = Counter(
            "outlay_ledger_errors", "Groups and requests that were not written.", registry=registry
        )
        self._refused = Counter("outlay_refused_requests", "Requests refused.", ("status",), registry=registry)
        self._money = {
            name: Gauge(
                f"outlay_budget_{name}_units", words, ("scope",), registry=registry, multiprocess_mode="mostrecent"
            )
            for name, words in (
                ("cap", "Cap, in units of money."),
                ("reserved", "Reserved."),
                ("spent", "Settled, including excess."),
                ("excess", "Settled without being covered by a reservation."),
                ("overrun", "Amount by which reserved and settled money exceeds the cap."),
            )
        }
        self._price = Gauge(
            "outlay_price", "Factor on costs, from pacing.", ("arm",), registry=registry, multiprocess_mode="mostrecent"
        )
        self._ahead = Gauge(
            "outlay_clock_ahead_seconds",
            "The machine's clock minus the ledger's.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._paused = Gauge("outlay_paused", "1 while paused.", registry=registry, multiprocess_mode="mostrecent")
        self._bundle = Gauge(
            "outlay_bundle_info",
            "1 for the bundle in service.",
            ("bundle",),
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._in_service: str | None = None
        self._seen: dict[tuple[str, str], int] = {}
        # Finding a labelled counter costs more than incrementing it, and there are few combinations.
        self.decided = cache(self._decided)

    def _decided(self, campaign: str, arm: str, member: int | None, reason: str) -> Counter:
        """Return the counter of decisions with these labels."""
        return self._decisions.labels(campaign, arm, "" if member is None else str(member), reason)

    def outcome(self, kind: str, status: str) -> None:
        """Count an outcome; kinds that move no money share one label, so that callers cannot create series."""
        self._outcomes.labels(kind if kind in ("redeemed", "refund") else "other", status).inc()

    def refused(self, status: int) -> None:
        """Count a request that was refused."""
        self._refused.labels(str(status)).inc()

    def features(self, encoder: RowEncoder) -> None:
        """Add what an encoder has counted since the previous call."""
        kinds = ("unknown", self._unknown, encoder.unknown), ("absent", self._absent, encoder.absent)
        for kind, counter, counts in kinds:
            for name, count in counts.items():
                new = count - self._seen.get((kind, name), 0)
                if new > 0:
                    counter.labels(name).inc(new)
                    self._seen[kind, name] = count

    def bundle_in_service(self, bundle: str) -> None:
        """Set the bundle in service; its encoder starts counting at 0."""
        if self._in_service is not None:
            self._bundle.labels(self._in_service).set(0)
        self._bundle.labels(bundle).set(1)
        self._in_service, self._seen = bundle, {}

    def prices(self, prices: Mapping[str, float]) -> None:
        """Set the prices of pacing, by arm."""
        for arm, price in prices.items():
            self._price.labels(arm).set(price)

    def clock(self, ahead: float) -> None:
        """Set by how many seconds the machine's clock is ahead of the ledger's."""
        self._ahead.set(ahead)

    def page(self, totals: Totals | None, money: Money, day: int) -> bytes:
        """Return the text that Prometheus reads.

        Args:
            totals: None if the ledger could not be reached; the last known money is then shown.
            money: the currency.
            day: today's number.
        """
        if totals is not None:
            self._paused.set(totals.paused)
            self._show("total", totals.total, money)
            self._show("day", totals.days.get(day, Tally(totals.caps.day, 0, 0, 0, 0, 0)), money)
            for name, tally in totals.arms.items():
                self._show(f"arm {name}", tally, money)
        registry = self._registry
        if folder := os.environ.get(FOLDER):
            _forget_dead(Path(folder))
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def _show(self, scope: str, tally: Tally, money: Money) -> None:
        self._money["cap"].labels(scope).set(float("inf") if tally.cap is None else money.units(tally.cap))
        self._money["reserved"].labels(scope).set(money.units(tally.reserved))
        self._money["spent"].labels(scope).set(money.units(tally.settled))
        self._money["excess"].labels(scope).set(money.units(tally.excess))
        self._money["overrun"].labels(scope).set(money.units(tally.overrun))


def _forget_dead(folder: Path) -> None:
    """Remove the gauges of workers that have ended."""
    for file in folder.glob("gauge_live*_*.db"):
        process = int(file.stem.rpartition("_")[2])
        try:
            os.kill(process, 0)
        except (ProcessLookupError, PermissionError):  # or another user's process has its number by now
            multiprocess.mark_process_dead(process)  # type: ignore[no-untyped-call]
