"""One member of a bundle: a graph in a session of onnxruntime, run in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

CELLS = 1 << 20  # codes and numbers a session sees at a time, so that wide rows do not fill the memory
CHUNK_ROWS = 4_096  # and at most so many rows, so that activations stay near the processor


@dataclass(frozen=True)
class Member:
    """A policy of the mixture, ready to run.

    Attributes:
        session: an `onnxruntime.InferenceSession`.
        weight: α.
        salt: of the draw.
        head_weights: `[H]` w.
    """

    session: Any
    weight: float
    salt: str
    head_weights: NDArray[np.float64]

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
        feed = {"codes": codes, "numbers": numbers}
        chunk = max(1, min(CHUNK_ROWS, CELLS // (codes.shape[1] + numbers.shape[1])))
        if 0 < rows <= chunk:
            return list(self.session.run(outputs, {name: feed[name] for name in self.inputs}))
        results = [np.empty((rows, *self.shapes[name]), np.float32) for name in outputs]
        for start in range(0, rows, chunk):
            part = slice(start, start + chunk)
            found = self.session.run(outputs, {name: feed[name][part] for name in self.inputs})
            for result, values in zip(results, found, strict=True):
                result[part] = values
        return results

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
        imitates = threshold > 0 and "imitation" in self.shapes
        found = self.run(["q", "imitation"] if imitates else ["q"], codes, numbers)
        value = found[0] @ self.head_weights
        allowed = np.ones(value.shape, np.bool_) if eligible is None else eligible
        if imitates:
            log_prob = np.where(allowed, found[1], -np.inf)
            allowed = log_prob >= np.log(threshold) + log_prob.max(1, keepdims=True)
        return np.where(allowed, value, -np.inf).argmax(1), value
