"""The column `members`: short where it can be, and whole when it is read."""

from __future__ import annotations

import pytest
from msgspec import DecodeError

from outlay.serve.deciding.draws import DrawRecord, read, write


def test_a_draw_comes_back_as_it_was() -> None:
    draw = DrawRecord([3, 17], [0, 2], [0.25, 0.75], 1.1, 0.02, [0, 2])
    assert read(write(draw).decode()) == draw
    assert write(DrawRecord([0], [1], [1.0])) == b'{"members":[0],"actions":[1],"weights":[1.0]}'


def test_a_row_without_a_draw_reads_as_an_empty_one() -> None:
    assert read("{}") == DrawRecord()
    with pytest.raises(DecodeError):
        read("")
