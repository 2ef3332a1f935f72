"""One member of a bundle: a graph in a session of onnxruntime, run in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CELLS = 1 << 20  # codes and numbers a session sees at a time, so that wide rows do not fill the memory
CHUNK_ROWS = 1_024  # and at most so many rows, so that activations stay near the processor


@dataclass(frozen=True)
class Member:
    """A policy of the mixture, ready to run.

    Attributes:
        session: an `onnxruntime.InferenceSession`.
        weight: α.
        salt: of the draw.
        head_weights: `[H]` w.
        policy: which of the L policies that the graph answers for.
        file: of the graph, for errors.
        network: which of the graph's networks it is of, where log π_B `[N, K, networks]` comes from several.
        held: numbers that the graph holds for a row, where they are many more than it takes.
    """

    session: Any
    weight: float
    salt: str
    head_weights: NDArray[np.float64]
    policy: int = 0
    file: Path | None = None
    network: int = 0
    held: int = 0

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """What the graph takes: codes, numbers, or both."""
        return tuple(given.name for given in self.session.get_inputs())

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What the graph gives, with the shape of one row: q, features, and imitation where there is such a head."""
        return {output.name: tuple(output.shape[1:]) for output in self.session.get_outputs()}

    def run(
        self, outputs: Sequence[str], codes: NDArray[np.int32], numbers: NDArray[np.float32]
    ) -> list[NDArray[np.float32]]:
        """Some outputs for N rows.

        Args:
            outputs: names out of `shapes`.
            codes: `[N, F]`, F may be 0.
            numbers: `[N, n]`, n may be 0.

        Returns:
            `[N, …]` for each output.
        """
        rows = len(codes)
        feed: dict[str, NDArray[Any]] = {"codes": codes, "numbers": numbers}
        chunk = max(1, min(CHUNK_ROWS, CELLS // (codes.shape[1] + numbers.shape[1] + self.held)))
        if 0 < rows <= chunk:
            return list(self.session.run(outputs, {name: feed[name] for name in self.inputs}))
        results = [np.empty((rows, *self.shapes[name]), np.float32) for name in outputs]
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            found = self.session.run(outputs, {name: feed[name][part] for name in self.inputs})
            for result, values in zip(results, found, strict=True):
                result[part] = values
        return results

    def own(self, q: NDArray[np.float32]) -> NDArray[np.float32]:
        """The part `[N, K, H]` of what the graph gives, `[N, K, L·H]`, that is this member's."""
        heads = len(self.head_weights)
        return q[:, :, self.policy * heads : (self.policy + 1) * heads]

    def choose(
        self,
        codes: NDArray[np.int32],
        numbers: NDArray[np.float32],
        eligible: NDArray[np.bool_] | None,
        threshold: float,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The action of each row: the largest wᵀQ among those allowed, the lower one of equals.

        Args:
            codes: `[N, F]`.
            numbers: `[N, n]`.
            eligible: `[N, K]`, at least one per row; None allows all.
            threshold: actions with π_B below this share of the largest among the eligible are left out; 0 keeps all.

        Returns:
            `[N]` action indices and `[N, K]` wᵀQ.
        """
        return self.pick(self.answer(codes, numbers, threshold), eligible, threshold)

    def answer(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float32], threshold: float
    ) -> list[NDArray[np.float32]]:
        """The part of `choose` that is the same for members with one network: Q, and log π_B if a threshold asks."""
        imitates = threshold > 0 and "imitation" in self.shapes
        return self.run(["q", "imitation"] if imitates else ["q"], codes, numbers)

    def pick(
        self, answer: list[NDArray[np.float32]], eligible: NDArray[np.bool_] | None, threshold: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The part of `choose` that is this member's own."""
        own = self.own(answer[0])  # a product of matrices this thin would take four times as long
        value: NDArray[np.float64] = sum(own[:, :, h] * weight for h, weight in enumerate(self.head_weights))
        if eligible is None and len(answer) == 1:
            return value.argmax(1), value
        allowed = np.ones(value.shape, np.bool_) if eligible is None else eligible
        if len(answer) > 1:
            imitation = answer[1] if answer[1].ndim == 2 else answer[1][:, :, self.network]
            log_prob = np.where(allowed, imitation, -np.inf)
            allowed = log_prob >= np.log(threshold) + log_prob.max(1, keepdims=True)
        return np.where(allowed, value, -np.inf).argmax(1), value
