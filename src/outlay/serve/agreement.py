"""Settings that decide over money are the ledger's: what a server was started with is held against them.

Every setting of serve.toml is shared but `ledger_seconds` and `[limits]`, which are a server's own. Caps may have been
changed since by an administrator, and what is not given stays: a cap differs where it is given, and is neither the
ledger's nor the one that the ledger's servers were started with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from outlay.serve.config import ServeConfig

OWN = {"ledger_seconds", "limits"}
CAPS = ("caps.total", "caps.day", "caps.policy", "random.cap")


def shared(config: ServeConfig, held: str = "") -> str:
    """The settings that the ledger is to hold, as JSON; caps that are not given are those that it held."""
    settings = config.model_dump(mode="json", exclude=OWN)
    for section, _, key in (name.partition(".") for name in CAPS if held):
        if settings[section][key] is None:
            settings[section][key] = json.loads(held)[section][key]
    return json.dumps(settings, sort_keys=True)


def differences(held: str, config: ServeConfig) -> list[str]:
    """What differs from the ledger's settings, in words; without caps. Empty where the ledger holds none."""
    if not held:
        return []
    old, new = _flat(held), _flat(shared(config))
    return [
        f"{name}: the ledger has {_word(old[name])}, and this server {_word(new[name])}"
        for name in sorted(new)
        if name not in CAPS and old[name] != new[name]
    ]


def new_caps(held: str, config: ServeConfig) -> dict[str, float]:
    """The caps that are given and are not those with which the ledger's servers were started, by name."""
    old, new = _flat(held) if held else {}, _flat(shared(config))
    return {name: new[name] for name in CAPS if new[name] is not None and new[name] != old.get(name)}


def _flat(settings: str) -> dict[str, Any]:
    """By full name; keys that another outlay did not know have their defaults."""
    config = ServeConfig.parse(json.loads(settings))
    return dict(_leaves(config.model_dump(mode="json", exclude=OWN), ""))


def _leaves(table: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and name not in ("reserve", "plan"):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _word(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
