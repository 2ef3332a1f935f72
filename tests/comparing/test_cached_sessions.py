"""Every row is asked once, and answered as the session itself would."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle
from outlay.comparing.cached_sessions import with_cached_sessions


@dataclass(frozen=True)
class Counting:
    """A session that notes how many rows it sees."""

    session: Any
    seen: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run(self, outputs: list[str], feed: dict[str, NDArray[Any]]) -> Any:
        """As the session, noted."""
        self.seen.append(len(feed["codes"]))
        return self.session.run(outputs, feed)


def rows(numbers: list[float]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    codes = np.tile(np.array([[1, 2]], np.int32), (len(numbers), 1))
    return codes, np.array([[number, 0] for number in numbers], np.float32)


def test_a_row_is_asked_once_and_its_answers_stay_the_same(bundle: Bundle) -> None:
    session = Counting(bundle.members[0].session)
    asked = with_cached_sessions(replace(bundle, members=(replace(bundle.members[0], session=session),)))
    for numbers in ([0.5, 1.0, 0.5], [1.0, 2.0], [0.5, 2.0, 1.0]):
        wanted = bundle.members[0].run(["q", "imitation"], *rows(numbers))
        for one, other in zip(asked.members[0].run(["q", "imitation"], *rows(numbers)), wanted, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    assert session.seen == [2, 1]
    features = asked.members[0].run(["features"], *rows([0.5]))[0]
    np.testing.assert_allclose(features, bundle.members[0].run(["features"], *rows([0.5]))[0], rtol=0, atol=1e-6)
    assert session.seen == [2, 1, 1], "other outputs are other answers"


def test_members_of_one_graph_share_its_answers_and_others_do_not(bundle: Bundle) -> None:
    one, other = (Counting(member.session) for member in bundle.members)
    first, second = bundle.members
    shared = replace(bundle, members=(replace(first, session=one), replace(second, session=one)))
    asked = with_cached_sessions(shared)
    for number in range(2):
        assert np.array_equal(
            asked.member_actions(number, *rows([0.1, 0.2])), shared.member_actions(number, *rows([0.1, 0.2]))
        )
    assert one.seen.count(2) == 3, "twice by the bundle itself, once by the one that remembers"
    apart = with_cached_sessions(replace(bundle, members=(replace(first, session=one), replace(second, session=other))))
    for number in range(2):
        apart.member_actions(number, *rows([0.1, 0.2]))
    assert other.seen == [2]
