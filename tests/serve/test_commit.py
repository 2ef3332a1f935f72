from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice

import pytest
from stopwatch import Stopwatch

from outlay.serve.handlers import commit as module
from outlay.serve.handlers.commit import LARGEST, GroupCommit
from outlay.serve.ledger.ledger import LedgerError, UndecidedError
from patience import PATIENCE


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    """By which callers wait."""
    watch = Stopwatch()
    monkeypatch.setattr(module, "time", watch)
    return watch


class Disk:
    """Work that waits for `open`, remembers its groups, doubles its items, and refuses 13."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.busy = threading.Event()  # has it ever been asked to write
        self.groups: list[list[int]] = []

    def write(self, items: list[int]) -> list[int]:
        """Twice every item."""
        assert threading.current_thread() is not threading.main_thread()
        self.busy.set()
        assert self.open.wait(PATIENCE)
        self.groups.append(list(items))
        if 13 in items:
            raise LedgerError("the disk is full.")
        return [2 * item for item in items]


def play(story: Callable[[Disk, GroupCommit[int, int]], Awaitable[None]]) -> Disk:
    disk = Disk()

    async def run() -> None:
        commit = GroupCommit(disk.write)
        await asyncio.wait_for(story(disk, commit), PATIENCE)
        await commit.close()

    asyncio.run(run())
    return disk


async def in_line(disk: Disk, commit: GroupCommit[int, int], *items: int) -> asyncio.Task[list[int]]:
    """Wait until they are on their way, and the disk, which is closed, writes what came first."""
    task = asyncio.create_task(commit(items))
    await asyncio.sleep(0.01)  # turns of this loop, in which they go to the thread
    while not disk.busy.is_set():
        await asyncio.sleep(0.001)
    return task


def test_everyone_gets_his_own_answers_in_his_order() -> None:
    async def story(disk: Disk, commit: GroupCommit[int, int]) -> None:
        asked = [[1], [2, 3], [], [4, 1, 4]]
        assert await asyncio.gather(*map(commit, asked)) == [[2], [4, 6], [], [8, 2, 8]]

    assert play(story).groups == [[1, 2, 3, 4, 1, 4]]


def test_what_comes_while_the_disk_is_busy_is_the_next_group() -> None:
    async def story(disk: Disk, commit: GroupCommit[int, int]) -> None:
        disk.open.clear()
        first = await in_line(disk, commit, 1)
        others = [await in_line(disk, commit, item) for item in (2, 3, 4)]
        assert not first.done()
        disk.open.set()
        assert await asyncio.gather(first, *others) == [[2], [4], [6], [8]]

    assert play(story).groups == [[1], [2, 3, 4]]


def test_a_group_stops_growing_when_it_is_large() -> None:
    async def story(disk: Disk, commit: GroupCommit[int, int]) -> None:
        batch = list(range(100, 100 + LARGEST - 1))
        await asyncio.gather(commit(batch), commit([1, 2]), commit([3]))

    assert [len(group) for group in play(story).groups] == [LARGEST + 1, 1]


def test_a_failed_group_fails_for_everyone_in_it_and_for_nobody_else() -> None:
    async def story(disk: Disk, commit: GroupCommit[int, int]) -> None:
        answers = await asyncio.gather(commit([1]), commit([13]), commit([2]), return_exceptions=True)
        assert all(isinstance(answer, LedgerError) for answer in answers)
        assert await commit([5]) == [10]

    play(story)


def test_a_bug_in_the_work_hangs_nobody() -> None:
    async def run() -> None:
        short: GroupCommit[int, int] = GroupCommit(lambda _: [])
        with pytest.raises(AssertionError):
            await asyncio.wait_for(short([1]), PATIENCE)
        await short.close()

    asyncio.run(run())


def test_who_gives_up_in_line_is_left_out() -> None:
    async def story(disk: Disk, commit: GroupCommit[int, int]) -> None:
        disk.open.clear()
        first, second, third = [await in_line(disk, commit, item) for item in (1, 2, 3)]
        second.cancel()
        await asyncio.sleep(0)
        disk.open.set()
        assert (await first, await third) == ([2], [6])
        with pytest.raises(asyncio.CancelledError):
            await second

    assert play(story).groups == [[1], [3]]


def test_who_gives_up_while_it_is_written_does_not_disturb_the_others() -> None:
    async def story(disk: Disk, commit: GroupCommit[int, int]) -> None:
        disk.open.clear()
        first, second = asyncio.create_task(commit([1])), await in_line(disk, commit, 2)
        first.cancel()
        await asyncio.sleep(0.01)
        disk.open.set()
        assert await second == [4]
        assert await commit([3]) == [6]

    assert play(story).groups == [[1, 2], [3]]


def test_closing_commits_what_is_in_line_and_takes_nothing_more() -> None:
    async def story(disk: Disk, commit: GroupCommit[int, int]) -> None:
        disk.open.clear()
        waiting = [await in_line(disk, commit, item) for item in (1, 2, 3)]
        closing = asyncio.create_task(commit.close())
        await asyncio.sleep(0.01)
        with pytest.raises(LedgerError, match="closed"):
            await commit([4])
        disk.open.set()
        await closing
        assert [task.result() for task in waiting] == [[2], [4], [6]]

    play(story)


def test_who_gives_up_closing_leaves_the_writing_alone() -> None:
    async def story(disk: Disk, commit: GroupCommit[int, int]) -> None:
        disk.open.clear()
        waiting = await in_line(disk, commit, 1)
        closing = asyncio.create_task(commit.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.sleep(0.01)
        disk.open.set()
        assert await waiting == [2]

    play(story)


def test_nobody_hangs_when_the_event_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    disk.open.clear()
    noise: list[object] = []
    monkeypatch.setattr(threading, "excepthook", noise.append)

    async def run() -> None:
        commit = GroupCommit(disk.write)
        await asyncio.gather(*[in_line(disk, commit, item) for item in (1, 2)])

    asyncio.run(run())
    assert not disk.groups  # it is still being written
    (writer,) = (thread for thread in threading.enumerate() if thread.name == "ledger")
    disk.open.set()
    writer.join(PATIENCE)
    assert not writer.is_alive()
    assert not noise


def test_who_comes_while_the_others_have_waited_long_is_refused_at_once(watch: Stopwatch) -> None:
    async def run() -> None:
        disk = Disk()
        disk.open.clear()
        commit = GroupCommit(disk.write, seconds=1.0)
        waiting = [await in_line(disk, commit, item) for item in (1, 2)]
        watch.now += 0.6
        with pytest.raises(LedgerError, match="more requests are waiting"):
            await commit([3])
        disk.open.set()
        assert await asyncio.gather(*waiting) == [[2], [4]]
        assert await commit([3]) == [6]
        await commit.close()
        assert disk.groups == [[1], [2], [3]]

    asyncio.run(run())


def test_who_has_waited_too_long_in_line_is_told_and_left_out_of_it(watch: Stopwatch) -> None:
    async def run() -> None:
        disk = Disk()
        disk.open.clear()
        commit = GroupCommit(disk.write, seconds=0.1)
        written = await in_line(disk, commit, 1)
        late = await in_line(disk, commit, 2)
        watch.now += 0.1
        await asyncio.sleep(0.05)
        assert not late.done()
        watch.now += 0.001
        with pytest.raises(TimeoutError):
            await late
        disk.open.set()
        with pytest.raises(UndecidedError):  # the disk has it already
            await written
        while not disk.groups:
            await asyncio.sleep(0.001)
        assert await commit([3]) == [6]
        await commit.close()
        assert disk.groups == [[1], [3]]

    asyncio.run(run())


def test_what_is_said_not_to_be_written_never_is(watch: Stopwatch) -> None:
    """On a disk that needs about as long as anybody waits, so that many give up just when they are taken."""
    written: set[int] = set()
    ended: dict[str, set[int]] = defaultdict(set)
    items = count()

    def write(items: list[int]) -> list[int]:
        watch.now += random.uniform(0.0, 0.004)
        time.sleep(random.uniform(0.0, 0.004))
        watch.now += random.uniform(0.0, 0.004)
        written.update(items)
        return items

    async def run() -> None:
        commit = GroupCommit(write, seconds=0.004)

        async def client() -> None:
            for item in islice(items, 40):
                try:
                    await commit([item])
                    ended["answered"].add(item)
                except UndecidedError:
                    ended["undecided"].add(item)
                except (TimeoutError, LedgerError):
                    ended["none"].add(item)
                await asyncio.sleep(random.uniform(0.0, 0.002))

        await asyncio.gather(*(client() for _ in range(20)))
        await commit.close()

    until = time.monotonic() + PATIENCE
    while not (ended["answered"] and ended["undecided"] and ended["none"]):
        assert time.monotonic() < until, ended
        asyncio.run(run())
    assert ended["answered"] <= written
    assert not ended["none"] & written


def test_a_line_that_moves_refuses_nobody(watch: Stopwatch) -> None:
    async def run() -> None:
        disk = Disk()
        commit = GroupCommit(disk.write, seconds=0.1)
        for item in range(20, 40):
            assert await commit([item]) == [2 * item]
            watch.now += 0.04
            await asyncio.sleep(0.005)
        await commit.close()

    asyncio.run(run())


def test_a_thousand_clients_from_one_loop_are_all_answered() -> None:
    async def story(disk: Disk, commit: GroupCommit[int, int]) -> None:
        async def client(number: int) -> None:
            for turn in range(5):
                item = 100 + 10 * number + turn
                assert await commit([item]) == [2 * item]

        await asyncio.gather(*map(client, range(1000)))

    disk = play(story)
    assert sum(len(group) for group in disk.groups) == 5000
    assert len(disk.groups) < 100


def test_two_loops_may_share_a_ledger_through_two_committers() -> None:
    disk = Disk()

    async def run(item: int) -> list[int]:
        commit = GroupCommit(disk.write)
        answers = await commit([item])
        await commit.close()
        return answers

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda item: asyncio.run(run(item)), (1, 2))) == [[2], [4]]
