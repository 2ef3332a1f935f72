"""What may stand in the place of a network's hidden layers, as plain arrays: boosted trees, or a table of states.

Trees   x  = numbers, then 1 or 0 for each set of codes: whether the row's code is in it
        h_t(s) = Σ over the trees of output t of the value of the leaf that x falls into;  x_j ≤ threshold goes to `low`
table   h_i(s) = 1 where all codes and numbers of s are those of state i of the table, else 0

A split on a set of codes is a split on one column of 0 and 1, so there is one kind of split, whatever the field.

No tree is walked. The leaves of a tree are bits of a word, all of them 1 at first. For every column there is a table of
words by where x lies among the column's thresholds: 0 in the bits of leaves that a row cannot reach from there. What is
left after all columns is the one bit of the row's leaf:

    x₀ ≤ 3 ? (x₁ ≤ 5 ? a : b) : c        x = (2, 9)        column 0: {a, b, c} less {c};  column 1: less {a};  left: b

A tree with more leaves than a word has bits takes several words, of which all but one end empty.

Source: Lucchese et al. (2015), QuickScorer, for leaves as bits; a table by column instead of single nodes: ours.

Numbers and thresholds are single precision on both sides, so a comparison has the same answer on every machine. A state
that the table does not have gives h = 0, so all that is linear in h is its bias there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAF = -1  # in the place of a leaf's column
INSIDE = 0.5  # the threshold of a set
BITS = 16  # leaves of a word: those of a tree as it is learned
ROWS = 2_048  # worked on at a time, so that their words stay in the cache


@dataclass(frozen=True)
class Trees:
    """R trees of N nodes in all, which add up to T outputs.

    Attributes:
        sets: for each categorical field `[codes, sets]` 1 where the code is in the set, which may be none at all.
        column: `[N]` of x that is compared; LEAF in a leaf.
        threshold: `[N]`.
        low: `[N]` the node to go to where x ≤ threshold.
        high: `[N]` the node to go to elsewhere.
        value: `[N]` of a leaf.
        root: `[R]` first node of each tree; the nodes of a tree lie side by side.
        output: `[R]` which output each tree adds to.
        num_outputs: T.
    """

    sets: tuple[NDArray[np.uint8], ...]
    column: NDArray[np.int32]
    threshold: NDArray[np.float32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    value: NDArray[np.float32]
    root: NDArray[np.int32]
    output: NDArray[np.int32]
    num_outputs: int

    @property
    def num_parameters(self) -> int:
        """Stored parameters: a column and a threshold for each split, a value for each leaf."""
        leaves = int((self.column == LEAF).sum())
        return 2 * (len(self.column) - leaves) + leaves

    def sums(
        self, codes: NDArray[np.integer[Any]], numbers: NDArray[np.float32], *, absolute: bool = False
    ) -> NDArray[np.float64]:
        """The outputs `[N, T]` for rows of `codes [N, F]` and `numbers [N, n]`, in double precision.

        Args:
            codes: of the rows.
            numbers: of the rows.
            absolute: whether the absolute values of the leaves are added up instead.
        """
        found = np.empty((len(codes), self.num_outputs))
        words = self._words(numbers.shape[1])
        for first in range(0, len(codes), ROWS):
            part = slice(first, first + ROWS)
            leaves = words.leaves(codes[part], numbers[part])
            np.matmul(np.abs(leaves) if absolute else leaves, words.adds, out=found[part])
        return found

    @cached_property
    def _words(self) -> Callable[[int], _LeafBits]:
        """By the width of the numeric part."""
        return lru_cache(maxsize=1)(lambda num_numbers: _LeafBits.of(self, num_numbers))

    def parts(self) -> dict[str, NDArray[Any]]:
        """All of it as named arrays, for a file."""
        whole = {each.name: np.asarray(getattr(self, each.name)) for each in fields(self) if each.name != "sets"}
        return whole | {f"set_{f}": table for f, table in enumerate(self.sets)}

    @classmethod
    def of_parts(cls, parts: dict[str, NDArray[Any]]) -> Trees:
        """Return what `parts` was made from.

        Raises:
            KeyError: if a part is absent.
        """
        whole = {each.name: parts[each.name] for each in fields(cls) if each.name not in ("sets", "num_outputs")}
        tables = tuple(parts[f"set_{f}"] for f in range(sum(name.startswith("set_") for name in parts)))
        return cls(sets=tables, num_outputs=int(parts["num_outputs"]), **whole)


@dataclass(frozen=True)
class _LeafBits:
    """The leaves of all trees as bits of W words.

    Attributes:
        numbers: of each number that is compared: its place, its thresholds `[V]` in order, and `[V + 1, W]` words by
            how many of them lie below it.
        codes: of each field that is compared: its place, the kind `[codes]` of each code, and `[kinds, W]` words.
        value: `[W · (BITS + 1)]` of every bit, and after those of a word 0, for a word that ends empty.
        adds: `[W, T]` 1 where the tree of a word adds to an output.
    """

    numbers: tuple[tuple[int, NDArray[np.float32], NDArray[np.uint16]], ...]
    codes: tuple[tuple[int, NDArray[np.intp], NDArray[np.uint16]], ...]
    value: NDArray[np.float64]
    adds: NDArray[np.float64]

    @classmethod
    def of(cls, trees: Trees, num_numbers: int) -> _LeafBits:
        """Number the leaves of each tree from low to high, from the first bit of a word on."""
        first, end = np.zeros((2, len(trees.column)), np.int64)  # of the leaves below each node
        leaves: list[int] = []
        tree_of: list[int] = []  # by word

        def number(node: int) -> None:
            first[node] = len(leaves)
            if trees.column[node] == LEAF:
                leaves.append(node)
            else:
                number(trees.low[node])
                number(trees.high[node])
            end[node] = len(leaves)

        for tree, root in enumerate(trees.root):
            number(root)
            leaves += [LEAF] * (-len(leaves) % BITS)
            tree_of += [tree] * (len(leaves) // BITS - len(tree_of))
        place = np.array(leaves).reshape(-1, BITS)
        value = np.zeros((len(place), BITS + 1))
        value[:, :BITS] = np.where(place == LEAF, 0, trees.value[place])
        adds = np.zeros((len(place), trees.num_outputs))
        adds[np.arange(len(place)), trees.output[tree_of]] = 1

        def table(begin: int, x: NDArray[Any]) -> NDArray[np.uint16]:
            """Words `[V, W]` of V values `[V, c]` of the columns from `begin` on."""
            kept = np.tile(place.ravel() != LEAF, (len(x), 1))
            for node in np.flatnonzero((trees.column >= begin) & (trees.column < begin + x.shape[1])):
                low = x[:, trees.column[node] - begin] <= trees.threshold[node]
                for child, lost in ((trees.low[node], ~low), (trees.high[node], low)):
                    kept[lost, first[child] : end[child]] = False
            return np.packbits(kept, axis=1, bitorder="little").view("<u2").astype(np.uint16)

        compared, numbers, codes = np.unique(trees.column[trees.column != LEAF]), [], []
        for column in compared[compared < num_numbers].tolist():
            thresholds = np.unique(trees.threshold[trees.column == column])
            above_all = np.append(thresholds, np.float32(np.nan))[:, None]
            numbers.append((column, thresholds, table(column, above_all)))
        begin = num_numbers
        for field, sets in enumerate(trees.sets):
            if np.isin(np.arange(begin, begin + sets.shape[1]), compared).any():
                kinds, kind = np.unique(sets, axis=0, return_inverse=True)
                codes.append((field, kind.ravel(), table(begin, kinds)))
            begin += sets.shape[1]
        return cls(tuple(numbers), tuple(codes), value.ravel(), adds)

    def leaves(self, codes: NDArray[np.integer[Any]], numbers: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return `[N, W]` the value of each row's leaf, or 0 in a word that does not have it."""
        left = np.full((len(codes), len(self.adds)), -1, np.int16).view(np.uint16)
        for column, thresholds, words in self.numbers:
            left &= words[np.searchsorted(thresholds, numbers[:, column])]
        for field, kind, words in self.codes:
            left &= words[kind[codes[:, field]]]
        bit = np.bitwise_count(left - np.uint16(1))  # of the only one left; BITS if there is none
        found: NDArray[np.float64] = self.value[bit + np.arange(0, len(self.value), BITS + 1)]
        return found


class Node(NamedTuple):
    """A split, or a leaf where `column` is LEAF; a set of codes in the place of a threshold."""

    column: int
    threshold: float
    value: float
    codes: frozenset[int] | None = None
    low: Node | None = None
    high: Node | None = None


def joined(trees: Sequence[tuple[int, Node]], sizes: Sequence[int], num_numbers: int, num_outputs: int) -> Trees:
    """An ensemble of single trees.

    Args:
        trees: the output each adds to, and its root. A split on a set of codes names its field by `column`, from
            `num_numbers` on, and goes to `low` where the code is in the set.
        sizes: codes per categorical field.
        num_numbers: width of the numeric part.
        num_outputs: T.
    """
    sets: list[dict[frozenset[int], int]] = [{} for _ in sizes]
    _collect([root for _, root in trees], sets, num_numbers)
    first = num_numbers + np.cumsum([0, *map(len, sets)])
    columns: dict[str, list[Any]] = {name: [] for name in ("column", "threshold", "low", "high", "value")}

    def put(node: Node) -> int:
        place = len(columns["column"])
        low, high, column, threshold = node.low, node.high, node.column, node.threshold
        if node.codes is not None:
            field = column - num_numbers
            column, threshold = int(first[field]) + sets[field][node.codes], INSIDE
            low, high = high, low  # 0, outside of the set, is the smaller value
        for name, part in (("column", column), ("threshold", _down(threshold)), ("value", node.value)):
            columns[name].append(part)
        columns["low"].append(0)
        columns["high"].append(0)
        if low is not None and high is not None:
            columns["low"][place], columns["high"][place] = put(low), put(high)
        return place

    # An ensemble without a tree says 0, and runtimes want a tree to say it.
    given = trees or [(0, Node(LEAF, 0.0, 0.0))]
    roots = [put(root) for _, root in given]
    tables = []
    for size, known in zip(sizes, sets, strict=True):
        table = np.zeros((size, len(known)), np.uint8)
        for codes, place in known.items():
            table[sorted(codes), place] = 1
        tables.append(table)
    return Trees(
        sets=tuple(tables),
        column=np.array(columns["column"], np.int32),
        threshold=np.array(columns["threshold"], np.float32),
        low=np.array(columns["low"], np.int32),
        high=np.array(columns["high"], np.int32),
        value=np.array(columns["value"], np.float32),
        root=np.array(roots, np.int32),
        output=np.array([output for output, _ in given], np.int32),
        num_outputs=num_outputs,
    )


def _collect(nodes: Sequence[Node], sets: list[dict[frozenset[int], int]], num_numbers: int) -> None:
    """Number the different sets of each field, in the order they are met."""
    for node in nodes:
        if node.codes is not None:
            known = sets[node.column - num_numbers]
            known.setdefault(node.codes, len(known))
        _collect([child for child in (node.low, node.high) if child is not None], sets, num_numbers)


def _down(threshold: float) -> np.float32:
    """The largest single-precision number up to a threshold: x ≤ one is x ≤ the other, for x in single precision."""
    near = np.float32(threshold)
    return near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf))


@dataclass(frozen=True)
class StateTable:
    """S states, all different.

    Attributes:
        codes: `[S, F]`.
        numbers: `[S, n]`. Numbers are compared exactly: the schema encodes equal values alike.
    """

    codes: NDArray[np.int32]
    numbers: NDArray[np.float32]

    @property
    def num_parameters(self) -> int:
        """Stored numbers."""
        return int(self.codes.size + self.numbers.size)

    def sums(
        self,
        codes: NDArray[np.int32],
        numbers: NDArray[np.float32],
        *,
        absolute: bool = False,  # noqa: ARG002 (h is not negative)
    ) -> NDArray[np.float64]:
        """Return h `[N, S]` of rows of `codes [N, F]` and `numbers [N, n]`, which is its own absolute value."""
        own, wanted = _keys(self.codes, self.numbers), _keys(codes, numbers)
        order = np.argsort(own)
        place = order[np.searchsorted(own, wanted, sorter=order).clip(max=len(own) - 1)]
        h = np.zeros((len(codes), len(own)))
        h[np.arange(len(codes)), place] = own[place] == wanted
        return h

    def parts(self) -> dict[str, NDArray[Any]]:
        """Return all of it as named arrays, for a file."""
        return {"codes": self.codes, "numbers": self.numbers}

    @classmethod
    def of_parts(cls, parts: dict[str, NDArray[Any]]) -> StateTable:
        """Return what `parts` was made from.

        Raises:
            KeyError: if a part is absent.
        """
        return cls(parts["codes"], parts["numbers"])


def _keys(codes: NDArray[np.int32], numbers: NDArray[np.float32]) -> NDArray[np.bytes_]:
    """`[N]` the bytes of each row, which can be sorted and compared."""
    positive_zero = np.asarray(numbers, np.float32) + np.float32(0)
    parts = [np.ascontiguousarray(codes, np.int32).view(np.uint8), np.ascontiguousarray(positive_zero).view(np.uint8)]
    whole = np.ascontiguousarray(np.concatenate([part.reshape(len(codes), -1) for part in parts], axis=1))
    return whole.view(f"V{whole.shape[1]}").ravel() if whole.shape[1] else np.zeros(len(codes), "V1")
