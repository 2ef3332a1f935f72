"""Registries: what can be chosen by name. A row names the module (or its function), which is loaded at first use.

    RULES: Registry[Rule] = Registry({"lp": "outlay.learning.mixing.lp"})                    # a module
    CAMPAIGNS: Registry[Maker] = Registry({"habit": "outlay.simulators.habit:simulator"})    # a function of a module

So the command line can list the names without loading what they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry]):
    """A mapping from names to what `module` or `module:attribute` of their rows is."""

    def __init__(self, rows: Mapping[str, str]) -> None:
        self._rows = dict(rows)

    def __getitem__(self, name: str) -> Entry:
        module, _, attribute = self._rows[name].partition(":")
        entry: Any = import_module(module)
        found: Entry = getattr(entry, attribute) if attribute else entry
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
