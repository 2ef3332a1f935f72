from __future__ import annotations

import zlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from outlay.core.text_index import TextIndex

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SAME_HASH = "plumless", "buckeroo"  # different texts with one CRC-32


@given(st.sets(TEXT), TEXT, st.integers(0, 3))
def test_every_text_is_found_at_its_place_and_no_other_is(texts: set[str], other: str, skipped: int) -> None:
    ordered = sorted(texts)
    index = TextIndex.of(pa.array(["0"] * skipped + ordered, pa.string())[skipped:])  # a slice has an offset
    assert [index.find(text) for text in ordered] == list(range(len(ordered)))
    assert index.find(other) == (ordered.index(other) if other in texts else -1)


def test_texts_with_one_hash_are_told_apart() -> None:
    assert len({zlib.crc32(text.encode()) for text in SAME_HASH}) == 1
    index = TextIndex.of(pa.array(SAME_HASH))
    assert [index.find(text) for text in SAME_HASH] == [0, 1]
    assert TextIndex.of(pa.array(SAME_HASH[:1])).find(SAME_HASH[1]) == -1
