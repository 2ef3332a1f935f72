"""The ledger over any SQL database: lock, read, decide, write, commit.

Every writing transaction first locks its campaigns, in the order of their names, until it ends. So only one writer at a
time moves a campaign's money, what it has read remains valid until it commits, and deadlocks cannot occur. SQLite locks
the whole file instead, which amounts to the same with one campaign.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from msgspec.structs import replace

from outlay.serve.ledger import campaigns as campaign_rows
from outlay.serve.ledger import repository, settlement
from outlay.serve.ledger.admission import admit, keys
from outlay.serve.ledger.caps import CampaignConfig, Caps, Tally, Totals
from outlay.serve.ledger.clock import LedgerClock
from outlay.serve.ledger.ledger import ClockJumpedError, DecisionRow, Note
from outlay.serve.ledger.records import Outcome, OutcomeResult, Proposal, Recorded
from outlay.serve.ledger.repository import Transaction
from outlay.serve.ledger.tables import CHECKS

BATCH = 1000  # reservations released in one transaction
PAGE = 5000  # rows read in one transaction
# The ledger whose calls in this thread take part in a transaction, and that transaction (`together`).
_JOINED: ContextVar[tuple[object, Transaction | None]] = ContextVar("joined", default=(None, None))


class SqlLedger(ABC):
    """A `Ledger` over a database; a backend supplies the transactions."""

    lock = ""  # the end of a query that locks the rows it reads, such as "for update"
    clock: LedgerClock
    warnings: Sequence[str] = ()

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that is on disk if the block ends normally, and leaves no trace if it raises."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that reads a consistent snapshot and blocks nobody."""

    def _looking(self) -> AbstractContextManager[Transaction]:
        """Begin as `_reading` does; a backend that can does so on a connection that it keeps."""
        return self._reading()

    def _write(self) -> AbstractContextManager[Transaction]:
        """Begin to write; or take part in the transaction that `together` began."""
        owner, tx = _JOINED.get()
        return nullcontext(tx) if tx is not None and owner is self else self._writing()

    def _read(self) -> AbstractContextManager[Transaction]:
        """Begin to read; or take part."""
        owner, tx = _JOINED.get()
        return nullcontext(tx) if tx is not None and owner is self else self._reading()

    def record(self, proposals: Sequence[Proposal]) -> list[Recorded]:
        """Decide and write a group in one transaction; return the answers in the order of the proposals."""
        if not proposals:
            return []
        jumps = self.clock.jumps
        with self._write() as tx:
            campaigns = campaign_rows.states(tx, {proposal.campaign for proposal in proposals}, self.lock)
            self._check_clock(jumps)
            stored = repository.answers(tx, {(proposal.campaign, proposal.request_id) for proposal in proposals})
            counters = repository.counters(tx, keys(proposals, campaigns))
            answers, given = admit(proposals, stored, campaigns, counters)
            repository.add_decisions(tx, given, counters)
        return answers

    def outcomes(self, events: Sequence[Outcome]) -> list[OutcomeResult]:
        """Store a group of outcomes and move their money in one transaction; return the answers in the same order."""
        if not events:
            return []
        ids = {event.decision_id for event in events}
        answers, kept, entries = [], [], []
        with self._write() as tx:
            campaigns = campaign_rows.states(tx, repository.campaigns_of(tx, ids), self.lock)
            positions = repository.positions(tx, ids)
            known = repository.events(tx, {(event.decision_id, event.kind, event.event_id) for event in events})
            counters = repository.counters(tx, keys(positions.values(), campaigns))
            for event in events:
                key = event.decision_id, event.kind, event.event_id
                position = positions.get(event.decision_id)
                if position is None or event.campaign not in (None, position.campaign):
                    answers.append(repository.settled(event, "unknown"))
                    continue
                if key in known:
                    answers.append(_again(event, *known[key]))
                    continue
                status, entry = settlement.settle(event, position, campaigns[position.campaign].caps, counters)
                moved = (abs(entry.settled), abs(entry.excess)) if entry else (0, 0)
                known[key] = event, repository.settled(event, status, *moved)
                answers.append(known[key][1])
                kept.append(known[key])
                if entry:
                    entries.append(entry)
            repository.add_outcomes(tx, kept)
            repository.add_entries(tx, entries, positions, counters)
        return answers

    def release(self, campaign: str, now: int) -> int:
        """Release a campaign's reservations that expire at `now` (epoch ms) or earlier; return how many there were."""
        released, jumps = 0, self.clock.jumps
        while (batch := self._release_batch(campaign, now, jumps)) is not None:
            released += batch
        return released

    def set_caps(self, campaign: str, caps: Caps) -> None:
        """Replace a campaign's caps, from the next decision on. The first call creates the campaign."""
        self.change_caps(campaign, lambda _before: caps)

    def change_caps(self, campaign: str, change: Callable[[Caps | None], Caps]) -> Caps:
        """Replace the caps with what `change` returns for them, in one transaction; return the new caps."""
        with self._write() as tx:
            config = campaign_rows.create_and_lock(tx, campaign, self.lock)
            before = None if config is None else config.caps
            caps = change(before)
            campaign_rows.set_caps(tx, campaign, before or Caps(), caps)
        return caps

    def config(self, campaign: str) -> CampaignConfig | None:
        """Return what the campaign's servers share; None if there is no such campaign."""
        with self._read() as tx:
            return campaign_rows.config(tx, campaign)

    def change_config(self, campaign: str, change: Callable[[CampaignConfig | None], CampaignConfig]) -> CampaignConfig:
        """Replace what the campaign's servers share with what `change` returns, in one transaction; return it."""
        with self._write() as tx:
            before = campaign_rows.create_and_lock(tx, campaign, self.lock)
            after = change(before)
            if before is None or before.caps != after.caps:
                campaign_rows.set_caps(tx, campaign, Caps() if before is None else before.caps, after.caps)
            if before is None or replace(before, caps=after.caps) != after:
                campaign_rows.set_config(tx, campaign, after)
        return after

    @contextmanager
    def together(self, campaign: str) -> Iterator[None]:
        """Lock a campaign, and make this thread's calls within the block one transaction."""
        with self._write() as tx:
            campaign_rows.create_and_lock(tx, campaign, self.lock)
            before = _JOINED.set((self, tx))
            try:
                yield
            finally:
                _JOINED.reset(before)

    def forget_clock(self) -> None:
        """Set the ledger's clock to this machine's; no effect if the database has a clock of its own."""
        with self._write() as tx:
            tx.run("update clock set boot = '', ticks = 0, ts = 0")
            campaign_rows.read_clock(tx)

    def pause(self, campaign: str) -> None:
        """Answer "no incentive" from the next decision on, on every server, until `resume` is called."""
        self._set_paused(campaign, True)

    def resume(self, campaign: str) -> None:
        """End a pause."""
        self._set_paused(campaign, False)

    def note(self, campaign: str, note: Note) -> Note:
        """Store the note if its kind and key are free; return the note that is stored there, on disk."""
        with self._write() as tx:
            campaign_rows.states(tx, {campaign}, self.lock)
            return campaign_rows.add_note(tx, campaign, note)

    def notes(self, campaign: str, kind: str) -> list[Note]:
        """Return all notes of a kind, ordered by ts and key."""
        with self._read() as tx:
            campaign_rows.states(tx, {campaign})
            return campaign_rows.notes(tx, campaign, kind)

    def campaigns(self) -> list[str]:
        """Return the names of all campaigns, sorted."""
        with self._read() as tx:
            return sorted(name for (name,) in tx.read("select name from campaign"))

    def totals(self, campaign: str) -> Totals:
        """Return the campaign's money by scope."""
        sql = """select scope, key, day, reserved, settled, offers, decisions, granted, excess from counter
            where campaign = ? and scope in ('total', 'day', 'arm')"""
        with self._read() as tx:
            caps, paused = campaign_rows.states(tx, {campaign})[campaign]
            counters = {(scope, key, day): money for scope, key, day, *money in tx.read(sql, campaign)}
        days = sorted(int(day) for scope, _, day in counters if scope == "day")
        arms = sorted({*caps.arms, *(arm for scope, arm, _ in counters if scope == "arm")})
        arm_days = sorted((arm, int(day)) for scope, arm, day in counters if scope == "arm" and day)
        return Totals(
            campaign=campaign,
            caps=caps,
            paused=paused,
            total=_tally(caps.total, counters.get(("total", "", ""))),
            days={day: _tally(caps.day, counters["day", "", str(day)]) for day in days},
            arms={arm: _tally(caps.arms.get(arm), counters.get(("arm", arm, ""))) for arm in arms},
            arm_days={(arm, day): _tally(None, counters["arm", arm, str(day)]) for arm, day in arm_days},
        )

    def rows(self, campaign: str, after: int, until: int) -> Iterator[DecisionRow]:
        """Yield decisions with after ≤ ts < until (epoch ms), ordered by id."""
        first, end = f"{max(after, 0):012x}", f"{max(until, 0):012x}"
        while True:
            with self._read() as tx:
                page = repository.rows(tx, campaign, first, end, PAGE)
            yield from page
            if len(page) < PAGE:
                return
            first = page[-1].decision_id

    def past(self, campaign: str, users: Collection[str], first: int, until: int) -> tuple[list[DecisionRow], set[str]]:
        """Return the decisions of users on the days from `first` to before `until`, by id, and who has earlier ones."""
        with self._looking() as tx:
            return repository.past(tx, campaign, set(users), first, until)

    def touch(self, campaign: str) -> None:
        """Commit a write that changes nothing, under the lock that decisions need."""
        with self._write() as tx:
            campaign_rows.states(tx, {campaign}, self.lock)
            for _ in range(2):  # SQLite writes no page that is unchanged
                tx.run("update campaign set paused = not paused where name = ?", campaign)

    def check(self) -> list[str]:
        """Compare counters, reservations and caps with the sums of the rows; return one line per discrepancy."""
        with self._read() as tx:
            return [
                f"{what}: {', '.join(map(str, row))}"
                for what, sql in CHECKS.items()
                for row in tx.read(f"select * from ({sql}) as wrong limit 20")
            ]

    def _check_clock(self, jumps: int) -> None:
        if self.clock.jumps != jumps:
            raise ClockJumpedError(
                "the ledger's clock has jumped since this server last read it.",
                way_out="Try again: the server has read it by now.",
            )

    def _release_batch(self, campaign: str, now: int, jumps: int) -> int | None:
        """Release a batch of expired reservations and return its size; None if there are none."""
        with self._write() as tx:
            campaign_rows.read_clock(tx)
            self._check_clock(jumps)
            sql = f"""select decision_id from decision
                where state = 'reserved' and expires <= ? and campaign || '' = ? limit {BATCH}"""
            due = [key for (key,) in tx.read(sql, now, campaign)]
            if not due:
                return None
            campaigns = campaign_rows.states(tx, {campaign}, self.lock)
            positions = repository.positions(tx, due)
            counters = repository.counters(tx, keys(positions.values(), campaigns))
            # Between the first query and the lock, another server may have settled or released some.
            held = [position for position in positions.values() if position.state == "reserved"]
            entries = [
                settlement.release(position, campaigns[position.campaign].caps, counters, now) for position in held
            ]
            repository.add_entries(tx, entries, positions, counters)
        return len(entries)

    def _set_paused(self, campaign: str, paused: bool) -> None:
        with self._write() as tx:
            campaign_rows.states(tx, {campaign}, self.lock)
            campaign_rows.set_paused(tx, campaign, paused)


def _tally(cap: int | None, money: Sequence[int] | None) -> Tally:
    return Tally(cap, *(money or (0, 0, 0, 0, 0, 0)))


def _again(event: Outcome, before: Outcome, answer: OutcomeResult) -> OutcomeResult:
    if (event.value, event.amount) != (before.value, before.amount):
        return repository.settled(event, "conflict")
    return replace(answer, replayed=True)
