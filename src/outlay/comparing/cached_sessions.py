"""Sessions that evaluate every distinct row once.

The days that are simulated for a policy which looks at the past repeat: people who are given the same incentives have
the same past, and policies of one network at neighbouring prices meet the same rows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.bundles.decide import Bundle


@dataclass(frozen=True)
class CachedSession:
    """An `onnxruntime.InferenceSession` with a cache of about half a kilobyte a row.

    Attributes:
        session: evaluates new rows.
        known: {outputs: {a row's inputs as bytes: its outputs}}.
    """

    session: Any
    known: dict[tuple[str, ...], dict[bytes, tuple[NDArray[Any], ...]]] = field(default_factory=dict)

    def get_inputs(self) -> Any:
        """Those of the session."""
        return self.session.get_inputs()

    def get_outputs(self) -> Any:
        """Those of the session."""
        return self.session.get_outputs()

    def run(self, outputs: Sequence[str], feed: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """`[N, …]` for each output, N ≥ 1; the session sees only rows that are new."""
        columns = [np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint8) for column in feed.values()]
        keys = [row.tobytes() for row in np.concatenate(columns, axis=1)]
        known = self.known.setdefault(tuple(outputs), {})
        new = {key: row for row, key in enumerate(keys) if key not in known}
        if new:
            rows = np.array(list(new.values()))
            results = self.session.run(outputs, {name: column[rows] for name, column in feed.items()})
            known.update(zip(new, zip(*results, strict=True), strict=True))
        return [np.stack(part) for part in zip(*(known[key] for key in keys), strict=True)]


def with_cached_sessions(bundle: Bundle) -> Bundle:
    """The same bundle with cached sessions; members that share a graph share its cache."""
    sessions = {id(member.session): CachedSession(member.session) for member in bundle.members}
    return replace(bundle, members=tuple(replace(m, session=sessions[id(m.session)]) for m in bundle.members))
