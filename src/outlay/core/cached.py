"""`functools.cached_property` without a lock, as it is from Python 3.12 on.

Up to Python 3.11 all instances of a class share one lock, so folds that are measured in several threads take turns.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - its name in functools
        """An attribute that is computed at its first use; threads that use it at the same time each compute it."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """Return the value; of the class, the descriptor."""
            if instance is None:
                return self
            kept = vars(instance)
            if self.attrname not in kept:
                kept[self.attrname] = self.func(instance)
            return kept[self.attrname]


__all__ = ["cached_property"]
