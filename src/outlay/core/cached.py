"""`functools.cached_property`, as Python has it from 3.12 on: instances in several threads do not wait for one another.

Before, one lock of the class holds for all its instances: folds that were measured side by side took turns.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - its name in functools
        """The value of an attribute, computed when it is first asked for; by threads that ask at once, by each."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """Return the value; of the class, the descriptor."""
            if instance is None:
                return self
            kept = vars(instance)
            if self.attrname not in kept:
                kept[self.attrname] = self.func(instance)
            return kept[self.attrname]


__all__ = ["cached_property"]
