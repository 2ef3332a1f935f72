"""Bringing a server's settings into its ledger, before it serves.

A campaign that is new to the ledger gets its caps, settings and bundle from the server that starts. One that is not
keeps the ledger's: a start that differs is refused, unless it says that it changes them for all servers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from outlay.core.errors import OutlayError
from outlay.serve.clock import Clock
from outlay.serve.config import ServeConfig
from outlay.serve.deciding.decider import POLICY, RANDOM
from outlay.serve.deciding.loaded_bundle import LoadedBundle, register_bundle
from outlay.serve.experiment.arms import ServedExperiment
from outlay.serve.experiment.notes import check_experiment, other_live_experiments, record_experiment
from outlay.serve.ledger.caps import CampaignConfig, Caps
from outlay.serve.ledger.ledger import Ledger

OWN = {"ledger_seconds", "limits"}
CAPS = ("caps.total", "caps.day", "caps.policy", "random.cap")
NOTICE = 60_000  # ms before midnight from which the next day's coverage may not grow: servers look once a second


def agree_settings(
    ledger: Ledger,
    loaded: LoadedBundle,
    config: ServeConfig,
    trial: ServedExperiment | None = None,
    clock: Clock | None = None,
    *,
    change: bool = False,
) -> list[str]:
    """Bring settings, caps and bundle into the ledger, or hold them against it. What to tell the operator.

    Args:
        ledger: may not know the campaign.
        loaded: about to be served.
        config: settings of the server.
        trial: the A/B test, or None.
        clock: the server's; None: the ledger's.
        change: the settings and the bundle are to be those of all servers from now on.

    Raises:
        LedgerError: if the ledger cannot be reached or written.
        OutlayError: if the settings, the bundle or the test are not what the ledger holds.
    """
    clock = clock or Clock(config.timezone, ledger.clock.seconds)
    day = clock.day(now := clock.now())
    soon = clock.day(now + NOTICE)
    budgets = trial.budgets if trial is not None and check_experiment(ledger, trial, soon) else {}
    words = _agree(ledger, loaded, config, budgets, change=change)
    words += register_bundle(ledger, loaded, config, now)
    if trial is not None:
        record_experiment(ledger, trial, now)
        words += _told(trial, ledger.totals(loaded.campaign).caps, loaded, day)
    for other in other_live_experiments(ledger, loaded.campaign, None if trial is None else trial.name, day):
        words.append(f"the test {other.meta.name!r} of this ledger is not served: its users are as all others.")
    return words


def _agree(
    ledger: Ledger, loaded: LoadedBundle, config: ServeConfig, budgets: Mapping[str, int], *, change: bool
) -> list[str]:
    """Caps, settings and bundle, and the budgets of arms that are new, in one transaction."""
    wanted, words = _caps(loaded, config), list[str]()

    def agreed(kept: CampaignConfig | None) -> CampaignConfig:
        words.clear()
        own = CampaignConfig(caps=wanted, settings=shared(config), bundle=loaded.bundle.id, path=str(loaded.path))
        if kept is None:
            _check_purses(budgets, wanted.total, loaded)
            if wanted.total is None:
                words.append("there is no total cap: nothing limits the spend. Give --cap.")
            return replace(own, caps=replace(wanted, arms={**wanted.arms, **budgets}))
        caps, other = _with_new_caps(kept, wanted, config)
        told = [*differences(kept.settings, config), *other]
        if kept.bundle not in ("", loaded.bundle.id):
            told.append(f"bundle: the ledger has {kept.bundle} ({kept.path}), and this server {loaded.bundle.id}")
        if told and not change:
            raise OutlayError(
                f"differ from those of the ledger's servers. {'; '.join(told)}.", file=config.path, where="settings",
                way_out="Start with the ledger's settings, or change them for all its servers with --change-settings; "
                "the others then have to be started again with the same.",
            )  # fmt: skip
        words.extend(f"changed for all servers of the ledger: {line}." for line in told)
        _check_purses(budgets, caps.total, loaded)
        caps = replace(wanted, total=caps.total, day=caps.day, arms={**caps.arms, **budgets})
        words.extend(_kept(caps, wanted, loaded))
        return replace(own, caps=caps, settings=shared(config, kept.settings))

    ledger.change_config(loaded.campaign, agreed)
    return words


def _with_new_caps(kept: CampaignConfig, wanted: Caps, config: ServeConfig) -> tuple[Caps, list[str]]:
    """The caps with those that this server gives anew, and what that changes in words."""
    caps, told = kept.caps, list[str]()
    given = new_caps(kept.settings, config) if kept.settings else {}
    for name, value in given.items():
        key = {"caps.policy": POLICY, "random.cap": RANDOM}.get(name)
        part = name.removeprefix("caps.")
        amount = wanted.arms[key] if key else getattr(wanted, part)
        if (caps.arms.get(key) if key else getattr(caps, part)) == amount:
            continue
        told.append(f"{name}: this server was given {value:g}, which is neither the ledger's cap nor the one before")
        caps = replace(caps, arms={**caps.arms, key: amount}) if key else replace(caps, **{part: amount})
    return caps, told


def _kept(caps: Caps, wanted: Caps, loaded: LoadedBundle) -> list[str]:
    own = {name: caps.arms[name] for name in (POLICY, RANDOM) if name in caps.arms}
    if (caps.total, caps.day, own) == (wanted.total, wanted.day, dict(wanted.arms)):
        return []
    total = "none" if caps.total is None else _money(loaded, caps.total)
    return [f"the ledger keeps the caps that it has (total {total}). Change them with POST /v1/admin/caps."]


def _check_purses(budgets: Mapping[str, int], total: int | None, loaded: LoadedBundle) -> None:
    """Arms that together may spend more than there is would starve one another, and the lift would show that."""
    purses = sum(budgets.values())
    if total is not None and purses > total:
        raise OutlayError(
            f"is {_money(loaded, total)}, and the arms of the new test may spend {_money(loaded, purses)} together: "
            "they would starve one another.", where="the total cap",
            way_out="Give the server a larger --cap (a campaign that the ledger knows: POST /v1/admin/caps), or plan "
            "the test with smaller budgets.",
        )  # fmt: skip


def _money(loaded: LoadedBundle, amount: int) -> str:
    return f"{loaded.money.units(amount):,.10g} {loaded.money.unit}"


def _told(trial: ServedExperiment, caps: Caps, loaded: LoadedBundle, day: int) -> list[str]:
    """What the operator should know of the test."""
    meta, today = trial.experiment.meta, day - trial.first
    if today < 0:
        when = f"begins on {meta.start}: until then nobody is in it"
    elif day >= trial.end:
        when = "is over: nobody is in it any more"
    else:
        when = f"is on day {today} of {meta.days}, with a coverage of {trial.experiment.coverage(today):g}"
    words = [f"the test {trial.name!r} ({', '.join(arm.name for arm in trial.arms)}) {when}."]
    purses = sum(caps.arms.get(name, 0) for name in trial.budgets)
    if caps.total is not None and purses > caps.total:
        words.append(
            f"the arms may spend {_money(loaded, purses)} together, and the total cap is {_money(loaded, caps.total)}: "
            "they will starve one another."
        )
    return words


def _caps(loaded: LoadedBundle, config: ServeConfig) -> Caps:
    def exact(amount: float | None) -> int | None:
        return None if amount is None else loaded.money.exact(amount)

    arms = {POLICY: exact(config.caps.policy), RANDOM: exact(config.random.cap)}
    return Caps(
        total=exact(config.caps.total),
        day=exact(config.caps.day),
        arms={name: cap for name, cap in arms.items() if cap is not None},
        user_amount=exact(config.user.amount),
        user_offers=config.user.decisions,
        user_day_amount=exact(config.user.amount_per_day),
        user_day_offers=config.user.decisions_per_day,
    )


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
